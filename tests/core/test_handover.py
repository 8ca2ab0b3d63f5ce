"""The commit that fixes a run's outcome hands the run's inbox over, or suppresses it after a kill."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from fledge.core.run import (
    CleanupPending,
    Undelivered,
)
from tests.core.samples import (
    AT,
    OK,
    RUNS,
    broke,
    came_due,
    finished,
    killed,
    lost,
    play,
    terms,
)

ENDS: list[tuple[str, ev.Event]] = [
    ("running", finished()),
    ("running", finished("skip")),
    ("running", broke(ev.Errored("no model"))),
    ("running", broke(ev.Errored("spent", cause="budget"))),
    ("running", broke(ev.RanOut())),
    ("running, crashed twice", lost()),
    ("running, planning", finished("empty")),
    ("running, not wakeable", finished(unsettled=1)),
    ("queued, limited", came_due(1060.0)),
    ("queued, deadline", came_due(1500.0)),
    ("waiting, deadline", came_due(1500.0)),
    ("ending, grace", came_due(1015.0)),
    ("awaiting approval", came_due(87400.0)),
]


@pytest.mark.parametrize(("name", "event"), ENDS)
def test_the_commit_that_fixes_an_outcome_hands_its_inbox_over(name: str, event: ev.Event) -> None:
    step = transition(RUNS[name], event)
    assert step.run.ended is not None
    assert step.effects.count(fx.HandOver()) == 1


@pytest.mark.parametrize(("name", "event"), ENDS)
def test_a_session_that_is_bound_to_a_thread_reads_on_itself(name: str, event: ev.Event) -> None:
    run = RUNS[name]
    step = transition(replace(run, terms=replace(run.terms, mode="session")), event)
    assert step.effects.count(fx.ReadOn()) == 1
    assert fx.HandOver() not in step.effects


@pytest.mark.parametrize("name", ["queued", "running", "waiting, yielded", "ending, grace", "awaiting approval"])
@pytest.mark.parametrize("mode", ["run", "session"])
def test_a_kill_suppresses_the_inbox_instead(name: str, mode: str) -> None:
    run = replace(RUNS[name], terms=terms(mode=mode))
    for driven in (False, True):
        effects = transition(run, killed(driven=driven)).effects
        assert fx.SuppressInbox() in effects
        assert fx.HandOver() not in effects
        assert fx.ReadOn() not in effects


def test_a_run_whose_row_nobody_is_left_to_read_is_deferred_and_given_up() -> None:
    run = play(RUNS["announcing"], ev.RequesterLost(at=AT), *(came_due(at) for at in (1001.0, 1003.0, 1007.0)))
    assert run.phase == CleanupPending(OK, Undelivered("no requester is left"), 0, 1007.0)
