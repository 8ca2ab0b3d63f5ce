"""One transaction, by the nouns of the domain. Valid only inside the job it was given to.

A job is a plain function that gets a `Tx`, decides on what it reads, and writes; all of it is one transaction. So there
is nothing to compare and retry; what comes from outside (a driver's write) is fenced by the session's epoch, and every
save by the run's version. Nothing here knows phases' rules or time; `at` is always an argument.
"""

from typing import Final

from fledge.core.cluster import News
from fledge.core.run import Instant
from fledge.store.active import Drivers, Queue, Turns
from fledge.store.budgets import Budgets
from fledge.store.engines import Engines, Errands
from fledge.store.exchanges import Exchanges
from fledge.store.heartbeats import Heartbeats
from fledge.store.inbox import Inbox
from fledge.store.lists import Lists
from fledge.store.outgoing import Outbox, Routes
from fledge.store.people import Approvals, IdempotencyKeys, MessageRequests
from fledge.store.runs import Days, Deliveries, Events, Runs, Texts
from fledge.store.session_rows import ACTIVE, ActiveRow
from fledge.store.sessions import Sessions, Transcripts
from fledge.store.unit import Table, Unit
from fledge.store.workspaces import Workspaces

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
    """What a job reads and writes."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        active: Table[str, ActiveRow] = Table(unit, ACTIVE)
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
        self.turns = Turns(unit, active, self.sessions, self.requests, self.approvals)
        self.inbox = Inbox(unit, self.runs, self.requests)
        self.outbox = Outbox(unit)
        self.routes = Routes(unit)
        self.asks = IdempotencyKeys(unit)
        self.budgets = Budgets(unit)
        self.exchanges = Exchanges(unit)
        self.heartbeats = Heartbeats(unit)
        self.workspaces = Workspaces(unit)
        self.lists = Lists(unit, self.runs)
        self.engines = Engines(unit)
        self.errands = Errands(unit)
        self.at: Instant | None = None
        """When this transaction began, by the clock of the database; None where the clock of the machine counts."""

    def tell(self, news: News) -> None:
        """Tell the engines of other processes, once this transaction is committed."""
        self.unit.news.append(news)

    def next_due(self, after: Instant) -> Instant | None:
        """The earliest time later than `after` at which a run, a queued session, a slot, a post or a binding
        is due."""
        due: Instant | None = self.unit.one(_NEXT_DUE, *(after,) * _NEXT_DUE.count("?"))[0]
        return due
