"""The text of pages, well formed and hostile."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fledge.tools.page import MAX_DEPTH, MAX_TEXT, PIECE, page_text

BASE = "https://example.org/a/b"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<title>T</title><p>one  two\n three</p><p>four", "T\n\none two three\n\nfour"),
        ("<h1>A</h1><h3>B</h3>c", "# A\n\n### B\nc"),
        ("<ul><li>x<li>y</ul>", "- x\n- y"),
        ("<ul> <li>x</li> <li>y</li> </ul>z", "- x\n- y\nz"),
        ("<p>a<ol><li>x<p>y</ol>z", "a\n\n- x\ny\n\nz"),
        ("a<br>b<br/>c<hr/>d", "a\nb\nc\nd"),
        ("a<script>alert('<p>')</script>b<style>p{}</style>c<svg><text>no</text></svg>d", "abcd"),
        ("</script></svg></pre>a", "a"),
        ("&lt;p&gt; &amp; &eacute;&#65;", "<p> & éA"),
        ("<pre>a\n  b</pre>c  d", "a\n  b\nc d"),
        ('<a href="/x">there</a>', "there (https://example.org/x)"),
        ('<a href="c?d=1">c</a>', "c (https://example.org/a/c?d=1)"),
        ('<a href="#top">up</a><a>none</a><a href="javascript:x()">js</a><a href="mailto:a@b">m</a>', "upnonejsm"),
        ('<a href="http://[">bad</a>', "bad"),
        (f'<a href="/{"x" * 500}">long</a>', "long"),
        ("a <b>b</b> <i>c</i>", "a b c"),
        ("", ""),
        ("no tags at all", "no tags at all"),
        ("cut <b", "cut"),
        ("a<![0 b", "a"),
        ("a < b && c > d", "a < b && c > d"),
        ("<textarea><p>a</textarea>b", "<p>ab"),
        ("<noscript><p>a</p></noscript>b<template>c</template>", "b"),
        ("<table><tr><td>1<td>2<tr><td>3</table>4", "1\n\n2\n\n3\n\n4"),
        ("<meta charset=utf-16>é<meta charset=shift_jis>é", "éé"),
        ("\x00a\x00", "\ufffda\ufffd"),
        ("<!-- gone --><p>stays", "stays"),
    ],
)
def test_a_page_becomes_the_text_a_reader_sees(html: str, text: str) -> None:
    assert page_text(html, BASE) == text


@pytest.mark.parametrize("piece", ["<!--", "<a ", "<![CDATA[", "</", "<!", '<a href="', "&", "<script>", "<p>", "<?"])
def test_a_hostile_page_is_given_up_in_bounded_time(piece: str) -> None:
    page_text("start " + piece * (2_000_000 // len(piece)), BASE, max_seconds=0.2)


def test_what_was_given_up_is_said() -> None:
    told = page_text("start " + "<div>" * MAX_DEPTH + "x" * 2 * PIECE, BASE)
    assert told.startswith("start")
    assert told.endswith(f"[cut: it is nested too deeply; {MAX_DEPTH * 5 + 6 + PIECE} characters were not read]")
    assert page_text("<p>x", BASE, max_seconds=-1) == "\n[cut: it takes too long to read; 4 characters were not read]"


def test_short_links_below_a_long_address_do_not_grow_without_bound() -> None:
    told = page_text("<a href=x>y</a>" * 300_000, f"https://example.org/{'z' * 400}/")
    assert MAX_TEXT < len(told) < 2 * MAX_TEXT
    assert "[cut: it is too long; " in told


def test_a_page_that_is_nested_but_not_too_deeply_is_read_whole() -> None:
    depth = MAX_DEPTH - 10
    assert page_text("<div>" * depth + "x" + "</div>" * depth + "<p>y" * 50_000, BASE).count("y") == 50_000


def test_a_comment_without_end_hides_the_rest_and_one_with_an_end_does_not() -> None:
    assert page_text("start <!--" + "x" * 1_000_000, BASE) == "start"
    assert page_text("start <!--" + "x" * 1_000_000 + "--> end", BASE) == "start end"


@pytest.mark.parametrize("cut", range(1, 12))
def test_pieces_join_wherever_a_page_is_cut(cut: int) -> None:
    told = page_text("x" * (PIECE - cut) + " a&amp;é <b>bold</b>\U0001f600", BASE)
    assert told.endswith(" a&é bold\U0001f600")


@given(st.text() | st.text(alphabet="<>/!-&;ab \"'=[]?"))
@example("<![0")
@example("\ud800<p>\udfff")
def test_any_text_is_read_without_raising(html: str) -> None:
    page_text(html, BASE).encode()
