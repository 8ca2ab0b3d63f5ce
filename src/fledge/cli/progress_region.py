"""The progress view of `fledge run` in a terminal: the chat's live region, without its input.

A file of its own, because it needs the extra `chat`.
"""

import shlex
from typing import Final

from fledge.cli.progress import ProgressView
from fledge.cli.term.cells import Theme, chop
from fledge.cli.term.inplace import InPlace
from fledge.cli.term.region import SPINS_PER_S, TAIL_ROWS, View, region_rows
from fledge.cli.term.scrollback import Scrollback
from fledge.cli.term.shown import ChatItem, TurnShown, Verbatim, WorkingChildren
from fledge.cli.term.writer import Writer
from fledge.core.printable import printable

TAIL_CHARS: Final = 4000
"""How many characters at the end of the answer in progress are used for its last rows."""


class ProgressRegion(ProgressView):
    """The region shows the turn and a row for each subagent, with what it does. Answers, calls of the conversation and
    cards of its subagents stay above."""

    looks = True

    def __init__(self, theme: Theme, out: Writer | None, place: InPlace) -> None:
        """`out`: standard output, if it is not the same terminal."""
        super().__init__()
        self._theme, self._out, self._place = theme, out, place
        self._scrollback = Scrollback(theme, lambda label: f"fledge log {shlex.quote(label) if label else ''}")
        self._turn: TurnShown | None = None
        self._children: WorkingChildren = ()
        self._words = ""
        place.rows, place.moves_in = self._rows, self._moves_in

    # ---- what it looks like

    def _rows(self, width: int, room: int) -> list[str]:
        view = View(tail=self._tail(width), turn=self._turn, children=self._children, reads_keys=False)
        return region_rows(view, width, room, self.now(), self._theme)

    def _moves_in(self) -> float | None:
        """Seconds until the region is redrawn by itself; None if nothing goes on."""
        return 1 / SPINS_PER_S if self._turn is not None else 1.0 if self._children else None

    def _tail(self, width: int) -> tuple[str, ...]:
        """The last rows of the answer in progress."""
        lines = printable(self._words[-TAIL_CHARS:]).rstrip("\n").split("\n")[-TAIL_ROWS:] if self._words else []
        return tuple(row for line in lines for row in chop(line, width))[-TAIL_ROWS:]

    # ---- the methods of the view

    def words(self, text: str) -> None:
        """Show the end of the answer in progress in the region."""
        self._words = text
        self._place.change()

    def print(self, text: str) -> None:
        """Print the text above the region, or on standard output if that leads elsewhere."""
        if self._out is None:
            self.note(text)
        else:
            self._out.print(f"{printable(text)}\n")

    def note(self, text: str) -> None:
        """Print the text above the region."""
        self.tell(text, Verbatim(text))

    def turn(self, turn: TurnShown | None) -> None:
        """Show the activity of the turn."""
        self._turn = turn
        self._place.change()

    def children(self, children: WorkingChildren) -> None:
        """Show a row for each subagent."""
        self._children = children
        self._place.change()

    def tell(self, line: str, stays: ChatItem | None = None) -> None:
        """Print the item that stays above the region, if there is one."""
        if stays is not None:
            self._scrollback.say(stays, self._place.width)
            self._place.above(self._scrollback.take())
