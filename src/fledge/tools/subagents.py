"""`subagents`: how a model looks after the subagents it started: list, steer, kill, answer their plans.

A session sees and directs only what it controls. Each action is one commit; a refusal is an answer with its status.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fledge.core.access import Action, Role, refuse_control
from fledge.core.prompts import list_text
from fledge.core.targets import pick
from fledge.errors import BadInput, Refused
from fledge.orchestrator import control, lease
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.lease import Lease
from fledge.orchestrator.views import child_rows
from fledge.tools.base import Tool, ToolContext, tool

EVERYBODY = ("all", "*")


def subagents_tool(engine: Engine) -> Tool:
    """The tool `subagents` for sessions of this engine."""

    @tool(name="subagents")
    async def subagents(
        context: ToolContext,
        action: Literal["list", "kill", "steer", "approve", "reject"] = "list",
        target: Annotated[
            str, Meta(description="which: number, label, run id, session key, last; all to kill all")
        ] = "",
        message: Annotated[str, Meta(description="for steer: the new direction; for reject: why")] = "",
    ) -> str:
        """List your subagents, or direct one: steer it elsewhere, kill it, approve or reject its plan."""
        return await answered(engine, context, lambda c: _act(c, context.session, action, target, message))

    return subagents


async def answered(engine: Engine, context: ToolContext, act: Callable[[Commit], dict[str, object]]) -> str:
    """One commit and its answer as JSON; a refusal is an answer with its status. Nothing is done for a call that was
    closed meanwhile."""

    def decide(c: Commit) -> dict[str, object]:
        lease.check(c, context.session, lease_of(context))
        return act(c)

    try:
        return _json(await engine.commit(decide))
    except (Refused, BadInput) as error:
        status = error.status if isinstance(error, Refused) else "error"
        return _json({"status": status, "error": str(error)})


def lease_of(context: ToolContext) -> Lease | None:
    """What the driver of this call holds; None outside a turn."""
    return None if context.epoch is None else Lease(context.epoch, context.interrupts)


def _act(c: Commit, session: str, action: str, target: str, message: str) -> dict[str, object]:
    rows = child_rows(c.tx, session)
    match action:
        case "kill" if target.strip().casefold() in EVERYBODY:
            return _kill(c, session, [row.key for row in rows if row.is_active])
        case "kill":
            return _kill(c, session, [pick(target, rows).key])
        case "steer":
            run = control.steer(c, controlled(c, session, "steer", pick(target, rows).key), message)
            return {"status": "accepted", "sessionKey": run.key, "runId": run.run_id}
        case "approve" | "reject":
            key = controlled(c, session, action, pick(target, rows).key)
            words = message or ("APPROVED: proceed" if action == "approve" else "")
            if not words.strip():
                raise BadInput("message", "must say why the plan is rejected")
            run = control.answer_plan(c, key, action == "approve", words)
            return {"status": "accepted", "sessionKey": run.key, "runId": run.run_id}
        case _:
            return {"status": "ok", "total": len(rows), "text": list_text(rows, c.at)}


def _kill(c: Commit, session: str, keys: list[str]) -> dict[str, object]:
    killed: list[str] = []
    stopping: list[str] = []
    for key in keys:
        done = control.kill(c, controlled(c, session, "kill", key))
        killed += done.killed
        stopping += done.stopping
    return {"status": "ok", "killed": killed, "stopping": stopping}


def controlled(c: Commit, session: str, action: Action, key: str) -> str:
    """The key, if the session may do this to it."""
    known = c.tx.session(session)
    role: Role = "leaf" if known is not None and known.facts.role == "leaf" else "orchestrator"
    controller = c.tx.spec(key).controller or c.run(key).terms.parent
    refusal = refuse_control(action, session, role, key, controller)
    if refusal is not None:
        raise Refused(refusal.status, refusal.reason)
    return key


def _json(answer: dict[str, object]) -> str:
    return msgspec.json.encode(answer).decode()
