"""What stays comes in its order: rows of the answer once, items between its blocks, nothing lost, no sentence torn."""

import re
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.cli.term.cells import Theme, columns_of_row, plain
from fledge.cli.term.scrollback import Scrollback, Whole, item_rows
from fledge.cli.term.shown import (
    AnswerItem,
    Called,
    CallEnded,
    CallQuestion,
    EndedItem,
    ErrorItem,
    NoticeItem,
    OutputItem,
    PlanQuestion,
    SpokenItem,
    Verbatim,
)

THEME = Theme(colour=False)


@given(st.lists(st.sampled_from(("word", "word", "word", "word\n\n", "item", "complete")), max_size=80))
def test_whatever_is_said_when_every_word_and_item_comes_once_in_order_and_no_paragraph_is_torn(
    moves: list[str],
) -> None:
    scrollback = Scrollback(THEME)
    rows: list[str] = []
    words: list[list[str]] = [[]]
    items: list[str] = []
    for number, move in enumerate(moves):
        if move == "item":
            items.append(f"item{number}")
            scrollback.say(NoticeItem(f"item{number}"), 20)
        elif move == "complete":
            scrollback.complete(20)
            words.append([])
        else:
            scrollback.words(move.replace("word", f"w{number} "), 20)
            words[-1].append(f"w{number}")
            words += [[]] if move.endswith("\n") else []
        rows += scrollback.take()
    scrollback.complete(20)
    rows += scrollback.take()
    text = " ".join(plain(row) for row in rows)
    assert re.findall(r"item\d+", text) == items
    assert re.findall(r"w\d+", text) == [word for paragraph in words for word in paragraph]
    for paragraph in filter(None, words):
        assert " ".join(paragraph) in " ".join(text.split())
    assert "" not in rows[:1]
    assert "" not in rows[-1:]
    assert not any(a == b == "" for a, b in pairwise(rows))


def test_an_item_is_placed_at_once_between_answers() -> None:
    scrollback = Scrollback(THEME)
    scrollback.say(NoticeItem("a"), 20)
    assert [plain(row) for row in scrollback.take()] == ["a"]
    scrollback.words("one", 20)
    scrollback.say(NoticeItem("b"), 20)
    assert scrollback.take() == []
    assert [len(scrollback.waiting), scrollback.tail(20)] == [1, ["", "one"]]
    scrollback.complete(20)
    assert [plain(row) for row in scrollback.take()] == ["", "one", "", "b"]


def test_a_question_ends_an_open_block_where_it_is() -> None:
    scrollback = Scrollback(THEME)
    scrollback.words("one two", 20)
    scrollback.say(EndedItem("scout", "done", 1), 20)
    assert scrollback.take() == []
    scrollback.say(PlanQuestion("p", "x", "the plan"), 20)
    scrollback.say(CallQuestion("q", "x", "a\nb"), 20)
    assert scrollback.shown == {"p", "q"}
    rows = ["one", "", "✔ scout · done · 1s", "", "◇ x's plan", "the plan", "", "? x wants to run", "    a", "    b"]
    assert [plain(row) for row in scrollback.take()] == rows
    assert scrollback.tail(20) == ["", "two"]
    scrollback.words(" three.", 20)
    scrollback.complete(20)
    assert [plain(row) for row in scrollback.take()] == ["", "two three."]


WAITS = {
    SpokenItem("x"): True,
    EndedItem("x", "done", 1): True,
    Called("x"): True,
    CallEnded("x", True, 1.0): True,
    Verbatim("x"): True,
    NoticeItem("x"): True,
    AnswerItem("x"): True,
    OutputItem("x", "x"): True,
    NoticeItem("x", is_asked_for=True): False,
    AnswerItem("x", is_asked_for=True): False,
    OutputItem("x", "x", is_asked_for=True): False,
    ErrorItem("x"): False,
    CallQuestion("q", "x", "x"): False,
    PlanQuestion("p", "x", "x"): False,
}
"""Whether an item of each kind waits for the end of a block."""
OPEN_BLOCKS = (
    "A sentence th",
    "- an item th",
    "> a quotat",
    "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 ",
    "```\ncode\nmo",
    "1",
)
"""Beginnings of answers, each of which leaves a block open."""


def test_each_kind_of_item_either_waits_or_not() -> None:
    assert {type(item) for item in WAITS} == set(get_args(Whole))


@pytest.mark.parametrize("begun", OPEN_BLOCKS)
@pytest.mark.parametrize("item", WAITS, ids=repr)
def test_while_a_block_is_open_an_item_is_placed_at_once_unless_it_only_informs(item: Whole, begun: str) -> None:
    scrollback = Scrollback(THEME)
    scrollback.words(begun, 40)
    first, before = scrollback.take(), scrollback.tail(40)
    assert before
    scrollback.say(item, 40)
    assert scrollback.waiting == ([item] if WAITS[item] else [])
    rows = scrollback.take()
    if WAITS[item]:
        assert not rows
        assert scrollback.tail(40) == before
        return
    assert rows[-len(item_rows(item, 40, THEME)) :] == item_rows(item, 40, THEME)
    scrollback.complete(40)
    answer = [*first, *rows[: -len(item_rows(item, 40, THEME))], *scrollback.take()]
    words = [word for row in answer for word in re.findall(r"\w+", plain(row))]
    assert words == re.findall(r"\w+", begun)


@given(
    st.lists(st.sampled_from(("word", "wo", "word\n\n", "- word", "\n", "> ", "| a ", "```\n", "?", "i")), max_size=40)
)
def test_wherever_a_question_comes_it_stands_at_once_and_each_word_and_item_comes_once(moves: list[str]) -> None:
    scrollback = Scrollback(THEME)
    rows: list[str] = []
    said: list[str] = []
    text = ""
    for number, move in enumerate(moves):
        match move:
            case "?":
                said.append(f"said{number}")
                scrollback.say(CallQuestion(f"q{number}", "x", f"said{number}"), 20)
                assert f"q{number}" in scrollback.shown
            case "i":
                said.append(f"said{number}")
                scrollback.say(NoticeItem(f"said{number}"), 20)
            case _:
                text += move
                scrollback.words(move, 20)
        rows += scrollback.take()
    scrollback.complete(20)
    shown = [plain(row) for row in (*rows, *scrollback.take())]
    assert re.findall(r"said\d+", " ".join(shown)) == said
    left = re.sub(r"\? x wants to run|said\d+", "", "".join(shown))
    assert re.sub(r"[^wordab]", "", left) == re.sub(r"[^wordab]", "", text)


@given(st.text("ab 你\n\x1b", max_size=80), st.text("ab 你\n\x1b", max_size=80), st.sampled_from((20, 40, 80)))
def test_no_row_of_an_item_is_wider_than_the_terminal_or_acts_on_it(label: str, text: str, width: int) -> None:
    items = (EndedItem(label, "timed out", 4000, 10**6, 0.5, text), SpokenItem(text), NoticeItem(text), ErrorItem(text))
    for row in (row for item in items for row in item_rows(item, width, THEME)):
        assert columns_of_row(row) <= width
        assert not any(sign in plain(row) for sign in "\x1b\n")


def test_items_are_shown_with_their_signs_and_hostile_text_as_text() -> None:
    def shown(item: SpokenItem | ErrorItem | EndedItem | AnswerItem, width: int = 30) -> list[str]:
        return [plain(row) for row in item_rows(item, width, THEME)]

    assert shown(SpokenItem("hello\nyou\x1b[2J")) == ["› hello", "  you␛[2J"]
    assert shown(SpokenItem("line\n" * 20))[-1] == "  … 9 more rows"
    assert shown(ErrorItem("no key")) == ["✖ no key"]
    assert shown(EndedItem("x\x1b", "killed", 5)) == ["■ x␛ · killed · 5s"]
    assert shown(EndedItem("x", "timed out", 5, text="a\n\nb")) == ["● x · timed out · 5s", "  a", "  b"]
    assert shown(EndedItem("x", "done", 5, text="word " * 20)) == ["✔ x · done · 5s", "  word word word word… /open x"]
    marked = EndedItem("x", "done", 5, text="## Found\n\n- **three** files\n- `a.md`\n\n```\nls **\n```")
    assert shown(marked) == ["✔ x · done · 5s", "  Found", "  • three files", "  • a.md …             /open x"]
    named = shown(EndedItem("my long label", "done", 5, text="word " * 20))
    assert named == ["✔ my long label · done · 5s", "  word word wor… /open my long"]  # the beginning means it, too
    assert shown(AnswerItem("**a**\n\nb")) == ["a", "", "b"]


def test_a_notice_in_two_columns_keeps_them_where_the_terminal_is_narrow() -> None:
    def shown(text: str, width: int) -> list[str]:
        return [plain(row) for row in item_rows(NoticeItem(text), width, THEME)]

    line = "/open <id|#>   the whole result of a subagent"
    assert shown(line, 60) == [line]
    assert shown(line, 32) == ["/open <id|#>   the whole result", "               of a subagent"]
    assert shown(line, 20) == ["/open <id|#>", "    the whole result", "    of a subagent"]
    assert shown("no  " + "x" * 30, 20) == ["no  " + "x" * 16, "    " + "x" * 14]


def test_a_notice_keeps_its_blanks_where_a_line_fits_and_its_indentation_where_it_does_not() -> None:
    text = "status    done\n│  ├─ scout\n    a line that is too long for one row\n\tend"
    assert [plain(row) for row in item_rows(NoticeItem(text), 24, THEME)] == [
        "status    done",
        "│  ├─ scout",
        "    a line that is too",
        "    long for one row",
        "        end",
    ]


def test_calls_stand_close_together_and_apart_from_everything_else() -> None:
    scrollback = Scrollback(THEME)
    scrollback.words("one", 20)
    scrollback.complete(20)
    for item in (Called("exec make"), Called("read a.md"), NoticeItem("b")):
        scrollback.say(item, 20)
    scrollback.words("two", 20)
    scrollback.complete(20)
    rows = [plain(row) for row in scrollback.take()]
    assert rows == ["one", "", "· exec make", "· read a.md", "", "b", "", "two"]


def test_a_call_that_ended_shows_whether_it_was_good_how_long_it_took_and_the_first_rows_of_its_result() -> None:
    def shown(item: CallEnded) -> list[str]:
        return [plain(row) for row in item_rows(item, 30, THEME)]

    assert shown(CallEnded("exec make", True, 0.44, "built\x1b[2J\n")) == ["✓ exec make · 0.4s", "  built␛[2J"]
    failed = shown(CallEnded("edit a-file-with-a-long-name.py", False, 65, "1\n2\n3\n4\n5"))
    assert failed == ["✗ edit a-file-with-a-… · 1m05s", "  1", "  2", "  … 3 more lines"]
    assert shown(CallEnded("list", True, None)) == ["✓ list"]
