"""What SQLite itself forbids, whoever writes: a row that contradicts its phase, kind or state never reaches the disk.

Also what has no reading verb in `Tx`: when a row was closed, the trace of a delivery.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from fledge.core.run import ENDED, PHASES, UNREAD, Gone
from fledge.store.base import RowState, Tx
from fledge.store.migrate import migrate
from fledge.store.unit import Unit
from tests.core.samples import AT, RUNS
from tests.store.bench import FACTS, MAIN, admit, close_row

Fields = dict[str, Any]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """An empty database of the newest schema, without a store around it."""
    with closing(sqlite3.connect(tmp_path / "fledge.db", isolation_level=None)) as db:
        migrate(db, tmp_path / "fledge.db")
        yield db


def insert(db: sqlite3.Connection, table: str, fields: Fields) -> None:
    """Write a row past all verbs."""
    marks = ", ".join("?" * len(fields))
    db.execute(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})", tuple(fields.values()))


def refused(db: sqlite3.Connection, table: str, fields: Fields) -> bool:
    """Whether SQLite forbids this row; one that it takes is removed again."""
    try:
        insert(db, table, fields)
    except sqlite3.IntegrityError:
        return True
    db.execute(f"DELETE FROM {table}")
    return False


# ---- runs: what each phase must and must not have --------------------------------------------------------------------

PHASE_NAMES: Final = [phase.name for phase in PHASES if phase is not Gone]
ENDED_NAMES: Final = {phase.name for phase in ENDED}
DECIDED_NAMES: Final = {phase.name for phase in ENDED if phase not in UNREAD}
WORDS: Final = ("delivered", "skipped", "undelivered")
DELIVERIES: Final = {name: WORDS if name != "completed_giveup" else WORDS[2:] for name in DECIDED_NAMES}
HELD: Final = ("spawning", "awaiting_approval")
ALWAYS_DUE: Final = {"spawning", "ending", "awaiting_approval", "cleanup_pending", "completed_giveup"}


def run_row(phase: str, **changed: object) -> Fields:
    """A row that this phase allows, but for what is named."""
    row: Fields = {
        "key": "run",
        "parent": MAIN,
        "root": MAIN,
        "created_at": AT,
        "phase": phase,
        "version": 1,
        "due_at": AT,
        "outcome": "ok" if phase in ENDED_NAMES else None,
        "delivery": DELIVERIES[phase][-1] if phase in DECIDED_NAMES else None,
        "held": phase if phase in HELD else None,
        "listed": int(phase != "archived"),
        "spec": "{}",
        "state": "{}",
    }
    row |= changed
    return row | {"failed": int(row["outcome"] in ("error", "timeout", "unknown"))} | changed


@pytest.mark.parametrize("phase", PHASE_NAMES)
def test_a_row_that_fits_its_phase_is_stored(db: sqlite3.Connection, phase: str) -> None:
    insert(db, "runs", run_row(phase))
    assert db.execute("SELECT phase FROM runs").fetchall() == [(phase,)]


@pytest.mark.parametrize("phase", PHASE_NAMES)
def test_an_outcome_is_there_exactly_where_the_phase_has_one(db: sqlite3.Connection, phase: str) -> None:
    ended = phase in ENDED_NAMES
    assert refused(db, "runs", run_row(phase, outcome=None)) == ended
    for outcome in ("ok", "error", "timeout", "killed", "unknown"):
        assert refused(db, "runs", run_row(phase, outcome=outcome)) == (not ended)
    assert refused(db, "runs", run_row(phase, outcome="fine"))


@pytest.mark.parametrize("phase", PHASE_NAMES)
def test_a_delivery_is_there_exactly_where_the_phase_has_one_and_one_given_up_is_undelivered(
    db: sqlite3.Connection, phase: str
) -> None:
    allowed = DELIVERIES.get(phase, (None,))
    for delivery in (None, *WORDS):
        assert refused(db, "runs", run_row(phase, delivery=delivery)) == (delivery not in allowed)
    assert refused(db, "runs", run_row(phase, delivery="lost"))


@pytest.mark.parametrize("phase", PHASE_NAMES)
def test_a_due_time_is_there_where_the_phase_cannot_do_without(db: sqlite3.Connection, phase: str) -> None:
    assert refused(db, "runs", run_row(phase, due_at=None)) == (phase in ALWAYS_DUE)


@pytest.mark.parametrize("phase", PHASE_NAMES)
def test_what_indexes_are_made_of_is_what_the_phase_and_the_outcome_say(db: sqlite3.Connection, phase: str) -> None:
    row = run_row(phase)
    for held in (None, *HELD):
        assert refused(db, "runs", row | {"held": held}) == (held != row["held"])
    for number in (0, 1, 2):
        assert refused(db, "runs", row | {"listed": number}) == (number != int(phase != "archived"))
        assert refused(db, "runs", row | {"failed": number}) == (number != 0)
    if phase in ENDED_NAMES:
        assert refused(db, "runs", run_row(phase, outcome="error", failed=0))
        assert not refused(db, "runs", run_row(phase, outcome="killed", failed=0))


@pytest.mark.parametrize(
    "changed",
    [
        {"phase": "gone"},
        {"phase": "asleep"},
        {"phase": None},
        {"version": 0},
        {"version": None},
        {"key": None},
        {"parent": None},
        {"spec": None},
        {"state": None},
        {"due_at": "soon"},
    ],
)
def test_a_run_without_what_every_run_has_is_refused(db: sqlite3.Connection, changed: Fields) -> None:
    assert not refused(db, "runs", run_row("queued"))
    assert refused(db, "runs", run_row("queued") | changed)


def test_every_sample_run_fits_what_its_phase_demands() -> None:
    for name, run in RUNS.items():
        phase = run.phase.name
        assert (run.ended is not None) == (phase in ENDED_NAMES), name
        assert (run.delivery is not None) == (phase in DECIDED_NAMES), name
        assert run.due_at is not None or phase not in ALWAYS_DUE, name


# ---- the other tables ------------------------------------------------------------------------------------------------

SESSION: Final[Fields] = {
    "key": "s",
    "kind": "main",
    "parent": None,
    "depth": 0,
    "facts": "{}",
    "created_at": AT,
    "last_at": AT,
}
BELOW: Final[Fields] = {"parent": MAIN, "depth": 1}
ENTRY: Final[Fields] = {"session": "s", "seq": 1, "at": AT, "kind": "note", "body": "x"}
ROW: Final[Fields] = {"key": "r", "session": "s", "kind": "send", "body": "x", "arrived_at": AT}
OUTCOME: Final[Fields] = {"kind": "outcome", "source": "run"}
TURN: Final[Fields] = {"session": "s", "turn": "{}"}
PLACE: Final[Fields] = {"session": "s", "queue_lane": "main", "spawner": "s", "rank": 1, "seq": 1, "is_suspect": 0}
DRIVER: Final[Fields] = {
    "session": "s",
    "epoch": 1,
    "owner": "me",
    "lane": "main",
    "suspect": 0,
    "claimed_at": AT,
    "progress_at": AT,
    "step_open": 1,
    "interrupts": 0,
}
POST: Final[Fields] = {"key": "p", "kind": "hook", "body": "{}", "due_at": AT}
ROUTE: Final[Fields] = {
    "session": "s",
    "kind": "last",
    "channel": "ops",
    "recipient": "u",
    "thread": "",
    "place": "to:u",
    "used_at": AT,
}

ALLOWED: Final[list[tuple[str, Fields, Fields]]] = [
    ("sessions", SESSION, {}),
    ("sessions", SESSION, BELOW),
    *(("sessions", SESSION, {"spawned": 2, "unsettled": count}) for count in (0, 1, 2)),
    ("entries", ENTRY, {}),
    ("inbox", ROW, {}),
    ("inbox", ROW, OUTCOME),
    ("inbox", ROW, {**OUTCOME, "session": None}),
    ("inbox", ROW, {**OUTCOME, "state": "consumed", "closed_at": AT}),
    ("inbox", ROW, {**OUTCOME, "session": None, "state": "undelivered", "closed_at": AT}),
    ("active", TURN, {}),
    ("active", TURN, {"failing": 1}),
    ("active", PLACE, {}),
    ("active", PLACE, {"due_at": AT, "is_suspect": 1}),
    ("active", DRIVER, {}),
    ("active", DRIVER, {**TURN, **PLACE, "release_at": AT}),
    ("outbox", POST, {}),
    ("outbox", POST, {"state": "undelivered", "closed_at": AT, "error": "no"}),
    *(("outbox", POST, {"state": state, "due_at": None, "closed_at": AT}) for state in ("sent", "dismissed")),
    ("routes", ROUTE, {}),
    ("routes", ROUTE, {"kind": "bound", "due_at": AT}),
]
FORBIDDEN: Final[list[tuple[str, Fields, Fields]]] = [
    ("sessions", SESSION, {"kind": "pet"}),
    ("sessions", SESSION, {"state": "lost"}),
    ("sessions", SESSION, {"depth": 1}),
    ("sessions", SESSION, {"parent": MAIN}),
    ("sessions", SESSION, {**BELOW, "depth": -1}),
    *(("sessions", SESSION, {"spawned": 2, "unsettled": count}) for count in (-1, 3)),
    ("entries", ENTRY, {"kind": "thought"}),
    ("inbox", ROW, {"kind": "letter"}),
    ("inbox", ROW, {"state": "lost", "closed_at": AT}),
    ("inbox", ROW, {"path": "by hand"}),
    ("inbox", ROW, {"state": "consumed"}),
    *(("inbox", ROW, {"state": state}) for state in ("suppressed", "void", "undelivered", "dismissed")),
    *(("inbox", ROW, {"kind": kind}) for kind in ("plan", "expired", "late")),
    *(("inbox", ROW, {"kind": kind, "session": None}) for kind in ("task", "steer", "wake", "approval", "notice")),
    ("inbox", ROW, {"closed_at": AT}),
    ("inbox", ROW, {"session": None}),
    ("inbox", ROW, {"kind": "outcome"}),
    ("inbox", ROW, {**OUTCOME, "session": None, "state": "consumed", "closed_at": AT}),
    ("active", {"session": "s"}, {}),
    ("active", PLACE, {"is_suspect": 2}),
    *(("active", PLACE, {field: None}) for field in ("queue_lane", "spawner", "rank", "seq")),
    ("active", TURN, {"due_at": AT}),
    ("active", PLACE, {"failing": 1}),
    *(("active", DRIVER, {field: None}) for field in ("epoch", "owner", "lane", "claimed_at", "progress_at")),
    ("active", DRIVER, {"suspect": 2}),
    ("active", DRIVER, {"step_open": 2}),
    ("active", TURN, {"release_at": AT}),
    ("outbox", POST, {"due_at": None}),
    ("outbox", POST, {"closed_at": AT}),
    ("outbox", POST, {"state": "lost", "closed_at": AT}),
    ("outbox", POST, {"retries": -1}),
    ("outbox", POST, {"state": "undelivered", "closed_at": AT}),
    ("outbox", POST, {"state": "undelivered", "due_at": None, "closed_at": AT, "error": "no"}),
    *(("outbox", POST, {"state": state, "closed_at": AT}) for state in ("sent", "dismissed")),
    ("inbox", ROW, {"route": "by hand"}),
    ("routes", ROUTE, {"kind": "lost"}),
    ("routes", ROUTE, {"made_by": "chance"}),
    ("routes", ROUTE, {"due_at": AT}),
]


@pytest.mark.parametrize(("table", "row", "changed"), ALLOWED)
def test_a_row_that_agrees_with_itself_is_stored(
    db: sqlite3.Connection, table: str, row: Fields, changed: Fields
) -> None:
    assert not refused(db, table, row | changed)


@pytest.mark.parametrize(("table", "row", "changed"), FORBIDDEN)
def test_a_row_that_contradicts_itself_is_refused(
    db: sqlite3.Connection, table: str, row: Fields, changed: Fields
) -> None:
    assert refused(db, table, row | changed)


# ---- what no verb reads back -----------------------------------------------------------------------------------------


def test_a_row_remembers_when_it_was_closed_and_forgets_it_when_it_is_reopened(db: sqlite3.Connection) -> None:
    tx = Tx(Unit(db))
    tx.inbox.put("r", MAIN, "outcome", "run", "{}", AT)
    tx.unit.flush()
    closed = [db.execute("SELECT closed_at FROM inbox").fetchone()[0]]
    moves: list[tuple[RowState, float]] = [("undelivered", AT + 1), ("unread", AT + 2), ("consumed", AT + 3)]
    for state, at in moves:
        assert close_row(tx, "r", state, at)
        tx.unit.flush()
        closed.append(db.execute("SELECT closed_at FROM inbox").fetchone()[0])
    assert closed == [None, AT + 1, None, AT + 3]


def test_traces_are_kept_until_their_run_is_forgotten(db: sqlite3.Connection) -> None:
    tx = Tx(Unit(db))
    for key in ("one", "two"):
        admit(tx, key)
        tx.deliveries.note(f"row of {key}", key, AT, '{"path":"direct"}')
        tx.deliveries.note(f"row of {key}", key, AT + 1, "{}")
    kept = [("row of one", "one", AT, '{"path":"direct"}'), ("row of one", "one", AT + 1, "{}")]
    found = "SELECT row_key, run, at, trace FROM deliveries ORDER BY seq"
    tx.unit.flush()
    assert db.execute(found).fetchall()[:2] == kept
    tx.runs.forget("two")
    tx.unit.flush()
    assert db.execute(found).fetchall() == kept


def test_a_post_remembers_its_last_error_until_it_arrives(db: sqlite3.Connection) -> None:
    tx = Tx(Unit(db))
    tx.outbox.post("p", "hook", None, "{}", AT)
    found = "SELECT tries, error, due_at, closed_at FROM outbox"
    tx.outbox.failed("p", "no route", AT + 5)
    assert db.execute(found).fetchall() == [(1, "no route", AT + 5, None)]
    tx.outbox.done("p", AT + 6)
    assert db.execute(found).fetchall() == [(1, None, None, AT + 6)]
    tx.outbox.post("q", "hook", None, "{}", AT)
    tx.outbox.give_up("q", "gone", AT + 99, AT + 7)
    assert db.execute(f"{found} WHERE key = 'q'").fetchall() == [(1, "gone", AT + 99, AT + 7)]


def test_nothing_of_a_forgotten_run_is_left_in_any_table_but_what_is_others(db: sqlite3.Connection) -> None:
    tx = Tx(Unit(db))
    admit(tx, "run")
    tx.sessions.open("run", "subagent", MAIN, 1, FACTS, AT)
    tx.texts.keep("run", "text")
    tx.transcripts.append("run", AT, [("note", "x")])
    tx.turns.open("run", {}, AT)
    tx.queue.put("run", "subagent", MAIN, False)
    tx.sessions.child_admitted("run")
    tx.inbox.put("task", "run", "task", MAIN, "x", AT)
    tx.deliveries.note("row", "run", AT, "{}")
    tx.runs.forget("run")
    tx.unit.flush()
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    left = {name for name in tables if db.execute(f"SELECT count(*) FROM {name}").fetchone()[0]}
    assert left - {"agent_days", "lanes", "run_events"} == set()
    assert db.execute("SELECT run, event FROM run_events").fetchall() == [(0, "")], "only a number that is taken"
