"""The threads of a store: one writer with group commit, and a few readers beside it.

Jobs of many coroutines share one commit: the writer takes all waiting jobs, runs them in one transaction, and commits
once. If a job raises, the batch is run again with a savepoint for each job, so that only that job is undone. A subclass
for each database knows how its transactions begin and end, and what its errors mean; with `TurnTaking` the event loop
and the writer do not compete for the interpreter.
"""

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from fledge.clock import hold_time
from fledge.core.redact import error_words
from fledge.errors import StoreError
from fledge.store.base import Cluster, Tx
from fledge.store.unit import Database

T = TypeVar("T")

BATCH = 512
READERS = 2
ANSWERED_TOGETHER = 32
"""Coroutines that go on in one turn of the event loop; timers and streams of others come in between."""
CLOSED = "the store is closed"


class ConnectionLost(Exception):
    """The database gave up the transaction before it began to commit: the connection is gone, or the disk is full."""

    def __init__(self, reason: str, sqlstate: str = "") -> None:
        super().__init__(reason)
        self.sqlstate = sqlstate


class StoreConnection(Database, Protocol):
    """A connection of the writer."""

    @property
    def in_transaction(self) -> bool: ...


class Job(Struct):
    """One job, the event loop that waits for it, and its result or error."""

    run: Callable[[Tx], Any]
    loop: asyncio.AbstractEventLoop
    release: Callable[[], None]
    """Lets virtual time go on."""
    future: "asyncio.Future[Any]"
    turns: "TurnTaking | None" = None
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Give the result to the waiting coroutine; runs in its loop."""
        self.release()
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        elif isinstance(self.error, StopIteration):  # which no future can carry
            self.future.set_exception(RuntimeError("a job raised StopIteration"))
        else:
            self.future.set_exception(self.error)


class TurnTaking:
    """Jobs of one event loop on their way to the writer. Those of a turn of the loop are given to it together, and not
    before it has answered the ones it has.

    While a writer decides and a loop runs tasks, each waits for the interpreter lock. With a commit for each group of
    jobs there are fewer commits, and neither waits for the other in between."""

    __slots__ = ("_is_under_way", "_put", "_waiting", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[list[Job]], None]) -> None:
        self.loop, self._put = loop, put
        self._waiting: list[Job] = []
        self._is_under_way = False
        """Jobs were given to the writer, or are about to be."""

    def add(self, job: Job) -> None:
        """One more job."""
        job.turns = self
        self._waiting.append(job)
        if not self._is_under_way:
            self._is_under_way = True
            self.loop.call_soon(self.hand_over)

    def hand_over(self) -> None:
        """Give the waiting jobs to the writer."""
        jobs, self._waiting = self._waiting, []
        self._is_under_way = bool(jobs)
        self._put(jobs)

    def answered(self) -> None:
        """The writer has answered jobs: the next ones follow, with those of the coroutines that go on now."""
        self.loop.call_soon(self.hand_over)


class ThreadedStore(ABC):
    """The threads of a store and their queues."""

    cluster: Cluster | None = None
    _tx: Tx
    """The writer's transaction."""
    _db: StoreConnection
    """The writer's connection."""
    _errors: type[Exception]
    """Errors of the database."""
    _failures: type[Exception]
    """Those of them that are no fault of the job whose statement raised one."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._views: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closed = False
        self.commits = 0
        """The number of commits; many jobs may share one."""
        self._writer = threading.Thread(target=self._write, name="fledge-write", daemon=True)
        self._readers = [threading.Thread(target=self._read, name="fledge-read", daemon=True) for _ in range(READERS)]
        for thread in (self._writer, *self._readers):
            thread.start()

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run the job in one transaction; returns once it is durable."""
        entry = self._entry(job)
        self._queue(entry)
        result: T = await entry.future
        return result

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Run a job on a reader connection, beside the writer."""
        entry = self._entry(job)
        self._views.put(entry)
        result: T = await entry.future
        return result

    def _entry(self, job: Callable[[Tx], Any]) -> Job:
        if self._closed:
            raise StoreError(CLOSED)
        loop = asyncio.get_running_loop()
        return Job(job, loop, hold_time(loop), loop.create_future())

    def _queue(self, job: Job) -> None:
        """Give a job to the writer, now or soon."""
        self._jobs.put(job)

    async def close(self) -> None:
        """Finish the submitted jobs, then close the database. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        for _ in self._readers:
            self._views.put(None)
        for reader in self._readers:
            await asyncio.to_thread(reader.join)
        self._jobs.put(None)
        await asyncio.to_thread(self._writer.join)

    # ---- for each database

    @abstractmethod
    def _open_reader(self) -> tuple[Any, Tx]:
        """A connection for reading jobs, of the thread that calls this, and its transaction."""

    @abstractmethod
    def _show(self, db: Any, tx: Tx, job: Job) -> None:
        """Run a reading job, and set its result or error."""

    @abstractmethod
    def _commit(self, batch: list[Job]) -> None:
        """Run the batch, and jobs that join it, and set the result or error of each."""

    @abstractmethod
    def _let_go(self) -> None:
        """Close the writer's connection, after the last commit."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction, and check that this process owns the store."""

    @abstractmethod
    def _failed(self, error: Exception) -> StoreError:
        """The exception for callers whose jobs could not be written."""

    def _flush(self) -> None:
        """Write all changes, and wait until the database has accepted them."""
        self._tx.unit.flush()

    def _stay(self) -> None:  # noqa: B027 (most databases need nothing)
        """Called between the jobs of a batch: keep the transaction alive, for a database that ends idle ones."""

    # ---- the threads

    def _told(self, error: BaseException) -> BaseException:
        """The exception for the caller, from one that its job or a statement has raised."""
        if isinstance(error, self._failures):
            return self._failed(error)
        return store_error(error) if isinstance(error, self._errors) else error

    def _read(self) -> None:
        """Run reading jobs on a connection of this thread's own."""
        db, tx = self._open_reader()

        def show_all(batch: list[Job]) -> None:
            for job in batch:
                self._show(db, tx, job)

        self._work_off(show_all, self._views, self._batch // READERS or 1)
        db.close()

    def _work_off(self, run: Callable[[list[Job]], None], jobs: "queue.SimpleQueue[Job | None]", most: int) -> None:
        """Run jobs until the queue ends; all that wait are run and answered together."""
        while (job := jobs.get()) is not None:
            batch = [job]
            _join(batch, jobs, most)
            run(batch)
            _settle(batch)

    def _write(self) -> None:
        self._work_off(self._commit, self._jobs, self._batch)
        self._let_go()

    def _run(self, batch: list[Job]) -> bool:
        """Run the batch in one transaction; if a job raises, run the batch again with a savepoint for each job. False
        if the transaction was rolled back because its only job raised."""
        self._begin()
        # Those that came while others wrote: the longer a writer waits for its turn, the more it commits.
        _join(batch, self._jobs, self._batch)
        try:
            for job in batch:
                job.result = job.run(self._tx)
                self._stay()
            self._flush()
        except ConnectionLost:
            self._tx.unit.forget()
            raise
        except BaseException as error:  # an exception of a job goes to its caller, and undoes only that job
            self._undo("ROLLBACK")
            if len(batch) == 1:
                batch[0].error = self._told(error)
                return False
            self._begin()
            for job in batch:
                self._run_apart(job)
        return True

    def _run_apart(self, job: Job) -> None:
        db = self._db
        db.execute("SAVEPOINT job")
        try:
            job.result = job.run(self._tx)
            self._flush()
        except ConnectionLost:
            self._tx.unit.forget()
            raise
        except BaseException as error:
            if not db.in_transaction:
                raise ConnectionLost(error_words(error)) from error
            job.error = self._told(error)
            self._undo("ROLLBACK TO job")
        db.execute("RELEASE job")

    def _undo(self, how: str) -> None:
        self._tx.unit.forget()
        if self._db.in_transaction:
            self._db.execute(how)


def store_error(error: Exception) -> StoreError:
    """A `StoreError` for an error of the database."""
    return caused_by(error, f"the store refused this: {error_words(error)}")


def caused_by(error: Exception, words: str) -> StoreError:
    """A `StoreError` with these words and this cause."""
    failure = StoreError(words)
    failure.__cause__ = error
    return failure


def _join(batch: list[Job], jobs: "queue.SimpleQueue[Job | None]", most: int) -> None:
    """Add the jobs that wait now to a batch."""
    while len(batch) < most:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            return
        if job is None:
            jobs.put(None)  # the last one, for the reader that waits for the end
            return
        batch.append(job)


def _settle(batch: Sequence[Job]) -> None:
    waiting: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in batch:
        waiting.setdefault(job.loop, []).append(job)
    for loop, jobs in waiting.items():
        try:
            loop.call_soon_threadsafe(_settle_all, jobs)
        except RuntimeError:
            # That loop is closed: its jobs are durable, and no coroutine waits for them.
            continue


def _settle_all(jobs: list[Job]) -> None:
    for job in jobs[:ANSWERED_TOGETHER]:
        job.settle()
    if len(jobs) > ANSWERED_TOGETHER:
        jobs[0].loop.call_soon(_settle_all, jobs[ANSWERED_TOGETHER:])
    elif (turns := jobs[0].turns) is not None:
        turns.answered()
