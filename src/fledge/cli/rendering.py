"""What verbs answered, as lines for people. `--json` needs nothing of this file."""

from typing import Any

from fledge.api.values import Forest, GivenUp, Message
from fledge.commands import lines
from fledge.commands.reading import from_wire
from fledge.commands.values import Overview, SessionRow, Story
from fledge.core.keys import main_key
from fledge.core.permission import Permission


def overview(told: Any) -> list[str]:
    """`fledge ps`."""
    return lines.overview(from_wire(Overview, told))


def tree(told: Any, around: Any) -> list[str]:
    """`fledge tree`: the runs, and of the overview whether somebody drives the folder."""
    found, seen = from_wire(Forest, told), from_wire(Overview, around)
    now = seen.now_at if seen.is_driven else None
    shown: list[str] = []
    for root in dict.fromkeys([main_key(), *(run.requester for run in found.runs)]):
        below = [run for run in found.runs if run.requester == root]
        shown += ([] if root == main_key() or not below else [root]) + lines.tree(below, now)
    if found.left_out:
        shown.append(f"and {found.left_out} more")
    if shown and seen.is_unfinished and not seen.is_driven:
        shown.append(lines.NOBODY_DRIVES)
    return shown or ["no runs"]


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
