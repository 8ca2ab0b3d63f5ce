"""What verbs answered, as lines for people. `--json` needs nothing of this file."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fledge.api.values import GivenUp, Message
from fledge.cli.columns import table, terminal_width
from fledge.commands import lines
from fledge.commands.reading import from_wire
from fledge.commands.values import Ends, Overview, RunPage, RunRow, SessionRow, Story
from fledge.core.permission import Permission
from fledge.core.run import Instant

if TYPE_CHECKING:
    from fledge.cli.verbs import RunsPage

NAME, STATE, _, MODEL, TOKENS, COST, _ = range(7)
"""The columns of a row."""


def ps(seen: "RunsPage", around: Any) -> list[str]:
    """`fledge ps`: rows in columns; with the overview, what else goes on and waits for a person."""
    found = from_wire(RunPage, seen.page)
    cells = [lines.row_cells(row, found.now_at, seen.own) for row in found.rows]
    shown = table(cells, terminal_width(), cut=(STATE, NAME), drop=(MODEL, COST, TOKENS))
    shown += _more(found, seen.total)
    return (shown or ["no runs"]) if around is None else lines.overview(from_wire(Overview, around), shown)


def tree(seen: "RunsPage") -> list[str]:
    """`fledge tree`: the same rows, below the runs that spawned them."""
    found, own = from_wire(RunPage, seen.page), seen.own
    listed = {row.session_key for row in found.rows}
    below: dict[str, list[RunRow]] = {}
    oldest = [*reversed(found.rows)]
    for row in sorted(oldest, key=lambda row: row.created_at):
        below.setdefault(row.requester, []).append(row)
    rooted = sorted({row.root for row in found.rows}, key=lambda root: (root != own, root))
    apart = [session for session in below if session not in listed and session not in rooted]
    cells: list[tuple[str, ...]] = []
    for session in (*rooted, *apart):
        if session in apart:
            cells.append((f"{session} (not listed)", *[""] * 6))
        elif session != own:
            cells.append((session, *[""] * 6))
        cells += _branches(below, session, found.now_at, own)
    shown = table(cells, terminal_width(), cut=(STATE, NAME), drop=(MODEL, COST, TOKENS))
    shown += _more(found, seen.total)
    if shown and not found.is_driven and any(row.now is not None and row.now.kind == "undriven" for row in found.rows):
        shown.append(lines.NOBODY_DRIVES)
    return shown or ["no runs"]


def _branches(
    below: Mapping[str, list[RunRow]], session: str, now: Instant, own: str, indent: str = ""
) -> Iterator[tuple[str, ...]]:
    rows = below.get(session, [])
    for at, row in enumerate(rows):
        is_last = at == len(rows) - 1
        name, *rest = lines.row_cells(row, now, own)
        yield (f"{indent}{'└─' if is_last else '├─'} {name}", *rest)
        yield from _branches(below, row.session_key, now, own, indent + ("   " if is_last else "│  "))


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


def health(told: Any) -> list[str]:
    """`fledge health`."""
    from fledge.commands.system import Health

    found = from_wire(Health, told)
    store, mb, up_s = found.store, 2**20, found.now_at - found.started_at
    waits = [f"{one.queued} queued, oldest {one.oldest_wait_s:.0f} s" if one.queued else "" for one in found.lanes]
    return [
        f"status    {found.status}: fledge {found.version}, pid {found.pid}, up {up_s:.0f} s",
        *(
            f"lane      {one.name}: {one.used} of {one.width} in use{f', {wait}' if wait else ''}"
            for one, wait in zip(found.lanes, waits, strict=True)
        ),
        f"store     {store.folder}: {store.bytes / mb:.1f} MB, {store.free_bytes / mb:.0f} MB free,"
        f" commit {store.commit_ms:.1f} ms (95 %: {store.commit_p95_ms:.1f} ms)",
        f"rows      {store.runs} runs, {store.sessions} sessions, {store.events} events",
        f"waits     {found.questions} questions, {found.plans} plans, {found.undelivered} undelivered",
        f"steps     {found.steps[-2]} in the last minute",
        *(f"wrong     {one.kind}: {one.words}, {one.session_key}" for one in found.errors[:10]),
    ]


def undelivered(told: Any) -> list[str]:
    """`fledge undelivered`."""
    return lines.undelivered(from_wire(list[GivenUp], told))


def permissions(told: Any) -> list[str]:
    """`fledge permissions`."""
    return lines.permissions(from_wire(list[Permission], told))


def sessions(told: Any) -> list[str]:
    """`fledge sessions`."""
    return lines.sessions(from_wire(list[SessionRow], told))
