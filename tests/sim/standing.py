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
    "waiting for a person": frozenset({"open and due"}),
    # Its driver has stopped, or is about to.
    "ending": frozenset({"driven", "open and due"}),
    "awaiting_approval": frozenset({"idle"}),
}


def unknown(tx: Tx) -> Iterator[str]:
    """Sessions that are at something that none can be at, and those that sleep through the end of their wait."""
    for key in (*ROOTS, *walk(tx)):
        session = tx.sessions.get(key)
        if session is None:
            continue
        who, turn = _who(session, tx.runs.find(key)), tx.turns.state(key)
        at = situation(turn)
        if at not in POSSIBLE.get(who, ()):
            yield f"{key} ({who}) is {at}"
        if at in ("idle, waits", "due, waits") and turn.wait is not None:
            counts = tx.sessions.counts(key)
            holds = policy.holds(turn.wait.until_settled, counts.unsettled, counts.settled)
            if holds and not any(_is_aiming(tx, child) for child in tx.runs.children(key)):
                yield f"{key} ({who}) waits for what is there"


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
