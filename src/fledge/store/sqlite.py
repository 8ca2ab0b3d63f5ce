"""The embedded store: stdlib `sqlite3`, WAL, `synchronous=FULL`, one writer thread with group commit.

Jobs of many coroutines share one write to disk: the writer takes whatever waits, runs it in one transaction, and
commits once. If a job raises, the batch is run again with a savepoint for each, so that it is undone alone; a commit
that fails (a full disk) fails every job of its batch, and the writer lives on. Views run on reader connections beside
it. This file knows no table and no rule.
"""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from fledge.clock import hold_time
from fledge.errors import StoreError, StoreLost
from fledge.store.base import Tx
from fledge.store.files import (
    DATABASE,
    check_files,
    check_plain,
    log_of,
    make_database,
    mark_of,
    mark_open,
    unmark,
)
from fledge.store.lock import StoreLock
from fledge.store.migrate import is_behind, migrate, refuse_foreign
from fledge.store.unit import Unit

T = TypeVar("T")

# A third of what is bound is NULL, and `sqlite3` looks for a way to adapt each None: by two attributes that are not
# there, each an exception. This way is found at once: the method answers None.
sqlite3.register_adapter(type(None), cast("Callable[[None], None]", {}.get))

BATCH = 512
READERS = 2
CHECKED_BYTES = 64 * 2**20
"""How large a database may be to be read whole when it is opened: about a quarter of a second."""
LAST_READERS_MS = 200
"""How long a close waits for another process that reads, so that the log can be taken in."""


class _Job:
    """One job, the loop that waits for it, and what came of it."""

    __slots__ = ("error", "future", "loop", "release", "result", "run")

    def __init__(self, run: Callable[[Tx], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.run, self.loop = run, loop
        self.release = hold_time(loop)
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Hand the outcome to whoever waits; runs in their loop."""
        self.release()
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        elif isinstance(self.error, StopIteration):  # which no future can carry
            self.future.set_exception(RuntimeError("a job raised StopIteration"))
        else:
            self.future.set_exception(self.error)


class SqliteStore:
    """A store in a folder. Open it with `SqliteStore.open`, inside the event loop that uses it or before it starts."""

    def __init__(self, folder: Path, lock: StoreLock, db: sqlite3.Connection, batch: int) -> None:
        self.folder = folder
        self._lock, self._db, self._batch = lock, db, batch
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._views: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._tx = Tx(Unit(db))
        self.commits = 0
        """How many times something was written to disk; many jobs may share one."""
        self._writer = threading.Thread(target=self._write, name="fledge-write", daemon=True)
        self._readers = [threading.Thread(target=self._read, name="fledge-read", daemon=True) for _ in range(READERS)]
        for thread in (self._writer, *self._readers):
            thread.start()

    @classmethod
    def open(
        cls, folder: str | Path, *, batch: int = BATCH, address: str = "", checked_bytes: int = CHECKED_BYTES
    ) -> "SqliteStore":
        """Open or make the store in this folder, and own it until `close`. A larger file than `checked_bytes` is read
        whole, to find damage, only if it was not closed.

        Refused, with nothing changed: a folder that cannot be written, a store that another process owns, a file that
        is empty, damaged, another program's or newer than this one, a store whose log was lost.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except FileExistsError as error:
            raise StoreError(f"{folder} is a file, not a folder; name another") from error
        except OSError as error:
            raise StoreError(
                f"{folder}: cannot be made ({error.strerror}); choose a folder you may write to"
            ) from error
        lock = StoreLock(folder / "lock", time.time(), address)
        try:
            db = _connect(folder / DATABASE, checked_bytes)
        except BaseException:
            lock.release()
            raise
        return cls(folder, lock, db, batch)

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run the job in one transaction; answers once it is durable."""
        if self._closed:
            raise StoreError("the store is closed")
        entry = _Job(job, asyncio.get_running_loop())
        self._jobs.put(entry)
        result: T = await entry.future
        return result

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Run a job on a reader connection, beside the writer."""
        if self._closed:
            raise StoreError("the store is closed")
        entry = _Job(job, asyncio.get_running_loop())
        self._views.put(entry)
        result: T = await entry.future
        return result

    async def close(self) -> None:
        """Finish what was submitted, then close the file and release the lock. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        for _ in self._readers:
            self._views.put(None)
        for reader in self._readers:
            await asyncio.to_thread(reader.join)
        self._jobs.put(None)
        await asyncio.to_thread(self._writer.join)

    # ---- the reader threads

    def _read(self) -> None:
        """Run views as they come, on a connection of this thread's own; those that wait are answered together."""
        db = sqlite3.connect(self.folder / DATABASE, isolation_level=None)
        db.execute("PRAGMA query_only = ON")
        tx = Tx(Unit(db))
        open_for_more = True
        while open_for_more:
            batch, open_for_more = _waiting(self._views, self._batch // READERS or 1)
            for job in batch:
                self._show(db, tx, job)
            self._settle(batch)
        db.close()

    def _show(self, db: sqlite3.Connection, tx: Tx, job: _Job) -> None:
        try:
            db.execute("BEGIN")
            try:
                job.result = job.run(tx)
                tx.unit.flush()  # a view that would change anything is refused
            finally:
                tx.unit.forget()
                db.execute("ROLLBACK")
        except sqlite3.Error as error:
            job.error = StoreError(f"{self.folder / DATABASE}: {error}")
            job.error.__cause__ = error
        except BaseException as error:  # whatever a view raises is its caller's
            job.error = error

    # ---- the writer thread

    def _write(self) -> None:
        open_for_more = True
        while open_for_more:
            batch, open_for_more = _waiting(self._jobs, self._batch)
            if batch:
                self._commit(batch)
                self._settle(batch)
        self._close_files()
        self._lock.release()

    def _close_files(self) -> None:
        """Close the database. Its mark goes once the whole log is in the database file, and before the log itself does:
        a process that dies in between leaves nothing that looks like a lost log."""
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
            unmark(path)  # nobody else has it open: SQLite took the log in after all

    def _commit(self, batch: list[_Job]) -> None:
        """Run the batch in one transaction; if a job raises, run it again with each job in a savepoint of its own."""
        db = self._db
        try:
            self._begin()
            try:
                for job in batch:
                    job.result = job.run(self._tx)
                self._tx.unit.flush()
            except BaseException as error:  # whatever a job raises is its caller's, and undoes only that job
                self._undo("ROLLBACK")
                if len(batch) == 1:
                    batch[0].error = self._told(error)
                    return
                self._begin()
                for job in batch:
                    self._run_apart(job)
            db.execute("COMMIT")
            self.commits += 1
            self._tx.unit.trim()
        except (sqlite3.Error, StoreLost) as error:
            self._undo("ROLLBACK")
            failed = error if isinstance(error, StoreLost) else self._failed(error)
            for job in batch:
                job.error = job.error or failed

    def _begin(self) -> None:
        """Begin a transaction as the owner. From here on no other process can write, so whoever takes the lock away
        now finds everything that this transaction commits."""
        self._db.execute("BEGIN IMMEDIATE")
        if not self._lock.is_ours():
            raise StoreLost(
                f"{self.folder / 'lock'} was removed or replaced, so another process may own this folder now. "
                "This one has stopped and writes nothing more; never remove the lock of a process that runs."
            )

    def _run_apart(self, job: _Job) -> None:
        db = self._db
        db.execute("SAVEPOINT job")
        try:
            job.result = job.run(self._tx)
            self._tx.unit.flush()
        except BaseException as error:
            if not db.in_transaction:  # SQLite gave up the whole transaction: a full disk, an I/O error
                raise
            job.error = self._told(error)
            self._undo("ROLLBACK TO job")
        db.execute("RELEASE job")

    def _undo(self, how: str) -> None:
        self._tx.unit.forget()
        if self._db.in_transaction:
            self._db.execute(how)

    def _told(self, error: BaseException) -> BaseException:
        """What the caller hears: a rule of the database that the job broke, or whatever it raised."""
        if isinstance(error, sqlite3.OperationalError):
            return self._failed(error)
        return store_error(error) if isinstance(error, sqlite3.Error) else error

    def _failed(self, error: sqlite3.Error) -> StoreError:
        path = self.folder / DATABASE
        failed = StoreError(f"{path}: nothing was written ({error}); free some space or check the disk")
        failed.__cause__ = error
        return failed

    def _settle(self, batch: list[_Job]) -> None:
        waiting: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in batch:
            waiting.setdefault(job.loop, []).append(job)
        for loop, jobs in waiting.items():
            try:
                loop.call_soon_threadsafe(_settle_all, jobs)
            except RuntimeError:
                # That loop has closed: its jobs are durable, and nobody is left to be told.
                continue


def _waiting(jobs: "queue.SimpleQueue[_Job | None]", most: int) -> tuple[list[_Job], bool]:
    """Wait for a job, then take what else waits; and whether more may come after it."""
    batch: list[_Job] = []
    entry = jobs.get()
    while entry is not None:
        batch.append(entry)
        if len(batch) >= most:
            return batch, True
        try:
            entry = jobs.get_nowait()
        except queue.Empty:
            return batch, True
    return batch, False


def store_error(error: sqlite3.Error) -> StoreError:
    """A database's refusal, as one of ours."""
    told = StoreError(f"the store refused this: {error}")
    told.__cause__ = error
    return told


def _settle_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()


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
    """What a view shows of a store that another process owns: one moment of it, while the owner goes on.

    Refused: a file that is no store, or of another version than this program.
    """
    path = folder / DATABASE
    check_plain(path)
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            refuse_foreign(db, path)
            if is_behind(db):
                raise StoreError(
                    f"{path} is in use by a process with an older fledge: use that version, or end the process"
                )
            db.execute("BEGIN")
            return view(Tx(Unit(db)))
        finally:
            db.close()
    except sqlite3.Error as error:
        raise _unusable(path, error) from error


def _inspect(path: Path, whole: bool) -> None:
    """Look at a file without changing it, not even to take up what a crash left in its log: at all of it, or whether it
    is as long as it says."""
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        if whole:
            verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        else:
            pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            verdict = "ok" if pages * size == path.stat().st_size else f"it has not the length of {pages} pages"
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        refuse_foreign(db, path)
    finally:
        db.close()


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    if "full" in str(error) or "disk I/O" in str(error):
        return StoreError(f"{path}: cannot be opened ({error}); free some space or check the disk")
    return StoreError(
        f"{path} is damaged or not a fledge database ({error}). It was not changed: restore a copy "
        f"(look for {path.name}.*.backup beside it), or move it away to start empty."
    )
