"""A thread that writes to the terminal, so that one that takes no bytes (Ctrl-S, a stuck connection) blocks nothing.

While a picture is being written, `is_busy` holds and no other should be made: the next one includes all that the
skipped ones would have shown. A terminal that is gone takes everything and shows nothing.
"""

import asyncio
import io
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import Final

from fledge.clock import hold_time, wait_for_event
from fledge.errors import FledgeError

FRAME_S: Final = 0.05
"""The least time between two pictures that no key caused."""


class Writer:
    """Writes what it is given, in order, without ever making its caller wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.on_written: Callable[[], None] = lambda: None
        """Called in the loop whenever everything given so far has been written."""
        self._loop = asyncio.get_running_loop()
        self._given: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unwritten = 0
        self._release: Callable[[], None] = lambda: None
        self._written = asyncio.Event()
        self._written.set()
        self.failure: OSError | None = None
        """The first error of a write; nothing is written after it."""
        self._thread = threading.Thread(target=self._pump, name="terminal", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """True while something waits to be written."""
        return self._unwritten > 0

    def put(self, data: str) -> None:
        """Write it, after all that was given before."""
        if not self._unwritten:
            self._release = hold_time(self._loop)
        self._unwritten += 1
        self._written.clear()
        self._given.put(data.encode("utf-8", "replace"))

    def print(self, text: str) -> None:
        """The same for words that must arrive: raises if something before them could not be written."""
        self.check()
        self.put(text)

    def check(self) -> None:
        """Raises BrokenPipeError if the reader is gone, FledgeError if something could not be written."""
        if isinstance(self.failure, BrokenPipeError):
            raise self.failure
        if self.failure is not None:
            raise FledgeError(f"standard output cannot be written: {self.failure.strerror}")

    async def drain(self, patience_s: float | None) -> bool:
        """Wait until everything is written, but not longer than this; True if it is. None: as long as it takes."""
        return await wait_for_event(self._written, patience_s)

    def close(self) -> None:
        """Let the thread end when it has written everything it was given."""
        self._given.put(None)

    def _pump(self) -> None:
        while (data := self._given.get()) is not None:
            try:
                if self.failure is None:
                    self._write(data)
            except OSError as error:  # a terminal that is gone, whose reader notices; an unread pipe; a full disk
                self.failure = error
            try:
                self._loop.call_soon_threadsafe(self._one_written)
            except RuntimeError:
                return  # the loop is closed

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])

    def _one_written(self) -> None:
        self._unwritten -= 1
        if not self._unwritten:
            self._release()
            self._written.set()
            self.on_written()


class WriterFile(io.StringIO):
    """A writer as the text file that prompt_toolkit writes to."""

    def __init__(self, put: Callable[[str], None]) -> None:
        super().__init__()
        self._put = put

    def write(self, text: str) -> int:
        """Hand it to the writer."""
        self._put(text)
        return len(text)

    def isatty(self) -> bool:
        """It stands for a terminal."""
        return True


async def draw_frames(changed: asyncio.Event, moves_in: Callable[[], float | None], draw: Callable[[], None]) -> None:
    """Draw when something has changed, and while something moves: `moves_in` gives the seconds until the picture looks
    different by itself."""
    while True:
        await wait_for_event(changed, moves_in())
        draw()
        await asyncio.sleep(FRAME_S)
