"""A reservation ends with the call that asked for it."""

import pytest

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from fledge.core.run import (
    Gone,
    Spawning,
)
from tests.core.samples import (
    AT,
    RUNS,
    broke,
    came_due,
    killed,
)


def test_a_reservation_ends_after_30_seconds_or_with_its_callers_call_and_is_settled() -> None:
    run = RUNS["spawning"]
    assert run.phase == Spawning(due_at=1030.0)
    for event in (came_due(1030.0), ev.Withdrawn(at=AT, reason="the call was closed")):
        step = transition(run, event)
        assert isinstance(step.run.phase, Gone)
        assert step.effects == (fx.CountDown(), fx.Forget())


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (ev.Steered(at=AT, next_run_id="run-2"), "interrupted"),
        (came_due(1500.0), "interrupted"),
        (broke(ev.Errored("no model")), "interrupted"),
        (killed(), "killed"),
    ],
)
def test_what_ends_an_attempt_from_outside_closes_its_calls_in_that_commit(event: ev.Event, reason: str) -> None:
    assert fx.CloseCalls(reason) in transition(RUNS["running, deadline"], event).effects
