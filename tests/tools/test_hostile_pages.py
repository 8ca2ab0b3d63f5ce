"""Hostile pages through `web_fetch`: whatever a server sends, the model gets text or a refusal in our own words."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fledge.tools.base import ToolContext, ToolResult
from fledge.tools.web import MAX_BYTES, Fetcher, fetch_tool
from tests.statements import proves
from tests.tools.site import Names, Site, only_this_computer, visit

CONTEXT = ToolContext(session="agent:main:main", entry=1, index=0, workspace=Path("/nowhere"))
Page = tuple[str, bytes]
"""The value of its Content-Type, and its body."""

TAGS = (
    *("a", "b", "p", "div", "li", "table", "tr", "td", "select", "option", "form", "svg", "math", "mi", "desc"),
    *("template", "frameset", "plaintext", "xmp", "script", "style", "title", "textarea", "noscript", "iframe"),
    *("pre", "h1", "ruby", "annotation-xml", "foreignObject", "html", "head", "body", "meta charset=utf-16"),
)
SIGNS = (
    *("<", ">", "</", "<!", "<!--", "-->", "--!>", "<![", "<![0", "<![CDATA[", "]]>", "<?", "<!DOCTYPE", "PUBLIC", "/"),
    *("&", "&#", "&#x", "&#0;", "&#xd800;", "&#1114112;", "&notit;", "&amp", ";", "=", '"', "'", " ", "\n", "\r", "\f"),
    *("<a href=", "http://[", "\x00", "\x1b", "\x80", "\ufeff", "\ufffe", "\U0010ffff", "\ud800", "\udfff", "é"),
    *("<?xml version='1.0' encoding='utf-16'?>", "<meta http-equiv=content-type content='text/html; charset=utf-7'>"),
)
SOUP = st.lists(
    st.sampled_from(TAGS) | st.sampled_from(TAGS).map("<{}>".format) | st.sampled_from(SIGNS) | st.text(max_size=3),
    max_size=60,
).map("".join)
CHARSETS = (
    *("", "utf-8", "utf-16", "utf-16le", "utf-32", "utf-7", "us-ascii", "latin-1", "iso-8859-1", "iso-8859-99"),
    *("windows-1252", "cp1251", "koi8-u", "shift_jis", "euc-kr", "iso-2022-jp", "gbk", "gb18030", "big5"),
    *(
        "unicode_escape",
        "idna",
        "punycode",
        "rot13",
        "hex",
        "zlib",
        "undefined",
        "mbcs",
        "no such",
        "é",
        '"',
        "x" * 500,
    ),
)
KINDS = ("text/html", "application/xhtml+xml")


def encoded(soup: str, charset: str) -> bytes:
    """In the charset it is said to be in, if there is such a thing."""
    try:
        return soup.encode(charset or "utf-8", "surrogatepass")
    except (LookupError, ValueError):
        return soup.encode("utf-8", "surrogatepass")


def page(kind: str, charset: str, body: bytes | str) -> Page:
    declared = f"{kind}; charset={charset}" if charset else kind
    return declared, body if isinstance(body, bytes) else encoded(body, charset)


PAGES = st.builds(page, st.sampled_from(KINDS), st.sampled_from(CHARSETS), st.binary(max_size=200) | SOUP)


def told_of(*pages: Page) -> list[ToolResult]:
    """What a model is told of each page, by tool calls against a server on this computer."""

    async def work(site: Site) -> list[ToolResult]:
        fetch = fetch_tool(Fetcher(look_up=Names(site=[["127.0.0.1"]]), policy=only_this_computer))
        told = []
        for kind, body in pages:
            site.gives("/", body=body, headers={"Content-Type": kind})
            told.append(await fetch.call(json.dumps({"url": f"http://site.test:{site.port}/"}), CONTEXT))
        return told

    found = visit(work)
    assert isinstance(found, list)
    return found


def check(result: ToolResult) -> None:
    """Text of the page, or that it is binary; nothing that a store or a terminal could not take."""
    assert result.text.startswith("web_fetch: url: its content is binary" if result.is_error else "[http://site.test:")
    result.text.encode()
    assert "\x00" not in result.text


@proves("8.files.12", "Whatever is in a page, it is read or refused in bounded time; it raises nothing")
@settings(max_examples=60)
@given(pages=st.lists(PAGES, min_size=1, max_size=8))
@example(pages=[page("text/html", "", "<![0")])
@example(pages=[page(kind, charset, "a<p>é\x00<b>") for kind in KINDS for charset in CHARSETS])
def test_whatever_a_page_holds_it_is_read_or_refused(pages: list[Page]) -> None:
    for result in told_of(*pages):
        check(result)


@proves("8.files.12")
@pytest.mark.parametrize(
    "piece",
    [
        *("<div>", "<b>", "<b><p>", "<a href=x>", "<ul><li>", "<table><tr><td>", "<svg><desc>", "<template>"),
        *(
            "</x>",
            "<p></x>",
            "<!--",
            "<!---->",
            "<![CDATA[",
            "<",
            "&",
            "&#",
            "<a x",
            '<a href="',
            "<?",
            "\n",
            "<script>",
        ),
    ],
)
def test_five_megabytes_of_the_same_are_read_or_given_up(piece: str) -> None:
    body = b"start<p>" + (piece * (MAX_BYTES // len(piece))).encode()
    (result,) = told_of(page("text/html", "", body[:MAX_BYTES]))
    check(result)
    assert "\nstart" in result.text


@proves("8.files.12")
@pytest.mark.parametrize("depth", [500, 6000])
def test_end_tags_that_close_nothing_cost_no_more_for_being_deep(depth: int) -> None:
    (result,) = told_of(page("text/html", "", (b"start" + b"<div>" * depth + b"</x>" * MAX_BYTES)[:MAX_BYTES]))
    check(result)


@proves("8.files.12")
def test_an_element_with_half_a_million_attributes_is_read() -> None:
    attributes = b" ".join(b"a%d=1" % number for number in range(500_000))
    (result,) = told_of(page("text/html", "", b"start <a href=/x " + attributes[: MAX_BYTES - 100] + b">end</a>"))
    check(result)
    assert "start end (http://site.test:" in result.text
