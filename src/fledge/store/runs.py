"""Runs: their rows, the ids of their attempts, their timelines, the tries at delivery, and texts.

A run is stored as one value; the other columns are derived from it, for indexes. The numbers of runs in lists are
updated in the commit that changes them.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from fledge.core.announce import announce_key
from fledge.core.events import Event
from fledge.core.run import Instant, Run, TextId
from fledge.core.value import Value
from fledge.errors import NotFound, StaleWrite
from fledge.store.records import AgentDay, Happened, Spec
from fledge.store.unit import (
    AppendedRows,
    Noun,
    Table,
    TableShape,
    Unit,
    insert_into,
    json_decoder,
    marks,
    plain_shape,
    to_json,
)

SHORT: Final = 4096
"""The longest text that is cached: a text is mostly read soon after it was written."""
DUE: Final = "SELECT key FROM runs WHERE due_at <= ? ORDER BY due_at, id LIMIT ?"
ACTIVE: Final = "(outcome IS NULL OR busy = 1)"
"""A run without an outcome, or with unsettled runs below it. The condition of the index `runs_active`."""
_LAST_EVENT: Final = "SELECT coalesce(max(seq), 0) FROM run_events"

_decode_run = json_decoder(Run)
_decode_event = msgspec.json.Decoder(Event).decode
_decode_spec = json_decoder(Spec)


class StoredRun(Value):
    """A run as it is stored."""

    id: int
    number: int
    """Among the runs that its parent has spawned."""
    run: Run
    root: str
    created_at: Instant
    busy: bool
    silence_told: bool
    spec: str
    """As JSON."""


_FAILED: Final = frozenset(("error", "timeout", "unknown"))
"""The outcomes with which a run counts as failed."""


_FACETS: Final = ("outcome", "delivery", "held", "listed", "failed", "busy", "silence_told")
"""The columns of most indexes."""


def _facets(row: StoredRun) -> tuple[Any, ...]:
    """The values of the columns in `_FACETS`."""
    run = row.run
    phase, ended, delivery = run.phase.name, run.phase.ended, run.phase.delivery
    outcome = None if ended is None else ended.outcome.status
    return (
        outcome,
        None if delivery is None else delivery.word,
        phase if phase == "spawning" or phase == "awaiting_approval" else None,
        int(phase != "archived"),
        int(outcome in _FAILED),
        int(row.busy),
        int(row.silence_told),
    )


_UNTOUCHED: Final = ((None, None), (1, 0, 0, 0))
"""The facets of a new run, without `held`: the defaults of their columns."""
_STATE: Final = "id, number, key, parent, root, created_at, phase, version, due_at, spec, state"
_INSERT_NEW: Final = insert_into("runs", f"{_STATE}, held")
_INSERT_ANY: Final = insert_into("runs", f"{_STATE}, {', '.join(_FACETS)}")


def _insert(row: StoredRun) -> tuple[str, tuple[Any, ...]]:
    run = row.run
    place = row.id, row.number, run.key, run.terms.parent, row.root, row.created_at
    mine = (*place, run.phase.name, run.version, run.due_at)
    facets = _facets(row)
    if (facets[:2], facets[3:]) == _UNTOUCHED:
        return _INSERT_NEW, (*mine, row.spec, to_json(run), facets[2])
    return _INSERT_ANY, (*mine, row.spec, to_json(run), *facets)


def _update(before: StoredRun, after: StoredRun) -> tuple[tuple[str, ...], list[Any]]:
    run = after.run
    sets = ["phase = ?", "version = ?", "state = ?"]
    values: list[Any] = [run.phase.name, run.version, to_json(run)]
    due_at = run.due_at
    if due_at != before.run.due_at:
        sets.append("due_at = ?")
        values.append(due_at)
    for name, was, now in zip(_FACETS, _facets(before), _facets(after), strict=True):
        if was != now:
            sets.append(f"{name} = ?")
            values.append(now)
    values += (after.id, before.run.version)
    return tuple(sets), values


def _read(row: Sequence[Any]) -> StoredRun:
    row_id, number, state, root, created_at, busy, silence_told, spec = row
    return StoredRun(row_id, number, _decode_run(state), root, created_at, bool(busy), bool(silence_told), spec)


_RUNS: Final = TableShape(
    name="runs",
    select="SELECT id, number, state, root, created_at, busy, silence_told, spec FROM runs WHERE key = ?",
    read=_read,
    insert=_insert,
    update=_update,
    found="id = ? AND version = ?",
    delete="DELETE FROM runs WHERE key = ?",
)


class Tally(Value):
    """The number of runs of a scope that are in lists, and how many of them failed."""

    scope: str
    session: str
    listed: int
    failed: int


_TALLIES: Final = plain_shape(Tally, "tallies", "scope", "session")


_DAYS: Final = plain_shape(AgentDay, "agent_days", "day", "agent")
_DAY_S: Final = 86400.0


class Days:
    """Runs and cost of agents by day (UTC)."""

    def __init__(self, unit: Unit) -> None:
        self._rows: Table[tuple[int, str], AgentDay] = Table(unit, _DAYS)

    def count(self, session: str, at: Instant, runs: int = 0, cost_usd: float | None = None) -> None:
        """Add runs and cost to the day of this session's agent."""
        agent, day = session.split(":", 2)[1] if session.startswith("agent:") else "", int(at // _DAY_S)
        before = self._rows.get((day, agent)) or AgentDay(agent, day, 0, None)
        cost = before.cost_usd if cost_usd is None else (before.cost_usd or 0) + cost_usd
        self._rows.put((day, agent), AgentDay(agent, day, before.runs + runs, cost))


class Runs:
    """Runs by their keys."""

    def __init__(self, unit: Unit, days: Days) -> None:
        self._unit, self._days = unit, days
        self.rows: Table[str, StoredRun] = Table(unit, _RUNS)
        self.tallies: Table[tuple[str, str], Tally] = Table(unit, _TALLIES)
        self._attempts = AppendedRows(unit, "attempts", "INSERT INTO attempts (run_id, run, attempt) VALUES (?,?,?)")
        self._events = AppendedRows(unit, "run_events", "INSERT INTO run_events (run, version, event) VALUES (?,?,?)")
        self._known = unit.memory("runs")
        """`next`: the next id of a row; `awaiting`: runs whose plan waits for approval."""
        self._specs = unit.memory("runs", by="key")

    def create(self, run: Run, spec: Spec, event: Event, number: int) -> None:
        """Store a run that was just admitted, with its first event and its number among the runs of its parent. The
        database refuses a key that exists, and a number that another run of this parent has."""
        row_id = self._known.get("next") or self._unit.number("SELECT coalesce(max(id), 0) + 1 FROM runs")
        self._known["next"] = row_id + 1
        parent = run.terms.parent
        above = self.rows.get(parent)
        root = parent if above is None else above.root
        row = StoredRun(row_id, number, run, root, event.at, False, False, to_json(spec))
        self._specs[run.key] = spec
        self.rows.add(run.key, row)
        self._count(None, row)
        self._days.count(run.key, event.at, runs=1)
        self._attempts.add(run.run_id, row_id, run.attempt)
        self._events.add(row_id, run.version, to_json(event))
        if run.phase.name == "awaiting_approval":
            self._known.pop("awaiting", None)

    def load(self, key: str) -> Run:
        """The run of this session; NotFound if there is none."""
        row = self.rows.get(key)
        if row is None:
            raise NotFound(f"no run {key}")
        return row.run

    def find(self, key: str) -> Run | None:
        """The run of this session, or None."""
        row = self.rows.get(key)
        return None if row is None else row.run

    def save(self, before: Run, after: Run, event: Event) -> None:
        """Store a run's next state with its event. Raises `StaleWrite` unless `before` is the stored state."""
        row = self.rows.get(after.key)
        if row is None:
            raise StaleWrite(f"{after.key} is gone")
        if row.run.version != before.version:
            raise StaleWrite(f"{after.key} is not at version {before.version} any more")
        # A resumed run may end silently again.
        saved = replace(row, run=after, silence_told=row.silence_told and after.phase.delivery is not None)
        self.rows.put(after.key, saved)
        if after.phase.ended is not before.phase.ended or "archived" in (after.phase.name, before.phase.name):
            self._count(row, saved)
        if "awaiting_approval" in (after.phase.name, before.phase.name):
            self._known.pop("awaiting", None)
        if after.run_id != before.run_id:
            self._attempts.add(after.run_id, row.id, after.attempt)
        self._events.add(row.id, after.version, to_json(event))

    def is_busy(self, key: str, busy: bool) -> None:
        """Set whether this run has unsettled children; does nothing if the key is no run."""
        row = self.rows.get(key)
        if row is not None and row.busy != busy:
            self.rows.put(key, replace(row, busy=busy))

    def _count(self, before: StoredRun | None, after: StoredRun | None) -> None:
        """Update the counts of the folder, the tree and the parent."""
        was, now = _counted(before), _counted(after)
        row = after or before
        if row is None or was == now:
            return
        listed, failed = now[0] - was[0], now[1] - was[1]
        for scope in (("folder", ""), ("tree", row.root), ("parent", row.run.terms.parent)):
            tally = self.tallies.get(scope) or Tally(*scope, 0, 0)
            counted = Tally(*scope, tally.listed + listed, tally.failed + failed)
            self.tallies.put(scope, counted if counted.listed else None)

    def forget(self, key: str) -> None:
        """Delete the run, its timeline, texts, attempts, session and inbox.

        Unread and undelivered completions stay. Closed ones are deleted with the run that they announce, or with their
        inbox if that run is gone.
        """
        row, unit = self.rows.get(key), self._unit
        if row is None:
            return
        last = unit.number(_LAST_EVENT)
        unit.execute("DELETE FROM run_events WHERE run = ?", row.id)
        if unit.number(_LAST_EVENT) < last:
            # A placeholder keeps the last number, so that a feed that resumes after it misses no event.
            unit.execute("DELETE FROM run_events WHERE run = 0")
            unit.execute("INSERT INTO run_events (seq, run, version, event) VALUES (?, 0, 0, '')", last)
        unit.execute("DELETE FROM attempts WHERE run = ?", row.id)
        self.rows.put(key, None)
        self._count(row, None)
        self._known.pop("awaiting", None)
        self._specs.pop(key, None)
        for table in ("sessions", "active"):
            unit.drop(table, key)
        for sql in _OF_A_RUN:
            unit.execute(sql, key)
        unit.execute("DELETE FROM exchanges WHERE requester = ? OR target = ?", key, key)
        self._forget_rows(key)

    def _forget_rows(self, key: str) -> None:
        """Delete its inbox, except completions that are open or of an existing run; and its own closed completions in
        other inboxes."""
        closed = "state <> 'unread' AND state <> 'undelivered'"
        self._unit.execute(
            "DELETE FROM inbox WHERE session = ?"
            " AND kind <> 'outcome' AND kind <> 'plan' AND kind <> 'expired' AND kind <> 'late'",
            key,
        )
        self._unit.execute(
            f"DELETE FROM inbox WHERE session = ? AND {closed}"
            " AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.key = inbox.source)",
            key,
        )
        written = announce_key(key, "-", "outcome").removesuffix("-")
        self._unit.execute(f"DELETE FROM inbox WHERE key >= ? AND key < ? AND {closed}", written, written[:-1] + ";")

    def named(self, run_id: str) -> tuple[str, int] | None:
        """The run and attempt of this run id, which may be that of an earlier attempt."""
        row = self._unit.one(
            "SELECT r.key, a.attempt FROM attempts a JOIN runs r ON r.id = a.run WHERE a.run_id = ?", run_id
        )
        return None if row is None else (row[0], row[1])

    def number(self, key: str) -> int:
        """The number of this run among the runs of its parent, in the order in which they were spawned. It never
        changes, and no other run of this parent ever gets it."""
        row = self.rows.get(key)
        if row is None:
            raise NotFound(f"no run {key}")
        return row.number

    def numbered(self, parent: str, number: int) -> str | None:
        """The run of this session with this number; None if there is none, or none any more."""
        row = self._unit.one("SELECT key FROM runs WHERE parent = ? AND number = ?", parent, number)
        return None if row is None else str(row[0])

    def spec(self, key: str) -> Spec:
        """The parameters of this run."""
        row = self.rows.get(key)
        if row is None:
            raise NotFound(f"no run {key}")
        spec: Spec | None = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = _decode_spec(row.spec)
        return spec

    def children(self, session: str) -> list[str]:
        """Keys of all runs spawned by this session, in the order of their numbers."""
        return self._unit.column("SELECT key FROM runs WHERE parent = ? ORDER BY number", session)

    def children_in(self, session: str, phase: Literal["spawning", "awaiting_approval"]) -> list[str]:
        """Keys of the session's children in this phase, oldest first."""
        sql = "SELECT key FROM runs WHERE held IS NOT NULL AND parent = ? AND held = ? ORDER BY id"
        return self._unit.column(sql, session, phase)

    def unsettled(self, session: str, limit: int) -> list[str]:
        """Children of this session that are unsettled, or have unsettled runs below them, oldest first."""
        return self._unit.column(
            f"SELECT key FROM runs INDEXED BY runs_active WHERE parent = ? AND {ACTIVE}"
            " AND (busy = 1 OR phase <> 'awaiting_approval') ORDER BY created_at, id LIMIT ?",
            session,
            limit,
        )

    def name_silent(self, session: str) -> list[str]:
        """Children of this session that ended without an announcement (skipped, not failed), oldest first.

        Each is returned once, and again if it is resumed and ends silently again.
        """
        found = self._unit.column(
            "SELECT key FROM runs WHERE parent = ? AND delivery = 'skipped' AND silence_told = 0 AND outcome <> 'error'"
            " ORDER BY id",
            session,
        )
        for key in found:
            row = self.rows.get(key)
            self.rows.put(key, None if row is None else replace(row, silence_told=True))
        return found

    def with_leaves(self, session: str, limit: int) -> list[str]:
        """Keys of the session's newest children that have files outside the database, without archived ones."""
        return self._unit.column(
            "SELECT key FROM runs WHERE parent = ? AND listed = 1 AND json_extract(state, '$.terms.leaves') IS NOT NULL"
            " ORDER BY created_at DESC, id DESC LIMIT ?",
            session,
            limit,
        )

    def awaiting(self) -> list[str]:
        """Keys of all runs whose plan waits for approval, oldest first."""
        found: list[str] | None = self._known.get("awaiting")
        if found is None:
            # `+id`: with `id` alone SQLite would scan all runs in that order.
            sql = "SELECT key FROM runs WHERE held IS NOT NULL AND held = 'awaiting_approval' ORDER BY +id"
            found = self._known["awaiting"] = self._unit.column(sql)
        return list(found)

    def reservations(self) -> list[str]:
        """Keys of all runs that are still being prepared, oldest first."""
        return self._unit.column("SELECT key FROM runs WHERE held IS NOT NULL AND held = 'spawning' ORDER BY +id")

    def due(self, at: Instant, limit: int) -> list[str]:
        """Runs that are due, the longest overdue first."""
        return self._unit.column(DUE, at, limit)


_OF_A_RUN: Final = (
    "DELETE FROM texts WHERE owner = ?",
    "DELETE FROM deliveries WHERE run = ?",
    "DELETE FROM asks WHERE owner = ?",
    *(
        f"DELETE FROM {table} WHERE session = ?"
        for table in ("entries", "files", "approvals", "commissions", "purses", "reserves", "routes", "heartbeats")
    ),
)
"""Delete the other rows of a run and its session."""


def _counted(row: StoredRun | None) -> tuple[int, int]:
    """Whether a run is in lists, and whether it counts as failed."""
    if row is None or row.run.phase.name == "archived":
        return 0, 0
    ended = row.run.phase.ended
    return 1, int(ended is not None and ended.outcome.status in _FAILED)


class Events(Noun):
    """Timelines of runs, in the order of commits."""

    def of(self, key: str) -> list[Event]:
        """The timeline of a run, oldest first."""
        rows = self._unit.column(
            "SELECT e.event FROM runs r JOIN run_events e ON e.run = r.id WHERE r.key = ? ORDER BY e.seq", key
        )
        return [_decode_event(row) for row in rows]

    def after(self, seq: int, limit: int) -> list[Happened]:
        """Events of all runs numbered above `seq`, in the order they were stored."""
        rows = self._unit.all(
            "SELECT e.seq, r.key, e.version, e.event FROM run_events e JOIN runs r ON r.id = e.run"
            " WHERE e.seq > ? ORDER BY e.seq LIMIT ?",
            seq,
            limit,
        )
        return _read_events(rows)

    def around(
        self, session: str, names: Sequence[str], since: Instant, until: Instant, scanned: int
    ) -> list[Happened]:
        """Events with these names of the session's own run and of its children, from `since` until before `until`,
        oldest first. At most the newest `scanned` events of that time are read, those of other runs included."""
        # Events are stored in the order of their times, so both ends are found by binary search.
        first, last = self._first_at(since), self._first_at(until)
        sql = (
            "SELECT found.seq, r.key, found.version, found.event"
            " FROM (SELECT * FROM run_events WHERE seq >= ? AND seq < ? AND run > 0 ORDER BY seq DESC LIMIT ?) found"
            " JOIN runs r ON r.id = found.run"
            f" WHERE (r.parent = ? OR r.key = ?) AND json_extract(found.event, '$.type') IN ({marks(len(names))})"
            " ORDER BY found.seq"
        )
        return _read_events(self._unit.all(sql, first, last, scanned, session, session, *names))

    def _first_at(self, at: Instant) -> int:
        """The number of the first event at this time or later; one above the last if there is none."""
        sql = (
            "SELECT seq, CAST(json_extract(event, '$.at') AS REAL) FROM run_events WHERE seq >= ? AND run > 0"
            " ORDER BY seq LIMIT 1"
        )
        low, high = 1, self.last() + 1
        while low < high:
            middle = (low + high) // 2
            row = self._unit.one(sql, middle)
            if row is None or row[1] >= at:
                high = middle
            else:
                low = int(row[0]) + 1
        return low

    def last(self) -> int:
        """The number of the event stored last; 0 if there is none."""
        return self._unit.number(_LAST_EVENT)


def _read_events(rows: list[Any]) -> list[Happened]:
    return [Happened(at, key, version, _decode_event(event)) for at, key, version, event in rows]


class Deliveries:
    """Tries at delivering completions."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._lines = AppendedRows(
            unit, "deliveries", "INSERT INTO deliveries (row_key, run, at, trace) VALUES (?,?,?,?)"
        )

    def note(self, row_key: str, run: str, at: Instant, trace: str) -> None:
        """Record one try at delivering a row."""
        self._lines.add(row_key, run, at, trace)

    def of(self, run: str) -> list[tuple[Instant, str]]:
        """The recorded tries at delivering completions of this run, with their times, oldest first."""
        return [(row[0], row[1]) for row in self._unit.all(_TRACES, run)]


_TRACES: Final = "SELECT at, trace FROM deliveries WHERE run = ? ORDER BY seq"


class Texts:
    """Texts to which inbox rows and runs refer."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._lines = AppendedRows(
            unit, "texts", "INSERT INTO texts (id, owner, body) VALUES (?,?,?) ON CONFLICT DO NOTHING"
        )
        self._recent = unit.memory("texts", by="key")

    def keep(self, owner: str, text: str) -> TextId:
        """Keep a text for a run; the same text gets the same id."""
        body = text.encode("utf-8", "replace").decode()
        text_id = hashlib.sha256(f"{owner}\n{body}".encode()).hexdigest()[:32]
        if text_id not in self._recent:
            self._lines.add(text_id, owner, body)
            if len(body) <= SHORT:
                self._recent[text_id] = body
        return text_id

    def get(self, text_id: TextId) -> str:
        """A kept text; NotFound if it is gone."""
        known: str | None = self._recent.get(text_id)
        if known is None:
            row = self._unit.one(_TEXT, text_id)
            if row is None:
                raise NotFound(f"no text {text_id}")
            known = str(row[0])
        return known

    def ask(self, texts: Iterable[TextId]) -> Callable[[], None]:
        """Ask for these, unless they are known; answers a function that reads them, and keeps those that are short."""
        missing = dict.fromkeys(text_id for text_id in texts if text_id not in self._recent)
        asked = [(text_id, self._unit.execute(_TEXT, text_id)) for text_id in missing]

        def keep() -> None:
            for text_id, cursor in asked:
                row = cursor.fetchone()
                if row is not None and len(row[0]) <= SHORT:
                    self._recent[text_id] = str(row[0])

        return keep


_TEXT: Final = "SELECT body FROM texts WHERE id = ?"
