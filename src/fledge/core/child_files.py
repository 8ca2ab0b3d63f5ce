"""The files of a run outside the database, and when each is removed: attachments, folders and worktrees made for a
child.

A file is named by its kind and its child, relative to the state folder: `work/<uuid>`. All of them are removed at the
latest with the session; those that only helped the child earlier, those that may hold its work later. This file does
not know how anything is made or removed, nor that removing may find work that must not be lost.
"""

from collections.abc import Iterable
from typing import Final, Literal, get_args

from fledge.core.keys import parse_key
from fledge.core.run import RESUMABLE, Killed, Run

ChildFileKind = Literal["attachments", "work", "worktrees"]
RemovalMoment = Literal["cleanup", "archive", "end"]
"""After the delivery is decided; when the run leaves the lists; when its session is gone for good."""

ATTACHMENTS: Final[ChildFileKind] = "attachments"
WORK: Final[ChildFileKind] = "work"
WORKTREES: Final[ChildFileKind] = "worktrees"
KINDS: Final[tuple[ChildFileKind, ...]] = get_args(ChildFileKind)


def child_file(kind: ChildFileKind, session: str) -> str:
    """The name of a file or folder that is made for this child."""
    return f"{kind}/{parse_key(session).name}"


def files_to_remove_at(run: Run, moment: RemovalMoment) -> tuple[str, ...]:
    """The files of the run that are removed at this moment. Earlier ones may be named again: removing one twice is
    fine."""
    if moment == "end" or not run.terms.leaves:
        return run.terms.leaves
    if run.terms.mode == "session" and not _is_killed(run):
        return ()  # its session goes on in its thread
    return tuple(one for one in run.terms.leaves if moment in _moments(one, run))


def readable_child_files(run: Run | None, children: Iterable[Run]) -> tuple[str, ...]:
    """The folders that a session may read besides its own: files it was given, and folders that its children have
    alone."""
    own = () if run is None else run.terms.leaves
    found = [one for one in own if _kind(one) == ATTACHMENTS]
    for child in children:
        if child.phase.name not in ("spawning", "archived"):
            found += [one for one in child.terms.leaves if _kind(one) in (WORK, WORKTREES)]
    return tuple(found)


def _kind(leaf_name: str) -> str:
    return leaf_name.partition("/")[0]


def _moments(leaf_name: str, run: Run) -> tuple[RemovalMoment, ...]:
    deletes = run.terms.cleanup == "delete"
    match _kind(leaf_name):
        case "attachments" if not deletes and (run.terms.retains or _may_be_resumed(run)):
            return ("archive",)
        case "work":
            # Its requester may still want to read what the child put there.
            return ("archive",) if deletes else ()
        case "worktrees":
            # Only what holds no work is removed, so it may be tried early; a kept session may still be sent to.
            return ("cleanup", "archive") if deletes else ("archive",)
        case _:
            return ("cleanup",)


def _may_be_resumed(run: Run) -> bool:
    """True of an ended run that may be resumed, and would read its files again."""
    return run.ended is not None and isinstance(run.ended.outcome, RESUMABLE) and run.terms.mode == "run"


def _is_killed(run: Run) -> bool:
    return run.ended is not None and isinstance(run.ended.outcome, Killed)
