"""Sessions and their transcripts. A session is one row: its identity, its last entry and turn, the usage of its
replies, the counts of its children, its handover and its wait.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from fledge.core.handover import Handover
from fledge.core.run import Instant
from fledge.errors import NotFound
from fledge.store.records import Counts, Entry, EntryKind, Session, SessionFacts, SessionKind, Used
from fledge.store.runs import Days, Runs
from fledge.store.session_rows import SESSIONS, UNOPENED, ActiveRow, StoredSession
from fledge.store.unit import LAST, AppendedRows, Table, Unit, json_decoder, to_json

_decode_goods = json_decoder(Handover)


class Sessions:
    """Sessions by their keys."""

    def __init__(self, unit: Unit, runs: Runs, active: Table[str, ActiveRow]) -> None:
        self._unit, self._runs, self._active = unit, runs, active
        self.rows: Table[str, StoredSession] = Table(unit, SESSIONS)

    def open(
        self, key: str, kind: SessionKind, parent: str | None, depth: int, facts: SessionFacts, at: Instant
    ) -> None:
        """Create a session. An open one is not changed; a deleted one is opened again, empty."""
        if self._runs.rows.is_new(key):
            self.rows.kept.setdefault(key, None)  # a session is deleted with its run, so a new run has none stored
        row = self.rows.get(key)
        if row is None:
            session = Session(key, kind, parent, depth, facts, False, 0, 0, at)
            self.rows.put(key, StoredSession(session, at))
            self._active.kept.setdefault(key, None)  # a new session has no place, driver or turn
        elif row.session.deleted:
            self._drop_transcript(key)
            session = replace(row.session, deleted=False)
            self.rows.put(key, replace(row, session=session, last_at=session.created_at))

    def get(self, key: str) -> Session | None:
        """The session, with `deleted` set if it was deleted; None if it was never opened."""
        row = self.rows.get(key)
        return None if row is None else row.session

    def row(self, key: str) -> StoredSession:
        """The stored session. Raises `NotFound` if it was never opened."""
        row = self.rows.get(key)
        if row is None:
            raise NotFound(f"no session {key}")
        return row

    def roots(self) -> list[str]:
        """Keys of open conversations and programs, oldest first."""
        return self._unit.column("SELECT key FROM sessions WHERE depth = 0 AND state = 'open' ORDER BY created_at, key")

    def change(self, key: str, facts: SessionFacts, kind: SessionKind | None = None) -> None:
        """Replace the session's properties, and its kind if one is given."""
        row = self.rows.get(key)
        if row is not None:
            session = replace(row.session, facts=facts, kind=kind or row.session.kind)
            self.rows.put(key, replace(row, session=session))

    def delete(self, key: str, keep_transcript: bool = False) -> None:
        """Mark a session deleted, and delete its transcript unless it is kept. Inboxes are not changed."""
        row = self.rows.get(key)
        if row is not None:
            session = replace(row.session, deleted=True)
            self.rows.put(key, replace(row, session=session, used=Used(), ran=None, ended=None, wait=None))
        at_work = self._active.get(key)
        if at_work is not None:
            self._active.put(key, at_work.without_turn())
        if not keep_transcript:
            self._drop_transcript(key)
        for table in ("routes", "heartbeats"):
            self._unit.execute(f"DELETE FROM {table} WHERE session = ?", key)

    def _drop_transcript(self, key: str) -> None:
        self._unit.execute("DELETE FROM entries WHERE session = ?", key)
        self._unit.execute("DELETE FROM files WHERE session = ?", key)

    def lineage(self, key: str) -> list[Session]:
        """The session and its ancestors, nearest first; a cycle ends it."""
        found: dict[str, Session] = {}
        session = self.get(key)
        while session is not None and session.key not in found:
            found[session.key] = session
            session = None if session.parent is None else self.get(session.parent)
        return list(found.values())

    def raise_generation(self, key: str) -> int:
        """Raise the generation: calls of an older generation may not spawn or send any more."""
        row = self.row(key)
        session = replace(row.session, generation=row.session.generation + 1)
        self.rows.put(key, replace(row, session=session))
        return session.generation

    def raise_epoch(self, key: str) -> int:
        """Raise the epoch: a driver of an older epoch cannot write any more."""
        row = self.row(key)
        session = replace(row.session, epoch=row.session.epoch + 1)
        self.rows.put(key, replace(row, session=session))
        return session.epoch

    # -- counting children

    def counts(self, session: str) -> Counts:
        """The counts of its children."""
        return (self.rows.get(session) or UNOPENED).counts

    def child_admitted(self, session: str) -> Counts:
        """Count a new child, which is unsettled."""
        return self._count(session, 1, 1)

    def child_unsettled(self, session: str) -> Counts:
        """Count a settled child as unsettled again."""
        return self._count(session, 0, 1)

    def child_settled(self, session: str) -> Counts:
        """Count a child as settled."""
        return self._count(session, 0, -1)

    def _count(self, session: str, spawned: int, unsettled: int) -> Counts:
        row = self.row(session)
        counts = Counts(row.counts.spawned + spawned, row.counts.unsettled + unsettled)
        if not 0 <= counts.unsettled <= counts.spawned:
            raise NotFound(f"{session} has no such child: {row.counts.unsettled} of {row.counts.spawned} are unsettled")
        self.rows.put(session, replace(row, counts=counts))
        if (counts.unsettled > 0) != (row.counts.unsettled > 0):
            self._runs.is_busy(session, counts.unsettled > 0)
        return counts

    # -- handover

    def keep_handover(self, session: str, handover: Handover) -> None:
        """Store what the session hands over at present."""
        row = self.rows.get(session)
        if row is not None:
            self.rows.put(session, replace(row, handover=to_json(handover)))

    def handover(self, session: str) -> Handover | None:
        """The handover of the session; None if none was ever stored."""
        handover = (self.rows.get(session) or UNOPENED).handover
        return None if handover is None else _decode_goods(handover)

    def cost_below(self, session: str) -> float | None:
        """The cost of all sessions below this one in US dollars, deleted ones included; None if no price is known."""
        return (self.rows.get(session) or UNOPENED).below_usd


class Transcripts:
    """Transcripts of sessions, and the files that they hold."""

    def __init__(self, unit: Unit, sessions: Sessions, days: Days) -> None:
        self._unit, self._sessions, self._days = unit, sessions, days
        self._entries = AppendedRows(
            unit, "entries", "INSERT INTO entries (session, seq, at, kind, body) VALUES (?,?,?,?,?)"
        )

    def append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        """Append entries, and add the usage of their replies; returns the number of the last entry."""
        row = self._sessions.row(session)
        last = row.last_entry
        for kind, body in entries:
            last += 1
            self._entries.add(session, last, at, kind, body)
        total = row.used if used is None else _added(row.used, used)
        self._sessions.rows.put(session, replace(row, last_entry=last, last_at=at, used=total))
        if used is not None and used.cost_usd:
            self._cost_above(session, used.cost_usd)
            self._days.count(session, at, cost_usd=used.cost_usd)
        return last

    def _cost_above(self, session: str, cost_usd: float) -> None:
        """Add the cost to all sessions above."""
        for above in self._sessions.lineage(session)[1:]:
            row = self._sessions.row(above.key)
            self._sessions.rows.put(above.key, replace(row, below_usd=(row.below_usd or 0) + cost_usd))

    def used(self, session: str) -> Used:
        """The usage of all replies of the session; none if it was never opened, or was deleted."""
        return (self._sessions.rows.get(session) or UNOPENED).used

    def entries(self, session: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A page of the transcript, oldest first."""
        sql = "SELECT seq, at, kind, body FROM entries WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [Entry(*row) for row in self._unit.all(sql, session, after, limit)]

    def tail(
        self, session: str, limit: int, without: Sequence[EntryKind] = (), before: int | None = None
    ) -> list[Entry]:
        """The newest entries, oldest first: those numbered below `before`, if it is given, and not of the kinds
        `without`."""
        left_out = "".join(f" AND kind <> '{kind}'" for kind in without)
        sql = (
            f"SELECT seq, at, kind, body FROM entries WHERE session = ? AND seq < ?{left_out} ORDER BY seq DESC LIMIT ?"
        )
        rows = self._unit.all(sql, session, LAST if before is None else before, limit)
        return [Entry(*row) for row in rows][::-1]

    def last(self, session: str) -> int:
        """The number of the last entry, also if it was deleted; 0 if there was none."""
        return (self._sessions.rows.get(session) or UNOPENED).last_entry

    def last_spoken_at(self, session: str) -> Instant | None:
        """The time of the newest message of a person or a program in a conversation."""
        row = self._unit.one(
            "SELECT at FROM entries WHERE session = ? AND kind = 'user' AND json_extract(body, '$.kind') = 'send'"
            " AND json_extract(body, '$.source') IS NULL ORDER BY seq DESC LIMIT 1",
            session,
        )
        return None if row is None else row[0]

    def covered(self, session: str) -> int:
        """The last entry that a summary covers; 0 if there is no summary."""
        return (self._sessions.rows.get(session) or UNOPENED).covered

    def cover(self, session: str, entry: int) -> None:
        """Record that a summary covers all entries up to this one."""
        row = self._sessions.row(session)
        self._sessions.rows.put(session, replace(row, covered=max(row.covered, entry)))

    def hold_files(self, session: str, files: Sequence[str]) -> None:
        """Record that the session's transcript or inbox refers to these files, until its transcript is deleted."""
        rows = [(session, file) for file in files]
        self._unit.many("INSERT INTO files (session, file) VALUES (?,?) ON CONFLICT DO NOTHING", rows)

    def holds_files(self, session: str) -> bool:
        """True if the session holds any file."""
        if self._unit.is_empty("files"):
            return False
        return self._unit.one("SELECT 1 FROM files WHERE session = ? LIMIT 1", session) is not None

    def files(self) -> set[str]:
        """All files that any session holds."""
        return set(self._unit.column("SELECT DISTINCT file FROM files"))


def _added(used: Used, more: Used) -> Used:
    """The sum. The cost stays unknown until a reply has one; after that, a reply without a cost adds nothing."""
    cost = used.cost_usd if more.cost_usd is None else (used.cost_usd or 0) + more.cost_usd
    return Used(
        (used.tokens_in or 0) + (more.tokens_in or 0),
        (used.tokens_out or 0) + (more.tokens_out or 0),
        cost,
        (used.tokens_cached or 0) + (more.tokens_cached or 0),
    )
