"""An answer is streamed and becomes an entry: each word is shown once, whatever was missed."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from fledge.cli.answers import BROKE_OFF, NOT_SHOWN, Answers, UnreadWords
from fledge.cli.term.plain import item_lines
from fledge.cli.term.shown import ChatItem, Screen
from fledge.core.entries import CallValue, HistoryEntry, MessageEntry, ReplyEntry, ResultEntry
from tests.statements import proves

Move = Callable[[Answers], None]


class Lines(Screen):
    """A screen that keeps what it is shown, a line each."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._flowing = ""

    def say(self, item: ChatItem) -> None:
        assert not self._flowing, "an item in the middle of an answer"
        self.lines.append(item_lines(item))

    def words(self, text: str) -> None:
        self._flowing += text

    def complete(self) -> None:
        assert self._flowing, "an answer without words"
        self.lines.append(self._flowing)
        self._flowing = ""


def hear(*pieces: str) -> Move:
    """These pieces of an answer come."""

    def move(answers: Answers) -> None:
        for piece in pieces:
            answers.hear(piece)

    return move


def reply(seq: int, text: str, *calls: str, is_cut: bool = False) -> ReplyEntry:
    """A reply whose calls, each a tool and its arguments, have not ended."""
    made = [
        CallValue(id=str(n), name=call.split()[0], arguments=call.partition(" ")[2], status="running", started_at=2)
        for n, call in enumerate(calls)
    ]
    return ReplyEntry(seq=seq, at=0.0, text=text, calls=tuple(made), is_cut=is_cut)


def ended(reply: ReplyEntry, *results: int) -> ReplyEntry:
    """The reply once its calls have these results, as entries; 0: not yet."""
    calls = [replace(call, result_seq=seq) for call, seq in zip(reply.calls, results, strict=True)]
    return replace(reply, calls=tuple(calls))


def result(seq: int, of: ReplyEntry, text: str, at: float = 2.5, **given: Any) -> ResultEntry:
    """A result that came then."""
    return ResultEntry(seq=seq, at=at, call_id="0", call_seq=of.seq, name="list", text=text, **given)


def said(seq: int, text: str, run_id: str) -> MessageEntry:
    return MessageEntry(seq=seq, at=0.0, kind="send", by="person", text=text, run_id=run_id)


def reach(entry: int, *entries: HistoryEntry) -> Move:
    """A turn tells that it stands at this entry; these are new."""

    def move(answers: Answers) -> None:
        answers.take(entries)
        answers.reach(entry)

    return move


MISS: Move = Answers.miss
FORGET: Move = Answers.forget

LIST = reply(3, "Let me see.", "list {}")
BOTH = reply(3, "", 'list {"path": "a"}', 'list {"path": "b"}')
CASES: list[tuple[str, list[Move], list[str]]] = [
    ("as it comes", [hear("Hel", "lo"), reach(3, reply(3, "Hello"))], ["Hello"]),
    ("an end that was not told", [hear("Hel"), reach(3, reply(3, "Hello"))], ["Hello"]),
    ("not streamed at all", [reach(3, reply(3, "Hello"))], ["Hello"]),
    (
        "another text than was streamed",
        [hear("Hel"), reach(3, reply(3, "Bye"))],
        ["Hel", BROKE_OFF, "Bye"],
    ),
    (
        "words before tools",
        [
            hear("Let me see."),
            reach(3, LIST),
            reach(4, ended(LIST, 4), result(4, LIST, "a\n\nb")),
            hear("Five."),
            reach(5, reply(5, "Five.")),
        ],
        ["Let me see.", "✓ list · 0.5s\n  a\n  b", "Five."],
    ),
    (
        "calls that end one after the other, of which one fails",
        [
            reach(3, BOTH),
            reach(4, ended(BOTH, 0, 4), result(4, BOTH, "no such file", is_error=True)),
            reach(5, ended(BOTH, 5, 4), result(4, BOTH, "no such file"), result(5, BOTH, "1\n2\n3\n4", at=70)),
            reach(6, reply(6, "Done.")),
        ],
        ["✗ list b · 0.5s\n  no such file", "✓ list a · 1m08s\n  1\n  2\n  … 2 more lines", "Done."],
    ),
    (
        "a call whose outcome is unknown, of a reply from before",
        [lambda answers: answers.begin(3), reach(4, result(4, BOTH, "interrupted", is_unknown=True))],
        ["✗ list\n  interrupted"],
    ),
    (
        "a call that has ended before its reply was read",
        [reach(5, ended(LIST, 4), result(4, LIST, "a"), reply(5, "Five."))],
        ["Let me see.", "✓ list · 0.5s\n  a", "Five."],
    ),
    (
        "words missed in the middle",
        [hear("Hel"), MISS, hear("world"), reach(3, reply(3, "Hello world"))],
        ["Hello world"],
    ),
    ("words missed at the end", [hear("Hel"), MISS, reach(3, reply(3, "Hello"))], ["Hello"]),
    (
        "an entry that was read before its words came",
        [
            MISS,
            lambda answers: answers.take([reply(3, "Hello"), reply(5, "Bye")]),
            hear("Hello"),
            reach(3),
            hear("Bye"),
            reach(5),
            hear("Next"),
            reach(7, reply(7, "Next")),
        ],
        ["Hello", "Bye", "Next"],
    ),
    (
        "a holder that left in the middle, and the same answer again",
        [hear("Hello wor"), MISS, reach(1), hear("Hel", "lo world"), reach(3, reply(3, "Hello world"))],
        ["Hello world"],
    ),
    (
        "a holder that left in the middle, and another answer",
        [hear("Hello wor"), MISS, reach(1), hear("Good", " day"), reach(3, reply(3, "Good day"))],
        ["Hello wor", BROKE_OFF, "Good day"],
    ),
    (
        "asked again",
        [hear("Hel"), FORGET, hear("Hello"), reach(3, reply(3, "Hello"))],
        ["Hel", BROKE_OFF, "Hello"],
    ),
    ("another session", [hear("Hel"), lambda answers: answers.begin(9)], ["Hel", NOT_SHOWN]),
    ("silence", [hear("NO_", "REPLY"), reach(3, reply(3, "NO_REPLY")), hear("Hi"), reach(5, reply(5, "Hi"))], ["Hi"]),
    ("silence of a heartbeat", [hear("HEARTBEAT_OK"), reach(3, reply(3, "HEARTBEAT_OK"))], []),
    (
        "words that begin like silence",
        [hear("NO_", "REPLY", " was it"), reach(3, reply(3, "NO_REPLY was it"))],
        ["NO_REPLY was it"],
    ),
    ("a single letter", [hear("N"), reach(3, reply(3, "N"))], ["N"]),
    ("nothing but space", [hear("  "), reach(3, reply(3, "  "))], []),
    (
        "two replies between two signs of the turn",
        [hear("[1", "{}"), reach(4, reply(3, "[1"), reply(4, "{}"))],
        ["[1{}"],
    ),
    (
        "a reply that was cut",
        [hear("Hel"), reach(3, reply(3, "Hel", is_cut=True))],
        ["Hel", "[cut at the token limit]"],
    ),
    (
        "what was said elsewhere",
        [reach(1, said(1, "mine", "r-1")), reach(2, said(2, "theirs", "r-2")), hear("Yes"), reach(3, reply(3, "Yes"))],
        ["› theirs", "Yes"],
    ),
    (
        "words that were queued here, read in the middle of a turn",
        [
            hear("Let me see."),
            reach(3, reply(3, "Let me see.", 'read {"path": "a.md"}')),
            reach(5, said(5, "queued until now", "r-3")),
            hear("Then no."),
            reach(6, reply(6, "Then no.")),
        ],
        ["Let me see.", "› queued until now", "Then no."],
    ),
]


@proves("4.tools.41", "A chat shows each word once, whatever it missed of what was streamed")
@pytest.mark.parametrize(("moves", "shown"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_word_is_shown_once(moves: list[Move], shown: list[str]) -> None:
    screen = Lines()
    answers = Answers(screen)
    answers.unread["r-1"] = UnreadWords("mine", "mine", is_queued=False)
    answers.unread["r-3"] = UnreadWords("queued until now", "queued until now", is_queued=True)
    answers.reach(0)
    for move in moves:
        move(answers)
    answers.forget()
    assert screen.lines == shown


def test_nothing_streams_before_the_turn_tells_where_it_stands() -> None:
    screen = Lines()
    answers = Answers(screen)
    answers.begin(4)
    answers.hear("the end of something")
    answers.reach(3)
    answers.hear("the end of something")
    answers.reach(4)
    answers.hear("Hello")
    answers.forget("")
    assert screen.lines == ["Hello"]


def test_without_streaming_only_entries_are_shown() -> None:
    screen = Lines()
    screen.in_turns = True
    answers = Answers(screen)
    answers.reach(0)
    answers.hear("Hel")
    answers.take([reply(3, "Hello")])
    assert screen.lines == ["Hello"]
