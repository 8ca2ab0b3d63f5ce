"""The web application: its routes, and the door in front of all of them.

`POST /rpc` and the WebSocket `/ws` speak JSON-RPC, `GET /events` is a feed, `/health`, `/metrics` and `/schema` are for
machines, `/artifacts` and `/attachments` are downloads, `POST /channels/{name}` takes messages of channels, a `POST` to
`/login` signs a browser in, `/` is the page. Every request passes the door, which checks names, origins, the token and
the rate before anything else happens. A channel's message proves itself by its signature and a login by its code; the
page's files hold no data and need no proof. The page shows the credential of its browser instead of the token, which
counts for the requests that the page makes; all are `POST`, because a browser names the origin of these alone.
"""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from fledge.channels.inbound import inbound, read_incoming
from fledge.channels.webhook import read_proof, verify
from fledge.commands import rpc
from fledge.commands.feed import Subscribe
from fledge.commands.gateway_state import GatewayState
from fledge.commands.methods import call, schema
from fledge.commands.rpc import RpcFault, fault_of
from fledge.commands.talk import watched
from fledge.errors import BadInput, FledgeError, Refused, StoreError
from fledge.gateway.artifacts import artifacts, attachments, download
from fledge.gateway.auth import Door, Rates, Rejection
from fledge.gateway.bodies import MOST_AT_ONCE, MOST_BYTES, Bodies, NotTaken
from fledge.gateway.guests import call_as_guest
from fledge.gateway.metrics import exposition
from fledge.gateway.page import is_page, page_routes
from fledge.gateway.socket import converse
from fledge.gateway.stream import EventStream
from fledge.models.keys import SecretKey

CHANNELS: Final = "/channels/"
LOGIN: Final = "/login"
LOGIN_BYTES: Final = 1024
PAGE_PLACES: Final = ("/rpc", "/events")
PAGE_FOLDERS: Final = ("/artifacts/", "/attachments/")
BY_PAGE_TOO: Final = ["GET", "POST"]
SIGN_IN: Final = "fledge.sign_in"
"""In the scope of a request: the id of the sign-in with which it was let in."""
NO_CODE: Final = "this code does not hold: it is good once, for a minute. `fledge page` makes another"
NO_PROOF: Final = "a code of `fledge page` is needed, or the token: it is in the file gateway.token of the state folder"
NOT_PROVEN: Final = "not accepted: no such channel, a signature that does not fit, or a clock more than 5 minutes off"
CHANNEL_BYTES: Final = 4 * 1024 * 1024
"""The largest body of a channel's message: more than its longest text takes."""


class Gate:
    """The door as a layer around the application, for requests and sockets alike."""

    def __init__(self, app: ASGIApp, gateway: GatewayState, door: Door, rates: Rates) -> None:
        self._app, self._gateway, self._door, self._rates = app, gateway, door, rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in, or answer why it is rejected."""
        rejection = None if scope["type"] == "lifespan" else self._refuse(scope)
        if rejection is None:
            await is_let_in(self._gateway, scope)
            await self._app(scope, receive, send)
            return
        self._gateway.rejections += 1
        await _turn_away(rejection, scope, receive, send)

    def _refuse(self, scope: Scope) -> Rejection | None:
        http, rates = scope["type"] == "http", self._rates
        reads = http and is_page(scope["method"], scope["path"])
        signed = http and scope["path"].startswith(CHANNELS)
        coded = http and (scope["method"], scope["path"]) == ("POST", LOGIN)
        proven = reads or signed or coded
        rejection = self._door.refuse(
            scope["headers"], proven, reads and scope["path"] == "/", partial(self._is_signed_in, scope)
        )
        rate = rates.readers if reads else rates.unproven if signed else rates.logins if coded else rates.owner
        if (rates.strangers if rejection is not None else rate).take(client_of(scope), time.monotonic()):
            return Rejection(429, "too many requests: wait a moment")
        if rejection is None and self._gateway.closing.is_set():
            return Rejection(503, "the gateway is closing")
        return rejection

    def _is_signed_in(self, scope: Scope, credential: str) -> bool:
        """True if a browser that is signed in asks for something that the page may ask for."""
        sign_ins, path = self._gateway.sign_ins, scope["path"]
        may_ask = scope["type"] == "http" and scope["method"] == "POST"
        if sign_ins is None or not may_ask or not (path in PAGE_PLACES or path.startswith(PAGE_FOLDERS)):
            return False
        scope[SIGN_IN] = sign_ins.holds(credential, self._gateway.now())
        return scope[SIGN_IN] is not None


async def is_let_in(gateway: GatewayState, scope: Scope) -> bool:
    """True while the sign-in of a request has not ended, and always for a request with the token. It is used now."""
    id, now = scope.get(SIGN_IN), gateway.now()
    if id is None or gateway.sign_ins is None:
        return True
    await gateway.sign_ins.use(id, now)
    return gateway.sign_ins.is_live(id, now)


def client_of(scope: Scope) -> str:
    """The address a request comes from."""
    return str((scope.get("client") or ("unknown", 0))[0])


async def _turn_away(rejection: Rejection, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"www-authenticate": "Bearer"} if rejection.status == 401 else {}
    headers |= {"retry-after": "5"} if rejection.status in (429, 503) else {}
    response = JSONResponse({"error": rejection.words}, rejection.status, headers | {"connection": "close"})
    if scope["type"] == "websocket":
        await receive()  # so that the response answers the request that would have opened the socket
    await response(scope, receive, send)


def make_app(gateway: GatewayState, door: Door, secrets: Mapping[str, SecretKey]) -> ASGIApp:
    """The application of this gateway. `secrets` are those of channels."""

    published = msgspec.json.encode(schema())
    rates, most_kb = Rates(gateway.limits.requests_per_second), gateway.limits.max_body_kb
    owners, strangers = Bodies(gateway.patience.body_s), Bodies(gateway.patience.body_s, MOST_AT_ONCE, MOST_BYTES)

    async def on_rpc(request: Request) -> Response:
        try:
            body = await owners.body(request, most_kb * 1024, f"at most {most_kb} KiB: gateway.maxBodyKb")
        except NotTaken as error:
            return JSONResponse(
                {"error": error.words}, error.status, {"connection": "close"} if error.status == 408 else None
            )
        gateway.requests += 1
        told = await rpc.answer(body, lambda name, given: call_as_guest(gateway, name, given))
        return Response(status_code=204) if told is None else Response(told, media_type="application/json")

    async def on_health(request: Request) -> Response:
        return JSONResponse(await call(gateway, "health", {}))

    async def on_schema(request: Request) -> Response:
        return Response(published, media_type="application/json")

    async def on_metrics(request: Request) -> Response:
        return PlainTextResponse(await exposition(gateway), media_type="text/plain; version=0.0.4")

    async def on_events(request: Request) -> Response:
        try:
            watch = await watched(gateway, _wanted(request))
            return EventStream(gateway, watch, partial(is_let_in, gateway, request.scope))
        except (BadInput, RpcFault) as error:
            fault = fault_of(error)
            return JSONResponse({"error": fault.message, **fault.data}, 429 if fault.code == rpc.TOO_MANY else 400)

    places: list[BaseRoute] = [
        Route("/rpc", on_rpc, methods=["POST"]),
        WebSocketRoute("/ws", partial(converse, gateway)),
        Route("/events", on_events, methods=BY_PAGE_TOO),
        Route("/health", on_health),
        Route("/metrics", on_metrics),
        Route("/schema", on_schema),
        Route(CHANNELS + "{name}", partial(_heard, gateway, secrets, rates, strangers), methods=["POST"]),
        Route(LOGIN, partial(_sign_in, gateway, door, strangers), methods=["POST"]),
        Route("/artifacts/{of}/{name:path}", partial(download, gateway, artifacts), methods=BY_PAGE_TOO),
        Route("/attachments/{of}/{name:path}", partial(download, gateway, attachments), methods=BY_PAGE_TOO),
        *page_routes(),
    ]
    inner = Starlette(routes=places, exception_handlers={Exception: _trouble})
    return Gate(inner, gateway, door, rates)


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    code: str = ""


async def _sign_in(gateway: GatewayState, door: Door, bodies: Bodies, request: Request) -> Response:
    """Sign a browser in, for the token or for a code that is good; a code is good once. Answers the browser's
    credential."""
    headers = {"cache-control": "no-store"}
    try:
        given = msgspec.json.decode(await bodies.body(request, LOGIN_BYTES), type=_Login)
    except NotTaken as error:
        return JSONResponse({"error": error.words}, error.status, {"connection": "close", **headers})
    except msgspec.DecodeError:
        return JSONResponse({"error": "must be a JSON object with a code"}, 400, headers)
    assert gateway.logins is not None
    assert gateway.sign_ins is not None
    if not given.code and not door.has_token(request.scope["headers"]):
        return JSONResponse({"error": NO_PROOF}, 401, headers | {"www-authenticate": "Bearer"})
    if given.code and not gateway.logins.take(given.code, gateway.now()):
        return JSONResponse({"error": NO_CODE}, 403, headers)
    try:
        browser = request.headers.get("user-agent", "")
        credential = await asyncio.to_thread(gateway.sign_ins.begin, browser, gateway.now())
    except StoreError as error:
        return JSONResponse({"error": str(error)}, 507, headers)
    return JSONResponse({"signIn": credential}, headers=headers)


async def _trouble(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": fault_of(error).message}, 500)


def _wanted(request: Request) -> Subscribe:
    given = request.query_params
    for name in given:
        if name not in ("cursor", "session", "live", "rows", "entries"):
            raise BadInput(name[:80], "there is no such parameter: cursor, session, live, rows, entries")
    cursor = given.get("cursor", request.headers.get("last-event-id"))
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise BadInput("cursor", "must be the cursor of an event, a number", cursor)
    return Subscribe(
        cursor=None if cursor is None else int(cursor),
        session=given.get("session", ""),
        live=_flag(request, "live", True),
        rows=_flag(request, "rows", False),
        entries=_flag(request, "entries", False),
    )


def _flag(request: Request, name: str, otherwise: bool) -> bool:
    given = request.query_params.get(name, "true" if otherwise else "false")
    if given not in ("true", "false"):
        raise BadInput(name, "must be true or false", given)
    return given == "true"


async def _heard(
    gateway: GatewayState, secrets: Mapping[str, SecretKey], rates: Rates, bodies: Bodies, request: Request
) -> Response:
    """Take a message that a channel posts to us, if its signature is right, once per message id. A message that can be
    refused without its body is refused before that is read."""
    name, headers, client = request.path_params["name"], dict(request.headers), client_of(request.scope)
    secret, now = secrets.get(name), gateway.now()
    if secret is None:
        return JSONResponse({"error": NOT_PROVEN}, 403)
    try:
        read_proof(headers, now)
        body = await bodies.body(request, min(CHANNEL_BYTES, gateway.limits.max_body_kb * 1024))
        message_id = verify(secret, headers, body, now)
    except NotTaken as error:
        return JSONResponse({"error": error.words}, error.status, {"connection": "close", "retry-after": "5"})
    except Refused:
        return JSONResponse({"error": NOT_PROVEN}, 403)
    rates.unproven.give_back(client)
    if rates.owner.take(client, time.monotonic()):
        return JSONResponse({"error": "too many requests: wait a moment"}, 429, {"retry-after": "5"})
    try:
        said = read_incoming(body)
        agent_id = gateway.fl.config.channels[name].agent_id
        await inbound(gateway.fl.engine, name, said.sender, said.thread, said.text, message_id, agent_id)
    except Refused as error:
        return JSONResponse({"error": str(error)}, 403)
    except FledgeError as error:
        return JSONResponse({"error": str(error)}, 400)
    return JSONResponse({"accepted": message_id}, 202)
