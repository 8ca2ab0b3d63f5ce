"""What is said of a PostgreSQL server that cannot be used, and how its schema is made, by several processes at once."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fledge
from fledge.errors import BadInput, StoreError, StoreLocked
from fledge.models.scripted import ScriptedModel
from fledge.store.base import Tx
from fledge.store.dialect import translate_schema
from fledge.store.migrate import newest, schema, steps_of, upgrades
from fledge.store.postgres import PostgresStore
from fledge.store.postgres_server import STORE_TABLE, ConnectionRole, connect, migrate, parse
from fledge.store.sqlite import SqliteStore
from tests.statements import proves
from tests.store.postgres import Server
from tests.store.postgres_proxy import Proxy
from tests.store.racer import note, open_notes

LAST = newest()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as found:
        yield found


def opened(url: str, folder: Path | None = None) -> None:
    asyncio.run(PostgresStore.open(url, folder=folder).close())


@proves("7.server.4", "No error has the password of a server")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://wren:secret@host:port/db",
        "postgresql://wren:secret@host/db?nothing=known",
        "mysql://wren:secret@host/db",
        "postgresql://wren:secret@[host/db",
    ],
)
def test_an_address_that_is_wrong_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(BadInput, match=r"^store: must be an address like postgresql://") as refused:
        parse(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "Upper", "pg_own", 'a"b', "a-b", "x" * 64])
def test_a_schema_must_have_a_plain_name(name: str) -> None:
    with pytest.raises(BadInput, match=r"^store: its schema must be a name"):
        parse(f"postgresql://host/db?schema={name}")


@proves("7.server.4")
def test_a_store_is_shown_without_its_password() -> None:
    address = parse("postgresql://wren:p%40ss@host:6543/db?schema=mine&sslmode=require")
    assert address.shown == repr(address) == "postgresql://wren@host:6543/db?schema=mine"
    assert address.conninfo == "postgresql://wren:p%40ss@host:6543/db?sslmode=require"
    assert parse("postgresql:///db").shown == "postgresql://localhost:5432/db?schema=fledge"
    assert parse("postgresql://a:1,b:2/db").shown == "postgresql://a:1,b:2/db?schema=fledge"
    assert parse("postgresql://a,b/db").shown == "postgresql://a:5432,b:5432/db?schema=fledge"


@pytest.mark.parametrize("role", ["writer", "reader", "listener"])
def test_the_server_drops_a_process_that_reads_nothing_for_a_minute(server: Server, role: ConnectionRole) -> None:
    """Else one that is stopped for hours fills the server's queue of news, and nobody can commit."""
    session = connect(parse(server.url(server.new_schema())), role)
    try:
        (found,) = session.connection.execute("SHOW tcp_user_timeout").fetchone() or ("",)
        assert found == "60000", "milliseconds"
    finally:
        session.connection.close()


def test_a_server_that_does_not_answer_is_named(server: Server, proxy: Proxy) -> None:
    proxy.is_away = True
    with pytest.raises(StoreError, match=rf"127\.0\.0\.1:{proxy.port}.*check the server and the address"):
        opened(proxy.url(server.new_schema()))


def test_a_store_is_made_although_its_connection_is_cut_after_the_commit(server: Server, proxy: Proxy) -> None:
    proxy.cut = "after"
    opened(proxy.url(server.new_schema()))
    assert proxy.cuts == 1


@pytest.mark.parametrize("number", [1, 5, 12, 20])
def test_a_store_is_made_although_its_connection_is_cut_meanwhile(server: Server, proxy: Proxy, number: int) -> None:
    proxy.cut_at = number
    opened(proxy.url(server.new_schema()))
    assert proxy.cuts == 1


def test_a_store_is_opened_although_its_connection_is_cut_at_any_message(server: Server, proxy: Proxy) -> None:
    url = proxy.url(server.new_schema())
    opened(url)
    number = 0
    while proxy.cuts == number:  # until an opening has fewer messages
        number += 1
        proxy.cut_at = number
        opened(url)
    assert proxy.cuts > 10


def test_a_database_or_user_that_does_not_exist_is_named(server: Server) -> None:
    with pytest.raises(StoreError, match=r'database "nest" does not exist.*; make it \(createdb\)'):
        opened(server.url(database="nest"))
    with pytest.raises(StoreError, match=r'role "wren" does not exist.*; name a user that the server knows'):
        opened(server.url(user="wren"))


def test_an_old_server_is_refused(server: Server, proxy: Proxy) -> None:
    proxy.version, name = b"12.19", server.new_schema()
    with pytest.raises(StoreError, match=r"is PostgreSQL 12; fledge needs 13 or newer\. Nothing was changed\."):
        opened(proxy.url(name))
    assert server.sql(f"SELECT to_regnamespace('{name}') IS NULL") == [(True,)]


def test_a_database_of_another_encoding_is_refused(server: Server) -> None:
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreError, match="the database has the encoding LATIN1"):
        opened(server.url(database="latin"))


@proves("7.server.3", "A schema that cannot be used is refused with what to do, and not changed")
def test_a_user_without_the_rights_is_told_what_the_owner_must_run(server: Server) -> None:
    name = server.new_schema()
    server.sql("CREATE USER guest")
    with pytest.raises(StoreError, match=rf'CREATE SCHEMA "{name}" AUTHORIZATION guest\. Nothing was changed'):
        opened(server.url(name, user="guest"))
    server.sql(f"CREATE SCHEMA {name} AUTHORIZATION guest")
    opened(server.url(name, user="guest"))
    server.sql("CREATE USER stranger")
    with pytest.raises(StoreError, match="has not the rights"):
        opened(server.url(name, user="stranger"))


@proves("7.server.3")
@pytest.mark.parametrize("same_for", [0, 4, 6])
def test_a_pooler_in_transaction_mode_is_noticed(server: Server, proxy: Proxy, same_for: int) -> None:
    proxy.is_pooler, proxy.same_for = True, same_for

    async def main() -> None:
        store = PostgresStore.open(proxy.url(server.new_schema()), alone=False)
        try:
            await store.transact(open_notes)
            for _ in range(3):
                await store.transact(note("one"))
        finally:
            await store.close()

    with pytest.raises(StoreError, match="a connection pooler in transaction mode"):
        asyncio.run(main())


@proves("7.server.3")
def test_a_schema_of_another_program_is_refused_and_not_changed(server: Server) -> None:
    name = server.new_schema()
    server.sql(f"CREATE SCHEMA {name}; CREATE TABLE {name}.birds (id int)")
    with pytest.raises(StoreError, match="has 1 tables of another program"):
        opened(server.url(name))
    assert server.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{name}'") == [("birds",)]


@proves("7.server.3")
def test_a_store_of_a_newer_fledge_is_refused_and_not_changed(server: Server) -> None:
    name = server.new_schema()
    opened(server.url(name))
    server.sql(f"UPDATE {name}.fledge_store SET version = {LAST + 1}")
    with pytest.raises(StoreError, match=rf"newer fledge \(schema {LAST + 1}, this one knows {LAST}\)"):
        opened(server.url(name))
    assert server.sql(f"SELECT version FROM {name}.fledge_store") == [(LAST + 1,)]


def test_a_store_that_is_brought_up_to_date_meanwhile_takes_no_more_jobs_of_the_old_fledge(server: Server) -> None:
    name = server.new_schema()

    async def main() -> None:
        store = PostgresStore.open(server.url(name))
        await store.transact(open_notes)
        server.sql(f"UPDATE {name}.fledge_store SET version = {LAST + 1}")
        with pytest.raises(StoreError, match=f"was brought to schema {LAST + 1} by another fledge"):
            await store.transact(note("late"))
        await store.close()

    asyncio.run(main())


@proves("7.server.2", "The schema is made and upgraded in one transaction, however many start at once")
def test_an_upgrade_is_applied_once_however_many_start(server: Server) -> None:
    name = server.new_schema()
    opened(server.url(name))
    step = "ALTER TABLE runs ADD COLUMN wings INTEGER NOT NULL DEFAULT 2; -- and why\nCREATE INDEX w ON runs (wings);"
    steps = (*upgrades(), (LAST + 1, step))

    def start(_: int) -> object:
        address = parse(server.url(name))
        with connect(address, "setup").connection as connection:
            migrate(connection, address, steps)
            return connection.execute("SELECT id FROM fledge_store").fetchone()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(start, range(4)))) == 1
    assert server.sql(f"SELECT version FROM {name}.fledge_store") == [(LAST + 1,)]
    found = server.sql(
        f"SELECT data_type FROM information_schema.columns WHERE table_schema = '{name}' AND column_name = 'wings'"
    )
    assert found == [("bigint",)]


def columns(server: Server, schema: str) -> list[tuple[object, ...]]:
    """What a schema has: columns, indexes and constraints, without its name."""
    found = server.sql(
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns"
        f" WHERE table_schema = '{schema}'"
    )
    found += server.sql(f"SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = '{schema}'")
    return sorted((tuple(str(one).replace(f"{schema}.", "") for one in row) for row in found), key=str)


def make_old(server: Server, schema: str, version: int, like: str) -> None:
    """Make a store as a fledge of that version left it, with the rows of another store as far as it had their columns
    then."""
    before = Path(__file__).with_name("schema_25.sql").read_text("utf-8")
    server.sql(f"CREATE SCHEMA {schema}; SET search_path = {schema}; {translate_schema(before + STORE_TABLE)}")
    server.sql(f"ALTER TABLE {schema}.fledge_store DROP COLUMN files")  # schema 27 has added it
    server.sql(f"DROP TABLE {schema}.fledge_commits")  # schema 28 has
    server.sql(f"INSERT INTO {schema}.fledge_store (one, id, version) VALUES (1, 'x', 25)")
    address = parse(server.url(schema))
    if version > 25:
        with connect(address, "setup").connection as connection:
            migrate(connection, address, tuple(step for step in upgrades("postgres") if step[0] <= version))
    by_table: dict[object, list[str]] = {}
    for table, column in server.sql(
        f"SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = '{schema}'"
    ):
        by_table.setdefault(table, []).append(f'"{column}"')
    del by_table["fledge_store"]
    by_table.pop("fledge_commits", None)
    by_table.pop("workers", None)  # schema 30 has moved its rows into `active`
    for table, names in by_table.items():
        given = ", ".join(names)
        server.sql(f"INSERT INTO {schema}.{table} ({given}) OVERRIDING SYSTEM VALUE SELECT {given} FROM {like}.{table}")


@proves("7.server.2")
@pytest.mark.parametrize("version", range(25, LAST))
def test_a_store_of_each_older_schema_is_brought_up_to_date_by_several_at_once(
    server: Server, tmp_path: Path, version: int
) -> None:
    old, new = server.new_schema(), server.new_schema()

    async def talk() -> None:
        async with fledge.open(tmp_path, store=server.url(new), model=ScriptedModel(lambda _: "dug"), config={}) as fl:
            await fl.session("main").send("hello")
            assert (await (await fl.spawn("dig", label="digger"))).status == "ok"

    def text(tx: Tx) -> list[str]:
        return [entry.body for entry in tx.transcripts.entries("agent:main:main")]

    async def start() -> list[list[str]]:
        opening = (asyncio.to_thread(PostgresStore.open, server.url(old), alone=False) for _ in range(4))
        stores = await asyncio.gather(*opening)
        found = [await store.read(text) for store in stores]
        assert await stores[0].read(lambda tx: tx.engines.all()) == []
        await asyncio.gather(*(store.close() for store in stores))
        return found

    asyncio.run(talk())
    make_old(server, old, version, new)
    said = asyncio.run(start())
    assert columns(server, old) == columns(server, new)
    assert server.sql(f"SELECT version FROM {old}.fledge_store") == [(LAST,)]
    assert said == said[:1] * 4
    assert "hello" in said[0][0]
    runs = [server.sql(f"SELECT key, phase, delivery FROM {name}.runs") for name in (old, new)]
    assert runs[0] == runs[1]


@proves("7.server.2")
def test_an_upgrade_that_fails_changes_nothing(server: Server) -> None:
    name = server.new_schema()
    opened(server.url(name))
    steps = (*upgrades(), (LAST + 1, "ALTER TABLE runs ADD COLUMN wings INTEGER; ALTER TABLE nothing ADD a TEXT;"))
    address = parse(server.url(name))
    with (
        connect(address, "setup").connection as connection,
        pytest.raises(StoreError, match=rf"cannot be brought to schema {LAST + 1} .*; it was not changed"),
    ):
        migrate(connection, address, steps)
    opened(server.url(name))


def test_a_step_that_postgresql_cannot_take_has_a_file_of_its_own(tmp_path: Path) -> None:
    for name in ("0031_a.sql", "0032_bb.sql", "0031_a.postgres.sql", "0032_bb.other.sql", "README.md"):
        (tmp_path / name).write_text(name)
    assert steps_of(tmp_path.iterdir()) == ((31, "0031_a.sql"), (32, "0032_bb.sql"))
    assert steps_of(tmp_path.iterdir(), "postgres") == ((31, "0031_a.postgres.sql"), (32, "0032_bb.sql"))


@proves("7.server.2")
def test_four_that_start_at_once_make_one_store(server: Server) -> None:
    url = server.url(server.new_schema())

    async def main() -> list[int]:
        opening = (asyncio.to_thread(PostgresStore.open, url, alone=False) for _ in range(4))
        stores = await asyncio.gather(*opening)
        ids = [await store.read(lambda tx: tx.unit.column("SELECT id FROM fledge_store")) for store in stores]
        assert ids == [ids[0]] * 4
        await stores[0].transact(open_notes)
        numbers = await asyncio.gather(*(store.transact(note("x")) for store in stores))
        await asyncio.gather(*(store.close() for store in stores))
        return sorted(numbers)

    assert asyncio.run(main()) == [1, 2, 3, 4]


def test_every_table_and_index_of_the_schema_is_made(server: Server) -> None:
    name = server.new_schema()
    opened(server.url(name))
    for kind, plain in (("TABLE", "pg_tables"), ("INDEX", "pg_indexes")):
        wanted = {line.split()[2 + ("UNIQUE" in line)] for line in schema().splitlines() if f" {kind} " in line[:20]}
        made = {str(row[0]) for row in server.sql(f"SELECT {kind}NAME FROM {plain} WHERE schemaname = '{name}'")}
        assert wanted <= made


@proves(
    "7.server.11",
    "A store that is held alone is held by one process; one whose place was taken writes nothing more",
)
def test_a_second_holder_is_refused_and_told_who_holds_the_store(server: Server) -> None:
    url = server.url(server.new_schema())

    async def main() -> None:
        store = PostgresStore.open(url, address="http://127.0.0.1:7")
        with pytest.raises(StoreLocked, match=r"is in use by process \d+ on .*gateway at http://127\.0\.0\.1:7"):
            PostgresStore.open(url)
        await store.close()
        await PostgresStore.open(url).close()

    asyncio.run(main())


@proves("7.server.13", "A folder beside a server keeps the files of one store")
def test_a_folder_keeps_the_files_of_one_store(server: Server, tmp_path: Path) -> None:
    url, folder = server.url(server.new_schema()), tmp_path / "state"
    opened(url, folder)
    opened(url, folder)
    with pytest.raises(StoreError, match=r"keeps the files of another store \(postgresql://"):
        opened(server.url(server.new_schema()), folder)
    with pytest.raises(StoreError, match=r"keeps the files of a store on a server \(postgresql://"):
        SqliteStore.open(folder)
    asyncio.run(SqliteStore.open(tmp_path / "own").close())
    with pytest.raises(StoreError, match=r"has a database of its own, fledge\.db"):
        opened(url, tmp_path / "own")
    opened(url, folder)


def test_a_program_works_with_a_store_on_a_server(server: Server, tmp_path: Path) -> None:
    url = server.url(server.new_schema())
    model = ScriptedModel(lambda request: "hello")

    async def main() -> list[str]:
        said = []
        for _ in range(2):
            async with fledge.open(tmp_path, store=url, model=model, config={}) as fl:
                run = await fl.spawn("Say hello", idempotency_key="the same")
                said.append((await run).text)
        return said

    assert asyncio.run(main()) == ["hello", "hello"]
    assert len(model.requests) == 1
    assert not (tmp_path / "fledge.db").exists()


def test_a_store_that_is_named_alone_has_a_folder_of_its_own(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEDGE_STATE", str(tmp_path))
    url = server.url(server.new_schema())
    other = server.url(server.new_schema())
    assert fledge.open(url, config={}).state == fledge.open(url, config={}).state
    assert fledge.open(f"{url}&sslmode=disable", config={}).state == fledge.open(url, config={}).state
    assert fledge.open(url, config={}).state != fledge.open(other, config={}).state
    assert fledge.open(url, config={}).state.parent == tmp_path / "stores"


@pytest.mark.parametrize(
    ("state", "store", "expected"),
    [("state", "mysql://x", "must be an address that begins"), ("postgresql:///x", "postgresql:///y", "left out")],
)
def test_what_is_no_store_is_refused_by_name(state: str, store: str, expected: str) -> None:
    with pytest.raises(BadInput, match=rf"^store: .*{expected}"):
        fledge.open(state, store=store, config={})


WITHOUT = """
import asyncio, sys
sys.modules["psycopg"] = None
import fledge
async def main():
    async with fledge.open("postgresql:///x", config={}): pass
try:
    asyncio.run(main())
except fledge.FledgeError as error:
    print(error)
"""


def test_without_the_library_the_command_that_installs_it_is_told(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "pip install 'fledge[postgres]'" in done.stdout, done.stderr
