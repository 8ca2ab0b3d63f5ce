"""Completion signals, reconciled in one place: is the attempt over, and how?

An attempt's committed end is authoritative and decides at once. A provisional error waits out its grace, and a start or
an end within it cancels it. A killed run that is still driven may complete once, if the kill named it. What belongs to
an older attempt never counts. This file judges; it does not change phases.
"""

from typing import assert_never

from fledge.core.events import (
    AttemptEnded,
    AttemptFaltered,
    AttemptStarted,
    DriverStopped,
    End,
    Errored,
    Finished,
    LeaseLost,
    RanOut,
    Signal,
)
from fledge.core.run import (
    ENDED,
    UNREAD,
    Archived,
    Ended,
    Ending,
    Grace,
    Instant,
    Killed,
    Ok,
    Run,
    Running,
    Stopping,
)
from fledge.core.value import Value

GRACE_S = 15.0
"""How long a provisional error waits for a start or an end."""
STOP_S = 5.0
"""How long a driver that was stopped or superseded may keep its slot."""


class Complete(Value):
    """The attempt finished; `running` is how it was being driven."""

    end: Finished
    running: Running


class BreakOff(Value):
    """The attempt is over without a reply."""

    end: Errored | RanOut


class DecideKilled(Value):
    """The kill stands."""

    named: bool


class LateWin(Value):
    """A complete end inside the stopping window wins over the kill that named this run."""

    end: Finished


class Late(Value):
    """A complete end after another outcome was fixed."""

    end: Finished


class Hold(Value):
    """Provisional: wait for a start or an end until then."""

    until_at: Instant
    grace: Grace


class Resume(Value):
    """The executor recovered: the run goes on."""

    running: Running


class Requeue(Value):
    """The lease is lost without an end: the run is driven again."""

    running: Running


class Ignore(Value):
    """It changes nothing; the reason says why."""

    reason: str


Verdict = Complete | BreakOff | DecideKilled | LateWin | Late | Hold | Resume | Requeue | Ignore


def judge(run: Run, signal: Signal) -> Verdict:
    """What this signal means for this run; total over all phases and signals."""
    if signal.attempt != run.attempt:
        return Ignore(f"attempt {signal.attempt}, now {run.attempt}")
    phase = run.phase
    if isinstance(phase, Running):
        return _while_running(phase, signal)
    if isinstance(phase, Ending):
        if isinstance(phase.cause, Stopping):
            return _while_stopping(phase.cause, signal)
        return _within_grace(phase.cause, signal)
    if isinstance(phase, ENDED):
        return _after_the_end(run, phase.ended, signal)
    return Ignore(f"no attempt is running ({phase.name})")


def _decide(end: End, running: Running) -> Verdict:
    return Complete(end, running) if isinstance(end, Finished) else BreakOff(end)


def _while_running(phase: Running, signal: Signal) -> Verdict:
    match signal:
        case AttemptEnded(end=end):
            return _decide(end, phase)
        case AttemptFaltered(at=at, error=error, aborted=aborted, cause=cause):
            return Hold(at + GRACE_S, Grace(error, aborted, phase, cause))
        case AttemptStarted():
            return Ignore("already running")
        case DriverStopped() | LeaseLost():
            return Requeue(phase)
        case _:
            assert_never(signal)


def _within_grace(grace: Grace, signal: Signal) -> Verdict:
    match signal:
        case AttemptEnded(end=end):
            return _decide(end, grace.resumes)
        case AttemptStarted():
            return Resume(grace.resumes)
        case AttemptFaltered():
            return Ignore("already in its grace")
        case DriverStopped() | LeaseLost():
            return Ignore("the grace goes on without its driver")
        case _:
            assert_never(signal)


def _while_stopping(stopping: Stopping, signal: Signal) -> Verdict:
    match signal:
        case AttemptEnded(end=Finished() as end) if stopping.may_win:
            return LateWin(end)
        case AttemptStarted() | AttemptFaltered():
            return Ignore("killed, and stopping")
        case AttemptEnded() | DriverStopped() | LeaseLost():
            return DecideKilled(stopping.named)
        case _:
            assert_never(signal)


def _after_the_end(run: Run, ended: Ended, signal: Signal) -> Verdict:
    if not isinstance(signal, AttemptEnded) or not isinstance(signal.end, Finished):
        return Ignore("already ended")
    end, phase = signal.end, run.phase
    if end.said != "text":
        return Ignore("a late end without words")
    if ended.outcome == Killed(named=False):
        return Ignore("suppressed: below a kill")
    if end.text == ended.result:
        return Ignore("a known end, repeated")
    counts = isinstance(phase, UNREAD) if isinstance(ended.outcome, Ok) else not isinstance(phase, Archived)
    return Late(end) if counts else Ignore("already ended")
