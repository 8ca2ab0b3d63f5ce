"""A block of lines that change: redrawn in place on a terminal; elsewhere only the changed lines are printed.

Lines that are printed once stand above the block and stay. This file knows nothing of runs.
"""

import shutil
from collections.abc import Sequence
from typing import TextIO

from fledge.cli.printing import say

UP_AND_CLEAR = "\x1b[{}F\x1b[0J"


class LiveLines:
    """Shows a block of lines and keeps it up to date."""

    def __init__(self, out: TextIO, redraws: bool) -> None:
        """`redraws`: True if `out` is a terminal that can redraw lines."""
        self._out, self._redraws = out, redraws
        self._shown: list[str] = []
        self._drawn = 0

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines of the block."""
        before, self._shown = self._shown, list(lines)
        if not self._redraws:
            for line in self._shown:
                if line not in before:
                    say(line, self._out)
        elif self._shown != before:
            self._erase()
            self._draw()

    def say(self, text: str) -> None:
        """Print a text that stays, above the block."""
        self._erase()
        say(text, self._out)
        self._draw()

    def _erase(self) -> None:
        if self._redraws and self._drawn:
            self._out.write(UP_AND_CLEAR.format(self._drawn))
        self._drawn = 0

    def _draw(self) -> None:
        if not self._redraws:
            return
        width = shutil.get_terminal_size().columns
        for line in self._shown:
            # A line that wrapped would be counted as one and leave a trace behind.
            say(line if len(line) < width else line[: width - 2] + "…", self._out)
        self._out.flush()
        self._drawn = len(self._shown)
