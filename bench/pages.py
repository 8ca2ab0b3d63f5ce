"""What reading HTML costs: `fledge.tools.page` beside the standard library's parser, and others where installed.

Those two make lines and links of a page, the others only count the characters they see. Deep nesting is what hostile
pages are made of: twice as much of it should take twice as long. Other parsers are looked for in the running
interpreter (`pip install selectolax html5lib justhtml`); none of them is needed.
"""

import importlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from bench.measure import cpu_s, peak_mb
from fledge.tools.page import TextReader, page_text

BASE = "https://example.org/"
ITEM = (
    '<article class="post" id="p{0}"><!-- {0} --><h2><a href="/posts/{0}">A title &amp; more</a></h2><p>Some words of a'
    ' paragraph that is long enough to be <em>read</em>, with <a href="https://example.org/{0}">a link</a>.</p><ul><li>'
    "one</li><li>two</li></ul><table><tr><td>1</td><td>2</td></tr></table><script>var a = 1 < 2;</script></article>\n"
)
HOSTILE = ("<div>", "<b><p>", "<a href=x>", "<ul><li>", "</x>", "<p></x>", "<!--", "<![CDATA[", "<", "&", "\x00")
TIMEOUT_S = 600

Reader = Callable[[str], int]
"""Reads a page, and answers how many characters of text it saw."""


def page(kb: int) -> str:
    """A page as blogs and manuals have them, of about so many kB."""
    return "<title>x</title>" + "".join(ITEM.format(number) for number in range(1000 * kb // len(ITEM)))


def ours(html: str) -> int:
    """As `web_fetch` does."""
    return len(page_text(html, BASE, max_seconds=float("inf")))


class _Std(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.reader = TextReader(BASE)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.reader.start(tag, {name: value or "" for name, value in attrs})

    def handle_endtag(self, tag: str) -> None:
        self.reader.end(tag)

    def handle_data(self, data: str) -> None:
        self.reader.data(data)


def standard_library(html: str) -> int:
    """`html.parser`, making the same lines and links."""
    parser = _Std()
    parser.feed(html)
    parser.close()
    return len(parser.reader.text())


def selectolax(html: str) -> int:
    """A tree by lexbor, in C."""
    parse: Any = importlib.import_module("selectolax.lexbor").LexborHTMLParser
    root = parse(html).root
    return 0 if root is None else len(root.text())


def html5lib(html: str) -> int:
    """A tree, in Python."""
    return sum(map(len, importlib.import_module("html5lib").parse(html).itertext()))


def justhtml(html: str) -> int:
    """Events, in Python."""
    events = importlib.import_module("justhtml").stream(html)
    return sum(len(value) for kind, value in events if kind == "text")


OTHERS: dict[str, Reader] = {
    "html.parser": standard_library,
    "selectolax": selectolax,
    "html5lib": html5lib,
    "justhtml": justhtml,
}
MODULES = {"html.parser": "html.parser", "selectolax": "selectolax.lexbor"}


def name_of(other: str) -> str:
    """With its version; empty if it is not installed."""
    if other == "html.parser":
        return other
    try:
        return f"{other} {version(other)}"
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one reader takes."""

    page_ms: float
    """CPU for a page."""
    nested: float
    """How many times longer twice the nesting takes: 2 if time grows with the page, 4 if with its square."""


def costs(readers: dict[str, Reader], kb: int, depth: int, rounds: int) -> dict[str, Cost]:
    """Each reader's, by taking turns."""
    common, nested = page(kb), ["<div>" * number + "x" for number in (depth, 2 * depth)]
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in readers}
    for round_ in range(rounds + 1):
        for name, read in readers.items():
            figures = cpu_ms(read, common), cpu_ms(read, nested[1]) / cpu_ms(read, nested[0])
            if round_:  # what the first one imports is on nobody's bill
                took[name].append(figures)
    return {name: Cost(*(median(column) for column in zip(*figures, strict=True))) for name, figures in took.items()}


def cpu_ms(read: Reader, html: str) -> float:
    """CPU to read it once."""
    began = cpu_s()
    if not read(html):
        raise RuntimeError(f"{read.__name__} saw nothing of the page: its figure means nothing")
    return 1000 * (cpu_s() - began)


def import_ms(module: str, runs: int) -> float:
    """CPU of a fresh interpreter that imports it, over one that imports nothing."""
    took: dict[str, list[float]] = {"pass": [], f"import {module}": []}
    for _ in range(runs):
        for command, figures in took.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", command], check=True, timeout=TIMEOUT_S)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            figures.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    nothing, imported = (median(figures) for figures in took.values())
    return 1000 * (imported - nothing)


def worst(megabytes: int) -> tuple[float, str, float]:
    """Of hostile pages of this size: the most CPU one takes, in seconds; which one; the most memory, in MB."""
    command = [sys.executable, "-m", "bench.pages", str(megabytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    took, memory = json.loads(done.stdout)
    slowest = max(took, key=lambda piece: took[piece])
    return took[slowest], slowest, memory


def main(megabytes: int) -> None:
    """Read hostile pages, one after the other, and print what they took; imports are not counted."""
    page_text("x", BASE)
    before, took = peak_mb(), {}
    for piece in HOSTILE:
        html = "start" + piece * (megabytes * 2**20 // len(piece))
        began = cpu_s()
        page_text(html, BASE)
        took[piece] = cpu_s() - began
    print(json.dumps([took, peak_mb() - before]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
