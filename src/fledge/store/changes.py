"""Which rows a transaction has changed. Each commit on a shared store keeps this as one JSON text beside the rows.

The next writer of another process reads it and drops exactly these rows from its memory. For each table there are the
keys of the changed rows and their groups (the sessions whose inbox they are in, for example), or nothing: then any row
of the table may have changed.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

MOST_KEYS: Final = 1000
"""How many changed rows of a table are named; of more, any row may have changed."""


class ChangedRows(NamedTuple):
    """The changed rows of one table."""

    keys: set[str | int | tuple[str | int, ...]]
    groups: set[str | None]


class RowChanges(dict[str, ChangedRows | None]):
    """The changed rows of a transaction, by table; None: any row of it may have changed."""

    __slots__ = ()

    def add(self, table: str, keys: Iterable[Any] = (), groups: Iterable[Any] = ()) -> None:
        """These rows were inserted, updated or deleted. Without keys: rows were appended that no writer remembers."""
        found = self.setdefault(table, ChangedRows(set(), set()))
        if found is not None:
            found.keys.update(keys)
            found.groups.update(groups)
            if len(found.keys) > MOST_KEYS:
                self[table] = None

    def encode(self) -> str:
        """The changes as JSON."""
        return msgspec.json.encode(self).decode()


decode: Final = msgspec.json.Decoder(dict[str, ChangedRows | None]).decode
"""The changed rows of a commit, by table."""
