"""What the only writer knows to be stored: rows it has read or written, kept from one transaction to the next.

Nobody else writes, so what it wrote last is what is stored. Whenever anything is undone, everything is forgotten; so it
is above a number of rows, which costs a reading. A reader begins with nothing and keeps nothing. No SQL is known here.
"""

from typing import Any

from fledge.core.goods import Goods
from fledge.core.run import Run
from fledge.store.records import Counts, Driver, Place, Session, Spec, Turn, Used

MOST = 10_000
"""How many rows of a kind are remembered."""
SHORT = 4096
"""How long a text may be to be remembered."""


class Known:
    """Rows by their keys; None where there is no such row. What is not in here must be looked up."""

    __slots__ = (
        "awaiting",
        "counts",
        "drivers",
        "goods",
        "places",
        "quiet",
        "ranks",
        "runs",
        "sessions",
        "specs",
        "texts",
        "turns",
        "unused",
        "used",
    )

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
        self.goods: dict[str, Goods | None] = {}
        self.used: dict[str, Used] = {}
        self.awaiting: list[str] | None = None
        """Runs whose plan awaits its answer; None if that has to be looked up."""
        self.ranks: dict[tuple[str, str], int] = {}
        """By lane and spawner, the rank of its last place there."""
        self.texts: dict[str, str] = {}
        """Short ones, which are mostly read soon after they were written."""
        self.quiet: dict[str, None] = {}
        """Sessions with no unread row."""
        self.unused: dict[str, bool] = {}
        """Whether a table is empty: what nobody uses is not looked for in every commit."""

    def made_session(self, session: Session) -> None:
        """A session that is new has nothing yet."""
        key = session.key
        self.sessions[key] = session
        self.counts[key] = Counts(0, 0)
        self.used[key] = Used()
        self.turns[key] = self.drivers[key] = self.places[key] = self.goods[key] = None

    def forget_session(self, key: str) -> None:
        """The session, and all that is stored under its key, may be gone."""
        for kind in self._kinds():
            kind.pop(key, None)

    def trim(self) -> None:
        """Forget everything if there is too much of it."""
        if any(len(kind) > MOST for kind in self._kinds()):
            self.forget()

    def _kinds(self) -> "tuple[dict[Any, Any], ...]":
        return (
            *(self.runs, self.specs, self.sessions, self.counts),
            *(self.turns, self.drivers, self.places, self.quiet, self.goods, self.used, self.texts, self.ranks),
        )
