"""The web application: what is at which address, and the door in front of all of it.

`POST /rpc` and the WebSocket `/ws` speak JSON-RPC, `GET /events` is a feed, `/health`, `/metrics` and `/schema` are for
machines, `POST /channels/{name}` takes what channels post to us, `/` is the page. Everything passes the door, which
lets nothing else happen before it has looked at names, origins, the token and the rate; what comes from a channel
proves itself by its signature, and the page's files, which hold no data, are anybody's.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from fledge.api.views import session_key
from fledge.channels.inbound import inbound, read_incoming
from fledge.errors import BadInput, FledgeError, NotFound, Refused
from fledge.gateway import people, rpc, subagents  # noqa: F401  (they fill the table of methods)
from fledge.gateway.auth import Door, Rate, Rejection
from fledge.gateway.desk import Desk
from fledge.gateway.feed import Wanted
from fledge.gateway.metrics import exposition
from fledge.gateway.page import is_page, page_routes
from fledge.gateway.rpc import Fault, fault_of
from fledge.gateway.socket import converse
from fledge.gateway.stream import EventStream
from fledge.gateway.table import call, schema
from fledge.models.keys import Key

BURST: Final = 4
"""How many seconds' worth of requests may come at once."""
STRANGERS_PER_SECOND: Final = 10.0
"""How often those may knock who are not let in."""
CHANNELS: Final = "/channels/"


class Gate:
    """The door as a layer around the application, for requests and sockets alike."""

    def __init__(self, app: ASGIApp, desk: Desk, door: Door, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._desk, self._door, self._clock = app, desk, door, clock
        per_second = desk.limits.requests_per_second
        self._rate = Rate(per_second, BURST * per_second)
        self._readers = Rate(per_second, BURST * per_second)
        self._strangers = Rate(STRANGERS_PER_SECOND, BURST * STRANGERS_PER_SECOND)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in, or say why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        rejection = self._refuse(scope)
        if rejection is None:
            await self._app(scope, receive, send)
            return
        self._desk.rejections += 1
        await _turn_away(rejection, scope, receive, send)

    def _refuse(self, scope: Scope) -> Rejection | None:
        client = (scope.get("client") or ("unknown", 0))[0]
        now = self._clock()
        http = scope["type"] == "http"
        reads = http and is_page(scope["method"], scope["path"])
        proven = reads or (http and scope["path"].startswith(CHANNELS))
        rejection = self._door.refuse(scope["headers"], proven, opens=reads and scope["path"] == "/")
        # Whoever shows nothing cannot use up what those have who do: on one machine all come from one address.
        rate = self._strangers if rejection is not None else self._readers if reads else self._rate
        if rate.take(client, now):
            return Rejection(429, "too many requests: wait a moment")
        if rejection is None and self._desk.closing.is_set():
            return Rejection(503, "the gateway is closing")
        return rejection


async def _turn_away(rejection: Rejection, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"www-authenticate": "Bearer"} if rejection.status == 401 else {}
    headers |= {"retry-after": "5"} if rejection.status in (429, 503) else {}
    response = JSONResponse({"error": rejection.words}, rejection.status, headers | {"connection": "close"})
    if scope["type"] == "websocket":
        await receive()
        await response(scope, receive, send)  # as an answer to the request that would have opened the socket
        return
    await response(scope, receive, send)


def make_app(desk: Desk, door: Door, secrets: Mapping[str, Key], routes: tuple[BaseRoute, ...] = ()) -> ASGIApp:
    """The application of this gateway; `routes` are more places, such as a page. `secrets` are those of channels."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield

    published = msgspec.json.encode(schema())

    async def on_rpc(request: Request) -> Response:
        body = await _body(request, desk)
        if isinstance(body, Response):
            return body
        desk.requests += 1
        told = await rpc.answer(body, lambda name, given: call(desk, name, given))
        return Response(status_code=204) if told is None else Response(told, media_type="application/json")

    async def on_health(request: Request) -> Response:
        return JSONResponse(await call(desk, "health", {}))

    async def on_schema(request: Request) -> Response:
        return Response(published, media_type="application/json")

    async def on_metrics(request: Request) -> Response:
        return PlainTextResponse(await exposition(desk), media_type="text/plain; version=0.0.4")

    async def on_events(request: Request) -> Response:
        try:
            return EventStream(desk, _wanted(request))
        except (BadInput, Fault) as error:
            fault = fault_of(error)
            return JSONResponse({"error": fault.message, **fault.data}, 429 if fault.code == rpc.TOO_MANY else 400)

    async def on_channel(request: Request) -> Response:
        return await _heard(request, desk, secrets)

    async def on_socket(websocket: Any) -> None:
        await converse(desk, websocket)

    places: list[BaseRoute] = [
        Route("/rpc", on_rpc, methods=["POST"]),
        WebSocketRoute("/ws", on_socket),
        Route("/events", on_events, methods=["GET"]),
        Route("/health", on_health, methods=["GET"]),
        Route("/metrics", on_metrics, methods=["GET"]),
        Route("/schema", on_schema, methods=["GET"]),
        Route(CHANNELS + "{name}", on_channel, methods=["POST"]),
        *page_routes(),
        *routes,
    ]
    return Gate(Starlette(routes=places, lifespan=lifespan, exception_handlers={Exception: _trouble}), desk, door)


async def _trouble(request: Request, error: Exception) -> Response:
    fault = fault_of(error)
    return JSONResponse({"error": fault.message}, 500)


async def _body(request: Request, desk: Desk) -> bytes | Response:
    """The request's body, or the answer to one that is too large, too slow, or breaks off."""
    most = desk.limits.max_body_kb * 1024
    told = request.headers.get("content-length", "0")
    if not told.isdecimal() or int(told) > most:
        return JSONResponse({"error": f"at most {desk.limits.max_body_kb} KiB: gateway.maxBodyKb"}, 413)
    body = bytearray()
    try:
        async with asyncio.timeout(desk.patience.body_s):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    return JSONResponse({"error": f"at most {desk.limits.max_body_kb} KiB: gateway.maxBodyKb"}, 413)
    except TimeoutError:
        return JSONResponse({"error": "the request took too long to come"}, 408, {"connection": "close"})
    return bytes(body)


def _wanted(request: Request) -> Wanted:
    given = request.query_params
    for name in given:
        if name not in ("cursor", "session", "live"):
            raise BadInput(name[:80], "there is no such parameter: cursor, session, live")
    cursor = given.get("cursor", request.headers.get("last-event-id"))
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise BadInput("cursor", "must be a number, as an event told it", cursor)
    live = given.get("live", "true")
    if live not in ("true", "false"):
        raise BadInput("live", "must be true or false", live)
    return Wanted(
        cursor=None if cursor is None else int(cursor),
        session_key=session_key(given["session"], "session") if given.get("session") else "",
        live=live == "true",
    )


async def _heard(request: Request, desk: Desk, secrets: Mapping[str, Key]) -> Response:
    """What a channel posts to us: taken if its signature is right, once per message id."""
    body = await _body(request, desk)
    if isinstance(body, Response):
        return body
    name = request.path_params["name"]
    secret = secrets.get(name)
    now = desk.fl.engine.clock.now()
    try:
        if secret is None:
            raise NotFound("no such channel")
        message_id, said = read_incoming(secret, dict(request.headers), body, now)
        agent_id = desk.fl.config.channels[name].agent_id
        await inbound(desk.fl.engine, name, said.sender, said.thread, said.text, message_id, agent_id)
    except (NotFound, Refused) as error:
        # Whoever cannot sign learns nothing about which channels there are.
        return JSONResponse({"error": str(error) if secret is not None else "not accepted"}, 403)
    except FledgeError as error:
        return JSONResponse({"error": str(error)}, 400)
    return JSONResponse({"accepted": message_id}, 202)
