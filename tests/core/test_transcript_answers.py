"""The end of a conversation's turn: whether it has words, and what it answers."""

import pytest

from fledge.core.transcript import (
    NUDGE,
    Body,
    CallEntry,
    CompletionRead,
    Replied,
    Resulted,
    Spoken,
    Told,
    completions_read,
    is_spoken_to,
    lacks_words,
    last_visible,
    rows_read,
    was_nudged,
)

ASKED = Spoken("hello", "send:1", "send")
CAME = Told("42", (CompletionRead("announce:1", None, "ok"), CompletionRead("announce:2", None, "ok")))
NUDGED = Spoken("say something", "nudge:1", NUDGE)


def test_the_rows_of_a_turn_are_what_came_in_and_not_what_it_was_nudged_by() -> None:
    bodies: list[Body] = [Spoken("[Heartbeat]", kind="heartbeat"), ASKED, Replied("a"), Resulted(1, 0, "c", "t", "x")]
    bodies += [CAME, NUDGED]
    assert rows_read(bodies) == ("send:1", "announce:1", "announce:2")
    assert completions_read(bodies) == ["announce:1", "announce:2"]


@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        ([], ""),
        ([Spoken("hello"), Told("42")], ""),
        ([Replied("first"), Replied("second", (CallEntry("c", "look", "{}"),)), Replied(" \n")], "second"),
        ([Replied("first"), Replied("NO_REPLY")], "first"),
        ([Replied("NO_REPLY"), Replied("")], ""),
    ],
)
def test_the_last_words_for_people_are_no_token_and_not_empty(bodies: list[Body], words: str) -> None:
    assert last_visible(bodies) == words


@pytest.mark.parametrize(
    ("bodies", "lacks"),
    [
        ([], False),
        ([Replied("")], False),
        ([NUDGED, Replied("")], False),
        ([ASKED, Replied("")], True),
        ([CAME, Replied(" "), NUDGED, Replied("")], True),
        ([ASKED, Replied("here", (CallEntry("c", "look", "{}"),)), Replied("")], False),
    ],
)
def test_a_turn_lacks_words_if_it_read_something_and_said_nothing(bodies: list[Body], lacks: bool) -> None:
    assert lacks_words(bodies) is lacks


def test_a_turn_is_nudged_once_its_entries_say_so() -> None:
    assert not was_nudged([ASKED, Replied("")])
    assert was_nudged([ASKED, Replied(""), NUDGED])


@pytest.mark.parametrize(
    ("body", "spoken"),
    [(ASKED, True), (Spoken("go on", "wake:1", "wake"), True), (CAME, False), (Spoken("x", "n", "notice"), False)],
)
def test_somebody_waits_for_an_answer_to_words_and_to_what_a_wake_is_about(body: Body, spoken: bool) -> None:
    assert is_spoken_to([body]) is spoken
