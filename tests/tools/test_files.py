"""The file tools as a model uses them: what they show, change, cut and refuse."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from fledge.errors import BadInput
from fledge.tools import files
from fledge.tools.base import ToolContext
from fledge.tools.files import edit, file_tools, grep_tool, list_folder, read, write
from tests.statements import proves
from tests.tools.places import SECRET, call, error, left_open, open_descriptors, place, snapshot, text

grep = grep_tool()


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return place(tmp_path)


def put(context: ToolContext, path: str, content: str | bytes) -> Path:
    target = context.workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return target


def test_the_file_tools_and_their_flags() -> None:
    assert {made.name: (made.read_only, made.repeatable) for made in file_tools()} == {
        "read": (True, True),
        "write": (False, False),
        "edit": (False, False),
        "list": (True, True),
        "grep": (True, True),
    }


# ---- read ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "arguments", "shown"),
    [
        ("one\ntwo\n", {}, "     1\tone\n     2\ttwo"),
        ("one\ntwo", {}, "     1\tone\n     2\ttwo"),
        ("one\r\n\r\nüñ", {}, "     1\tone\n     2\t\n     3\tüñ"),
        ("", {}, "[the file is empty]"),
        ("\n", {}, "     1\t"),
        ("1\n2\n3\n4\n", {"offset": 3}, "     3\t3\n     4\t4"),
        ("1\n2\n3\n4\n", {"limit": 2}, "     1\t1\n     2\t2\n[lines 1–2 of 4; go on with offset 3]"),
        ("1\n2\n3\n4\n", {"offset": 2, "limit": 2}, "     2\t2\n     3\t3\n[lines 2–3 of 4; go on with offset 4]"),
        ("1\n2\n3\n4\n", {"offset": 3, "limit": 2}, "     3\t3\n     4\t4"),
        ("x" * 2000, {}, "     1\t" + "x" * 2000),
        ("x" * 2001, {}, "     1\t" + "x" * 2000 + " [cut: 1 more characters in this line]"),
    ],
)
def test_lines_are_numbered_and_what_is_left_out_is_said(
    context: ToolContext, content: str, arguments: dict[str, int], shown: str
) -> None:
    put(context, "f", content)
    assert text(read, context, path="f", **arguments) == shown


def test_a_long_file_is_cut_at_a_line_and_says_where_to_go_on(context: ToolContext) -> None:
    put(context, "f", "".join(f"{'x' * 92}\n" for _ in range(1000)))
    shown = text(read, context, path="f")
    assert shown.endswith("[lines 1–480 of 1000; go on with offset 481]")
    assert len(shown) <= 48_000 + 50


@pytest.mark.parametrize(
    ("content", "arguments", "told"),
    [
        (b"a\x00b", {}, "read: path: must be a text file; this one is binary (3 bytes) (got 'f')"),
        (b"ab\xff", {}, "read: path: must be UTF-8; byte 2 of 3 is not (got 'f')"),
        (b"a\n", {"offset": 2}, "read: offset: must be at most 1: the file has no more lines (got 2)"),
        (
            b"a\n",
            {"offset": 0},
            "read: offset: must be an integer of at least 1 (got 0). It takes: path (text, req",
        ),
        (b"a\n", {"limit": 0}, "read: limit: must be an integer of at least 1 (got 0)."),
    ],
)
def test_what_cannot_be_shown_is_refused(
    context: ToolContext, content: bytes, arguments: dict[str, int], told: str
) -> None:
    put(context, "f", content)
    assert error(read, context, path="f", **arguments).startswith(told)


def test_a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not(context: ToolContext) -> None:
    put(context, "f", b"x\n" * (files.MAX_FILE_BYTES // 2))
    assert text(read, context, path="f", limit=1).startswith("     1\tx\n[lines 1–1 of 5242880;")
    put(context, "f", b"x" * (files.MAX_FILE_BYTES + 1))
    assert error(read, context, path="f").startswith(
        "read: path: must be a file of at most 10485760 bytes, this one has"
    )


# ---- write and edit --------------------------------------------------------------------------------------------------


def test_a_file_is_created_and_then_replaced(context: ToolContext) -> None:
    assert text(write, context, path="a/b.txt", content="é\n") == "created a/b.txt (3 bytes)"
    assert text(write, context, path="a/b.txt", content="") == "replaced a/b.txt (0 bytes)"
    assert (context.workspace / "a" / "b.txt").read_text() == ""


def test_content_that_is_no_text_or_too_much_is_refused(context: ToolContext) -> None:
    result = asyncio.run(write.call('{"path": "f", "content": "\\ud800"}', context))
    assert result.is_error
    assert error(write, context, path="f", content="x" * (files.MAX_FILE_BYTES + 1)) == (
        "write: content: must make a file of at most 10485760 bytes, not 10485761"
    )
    with pytest.raises(BadInput, match="content: must be Unicode text, without lone surrogates"):
        write("f", "\ud800", context)
    assert not (context.workspace / "f").exists()


@pytest.mark.parametrize(
    ("before", "arguments", "after", "told"),
    [
        ("a b c", {"old": "b", "new": "x"}, "a x c", "replaced 1 place in f"),
        ("a b c", {"old": "b ", "new": ""}, "a c", "replaced 1 place in f"),
        ("b b b", {"old": "b", "new": "x", "replaceAll": True}, "x x x", "replaced 3 places in f"),
        ("a b c", {"old": "b", "new": "x", "replaceAll": True}, "a x c", "replaced 1 place in f"),
        ("1\r\n2\r\n", {"old": "1\n2\n", "new": "3\n4\n"}, "3\r\n4\r\n", "replaced 1 place in f"),
        ("1\r\n2\r\n", {"old": "1", "new": "3"}, "3\r\n2\r\n", "replaced 1 place in f"),
    ],
)
def test_old_text_becomes_new_text(
    context: ToolContext, before: str, arguments: dict[str, object], after: str, told: str
) -> None:
    target = put(context, "f", before)
    assert text(edit, context, path="f", **arguments) == told
    assert target.read_bytes().decode() == after


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"old": "z", "new": "x"},
            "edit: old: must stand in the file, exactly as written, spaces and line ends included",
        ),
        ({"old": "b", "new": "x"}, "edit: old: must stand there once, not 2 times: give more of it, or set replaceAll"),
        ({"old": "a", "new": "a"}, "edit: new: must differ from old"),
        ({"old": "", "new": "a"}, "edit: old: must be text that is not empty (got '')."),
        ({"old": "a"}, "edit: new: is required: text."),
    ],
)
def test_an_edit_that_is_not_clear_changes_nothing(
    context: ToolContext, arguments: dict[str, object], told: str
) -> None:
    target = put(context, "f", "a b b")
    assert error(edit, context, path="f", **arguments).startswith(told)
    assert target.read_text() == "a b b"


def test_edits_of_one_file_at_once_lose_none(context: ToolContext) -> None:
    target = put(context, "f", "".join(f"<{number}>" for number in range(40)))

    async def main() -> None:
        calls = [
            edit.call(json.dumps({"path": "f", "old": f"<{number}>", "new": f"[{number}]"}), context)
            for number in range(40)
        ]
        assert [result.is_error for result in await asyncio.gather(*calls)] == [False] * 40

    asyncio.run(main())
    assert target.read_text() == "".join(f"[{number}]" for number in range(40))


# ---- list ------------------------------------------------------------------------------------------------------------


def test_a_folder_is_listed_sorted_with_hidden_files_and_without_the_state(context: ToolContext) -> None:
    for path in ("b.txt", ".hidden", "a/one", "a/z/two", "a/z/y/three"):
        put(context, path, "123")
    (context.workspace / "link").symlink_to("../outside")
    os.mkfifo(context.workspace / "pipe")
    put(context, "new\nline", "")
    two = ".hidden (3)\na/\na/one (3)\na/z/\nb.txt (3)\nlink -> ../outside\nnew\\nline (0)\npipe (special)"
    assert text(list_folder, context) == two
    assert text(list_folder, context, depth=1) == two.replace("a/one (3)\na/z/\n", "")
    assert text(list_folder, context, path="a", depth=2) == "one (3)\nz/\nz/two (3)\nz/y/"


def test_an_empty_folder_says_so_and_a_file_is_no_folder(context: ToolContext) -> None:
    (context.workspace / "empty").mkdir()
    put(context, "f", "")
    assert text(list_folder, context, path="empty") == "[the folder is empty]"
    assert error(list_folder, context, path="f") == "list: path: cannot be used (Not a directory) (got 'f')"
    assert error(list_folder, context, path=".fledge").startswith("list: path: is hidden from tools")
    assert error(list_folder, context, depth=11).startswith("list: depth: must be an integer from 1 to 10 (got 11).")


@pytest.mark.parametrize(("count", "last"), [(1000, "f0999 (0)"), (1001, "[cut: 1 more entries; ")])
def test_a_long_list_is_cut_and_says_how_much(context: ToolContext, count: int, last: str) -> None:
    for number in range(count):
        put(context, f"many/f{number:04}", "")
    lines = text(list_folder, context, path="many").split("\n")
    assert lines[999] == "f0999 (0)"
    assert lines[-1].startswith(last)


# ---- grep ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def garden(context: ToolContext) -> ToolContext:
    put(context, "a.py", "Rose\nrose 1\r\nlily\n")
    put(context, "src/b.py", "a.b rose\naxb\n")
    put(context, "src/c.ts", "rose\n")
    put(context, ".hidden", "rose\n")
    put(context, ".git/config", "rose\n")
    put(context, "binary", b"rose\x00")
    put(context, "latin", b"ros\xe9 rose\n")
    (context.workspace / "out").symlink_to("../outside")
    (context.workspace / "outfile").symlink_to("../outside/secret.txt")
    return context


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (
            {"pattern": "ros."},
            [".hidden:1: rose", "a.py:2: rose 1", "latin:1: ros� rose", "src/b.py:1: a.b rose", "src/c.ts:1: rose"],
        ),
        ({"pattern": "^rose$", "ignoreCase": True}, [".hidden:1: rose", "a.py:1: Rose", "src/c.ts:1: rose"]),
        ({"pattern": "a.b", "path": "src"}, ["b.py:1: a.b rose", "b.py:2: axb"]),
        ({"pattern": "a.b", "path": "src/b.py", "fixed": True}, ["src/b.py:1: a.b rose"]),
        ({"pattern": "rose", "glob": "*.py"}, ["a.py:2: rose 1", "src/b.py:1: a.b rose"]),
        ({"pattern": "rose", "glob": "**/*.py"}, ["a.py:2: rose 1", "src/b.py:1: a.b rose"]),
        ({"pattern": "rose", "glob": "src/**/*.py"}, ["src/b.py:1: a.b rose"]),
        ({"pattern": "rose", "glob": "./src/*"}, ["src/b.py:1: a.b rose", "src/c.ts:1: rose"]),
        ({"pattern": "(rose", "fixed": True}, ["[no match]"]),
        ({"pattern": "secret"}, ["[no match]"]),
        (
            {"pattern": "rose", "limit": 5},
            [".hidden:1: rose", "a.py:2: rose 1", "latin:1: ros� rose", "src/b.py:1: a.b rose", "src/c.ts:1: rose"],
        ),
        (
            {"pattern": "rose", "limit": 1},
            [".hidden:1: rose", "[cut after 1 matches; there are more: narrow path, glob or pattern]"],
        ),
    ],
)
def test_lines_are_found_by_pattern_place_and_glob(
    garden: ToolContext, arguments: dict[str, object], found: list[str]
) -> None:
    assert text(grep, garden, **arguments).split("\n") == found


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"pattern": "("},
            "grep: pattern: must be a regular expression (missing ), unterminated subpattern at position 0)",
        ),
        ({"pattern": "x{99999999999}"}, "grep: pattern: must be a regular expression ("),
        ({"pattern": ""}, "grep: pattern: must be text of 1 to 2000 characters (got '')."),
        ({"pattern": "x", "path": "absent"}, "grep: path: there is no such file or folder in the workspace"),
        ({"pattern": "x", "path": "../outside"}, "grep: path: must stay inside the workspace"),
        ({"pattern": "x", "path": "outfile"}, "grep: path: must stay inside the workspace"),
        ({"pattern": "x", "path": ".fledge"}, "grep: path: is hidden from tools"),
        ({"pattern": "x", "limit": 201}, "grep: limit: must be an integer from 1 to 200 (got 201)."),
    ],
)
def test_a_search_that_cannot_be_made_says_why(garden: ToolContext, arguments: dict[str, object], told: str) -> None:
    assert error(grep, garden, **arguments).startswith(told)


def test_a_pattern_that_takes_for_ever_is_stopped_while_the_loop_goes_on(context: ToolContext) -> None:
    put(context, "f", "a" * 60 + "b\n")
    # More than a pipe holds, so that the feeder is stopped while it writes.
    put(context, "g", "x\n" * 200_000)
    before, threads = open_descriptors(context.workspace), threading.active_count()
    beats = 0

    async def main() -> str:
        nonlocal beats
        search = asyncio.ensure_future(grep_tool(0.3).call('{"pattern": "(a+)+$"}', context))
        while not search.done():
            beats += 1
            await asyncio.sleep(0.001)
        return (await search).text

    told = asyncio.run(main())
    assert told == (
        "grep: pattern: took longer than 0.3 s: narrow path or glob, and avoid nested repeats such as (a+)+"
    )
    assert beats > 10
    assert left_open(before, context.workspace) == set()
    assert threading.active_count() == threads


def test_a_search_that_is_cancelled_leaves_no_process_thread_or_descriptor(context: ToolContext) -> None:
    put(context, "f", "a" * 60 + "b\n")
    before = open_descriptors(context.workspace)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await grep.call('{"pattern": "(a+)+$"}', context)
        assert children() == []

    asyncio.run(main())
    assert left_open(before, context.workspace) == set()


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_many_matches_long_lines_and_large_files_are_bounded(context: ToolContext) -> None:
    put(context, "long", "rose" + "x" * 297 + "\n" + "rose" + "x" * 296 + "\n")
    put(context, "many", "rose\n" * 201)
    put(context, "too-large", b"rose\n" * (files.MAX_FILE_BYTES // 5 + 1))
    lines = text(grep, context, pattern="rose").split("\n")
    assert lines[0] == "long:1: rose" + "x" * 296 + " [cut]"
    assert lines[1] == "long:2: rose" + "x" * 296
    assert lines[200] == "[cut after 200 matches; there are more: narrow path, glob or pattern]"
    assert text(grep, context, pattern="rose", glob="too-*") == (
        "[no match]\n[not searched: 1 files that are too large or cannot be read]"
    )
    put(context, "wide", ("rose" + "y" * 290 + "\n") * 200)
    wide = text(grep, context, pattern="rosey", path="wide")
    assert len(wide) < 48_100
    assert wide.endswith("[cut after 157 matches; there are more: narrow path, glob or pattern]")


# ---- outside ---------------------------------------------------------------------------------------------------------


@proves("8.files.1")
@pytest.mark.parametrize("path", ["../outside/secret.txt", "link/secret.txt", "file", "{outside}/secret.txt"])
def test_no_tool_reaches_outside(context: ToolContext, tmp_path: Path, path: str) -> None:
    (context.workspace / "link").symlink_to("../outside")
    (context.workspace / "file").symlink_to("../outside/secret.txt")
    before = snapshot(tmp_path / "outside")
    named = path.format(outside=tmp_path / "outside")
    results = [
        call(read, context, path=named),
        call(write, context, path=named, content="x"),
        call(edit, context, path=named, old="secret", new="x"),
        call(list_folder, context, path=named),
        call(grep, context, path=named, pattern="secret"),
    ]
    assert [result.is_error for result in results] == [True] * 5
    assert all(SECRET not in result.text for result in results)
    assert snapshot(tmp_path / "outside") == before


# ---- folders besides the workspace -----------------------------------------------------------------------------------


def test_relative_paths_begin_where_the_session_works(tmp_path: Path) -> None:
    here = place(tmp_path)
    (here.workspace / "sub" / "deep").mkdir(parents=True)
    (here.workspace / "sub" / "a.txt").write_text("inside")
    (here.workspace / "top.txt").write_text("top")
    inside = replace(here, cwd="sub")
    assert "inside" in text(read, inside, path="a.txt")
    assert "top" in text(read, inside, path="../top.txt")
    assert "top" in text(read, inside, path=f"{here.workspace}/top.txt")
    assert text(list_folder, inside) == "a.txt (6)\ndeep/"
    text(write, inside, path="new.txt", content="x")
    text(edit, inside, path="new.txt", old="x", new="y")
    assert (here.workspace / "sub" / "new.txt").read_text() == "y"
    assert "must stay inside the workspace" in error(read, inside, path="../../outside/secret.txt")


def test_a_folder_besides_the_workspace_is_read_but_never_written(tmp_path: Path) -> None:
    here = place(tmp_path)
    given = tmp_path / "given"
    (given / "sub").mkdir(parents=True)
    (given / "a.txt").write_text("handed in")
    (given / "out").symlink_to(tmp_path / "outside" / "secret.txt")
    context = replace(here, readable=(given,))
    assert "handed in" in text(read, context, path=f"{given}/a.txt")
    assert text(list_folder, context, path=str(given)).splitlines()[0] == "a.txt (9)"
    assert "handed in" in text(grep_tool(), context, path=str(given), pattern="handed")
    for path in (f"{given}/out", f"{given}/../outside/secret.txt", f"{given}2/a.txt"):
        assert SECRET not in error(read, context, path=path)
    for tool, arguments in ((write, {"content": "x"}), (edit, {"old": "handed", "new": "x"})):
        assert "must stay inside the workspace" in error(tool, context, path=f"{given}/a.txt", **arguments)
    assert (given / "a.txt").read_text() == "handed in"
    assert "must stay inside the workspace" in error(read, here, path=f"{given}/a.txt")
