"""What one would write without fledge, with the standard library alone: the yardsticks. Nothing of fledge is imported.

`GroupCommit` is a bare group-commit loop: WAL, `synchronous=FULL`, one writer thread. As a `Blind` writer it runs two
statements a transition and nothing else: it loads nothing, decides nothing, and its JSON was made beforehand. As a
`Loading` one it also reads the row and takes its JSON apart and together, as whoever decides on it must. Neither
isolates a job from another or has an index beyond the keys. `JsonRegistry` is the file rewritten whole at every change.
"""

import asyncio
import json
import os
import queue
import sqlite3
import threading
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

BATCH = 512

SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, parent TEXT, phase TEXT, version INTEGER, due_at REAL, spec TEXT, state TEXT);
CREATE TABLE event (seq INTEGER PRIMARY KEY, run TEXT, version INTEGER, phase TEXT, event TEXT);
"""
UPDATE = "UPDATE run SET phase = ?, version = ?, due_at = ?, state = ? WHERE key = ? AND version = ?"
INSERT = "INSERT INTO event (run, version, phase, event) VALUES (?,?,?,?)"

SELECT = "SELECT version, state FROM run WHERE key = ?"


class Change(Protocol[T_co]):
    """Something to be written in one transaction with others."""

    def write(self, db: sqlite3.Connection) -> T_co:
        """Write it; what is answered reaches whoever asked for it once it is durable."""
        ...


class Blind(NamedTuple):
    """A change that knows all it writes; `version` is the one it is based on."""

    key: str
    version: int
    phase: str
    due_at: float | None
    state: str
    event: str

    def write(self, db: sqlite3.Connection) -> None:
        """The row by key and version, and the event."""
        new = (self.phase, self.version + 1, self.due_at, self.state, self.key, self.version)
        if db.execute(UPDATE, new).rowcount != 1:
            raise RuntimeError(f"{self.key} is not at version {self.version}")
        db.execute(INSERT, (self.key, self.version + 1, self.phase, self.event))


class Loading(NamedTuple):
    """A change that is made to what is stored."""

    key: str
    phase: str
    due_at: float | None
    event: dict[str, object]

    def write(self, db: sqlite3.Connection) -> None:
        """Load, change, and then the same two statements."""
        version, text = db.execute(SELECT, (self.key,)).fetchone()
        state = json.loads(text)
        state["version"], state["phase"] = version + 1, {"type": self.phase, "due_at": self.due_at}
        Blind(self.key, version, self.phase, self.due_at, json.dumps(state), json.dumps(self.event)).write(db)


class GroupCommit:
    """Takes whatever changes wait, writes them in one transaction, then wakes those who wait."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop, schema: str = SCHEMA) -> None:
        self._path, self._loop = path, loop
        self._changes: queue.SimpleQueue[tuple[Change[Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self.commits = 0
        """How many times something was written to disk."""
        with_schema = sqlite3.connect(path)
        with_schema.execute("PRAGMA journal_mode = WAL")
        with_schema.executescript(schema)
        with_schema.close()
        self._writer = threading.Thread(target=self._write, name="bare-write", daemon=True)

    def populate(self, keys: list[str], parent: str, spec: str, state: str) -> None:
        """Insert runs at version 1, before the writer starts."""
        db = sqlite3.connect(self._path)
        with db:
            db.executemany(
                "INSERT INTO run VALUES (?,?,'queued',1,NULL,?,?)", [(key, parent, spec, state) for key in keys]
            )
        db.close()

    def start(self) -> None:
        """From now on changes are written."""
        self._writer.start()

    def change(self, change: Change[T]) -> "asyncio.Future[T]":
        """Done once the change is durable, with what writing it answered."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._changes.put((change, future))
        return future

    def close(self) -> None:
        """Finish what was asked and stop."""
        self._changes.put(None)
        self._writer.join()

    def _write(self) -> None:
        db = sqlite3.connect(self._path, isolation_level=None)
        db.execute("PRAGMA synchronous = FULL")
        stopping = False
        while not stopping:
            batch = [self._changes.get()]
            while len(batch) < BATCH:
                try:
                    batch.append(self._changes.get_nowait())
                except queue.Empty:
                    break
            durable: list[tuple[asyncio.Future[Any], Any]] = []
            db.execute("BEGIN IMMEDIATE")
            for item in batch:
                if item is None:
                    stopping = True
                    continue
                change, future = item
                durable.append((future, change.write(db)))
            db.execute("COMMIT")
            self.commits += 1
            if durable:
                self._loop.call_soon_threadsafe(_wake, durable)
        db.close()


def _wake(durable: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in durable:
        future.set_result(answer)


class JsonRegistry:
    """All runs in one file; each change writes it anew beside the old one, waits for the disk, and renames it."""

    def __init__(self, path: Path, runs: dict[str, dict[str, str | int]]) -> None:
        self._path, self._runs = path, runs

    def change(self, key: str, phase: str) -> None:
        """Durable when it returns."""
        run = self._runs[key]
        run["phase"], run["version"] = phase, int(run["version"]) + 1
        beside = self._path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(self._runs, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
