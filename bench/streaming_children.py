"""Whole children whose model streams, beside the same children with a scripted model: what streaming adds to a life.

The children are those of `children.py`; their model is an adapter on the service of `sse_server.py`. The first reply of
a child is given a call of the tool at its end, so that each child streams two replies; its conversation streams too.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench import children
from bench.sse_server import running
from fledge.models.base import Broke, Call, Model, ModelEvent, ReplyEnded, Request, ToolMessage
from fledge.models.keys import SecretKey
from fledge.models.openai import OpenAIModel
from fledge.models.providers import Provider

WIDTH = 8
WARMING = 10


class Streamed(msgspec.Struct, frozen=True):
    """CPU of one child in ms, each the median of its rounds."""

    events: int
    streamed_ms: float
    scripted_ms: float


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
            if first and isinstance(event, ReplyEnded):
                yield Call("c1", "add", '{"a":2,"b":3}')
                yield ReplyEnded("tools", event.model)
            else:
                yield event

    async def close(self) -> None:
        await self._model.close()


def live(number: int, url: str) -> float:
    """CPU of one child in ms, of so many that live and are read."""

    async def main(folder: Path) -> float:
        model: Any = _WithCalls(OpenAIModel(Provider(name="openai", base_url=url), SecretKey("none")))
        async with children.household(folder, number, WIDTH, model) as home:
            return (await children.measured(home, number, WIDTH)).cpu_ms_a_child

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(Path(folder)))


def compared(events: int, number: int, rounds: int) -> Streamed:
    """Children that stream and children that do not, taking turns."""
    with running() as [server]:
        url = server.url(events, "each")
        live(WARMING, url)
        children.live(WARMING, WIDTH)
        streamed, scripted = [], []
        for _ in range(rounds):
            streamed.append(live(number, url))
            scripted.append(children.live(number, WIDTH).cpu_ms_a_child)
    return Streamed(events, median(streamed), median(scripted))
