"""A conversation as plain lines: in a pipe, on a dumb terminal, for a screen reader."""

import asyncio
import io
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fledge.cli.term.opening import Manner, manner, wants_colour
from fledge.cli.term.plain import PlainScreen, item_lines, question_lines
from fledge.cli.term.shown import (
    Called,
    CallEnded,
    CallQuestion,
    EndedItem,
    ErrorItem,
    Leave,
    NoticeItem,
    OutputItem,
    PlanQuestion,
    QuestionAnswered,
    SpokenItem,
    TurnShown,
    Wish,
    WordsSent,
    WorkingChild,
)

QUESTION = CallQuestion("q", "scout", "rm -rf build\nmake", "~/src", "make")
PLAN = PlanQuestion("p", "checker", "1. read")


class Lines:
    """A screen, what it has written, and a pipe to type into."""

    def __init__(self, *, answers: bool = True, by_line: bool = False) -> None:
        read, write = os.pipe()
        self._typed = os.fdopen(write, "w")
        self._read = os.fdopen(read)
        self.out = io.StringIO()
        self.screen = PlainScreen(self._read, self.out, answers=answers, by_line=by_line)
        self.now = 0.0
        self.screen.now = lambda: self.now

    async def type(self, line: str) -> Wish:
        """Type a line; answers what it means."""
        self._typed.write(f"{line}\n")
        self._typed.flush()
        return await self.screen.wish()

    async def close(self) -> Wish:
        """The input ends."""
        self._typed.close()
        return await self.screen.wish()

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *error: object) -> None:
        self._typed.close()
        self._read.close()


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


def test_words_are_written_as_they_come_and_items_wait_for_the_end_of_a_paragraph() -> None:
    async def story() -> None:
        with Lines() as lines:
            lines.screen.words("A sen")
            assert lines.out.getvalue() == "A sen"
            lines.screen.say(EndedItem("scout", "done", 41, 8100, 0.01, "a\nb\nc\nd"))
            lines.screen.words("tence\x1b[2J\n```\n\ncode\n```\n")
            assert "scout" not in lines.out.getvalue()
            lines.screen.words("\nMore")
            lines.screen.say(ErrorItem("no key"))
            lines.screen.complete()
            lines.screen.say(SpokenItem("hello"))
            card = "scout · done · 41s · 8.1k tok · $0.01\n  a\n  b\n  c\n"
            assert lines.out.getvalue() == f"A sentence␛[2J\n```\n\ncode\n```\n\n{card}More\n✖ no key\n› hello\n"

    play(story)


@pytest.mark.parametrize("by_line", [False, True])
def test_a_question_and_what_the_person_asked_for_do_not_wait_for_the_end_of_a_paragraph(by_line: bool) -> None:
    async def story() -> None:
        with Lines(by_line=by_line) as lines:
            for item in (NoticeItem("a status", is_asked_for=True), ErrorItem("no such command")):
                lines.screen.words("One and ")
                lines.screen.say(item)
                assert lines.out.getvalue().endswith(f"One and \n{item_lines(item)}\n")
            lines.screen.words("two.\nThree")
            lines.screen.ask((QUESTION,))
            lines.screen.put_back("unread")
            assert lines.out.getvalue().endswith(
                "two.\nThree\n"
                + "".join(
                    f"{row}\n"
                    for row in [question_lines(QUESTION, answers=True), "not read, send it again:\n  | unread"]
                )
            )
            lines.screen.words(" four")
            lines.screen.complete()
            assert lines.out.getvalue().endswith("unread\n four\n")

    play(story)


def test_a_screen_reader_gets_whole_lines() -> None:
    async def story() -> None:
        with Lines(by_line=True) as lines:
            lines.screen.words("A sen")
            lines.screen.words("tence.\nAno")
            assert lines.out.getvalue() == "A sentence.\n"
            lines.screen.complete()
            assert lines.out.getvalue() == "A sentence.\nAno\n"

    play(story)


def test_each_tool_trouble_and_child_has_a_line_and_nothing_moves() -> None:
    async def story() -> None:
        with Lines() as lines:
            for now in range(3):
                lines.screen.turn(TurnShown("thinking", now))
                lines.screen.children((WorkingChild("scout", "thinking", now),))
            lines.screen.turn(TurnShown("tool", 0, "exec make"))
            lines.screen.turn(TurnShown("tool", 0, "exec make", tokens=5))
            lines.screen.turn(TurnShown("retrying", 0, "model: 529", attempt=3, retry_at=8))
            lines.screen.turn(None)
            lines.screen.say(OutputItem("exec make", "not shown"))
            lines.screen.say(Called("exec make"))
            lines.screen.say(SpokenItem("typed", is_typed_here=True))
            lines.screen.clear()
            assert not lines.screen.copy("text")
            lines.screen.say(NoticeItem("a notice"))
            lines.screen.queued(("words",))
            lines.screen.talks_to("scout")
            lines.screen.put_back("two\nlines")
            lines.screen.put_back("")
            shown = ["· scout is at work", "· exec make", "✖ model: 529; try 3 follows by itself", "a notice"]
            assert lines.out.getvalue().splitlines() == [*shown, "not read, send it again:", "  | two", "  | lines"]

    play(story)


def test_two_subagents_of_one_label_have_a_line_each() -> None:
    async def story() -> None:
        with Lines() as lines:
            first, second = WorkingChild("scout", "", 0, session_key="a"), WorkingChild("scout", "", 0, session_key="b")
            for children in ((first,), (first, second), (second,), (second, first)):
                lines.screen.children(children)
            assert lines.out.getvalue().splitlines() == ["· scout is at work"] * 3

    play(story)


def test_questions_are_asked_in_full_and_answered_by_a_line_of_their_own() -> None:
    async def story() -> None:
        with Lines() as lines:
            lines.screen.ask((QUESTION, PLAN))
            lines.screen.ask((QUESTION, PLAN))
            assert lines.out.getvalue().splitlines() == [
                "? scout wants to run in ~/src:",
                "  | rm -rf build",
                "  | make",
                "  y allows it once, a always for `make` here, n or n REASON denies it",
                "checker has a plan:",
                "  | 1. read",
                "  y carries it out, n REASON rejects it",
            ]
            lines.now = 0.5
            assert await lines.type("y") == WordsSent("y", "y")  # nobody has read the question yet
            lines.now = 5.0
            assert await lines.type("yes") == WordsSent("yes", "yes")
            assert await lines.type("a lot of words") == WordsSent("a lot of words", "a lot of words")
            assert await lines.type("a") == QuestionAnswered("q", "always")
            assert await lines.type("n too long") == QuestionAnswered("p", "reject", "too long")
            assert await lines.type("y") == WordsSent("y", "y")
            lines.screen.ask((CallQuestion("q2", "scout", "make"),))
            lines.now = 10.0
            assert await lines.type("a") == WordsSent("a", "a")  # there is no such choice
            assert await lines.type("n") == QuestionAnswered("q2", "no")
            assert await lines.close() == Leave()

    play(story)


def test_in_a_pipe_no_line_approves_anything() -> None:
    async def story() -> None:
        with Lines(answers=False) as lines:
            assert lines.screen.in_turns
            lines.screen.ask((QUESTION,))
            lines.now = 100.0
            assert await lines.type("y") == WordsSent("y", "y")
            assert lines.out.getvalue() == "? scout wants to run in ~/src:\n  | rm -rf build\n  | make\n"
            assert await lines.close() == Leave()

    play(story)


MANNERS: list[tuple[dict[str, str], bool, bool, Manner]] = [
    ({"TERM": "xterm"}, True, True, "terminal"),
    ({"TERM": "xterm"}, False, True, "pipe"),
    ({"TERM": "xterm"}, True, False, "pipe"),
    ({"TERM": "dumb"}, True, True, "lines"),
    ({}, True, True, "lines"),
    ({"TERM": "xterm", "FLEDGE_ACCESSIBLE": "1"}, True, True, "accessible"),
    ({"TERM": "xterm", "FLEDGE_ACCESSIBLE": "0"}, True, True, "terminal"),
    ({"TERM": "xterm", "FLEDGE_ACCESSIBLE": "1"}, False, True, "pipe"),
]


@pytest.mark.parametrize(("environment", "reads", "writes", "expected"), MANNERS)
def test_the_screen_that_fits_is_chosen(
    environment: dict[str, str], reads: bool, writes: bool, expected: Manner
) -> None:
    assert manner(environment, reads_terminal=reads, writes_terminal=writes) == expected


def test_no_color_means_no_colours() -> None:
    assert [wants_colour({}), wants_colour({"NO_COLOR": ""}), wants_colour({"NO_COLOR": "1"})] == [True, True, False]


def test_trouble_that_was_said_is_not_repeated_when_the_next_try_is_told() -> None:
    async def story() -> None:
        with Lines() as lines:
            lines.screen.say(ErrorItem("HTTP 401"))
            lines.screen.turn(TurnShown("retrying", 0, "model: HTTP 401", attempt=2))
            lines.screen.say(OutputItem("exec make", "2 passed", is_asked_for=True))
            assert lines.out.getvalue().splitlines() == ["✖ HTTP 401", "try 2 follows by itself", "2 passed"]
            assert item_lines(Called("exec make")) == "· exec make"
            assert item_lines(CallEnded("exec make", False, 2, "no rule\x1b")) == "✗ exec make · 2.0s\n  no rule␛"

    play(story)
