"""What a driver must know of its session before it can think. The claim tells it, so that nobody has to look again.

Nothing here is read for a long transcript or a large family: those are looked up beside the writer, when needed.
"""

from msgspec import Struct

from fledge.core.run import Run
from fledge.core.transcript import Line
from fledge.store.base import Session, Spec, Tx, Wishes


class Seat(Struct, frozen=True, gc=False, kw_only=True):
    """A session as it was when its turn was claimed."""

    session: Session
    run: Run | None
    """Its run, over or not: a child that answers a message after its run's end is still that child."""
    spec: Spec | None
    """What was asked of its run; None of a conversation."""
    is_budgeted: bool
    """It, or something above it, has a purse."""
    has_children: bool
    wishes: list[Wishes]
    """What those want that its turn serves."""
    by_person: bool = False
    """Its turn began with what a person or a program said."""
    lines: list[Line] | None = None
    """Its whole transcript; None if there is more than this commit has written."""


def seat_of(tx: Tx, key: str, answers_all: bool = True, lines: list[Line] | None = None) -> Seat | None:
    """What is known of this session; None if there is none. Its turn serves what it has read itself, and if it
    `answers_all` what earlier turns read before they yielded too."""
    session = tx.sessions.get(key)
    if session is None:
        return None
    run, turn = tx.runs.find(key), tx.turns.get(key)
    return Seat(
        session=session,
        run=run,
        spec=None if run is None else tx.runs.spec(key),
        is_budgeted=tx.budgets.any() and any(tx.budgets.get(above.key) for above in tx.sessions.lineage(key)),
        has_children=tx.sessions.counts(key).spawned > 0,
        wishes=[
            asked.wishes
            for asked in tx.commissions.of(key)
            if answers_all or (turn is not None and asked.turn == turn.turn)
        ],
        by_person=turn is not None and turn.by_person,
        lines=lines,
    )
