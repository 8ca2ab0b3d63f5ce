"""Hook calls, as rows: one post for each listener, once per run, in the commit of what it tells of.

A hook that nobody listens to costs nothing. What an answer changes is decided elsewhere (`due.sent`); whether a call
arrives never changes a run.
"""

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from fledge.core.hook import Call, DeliveryTarget, Ended, EndedOutcome, HookEvent, HookName, Left, Spawned, Spawning
from fledge.core.keys import parse_key
from fledge.core.route import Address, address_of
from fledge.core.run import Run
from fledge.orchestrator.commit import Commit
from fledge.store.base import Post, Tx

E = TypeVar("E", Spawning, Spawned, DeliveryTarget, Ended)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Call).decode


def call_of(post: Post) -> Call | None:
    """The event a post carries to a listener; None if it is something else."""
    return _decode(post.body) if post.kind == "hook" else None


def post_key(hook: HookName, listener: str, name: str) -> str:
    """The name of a call: one per hook, listener and run; of what ends, per end (`end_of`)."""
    return f"hook:{hook}:{listener}:{name}"


def end_of(run: Run) -> str:
    """Names an end of a run: one that was killed and resumed has another."""
    return f"{run.key}:{run.resumes}" if run.resumes else run.key


# ---- what is told ----------------------------------------------------------------------------------------------------


def place_of(tx: Tx, key: str) -> Address | None:
    """The thread a session is bound to, else where its task was asked for."""
    route = tx.routes.get(key)
    return route.address if route is not None and route.kind == "bound" else address_of(tx.runs.spec(key).origin)


def _at(event: E, address: Address | None) -> E:
    """The event, concerning that place."""
    return event if address is None else replace(event, channel=address.channel, to=address.to, thread=address.thread)


def spawning(tx: Tx, run: Run) -> Spawning:
    """The question whether, and to which thread, a child that is being prepared is to be bound."""
    spec, session = tx.runs.spec(run.key), tx.routes.get(run.terms.parent)
    place = address_of(spec.origin) or (None if session is None else session.address)
    event = Spawning(
        child_session_key=run.key,
        requester_session_key=run.terms.parent,
        agent_id=spec.agent_id,
        label=spec.label,
        mode=run.terms.mode,
    )
    return _at(event, place)


def spawned(c: Commit, run: Run) -> None:
    """Tell that a child was accepted."""
    if "subagent_spawned" not in c.rules.hooks:
        return
    spec = c.tx.runs.spec(run.key)
    route = c.tx.routes.get(run.key)
    event = Spawned(
        child_session_key=run.key,
        requester_session_key=run.terms.parent,
        agent_id=spec.agent_id,
        label=spec.label,
        mode=run.terms.mode,
        run_id=run.run_id,
        thread_requested=route is not None and route.kind == "bound",
    )
    _tell(c, "subagent_spawned", run.key, run.key, _at(event, place_of(c.tx, run.key)))


def ended(
    c: Commit, run: Run, thread: Address | None = None, reason: str = "", outcome: EndedOutcome | None = None
) -> None:
    """Tell that a run is over, or that its thread is left; once, whichever comes first."""
    if "subagent_ended" not in c.rules.hooks:
        return
    over = run.ended
    came_out: EndedOutcome = "unknown" if over is None else _OUTCOMES.get(over.outcome.status, "unknown")
    event = Ended(
        target_session_key=run.key,
        target_kind="acp" if parse_key(run.key).kind == "acp" else "subagent",
        run_id=run.run_id,
        reason=reason or _REASONS.get(came_out, came_out),
        outcome=outcome or came_out,
        error="" if over is None else over.outcome.error or "",
        send_farewell=thread is not None,
        ended_at=c.at if over is None else over.ended_at,
    )
    _tell(c, "subagent_ended", run.key, end_of(run), _at(event, thread))


_OUTCOMES: dict[str, EndedOutcome] = {"ok": "ok", "error": "error", "timeout": "timeout", "killed": "killed"}
_REASONS = {"ok": "complete"}
"""What is called otherwise as a reason than as an outcome."""


def ask_target(c: Commit, run: Run, requester: str, origin: str) -> bool:
    """Ask where the answer of a run should go; False if nobody listens."""
    if "subagent_delivery_target" not in c.rules.hooks:
        return False
    event = DeliveryTarget(
        child_session_key=run.key,
        requester_session_key=requester,
        run_id=run.run_id,
        mode=run.terms.mode,
        expects_completion_message=run.terms.expects,
    )
    event = _at(event, address_of(origin))
    return _tell(c, "subagent_delivery_target", run.key, end_of(run), event, is_question=True)


def is_asked(c: Commit, key: str) -> bool:
    """True while somebody who was asked where a run's answer should go has not answered."""
    listeners = c.rules.hooks.get("subagent_delivery_target", ())
    name = end_of(c.run(key))
    return any(c.tx.outbox.is_waiting(post_key("subagent_delivery_target", one.name, name)) for one in listeners)


def context(c: Commit, key: str, reason: Left) -> None:
    """Tell the context engine, if there is one, that a run is done with in this way."""
    if c.rules.context_engine:
        body = _encode({"sessionKey": key, "reason": reason}).decode()
        c.hints.look |= c.tx.outbox.post(f"context:{reason}:{end_of(c.run(key))}", "context", None, body, c.at)


def _tell(c: Commit, hook: HookName, key: str, name: str, event: HookEvent, is_question: bool = False) -> bool:
    told = False
    for listener in c.rules.hooks.get(hook, ()):
        body = _encode(Call(listener.name, event)).decode()
        told |= c.tx.outbox.post(
            post_key(hook, listener.name, name), "hook", key, body, c.at, retries=0 if is_question else listener.retries
        )
    c.hints.look |= told
    return told
