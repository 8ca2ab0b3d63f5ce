"""Rows that are due by time: runs, and posts that were sent or not. Starting up and finding these rows *is* the
recovery; there is no other path.
"""

from fledge.core import events as ev
from fledge.core.child_files import files_to_remove_at
from fledge.core.hook import DeliveryTarget
from fledge.core.route import Address
from fledge.core.run import CleanupPending, Completed
from fledge.orchestrator import control, effects, heartbeat, inbox, outbox, transcripts
from fledge.orchestrator.commit import Commit
from fledge.store.base import OutboxPost


def files_to_remove(c: Commit, key: str) -> tuple[str, ...]:
    """The files to remove before this run's cleanup is done; empty if there are none, or it is too early."""
    run = c.find(key)
    if run is None or not isinstance(run.phase, CleanupPending) or run.phase.due_at > c.at:
        return ()
    found = files_to_remove_at(run, "cleanup")
    if found and c.tx.sessions.counts(key).unsettled:
        effects.apply(c, key, ev.CleanupFailed(at=c.at, error="what is below it may still work there"))
        return ()
    return found


def come_due(c: Commit, key: str) -> bool:
    """Let time act on a run; False if nothing was due any more."""
    run = c.find(key)
    if run is None or run.due_at is None or run.due_at > c.at:
        return False
    if isinstance(run.phase, CleanupPending):
        effects.clean_now(c, key)
        return True
    if isinstance(run.phase, Completed):
        inbox.expire_rows(c, run)
    driver = c.tx.drivers.get(key)
    counts = c.tx.sessions.counts(key)
    event = ev.CameDue(
        at=c.at,
        next_run_id=c.ids.unique(),
        unsettled=counts.unsettled,
        progress_at=None if driver is None else max(driver.progress_at, driver.patient_until or 0.0),
        partial=transcripts.progress_so_far(c, key) if run.ended is None and run.started_at is not None else None,
        reachable=inbox.receiver_of(c, run.terms.parent).session is not None,
        paused=counts.unsettled > 0 or not heartbeat.is_open(c),
        held_by=control.held_by(c, key) if isinstance(run.phase, Completed) else None,
    )
    return effects.apply(c, key, event).ignored is None


def post_sent(c: Commit, post: OutboxPost, answer: Address | None) -> None:
    """A post has arrived; the answer to a question counts from now on."""
    outbox.sent(c, post)
    _answered(c, post, answer)


def post_failed(c: Commit, post: OutboxPost, error: str, wait_s: float = 0.0, permanent: bool = False) -> None:
    """A post has not arrived: it is sent again, or given up; then a question counts as unanswered."""
    outbox.failed(c, post, error, wait_s, permanent)
    _answered(c, post, None)


def _answered(c: Commit, post: OutboxPost, answer: Address | None) -> None:
    call = outbox.call_of(post)
    if call is not None and isinstance(call.event, DeliveryTarget) and not c.tx.outbox.is_waiting(post.key):
        inbox.aimed(c, call.event.child_session_key, answer)


def cleaned(c: Commit, key: str, error: str | None) -> None:
    """The files that a run left outside the database are removed, or could not be."""
    if error is not None:
        effects.apply(c, key, ev.CleanupFailed(at=c.at, error=error))
    else:
        effects.clean_now(c, key)
