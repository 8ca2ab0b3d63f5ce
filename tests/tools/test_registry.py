"""Tools by name: aliases, duplicates, order, unknown names, allow and deny."""

import asyncio
from pathlib import Path

import pytest

from fledge.errors import BadInput
from fledge.models.base import ToolSpec
from fledge.tools.base import Tool, ToolContext, ToolResult, tool
from fledge.tools.registry import ToolSet, chosen

CONTEXT = ToolContext(session="agent:main:main", entry=3, index=1, workspace=Path("/nowhere"))


def named(name: str, read_only: bool = False) -> Tool:
    @tool(name=name, description=f"does {name}", read_only=read_only)
    async def it() -> str:
        return f"{name} ran"

    return it


def test_tools_are_shown_by_name_in_a_fixed_order() -> None:
    tools = ToolSet([named("write"), named("exec"), named("Read", read_only=True)])
    form = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert tools.specs == (
        ToolSpec("exec", "does exec", form),
        ToolSpec("Read", "does Read", form),
        ToolSpec("write", "does write", form),
    )
    assert [spec.name for spec in tools.only(["WRITE", " bash ", "absent"]).specs] == ["exec", "write"]
    assert tools.only([]).specs == ()
    assert [one.name for one in tools] == ["exec", "Read", "write"]
    assert len(list(tools)) == 3
    assert tools.names == {"exec", "read", "write"}
    assert tools.read_only == {"read"}


@pytest.mark.parametrize("second", ["exec", "EXEC", "bash"])
def test_two_tools_of_one_name_are_refused(second: str) -> None:
    with pytest.raises(BadInput, match='name: there is a tool "exec" already'):
        ToolSet([named("exec"), named(second)])


@pytest.mark.parametrize("word", ["exec", "bash", " Bash", "EXEC"])
def test_bash_is_exec(word: str) -> None:
    found = ToolSet([named("exec")]).get(word)
    assert found is not None
    assert asyncio.run(found.call("", CONTEXT)) == ToolResult("exec ran")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("raed", "There is no tool 'raed' here. Perhaps: read."),
        ("zzz", "There is no tool 'zzz' here. There are: exec, read, write."),
        ("", "There is no tool '' here. There are: exec, read, write."),
        ("x" * 5000, f"There is no tool '{'x' * 80}' here. There are: exec, read, write."),
        ("a\nb", "There is no tool 'a\\nb' here. There are: exec, read, write."),
    ],
)
def test_an_unknown_name_is_answered_with_those_near_it(name: str, told: str) -> None:
    tools = ToolSet([named("write"), named("exec"), named("read")])
    assert tools.get(name) is None
    assert tools.unknown(name) == ToolResult(told, is_error=True)


def test_a_selection_knows_only_what_it_holds() -> None:
    tools = ToolSet([named("write"), named("exec"), named("read")]).only({"bash", "read", "absent"})
    assert tools.names == {"exec", "read"}
    assert tools.unknown("write").text == "There is no tool 'write' here. There are: exec, read."
    assert ToolSet().unknown("write").text == "There is no tool 'write' here. There are: none."


ALL = frozenset({"read", "write", "exec", "web_fetch", "web_search", "sessions_send", "cron", "apply_patch"})


@pytest.mark.parametrize(
    ("allow", "deny", "left"),
    [
        (None, (), ALL),
        (("*",), (), ALL),
        ((), (), frozenset()),
        (("read", "BASH"), (), {"read", "exec", "apply_patch"}),
        (("web_*",), (), {"web_fetch", "web_search"}),
        (None, ("web_*", "cron"), ALL - {"web_fetch", "web_search", "cron"}),
        (("*",), ("*",), frozenset()),
        (("read", "cron"), ("read",), {"cron"}),
        (("sessions_*",), (), {"sessions_send"}),
        (("r?ad", "[r]ead"), (), frozenset()),
        (None, ("bash",), ALL - {"exec"}),
    ],
)
def test_allow_and_deny_choose_an_agents_own_tools(
    allow: tuple[str, ...] | None, deny: tuple[str, ...], left: frozenset[str]
) -> None:
    assert chosen(ALL, allow, deny) == left
