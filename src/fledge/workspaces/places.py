"""Everything a child needs outside the database, made and removed: attachments, folders of its own, worktrees.

`make` and `remove` are the two ends of a leaf's life; `handover` looks at its files in between. All of it is plain
blocking work, to be done in a thread. Which child gets which files, and when they are removed, is decided elsewhere.
"""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from fledge.confine import Confined
from fledge.core.attachments import MANIFEST, File, receipts
from fledge.core.child_files import WORK, WORKTREES
from fledge.core.handover import Handover
from fledge.core.protected import UNPROTECTED, Protected
from fledge.errors import BadInput, Refused
from fledge.workspaces import folders, worktrees
from fledge.workspaces.artifacts import find_artifacts
from fledge.workspaces.repository import find_repository


class Places:
    """The files kept for children in a state folder."""

    def __init__(self, state: Path, protected: Protected = UNPROTECTED) -> None:
        self._state, self._protected = state.absolute(), protected

    def folder(self, leaf: str) -> Path:
        """The path of a leaf, whether it is made or not."""
        folders.split_leaf(leaf)
        return self._state / leaf

    @property
    def has_folders(self) -> bool:
        """False if no child can have a folder of its own here."""
        return any((self._state / kind).exists() for kind in (WORK, WORKTREES))

    def own_folder(self, leaf: str, workspace: Path) -> Path:
        """The folder in which a child would work once this leaf is made: in a worktree, as deep as the workspace lies
        in its repository. Refused: for a worktree, a workspace that is in no repository."""
        if not _is_worktree(leaf):
            return self.folder(leaf)
        return self.folder(leaf) / find_repository(workspace).prefix

    def make(
        self, leaves: tuple[str, ...], files: tuple[File, ...], source: str = "", workspace: str = "", cwd: str = ""
    ) -> None:
        """Make all that one child needs. Raises if that is not possible, perhaps with some of it made: then `remove`
        it.

        - `source`: the workspace whose repository a worktree is made of.
        - `workspace`: where the child will work.
        - `cwd`: where in it the child starts; must be there.
        """
        for leaf in leaves:
            match folders.split_leaf(leaf)[0]:
                case "attachments":
                    self._attach(leaf, files)
                case "work":
                    folders.make_folder(self._state, leaf)
                case _:
                    made = worktrees.make_worktree(self._state, leaf, Path(source))
                    if str(made) != workspace:
                        raise Refused("error", f"workspace: the repository has moved: {made}")
        if cwd:
            self._check_inside(Path(workspace), cwd)

    def _attach(self, leaf: str, files: tuple[File, ...]) -> None:
        folders.make_folder(self._state, leaf)
        for file in files:
            folders.write_file(self._state, leaf, file.name, file.data)
        folders.write_file(self._state, leaf, MANIFEST, msgspec.json.encode({"files": receipts(files)}))

    def remove(self, leaves: tuple[str, ...]) -> None:
        """Remove those of these leaves that exist, except worktrees that hold work: those stay. Raises OSError or
        Refused if it cannot."""
        for leaf in leaves:
            if _is_worktree(leaf):
                worktrees.remove_worktree(self._state, leaf)
            else:
                folders.remove_folder(self._state, leaf)

    def branch(self, leaves: tuple[str, ...]) -> str:
        """The branch of the worktree among these; empty if there is none."""
        made = [worktrees.record_of(self._state, leaf) for leaf in leaves if _is_worktree(leaf)]
        return next((record.branch for record in made if record is not None), "")

    def handover(self, leaves: tuple[str, ...], workspace: Path, artifacts: str, thorough: bool) -> Handover:
        """The files that a child hands over, and its worktree; if `thorough`, with digests and the state of the
        worktree."""
        found = find_artifacts(workspace, artifacts, thorough, self._protected)
        for leaf in leaves:
            if _is_worktree(leaf):
                found = replace(found, worktree=worktrees.look_at(self._state, leaf, thorough))
        return found

    def _check_inside(self, workspace: Path, cwd: str) -> None:
        try:
            with Confined(workspace, self._protected) as confined, confined.folder(cwd):
                pass
        except BadInput as error:
            raise BadInput("cwd", f"must be a folder inside the workspace ({error.expected})", cwd) from None


def _is_worktree(leaf: str) -> bool:
    return folders.split_leaf(leaf)[0] == WORKTREES
