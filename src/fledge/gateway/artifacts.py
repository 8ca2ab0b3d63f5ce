"""`GET /artifacts/<run>/<name>`: a file that a run handed over, for download alone.

The file lies where an agent could write, so it is read through `confine`, by descriptors and never through a link, and
whatever it says it is, a browser may only save it.
"""

import asyncio
from typing import Final
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from fledge.api.views import handed_over
from fledge.commands.desk import Desk
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


async def artifact(desk: Desk, run: str, name: str) -> Response:
    """The file, as something to save; or why there is none."""
    try:
        workspace, folder = await desk.read(lambda tx: _place(tx, run))
        hidden = desk.fl.profiles.protected
        data, size = await asyncio.to_thread(read_artifact, workspace, folder, name, MOST_BYTES, hidden)
    except (NotFound, BadInput) as error:
        return JSONResponse({"error": str(error)}, 404, HEADERS)
    if size > MOST_BYTES:
        words = f"{size} bytes: at most {MOST_BYTES} are sent; it lies in {workspace}/{folder}"
        return JSONResponse({"error": words}, 413, HEADERS)
    shown = f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}"
    return Response(data, media_type="application/octet-stream", headers={**HEADERS, "content-disposition": shown})


def _place(tx: Tx, name: str) -> tuple[str, str]:
    """The workspace of a run, and where in it the files lie that it handed over."""
    known = tx.runs.named(name)
    key = name if known is None else known[0]
    session = tx.sessions.get(key) if tx.runs.find(key) is not None else None
    goods = None if session is None else handed_over(tx, key)
    if session is None or goods is None or not goods.folder:
        raise NotFound(f"no run {name[:80]!r} has handed over files")
    return goods.folder.removesuffix(f"/{session.facts.artifacts}"), session.facts.artifacts
