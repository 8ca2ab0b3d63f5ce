"""The embedded store and its folder: who may own it, which folders are refused, and a full disk."""

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from fledge.errors import StoreError, StoreLocked, StoreLost
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.store.lock import Holder, holder_of
from fledge.store.sqlite import SqliteStore, peek
from tests.core.samples import AT
from tests.statements import proves
from tests.store.folders import MARK, WAL, close, contents, fill, notes_in
from tests.store.racer import NOTES, note, open_notes

ROOT: Final = Path(__file__).parents[2]

# ---- whose it is -----------------------------------------------------------------------------------------------------


def test_nobody_else_can_read_what_is_stored(tmp_path: Path) -> None:
    async def opened() -> dict[str, int]:
        store = SqliteStore.open(tmp_path / "state")
        await store.transact(lambda tx: None)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
        await store.close()
        return modes

    modes = asyncio.run(opened())
    assert modes == dict.fromkeys([DATABASE, f"{DATABASE}-shm", WAL, MARK, "lock"], 0o600)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


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
    who = f"process {holder.pid} on {socket.gethostname()} (racer.py, gateway at http://127.0.0.1:7)"
    with pytest.raises(StoreLocked) as refused:
        SqliteStore.open(tmp_path)
    assert str(refused.value) == f"{tmp_path} is in use by {who}: end that first, or name another folder"
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


def test_a_refused_opening_leaves_no_file_open(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "held")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / DATABASE).write_text("not a database, " * 100)
    for folder in ("held", "bad"):
        with pytest.raises(StoreError):
            SqliteStore.open(tmp_path / folder)
    # By name: the readers of the store that is held open their own files, in their own time.
    assert open_files(tmp_path / "held" / "lock") == 1
    assert open_files(tmp_path / "bad") == 0
    close(store)


def open_files(path: Path) -> int:
    """How many files of this process lie at or beneath this path."""
    found = 0
    for number in os.listdir("/dev/fd"):
        with suppress(OSError):
            found += os.readlink(f"/dev/fd/{number}").startswith(str(path))
    return found


def test_the_lock_says_who_holds_it_and_nobody_once_it_is_closed(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path, address="http://127.0.0.1:7")
    holder = holder_of(tmp_path / "lock")
    assert holder is not None
    assert (holder.pid, holder.host, holder.address) == (os.getpid(), socket.gethostname(), "http://127.0.0.1:7")
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


# ---- a lock that was taken away --------------------------------------------------------------------------------------


@proves("0.crash.15", "A process whose lock file was removed or replaced writes nothing more, and stops")
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_holder_whose_lock_was_taken_away_writes_nothing_more_though_nobody_else_came(
    tmp_path: Path, how: str
) -> None:
    async def main() -> None:
        store = SqliteStore.open(tmp_path)
        await store.transact(open_notes)
        await store.transact(note("before"))
        (tmp_path / "lock").unlink()
        if how == "replaced":
            (tmp_path / "lock").touch()
        for _ in range(2):
            with pytest.raises(StoreLost) as lost:
                await store.transact(note("after"))
        words = f"{tmp_path / 'lock'} was removed or replaced, so another process may own this folder now."
        assert str(lost.value).startswith(words)
        assert [entry.body for entry in await store.read(lambda tx: tx.transcripts.entries(NOTES))] == ["before"]
        await store.close()

    asyncio.run(main())
    assert notes_in(tmp_path) == ["before"]


@proves("0.crash.15")
def test_a_second_process_gets_in_where_the_lock_was_removed_and_the_first_adds_nothing_to_what_it_writes(
    start: Callable[[str], Racer], tmp_path: Path
) -> None:
    holder = start("write")
    assert holder.hear() == {"said": "written", "n": 1}
    (tmp_path / "lock").unlink()
    heard = holder.hear()
    while heard["said"] == "written":
        heard = holder.hear()
    assert heard["said"] == "StoreLost"
    store = SqliteStore.open(tmp_path)
    asyncio.run(submit(store, note("mine")))
    close(store)
    assert notes_in(tmp_path)[-1] == "mine"
    assert notes_in(tmp_path)[:-1] == [f"{n}" for n in range(1, len(notes_in(tmp_path)))]


async def submit(store: SqliteStore, job: Callable[[Tx], int]) -> None:
    await store.transact(job)


@proves("0.crash.16", "An opener that locked a file which was replaced meanwhile locks the new one, or is refused")
def test_a_lock_that_is_replaced_while_it_is_taken_is_not_taken_for_the_new_one(
    start: Callable[[str], Racer], tmp_path: Path
) -> None:
    heard = start("lock_while_it_is_replaced").hear()
    assert heard == {"first": "StoreLocked", "then": "opened", "locked": 4}


# ---- the mark --------------------------------------------------------------------------------------------------------


def test_an_open_store_says_since_when_and_a_closed_one_says_nothing(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    assert re.fullmatch(r"open since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", (tmp_path / MARK).read_text())
    close(store)
    assert not (tmp_path / MARK).exists()


@proves("7.input.18", "A store that was not closed and whose log is gone refuses to open, and says what to do")
def test_a_store_whose_log_vanished_after_a_crash_is_refused_with_what_to_do(
    start: Callable[[str], Racer], tmp_path: Path
) -> None:
    holder = start("write")
    for n in range(1, 6):
        assert holder.hear() == {"said": "written", "n": n}
    holder.kill()
    kept = (tmp_path / WAL).rename(tmp_path / "kept")
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreError) as refused:
            SqliteStore.open(tmp_path)
        assert str(refused.value) == (
            f"{tmp_path / DATABASE} was not closed, and its log {WAL}, with the newest commits, is gone. Nothing was "
            f"changed: put {WAL} back. If another program has opened the database since, it has taken the log in and "
            f"nothing is lost; then, or to go on without those commits, remove {MARK}."
        )
        assert contents(tmp_path) == before
    kept.rename(tmp_path / WAL)
    assert len(notes_in(tmp_path)) >= 5
    assert not (tmp_path / MARK).exists()


def test_a_store_whose_log_is_lost_opens_with_what_is_left_once_its_mark_is_removed(
    start: Callable[[str], Racer], tmp_path: Path
) -> None:
    holder = start("write")
    holder.hear()
    holder.kill()
    (tmp_path / WAL).unlink()
    (tmp_path / MARK).unlink()
    assert notes_in(tmp_path) == []


def test_a_log_without_its_database_is_refused_and_not_taken_for_the_log_of_a_new_one(
    start: Callable[[str], Racer], tmp_path: Path
) -> None:
    holder = start("write")
    holder.hear()
    holder.kill()
    (tmp_path / DATABASE).unlink()
    with pytest.raises(StoreError, match=rf"{WAL} is there without its database {DATABASE}, .* move {WAL} away"):
        SqliteStore.open(tmp_path)
    assert not (tmp_path / DATABASE).exists()


def test_a_close_beside_a_process_that_reads_keeps_the_log_and_the_mark(tmp_path: Path) -> None:
    fill(tmp_path)
    store = SqliteStore.open(tmp_path)
    asyncio.run(submit(store, note("3")))
    with closing(sqlite3.connect(f"{(tmp_path / DATABASE).as_uri()}?mode=ro", uri=True, isolation_level=None)) as db:
        db.execute("BEGIN")
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (4,)
        close(store)
        assert (tmp_path / MARK).exists()
    assert (tmp_path / WAL).exists()
    assert notes_in(tmp_path) == ["0", "1", "2", "3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [DATABASE, "lock"]


# ---- folders that cannot be used -------------------------------------------------------------------------------------


def test_a_folder_is_made_with_all_that_leads_to_it_and_only_its_owner_may_look(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    close(SqliteStore.open(str(folder)))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "lock").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_made_is_refused_by_name_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match=r"file is a file, not a folder; name another$"):
        SqliteStore.open(tmp_path / "file")
    for folder in (tmp_path / "file" / "below", Path("/proc/fledge")):
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
    with pytest.raises(StoreError, match=f"{DATABASE} is a folder, not a database; move it away"):
        SqliteStore.open(tmp_path)
    (tmp_path / DATABASE).rmdir()
    close(SqliteStore.open(tmp_path))


@proves("7.input.16", "An empty database file is not ours: it is refused, and not changed")
def test_an_empty_file_in_the_databases_place_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    for _ in range(2):
        with pytest.raises(StoreError) as refused:
            SqliteStore.open(tmp_path)
        assert str(refused.value) == (
            f"{tmp_path / DATABASE} is empty, so it is not a fledge database. It was not changed: restore a copy "
            f"(look for {DATABASE}.*.backup beside it), or move it away to start empty."
        )
        assert (tmp_path / DATABASE).read_bytes() == b""
    (tmp_path / DATABASE).unlink()
    assert notes_in(tmp_path) == []


def test_a_database_without_a_table_is_another_programs(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        db.execute("VACUUM")
        db.execute("PRAGMA user_version = 1")
    before = contents(tmp_path)
    with pytest.raises(StoreError, match=r"is a database of another program\. It was not changed"):
        SqliteStore.open(tmp_path)
    assert contents(tmp_path) == before


@proves("7.input.17", "A pipe in the place of a file that is read hangs nothing: it is refused")
@pytest.mark.parametrize("name", ["lock", DATABASE, WAL, f"{DATABASE}-shm", MARK, f"{DATABASE}.new"])
def test_a_pipe_in_the_place_of_one_of_its_files_is_refused_or_replaced_and_never_waited_for(
    tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / name)
    if name.endswith(".new"):
        assert notes_in(tmp_path) == []
        return
    with pytest.raises(StoreError, match=f"{name}.* not a plain file"):
        SqliteStore.open(tmp_path)
    assert holder_of(tmp_path / "lock") is None


def test_a_pipe_in_the_place_of_the_database_is_not_looked_into(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / DATABASE)
    with pytest.raises(StoreError, match=f"{DATABASE} is not a plain file"):
        peek(tmp_path, lambda tx: None)


# ---- a full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["full_at_commit", "full_in_a_job"])
def test_on_a_full_disk_every_job_of_the_batch_is_told_nothing_is_half_written_and_the_store_works_on(
    start: Callable[[str], Racer], tmp_path: Path, deed: str
) -> None:
    heard = start(deed).hear()
    assert (len(heard["full"]), len(heard["alone"])) == (5, 1)
    for words in (*heard["full"], *heard["alone"]):
        assert words.startswith(f"StoreError: {tmp_path / DATABASE}: nothing was written (")
        assert words.endswith("); free some space or check the disk")
    assert heard["seen"] == ["before"]
    assert heard["found"] is False
    assert heard["again"] == ["ok"] * 5
    assert notes_in(tmp_path) == ["before", *(f"after {n}" for n in range(4))]


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
