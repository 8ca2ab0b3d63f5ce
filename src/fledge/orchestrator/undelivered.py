"""What nobody could be told: telling of it later, offering it again, putting it away, letting it go in its time.

A run's outcome has a phase for this (`completed_giveup`); what came late or expired has only its row. Who is told is
decided in `deliver.told`, not here.
"""

from fledge.core import policy
from fledge.core.run import Run, Undelivered
from fledge.orchestrator import deliver, outbox
from fledge.orchestrator.commit import Commit
from fledge.store.base import Row


def tell(c: Commit, session: str) -> None:
    """Tell a conversation of the results of its tree that were given up, each once, also those of when it was away."""
    for row in c.tx.inbox.undelivered():
        run = c.find(row.source or "")
        if run is not None and isinstance(run.delivery, Undelivered) and _would_be_told(c, run) == session:
            words = f"{run.key} could not be delivered: {run.delivery.error}. It is in the undelivered list."
            deliver.notice(c, session, f"giveup:{run.key}:{run.run_id}", words)
            outbox.tell(c, session, f"giveup:{run.key}:{run.run_id}", words)


def _would_be_told(c: Commit, run: Run) -> str | None:
    return deliver.told(c, run.terms.parent).session


def beside(c: Commit, run: str) -> list[Row]:
    """Undelivered rows of this run that announce no outcome: what came late, or expired."""
    return [row for row in c.tx.inbox.of_run(run) if row.state == "undelivered" and row.kind != "outcome"]


def offer_again(c: Commit, run: Run, to: str | None = None) -> bool:
    """Put such rows into the inbox of whoever is there now, if anybody is, or of `to`; False if there are none."""
    rows = beside(c, run.key)
    target = deliver.told(c, run.terms.parent) if to is None else deliver.Told(to)
    for row in rows:
        c.tx.inbox.reopen(row.key)
        deliver.readdress_row(c, row, target, "queued")
    return bool(rows)


def put_away(c: Commit, run: str) -> bool:
    """Take such rows off the list; False if there are none."""
    rows = beside(c, run)
    for row in rows:
        c.tx.inbox.dismiss(row.key, c.at)
    return bool(rows)


def let_go(c: Commit, run: Run) -> None:
    """Rows of a settled run that nobody reads: on the list once a program has had its time, off it in their own."""
    for row in c.tx.inbox.of_run(run.key):
        program = deliver.is_program(c, row.session)
        state = policy.outlived(row.state == "undelivered", c.at - row.arrived_at, program, run.terms.undelivered_s)
        if state == "undelivered":
            c.tx.inbox.give_up(row.key, c.at)
        elif state == "dismissed":
            c.tx.inbox.dismiss(row.key, c.at)
