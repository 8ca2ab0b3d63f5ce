"""From the end on: fix the outcome, announce it, clean up. Only `lifecycle` and `reconcile` call it.

An outcome is fixed by `fix`, `kill_now` or `expire_plan`, nowhere else. Then the delivery is decided (consumed,
skipped, given up), then what remains is cleaned up. This file does not know how an attempt came to its end:
`reconcile` judged that.
"""

from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core import policy
from fledge.core.effects import Step, ignore, move
from fledge.core.run import (
    UNREAD,
    AnnounceDeferred,
    Announcing,
    Archived,
    AwaitingApproval,
    CleanupPending,
    Completed,
    CompletedGiveup,
    Delivered,
    Delivery,
    Ended,
    Failed,
    Gone,
    Instant,
    Killed,
    Ok,
    Run,
    Skipped,
    SkipReason,
    TextId,
    TimedOut,
    Undelivered,
)

# ---- the end ---------------------------------------------------------------------------------------------------------


def result_of(run: Run, end: ev.Finished, at: Instant) -> Ended:
    """The frozen result of a finished attempt: its words, else the fallback, unless it asked not to be announced."""
    text = end.text if end.said == "text" else None if end.said == "skip" else run.fallback
    return Ended(Ok(end.cut), run.started_at, at, text)


def finish(run: Run, ended: Ended, said: ev.Said, unsettled: int, *effects: fx.Effect) -> Step:
    """The ordinary end. A runtime that cannot be woken is announced only once all below it have settled."""
    terms, at = run.terms, ended.ended_at
    if unsettled and not terms.wakeable and not _is_skipped(said, ended):
        expires_at = at + policy.expiry_s(terms.expects)
        phase = AnnounceDeferred(ended, "descendants-active", 0, at, expires_at, None)
        return move(run, phase, *effects, fx.Trace("deferred", phase.reason))
    return fix(run, ended, said, unsettled, *effects)


def _is_skipped(said: ev.Said, ended: Ended) -> bool:
    return said == "skip" or (said == "silent" and ended.result is None)


def fix(run: Run, ended: Ended, said: ev.Said, unsettled: int, *effects: fx.Effect) -> Step:
    """Fix the outcome: result, announce and settling in one commit."""
    terms, at = run.terms, ended.ended_at
    down = () if unsettled else (fx.CountDown(),)
    if _is_skipped(said, ended):
        reason: SkipReason = "announce-skip" if said == "skip" else "silent"
        return clean(run, ended, Skipped(reason), at, *effects, *down)
    # No requester waits for a fire-and-forget answer, so its hook does not wait for the announce either.
    hooks = () if terms.expects or terms.mode == "session" else (fx.CallHook("subagent_ended"),)
    row = fx.Announce("outcome", ended.result)
    return move(run, Announcing(ended, program_due(run, at)), *effects, row, *hooks, *down)


def break_off(run: Run, at: Instant, end: ev.Errored | ev.RanOut, unsettled: int, *effects: fx.Effect) -> Step:
    """An end that is not a reply. It cancels nothing below, except that a spent budget stops it all."""
    closing = (*effects, fx.Dequeue(), fx.CloseCalls("interrupted"), *hand_over(run))
    cause = None if isinstance(end, ev.RanOut) else end.cause
    outcome = TimedOut() if isinstance(end, ev.RanOut) else Failed(end.error)
    # An error carries its message; every other end hands over partial work.
    result = None if cause == "error" else end.partial or run.fallback
    below = (fx.KillBelow(),) if cause == "budget" else ()
    return fix(run, Ended(outcome, run.started_at, at, result), "text", unsettled, *closing, *below)


def hand_over(run: Run) -> tuple[fx.Effect, ...]:
    """A run-mode session counts as gone once its outcome is fixed; one that is bound to a thread goes on."""
    return (fx.ReadOn(),) if run.terms.mode == "session" else (fx.HandOver(),)


def program_due(run: Run, at: Instant) -> Instant | None:
    """When a program's unread result is given up; a conversation's never is."""
    return at + policy.UNREAD_PROGRAM_S if run.terms.program else None


def complete_late(run: Run, at: Instant, end: ev.Finished) -> Step:
    """A complete after the outcome was fixed: it refreshes an unread row, else it is a row of its own."""
    phase = run.phase
    if isinstance(phase, UNREAD):
        ended = replace(phase.ended, outcome=Ok(), ended_at=at, result=end.text)
        return move(run, replace(phase, ended=ended), fx.RefreshRow(end.text))
    return move(run, phase, fx.Announce("late", end.text))


def kill_now(
    run: Run, at: Instant, named: bool, unsettled: int, *effects: fx.Effect, partial: TextId | None = None
) -> Step:
    """The kill is decided: silent to the requester, settled if nothing below is left."""
    # A plan that awaits its answer already counts as settled.
    counted = isinstance(run.phase, AwaitingApproval)
    ended = Ended(Killed(named), run.started_at, at, partial or run.fallback)
    down = () if unsettled or counted else (fx.CountDown(),)
    closing = (fx.Dequeue(), fx.CloseCalls("killed"), fx.WithdrawPlan(), fx.SuppressInbox())
    return clean(run, ended, Skipped("suppressed"), at, *effects, *closing, *down)


# ---- delivery --------------------------------------------------------------------------------------------------------


def row_consumed(run: Run, event: ev.RowConsumed) -> Step:
    """The requester has read something of this run; its outcome, if that is what the row announced."""
    if event.row != "outcome":
        return ignore(run, f"a row of kind {event.row} leaves the phase alone")
    delivered = Delivered(event.path)
    match run.phase:
        case Announcing(ended=ended) | AnnounceDeferred(ended=ended):
            return clean(run, ended, delivered, event.at)
        case CleanupPending(delivery=Undelivered()) as phase:
            return move(run, replace(phase, delivery=delivered))
        case CompletedGiveup(ended=ended):
            return move(run, completed(run, ended, delivered, event.at))
        case _:
            return ignore(run, "already decided")


def row_suppressed(run: Run, event: ev.RowSuppressed) -> Step:
    """The requester was killed before it read the outcome."""
    if not isinstance(run.phase, UNREAD):
        return ignore(run, "already decided")
    return clean(run, run.phase.ended, Skipped("suppressed"), event.at)


def revived(run: Run, event: ev.Revived) -> Step:
    """The requester, killed before it read the outcome, goes on: the outcome is announced again."""
    match run.phase:
        case (
            CleanupPending(ended=ended, delivery=Skipped("suppressed"))
            | Completed(ended=ended, delivery=Skipped("suppressed"))
        ) if not isinstance(ended.outcome, Killed):
            return move(run, Announcing(ended, program_due(run, event.at)))
        case _:
            return ignore(run, "its result was not suppressed")


def requester_lost(run: Run, event: ev.RequesterLost) -> Step:
    """No session is left to announce it to: try again soon, then give up."""
    at = event.at
    if not isinstance(run.phase, Announcing):
        return ignore(run, "nothing is being announced")
    expires_at = at + policy.expiry_s(run.terms.expects)
    phase = AnnounceDeferred(run.phase.ended, "missing-requester", 1, at, expires_at, at + policy.retry_s(1))
    return move(run, phase, fx.Trace("failed", phase.reason))


def handed_to_program(run: Run, event: ev.HandedToProgram) -> Step:
    """A program has it now, and has its time to read it."""
    match run.phase:
        case Announcing(ended=ended) | AnnounceDeferred(ended=ended, reason="missing-requester"):
            return move(run, Announcing(ended, event.at + policy.UNREAD_PROGRAM_S))
        case _:
            return ignore(run, "nothing is being announced")


def retried(run: Run, event: ev.Retried) -> Step:
    """A given-up result is announced again."""
    if not isinstance(run.phase, CompletedGiveup):
        return ignore(run, _why_not(run))
    return move(run, Announcing(run.phase.ended, program_due(run, event.at)), fx.ReviveRow(event.to))


def dismissed(run: Run, event: ev.Dismissed) -> Step:
    """A given-up result was looked at and put away."""
    if not isinstance(run.phase, CompletedGiveup):
        return ignore(run, _why_not(run))
    return move(run, completed(run, run.phase.ended, run.phase.delivery, event.at), fx.DismissRow())


def expire_plan(run: Run, plan: TextId | None, at: Instant) -> Step:
    """The plan was not answered in time. A row of its own kind says so, so the outcome needs none. The run has counted
    as settled since the plan was announced."""
    ended = Ended(Failed("the plan was not answered in time"), run.started_at, at, plan)
    effects = (fx.WithdrawPlan(), fx.Announce("expired", plan), *hand_over(run))
    return clean(run, ended, Skipped("suppressed"), at, *effects)


def _why_not(run: Run) -> str:
    if isinstance(run.delivery, Undelivered):
        return "it is still being cleaned up: try again in a moment"
    return "nothing of it is undelivered"


def give_up(run: Run, ended: Ended, at: Instant, error: str) -> Step:
    """The result goes to the undelivered list, and a notice says so."""
    return clean(run, ended, Undelivered(error), at, fx.Trace("failed", error), fx.GiveUpRow())


def try_again(run: Run, phase: AnnounceDeferred, event: ev.CameDue) -> Step:
    """A postponed announce is due: address it again, wait on, or give up."""
    at = event.at
    expires_at = phase.expires_at + (at - phase.since_at if event.paused else 0.0)
    if event.reachable:
        return move(run, Announcing(phase.ended, program_due(run, at)), fx.Readdress())
    if policy.gives_up(phase.tries, run.terms.max_retries, at, expires_at):
        return give_up(run, phase.ended, at, "no requester is left")
    tries = phase.tries + 1
    due_at = at + policy.retry_s(tries)
    phase = replace(phase, tries=tries, since_at=at, expires_at=expires_at, due_at=due_at)
    return move(run, phase, fx.Trace("failed", phase.reason))


# ---- cleanup ---------------------------------------------------------------------------------------------------------


def clean(run: Run, ended: Ended, delivery: Delivery, at: Instant, *effects: fx.Effect) -> Step:
    """The delivery is decided; hooks and cleanup remain."""
    calls = run.terms.mode == "run" or isinstance(ended.outcome, Killed)
    hooks = (fx.CallHook("subagent_ended"),) if calls else ()
    phase = CleanupPending(ended=ended, delivery=delivery, tries=0, due_at=at)
    return move(run, phase, *effects, *hooks, fx.CleanUp())


def cleaned_up(run: Run, event: ev.CleanedUp) -> Step:
    """Nothing remains: settled for good."""
    if not isinstance(run.phase, CleanupPending):
        return ignore(run, "already cleaned up")
    ended, delivery = run.phase.ended, run.phase.delivery
    if type(delivery) is Undelivered:
        return move(run, CompletedGiveup(ended, delivery, event.at, event.at + run.terms.undelivered_s))
    return move(run, completed(run, ended, delivery, event.at))


def completed(run: Run, ended: Ended, delivery: Delivery, at: Instant) -> Completed:
    """Settled, with the time at which the sweeper looks at it."""
    swept = run.terms.mode == "run" and run.terms.archive_after_s > 0
    return Completed(ended, delivery, at, at + run.terms.archive_after_s if swept else None)


def archived(run: Run, phase: Completed, at: Instant) -> Archived:
    """Off the lists; the session and the timeline each go in their time, the tombstone with the last of them."""
    kept_until, told_until = at + run.terms.kept_s, at + run.terms.timeline_s
    return Archived(phase.ended, phase.delivery, kept_until, told_until if kept_until < told_until else None)


def removed(run: Run, event: ev.Removed) -> Step:
    """Archive a settled run at once. A run with something left to do or to announce stays, and so does one with an open
    thread."""
    match run.phase:
        case Completed() if run.terms.mode == "session":
            return ignore(run, "its session stays open in its thread")
        case Completed() if event.held_by is not None:
            return ignore(run, event.held_by)
        case Completed() as phase:
            return move(run, archived(run, phase, event.at), fx.Archive("released"))
        case CompletedGiveup():
            return ignore(run, "its result is undelivered: retry or dismiss it first")
        case Archived() | Gone():
            return ignore(run, "it is not in the lists any more")
        case phase:
            return ignore(run, f"it is {phase.name}: wait for it, or kill it first")


def cleanup_failed(run: Run, event: ev.CleanupFailed) -> Step:
    """Cleanup is tried again, for ever, with backoff."""
    if not isinstance(run.phase, CleanupPending):
        return ignore(run, "already cleaned up")
    tries = run.phase.tries + 1
    return move(run, replace(run.phase, tries=tries, due_at=event.at + policy.cleanup_retry_s(tries)))
