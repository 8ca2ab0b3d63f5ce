"""The unit of work: a cache of rows by key, with their changes.

A row is read once and cached. Changes of a job are collected and written before the commit, with one `executemany` for
each table and kind of change. The row counts of all updates are checked at the end, so that no update waits for its
result. A statement on a table with pending changes writes those first, so that it sees them; a statement that changes
a table directly clears the cache of that table. The tables of a statement are found in its text.

A writer keeps its unit from one transaction to the next. Where processes share a store, the unit also records which
rows it changes; other writers drop these from their caches before they begin. After a rollback the whole cache is
cleared.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import astuple

from fledge.core.cluster import News
from fledge.errors import StaleWrite
from fledge.store.changes import ChangedRows, RowChanges

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")
S = TypeVar("S", bound=msgspec.Struct)

MOST: Final = 10_000
"""The most rows of a table that are cached from one transaction to the next."""
TOGETHER: Final = 32
"""The most rows that one statement inserts."""
LAST: Final = 2**63 - 1
"""Larger than any row number."""

_encode = msgspec.json.Encoder().encode
_VERB = re.compile(r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+(\w+)")
_WORD = re.compile(r"\w+")
_ANY: Final = "SELECT 1 FROM {} LIMIT 1"


def to_json(value: object) -> str:
    """JSON text, as the store has it."""
    return _encode(value).decode()


def json_decoder(kind: type[T]) -> Callable[[str], T]:
    """A function that reads values of this type from the JSON text of `to_json`."""
    return msgspec.json.Decoder(kind).decode


def marks(count: int) -> str:
    """The placeholders of so many values."""
    return ",".join("?" * count)


def insert_into(table: str, columns: str) -> str:
    """The statement that inserts a row with values for these columns."""
    return f"INSERT INTO {table} ({columns}) VALUES ({marks(len(columns.split(',')))})"


class Cursor(Protocol):
    """The rows that a statement found, or the number of rows it changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Database(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, args: Any = ..., /) -> Cursor: ...

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Cursor: ...


class TableShape(NamedTuple, Generic[V]):
    """How rows of a table are read and written. `insert` returns a statement with its values: a row is inserted
    without columns that have their defaults. `update` returns assignments, and values for them and for `found`: only
    columns that change are assigned, for each one that is rewrites its indexes."""

    name: str
    select: str
    read: Callable[[Sequence[Any]], V]
    insert: Callable[[V], tuple[str, Sequence[Any]]]
    update: Callable[[V, V], tuple[tuple[str, ...], Sequence[Any]]]
    found: str
    """The condition that finds the row of an update."""
    delete: str
    keeps: Callable[[V], bool] | None = None
    """Which rows stay cached after they are written; None: all."""
    group: Callable[[V], Any] | None = None
    """The group of a row, for memories by group (`Unit.memory`); None: rows have no group."""


def plain_shape(kind: type[S], name: str, *keys: str) -> "TableShape[S]":
    """The shape of a table whose columns are the fields of a struct, with these keys."""
    columns = kind.__struct_fields__
    others = [column for column in columns if column not in keys]
    found = " AND ".join(f"{key} = ?" for key in keys)
    listed = ", ".join(columns)
    insert = insert_into(name, listed)
    update = tuple(f"{column} = ?" for column in others)
    updated = attrgetter(*others, *keys)
    return TableShape(
        name=name,
        select=f"SELECT {listed} FROM {name} WHERE {found}",
        read=lambda row: kind(*row),
        insert=lambda row: (insert, astuple(row)),
        update=lambda before, after: (update, updated(after)),
        found=found,
        delete=f"DELETE FROM {name} WHERE {found}",
    )


class _Kept(dict[K, V | None]):
    """Rows by key, None where there is none. A row that is not here is read from the database."""

    __slots__ = ("_shape", "_unit")

    def __init__(self, unit: "Unit", shape: TableShape[V]) -> None:
        self._unit, self._shape = unit, shape

    def __missing__(self, key: K) -> V | None:
        # A changed row is kept, so this one is unchanged in the database: pending changes need not be written first.
        args = key if isinstance(key, tuple) else (key,)
        row = self._unit.db.execute(self._shape.select, args).fetchone()
        value = self[key] = None if row is None else self._shape.read(row)
        return value


class Table(Generic[K, V]):
    """Cached rows of one table by key; None: there is no such row."""

    __slots__ = ("_changed", "_shape", "_unit", "get", "kept")

    def __init__(self, unit: "Unit", shape: TableShape[V]) -> None:
        self._unit, self._shape = unit, shape
        self.kept: _Kept[K, V] = _Kept(unit, shape)
        self.get: Callable[[K], V | None] = self.kept.__getitem__
        """The row as it stands in this transaction. Asked more often than anything else: a kept row costs no call."""
        self._changed: dict[K, V | None] = {}
        """The stored values of changed rows."""
        unit.tables[shape.name] = self

    def ask(self, keys: Iterable[K]) -> Callable[[], None]:
        """Ask for these rows, unless they are kept; answers a function that reads and keeps them. A caller that asks
        for rows of several tables before it reads any waits for one round trip."""
        execute, select, kept = self._unit.db.execute, self._shape.select, self.kept
        missing = dict.fromkeys(key for key in keys if key not in kept)
        asked = [(key, execute(select, key if isinstance(key, tuple) else (key,))) for key in missing]

        def keep() -> None:
            for key, cursor in asked:
                row = cursor.fetchone()
                kept[key] = None if row is None else self._shape.read(row)

        return keep

    def put(self, key: K, value: V | None) -> None:
        """Set the row; None deletes it."""
        if key not in self._changed:
            before = self.kept[key]
            if not self._changed:
                self._unit.dirty.add(self._shape.name)
            self._changed[key] = before
        self.kept[key] = value

    def add(self, key: K, value: V) -> None:
        """Add a row with a new key; the database refuses a key that exists."""
        if self.kept.get(key) is not None or key in self._changed:
            raise StaleWrite(f"{self._shape.name}: {key} exists already")
        if not self._changed:
            self._unit.dirty.add(self._shape.name)
        self.kept[key] = value
        self._changed[key] = None

    def is_new(self, key: K) -> bool:
        """True if the row is not written yet."""
        return self._changed.get(key, self) is None

    def found(self, key: K, row: Sequence[Any]) -> V:
        """The value of a row that a statement found: the cached one, if there is one."""
        value = self.kept.get(key)
        if value is None:
            value = self.kept[key] = self._shape.read(row)
        return value

    def write(self) -> None:
        """Write the changes."""
        changed, self._changed = self._changed, {}
        shape, many = self._shape, self._unit.db.executemany
        if self._unit.changes is not None:
            self._unit.changes.add(shape.name, changed, self._groups(changed))
        gone: list[Any] = []
        inserts: dict[str, list[Any]] = {}
        updates: dict[tuple[str, ...], list[Any]] = {}
        for key, before in changed.items():
            after = self.kept[key]
            if after is None:
                if before is not None:
                    gone.append(key if isinstance(key, tuple) else (key,))
            elif before is None:
                sql, values = shape.insert(after)
                inserts.setdefault(sql, []).append(values)
            elif after is not before:
                sets, values = shape.update(before, after)
                updates.setdefault(sets, []).append(values)
        if gone:
            many(shape.delete, gone)
        for sql, rows in inserts.items():
            self._unit.insert(sql, rows)
        for sets, rows in updates.items():
            sql = f"UPDATE {shape.name} SET {', '.join(sets)} WHERE {shape.found}"
            self._unit.expect(many(sql, rows), len(rows), shape.name)
        if shape.keeps is not None:
            for key in changed:
                after = self.kept[key]
                if after is None or not shape.keeps(after):
                    del self.kept[key]

    def _groups(self, changed: dict[K, V | None]) -> Iterable[Any]:
        """The groups in which these rows were, and in which they are now."""
        if (group := self._shape.group) is None:
            return ()
        return {group(row) for key, before in changed.items() for row in (before, self.kept[key]) if row is not None}

    def drop(self, keys: Iterable[K]) -> None:
        """These rows are not known any more: another writer has changed them."""
        for key in keys:
            self.kept.pop(key, None)

    def forget(self) -> None:
        """Clear the cache; unwritten changes are lost."""
        self.kept.clear()
        self._changed = {}


class AppendedRows:
    """Appended rows of one table, which are never changed."""

    __slots__ = ("_insert", "_name", "_rows", "_unit")

    def __init__(self, unit: "Unit", name: str, insert: str) -> None:
        self._unit, self._name, self._insert = unit, name, insert
        self._rows: list[tuple[Any, ...]] = []
        unit.tables[name] = self

    def add(self, *values: Any) -> None:
        """Append a row."""
        if not self._rows:
            self._unit.dirty.add(self._name)
        self._rows.append(values)

    def write(self) -> None:
        """Write the appended rows."""
        rows, self._rows = self._rows, []
        if rows:
            self._unit.insert(self._insert, rows)
            if self._unit.changes is not None:
                self._unit.changes.add(self._name)

    def forget(self) -> None:
        """Discard the unwritten rows."""
        self._rows = []


class _Memory(NamedTuple):
    """Values computed from rows of a table."""

    table: str
    by: Literal["table", "key", "group"]
    values: dict[Any, Any]


class _Plan(NamedTuple):
    """The tables that a statement reads and changes."""

    touches: tuple[str, ...]
    changes: str
    """The table that it changes; empty if it only reads."""


class Unit:
    """The cache of one connection."""

    __slots__ = (
        *("_ahead", "_empty", "_expected", "_memories", "_plans", "_together"),
        *("changes", "db", "dirty", "is_remote", "news", "tables"),
    )

    def __init__(self, db: Database) -> None:
        self.db = db
        self.tables: dict[str, Table[Any, Any] | AppendedRows] = {}
        self.dirty: set[str] = set()
        """Tables with unwritten changes."""
        self.news: list[News] = []
        """News for other processes, sent after the commit; unused if there is only one process."""
        self.is_remote = False
        """Each result that is waited for costs a round trip, so what is needed soon is read together."""
        self.changes: RowChanges | None = None
        """Which rows this transaction has changed, jobs that were undone included; None where no other process
        writes."""
        self._ahead: dict[tuple[Any, ...], Cursor] = {}
        """By statement and values, results that were asked for ahead. Void once anything is written."""
        self._memories: list[_Memory] = []
        self._plans: dict[str, _Plan] = {}
        self._empty: dict[str, bool] = {}
        self._expected: list[tuple[Cursor, int, str]] = []
        """Updates, each with the number of rows that it must find, and its table."""
        self._together: dict[str, str] = {}

    # -- statements

    def execute(self, sql: str, *args: Any) -> Cursor:
        """Run a statement, after the pending changes of its tables."""
        plan = self._plans.get(sql) or self._plan(sql)
        if self.dirty:
            for name in plan.touches:
                self._write(name)
        if self._ahead and (sql, *args) in self._ahead:
            return self._ahead.pop((sql, *args))
        cursor = self.db.execute(sql, args)
        if plan.changes:
            self._changed(plan.changes)
        return cursor

    def one(self, sql: str, *args: Any) -> Any:
        """The first row of a statement, or None."""
        return self.execute(sql, *args).fetchone()

    def all(self, sql: str, *args: Any) -> list[Any]:
        """All rows of a statement."""
        return self.execute(sql, *args).fetchall()

    def number(self, sql: str, *args: Any) -> int:
        """The number in the first column of a statement's only row."""
        return int(self.execute(sql, *args).fetchone()[0])

    def column(self, sql: str, *args: Any) -> list[Any]:
        """The first column of all rows of a statement."""
        return [row[0] for row in self.execute(sql, *args).fetchall()]

    def ahead(self, *statements: tuple[Any, ...]) -> None:
        """Send statements, given with their values, that only read and are run soon: one round trip for all results."""
        if self.is_remote:
            self._ahead |= {statement: self.execute(*statement) for statement in statements}

    def all_of(self, *statements: tuple[Any, ...]) -> list[list[Any]]:
        """Every row that each of these statements finds, given with its values: one round trip."""
        if not self.is_remote:
            return [self.all(*statement) for statement in statements]
        return [cursor.fetchall() for cursor in [self.execute(*statement) for statement in statements]]

    def many(self, sql: str, rows: Iterable[Any]) -> None:
        """Run a statement that changes a table, once for each tuple of values."""
        plan = self._plans.get(sql) or self._plan(sql)
        for name in plan.touches:
            self._write(name)
        self.db.executemany(sql, rows)
        self._changed(plan.changes)

    def insert(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        """Insert rows, many with one statement: each statement releases the interpreter lock."""
        done = 0
        while len(rows) - done >= TOGETHER:
            together = self._together.get(sql) or self._join(sql)
            self.db.execute(together, list(chain.from_iterable(rows[done : done + TOGETHER])))
            done += TOGETHER
        if done < len(rows):
            self.db.executemany(sql, rows[done:] if done else rows)

    def _join(self, sql: str) -> str:
        head, values, rest = sql.partition(" VALUES ")
        row, bracket, tail = rest.partition(")")
        joined = self._together[sql] = f"{head}{values}{','.join([row + bracket] * TOGETHER)}{tail}"
        return joined

    def drop(self, table: str, key: str) -> None:
        """Delete one row of a cached table."""
        known = self.tables[table]
        assert isinstance(known, Table)
        known.put(key, None)

    def is_empty(self, table: str) -> bool:
        """True if the table has no rows. The answer is cached, so that an unused table costs no query in a commit."""
        empty = self._empty.get(table)
        if empty is None:
            empty = self._empty[table] = self.one(_ANY.format(table)) is None
        return empty

    def ask_empty(self, *tables: str) -> None:
        """Send the queries of `is_empty` for these tables ahead: their answers are needed soon."""
        self.ahead(*((_ANY.format(table),) for table in tables if table not in self._empty))

    def _plan(self, sql: str) -> _Plan:
        found = _VERB.match(sql)
        words = dict.fromkeys(_WORD.findall(sql))
        plan = self._plans[sql] = _Plan(tuple(word for word in words if word in self.tables), found[1] if found else "")
        return plan

    # -- the cache

    def memory(self, table: str, by: Literal["table", "key", "group"] = "table") -> dict[Any, Any]:
        """A dictionary for values derived from rows of a table; cleared with the cache of that table. When another
        writer has changed some of the rows, all values are dropped, or only those of the rows' keys, or of their
        groups."""
        memory = _Memory(table, by, {})
        self._memories.append(memory)
        return memory.values

    def _changed(self, table: str) -> None:
        """Clear the cache of a table that a statement has changed directly, and record that."""
        self._ahead.clear()
        if self.changes is not None:
            self.changes[table] = None
        self._lose(table)

    def _lose(self, table: str) -> None:
        """Clear the cache of a table."""
        self._empty.pop(table, None)
        known = self.tables.get(table)
        if known is not None:
            known.forget()
        for memory in self._memories:
            if memory.table == table:
                memory.values.clear()

    def drop_changed(self, changed: dict[str, ChangedRows | None]) -> None:
        """Another writer has changed these rows: their cached values, and values derived from these, are dropped."""
        for table, rows in changed.items():
            if rows is None:
                self._lose(table)
                continue
            self._empty.pop(table, None)
            known = self.tables.get(table)
            if isinstance(known, Table):
                known.drop(rows.keys)
            for memory in self._memories:
                if memory.table == table:
                    _drop_from(memory, rows)

    def _write(self, name: str) -> None:
        if name in self.dirty:
            self.dirty.discard(name)
            self._ahead.clear()
            self.tables[name].write()
            self._empty.pop(name, None)

    def expect(self, update: Cursor, rows: int, table: str) -> None:
        """Check at the next flush that the update has found this number of rows."""
        self._expected.append((update, rows, table))

    def flush(self) -> None:
        """Write all changes. Raises `StaleWrite` if a changed row is no longer as it was read."""
        self._ahead.clear()
        if self.dirty:
            for name in self.tables:
                self._write(name)
        expected, self._expected = self._expected, []
        for update, rows, table in expected:
            if update.rowcount != rows:
                raise StaleWrite(f"{table}: a row is not as it was read")

    def forget(self) -> None:
        """Clear the cache and discard all changes, after a rollback."""
        for table in self.tables.values():
            table.forget()
        for memory in self._memories:
            memory.values.clear()
        self.dirty.clear()
        self._ahead.clear()
        self.news.clear()
        self._empty.clear()
        self._expected.clear()

    def trim(self) -> None:
        """Clear the cache if it has too many rows."""
        kept = (table.kept for table in self.tables.values() if isinstance(table, Table))
        if any(len(rows) > MOST for rows in (*kept, *(memory.values for memory in self._memories))):
            self.forget()


def _drop_from(memory: _Memory, rows: ChangedRows) -> None:
    if memory.by == "table":
        memory.values.clear()
    for key in rows.keys if memory.by == "key" else rows.groups:
        memory.values.pop(key, None)


class Noun:
    """The operations of a job on the rows of one noun of the domain."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
