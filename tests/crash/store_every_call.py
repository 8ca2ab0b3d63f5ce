"""Open or close a store in a process that is killed at one step after the other, and see what the next process finds.

    python -m tests.crash.store_every_call open|open-old|close [--every]

A step is a system call that may change the disk; the process is killed right before it. Of equal calls in a row only
the first is a step, unless `--every` is given. Prints one JSON line: how many steps there are, and what was wrong.
"""

import argparse
import asyncio
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from fledge.store.files import DATABASE
from fledge.store.migrate import newest, schema_version
from fledge.store.sqlite import SqliteStore
from tests.crash.tracing import begin_counting, killed_at
from tests.empty import MEMORY
from tests.store.old import make_old
from tests.store.racer import NOTES, note, open_notes

SCHEMA = newest()


def opened(folder: Path) -> None:
    """Open the store; a process that gets to the end dies right after it."""
    begin_counting()
    SqliteStore.open(folder)


def closed(folder: Path) -> None:
    """Open a store, write, so that there is a log to take in, and close it."""

    async def work() -> None:
        store = SqliteStore.open(folder)
        await store.transact(open_notes)
        await store.transact(note("kept"))
        begin_counting()
        await store.close()

    asyncio.run(work())


def nothing(folder: Path) -> None:
    """There is no store yet."""


def old(folder: Path) -> None:
    """There is a store of fledge 0.1, closed."""
    with closing(make_old(folder / DATABASE)) as db:
        db.execute("PRAGMA journal_mode = WAL")


DEEDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], None], list[str]]] = {
    "open": (nothing, opened, []),
    "open-old": (old, opened, []),
    "close": (nothing, closed, ["kept"]),
}
"""What is there before, what dies, and which notes are there afterwards."""


def faults(folder: Path, notes: list[str]) -> list[str]:
    """What is wrong with what the dead process has left: the next one opens it, writes, closes, and leaves no trace."""
    try:
        found = asyncio.run(go_on(folder))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    wrong = [] if found == notes else [f"its notes are {found}"]
    kept = sorted(path.name for path in folder.iterdir() if not path.name.endswith(".backup"))
    if kept != [DATABASE, "lock"]:
        wrong.append(f"it left {kept}")
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        if schema_version(db) != SCHEMA or db.execute("PRAGMA quick_check").fetchone() != ("ok",):
            wrong.append("the database is not whole")
    return wrong


async def go_on(folder: Path) -> list[str]:
    """Open the store, read its notes, write another, close it."""
    store = SqliteStore.open(folder)
    try:
        found = [entry.body for entry in await store.read(lambda tx: tx.transcripts.entries(NOTES))]
        if not found:
            await store.transact(open_notes)
        await store.transact(note("more"))
        return found
    finally:
        await store.close()


def main() -> int:
    """Try every step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("deed", choices=sorted(DEEDS))
    parser.add_argument("--every", action="store_true")
    options = parser.parse_args()
    before, deed, notes = DEEDS[options.deed]
    wrong: dict[int, list[str]] = {}
    step, died = 0, True
    while died:
        step += 1
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            folder = Path(name)
            before(folder)
            died = killed_at(step, partial(deed, folder), options.every)
            if found := faults(folder, notes):
                wrong[step] = found
    print(json.dumps({"steps": step - 1, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
