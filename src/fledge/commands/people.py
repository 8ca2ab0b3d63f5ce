"""Methods for people: `approvals.*`, `undelivered.*`, `health`; and what the command line does (`cli.act`)."""

import os
from inspect import signature
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

import fledge
from fledge.api.values import GivenUp, Question
from fledge.cli import verbs
from fledge.commands.desk import Desk
from fledge.commands.runs import Nothing, One, found
from fledge.commands.sessions import Done
from fledge.commands.table import Params, method
from fledge.core.run import Instant
from fledge.errors import BadInput
from fledge.orchestrator import control
from fledge.store.base import Tx

CLIENT = "gateway"
"""Who answered, in the record of a question: whoever holds the token."""


@method("approvals.list", list[Question])
async def approvals_list(desk: Desk, params: Nothing) -> list[Question]:
    """Tool calls that wait for a person, oldest first."""
    return await desk.fl.approvals()


class Answer(Params, frozen=True, kw_only=True):
    """An answer to a question."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    digest: Annotated[str, Meta(min_length=1, max_length=64, description="of the call that was shown")]


@method("approvals.approve", Done)
async def approvals_approve(desk: Desk, params: Answer) -> Done:
    """Let the call be run, if it is still the one that was shown."""
    await desk.fl.approve(params.id, by=CLIENT, digest=params.digest)
    return Done()


@method("approvals.deny", Done)
async def approvals_deny(desk: Desk, params: Answer) -> Done:
    """Do not let the call be run; the model is told so."""
    await desk.fl.deny(params.id, by=CLIENT, digest=params.digest)
    return Done()


@method("undelivered.list", list[GivenUp])
async def undelivered_list(desk: Desk, params: Nothing) -> list[GivenUp]:
    """Results that were given up on, oldest first."""
    return await desk.fl.undelivered()


@method("undelivered.retry", Done)
async def undelivered_retry(desk: Desk, params: One) -> Done:
    """Offer a given-up result, or a message by its key, again."""
    await desk.fl.engine.commit(lambda c: control.take_up(c, "retry", _lost(c.tx, params)))
    return Done()


@method("undelivered.dismiss", Done)
async def undelivered_dismiss(desk: Desk, params: One) -> Done:
    """Take a given-up result, or a message by its key, off the list."""
    await desk.fl.engine.commit(lambda c: control.take_up(c, "dismiss", _lost(c.tx, params)))
    return Done()


def _lost(tx: Tx, params: One) -> str:
    return params.target if tx.find_post(params.target) is not None else found(tx, params)


class Health(Struct, frozen=True, kw_only=True):
    """How the gateway is."""

    status: Literal["ok", "closing"]
    version: str
    pid: int
    started_at: Instant
    now_at: Instant
    drivers: int
    """Turns that are being driven."""
    questions: int
    plans: int
    undelivered: int
    subscriptions: int
    counters: dict[str, Any]
    """What has happened since it started, by outcome and reason."""


@method("health", Health)
async def health(desk: Desk, params: Nothing) -> Health:
    """How the gateway is, and what has happened since it started."""
    engine = desk.fl.engine

    def look(tx: Tx) -> tuple[int, int, int, int]:
        return len(tx.drivers()), len(tx.open_approvals()), len(tx.awaiting()), len(tx.undelivered())

    drivers, questions, plans, undelivered = await engine.store.read(look)
    return Health(
        status="closing" if desk.closing.is_set() else "ok",
        version=fledge.__version__,
        pid=os.getpid(),
        started_at=desk.started_at,
        now_at=engine.clock.now(),
        drivers=drivers,
        questions=questions,
        plans=plans,
        undelivered=undelivered,
        subscriptions=len(desk.watches),
        counters=engine.counters.shown(),
    )


class CommandLine(Params, frozen=True, kw_only=True):
    """`cli.act`."""

    verb: Literal[
        "ps", "tree", "info", "log", "undelivered", "sessions", "session", "steer", "kill", "answer", "take_up"
    ]
    given: dict[str, str | int | bool] = field(default_factory=dict)


@method("cli.act", verbs.Shown)
async def cli_act(desk: Desk, params: CommandLine) -> verbs.Shown:
    """What a command of the command line does, for one that finds the folder in use."""
    engine, verb, given = desk.fl.engine, params.verb, params.given
    wanted = verbs.LOOKS.get(verb) or verbs.DEEDS.get(verb) or verbs.session_named
    try:
        signature(wanted).bind(None, **given)
    except TypeError as error:
        raise BadInput("given", f"does not fit {verb}: {error}") from None
    for name, value in given.items():
        if type(value) is not wanted.__annotations__[name]:
            raise BadInput(f"given.{name}", f"must be {wanted.__annotations__[name].__name__}", value)
    if verb == "session":
        key = await engine.store.read(lambda tx: verbs.session_named(tx, str(given["name"])))
        return verbs.Shown([key], key)
    if verb in verbs.LOOKS:
        return await engine.store.read(lambda tx: verbs.LOOKS[verb](tx, **given))
    return await engine.commit(lambda c: verbs.DEEDS[verb](c, **given))
