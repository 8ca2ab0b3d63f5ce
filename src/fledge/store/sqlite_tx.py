"""The verbs on runs, texts, sessions and transcripts, in SQL. `sqlite_flow` has those on inboxes, lanes and the outbox.

One statement per thought; no decision is made here, except that a write which finds another version or epoch than the
caller believed in raises `StaleWrite`.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from fledge.core.announce import announce_key
from fledge.core.events import Event
from fledge.core.run import AwaitingApproval, Instant, Run, TextId, Waiting
from fledge.errors import NotFound, Refused, StaleWrite
from fledge.store.base import (
    ChildrenPage,
    Counts,
    Entry,
    EntryKind,
    Happened,
    Session,
    SessionFacts,
    SessionKind,
    Spec,
    Turn,
    Used,
)
from fledge.store.known import SHORT, Known

_encode = msgspec.json.Encoder().encode
_decode_run = msgspec.json.Decoder(Run).decode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_spec = msgspec.json.Decoder(Spec).decode
_decode_facts = msgspec.json.Decoder(SessionFacts).decode
_decode_generations = msgspec.json.Decoder(dict[str, int]).decode

_TURN = "session, turn, generations, drained, failures, crashes, opened_at, told_bytes, origin, heartbeat"
_SESSION = "key, kind, parent, depth, facts, state, epoch, generation, created_at"
_SESSIONS = f"""
SELECT {_SESSION},
  coalesce((SELECT at FROM entries e WHERE e.session = s.key ORDER BY seq DESC LIMIT 1), created_at) AS last
FROM sessions s WHERE key >= ? AND key < ? AND state = 'open' ORDER BY last DESC, key LIMIT ?
"""

_CHILDREN = """
SELECT r.key, r.outcome IS NULL OR coalesce(c.unsettled, 0) > 0 AS active
FROM runs r LEFT JOIN children c ON c.session = r.key WHERE r.parent = ? AND r.phase <> 'archived'
"""

_APPEND = "UPDATE sessions SET last_entry = last_entry + ? WHERE key = ? RETURNING last_entry"
_APPEND_USED = """
UPDATE sessions SET last_entry = last_entry + ?1, tokens_in = coalesce(tokens_in, 0) + ?2,
  tokens_out = coalesce(tokens_out, 0) + ?3, cost_usd = coalesce(cost_usd + ?4, cost_usd, ?4)
WHERE key = ?5 RETURNING last_entry, tokens_in, tokens_out, cost_usd
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
            "INSERT INTO runs (key, parent, phase, version, due_at, spec, state) VALUES (?,?,?,?,?,?,?) RETURNING id",
            run.key,
            run.terms.parent,
            phase.name,
            run.version,
            run.due_at,
            to_json(spec),
            to_json(run),
        )
        self._known.runs[run.key] = (run_no, run)
        self._known.specs[run.key] = spec
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
            " state = ? WHERE id = ? AND version = ?",
            (
                phase.name,
                after.version,
                after.due_at,
                None if ended is None else ended.outcome.status,
                None if delivery is None else delivery.word,
                phase.until_settled if isinstance(phase, Waiting) else None,
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
        return self._column("SELECT key FROM runs WHERE parent = ? ORDER BY id", session)

    def children_page(self, session: str, limit: int) -> ChildrenPage:
        """The first children in list order."""
        active, done = self._one(f"SELECT total(active), total(1 - active) FROM ({_CHILDREN})", session)
        keys = self._column(f"{_CHILDREN} ORDER BY active DESC, r.id LIMIT ?", session, limit)
        return ChildrenPage(keys, int(active), int(done))

    def count_retained(self, session: str) -> int:
        """Runs of this session that are not archived."""
        return int(self._one("SELECT count(*) FROM runs WHERE parent = ? AND phase <> 'archived'", session)[0])

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


class SessionVerbs(RunVerbs):
    """Sessions, their children's counts, transcripts and turns."""

    def open_session(
        self, key: str, kind: SessionKind, parent: str | None, depth: int, facts: SessionFacts, at: Instant
    ) -> None:
        """Insert the session unless it exists; one that was deleted is open again."""
        made = self._db.execute(
            "INSERT INTO sessions (key, kind, parent, depth, facts, created_at) VALUES (?,?,?,?,?,?)"
            " ON CONFLICT (key) DO NOTHING",
            (key, kind, parent, depth, to_json(facts), at),
        )
        if made.rowcount:
            self._known.made_session(Session(key, kind, parent, depth, facts, False, 0, 0, at))
            return
        self._known.sessions.pop(key, None)
        gone = "SELECT key FROM sessions WHERE key = ? AND state = 'deleted'"
        self._db.execute(f"DELETE FROM entries WHERE session = ({gone})", (key,))
        self._db.execute("UPDATE sessions SET state = 'open' WHERE key = ?", (key,))

    def session(self, key: str) -> Session | None:
        """The session, deleted or not."""
        sessions = self._known.sessions
        if key not in sessions:
            row = self._one(f"SELECT {_SESSION} FROM sessions WHERE key = ?", key)
            sessions[key] = None if row is None else _session(row)
        return sessions[key]

    def sessions(self, agent_id: str | None = None, limit: int = 1000) -> list[tuple[Session, Instant]]:
        """Open sessions by the time of their last entry."""
        # Keys of one agent lie together: from `agent:<id>:` up to the character behind the colon.
        first, end = ("agent:", "agent;") if agent_id is None else (f"agent:{agent_id}:", f"agent:{agent_id};")
        rows = self._db.execute(_SESSIONS, (first, end, limit))
        return [(_session(row[:-1]), row[-1]) for row in rows]

    def roots(self) -> list[str]:
        """Sessions without a parent."""
        return self._column("SELECT key FROM sessions WHERE depth = 0 AND state = 'open' ORDER BY created_at, key")

    def change_session(self, key: str, facts: SessionFacts) -> None:
        """Replace what is known of the session."""
        self._known.sessions.pop(key, None)
        self._db.execute("UPDATE sessions SET facts = ? WHERE key = ?", (to_json(facts), key))

    def delete_session(self, key: str, keep_transcript: bool = False) -> None:
        """Drop transcript and turns; keep the row as a mark."""
        self._known.sessions.pop(key, None)
        self._known.turns.pop(key, None)
        self._known.used.pop(key, None)
        self._db.execute(
            "UPDATE sessions SET state = 'deleted', tokens_in = NULL, tokens_out = NULL, cost_usd = NULL WHERE key = ?",
            (key,),
        )
        if not keep_transcript:
            self._db.execute("DELETE FROM entries WHERE session = ?", (key,))
        self._db.execute("DELETE FROM turns WHERE session = ?", (key,))
        for table in ("routes", "heartbeats"):
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (key,))

    def lineage(self, key: str) -> list[Session]:
        """The session and its ancestors, nearest first."""
        found: list[Session] = []
        seen: set[str] = set()
        next_key: str | None = key
        while next_key is not None and next_key not in seen:
            seen.add(next_key)
            session = self.session(next_key)
            if session is None:
                break
            found.append(session)
            next_key = session.parent
        return found

    def raise_generation(self, key: str) -> int:
        """One generation later."""
        self._known.sessions.pop(key, None)
        row = self._one("UPDATE sessions SET generation = generation + 1 WHERE key = ? RETURNING generation", key)
        if row is None:
            raise NotFound(f"no session {key}")
        return int(row[0])

    def counts(self, session: str) -> Counts:
        """Its children, spawned and unsettled."""
        counts = self._known.counts
        if session not in counts:
            row = self._one("SELECT spawned, unsettled FROM children WHERE session = ?", session)
            counts[session] = Counts(0, 0) if row is None else Counts(*row)
        return counts[session]

    def child_admitted(self, session: str) -> Counts:
        """One more spawned, one more unsettled."""
        row = self._one(
            "INSERT INTO children (session, spawned, unsettled) VALUES (?, 1, 1)"
            " ON CONFLICT DO UPDATE SET spawned = spawned + 1, unsettled = unsettled + 1 RETURNING spawned, unsettled",
            session,
        )
        return self._counted(session, row)

    def child_unsettled(self, session: str) -> Counts:
        """A settled child is unsettled again."""
        return self._count("unsettled + 1", session)

    def child_settled(self, session: str) -> Counts:
        """One unsettled child fewer."""
        return self._count("unsettled - 1", session)

    def _count(self, change: str, session: str) -> Counts:
        row = self._one(
            f"UPDATE children SET unsettled = {change} WHERE session = ? RETURNING spawned, unsettled", session
        )
        if row is None:
            raise NotFound(f"no children of {session}")
        return self._counted(session, row)

    def _counted(self, session: str, row: tuple[int, int]) -> Counts:
        counts = self._known.counts[session] = Counts(*row)
        return counts

    def silent_children(self, session: str, limit: int) -> list[str]:
        """Children that ended without anything to tell."""
        return self._column(
            "SELECT key FROM runs WHERE parent = ? AND delivery = 'skipped' AND outcome <> 'error' ORDER BY id LIMIT ?",
            session,
            limit,
        )

    def waits_until(self, session: str) -> int | None:
        """The number of settled children its waiting run wants."""
        run = self.find_run(session)
        return run.phase.until_settled if run is not None and isinstance(run.phase, Waiting) else None

    def append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        """Append entries under the session's own numbering, and add what was used."""
        if used is None:
            row = self._one(_APPEND, len(entries), session)
        else:
            row = self._one(_APPEND_USED, len(entries), used.tokens_in, used.tokens_out, used.cost_usd, session)
            if row is not None:
                self._known.used[session] = Used(*row[1:])
        if row is None:
            raise NotFound(f"no session {session}")
        last: int = row[0]
        for seq, (kind, body) in enumerate(entries, last - len(entries) + 1):
            self._db.execute("INSERT INTO entries VALUES (?,?,?,?,?)", (session, seq, at, kind, body))
        return last

    def used(self, session: str) -> Used:
        """What was added up."""
        used = self._known.used
        if session not in used:
            row = self._one("SELECT tokens_in, tokens_out, cost_usd FROM sessions WHERE key = ?", session)
            used[session] = Used() if row is None else Used(*row)
        return used[session]

    def entries(self, session: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A page of the transcript."""
        rows = self._db.execute(
            "SELECT seq, at, kind, body FROM entries WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?",
            (session, after, limit),
        )
        return [Entry(*row) for row in rows]

    def last_entry(self, session: str) -> int:
        """The session's counter of entries."""
        row = self._one("SELECT last_entry FROM sessions WHERE key = ?", session)
        return 0 if row is None else int(row[0])

    def tail(self, session: str, limit: int, without: Sequence[EntryKind] = ()) -> list[Entry]:
        """The newest entries, oldest first."""
        left_out = "".join(f" AND kind <> '{kind}'" for kind in without)
        rows = self._db.execute(
            f"SELECT seq, at, kind, body FROM entries WHERE session = ?{left_out} ORDER BY seq DESC LIMIT ?",
            (session, limit),
        )
        return [Entry(*row) for row in rows][::-1]

    def open_turn(self, session: str, generations: dict[str, int], at: Instant) -> Turn:
        """Open the session's next turn."""
        if self.turn(session) is not None:
            raise Refused("error", f"a turn of {session} is open")
        row = self._one("UPDATE sessions SET last_turn = last_turn + 1 WHERE key = ? RETURNING last_turn", session)
        if row is None:
            raise NotFound(f"no session {session}")
        self._db.execute(
            "INSERT INTO turns (session, turn, state, generations, opened_at) VALUES (?,?,'open',?,?)",
            (session, row[0], to_json(generations), at),
        )
        turn = self._known.turns[session] = Turn(session, row[0], generations, 0, 0, 0, at)
        return turn

    def turn(self, session: str) -> Turn | None:
        """The open turn, if any."""
        turns = self._known.turns
        if session not in turns:
            row = self._one(f"SELECT {_TURN} FROM turns WHERE session = ? AND state = 'open'", session)
            turns[session] = None if row is None else _turn(row)
        return turns[session]

    def failing_turns(self) -> list[Turn]:
        """Open turns that took rows and were driven in vain."""
        sql = f"SELECT {_TURN} FROM turns WHERE state = 'open' AND drained > 0 AND failures > 0"
        return [_turn(row) for row in self._db.execute(f"{sql} ORDER BY opened_at, session")]

    def drained(self, session: str, count: int, told_bytes: int = 0) -> None:
        """The open turn has taken this many more rows."""
        turn = self._known.turns.get(session)
        if turn is not None:
            self._known.turns[session] = replace(
                turn, drained=turn.drained + count, told_bytes=turn.told_bytes + told_bytes
            )
        self._db.execute(
            "UPDATE turns SET drained = drained + ?, told_bytes = told_bytes + ? WHERE session = ? AND state = 'open'",
            (count, told_bytes, session),
        )

    def set_origin(self, session: str, origin: str) -> None:
        """The open turn answers what came from there."""
        self._known.turns.pop(session, None)
        self._db.execute("UPDATE turns SET origin = ? WHERE session = ? AND state = 'open'", (origin, session))

    def turn_failed(self, session: str, failures: int, crashes: int) -> None:
        """Remember how often the open turn was driven in vain."""
        self._known.turns.pop(session, None)
        self._db.execute(
            "UPDATE turns SET failures = ?, crashes = ? WHERE session = ? AND state = 'open'",
            (failures, crashes, session),
        )

    def close_turn(self, session: str, ended: str, at: Instant) -> None:
        """Close the open turn, if any."""
        self._known.turns[session] = None
        self._db.execute(
            "UPDATE turns SET state = 'closed', ended = ?, closed_at = ? WHERE session = ? AND state = 'open'",
            (ended, at, session),
        )
        if self._is_unused("commissions"):
            return
        self._db.execute(
            "UPDATE commissions SET ended = ?, ended_at = ?, entry = (SELECT last_entry FROM sessions WHERE key = ?)"
            " WHERE session = ? AND ended_at IS NULL AND turn IS NOT NULL",
            (ended, at, session, session),
        )


def _turn(row: Sequence[Any]) -> Turn:
    session, number, generations, *rest = row
    return Turn(session, number, _decode_generations(generations), *rest)


def _session(row: Sequence[Any]) -> Session:
    key, kind, parent, depth, facts, state, epoch, generation, created_at = row
    return Session(key, kind, parent, depth, _decode_facts(facts), state == "deleted", epoch, generation, created_at)
