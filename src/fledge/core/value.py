"""The base of values: structs that are never changed, only replaced. Nothing else is known here."""

from typing import dataclass_transform

from msgspec import Struct, field


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(Struct, frozen=True, gc=False):
    """A value. It holds nothing that could lead back to it, so the garbage collector need not look at it."""
