"""The output of `fledge run` while it works: the answers on standard output, and on standard error a live region in a
terminal, or a line for each event elsewhere.

Both are written by threads, so that an output that blocks (Ctrl-S, a stuck pipe) stops no subagent. If both are the
same file, one thread writes them, in order: neither interrupts the other.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from fledge.cli.term.figures import next_try
from fledge.cli.term.opening import wants_colour
from fledge.cli.term.outputs import draws_on, opened_outputs, stray_lines
from fledge.cli.term.shown import ChatItem, TurnShown, WorkingChildren
from fledge.cli.term.writer import Writer
from fledge.core.printable import printable


class ProgressView:
    """Shows the progress of a run, as far as there is room for it. No method waits."""

    looks = False
    """True if it needs the list of all subagents at work, again and again (`children`)."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        """The clock of all times in turns and children."""

    def words(self, text: str) -> None:
        """The answer in progress, as far as it is known; empty: there is none."""

    def print(self, text: str) -> None:
        """A whole answer, or another line, for standard output."""

    def note(self, text: str) -> None:
        """A note that the person must see."""

    def turn(self, turn: TurnShown | None) -> None:
        """The conversation's turn; None between turns."""

    def children(self, children: WorkingChildren) -> None:
        """All subagents at work."""

    def tell(self, line: str, stays: ChatItem | None = None) -> None:
        """An event, in a line: a tool is called, a subagent has begun to work or has ended, or is in a state that may
        last. `stays`: the item that a live region keeps above itself for it; the region shows states that last by
        itself."""


# ---- lines -----------------------------------------------------------------------------------------------------------


class ProgressLines(ProgressView):
    """A line for each event. Without `events`, only answers and notes."""

    def __init__(self, out: Writer, err: Writer, *, events: bool) -> None:
        super().__init__()
        self._out, self._err, self._events = out, err, events
        self._tried: tuple[str, int] | None = None

    def print(self, text: str) -> None:
        """Print the text on standard output."""
        self._out.print(f"{printable(text)}\n")

    def note(self, text: str) -> None:
        """Print the text on standard error."""
        self._err.put(f"{printable(text)}\n")

    def turn(self, turn: TurnShown | None) -> None:
        """Print a line for each try while the model cannot answer."""
        tried = (turn.tool, turn.attempt) if turn is not None and turn.state == "retrying" else None
        if turn is not None and tried is not None and tried != self._tried:
            self.tell(f"{turn.tool} · {next_try(turn, self.now())}")
        self._tried = tried

    def tell(self, line: str, stays: ChatItem | None = None) -> None:
        """Print the line on standard error, if events are shown."""
        if self._events:
            self.note(line)


# ---- opening ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def progress_here(*, quiet: bool, is_stream: bool, draws: bool) -> AsyncIterator[ProgressView]:
    """The view that shows a run here, until the block ends; then everything is written. `is_stream`: standard output is
    a stream of events for a program, so lines for events on standard error would repeat them. Without `draws` there is
    no region."""
    async with opened_outputs() as outputs, AsyncExitStack() as stack:
        progress: ProgressView = ProgressLines(outputs.out, outputs.err, events=not quiet and not is_stream)
        if draws and not quiet and not (is_stream and outputs.is_one) and draws_on(sys.stderr):
            with suppress(ImportError):  # the extra `chat` is not installed
                from fledge.cli.progress_region import ProgressRegion
                from fledge.cli.term.cells import Theme
                from fledge.cli.term.inplace import in_place

                place = await stack.enter_async_context(in_place(outputs.err, sys.stderr.fileno()))
                out = None if outputs.is_one else outputs.out
                progress = ProgressRegion(Theme(colour=wants_colour(os.environ)), out, place)
        await stack.enter_async_context(stray_lines(progress.note))
        yield progress
