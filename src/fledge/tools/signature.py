"""From a function to the arguments a model may give it: a struct with a field for each parameter, its JSON Schema, and
the descriptions in the docstring.

Functions, methods, `functools.partial` and objects with `__call__` are read alike. A parameter that a partial has bound
is not an argument any more. A parameter that cannot be described is refused by `BadInput`, which names it. This file
does not know what a tool is.
"""

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, field

from fledge.core.redact import error_words
from fledge.core.schema import JsonObject
from fledge.errors import BadInput

ToolFunction = Callable[..., Any]
"""A callable that a tool is made of: a function, a method, a partial, or an object with `__call__`."""
DocstringParts = tuple[str, dict[str, str]]
"""The description of the function, and the descriptions of its parameters, by name."""
_GOOGLE: Final = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_GOOGLE_ARG: Final = re.compile(r"\s+(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_NUMPY: Final = re.compile(r"Parameters\n-{3,}\n")
_NUMPY_ARG: Final = re.compile(r"(\w+)(?:\s*:.*)?")
_SPHINX_ARG: Final = re.compile(r":param(?:\s+[^:]+?)?\s+(\w+):\s*(.*)")
_SPHINX_OTHER: Final = re.compile(r":(?:type|returns?|rtype|raises?)\b.*")


def name_of(function: ToolFunction) -> str:
    """The name of a function or method; for a partial, of the function that it calls; for an object, of its class."""
    inner = _unbound(function)
    return getattr(inner, "__name__", "") or type(inner).__name__


def is_async(function: ToolFunction) -> bool:
    """True if calling it returns a coroutine at once."""
    if isinstance(function, FunctionType) and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(_called(function))


def schema_of(arguments: type[Struct], described: Mapping[str, str]) -> JsonObject:
    """The JSON Schema of a struct of arguments, with these descriptions of its fields."""
    (reference,), parts = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema: dict[str, Any] = parts.pop(reference["$ref"].removeprefix("#/$defs/"))
    schema.pop("title", None)
    for own, wire in zip(arguments.__struct_fields__, arguments.__struct_encode_fields__, strict=True):
        if own in described:
            schema["properties"][wire].setdefault("description", described[own])
    return schema | ({"$defs": parts} if parts else {})


# ---- parameters ------------------------------------------------------------------------------------------------------


def _unbound(function: ToolFunction) -> ToolFunction:
    return _unbound(function.func) if isinstance(function, partial) else function


def _called(function: ToolFunction) -> ToolFunction:
    """The function or method that is called in the end; it has the types."""
    inner = _unbound(function)
    call: ToolFunction = inner if inspect.isroutine(inner) else type(inner).__call__
    return call


def arguments_of(name: str, function: ToolFunction, context: type) -> tuple[type[Struct], str | None]:
    """The struct that the arguments are read into, with a field per parameter, and the name of the parameter of the
    type `context`, which is no argument; None if there is none. `name` is for error messages."""
    parameters = _parameters(name, function)
    bound = function.keywords if isinstance(function, partial) else {}
    fields: list[tuple[str, Any, Any]] = []
    context_parameter = None
    for parameter in parameters:
        where = f"{name}({parameter.name})"
        if parameter.name in bound:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadInput(where, "must be a parameter that can be given by name")
        kind = _type_of(_called(function), parameter, where)
        if _is_context(kind, context):
            if context_parameter is not None:
                raise BadInput(where, f"must not be a second context: {context_parameter} is one already")
            context_parameter = parameter.name
            continue
        _check_type(kind, where)
        fields.append((parameter.name, kind, _default(parameter)))
    try:
        made = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True, rename="camel")
    except ValueError as error:
        raise BadInput(name, f"its parameters must differ in camelCase ({error_words(error)})") from None
    return made, context_parameter


def _parameters(name: str, function: ToolFunction) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise BadInput(name, f"must be a function whose parameters can be read ({error_words(error)})") from None


def _type_of(called: ToolFunction, parameter: inspect.Parameter, where: str) -> Any:
    given = parameter.annotation
    if given is parameter.empty or parameter.name.startswith("_"):
        raise BadInput(where, "must have a type, and a name that does not begin with _")
    names = getattr(called, "__globals__", {})
    alone = SimpleNamespace(__annotations__={parameter.name: given})  # so an error is about one parameter
    try:
        return get_type_hints(alone, names, include_extras=True)[parameter.name]
    except NameError as error:
        raise BadInput(
            where, f"must have a type that is known where the function is defined ({error_words(error)})"
        ) from None
    except (SyntaxError, TypeError) as error:
        raise BadInput(where, f"must have a type ({error_words(error)})", given) from None


def _is_context(kind: Any, context: type) -> bool:
    """True of the type itself, annotated or not, and of "this type or None"."""
    if get_origin(kind) is Annotated:
        return _is_context(get_args(kind)[0], context)
    if get_origin(kind) in (Union, UnionType):
        return all(one is NoneType or _is_context(one, context) for one in get_args(kind))
    return kind is context


def _check_type(kind: Any, where: str) -> None:
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        raise BadInput(where, f"must have a type that can be read from JSON ({error_words(error)})") from None


def _default(parameter: inspect.Parameter) -> Any:
    if parameter.default is parameter.empty:
        return field()
    if isinstance(parameter.default, list | dict | set | bytearray):
        return field(default_factory=partial(copy.deepcopy, parameter.default))
    return field(default=parameter.default)


# ---- docstrings ------------------------------------------------------------------------------------------------------


def read_docstring(function: ToolFunction) -> DocstringParts:
    """The description, and those of the parameters: from a section `Args:`, NumPy's section `Parameters`, or lines
    `:param name:`. For an object the docstring of its `__call__` is read if there is one, else that of its class."""
    called = _called(function)
    is_in_class = not called.__doc__ and not inspect.isroutine(_unbound(function))
    text = inspect.getdoc(type(_unbound(function)) if is_in_class else called) or ""
    if found := _NUMPY.search(text):
        return _numpy(text[: found.start()], text[found.end() :])
    if _SPHINX_ARG.search(text):
        return _sphinx(text)
    return _google(text)


def _google(text: str) -> DocstringParts:
    # Everything but the section of arguments is the description; a line without indentation ends the section.
    kept: list[str] = []
    described: dict[str, str] = {}
    inside, last = False, ""
    for line in text.splitlines():
        if inside and (not line.strip() or line[0].isspace()):
            begun = _GOOGLE_ARG.fullmatch(line)
            if begun:
                last = begun[1]
                described[last] = begun[2].strip()
            elif last and line.strip():
                described[last] += " " + line.strip()
            continue
        inside = _GOOGLE.fullmatch(line) is not None
        if not inside:
            kept.append(line)
    return "\n".join(kept).strip(), described


def _numpy(before: str, section: str) -> DocstringParts:
    described: dict[str, str] = {}
    last, lines = "", section.splitlines()
    for at, line in enumerate(lines):
        if line and not line[0].isspace():
            if at + 1 < len(lines) and lines[at + 1].startswith("---"):  # the next section
                return "\n".join([before.strip(), "", *lines[at:]]).strip(), described
            begun = _NUMPY_ARG.fullmatch(line)
            last = begun[1] if begun else ""
        elif last and line.strip():
            described[last] = f"{described.get(last, '')} {line.strip()}".strip()
    return before.strip(), described


def _sphinx(text: str) -> DocstringParts:
    kept: list[str] = []
    described: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        begun = _SPHINX_ARG.fullmatch(line.strip())
        if begun:
            last = begun[1]
            described[last] = begun[2].strip()
        elif last and line.strip() and line[0].isspace():
            described[last] += " " + line.strip()
        else:
            last = ""
            if not _SPHINX_OTHER.fullmatch(line.strip()):
                kept.append(line)
    return "\n".join(kept).strip(), described
