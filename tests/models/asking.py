"""What the tests of all adapters share: a conversation to send, and ways to ask and to read the answer."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec import Struct

from fledge.models.anthropic import AnthropicModel
from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    Model,
    ModelEvent,
    Opaque,
    ReplyEnded,
    Request,
    Text,
    Thought,
    ToolSpec,
    Usage,
    UserMessage,
)
from fledge.models.http import HttpLimits
from fledge.models.keys import SecretKey
from fledge.models.openai import OpenAIModel
from fledge.models.providers import Provider, Quirks
from fledge.models.responses import ResponsesModel
from fledge.models.retry import NO_END, RetryTold, Tries, close_stream
from tests.models.anthropic_server import AnthropicServer
from tests.models.openai_server import OpenAIServer
from tests.models.responses_server import ResponsesServer
from tests.models.serving import KEY, Answer, Script, Server

T = TypeVar("T")
SCHEMA: dict[str, object] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Reads a file.", SCHEMA)
HELLO = Request(model="m", messages=(UserMessage("hello"),))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; nothing of it may outlive a minute."""

    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await main

    return asyncio.run(bounded())


PATIENT = HttpLimits()


def service(base_url: str, name: str = "openai", quirks: Quirks | None = None) -> Provider:
    """A service at this address, whose key is in a variable of OpenAI's name."""
    return Provider(name=name, base_url=base_url, key_env="OPENAI_API_KEY", quirks=quirks)


NOWHERE = "http://127.0.0.1:1/v1"
"""The address of a service that is not asked."""


class Protocol(Struct, frozen=True):
    """One of the wire protocols: its server and its adapter."""

    name: str
    server: type[Server]
    adapter: type[OpenAIModel] | type[ResponsesModel] | type[AnthropicModel]

    def serve(self, script: Script | Sequence[Answer], piece_chars: int = 5) -> Server:
        """A server that is not yet started."""
        return self.server(script, piece_chars=piece_chars)

    def model(self, server: Server, limits: HttpLimits = PATIENT, key: str = KEY) -> Model:
        """An adapter that asks the server."""
        vendor = "anthropic" if self.adapter is AnthropicModel else "openai"
        return self.adapter(service(server.base_url, vendor), SecretKey(key), limits=limits)

    @asynccontextmanager
    async def talk(
        self, script: Script | Sequence[Answer], limits: HttpLimits = PATIENT, key: str = KEY
    ) -> AsyncIterator[tuple[Server, Model]]:
        """A started server, and an adapter that asks it and is closed before it."""
        async with self.server(script, key=key) as server:
            model = self.model(server, limits, key)
            try:
                yield server, model
            finally:
                await model.close()


OPENAI = Protocol("openai", OpenAIServer, OpenAIModel)
ANTHROPIC = Protocol("anthropic", AnthropicServer, AnthropicModel)
RESPONSES = Protocol("responses", ResponsesServer, ResponsesModel)
PROTOCOLS = (OPENAI, RESPONSES, ANTHROPIC)


async def ask(model: Model, request: Request = HELLO) -> list[ModelEvent]:
    """All events of one reply."""
    return await gathered(model.stream(request))


async def tried(tries: Tries, told: list[RetryTold]) -> list[ModelEvent]:
    """The events of the last try, or what is reported in their place. What came of a try that broke is forgotten."""
    while True:
        events = tries.stream()
        try:
            found = [event async for event in events]
        finally:
            await close_stream(events)
        if found and isinstance(found[-1], ReplyEnded):
            return found
        broke = await tries.after(found[-1] if found and isinstance(found[-1], Broke) else NO_END, told.append)
        if broke is not None:
            return [broke]


async def gathered(events: AsyncIterator[ModelEvent]) -> list[ModelEvent]:
    """All events; exactly the last of them ends the reply."""
    found = [event async for event in events]
    assert [isinstance(event, ReplyEnded | Broke) for event in found] == [False] * (len(found) - 1) + [True]
    return found


def text_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def thinking_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Thought))


def opaque_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.data for event in events if isinstance(event, Opaque))


def answered(events: Sequence[ModelEvent]) -> AssistantMessage:
    """The reply as a turn keeps it."""
    return AssistantMessage(text_of(events), tuple(calls_of(events)), thinking_of(events), opaque_of(events))


def calls_of(events: Sequence[ModelEvent]) -> list[Call]:
    return [event for event in events if isinstance(event, Call)]


def usage_of(events: Sequence[ModelEvent]) -> list[Usage]:
    return [event for event in events if isinstance(event, Usage)]


def broke_of(events: Sequence[ModelEvent]) -> Broke:
    assert isinstance(events[-1], Broke), events
    return events[-1]
