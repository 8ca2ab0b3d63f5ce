"""The base of values: structs that are never changed, only replaced. Nothing else is known here."""

from typing import TYPE_CHECKING, Any, dataclass_transform

from msgspec import Struct, field

if TYPE_CHECKING:
    from msgspec import StructMeta
else:
    StructMeta = type(Struct)  # msgspec 0.19 does not export it


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(Struct, frozen=True, gc=False):
    """A value. It holds nothing that could lead back to it, so the garbage collector need not look at it."""


class _ByName(StructMeta):
    """Gives `kw_only` to every class: msgspec lets a class have it for its own fields, but not for those of others."""

    def __new__(cls, *given: Any, **config: Any) -> Any:
        return super().__new__(cls, *given, kw_only=True, **config)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class NamedValue(Value, metaclass=_ByName):
    """A value with fields that are given by name, in classes derived from it too."""
