"""Layers of settings: defaults, then the user's file, then the project's, then single settings; later ones win.

Works on documents, before they are checked; `with_settings` checks the outcome. This file reads no files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import to_builtins
from msgspec.structs import replace

from fledge.config.check import MAX_DEPTH, Loaded, SettingsDocument, check, sized
from fledge.config.schema import PRESETS, Config, ModelChoice
from fledge.config.shape import nearest
from fledge.config.text import value_of
from fledge.core.schema import JsonObject
from fledge.errors import BadInput

_AGENTS = "agents.list"
_SCHEMA = "outputSchema"
SingleSettings = tuple[str, ...]
"""The values of `--set`, in order: `key.path=value`."""
SettingPath = tuple[str, ...]
"""The keys that lead to a setting. An agent of `agents.list` is named by its id."""
Layers = Sequence[tuple[str, SettingsDocument]]
"""Documents of settings with their names, the weakest first."""


def merge(*documents: SettingsDocument) -> JsonObject:
    """One document in which later ones win: objects are merged, other values and lists replaced, agents merged by id.

    None of the given documents is changed or shared. Refused: anything that is no object or nests too deep.
    """
    merged: JsonObject = {}
    for number, document in enumerate(documents, start=1):
        merged = _merged(merged, sized(document, f"document {number}"), "")
    return merged


def with_settings(base: SettingsDocument, settings: Sequence[str]) -> Loaded:
    """The checked settings after each `key.path=value` was put over `base`, in order.

    A value that is valid JSON5 is read as JSON5, any other as plain text. Agents are found by id or index, other list
    elements by index. Refused: a setting without `=`, a path that leads nowhere (naming the nearest key), and settings
    that `check` refuses.
    """
    document: object = merge(base)
    for setting in settings:
        document = _put(document, *_parsed(setting))
    return check(document, "settings")


def layer_of(settings: Sequence[str]) -> JsonObject:
    """The document that these `key.path=value` make, unchecked; agents are in it under the id or index as written."""
    found: JsonObject = {}
    for setting in settings:
        found = merge(found, nested(*_parsed(setting)))
    return found


def _parsed(setting: str) -> tuple[list[str], object]:
    """The keys and the value of a single setting. Refused: a text that is no setting."""
    path, equals, value = setting.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        raise BadInput("setting", "must look like key.path=value", setting)
    return keys, value_of(value)


def nested(keys: Sequence[str], value: object) -> JsonObject:
    """A document that holds this value alone, at the end of these keys."""
    *blocks, last = keys
    document: JsonObject = {last: value}
    for key in reversed(blocks):
        document = {key: document}
    return document


def leaves(value: object, path: SettingPath = ()) -> Iterator[tuple[SettingPath, object]]:
    """The values of a document by their path; a list is one value, except the list of agents."""
    if path == ("agents", "list") and isinstance(value, list | tuple):
        value = {_id(one) or str(at): one for at, one in enumerate(value)}
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, (*path, str(key)))
    else:
        yield path, value


def with_default_model(config: Config, name: str) -> Config:
    """The settings with this model, without fallbacks, as `agents.defaults.model`, as `open(model=…)` and `--model` set
    it. An agent's own model, and the settings for models of children, still go before it. Refused: a blank name."""
    if not name.strip():
        raise BadInput("model", "must be a model's name", name)
    defaults = replace(config.agents.defaults, model=ModelChoice(name.strip()))
    return replace(config, agents=replace(config.agents, defaults=defaults))


def with_agents(config: Config, agents: Mapping[str, object] | Sequence[object]) -> Config:
    """The settings with these agents, from `open(agents=…)`, over those of `agents.list`. A mapping has their ids as
    its keys. The agent `main` may spawn them, unless an `allowAgents` applies to it. Refused: agents that `check`
    refuses."""
    given = [_named(key, one) for key, one in agents.items()] if isinstance(agents, Mapping) else list(agents)
    document = merge(as_document(config), {"agents": {"list": given}})
    found = check(document, "agents").config
    main = next((one for one in found.agents.list if one.id == "main"), None)
    said = (found.agents.defaults.subagents.allow_agents, main and main.subagents.allow_agents)
    if not given or said != (None, None):
        return found
    ids = sorted({str(_id(one)) for one in given} - {"main"})
    allowed = {"id": "main", "subagents": {"allowAgents": ids}}
    return check(merge(document, {"agents": {"list": [allowed]}}), "agents").config


def _named(agent_id: object, settings: object) -> object:
    if not isinstance(settings, Mapping):
        raise BadInput(f"agents.{agent_id}", "must be a mapping of the agent's settings", settings)
    if settings.get("id", agent_id) != agent_id:
        raise BadInput(f"agents.{agent_id}.id", "must be the key itself, or left out", settings["id"])
    return {**settings, "id": agent_id}


def as_document(config: Config) -> JsonObject:
    """A document that `check` turns into an equal `Config`; most values at their default are left out."""
    document: JsonObject = to_builtins(config)
    tools, agents = document.get("tools"), document.get("agents")
    if isinstance(tools, dict):
        tools.update(tools.pop("rules", {}))
    if isinstance(agents, dict):
        for agent in agents.get("list", ()):
            agent.get("tools", {}).update(agent.get("tools", {}).pop("rules", {}))
        subagents = config.agents.defaults.subagents
        if subagents.limits is not None:
            # A default spelled out beside the preset was left out above, and would come back as the preset's value.
            spelled = {"maxConcurrent": subagents.max_concurrent, "maxRetained": subagents.max_retained}
            agents["defaults"]["subagents"].update({key: spelled[key] for key in PRESETS[subagents.limits]})
    return document


def _merged(base: SettingsDocument, over: SettingsDocument, path: str) -> JsonObject:
    merged = dict(base)
    for key, value in over.items():
        here, old = f"{path}.{key}".lstrip("."), merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping) and key != _SCHEMA:  # two schemas do not mix
            merged[key] = _merged(old, value, here)
        elif here == _AGENTS and isinstance(old, list) and isinstance(value, list | tuple):
            merged[key] = _merged_agents(old, value)
        else:
            merged[key] = _copied(value)
    return merged


def _merged_agents(base: Sequence[object], over: Sequence[object]) -> list[object]:
    merged = list(base)
    at = {_id(agent): index for index, agent in enumerate(base)}
    at.pop(None, None)
    for agent in over:
        # Taken out once used: a second agent of that id in the same document stays a duplicate, which `check` refuses.
        index = at.pop(_id(agent), None)
        old = None if index is None else merged[index]
        if index is None or not isinstance(old, Mapping) or not isinstance(agent, Mapping):
            merged.append(_copied(agent))
        else:
            merged[index] = _merged(old, agent, "")
    return merged


def _id(agent: object) -> str | None:
    found = agent.get("id") if isinstance(agent, Mapping) else None
    return found.strip().lower() if isinstance(found, str) else None


def _copied(value: object) -> object:
    if isinstance(value, Mapping):
        return _merged({}, value, "")
    return [_copied(one) for one in value] if isinstance(value, list | tuple) else value


def _put(old: object, keys: Sequence[str], value: object, path: str = "") -> object:
    """The value at `path` after `value` was set below it; missing objects on the way are created."""
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    here = f"{path}.{key}".lstrip(".")
    if old is None:
        old = [] if path == _AGENTS else {}
    elif isinstance(old, str) and key in ("primary", "fallbacks"):
        old = {"primary": old}
    if isinstance(old, dict):
        return {**old, key: _put(old.get(key), rest, value, here)}
    if isinstance(old, list):
        index = _index(old, key, path)
        return [*old[:index], _put(old[index], rest, value, here), *old[index + 1 :]]
    raise BadInput(here, f"unknown key ({path} holds one value, not keys)", old)


def _index(elements: Sequence[object], key: str, path: str) -> int:
    """The index of the element with this id or index."""
    ids = [_id(one) for one in elements]
    if key.lower() in ids:
        return ids.index(key.lower())
    if re.fullmatch(r"[0-9]{1,9}", key) and int(key) < len(elements):
        return int(key)
    names = [one for one in ids if one is not None] or [str(index) for index in range(len(elements))]
    raise BadInput(
        f"{path}.{key}", f"no such element ({nearest(key, names)})" if names else "no such element, it is empty"
    )
