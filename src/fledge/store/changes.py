"""Which rows a transaction has changed. Each commit on a shared store keeps this as one JSON text beside the rows.

The next writer of another process reads it and drops exactly these rows from its memory. For each table there are the
keys of the changed rows and their groups (the sessions whose inbox they are in, for example), or nothing: then any row
of the table may have changed.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

MOST_KEYS: Final = 1000
"""How many changed rows of a table are named; of more, any row may have changed."""


class ChangedRows(NamedTuple):
    """The changed rows of one table."""

    keys: list[Any]
    groups: list[Any]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, ChangedRows | None]).decode


class RowChanges:
    """The changed rows of a transaction, by table."""

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[str, tuple[set[Any], set[Any]] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._tables)

    def add(self, table: str, keys: Iterable[Any] = (), groups: Iterable[Any] = ()) -> None:
        """These rows were inserted, updated or deleted. Without keys: rows were appended that no writer remembers."""
        found = self._tables.setdefault(table, (set(), set()))
        if found is not None:
            found[0].update(keys)
            found[1].update(groups)
            if len(found[0]) > MOST_KEYS:
                self.add_all(table)

    def add_all(self, table: str) -> None:
        """Any row of the table may have changed."""
        self._tables[table] = None

    def clear(self) -> None:
        """Nothing was changed."""
        self._tables.clear()

    def encode(self) -> str:
        """The changes as JSON."""
        return _encode(
            {name: None if rows is None else (*map(list, rows),) for name, rows in self._tables.items()}
        ).decode()


def decode(text: str) -> Iterator[tuple[str, ChangedRows | None]]:
    """The tables that a commit has changed, and the rows of each; None: any row."""
    for table, rows in _decode(text).items():
        if rows is not None:  # JSON has no tuples
            rows = ChangedRows([tuple(key) if isinstance(key, list) else key for key in rows.keys], rows.groups)
        yield table, rows
