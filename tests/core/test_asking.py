"""What follows a model's reply, as a table."""

import pytest

from fledge.core.asking import (
    CONTINUE_WORDS,
    AskAgain,
    CallAgain,
    Continue,
    Follows,
    GiveUp,
    Heard,
    Keep,
    after_reply,
    dropped_words,
)

THINKING_ONLY = "cut at the token limit: all {} tokens went into thinking, and no words came"


@pytest.mark.parametrize(
    ("heard", "was_cut", "follows"),
    [
        (Heard(stop="end", text="a"), False, Keep()),
        (Heard(stop="end"), False, Keep()),
        (Heard(stop="tools", calls=1), True, Keep()),
        (Heard(stop="length", text="a"), False, Continue(CONTINUE_WORDS)),
        (Heard(stop="length", text="b"), True, Keep(is_cut=True)),
        (Heard(stop="length", text=" "), True, Keep(is_cut=True)),
        (Heard(stop="length", text="a", calls=1), False, Keep()),
        (Heard(stop="length", calls=1, dropped="write"), True, Keep(notice=dropped_words("write"))),
        (Heard(stop="length", text="a", dropped="write"), False, CallAgain(dropped_words("write"))),
        (
            Heard(stop="length", text="a", dropped="write"),
            True,
            GiveUp("cut at the token limit twice, the second time inside a call of write"),
        ),
        (Heard(stop="length", text=" \n"), False, AskAgain(200)),
        (Heard(stop="refused", text="I will\nnot."), False, GiveUp("the model refused to answer: I will not.")),
        (Heard(stop="refused", calls=1), False, GiveUp("the model refused to answer: no reason given")),
    ],
)
def test_what_follows_a_reply(heard: Heard, was_cut: bool, follows: Follows) -> None:
    assert after_reply(heard, was_cut, 100, 100, 0) == follows


@pytest.mark.parametrize(
    ("limit", "first", "most", "follows"),
    [
        (100, 100, 0, AskAgain(200)),
        (100, 100, 150, AskAgain(150)),
        (100, 100, 100, GiveUp(THINKING_ONLY.format(100))),
        (200, 100, 0, GiveUp(THINKING_ONLY.format(200))),
    ],
)
def test_a_reply_that_only_thinks_is_asked_for_once_more_with_a_higher_limit(
    limit: int, first: int, most: int, follows: Follows
) -> None:
    assert after_reply(Heard(stop="length"), False, limit, first, most) == follows
