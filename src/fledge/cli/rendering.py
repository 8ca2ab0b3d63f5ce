"""Answers of verbs, as lines for people. `--json` does not need this file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from fledge.api.values import GivenUp, Message
from fledge.cli.columns import table, terminal_width
from fledge.commands import lines
from fledge.commands.reading import from_wire
from fledge.commands.values import Ends, Overview, RunPage, RunRow, SessionRow, Story
from fledge.core.permission import Permission
from fledge.core.printable import printable
from fledge.core.run import Instant

if TYPE_CHECKING:
    from fledge.cli.verbs import RunsPage, What
    from fledge.commands.system import EngineView

NAME, STATE, _, MODEL, TOKENS, COST, _ = range(7)
"""The columns of a row."""


def runs(what: "What", seen: "RunsPage") -> list[str]:
    """`fledge ps` or `fledge tree`."""
    return _tree(seen) if what == "tree" else _ps(seen)


def _ps(seen: "RunsPage") -> list[str]:
    """`fledge ps`: rows in columns; unless the selection was narrowed, also what else goes on and what waits for a
    person."""
    found = from_wire(RunPage, seen.page)
    shown = _table([lines.row_cells(row, found.now_at, seen.own) for row in found.rows], found, seen.total)
    if seen.wanted.is_narrowed:
        return shown or ["no runs"]
    return lines.overview(from_wire(Overview, seen.around), shown)


def _tree(seen: "RunsPage") -> list[str]:
    """`fledge tree`: the same rows, below the runs that spawned them."""
    found, own = from_wire(RunPage, seen.page), seen.own
    listed = {row.session_key for row in found.rows}
    below: dict[str, list[RunRow]] = {}
    for row in sorted(found.rows, key=lambda row: (row.created_at, row.ordinal)):
        below.setdefault(row.requester, []).append(row)
    rooted = sorted({row.root for row in found.rows}, key=lambda root: (root != own, root))
    apart = [session for session in below if session not in listed and session not in rooted]
    cells: list[tuple[str, ...]] = []
    for session in (*rooted, *apart):
        if session != own:
            cells.append((f"{session} (not listed)" if session in apart else session, *[""] * 6))
        cells += _branches(below, session, found.now_at, own)
    shown = _table(cells, found, seen.total)
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


def _table(cells: Sequence[Sequence[str]], page: RunPage, total: int | None) -> list[str]:
    """The rows as a table; if there are more, the last line says so, and how to see them."""
    shown = table(cells, terminal_width(), cut=(STATE, NAME), drop=(MODEL, COST, TOKENS))
    if page.next:
        shown.append("and more: --limit N" if total is None else f"and {total - len(page.rows)} more: --limit {total}")
    return shown


def answer(method: str, told: Any) -> list[str]:
    """The answer of a verb, as lines."""
    if method == "health":
        return health(told)
    kind, to_lines = SHOWN[method]
    return to_lines(from_wire(kind, told))


SHOWN: Final[Mapping[str, tuple[Any, Callable[[Any], list[str]]]]] = {
    "runs.info": (Story, lines.story),
    "runs.ends": (Ends, lines.ends),
    "sessions.history": (list[Message], lines.log),
    "sessions.list": (list[SessionRow], lines.sessions),
    "undelivered.list": (list[GivenUp], lines.undelivered),
    "permissions.list": (list[Permission], lines.permissions),
}
"""By verb: the type of its answer, and the function that makes lines of it."""


def health(told: Any) -> list[str]:
    """`fledge health`."""
    from fledge.commands.system import Health

    found = from_wire(Health, told)
    store, mb, up_s = found.store, 2**20, found.now_at - found.started_at
    free = f" {store.free_bytes / mb:.0f} MB free,"
    return [
        f"status    {found.status}: fledge {found.version}, pid {found.pid}, up {up_s:.0f} s",
        *(
            f"lane      {one.name}: {one.used} of {one.width} in use"
            + (f", {one.queued} queued, oldest {one.oldest_wait_s:.0f} s" if one.queued else "")
            for one in found.lanes
        ),
        f"store     {store.server or store.folder}: {store.bytes / mb:.1f} MB,{'' if store.server else free}"
        f" commit {store.commit_ms:.1f} ms (95 %: {store.commit_p95_ms:.1f} ms)",
        *([f"files     {store.folder}:{free[:-1]}"] if store.server else []),
        f"rows      {store.runs} runs, {store.sessions} sessions, {store.events} events",
        f"waits     {found.questions} questions, {found.plans} plans, {found.undelivered} undelivered",
        f"steps     {found.steps[-2]} in the last minute",
        *(f"process   {_engine(one, found.now_at)}" for one in found.engines),
        *(f"wrong     {one.kind}: {one.words}, {one.session_key}" for one in found.errors[:10]),
    ]


def _engine(one: "EngineView", now: float) -> str:
    what = f"drives {one.sessions}" if one.drives else "runs no agents"
    words = [f"{one.name} {one.pid} on {one.host}", f"fledge {one.version}", what, one.state]
    seen = f"seen {max(0.0, now - one.seen_at):.0f} s ago"
    return printable(", ".join([*words, seen, *(["this process"] if one.is_this else [])]))
