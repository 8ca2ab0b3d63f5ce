"""Open or close a store in a process that is killed at one step after the other, and see what the next process finds.

    python -m tests.store.dying open|open-old|close

A step is what comes before or after one call of the operating system or of SQLite that may change the disk. Processes
are forked from this one and killed by SIGKILL. Prints one JSON line: how many steps there are, and what was wrong.
"""

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

from fledge.store.files import DATABASE
from fledge.store.migrate import migrate, migrations, schema_version
from fledge.store.sqlite import SqliteStore
from tests.empty import MEMORY
from tests.store.folders import fill, notes_in

CHANGES = frozenset(
    [
        "open",
        "close",
        "write",
        "pwrite",
        "ftruncate",
        "rename",
        "unlink",
        "mkdir",
        "fsync",
        "flock",
        "connect",
        "execute",
        "executescript",
        "backup",
    ]
)
"""Functions in C that may change the disk."""
Profile = Callable[[FrameType, str, Any], None]


def dies_at(step: int, function: str) -> Profile:
    """A profile that ends the process at this step of the function of this name."""
    left = step

    def profile(frame: FrameType, event: str, callee: Any) -> None:
        nonlocal left
        if event in ("c_call", "c_return") and _may_change(callee) and _is_within(frame, function):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return profile


def _may_change(callee: Any) -> bool:
    return callee.__name__ in CHANGES and callee.__module__ != "io"  # which only reads the migrations


def _is_within(frame: FrameType | None, function: str) -> bool:
    while frame is not None:
        if frame.f_code.co_qualname == function:
            return True
        frame = frame.f_back
    return False


def die_opening(folder: Path, step: int) -> None:
    """Open the store; a process that gets to the end dies right after it."""
    sys.setprofile(dies_at(step, "SqliteStore.open"))
    SqliteStore.open(folder)


def die_closing(folder: Path, step: int) -> None:
    """Open a store, write, so that there is a log to take in, and close it."""
    threading.setprofile(dies_at(step, "SqliteStore._close_files"))
    fill(folder)


def made(folder: Path) -> None:
    """Nothing is there yet."""


def made_old(folder: Path) -> None:
    """A store of the first schema, closed."""
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        migrate(db, folder / DATABASE, migrations()[:1])


DEEDS: dict[str, tuple[Callable[[Path], None], Callable[[Path, int], None], set[tuple[str, ...]]]] = {
    "open": (made, die_opening, {()}),
    "open-old": (made_old, die_opening, {()}),
    "close": (made, die_closing, {("0", "1", "2")}),
}
"""What is there before, what dies, and which notes may be there afterwards."""


def died(deed: Callable[[Path, int], None], folder: Path, step: int) -> bool:
    """Do it in a process; False if that got to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            deed(folder, step)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"step {step}: the process ended with {code}")
    return code != 0


def faults(folder: Path, notes: set[tuple[str, ...]]) -> list[str]:
    """What is wrong with what the dead process has left: the next one opens it, writes, closes, and leaves no trace."""
    try:
        found = tuple(notes_in(folder))
        fill_one_more(folder)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    wrong = [] if found in notes else [f"its notes are {found}"]
    kept = sorted(path.name for path in folder.iterdir() if not path.name.endswith(".backup"))
    if kept != [DATABASE, "lock"]:
        wrong.append(f"it left {kept}")
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        if schema_version(db) != migrations()[-1][0] or db.execute("PRAGMA quick_check").fetchone() != ("ok",):
            wrong.append("the database is not whole")
    return wrong


def fill_one_more(folder: Path) -> None:
    """The store can be written."""

    async def write() -> None:
        store = SqliteStore.open(folder)
        await store.transact(lambda tx: None)
        await store.close()

    asyncio.run(write())


def main() -> int:
    """Try every step that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("deed", choices=sorted(DEEDS))
    before, deed, notes = DEEDS[parser.parse_args().deed]
    wrong: dict[int, list[str]] = {}
    step, alive = 0, False
    while not alive:
        step += 1
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            folder = Path(name)
            before(folder)
            alive = not died(deed, folder, step)
            if found := faults(folder, notes):
                wrong[step] = found
    print(json.dumps({"steps": step, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
