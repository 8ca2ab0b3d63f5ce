"""How a verb enters the table: with the struct its parameters are read into, what it answers, and what it does.

`methods` has the whole table. The published schema is made from it, so it says exactly what is checked.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from fledge.commands.desk import Desk
from fledge.errors import BadInput

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
    reads: bool
    """It changes nothing: whoever is not sure that it was done may ask again."""
    meaning: str
    do: Callable[[Desk, Any], Awaitable[object]]


METHODS: Final[dict[str, Method]] = {}


def method(
    name: str, result: Any, *, reads: bool = False
) -> Callable[[Callable[[Desk, P], Awaitable[object]]], Callable[[Desk, P], Awaitable[object]]]:
    """Puts a function into the table; its second parameter's type is what it takes, its docstring what it does."""

    def put(do: Callable[[Desk, P], Awaitable[object]]) -> Callable[[Desk, P], Awaitable[object]]:
        params = next(kind for key, kind in do.__annotations__.items() if key not in ("return", "desk"))
        METHODS[name] = Method(name, params, result, reads, (do.__doc__ or "").strip(), do)
        return do

    return put


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
