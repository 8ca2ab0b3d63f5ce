"""Markdown as the page shows it, in a real browser under the page's own policy."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page

from tests.browser.browsing import browsing, modules
from tests.statements import proves

ELEMENTS = {
    *("a", "blockquote", "button", "code", "div", "em", "hr", "li", "ol", "p", "path", "pre", "s", "span", "strong"),
    *("svg", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
ATTRIBUTES = {
    "a": {"href", "target", "rel", "title"},
    "ol": {"start"},
    "button": {"type", "title"},
    "div": {"tabindex"},
    "pre": {"tabindex"},
    "svg": {"viewBox", "width", "height"},
    "path": {"d", "fill", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin"},
}
EVERYWHERE = {"class", "dir", "role", "aria-label", "aria-level", "aria-hidden"}
LETTERS = "aäßбв中"
"""Letters that mean nothing in Markdown: they are all shown, in their order."""
MARKS = [
    *("\n", "\n\n", "  ", "\t", "#", "# ", "## ", "- ", "* ", "+ ", "1. ", "2) ", "- [ ] ", "> ", ">", "---", "***"),
    *("*", "**", "_", "__", "~~", "`", "``", "```", "```\n", "~~~", "\\", "\\*"),
    *("|", "| ", " | ", "|\n|", "|-|", "|:-:|"),
    *("[", "]", "(", ")", "](", "!", "![", "<", ">", "&amp;", "<b>", "'", '"', "\u202e", "\x1b[31m", "\r\n", "\u0000"),
]
TEXTS = st.lists(st.one_of(st.sampled_from(MARKS), st.text(LETTERS, min_size=1, max_size=4)), max_size=60).map("".join)
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "[click](JaVaScRiPt:alert(1))",
    "[click](data:text/html,<script>alert(1)</script>)",
    "[click](//elsewhere.test/x)",
    "![pixel](https://elsewhere.test/pixel.png)",
    "<https://elsewhere.test>",
    "```html\n<script>alert(1)</script>\n```",
    "`<script>alert(1)</script>`",
    '| <img src=x> | "onload=x" |\n|---|---|\n| [x](vbscript:x) | <b>x</b> |',
    "- [x] <details open ontoggle=alert(1)>",
    "# <style>*{display:none}</style>",
]
LONG = {
    "stars": "*" * 99_000,
    "stars and letters": "*a" * 49_000,
    "spaced stars": "* a" * 33_000,
    "underscores": "_a" * 49_000,
    "backticks": "`" * 99_000,
    "backticks of many lengths": "".join("`" * (n % 40 + 1) + " " for n in range(4700)),
    "brackets": "[" * 99_000,
    "links that break off": "[a](b" * 19_000,
    "addresses that break off": "http://[" * 12_000,
    "addresses that end in dots": ("http://h.test/" + "." * 1900 + "x ") * 50,
    "pipes": "|" * 99_000,
    "a wide table": "|a" * 24_000 + "|\n" + "|-" * 24_000 + "|\n",
    "quotes": ">" * 99_000,
    "nested quotes": "\n".join("> " * (n % 60) + "a" for n in range(1500)),
    "nested items": "\n".join("  " * (n % 200) + "- a" for n in range(450)),
    "items": "- a\n" * 24_000,
    "quotation marks": '```js\n"' + '\\"' * 9_000 + "\n```",
    "escapes": "\\" * 99_000,
    "headings": "# " + " #" * 49_000 + "x",
    "one long line": "a" * 1_000_000,
    "blank lines": "\n" * 99_000,
}

SHOW = """async (text) => {
  const { markdown } = await import("/page/markdown.js");
  const made = markdown(text);
  const all = [made, ...made.querySelectorAll("*")];
  return {
    text: made.textContent,
    elements: [...new Set(all.map((one) => [one.localName, ...one.getAttributeNames()].join(" ")))],
    links: [...made.querySelectorAll("a")].map((one) => [one.href, one.textContent]),
  };
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as browser, modules(browser) as page:
        yield page


def shown(page: Page, text: str) -> dict[str, Any]:
    """What becomes of a text; nothing in it is more than text, code, table and plain links."""
    found: dict[str, Any] = page.evaluate(SHOW, text)
    for name, *attributes in map(str.split, found["elements"]):
        assert name in ELEMENTS
        assert set(attributes) - EVERYWHERE - ATTRIBUTES.get(name, set()) == set(), name
    return found


@proves("8.gateway.9")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_every_letter_is_shown_in_its_order_and_only_allowed_elements_are_made(page: Page, text: str) -> None:
    kept = [letter for letter in shown(page, text)["text"] if letter in LETTERS]
    assert kept == [letter for letter in text if letter in LETTERS]


@proves("8.gateway.9")
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_stay_words(page: Page, text: str) -> None:
    found = shown(page, text)
    assert all(address.startswith(("http://", "https://", "mailto:")) for address, _ in found["links"])
    assert page.evaluate("document.querySelectorAll('img, script, style').length") == 0


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_no_text_holds_the_page(page: Page, text: str) -> None:
    """A time that grows with the square of the length would end none of these while the test waits."""
    letters = shown(page, text)["text"].count("a")
    assert letters == text.count("a")


FORMATS = {
    "# One\n## Two": [("One", "p"), ("Two", "p")],
    "**strong** *em* ~~gone~~ `code`": [("strong", "strong"), ("em", "em"), ("gone", "s"), ("code", "code")],
    "snake_case_name and 2 * 3 * 4": [],
    "- one\n- two\n  - deep": [("deep", "li")],
    "3. three\n4. four": [("three", "li"), ("four", "li")],
    "> said": [("said", "blockquote")],
    "| a | b |\n|---|--:|\n| 1 | 2 |": [("a", "th"), ("2", "td")],
    "```py\nx = 1\n```": [("x = 1", "code")],
    "\\*plain\\*": [],
}


@pytest.mark.parametrize("text", FORMATS, ids=range(len(FORMATS)))
def test_common_marks_become_elements(page: Page, text: str) -> None:
    look = """async (text) => {
      const { markdown } = await import("/page/markdown.js");
      return [...markdown(text).querySelectorAll("*")].map((one) => [one.textContent, one.localName]);
    }"""
    found = [tuple(one) for one in page.evaluate(look, text)]
    assert [one for one in FORMATS[text] if one not in found] == []
    if not FORMATS[text]:
        assert {name for _, name in found} == {"p"}


def test_a_link_shows_where_it_leads(page: Page) -> None:
    text = "[the docs](https://docs.test/a) https://bare.test/x, ![seen](https://img.test/i.png) [m](mailto:a@b.test)"
    assert shown(page, text)["links"] == [
        ["https://docs.test/a", "the docs (docs.test)"],
        ["https://bare.test/x", "https://bare.test/x"],
        ["https://img.test/i.png", "image: seen (img.test)"],
        ["mailto:a@b.test", "m"],
    ]


TABLE = "Look:\n\n| what | cost |\n|:---|---:|\n| one | 1,204.50 $ |\n| two | 12 |"
SHOW_PARTS = """async (parts) => {
  const { markdown } = await import("/page/markdown.js");
  const all = parts.map((part) => markdown(part, true));
  return all.map((made) => [made.querySelectorAll("table").length, made.textContent]);
}"""
DRAW = """async (text) => {
  const { el, fill } = await import("/page/dom.js");
  const { markdown } = await import("/page/markdown.js");
  const sheets = ["tokens", "base", "chat"].map((name) => el("link", { rel: "stylesheet", href: `/page/${name}.css` }));
  await Promise.all(sheets.map((sheet) => new Promise((go, failed) => {
    Object.assign(sheet, { onload: go, onerror: failed });
    document.head.append(sheet);
  })));
  const made = el("div", { css: { width: "200px" } }, markdown(text));
  fill(document.body, made);
  const lines = (one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return new Set([...range.getClientRects()].map(({ top }) => top)).size;
  };
  const size = ({ offsetWidth, offsetHeight }) => [offsetWidth, offsetHeight];
  const found = {
    lines: [...made.querySelectorAll("td:nth-child(2)")].map(lines),
    boxes: [...made.querySelectorAll(".taskbox")].map(size),
  };
  sheets.forEach((sheet) => sheet.remove());
  return found;
}"""


def test_a_table_that_is_still_being_said_is_a_table_at_every_letter(page: Page) -> None:
    parts = [TABLE[:end] for end in range(TABLE.index("|") + 1, len(TABLE) + 1)]
    for part, (tables, text) in zip(parts, page.evaluate(SHOW_PARTS, parts), strict=True):
        assert tables == 1, part
        assert not set(text) & set("|-"), part
    assert shown(page, TABLE + "\n| three")["text"].endswith("two12three")


def test_a_number_in_a_table_is_never_broken_and_boxes_of_tasks_are_drawn(page: Page) -> None:
    words = "a sentence with many words that wants all the room there is"
    numbers = ("1,204.50 $", "2026-11-19", "-12 345 678", "≈ 3 %")
    rows = "".join(f"| {words} | {number} | {words} |\n" for number in numbers)
    found = page.evaluate(DRAW, f"| a | b | c |\n|---|---|---|\n{rows}\n- [ ] to do\n- [x] done\n")
    assert found == {"lines": [1] * 4, "boxes": [[15, 15]] * 2}
