"""Workspaces: the versions of their documents, and when agents were at work in them."""

from typing import Final

from fledge.core.documents import Workspace
from fledge.store.unit import TableShape, json_decoder, to_json

_decode = json_decoder(Workspace)

WORKSPACES: Final = TableShape(
    name="workspaces",
    select="SELECT state FROM workspaces WHERE path = ?",
    read=lambda row: _decode(row[0]),
    insert=lambda workspace: (
        "INSERT INTO workspaces (path, state) VALUES (?,?)",
        (workspace.path, to_json(workspace)),
    ),
    update=lambda before, after: (("state = ?",), (to_json(after), after.path)),
    found="path = ?",
    delete="DELETE FROM workspaces WHERE path = ?",
)
