"""The repository that a folder is in, found without git, and refused where its own files lead outside it.

git follows the files of a repository: links among objects and refs, alternates, pointers between worktrees, settings
that include others. Agents can write these files, and a worktree would show the files that they lead to. So all of them
are checked first, from held folders and never through a link. This file makes nothing and changes nothing.
"""

import os
import stat
from pathlib import Path
from typing import Final, NoReturn

from msgspec import Struct

from fledge.confine import Confined, NoSuchFile, files_of, read_plain
from fledge.core.protected import is_within
from fledge.errors import BadInput, Refused
from fledge.workspaces.git import names

MAX_UP: Final = 64
"""How many folders above a workspace are looked at for its repository."""
MAX_ENTRIES: Final = 1_000_000
"""How many files of git's own are looked at; a repository with more is refused."""
MAX_DEPTH: Final = 32
MAX_BYTES: Final = 1024 * 1024
"""The longest file of git's own that is read here."""
MAX_INCLUDES: Final = 10

_UNUSED: Final = frozenset({"hooks", "modules", "lfs"})
"""Folders of git's own that no git command used here looks into."""
_SETTINGS: Final = frozenset({"config", "config.worktree"})
_ALTERNATES: Final = frozenset({"alternates", "http-alternates"})


class Repository(Struct, frozen=True):
    """A repository, and where in it a folder lies."""

    top: Path
    """The working tree, by its real path."""
    prefix: str
    """The folder's path in it; empty at the top."""
    own: Path
    """Git's files of this working tree."""
    shared: Path
    """Git's files that all its worktrees share: the same, unless this is a linked worktree."""


def find_repository(workspace: Path) -> Repository:
    """The repository that the workspace is in. Refused: none, one that is reached through a link, and one whose records
    do not say that this working tree is its own: an agent that can write `.git` can make it name any other
    repository."""
    real = Path(os.path.realpath(workspace))
    for top in (real, *real.parents)[:MAX_UP]:
        try:
            about = os.lstat(top / ".git")
        except OSError:
            continue
        prefix = "" if real == top else str(real.relative_to(top))
        if stat.S_ISDIR(about.st_mode):
            with files_of(top / ".git") as held:
                if held is None or line_in(held, "commondir"):
                    refuse_unknown()
            return Repository(top, prefix, top / ".git", top / ".git")
        return _linked(top, prefix)
    raise Refused("error", "workspace: worktree needs a git repository, and the workspace is in none")


def _linked(top: Path, prefix: str) -> Repository:
    with files_of(top) as folder:
        pointer = "" if folder is None else line_in(folder, ".git")
    own = Path(os.path.realpath(top / pointer.removeprefix("gitdir:").strip()))
    shared = own.parent.parent
    with files_of(own) as held:
        if not pointer.startswith("gitdir:") or held is None or own.parent.name != "worktrees":
            refuse_unknown()
        back, common = line_in(held, "gitdir"), line_in(held, "commondir")
    if os.path.realpath(own / back) != str(top / ".git") or os.path.realpath(own / common) != str(shared):
        refuse_unknown()
    return Repository(top, prefix, own, shared)


def line_in(folder: int, name: str) -> str:
    """The text of a one-line file in a held folder; empty if there is no such file, or it cannot be read."""
    return (_text_in(folder, name) or "").strip()


def _text_in(folder: int, name: str) -> str | None:
    """The text of a file in a held folder; None if there is no such file, or it cannot be read."""
    try:
        file = read_plain(folder, name, MAX_BYTES)
    except OSError:
        return None
    return None if file is None else file[0].decode("utf-8", "surrogateescape")


def refuse_unknown() -> NoReturn:
    """Refuse a workspace that names a repository which does not know it."""
    raise Refused("forbidden", "workspace: the repository that the workspace names does not list the workspace")


# ---- files and links of a repository ---------------------------------------------------------------------------------


def check_repository(repository: Repository) -> None:
    """Refused, naming the file: a repository with a link, an alternate or an included file outside it, or a pipe."""
    _Check(repository).look()


class _Check:
    def __init__(self, repository: Repository) -> None:
        self._shared = str(repository.shared)
        main_tree = [str(repository.shared.parent)] if repository.shared.name == ".git" else []
        self._inside = (self._shared, *main_tree)
        """The repository's own folders: git's files, and the working tree that they lie in."""
        self._seen = 0

    def look(self) -> None:
        with files_of(self._shared) as held:
            if held is None:
                _refuse(".git", "is not a folder")
            self._folder(held, "", 0)

    def _folder(self, held: int, inner: str, depth: int) -> None:
        """Check everything in a folder of git's own; `inner` is its path below the top one."""
        if depth > MAX_DEPTH:
            _refuse(inner, "lies too deep")
        with os.scandir(held) as found:
            entries = list(found)
        self._seen += len(entries)
        if self._seen > MAX_ENTRIES:
            _refuse(inner, f"is one of more than {MAX_ENTRIES} files")
        for entry in entries:
            path = f"{inner}/{entry.name}".lstrip("/")
            if path in _UNUSED:
                continue
            if entry.is_symlink():
                self._link(held, entry.name, path)
            elif entry.is_dir(follow_symlinks=False):
                with files_of(entry.name, held) as below:
                    if below is None:
                        _refuse(path, "cannot be looked at")
                    self._folder(below, path, depth + 1)
            elif entry.is_file(follow_symlinks=False):
                self._file(held, entry.name, path)
            elif not stat.S_ISSOCK(os.stat(entry.name, dir_fd=held, follow_symlinks=False).st_mode):
                _refuse(path, "is a pipe or a device")  # a socket blocks no reader: git's own monitor has one

    def _link(self, held: int, name: str, path: str) -> None:
        try:
            target = os.readlink(name, dir_fd=held)
        except OSError:
            _refuse(path, "changes while it is looked at")
        if not is_within(os.path.normpath(os.path.join(self._shared, os.path.dirname(path), target)), self._shared):
            _refuse(path, f"leads to {target}")

    def _file(self, held: int, name: str, path: str) -> None:
        above = os.path.basename(os.path.dirname(path))
        if name in _ALTERNATES and above == "info":
            objects = os.path.dirname(os.path.dirname(path))
            for line in self._text(held, name, path).splitlines():
                target = os.path.normpath(os.path.join(self._shared, objects, line.strip()))
                if line.strip() and not line.startswith("#") and not is_within(target, self._shared):
                    _refuse(path, f"leads to {line.strip()}")
        elif name in _SETTINGS and (not above or path.startswith("worktrees/")):
            self._includes(self._text(held, name, path), os.path.join(self._shared, os.path.dirname(path)), path, 0)

    def _includes(self, text: str, folder: str, path: str, depth: int) -> None:
        """Check the files that settings include, and those that these include."""
        given = text.encode("utf-8", "surrogateescape")
        for entry in names(Path("/"), "config", "--file", "-", "--no-includes", "--null", "--list", given=given):
            key, _, value = entry.partition("\n")
            if not key.startswith(("include.", "includeif.")) or not key.endswith(".path"):
                continue
            target = os.path.normpath(os.path.join(folder, value))
            root = next((one for one in self._inside if is_within(target, one)), None)
            if root is None or value.startswith(("~", "%")):
                _refuse(path, f"includes {value}")
            if depth >= MAX_INCLUDES:
                _refuse(path, "includes too many others")
            try:
                with Confined(Path(root)) as confined:
                    data, _ = confined.read(os.path.relpath(target, root), MAX_BYTES)
            except NoSuchFile:
                continue
            except BadInput as error:
                _refuse(path, f"includes {value} ({error.expected})")
            self._includes(data.decode("utf-8", "surrogateescape"), os.path.dirname(target), path, depth + 1)

    def _text(self, held: int, name: str, path: str) -> str:
        text = _text_in(held, name)
        if text is None:
            _refuse(path, "cannot be read")
        return text


def _refuse(path: str, why: str) -> NoReturn:
    raise Refused(
        "forbidden",
        f"workspace: no worktree is made of a repository that leads outside itself: .git/{path} {why}",
    )
