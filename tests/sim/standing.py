"""What a session can be at: every combination of its run's phase, the state of its turn and its wait, written down.

A conversation takes turns, and so does a session after its run's end: each is in one of the situations of `core.turn`.
The turns of a live run are its attempts: its phase says what it is at, and it has no wait beside that. A combination
that is not here is a row that was forgotten, or a rule that is new.
"""

from collections.abc import Iterator
from typing import Final

from fledge.core import policy
from fledge.core.run import ENDED, Asking, Run
from fledge.store.base import Session, Tx
from tests.core.turn_samples import situation
from tests.sim.people import ROOTS, walk

TAKES_TURNS: Final = frozenset(
    (
        *("idle", "due", "open and due", "driven", "asking"),
        *("idle, waits", "due, waits", "open and due, waits", "driven, waits", "asking, waits"),
        # Whose wait is over is never idle.
        *("due, wait over", "open and due, wait over", "driven, wait over", "asking, wait over"),
    )
)
POSSIBLE: Final[dict[str, frozenset[str]]] = {
    "conversation": TAKES_TURNS,
    "ended": TAKES_TURNS,
    "program": frozenset({"idle"}),
    "deleted": frozenset({"idle"}),
    "spawning": frozenset({"idle"}),
    "queued": frozenset({"due", "open and due"}),
    "running": frozenset({"driven"}),
    "waiting": frozenset({"idle"}),
    # It has no place in the queue: its answers bring it there.
    "waiting for a person": frozenset({"open"}),
    # Its driver has stopped, or is about to.
    "ending": frozenset({"driven", "open"}),
    "awaiting_approval": frozenset({"idle"}),
}


def unknown(tx: Tx) -> Iterator[str]:
    """Sessions that are at something that none can be at, and those that sleep through the end of their wait."""
    for key in (*ROOTS, *walk(tx)):
        session = tx.sessions.get(key)
        if session is None:
            continue
        who, turn = _who(session, tx.runs.find(key)), tx.turns.state(key)
        if (turn is not None) != (who in ("conversation", "ended")):
            yield f"{key} ({who}) takes turns" if turn is not None else f"{key} ({who}) takes no turns"
        at = _rows(tx, session) if turn is None else situation(turn)
        if at not in POSSIBLE.get(who, ()):
            yield f"{key} ({who}) is {at}"
        if turn is not None and at in ("idle, waits", "due, waits") and turn.wait is not None:
            counts = tx.sessions.counts(key)
            holds = policy.holds(turn.wait.until_settled, counts.unsettled, counts.settled)
            if holds and not any(_is_aiming(tx, child) for child in tx.runs.children(key)):
                yield f"{key} ({who}) waits for what is there"


def _rows(tx: Tx, session: Session) -> str:
    """What the rows say of a session that takes no turns: a driver, a place in a queue, an open turn, a wait."""
    key, driver, place = session.key, tx.drivers.get(session.key), tx.queue.place(session.key)
    waits = ", waits" if tx.turns.wait(key) is not None else ""
    if tx.turns.get(key) is None:
        return ("idle" if place is None else "due") + waits
    if driver is not None and driver.release_at is None and driver.epoch == session.epoch:
        return f"driven{waits}"
    return ("open" if place is None else "open and due") + waits


def _is_aiming(tx: Tx, run: str) -> bool:
    """A hook is asked where the answer of the run should go; its row is in no inbox until then."""
    return any(row.session is None and row.state == "unread" for row in tx.inbox.of_run(run))


def _who(session: Session, run: Run | None) -> str:
    if session.deleted or session.kind == "program":
        return "deleted" if session.deleted else "program"
    if run is None:
        return "conversation"
    if isinstance(run.phase, ENDED):
        return "ended"
    return "waiting for a person" if isinstance(run.phase, Asking) else run.phase.name
