"""Which child somebody means: by number, by key, by label, by run id. One matcher for tools, commands and pages.

Rows are given in the order of their spawn; numbers count in the order lists show them, so what a person read off a list
is what they get. Unknown and ambiguous words each say so, by `NotFound`.
"""

from collections.abc import Callable, Sequence

from fledge.core.keys import is_called
from fledge.core.prompts import ChildRow, flattened, in_list_order
from fledge.errors import NotFound

SHOWN = 5
"""How many candidates an ambiguous word names."""
SHORTEST_ID = 6
"""From this length on, digits that are no number in the list may be the beginning of a run id."""


def pick(word: str, rows: Sequence[ChildRow], below: Sequence[ChildRow] = ()) -> ChildRow:
    """The child a word means; what lies further `below` is found by its names, after the children themselves.

    In this order: `last`; a number, with or without `#`; a session key; a whole label; the beginning of a label; the
    beginning of a run id, or of its short form. Letter case does not matter.
    """
    token = word.strip().casefold()
    if not token:
        raise NotFound("name a subagent: its number, label, run id or session key")
    if not rows:
        raise NotFound("there are no subagents here")
    if token == "last":
        return rows[-1]
    number = token.removeprefix("#")
    if number.isdecimal() and (len(token) < SHORTEST_ID or int(number) <= len(rows)):
        return _numbered(int(number), rows)
    if ":" in token:
        return _only([row for row in (*rows, *below) if row.key.casefold() == token], word, "session")
    for near in (rows, below):
        for fits in _READINGS:
            found = [row for row in near if fits(row, token)]
            if found:
                return _only(found, word, "subagent")
    raise NotFound(f"no subagent {flattened(word, 80)!r}")


def _numbered(number: int, rows: Sequence[ChildRow]) -> ChildRow:
    if not 1 <= number <= len(rows):
        raise NotFound(f"no subagent number {number}: there are {len(rows)}")
    return in_list_order(rows)[number - 1]


def _only(found: Sequence[ChildRow], word: str, noun: str) -> ChildRow:
    if not found:
        raise NotFound(f"no {noun} {flattened(word, 80)!r}")
    if len(found) > 1:
        keys = ", ".join(row.key for row in found[:SHOWN])
        raise NotFound(f"{flattened(word, 80)!r} is ambiguous: {keys}{', …' if len(found) > SHOWN else ''}")
    return found[0]


_READINGS: tuple[Callable[[ChildRow, str], bool], ...] = (
    lambda row, token: row.label.casefold() == token,
    lambda row, token: row.label.casefold().startswith(token),
    lambda row, token: is_called(row.run_id, token),
)
"""How a word may fit a row, the strictest first."""
