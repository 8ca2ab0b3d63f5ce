"""What a run does now, as a table: phase and facts in, one line out."""

import pytest

from fledge.core.doing import Doing, DoingFacts, doing, error_words, waits_for
from fledge.core.run import (
    AnnounceDeferred,
    Announcing,
    Archived,
    Asking,
    AwaitingApproval,
    Completed,
    CompletedGiveup,
    Delivered,
    Ended,
    Ending,
    Failed,
    Grace,
    Killed,
    Ok,
    Outcome,
    Phase,
    Queued,
    Retry,
    Running,
    Spawning,
    Stopping,
    TimedOut,
    Undelivered,
    Unknown,
    Waiting,
)
from fledge.core.transcript import CallEntry
from fledge.core.turn import Wait
from tests.core.samples import run_in

NOW = 1000.0
ENDED = Ended(Ok(), 900.0, 950.0)
DRIVEN = DoingFacts(is_driven=True)
AT_REST = DoingFacts(is_driven=False)
ENTERED = DoingFacts(is_driven=True, entered_at=970.0)
RUNNING = Running(due_at=None)
CALLS = (CallEntry("1", "exec", '{"command": "make"}'), CallEntry("2", "read", "{}"))


@pytest.mark.parametrize(
    ("phase", "facts", "found"),
    [
        (Spawning(1030.0), DRIVEN, Doing(kind="preparing", text="being prepared", until_at=1030.0)),
        (
            Queued(),
            DoingFacts(is_driven=True, ahead=2, entered_at=990.0),
            Doing(kind="queue", text="queued behind 2", since_at=990.0),
        ),
        (Queued(due_at=1090.0), DRIVEN, Doing(kind="queue", text="next in its lane", until_at=1090.0)),
        (Queued(), AT_REST, Doing(kind="undriven", text="no process drives this folder")),
        (
            Queued(retry=Retry(1008.0, "HTTP 429: slow\ndown")),
            ENTERED,
            Doing(kind="retry", text="retrying in 8 s: HTTP 429: slow down", since_at=970.0, until_at=1008.0),
        ),
        (RUNNING, DoingFacts(is_driven=True, stepped_at=990.0), Doing(kind="model", text="thinking", since_at=990.0)),
        (RUNNING, DoingFacts(is_driven=True, calls=CALLS[:1]), Doing(kind="tool", text="exec make")),
        (RUNNING, DoingFacts(is_driven=True, calls=CALLS), Doing(kind="tool", text="exec make and 1 more")),
        (
            RUNNING,
            DoingFacts(is_driven=True, calls=CALLS[:1], is_stuck=True, stepped_at=580.0),
            Doing(kind="stuck", text="no step for 7 min: exec make has not answered", since_at=580.0),
        ),
        (
            RUNNING,
            DoingFacts(is_driven=True, is_stuck=True),
            Doing(kind="stuck", text="no step for 0 min: the model has not answered"),
        ),
        (RUNNING, AT_REST, Doing(kind="undriven", text="no process drives this folder")),
        (
            Waiting(None, 1500.0),
            DoingFacts(is_driven=True, spawned=5, unsettled=3, entered_at=970.0),
            Doing(kind="children", text="waits for 3 of 5 children", since_at=970.0, until_at=1500.0),
        ),
        (
            Waiting(3, None),
            DoingFacts(is_driven=False, spawned=5, unsettled=3),
            Doing(kind="children", text="waits for 1 of 5 children"),
        ),
        (
            Waiting(None, None),
            DoingFacts(is_driven=True, spawned=1, unsettled=1),
            Doing(kind="children", text="waits for 1 of 1 child"),
        ),
        (
            Asking(1500.0),
            DoingFacts(is_driven=False, asks=("exec",), asked_at=980.0, asks_until=1400.0),
            Doing(kind="you", text="waits for your approval: exec", since_at=980.0, until_at=1400.0),
        ),
        (
            RUNNING,
            DoingFacts(is_driven=True, asks=("exec", "write")),
            Doing(kind="you", text="waits for your approval: exec and 1 more"),
        ),
        (Asking(1500.0), ENTERED, Doing(kind="you", text="waits for your approval", since_at=970.0, until_at=1500.0)),
        (
            Ending(1015.0, Grace("HTTP 500", False, RUNNING)),
            DRIVEN,
            Doing(kind="ending", text="may recover: HTTP 500", until_at=1015.0),
        ),
        (Ending(1005.0, Stopping(True)), DRIVEN, Doing(kind="ending", text="stopping", until_at=1005.0)),
        (
            AwaitingApproval(9000.0, None),
            DoingFacts(is_driven=False, entered_at=970.0),
            Doing(kind="you", text="waits for your answer to its plan", since_at=970.0, until_at=9000.0),
        ),
        (Announcing(ENDED), AT_REST, Doing(kind="delivery", text="its result is not read yet", since_at=950.0)),
        (
            AnnounceDeferred(ENDED, "missing-requester", 0, 960.0, 2000.0, 1005.0),
            DRIVEN,
            Doing(kind="delivery", text="no requester is left to receive it", since_at=960.0, until_at=1005.0),
        ),
        (
            AnnounceDeferred(ENDED, "missing-requester", 1, 960.0, 2000.0, 1005.0),
            DRIVEN,
            Doing(
                kind="delivery", text="no requester is left to receive it, tried once", since_at=960.0, until_at=1005.0
            ),
        ),
        (
            AnnounceDeferred(ENDED, "missing-requester", 2, 960.0, 2000.0, None),
            DRIVEN,
            Doing(kind="delivery", text="no requester is left to receive it, tried 2 times", since_at=960.0),
        ),
        (
            AnnounceDeferred(ENDED, "descendants-active", 0, 960.0, 2000.0, None),
            DoingFacts(is_driven=True, spawned=2, unsettled=1),
            Doing(kind="children", text="waits for 1 of 2 children"),
        ),
        (
            CompletedGiveup(ENDED, Undelivered("HTTP 503"), 970.0, 9000.0),
            DRIVEN,
            Doing(kind="lost", text="its result was not delivered: HTTP 503", since_at=970.0),
        ),
        (Completed(ENDED, Delivered("direct"), 970.0, None), DRIVEN, None),
        (Archived(ENDED, Delivered("direct"), None), AT_REST, None),
        (
            Completed(ENDED, Delivered("direct"), 970.0, None),
            DoingFacts(is_driven=True, spawned=4, unsettled=2),
            Doing(kind="children", text="waits for 2 of 4 children"),
        ),
    ],
)
def test_each_phase_says_what_the_run_does_or_waits_for(phase: Phase, facts: DoingFacts, found: Doing | None) -> None:
    assert doing(run_in(phase), facts, NOW) == found


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Ok(), ""),
        (Failed("HTTP 529 overloaded"), "HTTP 529 overloaded"),
        (TimedOut(), "its time was up"),
        (Killed(True), "killed"),
        (Unknown(), "how it ended is not known"),
    ],
)
def test_a_failure_is_told_in_plain_words(outcome: Outcome, words: str) -> None:
    assert error_words(outcome) == words


@pytest.mark.parametrize(
    ("wait", "unsettled", "words"),
    [
        (Wait(None), 2, "waits for 2 of 3 children"),
        (Wait(2, 160.0), 2, "waits for 1 of 3 children, 1m0s at most"),
        (Wait(None, 40.0), 1, "waits for 1 of 3 children, 0s at most"),
    ],
)
def test_a_conversation_that_has_yielded_says_what_it_waits_for(wait: Wait, unsettled: int, words: str) -> None:
    assert waits_for(wait, 3, unsettled, now=100.0) == words
