"""Every method, by name: the table that the gateway, the private socket and the command line call, and its schema."""

from functools import partial
from typing import Any

import fledge
from fledge.commands import events, people, runs, sessions  # noqa: F401  (they fill the table)
from fledge.commands.desk import Desk
from fledge.commands.feed import FeedEvent
from fledge.commands.rpc import NO_METHOD, Fault
from fledge.commands.table import FORMER, METHODS, carry_out, log
from fledge.commands.wire import schemas, to_wire
from fledge.core.params import near

__all__ = ["METHODS", "call", "schema"]


async def call(desk: Desk, name: str, given: dict[str, Any]) -> object:
    """Carry out a method. Raises Fault or BadInput for what there is none of, or does not fit."""
    found = METHODS.get(FORMER.get(name, name))
    if found is not None and found.name != name and (found.name, name) not in desk.old_names:
        desk.old_names.add((found.name, name))
        log.warning("%s is deprecated: it is called %s", name, found.name)
    if found is None:
        meant = near(name, METHODS)
        hint = f"did you mean {meant}?" if meant else "GET /schema lists them"
        raise Fault(NO_METHOD, f"no method {name[:80]!r}; {hint}")
    return to_wire(await carry_out(desk, found, given, partial(found.do, desk)))


def schema() -> dict[str, Any]:
    """What there is to call, for people and programs."""
    kinds: dict[str, Any] = {}
    for name, one in METHODS.items():
        kinds[f"{name} params"], kinds[f"{name} result"] = one.params, one.result
    made, parts = schemas({**kinds, "events": FeedEvent})
    methods = {
        name: {"description": one.meaning, "params": made[f"{name} params"], "result": made[f"{name} result"]}
        | ({"formerly": one.formerly} if one.formerly else {})
        for name, one in sorted(METHODS.items())
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fledge gateway",
        "version": fledge.__version__,
        "protocol": "JSON-RPC 2.0: POST /rpc, or messages on the WebSocket /ws; events: GET /events (event stream)",
        "methods": methods,
        "events": made["events"],
        "$defs": parts,
    }
