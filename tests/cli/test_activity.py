"""What goes on in a conversation, from live events and from looks: each case as the moves that lead to it."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from fledge.cli.activity import Activity
from fledge.cli.term.shown import TurnShown, WorkingChild
from fledge.commands.reading import turn_event
from fledge.commands.values import Below, ChildAtWork
from fledge.core.standing import FailingTurn

Move = Callable[[Activity], object]


def event(kind: str, at: float = 0.0, **fields: Any) -> Move:
    """An event of the session that is talked with, at this time."""
    return lambda activity: activity.hear(turn_event({"kind": kind, "sessionKey": "main", **fields}), at)


def look(
    at: float,
    opened_at: float | None = None,
    heard: int | None = None,
    waits: bool = False,
    failing: FailingTurn | None = None,
) -> Move:
    """A look at this time; the folder's clock is 1000 ahead of the screen's."""
    state: Literal["idle", "busy"] = "idle" if opened_at is None else "busy"
    opened = None if opened_at is None else opened_at + 1000
    below = Below(now_at=at + 1000, state=state, opened_at=opened, waits=waits, failing=failing)
    return lambda activity: activity.look(below, at, activity.heard if heard is None else heard, is_talked_with=True)


START = event("start", 1)
EXEC = event("tool:start", 2, text="exec", call="a", arguments='{"command": "make"}')
READ = event("tool:start", 3, text="read", call="b", arguments='{"path": "a.md"}')

CASES: list[tuple[str, list[Move], TurnShown | None]] = [
    ("nothing yet", [], None),
    ("thinking", [START, event("model:start", 1)], TurnShown("thinking", 1)),
    ("answering", [START, event("assistant:text", 2, text="x" * 40)], TurnShown("answering", 1, tokens=10)),
    (
        "counted by the provider",
        [START, event("assistant:text", 2, text="x" * 40), event("usage", 3, tokensOut=25)],
        TurnShown("answering", 1, tokens=25),
    ),
    (
        "a second reply of the turn",
        [START, event("usage", 3, tokensOut=25), event("assistant:text", 2, text="x" * 40)],
        TurnShown("answering", 1, tokens=35),
    ),
    ("a tool", [START, EXEC], TurnShown("tool", 1, "exec make")),
    ("two tools, the newer is shown", [START, EXEC, READ], TurnShown("tool", 1, "read a.md")),
    ("two tools, one is over", [START, EXEC, READ, event("tool:end", 4, call="b")], TurnShown("tool", 1, "exec make")),
    ("tools are over", [START, EXEC, event("tool:end", 4, call="a")], TurnShown("thinking", 1)),
    ("a tool that nobody heard begin", [START, event("tool:end", 4, call="z")], TurnShown("thinking", 1)),
    (
        "trouble that passes",
        [START, event("retry", 5, text="529; gpt is asked in 8 s", cause="529", retryInS=8.0)],
        TurnShown("retrying", 1, "model: 529", attempt=2, retry_at=13),
    ),
    (
        "trouble again",
        [START, *[event("retry", 5, cause="529", retryInS=8.0)] * 2],
        TurnShown("retrying", 1, "model: 529", attempt=3, retry_at=13),
    ),
    (
        "trouble that is over",
        [START, event("retry", 5, cause="529", retryInS=8.0), event("assistant:text", 6, text="Here")],
        TurnShown("answering", 1, tokens=1, attempt=2, retry_at=13),
    ),
    (
        "an error that waiting does not cure",
        [START, event("error", 5, text="HTTP 401: no such key", cause="HTTP 401: no such key")],
        TurnShown("retrying", 1, "model: HTTP 401: no such key", attempt=2),
    ),
    (
        "an error that is not the model's",
        [START, event("error", 5, text="no workspace", retryInS=2.0)],
        TurnShown("retrying", 1, "no workspace", attempt=2, retry_at=7),
    ),
    ("the end", [START, EXEC, event("end", 4)], None),
    (
        "joined while it waits for its next try",
        [look(10, opened_at=1, failing=FailingTurn(tries=3, reason="no workspace", next_at=1012.0, ends_at=None))],
        TurnShown("retrying", 1, "no workspace", attempt=4, retry_at=12),
    ),
    ("joined in the middle", [look(10, opened_at=4)], TurnShown("thinking", 4)),
    ("joined in the middle of words", [event("assistant:text", 9, text="four")], TurnShown("answering", 9, tokens=1)),
    ("an end that was missed", [START, look(10)], None),
    ("a look that began before the start", [START, look(10, heard=0)], TurnShown("thinking", 1)),
    (
        "a look does not overrule what was heard",
        [START, EXEC, look(10, opened_at=1)],
        TurnShown("tool", 1, "exec make"),
    ),
    ("a question waits", [START, EXEC, look(10, opened_at=1, waits=True)], TurnShown("waiting", 1)),
    ("joined while a question waits", [look(10, opened_at=1, waits=True)], TurnShown("waiting", 1)),
    ("the question is answered", [look(10, opened_at=1, waits=True), look(11, opened_at=1)], TurnShown("thinking", 1)),
]


@pytest.mark.parametrize(("moves", "turn"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_turn_is_what_was_heard_and_seen_of_it(moves: list[Move], turn: TurnShown | None) -> None:
    activity = Activity()
    for move in moves:
        move(activity)
    assert activity.turn == turn


def at_work(*children: ChildAtWork) -> Below:
    return Below(now_at=1010, state="idle", children=children)


def scout(state: str = "running", **more: Any) -> ChildAtWork:
    return ChildAtWork(session_key="k", label="scout", state=state, depth=1, **more)


@pytest.mark.parametrize(
    ("heard", "state", "doing"),
    [
        ([], "running", "thinking"),
        ([{"kind": "tool:start", "text": "exec", "call": "a", "arguments": "{}"}], "running", "exec"),
        ([{"kind": "assistant:text"}], "running", "answering"),
        ([{"kind": "assistant:text"}, {"kind": "usage"}], "running", "answering"),
        ([{"kind": "assistant:text"}, {"kind": "model:start"}], "running", "thinking"),
        ([{"kind": "retry", "cause": "529"}], "running", "waits for its model: 529"),
        ([{"kind": "assistant:text"}], "queued", "queued"),
    ],
)
def test_a_subagent_that_runs_does_what_its_events_say(heard: list[dict[str, Any]], state: str, doing: str) -> None:
    activity = Activity()
    for one in heard:
        activity.hear_below(turn_event({"sessionKey": "k", **one}))
    (child,) = activity.look(at_work(scout(state)), 10, 0, is_talked_with=False)
    assert child.doing == doing


def test_a_look_that_began_before_a_subagent_did_leaves_its_call_under_way() -> None:
    activity = Activity()
    activity.hear_below(turn_event({"kind": "tool:start", "sessionKey": "k", "text": "exec", "arguments": "{}"}))
    assert activity.look(at_work(), 10, 0, is_talked_with=True) == ()
    (child,) = activity.look(at_work(scout()), 11, activity.heard, is_talked_with=True)
    assert child.doing == "exec"
    activity.look(at_work(), 12, activity.heard, is_talked_with=True)
    (again,) = activity.look(at_work(scout()), 13, activity.heard, is_talked_with=True)
    assert again.doing == "thinking", "what has ended is forgotten"


def test_events_of_subagents_do_not_keep_a_look_from_the_turn() -> None:
    activity = Activity()
    activity.hear(turn_event({"kind": "start", "sessionKey": "main"}), 1)
    begun = activity.heard
    activity.hear_below(turn_event({"kind": "assistant:text", "sessionKey": "k"}))
    activity.look(at_work(), 10, begun, is_talked_with=True)
    assert activity.turn is None


def test_a_subagent_is_shown_with_its_age_its_tokens_and_whether_it_waits() -> None:
    waits = scout("awaiting approval", tokens=8100, waits=True, started_at=969.0)
    (child,) = Activity().look(at_work(waits), 10, 0, is_talked_with=True)
    assert child == WorkingChild("scout", "awaiting approval", -31, 8100, waits=True, session_key="k")


def test_the_turn_of_a_subagent_that_is_talked_with_is_not_taken_from_the_conversation() -> None:
    activity = Activity()
    activity.hear(turn_event({"kind": "start", "sessionKey": "k"}), 1)
    activity.look(at_work(), 10, activity.heard, is_talked_with=False)
    assert activity.turn == TurnShown("thinking", 1)
