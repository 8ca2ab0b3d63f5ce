"""Stores with threads: one that writes, with group commit, and a few that read beside it.

Jobs of many coroutines share one commit: the writer takes whatever waits, runs it in one transaction, and commits once.
If a job raises, the batch is run again with a savepoint for each, so that it is undone alone. Each database says how a
transaction begins and ends, and what its errors mean; this file knows none of them.
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


class ThreadedStore(ABC):
    """The threads of a store, and the queues they work off. `_tx` is the writer's."""

    _tx: Tx
    cluster: Cluster | None = None

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._views: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closed = False
        self.commits = 0
        """How many times something was written to disk; many jobs may share one."""
        self._writer = threading.Thread(target=self._write, name="fledge-write", daemon=True)
        self._readers = [threading.Thread(target=self._read, name="fledge-read", daemon=True) for _ in range(READERS)]
        for thread in (self._writer, *self._readers):
            thread.start()

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run the job in one transaction; answers once it is durable."""
        return await self._submit(self._jobs, job)

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Run a job on a reader connection, beside the writer."""
        return await self._submit(self._views, job)

    async def _submit(self, jobs: "queue.SimpleQueue[Job | None]", job: Callable[[Tx], T]) -> T:
        if self._closed:
            raise StoreError("the store is closed")
        entry = Job(job, asyncio.get_running_loop())
        jobs.put(entry)
        result: T = await entry.future
        return result

    async def close(self) -> None:
        """Finish what was submitted, then let go of the database. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        for _ in self._readers:
            self._views.put(None)
        for reader in self._readers:
            await asyncio.to_thread(reader.join)
        self._jobs.put(None)
        await asyncio.to_thread(self._writer.join)

    # ---- what a database says

    @abstractmethod
    def _read(self) -> None:
        """Run views as they come, until the queue ends: the body of a reader's thread."""

    @abstractmethod
    def _commit(self, batch: Sequence[Job]) -> None:
        """Run the batch, and say in each job what came of it."""

    @abstractmethod
    def _let_go(self) -> None:
        """Nothing more will be written: close the writer's connection."""

    @property
    @abstractmethod
    def _connection(self) -> StoreConnection:
        """The writer's connection."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction, as its owner."""

    @abstractmethod
    def _flush(self) -> None:
        """Write all that waits, and hear that the database has taken it."""

    @abstractmethod
    def _stay(self) -> None:
        """Called between the jobs of a batch: keep the transaction, where a database ends one that does nothing."""

    @abstractmethod
    def _told(self, error: BaseException) -> BaseException:
        """What the caller hears of an error that its job, or a statement of it, has raised."""

    # ---- the threads

    def _work_off(self, run: Callable[[Sequence[Job]], None], jobs: "queue.SimpleQueue[Job | None]", most: int) -> None:
        """Run jobs as they come; those that wait are run and answered together."""
        open_for_more = True
        while open_for_more:
            batch, open_for_more = _waiting(jobs, most)
            if batch:
                run(batch)
                _settle(batch)

    def _write(self) -> None:
        self._work_off(self._commit, self._jobs, self._batch)
        self._let_go()

    def _run(self, batch: Sequence[Job]) -> bool:
        """Run the batch in one transaction; if a job raises, run it again with each job in a savepoint of its own.
        False if the transaction was undone, because its only job raised."""
        self._begin()
        try:
            for job in batch:
                job.result = job.run(self._tx)
                self._stay()
            self._flush()
        except ConnectionLost:
            self._tx.unit.forget()
            raise
        except BaseException as error:  # whatever a job raises is its caller's, and undoes only that job
            self._undo("ROLLBACK")
            if len(batch) == 1:
                batch[0].error = self._told(error)
                return False
            self._begin()
            for job in batch:
                self._run_apart(job)
        return True

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
    """A database's refusal, as one of ours."""
    told = StoreError(f"the store refused this: {error}")
    told.__cause__ = error
    return told


def _waiting(jobs: "queue.SimpleQueue[Job | None]", most: int) -> tuple[list[Job], bool]:
    """Wait for a job, then take what else waits; and whether more may come after it."""
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
            # That loop has closed: its jobs are durable, and nobody is left to be told.
            continue


def _settle_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.settle()
