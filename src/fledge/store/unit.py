"""The unit of work: rows as values, by their keys, and what was changed of them.

A row is read once and kept. What a job changes waits here and is written before the commit: one `executemany` for each
table and kind of change. Each update is checked by the number of rows it found once all is written, so that nobody
waits for the result of each. A statement that looks at a table with changes waiting writes them first, so that it finds
them; one that changes a table by itself makes all that was kept of it unknown. Which tables a statement touches is read
from its words.

The only writer keeps its unit from one transaction to the next: nobody else writes, so what it wrote last is what is
stored. Whenever anything is undone, everything is forgotten.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from fledge.core.cluster import News
from fledge.errors import StaleWrite

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=msgspec.Struct)

MOST: Final = 10_000
"""How many rows of a table are kept from one transaction to the next."""
TOGETHER: Final = 16
"""How many rows one statement inserts, where there are so many."""
LAST: Final = 2**63 - 1
"""Larger than any number of a row."""

_encode = msgspec.json.Encoder().encode
_VERB = re.compile(r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+(\w+)")
_WORD = re.compile(r"\w+")


def to_json(value: object) -> str:
    """JSON text as the store keeps it."""
    return _encode(value).decode()


class Cursor(Protocol):
    """What a statement found, or how many rows it changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Database(Protocol):
    """A connection inside a transaction."""

    def execute(self, sql: str, args: Any = ..., /) -> Cursor: ...

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Cursor: ...


class TableShape(NamedTuple, Generic[V]):
    """How the rows of a table are read and written. `update` answers a statement and its values, so that columns which
    indexes are made of are written only when they change."""

    name: str
    select: str
    read: Callable[[Sequence[Any]], V]
    insert: str
    values: Callable[[V], tuple[Any, ...]]
    update: Callable[[V, V], tuple[str, tuple[Any, ...]]]
    delete: str
    keeps: Callable[[V], bool] | None = None
    """Which rows are worth keeping once they are written; None: all."""


def plain_shape(kind: type[S], name: str, *keys: str) -> "TableShape[S]":
    """The shape of a table whose columns are the fields of a struct, found by these."""
    columns = kind.__struct_fields__
    others = [column for column in columns if column not in keys]
    found = " AND ".join(f"{key} = ?" for key in keys)
    update = f"UPDATE {name} SET {', '.join(f'{column} = ?' for column in others)} WHERE {found}"
    in_update = [*others, *keys]
    return TableShape(
        name=name,
        select=f"SELECT {', '.join(columns)} FROM {name} WHERE {found}",
        read=lambda row: kind(*row),
        insert=f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({','.join('?' * len(columns))})",
        values=lambda row: tuple(getattr(row, column) for column in columns),
        update=lambda before, after: (update, tuple(getattr(after, column) for column in in_update)),
        delete=f"DELETE FROM {name} WHERE {found}",
    )


class Table(Generic[K, V]):
    """Rows of one table by their keys; None where there is none."""

    __slots__ = ("_changed", "_is_small", "_is_whole", "_shape", "_unit", "kept")

    def __init__(self, unit: "Unit", shape: TableShape[V], is_small: bool = False) -> None:
        self._unit, self._shape, self._is_small = unit, shape, is_small
        self._is_whole = False
        """All rows are kept: what is not among them is not stored. So it is with a table that is always small."""
        self.kept: dict[K, V | None] = {}
        self._changed: dict[K, V | None] = {}
        """What was stored of rows that were changed since."""
        unit.tables[shape.name] = self

    def get(self, key: K) -> V | None:
        """The row as it stands in this transaction."""
        try:
            return self.kept[key]
        except KeyError:
            return self._look_up(key)

    def _look_up(self, key: K) -> V | None:
        if self._is_whole:
            return None
        if self._is_small:
            self._load()
            return self.kept.get(key)
        # A row that was changed is kept, so what is looked for is stored as it is: nothing need be written first.
        args = key if isinstance(key, tuple) else (key,)
        row = self._unit.db.execute(self._shape.select, args).fetchone()
        value = self.kept[key] = None if row is None else self._shape.read(row)
        return value

    def _load(self) -> None:
        sql = self._shape.select.partition(" WHERE ")[0]
        for row in self._unit.all(f"{sql} LIMIT {MOST}"):
            self.found(row[0], row)
        self._is_whole = True

    def put(self, key: K, value: V | None) -> None:
        """From now on this is the row; None: there is none."""
        if key not in self._changed:
            before = self.kept[key] if key in self.kept else self._look_up(key)  # which may write what waits
            if not self._changed:
                self._unit.dirty.add(self._shape.name)
            self._changed[key] = before
        self.kept[key] = value

    def add(self, key: K, value: V) -> None:
        """A row whose key was never used: the database refuses it if it was."""
        if self.kept.get(key) is not None or key in self._changed:
            raise StaleWrite(f"{self._shape.name}: {key} exists already")
        if not self._changed:
            self._unit.dirty.add(self._shape.name)
        self.kept[key] = value
        self._changed[key] = None

    def is_new(self, key: K) -> bool:
        """True of a row that is not stored yet."""
        return self._changed.get(key, self) is None

    def found(self, key: K, row: Sequence[Any]) -> V:
        """A row that a statement has found: the kept one, if it is."""
        value = self.kept.get(key)
        if value is None:
            value = self.kept[key] = self._shape.read(row)
        return value

    def write(self) -> None:
        """Write what was changed."""
        changed, self._changed = self._changed, {}
        shape, many = self._shape, self._unit.db.executemany
        gone: list[Any] = []
        new: list[Any] = []
        updates: dict[str, list[Any]] = {}
        for key, before in changed.items():
            after = self.kept[key]
            if after is None:
                if before is not None:
                    gone.append(key if isinstance(key, tuple) else (key,))
            elif before is None:
                new.append(shape.values(after))
            elif after is not before:
                sql, values = shape.update(before, after)
                updates.setdefault(sql, []).append(values)
        if gone:
            many(shape.delete, gone)
        if new:
            self._unit.insert(shape.insert, new)
        for sql, rows in updates.items():
            self._unit.expect(many(sql, rows), len(rows), shape.name)
        if shape.keeps is not None:
            for key in changed:
                after = self.kept[key]
                if after is None or not shape.keeps(after):
                    del self.kept[key]

    def forget(self) -> None:
        """What is stored is not known any more; what was changed and not written is lost."""
        self.kept = {}
        self._changed = {}
        self._is_whole = False


class AppendedRows:
    """Rows that are only appended."""

    __slots__ = ("_insert", "_name", "_rows", "_unit")

    def __init__(self, unit: "Unit", name: str, insert: str) -> None:
        self._unit, self._name, self._insert = unit, name, insert
        self._rows: list[tuple[Any, ...]] = []
        unit.tables[name] = self

    def add(self, *values: Any) -> None:
        """One row more."""
        if not self._rows:
            self._unit.dirty.add(self._name)
        self._rows.append(values)

    def write(self) -> None:
        """Write what was appended."""
        rows, self._rows = self._rows, []
        if rows:
            self._unit.insert(self._insert, rows)

    def forget(self) -> None:
        """What was appended and not written is lost."""
        self._rows = []


class _Plan(NamedTuple):
    """What a statement does to tables of the unit."""

    touches: tuple[str, ...]
    changes: str
    """The table it changes; empty if it only reads."""


class Unit:
    """The rows of one connection."""

    __slots__ = ("_empty", "_expected", "_memories", "_plans", "_together", "db", "dirty", "news", "tables")

    def __init__(self, db: Database) -> None:
        self.db = db
        self.tables: dict[str, Table[Any, Any] | AppendedRows] = {}
        self.dirty: set[str] = set()
        """Tables with changes that wait to be written."""
        self.news: list[News] = []
        """What waits to be told to other processes; a store that has none of them is told nothing."""
        self._memories: list[tuple[str, dict[Any, Any]]] = []
        self._plans: dict[str, _Plan] = {}
        self._empty: dict[str, bool] = {}
        self._expected: list[tuple[Cursor, int, str]] = []
        """Updates of rows, how many each must have found, and of which table."""
        self._together: dict[str, str] = {}

    # -- statements

    def execute(self, sql: str, *args: Any) -> Cursor:
        """Run a statement, after what waits for the tables it touches."""
        plan = self._plans.get(sql) or self._plan(sql)
        if self.dirty:
            for name in plan.touches:
                self._write(name)
        cursor = self.db.execute(sql, args)
        if plan.changes:
            self._changed(plan.changes)
        return cursor

    def one(self, sql: str, *args: Any) -> Any:
        """The first row that a statement finds, or None."""
        return self.execute(sql, *args).fetchone()

    def all(self, sql: str, *args: Any) -> list[Any]:
        """Every row that a statement finds."""
        return self.execute(sql, *args).fetchall()

    def column(self, sql: str, *args: Any) -> list[Any]:
        """The first column of every row that a statement finds."""
        return [row[0] for row in self.execute(sql, *args).fetchall()]

    def many(self, sql: str, rows: Iterable[Any]) -> None:
        """Run a statement that changes a table, once for each of these."""
        plan = self._plans.get(sql) or self._plan(sql)
        for name in plan.touches:
            self._write(name)
        self.db.executemany(sql, rows)
        self._changed(plan.changes)

    def insert(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        """Insert rows, many by one statement: each statement gives other threads a turn."""
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
        """Delete one row of a table that is kept by its keys."""
        known = self.tables[table]
        assert isinstance(known, Table)
        known.put(key, None)

    def is_empty(self, table: str) -> bool:
        """True if the table has no row: what nobody uses is not looked for in every commit."""
        empty = self._empty.get(table)
        if empty is None:
            empty = self._empty[table] = self.one(f"SELECT 1 FROM {table} LIMIT 1") is None
        return empty

    def _plan(self, sql: str) -> _Plan:
        found = _VERB.match(sql)
        words = dict.fromkeys(_WORD.findall(sql))
        plan = self._plans[sql] = _Plan(tuple(word for word in words if word in self.tables), found[1] if found else "")
        return plan

    # -- what is known

    def memory(self, table: str) -> dict[Any, Any]:
        """A dictionary for what follows from rows of a table; emptied when those are not known any more."""
        memory: dict[Any, Any] = {}
        self._memories.append((table, memory))
        return memory

    def _changed(self, table: str) -> None:
        """A statement has changed rows of this table by itself."""
        self._empty.pop(table, None)
        known = self.tables.get(table)
        if known is not None:
            known.forget()
        for name, memory in self._memories:
            if name == table:
                memory.clear()

    def _write(self, name: str) -> None:
        if name in self.dirty:
            self.dirty.discard(name)
            self.tables[name].write()
            self._empty.pop(name, None)

    def expect(self, update: Cursor, rows: int, table: str) -> None:
        """The update must have found so many rows; that is checked by the next flush."""
        self._expected.append((update, rows, table))

    def flush(self) -> None:
        """Write all that waits. StaleWrite: a row that was changed is not stored as it was read."""
        if self.dirty:
            for name in self.tables:
                self._write(name)
        expected, self._expected = self._expected, []
        for update, rows, table in expected:
            if update.rowcount != rows:
                raise StaleWrite(f"{table}: a row is not as it was read")

    def forget(self) -> None:
        """Something was undone: nothing is known any more, and nothing waits."""
        for table in self.tables.values():
            table.forget()
        for _, memory in self._memories:
            memory.clear()
        self.dirty.clear()
        self.news.clear()
        self._empty.clear()
        self._expected.clear()

    def trim(self) -> None:
        """Forget everything, once there is too much of it."""
        kept = (table.kept for table in self.tables.values() if isinstance(table, Table))
        if any(len(rows) > MOST for rows in (*kept, *(memory for _, memory in self._memories))):
            self.forget()
