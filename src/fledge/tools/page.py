"""The text of an HTML page: headings, paragraphs, list items and links, as plain lines.

Input is hostile: unclosed tags and comments without end cost a parser time that grows with the square of their length.
So a page is parsed in pieces and given up when its time is over or too much is left open. Where a page came from, and
how, is not known here.
"""

import re
from html.parser import HTMLParser
from time import monotonic
from typing import Final
from urllib.parse import urljoin

PIECE: Final = 16 * 1024
MAX_OPEN: Final = 256 * 1024
"""How much may be unfinished (a comment, a tag) before the rest is given up."""
MAX_SECONDS: Final = 2.0
MAX_LINK: Final = 500

_UNSEEN: Final = frozenset({"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select"})
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS: Final = frozenset(
    {
        *_HEADINGS,
        *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "li", "main", "nav", "ol", "p", "pre"),
        *("section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "title", "tr", "ul"),
    }
)


def page_text(html: str, base: str, max_seconds: float = MAX_SECONDS) -> str:
    """What a reader would see, links with their addresses; a note at the end if the page was given up half way."""
    reader = _Reader(base)
    ends_at = monotonic() + max_seconds
    for start in range(0, len(html), PIECE):
        if monotonic() > ends_at or len(reader.rawdata) > MAX_OPEN:
            return f"{reader.text()}\n[cut: the page is malformed; {len(html) - start} characters were not read]"
        reader.feed(html[start : start + PIECE])
    if len(reader.rawdata) <= PIECE:
        reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._words: list[str] = []
        self._unseen = 0
        self._verbatim = 0
        self._link = ""

    def text(self) -> str:
        lines = [line.rstrip() for line in "".join(self._words).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        if tag in _BLOCKS:
            self._words.append("\n" + _HEADINGS.get(tag, "- " if tag == "li" else ""))
        if tag == "pre":
            self._verbatim += 1
        if tag == "a" and not self._unseen:
            self._link = self._target(dict(attrs).get("href") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._words.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN and self._unseen:
            self._unseen -= 1
        if tag in _BLOCKS:
            self._words.append("\n")
        if tag == "pre" and self._verbatim:
            self._verbatim -= 1
        if tag == "a" and self._link:
            self._words.append(f" ({self._link})")
            self._link = ""

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        if self._verbatim:
            self._words.append(data)
            return
        words = re.sub(r"\s+", " ", data)
        starts_line = not self._words or self._words[-1].endswith((" ", "\n"))
        self._words.append(words.lstrip() if starts_line else words)

    def _target(self, href: str) -> str:
        if not href or href.startswith("#"):
            return ""
        try:
            url = urljoin(self._base, href.strip())
        except ValueError:
            return ""
        return url if url.startswith(("http://", "https://")) and len(url) <= MAX_LINK else ""
