"""Connections to the gateway's port: each has a deadline for the head of its request, and there is room for one more.

A connection *waits* until the head of a request is complete. When there are too many, the one that has waited longest
is closed, so that connections that send nothing cannot keep the owner out. This file knows uvicorn's HTTP/1.1 protocol,
and nothing of what requests ask for.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def limited(most: int, head_s: float) -> type[H11Protocol]:
    """The protocol of a server that has at most this many connections, whose heads may take this long."""
    waiting: dict[H11Protocol, asyncio.TimerHandle] = {}
    """Connections that wait for a head, the longest first, each with the timer that closes it."""

    class Limited(H11Protocol):
        """One connection."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """A new connection waits; it takes the place of the one that has waited longest, if all places are
            taken."""
            super().connection_made(transport)
            self._look()
            longest = next(iter(waiting))
            if len(self.connections) > most and longest is not self:
                waiting.pop(longest).cancel()
                self.connections.discard(longest)
                longest.transport.abort()

        def data_received(self, data: bytes) -> None:
            """Perhaps the head is complete now."""
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            """From now on the connection waits for the head of its next request."""
            super().on_response_complete()
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            """The connection no longer waits."""
            self._stop_waiting()
            super().connection_lost(exc)

        def _look(self) -> None:
            """Begin to wait, or stop waiting, as the connection stands now."""
            between_requests = self.cycle is None or self.cycle.response_complete
            is_http: bool = self.transport.get_protocol() is self  # else it is a WebSocket by now
            if not between_requests or not is_http:
                self._stop_waiting()
            elif self not in waiting:
                limit_s = head_s if self.cycle is None else head_s + self.timeout_keep_alive
                waiting[self] = self.loop.call_later(limit_s, self.transport.abort)

        def _stop_waiting(self) -> None:
            timer: Any = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

    return Limited
