"""The text of pages, well formed and hostile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.tools.page import MAX_OPEN, page_text

BASE = "https://example.org/a/b"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<title>T</title><p>one  two\n three</p><p>four", "T\n\none two three\n\nfour"),
        ("<h1>A</h1><h3>B</h3>c", "# A\n\n### B\nc"),
        ("<ul><li>x<li>y</ul>", "- x\n- y"),
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
        ("cut <b", "cut <b"),
        ("<!-- gone --><p>stays", "stays"),
    ],
)
def test_a_page_becomes_the_text_a_reader_sees(html: str, text: str) -> None:
    assert page_text(html, BASE) == text


@pytest.mark.parametrize("piece", ["<!--", "<a ", "<![CDATA[", "</", "<!", '<a href="', "&", "<script>", "<p>", "<?"])
def test_a_hostile_page_is_given_up_in_bounded_time(piece: str) -> None:
    page_text("start " + piece * (2_000_000 // len(piece)), BASE, max_seconds=0.2)


def test_what_was_given_up_is_said() -> None:
    told = page_text("start <!--" + "x" * (MAX_OPEN + 100_000), BASE)
    assert told.startswith("start")
    assert told.endswith("characters were not read]")
    assert page_text("<p>x", BASE, max_seconds=-1) == "\n[cut: the page is malformed; 4 characters were not read]"


@given(st.text() | st.text(alphabet="<>/!-&;ab \"'=[]?"))
def test_any_text_is_read_without_raising(html: str) -> None:
    page_text(html, BASE)
