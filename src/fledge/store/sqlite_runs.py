"""The verbs on runs, their timeline and their texts, in SQL. `sqlite_sessions` has those on sessions and transcripts.

One statement per thought; no decision is made here, except that a write which finds another version or epoch than the
caller believed in raises `StaleWrite`.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from fledge.core.announce import announce_key
from fledge.core.events import Event
from fledge.core.run import AwaitingApproval, Instant, Run, TextId, Waiting
from fledge.errors import NotFound, StaleWrite
from fledge.store.base import (
    ChildrenPage,
    Happened,
    Spec,
)
from fledge.store.known import SHORT, Known

LAST = 2**63 - 1
"""Larger than any number of a row."""

_encode = msgspec.json.Encoder().encode
_decode_run = msgspec.json.Decoder(Run).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_spec = msgspec.json.Decoder(Spec).decode

LISTED = "phase <> 'archived'"
"""Of a run: it is in lists. This and the next two stand in partial indexes word for word, so that those are used."""
ACTIVE = "(outcome IS NULL OR busy = 1)"
"""Of a run: its outcome is open, or something below it is unsettled."""
_ARCHIVED_ABOVE = """
WITH RECURSIVE above(key, parent) AS (
  SELECT r.key, r.parent FROM tallies t CROSS JOIN runs r ON r.key = t.session
  WHERE t.scope = 'parent' AND t.listed > 0 AND r.phase = 'archived'
  UNION SELECT r.key, r.parent FROM above JOIN runs r ON r.key = above.parent WHERE r.phase = 'archived'
)
SELECT above.key FROM above JOIN runs r ON r.key = above.key WHERE above.parent = ? ORDER BY r.created_at, r.id
"""


def to_json(value: object) -> str:
    """JSON text as the store keeps it."""
    return _encode(value).decode()


class RunVerbs:
    """Runs, their timeline, and the texts that belong to them."""

    def __init__(self, db: sqlite3.Connection, known: Known | None = None) -> None:
        self._db = db
        self._known = Known() if known is None else known
        """The only writer may keep this from one transaction to the next."""

    def _one(self, sql: str, *args: Any) -> Any:
        return self._db.execute(sql, args).fetchone()

    def _column(self, sql: str, *args: Any) -> list[Any]:
        return [row[0] for row in self._db.execute(sql, args)]

    def _is_unused(self, table: str) -> bool:
        """True if the table is empty. Whoever inserts into it must say so by `_uses`."""
        unused = self._known.unused
        if table not in unused:
            unused[table] = self._one(f"SELECT 1 FROM {table} LIMIT 1") is None
        return unused[table]

    def _uses(self, table: str) -> None:
        self._known.unused[table] = False

    def create_run(self, run: Run, spec: Spec, event: Event) -> None:
        """Insert the run, its first name and its first event."""
        phase = run.phase
        (run_no,) = self._one(
            "INSERT INTO runs (key, parent, root, created_at, phase, version, due_at, spec, state)"
            " VALUES (?1,?2,coalesce((SELECT root FROM runs WHERE key = ?2), ?2),?3,?4,?5,?6,?7,?8) RETURNING id",
            run.key,
            run.terms.parent,
            event.at,
            phase.name,
            run.version,
            run.due_at,
            to_json(spec),
            to_json(run),
        )
        self._known.runs[run.key] = (run_no, run)
        self._known.specs[run.key] = spec
        if isinstance(phase, AwaitingApproval):
            self._known.awaiting = None
        self._name_attempt(run_no, run)
        self._record(run_no, run, event)

    def load_run(self, key: str) -> Run:
        """The run of this session."""
        run = self.find_run(key)
        if run is None:
            raise NotFound(f"no run {key}")
        return run

    def find_run(self, key: str) -> Run | None:
        """The run of this session, or None."""
        known = self._numbered(key)
        return None if known is None else known[1]

    def _numbered(self, key: str) -> tuple[int, Run] | None:
        runs = self._known.runs
        if key not in runs:
            row = self._one("SELECT id, state FROM runs WHERE key = ?", key)
            runs[key] = None if row is None else (row[0], _decode_run(row[1]))
        return runs[key]

    def save_run(self, before: Run, after: Run, event: Event) -> None:
        """Update the row where its version is still the one decided on, and record the event."""
        known = self._numbered(after.key)
        if known is None:
            raise StaleWrite(f"{after.key} is gone")
        number = known[0]
        phase, ended, delivery = after.phase, after.ended, after.delivery
        saved = self._db.execute(
            "UPDATE runs SET phase = ?, version = ?, due_at = ?, outcome = ?, delivery = ?, until_settled = ?,"
            " silence_told = silence_told AND ?, state = ? WHERE id = ? AND version = ?",
            (
                phase.name,
                after.version,
                after.due_at,
                None if ended is None else ended.outcome.status,
                None if delivery is None else delivery.word,
                phase.until_settled if isinstance(phase, Waiting) else None,
                delivery is not None,  # a run that was resumed may end silently once more
                to_json(after),
                number,
                before.version,
            ),
        )
        if saved.rowcount != 1:
            raise StaleWrite(f"{after.key} is not at version {before.version} any more")
        self._known.runs[after.key] = (number, after)
        if isinstance(phase, AwaitingApproval) or isinstance(before.phase, AwaitingApproval):
            self._known.awaiting = None
        if after.run_id != before.run_id:
            self._name_attempt(number, after)
        self._record(number, after, event)

    def _name_attempt(self, run_no: int, run: Run) -> None:
        self._db.execute("INSERT INTO attempts VALUES (?,?,?)", (run.run_id, run_no, run.attempt))

    def _record(self, run_no: int, run: Run, event: Event) -> None:
        self._db.execute(
            "INSERT INTO run_events (run, version, event) VALUES (?,?,?)", (run_no, run.version, to_json(event))
        )

    def forget_run(self, key: str) -> None:
        """Delete the run with its timeline, texts, names, session, queue place and rows."""
        row = self._one("DELETE FROM runs WHERE key = ? RETURNING id", key)
        if row is None:
            return
        self._known.forget_session(key)
        self._known.awaiting = None
        self._known.texts.clear()
        self._known.ranks.clear()
        last = self.last_event()
        for table in ("run_events", "attempts"):
            self._db.execute(f"DELETE FROM {table} WHERE run = ?", row)
        if self.last_event() < last:
            # Nobody's event keeps the number, so that it is not given again to somebody who resumes behind it.
            self._db.execute("DELETE FROM run_events WHERE run = 0")
            self._db.execute("INSERT INTO run_events (seq, run, version, event) VALUES (?, 0, 0, '')", (last,))
        self._db.execute("DELETE FROM texts WHERE owner = ?", (key,))
        self._db.execute("DELETE FROM deliveries WHERE run = ?", (key,))
        self._db.execute("DELETE FROM spawns WHERE run = ?", (key,))
        for table in (
            "entries",
            "turns",
            "queue",
            "children",
            "approvals",
            "purses",
            "reserves",
            "routes",
            "commissions",
            "heartbeats",
            "images",
        ):
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (key,))
        self._db.execute("DELETE FROM exchanges WHERE requester = ? OR target = ?", (key, key))
        self._db.execute("DELETE FROM sessions WHERE key = ?", (key,))
        self._forget_rows(key)

    def _forget_rows(self, key: str) -> None:
        """Its own inbox goes, but for what runs that are still known have written there; so does what it wrote to
        others, once that is closed."""
        self._db.execute(
            "DELETE FROM inbox WHERE session = ? AND kind NOT IN ('outcome','plan','expired','late')", (key,)
        )
        closed = "state <> 'unread' AND state <> 'undelivered'"
        self._db.execute(
            f"DELETE FROM inbox WHERE session = ? AND {closed}"
            " AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.key = inbox.source)",
            (key,),
        )
        written = announce_key(key, "-", "outcome").removesuffix("-")
        self._db.execute(f"DELETE FROM inbox WHERE key >= ? AND key < ? AND {closed}", (written, written[:-1] + ";"))

    def run_named(self, run_id: str) -> tuple[str, int] | None:
        """The run and attempt this run id was given to."""
        row = self._one(
            "SELECT r.key, a.attempt FROM attempts a JOIN runs r ON r.id = a.run WHERE a.run_id = ?", run_id
        )
        return None if row is None else (row[0], row[1])

    def spec(self, key: str) -> Spec:
        """What was asked of this run."""
        specs = self._known.specs
        if key not in specs:
            row = self._one("SELECT spec FROM runs WHERE key = ?", key)
            if row is None:
                raise NotFound(f"no run {key}")
            specs[key] = _decode_spec(row[0])
        return specs[key]

    def children(self, session: str) -> list[str]:
        """Runs spawned by this session, oldest first."""
        return self._column("SELECT key FROM runs WHERE parent = ? ORDER BY created_at, id", session)

    def children_page(self, session: str, limit: int, newest: bool = False) -> ChildrenPage:
        """The first children in list order, or the newest."""
        room = max(0, limit)
        order = "created_at DESC, id DESC" if newest else "created_at, id"
        keys = self._column(
            f"SELECT key FROM runs INDEXED BY runs_active WHERE parent = ? AND {ACTIVE} AND {LISTED}"
            f" ORDER BY {order} LIMIT ?",
            session,
            room,
        )
        if len(keys) < room:
            keys += self._column(
                f"SELECT key FROM runs INDEXED BY runs_children WHERE parent = ? AND {LISTED} AND NOT {ACTIVE}"
                f" ORDER BY {order} LIMIT ?",
                session,
                room - len(keys),
            )
        active = self._one(
            f"SELECT count(*) FROM runs INDEXED BY runs_active WHERE parent = ? AND {ACTIVE} AND {LISTED}", session
        )[0]
        return ChildrenPage(keys, active, self.count_retained(session) - active)

    def archived_above(self, session: str) -> list[str]:
        """Archived children of the session with something below them that is not."""
        return self._column(_ARCHIVED_ABOVE, session)

    def count_retained(self, session: str) -> int:
        """Runs of this session that are not archived."""
        row = self._one("SELECT listed FROM tallies WHERE scope = 'parent' AND session = ?", session)
        return 0 if row is None else int(row[0])

    def children_in(self, session: str, phase: Literal["spawning", "awaiting_approval"]) -> list[str]:
        """The session's children in this phase, oldest first."""
        # The first condition names the partial index's own, so that it is used.
        return self._column(
            "SELECT key FROM runs WHERE (phase = 'spawning' OR phase = 'awaiting_approval')"
            " AND parent = ? AND phase = ? ORDER BY id",
            session,
            phase,
        )

    def awaiting(self) -> list[str]:
        """Runs whose plan awaits its answer."""
        if self._known.awaiting is None:
            # `+id`: for the order of `id` itself all runs would be gone through.
            self._known.awaiting = self._column(
                "SELECT key FROM runs WHERE (phase = 'spawning' OR phase = 'awaiting_approval')"
                " AND phase = 'awaiting_approval' ORDER BY +id"
            )
        return list(self._known.awaiting)

    def reservations(self, limit: int) -> list[str]:
        """Runs that are still being prepared."""
        return self._column(
            "SELECT key FROM runs WHERE (phase = 'spawning' OR phase = 'awaiting_approval')"
            " AND phase = 'spawning' ORDER BY +id LIMIT ?",
            limit,
        )

    def due_runs(self, at: Instant, limit: int) -> list[str]:
        """Runs whose due time has come."""
        return self._column("SELECT key FROM runs WHERE due_at <= ? ORDER BY due_at, id LIMIT ?", at, limit)

    def events(self, key: str) -> list[Event]:
        """The timeline of a run."""
        rows = self._column(
            "SELECT e.event FROM runs r JOIN run_events e ON e.run = r.id WHERE r.key = ? ORDER BY e.seq", key
        )
        return [_decode_event(row) for row in rows]

    def events_after(self, seq: int, limit: int) -> list[Happened]:
        """Events of all runs, by their place in the table."""
        sql = (
            "SELECT e.seq, r.key, e.version, e.event FROM run_events e JOIN runs r ON r.id = e.run"
            " WHERE e.seq > ? ORDER BY e.seq LIMIT ?"
        )
        rows = self._db.execute(sql, (seq, limit))
        return [Happened(at, key, version, _decode_event(event)) for at, key, version, event in rows]

    def events_around(
        self, session: str, names: Sequence[str], since: Instant, until: Instant, scanned: int
    ) -> list[Happened]:
        """Events are stored in the order of their times, so both ends are found by halving."""
        first, last = self._event_at(since), self._event_at(until)
        marks = ",".join("?" * len(names))
        sql = (
            "SELECT found.seq, r.key, found.version, found.event"
            " FROM (SELECT * FROM run_events WHERE seq >= ? AND seq < ? AND run > 0 ORDER BY seq DESC LIMIT ?) found"
            " JOIN runs r ON r.id = found.run"
            f" WHERE (r.parent = ? OR r.key = ?) AND json_extract(found.event, '$.type') IN ({marks})"
            " ORDER BY found.seq"
        )
        rows = self._db.execute(sql, (first, last, scanned, session, session, *names))
        return [Happened(at, key, version, _decode_event(event)) for at, key, version, event in rows]

    def _event_at(self, at: Instant) -> int:
        """The number of the first event that is not older than this; one above the last if there is none."""
        sql = "SELECT seq, json_extract(event, '$.at') FROM run_events WHERE seq >= ? AND run > 0 ORDER BY seq LIMIT 1"
        low, high = 1, self.last_event() + 1
        while low < high:
            middle = (low + high) // 2
            row = self._one(sql, middle)
            if row is None or row[1] >= at:
                high = middle
            else:
                low = int(row[0]) + 1
        return low

    def last_event(self) -> int:
        """The largest number in the table."""
        return int(self._one("SELECT coalesce(max(seq), 0) FROM run_events")[0])

    def keep_text(self, owner: str, text: str) -> TextId:
        """Keep a text once per owner."""
        body = text.encode("utf-8", "replace").decode()
        text_id = hashlib.sha256(f"{owner}\n{body}".encode()).hexdigest()[:32]
        self._db.execute("INSERT OR IGNORE INTO texts VALUES (?,?,?)", (text_id, owner, body))
        if len(body) <= SHORT:
            self._known.texts[text_id] = body
        return text_id

    def text(self, text_id: TextId) -> str:
        """A kept text."""
        known = self._known.texts.get(text_id)
        if known is not None:
            return known
        row = self._one("SELECT body FROM texts WHERE id = ?", text_id)
        if row is None:
            raise NotFound(f"no text {text_id}")
        return str(row[0])
