"""A second process, for tests that need a real one. Run it with what it shall do and the folder of a store.

It talks in lines of JSON on stdout and waits for lines on stdin, so nobody has to guess when the other is ready.
"""

import asyncio
import fcntl
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from fledge.errors import FledgeError
from fledge.store.base import SessionFacts, Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore
from tests.store.bench import admit, submitted, writer_held

NOTES = "agent:main:main"
RUN = "agent:main:subagent:r"
BIG = "x" * 12_000_000
"""More than SQLite keeps in memory: part of it goes to disk before the commit."""


def tell(**words: object) -> None:
    """Say something to whoever started this."""
    print(json.dumps(words), flush=True)


def wait_for_word() -> None:
    """Wait until whoever started this says something, or goes."""
    sys.stdin.readline()


def note(text: str) -> Callable[[Tx], int]:
    """A job that appends one entry."""
    return lambda tx: tx.transcripts.append(NOTES, 1.0, [("note", text)])


def open_notes(tx: Tx) -> None:
    """A job that makes the session the notes go to."""
    tx.sessions.open(NOTES, "main", None, 0, SessionFacts(), 1.0)


async def hold(folder: Path) -> None:
    """When told to, try to own the store; keep it until told otherwise."""
    tell(said="ready")
    wait_for_word()
    try:
        store = SqliteStore.open(folder, address="http://127.0.0.1:7")
    except FledgeError as error:
        tell(said="refused", kind=type(error).__name__, why=str(error))
        return
    tell(said="won")
    wait_for_word()
    await store.close()
    tell(said="closed")


async def write(folder: Path) -> None:
    """Commit one note after another, saying each once it is durable, until killed or refused."""
    store = SqliteStore.open(folder)
    await store.transact(open_notes)
    for n in range(1, 1_000_000):
        try:
            await store.transact(note(f"{n}"))
        except FledgeError as error:
            tell(said=type(error).__name__)
            return
        tell(said="written", n=n)


async def lock_while_it_is_replaced(folder: Path) -> None:
    """Open the store while somebody replaces its lock, after it was opened and before it is locked; once by a lock that
    somebody holds, and once by one that nobody does."""
    locked = 0
    held: list[int] = []

    def replace(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal locked
        if event != "fcntl.flock" or arguments[0] in held:
            return
        locked += 1
        if locked in (1, 3):  # each opening locks twice: what it opened first, and what is in its place then
            (folder / "lock").unlink()
            held.append(os.open(folder / "lock", os.O_RDWR | os.O_CREAT))
        if locked == 1:
            fcntl.flock(held[-1], fcntl.LOCK_EX)

    sys.addaudithook(replace)
    outcomes = []
    for _ in range(2):
        try:
            store = SqliteStore.open(folder)
        except FledgeError as error:
            outcomes.append(type(error).__name__)
        else:
            outcomes.append("opened")
            await store.close()
        os.close(held[-1])
    tell(first=outcomes[0], then=outcomes[1], locked=locked)


# ---- a full disk -----------------------------------------------------------------------------------------------------


def limit_files_to(size: int) -> None:
    """From now on no file of this process may grow beyond this: writes fail as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def lift_limit() -> None:
    """The disk has room again."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


async def as_one_batch(store: SqliteStore, jobs: Sequence[Callable[[Tx], int]]) -> list[str]:
    """What became of jobs that share one write to disk: `ok`, or the error's kind and words."""
    async with writer_held(store):
        tasks = await submitted(store, jobs)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    return ["ok" if isinstance(one, int) else f"{type(one).__name__}: {one}" for one in answers]


def make_run(tx: Tx) -> int:
    """A job that creates a run; the writer may remember it, but not longer than it is stored."""
    return admit(tx, RUN).version


async def fill(folder: Path, spare: int, jobs: Sequence[Callable[[Tx], int]], alone: Callable[[Tx], int]) -> None:
    """Write while the disk is full but for `spare` bytes, look at what is there, then make room and write on."""
    store = SqliteStore.open(folder)
    await store.transact(open_notes)
    await store.transact(note("before"))
    limit_files_to((folder / f"{DATABASE}-wal").stat().st_size + spare)
    full = await as_one_batch(store, jobs)
    full_alone = await as_one_batch(store, [alone])
    found = await store.transact(lambda tx: tx.runs.find(RUN) is not None)
    seen = [entry.body for entry in await store.read(lambda tx: tx.transcripts.entries(NOTES))]
    lift_limit()
    again = await as_one_batch(store, [make_run, *(note(f"after {n}") for n in range(4))])
    await store.close()
    tell(full=full, alone=full_alone, found=found, seen=seen, again=again)


async def full_at_commit(folder: Path) -> None:
    """A batch of small jobs: nothing is written before the commit."""
    await fill(folder, 0, [make_run, *(note(f"{n}") for n in range(4))], note("alone"))


async def full_in_a_job(folder: Path) -> None:
    """A batch whose third job is too big to be held in memory: writing fails while that job runs."""
    await fill(folder, 200_000, [make_run, note("1"), note(BIG), note("3"), note("4")], note(BIG))


async def full_at_open(folder: Path) -> None:
    """Open on a disk without any room; then again, once there is."""
    limit_files_to(0)
    try:
        store = SqliteStore.open(folder)
    except Exception as error:
        refused = f"{type(error).__name__}: {error}"
    else:
        refused = "opened"
        await store.close()
    lift_limit()
    try:
        store = SqliteStore.open(folder)
    except Exception as error:
        tell(refused=refused, again=f"{type(error).__name__}: {error}")
    else:
        await store.close()
        tell(refused=refused, again="opened")


DEEDS: dict[str, Callable[[Path], Coroutine[Any, Any, None]]] = {
    deed.__name__: deed
    for deed in (hold, write, lock_while_it_is_replaced, full_at_commit, full_in_a_job, full_at_open)
}

if __name__ == "__main__":
    asyncio.run(DEEDS[sys.argv[1]](Path(sys.argv[2])))
