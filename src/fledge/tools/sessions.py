"""`sessions_spawn`: how a model starts a subagent. It returns at once; the answer comes through the inbox.

Checked in one commit with the reservation, so limits hold however many calls race. The call's own place in the
transcript is its idempotency key, so a call that is repeated after a crash finds the child it made before.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fledge.config import Config, model_for_child, subagent_limits, thinking_for_child
from fledge.core.access import refuse_target
from fledge.core.keys import agent_of, check_agent_id
from fledge.core.policy import YIELD_S, Limits
from fledge.core.prompts import accepted_note
from fledge.core.run import Run, Terms
from fledge.core.transcript import YIELD
from fledge.errors import BadInput, Refused
from fledge.orchestrator import budget, spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.store.base import Spec
from fledge.tools.base import Tool, ToolContext, tool

Task = Annotated[str, Meta(description="what the subagent is to do; it knows nothing else, so say all it needs")]
Seconds = Annotated[float, Meta(ge=0, description="end it after so many seconds of work; 0: no limit")]


def spawn_tool(engine: Engine, config: Config, check_model: Callable[[str], None]) -> Tool:
    """The tool `sessions_spawn` for sessions of this engine. `check_model` refuses a name that cannot be used."""

    @tool(name="sessions_spawn", repeatable=True)
    async def sessions_spawn(
        context: ToolContext,
        task: Task,
        label: Annotated[str, Meta(description="a few words to tell it from others")] = "",
        agent_id: Annotated[str, Meta(description="another agent's id, if yours may spawn it")] = "",
        model: Annotated[str, Meta(description="another model than the usual one")] = "",
        thinking: Literal["", "off", "minimal", "low", "medium", "high"] = "",
        run_timeout_seconds: Seconds | None = None,
        cleanup: Annotated[
            Literal["keep", "delete"], Meta(description="delete: forget its session afterwards")
        ] = "keep",
        plan_mode: Annotated[bool, Meta(description="first only plan, and wait for approval")] = False,
        expects_completion_message: Annotated[bool, Meta(description="false: nobody waits for the answer")] = True,
        idempotency_key: str = "",
    ) -> str:
        """Start a subagent that works in the background. Returns at once; its answer is pushed to you when done."""
        try:
            asked = _Asked(task, label, agent_id, model, thinking, run_timeout_seconds, cleanup, plan_mode)
            request, chosen = _request(config, context, asked, expects_completion_message, idempotency_key)
            if chosen:
                check_model(chosen)
            run = await engine.commit(lambda c: _spawn(c, config, request))
        except (Refused, BadInput) as error:
            status = error.status if isinstance(error, Refused) else "error"
            return _json({"status": status, "error": str(error)})
        answer: dict[str, object] = {
            "status": "accepted",
            "childSessionKey": run.key,
            "runId": run.run_id,
            "mode": run.terms.mode,
        }
        if chosen:
            answer |= {"modelApplied": True, "resolvedModel": chosen}
        answer["note"] = accepted_note(run.terms.mode, run.terms.parent)
        return _json(answer)

    return sessions_spawn


Wanted = Annotated[
    Literal["all", "any"] | Annotated[int, Meta(ge=1)],
    Meta(description="wait for all children, for any one, or for so many"),
]
Patience = Annotated[float, Meta(gt=0, le=86_400, description="go on after so many seconds in any case")]


class Yielding(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of `sessions_yield`, as the turn reads them once all results of its step are in."""

    for_: Literal["all", "any"] | int = "all"
    deadline_seconds: float = YIELD_S
    message: str = ""


def yield_tool() -> Tool:
    """The tool `sessions_yield`. It says that the turn will end; the turn itself ends it."""

    @tool(name=YIELD, repeatable=True, read_only=True)
    async def sessions_yield(
        for_: Wanted = "all",
        deadline_seconds: Patience = YIELD_S,
        message: Annotated[str, Meta(description="a line about what you wait for")] = "",
    ) -> str:
        """End this turn and wait for your subagents without using anything up; you go on with their results."""
        return message.strip() or "Turn yielded."

    return sessions_yield


class _Asked(msgspec.Struct, frozen=True):
    task: str
    label: str
    agent_id: str
    model: str
    thinking: str
    timeout_s: float | None
    cleanup: Literal["keep", "delete"]
    plan: bool


def _request(config: Config, context: ToolContext, asked: _Asked, expects: bool, key: str) -> tuple[spawn.Request, str]:
    """The spawn as the configuration completes it, and the model it will use."""
    own = agent_of(context.session)
    target = check_agent_id(asked.agent_id) if asked.agent_id else own
    limits = subagent_limits(config, own)
    if asked.agent_id:
        refusal = refuse_target(own, target, limits.allow_agents)
        if refusal is not None:
            raise Refused(refusal.status, refusal.reason)
    chosen = model_for_child(config, asked.model or None, target)
    level = thinking_for_child(config, asked.thinking or None, target)
    timeout_s = limits.run_timeout_seconds if asked.timeout_s is None else asked.timeout_s
    spec = Spec(
        task=asked.task,
        label=asked.label.strip(),
        agent_id=target,
        model=asked.model,
        thinking=level.name if level else "",
    )
    terms = Terms(
        parent=context.session,
        cleanup=asked.cleanup,
        expects=expects,
        plan=asked.plan,
        timeout_s=float(int(timeout_s)),
        queue_timeout_s=float(limits.queue_timeout_seconds),
        stuck_after_s=float(limits.stuck_after_seconds),
        approval_s=config.plan.approval_hours * 3600.0,
        archive_after_s=limits.archive_after_minutes * 60.0,
        max_retries=config.announce.max_retries,
        undelivered_s=config.undelivered.retention_days * 86400.0,
        timeline_s=config.retention.timeline_days * 86400.0,
    )
    caps = Limits(limits.max_spawn_depth, limits.max_children_per_agent, limits.max_retained)
    request = spawn.Request(spec=spec, terms=terms, limits=caps, key=key or context.call_key)
    return request, chosen.name if chosen else ""


def _spawn(c: Commit, config: Config, request: spawn.Request) -> Run:
    turn = c.tx.turn(request.terms.parent)
    if turn is None:
        raise Refused("forbidden", f"{request.terms.parent} has no open turn")
    known = c.tx.spawned_by(request.terms.parent, request.key)
    run = spawn.spawn(c, msgspec.structs.replace(request, generations=turn.generations))
    allowed = budget.configured(subagent_limits(config, request.spec.agent_id).budget)
    if known is None and allowed is not None:
        budget.give(c, run.key, allowed)
    return run


def _json(answer: dict[str, object]) -> str:
    return msgspec.json.encode(answer).decode()
