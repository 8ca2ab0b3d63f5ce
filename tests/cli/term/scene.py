"""A screen before a terminal of pyte's: the real application, keys through a pipe, virtual time, rows to look at.

`Glass` is the terminal with its scrollback; it cuts rows at a new width, as xterm does. `Scene` plays in it. A pen of a
test writes at once, or not at all while the terminal is stalled.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyte
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input

from fledge.cli.term.cells import Theme
from fledge.cli.term.screen import CompleteWord, TerminalScreen
from fledge.cli.term.shown import Wish
from fledge.cli.term.writer import Writer
from fledge.testing import run_virtual


class Glass:
    """A terminal: what stands on it, and what has scrolled out of it."""

    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=20_000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        self.bytes = 0

    def feed(self, data: str) -> None:
        """Take what is written to a terminal."""
        self.bytes += len(data.encode())
        self._stream.feed(data)

    @property
    def size(self) -> Size:
        """As it is now."""
        return Size(rows=self.screen.lines, columns=self.screen.columns)

    def resize(self, columns: int, lines: int) -> None:
        """Be of another size."""
        self.screen.resize(lines, columns)

    @property
    def cursor(self) -> tuple[int, int]:
        """Column and row."""
        return self.screen.cursor.x, self.screen.cursor.y

    @property
    def hides_cursor(self) -> bool:
        """True if the cursor is not shown."""
        return bool(self.screen.cursor.hidden)

    def _row(self, row: Any) -> str:
        return "".join(row[x].data for x in range(self.screen.columns)).rstrip()

    def rows(self) -> list[str]:
        """What stands on the terminal, without empty rows at its end."""
        rows = [self._row(self.screen.buffer[y]) for y in range(self.screen.lines)]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def all(self) -> list[str]:
        """The scrollback, and what stands on the terminal."""
        return [*(self._row(row) for row in self.screen.history.top), *self.rows()]

    def text(self) -> str:
        """All of it as one line, blanks joined."""
        return " ".join(" ".join(self.all()).split())


class GlassPen(Writer):
    """Writes to a glass at once, without a thread; while it is stalled it holds everything back."""

    def __init__(self, glass: Glass) -> None:
        self._glass = glass
        self._held: list[str] = []
        self.is_stalled = False
        self.on_written: Callable[[], None] = lambda: None
        self.writes = 0
        self.last = ""

    @property
    def is_busy(self) -> bool:
        """True while something is held back."""
        return bool(self._held)

    def put(self, data: str) -> None:
        """Write it, or hold it back."""
        self.writes += 1
        self.last = data
        if self.is_stalled:
            self._held.append(data)
            return
        self._glass.feed(data)
        asyncio.get_running_loop().call_soon(self.on_written)

    def go_on(self) -> None:
        """The terminal takes bytes again."""
        self.is_stalled = False
        self._glass.feed("".join(self._held))
        self._held.clear()
        self.on_written()


class Scene:
    """A screen, its glass and its keys."""

    def __init__(self, screen: TerminalScreen, glass: Glass, pen: GlassPen, typed: PipeInput) -> None:
        self.screen, self.glass, self.pen, self._typed = screen, glass, pen, typed
        self._wishes: list[Wish] = []

    async def pause(self, seconds: float = 0.11) -> None:
        """Let virtual time pass: at least as long as a picture takes to be drawn."""
        await asyncio.sleep(seconds)

    async def type(self, text: str, pause: float = 0.11) -> None:
        """Press keys, all at once."""
        self._typed.send_text(text)
        await self.pause(pause)

    async def stream(self, text: str) -> None:
        """Let an answer come, word by word, with pictures between."""
        for word in text.split(" "):
            self.screen.words(f"{word} ")
            await self.pause(0.03)
        await self.pause()

    def wishes(self) -> list[Wish]:
        """What the person wanted since the last look."""
        found, self._wishes = self._wishes, []
        return found

    async def listen(self) -> None:
        """Keep what the person wants, for a look at it."""
        while True:
            wish = await self.screen.wish()
            self._wishes.append(wish)

    async def resize(self, columns: int, lines: int) -> None:
        """The terminal has another size."""
        self.glass.resize(columns, lines)
        self.screen.draw()
        await self.pause()


@asynccontextmanager
async def scene(
    columns: int = 80,
    lines: int = 24,
    *,
    complete: CompleteWord = lambda _: (),
    folder: Path | None = None,
) -> AsyncIterator[Scene]:
    """A screen that runs while the block lasts."""
    glass = Glass(columns, lines)
    pen = GlassPen(glass)
    with create_pipe_input() as typed:
        screen = TerminalScreen(
            pen,
            lambda: glass.size,
            typed=typed,
            theme=Theme(),
            history=InMemoryHistory(),
            complete=complete,
            folder=folder,
            folds=False,
        )
        pen.on_written = screen.written
        running = asyncio.ensure_future(screen.run())
        opened = Scene(screen, glass, pen, typed)
        listening = asyncio.ensure_future(opened.listen())
        await opened.pause(2)
        try:
            yield opened
        finally:
            listening.cancel()
            pen.is_stalled = False
            screen.close()
            await running


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Play a story in virtual time."""
    run_virtual(story())
