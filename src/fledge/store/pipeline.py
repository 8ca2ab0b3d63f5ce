"""A connection to PostgreSQL by libpq's pipeline: a statement costs a round trip only if its result is read.

Statements are sent as they come, each prepared once. Results are read when one of them is asked for, or at `sync`; the
first error among them is raised then. Each piece that is sent ends with a Sync: the server counts how long a
transaction is idle only after one, and by that count a process that was stopped loses its transaction.
"""

import select
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import adapt, errors, pq
from psycopg.types.numeric import IntLoader

from fledge.core.redact import error_words
from fledge.store.dialect import MARK, from_stored, to_stored, translate
from fledge.store.threads import ConnectionLost
from fledge.store.unforked import forget, keep_from_children

REPLY_S: Final = 90.0
"""How long the server may say nothing before the connection counts as lost."""
SENT_BYTES: Final = 32 * 1024
"""How much is sent before a Sync goes along. libpq itself sends what exceeds 64 KiB."""
_ENDED: Final = frozenset({"25P03", "25P04", "57P01", "57P02", "57P03", "57P05"})
"""The server ended the connection: idle for too long, shutting down, crashed, starting."""
_BAD: Final = frozenset({pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE})
_GOOD: Final = frozenset({pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK})


class StatementResult:
    """The rows that a statement found, or how many it changed; read from the server when it is asked for."""

    __slots__ = ("_at", "_pipe", "_rows", "result")

    def __init__(self, pipe: "Pipe") -> None:
        self._pipe = pipe
        self._rows: list[Any] | None = None
        self._at = 0
        self.result: pq.abc.PGresult | None = None

    def _read(self) -> "pq.abc.PGresult":
        if self.result is None:
            self._pipe.sync()
            assert self.result is not None
        return self.result

    @property
    def rowcount(self) -> int:
        """How many rows were found or changed."""
        return self._read().command_tuples or 0

    @property
    def tag(self) -> bytes:
        """The command tag of the server, as `COMMIT`."""
        return self._read().command_status or b""

    def fetchall(self) -> list[Any]:
        """All rows that were found."""
        if self._rows is None:
            self._rows = self._pipe.load(self._read())
        return self._rows

    def fetchone(self) -> Any:
        """The next row that was found, or None."""
        rows = self.fetchall()
        self._at += 1
        return rows[self._at - 1] if self._at <= len(rows) else None


class _Many(NamedTuple):
    """The results of one statement that was run many times."""

    results: Sequence[StatementResult]

    @property
    def rowcount(self) -> int:
        return sum(result.rowcount for result in self.results)

    def fetchone(self) -> Any:
        return None

    def fetchall(self) -> list[Any]:
        return []


class _Prepared(NamedTuple):
    """A statement that was sent to be prepared."""

    sql: str


class Pipe:
    """A connection in pipeline mode, for one thread."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection, self._pg = connection, connection.pgconn
        connection.adapters.register_loader("numeric", IntLoader)  # sums of integers
        self._loader = adapt.Transformer(connection)
        self._socket = self._pg.socket
        keep_from_children(self._socket)
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._names: dict[str, bytes] = {}
        self._number = 0
        self._sent: deque[StatementResult | _Prepared | None] = deque()
        """The answers that the server still owes, in order; None is a Sync."""
        self._bytes = 0
        self._poll = select.poll()
        self._is_closed = False
        self.trips = 0
        """How often results were waited for."""

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open, failed or not, on a connection that lives; everything sent is read first."""
        with suppress(psycopg.Error, ConnectionLost):
            self.sync()
        return self.is_alive and self._pg.transaction_status in (
            pq.TransactionStatus.INTRANS,
            pq.TransactionStatus.INERROR,
        )

    @property
    def is_alive(self) -> bool:
        """False once the connection is known to be lost."""
        return self._pg.status == pq.ConnStatus.OK

    def execute(self, sql: str, args: Sequence[Any] = (), /) -> StatementResult:
        """Send a statement."""
        name = self._names.get(sql)
        values = [_encoded(value) for value in args]
        try:
            if name is None:
                name = self._prepare(sql)
            self._pg.send_query_prepared(name, values)
            result = StatementResult(self)
            self._sent.append(result)
            self._bytes += 64 + sum(map(len, filter(None, values)))
            if self._bytes > SENT_BYTES:
                self._end()
        except psycopg.OperationalError as error:
            raise self._lost(error) from error
        return result

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> _Many:
        """Send a statement once for each of these."""
        return _Many([self.execute(sql, row) for row in rows])

    def sync(self) -> None:
        """Read the results of all that was sent. The first error among them is raised, once all are read."""
        if not self._sent:
            return
        self.trips += 1
        first: psycopg.Error | None = None
        try:
            if self._sent[-1] is not None:
                self._end()
            while self._sent:
                sent, result = self._sent.popleft(), self._next()
                if result.status in _BAD:
                    first = first or errors.error_from_result(result)
                if isinstance(sent, _Prepared) and result.status != pq.ExecStatus.COMMAND_OK:
                    self._names.pop(sent.sql, None)
                elif isinstance(sent, StatementResult) and result.status in _GOOD:
                    sent.result = result
        except psycopg.OperationalError as error:
            raise self._lost(first or error) from error
        if first is not None:
            if (first.sqlstate or "") in _ENDED or not self.is_alive:
                raise self._lost(first)
            raise first

    def abandon(self) -> None:
        """Undo the transaction, if one is open."""
        if self.in_transaction:
            with suppress(psycopg.Error, ConnectionLost):
                self.execute("ROLLBACK")
                self.sync()

    def load(self, result: "pq.abc.PGresult") -> list[Any]:
        """The rows of a result."""
        self._loader.set_pgresult(result)
        rows = self._loader.load_rows(0, result.ntuples, tuple)
        for index, row in enumerate(rows):
            for value in row:
                if type(value) is str and MARK in value:
                    rows[index] = tuple(from_stored(one) if type(one) is str else one for one in row)
                    break
        return rows

    def close(self) -> None:
        """Close the connection. A transaction that was not committed is undone."""
        if not self._is_closed:
            self._is_closed = True
            self._sent.clear()
            forget(self._socket)
            self._connection.close()

    def _prepare(self, sql: str) -> bytes:
        self._number += 1
        name = self._names[sql] = b"s%d" % self._number
        self._pg.send_prepare(name, translate(sql).encode())
        self._sent.append(_Prepared(sql))
        return name

    def _end(self) -> None:
        """Let what was sent end with a Sync."""
        self._pg.pipeline_sync()
        self._sent.append(None)
        self._bytes = 0

    def _next(self) -> "pq.abc.PGresult":
        """The next result; those of statements are followed by an end mark, which is read too."""
        result = self._get()
        if result is None:
            raise psycopg.OperationalError("the server closed the connection")
        if result.status != pq.ExecStatus.PIPELINE_SYNC:
            self._get()
        return result

    def _get(self) -> "pq.abc.PGresult | None":
        pg = self._pg
        until = time.monotonic() + REPLY_S
        unsent = pg.flush()
        while unsent or pg.is_busy():
            self._poll.register(pg.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
            if not self._poll.poll(1000) and time.monotonic() > until:
                raise psycopg.OperationalError(f"the server has not answered for {REPLY_S:g} s")
            pg.consume_input()
            unsent = pg.flush()
        return pg.get_result()

    def _lost(self, error: psycopg.Error) -> ConnectionLost:
        self.close()
        return ConnectionLost(one_line(error), error.sqlstate or "")


def one_line(error: BaseException) -> str:
    """The error in one line."""
    return " ".join(error_words(error).split()) or type(error).__name__


def _encoded(value: Any) -> bytes | None:
    """A value as PostgreSQL reads it; the statement says what type it has."""
    match value:
        case None:
            return None
        case str():
            return to_stored(value).encode()
        case bool():
            return b"1" if value else b"0"
        case int():
            return b"%d" % value
        case float():
            return repr(value).encode()
        case bytes():
            return b"\\x" + value.hex().encode()
    raise TypeError(f"no value of a statement: {value!r}")
