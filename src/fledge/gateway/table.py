"""The table of methods: each with the struct its parameters are read into, what it answers, and what it does.

The published schema is made from this table, so it cannot say anything else than what is checked.
"""

import difflib
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

import fledge
from fledge.errors import BadInput
from fledge.gateway.desk import Desk
from fledge.gateway.rpc import NO_METHOD, Fault
from fledge.gateway.wire import schemas, to_wire

P = TypeVar("P", bound="Params")

_PLACE: Final = re.compile(r" - at `\$\.?(.*?)`")


class Params(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a method takes."""


class Method(Struct, frozen=True):
    """One method."""

    name: str
    params: type[Params]
    result: Any
    """The type of what it answers."""
    meaning: str
    do: Callable[[Desk, Any], Awaitable[object]]


METHODS: Final[dict[str, Method]] = {}


def method(
    name: str, result: Any
) -> Callable[[Callable[[Desk, P], Awaitable[object]]], Callable[[Desk, P], Awaitable[object]]]:
    """Puts a function into the table; its second parameter's type is what it takes, its docstring what it does."""

    def put(do: Callable[[Desk, P], Awaitable[object]]) -> Callable[[Desk, P], Awaitable[object]]:
        params = next(kind for key, kind in do.__annotations__.items() if key not in ("return", "desk"))
        METHODS[name] = Method(name, params, result, (do.__doc__ or "").strip(), do)
        return do

    return put


async def call(desk: Desk, name: str, given: dict[str, Any]) -> object:
    """Carry out a method. Raises Fault or BadInput for what there is none of, or does not fit."""
    found = METHODS.get(name)
    if found is None:
        near = difflib.get_close_matches(name[:80], METHODS, 1)
        hint = f"did you mean {near[0]}?" if near else "GET /schema lists them"
        raise Fault(NO_METHOD, f"no method {name[:80]!r}; {hint}")
    return to_wire(await found.do(desk, read(found.params, given)))


def read(kind: type[P], given: dict[str, Any]) -> P:
    """The parameters. Refused: what there is none of, and a value that does not fit, by its name."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise misfit(str(error)) from None


def misfit(words: str) -> BadInput:
    """What a validation said, as an error that names the field."""
    place = _PLACE.search(words)
    field = place[1] if place else ""
    what = _PLACE.sub("", words).replace("`", '"')
    missing = re.search(r'missing required field "(\w+)"', what)
    unknown = re.search(r'unknown field "(.*)"', what)
    if missing:
        return BadInput(".".join(filter(None, (field, missing[1]))), "is required")
    if unknown:
        return BadInput(".".join(filter(None, (field, unknown[1][:80]))), "there is no such parameter")
    return BadInput(field or "params", f"{what[:1].lower()}{what[1:]}")


def schema() -> dict[str, Any]:
    """What there is to call, for people and programs."""
    from fledge.gateway.feed import FeedEvent

    kinds: dict[str, Any] = {}
    for name, one in METHODS.items():
        kinds[f"{name} params"], kinds[f"{name} result"] = one.params, one.result
    made, parts = schemas({**kinds, "events": FeedEvent})
    methods = {
        name: {"description": one.meaning, "params": made[f"{name} params"], "result": made[f"{name} result"]}
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
