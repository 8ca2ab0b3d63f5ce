"""Chooses and opens the screen that fits: the terminal's, or plain lines where a live region would be no help.

prompt_toolkit is imported only for a terminal that can show a live region.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from fledge.cli.term.plain import PlainScreen
from fledge.cli.term.shown import NoticeItem, Screen
from fledge.cli.term.writer import Writer

if TYPE_CHECKING:
    from prompt_toolkit.data_structures import Size

    from fledge.cli.term.screen import CompleteWord, TerminalScreen

LEAVING_S: Final = 1.0
"""How long to wait for a terminal that takes no bytes, when the person leaves."""
Manner = Literal["terminal", "lines", "accessible", "pipe"]


def manner(environment: Mapping[str, str], *, reads_terminal: bool, writes_terminal: bool) -> Manner:
    """How to show a conversation here. `FLEDGE_ACCESSIBLE` wins over the abilities of the terminal."""
    if not reads_terminal or not writes_terminal:
        return "pipe"
    if environment.get("FLEDGE_ACCESSIBLE", "") not in ("", "0"):
        return "accessible"
    return "lines" if environment.get("TERM", "dumb") in ("dumb", "") else "terminal"


def wants_colour(environment: Mapping[str, str]) -> bool:
    """False if the person asked for no colours."""
    return not environment.get("NO_COLOR")


@asynccontextmanager
async def screen_here(history: Path, complete: "CompleteWord") -> AsyncIterator[Screen]:
    """The screen that fits this process's input and output, until the block ends."""
    found = manner(os.environ, reads_terminal=sys.stdin.isatty(), writes_terminal=sys.stdout.isatty())
    if found == "terminal":
        try:
            async with in_terminal(history, complete) as screen:
                yield screen
            return
        except ImportError:
            found = "lines"
    lines = PlainScreen(sys.stdin, sys.stdout, answers=found != "pipe", by_line=found == "accessible")
    if found == "lines" and os.environ.get("TERM", "dumb") != "dumb":
        lines.say(NoticeItem("with `pip install 'fledge[chat]'` this becomes a screen with a line to edit"))
    yield lines


@asynccontextmanager
async def in_terminal(history: Path, complete: "CompleteWord") -> "AsyncIterator[TerminalScreen]":
    """The screen in this process's terminal, until the block ends. ImportError: prompt_toolkit is not installed."""
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.history import FileHistory

    from fledge.cli.term.cells import Theme
    from fledge.cli.term.screen import TerminalScreen

    descriptor = sys.stdout.fileno()

    def size() -> "Size":
        found = terminal_size(descriptor)
        return Size(rows=found.lines, columns=found.columns)

    history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(history, os.O_CREAT | os.O_APPEND, 0o600))
    writer = Writer(descriptor)
    screen = TerminalScreen(
        writer,
        size,
        theme=Theme(colour=wants_colour(os.environ)),
        history=FileHistory(str(history)),
        complete=complete,
        folds=folds(),
    )
    writer.on_written = screen.written
    running = asyncio.ensure_future(screen.run())
    try:
        yield screen
    finally:
        screen.close()
        await running
        await writer.drain(LEAVING_S)
        writer.close()


def terminal_size(descriptor: int) -> os.terminal_size:
    """The size of a terminal; where it does not know one, 80 columns or 24 lines are assumed."""
    found = os.get_terminal_size(descriptor)
    return os.terminal_size((found.columns or 80, found.lines or 24))


def folds() -> bool:
    """True unless the terminal is known to cut rows at a new width instead of folding them."""
    return os.environ.get("TERM", "") not in ("linux", "xterm-direct") and "XTERM_VERSION" not in os.environ
