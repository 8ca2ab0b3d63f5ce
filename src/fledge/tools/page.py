"""The text of an HTML page: headings, paragraphs, list items and links, as plain lines.

libxml2 (by lxml) reads the markup as events: no tree is built. Input is hostile: nothing in it raises, and a page is
given up when its time is over, its text is too long, or it is nested deeper than the parser can close quickly. This
file does not know where a page came from, nor how.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from time import thread_time
from typing import Final
from urllib.parse import urljoin

PIECE: Final = 16 * 1024
"""How many characters are read before time and depth are looked at again."""
MAX_DEPTH: Final = 512
"""How deep elements may be nested, as in browsers: the parser compares an end tag with every open element."""
MAX_SECONDS: Final = 2.0
"""CPU time of the reading thread: a busy machine must not make pages shorter."""
MAX_TEXT: Final = 1_000_000
"""Characters of text, far more than a model is shown: short links below a long address would grow thirtyfold."""
MAX_LINK: Final = 500

_UNSEEN: Final = frozenset({"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select"})
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BREAKS: Final = frozenset({"br", "hr"})
_BLOCKS: Final = frozenset(
    {
        *_HEADINGS,
        *("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "header", "li", "main", "nav", "ol", "p", "pre"),
        *("section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "title", "tr", "ul"),
    }
)


def page_text(html: str, base: str, max_seconds: float = MAX_SECONDS) -> str:
    """The visible text, links with their addresses; a note at the end if the page was given up half way."""
    from lxml import etree  # when the first page is read: most programs read none

    reader = TextReader(base)
    # A tree that is not built has no size to limit; depth is limited here.
    parser = etree.HTMLParser(target=reader, encoding="utf-8", huge_tree=True)
    ends_at = thread_time() + max_seconds
    for start in range(0, len(html), PIECE):
        if thread_time() > ends_at:
            why = "it takes too long to read"
        elif reader.depth > MAX_DEPTH:
            why = "it is nested too deeply"
        elif reader.size > MAX_TEXT:
            why = "it is too long"
        else:
            parser.feed(html[start : start + PIECE].encode("utf-8", "replace"))
            continue
        return f"{reader.text()}\n[cut: {why}; {len(html) - start} characters were not read]"
    with suppress(etree.XMLSyntaxError):  # there was neither an element nor text
        parser.close()
    return reader.text()


class TextReader:
    """Makes lines of text from a parser's events: elements that start and end, and text between them."""

    def __init__(self, base: str) -> None:
        self.depth = 0
        self.size = 0
        self._base = base
        self._words: list[str] = []
        self._unseen = 0
        self._verbatim = 0
        self._link = ""

    def text(self) -> str:
        """The lines so far."""
        lines = [line.rstrip() for line in "".join(self._words).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        self.depth += 1
        if tag in _UNSEEN:
            self._unseen += 1
        if tag in _BLOCKS:
            self._words.append("\n" + _HEADINGS.get(tag, "- " if tag == "li" else ""))
        elif tag in _BREAKS:
            self._words.append("\n")
        if tag == "pre":
            self._verbatim += 1
        if tag == "a" and not self._unseen:
            self._link = self._target(attributes.get("href", ""))

    def end(self, tag: str) -> None:
        """An element is over; the parser also ends those that were never closed."""
        self.depth -= 1
        if tag in _UNSEEN:
            self._unseen -= 1
        if tag in _BLOCKS and tag != "li":
            self._words.append("\n")
        if tag == "pre":
            self._verbatim -= 1
        if tag == "a" and self._link:
            self._words.append(f" ({self._link})")
            self.size += len(self._link)
            self._link = ""

    def data(self, text: str) -> None:
        """Text, or a part of it."""
        if self._unseen:
            return
        self.size += len(text)
        if self._verbatim:
            self._words.append(text)
            return
        words = re.sub(r"\s+", " ", text)
        starts_line = not self._words or self._words[-1].endswith((" ", "\n"))
        self._words.append(words.lstrip() if starts_line else words)

    def close(self) -> None:
        """The page is over."""

    def _target(self, href: str) -> str:
        if not href or href.startswith("#"):
            return ""
        try:
            url = urljoin(self._base, href.strip())
        except ValueError:
            return ""
        return url if url.startswith(("http://", "https://")) and len(url) <= MAX_LINK else ""
