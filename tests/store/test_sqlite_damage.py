"""Files that the embedded store must not touch: damaged ones, somebody else's, and those of another schema.

Whatever is refused leaves every byte as it was; that is checked on the bytes.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from fledge.core.turn import OpenTurn, Wait
from fledge.errors import StoreError, StoreLocked
from fledge.store.base import (
    AgentDay,
    Counts,
    Driver,
    MessageRequest,
    QueuePlace,
    RunCounts,
    RunWalk,
    TurnRan,
    Tx,
    Used,
)
from fledge.store.files import DATABASE, mark_of
from fledge.store.migrate import migrate, newest, schema, schema_version, upgrades
from fledge.store.people import Ask
from fledge.store.sqlite import SqliteStore
from fledge.store.unit import Unit
from tests.statements import proves
from tests.store.folders import close, contents, fill, left_open, notes_in
from tests.store.old import OLD, make_old

# ---- damage ----------------------------------------------------------------------------------------------------------


def _garbage(good: bytes) -> bytes:
    return bytes(range(256)) * 64


def _words(good: bytes) -> bytes:
    return b"Dear diary, this is not a database.\n" * 40


def _half(good: bytes) -> bytes:
    return good[: len(good) // 2]


def _last_page_lost(good: bytes) -> bytes:
    return good[:-4096]


def _torn(good: bytes) -> bytes:
    return good[: len(good) // 2 + 1000]


def _first_page_zeroed(good: bytes) -> bytes:
    return bytes(4096) + good[4096:]


def _second_page_flipped(good: bytes) -> bytes:
    return good[:4096] + bytes(byte ^ 0xFF for byte in good[4096:8192]) + good[8192:]


def _last_page_flipped(good: bytes) -> bytes:
    return good[:-4096] + bytes(byte ^ 0xFF for byte in good[-4096:])


DAMAGES: Final = [
    _garbage,
    _words,
    _half,
    _last_page_lost,
    _torn,
    _first_page_zeroed,
    _second_page_flipped,
    _last_page_flipped,
]


def refuse_damaged(folder: Path) -> None:
    """Opening is refused with what to do, twice the same, and nothing on disk changes."""
    before = contents(folder)
    for _ in range(2):
        with pytest.raises(StoreError) as refused:
            SqliteStore.open(folder)
        assert not isinstance(refused.value, StoreLocked)
        assert str(refused.value).startswith(f"{folder / DATABASE} is damaged or not a fledge database (")
        assert str(refused.value).endswith(
            "). It was not changed: restore a copy (look for fledge.db.*.backup beside it), "
            "or move it away to start empty."
        )
        assert contents(folder) == before


@proves("7.input.9", "A corrupt database refuses to open, says what to do, is never overwritten")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_with_what_to_do_and_not_changed(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    fill(tmp_path, notes=200)
    file = tmp_path / DATABASE
    good = file.read_bytes()
    file.write_bytes(damage(good))
    refuse_damaged(tmp_path)
    file.write_bytes(good)
    assert len(notes_in(tmp_path)) == 200
    file.rename(tmp_path / "damaged.db")
    assert notes_in(tmp_path) == []


def test_a_flipped_page_is_found_wherever_it_is(tmp_path: Path) -> None:
    fill(tmp_path, notes=200)
    file = tmp_path / DATABASE
    good = file.read_bytes()
    for start in range(0, len(good), 4096):
        page = bytes(byte ^ 0xFF for byte in good[start : start + 4096])
        file.write_bytes(good[:start] + page + good[start + 4096 :])
        with pytest.raises(StoreError, match=r"is damaged or not a fledge database"):
            SqliteStore.open(tmp_path)
    file.write_bytes(good)
    assert len(notes_in(tmp_path)) == 200


def test_a_large_file_that_was_closed_is_not_read_whole_and_one_that_is_cut_is_still_found(tmp_path: Path) -> None:
    fill(tmp_path, notes=200)
    file = tmp_path / DATABASE
    good = file.read_bytes()
    file.write_bytes(_last_page_flipped(good))
    close(SqliteStore.open(tmp_path, checked_bytes=len(good) - 1))
    file.write_bytes(_last_page_flipped(good))
    with pytest.raises(StoreError, match=r"is damaged or not a fledge database"):
        SqliteStore.open(tmp_path, checked_bytes=len(good))
    file.write_bytes(_last_page_lost(good))
    with pytest.raises(StoreError, match=r"is damaged or not a fledge database"):
        SqliteStore.open(tmp_path, checked_bytes=0)


def test_a_large_file_that_was_not_closed_is_read_whole(tmp_path: Path) -> None:
    store, crashed = tmp_path / "store", tmp_path / "crashed"
    fill(store, notes=200)
    left_open(store, crashed, "DELETE FROM entries WHERE seq = 7")
    mark_of(crashed / DATABASE).write_text("open since yesterday\n")
    file = crashed / DATABASE
    file.write_bytes(_last_page_flipped(file.read_bytes()))
    with pytest.raises(StoreError, match=r"is damaged or not a fledge database"):
        SqliteStore.open(crashed, checked_bytes=0)


def test_a_damaged_file_that_a_crash_left_behind_is_not_changed_either(tmp_path: Path) -> None:
    store, crashed = tmp_path / "store", tmp_path / "crashed"
    fill(store, notes=200)
    left_open(store, crashed, "DELETE FROM entries WHERE seq = 7")
    file = crashed / DATABASE
    file.write_bytes(_last_page_flipped(file.read_bytes()))
    refuse_damaged(crashed)


def test_a_sound_file_that_a_crash_left_behind_opens_with_all_that_was_committed(tmp_path: Path) -> None:
    store, crashed = tmp_path / "store", tmp_path / "crashed"
    fill(store)
    left_open(store, crashed, "DELETE FROM entries WHERE seq = 2")
    assert notes_in(crashed) == ["0", "2"]


def test_somebody_elses_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        db.executescript("CREATE TABLE sessions (cookie TEXT); INSERT INTO sessions VALUES ('theirs');")
    before = contents(tmp_path)
    with pytest.raises(StoreError):
        SqliteStore.open(tmp_path)
    assert contents(tmp_path) == before


# ---- schema versions -------------------------------------------------------------------------------------------------

NEWEST: Final = newest()
SECOND: Final = "ALTER TABLE sessions ADD COLUMN note TEXT;\nUPDATE sessions SET note = 'moved';"


def newer(folder: Path, version: int) -> str:
    """What a file of a newer schema is refused with."""
    return (
        f"{folder / DATABASE} was written by a newer fledge (schema {version}, this one knows {NEWEST}): "
        "install that version or newer. The file was not changed."
    )


def test_upgrades_go_on_from_0_1_without_a_gap() -> None:
    assert [version for version, _sql in upgrades()] == list(range(OLD + 1, NEWEST + 1))


def shape(db: sqlite3.Connection) -> dict[str, object]:
    """Tables with their columns, and indexes as they were made."""
    found = db.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    columns = {name: db.execute(f"PRAGMA table_xinfo({name})").fetchall() for kind, name, _ in found if kind == "table"}
    return columns | {name: sql for kind, name, sql in found if kind != "table"}


def test_the_schema_is_what_all_upgrades_together_make_of_0_1(tmp_path: Path) -> None:
    with closing(make_old(tmp_path / "old.db")) as old, closing(sqlite3.connect(":memory:")) as new:
        migrate(old, tmp_path / "old.db")
        new.executescript(schema())
        assert shape(old) == shape(new)


def test_a_new_store_has_the_newest_schema(tmp_path: Path) -> None:
    close(SqliteStore.open(tmp_path))
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        assert schema_version(db) == NEWEST
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@proves("7.input.10", "A newer database refuses to open, says what to do, is never overwritten")
@pytest.mark.parametrize("version", [NEWEST + 1, 99])
def test_a_newer_file_is_refused_and_not_changed(tmp_path: Path, version: int) -> None:
    fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreError) as refused:
            SqliteStore.open(tmp_path)
        assert str(refused.value) == newer(tmp_path, version)
        assert contents(tmp_path) == before


@proves("7.input.10")
def test_a_newer_file_that_a_crash_left_behind_is_not_changed_either(tmp_path: Path) -> None:
    store, crashed = tmp_path / "store", tmp_path / "crashed"
    fill(store)
    left_open(store, crashed, "PRAGMA user_version = 99")
    before = contents(crashed)
    with pytest.raises(StoreError) as refused:
        SqliteStore.open(crashed)
    assert str(refused.value) == newer(crashed, 99)
    assert contents(crashed) == before


@pytest.fixture
def old(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A store of fledge 0.1 with three notes, seen from below."""
    with closing(make_old(tmp_path / DATABASE)) as db:
        db.execute("INSERT INTO sessions (key, kind, depth, facts, created_at) VALUES ('s', 'named', 0, '{}', 1.0)")
        notes = [("s", number + 1, 1.0, "note", str(number)) for number in range(3)]
        db.executemany("INSERT INTO entries VALUES (?,?,?,?,?)", notes)
        yield db


def backup_of(folder: Path) -> Path:
    """Where the copy of a file of fledge 0.1 goes."""
    return folder / f"{DATABASE}.schema-{OLD}.backup"


def dump(db: sqlite3.Connection) -> list[str]:
    """All that a database says."""
    return [f"version {schema_version(db)}", *db.iterdump()]


def test_an_older_file_is_copied_first_and_then_brought_up_to_date(tmp_path: Path, old: sqlite3.Connection) -> None:
    before = dump(old)
    assert migrate(old, tmp_path / DATABASE, ((16, SECOND),)) == 16
    assert schema_version(old) == 16
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved",)]
    assert old.execute("SELECT body FROM entries ORDER BY seq").fetchall() == [("0",), ("1",), ("2",)]
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        assert dump(copy) == before


def test_steps_are_taken_in_order_and_only_those_that_are_missing(tmp_path: Path, old: sqlite3.Connection) -> None:
    steps = ((15, "not even SQL"), (16, SECOND), (17, "UPDATE sessions SET note = note || ' twice';"))
    assert migrate(old, tmp_path / DATABASE, steps) == 17
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved twice",)]
    assert migrate(old, tmp_path / DATABASE, steps) == 17
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved twice",)]


def test_an_older_copy_makes_way_for_the_one_made_now(tmp_path: Path, old: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        copy.execute("CREATE TABLE left_over (x)")
    before = dump(old)
    migrate(old, tmp_path / DATABASE, ((16, SECOND),))
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        assert dump(copy) == before


def test_no_copy_is_made_of_a_new_file_nor_of_one_that_is_up_to_date(tmp_path: Path, old: sqlite3.Connection) -> None:
    before = dump(old)
    assert migrate(old, tmp_path / DATABASE, ((OLD, ""),)) == OLD
    assert dump(old) == before
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as new:
        assert migrate(new, tmp_path / "new.db") == NEWEST
        assert schema_version(new) == NEWEST
    assert list(tmp_path.glob("*.backup")) == []


@pytest.mark.parametrize(
    "steps",
    [
        [(16, "nonsense;")],
        [(16, f"{SECOND}\nINSERT INTO sessions (key) VALUES ('half');")],
        [(16, f"{SECOND}\nCREATE TABLE sessions (key TEXT);")],
    ],
)
def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, old: sqlite3.Connection, steps: list[tuple[int, str]]
) -> None:
    before, kept = dump(old), contents(tmp_path)
    with pytest.raises(StoreError) as failed:
        migrate(old, tmp_path / DATABASE, tuple(steps))
    assert str(failed.value).startswith(f"{tmp_path / DATABASE}: cannot be brought to schema 16 (")
    assert str(failed.value).endswith("); it was not changed")
    assert dump(old) == before
    assert contents(tmp_path)[DATABASE] == kept[DATABASE]
    assert migrate(old, tmp_path / DATABASE, ((16, SECOND),)) == 16


def test_a_migration_of_several_steps_that_fails_at_the_last_leaves_the_file_as_it_was(
    tmp_path: Path, old: sqlite3.Connection
) -> None:
    before = dump(old)
    with pytest.raises(StoreError, match=r"cannot be brought to schema 17 \(.*\); it was not changed$"):
        migrate(old, tmp_path / DATABASE, ((16, SECOND), (17, "nonsense;")))
    assert dump(old) == before


def test_a_file_newer_than_the_last_known_step_is_refused(tmp_path: Path, old: sqlite3.Connection) -> None:
    migrate(old, tmp_path / DATABASE, ((16, SECOND),))
    before = dump(old)
    with pytest.raises(StoreError) as refused:
        migrate(old, tmp_path / DATABASE, ((OLD, ""),))
    assert "schema 16, this one knows 15" in str(refused.value)
    assert dump(old) == before


def test_a_file_from_before_0_1_is_refused_by_a_line_that_says_what_to_do(tmp_path: Path) -> None:
    with closing(make_old(tmp_path / DATABASE)) as db:
        db.execute("PRAGMA user_version = 14")
    before = contents(tmp_path)
    with pytest.raises(StoreError) as refused:
        SqliteStore.open(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path / DATABASE} was written by a fledge before 0.1 (schema 14; 0.1 has 15): open it once with "
        "fledge 0.1, which brings it up to date. The file was not changed."
    )
    assert {name: data for name, data in contents(tmp_path).items() if name != "lock"} == before


RUN: Final = {"id": 1, "key": "child", "parent": "talk", "phase": "queued", "version": 2, "spec": "{}", "state": "{}"}
CHILD: Final = {"key": "child", "kind": "subagent", "parent": "talk", "depth": 1, "facts": "{}", "created_at": 2.0}
REPLY: Final = {"usage": {"input": 10, "output": 2, "cacheRead": 5}, "cost_usd": 0.25}
DRIVEN: Final = {"lane": "main", "claimed_at": 4.0, "progress_at": 5.0, "step_open": 1, "interrupts": 2}
ROWS_OF_0_1: Final[list[tuple[str, dict[str, object]]]] = [
    ("sessions", {"key": "talk", "kind": "main", "depth": 0, "facts": "{}", "created_at": 1.0, "last_turn": 3}),
    ("sessions", CHILD | {"epoch": 4, "tokens_in": 15, "tokens_out": 2, "cost_usd": 0.25}),
    ("entries", {"session": "child", "seq": 1, "at": 3.0, "kind": "assistant", "body": json.dumps(REPLY)}),
    ("children", {"session": "talk", "spawned": 3, "unsettled": 1}),
    ("runs", RUN),
    ("run_events", {"run": 1, "version": 1, "event": '{"at": 2.5}'}),
    ("runs", RUN | {"id": 2, "key": "lost", "phase": "completed", "outcome": "error", "delivery": "delivered"}),
    ("queue", {"session": "child", "lane": "subagent", "spawner": "talk", "rank": 7, "seq": 9, "due_at": 8.0}),
    ("lanes", {"lane": "subagent", "rank": 6, "last_seq": 9}),
    ("drivers", {"session": "talk", "epoch": 1, "owner": "me", **DRIVEN}),
    ("turns", {"session": "talk", "turn": 1, "state": "closed", "generations": "{}", "opened_at": 1.0}),
    ("turns", {"session": "talk", "turn": 2, "state": "closed", "generations": "{}", "opened_at": 1.0}),
    ("turns", {"session": "talk", "turn": 3, "state": "open", "generations": '{"talk": 1}', "opened_at": 4.0}),
    ("spawns", {"requester": "talk", "key": "k", "run": "child", "digest": "d"}),
    ("commissions", {"run_id": "r", "session": "talk", "row": "row", "wishes": "{}", "key": "k", "digest": "e"}),
    ("inbox", {"key": "row", "session": "talk", "kind": "send", "body": "hello", "arrived_at": 1.0}),
]
MORE_OF_0_1: Final = """
UPDATE turns SET closed_at = 2.0, ended = 'yielded', origin = 'ann', ran = '{"model": "m-1"}' WHERE turn = 1;
UPDATE turns SET closed_at = 3.0, ended = 'replied', ran = '{"model": "m-2"}' WHERE turn = 2;
UPDATE turns SET drained = 2, failures = 1, origin = 'bob' WHERE turn = 3;
"""


def test_a_folder_of_0_1_is_brought_up_to_date_with_all_it_holds(tmp_path: Path) -> None:
    with closing(make_old(tmp_path / DATABASE)) as db:
        for table, fields in ROWS_OF_0_1:
            fields = fields | ({"accepted_at": 1.0} if table == "commissions" else {})
            closed = {"closed_at": 0.0} if fields.get("state") == "closed" else {}
            columns, values = ", ".join(fields | closed), tuple((fields | closed).values())
            db.execute(f"INSERT INTO {table} ({columns}) VALUES ({','.join('?' * len(values))})", values)
        db.executescript(MORE_OF_0_1)
        migrate(db, tmp_path / DATABASE)
        tx = Tx(Unit(db))
        assert tx.lists.miscounted() == []
        assert tx.lists.counts() == RunCounts(all=2, active=1, failed=1)
        assert [(one.key, one.root) for one in tx.lists.runs(RunWalk(), None, 9)] == [
            ("child", "talk"),
            ("lost", "talk"),
        ]
        assert tx.sessions.counts("talk") == Counts(3, 1)
        assert tx.transcripts.used("child") == Used(10, 2, 0.25, 5)
        assert tx.sessions.cost_below("talk") == 0.25
        assert tx.queue.place("child") == QueuePlace("child", "subagent", 7, False, 8.0)
        tx.queue.put("next", "subagent", "talk", False)
        assert tx.queue.place("next") == QueuePlace("next", "subagent", 8, False)
        assert tx.drivers.get("talk") == Driver("talk", 1, "me", "main", False, 4.0, 5.0, True, None, 2)
        turn = OpenTurn("talk", 3, {"talk": 1}, 2, 1, 0, 4.0, origin="bob")
        assert (tx.turns.get("talk"), tx.turns.failing()) == (turn, [turn])
        assert (tx.turns.wait("talk"), tx.turns.last_ran("talk")) == (Wait(None, origin="ann"), TurnRan("m-2"))
        assert (tx.asks.find("talk", "k"), tx.asks.find("", "k")) == (Ask("d", "child"), Ask("e", "r"))
        assert tx.requests.get("r") == MessageRequest(run_id="r", session="talk", row="row", accepted_at=1.0)
        assert [row.body for row in tx.inbox.unread("talk")] == ["hello"]


def test_what_agents_did_in_the_week_that_was_last_used_is_counted_by_day(tmp_path: Path) -> None:
    day, critic = 86400.0, "agent:critic:subagent:"
    with closing(make_old(tmp_path / DATABASE)) as db:
        for key, at in (("agent:main:main", 100 * day), (f"{critic}a", 99 * day), (f"{critic}b", 50 * day)):
            is_main = key == "agent:main:main"
            db.execute(
                "INSERT INTO sessions (key, kind, parent, depth, facts, created_at) VALUES (?,'main',?,?,'{}',1)",
                (key, None if is_main else "agent:main:main", int(not is_main)),
            )
            db.execute("INSERT INTO entries VALUES (?, 1, ?, 'assistant', '{\"cost_usd\": 0.5}')", (key, at))
            db.execute("INSERT INTO entries VALUES (?, 2, ?, 'assistant', '{\"cost_usd\": null}')", (key, at))
        for number, (key, at) in enumerate(((f"{critic}a", 98.5 * day), (f"{critic}b", 50 * day)), 1):
            db.execute(
                "INSERT INTO runs (id, key, parent, phase, version, spec, state) VALUES (?,?,?,'queued',1,'{}','{}')",
                (number, key, "agent:main:main"),
            )
            db.execute("INSERT INTO run_events (run, version, event) VALUES (?,1,?)", (number, json.dumps({"at": at})))
        migrate(db, tmp_path / DATABASE)
        assert Tx(Unit(db)).lists.agent_days(0) == [
            AgentDay("critic", 98, 1, None),
            AgentDay("critic", 99, 0, 0.5),
            AgentDay("main", 100, 0, 0.5),
        ]


def test_runs_of_an_older_store_are_numbered_in_the_order_of_their_spawn(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with closing(make_old(path)) as db:
        migrate(db, path, tuple(step for step in upgrades() if step[0] < 31))
        for row, (key, parent, at) in enumerate(
            (("c", "m", 3.0), ("x", "n", 9.0), ("a", "m", 1.0), ("b", "m", 1.0)), 1
        ):
            db.execute(
                "INSERT INTO runs (id, key, parent, root, created_at, phase, version, spec, state)"
                " VALUES (?,?,?,?,?,'queued',1,'{}','{}')",
                (row, key, parent, parent, at),
            )
        migrate(db, path)
        rows = db.execute("SELECT parent, number, key FROM runs ORDER BY parent, number").fetchall()
        assert rows == [("m", 1, "a"), ("m", 2, "b"), ("m", 3, "c"), ("n", 1, "x")]


def test_a_driver_keeps_the_workspace_in_which_it_writes_when_its_table_goes(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with closing(make_old(path)) as db:
        migrate(db, path, tuple(step for step in upgrades() if step[0] < 30))
        driven = "1, 'owner', 'subagent', 0, 1.0, 1.0, 1, 0"
        columns = "epoch, owner, lane, suspect, claimed_at, progress_at, step_open, interrupts"
        db.execute(f"INSERT INTO active (session, {columns}) VALUES ('a', {driven}), ('b', {driven})")
        db.execute("INSERT INTO workers VALUES ('a', '/w', 7.5), ('gone', '/w', 1.0)")
        migrate(db, path)
        assert db.execute("SELECT session, works_in, works_since FROM active ORDER BY session").fetchall() == [
            ("a", "/w", 7.5),
            ("b", None, None),
        ]
