"""Values read back from the wire, as `wire` wrote them: for a process that asked another one and shows the answer."""

from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from fledge.commands.wire import WireObject, camel, is_time
from fledge.core.live import TurnEvent

T = TypeVar("T")


def from_wire(kind: type[T], told: object) -> T:
    """The value of this type from which `to_wire` made this. Fields that only a newer process knows are left out."""
    return msgspec.convert(_plain(inspect.type_info(kind), told), kind)


def turn_event(told: WireObject) -> TurnEvent:
    """An event of type `turn` of a feed, as the library has it. Fields that only a newer process knows are left out."""
    return TurnEvent(**{_TURN_FIELDS[name]: one for name, one in told.items() if name in _TURN_FIELDS})


_TURN_FIELDS = {"sessionKey": "session"} | {
    camel(name): name for name in TurnEvent.__struct_fields__ if name != "session"
}
"""The fields of a turn's event by their names on the wire."""


def _plain(kind: inspect.Type, told: Any) -> Any:
    match kind:
        case inspect.StructType() if isinstance(told, dict):
            fields = {one.encode_name: (one, camel(one.name)) for one in kind.fields}
            plain = {name: _field(one, told[wired]) for name, (one, wired) in fields.items() if wired in told}
            return plain if kind.tag_field is None else {kind.tag_field: told.get(kind.tag_field), **plain}
        case inspect.ListType() | inspect.VarTupleType() if isinstance(told, list):
            return [_plain(kind.item_type, one) for one in told]
        case inspect.DictType() if isinstance(told, dict):
            return {name: _plain(kind.value_type, one) for name, one in told.items()}
        case inspect.UnionType():
            return _plain(_member(kind.types, told), told)
        case _:
            return told


def _field(field: inspect.Field, told: Any) -> Any:
    return told / 1000 if is_time(field.name) and isinstance(told, int | float) else _plain(field.type, told)


def _member(kinds: tuple[inspect.Type, ...], told: Any) -> inspect.Type:
    """The type among these that a value may have: for an object the struct with its tag, else the first struct; for a
    list the first list."""
    structs = [one for one in kinds if isinstance(one, inspect.StructType)]
    if isinstance(told, dict) and structs:
        return next((one for one in structs if one.tag_field and told.get(one.tag_field) == one.tag), structs[0])
    lists = [one for one in kinds if isinstance(one, inspect.ListType | inspect.VarTupleType)]
    return lists[0] if isinstance(told, list) and lists else inspect.AnyType()
