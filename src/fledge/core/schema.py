"""`outputSchema`: the part of JSON Schema that an answer can be asked to meet, and what is wrong with one that does
not.

A schema is looked at once, at the spawn: a keyword that is not understood is refused there, so that an answer is never
called fitting because a rule was overlooked. Checking is bounded whatever schema and answer are: in depth, in steps,
and in patterns, which are matched without ever going back. This file does not know who asks or what is done about it.
"""

import re
from collections.abc import Mapping, Sized
from operator import ge, gt, le, lt
from typing import Any, Final

import msgspec

from fledge.core.freeze import one_line
from fledge.core.patterns import Pattern
from fledge.core.redact import error_words
from fledge.core.value import Value
from fledge.errors import BadInput

Schema = Mapping[str, Any]
JsonObject = dict[str, object]
"""An object as JSON can hold it."""

MAX_BYTES: Final = 32 * 1024
MAX_DEPTH: Final = 32
"""Of a schema, one inside the other."""
MAX_VALUE_DEPTH: Final = 64
MAX_STEPS: Final = 100_000
"""Pairs of value and schema that one check looks at."""
SHOWN: Final = 60

_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS: Final = {"minimum": ge, "maximum": le, "exclusiveMinimum": gt, "exclusiveMaximum": lt}
_REMARKS: Final = ("title", "description", "default", "examples", "$schema", "$comment", "$id", "format", "deprecated")
"""Keywords for people, which check nothing."""
RULES: Final = (
    *("type", "enum", "const", "anyOf", "properties", "required", "additionalProperties", "items", "pattern"),
    *("$ref", *_COUNTS, *_BOUNDS),
)
"""The keywords that bind an answer."""
_FENCED: Final = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_REF: Final = re.compile(r"#/(?:\$defs|definitions)/([^/]+)")


# ---- the schema ------------------------------------------------------------------------------------------------------


def check_schema(schema: object, field: str = "outputSchema") -> None:
    """Refused: anything that is no schema, is too large or too deep, or has a keyword that would not be checked."""
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError):
        raise BadInput(field, "must be a JSON Schema, as a JSON object") from None
    if size > MAX_BYTES:
        raise BadInput(field, f"must be at most {MAX_BYTES} bytes, this one has {size}")
    defined = _definitions(schema)
    _check(schema, field, 0, defined)
    for name, one in defined.items():
        _check(one, f"{field}.$defs.{name}", 0, defined)


def _definitions(schema: object) -> Schema:
    if not isinstance(schema, Mapping):
        return {}
    found: dict[str, Any] = {}
    for word in ("$defs", "definitions"):
        part = schema.get(word)
        found |= part if isinstance(part, Mapping) else {}
    return found


def _check(schema: object, field: str, depth: int, defined: Schema) -> None:
    if not isinstance(schema, Mapping):
        raise BadInput(field, "must be a JSON object", schema)
    if depth > MAX_DEPTH:
        raise BadInput(field, f"must not nest deeper than {MAX_DEPTH}")
    for word, said in schema.items():
        if word in ("$defs", "definitions"):
            if depth or not isinstance(said, Mapping):
                raise BadInput(f"{field}.{word}", "must be an object at the top of the schema")
        elif word in RULES:
            _check_rule(word, said, f"{field}.{word}", depth, defined)
        elif word not in _REMARKS:
            raise BadInput(f"{field}.{_shown(word)}", f"is not supported; there are: {', '.join(RULES)}")


def _check_rule(word: str, said: Any, field: str, depth: int, defined: Schema) -> None:
    match word:
        case "type":
            types = said if isinstance(said, list) else [said]
            if not types or any(one not in _TYPES for one in types):
                raise BadInput(field, f"must be one or several of {', '.join(_TYPES)}", said)
        case "enum":
            if not isinstance(said, list) or not said:
                raise BadInput(field, "must be a list with at least one value", said)
        case "anyOf":
            if not isinstance(said, list) or not said:
                raise BadInput(field, "must be a list with at least one schema", said)
            for at, one in enumerate(said):
                _check(one, f"{field}[{at}]", depth + 1, defined)
        case "properties":
            if not isinstance(said, Mapping):
                raise BadInput(field, "must be an object of schemas", said)
            for name, one in said.items():
                _check(one, f"{field}.{_shown(name)}", depth + 1, defined)
        case "required":
            if not isinstance(said, list) or any(not isinstance(name, str) for name in said):
                raise BadInput(field, "must be a list of names", said)
        case "additionalProperties" if isinstance(said, bool):
            pass
        case "items" | "additionalProperties":
            _check(said, field, depth + 1, defined)
        case "pattern":
            Pattern.read(said, field)
        case "$ref":
            if _referred(said) not in defined:
                raise BadInput(field, "must be #/$defs/ and a name that is defined there", said)
        case _ if word in _COUNTS:
            if isinstance(said, bool) or not isinstance(said, int) or said < 0:
                raise BadInput(field, "must be a whole number, 0 or more", said)
        case _ if word in _BOUNDS:
            if isinstance(said, bool) or not isinstance(said, int | float):
                raise BadInput(field, "must be a number", said)


def _referred(said: object) -> str | None:
    found = _REF.fullmatch(said) if isinstance(said, str) else None
    return found[1] if found else None


# ---- the answer ------------------------------------------------------------------------------------------------------


class Fit(Value):
    """An answer held against a schema: its JSON, or its own words where none was found, and what is wrong with it."""

    text: str
    error: str | None = None


def fit(schema: Schema, answer: str) -> Fit:
    """The JSON of an answer, without a fence around it, and the first thing that is wrong with it."""
    text = answer.strip()
    fenced = _FENCED.fullmatch(text)
    if fenced:
        text = fenced[1].strip()
    if not text:
        return Fit(answer, "it is empty")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Fit(
            answer,
            f"it is not JSON: {error_words(error) if isinstance(error, msgspec.DecodeError) else 'not readable'}",
        )
    return Fit(text, misfit(schema, value))


def misfit(schema: Schema, value: object) -> str | None:
    """Why a value does not fit, in one line that names the place; None if it fits. The schema has been checked."""
    return _Checking(_definitions(schema)).wrong(schema, value, "the answer", 0)


class _Checking:
    """One check: it counts its steps, so that no schema makes it endless."""

    def __init__(self, defined: Schema) -> None:
        self._defined = defined
        self._steps = 0

    def wrong(self, schema: Schema, value: object, place: str, depth: int) -> str | None:
        self._steps += 1
        if depth > MAX_VALUE_DEPTH or self._steps > MAX_STEPS:
            return f"{place} is too deep or too large to be checked"
        for word, said in schema.items():
            if word in RULES and (fault := self._broken(word, said, schema, value, place, depth)) is not None:
                return fault
        return None

    def _broken(self, word: str, said: Any, schema: Schema, value: object, place: str, depth: int) -> str | None:
        match word, value:
            case "type", _:
                types = said if isinstance(said, list) else [said]
                fits = any(_is(value, one) for one in types)
                return None if fits else f"{place} must be {' or '.join(types)}, is {_kind(value)}"
            case "const", _:
                return None if _same(value) == _same(said) else f"{place} must be {_shown(said)}, is {_shown(value)}"
            case "enum", _:
                fits = any(_same(value) == _same(one) for one in said)
                choices = ", ".join(_shown(one) for one in said[:10])
                return None if fits else f"{place} must be one of {choices}, is {_shown(value)}"
            case "$ref", _:
                return self.wrong(self._defined[_referred(said) or ""], value, place, depth + 1)
            case "anyOf", _:
                return self._none_of(said, value, place, depth)
            case "required", dict():
                missing = next((name for name in said if name not in value), None)
                return None if missing is None else f"{place} lacks {_shown(missing)}"
            case "properties", dict():
                return self._in_object(said, value, place, depth)
            case "additionalProperties", dict():
                others = value.keys() - schema.get("properties", {}).keys()
                return self._in_object(dict.fromkeys(others, said), value, place, depth)
            case "items", list():
                return self._in_list(said, value, place, depth)
            case (("minItems" | "maxItems"), list()):
                return _counted(word, said, value, "items", place)
            case (("minLength" | "maxLength"), str()):
                return _counted(word, said, value, "characters", place)
            case "pattern", str():
                fits = Pattern.read(said).found_in(value)
                return None if fits else f"{place} must match {_shown(said)}, is {_shown(value)}"
            case _, (int() | float()) if word in _BOUNDS and not isinstance(value, bool):
                fits = _BOUNDS[word](value, said)
                return None if fits else f"{place} breaks {word} {said}, is {_shown(value)}"
            case _:
                return None

    def _none_of(self, schemas: list[Schema], value: object, place: str, depth: int) -> str | None:
        first = ""
        for schema in schemas:
            wrong = self.wrong(schema, value, place, depth + 1)
            if wrong is None:
                return None
            first = first or wrong
        return f"{place} fits none of {len(schemas)} forms; of the first: {first}"

    def _in_object(
        self, members: Mapping[str, Schema | bool], value: dict[str, object], place: str, depth: int
    ) -> str | None:
        for name, one in value.items():
            said = members.get(name, True)
            if said is False:
                return f"{place} must not have {_shown(name)}"
            if said is not True and (fault := self.wrong(said, one, f"{place}.{_shown(name, '')}", depth + 1)):
                return fault
        return None

    def _in_list(self, said: Schema, value: list[object], place: str, depth: int) -> str | None:
        for at, one in enumerate(value):
            if fault := self.wrong(said, one, f"{place}[{at}]", depth + 1):
                return fault
        return None


def _counted(word: str, said: int, value: Sized, unit: str, place: str) -> str | None:
    count, is_least = len(value), word.startswith("min")
    fits = count >= said if is_least else count <= said
    return None if fits else f"{place} must have at {'least' if is_least else 'most'} {said} {unit}, has {count}"


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


def _is(value: object, type_name: str) -> bool:
    if type_name == "integer":
        return _kind(value) == "number" and (not isinstance(value, float) or value.is_integer())
    return _kind(value) == type_name


def _same(value: object) -> object:
    """A key that is equal for equal JSON values: 1 is 1.0 but not true, and the order of names does not count."""
    match value:
        case dict():
            return ("object", frozenset((name, _same(one)) for name, one in value.items()))
        case list():
            return ("array", tuple(_same(one) for one in value))
        case _:
            return (_kind(value), value)


def _shown(value: object, quote: str = '"') -> str:
    """A value from outside, short and on one line."""
    if isinstance(value, str):
        return f"{quote}{one_line(value, SHOWN)}{quote}"
    return one_line(msgspec.json.encode(value).decode(), SHOWN)
