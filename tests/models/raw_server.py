"""A server that answers every request with bytes of the test's choice, and knows who is connected."""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

from msgspec import Struct


class Request(Struct, frozen=True):
    """A request as it came."""

    connection: int
    """Which connection it came on, counted from 0."""
    number: int
    """Which request it is on its connection."""
    head: bytes
    body: bytes


Script = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]
"""Answers a request; closing the writer ends the connection."""


def chunked(*pieces: bytes) -> bytes:
    """A whole answer in chunks."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def saying(*answers: bytes) -> Script:
    """Each request is answered with the next of these, the last one for ever."""
    left = list(answers)

    async def script(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return script


async def until(true: Callable[[], bool]) -> None:
    """Let everybody else run until this holds; fail after five seconds."""
    turn = asyncio.sleep
    async with asyncio.timeout(5):
        while not true():
            await turn(0)


class RawServer:
    """Listens on a free port of this machine while it is entered."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self._script, self._tls = script, tls
        self.requests: list[Request] = []
        self.writers: dict[int, asyncio.StreamWriter] = {}
        """The open connections, by number."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._met = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=2000)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    async def no_connections(self) -> None:
        """Return when the last connection was closed; fail after five seconds."""
        await until(lambda: not self.writers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection, self._met = self._met, self._met + 1
        self.writers[connection] = writer
        try:
            number = 0
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                request = Request(connection, number, head, body)
                self.requests.append(request)
                number += 1
                await self._script(request, writer)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            del self.writers[connection]
            self._tasks.discard(task)
            writer.transport.abort()
