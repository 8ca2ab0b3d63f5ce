"""A TCP proxy in front of PostgreSQL that knows where messages begin: it cuts a connection before or after a COMMIT,
turns new ones away, changes what the server says of itself, or gives each transaction another connection, as a pooler
in transaction mode does.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, Self

Cut = Literal["", "before", "after"]
_HEAD = struct.Struct("!cI")


class Proxy:
    """Listens on a free port of this machine while it is entered."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.cut: Cut = ""
        """Where the next COMMIT loses its connection; once."""
        self.is_away = False
        """New connections are closed at once."""
        self.away_s = 0.0
        """How long it is away after a cut."""
        self.version: bytes = b""
        """The version that the server says it is, if another one."""
        self.is_pooler = False
        self.same_for = 0
        """How many transactions of a connection a pooler gives to the same server connection."""
        self.cut_at = 0
        """The message of a client, counted from now on over all connections, at which it loses its connection; once."""
        self.asked = 0
        """How many messages clients have sent."""
        self.cuts = 0
        self._open: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        self._thread.join()

    def url(self, schema: str) -> str:
        """The address of a store behind it; libpq begins without asking for encryption."""
        return f"postgresql://fledge@127.0.0.1:{self.port}/postgres?schema={schema}&sslmode=disable&gssencmode=disable"

    def drop(self) -> None:
        """Cut all connections."""
        for one in list(self._open):
            _close(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_away:
                _close(client)
                continue
            serve = threading.Thread(target=self._serve, args=(client,), daemon=True)
            serve.start()

    def _serve(self, client: socket.socket) -> None:
        startup = _startup(client)
        servers = [socket.create_connection(("127.0.0.1", self._to)) for _ in range(2 if self.is_pooler else 1)]
        self._open |= {client, *servers}
        for one in (client, *servers):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for one in servers:
            one.sendall(startup)
        for one in servers[1:]:
            for kind, _ in _messages(one):
                if kind == b"Z":
                    break
        wire = _Wire(self, client, servers)
        backwards = threading.Thread(target=wire.answer, daemon=True)
        backwards.start()
        wire.ask()
        backwards.join()
        self._open -= {client, *servers}


class _Wire:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, servers: list[socket.socket]) -> None:
        self._proxy, self._client, self._servers = proxy, client, servers
        self._statements: dict[bytes, bytes] = {}
        self._transactions = 0

    def ask(self) -> None:
        """Pass on what the client sends."""
        try:
            for kind, message in _messages(self._client):
                self._proxy.asked += 1
                self._proxy.cut_at -= 1
                if self._proxy.cut_at == 0:
                    self._cut()
                    return
                if kind == b"P":
                    name, query = message[5:].split(b"\0")[:2]
                    self._statements[name] = query
                statement = message[5:].split(b"\0")[1] if kind == b"B" else b""
                if self._statements.get(statement) == b"COMMIT" and self._proxy.cut == "before":
                    self._cut()
                    return
                self._servers[0].sendall(message)
        except OSError:
            pass
        self._end()

    def answer(self) -> None:
        """Pass on what the server says."""
        try:
            while True:
                server = self._servers[0]
                for kind, message in _messages(server):
                    if kind == b"C" and message[5:] == b"COMMIT\0" and self._proxy.cut == "after":
                        self._cut()
                        return
                    if kind == b"S" and self._proxy.version and message[5:].startswith(b"server_version\0"):
                        body = b"server_version\0" + self._proxy.version + b"\0"
                        message = _HEAD.pack(b"S", len(body) + 4) + body
                    if kind == b"Z" and message[5:] == b"I":
                        self._transactions += 1
                        if len(self._servers) > 1 and self._transactions > self._proxy.same_for:
                            self._servers.reverse()
                    self._client.sendall(message)
                    if server is not self._servers[0]:
                        break
                else:
                    break
        except OSError:
            pass
        self._end()

    def _cut(self) -> None:
        proxy = self._proxy
        proxy.cut, proxy.is_away = "", proxy.away_s > 0
        proxy.cuts += 1
        self._end()
        if proxy.is_away:
            time.sleep(proxy.away_s)
            proxy.is_away = False

    def _end(self) -> None:
        for one in (self._client, *self._servers):
            _close(one)


def _startup(client: socket.socket) -> bytes:
    head = _exactly(client, 4)
    return head + _exactly(client, struct.unpack("!I", head)[0] - 4)


def _messages(one: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """The messages of one side, each with its kind."""
    while True:
        head = _exactly(one, _HEAD.size)
        if not head:
            return
        kind, length = _HEAD.unpack(head)
        yield kind, head + _exactly(one, length - 4)


def _exactly(one: socket.socket, count: int) -> bytes:
    """So many bytes; none if the connection has ended."""
    found = b""
    while len(found) < count:
        more = one.recv(count - len(found))
        if not more:
            return b""
        found += more
    return found


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
