"""The files that a child hands over besides its words, in its `artifacts/`, and the worktree it worked in.

Names come from the child and are taken as hostile: valid Unicode here, flattened and guarded where they are shown. This
file does not know where files lie nor how they were found.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from fledge.core.freeze import to_valid_utf8
from fledge.core.keys import short_id
from fledge.core.value import Value

ARTIFACTS: Final = "artifacts"
"""The folder in a workspace from which files are handed over."""
MOST: Final = 50
"""How many files are named; more are counted."""


class Artifact(Value, omit_defaults=True):
    """A file that is handed over."""

    name: str
    """Relative to the folder of artifacts."""
    bytes: int
    sha256: str = ""
    """The beginning of its digest; empty if it was not taken."""


class Worktree(Value, omit_defaults=True):
    """A git worktree of a child's own."""

    path: str
    branch: str
    commits: int | None = None
    """On its branch since it was made; None: not counted."""
    changed: tuple[str, ...] = ()
    """Files with changes that are not committed."""
    more_changed: int = 0


class Handover(Value, omit_defaults=True):
    """All of it."""

    folder: str = ""
    """Where the artifacts lie."""
    artifacts: tuple[Artifact, ...] = ()
    more: int = 0
    """Files besides those named."""
    worktree: Worktree | None = None

    def with_valid_utf8(self) -> "Handover":
        """The same, with names that can be written as UTF-8."""
        artifacts = tuple(replace(one, name=to_valid_utf8(one.name)) for one in self.artifacts)
        tree = self.worktree
        if tree is not None:
            tree = replace(
                tree,
                path=to_valid_utf8(tree.path),
                branch=to_valid_utf8(tree.branch),
                changed=tuple(to_valid_utf8(name) for name in tree.changed),
            )
        return replace(self, folder=to_valid_utf8(self.folder), artifacts=artifacts, worktree=tree)


HandoverLook = Callable[[bool], Handover]
"""Reads what a session hands over (blocking); with True, thoroughly."""


def artifacts_folder(session_name: str, owns_workspace: bool) -> str:
    """The folder, in a child's workspace, for files it hands over: a folder of its own where others work there too."""
    return ARTIFACTS if owns_workspace else f"{ARTIFACTS}/{short_id(session_name)}"
