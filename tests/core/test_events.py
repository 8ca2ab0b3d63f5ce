"""What happened and why, as logs and timelines say it."""

from typing import Any

import pytest

from fledge.core import events as ev
from tests.core.samples import KEY, SAMPLE_EVENTS, TERMS

AT = 1000.0
SIGNAL: dict[str, Any] = {"at": AT, "attempt": 1, "next_run_id": "r2"}


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (ev.AttemptEnded(end=ev.Errored("no model"), **SIGNAL), "no model"),
        (ev.AttemptEnded(end=ev.Finished("text", "t"), **SIGNAL), ""),
        (ev.AttemptFaltered(error="overloaded", **SIGNAL), "overloaded"),
        (ev.CleanupFailed(at=AT, error="the folder is busy"), "the folder is busy"),
        (ev.Withdrawn(at=AT, reason="interrupted"), "interrupted"),
        (ev.LeaseLost(step_open=True, **SIGNAL), "crash in a step"),
        (ev.LeaseLost(step_open=False, **SIGNAL), "its process is gone"),
        (ev.RowConsumed(at=AT, row="outcome", path="queued"), "queued"),
        (ev.KillOrdered(at=AT, named=False, driven=True, unsettled=0), "from above"),
        (ev.KillOrdered(at=AT, named=True, driven=True, unsettled=0), ""),
        (ev.Yielded(asked=2, wait_s=1.0, **SIGNAL), "for 2"),
        (
            ev.Paused(at=AT, attempt=1, until_at=AT + 8, since_at=AT, reason="HTTP 429"),
            "retrying in 8 s: HTTP 429",
        ),
        (ev.Prepared(at=AT), ""),
    ],
)
def test_an_event_says_why_it_happened_where_its_name_does_not(event: ev.Event, why: str) -> None:
    assert ev.reason(event) == why


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ev.AttemptEnded(end=ev.Finished("text", "t"), **SIGNAL), "finished"),
        (ev.AttemptEnded(end=ev.RanOut(), **SIGNAL), "ran out of time"),
        (ev.AttemptEnded(end=ev.Errored("no model"), **SIGNAL), "failed"),
        (ev.AttemptEnded(end=ev.Errored("spent", "budget"), **SIGNAL), "budget spent"),
        (ev.AttemptEnded(end=ev.Errored("no progress", "limit"), **SIGNAL), "limit reached"),
        (ev.LeaseLost(step_open=True, **SIGNAL), "interrupted"),
        (ev.RowConsumed(at=AT, row="outcome", path="queued"), "result read"),
        (ev.RowConsumed(at=AT, row="plan", path="queued"), "plan read"),
        (ev.RowConsumed(at=AT, row="expired", path="queued"), "expiry read"),
        (ev.RowConsumed(at=AT, row="late", path="queued"), "late result read"),
    ],
)
def test_an_event_says_what_happened_in_peoples_words(event: ev.Event, words: str) -> None:
    assert ev.people_words(event) == words


def test_every_event_has_words_that_fit_a_column_and_are_no_name_of_ours() -> None:
    words = {
        ev.people_words(event) for event in [*SAMPLE_EVENTS, ev.Admitted(at=AT, key=KEY, terms=TERMS, run_id="r1")]
    }
    assert len(words) >= len(ev.EVENTS), "no two events read alike"
    assert all(len(word) <= 18 and word == word.lower() for word in words)
