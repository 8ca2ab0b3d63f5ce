"""Text as columns of a terminal: how wide it is, where a row may end, how a style is written.

Widths come from wcwidth, by grapheme: an emoji of several code points is one character of two columns. Styles are
strings of letters, one for each attribute (`STYLES`). This file knows no markdown and writes nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from wcwidth import clip, iter_graphemes, wcswidth, wcwidth

from fledge.core.printable import printable

STYLES: Final = {"b": "1", "d": "2", "i": "3", "u": "4", "s": "9"}
"""Attributes: bold, dim, italic, underlined, struck out."""
COLOURS: Final = {"c": "36", "g": "32", "y": "33", "r": "31"}
"""Cyan, green, yellow, red; left out where the person wants no colours."""
NARROWEST: Final = 4
"""A row holds at least so many columns after its prefix, however narrow the terminal is."""

_SGR: Final = re.compile(r"\x1b\[[0-9;]*m")
_RUNS: Final = re.compile(r"\n|[^\S\n]+|\S+")
_CLINGS: Final = frozenset("、。，．：；？！）」』】〉》’”…ー")
"""Wide characters that do not begin a row."""


class Piece(NamedTuple):
    """A part of a row that is not divided: a word or a part of one, a blank, the end of a line."""

    text: str
    style: str
    width: int
    loose: bool
    """True if a row may end before and after it without a blank, as it may between Chinese characters."""


class WrappedRow(NamedTuple):
    """One row of wrapped pieces."""

    pieces: list[Piece]
    end: int | None
    """How many of the given pieces are used up at the end of this row; None inside a word that is too long for a
    row."""


def columns(text: str) -> int:
    """How many columns the text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    return _columns(text)


@lru_cache(4096)
def _columns(text: str) -> int:
    width = wcswidth(text)
    return width if width >= 0 else sum(max(0, wcwidth(sign)) for sign in text)


def columns_of_row(row: str) -> int:
    """How many columns a painted row takes; tabs go to every eighth column."""
    return columns(plain(row).expandtabs(8))


def plain(row: str) -> str:
    """A painted row without its styles."""
    return _SGR.sub("", row)


def is_wide(grapheme: str) -> bool:
    """True of a character that takes two columns."""
    return not grapheme.isascii() and _columns(grapheme) == 2


def pieces(text: str, style: str = "", *, loose: bool = False) -> Iterator[Piece]:
    """The pieces of a text. `loose`: rows may end before and after its narrow pieces, too, without a blank."""
    for run in _RUNS.findall(text):
        if run == "\n":
            yield Piece("\n", style, 0, False)
        elif run.isspace():
            yield Piece(" ", style, 1, False)
        elif run.isascii():
            yield Piece(run, style, columns(run), loose)
        else:
            yield from _wide_apart(run, style, loose)


def _wide_apart(word: str, style: str, loose: bool) -> Iterator[Piece]:
    """The pieces of a word: every wide character is one of its own."""
    for are_wide, signs in groupby(iter_graphemes(word), is_wide):
        if are_wide:
            yield from (Piece(sign, style, 2, sign not in _CLINGS) for sign in signs)
        else:
            narrow = "".join(signs)
            yield Piece(narrow, style, columns(narrow), loose)


def wrap(given: Sequence[Piece], first_room: int, rest_room: int) -> list[WrappedRow]:
    """Rows of these pieces, each as full as words allow. A word too long for a row begins a new one, and is broken."""
    rows: list[WrappedRow] = []
    row: list[Piece] = []
    used, room = 0, max(NARROWEST, first_room)

    def close(end: int | None) -> None:
        nonlocal row, used, room
        while row and row[-1].text == " ":
            row.pop()
        rows.append(WrappedRow(row, end))
        row, used, room = [], 0, max(NARROWEST, rest_room)

    at = 0
    while at < len(given):
        piece = given[at]
        if piece.text in ("\n", " "):
            at += 1
            if piece.text == "\n":
                close(at)
            elif row and row[-1].text != " ":
                row.append(piece)
                used += 1
            continue
        end = _word_end(given, at)
        word = list(given[at:end])
        width = sum(piece.width for piece in word)
        if used and used + width > room:
            close(at)
        if width > room:
            word = [
                Piece(sign, piece.style, columns(sign), piece.loose)
                for piece in word
                for sign in iter_graphemes(piece.text)
            ]
        for piece in word:
            if used + piece.width > room:
                close(None)
            row.append(piece)
            used += piece.width
        at = end
    if row:
        close(at)
    return rows


def _word_end(given: Sequence[Piece], at: int) -> int:
    """Where the word that begins here ends: before a space, or where a loose piece allows it."""
    end = at + 1
    while end < len(given) and given[end].text not in (" ", "\n"):
        if given[end].loose or (given[end - 1].loose and given[end].text not in _CLINGS):
            break
        end += 1
    return end


class Theme(NamedTuple):
    """How styles are written: with colours, or with attributes alone."""

    colour: bool = True

    def paint(self, text: str, style: str) -> str:
        """The text in a style, which ends with the text."""
        sequence = _sequence(style, self.colour)
        return f"{sequence}{text}\x1b[0m" if sequence and text else text

    def line(self, text: str, room: int, style: str) -> str:
        """A text on one painted row of so many columns (`fit`)."""
        return self.paint(fit(text, room), style)

    def row(self, row: Iterable[Piece]) -> str:
        """Pieces as one painted row; neighbours of one style share its sequence."""
        runs = groupby(row, key=lambda piece: piece.style)
        return "".join(self.paint("".join(piece.text for piece in run), style) for style, run in runs)


@lru_cache(4096)
def _sequence(style: str, colour: bool) -> str:
    known = STYLES | COLOURS if colour else STYLES
    codes = [known[letter] for letter in dict.fromkeys(style) if letter in known]
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def fit(text: str, room: int) -> str:
    """The text on one row of so many columns, made printable; `…` shows where it was cut."""
    text = " ".join(printable(text).split())
    if columns(text) <= room:
        return text
    return f"{clip(text, 0, room - 1).rstrip()}…" if room > 0 else ""


def chop(text: str, room: int) -> list[str]:
    """The text cut after every `room` columns, blanks kept: as a terminal folds a long row."""
    rows, row, used = [], "", 0
    for sign in iter_graphemes(text.expandtabs(8)):
        wide = columns(sign)
        if used + wide > max(NARROWEST, room):
            rows.append(row)
            row, used = "", 0
        row += sign
        used += wide
    return [*rows, row]
