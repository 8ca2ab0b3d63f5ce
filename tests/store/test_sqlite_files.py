"""The embedded store and its folder: who may own it, what is refused, damage, a full disk, schema versions.

Whatever is refused leaves every byte as it was; that is checked on the bytes.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from fledge.errors import StoreError, StoreLocked
from fledge.store.lock import Holder, holder_of
from fledge.store.migrate import migrate, migrations, schema_version
from fledge.store.sqlite import DATABASE, SqliteStore
from tests.core.samples import AT
from tests.store.racer import NOTES, note, open_notes

ROOT: Final = Path(__file__).parents[2]
WAL: Final = f"{DATABASE}-wal"


def close(store: SqliteStore) -> None:
    """Close a store from outside any loop."""
    asyncio.run(store.close())


def fill(folder: Path, notes: int = 3) -> None:
    """Make a store with some notes in it, and close it."""

    async def write() -> None:
        store = SqliteStore.open(folder)
        await store.transact(open_notes)
        await asyncio.gather(*(store.transact(note(f"{n}")) for n in range(notes)))
        await store.close()

    asyncio.run(write())


def notes_in(folder: Path) -> list[str]:
    """The notes in a store that is opened anew."""

    async def look() -> list[str]:
        store = SqliteStore.open(folder)
        try:
            return [entry.body for entry in await store.read(lambda tx: tx.entries(NOTES))]
        finally:
            await store.close()

    return asyncio.run(look())


def contents(folder: Path) -> dict[str, bytes]:
    """All that a store keeps on disk: the database and its log. An empty log is none."""
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path.name in (DATABASE, WAL)}
    return {name: data for name, data in kept.items() if data}


# ---- owning a store --------------------------------------------------------------------------------------------------


class Racer:
    """A second process that does one of `racer.DEEDS`."""

    def __init__(self, deed: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.racer", deed, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def hear(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout is not None
        heard: dict[str, Any] = json.loads(self._process.stdout.readline())
        return heard

    def go_on(self) -> None:
        """Tell it to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it at once, without cleanup, if it still runs."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Racer]]:
    """Starts racers on this test's store; none outlives the test."""
    started: list[Racer] = []

    def start(deed: str) -> Racer:
        started.append(Racer(deed, tmp_path))
        return started[-1]

    yield start
    for racer in started:
        racer.kill()


def test_of_two_processes_that_race_for_a_store_one_wins_and_the_other_is_refused(
    start: Callable[[str], Racer],
) -> None:
    racers = [start("hold"), start("hold")]
    assert [racer.hear()["said"] for racer in racers] == ["ready", "ready"]
    for racer in racers:
        racer.go_on()
    heard = [racer.hear() for racer in racers]
    assert sorted(words["said"] for words in heard) == ["refused", "won"]
    assert [words["kind"] for words in heard if words["said"] == "refused"] == ["StoreLocked"]


def test_whoever_comes_second_is_told_who_holds_the_store_until_that_one_closes_it(
    start: Callable[[str], Racer], tmp_path: Path
) -> None:
    holder = start("hold")
    holder.hear()
    holder.go_on()
    assert holder.hear() == {"said": "won"}
    who = f"process {holder.pid} on {socket.gethostname()} (racer.py, gateway at 127.0.0.1:7)"
    with pytest.raises(StoreLocked) as refused:
        SqliteStore.open(tmp_path)
    assert str(refused.value) == f"{tmp_path} is in use by {who}"
    holder.go_on()
    assert holder.hear() == {"said": "closed"}
    close(SqliteStore.open(tmp_path))


def test_after_its_holder_was_killed_a_store_opens_with_exactly_what_was_committed(
    start: Callable[[str], Racer], tmp_path: Path
) -> None:
    holder = start("write")
    for n in range(1, 21):
        assert holder.hear() == {"said": "written", "n": n}
    with pytest.raises(StoreLocked, match=rf"process {holder.pid} on "):
        SqliteStore.open(tmp_path)
    holder.kill()
    notes = notes_in(tmp_path)
    assert len(notes) >= 20
    assert notes == [f"{n}" for n in range(1, len(notes) + 1)]


def test_a_store_cannot_be_opened_twice_in_one_process_either(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    with pytest.raises(StoreLocked, match=rf"is in use by process {os.getpid()} on "):
        SqliteStore.open(tmp_path)
    close(store)
    close(SqliteStore.open(tmp_path))


def test_the_lock_says_who_holds_it_and_nobody_once_it_is_closed(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path, address="127.0.0.1:7")
    holder = holder_of(tmp_path / "lock")
    assert holder is not None
    assert (holder.pid, holder.host, holder.address) == (os.getpid(), socket.gethostname(), "127.0.0.1:7")
    close(store)
    assert holder_of(tmp_path / "lock") is None
    assert (tmp_path / "lock").read_bytes() == b""


def test_nobody_is_named_where_the_lock_says_nothing_that_can_be_read(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "lock") is None
    (tmp_path / "lock").write_text("{")
    assert holder_of(tmp_path / "lock") is None


@pytest.mark.parametrize(
    ("address", "said"),
    [("", "process 7 on host (fledge)"), ("[::1]:80", "process 7 on host (fledge, gateway at [::1]:80)")],
)
def test_a_holder_is_named_with_its_gateway_if_it_has_one(address: str, said: str) -> None:
    assert str(Holder(7, "host", "fledge", AT, address)) == said


def test_closing_leaves_the_database_and_the_empty_lock_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path)
    assert notes_in(tmp_path) == ["0", "1", "2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [DATABASE, "lock"]


# ---- folders that cannot be used -------------------------------------------------------------------------------------


def test_a_folder_is_made_with_all_that_leads_to_it_and_only_its_owner_may_look(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    close(SqliteStore.open(str(folder)))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "lock").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_made_is_refused_by_name_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/fledge")):
        with pytest.raises(StoreError) as refused:
            SqliteStore.open(folder)
        assert str(refused.value).startswith(f"{folder}: cannot be made (")
        assert str(refused.value).endswith("); choose a folder you may write to")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_nothing_can_be_written_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"^/proc/self/lock: cannot be opened \(.*\); check the folder's permissions$"):
        SqliteStore.open("/proc/self")
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreError, match=r"lock: cannot be opened \(Is a directory\)"):
        SqliteStore.open(tmp_path)


def test_a_folder_in_the_databases_place_is_refused_and_the_lock_let_go(tmp_path: Path) -> None:
    (tmp_path / DATABASE).mkdir()
    with pytest.raises(StoreError, match=rf"{DATABASE}: cannot be opened \("):
        SqliteStore.open(tmp_path)
    (tmp_path / DATABASE).rmdir()
    close(SqliteStore.open(tmp_path))


# ---- a full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["full_at_commit", "full_in_a_job"])
def test_on_a_full_disk_every_job_of_the_batch_is_told_nothing_is_half_written_and_the_store_works_on(
    start: Callable[[str], Racer], tmp_path: Path, deed: str
) -> None:
    heard = start(deed).hear()
    assert len(heard["full"]) == 5
    assert {words.partition(":")[0] for words in heard["full"]} == {"StoreError"}
    told = f"StoreError: {tmp_path / DATABASE}: nothing was written ("
    assert all(words.startswith(told) for words in heard["full"])
    assert all(words.endswith("); free some space or check the disk") for words in heard["full"])
    if deed == "full_at_commit":
        assert [words.partition(":")[0] for words in heard["alone"]] == ["StoreError"]
        assert heard["seen"] == ["before"]
    assert heard["again"] == ["ok"] * 5
    kept = [] if deed == "full_at_commit" else ["0"]
    assert notes_in(tmp_path) == ["before", *kept, *(f"after {n}" for n in range(5))]


@pytest.mark.parametrize("exists", [False, True])
def test_a_store_that_cannot_be_opened_for_want_of_room_opens_once_there_is_some(
    start: Callable[[str], Racer], tmp_path: Path, exists: bool
) -> None:
    if exists:
        fill(tmp_path)
    heard = start("full_at_open").hear()
    assert heard["refused"].partition(":")[0] == "StoreError"
    assert heard["again"] == "opened"
    assert notes_in(tmp_path) == (["0", "1", "2"] if exists else [])


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


def left_open(source: Path, folder: Path, *statements: str) -> None:
    """Copy a store to `folder` as a crash right after these statements would leave it: they are in the log only."""
    folder.mkdir()
    with closing(sqlite3.connect(source / DATABASE, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        for statement in statements:
            db.execute(statement)
        for name in (DATABASE, WAL):
            shutil.copy(source / name, folder)


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
    fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as db:
        yield db


def backup_of(folder: Path) -> Path:
    """Where the copy of a file of schema 1 goes."""
    return folder / f"{DATABASE}.schema-1.backup"


def dump(db: sqlite3.Connection) -> list[str]:
    """All that a database says."""
    return [f"version {schema_version(db)}", *db.iterdump()]


def test_an_older_file_is_copied_first_and_then_brought_up_to_date(tmp_path: Path, old: sqlite3.Connection) -> None:
    before = dump(old)
    assert migrate(old, tmp_path / DATABASE, [migrations()[0], (2, SECOND)]) == 2
    assert schema_version(old) == 2
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved",)]
    assert old.execute("SELECT body FROM entries ORDER BY seq").fetchall() == [("0",), ("1",), ("2",)]
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        assert dump(copy) == before


def test_steps_are_taken_in_order_and_only_those_that_are_missing(tmp_path: Path, old: sqlite3.Connection) -> None:
    steps = [(1, "not even SQL"), (2, SECOND), (3, "UPDATE sessions SET note = note || ' twice';")]
    assert migrate(old, tmp_path / DATABASE, steps) == 3
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved twice",)]
    assert migrate(old, tmp_path / DATABASE, steps) == 3
    assert old.execute("SELECT note FROM sessions").fetchall() == [("moved twice",)]


def test_an_older_copy_makes_way_for_the_one_made_now(tmp_path: Path, old: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        copy.execute("CREATE TABLE left_over (x)")
    before = dump(old)
    migrate(old, tmp_path / DATABASE, [migrations()[0], (2, SECOND)])
    with closing(sqlite3.connect(backup_of(tmp_path))) as copy:
        assert dump(copy) == before


def test_no_copy_is_made_of_a_new_file_nor_of_one_that_is_up_to_date(tmp_path: Path, old: sqlite3.Connection) -> None:
    before = dump(old)
    assert migrate(old, tmp_path / DATABASE) == NEWEST
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
        migrate(old, tmp_path / DATABASE, [migrations()[0], *steps])
    assert str(failed.value).startswith(f"{tmp_path / DATABASE}: migration 2 failed (")
    assert str(failed.value).endswith("); the file was not changed")
    assert dump(old) == before
    assert contents(tmp_path)[DATABASE] == kept[DATABASE]
    assert migrate(old, tmp_path / DATABASE, [migrations()[0], (2, SECOND)]) == 2


def test_a_migration_of_several_steps_that_fails_at_the_last_leaves_the_file_as_it_was(
    tmp_path: Path, old: sqlite3.Connection
) -> None:
    before = dump(old)
    with pytest.raises(StoreError, match=r"migration 3 failed \(.*\); the file was not changed$"):
        migrate(old, tmp_path / DATABASE, [migrations()[0], (2, SECOND), (3, "nonsense;")])
    assert dump(old) == before


def test_a_file_newer_than_the_last_known_step_is_refused(tmp_path: Path, old: sqlite3.Connection) -> None:
    migrate(old, tmp_path / DATABASE, [migrations()[0], (2, SECOND)])
    before = dump(old)
    with pytest.raises(StoreError) as refused:
        migrate(old, tmp_path / DATABASE, [migrations()[0]])
    assert f"schema 2, this one knows {NEWEST}" in str(refused.value)
    assert dump(old) == before
