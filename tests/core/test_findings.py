"""The findings of the model, F1 to F8 (the others: `test_findings_later`), each as far as the pure core can prove
it: take the rule out, and a test fails.

What needs rows, slots or several runs in one commit (parts of F2, F7, F8) is proved on the store.
"""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core import policy
from fledge.core.lifecycle import transition
from fledge.core.run import (
    Announcing,
    CleanupPending,
    Ending,
    Gone,
    Killed,
    Ok,
    Queued,
    Running,
    Skipped,
    Stopping,
    Undelivered,
)
from tests.core.samples import (
    AT,
    FINAL_WAIT,
    OK,
    RUNS,
    UNWAKEABLE,
    YIELD_WAIT,
    broke,
    came_due,
    dead,
    faltered,
    finished,
    ignored,
    killed,
    lost,
    moved,
    play,
    settled,
    stopped,
    terms,
    yielded,
)
from tests.statements import proves

CLAIM = ev.Claimed(at=AT, epoch=9)
STOPPING = RUNS["ending, stopping named"]
BELOW = RUNS["ending, stopping below"]


# ---- F1: a final text with a child's result unread -------------------------------------------------------------------


def test_f1_a_final_text_with_a_completion_unread_does_not_end_the_run_but_reads_it() -> None:
    step = transition(RUNS["running"], finished(unread=1))
    assert step == moved(RUNS["running"], Running(due_at=1300.0), fx.Drain(), fallback="t-new")
    assert (step.run.attempt, step.run.wakes) == (1, 0)
    after = transition(step.run, finished("silent", at=1100.0))
    assert fx.Announce("outcome", "t-new") in after.effects


def test_f1_a_final_text_over_unsettled_children_waits_even_with_completions_unread() -> None:
    assert transition(RUNS["running"], finished(unsettled=1, unread=1)).run.phase == FINAL_WAIT


def test_f1_a_send_that_missed_the_last_boundary_does_not_hold_up_the_end() -> None:
    step = transition(RUNS["running"], finished(messages=1))
    assert isinstance(step.run.phase, Announcing)
    assert fx.SuppressInbox() not in step.effects


# ---- F2: rows in the inbox of a requester that ends ------------------------------------------------------------------

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
def test_f2_the_commit_that_fixes_an_outcome_hands_its_inbox_over(name: str, event: ev.Event) -> None:
    step = transition(RUNS[name], event)
    assert step.run.ended is not None
    assert step.effects.count(fx.HandOver()) == 1


@pytest.mark.parametrize(("name", "event"), ENDS)
def test_f2_a_session_that_is_bound_to_a_thread_reads_on_itself(name: str, event: ev.Event) -> None:
    run = RUNS[name]
    step = transition(replace(run, terms=replace(run.terms, mode="session")), event)
    assert step.effects.count(fx.ReadOn()) == 1
    assert fx.HandOver() not in step.effects


@pytest.mark.parametrize("name", ["queued", "running", "waiting, yielded", "ending, grace", "awaiting approval"])
@pytest.mark.parametrize("mode", ["run", "session"])
def test_f2_a_kill_suppresses_the_inbox_instead(name: str, mode: str) -> None:
    run = replace(RUNS[name], terms=terms(mode=mode))
    for driven in (False, True):
        effects = transition(run, killed(driven=driven)).effects
        assert fx.SuppressInbox() in effects
        assert fx.HandOver() not in effects
        assert fx.ReadOn() not in effects


def test_f2_a_run_whose_row_nobody_is_left_to_read_is_deferred_and_given_up() -> None:
    run = play(RUNS["announcing"], ev.RequesterLost(at=AT), *(came_due(at) for at in (1001.0, 1003.0, 1007.0)))
    assert run.phase == CleanupPending(OK, Undelivered("nobody is left to tell"), 0, 1007.0)


# ---- F3: a child without a row settles all the same ------------------------------------------------------------------

SILENT_ENDS: list[tuple[str, ev.Event]] = [
    ("spawning", ev.Withdrawn(at=AT, reason="no disk")),
    ("spawning", killed()),
    ("spawning", came_due(1030.0)),
    ("running", finished("skip")),
    ("running", finished("silent")),
    ("queued", killed()),
    ("waiting, final text", killed()),
    ("ending, stopping below", stopped()),
    ("ending, stopping below", came_due(1005.0)),
    ("running", finished()),
    ("running", broke(ev.Errored("no model"))),
    ("running, planning", finished()),
]


@proves(
    "2.nested.1", "A descendant settles for its parent in the commit that fixes its outcome or removes its reservation"
)
@pytest.mark.parametrize(("name", "event"), SILENT_ENDS)
def test_f3_every_end_settles_the_run_for_its_parent_once_in_that_commit(name: str, event: ev.Event) -> None:
    step = transition(RUNS[name], event)
    assert step.run.concluded
    assert step.effects.count(fx.CountDown()) == 1


@proves("2.nested.2", "It does so only once it has no unsettled descendants itself")
def test_f3_an_end_over_unsettled_children_settles_the_run_only_with_the_last_of_them() -> None:
    for event in (broke(ev.Errored("no model"), unsettled=1), killed(unsettled=1)):
        step = transition(RUNS["running"], event)
        assert fx.CountDown() not in step.effects
        assert transition(step.run, settled(unsettled=1)).effects == ()
        assert transition(step.run, settled(unsettled=0)).effects == (fx.CountDown(),)


# ---- F4: a missed wake-up --------------------------------------------------------------------------------------------


def test_f4_a_condition_that_holds_when_the_run_yields_wakes_it_at_once() -> None:
    for event in (yielded("all"), yielded("any", unsettled=1, settled=1, unread=1), yielded(3, unsettled=0)):
        step = transition(RUNS["running"], event)
        assert step.run.phase == Queued()
        assert step.effects == (fx.ReleaseDriver(), fx.Post("wake"), fx.Enqueue())


def test_f4_a_child_that_settles_during_a_sends_turn_wakes_the_run_when_that_turn_ends() -> None:
    run = play(RUNS["waiting, yielded"], ev.SendArrived(at=AT), CLAIM)
    assert transition(run, settled(unsettled=0, settled=2)).ignored == "nothing waits for it"
    step = transition(run, finished(unsettled=0, settled=2, unread=2))
    assert step.run.phase == Queued()
    assert (step.run.attempt, step.run.wakes) == (2, 1)


def test_f4_a_sends_turn_leaves_attempt_condition_and_deadline_as_they_were() -> None:
    run = play(RUNS["waiting, yielded"], ev.SendArrived(at=AT), CLAIM, finished(unsettled=2, settled=1))
    assert run.phase == YIELD_WAIT
    assert (run.attempt, run.fallback, run.wakes) == (1, None, 0)


def test_f4_a_crash_in_a_sends_turn_does_not_forget_the_condition() -> None:
    run = play(
        RUNS["running, serving"], lost(), CLAIM, faltered(), ev.AttemptStarted(at=AT, attempt=1, next_run_id="x")
    )
    assert run.phase == Running(due_at=1300.0, serving=YIELD_WAIT)


# ---- F5: kill and the stopping window --------------------------------------------------------------------------------


def test_f5_a_driven_run_keeps_driver_slot_and_place_until_the_kill_is_decided() -> None:
    step = transition(RUNS["running"], killed(driven=True))
    assert step.run.phase == Ending(1005.0, Stopping(named=True, may_win=True))
    assert step.effects == (fx.StopDriver(1005.0), fx.SuppressInbox())


@pytest.mark.parametrize(
    "event",
    [broke(ev.Errored("aborted")), broke(ev.RanOut()), stopped(), lost(), came_due(1005.0)],
)
def test_f5_no_end_but_a_complete_one_wins_and_the_kill_is_silent(event: ev.Event) -> None:
    step = transition(STOPPING, event)
    assert isinstance(step.run.phase, CleanupPending)
    assert step.run.phase.ended.outcome == Killed(named=True)
    assert step.run.phase.delivery == Skipped("suppressed")
    assert not any(isinstance(effect, fx.Announce) for effect in step.effects)


def test_f5_a_plan_does_not_win() -> None:
    assert transition(RUNS["ending, stopping planner"], finished()).run.phase == dead()


def test_f5_a_yield_in_the_window_is_not_an_end_that_wins_and_no_bug_either() -> None:
    step = transition(STOPPING, yielded(unsettled=1))
    assert step.ignored is not None or isinstance(step.run.phase, CleanupPending)


@pytest.mark.parametrize("name", ["ending, stopping named", "ending, stopping below"])
def test_f5_stopping_takes_no_send_no_steer_and_no_second_kill(name: str) -> None:
    run = RUNS[name]
    assert policy.refuse_send(run) is not None
    assert policy.refuse_steer(run, "go left", AT) is not None
    assert transition(run, ev.Steered(at=AT, next_run_id="run-2")) == ignored(run, "done")
    assert transition(run, killed(driven=True)) == ignored(run, "already stopping")


@pytest.mark.parametrize("agreed", [terms(), UNWAKEABLE], ids=["wakeable", "not wakeable"])
def test_f5_a_late_complete_is_announced_at_once_without_waiting_for_descendants(agreed: object) -> None:
    run = replace(STOPPING, terms=agreed)
    step = transition(run, finished(unsettled=1, unread=1))
    assert isinstance(step.run.phase, Announcing)
    assert step.run.phase.ended.outcome == Ok()
    assert step.effects == (fx.ReleaseDriver(), fx.SuppressInbox(), fx.Announce("outcome", "t-new"))


def test_f5_what_a_sends_turn_says_in_the_window_is_not_a_result() -> None:
    run = play(RUNS["waiting, yielded"], ev.SendArrived(at=AT), CLAIM, killed(driven=True))
    step = transition(run, finished(text="t-you-are-welcome", unsettled=1))
    assert fx.Announce("outcome", "t-you-are-welcome") not in step.effects
    assert isinstance(step.run.phase, CleanupPending)


@proves("2.kill.9")
def test_f5_a_crash_while_stopping_fences_the_lost_driver_off() -> None:
    step = transition(STOPPING, lost())
    assert isinstance(step.run.phase, CleanupPending)
    assert any(isinstance(effect, fx.SupersedeDriver) for effect in step.effects)


def test_f5_cleanup_hooks_and_settling_come_once_after_the_decision() -> None:
    first = transition(RUNS["running"], killed(driven=True))
    second = transition(first.run, stopped())
    for effect in (fx.CallHook("subagent_ended"), fx.CleanUp(), fx.CountDown()):
        assert (first.effects.count(effect), second.effects.count(effect)) == (0, 1)


# ---- F6: late completes below the killed run -------------------------------------------------------------------------


def test_f6_only_the_run_the_kill_named_can_win() -> None:
    step = transition(BELOW, finished())
    assert isinstance(step.run.phase, CleanupPending)
    assert step.run.phase.ended.outcome == Killed(named=False)
    assert not any(isinstance(effect, fx.Announce) for effect in step.effects)


def test_f6_a_late_complete_below_a_kill_stays_suppressed_for_ever() -> None:
    run = play(BELOW, stopped())
    assert transition(run, finished()) == ignored(run, "suppressed: below a kill")
    done = play(run, ev.CleanedUp(at=AT))
    assert transition(done, finished()) == ignored(done, "suppressed: below a kill")


# ---- F7: kill is one commit (what each run does in it) ---------------------------------------------------------------


@pytest.mark.parametrize("name", list(RUNS))
def test_f7_after_the_kill_commit_no_run_works_on_whatever_it_was_doing(name: str) -> None:
    for driven in (False, True):
        run = transition(RUNS[name], killed(named=False, driven=driven)).run
        stopping = isinstance(run.phase, Ending) and isinstance(run.phase.cause, Stopping)
        assert stopping or run.ended is not None or isinstance(run.phase, Gone)


def test_f7_a_reservation_is_killed_with_the_rest_and_settled() -> None:
    step = transition(RUNS["spawning"], killed(named=False))
    assert step == moved(RUNS["spawning"], Gone("killed"), fx.CountDown(), fx.Forget())


def test_f7_a_run_that_has_ended_keeps_its_row_but_not_its_inbox() -> None:
    run = RUNS["announcing"]
    assert transition(run, killed(named=False)) == moved(run, run.phase, fx.SuppressInbox())


# ---- F8: slots are held by drivers -----------------------------------------------------------------------------------

FREES = (fx.ReleaseDriver, fx.SupersedeDriver, fx.Enqueue, fx.Dequeue)


def test_f8_a_provisional_error_and_its_recovery_leave_driver_and_slot_alone() -> None:
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
def test_f8_a_superseded_driver_keeps_its_slot_until_it_exits_or_5_seconds(
    name: str, event: ev.Event, until: float
) -> None:
    effects = transition(RUNS[name], event).effects
    assert fx.SupersedeDriver(until) in effects
    assert fx.ReleaseDriver() not in effects


def test_f8_a_stopped_driver_keeps_its_slot_for_5_seconds() -> None:
    effects = transition(RUNS["running"], killed(driven=True)).effects
    assert [type(effect) for effect in effects if isinstance(effect, (*FREES, fx.StopDriver))] == [fx.StopDriver]
    assert fx.SupersedeDriver(1005.0) in transition(STOPPING, came_due(1005.0)).effects
