"""How values look on the wire: keys in camelCase, times as whole milliseconds since the epoch; and their schemas.

The same rule makes the value and its schema, so that the published schema fits the values that are sent.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

WireObject = dict[str, Any]
"""An object, as it looks on the wire."""


def camel(name: str) -> str:
    """The name on the wire."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(word.capitalize() for word in rest)


def is_time(name: str) -> bool:
    """True if a member of this name, here or on the wire, is a time."""
    return name == "at" or name.endswith(("_at", "At"))


def to_wire(value: object) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, Struct):
        return _struct(value)
    if isinstance(value, Mapping):
        return {str(key): to_wire(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_wire(one) for one in value]
    return value


def _struct(value: Struct) -> WireObject:
    config = value.__struct_config__
    told: WireObject = {}
    if config.tag is not None and config.tag_field is not None:
        told[config.tag_field] = config.tag
    for field in _fields(type(value)):
        name, one = field.name, getattr(value, field.name)
        if one is msgspec.UNSET or (config.omit_defaults and one == field.default):
            continue
        told[camel(name)] = round(one * 1000) if is_time(name) and isinstance(one, int | float) else to_wire(one)
    return told


_fields = cache(msgspec.structs.fields)


def schemas(kinds: Mapping[str, Any]) -> tuple[WireObject, WireObject]:
    """JSON Schemas of these types as they look on the wire, and the parts they refer to."""
    made, parts = msgspec.json.schema_components(kinds.values(), ref_template="#/$defs/{name}")
    return (
        {name: _renamed(schema) for name, schema in zip(kinds, made, strict=True)},
        {name: _renamed(schema) for name, schema in parts.items()},
    )


def _renamed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_renamed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {key: _renamed(value) for key, value in schema.items() if key not in ("properties", "required")}
    if isinstance(told.get("description"), str):
        told["description"] = told["description"].partition(">>>")[0].strip()  # examples are in Python
    if "properties" in schema:
        told["properties"] = {
            camel(key): _time(one) if is_time(key) else _renamed(one) for key, one in schema["properties"].items()
        }
        told["required"] = [camel(key) for key in schema.get("required", ())]
    return told


def _time(schema: Any) -> Any:
    kind = ["integer", "null"] if "null" in str(schema) else "integer"
    return {"description": "milliseconds since the epoch", "type": kind}
