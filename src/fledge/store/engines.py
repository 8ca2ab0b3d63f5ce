"""Engines of several processes on one store: who they are, and what each does outside the database.

Rows are read by statements and never kept: an engine's `seen_at` is written beside the writer (`postgres_cluster`).
"""

from collections.abc import Collection
from typing import Any, Final

import msgspec

from fledge.core.cluster import Member
from fledge.store.unit import Unit, to_json

_COLUMNS: Final = "id, host, pid, started_at, seen_at, lease_s, drives, drains, settings, limits"
_decode = msgspec.json.Decoder(dict[str, str]).decode


class Engines:
    """The engines that share the store."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def all(self) -> list[Member]:
        """Every engine that has not left, alive or not, the oldest first."""
        return [_member(row) for row in self._unit.all(f"SELECT {_COLUMNS} FROM engines ORDER BY started_at, id")]

    def join(self, one: Member) -> None:
        """From now on this engine is one of them."""
        self.leave(one.id)
        self._unit.execute(
            f"INSERT INTO engines ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)",
            *(one.id, one.host, one.pid, one.started_at, one.seen_at, one.lease_s, int(one.drives), int(one.drains)),
            *(to_json(one.settings), to_json(one.limits)),
        )

    def drain(self, engine: str) -> None:
        """It is closing, and takes nothing more."""
        self._unit.execute("UPDATE engines SET drains = 1 WHERE id = ?", engine)

    def leave(self, engine: str) -> None:
        """It is gone."""
        self._unit.execute("DELETE FROM engines WHERE id = ?", engine)


def _member(row: Any) -> Member:
    engine, host, pid, started_at, seen_at, lease_s, drives, drains, settings, limits = row
    return Member(
        *(engine, host, pid, started_at, seen_at, lease_s, bool(drives), bool(drains)),
        settings=_decode(settings),
        limits=_decode(limits),
    )


class Errands:
    """What engines do outside the database now, by name."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def take(self, name: str, owner: str) -> bool:
        """Let this engine do it; False if another one does."""
        self._unit.execute("INSERT INTO errands (name, owner) VALUES (?,?) ON CONFLICT (name) DO NOTHING", name, owner)
        return bool(self._unit.one("SELECT 1 FROM errands WHERE name = ? AND owner = ?", name, owner))

    def end(self, name: str, owner: str) -> bool:
        """This engine does it no more; False if it was not this engine's."""
        return self._unit.execute("DELETE FROM errands WHERE name = ? AND owner = ?", name, owner).rowcount == 1

    def of(self, owner: str) -> list[str]:
        """What this engine does."""
        return self._unit.column("SELECT name FROM errands WHERE owner = ? ORDER BY name", owner)

    def of_others(self, owner: str) -> set[str]:
        """What other engines do."""
        return set(self._unit.column("SELECT name FROM errands WHERE owner <> ?", owner))

    def drop_all_but(self, owners: Collection[str]) -> int:
        """What engines other than these did may be done by anybody; answers how much that is."""
        marks = ",".join("?" * len(owners))
        return self._unit.execute(f"DELETE FROM errands WHERE owner NOT IN ({marks})", *owners).rowcount
