"""Draws the next picture over the last one with few bytes: rows go above the region once, changed rows are drawn anew.

A `Painter` knows the rows on the terminal and answers the text to write; it writes nothing. It never asks the terminal
where the cursor is, and never touches a row above the region. A picture is one synchronized update, so that no terminal
shows half of one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from fledge.cli.term.cells import columns_of_row

_BEGIN: Final = "\x1b[?2026h\x1b[?25l"
_END: Final = "\x1b[?2026l"
_CLEAR_ROW: Final = "\x1b[2K"
"""Erases a row whole: tmux keeps cells that are only erased from the cursor on, and folds them at a new width."""
_CLEAR_BELOW: Final = "\x1b[J"


class ScreenCursor(NamedTuple):
    """A place in the region."""

    x: int
    y: int


class Painter:
    """The rows of the region that stand on the terminal."""

    def __init__(self, *, folds: bool) -> None:
        self._folds = folds
        """True if the terminal folds rows for which a new width is too narrow; xterm cuts them."""
        self.forget()

    @property
    def stands(self) -> bool:
        """True while rows of a region stand on the terminal."""
        return bool(self._rows)

    def forget(self) -> None:
        """Nothing of the region stands on the terminal; the cursor is where its first row shall be."""
        self._rows: list[str] = []
        self._cursor: ScreenCursor | None = ScreenCursor(0, 0)
        self._columns = 0

    def paint(self, above: Sequence[str], rows: Sequence[str], cursor: ScreenCursor | None, width: int) -> str:
        """The text that makes these rows the region, with `above` written once above it; empty if nothing changes.

        Without a `cursor` the terminal's one rests hidden at the region's top: a terminal moves it with its row when it
        folds rows, so that the next picture begins there even if it is drawn before the new width is known.
        """
        is_fresh = bool(above) or width != self._columns or len(rows) < len(self._rows)
        if not is_fresh and list(rows) == self._rows and cursor == self._cursor:
            return ""
        out = [_BEGIN, "\r"]
        at = self._cursor.y if self._cursor is not None else 0
        known = self._rows
        if is_fresh:
            out.append(_up(self._below_top(width)))
            out += self._rows_above(above, width)
            at, known = 0, []
        for number, row in enumerate(rows):
            if number < len(known) and known[number] == row:
                continue
            out.append(f"{_move(at, number)}\r{_CLEAR_ROW}\x1b[?7l{row}\x1b[?7h")
            at = number
        if is_fresh:
            out.append(_CLEAR_BELOW if rows else _CLEAR_ROW + _CLEAR_BELOW)
        out.append(_move(at, cursor.y if cursor is not None else 0) + "\r")
        if cursor is not None:
            out.append((f"\x1b[{cursor.x}C" if cursor.x else "") + "\x1b[?25h")
        out.append(_END)
        self._rows, self._cursor, self._columns = list(rows), cursor, width
        return "".join(out)

    def _rows_above(self, above: Sequence[str], width: int) -> list[str]:
        """The rows that stay. One that is wider than the terminal is folded by it, over rows that must be empty."""
        out = []
        if any(len(row) > width and columns_of_row(row) > width for row in above):
            height = len(self._rows)
            out.append("\r\n".join([_CLEAR_ROW] * height) + "\r" + _up(height - 1))
        return [*out, *(f"{_CLEAR_ROW}{row}\r\n" for row in above)]

    def _below_top(self, width: int) -> int:
        """How many rows the cursor is below the region's top now."""
        if self._cursor is None:
            return 0
        if not self._folds or not self._columns or width >= self._columns:
            return self._cursor.y
        folded = sum(max(1, -(-columns_of_row(row) // width)) for row in self._rows[: self._cursor.y])
        return folded + self._cursor.x // width


def _up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows > 0 else ""


def _move(origin: int, goal: int) -> str:
    return _up(origin - goal) or "\n" * (goal - origin)
