"""The store on a PostgreSQL server: the same jobs, verbs and SQL as the embedded one.

One thread writes, with group commit; views run on reader connections beside it, each in a snapshot of its own. A
transaction of the writer holds an advisory lock of the schema: one process writes at a time, and the numbers of events
are in the order of commits. Each commit of a shared store says which rows it has changed (`fledge_commits`): a writer
drops these from its memory before it begins, and knows the rest to be as they were.

A connection that is lost is made again. Before COMMIT was sent nothing was written, and the batch is run again; after
it, the server is asked what became of the transaction. A server that stays away fails what waits for it, as a full disk
does. This file knows no table but `fledge_store` and `fledge_commits`.
"""

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import psycopg

from fledge.core.cluster import LEASE_S, merged, to_messages
from fledge.core.run import Instant
from fledge.errors import StoreError, StoreLocked, StoreLost
from fledge.store.base import Tx
from fledge.store.changes import RowChanges, decode
from fledge.store.files import own_folder
from fledge.store.lock import Holder, StoreLock, this_process
from fledge.store.migrate import newest
from fledge.store.pipeline import Pipe, one_line
from fledge.store.postgres_cluster import FIRST_WAIT_S, MOST_WAIT_S, NOW, UP, PostgresCluster, ServerClock
from fledge.store.postgres_server import (
    IDLE_MS,
    ConnectionCut,
    ConnectionRole,
    ServerAddress,
    ServerSession,
    check_copy,
    check_exists,
    check_newest,
    connect,
    explained,
    migrate,
    parse,
    pooled,
    prove_files,
)
from fledge.store.threads import BATCH, ConnectionLost, Job, ThreadedStore, caused_by
from fledge.store.unit import Unit

PATIENCE_S: Final = 5.0
"""How long a server may be away before what waits for it fails."""

RUNS: Final = 3
"""How often a batch is run whose connection is lost each time."""
RELEASE_S: Final = 1.0
"""How long the server may take to notice that the process of a holder has died."""
TOUCH_S: Final = IDLE_MS / 4000
"""How long a batch may run before the server is shown that its transaction is not idle."""
MISSED: Final = 64
"""The changes of so many commits are read by a writer that has missed them. One that has missed more forgets all that
it remembers."""
COMMITS: Final = 1024
"""How many commits are kept. The outcome of an older one, whose answer was lost, cannot be found out."""
TRIM: Final = 16
"""After how many commits the oldest are deleted."""
_STOPPED: Final = "25P03"
_STATE: Final = (
    "SELECT version, writer, CAST(pg_current_xact_id() AS TEXT), current_setting('fledge.session', true),"
    f" {NOW}, coalesce((SELECT max(number) FROM fledge_commits), 0) FROM fledge_store"
)
_SINCE: Final = (
    "SELECT number, writer, CASE WHEN number > ? THEN changed ELSE '' END FROM fledge_commits"
    f" WHERE number >= ? AND number >= (SELECT max(number) - {MISSED} FROM fledge_commits) ORDER BY number"
)
_FOUND: Final = "SELECT min(number), count(*) FILTER (WHERE number = %s AND writer = %s) FROM fledge_commits"


class _CommitId(NamedTuple):
    """A commit of a shared store. Numbers may be given again in a store that was emptied, but not to this writer."""

    number: int
    writer: str


class _Link:
    """A connection that is made again after it was lost."""

    def __init__(
        self, address: ServerAddress, role: ConnectionRole, patience_s: float, closing: threading.Event
    ) -> None:
        self._address, self._role, self._patience_s, self._closing = address, role, patience_s, closing
        self.session = ""
        self._pipe: Pipe | None = None
        self._lost_at: float | None = None
        self._next_at = 0.0
        self._wait_s = FIRST_WAIT_S
        self._why = StoreError(f"{address.shown}: not connected")

    def use(self, session: ServerSession) -> Pipe:
        """From now on this is the connection."""
        self.session, self._pipe = session.id, Pipe(session.connection)
        self._lost_at, self._wait_s = None, FIRST_WAIT_S
        return self._pipe

    def pipe(self, made: Callable[[ServerSession], None] | None = None) -> Pipe:
        """The connection, or a new one, which `made` may refuse. StoreError: the server is away for too long."""
        if self._pipe is not None and self._pipe.is_alive:
            return self._pipe
        if self._lost_at is None:
            self._lost_at = self._next_at = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= self._next_at:
                try:
                    return self.use(connect(self._address, self._role, made))
                except StoreLost:
                    raise
                except StoreError as error:
                    self._why = error
                    self._next_at, self._wait_s = now + self._wait_s, min(2 * self._wait_s, MOST_WAIT_S)
            if now - self._lost_at >= self._patience_s or self._closing.wait(self._next_at - now):
                raise StoreError(str(self._why)) from self._why

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._pipe is not None:
            self._pipe.close()


class PostgresStore(ThreadedStore):
    """A store in a schema of a PostgreSQL database. Open it with `PostgresStore.open`."""

    _db: Pipe
    _errors, _failures = psycopg.Error, psycopg.OperationalError

    def __init__(
        self,
        server: ServerAddress,
        session: ServerSession,
        folder: StoreLock | None,
        *,
        at: Instant,
        up_at: Instant,
        alone: bool,
        batch: int,
        patience_s: float,
        lease_s: float,
    ) -> None:
        self.server = server
        self._folder, self._alone, self._patience_s = folder, alone, patience_s
        self._me = secrets.token_hex(8)
        self._closing = threading.Event()
        self._link = _Link(server, "writer", patience_s, self._closing)
        self._db = self._link.use(session)
        self._server_pid = session.connection.info.backend_pid
        self._clock = ServerClock(at)
        if not alone:
            self.cluster = PostgresCluster(server, self._clock, up_at, lease_s, lambda: self._server_pid)
        self._baton = server.key("writer")
        self._tx = Tx(Unit(self._db))
        self._tx.unit.is_remote = True
        if not alone:
            self._tx.unit.changes = RowChanges()
        self._seen = _CommitId(0, "")
        """The last commit that is known here: rows in memory are as it left them."""
        self._was_me = False
        """This process wrote last."""
        self._xid = ""
        self._touched_at = 0.0
        self._has_written = False
        self._lost: StoreLost | None = None
        super().__init__(batch)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        folder: Path | None = None,
        address: str = "",
        alone: bool = True,
        makes: bool = True,
        batch: int = BATCH,
        patience_s: float = PATIENCE_S,
        lease_s: float = LEASE_S,
        copying: bool = False,
    ) -> "PostgresStore":
        """Open or make the store at this address. With `alone`, no other process has it open until `close`; without,
        several may, and an engine counts as dead when it was not seen for `lease_s`. A server that is away for longer
        than `patience_s` fails what waits for it.

        `folder` is the state folder with the files of this store, and of no other; it is owned until `close`, by
        several processes unless `alone`. Without `makes`, a store that is missing or of another version is refused.
        With `copying`, rows of another store are copied into this one, which counts as a store after `finish_copy`.

        Refused, with nothing changed: an address that is wrong, a server that cannot be reached or is too old, a user
        without the rights, a schema of another program or of a newer fledge, a store that another process holds.
        """
        server = parse(url)
        until: float | None = None
        while True:
            try:
                return cls._opened(
                    server,
                    folder=folder,
                    address=address,
                    alone=alone,
                    makes=makes,
                    batch=batch,
                    patience_s=patience_s,
                    lease_s=lease_s,
                    copying=copying,
                )
            except StoreError as error:
                # A server that was there is waited for; one that never answered may be a wrong address.
                if until is None and isinstance(error, ConnectionCut):
                    until = time.monotonic() + patience_s
                if until is None or time.monotonic() >= until:
                    raise
                time.sleep(FIRST_WAIT_S)

    @classmethod
    def _opened(
        cls,
        server: ServerAddress,
        *,
        folder: Path | None,
        address: str,
        alone: bool,
        makes: bool,
        batch: int,
        patience_s: float,
        lease_s: float,
        copying: bool,
    ) -> "PostgresStore":
        with ExitStack() as undo:
            lock = None if folder is None else own_folder(folder, address, alone)
            if lock is not None:
                undo.callback(lock.release)
            session = connect(server, "writer")
            undo.callback(session.connection.close)
            _take(session.connection, server, alone)
            with explained(server), connect(server, "setup").connection as connection:
                (migrate if makes else check_newest)(connection, server)
                at, up_at = connection.execute(UP.encode()).fetchone() or (0.0, 0.0)
                check_copy(connection, server, copying)
                if folder is not None:
                    prove_files(connection, server, folder)
                if alone:
                    connection.execute("UPDATE fledge_store SET holder = %s", (this_process(address).decode(),))
            undo.pop_all()
        return cls(
            *(server, session, lock),
            at=at,
            up_at=up_at,
            alone=alone,
            batch=batch,
            patience_s=patience_s,
            lease_s=lease_s,
        )

    @staticmethod
    def check_exists(url: str) -> None:
        """StoreError if there is no store at this address. Nothing is made."""
        check_exists(parse(url))

    @staticmethod
    def move_files(url: str, folder: Path) -> str:
        """From now on the files of the store are in this folder; answers the address for people. Refused: a process has
        the store open, or the folder belongs to another store."""
        server = parse(url)
        lock = own_folder(folder, "")
        try:
            with explained(server), connect(server, "writer").connection as connection:
                _take(connection, server, alone=True)
                check_newest(connection, server)
                prove_files(connection, server, folder, moved=True)
        finally:
            lock.release()
        return server.shown

    def finish_copy(self, tx: Tx) -> None:
        """A job: all rows were copied. From now on this is a store, and its numbers go on behind theirs."""
        numbers = tx.unit.all(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND is_identity = 'YES'"
        )
        for table, column in numbers:
            tx.unit.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table}"
                f" HAVING max({column}) > 0"
            )
        tx.unit.execute("UPDATE fledge_store SET is_copy = 0")

    async def close(self) -> None:
        """Finish what was submitted, then close the connections. A server that is away is not waited for."""
        if self.cluster is not None:
            await self.cluster.leave()
        self._closing.set()
        await super().close()

    # ---- the reader threads

    def _open_reader(self) -> tuple[_Link, Tx]:
        tx = Tx(Unit(self._db))
        tx.unit.is_remote = True
        return _Link(self.server, "reader", self._patience_s, self._closing), tx

    def _show(self, link: _Link, tx: Tx, job: Job) -> None:
        for _ in range(RUNS):
            try:
                self._look(link.pipe(), tx, job)
                return
            except ConnectionLost as error:
                job.error = self._unread(error)
            except psycopg.Error as error:
                job.error = self._unread(error)
                return
            except BaseException as error:  # whatever a view raises is its caller's
                job.error = error
                return

    def _look(self, pipe: Pipe, tx: Tx, job: Job) -> None:
        tx.unit.db = pipe
        try:
            pipe.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            job.result = job.run(tx)
            tx.unit.flush()  # a view that would change anything is refused
            pipe.execute("COMMIT")
            pipe.sync()
            job.error = None
        finally:
            tx.unit.forget()
            pipe.abandon()

    def _unread(self, error: Exception) -> StoreError:
        return caused_by(error, f"{self.server.shown}: {one_line(error)}")

    # ---- the writer thread

    def _commit(self, batch: list[Job]) -> None:
        failed: StoreError | None = self._lost
        for _ in range(0 if failed else RUNS):
            for job in batch:
                job.error = None
            try:
                if self._run(batch):
                    self._end()
                return
            except ConnectionLost as error:
                failed = self._failed(error)
                if error.sqlstate == _STOPPED:
                    break
            except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.UndefinedTable):
                self._undo("ROLLBACK")
                failed = pooled(self.server)  # what this session has prepared, or set, is not there
                break
            except (psycopg.Error, StoreError) as error:
                self._undo("ROLLBACK")
                failed = error if isinstance(error, StoreError) else self._failed(error)
                break
        for job in batch:
            job.error = job.error or failed

    def _begin(self) -> None:
        """Begin a transaction as the only writer of all processes. Rows in memory that others have changed since are
        dropped; an engine that works alone stops then, because another one has taken its place."""
        try:
            pipe = self._link.pipe(self._retake)
        except StoreLost:
            raise
        except StoreError as error:
            raise StoreError(f"nothing was written: {error}") from error
        if pipe is not self._db:
            self._tx.unit.forget()
            self._db = self._tx.unit.db = pipe
        pipe.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        pipe.execute("SELECT pg_advisory_xact_lock(?)", (self._baton,))
        since = pipe.execute(_SINCE, (self._seen.number, self._seen.number))
        version, writer, self._xid, session, at, last = pipe.execute(_STATE).fetchone()
        self._clock.learn(at)
        self._tx.at = at
        self._touched_at = time.monotonic()
        if session != self._link.session:
            raise pooled(self.server)
        if version != newest():
            raise StoreError(f"{self.server.shown} was brought to schema {version} by another fledge: use that one")
        self._was_me = writer == self._me
        if not self._was_me and self._alone and self._has_written:
            self._is_lost()
        self._catch_up(since.fetchall(), last)

    def _catch_up(self, since: list[Any], last: int) -> None:
        """Drop from memory what other writers have changed in these commits. The first of them is the last one known
        here, and all others follow; else forget everything. A store that is held alone has no other writer."""
        unit = self._tx.unit
        if unit.changes is not None:
            unit.changes.clear()
            if since and self._seen == since[0][:2] and len(since) == last - self._seen.number + 1:
                for _, _, changed in since[1:]:
                    unit.drop_changed(decode(changed))
            else:
                unit.forget()
        self._seen = _CommitId(last, since[-1][1] if since else "")

    def _undo(self, how: str) -> None:
        super()._undo(how)
        with suppress(ConnectionLost):  # then it is undone
            self._db.sync()

    def _stay(self) -> None:
        now = time.monotonic()
        if now - self._touched_at > TOUCH_S:
            self._touched_at = now
            self._db.execute("SELECT 1")
            self._db.sync()

    def _flush(self) -> None:
        unit = self._tx.unit
        for message in to_messages(merged(unit.news)) if unit.news else ():
            self._db.execute("SELECT pg_notify(?, ?)", (self.server.channel, message))
        unit.news.clear()
        unit.flush()
        self._db.sync()

    def _end(self) -> None:
        """Commit. ConnectionLost: that was undone, because the connection was lost before the server had done it."""
        done = self._note_commit()
        try:
            tag = self._db.execute("COMMIT").tag
        except ConnectionLost as error:
            self._tx.unit.forget()
            if not self._has_committed(done):
                raise ConnectionLost("the connection was lost in the commit") from error
        else:
            if tag != b"COMMIT":
                raise StoreError(f"{self.server.shown}: nothing was written (the server answered {tag.decode()})")
        self._seen = done
        self._has_written = True
        self.commits += 1
        self._tx.unit.trim()

    def _note_commit(self) -> _CommitId:
        """Store who commits this, and which rows it has changed; answers the last commit once it is committed."""
        if not self._was_me:
            self._db.execute("UPDATE fledge_store SET writer = ?", (self._me,))
        changes = self._tx.unit.changes
        if changes is not None and not changes:
            return self._seen
        done = _CommitId(self._seen.number + 1, self._me)
        changed = "" if changes is None else changes.encode()
        self._db.execute("INSERT INTO fledge_commits VALUES (?,?,?)", (*done, changed))
        if done.number % TRIM == 0:
            self._db.execute("DELETE FROM fledge_commits WHERE number <= ?", (done.number - COMMITS,))
        return done

    def _has_committed(self, done: _CommitId) -> bool:
        """True if the transaction was committed whose COMMIT was sent on a connection that was lost. Asks until the
        server answers, because a commit may be neither repeated nor reported as failed; a close waits only as long as
        for any server that is away."""
        ends_at: float | None = None
        while True:
            found = self._found(done)
            if found is not None:
                return found
            if self._closing.is_set():
                ends_at = ends_at or time.monotonic() + self._patience_s
            if ends_at is not None and time.monotonic() > ends_at:
                raise self._in_doubt()
            time.sleep(2 * FIRST_WAIT_S)

    def _found(self, done: _CommitId) -> bool | None:
        """Whether the transaction was committed; None if the server does not say that yet. A server that crashed gives
        the numbers of transactions again that had not reached its disk: that of this one may be another's, so its own
        row must be there too. Raises StoreError if the transaction is so long ago that the server does not know, or
        that the row may have been trimmed."""
        first, count = None, 1  # a commit that has changed nothing has no row, and counts as stored
        try:
            with explained(self.server), connect(self.server, "setup").connection as connection:
                status = self._status(connection)
                if status == "committed" and done != self._seen:
                    first, count = connection.execute(_FOUND.encode(), done).fetchone() or (None, 0)
        except StoreError:
            return None
        if status is None or (not count and first is not None and first > done.number):
            raise self._in_doubt()
        if status == "committed":
            return bool(count)
        return False if status == "aborted" else None

    def _status(self, connection: "psycopg.Connection[Any]") -> str | None:
        """The status of the transaction by the server; None if that is so long ago that it does not know."""
        try:
            row = connection.execute("SELECT pg_xact_status(CAST(%s AS xid8))", (self._xid,)).fetchone()
        except psycopg.errors.InvalidParameterValue:
            return "aborted"  # it lies in the future of a server that took the place of the one it was sent to
        return None if row is None else row[0]

    def _in_doubt(self) -> StoreError:
        return StoreError(
            f"{self.server.shown}: the connection was lost in a commit, and it is not known whether that was written"
        )

    def _retake(self, session: ServerSession) -> None:
        """Hold the store with a new connection; StoreLost if another process holds it alone now."""
        sql = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND application_name = %s"
            " AND usename = current_user"
        )
        with explained(self.server):
            session.connection.execute(sql, (self._server_pid, f"fledge writer {self._link.session}"))
            if not _lock(session.connection, self.server, self._alone):
                self._is_lost()
        self._server_pid = session.connection.info.backend_pid

    def _is_lost(self) -> None:
        self._lost = StoreLost(
            f"{self.server.shown}: the connection was lost, and another process has taken the store since. "
            "This one has stopped and writes nothing more."
        )
        raise self._lost

    def _failed(self, error: Exception) -> StoreError:
        why = one_line(error)
        if isinstance(error, ConnectionLost) and error.sqlstate == _STOPPED:
            why = f"this process was stopped for more than {IDLE_MS / 1000:g} s in its transaction"
        return caused_by(error, f"{self.server.shown}: nothing was written ({why})")

    def _let_go(self) -> None:
        if self._alone and self._db.is_alive and self._lost is None:
            # The lock goes with the connection; the name of a dead holder does no harm.
            with suppress(psycopg.Error, ConnectionLost):
                self._db.execute("UPDATE fledge_store SET holder = ''")
                self._db.sync()
        self._link.close()
        if self._folder is not None:
            self._folder.release()


def _lock(connection: "psycopg.Connection[Any]", address: ServerAddress, alone: bool) -> bool:
    """Hold the store by this connection, until that ends, alone or with others; False if another one holds it alone, or
    at all. One whose process has just died is waited for."""
    until = time.monotonic() + RELEASE_S
    sql = "SELECT pg_try_advisory_lock(%s)" if alone else "SELECT pg_try_advisory_lock_shared(%s)"
    while True:
        row = connection.execute(sql.encode(), (address.key("holder"),)).fetchone()
        if row is not None and row[0]:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(FIRST_WAIT_S)


def _take(connection: "psycopg.Connection[Any]", address: ServerAddress, alone: bool) -> None:
    """Hold the store by the writer's own connection: a transaction that commits proves that it is held."""
    row = None
    with explained(address):
        if _lock(connection, address, alone):
            return
        with suppress(psycopg.errors.UndefinedTable):  # the store is just being made
            row = connection.execute("SELECT holder FROM fledge_store").fetchone()
    who = "another process"
    if row is not None:
        with suppress(msgspec.DecodeError):
            who = str(msgspec.json.decode(row[0], type=Holder))
    raise StoreLocked(f"{address.shown} is in use by {who}: end that first, or name another schema (?schema=…)")
