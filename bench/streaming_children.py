"""Whole children whose model streams: what the HTTP client costs in a child's life, our own client beside aiohttp.

The children are those of `children.py`; their model is an adapter on the service of `sse_server.py`. The first reply of
a child is given a call of the tool at its end, so that each child streams two replies; its conversation streams too.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from statistics import median
from typing import Any, Literal

import aiohttp
import msgspec

from bench import children
from bench.sse_server import running
from fledge.models.base import Broke, Call, Ended, Model, ModelEvent, Request, ToolMessage
from fledge.models.http import Wire
from fledge.models.http1 import Head
from fledge.models.keys import Key
from fledge.models.openai import OpenAIModel

Client = Literal["own", "aiohttp"]
WIDTH = 8
WARMING = 10


class Streamed(msgspec.Struct, frozen=True):
    """CPU of one child in ms, by client, each the median of its rounds."""

    events: int
    own_ms: float
    aiohttp_ms: float
    saved: tuple[float, ...]
    """What part of a child's CPU our own client saves, round by round."""


class _Answer:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.head = Head("1.1", response.status, {name.lower(): value for name, value in response.headers.items()})

    async def read(self) -> bytes:
        return await self._response.content.readany()

    async def to_the_end(self) -> None:
        while await self.read():
            pass

    def close(self) -> None:
        self._response.close()


class _Connections:
    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self.loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=1800, sock_read=300, sock_connect=15),
        )

    async def post(self, path: str, fields: dict[str, str], body: bytes) -> _Answer:
        return _Answer(
            await self._session.post(self._base_url + path, headers=fields, data=body, allow_redirects=False)
        )

    async def close(self) -> None:
        await self._session.close()


class _AiohttpWire(Wire):
    def _opened(self) -> Any:
        if self._pool is None:
            self._pool = _Connections(self._base)  # type: ignore[assignment]
        return self._pool


class _WithCalls:
    """The model of children: streams what the service says, and asks for the tool at the end of a first reply."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        first = not request.system.startswith("You are a capable") and not isinstance(request.messages[-1], ToolMessage)
        async for event in self._model.stream(request):
            if isinstance(event, Broke):
                raise RuntimeError(event.message)
            if first and isinstance(event, Ended):
                yield Call("c1", "add", '{"a":2,"b":3}')
                yield Ended("tools", event.model)
            else:
                yield event

    async def close(self) -> None:
        await self._model.close()


def _model(client: Client, url: str) -> Model:
    model = OpenAIModel(key=Key("none"), base_url=url)
    if client == "aiohttp":
        model._wire = _AiohttpWire(url)
    return model


def live(number: int, url: str, client: Client) -> float:
    """CPU of one child in ms, of so many that live and are read."""

    async def main(folder: Path) -> float:
        model: Any = _WithCalls(_model(client, url))
        async with children.household(folder, number, WIDTH, model) as home:
            return (await children.measured(home, number, WIDTH)).cpu_ms_a_child

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(Path(folder)))


def compared(events: int, number: int, rounds: int, once: Callable[[int, str, Client], float] = live) -> Streamed:
    """Both clients, taking turns."""
    with running() as [server]:
        url = server.url(events, "each")
        found: dict[Client, list[float]] = {"own": [], "aiohttp": []}
        for client in found:
            once(WARMING, url, client)
        for _ in range(rounds):
            for client, took in found.items():
                took.append(once(number, url, client))
    own, other = found["own"], found["aiohttp"]
    saved = tuple(1 - mine / theirs for mine, theirs in zip(own, other, strict=True))
    return Streamed(events, median(own), median(other), saved)
