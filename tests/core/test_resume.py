"""Resume: a run that was killed, failed or timed out goes on in a new attempt; any other is refused with what to do
instead."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core import policy
from fledge.core.lifecycle import transition
from fledge.core.run import (
    Announcing,
    Archived,
    CleanupPending,
    Completed,
    CompletedGiveup,
    Failed,
    Killed,
    Outcome,
    Queued,
    Run,
    TimedOut,
)
from tests.core.samples import (
    AT,
    ATTEMPT_2,
    DELIVERED,
    KEY,
    LOST,
    OK,
    PROGRAM,
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
    run_in,
    stopped,
    terms,
)
from tests.statements import proves

RESUME = ev.Resumed(at=AT, next_run_id="run-2", unsettled=0)
CLAIM = ev.Claimed(at=AT, epoch=9)
DEAD = RUNS["completed, killed"]
BEGIN = (fx.SupersedeDriver(1005.0), fx.CloseCalls("interrupted"), fx.Dequeue())


@proves("4.resume.1", "A run that is resumed goes on as a new attempt with a new run id, in the same session")
def test_a_killed_run_is_queued_again_as_a_new_attempt() -> None:
    begin = (*BEGIN, fx.CountUp(), fx.ReviveInbox(), fx.Enqueue())
    assert transition(DEAD, RESUME) == moved(DEAD, Queued(), *begin, **ATTEMPT_2, started_at=None, resumes=1)


def phased(phase: str, outcome: Outcome) -> Run:
    end = ended(outcome, "t-partial")
    if phase == "completed":
        return run_in(Completed(end, DELIVERED, 970.0, 4570.0), deadline_at=940.0, crashes=2)
    return run_in(CompletedGiveup(end, LOST, 970.0, 605770.0), deadline_at=940.0, crashes=2)


@proves(
    "4.resume.13", "A run that failed or timed out is resumed as a killed one is; an undelivered result is dismissed"
)
@pytest.mark.parametrize("outcome", [Killed(named=True), Killed(named=False), Failed("no model"), TimedOut()])
@pytest.mark.parametrize("phase", ["completed", "completed_giveup"])
def test_a_run_that_did_not_end_well_goes_on_with_clocks_and_counts_at_their_start(
    phase: str, outcome: Outcome
) -> None:
    run = phased(phase, outcome)
    step = transition(run, RESUME)
    assert (step.run.phase, step.run.attempt, step.run.run_id) == (Queued(), 2, "run-2")
    assert (step.run.started_at, step.run.deadline_at, step.run.crashes) == (None, None, 0)
    assert (fx.DismissRow() in step.effects) is (phase == "completed_giveup")
    assert fx.ReviveInbox() in step.effects
    # What the first end announced stays as it is: nothing of it is announced again.
    assert not any(isinstance(effect, fx.Announce | fx.ReviveRow) for effect in step.effects)


@proves("4.resume.14", "What a kill suppressed is announced again when the killed requester is resumed, and once")
@pytest.mark.parametrize("name", ["completed, its requester killed", "cleanup, its requester killed"])
def test_a_result_that_a_kill_suppressed_is_announced_again(name: str) -> None:
    run = RUNS[name]
    assert transition(run, ev.Revived(at=AT)) == moved(run, Announcing(OK))
    program = replace(run, terms=PROGRAM)
    assert transition(program, ev.Revived(at=AT)).run.phase == Announcing(OK, due_at=AT + 1800.0)
    read = play(run, ev.Revived(at=AT), ev.RowConsumed(at=AT, row="outcome", path="direct"), ev.CleanedUp(at=AT))
    assert (read.phase.name, read.delivery) == ("completed", DELIVERED)


@pytest.mark.parametrize(
    "name", sorted(RUNS.keys() - {"completed, its requester killed", "cleanup, its requester killed"})
)
def test_any_other_result_is_not_announced_again(name: str) -> None:
    run = RUNS[name]
    assert transition(run, ev.Revived(at=AT)) == ignored(run, "its result was not suppressed")


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
THREADED = replace(RUNS["completed, timed out"], terms=SESSION)
ARCHIVED = replace(DEAD, phase=Archived(ended(Killed(named=True)), SUPPRESSED, due_at=2600000.0))

REFUSED: dict[str, tuple[Run, str, str]] = {
    "live": (RUNS["running"], "done", "is running and has not ended: steer it, or send it a message"),
    "a plan": (RUNS["awaiting approval"], "done", "is awaiting_approval and has not ended: answer its plan"),
    "ok": (RUNS["completed"], "done", "has ended (ok): send it a message, or run it again"),
    "unknown": (RUNS["announcing the unknown"], "done", "has ended (unknown): send it a message, or run it again"),
    "unread": (RUNS["announcing an error"], "error", "its result is still unread: try again once it is read"),
    "open thread": (THREADED, "done", "is still open in its thread: send it a message there"),
    "stopping": (RUNS["ending, stopping named"], "error", "was killed and is stopping: try again in a moment"),
    "in cleanup": (IN_CLEANUP, "error", "is still being cleaned up: try again in a moment"),
    "archived": (ARCHIVED, "done", "is archived: run it again"),
    "deleted": (replace(DEAD, terms=terms(cleanup="delete")), "done", "cleanup delete, so its transcript is gone: run"),
    "session mode": (replace(DEAD, terms=SESSION), "done", "left its thread when it was killed: run it again"),
    "a runtime": (replace(DEAD, terms=UNWAKEABLE), "done", "has a runtime that cannot go on where it was stopped: run"),
}


@proves(
    "4.resume.5",
    "A run that is live, ended well or lost its session is not resumed; the refusal says what to do instead",
)
@pytest.mark.parametrize("name", REFUSED)
def test_any_other_run_is_refused_with_what_to_do_instead(name: str) -> None:
    run, status, words = REFUSED[name]
    refusal = policy.refuse_resume(run, KEY)
    assert refusal is not None
    assert refusal.status == status
    assert words in refusal.reason
    assert transition(run, RESUME) == ignored(run, refusal.reason)


def test_a_refusal_names_the_run_as_people_do() -> None:
    for run, _, words in REFUSED.values():
        refusal = policy.refuse_resume(run, "AI Research")
        assert refusal is not None
        assert refusal.reason.startswith("AI Research ")
        assert words in refusal.reason
        assert run.key not in refusal.reason


def test_cleanup_delete_is_refused_before_its_cleanup_is_done_too() -> None:
    assert isinstance(IN_CLEANUP.phase, CleanupPending)
    refusal = policy.refuse_resume(replace(IN_CLEANUP, terms=terms(cleanup="delete")), KEY)
    assert refusal is not None
    assert "transcript is gone" in refusal.reason
