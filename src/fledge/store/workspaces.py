"""Workspaces: what is known of their documents, and which sessions' drives may write in them now."""

from typing import Final

import msgspec
from msgspec import Struct

from fledge.core.documents import Workspace
from fledge.core.run import Instant
from fledge.store.unit import Table, TableShape, Unit, plain_shape, to_json

_decode = msgspec.json.Decoder(Workspace).decode


class _Worker(Struct, frozen=True, gc=False):
    """A drive that may write."""

    session: str
    workspace: str
    since: Instant


_WORKSPACES: Final = TableShape(
    name="workspaces",
    select="SELECT state FROM workspaces WHERE path = ?",
    read=lambda row: _decode(row[0]),
    insert="INSERT INTO workspaces (path, state) VALUES (?,?)",
    values=lambda workspace: (workspace.path, to_json(workspace)),
    update=lambda before, after: ("UPDATE workspaces SET state = ? WHERE path = ?", (to_json(after), after.path)),
    delete="DELETE FROM workspaces WHERE path = ?",
)
_WORKERS: Final = plain_shape(_Worker, "workers", "session")


class Workspaces:
    """Workspaces by their real paths."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._rows: Table[str, Workspace] = Table(unit, _WORKSPACES)
        self._workers: Table[str, _Worker] = Table(unit, _WORKERS, is_small=True)

    def get(self, path: str) -> Workspace | None:
        """What is known of a workspace, by its real path."""
        return self._rows.get(path)

    def save(self, workspace: Workspace) -> None:
        """Store what is known of a workspace."""
        self._rows.put(workspace.path, workspace)

    def begin_work(self, session: str, workspace: str, at: Instant) -> None:
        """The session's drive may write in this workspace from now on; one that does so already changes nothing."""
        if self._workers.get(session) is None:
            self._workers.put(session, _Worker(session, workspace, at))

    def end_work(self, session: str) -> tuple[str, Instant] | None:
        """The session's drive is over: where it could write, and since when; None if it could nowhere."""
        worker = self._workers.get(session)
        if worker is None:
            return None
        self._workers.put(session, None)
        return worker.workspace, worker.since

    def at_work(self) -> list[tuple[str, Instant]]:
        """Workspaces in which drives may write now, and since when, by session."""
        return [(row[0], row[1]) for row in self._unit.all("SELECT workspace, since FROM workers ORDER BY session")]
