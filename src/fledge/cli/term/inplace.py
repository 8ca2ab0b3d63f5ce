"""A live region without an input: rows that are drawn anew at the bottom of a terminal, and rows above them that stay.

For commands that show their work and read no keys. The owner of the region provides its rows; this file decides when a
picture is drawn, and `picture` which bytes that takes. Keys that are typed meanwhile are not echoed: an echo would move
the cursor, from which the next picture is drawn.
"""

import asyncio
import os
import signal
import termios
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from fledge.cancellation import end_tasks
from fledge.cli.term.opening import folds, terminal_size
from fledge.cli.term.outputs import is_in_foreground
from fledge.cli.term.picture import Painter, ScreenCursor
from fledge.cli.term.writer import Writer, draw_frames

STOPPING_S: Final = 0.5
"""How long to wait for the terminal before Ctrl-Z stops the process."""


class InPlace:
    """A live region. Open it with `async with`; at its end it is taken away, and the rows put above it stay."""

    def __init__(
        self, writer: Writer, size: Callable[[], os.terminal_size], keys: "TerminalKeys", *, folds: bool
    ) -> None:
        self._writer, self._size, self._keys = writer, size, keys
        self.rows: Callable[[int, int], list[str]] = lambda width, room: []
        """Gives the rows of the region now, for a width and a room: at most so many rows, none wider."""
        self.moves_in: Callable[[], float | None] = lambda: None
        """Gives the seconds until its rows look different by themselves; None: they do not."""
        self._painter = Painter(folds=folds)
        self._above: list[str] = []
        self._changed = asyncio.Event()
        self._changed.set()
        self._frames: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "InPlace":
        self._frames = asyncio.ensure_future(draw_frames(self._changed, lambda: self.moves_in(), self.draw))
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._frames is not None:
            await end_tasks([self._frames])
        self.take_away()

    @property
    def width(self) -> int:
        """Columns that are used: one less than there are, so that no terminal folds a full row."""
        return max(1, self._size().columns - 1)

    def above(self, rows: Sequence[str]) -> None:
        """Rows that stay, above the region. One that is wider than the terminal is folded by it."""
        self._above += rows
        self._changed.set()

    def change(self) -> None:
        """The rows of the region have changed."""
        self._changed.set()

    def written(self) -> None:
        """The terminal has taken everything."""
        if self._frames is not None and not self._frames.done() and self._changed.is_set():
            self.draw()

    def draw(self) -> None:
        """Draw a picture, unless one is still being written: the next one includes all that this one would have
        shown."""
        if self._writer.is_busy:
            return
        self._changed.clear()
        rows = self.rows(self.width, max(0, self._size().lines - 1)) if self._keys.hush() else []
        if self._above or rows or self._painter.stands:
            self._paint(rows)

    def take_away(self) -> None:
        """Take the region away; rows above it that were not written yet are written."""
        if self._above or self._painter.stands:
            self._paint([])
            self._painter.forget()
        self._keys.give_back()

    def _paint(self, rows: list[str]) -> None:
        above, self._above = self._above, []
        data = self._painter.paint(above, rows, None if rows else ScreenCursor(0, 0), self._size().columns)
        if data:
            self._writer.put(data)


class TerminalKeys:
    """The keys of a real terminal. Its modes are changed only while this process is in its foreground: the terminal
    stops a background process that changes them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept: list[int | list[bytes | int]] | None = None

    def hush(self) -> bool:
        """Stop the echo of keys; False if the terminal belongs to another program now, and no region may be drawn.
        Ctrl-C stays a signal."""
        if not is_in_foreground(self._descriptor):
            return False
        if self._kept is None:
            with suppress(termios.error):
                kept = termios.tcgetattr(self._descriptor)
                quiet = [*kept]
                flags = kept[3]
                assert isinstance(flags, int)
                quiet[3] = flags & ~(termios.ECHO | termios.ECHONL)
                termios.tcsetattr(self._descriptor, termios.TCSANOW, quiet)
                self._kept = kept
        return True

    def give_back(self) -> None:
        """Echo keys as before, also where the terminal takes no bytes at the moment."""
        if self._kept is not None and is_in_foreground(self._descriptor):
            with suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._kept)
        self._kept = None


@asynccontextmanager
async def in_place(writer: Writer, descriptor: int) -> AsyncIterator[InPlace]:
    """A live region on this terminal until the block ends, empty until its `rows` are set. It is drawn anew at a new
    size, and is gone while Ctrl-Z stops the process."""
    size = partial(terminal_size, descriptor)
    region = InPlace(writer, size, TerminalKeys(descriptor), folds=folds())
    writer.on_written = region.written
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    async def stop() -> None:
        region.take_away()
        await writer.drain(STOPPING_S)
        os.kill(os.getpid(), signal.SIGSTOP)  # the process stops here, and continues here
        region.change()

    def stopped() -> None:
        task = asyncio.ensure_future(stop())
        stopping.add(task)
        task.add_done_callback(stopping.discard)

    handled = {signal.SIGWINCH: region.change, signal.SIGTSTP: stopped}
    with suppress(ValueError, RuntimeError):  # only the main thread can handle signals
        for number, handler in handled.items():
            loop.add_signal_handler(number, handler)
    try:
        async with region:
            yield region
    finally:
        for number in handled:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)
