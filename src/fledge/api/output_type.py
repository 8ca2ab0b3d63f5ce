"""The type of a run's answer: its JSON Schema for the model, and reading the answer into it.

msgspec reads structs, dataclasses, TypedDicts and plain types. Types with pydantic models in them are read by pydantic,
which is used only where the program has imported it. Rules that `outputSchema` does not support are left out of the
schema and checked when the answer is read.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from fledge.core.params import place_of
from fledge.core.patterns import Pattern
from fledge.core.schema import RULES
from fledge.errors import BadInput

T = TypeVar("T")

_NESTED: Final = ("properties", "$defs", "definitions")
"""Keywords whose values are schemas by name."""
_KEPT: Final = (*RULES, "$defs", "definitions", "description", "title", "default", "format")


def schema_for(kind: Any, field: str) -> dict[str, Any] | None:
    """The JSON Schema for answers of this type; None for `str`, which takes any answer as it is.

    Raises BadInput, which names the field, for a type that cannot be read from JSON.
    """
    if kind is str:
        return None
    adapter = _pydantic(kind, field)
    plain: dict[str, Any] = _plain(msgspec.json.schema(kind) if adapter is None else adapter.json_schema())
    return plain


def read_as(kind: Any, text: str) -> tuple[Any, str | None]:
    """The JSON in a text, decoded as this type; or what is wrong with it."""
    if kind is str:
        return text, None
    adapter = _pydantic(kind, "output_type")
    if adapter is not None:
        return _read_by_pydantic(adapter, text)
    try:
        return msgspec.json.decode(text, type=kind), None
    except msgspec.ValidationError as error:
        return None, f"{place_of(error) or 'answer'}: does not fit the type that was asked for"


def _pydantic(kind: Any, field: str) -> Any | None:
    """The pydantic adapter that reads this type; None if msgspec can read it. Raises BadInput, which names the field,
    if neither can, or if msgspec cannot and the program has not imported pydantic."""
    with suppress(TypeError, ValueError, NameError):
        msgspec.json.schema(kind)
        return None
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None:
        with suppress(pydantic.PydanticUserError, pydantic.errors.PydanticInvalidForJsonSchema):
            adapter = pydantic.TypeAdapter(kind)
            adapter.json_schema()
            return adapter
    raise BadInput(field, "must be a type that can be read from JSON", kind)


def _read_by_pydantic(adapter: Any, text: str) -> tuple[Any, str | None]:
    errors: Any = sys.modules["pydantic_core"]
    try:
        return adapter.validate_json(text), None
    except errors.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "answer"
        return None, f"{place}: {first['msg']}"


def _plain(schema: Any) -> Any:
    """The schema in the keywords by which answers are checked; its other keywords are left out."""
    if not isinstance(schema, Mapping):
        return schema
    told: dict[str, Any] = {}
    for word, said in schema.items():
        match word:
            case "oneOf" | "anyOf":
                told["anyOf"] = [_plain(one) for one in said]
            case "allOf" if len(said) == 1:
                told |= _plain(said[0])
            case "items" if isinstance(said, bool):
                pass  # it stands beside prefixItems; minItems and maxItems give the number
            case "items" | "additionalProperties":
                told[word] = _plain(said)
            case "pattern" if not _is_checkable(said):
                pass
            case _ if word in _NESTED:
                told[word] = {name: _plain(one) for name, one in said.items()}
            case _ if word in _KEPT:
                told[word] = said
            case _:
                pass
    return told


def _is_checkable(pattern: str) -> bool:
    try:
        Pattern.read(pattern)
    except BadInput:
        return False
    return True
