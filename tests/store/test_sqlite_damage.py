"""Files that the embedded store must not touch: damaged ones, somebody else's, and those of another schema.

Whatever is refused leaves every byte as it was; that is checked on the bytes.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from fledge.core.transcript import Replied, to_body
from fledge.errors import StoreError, StoreLocked
from fledge.store.base import Used
from fledge.store.files import DATABASE
from fledge.store.migrate import migrate, migrations, schema_version
from fledge.store.sqlite import SqliteStore
from fledge.store.sqlite_flow import SqliteTx
from tests.statements import proves
from tests.store.folders import close, contents, fill, left_open, notes_in

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

NEWEST: Final = migrations()[-1][0]
SECOND: Final = "ALTER TABLE sessions ADD COLUMN note TEXT;\nUPDATE sessions SET note = 'moved';"


def newer(folder: Path, version: int) -> str:
    """What a file of a newer schema is refused with."""
    return (
        f"{folder / DATABASE} was written by a newer fledge (schema {version}, this one knows {NEWEST}): "
        "install that version or newer. The file was not changed."
    )


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [version for version, _sql in migrations()] == list(range(1, NEWEST + 1))


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
    """A store of schema 1 with three notes, seen from below."""
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        migrate(db, tmp_path / DATABASE, migrations()[:1])
        db.execute("INSERT INTO sessions (key, kind, depth, facts, created_at) VALUES ('s', 'named', 0, '{}', 1.0)")
        notes = [("s", number + 1, 1.0, "note", str(number)) for number in range(3)]
        db.executemany("INSERT INTO entries VALUES (?,?,?,?,?)", notes)
        yield db


def backup_of(folder: Path) -> Path:
    """Where the copy of a file of schema 1 goes."""
    return folder / f"{DATABASE}.schema-1.backup"


def dump(db: sqlite3.Connection) -> list[str]:
    """All that a database says."""
    return [f"version {schema_version(db)}", *db.iterdump()]


def test_an_older_file_is_copied_first_and_then_brought_up_to_date(tmp_path: Path, old: sqlite3.Connection) -> None:
    before = dump(old)
    assert migrate(old, tmp_path / DATABASE, (migrations()[0], (2, SECOND))) == 2
    assert schema_version(old) == 2
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved",)]
    assert old.execute("SELECT body FROM entries ORDER BY seq").fetchall() == [("0",), ("1",), ("2",)]
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        assert dump(copy) == before


def test_what_replies_used_is_counted_in_a_file_that_never_counted_it(tmp_path: Path) -> None:
    steps = migrations()
    counted = next(at for at, (_, sql) in enumerate(steps) if "tokens_in" in sql)
    usage = [{"input": 10, "output": 2, "cacheRead": 5, "cacheWrite": 3}, {"output": 1, "cacheRead": 4}, None]
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        migrate(db, tmp_path / DATABASE, steps[:counted])
        for key in ("s", "t"):
            db.execute(
                "INSERT INTO sessions (key, kind, parent, depth, facts, created_at) VALUES (?,'named',NULL,0,'{}',1)",
                (key,),
            )
        for seq, used in enumerate(usage):
            reply = Replied("x", usage=used or {}, cost_usd=0.25 if used and "input" in used else None)
            db.execute("INSERT INTO entries VALUES ('s', ?, 1.0, 'assistant', ?)", (seq, to_body(reply)))
        migrate(db, tmp_path / DATABASE)
        tx = SqliteTx(db)
        assert [tx.used("s"), tx.used("t")] == [Used(10, 3, 0.25, 12), Used()]


def test_steps_are_taken_in_order_and_only_those_that_are_missing(tmp_path: Path, old: sqlite3.Connection) -> None:
    steps = ((1, "not even SQL"), (2, SECOND), (3, "UPDATE sessions SET note = note || ' twice';"))
    assert migrate(old, tmp_path / DATABASE, steps) == 3
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved twice",)]
    assert migrate(old, tmp_path / DATABASE, steps) == 3
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved twice",)]


def test_an_older_copy_makes_way_for_the_one_made_now(tmp_path: Path, old: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        copy.execute("CREATE TABLE left_over (x)")
    before = dump(old)
    migrate(old, tmp_path / DATABASE, (migrations()[0], (2, SECOND)))
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        assert dump(copy) == before


def test_no_copy_is_made_of_a_new_file_nor_of_one_that_is_up_to_date(tmp_path: Path, old: sqlite3.Connection) -> None:
    before = dump(old)
    assert migrate(old, tmp_path / DATABASE, migrations()[:1]) == 1
    assert dump(old) == before
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as new:
        assert migrate(new, tmp_path / "new.db") == NEWEST
        assert schema_version(new) == NEWEST
    assert list(tmp_path.glob("*.backup")) == []


@pytest.mark.parametrize(
    "steps",
    [
        [(2, "nonsense;")],
        [(2, f"{SECOND}\nINSERT INTO sessions (key) VALUES ('half');")],
        [(2, f"{SECOND}\nCREATE TABLE sessions (key TEXT);")],
    ],
)
def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, old: sqlite3.Connection, steps: list[tuple[int, str]]
) -> None:
    before, kept = dump(old), contents(tmp_path)
    with pytest.raises(StoreError) as failed:
        migrate(old, tmp_path / DATABASE, (migrations()[0], *steps))
    assert str(failed.value).startswith(f"{tmp_path / DATABASE}: cannot be brought to schema 2 (")
    assert str(failed.value).endswith("); it was not changed")
    assert dump(old) == before
    assert contents(tmp_path)[DATABASE] == kept[DATABASE]
    assert migrate(old, tmp_path / DATABASE, (migrations()[0], (2, SECOND))) == 2


def test_a_migration_of_several_steps_that_fails_at_the_last_leaves_the_file_as_it_was(
    tmp_path: Path, old: sqlite3.Connection
) -> None:
    before = dump(old)
    with pytest.raises(StoreError, match=r"cannot be brought to schema 3 \(.*\); it was not changed$"):
        migrate(old, tmp_path / DATABASE, (migrations()[0], (2, SECOND), (3, "nonsense;")))
    assert dump(old) == before


def test_a_file_newer_than_the_last_known_step_is_refused(tmp_path: Path, old: sqlite3.Connection) -> None:
    migrate(old, tmp_path / DATABASE, (migrations()[0], (2, SECOND)))
    before = dump(old)
    with pytest.raises(StoreError) as refused:
        migrate(old, tmp_path / DATABASE, migrations()[:1])
    assert "schema 2, this one knows 1" in str(refused.value)
    assert dump(old) == before
