"""What the strict servers share: a local HTTP server that plays a script, one request at a time.

A script is a function from the decoded request to a `ScriptedReply` (rendered in the server's protocol) or to a list of
actions (trouble, spelled out), or simply a list of such answers, used in order. A request that the real service would
reject is rejected before the script sees it, and remembered in `complaints`. Nothing here sleeps: what is held back is
held by an event of the test.
"""

import asyncio
import base64
import json
import signal
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
from aiohttp import web
from msgspec import Struct

from fledge.models.scripted import ScriptedReply

Body = dict[str, Any]
KEY = "test-key-1234567890"


class Status(Struct, frozen=True):
    """Answer with this instead of a stream."""

    code: int
    body: bytes | dict[str, Any] = b""
    headers: dict[str, str] = {}
    content_type: str = "application/json"


class Send(Struct, frozen=True):
    """Write these bytes of the stream, in one write."""

    data: bytes


class Raw(Struct, frozen=True):
    """Write these bytes to the connection itself, status line and all."""

    data: bytes


class Wait(Struct, frozen=True):
    """Hold the stream until the test sets the event."""

    until: asyncio.Event


class Hang(Struct, frozen=True):
    """Say nothing more, for ever."""


class Cut(Struct, frozen=True):
    """Close the connection now, whatever was promised."""


Action = Status | Send | Raw | Wait | Hang | Cut
Answer = ScriptedReply | Sequence[Action]
Script = Callable[[Body], Answer | Awaitable[Answer]]


class Rejected(Exception):
    """The real service would not take this request."""

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error", code: str = "") -> None:
        super().__init__(message)
        self.status, self.kind, self.code = status, kind, code


def demand(true: object, message: str) -> None:
    """Reject the request unless this holds."""
    if not true:
        raise Rejected(message)


def only(given: object, allowed: Collection[str], where: str) -> dict[str, Any]:
    """The object, if it has no other fields."""
    if not isinstance(given, dict):
        raise Rejected(f"{where}: must be an object")
    extra = sorted(set(given) - set(allowed))
    demand(not extra, f"{where}: unknown field {', '.join(extra)}")
    return given


MAGIC = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}


def check_image(media_type: object, data: object, where: str) -> None:
    """Reject what is no image of its media type, is damaged, or is too large. Of a PNG the header's checksum counts."""
    demand(media_type in MAGIC, f"{where}.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif'…")
    demand(isinstance(data, str) and data, f"{where}.base64: image cannot be empty")
    assert isinstance(data, str)
    demand(len(data) <= 5 * 1024 * 1024, f"{where}.base64: image exceeds 5 MB maximum: {len(data)} bytes > 5242880")
    try:
        image = base64.b64decode(data, validate=True)
    except ValueError:
        raise Rejected(f"{where}.base64: Invalid base64 data") from None
    demand(
        image.startswith(MAGIC[str(media_type)]), f"{where}: The image was specified using the {media_type} media type"
    )
    if media_type == "image/png":
        header = image[12:29]
        demand(zlib.crc32(header) == int.from_bytes(image[29:33], "big"), "Could not process image")
        sides = int.from_bytes(header[4:8], "big"), int.from_bytes(header[8:12], "big")
        demand(
            max(sides) <= 8000, f"{where}: At least one of the image dimensions exceed max allowed size: 8000 pixels"
        )


def check_data_url(url: object, where: str) -> None:
    """The same of a `data:` address."""
    head, comma, data = str(url).partition(",")
    demand(head.startswith("data:") and head.endswith(";base64") and comma, f"{where}: must be a base64 data URL")
    check_image(head.removeprefix("data:").removesuffix(";base64"), data, where)


class Server(ABC):
    """A strict local server. `bodies` holds the requests that were accepted, `complaints` the reasons for rejecting."""

    path: str

    def __init__(self, script: Script | Sequence[Answer], *, key: str | None = KEY, piece_chars: int = 5) -> None:
        if callable(script):
            self._script: Script = script
        else:
            answers = iter(script)
            self._script = lambda body: next(answers)
        self.key, self.piece_chars = key, piece_chars
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.targets: list[str] = []
        """Path and query of every accepted request."""
        self.complaints: list[str] = []
        self.account = "first"
        """Whose key it is: reasoning that was signed for one account is refused from another."""
        self.peers: list[int] = []
        """The client's port of every accepted request: equal where a connection was used again."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post(self.path, self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        self.port = 0

    @property
    @abstractmethod
    def base_url(self) -> str:
        """Where clients find it."""

    @abstractmethod
    def check(self, headers: dict[str, str], given: Any) -> Body:
        """The request, if the real service would take it; raises `Rejected`."""

    @abstractmethod
    def rejection(self, reason: Rejected) -> Any:
        """An error body as the real service writes it."""

    @abstractmethod
    def chunks(self, body: Body, reply: ScriptedReply) -> list[bytes]:
        """The reply as the events of a stream, each with its blank line."""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        server = self._runner.server
        assert server is not None
        return len(server.connections)

    async def no_connections(self) -> None:
        """Return when the last connection was closed; fail after five seconds."""
        async with asyncio.timeout(5):
            while self.connections:
                await _turn()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            try:
                decoded = json.loads(await request.read())
            except ValueError:
                raise Rejected("the body is not JSON") from None
            body = self.check(headers, decoded)
        except Rejected as reason:
            self.complaints.append(str(reason))
            return web.json_response(self.rejection(reason), status=reason.status)
        self.bodies.append(body)
        self.headers.append(headers)
        self.targets.append(request.raw_path)
        self.peers.append(int(request.get_extra_info("peername")[1]))
        answer = self._script(body)
        if isinstance(answer, Awaitable):
            answer = await answer
        actions = [Send(chunk) for chunk in self.chunks(body, answer)] if isinstance(answer, ScriptedReply) else answer
        return await _play(request, actions)


async def _play(request: web.Request, actions: Sequence[Action]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    for action in actions:
        if isinstance(action, Status):
            data = action.body if isinstance(action.body, bytes) else msgspec.json.encode(action.body)
            return web.Response(status=action.code, body=data, headers=action.headers, content_type=action.content_type)
        if isinstance(action, Send):
            if not response.prepared:
                await response.prepare(request)
            await response.write(action.data)
        elif isinstance(action, Raw):
            assert request.transport is not None
            request.transport.write(action.data)
        elif isinstance(action, Wait):
            await action.until.wait()
        elif isinstance(action, Hang):
            await asyncio.Event().wait()
        else:
            assert request.transport is not None
            request.transport.close()
            return response
    return response


async def _turn(seconds: float = 0.0) -> None:
    """Let everybody else run."""
    await asyncio.sleep(seconds)


def pieces(text: str, size: int) -> list[str]:
    """The text, cut."""
    return [text[at : at + size] for at in range(0, len(text), size)]


# ---- in a process or a thread of its own, for tests of the command line ----------------------------------------------


def sample_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """The smallest arguments a tool's schema asks for."""
    samples: dict[str, Any] = {"string": ".", "integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}
    properties = schema.get("properties", {})
    return {name: samples.get(properties.get(name, {}).get("type"), ".") for name in schema.get("required", [])}


def _log(port_file: Path, body: Body) -> None:
    with open(f"{port_file}.log", "ab") as log:
        log.write(msgspec.json.encode(body) + b"\n")


def _held(hold_file: Path | None) -> bool:
    return hold_file is not None and hold_file.exists()


@asynccontextmanager
async def served(
    make: Callable[[Script], Server], script: Script, port_file: Path, hold_file: Path | None
) -> AsyncIterator[None]:
    """A server whose port is in the file while the block lasts; its requests go to `<port_file>.log`.

    While `hold_file` exists, replies wait.
    """

    async def logged(body: Body) -> Answer:
        _log(port_file, body)
        while _held(hold_file):
            await _turn(0.01)
        answer = script(body)
        return await answer if isinstance(answer, Awaitable) else answer

    async with make(logged) as server:
        unfinished = port_file.with_suffix(".new")
        unfinished.write_text(str(server.port))
        unfinished.rename(port_file)
        yield


def main(make: Callable[[Script], Server], script: Script) -> None:
    """`python -m tests.models.… PORT_FILE [HOLD_FILE]`: serve until a signal says to stop."""
    hold = Path(sys.argv[2]) if len(sys.argv) > 2 else None

    async def until_signalled() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with served(make, script, Path(sys.argv[1]), hold):
            await stopped.wait()

    asyncio.run(until_signalled())


@contextmanager
def in_thread(make: Callable[[Script], Server], script: Script, port_file: Path, hold_file: Path) -> Iterator[None]:
    """Serve in a thread of this process while the block lasts: no imports to wait for, nothing shared by two tests."""
    started: Future[Callable[[], object]] = Future()

    async def until_stopped() -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        async with served(make, script, port_file, hold_file):
            started.set_result(lambda: loop.call_soon_threadsafe(stopped.set))
            await stopped.wait()

    with ThreadPoolExecutor(1) as thread:
        over = thread.submit(asyncio.run, until_stopped())
        over.add_done_callback(lambda done: None if started.done() else started.set_exception(done.exception()))
        stop = started.result()
        try:
            yield
        finally:
            stop()
    over.result()
