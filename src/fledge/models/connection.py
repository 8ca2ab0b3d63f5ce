"""One connection: bytes out, bytes in, at the reader's pace and within its patience. Knows no HTTP.

A protocol on the transport itself, without asyncio's streams: they cost a third of a short call. What has arrived is
held until it is read; above a limit the transport is told to wait, and with it the sender.
"""

import asyncio
import select
from typing import cast

MOST_HELD_BYTES = 256 * 1024
"""Once more than this waits to be read, nothing is taken from the network."""


class Connection(asyncio.Protocol):
    """A connection that stands. One request at a time: `send`, then `read` until its answer is whole, then `rest`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_at = self._over_at = 0.0
        self._idle_s = 0.0
        self._trouble: Exception | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done once nothing of the connection is left."""

    # ---- what the transport tells -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Hold it, and wake whoever waits for it."""
        self._pieces.append(data)
        self._held += len(data)
        self._wake()
        if self._held > MOST_HELD_BYTES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is no more; what was received can still be read."""
        self._transport = None
        self._trouble = self._trouble or exc
        self._stop_timer()
        self._wake()
        if not self.gone.done():
            self.gone.set_result(None)

    # ---- what a request does ----------------------------------------------------------------------------------------

    def send(self, data: bytes, over_at: float, idle_s: float) -> None:
        """Write a request. Its answer must be whole at `over_at` of the loop's time; no read waits for `idle_s`."""
        self._over_at, self._idle_s = over_at, idle_s
        self._timer = self._loop.call_at(min(over_at, self._loop.time() + idle_s), self._check_patience)
        if self._transport is not None:
            self._transport.write(data)

    def hurry(self, seconds: float) -> None:
        """Whatever was said before, there is only so much time left."""
        self._stop_timer()
        self._over_at = min(self._over_at, self._loop.time() + seconds)
        self._timer = self._loop.call_at(self._over_at, self._check_patience)

    async def read(self) -> bytes:
        """What has arrived, as soon as there is any; nothing once the other side has closed. Raises what broke it."""
        if not self._pieces and self._transport is not None and self._trouble is None:
            self._waiter, self._waiting_at = self._loop.create_future(), self._loop.time()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if not self._pieces:
            if self._trouble is not None:
                raise self._trouble
            return b""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        self._held = 0
        if self._paused:
            self._paused = False
            if self._transport is not None:
                self._transport.resume_reading()
        return data

    def rest(self) -> None:
        """The answer was read whole: until the next request nobody waits, and nothing may come."""
        self._stop_timer()

    @property
    def fresh(self) -> bool:
        """Nothing has come or been closed since it rests, not even what the loop has yet to see."""
        if self._transport is None or self._transport.is_closing() or self._pieces or self._trouble is not None:
            return False
        socket = self._transport.get_extra_info("socket")
        poll = select.poll()
        poll.register(socket.fileno(), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Drop it at once, whatever is under way."""
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _check_patience(self) -> None:
        # The timer is not moved whenever something arrives, which would cost more than reading it: it looks again.
        now = self._loop.time()
        since = now if self._waiter is None else self._waiting_at  # who does not wait cannot lose patience
        if now >= self._over_at:
            self._give_up("the whole answer took too long")
        elif now >= since + self._idle_s:
            self._give_up(f"nothing came for {self._idle_s:g} s")
        else:
            self._timer = self._loop.call_at(min(self._over_at, since + self._idle_s), self._check_patience)

    def _give_up(self, words: str) -> None:
        self._trouble = self._trouble or TimeoutError(words)
        self.close()
        self._wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
