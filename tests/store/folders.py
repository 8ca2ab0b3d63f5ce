"""Folders of the embedded store as tests need them: filled, read, compared byte by byte, or as a crash leaves them."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore
from tests.store.racer import NOTES, note, open_notes

WAL: Final = f"{DATABASE}-wal"
MARK: Final = f"{DATABASE}.open"


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
            return [entry.body for entry in await store.read(lambda tx: tx.transcripts.entries(NOTES))]
        finally:
            await store.close()

    return asyncio.run(look())


def contents(folder: Path) -> dict[str, bytes]:
    """All that a store keeps on disk: the database and its log. An empty log is none."""
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path.name in (DATABASE, WAL)}
    return {name: data for name, data in kept.items() if data}


def left_open(source: Path, folder: Path, *statements: str) -> None:
    """Copy a store to `folder` as a crash right after these statements would leave it: they are in the log only."""
    folder.mkdir()
    with closing(sqlite3.connect(source / DATABASE, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        for statement in statements:
            db.execute(statement)
        for name in (DATABASE, WAL):
            shutil.copy(source / name, folder)
