"""Where time comes from. The clock is always a parameter; nothing in fledge reads the time any other way."""

import asyncio
import time
from typing import Protocol

from fledge.core.run import Instant


class Clock(Protocol):
    """Tells the time and waits for it."""

    def now(self) -> Instant:
        """Seconds since the epoch."""
        ...

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        """Return when `at` has come or `poked` is set, whichever is first; None waits for `poked` alone."""
        ...


class SystemClock:
    """The machine's time."""

    def now(self) -> Instant:
        """Seconds since the epoch."""
        return time.time()

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        """Sleep until then, or until poked."""
        delay = None if at is None else max(0.0, at - self.now())
        try:
            async with asyncio.timeout(delay):
                await poked.wait()
        except TimeoutError:
            pass
