"""The embedded store and its folder: who may own it, which folders are refused, and a full disk."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from fledge.errors import StoreError, StoreLocked
from fledge.store.lock import Holder, holder_of
from fledge.store.sqlite import DATABASE, SqliteStore
from tests.core.samples import AT
from tests.store.folders import close, fill, notes_in

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
    assert modes == dict.fromkeys([DATABASE, f"{DATABASE}-shm", f"{DATABASE}-wal", "lock"], 0o600)
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
