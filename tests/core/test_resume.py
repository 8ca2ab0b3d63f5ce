"""Resume: a killed run goes on in a new attempt; any other is refused with what to do instead."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core import policy
from fledge.core.lifecycle import transition
from fledge.core.run import Archived, CleanupPending, Killed, Queued, Run
from tests.core.samples import (
    AT,
    ATTEMPT_2,
    KEY,
    RUNS,
    SESSION,
    SUPPRESSED,
    UNWAKEABLE,
    ended,
    finished,
    ignored,
    killed,
    lost,
    moved,
    play,
    stopped,
    terms,
)
from tests.statements import proves

RESUME = ev.Resumed(at=AT, next_run_id="run-2", unsettled=0)
CLAIM = ev.Claimed(at=AT, epoch=9)
DEAD = RUNS["completed, killed"]
BEGIN = (fx.SupersedeDriver(1005.0), fx.CloseCalls("interrupted"), fx.Dequeue())


@proves("4.resume.1", "A killed run that is resumed goes on as a new attempt with a new run id, in the same session")
def test_a_killed_run_is_queued_again_as_a_new_attempt() -> None:
    begin = (*BEGIN, fx.CountUp(), fx.Post("resumed"), fx.Enqueue())
    assert transition(DEAD, RESUME) == moved(DEAD, Queued(), *begin, **ATTEMPT_2, started_at=None, resumes=1)


def test_its_clocks_start_anew_and_crashes_are_forgotten() -> None:
    limited = terms(timeout_s=60.0, queue_timeout_s=30.0)
    dead = replace(DEAD, terms=limited, deadline_at=950.0, crashes=2)
    queued = transition(dead, RESUME).run
    assert (queued.phase, queued.deadline_at, queued.crashes) == (Queued(due_at=1030.0), None, 0)
    running = play(queued, CLAIM)
    assert (running.started_at, running.deadline_at) == (AT, 1060.0)


def test_what_it_had_said_is_its_fallback_and_not_the_note_of_its_progress() -> None:
    assert transition(DEAD, replace(RESUME, text="t-so-far")).run.fallback == "t-so-far"
    before = replace(DEAD, fallback="t-before")
    assert transition(before, RESUME).run.fallback == "t-before"


@proves("4.resume.2", "A resumed run is unsettled for its parent again, and counted once")
def test_it_is_unsettled_again_unless_something_below_it_kept_it_so() -> None:
    assert transition(DEAD, RESUME).effects.count(fx.CountUp()) == 1
    step = transition(DEAD, replace(RESUME, unsettled=1))
    assert fx.CountUp() not in step.effects
    assert isinstance(step.run.phase, Queued)


@proves("4.resume.3", "Whatever the killed attempt still says after a resume counts for nothing")
@pytest.mark.parametrize("signal", [finished(), stopped(), lost()])
def test_a_signal_of_the_killed_attempt_counts_no_more(signal: ev.Event) -> None:
    for run in (play(DEAD, RESUME), play(DEAD, RESUME, CLAIM)):
        assert transition(run, signal) == ignored(run, "attempt 1, now 2")


@proves("4.resume.4", "What a resumed run says at its end is announced once, under its new run id")
def test_it_ends_like_any_other_and_is_announced_then() -> None:
    step = transition(play(DEAD, RESUME, CLAIM), replace(finished(), attempt=2))
    assert step.run.phase.name == "announcing"
    assert step.run.run_id == "run-2"
    assert step.effects.count(fx.Announce("outcome", "t-new")) == 1


def test_it_can_be_killed_and_resumed_again() -> None:
    again = play(play(DEAD, RESUME), killed(), ev.CleanedUp(at=AT), replace(RESUME, next_run_id="run-3"))
    assert (again.attempt, again.run_id, again.phase) == (3, "run-3", Queued())


def test_a_planner_plans_on() -> None:
    assert play(replace(DEAD, plan="planning", terms=terms(plan=True)), RESUME, CLAIM).plan == "planning"


# ---- refused ---------------------------------------------------------------------------------------------------------

IN_CLEANUP = replace(DEAD, phase=RUNS["cleanup, killed by name"].phase)
ARCHIVED = replace(DEAD, phase=Archived(ended(Killed(named=True)), SUPPRESSED, due_at=2600000.0))

REFUSED: dict[str, tuple[Run, str, str]] = {
    "live": (RUNS["running"], "done", "is running, not killed: steer it, or send it a message"),
    "a plan": (RUNS["awaiting approval"], "done", "is awaiting_approval, not killed: answer its plan"),
    "ok": (RUNS["completed"], "done", "was not killed, it ended (ok): send it a message, or run it again"),
    "failed": (RUNS["announcing an error"], "done", "was not killed, it ended (error): send it a message, or"),
    "timed out": (RUNS["completed, timed out"], "done", "was not killed, it ended (timeout): send it a message, or"),
    "stopping": (RUNS["ending, stopping named"], "error", "was killed and is stopping: try again in a moment"),
    "in cleanup": (IN_CLEANUP, "error", "is still being cleaned up: try again in a moment"),
    "archived": (ARCHIVED, "done", "is archived: run it again"),
    "deleted": (replace(DEAD, terms=terms(cleanup="delete")), "done", "cleanup delete, so its transcript is gone: run"),
    "session mode": (replace(DEAD, terms=SESSION), "done", "left its thread when it was killed: run it again"),
    "a runtime": (replace(DEAD, terms=UNWAKEABLE), "done", "has a runtime that cannot go on where it was stopped: run"),
}


@proves("4.resume.5", "Only a killed run whose session is kept can be resumed; a refusal says what to do instead")
@pytest.mark.parametrize("name", REFUSED)
def test_any_other_run_is_refused_with_what_to_do_instead(name: str) -> None:
    run, status, words = REFUSED[name]
    refusal = policy.refuse_resume(run, KEY)
    assert refusal is not None
    assert refusal.status == status
    assert words in refusal.reason
    assert transition(run, RESUME) == ignored(run, refusal.reason)


def test_cleanup_delete_is_refused_before_its_cleanup_is_done_too() -> None:
    assert isinstance(IN_CLEANUP.phase, CleanupPending)
    refusal = policy.refuse_resume(replace(IN_CLEANUP, terms=terms(cleanup="delete")), KEY)
    assert refusal is not None
    assert "transcript is gone" in refusal.reason
