"""What SQLite itself forbids, whoever writes: a row that contradicts its phase, kind or state never reaches the disk.

Also what has no reading verb in `Tx`: when a row was closed, how a turn ended, the trace of a delivery.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from fledge.core.run import DECIDED, ENDED, PHASES, Gone
from fledge.store.base import RowState
from fledge.store.migrate import migrate
from fledge.store.sqlite_flow import SqliteTx
from tests.core.samples import AT, RUNS
from tests.store.bench import FACTS, MAIN, admit, conversation

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
DECIDED_NAMES: Final = {phase.name for phase in DECIDED}
WORDS: Final = ("delivered", "skipped", "undelivered")
DELIVERIES: Final = {name: WORDS if name != "completed_giveup" else WORDS[2:] for name in DECIDED_NAMES}
ALWAYS_DUE: Final = {"spawning", "ending", "awaiting_approval", "cleanup_pending", "completed_giveup"}


def run_row(phase: str, **changed: object) -> Fields:
    """A row that this phase allows, but for what is named."""
    row: Fields = {
        "key": "run",
        "parent": MAIN,
        "phase": phase,
        "version": 1,
        "due_at": AT,
        "outcome": "ok" if phase in ENDED_NAMES else None,
        "delivery": DELIVERIES[phase][-1] if phase in DECIDED_NAMES else None,
        "until_settled": None,
        "spec": "{}",
        "state": "{}",
    }
    return row | changed


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
def test_a_number_is_waited_for_in_no_phase_but_waiting(db: sqlite3.Connection, phase: str) -> None:
    assert refused(db, "runs", run_row(phase, until_settled=2)) == (phase != "waiting")


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

SESSION: Final[Fields] = {"key": "s", "kind": "main", "parent": None, "depth": 0, "facts": "{}", "created_at": AT}
BELOW: Final[Fields] = {"parent": MAIN, "depth": 1}
CHILDREN: Final[Fields] = {"session": "s", "spawned": 2, "unsettled": 1}
ENTRY: Final[Fields] = {"session": "s", "seq": 1, "at": AT, "kind": "note", "body": "x"}
ROW: Final[Fields] = {"key": "r", "session": "s", "kind": "send", "body": "x", "arrived_at": AT}
OUTCOME: Final[Fields] = {"kind": "outcome", "source": "run"}
TURN: Final[Fields] = {"session": "s", "turn": 1, "state": "open", "generations": "{}", "opened_at": AT}
PLACE: Final[Fields] = {"session": "s", "lane": "main", "spawner": "s", "rank": 1, "seq": 1}
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
    ("children", CHILDREN, {}),
    ("children", CHILDREN, {"unsettled": 0}),
    ("children", CHILDREN, {"unsettled": 2}),
    ("entries", ENTRY, {}),
    ("inbox", ROW, {}),
    ("inbox", ROW, OUTCOME),
    ("inbox", ROW, {**OUTCOME, "session": None}),
    ("inbox", ROW, {**OUTCOME, "state": "consumed", "closed_at": AT}),
    ("inbox", ROW, {**OUTCOME, "session": None, "state": "undelivered", "closed_at": AT}),
    ("turns", TURN, {}),
    ("turns", TURN, {"state": "closed", "closed_at": AT}),
    ("queue", PLACE, {}),
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
    ("children", CHILDREN, {"unsettled": -1}),
    ("children", CHILDREN, {"unsettled": 3}),
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
    ("turns", TURN, {"state": "paused"}),
    ("turns", TURN, {"state": "closed"}),
    ("turns", TURN, {"closed_at": AT}),
    ("queue", PLACE, {"suspect": 2}),
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


def test_two_open_turns_of_one_session_are_refused_below_the_verbs_too(db: sqlite3.Connection) -> None:
    insert(db, "turns", TURN)
    with pytest.raises(sqlite3.IntegrityError):
        insert(db, "turns", TURN | {"turn": 2})
    insert(db, "turns", TURN | {"session": "other"})
    insert(db, "turns", TURN | {"turn": 2, "state": "closed", "closed_at": AT})


# ---- what no verb reads back -----------------------------------------------------------------------------------------


def test_a_row_remembers_when_it_was_closed_and_forgets_it_when_it_is_reopened(db: sqlite3.Connection) -> None:
    tx = SqliteTx(db)
    tx.put_row("r", MAIN, "outcome", "run", "{}", AT)
    closed = [db.execute("SELECT closed_at FROM inbox").fetchone()[0]]
    moves: list[tuple[RowState, float]] = [("undelivered", AT + 1), ("unread", AT + 2), ("consumed", AT + 3)]
    for state, at in moves:
        assert tx.close_row("r", state, at)
        closed.append(db.execute("SELECT closed_at FROM inbox").fetchone()[0])
    assert closed == [None, AT + 1, None, AT + 3]


def test_a_closed_turn_remembers_how_and_when_it_ended_whatever_the_next_one_does(db: sqlite3.Connection) -> None:
    tx = SqliteTx(db)
    conversation(tx, "s")
    tx.open_turn("s", {}, AT)
    tx.drained("s", 2)
    tx.turn_failed("s", 3, 1)
    tx.close_turn("s", "replied", AT + 1)
    tx.open_turn("s", {}, AT + 2)
    tx.drained("s", 5)
    tx.turn_failed("s", 4, 2)
    found = "SELECT turn, state, drained, failures, crashes, ended, closed_at FROM turns ORDER BY turn"
    first = (1, "closed", 2, 3, 1, "replied", AT + 1)
    assert db.execute(found).fetchall() == [first, (2, "open", 5, 4, 2, None, None)]
    tx.close_turn("s", "stopped", AT + 3)
    assert db.execute(found).fetchall() == [first, (2, "closed", 5, 4, 2, "stopped", AT + 3)]


def test_traces_are_kept_until_their_run_is_forgotten(db: sqlite3.Connection) -> None:
    tx = SqliteTx(db)
    for key in ("one", "two"):
        admit(tx, key)
        tx.trace(f"row of {key}", key, AT, '{"path":"direct"}')
        tx.trace(f"row of {key}", key, AT + 1, "{}")
    kept = [("row of one", "one", AT, '{"path":"direct"}'), ("row of one", "one", AT + 1, "{}")]
    found = "SELECT row_key, run, at, trace FROM deliveries ORDER BY seq"
    assert db.execute(found).fetchall()[:2] == kept
    tx.forget_run("two")
    assert db.execute(found).fetchall() == kept


def test_a_post_remembers_its_last_error_until_it_arrives(db: sqlite3.Connection) -> None:
    tx = SqliteTx(db)
    tx.post("p", "hook", None, "{}", AT)
    found = "SELECT tries, error, due_at, closed_at FROM outbox"
    tx.post_failed("p", "no route", AT + 5, AT + 1)
    assert db.execute(found).fetchall() == [(1, "no route", AT + 5, None)]
    tx.post_done("p", AT + 6)
    assert db.execute(found).fetchall() == [(1, None, None, AT + 6)]
    tx.post("q", "hook", None, "{}", AT)
    tx.give_up_post("q", "gone", AT + 99, AT + 7)
    assert db.execute(f"{found} WHERE key = 'q'").fetchall() == [(1, "gone", AT + 99, AT + 7)]


def test_nothing_of_a_forgotten_run_is_left_in_any_table_but_what_is_others(db: sqlite3.Connection) -> None:
    tx = SqliteTx(db)
    admit(tx, "run")
    tx.open_session("run", "subagent", MAIN, 1, FACTS, AT)
    tx.keep_text("run", "text")
    tx.append("run", AT, [("note", "x")])
    tx.open_turn("run", {}, AT)
    tx.enqueue("run", "subagent", MAIN, False)
    tx.child_admitted("run")
    tx.put_row("task", "run", "task", MAIN, "x", AT)
    tx.trace("row", "run", AT, "{}")
    tx.forget_run("run")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    left = {name for name in tables if db.execute(f"SELECT count(*) FROM {name}").fetchone()[0]}
    assert left - {"lanes", "children", "run_events"} == set()
    assert db.execute("SELECT run, event FROM run_events").fetchall() == [(0, "")], "only a number that is taken"
    assert db.execute("SELECT count(*) FROM children WHERE session = 'run'").fetchone() == (0,)
