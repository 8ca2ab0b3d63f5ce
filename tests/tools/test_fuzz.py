"""Whatever a model sends, no built-in tool raises, and nothing outside the workspace is read, changed or reached."""

import asyncio
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fledge.tools.base import Tool, ToolContext, ToolResult
from fledge.tools.files import edit, file_tools, grep_tool, list_folder, read, write
from fledge.tools.registry import ToolSet
from fledge.tools.search import SearchHit, search_tool
from fledge.tools.shell import exec_tool
from fledge.tools.web import Fetcher, fetch_tool
from tests.statements import proves
from tests.tools.places import SECRET, left_open, open_descriptors, place, snapshot

LIBRARY_WORDS = re.compile(r"`\$|Expected `|Object (missing|contains)|Invalid (enum|value)|Input data|\bNoneType\b")
"""What the library that checks types would say."""


class Nowhere:
    """Every name is at an address that is not public; every query finds itself."""

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def search(self, query: str, limit: int) -> Sequence[SearchHit]:
        return [SearchHit(query, query, query)]


FETCH = fetch_tool(Fetcher(look_up=Nowhere()))
EXECUTE = exec_tool()
TOOLS = ToolSet([*file_tools(), EXECUTE, FETCH, search_tool(Nowhere())])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = sorted({name for tool in TOOLS for name in tool.arguments.__struct_encode_fields__} - {"command"})
# Commands are left out: an arbitrary command may do anything, that is what it is for.
OBJECTS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), JSON, max_size=6)
PARTS = st.sampled_from(
    ["..", ".", "", "/", "a", "sub", "link", "file", "loop", "outside", "secret.txt", ".fledge", "~", "\x00", "x" * 300]
) | st.text(max_size=6)
PATHS = st.lists(PARTS, max_size=8).map("/".join) | st.text(max_size=20)
MANY = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def context() -> Iterator[ToolContext]:
    """A workspace with ways out of it; at the end, outside and state are as they were and nothing is open."""
    with TemporaryDirectory() as folder:
        here = place(Path(folder))
        ws = here.workspace
        (ws / "sub").mkdir()
        (ws / "a").write_text("rose\n")
        (ws / "link").symlink_to("../outside")
        (ws / "file").symlink_to("../outside/secret.txt")
        (ws / "loop").symlink_to("loop")
        (ws / "sub" / "up").symlink_to("../..")
        outside, state = snapshot(ws.parent / "outside"), snapshot(ws / ".fledge")
        before = open_descriptors(Path(folder))
        yield here
        assert left_open(before, Path(folder)) == set()
        assert (snapshot(ws.parent / "outside"), snapshot(ws / ".fledge")) == (outside, state)
        assert {entry.name for entry in ws.parent.iterdir()} == {"ws", "outside"}


def test_what_is_left_open_is_seen_and_what_others_open_and_close_is_not(tmp_path: Path) -> None:
    with (tmp_path / "closed").open("w") as closed, (tmp_path / "elsewhere").open("w"):
        here = tmp_path / "here"
        here.mkdir()
        before = open_descriptors(here)
        closed.close()
        assert left_open(before, here) == set()
        with (here / "file").open("w") as file:
            assert left_open(before, here) == {f"{file.fileno()} {here / 'file'}"}
        reading, writing = os.pipe()
        assert len(left_open(before, here)) == 2
        os.close(reading)
        os.close(writing)
        assert left_open(before, here) == set()


def say(tool: Tool, context: ToolContext, raw: str) -> ToolResult:
    result = asyncio.run(tool.call(raw, context))
    assert not (result.is_error and LIBRARY_WORDS.search(result.text)), result.text
    assert SECRET not in result.text
    assert len(result.text) <= 50_100
    result.text.encode()
    return result


@MANY
@given(name=st.sampled_from(sorted(TOOLS.names)) | st.text(), raw=st.text() | JSON.map(json.dumps))
def test_any_text_or_json_as_arguments_is_answered(context: ToolContext, name: str, raw: str) -> None:
    found = TOOLS.get(name)
    result = TOOLS.unknown(name) if found is None else asyncio.run(found.call(raw, context))
    assert isinstance(result, ToolResult)
    if name not in ("list", "write"):
        assert result.is_error


@proves("7.input.33")
@MANY
@given(tool=st.sampled_from([tool for tool in TOOLS if tool is not EXECUTE]), arguments=OBJECTS)
def test_any_values_for_known_fields_are_answered(
    context: ToolContext, tool: Tool, arguments: dict[str, object]
) -> None:
    say(tool, context, json.dumps(arguments))


@MANY
@given(path=PATHS, content=st.text(max_size=10))
def test_any_path_stays_inside(context: ToolContext, path: str, content: str) -> None:
    arguments: dict[str, object] = {"path": path}
    absolute = json.dumps({"path": f"{context.workspace}/{path}"})
    for tool, more in (
        (read, {}),
        (list_folder, {"depth": 10}),
        (write, {"content": content}),
        (edit, {"old": "secret", "new": content}),
    ):
        say(tool, context, json.dumps(arguments | more))
    say(read, context, absolute)


@settings(MANY, max_examples=15)
@given(path=PATHS, pattern=st.text(max_size=12), glob=st.none() | st.text(max_size=8), fixed=st.booleans())
def test_any_search_stays_inside(context: ToolContext, path: str, pattern: str, glob: str | None, fixed: bool) -> None:
    say(grep_tool(5), context, json.dumps({"path": path, "pattern": pattern, "glob": glob, "fixed": fixed}))


@settings(MANY, max_examples=25)
@given(words=st.text(max_size=30).filter(lambda words: "\x00" not in words))
def test_any_words_come_back_from_a_command(context: ToolContext, words: str) -> None:
    raw = json.dumps({"command": f"printf %s {shlex.quote(words)}"})
    result = say(EXECUTE, context, raw)
    assert result.is_error or result.text.startswith(words.replace("\x00", ""))


@MANY
@given(
    url=st.text(max_size=40)
    | st.builds("{}://{}{}".format, st.sampled_from(["http", "https", "HTTP", "file"]), st.text(max_size=12), PATHS)
)
def test_any_address_is_refused_where_nothing_is_public(context: ToolContext, url: str) -> None:
    assert say(FETCH, context, json.dumps({"url": url})).is_error
