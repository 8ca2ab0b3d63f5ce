"""A slot is held by a driver, not by a phase."""

import pytest

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from tests.core.samples import (
    AT,
    RUNS,
    came_due,
    faltered,
    killed,
)

STOPPING = RUNS["ending, stopping named"]


FREES = (fx.ReleaseDriver, fx.SupersedeDriver, fx.Enqueue, fx.Dequeue)


def test_a_provisional_error_and_its_recovery_leave_driver_and_slot_alone() -> None:
    for run, event in (
        (RUNS["running"], faltered()),
        (RUNS["ending, grace"], ev.AttemptStarted(at=AT, attempt=1, next_run_id="x")),
    ):
        assert transition(run, event).effects == ()


@pytest.mark.parametrize(
    ("name", "event", "until"),
    [
        ("running", ev.Steered(at=AT, next_run_id="run-2"), 1005.0),
        ("running, deadline", came_due(1500.0), 1505.0),
        ("ending, grace", came_due(1015.0), 1020.0),
    ],
)
def test_a_superseded_driver_keeps_its_slot_until_it_exits_or_5_seconds(
    name: str, event: ev.Event, until: float
) -> None:
    effects = transition(RUNS[name], event).effects
    assert fx.SupersedeDriver(until) in effects
    assert fx.ReleaseDriver() not in effects


def test_a_stopped_driver_keeps_its_slot_for_5_seconds() -> None:
    effects = transition(RUNS["running"], killed(driven=True)).effects
    assert [type(effect) for effect in effects if isinstance(effect, (*FREES, fx.StopDriver))] == [fx.StopDriver]
    assert fx.SupersedeDriver(1005.0) in transition(STOPPING, came_due(1005.0)).effects
