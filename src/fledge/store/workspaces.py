"""Workspaces: the versions of their documents, and when agents were at work in them."""

from typing import Final

import msgspec

from fledge.core.documents import Workspace
from fledge.store.unit import Table, TableShape, Unit, to_json

_decode = msgspec.json.Decoder(Workspace).decode

_WORKSPACES: Final = TableShape(
    name="workspaces",
    select="SELECT state FROM workspaces WHERE path = ?",
    read=lambda row: _decode(row[0]),
    insert="INSERT INTO workspaces (path, state) VALUES (?,?)",
    values=lambda workspace: (workspace.path, to_json(workspace)),
    update=lambda before, after: ("UPDATE workspaces SET state = ? WHERE path = ?", (to_json(after), after.path)),
    delete="DELETE FROM workspaces WHERE path = ?",
)


class Workspaces:
    """Workspaces by their real paths."""

    def __init__(self, unit: Unit) -> None:
        self._rows: Table[str, Workspace] = Table(unit, _WORKSPACES)

    def get(self, path: str) -> Workspace | None:
        """The workspace with this real path, if it is stored."""
        return self._rows.get(path)

    def save(self, workspace: Workspace) -> None:
        """Store a workspace."""
        self._rows.put(workspace.path, workspace)
