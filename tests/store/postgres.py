"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port, one for each process of pytest.

`initdb` and the server refuse root, so they run as the user `postgres` then. The server does not wait for the disk: it
dies with the tests.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import psycopg

from fledge.store.base import Tx
from fledge.store.pipeline import Pipe
from fledge.store.postgres import PostgresStore
from fledge.store.postgres_server import connect, parse
from fledge.testing import InlineStore
from tests.store.postgres_programs import binaries

T = TypeVar("T")

USER: Final = "fledge"
TRIES: Final = 5
"""How often a port is chosen that another program takes before the server does."""


class Server:
    """A server that runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, 0
        self.schemas = 0

    def url(self, schema: str = "", port: int | None = None, database: str = "postgres", user: str = USER) -> str:
        """The address of a store on it; through another port, for a proxy."""
        end = f"?schema={schema}" if schema else ""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}{end}"

    def new_schema(self) -> str:
        """A name that no test has used."""
        self.schemas += 1
        return f"s{self.schemas}"

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """A connection beside the store's."""
        return psycopg.connect(self.url(), autocommit=True)

    def sql(self, sql: str) -> list[tuple[object, ...]]:
        """Run a statement; its rows."""
        with self.connect() as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def empty(self, schema: str) -> None:
        """Delete all rows of a store, and let its numbers begin again."""
        tables = [row[0] for row in self.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")]
        self.sql(";".join(f"DELETE FROM {schema}.{table}" for table in tables if table != "fledge_store"))
        numbers = self.sql(f"SELECT sequencename FROM pg_sequences WHERE schemaname = '{schema}' AND last_value > 0")
        self.sql(";".join(f"ALTER SEQUENCE {schema}.{name} RESTART" for (name,) in numbers))

    def begin(self) -> None:
        """Start it for the first time, on a port that is free."""
        for _ in range(TRIES):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = int(free.getsockname()[1])
            try:
                self.start()
                return
            except RuntimeError as error:
                failed = error  # another program may have taken the port since
        raise failed

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._control("-w", "-o", f"-p {self.port}", "-l", str(self._folder / "log"), "start")

    def stop(self) -> None:
        """End it at once, as a crash would."""
        self._control("-m", "immediate", "stop")

    def _control(self, *words: str) -> None:
        _run("pg_ctl", "-D", str(self._folder / "data"), *words)


def _run(program: str, *words: str) -> None:
    folder = binaries()
    assert folder is not None
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*user, str(folder / program), *words], cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(words)}: {done.stderr}")


@contextmanager
def running() -> Iterator[Server]:
    """A new server, for as long as the block lasts."""
    is_root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="fledge-pg-", dir="/tmp" if is_root else None))  # the other user must enter
    try:
        if is_root:
            shutil.chown(folder, "postgres")
        data = folder / "data"
        _run("initdb", "-D", str(data), "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync")
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(
                "\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\n"
                "shared_buffers = 32MB\nautovacuum = off\nmax_connections = 60\n"
            )
        server = Server(folder)
        server.begin()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class InlinePostgres(InlineStore):
    """A store on a server for tests that go job by job, without a loop of their own; used like an `InlineStore`."""

    def __init__(self, url: str, kind: type[PostgresStore] = PostgresStore) -> None:
        self._runner = asyncio.Runner()
        self._store = kind.open(url)
        self._tx = self._store._tx
        self._db = Pipe(connect(parse(url), "reader").connection)  # type: ignore[assignment]

    def run(self, job: Callable[[Tx], T]) -> T:
        """Run a job now."""
        return self._runner.run(self._store.transact(job))

    def close_now(self) -> None:
        """Close it, from code without an event loop."""
        self._db.close()
        self._runner.run(self._store.close())
        self._runner.close()
