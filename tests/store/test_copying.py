"""`fledge store copy`: a store in another database, with every row of it, however often the copy was broken off."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.cli.main import main
from fledge.errors import StoreError
from fledge.models.scripted import ScriptedModel
from fledge.store.addresses import is_address
from fledge.store.base import Store, Tx
from fledge.store.copying import copy
from fledge.store.migrate import columns_by_table
from fledge.store.postgres import PostgresStore
from fledge.store.sqlite import SqliteStore
from tests.core.samples import AT
from tests.statements import proves
from tests.store.bench import MAIN, admit, conversation, queue
from tests.store.postgres import Server
from tests.store.racer import note, open_notes

MANY = 450
"""More than two pages."""


def place(where: str) -> str | Path:
    return where if is_address(where) else Path(where)


def opened(where: str) -> Store:
    return PostgresStore.open(where) if is_address(where) else SqliteStore.open(where)


def rows_in(where: str) -> dict[str, list[Any]]:
    """Every row of a store, by table."""

    def look(tx: Tx) -> dict[str, list[Any]]:
        return {
            name: tx.unit.all(f"SELECT {', '.join(columns)} FROM {name} ORDER BY {', '.join(keys)}")
            for name, (columns, keys) in columns_by_table().items()
        }

    async def read() -> dict[str, list[Any]]:
        store = opened(where)
        try:
            return await store.read(look)
        finally:
            await store.close()

    return asyncio.run(read())


def fill(where: str, notes: int = MANY) -> None:
    """Rows of many kinds, with every kind of value."""

    def write(tx: Tx) -> None:
        conversation(tx, MAIN)
        for n in range(3):
            admit(tx, f"agent:main:subagent:{n}", at=AT + n / 7)
        queue(tx, "waits")
        tx.inbox.put("row", MAIN, "send", None, "words é\0 \ufdd0 \\u0000", AT)
        tx.outbox.post("post", "hook", None, "{}", 1e-7)
        tx.asks.remember("asker", "key", "digest", "answer", MAIN)
        for n in range(notes):
            note(f"{n}")(tx)

    async def work() -> None:
        store = opened(where)
        await store.transact(open_notes)
        await store.transact(write)
        await store.close()

    asyncio.run(work())


@proves("7.server.14", "A store is copied to a server or back with every row, compared by digests")
def test_a_store_is_the_same_on_a_server_and_back_in_a_folder(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there, back = str(tmp_path / "here"), server.url(server.new_schema()), str(tmp_path / "back")
    fill(here)
    rows = rows_in(here)
    assert main(["store", "copy", here, there]) == 0
    total = sum(map(len, rows.values()))
    assert f"copied {total} rows of {len(rows)} tables; every table has the same" in capsys.readouterr().out
    assert rows_in(there) == rows
    assert main(["store", "copy", there, back]) == 0
    assert rows_in(back) == rows
    assert rows_in(here) == rows


def test_numbers_go_on_behind_those_of_the_source(server: Server, tmp_path: Path) -> None:
    here, there = str(tmp_path / "here"), server.url(server.new_schema())
    fill(here)
    asyncio.run(copy(place(here), place(there)))

    async def work() -> tuple[int, int]:
        store = opened(there)
        try:
            before = await store.read(lambda tx: tx.events.last())
            await store.transact(lambda tx: (admit(tx, "agent:main:subagent:new"), note("next")(tx)))
            return before, await store.read(lambda tx: tx.events.last())
        finally:
            await store.close()

    before, after = asyncio.run(work())
    assert after == before + 1 == 4


BROKEN_OFF = """
import asyncio, os, sys
from pathlib import Path
import fledge.store.copying as copying
pages = 0
many = copying._Table.insert
def insert(self):
    global pages
    pages += 1
    if pages > int(sys.argv[3]):
        os._exit(9)
    return many(self)
copying._Table.insert = insert
source, target = (text if "://" in text else Path(text) for text in sys.argv[1:3])
asyncio.run(copying.copy(source, target))
"""


@proves("7.server.15", "A copy that was broken off goes on, and is no store before it ends")
@pytest.mark.parametrize("to_server", [True, False], ids=["to a server", "to a folder"])
def test_a_copy_that_was_killed_goes_on_and_is_no_store_before_it_ends(
    server: Server, tmp_path: Path, to_server: bool
) -> None:
    here, there = str(tmp_path / "here"), server.url(server.new_schema()) if to_server else str(tmp_path / "there")
    fill(here)
    for pages in (4, 9):
        done = subprocess.run([sys.executable, "-c", BROKEN_OFF, here, there, str(pages)], timeout=60)
        assert done.returncode == 9
        if to_server:
            with pytest.raises(StoreError, match="unfinished copy of another store: run `fledge store copy` again"):
                opened(there)
        else:
            assert not (tmp_path / "there" / "fledge.db").exists()
    done_now = asyncio.run(copy(place(here), place(there)))
    assert done_now.found > MANY // 3
    assert rows_in(there) == rows_in(here)


def test_rows_of_an_unfinished_copy_that_the_source_does_not_have_are_copied_again(
    server: Server, tmp_path: Path
) -> None:
    here, there = str(tmp_path / "here"), server.url(server.new_schema())
    fill(here, notes=20)
    asyncio.run(copy(place(here), place(there)))
    name = there.rpartition("=")[2]
    server.sql(f"UPDATE {name}.fledge_store SET is_copy = 1; UPDATE {name}.entries SET body = 'x' WHERE seq = 3")
    asyncio.run(copy(place(here), place(there)))
    assert rows_in(there) == rows_in(here)


def test_a_target_with_rows_of_its_own_and_a_source_that_is_no_store_are_refused(
    server: Server, tmp_path: Path
) -> None:
    here, there, nothing = str(tmp_path / "here"), server.url(server.new_schema()), server.url(server.new_schema())
    fill(here, notes=3)
    fill(there, notes=2)
    cases = [
        (here, there, r"has rows already \(runs\)"),
        (there, here, "has a database already"),
        (str(tmp_path / "none"), there, r"has no fledge\.db"),
        (nothing, str(tmp_path / "new"), "has no store"),
    ]
    for source, target, expected in cases:
        with pytest.raises(StoreError, match=expected):
            asyncio.run(copy(place(source), place(target)))
    assert not (tmp_path / "none").exists()
    assert len(rows_in(there)["entries"]) == 2


def test_a_program_goes_on_with_the_copy_of_its_store(server: Server, tmp_path: Path) -> None:
    folder, there = tmp_path / "state", server.url(server.new_schema())
    model = ScriptedModel(lambda request: "hello")

    async def ask(**options: Any) -> str:
        async with fledge.open(folder, model=model, config={}, **options) as fl:
            return (await (await fl.spawn("Say hello", idempotency_key="once"))).text

    assert asyncio.run(ask()) == "hello"
    assert main(["store", "copy", str(folder), there]) == 0
    os.rename(folder / "fledge.db", folder / "fledge.db.old")
    assert asyncio.run(ask(store=there)) == "hello"
    assert len(model.requests) == 1


def test_every_table_has_a_primary_key_by_which_it_is_copied() -> None:
    tables = columns_by_table()
    assert "runs" in tables
    assert all(keys for _, keys in tables.values())
    assert tables["entries"][1] == ("session", "seq")
