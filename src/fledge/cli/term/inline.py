"""Inline markdown while it streams: text in, styled pieces out, as soon as nothing that follows can change them.

Text is released in segments. A segment ends before a blank or between two wide characters, where no mark (`*`, `` ` ``,
`[` …) is open; a mark that stays open for `HOLD` characters does not count as one. So the segments depend on the text
alone, not on the chunks in which it came. markdown-it parses a segment; one without any mark, or with absurdly many, is
plain text.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from wcwidth import grapheme_boundary_before

from fledge.cli.term.cells import Piece, is_wide, pieces
from fledge.core.printable import printable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

HOLD: Final = 400
"""A mark that is not closed after so many characters is no mark."""
LONGEST_WORD: Final = 1000
"""A longer word is released in parts."""
MOST_MARKS: Final = 24
"""A segment with more marks is plain text: the parser takes quadratic time for some of those."""
RULES: Final = ("autolink", "backticks", "emphasis", "entity", "escape", "image", "link", "newline", "strikethrough")

_MARKS: Final = re.compile(r"[*_`\[\]<!&~\\]")
_CLOSED_BRACKETS: Final = re.compile(r"\[[^\[\]]*\]")
_OPENERS: Final = re.compile(r"`|\[|\*(?=\S|$)|(?<![^\W_])_(?=\S|$)|~~(?=\S|$)")
_GAP_OR_WIDE: Final = re.compile(r"[\s\u1100-\U0003ffff]")
"""Where a segment may end: blanks, and characters that may be wide."""
_STYLES: Final = {"strong": "b", "em": "i", "s": "s", "link": "u"}


@cache
def parser() -> "MarkdownIt":
    """markdown-it with inline rules alone. HTML stays text; a link needs its address beside it."""
    from markdown_it import MarkdownIt

    return MarkdownIt("zero", {"html": False}).enable(list(RULES))


class Inline:
    """The text of one block. `feed` answers the pieces that cannot change any more, `rest` those that may."""

    def __init__(self, style: str, *, colour: bool) -> None:
        self._style, self._colour = style, colour
        self._text = ""
        self._seen = 1
        """The next place of the text that may end a segment."""

    def feed(self, text: str) -> list[Piece]:
        """More of the text; answers the pieces that are certain now."""
        self._text += text
        found: list[Piece] = []
        while (end := self._next_end()) is not None:
            found += self._pieces(self._text[:end], loose=not self._is_at_gap(end))
            self._text, self._seen = self._text[end:], 1
        return found

    def rest(self) -> list[Piece]:
        """The pieces of the text that is left, as if nothing followed."""
        return list(self._pieces(self._text))

    def _next_end(self) -> int | None:
        """The end of the next segment; None while the segment is open."""
        text = self._text
        while (gap := _GAP_OR_WIDE.search(text, self._seen)) is not None and gap.start() < LONGEST_WORD:
            end = gap.start()
            self._seen = end + 1
            if self._may_end(end) and (end > HOLD or self._is_closed(text[:end])):
                return end
        if len(text) > LONGEST_WORD:
            return LONGEST_WORD
        self._seen = max(self._seen, len(text))
        return None

    def _may_end(self, end: int) -> bool:
        text = self._text
        if self._is_at_gap(end):
            return text[end - 1] != "\\"
        return is_wide(text[end]) and is_wide(text[end - 1]) and grapheme_boundary_before(text, end + 1) == end

    def _is_at_gap(self, end: int) -> bool:
        return self._text[end].isspace()

    def _is_closed(self, text: str) -> bool:
        """True if no mark in the text is open."""
        if not _is_marked(text):
            return True
        tokens = _tokens(text)
        words = [token.content for token in tokens if token.type == "text"]
        if tokens[-1].type == "text":
            words[-1] += " "  # a blank follows
        return not any(_OPENERS.search(_CLOSED_BRACKETS.sub("", content)) for content in words)

    def _pieces(self, text: str, *, loose: bool = False) -> Iterator[Piece]:
        if not _is_marked(text):
            yield from pieces(text, self._style, loose=loose)
            return
        styles = [self._style]
        address = label = ""
        for token in _tokens(text):
            name = token.type.rpartition("_")[0] if token.nesting else token.type
            style = "".join(styles)
            content = printable(token.content)
            if token.nesting == 1:
                styles.append(_STYLES.get(name, ""))
                if name == "link":
                    address, label = printable(str(token.attrs["href"])), ""
            elif token.nesting == -1:
                styles.pop()
                if name == "link" and address != label:
                    yield from pieces(f" ({address})", f"{self._style}d")
            elif name == "image":
                yield from pieces(f"{content} ({printable(str(token.attrs['src']))})", f"{style}d")
            elif name == "code_inline":
                yield from pieces(content if self._colour else f"`{content}`", f"{style}c")
            elif name in ("softbreak", "hardbreak"):
                yield Piece("\n", style, 0, False)
            else:
                label += content
                yield from pieces(content, style, loose=loose)


def _is_marked(text: str) -> bool:
    """True if the text needs a parser."""
    return _MARKS.search(text) is not None and len(_MARKS.findall(text)) <= MOST_MARKS


def _tokens(text: str) -> "list[Token]":
    return parser().parseInline(text)[0].children or []
