"""The tools of a session: found by name, shown to a model in a fixed order, chosen by allow and deny lists.

A name is compared as `core.access` compares it: letter case aside, `bash` is `exec`. What a tool does, and who the
session is, is not known here.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping

from fledge.core.access import NEVER_A_CHILDS, ToolRules, child_tools, tool_name
from fledge.errors import BadInput
from fledge.models.base import ToolSpec
from fledge.tools.base import Tool, ToolContext, ToolResult


class ToolSet:
    """Tools by name. Refused: two under one name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._names: frozenset[str] | None = None
        self._specs: tuple[ToolSpec, ...] | None = None
        self._hosted: frozenset[str] | None = None
        self._denied: Mapping[str, ToolResult] = {}
        for one in tools:
            self.add(one)

    def add(self, tool: Tool) -> None:
        """From now on the tool is found under its name. Refused: a name that is taken."""
        name = tool_name(tool.name)
        if name in self._tools:
            raise BadInput("name", f'there is a tool "{self._tools[name].name}" already', tool.name)
        self._tools[name] = tool
        self._names = self._specs = self._hosted = None

    def __iter__(self) -> Iterator[Tool]:
        """Every tool, by name."""
        return (self._tools[name] for name in sorted(self._tools))

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, name: str) -> Tool | None:
        """The tool a word names, or None."""
        return self._tools.get(name) or self._tools.get(tool_name(name))

    @property
    def names(self) -> frozenset[str]:
        """The one name of each."""
        if self._names is None:  # they are asked for at every step
            self._names = frozenset(self._tools)
        return self._names

    @property
    def read_only(self) -> frozenset[str]:
        """Those that change nothing."""
        return frozenset(name for name, tool in self._tools.items() if tool.read_only)

    def specs(self, allowed: Collection[str] | None = None) -> tuple[ToolSpec, ...]:
        """What a model is shown of the allowed ones (None: of all), by name: always in the same order."""
        if allowed is not None:
            return tuple(_spec(tool) for tool in self._allowed(allowed) if not tool.hosted)
        if self._specs is None:  # they are shown with every request
            self._specs = tuple(_spec(tool) for tool in self if not tool.hosted)
        return self._specs

    @property
    def hosted(self) -> frozenset[str]:
        """Those that the model's provider carries out."""
        if self._hosted is None:  # they are asked for with every request
            self._hosted = frozenset(name for name, tool in self._tools.items() if tool.hosted)
        return self._hosted

    def only(self, allowed: Collection[str], denied: Mapping[str, str] | None = None) -> "ToolSet":
        """The allowed ones of these tools; names that are not here add nothing. `denied` says of others why a session
        may not use them: who calls one is told so."""
        chosen = ToolSet(self._allowed(allowed))
        reasons = denied or {}
        chosen._denied = {
            name: tool.refused("forbidden", reasons[name]) for name, tool in self._tools.items() if name in reasons
        }
        return chosen

    async def call(self, name: str, raw_arguments: str, context: ToolContext) -> ToolResult:
        """Run the tool that a model named. A name that is not here is an error the model can read."""
        found = self.get(name)
        return self.unknown(name) if found is None else await found.call(raw_arguments, context)

    def unknown(self, name: str) -> ToolResult:
        """The answer to a call of a tool that is not here: why it is denied, else names near it, else all there are."""
        if tool_name(name) in self._denied:
            return self._denied[tool_name(name)]
        near = difflib.get_close_matches(tool_name(name)[:80], self._tools, n=3)
        hint = f"Perhaps: {', '.join(near)}." if near else f"There are: {', '.join(sorted(self._tools)) or 'none'}."
        return ToolResult(f"There is no tool {name[:80]!r} here. {hint}", is_error=True)

    def _allowed(self, allowed: Collection[str] | None) -> list[Tool]:
        if allowed is None:
            return list(self)
        wanted = {tool_name(name) for name in allowed}
        return [tool for tool in self if tool_name(tool.name) in wanted]


def _spec(tool: Tool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.schema)


def chosen(names: frozenset[str], allow: Collection[str] | None, deny: Collection[str]) -> frozenset[str]:
    """What `tools.allow` and `tools.deny` leave of an agent's own tools; deny wins. Layers are applied one by one.

    What is denied by default to children is not denied to the agent itself: any pattern that covers it lifts that.
    """
    lifted = tuple(NEVER_A_CHILDS) if allow is None else tuple(allow)
    rules = ToolRules(deny=tuple(deny), allow=None if allow is None else tuple(allow), also_allow=lifted)
    return child_tools(names, "orchestrator", rules)
