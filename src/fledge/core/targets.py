"""Which child a word means: by number, by key, by label, by run id. One matcher for tools, commands and pages.

Rows are given in the order of their spawn; numbers count in the order lists show them, so what a person read off a list
is what they get. Unknown and ambiguous words each say so, by `NotFound`; an ambiguous one names its candidates by the
number and label that would mean each of them, and by run id only where those would not.
"""

from collections.abc import Callable, Mapping, Sequence

from fledge.core.keys import SHORT_CHARS, is_called, short_id
from fledge.core.prompts import ChildRow, flattened, in_list_order
from fledge.errors import NotFound

SHOWN = 5
"""How many candidates an ambiguous word names."""
NAME_CHARS = 48
"""How much of a candidate's label is shown."""
LAST = "last"
SHORTEST_ID = 6
"""From this length on, digits that are no number in the list may be the beginning of a run id."""


def pick(word: str, rows: Sequence[ChildRow], below: Sequence[ChildRow] = ()) -> ChildRow:
    """The child a word means; runs further `below` are found by their names, after the children themselves.

    In this order: `last`; a number, with or without `#`; a session key; a whole label; the beginning of a label; the
    beginning of a run id, or of its short form. Letter case does not matter.
    """
    token = word.strip().casefold()
    if not token:
        raise NotFound("name a subagent: its number, label, run id or session key")
    if not rows and not below:
        raise NotFound("there are no subagents here")
    if token == LAST:
        return (rows or below)[-1]
    number = token.removeprefix("#")
    if number.isdecimal() and (is_position(token) or (len(token) <= SHORT_CHARS and int(number) <= len(rows))):
        return _numbered(int(number), rows)
    if ":" in token:
        found = next((row for row in (*rows, *below) if row.key.casefold() == token), None)
        if found is None:
            raise NotFound(f"no session {flattened(word, 80)!r}")
        return found
    for near in (rows, below):
        for fits in _READINGS:
            fitting = [row for row in near if fits(row, token)]
            if len(fitting) > 1:
                raise NotFound(_ambiguous(word, fitting, rows))
            if fitting:
                return fitting[0]
    raise NotFound(f"no subagent {flattened(word, 80)!r}")


def is_everybody(target: str) -> bool:
    """True of the words for every run of a session."""
    return target.strip().casefold() in ("all", "*")


def is_position(word: str) -> bool:
    """True of words for a place in the list of a session's own runs: a number, with or without `#`, or `last`. So many
    digits that they may be the beginning of a run id are none."""
    token = word.strip().casefold()
    return token == LAST or (token.removeprefix("#").isdecimal() and len(token) < SHORTEST_ID)


def _numbered(number: int, rows: Sequence[ChildRow]) -> ChildRow:
    if not 1 <= number <= len(rows):
        raise NotFound(f"no subagent number {number}: there are {len(rows)}")
    return in_list_order(rows)[number - 1]


def _ambiguous(word: str, fitting: Sequence[ChildRow], rows: Sequence[ChildRow]) -> str:
    """The candidates for a word, in list order: `#2 Survey` of a child, `Survey (run 1a2b3c4d)` of a run below."""
    numbers = {row.key: number for number, row in enumerate(in_list_order(rows), 1)}
    names = sorted((numbers.get(row.key, len(rows) + 1), _name(row, numbers)) for row in fitting)
    shown = ", ".join(name for _, name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    how = "its number" if fitting[0].key in numbers else "its run id"
    return f"{flattened(word, 80)!r} is ambiguous: {shown}: give {how}"


def _name(row: ChildRow, numbers: Mapping[str, int]) -> str:
    label, number = flattened(row.label, NAME_CHARS), numbers.get(row.key)
    if number is None:
        return f"{label} (run {short_id(row.run_id)})".strip()
    return f"#{number} {label}".strip()


_READINGS: tuple[Callable[[ChildRow, str], bool], ...] = (
    lambda row, token: row.label.casefold() == token,
    lambda row, token: row.label.casefold().startswith(token),
    lambda row, token: is_called(row.run_id, token),
)
"""How a word may fit a row, the strictest first."""
