"""The embedded store: stdlib `sqlite3`, WAL, `synchronous=FULL`.

One thread writes, with group commit; reading jobs run on connections of their own (`threads`). A commit that fails (a
full disk) fails every job of its batch, and the writer goes on. This file knows no table and no rule.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar, cast

from fledge.core.redact import error_words
from fledge.errors import StoreError, StoreLost
from fledge.store.base import Tx
from fledge.store.files import (
    DATABASE,
    check_files,
    check_plain,
    lock_folder,
    log_of,
    make_database,
    mark_of,
    mark_open,
    unmark,
)
from fledge.store.lock import StoreLock
from fledge.store.migrate import migrate, newest, refuse_foreign, schema_version
from fledge.store.threads import BATCH, CLOSED, ConnectionLost, Job, ThreadedStore, TurnTaking, caused_by
from fledge.store.unit import Unit
from fledge.store.ways import check_folder

T = TypeVar("T")

# A third of all bound values are NULL, and `sqlite3` looks for an adapter of each None: two missing attributes, each an
# exception. A registered adapter is found at once; this one returns None.
sqlite3.register_adapter(type(None), cast("Callable[[None], None]", {}.get))

CHECKED_BYTES = 64 * 2**20
"""The largest database that is always checked whole when it is opened: about a quarter of a second."""
LAST_READERS_MS = 200
"""How long a close waits for readers in other processes, so that the log can be checkpointed."""


class SqliteStore(ThreadedStore):
    """A store in a folder. Open it with `SqliteStore.open`, inside the event loop that uses it or before it starts."""

    _db: sqlite3.Connection
    _errors, _failures = sqlite3.Error, sqlite3.OperationalError

    def __init__(self, folder: Path, lock: StoreLock, db: sqlite3.Connection, batch: int) -> None:
        self.folder = folder
        self._lock, self._db = lock, db
        self._tx = Tx(Unit(db))
        self._turns: dict[asyncio.AbstractEventLoop, TurnTaking] = {}
        super().__init__(batch)

    @classmethod
    def open(
        cls, folder: str | Path, *, batch: int = BATCH, address: str = "", checked_bytes: int = CHECKED_BYTES
    ) -> "SqliteStore":
        """Open or make the store in this folder, and own it until `close`. A file larger than `checked_bytes` is
        checked whole for damage only if it was not closed.

        Raises, with nothing changed, for a folder that cannot be written, a store that another process owns, a file
        that is empty, damaged, of another program or newer than this one, and a store whose log was lost.
        """
        folder = Path(folder)
        lock = lock_folder(folder, address)
        try:
            db = _connect(folder / DATABASE, checked_bytes)
        except BaseException:
            lock.release()
            raise
        return cls(folder, lock, db, batch)

    async def close(self) -> None:
        """Finish the submitted jobs, then close the database. Closing twice is allowed."""
        if (turns := self._turns.get(asyncio.get_running_loop())) is not None:
            turns.hand_over()
        await super().close()

    # ---- jobs on their way to the threads

    def _queue(self, job: Job) -> None:
        if (turns := self._turns.get(job.loop)) is None:
            self._turns = {loop: known for loop, known in self._turns.items() if not loop.is_closed()}
            turns = self._turns[job.loop] = TurnTaking(job.loop, self._put)
        turns.add(job)

    def _put(self, jobs: list[Job]) -> None:
        is_closed = self._closed  # by another event loop
        for job in jobs:
            if is_closed:
                job.error = StoreError(CLOSED)
                job.settle()
            else:
                self._jobs.put(job)

    # ---- the reader threads

    def _open_reader(self) -> tuple[sqlite3.Connection, Tx]:
        db = sqlite3.connect(self.folder / DATABASE, isolation_level=None)
        db.execute("PRAGMA query_only = ON")
        return db, Tx(Unit(db))

    def _show(self, db: sqlite3.Connection, tx: Tx, job: Job) -> None:
        try:
            db.execute("BEGIN")
            try:
                job.result = job.run(tx)
                tx.unit.flush()  # raises if the job changed anything
            finally:
                tx.unit.forget()
                db.execute("ROLLBACK")
        except sqlite3.Error as error:
            job.error = caused_by(error, f"{self.folder / DATABASE}: {error_words(error)}")
        except BaseException as error:  # an exception of a job goes to its caller
            job.error = error

    # ---- the writer thread

    def _let_go(self) -> None:
        self._close_files()
        self._lock.release()

    def _close_files(self) -> None:
        """Close the database. The mark is removed after the whole log is in the database file, and before the log is
        removed: a process that dies in between leaves nothing that looks like a lost log."""
        path, is_whole = self.folder / DATABASE, False
        if self._lock.is_ours():
            try:
                self._db.execute(f"PRAGMA busy_timeout = {LAST_READERS_MS}")
                is_whole = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
            except sqlite3.Error:
                is_whole = False  # a full disk: the log stays, and so does the mark
            if is_whole:
                unmark(path)
        self._db.close()
        if not is_whole and not log_of(path).exists():
            unmark(path)  # no other process has it open: SQLite has checkpointed the log after all

    def _commit(self, batch: list[Job]) -> None:
        try:
            if not self._run(batch):
                return
            self._db.execute("COMMIT")
            self.commits += 1
            self._tx.unit.trim()
        except (sqlite3.Error, StoreLost, ConnectionLost) as error:
            self._undo("ROLLBACK")
            failed = error if isinstance(error, StoreLost) else self._failed(error)
            for job in batch:
                job.error = job.error or failed

    def _begin(self) -> None:
        """Begin a transaction, and check the lock. From here on no other process can write, so a process that takes the
        lock now will see everything that this transaction commits."""
        self._db.execute("BEGIN IMMEDIATE")
        if not self._lock.is_ours():
            raise StoreLost(
                f"{self.folder / 'lock'} was removed or replaced, so another process may own this folder now. "
                "This one has stopped and writes nothing more; never remove the lock of a process that runs."
            )

    def _failed(self, error: Exception) -> StoreError:
        path = self.folder / DATABASE
        return caused_by(
            error, f"{path}: nothing was written ({error_words(error)}); free some space or check the disk"
        )


def _connect(path: Path, checked_bytes: int) -> sqlite3.Connection:
    check_files(path)
    try:
        if path.exists():
            _inspect(path, whole=path.stat().st_size <= checked_bytes or mark_of(path).exists())
        else:
            make_database(path)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    except sqlite3.Error as error:
        raise _unusable(path, error) from error
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA cache_size = -32768")
        db.execute("PRAGMA wal_autocheckpoint = 4000")
        migrate(db, path)
        mark_open(path)
    except sqlite3.Error as error:
        db.close()
        raise _unusable(path, error) from error
    except StoreError:
        db.close()
        raise
    return db


def peek(folder: Path, view: Callable[[Tx], T]) -> T:
    """The result of a reading job on a store that another process owns, as it is at one moment.

    Raises `StoreError` for a file that is no store, or of another version than this program's.
    """
    path = folder / DATABASE
    check_folder(folder)
    check_plain(path)
    try:
        with _reading(path) as db:
            refuse_foreign(db, path)
            if schema_version(db) < newest():
                raise StoreError(
                    f"{path} is in use by a process with an older fledge: use that version, or end the process"
                )
            db.execute("BEGIN")
            return view(Tx(Unit(db)))
    except sqlite3.Error as error:
        raise _unusable(path, error) from error


def _inspect(path: Path, whole: bool) -> None:
    """Check a file without changing it, not even to recover the log after a crash: the whole file, or only its
    length."""
    with _reading(path) as db:
        if whole:
            verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        else:
            pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            verdict = "ok" if pages * size == path.stat().st_size else f"it has not the length of {pages} pages"
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        refuse_foreign(db, path)


def _reading(path: Path) -> "closing[sqlite3.Connection]":
    """A connection that cannot write, open for a block."""
    return closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None))


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    if "full" in error_words(error) or "disk I/O" in error_words(error):
        return StoreError(f"{path}: cannot be opened ({error_words(error)}); free some space or check the disk")
    return StoreError(
        f"{path} is damaged or not a fledge database ({error_words(error)}). It was not changed: restore a copy "
        f"(look for {path.name}.*.backup beside it), or move it away to start empty."
    )
