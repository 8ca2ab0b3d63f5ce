"""Patterns that never go back: they mean what regular expressions mean, and no text makes them slow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.patterns import MAX_CHARS, MAX_TEXT, Pattern
from fledge.errors import BadInput


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", "2026-10-09", True),
        (r"^\d{4}-\d{2}-\d{2}$", "2026-10-9", False),
        (r"^[a-z0-9-]+$", "kebab-case-1", True),
        (r"^[a-z0-9-]+$", "Kebab", False),
        (r"^[^@]+@[^@]+$", "a@b", True),
        (r"^a?b*c+$", "c", True),
        (r"^a?b*c+$", "aabc", False),
        ("b{2,}", "abbbc", True),
        ("^b{2,3}$", "bbbb", False),
        ("^a.c$", "a\nc", True),
        (r"^\$\.$", "$.", True),
        (r"\$", "a$b", True),
        ("^[]a]$", "]", True),
        (r"^[\]\[]{2}$", "[]", True),
        ("", "anything", True),
        ("^", "anything", True),
        ("$", "anything", True),
        ("^$", "", True),
        ("^$", "x", False),
        ("^b", "ab", False),
        ("b", "ab", True),
        ("x{0}", "", True),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, text: str, fits: bool) -> None:
    assert Pattern.read(pattern).found_in(text) is fits


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a)", "a|b", "(?i)a", r"\1", r"\b", r"\p{L}", "a**", "a{", "a}", "*a", "a$b", "a^b", "[a", "[z-a]", r"\x41"),
        *("[[a]", "[a--b]", "[a&&b]", "[a||b]", "[a~~b]", "a{3,2}", "a{1001}", "a{0,1001}", "a" * (MAX_CHARS + 1)),
        *(None, 5, ["a"]),
    ],
)
def test_what_goes_beyond_the_flat_part_is_refused_by_name(pattern: object) -> None:
    with pytest.raises(BadInput, match=r"^here: "):
        Pattern.read(pattern, "here")


@pytest.mark.parametrize("pattern", ["a*" * 100 + "b", "^" + "a?" * 200 + "a{200}$", ".*.*.*.*.*.*x"])
def test_no_pattern_is_slow(pattern: str) -> None:
    assert not Pattern.read(pattern).found_in("a" * 100)


def test_a_text_that_is_too_long_does_not_match() -> None:
    assert Pattern.read("a*").found_in("a" * MAX_TEXT)
    assert not Pattern.read("a*").found_in("a" * (MAX_TEXT + 1))


_ONE = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\."])
_TIMES = st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "{2,}"])
_FLAT = st.lists(st.tuples(_ONE, _TIMES).map("".join), max_size=5).map("".join)


@given(st.sampled_from(["", "^"]), _FLAT, st.sampled_from(["", "$"]), st.text("ab.1", max_size=8))
def test_it_agrees_with_regular_expressions(start: str, flat: str, end: str, text: str) -> None:
    whole = start + flat + end
    assert Pattern.read(whole).found_in(text) == (re.search(whole, text) is not None)
