"""A store on PostgreSQL without the pipeline: the result of each statement of a job is read before the next is sent.

An error then comes from the statement that made it, not from a later one, and every row is read when it is asked for.
Whatever holds of the pipelined store must hold of this one.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fledge.store.base import Tx
from fledge.store.pipeline import Pipe, StatementResult, _Many
from fledge.store.postgres import PostgresStore, _Link
from fledge.store.threads import Job


class StepByStep:
    """A connection that waits for each result. What begins and ends a transaction goes by the pipe itself."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def execute(self, sql: str, args: Sequence[Any] = (), /) -> StatementResult:
        """Send a statement, and read its result."""
        result = self._pipe.execute(sql, args)
        self._pipe.sync()
        return result

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> _Many:
        """The same for each of these."""
        return _Many([self.execute(sql, row) for row in rows])


class UnpipelinedStore(PostgresStore):
    """A store whose jobs and views go step by step."""

    def _begin(self) -> None:
        super()._begin()
        self._tx.unit.db = StepByStep(self._db)

    def _show(self, link: _Link, tx: Tx, job: Job) -> None:
        def run(tx: Tx, job_of_caller: Any = job.run) -> Any:
            assert isinstance(tx.unit.db, Pipe)
            tx.unit.db = StepByStep(tx.unit.db)
            return job_of_caller(tx)

        job.run = run
        super()._show(link, tx, job)
