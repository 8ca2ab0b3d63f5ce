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

from fledge.clock import hold_time
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


class Job:
    """One job, the event loop that waits for it, and its result or error."""

    __slots__ = ("error", "future", "loop", "release", "result", "run", "turns")

    def __init__(self, run: Callable[[Tx], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.run, self.loop = run, loop
        self.turns: TurnTaking | None = None
        self.release = hold_time(loop)
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

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

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[Job], None]) -> None:
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
        for job in jobs:
            self._put(job)

    def answered(self) -> None:
        """The writer has answered jobs: the next ones follow, with those of the coroutines that go on now."""
        self.loop.call_soon(self.hand_over)


class ThreadedStore(ABC):
    """The threads of a store and their queues. `_tx` is the writer's."""

    _tx: Tx
    cluster: Cluster | None = None

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
        result: T = await self._submit(self._queue, job)
        return result

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Run a job on a reader connection, beside the writer."""
        result: T = await self._submit(self._views.put, job)
        return result

    def _submit(self, put: Callable[["Job"], None], job: Callable[[Tx], Any]) -> "asyncio.Future[Any]":
        if self._closed:
            raise StoreError(CLOSED)
        entry = Job(job, asyncio.get_running_loop())
        put(entry)
        return entry.future

    def _queue(self, job: "Job") -> None:
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
    def _read(self) -> None:
        """Run reading jobs until the queue ends: the body of a reader's thread."""

    @abstractmethod
    def _commit(self, batch: list[Job]) -> None:
        """Run the batch, and jobs that join it, and set the result or error of each."""

    @abstractmethod
    def _let_go(self) -> None:
        """Close the writer's connection, after the last commit."""

    @property
    @abstractmethod
    def _connection(self) -> StoreConnection:
        """The writer's connection."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction, and check that this process owns the store."""

    @abstractmethod
    def _flush(self) -> None:
        """Write all changes, and wait until the database has accepted them."""

    @abstractmethod
    def _stay(self) -> None:
        """Called between the jobs of a batch: keep the transaction alive, for a database that ends idle ones."""

    @abstractmethod
    def _told(self, error: BaseException) -> BaseException:
        """The exception for the caller, from one that its job or a statement has raised."""

    # ---- the threads

    def _work_off(self, run: Callable[[list[Job]], None], jobs: "queue.SimpleQueue[Job | None]", most: int) -> None:
        """Run jobs until the queue ends; all that wait are run and answered together."""
        open_for_more = True
        while open_for_more:
            batch, open_for_more = _waiting(jobs, most)
            if batch:
                run(batch)
                _settle(batch)

    def _write(self) -> None:
        self._work_off(self._commit, self._jobs, self._batch)
        self._let_go()

    def _run(self, batch: list[Job]) -> bool:
        """Run the batch in one transaction; if a job raises, run the batch again with a savepoint for each job. False
        if the transaction was rolled back because its only job raised."""
        self._begin()
        self._join_late(batch)
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

    def _join_late(self, batch: list[Job]) -> None:
        """Add the jobs that came while others wrote: the longer a writer waits for its turn, the more it commits."""
        while len(batch) < self._batch:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is None:
                self._jobs.put(None)  # the last one, for whoever waits for the end
                return
            batch.append(job)

    def _run_apart(self, job: Job) -> None:
        db = self._connection
        db.execute("SAVEPOINT job")
        try:
            job.result = job.run(self._tx)
            self._flush()
        except ConnectionLost:
            self._tx.unit.forget()
            raise
        except BaseException as error:
            if not db.in_transaction:
                raise ConnectionLost(str(error)) from error
            job.error = self._told(error)
            self._undo("ROLLBACK TO job")
        db.execute("RELEASE job")

    def _undo(self, how: str) -> None:
        self._tx.unit.forget()
        if self._connection.in_transaction:
            self._connection.execute(how)


def store_error(error: BaseException) -> StoreError:
    """A `StoreError` for an error of the database."""
    told = StoreError(f"the store refused this: {error}")
    told.__cause__ = error
    return told


def _waiting(jobs: "queue.SimpleQueue[Job | None]", most: int) -> tuple[list[Job], bool]:
    """Wait for a job, then take all others that wait; and whether the queue goes on."""
    batch: list[Job] = []
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
