"""A strict HTTP proxy on loopback that demands credentials, and knows names that nobody else knows.

It tunnels (CONNECT) and forwards requests in absolute form; every name leads to the one port it was given. What a
client did wrong is in `complaints`.
"""

import asyncio
import re
from base64 import b64encode
from typing import Self
from urllib.parse import urlsplit

USER, PASSWORD = "wren", "p@ss:word"
AUTHORITY = "wren:p%40ss%3Aword"
"""Name and password as an address has them."""
_EXPECTED = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Proxy:
    """Listens on a free port of this machine while it is entered; leads everything to `port`."""

    def __init__(self, port: int, status: int = 200) -> None:
        self._to, self._status = port, status
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: list[str] = []
        """The first line of every request with the right credentials."""
        self.complaints: list[str] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """What a user puts into the environment."""
        return f"http://{AUTHORITY}@127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
        method, target, _ = line.split(" ")
        named = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        if named.get("proxy-authorization") != _EXPECTED:
            self.complaints.append(f"{method} {target} without credentials")
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        self.asked.append(f"{method} {target}")
        if self._status != 200:
            writer.write(f"HTTP/1.1 {self._status} No\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        if method == "CONNECT":
            if not re.fullmatch(r"[a-z.]+:\d+", target):
                self.complaints.append(f"CONNECT {target}")
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            parts = urlsplit(target)
            if parts.scheme != "http" or not parts.netloc:
                self.complaints.append(f"{method} {target} is not in absolute form")
            kept = [field for field in fields if not field.lower().startswith("proxy-")]
            query = f"?{parts.query}" if parts.query else ""
            back.write("\r\n".join([f"{method} {parts.path}{query} HTTP/1.1", *kept, "", ""]).encode("latin-1"))
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            back.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
