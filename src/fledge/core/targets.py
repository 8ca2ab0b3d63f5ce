"""Which child a word means: by number, by key, by label, by run id. One matcher for tools, commands and pages.

A number means one run for the life of its conversation, in the lists or not. The other words mean runs of the lists,
whose rows are given in the order of their spawn. Unknown and ambiguous words each say so, by `NotFound`; an ambiguous
one names its candidates by the number and label that would mean each of them, and by run id only where those would not.
"""

from collections.abc import Callable, Collection, Sequence

from fledge.core.keys import NAME_CHARS, SHORT_CHARS, is_called, short_id
from fledge.core.prompts import ChildRow, flattened
from fledge.errors import NotFound

SHOWN = 5
"""How many candidates an ambiguous word names."""
LAST = "last"
SHORTEST_ID = 6
"""From this length on, digits that are no number of a run may be the beginning of a run id."""


def number_in(word: str, spawned: int) -> int | None:
    """The number that a word means in a session that has `spawned` so many runs, with or without `#`; None: it is none,
    or has so many digits that they may be the beginning of a run id."""
    token = word.strip()
    digits = token.removeprefix("#")
    if not digits.isdecimal() or len(token) > SHORT_CHARS:
        return None
    number = int(digits)
    return number if len(token) < SHORTEST_ID or number <= spawned else None


def unknown_number(number: int, spawned: int) -> NotFound:
    """The error for a number that no run of the session has, or none any more. It means no other run."""
    if not spawned:
        return NotFound("there are no subagents here")
    if 1 <= number <= spawned:
        return NotFound(f"subagent #{number} is gone")
    return NotFound(f"no subagent #{number}: the last one is #{spawned}")


def pick(word: str, rows: Sequence[ChildRow], below: Sequence[ChildRow] = ()) -> ChildRow:
    """The child that a word means, unless it is a number; runs further `below` are found after the children themselves.

    In this order: `last`; a session key; a whole label; the beginning of a label; the beginning of a run id, or of its
    short form. Letter case does not matter.
    """
    token = word.strip().casefold()
    if not token:
        raise NotFound("name a subagent: its number, label, run id or session key")
    if ":" in token:
        found = next((row for row in (*rows, *below) if row.key.casefold() == token), None)
        if found is None:
            raise NotFound(f"no session {flattened(word, 80)!r}")
        return found
    if not rows and not below:
        raise NotFound("there are no subagents here")
    if token == LAST:
        return (rows or below)[-1]
    for near in (rows, below):
        for fits in _READINGS:
            fitting = [row for row in near if fits(row, token)]
            if len(fitting) > 1:
                raise NotFound(_ambiguous(word, fitting, {row.key for row in rows}))
            if fitting:
                return fitting[0]
    raise NotFound(f"no subagent {flattened(word, 80)!r}")


def is_everybody(target: str) -> bool:
    """True of the words for every run of a session."""
    return target.strip().casefold() in ("all", "*")


def is_own(word: str) -> bool:
    """True of words that mean a run of the session's own and no other: a number, with or without `#`, or `last`. So
    many digits that they may be the beginning of a run id are none."""
    return word.strip().casefold() == LAST or number_in(word, 0) is not None


def _ambiguous(word: str, fitting: Sequence[ChildRow], children: Collection[str]) -> str:
    """The candidates for a word, by number: `#2 Survey` of a child, `Survey (run 1a2b3c4d)` of a run below."""
    names = sorted((row.number if row.key in children else 0, _name(row, row.key in children)) for row in fitting)
    shown = ", ".join(name for _, name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    how = "its number" if fitting[0].key in children else "its run id"
    return f"{flattened(word, 80)!r} is ambiguous: {shown}: give {how}"


def _name(row: ChildRow, is_child: bool) -> str:
    label = flattened(row.label, NAME_CHARS)
    return f"#{row.number} {label}".strip() if is_child else f"{label} (run {short_id(row.run_id)})".strip()


_READINGS: tuple[Callable[[ChildRow, str], bool], ...] = (
    lambda row, token: row.label.casefold() == token,
    lambda row, token: row.label.casefold().startswith(token),
    lambda row, token: is_called(row.run_id, token),
)
"""How a word may fit a row, the strictest first."""
