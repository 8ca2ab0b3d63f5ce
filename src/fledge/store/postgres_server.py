"""A PostgreSQL server: its address, a connection with the settings of a session, and the schema.

The schema of a store is a namespace of the database, by default `fledge`. It is made and upgraded in one transaction
under an advisory lock, so that several processes may start at once. An error says what to do, and never the password.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from fledge.errors import BadInput, StoreError
from fledge.store.addresses import is_address
from fledge.store.dialect import translate_schema
from fledge.store.files import Home, prove_folder
from fledge.store.migrate import Steps, columns_by_table, newest, schema, upgrades
from fledge.store.pipeline import one_line

DEFAULT_SCHEMA: Final = "fledge"
OLDEST: Final = 13
"""The oldest PostgreSQL that can be asked what became of a transaction by its number."""
IDLE_MS: Final = 2000
"""How long a transaction of the writer may do nothing: others wait so long for a process that was stopped in it."""
_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_EXPECTED: Final = "must be an address like postgresql://user@host:5432/database?schema=fledge"
_POOLER: Final = (
    "a connection pooler in transaction mode is in between: it gives each transaction another connection. "
    "Connect to the server itself, or set the pooler to session mode"
)

ConnectionRole = Literal["writer", "reader", "listener", "setup"]
_TIMEOUTS: Final[dict[ConnectionRole, tuple[str, str, str]]] = {
    "writer": ("30s", "10s", f"{IDLE_MS}ms"),
    "reader": ("60s", "10s", "60s"),
    "listener": ("10s", "5s", "10s"),
    "setup": ("60s", "30s", "30s"),
}
"""By role: statement_timeout, lock_timeout, idle_in_transaction_session_timeout."""
_SETTINGS: Final = """
SELECT set_config('search_path', %s, false), set_config('statement_timeout', %s, false),
  set_config('lock_timeout', %s, false), set_config('idle_in_transaction_session_timeout', %s, false),
  set_config('fledge.session', %s, false), set_config('application_name', %s, false),
  set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '60s', false),
  set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
    ELSE current_setting('synchronous_commit') END, false)
"""
_HINTS: Final = (
    (r"database .* does not exist", "make it (createdb), or name another"),
    (r"role .* does not exist", "name a user that the server knows"),
    (r"authentication failed|no password|pg_hba", "check user and password: in the address, ~/.pgpass or PGPASSWORD"),
    (r'unsupported startup parameter|relation "fledge_store" does not exist', _POOLER),
    (r"too many (connections|clients)|connection slots", "raise max_connections of the server, or end other programs"),
    (r"permission denied for database", "let this user connect: GRANT CONNECT ON DATABASE … TO …"),
)
STORE_TABLE: Final = """
CREATE TABLE fledge_store (
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  id          TEXT NOT NULL,              -- of this store, for folders that belong to it
  version     INTEGER NOT NULL,           -- of the schema
  writer      TEXT NOT NULL DEFAULT '',   -- the process that wrote last
  holder      TEXT NOT NULL DEFAULT '',   -- the process whose engine works with it, as JSON
  is_copy     INTEGER NOT NULL DEFAULT 0, -- 1 while rows of another store are copied here
  files       TEXT NOT NULL DEFAULT ''    -- the folder with its files, as JSON; empty while it has none
);
CREATE TABLE fledge_commits (
  number      INTEGER PRIMARY KEY,        -- one after the other, in the order of commits
  writer      TEXT NOT NULL,              -- the process, by the name in fledge_store.writer
  changed     TEXT NOT NULL               -- as JSON, see store/changes.py
);
"""


class ServerAddress(NamedTuple):
    """Where a store is."""

    conninfo: str
    """For libpq."""
    schema: str
    shown: str
    """For people: without a password."""
    password: str

    def __repr__(self) -> str:
        return self.shown

    def key(self, purpose: str) -> int:
        """The number of an advisory lock of this schema."""
        return int.from_bytes(self._digest(purpose)[:8], signed=True)

    @property
    def channel(self) -> str:
        """The name under which commits to this schema tell their news."""
        return f"fledge_{self._digest('news').hex()[:16]}"

    @property
    def live_channel(self) -> str:
        """The name under which live messages are sent, beside commits."""
        return f"{self.channel}_live"

    def _digest(self, purpose: str) -> bytes:
        return hashlib.sha256(f"fledge {purpose} {self.schema}".encode()).digest()


def parse(url: str) -> ServerAddress:
    """The parts of an address. Refused, without repeating it: one that libpq does not take, or a wrong schema."""
    base, _, query = url.partition("?")
    try:
        given = parse_qsl(query, keep_blank_values=True)
        rest = urlencode([pair for pair in given if pair[0] != "schema"], quote_via=quote)
        conninfo = f"{base}?{rest}" if rest else base
        known = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        raise BadInput("store", _EXPECTED) from None
    if not is_address(url) or not re.fullmatch(r"[\d,]*", str(known.get("port") or "")):
        raise BadInput("store", _EXPECTED)
    name = dict(given).get("schema", DEFAULT_SCHEMA)
    if not _NAME.fullmatch(name):
        raise BadInput("store", "its schema must be a name of lower-case letters, digits and '_'", name)
    hosts, ports = (str(known.get(name) or "").split(",") for name in ("host", "port"))
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    host = ",".join(f"{name or 'localhost'}:{port or 5432}" for name, port in zip(hosts, ports, strict=True))
    user = f"{known['user']}@" if known.get("user") else ""
    shown = f"postgresql://{user}{host}/{known.get('dbname') or ''}?schema={name}"
    return ServerAddress(conninfo, name, shown, str(known.get("password") or ""))


class ServerSession(NamedTuple):
    """A connection with its settings."""

    connection: "psycopg.Connection[Any]"
    id: str
    """Kept in a setting of the session: another connection in its place does not have it."""


def connect(
    address: ServerAddress, role: ConnectionRole, made: Callable[[ServerSession], None] | None = None
) -> ServerSession:
    """Connect, check the server, and set what holds for the session, which `made` may refuse. StoreError: it cannot be
    used, and why."""
    session = secrets.token_hex(8)
    known = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
    with explained(address, is_connected=False):
        given = conninfo_to_dict(address.conninfo)
        connection: psycopg.Connection[Any] = psycopg.connect(
            address.conninfo,
            autocommit=True,
            client_encoding="utf8",
            **{name: value for name, value in known.items() if name not in given},  # type: ignore[arg-type]
        )
    try:
        with explained(address):
            _check(connection, address)
            timeouts = _TIMEOUTS[role]
            connection.execute(_SETTINGS, (f'"{address.schema}"', *timeouts, session, f"fledge {role} {session}"))
            # A transaction of its own: it must find the settings that the one before it made.
            found = connection.execute("SELECT current_setting('fledge.session', true)").fetchone()
            if found is None or found[0] != session:
                raise pooled(address)
        opened = ServerSession(connection, session)
        if made is not None:
            made(opened)
    except BaseException:
        connection.close()
        raise
    return opened


def pooled(address: ServerAddress) -> StoreError:
    """The error of a session that found itself on another connection."""
    return StoreError(f"{address.shown}: {_POOLER}")


def _check(connection: "psycopg.Connection[Any]", address: ServerAddress) -> None:
    version = connection.info.server_version
    if version < OLDEST * 10000:
        raise StoreError(
            f"{address.shown} is PostgreSQL {version // 10000}; fledge needs {OLDEST} or newer. Nothing was changed."
        )
    encoding, is_copy = connection.execute(
        "SELECT current_setting('server_encoding'), pg_is_in_recovery()"
    ).fetchone() or ("", False)
    if encoding != "UTF8":
        raise StoreError(f"{address.shown}: the database has the encoding {encoding}; make one with ENCODING 'UTF8'")
    if is_copy:
        raise StoreError(f"{address.shown} is a standby, which only reads: name the primary server")


def _is_cut(error: psycopg.Error) -> bool:
    """True if the connection was lost. Without a code it is the library that found it gone; 08 and 57P say that the
    server ended it."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08").startswith(("08", "57P"))


class ConnectionCut(StoreError):
    """The connection was lost in the middle of what it did: another one may do it."""


@contextmanager
def explained(address: ServerAddress, is_connected: bool = True) -> Iterator[None]:
    """Turn errors of the server into StoreError with what to do, ConnectionCut if the connection was lost; the password
    is not in it."""
    try:
        yield
    except psycopg.Error as error:
        words = one_line(error)
        if address.password:
            words = words.replace(address.password, "***")
        hint = next((hint for pattern, hint in _HINTS if re.search(pattern, words)), "check the server and the address")
        kind = ConnectionCut if is_connected and _is_cut(error) else StoreError
        raise kind(f"{address.shown}: cannot be opened ({words}); {hint}") from None


def check_exists(address: ServerAddress) -> None:
    """StoreError if there is no store at this address. Nothing is made."""
    with explained(address), connect(address, "setup").connection as connection:
        if not _has_store(connection, address):
            raise StoreError(f"{address.shown} has no store")


def check_copy(connection: "psycopg.Connection[Any]", address: ServerAddress, copying: bool) -> None:
    """Let a copy begin, or go on, in a store that has no rows of its own. StoreError: it has some; or, unless this is a
    copy, one is unfinished."""
    if _one(connection, "SELECT is_copy FROM fledge_store"):
        if not copying:
            raise StoreError(
                f"{address.shown} is an unfinished copy of another store: run `fledge store copy` again, or drop the "
                "schema"
            )
    elif copying:
        for table in columns_by_table():
            if _one(connection, f"SELECT 1 FROM {table} LIMIT 1"):
                raise StoreError(
                    f"{address.shown} has rows already ({table}): name another schema. Nothing was changed."
                )
        connection.execute("UPDATE fledge_store SET is_copy = 1")


def prove_files(
    connection: "psycopg.Connection[Any]", address: ServerAddress, folder: Path, *, moved: bool = False
) -> None:
    """Let the files of this store be in this folder, if it has none or they were `moved`; else StoreError unless they
    are."""
    with connection.transaction():
        store_id, known = connection.execute("SELECT id, files FROM fledge_store FOR UPDATE").fetchone() or ("", "")
        home = msgspec.json.decode(known, type=Home) if known and not moved else None
        proven = prove_folder(folder, store_id, address.shown, home)
        if proven is not home:
            connection.execute("UPDATE fledge_store SET files = %s", (msgspec.json.encode(proven).decode(),))


def check_newest(connection: "psycopg.Connection[Any]", address: ServerAddress) -> None:
    """StoreError if there is no store, or if it is not of the version that this fledge knows. Nothing is made or
    brought up to date."""
    last = newest()
    if not _has_store(connection, address):
        raise StoreError(f"{address.shown} has no store: `fledge worker` or `fledge serve` makes one")
    version = int(_one(connection, "SELECT version FROM fledge_store"))
    if version != last:
        how = "install that version" if version > last else "start a worker of this version, which brings it up to date"
        raise StoreError(f"{address.shown} has schema {version}, this fledge knows {last}: {how}")


def migrate(connection: "psycopg.Connection[Any]", address: ServerAddress, steps: Steps | None = None) -> None:
    """Make the schema, or bring it up to date, all or nothing. Refused, with nothing changed: a schema of another
    program, one of a newer fledge, a user without the rights."""
    last = newest(steps)
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (address.key("schema"),))
            if not _one(connection, "SELECT to_regnamespace(%s) IS NOT NULL", f'"{address.schema}"'):
                connection.execute(f'CREATE SCHEMA "{address.schema}"')
            if not _has_store(connection, address):
                _make(connection, address, last)
            version = int(_one(connection, "SELECT version FROM fledge_store"))
            if version > last:
                raise StoreError(
                    f"{address.shown} was written by a newer fledge (schema {version}, this one knows {last}): "
                    "install that version or newer. Nothing was changed."
                )
            for number, sql in steps or upgrades("postgres"):
                if number > version:
                    connection.execute(translate_schema(sql))
                    connection.execute("UPDATE fledge_store SET version = %s", (number,))
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(
            f"{address.shown}: the user has not the rights ({one_line(error)}); let the owner of the database run "
            f'CREATE SCHEMA "{address.schema}" AUTHORIZATION {connection.info.user}. Nothing was changed.'
        ) from error
    except psycopg.Error as error:
        if _is_cut(error):
            raise  # it may be done again
        raise StoreError(
            f"{address.shown}: cannot be brought to schema {last} ({one_line(error)}); it was not changed"
        ) from error


def _make(connection: "psycopg.Connection[Any]", address: ServerAddress, version: int) -> None:
    others = _one(connection, "SELECT count(*) FROM pg_tables WHERE schemaname = %s", address.schema)
    if others:
        raise StoreError(
            f"{address.shown}: the schema has {others} tables of another program. Nothing was changed: name another "
            "schema in the address (?schema=…)."
        )
    connection.execute(translate_schema(schema() + STORE_TABLE))
    new = (secrets.token_hex(16), version)
    connection.execute("INSERT INTO fledge_store (one, id, version) VALUES (1, %s, %s)", new)


def _has_store(connection: "psycopg.Connection[Any]", address: ServerAddress) -> Any:
    return _one(connection, "SELECT to_regclass(%s) IS NOT NULL", f'"{address.schema}".fledge_store')


def _one(connection: "psycopg.Connection[Any]", sql: str, *args: object) -> Any:
    row = connection.execute(sql, args).fetchone()
    return None if row is None else row[0]
