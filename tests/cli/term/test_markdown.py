"""Streamed markdown becomes rows: the same however the text was cut, each once, none wider than the terminal."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.cli.term.cells import Theme, columns_of_row, plain
from fledge.cli.term.inline import HOLD, LONGEST_WORD
from fledge.cli.term.markdown import TABLE_ROWS, Boundary, Markdown

WIDTHS = (4, 12, 40, 80, 120)
FRAGMENTS = (
    *(
        "word",
        "Delivery",
        "a",
        "1",
        "12",
        "x" * 30,
        "`code`",
        "``",
        "`",
        "**",
        "**bold**",
        "*",
        "_",
        "_em_",
        "~~",
        "~~s~~",
    ),
    *("[", "]", "(", ")", "[link](https://example.org)", "![image](a.png)", "<", ">", "> ", "<https://example.org>"),
    *("# ", "## ", "#", "- ", "* ", "+ ", "1. ", "12) ", "-", "---", "***", "```", "```python", "~~~", "    ", "\t"),
    *("|", "| a | b |", "|---|--:|", "| - |", "|", "\\", "\\*", "\\|", "&amp;", "&#x202e;", "&", "!", "=", "==="),
    *(
        "你好",
        "世界。",
        "日本語",
        "🚀",
        "👩‍💻",
        "🇩🇪",
        "é",
        "e\u0301",
        "\u200d",
        "\u202e",
        "\x1b[31m",
        "\x07",
        "\r\n",
        "\r",
    ),
    *("\n", "\n", "\n\n", " ", " ", " ", "  \n"),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)
CODE = ("```", "```python", "~~~", "`", "``", "~~", "    ", "\t", " ")
PROSE = st.lists(st.sampled_from([word for word in FRAGMENTS if word not in CODE]), max_size=60).map("".join)
WIDEST_PREFIX = 41
"""Bars, indentation and a number may stand before a row; a terminal that is narrower than those shows them cut."""


def given_away(parts: list[str], width: int, *, colour: bool = False) -> list[str | Boundary]:
    """Everything that a text gives away, with a look at its tail after each part."""
    markdown = Markdown(Theme(colour=colour))
    out: list[str | Boundary] = []
    for part in parts:
        out += markdown.feed(part, width)
        markdown.tail(width)
    return [*out, *markdown.end(width)]


def rows(text: str, width: int = 40) -> list[str]:
    """The rows of a text, without styles."""
    return [plain(row) for row in given_away([text], width) if isinstance(row, str)]


def cut(text: str, places: list[int]) -> list[str]:
    """The text in parts."""
    ends = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(ends)]


@given(TEXTS, st.lists(st.integers(0, 500), max_size=12), st.sampled_from(WIDTHS))
def test_any_cutting_of_a_text_gives_the_same_rows(text: str, places: list[int], width: int) -> None:
    whole = given_away([text], width)
    assert given_away(cut(text, places), width) == whole
    assert given_away(list(text), width) == whole


@given(PROSE, st.sampled_from(WIDTHS))
def test_no_row_is_wider_than_the_terminal(text: str, width: int) -> None:
    assert all(columns_of_row(row) <= max(width, WIDEST_PREFIX) for row in rows(text, width))


@given(TEXTS)
def test_nothing_in_a_row_moves_the_cursor_or_turns_the_line(text: str) -> None:
    assert not any(re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e]", row) for row in rows(text))


@given(st.lists(st.sampled_from(("w{}", "**w{}**", "*w{}", "`w{}`", "[w{}")), max_size=60), st.data())
def test_a_new_width_concerns_only_what_is_to_come_and_every_word_comes_once(
    words: list[str], data: st.DataObject
) -> None:
    named = [word.format(number) for number, word in enumerate(words)]
    markdown = Markdown(Theme(colour=False))
    out: list[str | Boundary] = []
    for word in named:
        width = data.draw(st.sampled_from((10, 20, 60)))
        out += markdown.feed(f"{word} ", width)
    out += markdown.end(30)
    shown = " ".join(row for row in out if isinstance(row, str))
    assert re.findall(r"w\d+", shown) == [f"w{number}" for number in range(len(words))]


@given(TEXTS, st.integers(0, 400))
def test_the_rows_given_away_and_the_tail_together_are_the_rows_of_the_text_so_far(text: str, place: int) -> None:
    """Whatever the cut: what is shown in mid-stream is what would be shown if the text ended there."""
    begun = text[: place % (len(text) + 1)].rstrip("\r")
    markdown = Markdown(Theme(colour=False))
    shown = [row for row in markdown.feed(begun, 40) if isinstance(row, str)] + markdown.tail(40)
    assert re.findall(r"[A-Za-z]{4,}", plain(" ".join(shown))) == re.findall(r"[A-Za-z]{4,}", " ".join(rows(begun)))


SHOWN = {
    "a heading": ("# Findings\ntext", ["Findings", "text"]),
    "blank lines are one, and none comes first": ("\n\na\n\n\n\nb\n\n", ["a", "", "b"]),
    "lines stay lines": ("one\ntwo", ["one", "two"]),
    "words are wrapped": ("aaaa bbbb cccc", ["aaaa bbbb", "cccc"]),
    "an item hangs": ("- one two three\n  - four", ["• one two", "  three", "  • four"]),
    "a number is kept": ("10. one two", ["10. one", "    two"]),
    "a task's box": ("- [ ] a\n- [x] b", ["• [ ] a", "• [x] b"]),
    "styles inside a word": ("a**b**c `d`", ["abc `d`"]),
    "an emphasis over two lines": ("**a\nb** c", ["a", "b c"]),
    "a mark that is none": ("2 * 3 a_b_c", ["2 * 3", "a_b_c"]),
    "a link shows its address": ("[a](b.org)", ["a (b.org)"]),
    "an address is shown once": ("<abc:d>", ["abc:d"]),
    "an image": ("![a](b.c)", ["a (b.c)"]),
    "a quotation": ("> one two\n> three\n\na", ["│ one two", "│ three", "", "a"]),
    "a rule": ("a\n\n---\nb", ["a", "", "─" * 10, "b"]),
    "an underlined heading is text and a rule": ("a\n---", ["a", "─" * 10]),
    "wide signs": ("你好世界你。", ["你好世界", "你。"]),
    "a long word is broken": ("a bbbbbbbbbbbb c", ["a", "bbbbbbbbbb", "bb c"]),
    "an escape sequence is text": ("a\x1b[2Jb\r\nc", ["a␛[2Jb", "c"]),
    "an entity cannot turn a line": ("&#x202e;a", ["<U+202E>a"]),
    "HTML is text": ("<b>x</b>", ["<b>x</b>"]),
    "indented code": ("a\n\n    b  c", ["a", "", "    b  c"]),
    "an unclosed fence": ("```\na", ["```", "a"]),
}


@pytest.mark.parametrize(("text", "expected"), SHOWN.values(), ids=SHOWN)
def test_a_text_is_shown_as(text: str, expected: list[str]) -> None:
    assert rows(text, 10) == expected


def test_code_is_given_away_as_written_between_its_fences_so_that_it_can_be_copied() -> None:
    code = "def f():\n\n\n    return '" + "x" * 60 + "'  # **no** [markdown](here)\n\tend"
    assert rows(f"Look:\n```python\n{code}\n```\nDone.", 20) == [
        "Look:",
        "```python",
        *code.split("\n"),
        "```",
        "Done.",
    ]


def test_code_in_an_item_and_in_a_quotation_loses_what_stands_before_it() -> None:
    assert rows("1. ```sh\n   make\n   ```\n> ~~~\n> a\n> ~~~\nb") == [
        "1.",
        "```sh",
        "make",
        "```",
        "~~~",
        "a",
        "~~~",
        "b",
    ]
    assert rows("> ```\n> a\nb") == ["```", "a", "b"]


def test_a_table_is_aligned_and_its_cells_are_wrapped() -> None:
    table = "| run | tokens |\n|:----|------:|\n| scout | 12 |\n| 翻訳者 | a cell that is \\| long |"
    assert rows(table, 24) == [
        "run    │          tokens",
        "───────┼────────────────",
        "scout  │              12",
        "翻訳者 │  a cell that is",
        "       │          | long",
    ]
    assert rows("| a | b |\nno table") == ["| a | b |", "no table"]
    assert rows("| a | b |") == ["| a | b |"]


def test_a_table_with_more_columns_than_fit_is_shown_cell_by_cell() -> None:
    assert rows("|a|b|c|d|\n|-|-|-|-|\n|1|2|3|4|", 20) == [*"abcd", "────", *"1234", "────"]


def test_a_long_table_keeps_its_columns_and_gives_its_rows_away_as_they_come() -> None:
    markdown = Markdown(Theme(colour=False))
    assert markdown.feed("| n |\n|---|\n" + "| 1 |\n" * (TABLE_ROWS - 1), 40) == []
    assert len(markdown.feed("| 2 |\n", 40)) == TABLE_ROWS + 2
    assert markdown.feed("| a long cell |\n", 40) == ["a", "long", "cell"]


def test_a_paragraph_gives_its_rows_away_while_it_grows() -> None:
    markdown = Markdown(Theme(colour=False))
    out: list[str | Boundary] = []
    for word in ["word"] * 100:
        out += markdown.feed(f"{word} ", 20)
        assert len(markdown.tail(20)) <= 2
    assert len(out) >= 24


def test_an_open_mark_holds_its_words_back_only_so_long() -> None:
    markdown = Markdown(Theme(colour=False))
    out: list[str | Boundary] = []
    for _ in range(HOLD // 5 + 20):
        out += markdown.feed("*word ", 20)
    assert out
    assert markdown.feed("x" * (2 * LONGEST_WORD), 20)


def test_blocks_end_where_something_else_may_be_said() -> None:
    ended = [out is Boundary.HERE for out in given_away(["# a\nb\nc\n\n- d\n- e\n\n```\nf\n```\ng"], 40)]
    #                a     ◇    b      c      ◇     ""     d      e      ◇     ""    ```    f     ```    ◇    g     ◇
    assert ended == [False, True, False, False, True, False, False, False, True, *[False] * 4, True, False, True]


def test_styles_are_written_as_attributes_and_colours_only_where_they_are_wanted() -> None:
    text = ["# a\n**b** *c* `d` ~~e~~ [f](g)"]
    painted = ["\x1b[1;4ma\x1b[0m", Boundary.HERE]
    coloured = "\x1b[1mb\x1b[0m \x1b[3mc\x1b[0m \x1b[36md\x1b[0m \x1b[9me\x1b[0m \x1b[4mf\x1b[0m\x1b[2m (g)\x1b[0m"
    assert given_away(text, 40, colour=True) == [*painted, coloured, Boundary.HERE]
    plainer = coloured.replace("\x1b[36md\x1b[0m", "`d`")
    assert given_away(text, 40) == [*painted, plainer, Boundary.HERE]
