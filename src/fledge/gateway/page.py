"""The page: its files, and the headers that allow it nothing but what they name.

The files hold no data, so they alone are served without any proof. Only the files that lie in `fledge/web` when the
gateway starts can be requested, by their whole names; nothing is looked up on the disk later.
"""

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

FOLDER: Final = "/page/"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}
"""Scripts and styles come only from the gateway, none from the page's own markup; no script can turn text into
markup."""


def is_page(method: str, path: str) -> bool:
    """True of a request that needs no proof: reading the page's own files."""
    return method in ("GET", "HEAD") and (path == "/" or path.startswith(FOLDER))


def page_routes() -> list[BaseRoute]:
    """The routes of the page: `/`, and its parts under `/page/`."""
    routes: list[BaseRoute] = []
    for file in files("fledge.web").iterdir():
        kind = _TYPES.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else FOLDER + file.name
            routes.append(_route(path, file.read_bytes(), kind))
    return routes


def _route(path: str, body: bytes, kind: str) -> Route:
    async def give(request: Request) -> Response:
        return Response(body, media_type=kind, headers=HEADERS)

    return Route(path, give, methods=["GET"])
