"""Copy a store to another database: from a state folder to a PostgreSQL server, or back.

The copy goes table by table in the order of primary keys, a few hundred rows in each commit. An interrupted copy can be
continued: existing rows are compared with those of the source, and a table that differs is copied again. At the end
the digests of all tables are compared. An unfinished copy cannot be opened as a store.
"""

import hashlib
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fledge.errors import StoreError
from fledge.store.addresses import server_store
from fledge.store.base import Store
from fledge.store.files import DATABASE, lock_folder, sync_folder
from fledge.store.migrate import columns_by_table
from fledge.store.sqlite import SqliteStore
from fledge.store.unit import insert_into, marks

PAGE: Final = 200
"""The number of rows in one read and one commit."""
DRAFT: Final = "copy"
"""The folder in a state folder in which the new database is made."""

_encode = msgspec.msgpack.Encoder().encode


class Copied(NamedTuple):
    """The result of a copy."""

    rows: int
    tables: int
    found: int
    """Rows that an earlier copy had written."""


class _Table(NamedTuple):
    """A table as a copy reads and writes it."""

    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]

    def page(self, after: tuple[Any, ...] | None) -> str:
        """The statement that reads the rows after a key, or the first ones."""
        keys = ", ".join(self.keys)
        behind = "" if after is None else f" WHERE ({keys}) > ({marks(len(self.keys))})"
        return f"SELECT {', '.join(self.columns)} FROM {self.name}{behind} ORDER BY {keys} LIMIT {PAGE}"

    def key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """The primary key of a row."""
        return tuple(row[self.columns.index(name)] for name in self.keys)

    def insert(self) -> str:
        """The statement that writes a row."""
        return insert_into(self.name, ", ".join(self.columns))


async def copy(source: str | Path, target: str | Path) -> Copied:
    """Copy the store at `source` to `target`: each a state folder, or as text the address of a PostgreSQL server.

    Raises `StoreError` if the source is no store, the target has other rows, or another process holds one of them.
    """
    async with _source(source) as old, _target(target) as new:
        rows = found = 0
        tables = [_Table(name, *columns) for name, columns in columns_by_table().items()]
        for table in tables:
            there, written = await _copy_table(old, new, table)
            found, rows = found + there, rows + there + written
        return Copied(rows, len(tables), found)


async def _copy_table(source: Store, target: Store, table: _Table) -> tuple[int, int]:
    """The numbers of rows that were there already, and that were written."""
    digest, there, last = await _digest(target, table)
    if there and (await _digest(source, table, there))[0].digest() != digest.digest():
        await target.transact(lambda tx: tx.unit.execute(f"DELETE FROM {table.name}").rowcount)
        digest, there, last = hashlib.sha256(), 0, None
    written = 0
    async for page in _pages(source, table, last):
        await target.transact(lambda tx: tx.unit.many(table.insert(), page))  # noqa: B023 (awaited here)
        written += len(page)
        for row in page:
            digest.update(_encode(row))
    stored, count, _ = await _digest(target, table)
    if stored.digest() != digest.digest() or count != there + written:
        raise StoreError(f"the copy of {table.name} differs from its source: run the copy again")
    return there, written


async def _digest(store: Store, table: _Table, most: int | None = None) -> tuple[Any, int, tuple[Any, ...] | None]:
    """The digest of a table's rows, or of the first `most`; their number; the key of the last."""
    digest, count, last = hashlib.sha256(), 0, None
    async for page in _pages(store, table, None):
        for row in page if most is None else page[: most - count]:
            digest.update(_encode(row))
            count, last = count + 1, table.key(row)
        if count == most:
            break
    return digest, count, last


async def _pages(store: Store, table: _Table, after: tuple[Any, ...] | None) -> AsyncIterator[list[Any]]:
    while True:
        sql, args = table.page(after), after or ()
        page = await store.read(lambda tx: tx.unit.all(sql, *args))  # noqa: B023 (awaited here)
        if not page:
            return
        yield page
        after = table.key(page[-1])


@asynccontextmanager
async def _source(where: str | Path) -> AsyncIterator[Store]:
    if isinstance(where, str):
        server_store().check_exists(where)
        store: Store = server_store().open(where)
    else:
        if not (where / DATABASE).is_file():
            raise StoreError(f"{where} has no {DATABASE}: name a state folder, or the address of a server")
        store = SqliteStore.open(where)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _target(where: str | Path) -> AsyncIterator[Store]:
    """A new store, which becomes usable only if the block ends without an error."""
    if isinstance(where, str):
        postgres = server_store().open(where, copying=True)
        try:
            yield postgres
            await postgres.transact(postgres.finish_copy)
        finally:
            await postgres.close()
        return
    with _draft(where) as draft:
        store = SqliteStore.open(draft)
        try:
            yield store
        finally:
            await store.close()
        (draft / DATABASE).rename(where / DATABASE)
        sync_folder(where)
        shutil.rmtree(draft)


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    lock = lock_folder(folder, "")
    try:
        if (folder / DATABASE).exists():
            raise StoreError(f"{folder} has a database already: name another folder. Nothing was changed.")
        yield folder / DRAFT
    finally:
        lock.release()
