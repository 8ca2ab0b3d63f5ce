"""Markdown for a terminal, while it streams: text in, rows out, each once.

A row is released when nothing that follows can change it; `tail` shows the rest. Rows depend on the text and the width
alone, not on the chunks in which the text came, and a new width concerns only rows that are still to come.

Blocks are read line by line. Two kinds of CommonMark are left out, because they change lines that were read before: a
heading underlined by the next line, and links whose address stands elsewhere. Line breaks are kept. Code is released as
it is written, between its fences, so that it can be copied. A table waits for its end, or for `TABLE_ROWS` rows: its
columns depend on all of them.
"""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import zip_longest
from typing import Final, NamedTuple

from fledge.cli.term.cells import NARROWEST, Piece, Theme, WrappedRow, chop, columns, wrap
from fledge.cli.term.inline import Inline
from fledge.core.printable import printable

TABLE_ROWS: Final = 24
"""After so many rows a table's columns stay as they are, and its rows are released as they come."""
TABLE_COLUMNS: Final = 40
SHOWN_LINE: Final = 2000
"""Of a line of code, or whose kind is still open, at most so many characters are shown while it comes."""
DEEPEST: Final = 16
"""Columns of indentation that are kept."""
MOST_QUOTES: Final = 5
"""Levels of nested quotations; a deeper one counts as the deepest."""

_QUOTE: Final = re.compile(r"(?: {0,3}> ?)*")
_FENCE: Final = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_HEADING: Final = re.compile(r"(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$")
_RULE: Final = re.compile(r"([-*_])(?:\s*\1){2,}\s*$")
_ITEM: Final = re.compile(r"([-*+]|\d{1,9}[.)])(?:\s+|$)")
_KINDS: Final = {"fence": _FENCE, "heading": _HEADING, "rule": _RULE, "table": re.compile(r"\|"), "item": _ITEM}
"""The pattern of each kind of line; the first that fits counts."""
_MAY_BE_FENCE: Final = r"(?:`{3}|`{1,2}$|~{3}|~{1,2}$)"
_OPEN: Final = re.compile(rf"$|[#|]|([-*_+])(?:\1|[ \t])*$|\d{{1,9}}[.)]?\s*$|(?:{_ITEM.pattern})?{_MAY_BE_FENCE}")
"""The beginning of a line that may still become another kind than it is: a heading or a table, a rule or an item, code,
or an item with code."""
_DELIMITERS: Final = re.compile(r"\|?(?:\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?\s*$")
_COLUMN_END: Final = re.compile(r"(?<!\\)\|")


class Boundary(Enum):
    """Between rows: a block is complete here, so something else may stand between it and the next."""

    HERE = "boundary"


Out = str | Boundary


class MarkdownLine(NamedTuple):
    """One line of the text, as far as its kind can be read from its beginning."""

    kind: str
    """`blank`, `fence`, `heading`, `rule`, `table`, `item`, `code` or `text`; `open` while it may become another."""
    quotes: int
    indent: int
    body: str


class Paragraph:
    """Words to be wrapped: a paragraph, an item, a heading."""

    def __init__(self, first: str, rest: str, style: str, theme: Theme, quotes: int) -> None:
        self._first, self._rest, self._theme, self.quotes = first, rest, theme, quotes
        self._inline = Inline(style, colour=theme.colour)
        self._pieces: list[Piece] = []

    def feed(self, text: str) -> None:
        """More of its words."""
        self._pieces += self._inline.feed(text)

    def take(self, width: int) -> list[str]:
        """The rows that cannot change any more: all before the last, which the next word may still join."""
        rows = self._wrapped(self._pieces, width)
        certain = [at for at, row in enumerate(rows[:-1]) if row.end is not None]
        if not certain:
            return []
        taken = self._painted(rows[: certain[-1] + 1])
        self._pieces = self._pieces[rows[certain[-1]].end :]
        self._first = self._rest
        return taken

    def cut(self, width: int) -> list[str]:
        """The rows of all whole words so far; the rest goes on below them."""
        rows = self._painted(self._wrapped(self._pieces, width))
        if rows:
            self._pieces, self._first = [], self._rest
        return rows

    def rows(self, width: int) -> list[str]:
        """All rows that are left, as if nothing followed."""
        rows = self._wrapped([*self._pieces, *self._inline.rest()], width)
        return self._painted(rows) or ([self._first.rstrip()] if self._first.strip() else [])

    def _wrapped(self, given: Sequence[Piece], width: int) -> list[WrappedRow]:
        return wrap(given, width - columns(self._first), width - columns(self._rest))

    def _painted(self, rows: Sequence[WrappedRow]) -> list[str]:
        paint, bars, painted = self._theme.paint, 2 * self.quotes, []
        for number, row in enumerate(rows):
            prefix = self._rest if number else self._first
            painted.append((paint(prefix[:bars], "d") + prefix[bars:] + self._theme.row(row.pieces)).rstrip())
        return painted


Cells = list[list[Piece]]


class MarkdownTable:
    """Rows of cells. Its columns are laid out when it ends, or after `TABLE_ROWS` rows."""

    def __init__(self, head: MarkdownLine, delimiters: str, theme: Theme) -> None:
        """`delimiters`: its second line, which says how each column is aligned."""
        self._theme, self._prefix = theme, _prefix(head)
        self._rows = [self._cells(head.body, "b")]
        self._alignments = [(cell.startswith(":"), cell.endswith(":")) for cell in _split(delimiters)]
        """Of each column, whether its mark has a colon at the left and at the right end: its text is centred with both,
        and aligned right with the right one alone."""
        self._widths: list[int] = []
        """The widths of its columns, once rows were released; empty before."""

    def add(self, line: str, width: int) -> list[str]:
        """One more row; answers the rows of the terminal that are certain now."""
        self._rows.append(self._cells(line))
        return self.release(width) if self._widths or len(self._rows) > TABLE_ROWS else []

    def release(self, width: int) -> list[str]:
        """The rows that are not released yet; from now on the columns stay as they are."""
        out = self.rows(width)
        self._widths, self._rows = self._widths or self._column_widths(self._rows, width), []
        return out

    def rows(self, width: int, coming: str = "") -> list[str]:
        """The rows that are not released yet, with a row that is coming."""
        rows = [*self._rows, self._cells(coming)] if coming else self._rows
        widths = self._widths or self._column_widths(rows, width)
        is_too_narrow = len(widths) * (NARROWEST + 3) - 3 > self._room(width)
        out: list[str] = []
        for number, row in enumerate(rows):
            if is_too_narrow:
                out += self._as_record(row, self._room(width))
            else:
                out += self._as_columns(row, widths)
            if number == 0 and not self._widths and not is_too_narrow:
                out.append(self._prefix + "─┼─".join("─" * width for width in widths))
        return out

    def _room(self, width: int) -> int:
        return max(NARROWEST, width - columns(self._prefix))

    def _cells(self, line: str, style: str = "") -> Cells:
        cells: Cells = []
        for cell in _split(line):
            inline = Inline(style, colour=self._theme.colour)
            cells.append([*inline.feed(cell), *inline.rest()])
        return cells

    def _column_widths(self, rows: Sequence[Cells], width: int) -> list[int]:
        """As many widths as the first row has cells, as wide as the cells if all fit; else the widest are narrowed
        first."""
        widths, room = [1] * len(rows[0]), self._room(width)
        for row in rows:
            for column, cell in enumerate(row[: len(widths)]):
                widths[column] = max(widths[column], min(sum(piece.width for piece in cell), room))
        while sum(widths) + 3 * (len(widths) - 1) > room and max(widths) > NARROWEST:
            widths[widths.index(max(widths))] -= 1
        return widths

    def _as_record(self, row: Cells, room: int) -> Iterator[str]:
        """A row with more cells than fit side by side: one below the other."""
        for cell in row:
            for line in wrap(cell, room, room):
                yield self._prefix + self._theme.row(line.pieces)
        yield self._prefix + "─" * NARROWEST

    def _as_columns(self, row: Cells, widths: Sequence[int]) -> Iterator[str]:
        cells = [[line.pieces for line in wrap(cell, width, width)] for cell, width in zip(row, widths, strict=False)]
        cells += [[]] * (len(widths) - len(cells))
        for line in zip_longest(*cells, fillvalue=[]):
            parts = []
            for shown, width, alignment in zip_longest(line, widths, self._alignments[: len(widths)]):
                spare = width - sum(piece.width for piece in shown)
                before = {(True, True): spare // 2, (False, True): spare}.get(alignment, 0)
                parts.append(" " * before + self._theme.row(shown) + " " * (spare - before))
            yield (self._prefix + " │ ".join(parts)).rstrip()


class Markdown:
    """One answer. `feed` takes its text, `tail` shows the rows that are not certain yet, `end` completes it."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._line = ""
        """The line that is coming, until its kind is clear."""
        self._block: Paragraph | MarkdownTable | None = None
        self._head: MarkdownLine | None = None
        """The only line of the open paragraph, while the next one may show that it is the head of a table."""
        self._fence = ""
        """The characters that opened the code that is coming; empty outside code."""
        self._fence_indent = self._fence_quotes = 0
        self._flows = False
        """True while the rest of the coming line belongs to the open paragraph."""
        self._in_list = False
        self._has_gap = False
        self._has_begun = False
        self._carriage = ""
        self._width = 0
        """Of the call under way: the width of rows, and the rows that are certain now."""
        self._out: list[Out] = []

    @property
    def is_at_boundary(self) -> bool:
        """True if nothing is open: the next text begins a block."""
        return self._block is None and not self._fence and not self._line

    def feed(self, text: str, width: int) -> list[Out]:
        """More of the text; answers the rows that are certain now, and where blocks ended."""
        text, self._carriage = self._carriage + text, ""
        if text.endswith("\r"):
            text, self._carriage = text[:-1], "\r"
        self._width, self._out = width, []
        *lines, last = printable(text).split("\n")
        for line in lines:
            self._more(line)
            self._line_ends()
        if last:
            self._more(last)
        if isinstance(self._block, Paragraph) and self._head is None:
            self._out += self._block.take(width)
        return self._out

    def tail(self, width: int) -> list[str]:
        """The rows that are not certain yet."""
        if self._fence:
            return [self._theme.paint(row, "c") for row in chop(self._line[-SHOWN_LINE:], width)] if self._line else []
        block = self._block
        if isinstance(block, MarkdownTable) and self._line.lstrip().startswith("|"):
            return block.rows(width, self._line[:SHOWN_LINE].strip())
        return [*([] if block is None else block.rows(width)), *self._shown_line(width)]

    def end(self, width: int) -> list[Out]:
        """The text is complete; answers the rows that are left."""
        self.feed("\n" if self._carriage or self._line or self._flows else "", width)
        self._close()
        self._end_block()
        return self._out

    def cut(self, width: int) -> list[Out]:
        """End the open block where it is, so that something else may stand here; its rest follows below that. A line
        that has released no row yet is left as it is, and so are the columns of a table."""
        self._width, self._out = width, []
        if isinstance(self._block, MarkdownTable):
            self._give(self._block.release(width))
        elif self._flows and self._block is not None:
            self._out += self._block.cut(width)
        elif self._head is None:
            self._close()
        self._end_block()
        return self._out

    # ---- lines

    def _more(self, text: str) -> None:
        """More of the coming line."""
        if self._flows:
            assert isinstance(self._block, Paragraph)
            self._block.feed(text)
            return
        self._line += text
        if self._fence:
            return
        line = self._read(self._line, whole=False)
        if line.kind in ("item", "text"):
            self._line = ""
            self._take_line(line)
            self._flows = True

    def _line_ends(self) -> None:
        if self._flows:
            self._flows = False
            return
        text, self._line = self._line, ""
        if self._fence and self._code(text):
            return
        self._take_line(self._read(text, whole=True))

    def _read(self, text: str, *, whole: bool) -> MarkdownLine:
        """The line with its kind. Of a line that is not whole, the kinds `item` and `text` are certain."""
        marks = _QUOTE.match(text)
        assert marks is not None
        quotes, rest = min(marks[0].count(">"), MOST_QUOTES), text[marks.end() :]
        body = rest.lstrip(" \t")
        indent = columns(rest[: len(rest) - len(body)].expandtabs(4))
        if not whole and _OPEN.match(body):
            kind = "open"
        elif not body.strip():
            kind = "blank"
        elif indent >= 4 and not self._in_list and self._block is None:
            kind = "code"
        else:
            kind = next((kind for kind, begins in _KINDS.items() if begins.match(body)), "text")
        return MarkdownLine(kind, quotes, indent, body)

    def _take_line(self, line: MarkdownLine) -> None:
        """Take a line whose kind is known; of an item and of text perhaps only its beginning."""
        if self._is_of_table(line):
            return
        match line.kind:
            case "blank":
                self._close()
                if not self._has_gap:
                    self._end_block()
                self._has_gap = True
            case "fence":
                self._open_fence(line)
            case "code":
                self._give([self._theme.paint(" " * line.indent + line.body, "c")])
            case "heading":
                self._close()
                self._in_list = False
                found = _HEADING.match(line.body)
                assert found is not None
                style = "bu" if len(found[1]) == 1 else "b"
                self._give(self._paragraph(line, found[2] or "", style).rows(self._width))
                self._end_block()
            case "rule":
                self._close()
                self._in_list = False
                self._give([self._theme.paint("─" * max(NARROWEST, min(self._width, 40)), "d")])
                self._end_block()
            case "table":
                self._close()
                self._block, self._head = self._paragraph(line, line.body), line
            case "item":
                self._close()
                self._in_list = True
                found = _ITEM.match(line.body)
                assert found is not None
                marker, content = f"{'•' if found[1] in ('-', '*', '+') else found[1]} ", line.body[found.end() :]
                if _FENCE.match(content):
                    self._give(self._paragraph(line, "", marker=marker).rows(self._width))
                    self._open_fence(line._replace(indent=line.indent + found.end(), body=content))
                else:
                    self._open_paragraph(line, content, marker)
            case _:
                if isinstance(self._block, Paragraph) and self._block.quotes == line.quotes:
                    self._block.feed(f"\n{line.body}")
                else:
                    self._close()
                    self._in_list = self._in_list and line.indent > 0
                    self._open_paragraph(line, line.body)

    def _is_of_table(self, line: MarkdownLine) -> bool:
        """True if the line belongs to a table: it is the second one, or a row of the open table."""
        head, self._head = self._head, None
        if head is not None:
            if line.kind == "table" and _DELIMITERS.match(line.body):
                self._block = MarkdownTable(head, line.body, self._theme)
                return True
            self._give([])
        elif isinstance(self._block, MarkdownTable):
            if line.kind == "table":
                self._give(self._block.add(line.body, self._width))
                return True
            self._close()
        return False

    def _open_paragraph(self, line: MarkdownLine, text: str, marker: str = "") -> None:
        self._give([])
        self._block = self._paragraph(line, text, marker=marker)

    def _paragraph(self, line: MarkdownLine, text: str, style: str = "", marker: str = "") -> Paragraph:
        """A paragraph that begins with this text, placed like the line, behind the marker of an item."""
        prefix = _prefix(line)
        begun = Paragraph(prefix + marker, prefix + " " * columns(marker), style, self._theme, line.quotes)
        begun.feed(text)
        return begun

    def _open_fence(self, line: MarkdownLine) -> None:
        self._close()
        found = _FENCE.match(line.body)
        assert found is not None
        self._fence, self._fence_indent, self._fence_quotes = found[1] or found[2], line.indent, line.quotes
        self._give([self._theme.paint(line.body.rstrip(), "d")])

    def _code(self, text: str) -> bool:
        """Take a line between fences; False if it is none, because it is outside the quotation that the code is in."""
        if self._fence_quotes:
            marks = re.match(rf"(?: {{0,3}}> ?){{{self._fence_quotes}}}", text)
            if marks is None:
                self._fence = ""
                return False
            text = text[marks.end() :]
        body = text.strip()
        if body.startswith(self._fence) and not body.strip(self._fence[0]):
            self._give([self._theme.paint(body, "d")])
            self._fence = ""
            self._end_block()
        else:
            spare = min(self._fence_indent, len(text) - len(text.lstrip(" ")))
            self._give([self._theme.paint(text[spare:], "c")])
        return True

    def _close(self) -> None:
        """The open block is complete."""
        block, self._block = self._block, None
        if block is not None:
            self._give(block.rows(self._width))

    def _end_block(self) -> None:
        """Mark that something else may stand here, between this block and the next."""
        self._out.append(Boundary.HERE)

    def _give(self, rows: Sequence[str]) -> None:
        """Release rows of a block, after a blank row if the text has one before it."""
        if self._has_gap and self._has_begun:
            self._out.append("")
        self._has_gap = False
        self._out += rows
        self._has_begun = True

    def _shown_line(self, width: int) -> list[str]:
        """The coming line, while its kind is open."""
        if not self._line.strip():
            return []
        line = self._read(self._line, whole=True)
        return self._paragraph(line, line.body[-SHOWN_LINE:]).rows(width)


def _prefix(line: MarkdownLine) -> str:
    return "│ " * line.quotes + " " * min(line.indent, DEEPEST)


def _split(line: str) -> list[str]:
    """The cells of a table's row."""
    cells = [cell.strip().replace("\\|", "|") for cell in _COLUMN_END.split(line.strip().removeprefix("|"))]
    return (cells[:-1] if len(cells) > 1 and not cells[-1] else cells)[:TABLE_COLUMNS]
