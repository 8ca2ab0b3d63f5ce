"""Checking a document against the settings: it becomes a `Config`, or is refused with the key that is wrong.

Whole or not at all: the first mistake raises and nothing is applied. Keys of OpenClaw that fledge does not use become
warnings. This file does not know where a document came from.
"""

import re
from collections.abc import Mapping

from msgspec import convert
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    FloatType,
    IntType,
    LiteralType,
    StrType,
    StructType,
    Type,
    VarTupleType,
)

from fledge.config.foreign import is_unused, warning
from fledge.config.forms import FORMS, check_text
from fledge.config.schema import (
    PRESETS,
    ChannelQueue,
    Config,
    ModelChoice,
    ModelProvider,
    ToolPolicy,
    ToolRule,
    WebSearch,
)
from fledge.config.shape import Shape, allowed, fields_of, nearest, shape
from fledge.core.keys import AGENT_ID
from fledge.core.params import is_number, struct_type
from fledge.core.route import TERMINAL, check_channel
from fledge.core.schema import JsonObject, check_schema
from fledge.core.value import Value
from fledge.errors import BadInput

SettingsDocument = Mapping[str, object]
"""The content of a settings file: objects, lists, texts, numbers, true and false."""

MAX_DEPTH = 32
LARGEST = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""
BUILT_IN_TOOLS = ("read", "write", "edit", "list", "grep", "exec", "bash", "web_fetch", "web_search")
ALIASES = {
    "queue": "steer",
    "queued": "steer",
    "abort": "interrupt",
    "coalesce": "collect",
    "steer+backlog": "steer-backlog",
    "openai-completions": "openai-chat",
    "anthropic-messages": "anthropic",
}
"""Other words for a choice, each with the word that is stored instead; no two choices share an alias."""
OLD_NAMES = {
    ("agents.defaults.subagents", "timeoutSeconds"): "runTimeoutSeconds",
    ("agents.list[].subagents", "timeoutSeconds"): "runTimeoutSeconds",
}
"""The present name of a renamed setting, by block and old key."""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,199})\}")
_PLAIN_KEY = re.compile(r"[\w$+-]{1,64}")


class Loaded(Value):
    """Settings as they apply, and warnings, for example about keys that were ignored."""

    config: Config
    warnings: tuple[str, ...] = ()
    layers: tuple[tuple[str, SettingsDocument], ...] = ()
    """The documents they were made of with their names, the weakest first; empty where that is not known."""


class _Place(Value):
    path: str = ""
    """As a person would write it in a setting: `agents.list.research.model`."""
    block: str = ""
    """The same for any agent: `agents.list[].model`."""

    def key(self, key: str) -> "_Place":
        shown = key if _PLAIN_KEY.fullmatch(key) else repr(key[:40])
        return _Place(f"{self.path}.{shown}".lstrip("."), f"{self.block}.{key}".lstrip("."))

    def element(self, name: str) -> "_Place":
        return _Place(f"{self.path}.{name}", f"{self.block}[]")


def check(document: object, source: str = "fledge.json5") -> Loaded:
    """The settings in the document, with defaults for all that it leaves out.

    Refused, naming the full path: unknown keys, wrong types, values out of bounds, two agents of one id, and documents
    that are no object, nest deeper than 32 levels or hold numbers that are too large.
    """
    sized(document, source)
    warnings: list[str] = []
    clean = _fit_block(struct_type(Config), document, _Place(), warnings)
    config = convert(clean, Config)
    first: dict[str, int] = {}
    for index, agent in enumerate(config.agents.list):
        if (other := first.setdefault(agent.id, index)) != index:
            raise BadInput(f"agents.list.{index}.id", f"must be unique, agents.list.{other} has it", agent.id)
    _check_webhooks(config)
    _check_models(config)
    return Loaded(config, tuple(warnings))


def _check_webhooks(config: Config) -> None:
    for block, named in (("channels", config.channels), ("hooks", config.hooks)):
        for name, webhook in named.items():
            at = _Place(block, block).key(name).path
            check_channel(name, at)
            if block == "channels" and name == TERMINAL:
                raise BadInput(at, "is built in and needs no settings: choose another name")
            if bool(webhook.secret_env) == bool(webhook.secret_file):
                raise BadInput(at, "must have a secretEnv or a secretFile, one of them")


def _check_models(config: Config) -> None:
    for name in config.models.catalog:
        if not re.fullmatch(r"[^/\s]+/\S+", name):
            raise BadInput(_Place("models.catalog").key(name).path, "must be named like provider/name")
    if config.models.providers:
        from fledge.config.providers import configured  # imported only if a provider is described

        for name, provider in config.models.providers.items():
            configured(name, provider)


def sized(document: object, source: str) -> SettingsDocument:
    """The document itself; refused if it is no object, nests too deep, has a key that is no text or a huge number."""
    if not isinstance(document, Mapping):
        raise BadInput(source, "must hold an object: { … }", document)
    waiting: list[tuple[object, int]] = [(document, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH and isinstance(value, Mapping | list | tuple):
            raise BadInput(source, f"must not nest deeper than {MAX_DEPTH} levels")
        match value:
            case Mapping():
                for key in value:
                    if not isinstance(key, str):
                        raise BadInput(source, "must have text as keys", key)
                waiting += [(one, depth + 1) for one in value.values()]
            case list() | tuple():
                waiting += [(one, depth + 1) for one in value]
            case int() if value.bit_length() > 1024:
                raise BadInput(source, "must not hold numbers of more than 300 digits")
    return document


def _fit(kind: Type, value: object, place: _Place, warnings: list[str]) -> object:
    """The value in its canonical spelling; refused unless it is of this kind and within its bounds."""
    of = shape(kind)
    match of.kind, value:
        case StructType() as block, _:
            return _fit_block(block, value, place, warnings)
        case VarTupleType(item_type=item), list() | tuple() as elements:
            return [_fit(item, one, place.element(_name(one, at)), warnings) for at, one in enumerate(elements)]
        case DictType(value_type=AnyType()), _:
            check_schema(value, place.path)
            return value
        case DictType(value_type=item), Mapping() as named:
            fitted: JsonObject = {}
            for key, one in named.items():
                at = _Place(place.key(key).path, f"{place.block}.<name>")
                if is_unused(place.block, key) and not (isinstance(one, Mapping) and "url" in one):
                    warnings.append(warning(at.path, key))
                else:
                    fitted[check_text(key, at.path)] = _fit(item, one, at, warnings)
            return fitted
        case LiteralType(values=values), _:
            spelled = value
            if isinstance(value, str):
                word = value.strip().lower()
                spelled = ALIASES.get(word, word)
            if spelled in values:
                return spelled
        case BoolType(), bool():
            return value
        case IntType() | FloatType() as number, _ if is_number(value, number):
            if abs(value) > LARGEST:
                raise BadInput(place.path, f"must be {allowed(of)}, no further from 0 than {LARGEST}", value)
            return int(value) if isinstance(number, IntType) else float(value)
        case StrType(), str() as text:
            return FORMS[of.form][1](check_text(text, place.path), place.path)
    raise _wrong(of, value, place)


def _fit_block(kind: StructType, value: object, place: _Place, warnings: list[str]) -> JsonObject:
    if kind.cls is ModelChoice and isinstance(value, str):
        value = {"primary": value}
    if kind.cls is ChannelQueue and isinstance(value, str):
        return {"mode": _fit(fields_of(kind)["mode"].type, value, place, warnings)}
    if not isinstance(value, Mapping):
        raise _wrong(Shape(kind, "text", ""), value, place)
    if kind.cls in (ModelProvider, WebSearch) and "apiKey" in value:
        value = _with_named_key(value, place.key("apiKey").path)
    known = fields_of(kind)
    clean: JsonObject = {}
    rules: JsonObject = {}
    for key, one in value.items():
        at, name = place.key(key), _present_name(key, value, place, warnings)
        if name is None:
            continue
        if name in known:
            clean[name] = _fit(known[name].type, one, at, warnings)
        elif is_unused(place.block, key):
            warnings.append(warning(at.path, key))
        elif issubclass(kind.cls, ToolPolicy) and _is_tool_rule(key, one):
            rules[check_text(key, at.path)] = _fit_block(struct_type(ToolRule), one, at, warnings)
        else:
            raise BadInput(at.path, f"unknown key ({nearest(key, known, place.block)})")
    for key, field in known.items():
        if field.required and key not in clean:
            raise BadInput(place.key(key).path, f"is required: {allowed(shape(field.type))}")
    if rules:
        clean["rules"] = rules
    preset = clean.get("limits")
    return {**PRESETS[preset], **clean} if isinstance(preset, str) else clean


def _present_name(key: str, block: SettingsDocument, place: _Place, warnings: list[str]) -> str | None:
    """The present name of a key; None for an old name that does not count, because its present name is set too."""
    name = OLD_NAMES.get((place.block, key))
    if name is None:
        return key
    now, is_set = place.key(name).path, name in block
    warnings.append(f"{place.key(key).path}: {f'ignored beside {now}' if is_set else f'is called {now} now'}")
    return None if is_set else name


def _with_named_key(provider: SettingsDocument, path: str) -> SettingsDocument:
    """The block with `apiKeyEnv` for an `apiKey` that names a variable. Refused, and not shown: a key itself."""
    given = provider["apiKey"]
    if isinstance(given, Mapping) and given.get("source") == "env":
        given = f"${{{given.get('id')}}}"
    found = _REFERENCE.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None or "apiKeyEnv" in provider or "apiKeyFile" in provider:
        raise BadInput(
            path,
            "no key may stand in the settings: leave apiKey out, put the key into an environment variable and name"
            ' that here, apiKeyEnv: "NAME", or into a file that only you can read, apiKeyFile: "path"',
        )
    return {key: value for key, value in provider.items() if key != "apiKey"} | {"apiKeyEnv": found[1]}


def _is_tool_rule(key: str, value: object) -> bool:
    # Users' tools may have any name, so the value shows whether a key is a tool or misspelled.
    return key in BUILT_IN_TOOLS or (isinstance(value, Mapping) and "approval" in value)


def _name(value: object, index: int) -> str:
    found = value.get("id") if isinstance(value, Mapping) else None
    return found.lower() if isinstance(found, str) and AGENT_ID.fullmatch(found) else str(index)


def _wrong(of: Shape, value: object, place: _Place) -> BadInput:
    return BadInput(place.path, f"must be {allowed(of)}", value)
