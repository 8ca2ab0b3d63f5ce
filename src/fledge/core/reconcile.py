"""Completion signals, reconciled in one place: is the attempt over, how, and what follows?

An attempt's committed end is authoritative and decides at once. A provisional error waits out its grace, and a start or
an end within it cancels it. A killed run that is still driven may complete once, if the kill named it. A signal of an
older attempt never counts. `lifecycle.transition` is the only caller.
"""

from typing import Literal, assert_never

from msgspec.structs import replace

from fledge.core import closing, policy
from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.effects import Step, ignore, move, next_attempt
from fledge.core.run import (
    ENDED,
    UNREAD,
    Archived,
    AwaitingApproval,
    Ended,
    Ending,
    Grace,
    Instant,
    Killed,
    Ok,
    Queued,
    Run,
    Running,
    Stopping,
    TextId,
    Waiting,
)

GRACE_S = 15.0
"""How long a provisional error waits for a start or an end."""
STOP_S = 5.0
"""How long a driver that was stopped or superseded may keep its slot."""


def signalled(run: Run, signal: ev.Signal) -> Step:
    """The step that follows from this signal; total over all phases and signals."""
    if signal.attempt != run.attempt:
        return ignore(run, f"attempt {signal.attempt}, now {run.attempt}")
    phase = run.phase
    if isinstance(phase, Running):
        return _while_running(run, phase, signal)
    if isinstance(phase, Ending):
        if isinstance(phase.cause, Stopping):
            return _while_stopping(run, phase.cause, signal)
        return _within_grace(run, phase.cause, signal)
    if isinstance(phase, ENDED):
        return _after_the_end(run, phase.ended, signal)
    return ignore(run, f"no attempt is running ({phase.name})")


def _while_running(run: Run, driven: Running, signal: ev.Signal) -> Step:
    match signal:
        case ev.AttemptEnded(end=end):
            return _over(run, driven, signal, end)
        case ev.AttemptFaltered(at=at, error=error, aborted=aborted, cause=cause):
            return move(run, Ending(due_at=at + GRACE_S, cause=Grace(error, aborted, driven, cause)))
        case ev.AttemptStarted():
            return ignore(run, "already running")
        case ev.DriverStopped() | ev.LeaseLost():
            return _requeue(run, driven, signal)
        case _:
            assert_never(signal)


def _within_grace(run: Run, grace: Grace, signal: ev.Signal) -> Step:
    match signal:
        case ev.AttemptEnded(end=end):
            return _over(run, grace.resumes, signal, end)
        case ev.AttemptStarted():
            return move(run, running(run, signal.at, grace.resumes.serving))
        case ev.AttemptFaltered():
            return ignore(run, "already in its grace")
        case ev.DriverStopped() | ev.LeaseLost():
            return ignore(run, "the grace goes on without its driver")
        case _:
            assert_never(signal)


def _while_stopping(run: Run, stopping: Stopping, signal: ev.Signal) -> Step:
    at, unsettled = signal.at, signal.unsettled
    match signal:
        case ev.AttemptEnded(end=ev.Finished() as end) if stopping.may_win:
            ended = closing.result_of(run, end, at)
            return closing.fix(run, ended, end.said, unsettled, fx.ReleaseDriver(), fx.SuppressInbox())
        case ev.AttemptStarted() | ev.AttemptFaltered():
            return ignore(run, "killed, and stopping")
        case ev.AttemptEnded():
            return closing.kill_now(run, at, stopping.named, unsettled, fx.ReleaseDriver())
        case ev.DriverStopped():
            return closing.kill_now(run, at, stopping.named, unsettled, fx.FreeDriver())
        case ev.LeaseLost():
            return closing.kill_now(run, at, stopping.named, unsettled, fx.SupersedeDriver(at))
        case _:
            assert_never(signal)


def _after_the_end(run: Run, ended: Ended, signal: ev.Signal) -> Step:
    if not isinstance(signal, ev.AttemptEnded) or not isinstance(signal.end, ev.Finished):
        return ignore(run, "already ended")
    end, phase = signal.end, run.phase
    if end.said != "text":
        return ignore(run, "a late end without words")
    if ended.outcome == Killed(named=False):
        return ignore(run, "suppressed: below a kill")
    if end.text == ended.result:
        return ignore(run, "a known end, repeated")
    counts = isinstance(phase, UNREAD) if isinstance(ended.outcome, Ok) else not isinstance(phase, Archived)
    return closing.complete_late(run, signal.at, end) if counts else ignore(run, "already ended")


# ---- what follows ----------------------------------------------------------------------------------------------------


def running(run: Run, at: Instant, serving: Waiting | None = None) -> Running:
    """The phase of an attempt that is driven from now on."""
    return Running(due_at=at + run.terms.stuck_after_s, serving=serving)


def _requeue(run: Run, driven: Running, signal: ev.DriverStopped | ev.LeaseLost) -> Step:
    crashes, gone = run.crashes, fx.SupersedeDriver(signal.at)
    if isinstance(signal, ev.LeaseLost):
        crashes = policy.crashes_after(run.crashes, signal.step_open)
    run = replace(run, crashes=crashes)
    if crashes >= policy.MAX_CRASHES:
        end = ev.Errored(f"it crashed {crashes} times in the same step and was not tried again")
        return closing.break_off(run, signal.at, end, signal.unsettled, gone)
    return move(run, Queued(serving=driven.serving), gone, fx.Enqueue())


def _over(run: Run, driven: Running, event: ev.Signal, end: ev.End) -> Step:
    """An attempt's end. A final reply is the end of a send's turn, a wait, one more reading, a plan, or the end of the
    run. It is a committed step, so the counts of crashes and pauses are reset."""
    if not isinstance(end, ev.Finished):
        return closing.break_off(run, event.at, end, event.unsettled, fx.ReleaseDriver())
    if run.crashes or run.failing is not None:
        run = replace(run, crashes=0, failing=None)
    if driven.serving is not None:
        # The reply of a send's turn is neither result nor fallback; the waiting period goes on.
        return wait(run, driven.serving, event, "earlier")
    text = end.text if end.said == "text" else None
    if run.terms.wakeable and (event.unsettled or event.unread):
        run = replace(run, fallback=text or run.fallback)
        if event.unsettled:
            return wait(run, Waiting(until_settled=None, due_at=None, asked="final text"), event, "nothing")
        return move(run, running(run, event.at), fx.Drain())
    if run.plan == "planning":
        return _planned(run, event, text or run.fallback)
    ended = closing.result_of(run, end, event.at)
    return closing.finish(run, ended, end.said, event.unsettled, fx.ReleaseDriver(), *closing.hand_over(run))


def wait(run: Run, waiting: Waiting, event: ev.Signal | ev.Yielded, owes: fx.Owes) -> Step:
    """Enter or re-enter waiting. Condition and deadline are evaluated in this very commit, before messages: else each
    message would postpone them."""
    if policy.holds(waiting.until_settled, event.unsettled, event.settled):
        return woken(run, event.next_run_id, "wake", fx.ReleaseDriver(owes))
    if waiting.due_at is not None and event.at >= waiting.due_at:
        return woken(run, event.next_run_id, "overdue", fx.ReleaseDriver(owes))
    if event.messages:
        return move(run, Queued(serving=waiting), fx.ReleaseDriver(owes), fx.Enqueue())
    return move(run, waiting, fx.ReleaseDriver(owes))


def woken(run: Run, run_id: str, why: Literal["wake", "overdue"], *effects: fx.Effect) -> Step:
    """The condition of its wait holds; or the yield's deadline has passed, and it goes on with the results so far."""
    run = replace(next_attempt(run, run_id), wakes=run.wakes + 1)
    return move(run, Queued(), *effects, fx.Post(why), fx.Enqueue())


def _planned(run: Run, event: ev.Signal, plan: TextId | None) -> Step:
    if plan is None:
        return closing.break_off(
            run, event.at, ev.Errored("it ended without a plan"), event.unsettled, fx.ReleaseDriver()
        )
    run = replace(run, deadline_at=None)
    phase = AwaitingApproval(due_at=event.at + run.terms.approval_s, plan=plan)
    down = () if event.unsettled else (fx.CountDown(),)
    return move(run, phase, fx.ReleaseDriver(), fx.Announce("plan", plan), *down)
