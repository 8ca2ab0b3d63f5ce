"""`fledge.Agent`: an agent as a value of a program. It has the fields of a file `agents/<name>.md` and of an entry of
`agents.list`, under Python names; only this file turns it into settings.

What settings cannot hold is kept beside them: functions as tools, a model object, the type of the answers. This file
does not know what a folder is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from msgspec.structs import asdict

from fledge.api.output_type import schema_for
from fledge.core.keys import AGENT_ID
from fledge.core.policy import Budget
from fledge.errors import BadInput, check_text
from fledge.models.base import Model, Thinking
from fledge.tools.base import Tool, ToolLike, as_tool

T = TypeVar("T")

TextOrTool = str | ToolLike
"""A tool by its name (or a glob of names), or a function."""


class AgentOptions(TypedDict, total=False):
    """The options of `fledge.Agent` besides `output_type`; all are optional."""

    instructions: str
    description: str
    tools: Iterable[TextOrTool] | None
    model: str | Model | None
    thinking: Thinking | None
    limits: Budget | None
    max_tokens: int | None
    workspace: str | Path | None
    sandbox: Literal["auto", "all", "non-main", "off"] | None
    agents: "Iterable[Agent[Any] | str] | None"


class Agent(Generic[T]):
    """An agent: its instructions, tools, model, answer type and limits.

    Give it to `fledge.open(agents=[…])`, then start runs with `fl.spawn(task, agent=…)`. docs/agents.md lists every
    field with its name in the settings.

    >>> @fledge.tool(read_only=True)
    ... def count(text: str) -> int:
    ...     "Count letters."
    ...     return len(text)
    >>> counter = fledge.Agent("counter", instructions="You count.", tools=[count], output_type=int)
    >>> counter
    <fledge agent counter: tools count, answers int>
    """

    @overload
    def __init__(
        self: "Agent[str]", name: str, *, output_type: None = ..., **options: Unpack[AgentOptions]
    ) -> None: ...

    @overload
    def __init__(self: "Agent[T]", name: str, *, output_type: type[T], **options: Unpack[AgentOptions]) -> None: ...

    @overload
    def __init__(self: "Agent[Any]", name: str, *, output_type: object, **options: Unpack[AgentOptions]) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        instructions: str = "",
        description: str = "",
        tools: Iterable[TextOrTool] | None = None,
        model: str | Model | None = None,
        thinking: Thinking | None = None,
        output_type: Any = None,
        limits: Budget | None = None,
        max_tokens: int | None = None,
        workspace: str | Path | None = None,
        sandbox: Literal["auto", "all", "non-main", "off"] | None = None,
        agents: "Iterable[Agent[Any] | str] | None" = None,
    ) -> None:
        """Raises `BadInput`, which names the field, for an invalid name, text, tool, output type, budget or list of
        agents. All other values are checked like settings, when the agent is given to `fledge.open`."""
        if not isinstance(name, str) or not AGENT_ID.fullmatch(name):
            raise BadInput("name", "must be a word of letters, digits, '-' or '_'", name)
        for field, text in (("instructions", instructions), ("description", description)):
            check_text(field, text)
        if limits is not None and not isinstance(limits, Budget):
            raise BadInput("limits", "must be a fledge.Budget", limits)
        self.name = name.lower()
        self.instructions, self.description = instructions, description
        self.tools, self.functions = read_tools(tools)
        self.model, self.thinking, self.max_tokens = model, thinking, max_tokens
        self.output_type = output_type
        self.output_schema = None if output_type is None else schema_for(output_type, "output_type")
        self.limits, self.workspace, self.sandbox = limits, workspace, sandbox
        self.agents = None if agents is None else tuple(agents)
        for one in self.agents or ():
            if not isinstance(one, Agent | str):
                raise BadInput("agents", "must be agents, or their names", one)

    def __repr__(self) -> str:
        parts = [
            "" if self.tools is None else f"tools {', '.join(self.tools) or 'none'}",
            f"model {self.model}" if isinstance(self.model, str) else "",
            f"answers {getattr(self.output_type, '__name__', self.output_type)}" if self.output_type else "",
        ]
        about = ", ".join(filter(None, parts))
        return f"<fledge agent {self.name}{': ' if about else ''}{about}>"

    def settings(self, model_name: str = "") -> dict[str, object]:
        """Return this agent as an entry of the setting `agents.list`. A model object is named `model_name` there.

        >>> fledge.Agent("critic", instructions="You find faults.", tools=["read"]).settings()
        {'id': 'critic', 'prompt': 'You find faults.', 'tools': {'allow': ['read']}}
        """
        model = self.model if isinstance(self.model, str) else model_name
        spawns = None if self.agents is None else [one if isinstance(one, str) else one.name for one in self.agents]
        children = {
            # The agent's own model takes precedence over one that is set for all subagents.
            "model": model or None,
            "thinking": self.thinking,
            "budget": None if self.limits is None else given(asdict(self.limits)) or None,
            "allowAgents": spawns,
        }
        entry = {
            "prompt": self.instructions or None,
            "description": self.description or None,
            "model": model or None,
            "maxTokens": self.max_tokens,
            "workspace": None if self.workspace is None else str(self.workspace),
            "outputSchema": self.output_schema,
            "tools": None if self.tools is None else {"allow": list(self.tools)},
            "sandbox": None if self.sandbox is None else {"mode": self.sandbox},
            "subagents": given(children) or None,
        }
        return {"id": self.name} | given(entry)


def read_tools(tools: Iterable[TextOrTool] | None) -> tuple[tuple[str, ...] | None, list[Tool]]:
    """The names of these tools (None: all may be used), and the tools among them that are functions of the program."""
    if tools is None:
        return None, []
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise BadInput("tools", "must be a list of functions, tools and names of tools", tools)
    names: list[str] = []
    functions: list[Tool] = []
    for one in tools:
        if isinstance(one, str):
            names.append(one)
            continue
        functions.append(as_tool(one))
        names.append(functions[-1].name)
    return tuple(names), functions


def with_those_they_name(agents: Sequence[object]) -> list[Agent[Any]]:
    """These agents and the agents that they may spawn, each once. Raises BadInput for two agents with one name, and for
    a value that is not an agent."""
    found: dict[str, Agent[Any]] = {}
    for one in _all(agents):
        if found.setdefault(one.name, one) is not one:
            raise BadInput("agents", f"must have names of their own; two are called {one.name}")
    return list(found.values())


def _all(agents: Sequence[object], above: tuple[object, ...] = ()) -> Iterator[Agent[Any]]:
    for one in agents:
        if isinstance(one, str) and above:
            continue  # the name of an agent in the settings
        if not isinstance(one, Agent):
            raise BadInput("agents", "must be fledge.Agent values, or settings as agents.list has them", one)
        if one not in above:
            yield one
            yield from _all(one.agents or (), (*above, one))


def given(entry: Mapping[str, object]) -> dict[str, object]:
    """The members of this mapping that are not None."""
    return {key: value for key, value in entry.items() if value is not None}
