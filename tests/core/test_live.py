"""Events of turns on their way to clients of other processes: what is watched, what fits into a message, what is
late, lost or came already."""

from itertools import accumulate
from typing import Any

import pytest

from fledge.core.cluster import MOST_BYTES
from fledge.core.live import (
    CUTS,
    MOST_HEARD,
    MOST_SO_FAR,
    WATCH_S,
    OpenReplies,
    OpenReply,
    Received,
    TurnEvent,
    TurnEventKind,
    WatchedSessions,
    held_bytes,
    is_late,
    joined,
    packed,
    spliced,
)
from tests.statements import proves

MAIN = "agent:main:main"


def words(text: str, session: str = MAIN, entry: int = 3, turn: int = 1, offset: int = 0) -> TurnEvent:
    return TurnEvent("assistant:text", session, text, turn, entry=entry, offset=offset)


def arrived(events: list[TurnEvent]) -> list[TurnEvent]:
    """The events as another process gets them; every message fits."""
    messages = packed("one", 1, events)
    assert all(len(message.encode()) <= MOST_BYTES for message in messages)
    received = Received()
    return [event for message in messages for event in received.take(message)]


@pytest.mark.parametrize(
    ("lineage", "at", "watched"),
    [
        ([MAIN], 100.0, True),
        ([MAIN], 99.9 + WATCH_S, True),
        ([MAIN], 100.0 + WATCH_S, False),
        (["agent:main:subagent:1", MAIN], 100.0, True),
        (["agent:main:other"], 100.0, False),
        ([], 100.0, False),
    ],
)
def test_a_session_is_watched_with_those_below_for_a_while(lineage: list[str], at: float, watched: bool) -> None:
    table = WatchedSessions()
    table.note([MAIN], 100.0)
    assert table.covers(lineage, at) is watched


def test_what_is_watched_ends_with_the_last_watch_and_is_forgotten() -> None:
    table = WatchedSessions()
    assert table.ends_at(0.0) is None
    table.note(["a"], 100.0)
    table.note(["b"], 102.0)
    assert table.ends_at(101.0) == 102.0 + WATCH_S
    assert table.ends_at(100.0 + WATCH_S) == 102.0 + WATCH_S
    assert table.ends_at(102.0 + WATCH_S) is None
    table.note(["a"], 200.0)
    assert table.ends_at(200.0) == 200.0 + WATCH_S


@pytest.mark.parametrize(
    ("event", "last", "late"),
    [
        ({"entry": 3, "elsewhere": True}, 3, False),
        ({"entry": 3, "elsewhere": True}, 4, True),
        ({"entry": 3}, 4, False),
        ({"entry": 3, "elsewhere": True, "kind": "start"}, 4, True),
        ({"entry": 4, "elsewhere": True, "kind": "end"}, 4, False),
        ({"elsewhere": True, "kind": "usage"}, 4, False),
        ({"entry": 3, "elsewhere": True, "kind": "tool:end"}, 4, False),
    ],
)
def test_an_event_of_another_process_is_late_once_a_newer_entry_is_there(
    event: dict[str, Any], last: int, late: bool
) -> None:
    assert is_late(TurnEvent(**{"kind": "assistant:text", "session": MAIN, **event}), last) is late


def test_words_that_follow_each_other_in_a_step_are_one_event() -> None:
    step, other = [words("a"), words("b", offset=1)], [words("x", "other"), words("y", "other", offset=1)]
    assert joined([step[0], other[0], step[1], other[1]]) == [words("ab"), words("xy", "other")]
    apart = [
        *(words("a"), words("b", entry=5), words("c", turn=2), words("anew", turn=2), words("later", turn=2, offset=9)),
        *(TurnEvent("usage", MAIN), words("d", turn=2, offset=14)),
    ]
    assert joined(apart) == apart


def test_small_events_share_a_message_and_arrive_as_they_were() -> None:
    events = [TurnEvent("model:start", MAIN, turn=1, entry=3), words("hello"), TurnEvent("usage", MAIN, tokens_out=2)]
    assert len(packed("one", 1, events)) == 1
    assert arrived(events) == [
        TurnEvent("model:start", MAIN, turn=1, entry=3, elsewhere=True),
        TurnEvent("assistant:text", MAIN, "hello", 1, entry=3, elsewhere=True),
        TurnEvent("usage", MAIN, tokens_out=2, elsewhere=True),
    ]
    assert packed("one", 1, []) == []


@proves("7.live.4", "Live words of any size and any characters reach another process whole")
@pytest.mark.parametrize(
    "text",
    [
        *("x" * 100_000, "ä" * 50_001, "\N{BIRD}" * 25_000, "\x00" * 20_000),
        *('a"\\\n\x00\x1f\N{BIRD}' * 3000, "e\u0301" * 9000),
    ],
    ids=["ascii", "two bytes", "four bytes", "nul", "escapes", "combining"],
)
def test_words_of_any_size_arrive_whole(text: str) -> None:
    told = arrived([words(text)])
    assert len(told) > 1
    assert "".join(event.text for event in told) == text
    assert {(event.kind, event.entry, event.turn) for event in told} == {("assistant:text", 3, 1)}
    assert [event.offset for event in told] == [0, *accumulate(len(event.text) for event in told[:-1])]


@pytest.mark.parametrize("size", range(MOST_BYTES - 120, MOST_BYTES + 8))
@pytest.mark.parametrize("letter", ["x", "\N{BIRD}"])
def test_messages_fit_at_the_limit(size: int, letter: str) -> None:
    text = letter * (size // len(letter.encode())) + "x" * (size % len(letter.encode()))
    assert "".join(event.text for event in arrived([words(text)])) == text


def test_half_of_a_pair_of_surrogates_is_replaced() -> None:
    assert [event.text for event in arrived([words("a\ud83d")])] == ["a?"]


@pytest.mark.parametrize(("letter", "chars"), [("x", CUTS[0]), ("\x00", CUTS[1])])
def test_other_texts_that_do_not_fit_are_cut(letter: str, chars: int) -> None:
    (event,) = arrived([TurnEvent("tool:start", MAIN, "write", call="1", arguments=letter * 100_000)])
    assert (event.text, event.call, event.arguments) == ("write", "1", letter * chars)


@pytest.mark.parametrize("kind", ["assistant:text", "tool:end"])
def test_an_event_that_cannot_fit_is_left_out(kind: Any) -> None:
    assert packed("one", 1, [TurnEvent(kind, "x" * 9000, "hello")]) == []


@proves("7.live.5", "Live words are told in order, none twice, and a gap is told")
def test_messages_count_once_and_a_gap_is_told() -> None:
    received = Received()
    messages = [message for number in (7, 8, 9, 10) for message in packed("one", number, [words(str(number))])]
    other = packed("two", 1, [words("other")])
    texts = [[(event.kind, event.text or event.count) for event in received.take(one)] for one in (
        *(messages[0], messages[1], messages[1], other[0], messages[3], messages[2]),
    )]  # fmt: skip
    kind = "assistant:text"
    assert texts == [[(kind, "7")], [(kind, "8")], [], [(kind, "other")], [("lost", 1), (kind, "10")], []]


@pytest.mark.parametrize("message", ["", "{}", "[1]", '["one",1,[{"kind":"new"}]]', '["one",1,["x"]]'])
def test_a_message_that_cannot_be_read_is_left_out(message: str) -> None:
    assert list(Received().take(message)) == []


# ---- replies that are not committed ----------------------------------------------------------------------------------


def so_far(replies: OpenReplies, session: str = "") -> list[tuple[str, str, int]]:
    return [(event.session, event.text, event.offset) for event in replies.so_far(session)]


@pytest.mark.parametrize(
    ("before", "piece", "offset", "after"),
    [
        ("", "ab", 0, "ab"),
        ("ab", "c", 2, "abc"),
        ("ab", "ab", 0, "ab"),
        ("abc", "b", 1, "abc"),
        ("abc", "bcd", 1, "abcd"),
        ("abc", "x", 0, "x"),
        ("abc", "xy", 1, "axy"),
    ],
)
def test_a_piece_replaces_what_differs_and_one_that_came_before_changes_nothing(
    before: str, piece: str, offset: int, after: str
) -> None:
    assert spliced(before, piece, offset) == after


def test_the_text_so_far_of_a_reply_is_one_event_until_the_reply_ends() -> None:
    replies, reply = OpenReplies(), OpenReply(MAIN, 2, 7)
    replies.begin(reply)
    assert so_far(replies) == []
    reply.add("a")
    reply.add("b")
    assert replies.so_far() == [TurnEvent("assistant:text", MAIN, "ab", 2, entry=7)]
    reply.add("c")
    assert so_far(replies, MAIN) == [(MAIN, "abc", 0)]
    assert so_far(replies, "other") == []
    replies.end(None)
    replies.begin(newer := OpenReply(MAIN, 3, 9))
    newer.add("x")
    replies.end(reply)
    assert so_far(replies) == [(MAIN, "x", 0)], "the end of an older reply is not that of the newer one"
    replies.end(newer)
    assert so_far(replies) == []


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ([("a", 0), ("b", 1)], ("ab", 0)),
        ([("c", 2)], ("c", 2)),
        ([("c", 2), ("abc", 0)], ("abc", 0)),
        ([("c", 2), ("d", 3), ("cd", 2)], ("cd", 2)),
        ([("ab", 0), ("e", 4)], ("e", 4)),
        ([("ab", 0), ("x", 0)], ("x", 0)),
        ([("ab", 0), ("bc", 1)], ("abc", 0)),
    ],
)
def test_the_replies_of_other_processes_are_known_as_far_as_they_were_heard(
    pieces: list[tuple[str, int]], told: tuple[str, int]
) -> None:
    replies = OpenReplies()
    for text, offset in pieces:
        replies.hear(words(text, offset=offset))
    assert so_far(replies) == [(MAIN, *told)]


@pytest.mark.parametrize("kind", ["start", "model:start", "tool:start", "retry", "interrupt", "error", "end", "lost"])
def test_a_reply_of_another_process_ends_with_the_events_that_follow_it(kind: TurnEventKind) -> None:
    replies = OpenReplies()
    replies.hear(words("a"))
    for before in ("usage", "tool:end", "message"):
        replies.hear(TurnEvent(before, MAIN))
    assert so_far(replies) == [(MAIN, "a", 0)]
    replies.hear(words("b", entry=5))
    assert so_far(replies) == [(MAIN, "b", 0)]
    replies.hear(TurnEvent(kind, MAIN))
    assert so_far(replies) == []


def test_what_is_kept_of_open_replies_is_bounded() -> None:
    replies = OpenReplies()
    for number in range(MOST_HEARD + 5):
        replies.hear(words("a", f"s{number}"))
    assert [session for session, _, _ in so_far(replies)] == [f"s{number}" for number in range(5, MOST_HEARD + 5)]
    for number in range(9):
        replies.hear(words("x" * MOST_SO_FAR, offset=number * MOST_SO_FAR))
    replies.hear(words("end", offset=9 * MOST_SO_FAR))
    (event,) = replies.so_far(MAIN)
    assert (event.text[-4:], len(event.text), event.offset) == ("xend", MOST_SO_FAR, 8 * MOST_SO_FAR + 3)
    reply = OpenReply(MAIN, 1, 1)
    reply.add("y" * MOST_SO_FAR)
    reply.add("z")
    assert (reply.so_far().offset, reply.so_far().text[-2:]) == (1, "yz")
    replies.forget_heard()
    assert so_far(replies) == []


def test_an_event_takes_at_least_the_memory_of_its_texts() -> None:
    assert held_bytes(TurnEvent("tool:start", MAIN, "x" * 1000, arguments="\N{BIRD}" * 1000)) > 5000
