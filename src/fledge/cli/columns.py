"""Rows of cells as lines of a terminal: columns that line up, and fit its width.

If there is no room, whole columns are dropped first, in a given order; then texts are cut, and a sign marks the cut.
Texts are measured in columns of the terminal: a Chinese character takes two.
"""

import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import Final

GAP: Final = "  "
NARROWEST: Final = 8
"""A column that is cut keeps at least this width."""


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes. Without the extra `chat`, the parts of a composed character are
    counted one by one."""
    if text.isascii():
        return len(text)
    try:
        from fledge.cli.term.cells import columns
    except ImportError:
        return sum(0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF") for one in text)
    return columns(text)


def fitted(text: str, room: int) -> str:
    """The text, cut to so many columns; a sign marks the cut."""
    if width_of(text) <= room:
        return text
    kept = ""
    for one in text:
        if width_of(kept + one) > room - 1:
            break
        kept += one
    return f"{kept.rstrip()}…" if room > 0 else ""


def table(rows: Sequence[Sequence[str]], room: int | None, cut: Sequence[int], drop: Sequence[int]) -> list[str]:
    """The rows as lines: `cut` are the columns whose texts may be cut, `drop` those that are dropped first, in this
    order; without a `room` nothing is cut or dropped. A column that is empty everywhere is left out."""
    if not rows:
        return []
    widths = {at: width for at in range(len(rows[0])) if (width := max(width_of(row[at]) for row in rows))}
    if room is not None:
        for at in drop:
            if _whole(widths) > room and at in widths and len(widths) > 1:
                del widths[at]
        for at in cut:
            if at in widths:
                widths[at] = max(min(widths[at], NARROWEST), widths[at] - max(0, _whole(widths) - room))
    return [_line(row, widths) for row in rows]


def _whole(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _line(row: Sequence[str], widths: dict[int, int]) -> str:
    padded = []
    for at, width in widths.items():
        cell = fitted(row[at], width)
        padded.append(cell + " " * (width - width_of(cell)))
    return GAP.join(padded).rstrip()


def terminal_width() -> int | None:
    """The width of the terminal at standard output; None if that is no terminal: then nothing is cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
    except (OSError, ValueError):
        return None
