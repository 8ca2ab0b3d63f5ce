"""The tools of a session, which of them need approval, and the sandbox in which its commands run.

This depends on the settings, the agent, the role of a child, the tools that its spawn named and those that its parent
passed on. Settings do not change while a folder is open, so the result is cached for each `Position`. This file runs
nothing and knows no model.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from fledge.config import Config, agent, approval_for, sandbox_for
from fledge.core.access import Role, ToolRules, child_tools, planning_tools, refuse_tool, tool_name
from fledge.core.keys import agent_of
from fledge.core.run import Run
from fledge.errors import BadInput, Refused
from fledge.orchestrator.spawn_params import tools_needed
from fledge.store.base import Session, Spec
from fledge.tools.base import Tool
from fledge.tools.registry import ToolSet, chosen
from fledge.tools.sandbox import Network, Sandbox, find_sandbox
from fledge.tools.shell import exec_tool

ASKS_BY_DEFAULT = frozenset({"exec"})
"""Tools that need approval by default, without a sandbox."""


SESSION_TOOLS = frozenset(
    {
        "agents_list",
        "session_status",
        "sessions_history",
        "sessions_list",
        "sessions_send",
        "sessions_spawn",
        "sessions_subagent_remove",
        "sessions_yield",
        "subagents",
    }
)
"""Names of the tools that work on sessions. They are made with the engine, later than a program's tools are checked."""


MAKING_TOOLS = frozenset({"write", "edit", "exec"})
"""Tools that can create files."""


POSITIONS = 256
"""The size of the cache."""


Box = Literal["plain", "shared", "none"]
"""Where a session's commands run: in no sandbox, in one that shares the network, in one without network."""


class HeldTools(Struct, frozen=True):
    """The tools of a session; those that need approval; those that never ask a person; and those that can create
    files."""

    tools: ToolSet
    asks: frozenset[str]
    unasked: frozenset[str]
    making: frozenset[str]


class Position(Struct, frozen=True):
    """The facts, besides the settings, that decide about a session's tools."""

    agent_id: str
    role: Role | None
    """The role of a child; None for a conversation."""
    ceiling: tuple[str, ...] | None
    """The names of the tools that its parent had; None for a child of a conversation or a program, and for a
    conversation itself."""
    planning: bool
    box: Box
    searches: bool
    """The provider of its model searches the web."""
    allow: tuple[str, ...] | None = None
    """The tools that its spawn allows; None: all."""
    brought: tuple[str, ...] = ()
    """Functions that its spawn passed."""
    above: str = ""
    """The agent of the conversation that spawned it: a child gets no tool that the settings deny to that agent."""


class AgentTools(Struct, frozen=True):
    """The tools of an agent: allowed, with approval, forbidden."""

    may: tuple[str, ...]
    asks: tuple[str, ...]
    """Each call needs approval."""
    never: tuple[str, ...]


def position_of(session: Session, run: Run | None, box: Box, searches: bool, spec: Spec | None = None) -> Position:
    facts = session.facts
    role: Role | None = "orchestrator" if facts.role == "orchestrator" else "leaf"
    if session.kind in ("main", "named"):
        role = None
    planning = run is not None and run.plan == "planning"
    spawned = (None, ()) if spec is None else (spec.tools, tools_needed(spec))
    above = ""
    if role is not None and facts.tools is None and session.parent and not (run is not None and run.terms.program):
        above = agent_of(session.parent)
    return Position(facts.agent_id, role, facts.tools, planning, box, searches, *spawned, above)


def _is_same(one: Tool, other: Tool) -> bool:
    """True if both tools are made of the same function."""
    return one is other or (one.function == other.function and one.schema == other.schema)


class ToolChoice:
    """The tools of all sessions. `usual`: built-in tools; `own`: functions of the program for all agents;
    `given_agents`: agents that a program passed as values, each with its functions; `aside`: the folder for what
    commands make at guarded paths."""

    def __init__(
        self,
        config: Config,
        usual: Sequence[Tool],
        own: Sequence[Tool],
        given_agents: Mapping[str, Iterable[Tool]],
        aside: Path,
    ) -> None:
        self._config, self._aside = config, aside
        self._boxes: dict[Network, Sandbox | None] = {"shared": find_sandbox(aside)}
        self._built_in = SESSION_TOOLS | {"exec"} | {tool_name(one.name) for one in usual}
        self._check_own(own)
        self._own_tools = (*usual, *own)
        self._for_all = frozenset(tool_name(one.name) for one in own)
        """Names of the program's functions for all agents."""
        self._given = {name: ToolSet(functions) for name, functions in given_agents.items()}
        self._brought: dict[str, Tool] = {}
        """Functions of single agents or single runs, by name."""
        for name, functions in self._given.items():
            self._bring(functions, f"agents.{name}.tools")
        self._session_tools: tuple[Tool, ...] = ()
        self._tools: dict[Box, ToolSet] = {}
        self.tools_in = lru_cache(POSITIONS)(self._find)
        """The tools of a position, cached: each turn asks."""

    def _check_own(self, own: Iterable[Tool]) -> None:
        """Raise `BadInput` if two of the program's tools have one name, or one has the name of a built-in tool."""
        names: set[str] = set()
        for one in own:
            self._check_name(one, "tools")
            if tool_name(one.name) in names:
                raise BadInput("tools", "must not have two tools of one name", one.name)
            names.add(tool_name(one.name))

    def _check_name(self, one: Tool, field: str) -> None:
        if tool_name(one.name) in self._built_in:
            raise BadInput(field, "must not have the name of a built-in tool", one.name)

    @property
    def has_sandbox(self) -> bool:
        """True if bubblewrap works here."""
        return self._boxes["shared"] is not None

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of all functions of the program."""
        return (*self._brought, *self._for_all)

    def use_session_tools(self, tools: tuple[Tool, ...]) -> None:
        """Replace the tools that work on sessions."""
        self._session_tools = tools
        self._forget()

    def bring(self, functions: Iterable[Tool]) -> None:
        """Add functions that runs were given as tools. Raises `BadInput` if a name is taken by another function."""
        self._bring(functions, "tools")
        self._forget()

    def _forget(self) -> None:
        self._tools = {}
        self.tools_in.cache_clear()

    def _bring(self, functions: Iterable[Tool], field: str) -> None:
        taken = {tool_name(one.name): one for one in self._own_tools} | self._brought
        for one in functions:
            name = tool_name(one.name)
            self._check_name(one, field)
            if name in taken and not _is_same(taken[name], one):
                raise BadInput(field, "must have a name that no other tool has", one.name)
            if name not in self._for_all:
                self._brought[name] = taken[name] = one

    def functions_of(self, agent_id: str) -> frozenset[str] | None:
        """Names of the functions that only this agent has as tools; None unless a program passed it as a value."""
        found = self._given.get(agent_id)
        return None if found is None else found.names - self._for_all

    def box(self, session: Session) -> Box:
        """The sandbox of the session's commands. Raises `Refused` if one is required and bubblewrap does not work."""
        facts = session.facts
        setting = sandbox_for(self._config, facts.agent_id)
        mode, network = setting.mode, "none" if facts.offline else setting.network
        is_wanted = mode in ("auto", "all") or (mode == "non-main" and session.kind not in ("main", "named"))
        if not facts.boxed and not is_wanted:
            return "plain"
        if self._box_of(network) is not None:
            return network
        if facts.boxed:
            raise Refused("forbidden", "it was spawned to run in a sandbox, but bubblewrap does not work here")
        if mode == "auto" and network == "shared":
            return "plain"
        why = f"mode is {mode}" if network == "shared" else "network is none"
        raise Refused("forbidden", f"sandbox.{why}, but bubblewrap does not work that way here: install it")

    def _box_of(self, network: Network) -> Sandbox | None:
        """The sandbox with this network, probed when it is first needed."""
        if network not in self._boxes:
            self._boxes[network] = find_sandbox(self._aside, network=network) if self.has_sandbox else None
        return self._boxes[network]

    def tools_of(self, agent_id: str) -> AgentTools:
        """The tools of the agent's conversations: allowed, with approval, and forbidden."""
        setting = sandbox_for(self._config, agent_id)
        wanted = setting.mode in ("auto", "all") and self._box_of(setting.network) is not None
        box: Box = setting.network if wanted else "plain"
        held = self.tools_in(Position(agent_id, None, None, False, box, False))
        every = self.tools_with(box)
        names, asks = held.tools.names, held.asks
        never = every.names - every.hosted - names
        return AgentTools(tuple(sorted(names - asks)), tuple(sorted(asks)), tuple(sorted(never)))

    def _find(self, position: Position) -> HeldTools:
        config, agent_id, role = self._config, position.agent_id, position.role
        every = self.tools_with(position.box)
        names = self._passed_on(position, every)
        denied: dict[str, str] = {}
        if role is not None:
            layer = config.tools.subagents.tools
            rules = ToolRules(deny=layer.deny, allow=layer.allow, also_allow=layer.also_allow)
            denied = {one: found.reason for one in names if (found := refuse_tool(one, names, role, rules)) is not None}
            names = child_tools(names, role, rules)
            names = planning_tools(names, every.read_only) if position.planning else names
        boxed = position.box != "plain"
        asks = {tool_name(one.name) for one in every.only(names) if self._asks(agent_id, one, boxed)}
        # A provider's own tool runs inside its reply, so it cannot wait for an approval.
        left_out = every.hosted & asks if position.searches else every.hosted
        tools = every.only(names - left_out, denied)
        unasked = frozenset(name for name in tools.names if approval_for(config, agent_id, name) == "never")
        return HeldTools(tools, frozenset(asks - left_out), unasked, tools.names & MAKING_TOOLS)

    def tools_with(self, box: Box) -> ToolSet:
        if box not in self._tools:
            command = exec_tool(None if box == "plain" else self._box_of(box))
            self._tools[box] = ToolSet([*self._own_tools, *self._brought.values(), command, *self._session_tools])
        return self._tools[box]

    def _passed_on(self, position: Position, every: ToolSet) -> frozenset[str]:
        """The tools that the settings and the parent allow, before the rules for subagents."""
        config = self._config
        own = agent(config, position.agent_id).tools
        held = (self.functions_of(position.agent_id) or frozenset()) | frozenset(position.brought)
        names = chosen(every.names - (self._brought.keys() - held), config.tools.allow, config.tools.deny)
        names = chosen(names, None if own.allow is None else (*own.allow, *position.brought), own.deny)
        if position.allow is not None:
            names = chosen(names, position.allow, ())
        if position.above:
            layer = agent(config, position.above).tools
            names &= chosen(every.names, layer.allow, layer.deny) | held
        return names if position.ceiling is None else names & frozenset(position.ceiling)

    def _asks(self, agent_id: str, tool: Tool, boxed: bool) -> bool:
        name = tool_name(tool.name)
        said = approval_for(self._config, agent_id, name) or tool.approval
        if said is not None:
            return said == "ask"
        return name in ASKS_BY_DEFAULT and not boxed
