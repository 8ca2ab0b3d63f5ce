"""What the only writer knows to be stored: rows it has read or written, kept from one transaction to the next.

Nobody else writes, so what it wrote last is what is stored. Whenever anything is undone, everything is forgotten; so it
is above a number of rows, which costs a reading. A reader begins with nothing and keeps nothing. No SQL is known here.
"""

from typing import Any

from fledge.core.run import Run
from fledge.store.records import Counts, Driver, Place, Session, Spec, Turn

MOST = 10_000
"""How many rows of a kind are remembered."""


class Known:
    """Rows by their keys; None where there is no such row. What is not in here must be looked up."""

    __slots__ = ("counts", "drivers", "places", "quiet", "runs", "sessions", "specs", "turns", "unused")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Something was undone, or there is too much: nothing is known any more."""
        self.runs: dict[str, tuple[int, Run] | None] = {}
        """With the number of its row."""
        self.specs: dict[str, Spec] = {}
        self.sessions: dict[str, Session | None] = {}
        self.counts: dict[str, Counts] = {}
        self.turns: dict[str, Turn | None] = {}
        """The open ones."""
        self.drivers: dict[str, Driver | None] = {}
        self.places: dict[str, Place | None] = {}
        """In the queues."""
        self.quiet: dict[str, None] = {}
        """Sessions with no unread row."""
        self.unused: dict[str, bool] = {}
        """Whether a table is empty: what nobody uses is not looked for in every commit."""

    def forget_session(self, key: str) -> None:
        """The session, and all that is stored under its key, may be gone."""
        for kind in self._kinds():
            kind.pop(key, None)

    def trim(self) -> None:
        """Forget everything if there is too much of it."""
        if any(len(kind) > MOST for kind in self._kinds()):
            self.forget()

    def _kinds(self) -> "tuple[dict[str, Any], ...]":
        return (
            *(self.runs, self.specs, self.sessions, self.counts),
            *(self.turns, self.drivers, self.places, self.quiet),
        )
