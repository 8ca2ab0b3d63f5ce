"""What verbs answered, as lines for people. `--json` needs nothing of this file."""

from collections.abc import Iterator, Mapping
from typing import Any

from fledge.api.values import GivenUp, Message
from fledge.cli.columns import table, terminal_width
from fledge.commands import lines
from fledge.commands.reading import from_wire
from fledge.commands.values import Ends, Overview, RunPage, RunRow, SessionRow, Story
from fledge.core.keys import main_key
from fledge.core.permission import Permission
from fledge.core.run import Instant

NAME, STATE, _, MODEL, TOKENS, COST, _ = range(7)
"""The columns of a row."""


def ps(page: Any, total: int | None, around: Any) -> list[str]:
    """`fledge ps`: rows in columns; with the overview, what else goes on and waits for a person."""
    found = from_wire(RunPage, page)
    cells = [lines.row_cells(row, found.now_at, main_key()) for row in found.rows]
    shown = table(cells, terminal_width(), cut=(STATE, NAME), drop=(MODEL, COST, TOKENS))
    shown += _more(found, total)
    return (shown or ["no runs"]) if around is None else lines.overview(from_wire(Overview, around), shown)


def tree(page: Any, total: int | None) -> list[str]:
    """`fledge tree`: the same rows, below the runs that spawned them."""
    found = from_wire(RunPage, page)
    listed = {row.session_key for row in found.rows}
    below: dict[str, list[RunRow]] = {}
    for row in sorted(found.rows, key=lambda row: row.created_at):
        below.setdefault(row.requester, []).append(row)
    rooted = sorted({row.root for row in found.rows}, key=lambda root: (root != main_key(), root))
    apart = [session for session in below if session not in listed and session not in rooted]
    cells: list[tuple[str, ...]] = []
    for session in (*rooted, *apart):
        if session in apart:
            cells.append((f"{session} (not listed)", *[""] * 6))
        elif session != main_key():
            cells.append((session, *[""] * 6))
        cells += _branches(below, session, found.now_at, "")
    shown = table(cells, terminal_width(), cut=(STATE, NAME), drop=(MODEL, COST, TOKENS))
    shown += _more(found, total)
    if shown and not found.is_driven and any(row.now is not None and row.now.kind == "undriven" for row in found.rows):
        shown.append(lines.NOBODY_DRIVES)
    return shown or ["no runs"]


def _branches(below: Mapping[str, list[RunRow]], session: str, now: Instant, indent: str) -> Iterator[tuple[str, ...]]:
    rows = below.get(session, [])
    for at, row in enumerate(rows):
        is_last = at == len(rows) - 1
        name, *rest = lines.row_cells(row, now, main_key())
        yield (f"{indent}{'└─' if is_last else '├─'} {name}", *rest)
        yield from _branches(below, row.session_key, now, indent + ("   " if is_last else "│  "))


def _more(page: RunPage, total: int | None) -> list[str]:
    """That there is more, and how to see it."""
    if not page.next:
        return []
    return ["and more: --limit N" if total is None else f"and {total - len(page.rows)} more: --limit {total}"]


def ends(told: Any) -> list[str]:
    """`fledge kill --dry-run`."""
    return lines.ends(from_wire(Ends, told))


def story(told: Any) -> list[str]:
    """`fledge info`."""
    found = from_wire(Story, told)
    return lines.story(found, found.now_at)


def log(told: Any) -> list[str]:
    """`fledge log`."""
    return lines.log(from_wire(list[Message], told))


def undelivered(told: Any) -> list[str]:
    """`fledge undelivered`."""
    return lines.undelivered(from_wire(list[GivenUp], told))


def permissions(told: Any) -> list[str]:
    """`fledge permissions`."""
    return lines.permissions(from_wire(list[Permission], told))


def sessions(told: Any) -> list[str]:
    """`fledge sessions`."""
    return lines.sessions(from_wire(list[SessionRow], told))
