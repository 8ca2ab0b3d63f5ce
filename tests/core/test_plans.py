"""A plan's row: reading it decides nothing; answer, expiry and kill withdraw it."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from fledge.core.run import (
    AwaitingApproval,
)
from tests.core.samples import (
    AT,
    RUNS,
    WORKING,
    came_due,
    finished,
    ignored,
    killed,
    play,
    run_in,
    settled,
    terms,
)

CLAIM = ev.Claimed(at=AT, epoch=9)


CONSUMED = ev.RowConsumed(at=AT, row="outcome", path="direct")


@pytest.mark.parametrize("name", ["awaiting approval", "running, approved", "queued", "announcing"])
def test_reading_a_plan_row_leaves_the_phase_alone(name: str) -> None:
    run = RUNS[name]
    assert transition(run, replace(CONSUMED, row="plan")) == ignored(run, "a row of kind plan leaves the phase alone")


def test_a_rejected_plan_is_planned_again_in_a_new_attempt() -> None:
    run = play(RUNS["awaiting approval"], ev.PlanRejected(at=AT, next_run_id="run-2"), CLAIM)
    assert (run.attempt, run.run_id, run.plan) == (2, "run-2", "planning")
    step = transition(run, replace(finished(), attempt=2))
    assert isinstance(step.run.phase, AwaitingApproval)
    assert fx.Announce("plan", "t-new") in step.effects


@pytest.mark.parametrize(
    "event",
    [
        ev.PlanApproved(at=AT, next_run_id="run-2"),
        ev.PlanRejected(at=AT, next_run_id="run-2"),
        came_due(87400.0),
        killed(),
    ],
)
def test_answer_expiry_and_kill_withdraw_an_unread_plan_row(event: ev.Event) -> None:
    assert fx.WithdrawPlan() in transition(RUNS["awaiting approval"], event).effects


def test_a_plan_that_awaits_its_answer_is_settled_and_unsettled_again_by_the_answer() -> None:
    step = transition(RUNS["running, planning"], finished())
    assert step.run.concluded
    assert fx.CountDown() in step.effects
    for answer in (ev.PlanApproved, ev.PlanRejected):
        answered = transition(step.run, answer(at=AT, next_run_id="run-2"))
        assert not answered.run.concluded
        assert answered.effects.count(fx.CountUp()) == 1


def test_expiry_and_kill_do_not_settle_a_plan_a_second_time() -> None:
    for event in (came_due(87400.0), killed()):
        assert fx.CountDown() not in transition(RUNS["awaiting approval"], event).effects


def test_a_plan_over_unsettled_children_is_settled_once_with_the_last_of_them() -> None:
    planner = run_in(WORKING, plan="planning", terms=terms(plan=True, wakeable=False))
    first = transition(planner, finished(unsettled=1))
    second = transition(first.run, settled(unsettled=0))
    assert (first.effects + second.effects).count(fx.CountDown()) == 1
