"""`GET /artifacts/<run>/<name>` and `GET /attachments/<session>/<name>`: a file that a run handed over, or that came
with a message, for download alone.

A run's file lies where an agent could write, so files are read through `confine`, by descriptors and never through a
link; and whatever type a file claims to have, a browser may only save it.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fledge.api.views import handed_over, session_key
from fledge.commands.gateway_state import GatewayState
from fledge.core.protected import UNPROTECTED, Protected
from fledge.core.value import Value
from fledge.errors import BadInput, NotFound
from fledge.store.base import Tx
from fledge.workspaces.artifacts import read_artifact

MOST_BYTES: Final = 64 * 1024 * 1024
HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class DownloadPlace(Value):
    """The place of files to download: a folder beneath a root, and the paths that are hidden there."""

    root: str
    folder: str
    protected: Protected


async def download(
    gateway: GatewayState, place: Callable[[GatewayState, Tx, str], DownloadPlace], request: Request
) -> Response:
    """A file that a run handed over, or that came with a message of a session, as a download; otherwise the error."""
    of, name = request.path_params["of"], request.path_params["name"]
    try:
        found = await gateway.read(lambda tx: place(gateway, tx, of))
        data, size = await asyncio.to_thread(read_artifact, found.root, found.folder, name, MOST_BYTES, found.protected)
    except (NotFound, BadInput) as error:
        return JSONResponse({"error": str(error)}, 404, HEADERS)
    if size > MOST_BYTES:
        words = f"{size} bytes: at most {MOST_BYTES} are sent; it lies in {found.root}/{found.folder}"
        return JSONResponse({"error": words}, 413, HEADERS)
    shown = f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}"
    return Response(data, media_type="application/octet-stream", headers={**HEADERS, "content-disposition": shown})


def attachments(gateway: GatewayState, tx: Tx, name: str) -> DownloadPlace:
    """The folder with the files that came with messages of a session."""
    key = session_key(name, "session")
    session = tx.sessions.get(key)
    if session is None or session.deleted:
        raise NotFound(f"no session {name[:80]!r}")
    folder = gateway.fl.profiles.images.attached_to(key)
    return DownloadPlace(str(folder.parent), folder.name, UNPROTECTED)


def artifacts(gateway: GatewayState, tx: Tx, name: str) -> DownloadPlace:
    """The workspace of a run, and the folder in it that holds the files that it handed over."""
    known = tx.runs.named(name)
    key = name if known is None else known[0]
    session = tx.sessions.get(key) if tx.runs.find(key) is not None else None
    handover = None if session is None else handed_over(tx, key)
    if session is None or handover is None or not handover.folder:
        raise NotFound(f"no run {name[:80]!r} has handed over files")
    root = handover.folder.removesuffix(f"/{session.facts.artifacts}")
    return DownloadPlace(root, session.facts.artifacts, gateway.fl.profiles.protected)
