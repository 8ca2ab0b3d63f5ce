"""Words that a worker's model streams, as clients of a gateway in another process hear them over its WebSocket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from websockets.asyncio.client import ClientConnection, connect

import fledge
from fledge.core.live import spliced
from fledge.models.base import ModelEvent, ReplyEnded, Request, Text
from fledge.store.postgres_server import parse
from tests.scale.test_store_option import Desk
from tests.scale.test_worker import started
from tests.statements import proves
from tests.store.postgres import Server

PATIENCE_S = 30.0
MAIN = "agent:main:main"


class Speaker:
    """A model that says what it is given, piece by piece; None ends its reply."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        while (piece := await self.pieces.get()) is not None:
            yield Text(piece)
        yield ReplyEnded("end", "speaker")

    async def close(self) -> None:
        pass


class Client:
    """A client of a gateway, over its WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._next = socket, 1
        self.events: list[dict[str, Any]] = []
        """All events so far."""

    async def call(self, method: str, **params: object) -> Any:
        number, self._next = self._next, self._next + 1
        await self._socket.send(
            msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, "id": number}).decode()
        )
        while (told := await self._read()).get("id") != number:
            pass
        assert "error" not in told, told
        return told["result"]

    async def _read(self) -> dict[str, Any]:
        told: dict[str, Any] = msgspec.json.decode(await self._socket.recv())
        if told.get("method") == "event":
            self.events.append(told["params"])
        return told

    @property
    def text(self) -> str:
        """The words that were told."""
        text = ""
        for event in self.events:
            if event.get("kind") == "assistant:text":
                text = spliced(text, event["text"], event.get("offset", 0))
        return text

    async def until_text(self, text: str) -> None:
        while self.text != text:
            assert text.startswith(self.text)
            await self._read()

    async def until_entry(self, text: str) -> None:
        def is_there(event: dict[str, Any]) -> bool:
            return event["type"] == "entry" and bool(event["entry"].get("text") == text)

        while not any(map(is_there, self.events)):
            await self._read()


class Scene:
    """A worker in this process, and the address of a gateway that runs no agents."""

    def __init__(self, fl: fledge.Fledge, speaker: Speaker, address: str, token: str) -> None:
        self.fl, self.speaker = fl, speaker
        self.live: asyncio.Queue[str] = asyncio.Queue()
        """All messages with live words that the server carries."""
        self._address, self._token = address, token

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        headers = {"authorization": f"Bearer {self._token}"}
        url = f"{self._address.replace('http', 'ws', 1)}/ws"
        async with connect(url, additional_headers=headers, max_size=None) as socket:
            yield Client(socket)

    async def has_reply(self) -> bool:
        entries = await self.fl.engine.store.read(lambda tx: tx.transcripts.entries(MAIN))
        return any(entry.kind == "assistant" for entry in entries)


@pytest.fixture
def desk(server: Server, tmp_path: Path) -> Desk:
    return Desk(server, tmp_path)


@asynccontextmanager
async def scene(desk: Desk) -> AsyncIterator[Scene]:
    files, speaker = desk.folder / "files", Speaker()

    def gateway() -> Iterator[tuple[str, str]]:
        with started(desk, "serve", "--port", "0", "--no-drive", "--state", str(files)) as (_, said):
            address, _, token = said[0].partition(" at ")[2].partition("; the token is in ")
            yield address, Path(token).read_text().strip()

    async with (
        asyncio.timeout(PATIENCE_S),
        fledge.open(files, store=desk.url, model=speaker, config={}, workspace=desk.folder / "work") as fl,
        await psycopg.AsyncConnection.connect(desk.url.partition("?")[0], autocommit=True) as listener,
    ):
        await listener.execute(f"LISTEN {parse(desk.url).live_channel}".encode())

        with contextlib.contextmanager(gateway)() as (address, token):
            at = Scene(fl, speaker, address, token)

            async def hear() -> None:
                async for notice in listener.notifies():
                    at.live.put_nowait(notice.payload)

            hearing = asyncio.ensure_future(hear())
            try:
                yield at
            finally:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)


@proves("7.live.1")
@proves("7.live.6", "A client hears live words before their entry, and none of them after it, whichever process drives")
def test_a_client_hears_the_words_of_a_worker_before_the_entry_is_committed(desk: Desk) -> None:
    async def test() -> None:
        async with scene(desk) as at, at.client() as client:
            await client.call("events.subscribe", session="main", entries=True)
            await client.call("agent", message="Tell me a story", session="main")
            at.speaker.pieces.put_nowait("Once ")
            await client.until_text("Once ")
            at.speaker.pieces.put_nowait("upon a time")
            await client.until_text("Once upon a time")
            assert not await at.has_reply()
            at.speaker.pieces.put_nowait(", a bird.")
            at.speaker.pieces.put_nowait(None)
            await client.until_entry("Once upon a time, a bird.")
            await client.call("health")
            told = [event.get("kind", event["type"]) for event in client.events]
            reply = max(at for at, kind in enumerate(told) if kind == "entry")
            assert "assistant:text" not in told[reply:], "words come before their entry, or not at all"

    asyncio.run(test())


@proves("7.live.4")
def test_words_of_hostile_sizes_reach_a_client(desk: Desk) -> None:
    text = "x" * 100_000 + "\N{BIRD}" * 2000 + "\x00" * 3000 + "ä" * 7901

    async def test() -> None:
        async with scene(desk) as at, at.client() as client:
            await client.call("events.subscribe", session="main", entries=True)
            await client.call("agent", message="Tell me everything", session="main")
            at.speaker.pieces.put_nowait(text)
            await client.until_text(text)
            assert not await at.has_reply()
            at.speaker.pieces.put_nowait(None)

    asyncio.run(test())


@proves("7.live.2")
def test_no_word_is_sent_without_a_client_that_watches_the_session(desk: Desk) -> None:
    async def test() -> None:
        async with scene(desk) as at, at.client() as client:
            await client.call("events.subscribe", rows=True)
            await client.call("agent", message="Anybody there?", session="main")
            at.speaker.pieces.put_nowait("Hello")
            at.speaker.pieces.put_nowait(None)
            await at.fl.session("main").settled()
            assert at.live.empty()
            # The feed of the page is of all sessions: the page says which one it shows.
            assert (await client.call("events.watch", session="main"))["againS"] > 0
            await client.call("agent", message="Now?", session="main")
            at.speaker.pieces.put_nowait("Here I am")
            await client.until_text("Here I am")
            while "Here I am" not in await at.live.get():
                pass
            at.speaker.pieces.put_nowait(None)

    asyncio.run(test())


@proves("7.live.6")
def test_a_program_streams_the_answer_that_a_worker_elsewhere_gives(desk: Desk) -> None:
    async def test() -> None:
        async with (
            scene(desk) as at,
            fledge.open(desk.folder / "files", store=desk.url, drives=False, config={}) as program,
        ):
            told = list[str]()
            async for event in program.session("main").stream("Hello"):
                told.append(event.kind)
                if event.kind == "model:start":
                    at.speaker.pieces.put_nowait("good ")
                elif event.kind == "assistant:text":
                    assert event.elsewhere
                    at.speaker.pieces.put_nowait(None)
                elif event.kind == "reply":
                    assert event.text == "good "
            assert told[:3] == ["start", "model:start", "assistant:text"]
            assert told[-1] == "reply"

    asyncio.run(test())
