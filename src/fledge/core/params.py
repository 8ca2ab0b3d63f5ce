"""One reader of parameters: a dict and a struct type become the struct, or a `BadInput` that names the field.

Tools, gateway methods and `fl.spawn` all read by it, so a parameter means the same at each of them: `null` for one that
may be left out means "not given", a whole number may be written with a point, and an error says the field as the caller
wrote it, what it must be, and what was given. Other names of a parameter stand in the struct's declaration
(`also_called`, `formerly`); its attribute `INSTEAD` has names that other systems use, with what to write instead. The
words that describe a type are here too; settings use them.
"""

import datetime
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Final, Generic, TypeGuard, TypeVar, overload

from msgspec import DecodeError, Meta, Struct, ValidationError, convert, json
from msgspec import inspect as kinds
from msgspec.inspect import FloatType, IntType, Metadata, StructType, Type

from fledge.core.redact import error_words
from fledge.errors import BadInput, FledgeError, Refused, check_text, is_unicode

S = TypeVar("S", bound=Struct)

MAX_NAME: Final = 80
"""How much of an unknown name an error repeats."""

_PLACE: Final = re.compile(r"`\$\.?([^`]*)`$")
_QUOTED: Final = re.compile(r"true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ALSO: Final = "also"
_FORMERLY: Final = "formerly"
_INF: Final = float("inf")
LARGEST: Final = 2**63 - 1
"""The largest number that any parameter takes."""
_TEXTS: Final[dict[type[Type], tuple[Any, str]]] = {
    kinds.DateTimeType: (datetime.datetime, "a date and time such as 2026-01-31T12:00:00Z"),
    kinds.DateType: (datetime.date, "a date such as 2026-01-31"),
    kinds.TimeType: (datetime.time, "a time of day such as 12:00:00"),
    kinds.TimeDeltaType: (datetime.timedelta, "a duration such as PT90S"),
    kinds.DecimalType: (Decimal, "a decimal number"),
    kinds.BytesType: (bytes, "text in base64"),
    kinds.ByteArrayType: (bytearray, "text in base64"),
}
"""Types that are written as text: the Python type of the value, and the words of errors for what it must be."""
_PLAIN: Final[tuple[tuple[Type, type], ...]] = ((IntType(), int), (kinds.StrType(), str), (kinds.BoolType(), bool))
"""Types without bounds, and the Python types all of whose values they take."""


def also_called(*names: str) -> Meta:
    """Declares further names of a parameter, as good as its own."""
    return Meta(extra={_ALSO: names})


def formerly(*names: str) -> Meta:
    """Declares old names of a parameter: they are read, and `Reading.old_names` says so."""
    return Meta(extra={_FORMERLY: names})


class Reading(Struct, Generic[S], frozen=True):
    """Parameters that were read."""

    params: S
    old_names: dict[str, str]
    """The present name of each parameter that was given by an old one, by that."""
    written: dict[str, str]
    """How the caller wrote a parameter, by each other name that it has: for errors that are found later."""


def former_names(kind: type[Struct]) -> dict[str, str]:
    """Old names of a struct's parameters, each with the present one."""
    return _other_names(kind, _FORMERLY)


def read_params(
    kind: type[S],
    given: object,
    whole: str = "params",
    spelled: Mapping[str, str] | None = None,
    *,
    unquote: bool = False,
) -> Reading[S]:
    """Read parameters. Raises BadInput for an unknown name, a missing parameter, and a value that does not fit.

    `whole` is the caller's word for all of them. `spelled` gives the name in the struct's declaration for each name
    that the caller may write; without it callers write those of the wire. With `unquote`, a text that is exactly a JSON
    number, true or false is read as that where no text fits.
    """
    if spelled is None and (read_at_once := _read_plain(kind, given)) is not None:
        return Reading(read_at_once, {}, {})
    block, written = struct_type(kind), dict[str, str]()
    try:
        clean = _fit_object(block, given, "", whole, spelled, written, unquote)
        read = convert(clean, kind, str_keys=True)
    except RecursionError:
        raise BadInput(whole, "must not nest so deep") from None
    except ValidationError as error:
        # A type that only msgspec can check: its path says where, the words are ours.
        place = place_of(error)
        field = next((one for one in block.fields if one.encode_name == re.split(r"[.\[]", place)[0]), None)
        raise BadInput(place or whole, f"must be {'an object' if field is None else described(field.type)}") from None
    if spelled is None and not _all_other_names(kind):
        return Reading(read, {}, {})
    former, others = former_names(kind), _all_other_names(kind) | {name: name for name in written}
    return Reading(
        read,
        {key: name for name, key in written.items() if former.get(key) == name},
        {other: written[name] for other, name in others.items() if name in written and other != written[name]},
    )


def _read_plain(kind: type[S], given: object) -> S | None:
    """The parameters, if all that are given are of plain types with no bounds, as most are; else None, and what is
    wrong, if anything is, is found by looking at each."""
    plain = _plain_types(kind)
    if type(given) is not dict or not all(type(one) is plain.get(name) for name, one in given.items()):
        return None
    if not all(is_unicode(one) for one in given.values() if type(one) is str):
        return None
    try:
        return convert(given, kind)
    except ValidationError:
        return None


def place_of(error: ValidationError) -> str:
    """Where in a value msgspec found something wrong; empty: it is the value itself."""
    found = _PLACE.search(error_words(error))
    return found[1] if found else ""


@overload
def as_written(error: BadInput, written: Mapping[str, str]) -> BadInput: ...


@overload
def as_written(error: FledgeError, written: Mapping[str, str]) -> FledgeError: ...


def as_written(error: FledgeError, written: Mapping[str, str]) -> FledgeError:
    """This error with its field as the caller wrote it; `written` gives the caller's name for another. A refusal names
    a field if its reason begins with that and a colon."""
    match error:
        case BadInput():
            head = re.split(r"[.\[]", error.field)[0]
            return BadInput(f"{written.get(head, head)}{error.field[len(head) :]}", error.expected, error.got)
        case Refused() if type(error) is Refused and (head := error.reason.partition(": ")[0]) in written:
            return Refused(error.status, written[head] + error.reason[len(head) :])
        case _:
            return error


def near(word: str, known: Collection[str]) -> str | None:
    """The known name that is spelled nearly like the word, letter case aside; None if none is."""
    from difflib import get_close_matches  # needed only to explain a mistake

    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(word[:MAX_NAME].lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


# ---- fitting ---------------------------------------------------------------------------------------------------------


@cache
def struct_type(kind: type[Struct]) -> StructType:
    """A struct as `msgspec.inspect` has it."""
    info = kinds.type_info(kind)
    assert isinstance(info, StructType)
    return info


@cache
def _other_names(kind: type[Struct], which: str) -> dict[str, str]:
    """Other names of a struct's parameters, each with the one on the wire."""
    fields = struct_type(kind).fields
    return {name: one.encode_name for one in fields for name in _extra(one.type).get(which, ())}


@cache
def _all_other_names(kind: type[Struct]) -> dict[str, str]:
    return _other_names(kind, _ALSO) | former_names(kind)


@cache
def _plain_types(kind: type[Struct]) -> dict[str, type]:
    """Parameters that take every value of a Python type, by name; none of a struct whose parameters have more names."""
    if _all_other_names(kind):
        return {}
    fields = struct_type(kind).fields
    return {one.encode_name: python for one in fields for plain, python in _PLAIN if one.type == plain}


def _extra(kind: Type) -> dict[str, Any]:
    match kind:
        case Metadata(type=inner, extra=extra):
            return _extra(inner) | (extra or {})
        case kinds.UnionType(types=types):
            return {key: value for one in types for key, value in _extra(one).items()}
        case _:
            return {}


@cache
def _fields(kind: type[Struct]) -> tuple[dict[str, kinds.Field], dict[str, str]]:
    return _fields_of(struct_type(kind))


def _fields_of(block: StructType) -> tuple[dict[str, kinds.Field], dict[str, str]]:
    """The fields of a struct by their names on the wire, and those names by themselves."""
    fields = {one.encode_name: one for one in block.fields}
    return fields, {name: name for name in fields}


def _fit_object(
    block: StructType,
    value: object,
    place: str,
    whole: str,
    spelled: Mapping[str, str] | None,
    written: dict[str, str],
    unquote: bool,
) -> dict[str, Any]:
    """The object by names of the wire, without what counts as not given. `written` is filled with how each was
    written."""
    if not isinstance(value, Mapping):
        raise BadInput(place or whole, "must be an object", value)
    fields, own_names = _fields(block.cls) if block is struct_type(block.cls) else _fields_of(block)
    others = _all_other_names(block.cls)
    names = own_names if spelled is None else spelled
    clean: dict[str, Any] = {}
    for key, one in value.items():
        at = _below(place, str(key)[:MAX_NAME])
        name = names.get(key) or others.get(key)
        if name is None:
            if block.forbid_unknown_fields:
                raise BadInput(at, f"is not a parameter{_hint(block.cls, str(key), names)}")
            clean[key] = one
            continue
        field = fields[name]
        if one is None and not field.required and not _takes_null(field.type):
            continue
        if name in written:
            raise BadInput(at, f"is another name of {written[name]}, which was given too: leave one of them out")
        clean[name], written[name] = _fit(field.type, one, at, unquote), key
    for shown, name in names.items():
        if fields[name].required and name not in clean:
            raise BadInput(_below(place, shown), f"is required: {described(fields[name].type)}")
    return clean


def _hint(kind: type[Struct], key: str, names: Collection[str]) -> str:
    instead: Mapping[str, str] = getattr(kind, "INSTEAD", {})
    if key in instead:
        return f": {instead[key]}"
    found = near(key, names)
    return f" (did you mean {found}?)" if found else ""


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _fit(kind: Type, value: Any, place: str, unquote: bool) -> Any:
    """The value in its one spelling. Raises BadInput unless it is of this kind and within its bounds."""
    match kind:
        case Metadata(type=inner):
            return _fit(inner, value, place, unquote)
        case _ if unquote and isinstance(value, str):
            try:
                return _fit(kind, value, place, False)
            except BadInput as error:
                try:
                    return _fit(kind, _unquoted(value), place, False)
                except BadInput:
                    raise error from None
        case kinds.UnionType(types=types):
            return _fit_union(kind, types, value, place, unquote)
        case StructType(tag=None, array_like=False):
            return _fit_object(kind, value, place, place, None, {}, unquote)
        case kinds.CollectionType(item_type=item) if isinstance(value, list | tuple) and _has_length(kind, value):
            return [_fit(item, one, f"{place}[{index}]", unquote) for index, one in enumerate(value)]
        case kinds.DictType(value_type=item) if isinstance(value, Mapping) and _has_length(kind, value):
            return {key: _fit(item, one, _below(place, str(key)[:MAX_NAME]), unquote) for key, one in value.items()}
        case _ if _is_plain(kind, value):
            if isinstance(value, str):
                check_text(place, value)
            return int(value) if isinstance(kind, IntType) else value
    raise _misfit(kind, value, place)


def _misfit(kind: Type, value: Any, place: str) -> BadInput:
    if _is_huge(value):
        return BadInput(place, f"must be {described(kind)}, and smaller than 2^63")  # it may have any number of digits
    return BadInput(place, f"must be {described(kind)}", value)


def _fit_union(kind: Type, types: tuple[Type, ...], value: Any, place: str, unquote: bool) -> Any:
    """The value as the first of these types that takes it; for an object or list, the error names the fault inside
    it."""
    inside: list[BadInput] = []
    for one in types:
        try:
            return _fit(one, value, place, unquote)
        except BadInput as error:
            inside += [error] if error.field != place else []
    raise inside[0] if inside else _misfit(kind, value, place)


def _is_huge(value: object) -> bool:
    """True of a number that no column, time or sum of ours can hold; infinity is none."""
    return isinstance(value, (int, float)) and LARGEST < abs(value) != _INF


def _unquoted(text: str) -> object:
    """The value of a text that is exactly a JSON number, true or false; of another, the text itself."""
    try:
        return json.decode(text) if _QUOTED.fullmatch(text) else text
    except DecodeError:  # a number out of range
        return text


def is_number(value: object, kind: IntType | FloatType) -> TypeGuard[int | float]:
    """True of a number of this kind, within its bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return False
    if isinstance(kind, IntType) and (value in (_INF, -_INF) or value % 1):
        return False
    return not (
        (kind.ge is not None and value < kind.ge)
        or (kind.gt is not None and value <= kind.gt)
        or (kind.le is not None and value > kind.le)
        or (kind.lt is not None and value >= kind.lt)
    )


def _is_plain(kind: Type, value: Any) -> bool:
    """True unless the value is surely not of this kind; a list or an object is none."""
    match kind:
        case IntType() | FloatType():
            # Numbers of verbs have bounds; a tool of a user may take numbers of any size.
            return is_number(value, kind) and not (bounds(kind) and abs(value) > LARGEST)
        case kinds.StrType(pattern=pattern):
            return (
                isinstance(value, str)
                and _has_length(kind, value)
                and (pattern is None or re.search(pattern, value) is not None)
            )
        case kinds.NoneType():
            return value is None
        case kinds.BoolType():
            return isinstance(value, bool)
        case kinds.LiteralType(values=values):
            return any(type(one) is type(value) and one == value for one in values)
        case kinds.EnumType(cls=cls):
            return any(type(one.value) is type(value) and one.value == value for one in cls)
        case _ if type(kind) in _TEXTS:
            return _reads(_TEXTS[type(kind)][0], value)
        case _:
            return not isinstance(kind, kinds.CollectionType | kinds.DictType)


def _reads(kind: Any, value: object) -> bool:
    try:
        convert(value, kind)
    except ValidationError:
        return False
    return True


def _has_length(kind: Any, value: Any) -> bool:
    return (kind.min_length or 0) <= len(value) and (kind.max_length is None or len(value) <= kind.max_length)


def _takes_null(kind: Type) -> bool:
    match kind:
        case Metadata(type=inner):
            return _takes_null(inner)
        case kinds.UnionType(types=types):
            return any(map(_takes_null, types))
        case _:
            return isinstance(kind, kinds.NoneType | kinds.AnyType)


# ---- words -----------------------------------------------------------------------------------------------------------


def described(kind: Type) -> str:
    """A value of this type, in words that follow "must be"."""
    match kind:
        case Metadata(type=inner):
            return described(inner)
        case kinds.UnionType(types=types):
            described_types = [described(one) for one in types if not isinstance(one, kinds.NoneType)]
            return " or ".join(dict.fromkeys(described_types))
        case kinds.BoolType():
            return "true or false"
        case IntType():
            return "an integer" + bounds(kind)
        case FloatType():
            return "a number" + bounds(kind)
        case kinds.StrType(pattern=pattern):
            return "text" + _lengths(kind, "characters") + ("" if pattern is None else f" like {pattern}")
        case kinds.LiteralType(values=values):
            return choices(values)
        case kinds.EnumType(cls=cls):
            return choices([one.value for one in cls])
        case kinds.CollectionType(item_type=item):
            return f"a list{_lengths(kind, 'elements')}, each {described(item)}"
        case kinds.DictType(value_type=item):
            each = described(item)
            return "an object" if each == _ANYTHING else f"an object, each value {each}"
        case StructType():
            return "an object"
        case _:
            return _TEXTS[type(kind)][1] if type(kind) in _TEXTS else _ANYTHING


_ANYTHING: Final = "a value that its description allows"


def choices(words: Collection[object]) -> str:
    """A closed set of words, in words that follow "must be"."""
    shown = [str(word) if word != "" else '""' for word in words]
    return f'"{shown[0]}"' if len(shown) == 1 else f"one of {', '.join(shown)}"


def bounds(number: IntType | FloatType) -> str:
    """The bounds of a number, in words that follow "an integer" or "a number"."""
    least, most = _shown(number.ge), _shown(number.le)
    if number.gt is not None:
        return f" above {_shown(number.gt)}" + (f", at most {most}" if most else "")
    if number.lt is not None:
        return (f" of at least {least}," if least else "") + f" below {_shown(number.lt)}"
    if not least:
        return f" of at most {most}" if most else ""
    return f" from {least} to {most}" if most else f" of at least {least}"


def _shown(bound: float | None) -> str:
    return "" if bound is None else str(int(bound)) if bound == int(bound) else str(bound)


def _lengths(kind: Any, unit: str) -> str:
    least, most = kind.min_length or 0, kind.max_length
    if most is not None:
        return f" of {least} to {most} {unit}" if least else f" of at most {most} {unit}"
    if least > 1:
        return f" of at least {least} {unit}"
    return " that is not empty" if least else ""
