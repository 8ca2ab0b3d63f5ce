"""Heartbeats: wakes and periodic turns of conversations."""

from msgspec.structs import astuple

from fledge.core.run import Instant
from fledge.store.records import HeartbeatRow
from fledge.store.unit import Noun

_HEARTBEAT = "session, cause, reason, due_at, held, beat_at, said, said_at"


class Heartbeats(Noun):
    """Heartbeats by session."""

    def get(self, session: str) -> HeartbeatRow | None:
        """The heartbeat of this conversation; None if it never had one."""
        if self._unit.is_empty("heartbeats"):
            return None
        row = self._unit.one(f"SELECT {_HEARTBEAT} FROM heartbeats WHERE session = ?", session)
        return None if row is None else HeartbeatRow(*row)

    def save(self, heartbeat: HeartbeatRow) -> None:
        """Store a heartbeat."""
        self._unit.execute("DELETE FROM heartbeats WHERE session = ?", heartbeat.session)
        self._unit.execute(
            f"INSERT INTO heartbeats ({_HEARTBEAT}) VALUES (?,?,?,?,?,?,?,?)",
            *astuple(heartbeat),
        )

    def due(self, at: Instant, limit: int) -> list[str]:
        """Sessions whose wake or periodic heartbeat is due, the longest overdue first."""
        if self._unit.is_empty("heartbeats"):
            return []
        return self._unit.column(
            "SELECT session FROM (SELECT session, due_at AS due FROM heartbeats WHERE due_at <= ?"
            " UNION ALL SELECT session, beat_at FROM heartbeats WHERE beat_at <= ?) AS wanted"
            " GROUP BY session ORDER BY min(due), session LIMIT ?",
            *(at, at, limit),
        )
