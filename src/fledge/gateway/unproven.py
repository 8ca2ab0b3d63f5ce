"""Bodies of requests whose sender is not known before the body has come, as what channels post: bounded altogether.

There are at most so many at once, of so many bytes together, each for so long. When there is no room the one that came
first is given up: a message of a real channel is there at once, and a stranger's slow one cannot hold its place.
"""

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

MOST_AT_ONCE: Final = 64
MOST_BYTES: Final = 16 * 1024 * 1024


class NotTaken(Exception):
    """A body is not taken: an HTTP status, and why."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Unproven:
    """The bodies that are being read."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._held: dict[asyncio.Timeout, int] = {}
        """Bytes by the deadline of each, the oldest first."""

    async def body(self, request: Request, most: int) -> bytes:
        """The whole body. Raises NotTaken if it has more bytes than `most`, takes too long, breaks off, or has to make
        room for others."""
        told = request.headers.get("content-length", "0")
        if not told.isdecimal() or int(told) > most:
            raise NotTaken(413, f"at most {most} bytes")
        body, given_up = bytearray(), False
        try:
            async with asyncio.timeout(self._patience_s) as deadline:
                self._held[deadline] = 0
                try:
                    self._make_room()
                    async for piece in request.stream():
                        body += piece
                        if len(body) > most:
                            raise NotTaken(413, f"at most {most} bytes")
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
        while len(self._held) > MOST_AT_ONCE or sum(self._held.values()) > MOST_BYTES:
            oldest = next(iter(self._held))
            del self._held[oldest]
            if not oldest.expired():
                oldest.reschedule(0.0)
