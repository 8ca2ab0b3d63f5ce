"""Bodies of requests, each limited in bytes and in time.

Bodies of senders who are not known before the body has come, such as posts of channels, are also limited together: at
most so many at once, of so many bytes in all. When there is no room the oldest one is given up: a message of a real
channel arrives at once, and a stranger's slow one cannot hold its place.
"""

import asyncio
import math
from typing import Final

from starlette.requests import ClientDisconnect, Request

MOST_AT_ONCE: Final = 64
"""The most bodies of strangers at once, and the most bytes of them together."""
MOST_BYTES: Final = 16 * 1024 * 1024


class NotTaken(Exception):
    """A body is not taken: an HTTP status, and why."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Bodies:
    """The bodies that are being read: limited in number, and in bytes together."""

    def __init__(self, patience_s: float, at_once: float = math.inf, altogether: float = math.inf) -> None:
        self._patience_s, self._at_once, self._altogether = patience_s, at_once, altogether
        self._held: dict[asyncio.Timeout, int] = {}
        """Bytes by the deadline of each, the oldest first."""

    async def body(self, request: Request, most: int, too_large: str = "") -> bytes:
        """The whole body. Raises NotTaken if it has more bytes than `most`, takes too long, breaks off, or has to make
        room for others."""
        not_taken = NotTaken(413, too_large or f"at most {most} bytes")
        told = request.headers.get("content-length", "0")
        if not told.isdecimal() or int(told) > most:
            raise not_taken
        body, given_up = bytearray(), False
        try:
            async with asyncio.timeout(self._patience_s) as deadline:
                self._held[deadline] = 0
                try:
                    self._make_room()
                    async for piece in request.stream():
                        body += piece
                        if len(body) > most:
                            raise not_taken
                        if deadline in self._held:
                            self._held[deadline] = len(body)
                            self._make_room()
                finally:
                    given_up = self._held.pop(deadline, None) is None
        except TimeoutError:
            if given_up:
                raise NotTaken(503, "too many requests at once: try again") from None
            raise NotTaken(408, "the request took too long to arrive") from None
        except ClientDisconnect:
            raise NotTaken(400, "the request broke off") from None
        return bytes(body)

    def _make_room(self) -> None:
        while len(self._held) > self._at_once or sum(self._held.values()) > self._altogether:
            oldest = next(iter(self._held))
            del self._held[oldest]
            if not oldest.expired():
                oldest.reschedule(0.0)
