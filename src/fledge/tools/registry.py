"""The tools of a session: found by name, shown to a model in a fixed order, chosen by allow and deny lists.

A name is compared as `core.access` compares it: letter case aside, `bash` is `exec`. This file does not know what a
tool does, nor the session.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

from fledge.core.access import NEVER_A_CHILDS, ToolRules, child_tools, tool_name
from fledge.errors import BadInput
from fledge.models.base import ToolSpec
from fledge.tools.base import Tool, ToolResult


class ToolSet:
    """Tools by name. Raises `BadInput` for two of one name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._denied: Mapping[str, ToolResult] = {}
        for one in tools:
            name = tool_name(one.name)
            if name in self._tools:
                raise BadInput("name", f'there is a tool "{self._tools[name].name}" already', one.name)
            self._tools[name] = one

    def __iter__(self) -> Iterator[Tool]:
        """Every tool, by name."""
        return (self._tools[name] for name in sorted(self._tools))

    def get(self, name: str) -> Tool | None:
        """The tool of this name, or None."""
        return self._tools.get(name) or self._tools.get(tool_name(name))

    @cached_property
    def names(self) -> frozenset[str]:
        """The canonical names; cached, because every step reads them."""
        return frozenset(self._tools)

    @cached_property
    def sorted_names(self) -> tuple[str, ...]:
        """The canonical names, sorted; cached, because every turn stores them."""
        return tuple(sorted(self._tools))

    @property
    def read_only(self) -> frozenset[str]:
        """The names of the tools that change nothing."""
        return frozenset(name for name, tool in self._tools.items() if tool.read_only)

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them, in a fixed order, by name; cached, because every request has them."""
        return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in self if not tool.hosted)

    @cached_property
    def hosted(self) -> frozenset[str]:
        """The names of the tools that the model's provider carries out; cached, because every request reads them."""
        return frozenset(name for name, tool in self._tools.items() if tool.hosted)

    def only(self, allowed: Collection[str], denied: Mapping[str, str] | None = None) -> "ToolSet":
        """The allowed ones of these tools; unknown names are ignored. `denied` holds the reasons why a session may not
        use other tools: a call of one is answered with its reason."""
        wanted = {tool_name(name) for name in allowed}
        chosen = ToolSet(tool for tool in self if tool_name(tool.name) in wanted)
        reasons = denied or {}
        chosen._denied = {
            name: tool.refused("forbidden", reasons[name]) for name, tool in self._tools.items() if name in reasons
        }
        return chosen

    def unknown(self, name: str) -> ToolResult:
        """The answer to a call of a tool that is not here: why it is denied, else similar names, else all names."""
        if tool_name(name) in self._denied:
            return self._denied[tool_name(name)]
        near = difflib.get_close_matches(tool_name(name)[:80], self._tools, n=3)
        hint = f"Perhaps: {', '.join(near)}." if near else f"There are: {', '.join(sorted(self._tools)) or 'none'}."
        return ToolResult(f"There is no tool {name[:80]!r} here. {hint}", is_error=True)


def chosen(names: frozenset[str], allow: Collection[str] | None, deny: Collection[str]) -> frozenset[str]:
    """The tools of an agent that `tools.allow` and `tools.deny` leave to it; deny wins. Layers are applied one by one.

    A tool that is denied to children by default is not denied to the agent itself: any pattern of `allow` that covers
    the tool lifts that, and so does the lack of an `allow`.
    """
    lifted = tuple(NEVER_A_CHILDS) if allow is None else tuple(allow)
    rules = ToolRules(deny=tuple(deny), allow=None if allow is None else tuple(allow), also_allow=lifted)
    return child_tools(names, "orchestrator", rules)
