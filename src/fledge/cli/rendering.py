"""What verbs answered, as lines for people. `--json` needs nothing of this file."""

from typing import Any

from fledge.api.values import Forest, GivenUp, Message
from fledge.commands import lines
from fledge.commands.reading import from_wire
from fledge.commands.values import Overview, SessionRow, Story
from fledge.core.permission import Permission


def overview(told: Any) -> list[str]:
    """`fledge ps`."""
    return lines.overview(from_wire(Overview, told))


def tree(told: Any, around: Any) -> list[str]:
    """`fledge tree`: the runs, and of the overview whether somebody drives the folder."""
    found, seen = from_wire(Forest, told), from_wire(Overview, around)
    now = seen.now_at if seen.is_driven else None
    shown: list[str] = []
    own = seen.session_key
    for root in dict.fromkeys([own, *(run.requester for run in found.runs)]):
        below = [run for run in found.runs if run.requester == root]
        shown += ([] if root == own or not below else [root]) + lines.tree(below, now)
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


def undelivered(told: Any) -> list[str]:
    """`fledge undelivered`."""
    return lines.undelivered(from_wire(list[GivenUp], told))


def permissions(told: Any) -> list[str]:
    """`fledge permissions`."""
    return lines.permissions(from_wire(list[Permission], told))


def sessions(told: Any) -> list[str]:
    """`fledge sessions`."""
    return lines.sessions(from_wire(list[SessionRow], told))
