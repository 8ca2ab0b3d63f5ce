"""The engines of several processes on one store, and the work of each outside the database.

Rows are never cached: another connection than the writer's updates `seen_at` (`postgres_cluster`).
"""

from collections.abc import Collection
from typing import Any, Final

from msgspec.structs import asdict

from fledge.core.cluster import Member
from fledge.store.unit import Noun, insert_into, json_decoder, marks, to_json

# In the order of the fields of `Member`.
_COLUMNS: Final = (
    "id, host, pid, started_at, seen_at, lease_s, drives, drains, settings, limits, name, version, machine, born"
)
_INSERT: Final = insert_into("engines", _COLUMNS)
MEMBERS: Final = f"SELECT {_COLUMNS} FROM engines ORDER BY started_at, id"
_decode = json_decoder(dict[str, str])


class Engines(Noun):
    """The engines that share the store."""

    def all(self) -> list[Member]:
        """All engines that have not left, alive or not, oldest first."""
        return [_member(row) for row in self._unit.all(MEMBERS)]

    def join(self, one: Member) -> None:
        """Add this engine."""
        self.leave(one.id)
        values = asdict(one) | {"settings": to_json(one.settings), "limits": to_json(one.limits)}
        self._unit.execute(_INSERT, *values.values())

    def drain(self, engine: str) -> None:
        """Mark the engine as closing: it claims nothing further."""
        self._unit.execute("UPDATE engines SET drains = 1 WHERE id = ?", engine)

    def leave(self, engine: str) -> None:
        """Remove the engine."""
        self._unit.execute("DELETE FROM engines WHERE id = ?", engine)


def _member(row: Any) -> Member:
    drives, drains, settings, limits = row[6:10]
    values: list[Any] = [*row[:6], bool(drives), bool(drains), _decode(settings), _decode(limits), *row[10:]]
    return Member(*values)


class Errands(Noun):
    """Work of engines outside the database, by name."""

    def take(self, name: str, owner: str) -> bool:
        """Reserve the work for this engine; False if another one has it."""
        self._unit.execute("INSERT INTO errands (name, owner) VALUES (?,?) ON CONFLICT (name) DO NOTHING", name, owner)
        return bool(self._unit.one("SELECT 1 FROM errands WHERE name = ? AND owner = ?", name, owner))

    def end(self, name: str, owner: str) -> bool:
        """End the work of this engine; False if it did not have it."""
        return self._unit.execute("DELETE FROM errands WHERE name = ? AND owner = ?", name, owner).rowcount == 1

    def of(self, owner: str) -> list[str]:
        """The work of this engine."""
        return self._unit.column("SELECT name FROM errands WHERE owner = ? ORDER BY name", owner)

    def of_others(self, owner: str) -> set[str]:
        """The work of other engines."""
        return set(self._unit.column("SELECT name FROM errands WHERE owner <> ?", owner))

    def drop_all_but(self, owners: Collection[str]) -> int:
        """Free the work of all engines but these; returns how much."""
        sql = f"DELETE FROM errands WHERE owner NOT IN ({marks(len(owners))})"
        return self._unit.execute(sql, *owners).rowcount
