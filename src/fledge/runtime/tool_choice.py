"""Which tools a session has, which of them ask a person, and in which sandbox its commands run.

The settings, the agent, the role of a child, what its spawn named and what its parent passed on decide. Settings do not
change while a folder is open, so the choice is remembered for each position that a session can have. This file runs
nothing and knows no model.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from fledge.config import (
    Config,
    agent,
    approval_for,
    sandbox_for,
)
from fledge.core.access import Role, ToolRules, child_tools, planning_tools, refuse_tool, tool_name
from fledge.core.run import Run
from fledge.errors import BadInput, Refused
from fledge.orchestrator.spawn_params import tools_needed
from fledge.store.base import Session, Spec
from fledge.tools.base import Tool
from fledge.tools.registry import ToolSet, chosen
from fledge.tools.sandbox import Network, Sandbox, find_sandbox
from fledge.tools.shell import exec_tool

ASKS_BY_DEFAULT = frozenset({"exec"})
"""Tools that need a person where nothing else is configured and there is no sandbox."""


POSITIONS = 256
"""For how many kinds of sessions the choice of tools is remembered."""


Box = Literal["plain", "shared", "none"]
"""Where a session's commands run: in no sandbox, in one that shares the network, in one without network."""


class HeldTools(Struct, frozen=True):
    """The tools of a session, those that ask a person, and those about which nobody is asked."""

    tools: ToolSet
    asks: frozenset[str]
    unasked: frozenset[str]


class Position(Struct, frozen=True):
    """What decides which tools a session has, besides the settings."""

    agent_id: str
    role: Role | None
    """As a child; None of a conversation."""
    ceiling: tuple[str, ...] | None
    planning: bool
    box: Box
    searches: bool
    """Its model's provider searches the web."""
    allow: tuple[str, ...] | None = None
    """The tools that its spawn named; None: all."""
    brought: tuple[str, ...] = ()
    """Functions that its spawn gave it."""


class AgentTools(Struct, frozen=True):
    """Which tools an agent has."""

    may: tuple[str, ...]
    asks: tuple[str, ...]
    """A person is asked before each call."""
    never: tuple[str, ...]


def position_of(session: Session, run: Run | None, box: Box, searches: bool, spec: Spec | None = None) -> Position:
    role: Role | None = "orchestrator" if session.facts.role == "orchestrator" else "leaf"
    if session.kind in ("main", "named"):
        role = None
    planning = run is not None and run.plan == "planning"
    facts = session.facts
    if spec is None:
        return Position(facts.agent_id, role, facts.tools, planning, box, searches)
    return Position(facts.agent_id, role, facts.tools, planning, box, searches, spec.tools, tools_needed(spec))


def _is_same(one: Tool, other: Tool) -> bool:
    """True of one function, also if a tool was made of it twice."""
    return one is other or (one.function == other.function and one.schema == other.schema)


class ToolChoice:
    """The tools of every session. `usual`: tools that are always here; `own`: functions of the program for every agent;
    `given_agents`: agents that a program gave as values, each with its own functions."""

    def __init__(
        self, config: Config, usual: Sequence[Tool], own: Sequence[Tool], given_agents: Mapping[str, Iterable[Tool]]
    ) -> None:
        self._config = config
        self._boxes: dict[Network, Sandbox | None] = {"shared": find_sandbox()}
        self._sandbox = self._boxes["shared"]
        self._own_tools = (*usual, *own)
        self._for_all = frozenset(tool_name(one.name) for one in own)
        """Functions of the program that every agent may use."""
        self._given = {name: ToolSet(functions) for name, functions in given_agents.items()}
        self._brought: dict[str, Tool] = {}
        """Functions that belong to agents or to single runs, by name."""
        for name, functions in self._given.items():
            self._bring(functions, f"agents.{name}.tools")
        self._session_tools: tuple[Tool, ...] = ()
        self._tools: dict[Box, ToolSet] = {}
        self._sets: dict[Position, HeldTools] = {}
        """The tools of sessions in the same position, and which of them ask a person."""

    @property
    def has_sandbox(self) -> bool:
        """True if bubblewrap works here."""
        return self._sandbox is not None

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of all functions that a program brought."""
        return (*self._brought, *self._for_all)

    def use_session_tools(self, tools: tuple[Tool, ...]) -> None:
        """From now on these are the tools that work on sessions."""
        self._session_tools, self._tools, self._sets = tools, {}, {}

    def bring(self, functions: Iterable[Tool]) -> None:
        """From now on these functions are here, for runs that were given them. Refused: another one of a name that is
        taken."""
        self._bring(functions, "tools")
        self._tools, self._sets = {}, {}

    def _bring(self, functions: Iterable[Tool], field: str) -> None:
        taken = {tool_name(one.name): one for one in self._own_tools} | self._brought
        for one in functions:
            name = tool_name(one.name)
            if name in taken and not _is_same(taken[name], one):
                raise BadInput(field, "must have a name that no other tool has", one.name)
            if name not in self._for_all:
                self._brought[name] = taken[name] = one

    def functions_of(self, agent_id: str) -> frozenset[str] | None:
        """Names of the functions that this agent alone has as tools; None unless a program gave it as a value."""
        found = self._given.get(agent_id)
        return None if found is None else found.names - self._for_all

    def box(self, agent_id: str, session: Session) -> Box:
        """Where the session's commands run. Refused: in a sandbox that is demanded, and does not work here."""
        setting = sandbox_for(self._config, agent_id)
        network: Network = "none" if session.facts.offline else setting.network
        if session.facts.boxed:
            if self._box_of(network) is None:
                raise Refused("forbidden", "it was spawned to run in a sandbox, but bubblewrap does not work here")
            return network
        mode = setting.mode
        wanted = mode in ("auto", "all") or (mode == "non-main" and session.kind not in ("main", "named"))
        if not wanted or (self._box_of(network) is None and mode == "auto" and network == "shared"):
            return "plain"
        if self._box_of(network) is None:
            why = f"mode is {mode}" if network == "shared" else "network is none"
            raise Refused("forbidden", f"sandbox.{why}, but bubblewrap does not work that way here: install it")
        return network

    def _box_of(self, network: Network) -> Sandbox | None:
        """The sandbox with this network, tried when it is first needed."""
        if network not in self._boxes:
            self._boxes[network] = None if self._sandbox is None else find_sandbox(network=network)
        return self._boxes[network]

    def tools_of(self, agent_id: str) -> AgentTools:
        """The tools of the agent's own conversations: which it may use, which ask a person, which it may not."""
        setting = sandbox_for(self._config, agent_id)
        wanted = setting.mode in ("auto", "all") and self._box_of(setting.network) is not None
        box: Box = setting.network if wanted else "plain"
        held = self.tools_in(Position(agent_id, None, None, False, box, False))
        every = self.tools_with(box)
        names, asks = held.tools.names, held.asks
        never = every.names - every.hosted - names
        return AgentTools(tuple(sorted(names - asks)), tuple(sorted(asks)), tuple(sorted(never)))

    def tools_in(self, position: Position) -> HeldTools:
        if position not in self._sets:
            if len(self._sets) >= POSITIONS:
                self._sets.clear()
            every = self.tools_with(position.box)
            names = self._allowed(position, every)
            boxed = position.box != "plain"
            asks = {tool_name(one.name) for one in every.only(names) if self._asks(position.agent_id, one, boxed)}
            # Nobody can be asked about what a provider does in the middle of its reply.
            left_out = every.hosted & asks if position.searches else every.hosted
            denied = self._denied(position, every)
            tools = every.only(names - left_out, denied)
            unasked = self._unasked(position.agent_id, tools.names)
            self._sets[position] = HeldTools(tools, frozenset(asks - left_out), unasked)
        return self._sets[position]

    def tools_with(self, box: Box) -> ToolSet:
        if box not in self._tools:
            command = exec_tool(None if box == "plain" else self._box_of(box))
            self._tools[box] = ToolSet([*self._own_tools, *self._brought.values(), command, *self._session_tools])
        return self._tools[box]

    def _allowed(self, position: Position, every: ToolSet) -> frozenset[str]:
        names = self._held(position, every)
        if position.role is None:
            return names
        names = child_tools(names, position.role, self._child_rules())
        if position.planning:
            return planning_tools(names, every.read_only)
        return names

    def _held(self, position: Position, every: ToolSet) -> frozenset[str]:
        """The tools that the settings and the parent leave, before what holds for subagents."""
        config = self._config
        own = agent(config, position.agent_id).tools
        held = (self.functions_of(position.agent_id) or frozenset()) | frozenset(position.brought)
        names = chosen(every.names - (self._brought.keys() - held), config.tools.allow, config.tools.deny)
        names = chosen(names, None if own.allow is None else (*own.allow, *position.brought), own.deny)
        if position.allow is not None:
            names = chosen(names, position.allow, ())
        return names if position.ceiling is None else names & frozenset(position.ceiling)

    def _denied(self, position: Position, every: ToolSet) -> dict[str, str]:
        """Why a subagent has not the tools that its parent passed on."""
        if position.role is None:
            return {}
        held, rules = self._held(position, every), self._child_rules()
        refusals = {name: refuse_tool(name, held, position.role, rules) for name in held}
        return {name: refusal.reason for name, refusal in refusals.items() if refusal is not None}

    def _child_rules(self) -> ToolRules:
        layer = self._config.tools.subagents.tools
        return ToolRules(deny=tuple(layer.deny), allow=layer.allow, also_allow=tuple(layer.also_allow))

    def _asks(self, agent_id: str, tool: Tool, boxed: bool) -> bool:
        name = tool_name(tool.name)
        said = approval_for(self._config, agent_id, name) or tool.approval
        if said is not None:
            return said == "ask"
        return name in ASKS_BY_DEFAULT and not boxed

    def _unasked(self, agent_id: str, tools: Iterable[str]) -> frozenset[str]:
        """The tools about which nobody is asked, because the settings say so."""
        return frozenset(name for name in tools if approval_for(self._config, agent_id, name) == "never")
