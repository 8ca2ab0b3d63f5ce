"""Stores and names for tests: a real SQLite file in the caller's thread, one that ends the process at a chosen
transaction, and names that are the same each time.
"""

import asyncio
import os
import random
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from fledge.core.redact import error_words
from fledge.errors import StoreError
from fledge.store.base import Cluster, Store, Tx
from fledge.store.files import DATABASE, log_of, unmark
from fledge.store.migrate import migrate
from fledge.store.threads import store_error
from fledge.store.unit import Unit

T = TypeVar("T")


class SeededIds:
    """Ids from a seed: the same seed gives the same ids in the same order."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def unique(self) -> str:
        """The next uuid of the seed."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def nonce(self) -> str:
        """The next 64 bits of the seed, in hex."""
        return f"{self._random.getrandbits(64):016x}"


class InlineStore:
    """A real SQLite store that runs jobs in the caller's thread and does not wait for the disk.

    A job is written completely or not at all, so it serves crash tests.
    """

    cluster: Cluster | None = None

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._path = Path(folder) / DATABASE
        self._db = sqlite3.connect(self._path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA temp_store = MEMORY")
        migrate(self._db, self._path)
        self._tx = Tx(Unit(self._db))
        self._view = Tx(Unit(self._db))

    def run(self, job: Callable[[Tx], T]) -> T:
        """Run a job now."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            result = job(self._tx)
            self._tx.unit.flush()
        except BaseException as error:
            self._tx.unit.forget()
            self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise store_error(error) from error
            raise
        self._db.execute("COMMIT")
        return result

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run a job now, and let other tasks run before its result arrives, as with a real store."""
        result = self.run(job)
        await asyncio.sleep(0)
        return result

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Run a job that only reads; writing raises."""
        self._db.execute("PRAGMA query_only = ON")
        try:
            result = job(self._view)
            self._view.unit.flush()
            return result
        except sqlite3.OperationalError as error:
            raise StoreError(error_words(error)) from error
        finally:
            self._view.unit.forget()
            self._db.execute("PRAGMA query_only = OFF")

    async def close(self) -> None:
        """Close the file."""
        self.close_now()

    def close_now(self) -> None:
        """Close the file, from code without an event loop. The log of a dead process is merged."""
        self._db.close()
        if not log_of(self._path).exists():
            unmark(self._path)


class CrashPoint:
    """A store that ends the process at one chosen transaction, as kill -9 would.

    Wrapped around a store with a batch of 1, `before` the n-th leaves n - 1 transactions on disk, `after` it leaves n.
    """

    def __init__(self, store: Store, nth: int, when: Literal["before", "after"], code: int = 86) -> None:
        self._store, self._nth, self._when, self._code = store, nth, when, code
        self.cluster = store.cluster
        self.begun = 0

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run the job, or end the process if this is the chosen transaction."""
        number = 0

        def counted(tx: Tx) -> T:
            nonlocal number
            number = self.begun = self.begun + 1
            # A job that begins proves that the one before it is on disk.
            if self.begun == self._nth + (self._when == "after"):
                os._exit(self._code)
            return job(tx)

        result = await self._store.transact(counted)
        if self._when == "after" and number == self._nth:
            os._exit(self._code)  # before a caller has its result
        return result

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Read without a crash."""
        return await self._store.read(job)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
