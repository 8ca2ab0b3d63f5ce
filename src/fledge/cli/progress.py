"""What `fledge run` shows while it works: the answers on standard output, and beside them, on standard error, a live
region in a terminal, or a line for each event elsewhere.

Both are written by threads, so that an output that takes nothing (Ctrl-S, a stuck pipe) stops no subagent. If both are
the same file, one thread writes them, in order: neither tears the other.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from fledge.cli.term.figures import next_try
from fledge.cli.term.opening import wants_colour
from fledge.cli.term.outputs import Output, draws_on, opened_outputs, stray_lines
from fledge.cli.term.plain import card_line
from fledge.cli.term.shown import Called, EndedItem, NoticeItem, TurnShown, Verbatim, WorkingChildren
from fledge.core.printable import printable

if TYPE_CHECKING:
    from fledge.cli.term.cells import Theme
    from fledge.cli.term.inplace import InPlace

TAIL_CHARS: Final = 4000
"""How much of an answer on its way is looked at for its last rows."""


class ProgressView:
    """Shows what goes on, or as much of it as there is room for. Nothing here waits."""

    looks = False
    """True if it wants to be told all subagents at work, again and again (`children`)."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        """The time that turns and children are told in."""

    def words(self, text: str) -> None:
        """The answer on its way, as far as it is known; empty: none is."""

    def answer(self, text: str) -> None:
        """A whole answer, for standard output."""
        self.print(text)

    def print(self, line: str) -> None:
        """Another line for standard output."""

    def note(self, text: str) -> None:
        """Something the person must know."""

    def turn(self, turn: TurnShown | None) -> None:
        """The conversation's turn; None between turns."""

    def children(self, children: WorkingChildren) -> None:
        """All subagents at work."""

    def called(self, who: str, call: str, *, by_child: bool) -> None:
        """A tool is called."""

    def state(self, who: str, words: str) -> None:
        """A subagent has begun to work, or is in a state that may last: it waits for its model, or for a person."""

    def ended(self, card: EndedItem, *, is_direct: bool) -> None:
        """A subagent has ended, of the conversation itself or further down."""


# ---- lines -----------------------------------------------------------------------------------------------------------


class ProgressLines(ProgressView):
    """A line for each event. Without `events`, only answers and notes."""

    def __init__(self, out: Output, err: Output, *, events: bool) -> None:
        super().__init__()
        self._out, self._err, self._events = out, err.writer, events
        self._tried: tuple[str, int] | None = None

    def print(self, line: str) -> None:
        """Print it."""
        self._out.put(f"{printable(line)}\n")

    def note(self, text: str) -> None:
        """Print it beside the answers."""
        self._err.put(f"{printable(text)}\n")

    def turn(self, turn: TurnShown | None) -> None:
        """A model that cannot answer has a line for each try."""
        tried = (turn.tool, turn.attempt) if turn is not None and turn.state == "retrying" else None
        if turn is not None and tried is not None and tried != self._tried:
            self.state(turn.tool, next_try(turn, self.now()))
        self._tried = tried

    def called(self, who: str, call: str, *, by_child: bool) -> None:
        """A line."""
        self.state(who, call)

    def state(self, who: str, words: str) -> None:
        """A line."""
        if self._events:
            self.note(f"{who} · {words}")

    def ended(self, card: EndedItem, *, is_direct: bool) -> None:
        """A line."""
        if self._events:
            self.note(card_line(card))


# ---- a region --------------------------------------------------------------------------------------------------------


class Region(ProgressView):
    """The chat's live region, without its input. It is `inplace.Rows`. What a subagent does stands in its row."""

    looks = True

    def __init__(self, theme: "Theme", out: Output | None) -> None:
        """`out`: standard output, if it is not the same terminal."""
        from fledge.cli.term.scrollback import Scrollback

        super().__init__()
        self._theme, self._out = theme, out
        self._scrollback = Scrollback(theme, lambda label: f"fledge log {shlex.quote(label) if label else ''}")
        self.place: InPlace | None = None
        """Where things are shown, once that is known."""
        self._turn: TurnShown | None = None
        self._children: WorkingChildren = ()
        self._words = ""

    # ---- what it looks like

    def rows(self, width: int, room: int) -> list[str]:
        """The region as it is now."""
        from fledge.cli.term import region

        view = region.View(tail=self._tail(width), turn=self._turn, children=self._children, reads_keys=False)
        return region.region_rows(view, width, room, self.now(), self._theme)

    def moves_in(self) -> float | None:
        """While something goes on, the region moves."""
        from fledge.cli.term.region import SPINS_PER_S

        return 1 / SPINS_PER_S if self._turn is not None else 1.0 if self._children else None

    def _tail(self, width: int) -> tuple[str, ...]:
        """The last rows of the answer on its way."""
        from fledge.cli.term.cells import chop
        from fledge.cli.term.region import TAIL_ROWS

        lines = printable(self._words[-TAIL_CHARS:]).rstrip("\n").split("\n")[-TAIL_ROWS:] if self._words else []
        return tuple(row for line in lines for row in chop(line, width))[-TAIL_ROWS:]

    # ---- what it is told

    def words(self, text: str) -> None:
        """The end of the answer on its way stands in the region."""
        self._words = text
        self._change()

    def answer(self, text: str) -> None:
        """Print it: above the region, or where standard output leads."""
        self._words = ""
        super().answer(text)

    def print(self, line: str) -> None:
        """The same."""
        if self._out is None:
            self._say(Verbatim(line))
        else:
            self._out.put(f"{printable(line)}\n")
        self._change()

    def note(self, text: str) -> None:
        """Say it above the region."""
        self._say(Verbatim(text))

    def turn(self, turn: TurnShown | None) -> None:
        """What the turn does."""
        self._turn = turn
        self._change()

    def children(self, children: WorkingChildren) -> None:
        """A row for each."""
        self._children = children
        self._change()

    def called(self, who: str, call: str, *, by_child: bool) -> None:
        """Calls of the conversation stay; those of a subagent stand in its row."""
        if not by_child:
            self._say(Called(call))

    def ended(self, card: EndedItem, *, is_direct: bool) -> None:
        """A card."""
        if is_direct:
            self._say(card)

    def _say(self, item: Called | EndedItem | NoticeItem | Verbatim) -> None:
        assert self.place is not None
        self._scrollback.say(item, self.place.width)
        self.place.above(self._scrollback.take())

    def _change(self) -> None:
        if self.place is not None:
            self.place.change()


# ---- opening ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def progress_here(*, quiet: bool, is_stream: bool, draws: bool) -> AsyncIterator[ProgressView]:
    """What shows a run here, until the block ends; then everything is written. `is_stream`: standard output is a stream
    of events for a program, so a line for each on standard error would say them twice. Without `draws` there is no
    region."""
    async with opened_outputs() as outputs, AsyncExitStack() as stack:
        progress: ProgressView = ProgressLines(outputs.out, outputs.err, events=not quiet and not is_stream)
        if draws and not quiet and not (is_stream and outputs.is_one) and draws_on(sys.stderr):
            with suppress(ImportError):  # what it takes is not installed
                from fledge.cli.term.cells import Theme
                from fledge.cli.term.inplace import in_place

                region = Region(Theme(colour=wants_colour(os.environ)), None if outputs.is_one else outputs.out)
                region.place = await stack.enter_async_context(in_place(outputs.err, sys.stderr.fileno(), region))
                progress = region
        await stack.enter_async_context(stray_lines(progress.note))
        yield progress
