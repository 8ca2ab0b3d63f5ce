"""Example runs and events: at least one of each phase and variant, at least one of each event.

The tests of the core and the generated `docs/lifecycle.md` share them. All runs are in attempt 1, so signals of attempt
1 count and signals of attempt 9 are old. `AT` lies between every sample's past and its future; `LATER` is past every
due time. Nothing here decides anything.
"""

from typing import Final

from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.effects import Step
from fledge.core.lifecycle import transition
from fledge.core.run import (
    AnnounceDeferred,
    Announcing,
    Archived,
    Asking,
    AwaitingApproval,
    CleanupPending,
    Completed,
    CompletedGiveup,
    DeferReason,
    Delivered,
    Delivery,
    Ended,
    Ending,
    Failed,
    Failing,
    Gone,
    Grace,
    Killed,
    Ok,
    Outcome,
    Phase,
    Queued,
    Retry,
    Run,
    Running,
    Skipped,
    Spawning,
    Stopping,
    Terms,
    TimedOut,
    Undelivered,
    Unknown,
    Waiting,
)

KEY: Final = "agent:main:subagent:w"
AT: Final = 1000.0
LATER: Final = 1e9
TERMS: Final = Terms(parent="agent:main:main")
FINAL_WAIT: Final = Waiting(until_settled=None, due_at=None, asked="final text")
YIELD_WAIT: Final = Waiting(until_settled=2, due_at=2000.0, asked="2")


def terms(**changed: object) -> Terms:
    """The usual terms, but for what is named."""
    return replace(TERMS, **changed)


def run_in(phase: Phase, **changed: object) -> Run:
    """A run in this phase that began at 900 (unless it cannot have), with what is named changed."""
    started = None if isinstance(phase, Spawning | Gone) else 900.0
    made = Run(key=KEY, terms=TERMS, run_id="run-1", phase=phase, version=7, started_at=started)
    return replace(made, **changed)


def ended(outcome: Outcome, result: str | None = "t-result", started_at: float | None = 900.0) -> Ended:
    """An outcome that was fixed at 950."""
    return Ended(outcome, started_at, 950.0, result)


def deferred(reason: DeferReason, tries: int = 0, due_at: float | None = 1500.0) -> AnnounceDeferred:
    """An announce postponed at 950, which expires 30 minutes later."""
    return AnnounceDeferred(ended(Ok()), reason, tries, since_at=950.0, expires_at=2750.0, due_at=due_at)


def moved(run: Run, phase: Phase, *effects: fx.Effect, **changed: object) -> Step:
    """The step that moves this run: one version on, the named fields changed, everything else as it was."""
    return Step(replace(run, phase=phase, version=run.version + 1, **changed), effects, None)


def ignored(run: Run, reason: str) -> Step:
    """The step that changes nothing."""
    return Step(run, (), reason)


# ---- runs ------------------------------------------------------------------------------------------------------------

WORKING: Final = Running(due_at=1200.0)
SERVING: Final = Running(due_at=1200.0, serving=YIELD_WAIT)
OK: Final = ended(Ok())
DELIVERED: Final = Delivered("direct")
SUPPRESSED: Final = Skipped("suppressed")
LOST: Final = Undelivered("no requester is left")

SESSION: Final = terms(mode="session")
PROGRAM: Final = terms(parent="program:p", program=True)
UNWAKEABLE: Final = terms(wakeable=False)
FIRE_AND_FORGET: Final = terms(expects=False)

RUNS: Final[dict[str, Run]] = {
    "spawning": run_in(Spawning(due_at=1030.0)),
    "queued": run_in(Queued(), started_at=None),
    "queued, limited": run_in(Queued(due_at=1060.0), started_at=None, terms=terms(queue_timeout_s=60.0)),
    "queued, deadline": run_in(Queued(), deadline_at=1500.0),
    "queued, serving": run_in(Queued(serving=YIELD_WAIT)),
    "queued, waits for its program": run_in(
        Queued(retry=Retry(1008.0, "it waits for its program", "program")), failing=Failing(990.0, 3)
    ),
    "queued, paused": run_in(Queued(retry=Retry(1008.0, "HTTP 429")), failing=Failing(990.0, 1)),
    "running": run_in(WORKING),
    "running, deadline": run_in(WORKING, deadline_at=1500.0),
    "running, told as stuck": run_in(Running(due_at=None)),
    "running, serving": run_in(SERVING),
    "running, serving a final wait": run_in(Running(due_at=1200.0, serving=FINAL_WAIT)),
    "running, planning": run_in(WORKING, plan="planning", terms=terms(plan=True)),
    "running, approved": run_in(WORKING, plan="approved", terms=terms(plan=True)),
    "running, not wakeable": run_in(WORKING, terms=UNWAKEABLE),
    "running, fallback": run_in(WORKING, fallback="t-before"),
    "running, crashed twice": run_in(WORKING, crashes=2),
    "running, paused before": run_in(WORKING, failing=Failing(990.0, 1)),
    "running, woken ten times": run_in(WORKING, wakes=10),
    "running, session mode": run_in(WORKING, terms=SESSION),
    "running, for a program": run_in(WORKING, terms=PROGRAM),
    "running, fire and forget": run_in(WORKING, terms=FIRE_AND_FORGET),
    "waiting, final text": run_in(FINAL_WAIT, fallback="t-before"),
    "waiting, yielded": run_in(YIELD_WAIT),
    "asking": run_in(Asking(due_at=1500.0)),
    "asking, with time left": run_in(Asking(due_at=1500.0, left_s=60.0)),
    "asking, serving": run_in(Asking(due_at=1500.0, serving=YIELD_WAIT)),
    "waiting, deadline": run_in(FINAL_WAIT, deadline_at=1500.0),
    "waiting, woken ten times": run_in(YIELD_WAIT, wakes=10),
    "ending, grace": run_in(Ending(1015.0, Grace("overloaded", False, WORKING))),
    "ending, grace after an abort": run_in(Ending(1015.0, Grace("aborted", True, WORKING))),
    "ending, grace while serving": run_in(Ending(1015.0, Grace("overloaded", False, SERVING))),
    "ending, grace with a deadline": run_in(Ending(1015.0, Grace("overloaded", False, WORKING)), deadline_at=1010.0),
    "ending, stopping named": run_in(Ending(1005.0, Stopping(named=True, may_win=True))),
    "ending, stopping below": run_in(Ending(1005.0, Stopping(named=False))),
    "ending, stopping planner": run_in(Ending(1005.0, Stopping(named=True)), plan="planning"),
    "announcing": run_in(Announcing(OK)),
    "announcing an error": run_in(Announcing(ended(Failed("no model"), None))),
    "announcing a timeout": run_in(Announcing(ended(TimedOut(), "t-partial"))),
    "announcing the unknown": run_in(Announcing(ended(Unknown(), None))),
    "announcing to a program": run_in(Announcing(OK, due_at=2750.0), terms=PROGRAM),
    "deferred, descendants-active": run_in(deferred("descendants-active", due_at=None), terms=UNWAKEABLE),
    "deferred, missing-requester": run_in(deferred("missing-requester", tries=1)),
    "deferred, missing-requester for long": run_in(deferred("missing-requester", tries=3)),
    "awaiting approval": run_in(AwaitingApproval(due_at=87400.0, plan="t-plan"), plan="planning"),
    "cleanup, delivered": run_in(CleanupPending(OK, DELIVERED, tries=0, due_at=960.0)),
    "cleanup, failed and delivered": run_in(CleanupPending(ended(Failed("no model"), None), DELIVERED, 2, 960.0)),
    "cleanup, killed by name": run_in(CleanupPending(ended(Killed(named=True), None), SUPPRESSED, 0, 960.0)),
    "cleanup, killed from above": run_in(CleanupPending(ended(Killed(named=False), None), SUPPRESSED, 0, 960.0)),
    "cleanup, undelivered": run_in(CleanupPending(OK, LOST, tries=0, due_at=960.0)),
    "completed": run_in(Completed(OK, DELIVERED, settled_at=970.0, due_at=4570.0)),
    "completed, timed out": run_in(Completed(ended(TimedOut(), "t-partial"), DELIVERED, 970.0, 4570.0)),
    "completed, skipped": run_in(Completed(ended(Ok(), None), Skipped("announce-skip"), 970.0, 4570.0)),
    "completed, killed": run_in(Completed(ended(Killed(named=True), "t-partial"), SUPPRESSED, 970.0, 4570.0)),
    "completed, its requester killed": run_in(Completed(OK, SUPPRESSED, 970.0, 4570.0)),
    "cleanup, its requester killed": run_in(CleanupPending(OK, SUPPRESSED, 0, 960.0)),
    "completed_giveup, timed out": run_in(
        CompletedGiveup(ended(TimedOut(), "t-partial"), LOST, settled_at=970.0, due_at=605770.0)
    ),
    "completed, session mode": run_in(Completed(OK, DELIVERED, 970.0, None), terms=SESSION),
    "completed_giveup": run_in(CompletedGiveup(OK, LOST, settled_at=970.0, due_at=605770.0)),
    "archived": run_in(Archived(OK, DELIVERED, due_at=2600000.0)),
    "archived, its session kept for less": run_in(Archived(OK, DELIVERED, due_at=1600000.0, forget_at=2600000.0)),
    "archived, failed": run_in(Archived(ended(Failed("no model"), None), DELIVERED, due_at=2600000.0)),
    "gone": run_in(Gone("killed")),
}


# ---- events ----------------------------------------------------------------------------------------------------------


def finished(said: ev.Said = "text", text: str | None = "t-new", at: float = AT, **facts: int) -> ev.AttemptEnded:
    """The attempt's final reply."""
    return ev.AttemptEnded(
        at=at, attempt=1, next_run_id="run-2", end=ev.Finished(said, text if said == "text" else None), **facts
    )


def broke(end: ev.Errored | ev.RanOut, at: float = AT, **facts: int) -> ev.AttemptEnded:
    """The attempt's end without a reply."""
    return ev.AttemptEnded(at=at, attempt=1, next_run_id="run-2", end=end, **facts)


def started(at: float = AT, attempt: int = 1) -> ev.AttemptStarted:
    """The executor began, or began again."""
    return ev.AttemptStarted(at=at, attempt=attempt, next_run_id="run-2")


def faltered(error: str = "overloaded", aborted: bool = False, at: float = AT) -> ev.AttemptFaltered:
    """A provisional error."""
    return ev.AttemptFaltered(at=at, attempt=1, next_run_id="run-2", error=error, aborted=aborted)


def stopped(at: float = AT, **facts: int) -> ev.DriverStopped:
    """The driver acknowledged."""
    return ev.DriverStopped(at=at, attempt=1, next_run_id="run-2", **facts)


def lost(step_open: bool = True, at: float = AT, **facts: int) -> ev.LeaseLost:
    """The driver is gone without an end."""
    return ev.LeaseLost(at=at, attempt=1, next_run_id="run-2", step_open=step_open, **facts)


def yielded(asked: ev.YieldCondition = "all", wait_s: float = 1800.0, at: float = AT, **facts: int) -> ev.Yielded:
    """The turn ended on a yield."""
    return ev.Yielded(at=at, attempt=1, next_run_id="run-2", asked=asked, wait_s=wait_s, **facts)


def settled(unsettled: int = 0, settled: int = 1, at: float = AT) -> ev.ChildrenSettled:
    """Another child has settled."""
    return ev.ChildrenSettled(at=at, unsettled=unsettled, settled=settled, next_run_id="run-2")


def killed(
    named: bool = True, driven: bool = False, unsettled: int = 0, partial: str | None = None, at: float = AT
) -> ev.KillOrdered:
    """A kill reached the run."""
    return ev.KillOrdered(at=at, named=named, driven=driven, unsettled=unsettled, partial=partial)


def came_due(at: float = LATER, **facts: object) -> ev.CameDue:
    """Time passed."""
    return replace(ev.CameDue(at=at, next_run_id="run-2"), **facts)


SAMPLE_EVENTS: Final[tuple[ev.Event, ...]] = (
    ev.Admitted(at=AT, key=KEY, terms=TERMS, run_id="run-1"),
    ev.Admitted(at=AT, key=KEY, terms=terms(plan=True), run_id="run-1"),
    ev.Prepared(at=AT),
    ev.Imported(at=AT, ended=Ended(Ok(), AT - 60.0, AT - 30.0, "text-1")),
    ev.Withdrawn(at=AT, reason="no disk"),
    ev.Claimed(at=AT, epoch=4),
    started(),
    started(attempt=9),
    finished(),
    finished("empty"),
    finished("silent"),
    finished("skip"),
    finished(unsettled=1),
    finished(unsettled=1, messages=1),
    finished(unsettled=2, settled=2),
    finished(unread=1),
    finished("silent", unread=1),
    broke(ev.Errored("no model")),
    broke(ev.Errored("tokens 100 of 100", cause="budget", partial="t-partial"), unsettled=1),
    broke(ev.RanOut("t-partial")),
    faltered(),
    faltered("aborted", aborted=True),
    stopped(),
    stopped(unsettled=1),
    lost(),
    lost(step_open=False),
    ev.Progressed(at=AT),
    yielded(),
    yielded("any", unsettled=2, settled=1),
    yielded(2, unsettled=2, messages=1),
    ev.PersonAsked(at=AT, attempt=1, due_at=1500.0),
    ev.PersonAnswered(at=AT),
    ev.Paused(at=AT, attempt=1, until_at=1008.0, since_at=990.0, reason="HTTP 429"),
    settled(),
    settled(unsettled=1, settled=2),
    settled(unsettled=1, settled=0),
    ev.ProgramCame(at=AT),
    ev.SendArrived(at=AT),
    ev.Steered(at=AT, next_run_id="run-2"),
    ev.Steered(at=AT, next_run_id="run-2", text="t-so-far"),
    ev.Resumed(at=AT, next_run_id="run-2", unsettled=0),
    ev.Revived(at=AT),
    killed(),
    killed(driven=True),
    killed(named=False, driven=True),
    killed(named=False, unsettled=1, partial="t-partial"),
    ev.PlanApproved(at=AT, next_run_id="run-2"),
    ev.PlanRejected(at=AT, next_run_id="run-2"),
    ev.RowConsumed(at=AT, row="outcome", path="direct"),
    ev.RowConsumed(at=AT, row="plan", path="queued"),
    ev.RowConsumed(at=AT, row="expired", path="queued"),
    ev.RowConsumed(at=AT, row="late", path="steered"),
    ev.RowSuppressed(at=AT),
    ev.RequesterLost(at=AT),
    ev.HandedToProgram(at=AT),
    ev.Retried(at=AT),
    ev.Dismissed(at=AT),
    ev.Removed(at=AT),
    ev.Removed(at=AT, held_by="1 unread or undelivered"),
    ev.CleanedUp(at=AT),
    ev.CleanupFailed(at=AT, error="the folder is busy"),
    came_due(at=0.0),
    came_due(),
    came_due(unsettled=1, partial="t-partial"),
    came_due(progress_at=LATER - 1.0),
    came_due(reachable=True),
    came_due(paused=True),
    came_due(held_by="1 unread or undelivered"),
)


def play(run: Run, *events: ev.Event) -> Run:
    """The run after all of these, none of which may be ignored."""
    for event in events:
        step = transition(run, event)
        assert step.ignored is None, (event, step.ignored)
        run = step.run
    return run


# ---- rows of transition tables ---------------------------------------------------------------------------------------

Changed = dict[str, object]
Row = tuple[Run, ev.Event, Phase, tuple[fx.Effect, ...], Changed]
"""A run, what happens to it, the phase and the effects that follow, and which other fields change."""

ATTEMPT_2: Final[Changed] = {"attempt": 2, "run_id": "run-2"}
WOKEN: Final[Changed] = {**ATTEMPT_2, "wakes": 1}

KILL: Final = (fx.Dequeue(), fx.CloseCalls("killed"), fx.WithdrawPlan(), fx.SuppressInbox())
CLEAN: Final = (fx.CallHook("subagent_ended"), fx.CleanUp())
BROKEN: Final = (fx.Dequeue(), fx.CloseCalls("interrupted"), fx.HandOver())
TOLD: Final = (fx.Announce("outcome", None), fx.CountDown())


def dead(named: bool = True, result: str | None = None, at: float = AT, started_at: float | None = 900.0) -> Phase:
    """Where a decided kill leads."""
    return CleanupPending(Ended(Killed(named), started_at, at, result), SUPPRESSED, tries=0, due_at=at)


def cleaning(result: Ended, delivery: Delivery, at: float = AT) -> Phase:
    """Where a decided delivery leads."""
    return CleanupPending(result, delivery, tries=0, due_at=at)


def failed(error: str, at: float = AT, started_at: float | None = 900.0) -> Phase:
    """An announced error."""
    return Announcing(Ended(Failed(error), started_at, at))


def timed_out(at: float, result: str | None = "t-partial") -> Phase:
    """An announced timeout."""
    return Announcing(Ended(TimedOut(), 900.0, at, result))
