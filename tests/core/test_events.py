"""Why an event happened, as logs and timelines say it."""

from typing import Any

import pytest

from fledge.core import events as ev

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
        (ev.LeaseLost(step_open=False, **SIGNAL), "its driver is gone"),
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
