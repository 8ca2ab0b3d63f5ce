"""Nothing in foreign words acts on a terminal, whatever it is."""

import json

import pytest

from fledge.core.printable import printable, printable_json, quoted_lines, whole_call

ACTING = [
    "\x00",
    "\x1b",
    "\x07",
    "\r",
    "\x7f",
    "\x9b",
    "\u061c",
    "\u200b",
    "\u200f",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\U000e0041",
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("red \x1b[31malert\x07\x9b2J over\tthere\r\nend\n", "red ␛[31malert␇<U+009B>2J over\tthere\nend\n"),
        ("abc\u202edef\u2066", "abc<U+202E>def<U+2066>"),
        ("over\rwritten\x7f", "over␍written␡"),
        ("tag \U000e0041", "tag <U+E0041>"),
        ("family \U0001f468\u200d\U0001f469, naïve, 漢字", "family \U0001f468\u200d\U0001f469, naïve, 漢字"),
    ],
)
def test_what_acts_on_a_terminal_is_shown_instead(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("sign", ACTING)
def test_json_means_the_same_and_holds_none_of_it(sign: str) -> None:
    value = {f"key{sign}": [f"a{sign}b", "漢字"]}
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(text) == value
    assert sign not in text
    assert "漢字" in text


def test_a_call_is_shown_whole_on_one_line() -> None:
    command = '{"command": "echo ' + "safe " * 400 + '; rm -rf x \x1b[2K\\n"}\n'
    shown = whole_call("exec", command)
    assert shown.startswith("exec {")
    assert "; rm -rf x ␛[2K" in shown
    assert "\n" not in shown


def test_no_line_of_a_plan_passes_for_one_of_ours() -> None:
    assert quoted_lines("one\nfledge: approved") == "\n  | one\n  | fledge: approved"
