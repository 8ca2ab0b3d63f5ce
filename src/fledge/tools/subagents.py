"""`subagents`: a model manages the subagents that it started: list, steer, kill, answer their plans.

A session sees and directs only subagents that it controls. Each action is one commit, and repeating the call after a
crash does not act a second time; a refusal is an answer with its status.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from fledge.core.access import Action, Role, refuse_control
from fledge.core.keys import NAME_CHARS
from fledge.core.policy import enforce
from fledge.core.prompts import ChildRow, flattened, list_text
from fledge.core.run import Instant
from fledge.core.schema import JsonObject
from fledge.core.targets import is_everybody
from fledge.errors import BadInput, Refused
from fledge.orchestrator import control, messages, views
from fledge.orchestrator.commit import Commit, Lease, check_lease
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.engine import Changes, Engine, kill_outcome
from fledge.orchestrator.views import child_rows, find_child
from fledge.store.base import Tx
from fledge.tools.base import Tool, ToolContext, answering_json, tool

T = TypeVar("T")

ROWS: Final = 50
"""How many subagents a list has in full."""

ChildParam = Annotated[str, Meta(description="which: number, label, run id, session key, last; all to kill all")]
MessageParam = Annotated[str, Meta(description="for steer: the new direction; for reject: why")]
Minutes = Annotated[int, Meta(ge=1, le=1440, description="for list: how long ago those listed as recent have ended")]


def subagents_tool(engine: Engine, changes: Changes | None = None) -> Tool:
    """The tool `subagents` for sessions of this engine."""
    watch = changes or Changes(engine)

    @tool(name="subagents", repeatable=True, max_chars=100_000)
    async def subagents(
        context: ToolContext,
        action: Literal["list", "kill", "steer", "approve", "reject"] = "list",
        target: ChildParam = "",
        message: MessageParam = "",
        recent_minutes: Minutes = 30,
    ) -> str:
        """List your subagents, or direct one: steer it elsewhere, kill it, approve or reject its plan."""
        session, key = context.session, context.call_key
        match action:
            case "list":
                now = engine.clock.now()
                return await as_json(engine.store.read(lambda tx: _listed(tx, session, now, recent_minutes)))
            case "kill":
                return await as_json(_kill(engine, watch, context, target))
            case "steer":
                return await answered(engine, context, lambda c: _steer(c, session, key, target, message))
            case _:
                return await answered(engine, context, lambda c: _answer(c, session, key, action, target, message))

    return answering_json(subagents)


async def answered(engine: Engine, context: ToolContext, act: Callable[[Commit], JsonObject]) -> str:
    """One commit and its answer as JSON. Nothing is done for a call that was closed meanwhile."""
    return await as_json(engine.commit(leased(context, act)))


async def as_json(answer: Awaitable[JsonObject]) -> str:
    """The answer as JSON; a refusal is an answer with its status."""
    try:
        told = await answer
    except (Refused, BadInput) as error:
        told = {"status": error.status, "error": str(error)}
    return msgspec.json.encode(told).decode()


def leased(context: ToolContext, act: Callable[[Commit], T]) -> Callable[[Commit], T]:
    """The same commit, refused as a stale write if the call has been closed meanwhile."""

    def decide(c: Commit) -> T:
        check_lease(c, context.session, lease_of(context))
        return act(c)

    return decide


def lease_of(context: ToolContext) -> Lease | None:
    """The lease of the driver that runs this call; None outside a turn."""
    return None if context.epoch is None else Lease(context.epoch, context.interrupts)


# ---- listing ---------------------------------------------------------------------------------------------------------


def _listed(tx: Tx, session: str, now: Instant, recent_minutes: int) -> JsonObject:
    rows = child_rows(tx, session)
    since = now - recent_minutes * 60.0
    recent = [row for row in rows if not row.is_active and (row.ended_at or now) >= since]
    active = [row for row in rows if row.is_active]
    return {
        "status": "ok",
        "requester": session,
        "total": len(rows),
        "active": [_shown(row, now) for row in active[:ROWS]],
        "recent": [_shown(row, now) for row in recent[:ROWS]],
        "text": list_text(rows, now),
    }


def _shown(row: ChildRow, now: Instant) -> JsonObject:
    shown: JsonObject = {
        "index": row.number,
        "sessionKey": row.key,
        "runId": row.run_id,
        "status": row.status_text(now),
        "label": flattened(row.label, NAME_CHARS),
        "task": flattened(row.task, NAME_CHARS),
        "pendingDescendants": row.unsettled,
    }
    times = {"startedAt": row.started_at, "endedAt": row.ended_at}
    return shown | {name: int(at * 1000) for name, at in times.items() if at is not None}


# ---- directing -------------------------------------------------------------------------------------------------------


async def _kill(engine: Engine, changes: Changes, context: ToolContext, target: str) -> JsonObject:
    done = await engine.commit(leased(context, lambda c: _killed(c, context.session, target)))
    came = await kill_outcome(engine, changes, done)
    others = {"finishedFirst": came.finished, "didNotStop": came.stopping}
    return {"status": "ok", "killed": came.killed, **{name: keys for name, keys in others.items() if keys}}


def _killed(c: Commit, session: str, target: str) -> Killing:
    wanted = views.active_children(c.tx, session) if is_everybody(target) else [find_child(c.tx, session, target)]
    return control.kill_each(c, [controlled(c, session, "kill", key) for key in wanted])


def _steer(c: Commit, session: str, call: str, target: str, message: str) -> JsonObject:
    row = c.tx.inbox.get(f"steer:{call}")
    if row is not None and row.session is not None:
        return _accepted(c, row.session)
    key = controlled(c, session, "steer", find_child(c.tx, session, target))
    control.steer(c, key, message, f"steer:{call}")
    return _accepted(c, key)


def _answer(c: Commit, session: str, call: str, action: Action, target: str, message: str) -> JsonObject:
    known = c.tx.exchanges.get(call)
    if known is not None:
        return _accepted(c, known.target)
    key = controlled(c, session, action, find_child(c.tx, session, target))
    messages.answer_plan(c, call, session, key, action == "approve", message)
    return _accepted(c, key)


def _accepted(c: Commit, key: str) -> JsonObject:
    return {"status": "accepted", "sessionKey": key, "runId": c.run(key).run_id}


def controlled(c: Commit, session: str, action: Action, key: str) -> str:
    """The key, if the session may do this to it. Raises Refused otherwise."""
    known = c.tx.sessions.get(session)
    role: Role = "leaf" if known is not None and known.facts.role == "leaf" else "orchestrator"
    enforce(refuse_control(action, session, role, key, views.controller_of(c.tx, c.run(key))))
    return key
