"""One transaction, by the nouns of the domain. Valid only inside the job it was given to.

A job is a plain function that gets a `Tx`, reads, decides and writes, all in one transaction, so it needs no compare
and retry. The epoch of a session fences writes of its driver, and the version of a run fences every save. Nothing here
knows the rules of phases or the time; `at` is always an argument.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from fledge.core.announce import announce_key
from fledge.core.cluster import News
from fledge.core.documents import Workspace
from fledge.core.run import Instant
from fledge.store.active import COUNTS, LANES, SUSPECTS, WAITED, Drivers, Queue, Turns
from fledge.store.budgets import Budgets
from fledge.store.engines import MEMBERS, Engines, Errands
from fledge.store.exchanges import Exchanges
from fledge.store.heartbeats import Heartbeats
from fledge.store.inbox import Inbox
from fledge.store.lists import Lists
from fledge.store.outgoing import UNBOUND, Outbox, Routes
from fledge.store.people import OVERDUE, Approvals, IdempotencyKeys, MessageRequests
from fledge.store.records import InboxRow, QueuePlace
from fledge.store.runs import DUE, Days, Deliveries, Events, Runs, Texts
from fledge.store.session_rows import ACTIVE, ActiveRow
from fledge.store.sessions import Sessions, Transcripts
from fledge.store.unit import Table, Unit
from fledge.store.workspaces import WORKSPACES

_NEXT_DUE: Final = """
SELECT min(due) FROM (
  SELECT (SELECT due_at FROM runs WHERE due_at > ? ORDER BY due_at LIMIT 1) AS due
  UNION ALL SELECT (SELECT due_at FROM active WHERE due_at > ? ORDER BY due_at LIMIT 1)
  UNION ALL SELECT (SELECT release_at FROM active WHERE release_at > ? ORDER BY release_at LIMIT 1)
  UNION ALL SELECT (SELECT due_at FROM outbox WHERE due_at > ? ORDER BY due_at LIMIT 1)
  UNION ALL SELECT (SELECT deadline_at FROM commissions
                    WHERE deadline_at > ? AND ended_at IS NULL ORDER BY deadline_at LIMIT 1)
  UNION ALL SELECT (SELECT wait_at FROM sessions WHERE wait_at > ? ORDER BY wait_at LIMIT 1)
  UNION ALL SELECT (SELECT due_at FROM routes WHERE due_at > ? ORDER BY due_at LIMIT 1)
  UNION ALL SELECT (SELECT due_at FROM heartbeats WHERE due_at > ? ORDER BY due_at LIMIT 1)
  UNION ALL SELECT (SELECT beat_at FROM heartbeats WHERE beat_at > ? ORDER BY beat_at LIMIT 1)
) AS times
"""


class Tx:
    """The tables of one transaction."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        active: Table[str, ActiveRow] = Table(unit, ACTIVE)
        self._active = active
        days = Days(unit)
        self.runs = Runs(unit, days)
        self.events = Events(unit)
        self.texts = Texts(unit)
        self.deliveries = Deliveries(unit)
        self.sessions = Sessions(unit, self.runs, active)
        self.transcripts = Transcripts(unit, self.sessions, days)
        self.requests = MessageRequests(unit, self.sessions, active)
        self.queue = Queue(unit, active, self.sessions)
        self.drivers = Drivers(unit, active, self.sessions)
        self.approvals = Approvals(unit)
        self.turns = Turns(unit, active, self.runs, self.sessions, self.requests, self.approvals)
        self.inbox = Inbox(unit, self.runs, self.requests)
        self.outbox = Outbox(unit)
        self.routes = Routes(unit)
        self.asks = IdempotencyKeys(unit)
        self.budgets = Budgets(unit)
        self.exchanges = Exchanges(unit)
        self.heartbeats = Heartbeats(unit)
        self.workspaces: Table[str, Workspace] = Table(unit, WORKSPACES)
        """By their real paths."""
        self.lists = Lists(unit, self.runs)
        self.engines = Engines(unit)
        self.errands = Errands(unit)
        self.at: Instant | None = None
        """The start of this transaction by the clock of the database; None: use the clock of the machine."""

    def ask_for_due(self, at: Instant, limit: int) -> None:
        """Ask for what a pass of the engine looks at: one round trip, where the database is remote."""
        self.unit.ahead((SUSPECTS, at), (LANES, at))
        self.unit.ask_empty("outbox", "heartbeats")
        self.unit.ahead(*((sql, at, limit) for sql in (DUE, OVERDUE, WAITED, UNBOUND)))

    def ask_for_claims(self, owner: str, at: Instant) -> None:
        """Ask for what this engine looks at to choose claims: one round trip, where the database is remote."""
        # The first one writes what waits for its table, which makes void what was asked for before.
        self.unit.ahead((SUSPECTS, at), (LANES, at), (COUNTS, owner, at), (MEMBERS,))

    def prefetch_claims(self, places: Collection[QueuePlace]) -> None:
        """Read what these claims and the ends of their drives look up one by one: by two round trips, if the database
        is remote."""
        if self.unit.is_remote:
            sessions = [place.session for place in places]
            tables = (self.runs.rows, self.sessions.rows, self._active, self.inbox)
            lanes = self.queue.lanes.ask(place.lane for place in places)
            _read_all([lanes, *(table.ask(sessions) for table in tables)])
            runs = [run for run in map(self.runs.find, sessions) if run is not None]
            _read_all([self.inbox.rows.ask(announce_key(run.key, run.run_id, "outcome") for run in runs)])

    def prefetch_completions(self, rows: Collection[InboxRow]) -> None:
        """Read the runs and texts of these rows: one round trip, where the database is remote."""
        if self.unit.is_remote:
            announced = [row for row in rows if row.announces is not None]
            runs = self.runs.rows.ask(row.source for row in announced if row.source is not None)
            _read_all([runs, self.texts.ask(row.text for row in announced if row.text is not None)])

    def tell(self, news: News) -> None:
        """Send news to the engines of other processes, after this transaction is committed."""
        self.unit.news.append(news)

    def next_due(self, after: Instant) -> Instant | None:
        """The earliest time later than `after` at which a run, a queued session, a slot, a post or a binding
        is due."""
        due: Instant | None = self.unit.one(_NEXT_DUE, *(after,) * _NEXT_DUE.count("?"))[0]
        return due


def _read_all(asked: Iterable[Callable[[], None]]) -> None:
    for keep in asked:
        keep()
