"""Waiting and waking: a final text over open children, a yield's condition, the tenth wake."""

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core import policy
from fledge.core.lifecycle import transition
from fledge.core.run import (
    Announcing,
    Queued,
    Running,
)
from tests.core.samples import (
    AT,
    FINAL_WAIT,
    RUNS,
    YIELD_WAIT,
    faltered,
    finished,
    lost,
    moved,
    play,
    settled,
    yielded,
)

CLAIM = ev.Claimed(at=AT, epoch=9)


# ---- a final text with a child's result unread -----------------------------------------------------------------------


def test_a_final_text_with_a_completion_unread_does_not_end_the_run_but_reads_it() -> None:
    step = transition(RUNS["running"], finished(unread=1))
    assert step == moved(RUNS["running"], Running(due_at=1300.0), fx.Drain(), fallback="t-new")
    assert (step.run.attempt, step.run.wakes) == (1, 0)
    after = transition(step.run, finished("silent", at=1100.0))
    assert fx.Announce("outcome", "t-new") in after.effects


def test_a_final_text_over_unsettled_children_waits_even_with_completions_unread() -> None:
    assert transition(RUNS["running"], finished(unsettled=1, unread=1)).run.phase == FINAL_WAIT


def test_a_send_that_missed_the_last_boundary_does_not_hold_up_the_end() -> None:
    step = transition(RUNS["running"], finished(messages=1))
    assert isinstance(step.run.phase, Announcing)
    assert fx.SuppressInbox() not in step.effects


# ---- a missed wake-up ------------------------------------------------------------------------------------------------


def test_a_condition_that_holds_when_a_sends_turn_yields_wakes_the_run_at_once() -> None:
    for event in (yielded("all"), yielded("any", unsettled=1, settled=1, unread=1), yielded(3, unsettled=0)):
        step = transition(RUNS["running, serving"], event)
        assert step.run.phase == Queued()
        assert step.effects == (fx.ReleaseDriver("all"), fx.Post("wake"), fx.Enqueue())


def test_a_child_that_settles_during_a_sends_turn_wakes_the_run_when_that_turn_ends() -> None:
    run = play(RUNS["waiting, yielded"], ev.SendArrived(at=AT), CLAIM)
    assert transition(run, settled(unsettled=0, settled=2)).ignored == "nothing waits for it"
    step = transition(run, finished(unsettled=0, settled=2, unread=2))
    assert step.run.phase == Queued()
    assert (step.run.attempt, step.run.wakes) == (2, 1)


def test_a_sends_turn_leaves_attempt_condition_and_deadline_as_they_were() -> None:
    run = play(RUNS["waiting, yielded"], ev.SendArrived(at=AT), CLAIM, finished(unsettled=2, settled=1))
    assert run.phase == YIELD_WAIT
    assert (run.attempt, run.fallback, run.wakes) == (1, None, 0)


def test_a_crash_in_a_sends_turn_does_not_forget_the_condition() -> None:
    run = play(
        RUNS["running, serving"], lost(), CLAIM, faltered(), ev.AttemptStarted(at=AT, attempt=1, next_run_id="x")
    )
    assert run.phase == Running(due_at=1300.0, serving=YIELD_WAIT)


# ---- the tenth wake --------------------------------------------------------------------------------------------------


def test_from_the_tenth_wake_on_spawns_and_yields_are_refused_with_the_reason() -> None:
    reason = "woken 10 of 10 times: finish with what you have"
    occupied = policy.Occupancy(depth=0, children=0, retained=0, wakes=10)
    assert policy.admit(policy.Limits(), occupied) == policy.Refusal("forbidden", reason)
    assert transition(RUNS["running, woken ten times"], yielded(unsettled=1)).ignored == reason


def test_it_is_still_woken_when_all_below_have_settled_and_not_before() -> None:
    run = RUNS["waiting, woken ten times"]
    assert transition(run, settled(unsettled=1, settled=2)).ignored is not None
    woken = transition(run, settled(unsettled=0, settled=3)).run
    assert (woken.phase, woken.wakes) == (Queued(), 11)
    final = play(RUNS["running, woken ten times"], finished(unsettled=1), settled())
    assert final.phase == Queued()
