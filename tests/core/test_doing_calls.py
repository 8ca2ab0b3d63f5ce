"""A tool call in people's words: short where its work is shown, whole where a person is asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fledge.core.doing import call_line, whole_call_text
from fledge.core.file_change import ChangeLine, FileChange

NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
VALUES = st.one_of(st.text(max_size=30), st.integers(), st.booleans(), st.lists(st.text(max_size=5), max_size=3))


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("exec", '{"timeout": 5, "command": "pytest -q"}', "exec pytest -q"),
        ("write", '{"content": "much", "path": "a.md"}', "write a.md"),
        ("sessions_spawn", '{"task": "look", "label": "scout"}', "sessions_spawn scout"),
        ("mine", '{"number": 3, "thing": "a\\nb"}', "mine a b"),
        ("list", "{}", "list"),
        ("list", "", "list"),
        ("count", '{"n": 3}', "count"),
        ("exec", '{"command": " ", "cwd": "sub"}', "exec sub"),
        ("odd", "[1, 2]", "odd [1, 2]"),
        ("odd", "{not json", "odd {not json"),
        ("odd", '{"a": "1", "a": "2"}', 'odd {"a": "1", "a": "2"}'),
        ("exec", json.dumps({"command": "x" * 500}), "exec " + "x" * 154 + "…"),
    ],
)
def test_the_work_of_a_call_is_told_on_one_line(tool: str, arguments: str, line: str) -> None:
    assert call_line(tool, arguments) == line


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("exec", '{"command": "rm -rf build && make"}', "rm -rf build && make"),
        ("exec", '{"command": "a\\nb", "timeout": 5, "cwd": "sub"}', "a\nb\ntimeout: 5\ncwd: sub"),
        ("exec", '{"command": ["rm"]}', 'exec\ncommand: ["rm"]'),
        (
            "write",
            '{"path": "a.md", "content": "one\\npath: b.md"}',
            "write\npath: a.md\ncontent:\n| one\n| path: b.md",
        ),
        ("write", '{"a\\nb": true}', "write\na b: true"),
        ("odd", "[1]", "odd [1]"),
        ("exec", '{"command": "ls", "command": "rm"}', 'exec {"command": "ls", "command": "rm"}'),
        ("deep", "[" * 100_000, "deep " + "[" * 100_000),
    ],
)
def test_a_call_that_a_person_is_asked_about_is_shown_whole(tool: str, arguments: str, text: str) -> None:
    assert whole_call_text(tool, arguments) == text


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_every_argument_is_shown_whatever_it_is(arguments: dict[str, object]) -> None:
    shown = whole_call_text("mine", json.dumps(arguments))
    for name, value in arguments.items():
        assert name in shown
        words = value.splitlines() if isinstance(value, str) else [json.dumps(value, ensure_ascii=False)]
        assert all(line in shown for line in words)


CHANGE = FileChange(path="a.md", lines=(ChangeLine("removed", "old"), ChangeLine("added", "new")))


@pytest.mark.parametrize(
    ("case", "arguments", "change", "text"),
    [
        (
            "the lines stand for the words that they show",
            '{"path": "a.md", "old": "old", "new": "new"}',
            CHANGE,
            "edit\npath: a.md\n-old\n+new",
        ),
        (
            "a note stands beside all arguments",
            '{"path": "a.md", "old": "old", "new": "new"}',
            FileChange(path="a.md", note="a new file"),
            "edit\npath: a.md\nold: old\nnew: new\n(a new file)",
        ),
        (
            "lines that hide a part of the call stand beside all arguments",
            '{"path": "a.md", "old": "old", "new": "new"}',
            replace(CHANGE, hides=True),
            "edit\npath: a.md\nold: old\nnew: new\n-old\n+new",
        ),
        ("arguments that name a key twice", '{"a": 1, "a": 2}', CHANGE, 'edit {"a": 1, "a": 2}\n-old\n+new'),
    ],
)
def test_the_change_of_a_file_stands_for_the_arguments_that_it_shows_whole(
    case: str, arguments: str, change: FileChange, text: str
) -> None:
    assert whole_call_text("edit", arguments, change) == text
