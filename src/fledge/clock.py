"""The sources of time. All code that decides about runs, sessions and messages reads the time from a clock that is a
parameter; only code about the machine (such as locks, servers, processes, clients, terminals) reads the machine's time
itself.

Under virtual time (`fledge.testing`) the loop's time jumps whenever every coroutine waits. It waits by itself for work
that goes through the loop (`asyncio.to_thread`, executors, asyncio's subprocesses). A file that starts a thread or a
process of its own calls `hold_time`; `tests/test_virtual_time.py` finds one that does not.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from fledge.core.run import Instant
from fledge.errors import BadInput


class Clock(Protocol):
    """Tells the time and waits for it."""

    def now(self) -> Instant:
        """Seconds since the epoch."""

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        """Return when `at` has come or `poked` is set, whichever is first; None waits for `poked` alone."""


class SystemClock:
    """The machine's time."""

    def now(self) -> Instant:
        """Seconds since the epoch."""
        return time.time()

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        """Sleep until then, or until poked."""
        await wait_for_event(poked, None if at is None else max(0.0, at - self.now()))


async def pause(clock: Clock, seconds: float) -> None:
    """Let so much time of this clock pass."""
    await clock.wait_until(clock.now() + seconds, asyncio.Event())


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until the event is set, but not longer than this; True if it is. None: as long as it takes."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def deadline_after(now: float, timeout: float | None) -> float | None:
    """When a wait of so many seconds ends; None waits for ever. Refused: anything but a number of seconds."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise BadInput("timeout", "must be seconds, 0 or more, or None to wait for ever", timeout)
    return now + min(timeout, 1e9)


def hold_time(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Announce work that a thread or process begins for this loop. Call the returned function, in the loop, at its end.

    Virtual time stands still in between. On any other loop this does nothing.
    """
    hold: Callable[[], Callable[[], None]] | None = getattr(loop, "hold_time", None)
    return _nothing_held if hold is None else hold()


def _nothing_held() -> None:
    """The machine's time cannot be held."""
