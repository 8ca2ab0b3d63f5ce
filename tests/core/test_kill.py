"""A kill: the stopping window, late completes below it, and one commit for the whole tree."""

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
    Skipped,
    Stopping,
)
from tests.core.samples import (
    AT,
    KEY,
    RUNS,
    UNWAKEABLE,
    broke,
    came_due,
    dead,
    finished,
    ignored,
    killed,
    lost,
    moved,
    play,
    stopped,
    terms,
    yielded,
)
from tests.statements import proves

CLAIM = ev.Claimed(at=AT, epoch=9)


STOPPING = RUNS["ending, stopping named"]


BELOW = RUNS["ending, stopping below"]


# ---- kill and the stopping window ------------------------------------------------------------------------------------


def test_a_driven_run_keeps_driver_slot_and_place_until_the_kill_is_decided() -> None:
    step = transition(RUNS["running"], killed(driven=True))
    assert step.run.phase == Ending(1005.0, Stopping(named=True, may_win=True))
    assert step.effects == (fx.StopDriver(1005.0), fx.SuppressInbox())


@pytest.mark.parametrize(
    "event",
    [broke(ev.Errored("aborted")), broke(ev.RanOut()), stopped(), lost(), came_due(1005.0)],
)
def test_no_end_but_a_complete_one_wins_and_the_kill_is_silent(event: ev.Event) -> None:
    step = transition(STOPPING, event)
    assert isinstance(step.run.phase, CleanupPending)
    assert step.run.phase.ended.outcome == Killed(named=True)
    assert step.run.phase.delivery == Skipped("suppressed")
    assert not any(isinstance(effect, fx.Announce) for effect in step.effects)


def test_a_plan_does_not_win() -> None:
    assert transition(RUNS["ending, stopping planner"], finished()).run.phase == dead()


def test_a_yield_in_the_window_is_not_an_end_that_wins_and_no_bug_either() -> None:
    step = transition(STOPPING, yielded(unsettled=1))
    assert step.ignored is not None or isinstance(step.run.phase, CleanupPending)


@pytest.mark.parametrize("name", ["ending, stopping named", "ending, stopping below"])
def test_stopping_takes_no_send_no_steer_and_no_second_kill(name: str) -> None:
    run = RUNS[name]
    assert policy.refuse_send(run, KEY) is not None
    assert policy.refuse_steer(run, KEY, "go left", AT) is not None
    assert transition(run, ev.Steered(at=AT, next_run_id="run-2")) == ignored(run, "done")
    assert transition(run, killed(driven=True)) == ignored(run, "already stopping")


@pytest.mark.parametrize("agreed", [terms(), UNWAKEABLE], ids=["wakeable", "not wakeable"])
def test_a_late_complete_is_announced_at_once_without_waiting_for_descendants(agreed: object) -> None:
    run = replace(STOPPING, terms=agreed)
    step = transition(run, finished(unsettled=1, unread=1))
    assert isinstance(step.run.phase, Announcing)
    assert step.run.phase.ended.outcome == Ok()
    assert step.effects == (fx.ReleaseDriver(), fx.SuppressInbox(), fx.Announce("outcome", "t-new"))


def test_what_a_sends_turn_says_in_the_window_is_not_a_result() -> None:
    run = play(RUNS["waiting, yielded"], ev.SendArrived(at=AT), CLAIM, killed(driven=True))
    step = transition(run, finished(text="t-you-are-welcome", unsettled=1))
    assert fx.Announce("outcome", "t-you-are-welcome") not in step.effects
    assert isinstance(step.run.phase, CleanupPending)


@proves("2.kill.9")
def test_a_crash_while_stopping_fences_the_lost_driver_off() -> None:
    step = transition(STOPPING, lost())
    assert isinstance(step.run.phase, CleanupPending)
    assert any(isinstance(effect, fx.SupersedeDriver) for effect in step.effects)


def test_cleanup_hooks_and_settling_come_once_after_the_decision() -> None:
    first = transition(RUNS["running"], killed(driven=True))
    second = transition(first.run, stopped())
    for effect in (fx.CallHook("subagent_ended"), fx.CleanUp(), fx.CountDown()):
        assert (first.effects.count(effect), second.effects.count(effect)) == (0, 1)


# ---- late completes below the killed run -----------------------------------------------------------------------------


def test_only_the_run_the_kill_named_can_win() -> None:
    step = transition(BELOW, finished())
    assert isinstance(step.run.phase, CleanupPending)
    assert step.run.phase.ended.outcome == Killed(named=False)
    assert not any(isinstance(effect, fx.Announce) for effect in step.effects)


def test_a_late_complete_below_a_kill_stays_suppressed_for_ever() -> None:
    run = play(BELOW, stopped())
    assert transition(run, finished()) == ignored(run, "suppressed: below a kill")
    done = play(run, ev.CleanedUp(at=AT))
    assert transition(done, finished()) == ignored(done, "suppressed: below a kill")


# ---- kill is one commit (what each run does in it) -------------------------------------------------------------------


@pytest.mark.parametrize("name", list(RUNS))
def test_after_the_kill_commit_no_run_works_on_whatever_it_was_doing(name: str) -> None:
    for driven in (False, True):
        run = transition(RUNS[name], killed(named=False, driven=driven)).run
        stopping = isinstance(run.phase, Ending) and isinstance(run.phase.cause, Stopping)
        assert stopping or run.ended is not None or isinstance(run.phase, Gone)


def test_a_reservation_is_killed_with_the_rest_and_settled() -> None:
    step = transition(RUNS["spawning"], killed(named=False))
    assert step == moved(RUNS["spawning"], Gone("killed"), fx.CountDown(), fx.Forget())


def test_a_run_that_has_ended_keeps_its_row_but_not_its_inbox() -> None:
    run = RUNS["announcing"]
    assert transition(run, killed(named=False)) == moved(run, run.phase, fx.SuppressInbox())
