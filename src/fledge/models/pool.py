"""The connections to one origin: opened, used for one POST at a time, kept for the next, closed.

A connection is kept only if its answer was read to the very end. Redirects, cookies, proxies and compression are not
here on purpose; what an answer means is not known here.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import quote, urlsplit

from fledge.models.connection import Connection
from fledge.models.dial import Dialler, default_tls
from fledge.models.http1 import Head, HeadReader, body_after, request_head

MOST_RESTING = 100
REST_S = 60.0
"""How long an unused connection is kept. Services close theirs after 5 s to some minutes; that is seen."""
LAST_BYTES_S = 0.5
"""How long to wait for the end of an answer that has said everything: seeing it keeps the connection usable."""


class Unanswered(ConnectionError):
    """The service closed the connection without an answer"""


class Answer:
    """An answer whose head has come. It must be closed."""

    def __init__(self, pool: "Pool", connection: Connection, head: Head, rest: bytes) -> None:
        self._pool, self._connection, self._rest = pool, connection, rest
        self._body = body_after(head)
        self.head = head

    async def read(self) -> bytes:
        """More of the body, as soon as there is any; nothing at its end. Raises what broke it."""
        piece = b""
        while not piece and not self._body.over:
            raw, self._rest = self._rest or await self._connection.read(), b""
            if not raw:
                self._body.closed()
                break
            piece = self._body.feed(raw)
        return piece

    async def to_the_end(self) -> None:
        """See the end of the body, if it comes soon, so that the connection can serve the next request."""
        if not self._body.over:
            self._connection.hurry(LAST_BYTES_S)
            while await self.read():
                pass

    def close(self) -> None:
        """Keep the connection for the next request if everything was read, else drop it."""
        whole = self._body.over and not self._body.beyond and not self._rest
        self._pool.put_back(self._connection, "keep" if whole and self.head.lasting else "drop")


class Pool:
    """Connections to the origin of `base_url`, of one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        connect_s: float,
        request_s: float,
        idle_s: float,
        rest_s: float = REST_S,
        most_resting: int = MOST_RESTING,
        tls: Callable[[], ssl.SSLContext] = default_tls,
    ) -> None:
        parts = urlsplit(base_url)
        assert parts.hostname is not None
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        self._dialler = Dialler(host, port, tls if secure else None, min(connect_s, request_s))
        self._authority = f"[{host}]" if ":" in host else host
        if port != (443 if secure else 80):
            self._authority += f":{port}"
        self._prefix = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self._request_s, self._idle_s = request_s, idle_s
        self._room, self._rest_s = most_resting, rest_s
        self._resting: deque[tuple[float, Connection]] = deque()
        self._busy: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.loop = asyncio.get_running_loop()

    @property
    def connections(self) -> tuple[int, int]:
        """How many are in use and how many are kept."""
        return len(self._busy), len(self._resting)

    async def post(self, path: str, fields: Mapping[str, str], body: bytes) -> Answer:
        """Send the request; the answer once its head has come. Raises `BadAnswer`, `OSError` or `TimeoutError`.

        A kept connection may be closed by the service in the moment it is used again. If that is seen before anything
        is written, another is used. If it is seen afterwards, and no byte came back, the request is sent once more on a
        new connection. It may have been read, and in general a POST must not be repeated (RFC 9110 §9.2.2); but this
        one asks for words. The worst is a bill for words nobody got, and whoever called would ask again anyway, as the
        official clients do. Never after a timeout, nor on a new connection: there, closing is an answer.
        """
        fields = {"Host": self._authority, **fields}
        message = request_head(self._prefix + path, fields, len(body)) + body
        over_at = self.loop.time() + self._request_s
        if (kept := self._kept()) is not None:
            try:
                return await self._exchange(kept, message, over_at)
            except Unanswered:
                pass
        return await self._exchange(await self._dialler.dial(), message, over_at)

    async def close(self) -> None:
        """Close every connection, those in use too. What is still being opened serves its request and is not kept."""
        self._room = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        all_of_them = [*self._busy, *(connection for _, connection in self._resting)]
        self._busy.clear()
        self._resting.clear()
        for connection in all_of_them:
            connection.close()
        for connection in all_of_them:
            await connection.gone

    def put_back(self, connection: Connection, how: Literal["keep", "drop"]) -> None:
        """Its request is over; called again, nothing happens."""
        if connection not in self._busy:
            return
        self._busy.remove(connection)
        connection.rest()
        if how == "keep" and len(self._resting) < self._room:
            self._resting.append((self.loop.time() + self._rest_s, connection))
            if self._timer is None:
                self._timer = self.loop.call_later(self._rest_s, self._close_expired)
        else:
            connection.close()

    async def _exchange(self, connection: Connection, message: bytes, over_at: float) -> Answer:
        self._busy.add(connection)
        silent = True
        try:
            connection.send(message, over_at, self._idle_s)
            reader = HeadReader()
            while True:
                raw = await connection.read()
                if not raw:
                    raise ConnectionError("the connection was closed in the middle of the answer")
                silent = False
                if (found := reader.feed(raw)) is not None:
                    return Answer(self, connection, *found)
        except BaseException as error:
            self.put_back(connection, "drop")
            if silent and isinstance(error, ConnectionError):
                raise Unanswered(Unanswered.__doc__) from error
            raise

    # ---- keeping ----------------------------------------------------------------------------------------------------

    def _kept(self) -> Connection | None:
        """The connection used last, if any still stands."""
        while self._resting:
            _, connection = self._resting.pop()
            if connection.fresh:
                return connection
            connection.close()
        return None

    def _close_expired(self) -> None:
        now = self.loop.time()
        while self._resting and self._resting[0][0] <= now:
            self._resting.popleft()[1].close()
        later = self._resting[0][0] if self._resting else None
        self._timer = None if later is None else self.loop.call_at(later, self._close_expired)
