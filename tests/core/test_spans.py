"""The life of a run as spans, lane by lane."""

import pytest
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core.announce import DeliveryTrace, Tried
from fledge.core.entries import CallValue, EntryUsage, HistoryEntry, LineEntry, MessageEntry, ReplyEntry
from fledge.core.spans import MOST_SPANS, Mark, Span, SpanLane, spans
from tests.core.samples import AT, KEY, terms
from tests.statements import proves

CHILD = "agent:main:subagent:2"


def admitted(plan: bool = False) -> ev.Event:
    """How every timeline begins."""
    return ev.Admitted(at=AT, key=KEY, terms=terms(plan=plan), run_id="run-1")


def told(lane: SpanLane, *timeline: ev.Event) -> list[tuple[str, float, float | None, str]]:
    """The spans of a lane, with seconds after `AT`."""
    found = spans([admitted(), *timeline], [], [], []).spans
    return [
        (one.name, one.started_at - AT, None if one.ended_at is None else one.ended_at - AT, one.status)
        for one in found
        if one.lane == lane
    ]


PREPARED = ev.Prepared(at=AT + 1)
CLAIMED = ev.Claimed(at=AT + 2, epoch=1)
STEERED = ev.Steered(at=AT + 4, next_run_id="r2")
ENDED = ev.AttemptEnded(at=AT + 6, attempt=1, next_run_id="r9", end=ev.Finished("text", "text-id"))


def test_a_phase_lasts_from_one_change_to_the_next_and_what_is_over_has_none() -> None:
    read = ev.RowConsumed(at=AT + 7, row="outcome", path="direct")
    assert told("phase", PREPARED, CLAIMED, ENDED, read, ev.CleanedUp(at=AT + 8)) == [
        ("spawning", 0, 1, "spawning"),
        ("queued", 1, 2, "queued"),
        ("running", 2, 6, "running"),
        ("announcing", 6, 7, "announcing"),
        ("cleanup_pending", 7, 8, "cleanup_pending"),
    ]
    assert told("phase", PREPARED, CLAIMED)[-1] == ("running", 2, None, "running")


@pytest.mark.parametrize(
    ("timeline", "attempts"),
    [
        ((PREPARED, CLAIMED), [("attempt 1", 0, None, "running")]),
        ((PREPARED, CLAIMED, ENDED), [("attempt 1", 0, 6, "ok")]),
        (
            (PREPARED, CLAIMED, STEERED, replace(CLAIMED, at=AT + 5, epoch=3), replace(ENDED, attempt=2)),
            [("attempt 1", 0, 4, "superseded"), ("attempt 2", 4, 6, "ok")],
        ),
    ],
)
def test_an_attempt_ends_with_the_next_one_or_with_the_run(
    timeline: tuple[ev.Event, ...], attempts: list[tuple[str, float, float | None, str]]
) -> None:
    assert told("attempts", *timeline) == attempts


YIELDED = ev.Yielded(at=AT + 3, attempt=1, next_run_id="r", unsettled=1, asked="all", wait_s=60)
PLANNED = ev.AttemptEnded(at=AT + 3, attempt=1, next_run_id="r", end=ev.Finished("text", "plan"))


@pytest.mark.parametrize(
    ("event", "name", "short"),
    [
        (YIELDED, "children", "waits for all its children"),
        (ev.PersonAsked(at=AT + 3, attempt=1, due_at=AT + 60), "person", "a tool call waits for a person"),
        (
            ev.Paused(at=AT + 3, attempt=1, until_at=AT + 60, since_at=AT + 2, reason="overloaded"),
            "model",
            "overloaded",
        ),
    ],
)
def test_what_a_run_waits_for_is_said(event: ev.Event, name: str, short: str) -> None:
    found = [one for one in spans([admitted(), PREPARED, CLAIMED, event], [], [], []).spans if one.lane == "waits"]
    assert [(one.name, one.short) for one in found] == [("slot", "waits for a free slot"), (name, short)]
    assert found[-1].ended_at is None


def test_a_plan_waits_for_its_answer() -> None:
    timeline = [admitted(plan=True), PREPARED, CLAIMED, PLANNED]
    found = [one for one in spans(timeline, [], [], []).spans if one.lane == "waits"]
    assert (found[-1].name, found[-1].started_at) == ("plan", AT + 3)


ENTRIES: list[HistoryEntry] = [
    MessageEntry(seq=1, at=AT, kind="task", by="person", text="go"),
    LineEntry(seq=1, at=AT + 1, kind="restarted", session_key=""),
    ReplyEntry(
        seq=2,
        at=AT + 2,
        text="I look.",
        model="m",
        usage=EntryUsage(tokens_in=5, tokens_out=2),
        calls=(
            CallValue(
                id="c", name="exec", arguments='{"command": "ls"}', status="ok", started_at=AT + 2, ended_at=AT + 3
            ),
            CallValue(
                id="d",
                name="sessions_spawn",
                arguments='{"task": "dig"}',
                status="running",
                started_at=AT + 2,
                child_run_id="r2",
                child_session_key=CHILD,
            ),
        ),
    ),
    ReplyEntry(seq=3, at=AT + 9, text="", is_cut=True),
]


def test_a_model_call_lasts_from_the_entry_before_it_and_a_tool_call_until_its_result() -> None:
    found = spans([admitted()], ENTRIES, [], []).spans
    assert [one for one in found if one.lane == "model"] == [
        Span(lane="model", started_at=AT, ended_at=AT + 2, name="m", short="I look.", status="ok", tokens=7, seq=2),
        Span(lane="model", started_at=AT + 2, ended_at=AT + 9, name="", status="cut", seq=3),
    ]
    ran, spawned = [one for one in found if one.lane == "tools"]
    assert (ran.name, ran.short, ran.status, ran.ended_at) == ("exec", "exec ls", "ok", AT + 3)
    assert (spawned.run_id, spawned.session_key, spawned.status, spawned.ended_at) == ("r2", CHILD, "running", None)
    alone = spans([admitted()], ENTRIES[2:3], [], []).spans
    assert [one.started_at for one in alone if one.lane == "model"] == [AT + 2]


def test_children_and_tries_have_their_lanes() -> None:
    child = Span(
        lane="children", started_at=AT, ended_at=AT + 4, name="digger", status="ok", run_id="r2", session_key=CHILD
    )
    failed = Tried("direct-primary", "failed", "gone")
    trace = DeliveryTrace(
        key="k", requester="agent:main:main", depth="main", route="fallback", tried=(failed,), why="gone"
    )
    found = spans([admitted()], [], [child], [(AT + 5, trace), (AT + 6, replace(trace, tried=(), why=""))]).spans
    assert [one for one in found if one.lane in ("children", "delivery")] == [
        child,
        Span(
            lane="delivery",
            started_at=AT + 5,
            ended_at=AT + 5,
            name="direct-primary failed",
            short="gone",
            status="failed",
            session_key="agent:main:main",
        ),
        Span(
            lane="delivery",
            started_at=AT + 6,
            ended_at=AT + 6,
            name="read by handle",
            short="agent:main:main",
            status="delivered",
            session_key="agent:main:main",
        ),
    ]


@proves("4.rows.6")
def test_marks_are_what_was_done_to_the_run() -> None:
    lost = ev.LeaseLost(at=AT + 3, attempt=1, next_run_id="r", step_open=True)
    assert spans([admitted(), PREPARED, CLAIMED, lost, STEERED], [], [], []).marks == (
        Mark(at=AT + 3, name="crashed", reason="crash in a step"),
        Mark(at=AT + 4, name="steered"),
    )


def test_a_window_has_what_touches_it() -> None:
    found = spans([admitted(), PREPARED, CLAIMED, STEERED], ENTRIES, [], [], AT + 2.5, AT + 3)
    assert {(one.lane, one.name) for one in found.spans} == {
        ("phase", "running"),
        ("attempts", "attempt 1"),
        ("model", ""),
        ("tools", "exec"),
        ("tools", "sessions_spawn"),
    }
    assert found.marks == ()


def test_of_too_many_spans_the_newest_are_told_and_the_rest_is_counted() -> None:
    replies = [ReplyEntry(seq=seq, at=AT + seq, text="") for seq in range(1, MOST_SPANS + 10)]
    found = spans([admitted()], replies, [], [])
    assert len(found.spans) == MOST_SPANS
    assert found.left_out == 2 + MOST_SPANS + 9 - MOST_SPANS
    assert found.spans[-1].ended_at == AT + MOST_SPANS + 9
