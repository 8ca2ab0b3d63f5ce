"""Several stores on one schema, as several processes have them, used in turns.

Each checks itself: at the beginning of a job everything it remembers is compared with what is stored, and before a
commit the tables that the server says were changed are compared with those that the commit names.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from fledge.errors import StoreError
from fledge.store.base import Cluster, Tx
from fledge.store.changes import decode
from fledge.store.pipeline import Pipe
from fledge.store.postgres import PostgresStore, _CommitId
from fledge.store.postgres_server import connect, parse
from fledge.store.runs import Tally
from fledge.store.unit import Unit
from tests.store.bench import submitted, writer_held
from tests.store.postgres import InlinePostgres
from tests.store.remembered import check_remembered

T = TypeVar("T")

_CHANGED: Final = (
    "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_xact_user_tables"
    " WHERE schemaname = current_schema() AND relname <> 'fledge_store'"
)
"""How many rows of each table were changed by this transaction, and by those before it that are not counted yet."""


class CheckedStore(PostgresStore):
    """A store that commits nothing unless it names every table that was changed."""

    def _begin(self) -> None:
        super()._begin()
        self._before = self._db.execute(_CHANGED).fetchall()

    def _note_commit(self) -> _CommitId:
        changes = self._tx.unit.changes
        assert changes is not None
        named = decode(changes.encode()).keys()
        changed = {row[0] for row in self._db.execute(_CHANGED).fetchall() if row not in self._before}
        if not changed <= named:
            raise StoreError(f"changed, but not named by the commit: {', '.join(sorted(changed - named))}")
        return super()._note_commit()


def checked(job: Callable[[Tx], T]) -> Callable[[Tx], T]:
    """The same job, behind a comparison of what is remembered with what is stored."""

    def check_and_run(tx: Tx) -> T:
        if not tx.unit.dirty:  # jobs before it in the same transaction have written nothing
            check_remembered(tx, Tx(Unit(tx.unit.db)))
        return job(tx)

    return check_and_run


class SideBySide:
    """A store whose jobs and views go to each of several in turn; jobs that are submitted together to the same one."""

    cluster: Cluster | None = None

    def __init__(self, url: str) -> None:
        self._stores = [CheckedStore.open(url, alone=False) for _ in range(2)]
        self._turns = itertools.cycle(self._stores)
        self._writer, self._jobs = next(self._turns), 0

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run a job on the next one."""
        if not self._jobs:
            self._writer = next(self._turns)
        self._jobs += 1
        try:
            return await self._writer.transact(checked(job))
        finally:
            self._jobs -= 1

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Show a view of the next one."""
        return await next(self._turns).read(job)

    async def close(self) -> None:
        """Close all of them."""
        for store in self._stores:
            await store.close()


class InlineSideBySide(InlinePostgres):
    """Several stores on one schema for tests that go job by job: each job runs on one of them, drawn by lot."""

    def __init__(self, url: str, lot: random.Random) -> None:
        self._runner = asyncio.Runner()
        self._url, self._lot = url, lot
        self._stores = [CheckedStore.open(url, alone=False) for _ in range(3)]
        self._tx = self._stores[0]._tx
        self._db = Pipe(connect(parse(url), "reader").connection)  # type: ignore[assignment]

    def run(self, job: Callable[[Tx], T]) -> T:
        """Run a job now."""
        store = self._lot.choice(self._stores)
        self._tx = store._tx
        return self._runner.run(store.transact(checked(job)))

    def undo(self, jobs: Sequence[Callable[[Tx], object]]) -> None:
        """Run these jobs together with one that fails: it alone is undone, and the others are run again."""

        def fail(tx: Tx) -> None:
            tx.runs.tallies.put(("tree", "undone"), Tally("tree", "undone", 1, 0))
            tx.unit.execute("DELETE FROM active")
            raise Undone

        async def submit(store: PostgresStore) -> None:
            async with writer_held(store):
                tasks = await submitted(store, [*jobs, fail, *jobs])
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(one) for one in found].count(Undone) == 1

        self._runner.run(submit(self._lot.choice(self._stores)))

    def cut(self) -> None:
        """End the writer's connection of one of them."""
        pid = self._lot.choice(self._stores)._server_pid
        with connect(parse(self._url), "setup").connection as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    def trim(self, keep: int) -> None:
        """Delete what was noted of all commits but the newest."""
        with connect(parse(self._url), "setup").connection as connection:
            sql = "DELETE FROM fledge_commits WHERE number <= (SELECT max(number) FROM fledge_commits) - %s"
            connection.execute(sql, (keep,))

    def close_now(self) -> None:
        """Close all of them."""
        self._db.close()
        for store in self._stores:
            self._runner.run(store.close())
        self._runner.close()


class Undone(Exception):
    """What a job raises that is to be undone."""
