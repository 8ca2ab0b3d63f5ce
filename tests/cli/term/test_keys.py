"""Which key does what, as tables over a clock."""

from itertools import product
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.cli.term.keys import KeyAction, Pastes, may_answer, on_escape

REFUSED = {
    "something is typed": may_answer(10.0, 0.0, 0.0, is_empty=False),
    "a key was pressed less than a second ago": may_answer(10.0, 9.01, 0.0, is_empty=True),
    "the question came less than 0.7 s ago": may_answer(10.0, 0.0, 9.31, is_empty=True),
    "the terminal does not show it": may_answer(10.0, 0.0, None, is_empty=True),
    "the terminal does not show it, whatever the person went to": may_answer(
        10.0, 0.0, None, is_empty=True, is_focused=True
    ),
}


def test_a_bare_key_answers_after_a_second_without_keys_a_question_of_0_7_seconds() -> None:
    assert may_answer(10.0, last_key_at=9.0, shown_at=9.25, is_empty=True)


@pytest.mark.parametrize("answers", REFUSED.values(), ids=REFUSED)
def test_a_bare_key_answers_nothing_if(answers: bool) -> None:
    assert not answers


def test_a_key_answers_at_once_after_ctrl_y() -> None:
    assert may_answer(10.0, 10.0, 10.0, is_empty=False, is_focused=True)


ESCAPES: list[tuple[str, KeyAction]] = [
    # menu, answering, turn, empty, armed
    ("menu answering turn empty armed", "close menu"),
    ("answering turn empty armed", "back"),
    ("turn empty armed", "stop"),
    ("turn", "stop"),
    ("empty armed", "leave"),
    ("empty", "arm"),
]


@pytest.mark.parametrize("key", ["esc", "ctrl-c"])
@pytest.mark.parametrize(("holds", "action"), ESCAPES)
def test_escape_and_ctrl_c_do_the_nearest_thing(key: Literal["esc", "ctrl-c"], holds: str, action: KeyAction) -> None:
    assert escaped(key, holds) == action


def escaped(key: Literal["esc", "ctrl-c"], holds: str) -> KeyAction:
    return on_escape(
        key,
        has_menu="menu" in holds,
        is_answering="answering" in holds,
        has_turn="turn" in holds,
        is_empty="empty" in holds,
        is_armed="armed" in holds,
    )


def test_between_turns_ctrl_c_clears_what_is_typed_and_escape_leaves_it() -> None:
    assert (escaped("ctrl-c", "armed"), escaped("esc", "armed")) == ("clear", "nothing")


def test_nothing_but_two_keys_between_turns_before_an_empty_input_leaves() -> None:
    names = ("menu", "answering", "turn", "empty", "armed")
    for chosen in product((False, True), repeat=5):
        holds = " ".join(name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen)
        assert (escaped("esc", holds) == "leave") == (holds == "empty armed")


def test_a_paste_of_more_than_ten_lines_is_folded() -> None:
    pastes = Pastes()
    short = "\n".join("x" * 10)
    assert pastes.fold(short) == short
    assert pastes.fold(short + "\n") == short + "\n"
    assert pastes.fold("a\r\n" * 11) == "[paste 1: 11 lines]"
    assert pastes.fold("b\r" * 201) == "[paste 2: 201 lines]"
    text = "see [paste 2: 201 lines] and [paste 1: 11 lines], not [paste 3: 11 lines]"
    assert pastes.unfold(text) == f"see {'b' * 201} and {'a' * 11}, not [paste 3: 11 lines]".replace(
        "b" * 201, "b\n" * 201
    ).replace("a" * 11, "a\n" * 11)


@given(st.lists(st.text("ab[paste 1: 11 lines]\n", min_size=1), max_size=4), st.text("xy "))
def test_what_is_sent_is_what_was_pasted(texts: list[str], words: str) -> None:
    pastes = Pastes()
    long = [text + "\n" * 11 for text in texts]
    marks = [pastes.fold(text) for text in long]
    assert pastes.unfold(words.join(marks)) == words.join(long)
