"""The findings of the model, F9 to F16, each as far as the pure core can prove it: take the rule out, and a test fails.

What needs rows, slots or several runs in one commit (parts of F12, F16) is proved on the store.
"""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core import policy
from fledge.core.lifecycle import transition
from fledge.core.run import (
    Archived,
    AwaitingApproval,
    Completed,
    Gone,
    Queued,
    Spawning,
)
from fledge.core.step import Step
from tests.core.samples import (
    AT,
    RUNS,
    SAMPLE_EVENTS,
    WORKING,
    broke,
    came_due,
    finished,
    ignored,
    killed,
    moved,
    play,
    run_in,
    settled,
    terms,
    yielded,
)
from tests.statements import proves

CLAIM = ev.Claimed(at=AT, epoch=9)
CONSUMED = ev.RowConsumed(at=AT, row="outcome", path="direct")


# ---- F9: plan rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["awaiting approval", "running, approved", "queued", "announcing"])
def test_f9_reading_a_plan_row_leaves_the_phase_alone(name: str) -> None:
    run = RUNS[name]
    assert transition(run, replace(CONSUMED, row="plan")) == ignored(run, "a row of kind plan leaves the phase alone")


def test_f9_a_rejected_plan_is_planned_again_in_a_new_attempt() -> None:
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
def test_f9_answer_expiry_and_kill_withdraw_an_unread_plan_row(event: ev.Event) -> None:
    assert fx.WithdrawPlan() in transition(RUNS["awaiting approval"], event).effects


def test_f9_a_plan_that_awaits_its_answer_is_settled_and_unsettled_again_by_the_answer() -> None:
    step = transition(RUNS["running, planning"], finished())
    assert step.run.concluded
    assert fx.CountDown() in step.effects
    for answer in (ev.PlanApproved, ev.PlanRejected):
        answered = transition(step.run, answer(at=AT, next_run_id="run-2"))
        assert not answered.run.concluded
        assert answered.effects.count(fx.CountUp()) == 1


def test_f9_expiry_and_kill_do_not_settle_a_plan_a_second_time() -> None:
    for event in (came_due(87400.0), killed()):
        assert fx.CountDown() not in transition(RUNS["awaiting approval"], event).effects


def test_f9_a_plan_over_unsettled_children_is_settled_once_with_the_last_of_them() -> None:
    planner = run_in(WORKING, plan="planning", terms=terms(plan=True, wakeable=False))
    first = transition(planner, finished(unsettled=1))
    second = transition(first.run, settled(unsettled=0))
    assert (first.effects + second.effects).count(fx.CountDown()) == 1


# ---- F10: the key has a kind -----------------------------------------------------------------------------------------


def rows(step: Step) -> list[str]:
    return [effect.row for effect in step.effects if isinstance(effect, fx.Announce)]


@proves("2.announce.23")
def test_f10_outcome_plan_expiry_and_late_completes_are_rows_of_their_own_kinds() -> None:
    assert rows(transition(RUNS["running"], finished())) == ["outcome"]
    assert rows(transition(RUNS["running, planning"], finished())) == ["plan"]
    assert rows(transition(RUNS["awaiting approval"], came_due(87400.0))) == ["expired"]
    assert rows(transition(RUNS["completed, timed out"], finished())) == ["late"]


@pytest.mark.parametrize("name", ["announcing an error", "deferred, missing-requester"])
def test_f10_a_late_complete_refreshes_an_unread_outcome_and_writes_no_second_row(name: str) -> None:
    step = transition(RUNS[name], finished())
    assert step.effects == (fx.RefreshRow("t-new"),)
    assert step.run.phase.name == RUNS[name].phase.name


@pytest.mark.parametrize("name", ["cleanup, failed and delivered", "completed, timed out", "cleanup, killed by name"])
def test_f10_a_late_complete_after_that_changes_no_phase_hook_or_counter(name: str) -> None:
    run = RUNS[name]
    assert transition(run, finished()) == moved(run, run.phase, fx.Announce("late", "t-new"))


@proves("2.kill.15", "It is accepted until archive")
def test_f10_a_late_complete_is_not_heard_once_archived() -> None:
    run = RUNS["archived, failed"]
    assert transition(run, finished()) == ignored(run, "already ended")


# ---- F11: a send's turn never refreshes ------------------------------------------------------------------------------


def test_f11_a_send_after_the_outcome_is_fixed_makes_no_attempt_that_could_refresh_it() -> None:
    for name, run in RUNS.items():
        if run.ended is not None:
            assert transition(run, ev.SendArrived(at=AT)) == ignored(run, "answered by a turn of its own"), name


@proves("2.frozen.14", "An empty or silent later end never refreshes")
@pytest.mark.parametrize("said", ["empty", "silent", "skip"])
def test_f11_a_later_end_without_words_never_refreshes(said: ev.Said) -> None:
    run = RUNS["announcing"]
    assert transition(run, finished(said)) == ignored(run, "a late end without words")


def test_f11_an_end_of_another_attempt_never_refreshes() -> None:
    run = replace(RUNS["announcing"], attempt=2)
    assert transition(run, finished()) == ignored(run, "attempt 1, now 2")


# ---- F12: a reservation whose caller is gone -------------------------------------------------------------------------


def test_f12_a_reservation_ends_after_30_seconds_or_with_its_callers_call_and_is_settled() -> None:
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
def test_f12_what_ends_an_attempt_from_outside_closes_its_calls_in_that_commit(event: ev.Event, reason: str) -> None:
    assert fx.CloseCalls(reason) in transition(RUNS["running, deadline"], event).effects


# ---- F13: the tenth wake ---------------------------------------------------------------------------------------------


def test_f13_from_the_tenth_wake_on_spawns_and_yields_are_refused_with_the_reason() -> None:
    reason = "woken 10 of 10 times: finish with what you have"
    occupied = policy.Occupancy(depth=0, children=0, retained=0, wakes=10)
    assert policy.admit(policy.Limits(), occupied) == policy.Refusal("forbidden", reason)
    assert transition(RUNS["running, woken ten times"], yielded(unsettled=1)).ignored == reason


def test_f13_it_is_still_woken_when_all_below_have_settled_and_not_before() -> None:
    run = RUNS["waiting, woken ten times"]
    assert transition(run, settled(unsettled=1, settled=2)).ignored is not None
    woken = transition(run, settled(unsettled=0, settled=3)).run
    assert (woken.phase, woken.wakes) == (Queued(), 11)
    final = play(RUNS["running, woken ten times"], finished(unsettled=1), settled())
    assert final.phase == Queued()


# ---- F14: a program that never reads ---------------------------------------------------------------------------------


def test_f14_a_result_a_program_leaves_unread_for_30_minutes_is_given_up_and_can_be_retried() -> None:
    run = play(RUNS["running, for a program"], finished())
    assert run.due_at == AT + 1800.0
    assert transition(run, came_due(AT + 1799.5)).ignored == "not due"
    given_up = play(run, came_due(AT + 1800.0), ev.CleanedUp(at=3000.0))
    assert given_up.phase.name == "completed_giveup"
    assert play(given_up, ev.Retried(at=4000.0)).due_at == 5800.0


@proves("2.hops.1", "Hop 1 cannot fail while a requester exists and never expires")
def test_f14_a_conversations_result_is_never_given_up_unread() -> None:
    assert play(RUNS["running"], finished()).due_at is None


# ---- F15: a closed turn is answered by what closed it ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["queued", "running", "waiting, yielded", "ending, grace"])
def test_f15_kill_steer_and_the_runs_end_close_the_turn(name: str) -> None:
    run = replace(RUNS[name], deadline_at=1001.0)
    for event in (killed(), ev.Steered(at=AT, next_run_id="run-2"), came_due(1001.0)):
        assert any(isinstance(effect, fx.CloseCalls) for effect in transition(run, event).effects)


@pytest.mark.parametrize("name", ["queued", "running", "waiting, yielded", "ending, grace"])
def test_f15_what_kill_and_the_runs_end_close_cannot_be_claimed_again(name: str) -> None:
    run = replace(RUNS[name], deadline_at=1001.0)
    for event in (killed(), came_due(1001.0)):
        effects = transition(run, event).effects
        assert fx.Dequeue() in effects
        assert fx.Enqueue() not in effects


# ---- F16: the sweeper and late rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "remains", [policy.Remains(1, 0, 0), policy.Remains(0, 1, 0), policy.Remains(0, 0, 1)], ids=["row", "turn", "below"]
)
def test_f16_a_settled_run_is_not_archived_while_a_row_a_turn_or_a_descendant_is_open(remains: policy.Remains) -> None:
    held = policy.held_by(remains)
    step = transition(RUNS["completed"], came_due(4570.0, held_by=held))
    assert isinstance(step.run.phase, Completed)
    assert step.run.due_at == 4630.0
    assert step.effects == ()
    free = transition(step.run, came_due(4630.0, held_by=policy.held_by(policy.Remains(0, 0, 0))))
    assert isinstance(free.run.phase, Archived)


def test_f16_a_plan_is_never_archived_while_it_waits() -> None:
    for event in SAMPLE_EVENTS:
        if not isinstance(event, ev.Admitted | ev.Prepared | ev.Imported | ev.Claimed | ev.Yielded | ev.PersonAsked):
            assert not isinstance(transition(RUNS["awaiting approval"], event).run.phase, Archived)
