"""How a run lives: the one function that changes phases.

`transition(run, event)` moves the run and says what that asks of the world, or ignores the event with a reason, or
raises `IllegalTransition` where only a bug of ours could have produced it. Nothing else assigns a phase. It knows no
clock, no store and no other run: facts about those arrive on the event.

Read it from the top: birth, then one function per event, in the order of a life; the table at the end says which. The
decisions after a signal that an attempt is over stand in `reconcile`, those after an outcome is fixed in `closing`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, assert_never, get_args

from msgspec.structs import replace

from fledge.core import closing, policy, reconcile
from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.effects import Step, ignore, move, next_attempt
from fledge.core.run import (
    ENDED,
    AnnounceDeferred,
    Announcing,
    Archived,
    Asking,
    AwaitingApproval,
    CleanupPending,
    Completed,
    CompletedGiveup,
    Ending,
    Failing,
    Gone,
    Grace,
    Instant,
    Queued,
    Retry,
    Run,
    Running,
    Skipped,
    Spawning,
    Stopping,
    Waiting,
)
from fledge.errors import IllegalTransition


def born(event: ev.Admitted) -> Run:
    """The run as it stands right after admission."""
    return Run(
        key=event.key,
        terms=event.terms,
        run_id=event.run_id,
        phase=Spawning(due_at=event.at + policy.RESERVATION_S, owner=event.owner),
        plan="planning" if event.terms.plan else "none",
    )


def states(events: Iterable[ev.Event]) -> Iterator[tuple[Instant, Run]]:
    """The run after each event of a timeline, with the event's time."""
    timeline = iter(events)
    first = next(timeline)
    if not isinstance(first, ev.Admitted):
        raise ValueError(f"a timeline starts with Admitted, not {type(first).__name__}")
    run = born(first)
    yield first.at, run
    for event in timeline:
        run = transition(run, event).run
        yield event.at, run


def replay(events: Iterable[ev.Event]) -> Run:
    """The fold of a timeline: the run its events make."""
    return list(states(events))[-1][1]


def transition(run: Run, event: ev.Event) -> Step:
    """The run after the event, and what that asks of the world."""
    return _DECIDED_BY[type(event)](run, event)


def _admitted(run: Run, event: ev.Admitted) -> Step:
    """A run is born once, by `born`."""
    raise IllegalTransition(run, event)


# ---- spawning --------------------------------------------------------------------------------------------------------


def _prepared(run: Run, event: ev.Prepared) -> Step:
    if not isinstance(run.phase, Spawning):
        raise IllegalTransition(run, event)
    return move(run, _queued(run, event.at), fx.Post("task"), fx.Enqueue(), fx.CallHook("subagent_spawned"))


def _imported(run: Run, event: ev.Imported) -> Step:
    """It is not announced: that was the other system's task."""
    if not isinstance(run.phase, Spawning):
        raise IllegalTransition(run, event)
    run = replace(run, started_at=event.ended.started_at, plan="none")
    return move(run, closing.completed(run, event.ended, Skipped("suppressed"), event.at), fx.CountDown())


def _queued(run: Run, at: Instant) -> Queued:
    """Queue time has its own limit, for runs that never ran."""
    limited = run.terms.queue_timeout_s > 0 and run.started_at is None
    return Queued(due_at=at + run.terms.queue_timeout_s if limited else None)


def _withdrawn(run: Run, event: ev.Withdrawn) -> Step:
    if not isinstance(run.phase, Spawning):
        return ignore(run, "already accepted")
    return move(run, Gone(event.reason), fx.CountDown(), fx.Forget())


# ---- running ---------------------------------------------------------------------------------------------------------


def _claimed(run: Run, event: ev.Claimed) -> Step:
    phase, terms, at = run.phase, run.terms, event.at
    if not isinstance(phase, Queued):
        raise IllegalTransition(run, event)
    deadline = run.deadline_at
    if deadline is None and terms.timeout_s > 0:
        deadline = at + terms.timeout_s
    run = replace(run, started_at=at if run.started_at is None else run.started_at, deadline_at=deadline)
    return move(run, reconcile.running(run, at, phase.serving))


def _progressed(run: Run, event: ev.Progressed) -> Step:
    if not isinstance(run.phase, Running):
        raise IllegalTransition(run, event)
    if not run.crashes and run.failing is None:
        return ignore(run, "no crash and no pause is counted")
    return move(replace(run, crashes=0, failing=None), run.phase)


def _paused(run: Run, event: ev.Paused) -> Step:
    phase = run.phase
    if not isinstance(phase, Running) or event.attempt != run.attempt:
        raise IllegalTransition(run, event)
    pauses = 1 if run.failing is None else run.failing.pauses + 1
    queued = Queued(serving=phase.serving, retry=Retry(event.until_at, event.reason, event.waits_for))
    run = replace(run, failing=Failing(event.since_at, pauses))
    return move(run, queued, fx.FreeDriver(), fx.Enqueue(event.until_at))


def _program_came(run: Run, event: ev.ProgramCame) -> Step:
    """Its next pause, if it ever pauses again, is a first one."""
    match run.phase:
        case Queued(retry=Retry(waits_for="program")) as paused:
            return move(replace(run, failing=None), replace(paused, retry=None), fx.Enqueue())
        case _:
            return ignore(run, "it does not wait for a program")


def _yielded(run: Run, event: ev.Yielded) -> Step:
    match run.phase:
        case Ending(cause=Stopping(named=named)):
            # Only a complete end can win over a kill; any other acknowledges it.
            return closing.kill_now(run, event.at, named, event.unsettled, fx.ReleaseDriver())
        case Running() if event.attempt == run.attempt:
            pass
        case _:
            raise IllegalTransition(run, event)
    refusal = policy.refuse_wait(run.wakes, event.unsettled)
    if refusal is not None:
        return ignore(run, refusal.reason)
    until = policy.wait_until(event.asked, event.unsettled, event.settled, event.unread)
    due_at = event.at + event.wait_s
    if run.deadline_at is not None:
        due_at = min(due_at, run.deadline_at)
    return reconcile.wait(run, Waiting(until, due_at, str(event.asked)), event, "all")


# ---- waiting ---------------------------------------------------------------------------------------------------------


def _person_asked(run: Run, event: ev.PersonAsked) -> Step:
    phase, at = run.phase, event.at
    if not isinstance(phase, Running) or event.attempt != run.attempt:
        raise IllegalTransition(run, event)
    left_s = None if run.deadline_at is None else run.deadline_at - at
    asking = Asking(due_at=event.due_at, left_s=left_s, serving=phase.serving)
    return move(replace(run, deadline_at=None), asking, fx.FreeDriver())


def _person_answered(run: Run, event: ev.PersonAnswered) -> Step:
    if not isinstance(run.phase, Asking):
        return ignore(run, "it waits for no approval")
    return _go_on(run, run.phase, event.at)


def _go_on(run: Run, asking: Asking, at: Instant) -> Step:
    """The same attempt goes on where it stood; its clock runs again."""
    deadline = None if asking.left_s is None else at + asking.left_s
    return move(replace(run, deadline_at=deadline), Queued(serving=asking.serving), fx.Enqueue())


def _children_settled(run: Run, event: ev.ChildrenSettled) -> Step:
    match run.phase:
        case Waiting(until_settled=until) if policy.holds(until, event.unsettled, event.settled):
            if run.wakes >= policy.MAX_WAKES and event.unsettled:
                return ignore(run, f"woken {run.wakes} times: only when all below have settled")
            return reconcile.woken(run, event.next_run_id, "wake")
        case AnnounceDeferred(reason="descendants-active") as phase if event.unsettled == 0:
            announcing = Announcing(phase.ended, closing.program_due(run, event.at))
            return move(run, announcing, fx.Announce("outcome", phase.ended.result), fx.CountDown())
        case _ if run.concluded and event.unsettled == 0:
            return move(run, run.phase, fx.CountDown())
        case _:
            return ignore(run, "nothing waits for it")


def _send_arrived(run: Run, event: ev.SendArrived) -> Step:
    match run.phase:
        case Waiting() as waiting:
            return move(run, Queued(serving=waiting), fx.Enqueue())
        case Queued(retry=Retry()) as paused:
            return move(run, replace(paused, retry=None), fx.Enqueue())
        case Queued() | Running() | Asking() | Ending(cause=Grace()) | AwaitingApproval():
            return ignore(run, "joins at the next step boundary")
        case phase if isinstance(phase, ENDED):
            return ignore(run, "answered by a turn of its own")
        case _:
            raise IllegalTransition(run, event)


# ---- control ---------------------------------------------------------------------------------------------------------


def _steered(run: Run, event: ev.Steered) -> Step:
    if not policy.steerable(run):
        return ignore(run, "done")
    run = replace(
        next_attempt(run, event.next_run_id),
        fallback=event.text or run.fallback,
        deadline_at=None,
        steered_at=event.at,
    )
    until = event.at + reconcile.STOP_S
    phase = _queued(run, event.at)
    return move(run, phase, fx.SupersedeDriver(until), fx.CloseCalls("interrupted"), fx.Enqueue())


def _resumed(run: Run, event: ev.Resumed) -> Step:
    """An ended run goes on in a new attempt. Its clocks start anew: the time in which it was dead is no runtime. What
    it announced stays as it is; an undelivered result is dismissed, and the new attempt announces its own end."""
    phase, refusal = run.phase, policy.refuse_resume(run, run.key)
    if refusal is not None:
        return ignore(run, refusal.reason)
    run = replace(
        next_attempt(run, event.next_run_id),
        fallback=event.text or run.fallback,
        started_at=None,
        deadline_at=None,
        crashes=0,
        resumes=run.resumes + 1,
    )
    dismiss = (fx.DismissRow(),) if isinstance(phase, CompletedGiveup) else ()
    # Descendants that are alive, or killed and still stopping, keep it unsettled all the while.
    up = () if event.unsettled else (fx.CountUp(),)
    until = event.at + reconcile.STOP_S
    begin = (*dismiss, fx.Dequeue(), *up, fx.ReviveInbox(), fx.Enqueue())
    return move(run, _queued(run, event.at), fx.SupersedeDriver(until), fx.CloseCalls("interrupted"), *begin)


def _kill_ordered(run: Run, event: ev.KillOrdered) -> Step:
    match run.phase:
        case Spawning():
            return move(run, Gone("killed"), fx.CountDown(), fx.Forget())
        case Ending(cause=Stopping()):
            return ignore(run, "already stopping")
        case Gone() | Archived():
            return ignore(run, "not there any more")
        case phase if isinstance(phase, ENDED):
            return move(run, phase, fx.SuppressInbox())
        case (Running() as running) | Ending(cause=Grace(resumes=running)) if event.driven:
            due_at = event.at + reconcile.STOP_S
            # A plan, or the answer to a send, would not be the run's result.
            may_win = event.named and run.plan != "planning" and running.serving is None
            return move(run, Ending(due_at, Stopping(event.named, may_win)), fx.StopDriver(due_at), fx.SuppressInbox())
        case _:
            return closing.kill_now(
                run, event.at, event.named, event.unsettled, fx.SupersedeDriver(event.at), partial=event.partial
            )


def _plan_answered(run: Run, event: ev.PlanApproved | ev.PlanRejected) -> Step:
    if not isinstance(run.phase, AwaitingApproval):
        return ignore(run, "no plan awaits an answer")
    approved = isinstance(event, ev.PlanApproved)
    plan = run.phase.plan
    run = replace(
        next_attempt(run, event.next_run_id),
        plan="approved" if approved else "planning",
        fallback=None if approved else plan,
    )
    up = () if event.unsettled else (fx.CountUp(),)
    return move(run, Queued(), fx.WithdrawPlan(), *up, fx.Enqueue())


# ---- time ------------------------------------------------------------------------------------------------------------


def _came_due(run: Run, event: ev.CameDue) -> Step:
    """Time alone changes this run: a deadline passed, a grace ran out, a retry or a sweep is due."""
    at, phase = event.at, run.phase
    if run.due_at is None or at < run.due_at:
        return ignore(run, "not due")
    timed = run.deadline_at is not None and at >= run.deadline_at
    match phase:
        case Spawning():
            return move(run, Gone("not prepared in time"), fx.CountDown(), fx.Forget())
        case Queued() | Running() | Waiting() | Ending(cause=Grace()) if timed:
            end = ev.RanOut(event.partial)
            return closing.break_off(run, at, end, event.unsettled, fx.SupersedeDriver(at + reconcile.STOP_S))
        case Queued():
            waited = ev.Errored(f"it waited {run.terms.queue_timeout_s:.0f} s for a slot: queueTimeoutSeconds")
            return closing.break_off(run, at, waited, event.unsettled)
        case Running(serving=serving):
            return _silent_for(run, serving, event)
        case Waiting():
            return reconcile.woken(run, event.next_run_id, "overdue")
        case Asking():
            return _go_on(run, phase, at)
        case Ending(cause=cause):
            return _undecided_until(run, cause, event)
        case Announcing():
            return closing.give_up(run, phase.ended, at, "the program did not read it for 30 min")
        case AnnounceDeferred():
            return closing.try_again(run, phase, event)
        case AwaitingApproval():
            return closing.expire_plan(run, phase.plan, at)
        case CleanupPending() | Gone():
            return ignore(run, "nothing is decided by time here")
        case Completed() if event.held_by:
            return move(run, replace(phase, due_at=at + policy.SWEEP_S))
        case Completed():
            return move(run, closing.archived(run, phase, at), fx.Archive())
        case CompletedGiveup():
            return move(run, closing.completed(run, phase.ended, phase.delivery, at), fx.DismissRow())
        case Archived(forget_at=forget_at) if forget_at is not None:
            return move(run, replace(phase, due_at=forget_at, forget_at=None), fx.DeleteSession())
        case Archived():
            return move(run, Gone("its timeline was kept long enough"), fx.Forget())
        case _:
            assert_never(phase)


def _undecided_until(run: Run, cause: Grace | Stopping, event: ev.CameDue) -> Step:
    at, unsettled = event.at, event.unsettled
    match cause:
        case Stopping(named=named):
            return closing.kill_now(run, at, named, unsettled, fx.SupersedeDriver(at), partial=event.partial)
        case Grace(error=error, aborted=aborted, cause=why):
            end = ev.RanOut(event.partial) if aborted else ev.Errored(error, why, event.partial)
            return closing.break_off(run, at, end, unsettled, fx.SupersedeDriver(at + reconcile.STOP_S))
        case _:
            assert_never(cause)


def _silent_for(run: Run, serving: Waiting | None, event: ev.CameDue) -> Step:
    """Look whether a running attempt still commits steps; if not, report it as stuck, once."""
    limit = run.terms.stuck_after_s
    if event.progress_at is not None and event.progress_at + limit > event.at:
        return move(run, Running(due_at=event.progress_at + limit, serving=serving))
    stuck = Running(due_at=None, serving=serving, stuck_at=event.at)
    return move(run, stuck, fx.Tell(f"no progress for {limit:.0f} s"))


_DECIDED_BY: Final[dict[type[ev.Event], Callable[[Run, Any], Step]]] = {
    ev.Admitted: _admitted,
    ev.Prepared: _prepared,
    ev.Imported: _imported,
    ev.Withdrawn: _withdrawn,
    ev.Claimed: _claimed,
    **dict.fromkeys(get_args(ev.Signal), reconcile.signalled),
    ev.Progressed: _progressed,
    ev.Yielded: _yielded,
    ev.PersonAsked: _person_asked,
    ev.PersonAnswered: _person_answered,
    ev.Paused: _paused,
    ev.ProgramCame: _program_came,
    ev.ChildrenSettled: _children_settled,
    ev.SendArrived: _send_arrived,
    ev.Steered: _steered,
    ev.Resumed: _resumed,
    ev.KillOrdered: _kill_ordered,
    ev.PlanApproved: _plan_answered,
    ev.PlanRejected: _plan_answered,
    ev.RowConsumed: closing.row_consumed,
    ev.RowSuppressed: closing.row_suppressed,
    ev.RequesterLost: closing.requester_lost,
    ev.HandedToProgram: closing.handed_to_program,
    ev.Revived: closing.revived,
    ev.Retried: closing.retried,
    ev.Dismissed: closing.dismissed,
    ev.Removed: closing.removed,
    ev.CleanedUp: closing.cleaned_up,
    ev.CleanupFailed: closing.cleanup_failed,
    ev.CameDue: _came_due,
}
"""The function that decides about each event."""
