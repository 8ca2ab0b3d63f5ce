"""The settings as data: the keys, with the allowed values and the default of each.

Read out of the structs of `schema`, so that checking, the reference and the code cannot disagree. This file does not
know of documents or files.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import get_args

from msgspec import NODEFAULT
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    NoneType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
)

from fledge.config.forms import FORMS
from fledge.config.schema import WORDS, ChannelQueue, Config, ModelChoice, ToolPolicy, ToolRule
from fledge.core.params import choices, described, near, struct_type
from fledge.core.value import Value


class Shape(Value):
    """A type without annotations and `… | None`: the part that decides how a value is read."""

    kind: Type
    form: str
    """The form of a text, a key of `FORMS`."""
    meaning: str


SHORT: Mapping[type, str] = {
    ModelChoice: "a model's name, or {primary, fallbacks}",
    ChannelQueue: "a queue mode, or {mode, people}",
}
"""Blocks for which a plain word is enough in a file, in words that follow "must be"."""


class Setting(Value):
    """One setting: its key, and in words its default, its allowed values and its meaning."""

    key: str
    default: str
    allowed: str
    meaning: str


def shape(kind: Type) -> Shape:
    """The type inside annotations and `… | None`; null is never a value, None only means "not set" in Python."""
    match kind:
        case Metadata(type=inner, extra_json_schema=said, extra=extra):
            bare = shape(inner)
            form, meaning = (extra or {}).get("form", bare.form), (said or {}).get("description", bare.meaning)
            return Shape(bare.kind, form, meaning)
        case UnionType(types=types):
            return shape(next(one for one in types if not isinstance(one, NoneType)))
        case _:
            return Shape(kind, "text", "")


def fields_of(kind: StructType) -> dict[str, Field]:
    """The fields of a block by their key in a file. `rules` is no key: each tool's rule stands in the block itself."""
    return {one.encode_name: one for one in kind.fields if one.name != "rules"}


def allowed(of: Shape) -> str:
    """The allowed values, in words that follow "must be"."""
    match of.kind:
        case BoolType() | IntType() | FloatType() | LiteralType(values=(_,)) as kind:
            return described(kind)
        case LiteralType(values=values):
            # Their order is lost in the type, so it is looked up.
            return choices(next(get_args(words) for words in WORDS if set(get_args(words)) == set(values)))
        case VarTupleType(item_type=item):
            return f"a list, each element {allowed(shape(item))}"
        case DictType(value_type=AnyType()):
            return "a JSON Schema"
        case DictType(value_type=item):
            return f"an object, each value {allowed(shape(item))}"
        case StructType(cls=cls):
            return SHORT.get(cls, "an object")
        case _:
            return FORMS[of.form][0]


@cache
def describe() -> tuple[Setting, ...]:
    """Every setting with its default, its allowed values and its meaning, in the order of the structs."""
    found: dict[str, Setting] = {}
    for key, one in settings_in(struct_type(Config)):
        of, twin = shape(one.type), key.replace("agents.list[].", "agents.defaults.", 1)
        # The defaults of all agents come first, so the twin was found already.
        default = "as in agents.defaults" if one.default is None and twin in found else _default(one)
        found[key] = Setting(key, default, allowed(of), of.meaning)
    return tuple(found.values())


def settings_in(block: StructType, prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Every setting of a block by its whole key."""
    for key, one in fields_of(block).items():
        match shape(one.type).kind:
            case StructType(cls=cls) as inner if cls is not ModelChoice:
                yield from settings_in(inner, f"{prefix}{key}.")
            case DictType(value_type=StructType() as inner):
                yield from settings_in(inner, f"{prefix}{key}.<name>.")
            case VarTupleType(item_type=StructType() as inner):
                yield from settings_in(inner, f"{prefix}{key}[].")
            case _:
                yield prefix + key, one
    if issubclass(block.cls, ToolPolicy):
        yield from settings_in(struct_type(ToolRule), f"{prefix}<tool>.")


def _default(one: Field) -> str:
    if one.required:
        return "required"
    match one.default if one.default_factory is NODEFAULT else one.default_factory():
        case None:
            return "not set"
        case bool() as default:
            return str(default).lower()
        case float() as default:
            return f"{default:g}"
        case tuple() as default:
            return ", ".join(map(str, default)) or "[]"
        case default:
            return str(default)


def nearest(key: str, here: Collection[str], block: str = "") -> str:
    """A hint, in words, about a `key` that is none of those `here`.

    It names the key that is spelled nearly so, else the same key in another block (one below this block first), else
    all keys `here`.
    """
    meant = near(key, here)
    if meant:
        return f"did you mean {meant}?"
    found = [one.key.split(".") for one in describe() if key in one.key.split(".")]
    elsewhere = [".".join(parts[: parts.index(key) + 1]) for parts in found]
    below = [path for path in elsewhere if path.startswith(f"{block}.")]
    if elsewhere:
        return f"did you mean {(below or elsewhere)[0]}?"
    return f"valid here: {', '.join(here)}"
