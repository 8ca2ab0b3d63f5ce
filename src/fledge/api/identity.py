"""The identity of a process: the tools, agents, runtimes, hooks and settings with which it uses a folder.

A second process may use a folder through the process that holds it only if these are the same in both: functions run in
the holder, and a process that takes over runs its own functions. Names, schemas and digests are compared, never the
functions. Pure.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from fledge.api.agents import Agent
from fledge.config import Config, with_agents
from fledge.core.value import NamedValue
from fledge.hooks import Hooks
from fledge.tools.base import Tool

_LIMITS: Final = {
    "maxSpawnDepth": "max_spawn_depth",
    "maxChildrenPerAgent": "max_children_per_agent",
    "budget": "budget",
}
"""The fields of a child's limits that are compared, by their names in settings. The engine compares the widths of
lanes."""


class Identity(NamedValue):
    """The tools, agents, runtimes, hooks and settings of a process: for each kind, digests by name."""

    state: str
    """The state folder."""
    program: str
    tools: dict[str, str]
    agents: dict[str, str]
    runtimes: dict[str, str]
    hooks: dict[str, str]
    settings: dict[str, str]
    """By section of the settings, without the entries of `agents.list`: these are in `agents`."""
    workspace: str


def identity(
    *,
    state: str,
    program: str,
    tools: Iterable[Tool],
    runtimes: Iterable[str],
    hooks: Hooks | None,
    config: Config,
    workspace: str,
) -> Identity:
    """The identity of a process with these parts."""
    sections: dict[str, Any] = msgspec.to_builtins(config)  # without default values
    agents = sections.pop("agents", {})
    listed = {str(one.get("id", "")): one for one in agents.pop("list", ())}
    return Identity(
        state=state,
        program=program,
        tools={tool.name: _digest(tool.schema) for tool in tools},
        agents={name: _digest(one) for name, one in listed.items()},
        runtimes=dict.fromkeys(runtimes, ""),
        hooks={} if hooks is None else {name: _digest(one.on) for name, one in hooks.listening().items()},
        settings={name: _digest(one) for name, one in {**sections, "agents.defaults": agents}.items()},
        workspace=workspace,
    )


def section_digests(own: Identity) -> dict[str, str]:
    """The digests of a process that shares its store with others, by section; of the tools of a program each by name.
    The section `gateway` is left out: processes may differ in it."""
    kinds = {"agents.list": own.agents, "runtimes": own.runtimes, "hooks": own.hooks}
    settings = {name: digest for name, digest in own.settings.items() if name != "gateway"}
    tools = {f"tool {name}": digest for name, digest in own.tools.items()}
    return {**settings, **tools, **{name: _digest(kind) for name, kind in kinds.items() if kind}}


def limits_of(config: Config) -> dict[str, str]:
    """The settings, by path, that must be the same in all processes on one store: a limit that differs between them
    limits nothing."""
    children: dict[str, Struct] = {f"agents.list.{one.id}": one.subagents for one in config.agents.list}
    children["agents.defaults"] = config.agents.defaults.subagents
    return {
        f"{place}.subagents.{name}": msgspec.json.encode(getattr(limits, field), order="sorted").decode()
        for place, limits in children.items()
        for name, field in _LIMITS.items()
    }


def agent_differences(agent: Agent[Any], holders: Identity) -> list[str]:
    """How an agent value and its functions differ from those of the folder's holder, in words; empty if they do not."""
    (entry,) = with_agents(Config(), [agent.settings(f"given/{agent.name}" if agent.model else "")]).agents.list[:1]
    agents = {agent.name: _digest(msgspec.to_builtins(entry))}
    tools = {tool.name: _digest(tool.schema) for tool in agent.functions}
    kinds = [("agent", agents, holders.agents), ("tool", tools, holders.tools)]
    return [words for kind, here, there in kinds for words in _differing(kind, here, there, here)]


def _differing(kind: str, here: Mapping[str, str], there: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    """The differences between two mappings from names to digests, for these names, in words."""
    for name in sorted(names):
        if name not in there:
            yield f"the {kind} {name} is only here"
        elif name not in here:
            yield f"the {kind} {name} is only there"
        elif here[name] != there[name]:
            yield f"the {kind} {name} is another one"


def differences(own: Identity, holders: Identity) -> list[str]:
    """The differences between two processes, in words; empty if there are none."""
    kinds = [
        ("tool", own.tools, holders.tools),
        ("agent", own.agents, holders.agents),
        ("runtime", own.runtimes, holders.runtimes),
        ("hook", own.hooks, holders.hooks),
    ]
    sections = sorted({*own.settings, *holders.settings})
    return [
        *(words for kind, here, there in kinds for words in _differing(kind, here, there, {*here, *there})),
        *(f"settings of {name} differ" for name in sections if own.settings.get(name) != holders.settings.get(name)),
        *([f"its workspace is {holders.workspace}"] if own.workspace != holders.workspace else []),
    ]


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
