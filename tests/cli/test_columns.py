"""Rows of cells as lines that fit a terminal, measured in its columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.cli.columns import fitted, table, width_of

ROWS = [("scout", "running: exec pytest -q tests", "41s", "gpt-5"), ("翻訳者", "done", "2m05s", "")]


@pytest.mark.parametrize(
    ("room", "lines"),
    [
        (
            None,
            ["scout   running: exec pytest -q tests  41s    gpt-5", "翻訳者  done                           2m05s"],
        ),
        (50, ["scout   running: exec pytest -q tests  41s", "翻訳者  done                           2m05s"]),
        (30, ["scout   running: exec…   41s", "翻訳者  done             2m05s"]),
        (5, ["scout   running…", "翻訳者  done"]),
    ],
)
def test_columns_go_then_texts_are_cut_until_a_table_fits(room: int | None, lines: list[str]) -> None:
    assert table(ROWS, room, cut=[1, 0], drop=[3, 2] if room == 5 else [3]) == lines


def test_columns_that_are_empty_everywhere_take_no_room() -> None:
    assert table([("a", "", "b"), ("c", "", "d")], None, [], []) == ["a  b", "c  d"]
    assert table([], 80, [], []) == []


@given(st.lists(st.tuples(*[st.text("ab翻e\u0301 ", max_size=40)] * 3), min_size=1, max_size=5), st.integers(30, 120))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, str]], room: int) -> None:
    assert all(width_of(line) <= room for line in table(rows, room, cut=[1, 0, 2], drop=[]))


def test_a_text_that_fits_is_whole_and_one_that_does_not_shows_where_it_was_cut() -> None:
    assert fitted("scout", 5) == "scout"
    assert fitted("scouts", 5) == "scou…"
    assert fitted("翻訳者", 5) == "翻訳…"
    assert fitted("翻訳者", 4) == "翻…"
    assert fitted("scout", 0) == ""
