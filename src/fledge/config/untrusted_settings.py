"""The settings of an untrusted project: they may make things tighter, and nothing else.

A cloned project is text of another author. Until a person trusts it, a cap in it counts only if it is lower, a denial
is added, a list of allowed tools only shrinks, and every setting that could permit more (models, providers, hooks,
runtimes, workspaces, approvals that are lifted) is left out and named. Pure functions; `places` knows which project is
trusted.
"""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import fields

from fledge.config.check import SettingsDocument, check
from fledge.config.layers import SettingPath, leaves, merge, nested
from fledge.config.schema import PRESETS, AgentBlock, Config
from fledge.core.schema import JsonObject

TighteningRule = Callable[[object, object], object]
"""Takes the present and the requested value, and gives the one to use: the present one if the other is not tighter."""
TighteningRules = Mapping[str, TighteningRule]
"""By setting."""


def _least(held: object, asked: object) -> object:
    return asked if isinstance(asked, int | float) and isinstance(held, int | float) and asked < held else held


def _least_limit(held: object, asked: object) -> object:
    """As `_least`, where 0 means that there is no limit."""
    return held if not asked else asked if not held else _least(held, asked)


def _added(held: object, asked: object) -> object:
    old, new = _words(held), _words(asked)
    return [*old, *(word for word in new if word not in old)]


def _narrowed(held: object, asked: object) -> object:
    """Only the words that both allow; None allows everything. A glob is kept only if the same glob is held."""
    new = _words(asked)
    if held is None:
        return new
    old = _words(held)
    return [word for word in new if word in old or ("*" not in word and any(fnmatchcase(word, one) for one in old))]


def _narrowed_closed(held: object, asked: object) -> object:
    """As `_narrowed`, where None allows nothing."""
    return None if held is None and asked else _narrowed(_words(held), asked)


def _narrowed_open(held: object, asked: object) -> object:
    """As `_narrowed`, where an empty list allows everything; a list that shares no word with `held` changes nothing."""
    return _narrowed(_words(held) or None, asked) or _words(held)


def _words(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list | tuple) else []


def _only(*tight: object) -> TighteningRule:
    """The rule for a setting with these tight values, the tightest last: it moves a value only towards the last one."""

    def rule(held: object, asked: object) -> object:
        if asked not in tight:
            return held
        return asked if held not in tight or tight.index(asked) > tight.index(held) else held

    return rule


_CHILDREN: Final[TighteningRules] = {
    "maxSpawnDepth": _least,
    "maxChildrenPerAgent": _least,
    "maxConcurrent": _least,
    "maxRetained": _least_limit,
    "runTimeoutSeconds": _least_limit,
    "queueTimeoutSeconds": _least_limit,
    "budget.tokens": _least_limit,
    "budget.usd": _least_limit,
    "budget.turns": _least_limit,
    "budget.seconds": _least_limit,
    "allowAgents": _narrowed_closed,
}
_TOOLS: Final[TighteningRules] = {"deny": _added, "allow": _narrowed}
_BOX: Final[TighteningRules] = {
    "mode": _only("all"),
    "network": _only("none"),
    "sessionToolsVisibility": _only("spawned"),
}


def _below(block: str, rules: TighteningRules) -> TighteningRules:
    return {f"{block}.{key}": rule for key, rule in rules.items()}


RULES: Final[TighteningRules] = {
    "agents.defaults.maxConcurrent": _least,
    "agents.defaults.maxSteps": _least_limit,
    "agents.defaults.maxRepeatedSteps": _least_limit,
    "agents.defaults.heartbeat.every": _only("off"),
    "agents.defaults.heartbeat.target": _only("none"),
    **_below("agents.defaults.subagents", _CHILDREN),
    **_below("agents.defaults.sandbox", _BOX),
    **_below("agents.list[].subagents", _CHILDREN),
    **_below("agents.list[].sandbox", _BOX),
    **_below("agents.list[].tools", _TOOLS),
    **_below("tools", _TOOLS),
    **_below("tools.subagents.tools", _TOOLS),
    "tools.agentToAgent.enabled": _only(False),
    "tools.agentToAgent.allow": _narrowed_open,
    "tools.sessions.visibility": _only("all", "agent", "tree", "self"),
    "tools.web.search.enabled": _only(False),
    "tools.sessions_spawn.attachments.enabled": _only(False),
    "tools.sessions_spawn.attachments.maxFiles": _least,
    "tools.sessions_spawn.attachments.maxFileBytes": _least,
    "tools.sessions_spawn.attachments.maxTotalBytes": _least,
    "session.agentToAgent.maxPingPongTurns": _least,
    "session.parentForkMaxTokens": _least_limit,
}
"""The settings that may be tightened, with their rules. All others but `<tool>.approval: ask` wait for trust."""
_APPROVAL: Final = _only("ask")


class Tightened(NamedTuple):
    """The part of a document that may apply, and its settings that wait until the project is trusted."""

    document: SettingsDocument
    left_out: tuple[str, ...]


def tightened(base: Config, document: SettingsDocument, source: str = "fledge.json5") -> Tightened:
    """The part of an untrusted document that makes `base` tighter. Refused: a document that `check` refuses."""
    check(document, source)
    kept: JsonObject = {}
    left_out: list[str] = []
    for keys, asked in _single_limits(dict(leaves(document))):
        setting = _block(keys)
        if setting == "agents.list[].id":
            continue  # it only names the agent
        held = _held(base, keys)
        rule = RULES.get(setting) or (_APPROVAL if keys[0] in ("tools", "agents") and keys[-1] == "approval" else None)
        if rule is None or (keys[:2] == ("agents", "list") and _own(base, keys) is None):
            waits = asked != held
        else:
            value = rule(held, asked)
            if value != _plain(held):
                kept = merge(kept, _layer(keys, value))
                continue
            waits = _plain(asked) != value
        if waits:
            left_out.append(".".join(keys))
    return Tightened(kept, tuple(left_out))


def _single_limits(settings: Mapping[SettingPath, object]) -> Iterator[tuple[SettingPath, object]]:
    """The settings, with the numbers that a preset stands for in its place, as each number has a rule of its own."""
    for keys, asked in settings.items():
        preset = PRESETS.get(asked) if keys[-2:] == ("subagents", "limits") and isinstance(asked, str) else None
        if preset is None:
            yield keys, asked
            continue
        for name, number in preset.items():
            beside = (*keys[:-1], name)
            if beside not in settings:  # a key beside the preset wins
                yield beside, number


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _block(keys: SettingPath) -> str:
    if keys[:2] == ("agents", "list"):
        return ".".join(("agents.list[]", *keys[3:]))
    return ".".join(keys)


def _own(base: Config, keys: SettingPath) -> AgentBlock | None:
    return next((one for one in base.agents.list if one.id == keys[2]), None)


def _held(base: Config, keys: SettingPath) -> object:
    """The present value of this key; for an agent that does not set it, the default for all agents if there is one.

    An agent's width has no such default: with a width of its own an agent has a lane of its own, beside that of others.
    """
    if keys[:2] != ("agents", "list"):
        return _value(base, keys)
    own = _own(base, keys)
    said = None if own is None else _value(own, keys[3:])
    if said is None and keys[3] in ("subagents", "sandbox") and keys[4] != "maxConcurrent":
        return _value(base, ("agents", "defaults", *keys[3:]))
    return said


def _value(at: object, keys: SettingPath) -> object:
    """The value in a block at the end of these keys; None if there is none. The name of a tool finds its rule."""
    for key in keys:
        if isinstance(at, Struct):
            names = {one.encode_name: one.name for one in fields(at)}
            at = getattr(at, names[key]) if key in names else getattr(at, "rules", {}).get(key)
        else:
            at = at.get(key) if isinstance(at, Mapping) else None
    return at


def _layer(keys: SettingPath, value: object) -> JsonObject:
    """A document with this one setting."""
    if keys[:2] == ("agents", "list"):
        return {"agents": {"list": [{"id": keys[2], **nested(keys[3:], value)}]}}
    return nested(keys, value)
