"""A strict local receiver of webhooks: it proves each one, remembers it, and answers as a script says."""

import asyncio
from typing import Self

from aiohttp import web
from msgspec import Struct

from fledge.channels.webhook import verify
from fledge.errors import Refused

SECRET = "correct-horse-battery-staple"


class Answer(Struct, frozen=True):
    """How to answer one request; `hang` never does."""

    status: int = 204
    body: bytes = b""
    headers: dict[str, str] = {}
    hang: bool = False


class Receiver:
    """Use as `async with Receiver(...)`; without further answers it accepts everything."""

    def __init__(self, *answers: Answer, now: float | None = None) -> None:
        self._answers = list(answers)
        self._now = now
        self.ids: list[str] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.complaints: list[str] = []
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._receive)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/in"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        if request.method != "POST" or request.path != "/in" or headers.get("content-type") != "application/json":
            self.complaints.append(f"{request.method} {request.path} {headers.get('content-type')}")
            return web.Response(status=400)
        try:
            stamp = float(headers["webhook-timestamp"])
            self.ids.append(verify(SECRET, headers, body, stamp if self._now is None else self._now))
        except Refused as refused:
            self.complaints.append(refused.reason)
            return web.Response(status=401)
        self.bodies.append(body)
        self.headers.append(headers)
        answer = self._answers.pop(0) if self._answers else Answer()
        if answer.hang:
            await asyncio.Event().wait()
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
