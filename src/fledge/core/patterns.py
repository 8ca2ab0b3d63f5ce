"""Patterns that can be matched in bounded time, whatever they are and whatever they are held against.

They are the flat part of regular expressions: characters, classes and `.`, each perhaps repeated, between `^` and `$`.
Without groups, alternatives and back references a match is a walk over sets of positions that never goes back.
"""

import re
from functools import lru_cache
from typing import Final

from fledge.core.redact import error_words
from fledge.core.value import Value
from fledge.errors import BadInput

MAX_CHARS: Final = 500
"""Of a pattern."""
MAX_TEXT: Final = 20_000
"""Of a text that is held against one; a longer one does not match."""
MAX_TIMES: Final = 1_000

_PART: Final = re.compile(
    r"(?P<one>\\[dDwWsS]|\\[^A-Za-z0-9]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\](){}|*+?^$])"
    r"(?P<times>[*+?]|\{\d{1,4}(?:,\d{0,4})?\})?"
)
_TIMES: Final[dict[str | None, tuple[int, int | None]]] = {None: (1, 1), "*": (0, None), "+": (1, None), "?": (0, 1)}
"""How often, at least and at most, by the sign."""
_AMBIGUOUS: Final = re.compile(r"\[|--|&&|\|\||~~")
"""In a class: other engines read set operations into these."""


class Part(Value):
    """One character of some kind, at least and at most so many times; no most is no limit."""

    one: str
    least: int
    most: int | None


class Pattern(Value):
    """A pattern that was read."""

    parts: tuple[Part, ...]
    at_start: bool
    at_end: bool

    @staticmethod
    def read(text: object, field: str = "pattern") -> "Pattern":
        """The pattern. Refused: anything but text, too long a text, and syntax beyond the flat part."""
        if not isinstance(text, str) or len(text) > MAX_CHARS:
            raise BadInput(field, f"must be a text of at most {MAX_CHARS} characters", text)
        return _read(text, field)

    def found_in(self, text: str) -> bool:
        """True if it matches somewhere in the text (from its start or up to its end, where it says so)."""
        size = len(text)
        if size > MAX_TEXT:
            return False
        here = bytearray(size + 1) if self.at_start else bytearray(b"\x01" * (size + 1))
        here[0] = 1
        for part in self.parts:
            here = _after(part, here, text)
        return bool(here[size]) if self.at_end else any(here)


@lru_cache(maxsize=64)
def _read(text: str, field: str) -> Pattern:
    at_start = text.startswith("^")
    at = int(at_start)
    at_end = text.endswith("$") and not text.endswith("\\$") and len(text) > at
    end = len(text) - at_end
    parts = []
    while at < end:
        found = _PART.match(text, at, end)
        if found is None:
            words = "may hold characters, classes and repetitions, but no groups, alternatives or references"
            raise BadInput(field, words, text[at:])
        parts.append(_part(found, field))
        at = found.end()
    return Pattern(tuple(parts), at_start, at_end)


def _part(found: re.Match[str], field: str) -> Part:
    one, times = found["one"], found["times"]
    if one.startswith("[") and _AMBIGUOUS.search(re.sub(r"\\.", "", one[1:])):
        raise BadInput(field, "must escape [, --, &&, || and ~~ in a class", one)
    try:
        re.compile(one)
    except re.error as error:
        raise BadInput(field, f"has a class that cannot be read ({error_words(error)})", one) from None
    if times in _TIMES:
        return Part(one, *_TIMES[times])
    low, comma, high = times[1:-1].partition(",")
    least, most = int(low), int(high) if high else None if comma else int(low)
    if least > MAX_TIMES or (most is not None and not least <= most <= MAX_TIMES):
        raise BadInput(field, f"must repeat at least as often as at most, and at most {MAX_TIMES} times", times)
    return Part(one, least, most)


def _after(part: Part, here: bytearray, text: str) -> bytearray:
    """Where a match can be behind this part, from where it can be before it."""
    is_one = re.compile(part.one, re.DOTALL).fullmatch
    known: dict[str, bool] = {}
    size = len(text)
    run = 0
    # How many fitting characters begin at each place, from behind; and which places each start reaches, as changes.
    changes = [0] * (size + 2)
    for at in range(size, -1, -1):
        if at < size:
            letter = text[at]
            if letter not in known:
                known[letter] = is_one(letter) is not None
            run = run + 1 if known[letter] else 0
        longest = run if part.most is None else min(run, part.most)
        if here[at] and longest >= part.least:
            changes[at + part.least] += 1
            changes[at + longest + 1] -= 1
    reached = bytearray(size + 1)
    open_ones = 0
    for at in range(size + 1):
        open_ones += changes[at]
        reached[at] = open_ones > 0
    return reached
