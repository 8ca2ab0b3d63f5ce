"""A git worktree for a child, on a branch of its own: made, looked at, and removed only where no work would be lost.

The repository lies where agents can write, so only git commands that run no program named in it are used (`git`), files
are written and compared here, byte by byte, and a repository counts only if its own records say that the folder belongs
to it. A record of the worktree is written before it is made, beside it, where no agent writes: after any crash the
removal finds there all that there is to remove.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from fledge.confine import FOLDER_FLAGS, Confined, files_of
from fledge.core.freeze import to_valid_utf8
from fledge.core.handover import ARTIFACTS, Worktree
from fledge.errors import BadInput, Refused
from fledge.workspaces import folders
from fledge.workspaces.git import MAX_OUTPUT, answer, git, line, names
from fledge.workspaces.repository import check_repository, find_repository, line_in, refuse_unknown

BRANCHES: Final = "fledge/"
BRANCH_CHARS: Final = 12
MAX_FILES: Final = 50_000
BATCH_BYTES: Final = 64 * 1024 * 1024
MAX_BYTES: Final = 1024 * 1024 * 1024
"""Of all files together: a larger worktree is not made. A single file that has grown larger than this counts as
changed."""
MAX_FILE_BYTES: Final = MAX_OUTPUT - 1024
"""Of one file that is checked out: git answers with all of it at once, behind a line about it."""
MOST_CHANGED: Final = 20
RECORD: Final = ".json"
READY: Final = ".ready"
"""The suffix of the mark that a worktree is complete: before that no child can have worked in it."""
GONE: Final = ".gone"
"""The suffix of a worktree that is being removed: its remains after a crash hold no work."""


class Record(Struct, frozen=True):
    """The record of a worktree, kept beside it until all of it is gone."""

    repository: str
    """The folder of git's own files that all worktrees of the repository share."""
    branch: str
    base: str
    """The commit it started from."""
    prefix: str = ""
    """The child's path in the worktree: the same as its caller's in the caller's own working tree."""


class _Blob(Struct, frozen=True):
    mode: str
    digest: str
    path: str


# ---- making ----------------------------------------------------------------------------------------------------------


def make_worktree(root: Path, leaf: str, workspace: Path, max_files: int = MAX_FILES) -> Path:
    """A worktree of the repository that the workspace is in; answers the folder in it in which the child works.

    Refused: no repository, one that does not know the workspace, no commit yet, too many or too large files.
    """
    record = _look_up(workspace, folders.split_leaf(leaf)[1])
    place = folders.make_folder(root, leaf)
    folders.write_beside(root, leaf, RECORD, msgspec.json.encode(record))
    repository = Path(record.repository)
    git(repository, "worktree", "add", "--no-checkout", "-b", record.branch, "--", str(place), record.base)
    try:
        _check_out(place, record.base, max_files)
    except ValueError:
        raise Refused("error", "workspace: the repository lacks some of its files' contents") from None
    _check_still(place, record)  # no agent has led git to another repository meanwhile
    work = place / record.prefix
    work.mkdir(parents=True, exist_ok=True)
    folders.write_beside(root, leaf, READY, b"")
    return work


def _look_up(workspace: Path, name: str) -> Record:
    repository = find_repository(workspace)
    check_repository(repository)
    if answer(workspace, "rev-parse", "--is-inside-work-tree") is None:
        raise Refused("error", "workspace: worktree needs a git repository, and git does not accept the workspace's")
    top = line(workspace, "rev-parse", "--show-toplevel")
    shared = line(workspace, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if (os.path.realpath(top), os.path.realpath(shared)) != (str(repository.top), str(repository.shared)):
        refuse_unknown()
    base = answer(workspace, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if base is None:
        raise Refused("error", "workspace: worktree needs a commit to start from, and the repository has none yet")
    # The end of the id: its beginning is the time, which is the same for the children of one step.
    return Record(str(repository.shared), f"{BRANCHES}{name[-BRANCH_CHARS:]}", base, repository.prefix)


def _check_still(place: Path, record: Record) -> None:
    """Refused: the worktree belongs to another repository by now, or its repository leads outside itself."""
    repository = find_repository(place)
    if str(repository.shared) != record.repository or repository.top != Path(os.path.realpath(place)):
        raise Refused("forbidden", "the worktree does not belong to its repository any more")
    check_repository(repository)


def _check_out(place: Path, commit: str, max_files: int) -> None:
    """Fill the index and write the files of a commit as they are stored, without any filter. Refused before anything is
    read or written: too many or too large files."""
    blobs = _blobs(place, 1, "ls-tree", "-r", "-z", "--full-tree", commit)
    if len(blobs) > max_files:
        raise Refused("error", f"workspace: worktree would have {len(blobs)} of {max_files} files")
    files = [blob for blob in blobs if blob.mode != "160000"]
    said = git(place, "cat-file", "--batch-check=%(objectsize)", given=_asked(files))
    sizes = [int(size) for size in said.split()]
    if sum(sizes) > MAX_BYTES:
        raise Refused("error", f"workspace: worktree would have more than {MAX_BYTES} bytes")
    for blob, size in zip(files, sizes, strict=True):
        if size > MAX_FILE_BYTES:
            shown = to_valid_utf8(blob.path[:200])
            raise Refused("error", f"workspace: worktree: {shown} has {size} of {MAX_FILE_BYTES} bytes")
    git(place, "read-tree", commit)
    for batch in _batches(files, sizes):
        said = git(place, "cat-file", "--batch", given=_asked(batch))
        for blob, data in zip(batch, _contents(said), strict=True):
            _write(place, blob, data)


def _blobs(place: Path, digest_at: int, *arguments: str) -> list[_Blob]:
    """The files that git lists: before a path stand its mode and two words; `digest_at` says which of them is its
    digest."""
    found: list[_Blob] = []
    for entry in names(place, *arguments):
        about, _, path = entry.partition("\t")
        mode, first, second = about.split()
        found.append(_Blob(mode, (first, second)[digest_at], path))
    return found


def _asked(blobs: list[_Blob]) -> bytes:
    return "".join(f"{blob.digest}\n" for blob in blobs).encode()


def _batches(blobs: list[_Blob], sizes: list[int]) -> Iterator[list[_Blob]]:
    batch: list[_Blob] = []
    room = BATCH_BYTES
    for blob, size in zip(blobs, sizes, strict=True):
        if batch and size > room:
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(blob)
        room -= size
    if batch:
        yield batch


def _contents(said: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(said):
        end = said.index(b"\n", at)
        size = int(said[at:end].split()[2])
        yield said[end + 1 : end + 1 + size]
        at = end + 1 + size + 1


def _write(place: Path, blob: _Blob, data: bytes) -> None:
    """One file of the tree. A tree can hold names that a working tree must not have: those are refused."""
    parts = blob.path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise Refused("error", f"workspace: the repository holds a file that may not be written: {blob.path[:80]!r}")
    held = os.open(place, FOLDER_FLAGS)
    try:
        for part in parts[:-1]:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=held)
            inner = os.open(part, FOLDER_FLAGS, dir_fd=held)
            os.close(held)
            held = inner
        if blob.mode == "120000":
            os.symlink(data, parts[-1].encode("utf-8", "surrogateescape"), dir_fd=held)
        else:
            folders.write_in(held, parts[-1], data, 0o755 if blob.mode == "100755" else 0o644)
    finally:
        os.close(held)


# ---- looking ---------------------------------------------------------------------------------------------------------


def record_of(root: Path, leaf: str) -> Record | None:
    """The record of a worktree; None if there is none, or it cannot be read."""
    kind, name = folders.split_leaf(leaf)
    try:
        with Confined(root / kind) as confined:
            return msgspec.json.decode(confined.read(f"{name}{RECORD}", 65_536)[0], type=Record)
    except (BadInput, msgspec.DecodeError):
        return None


def look_at(root: Path, leaf: str, thorough: bool) -> Worktree | None:
    """The worktree; if `thorough`, with its commits and changed files, as far as they can be found. None if there is
    none."""
    record = record_of(root, leaf)
    place = root / leaf
    if record is None or not place.is_dir():
        return None
    bare = Worktree(str(place), record.branch)
    if not thorough:
        return bare
    try:
        _check_still(place, record)
        tip = line(Path(record.repository), "rev-parse", "--verify", f"refs/heads/{record.branch}")
        commits = int(line(Path(record.repository), "rev-list", "--count", f"{record.base}..{tip}"))
        changed = _changed(place, record.prefix)
    except (Refused, OSError, ValueError):
        return bare
    shown = tuple(to_valid_utf8(name) for name in changed[:MOST_CHANGED])
    return Worktree(str(place), record.branch, commits, shown, len(changed[MOST_CHANGED:]))


def _changed(place: Path, prefix: str) -> list[str]:
    """Files with changes that are not committed: staged, changed, deleted, or new and not ignored."""
    staged = names(place, "diff-index", "--cached", "--name-only", "-z", "--no-renames", "--no-ext-diff", "HEAD", "--")
    new = names(place, "ls-files", "-o", "-z", "--exclude-standard")
    # Files that are handed over count even where the repository ignores them.
    handed = names(place, "ls-files", "-o", "-z", "--", f":(top,literal){prefix}{'/' * bool(prefix)}{ARTIFACTS}/")
    indexed = _blobs(place, 0, "ls-files", "-s", "-z")
    if len(indexed) > MAX_FILES:
        raise Refused("error", f"more than {MAX_FILES} files")
    changed = [blob.path for blob in indexed if not _is_as_stored(place, blob)]
    return sorted({*staged, *names_inside(place, {*new, *handed}), *changed})


def names_inside(place: Path, found: set[str]) -> set[str]:
    """These names; one that leads out of the worktree is replaced by the top folder of its path: git may have looked
    into a folder that was swapped for a link meanwhile."""
    folders_of = {os.path.dirname(name) for name in found}
    with Confined(place) as confined:
        inside = {folder for folder in folders_of if _is_folder_in(confined, folder)}
    return {name if os.path.dirname(name) in inside else name.partition("/")[0] for name in found}


def _is_folder_in(confined: Confined, folder: str) -> bool:
    try:
        with confined.folder(folder or "."):
            return True
    except (BadInput, OSError):
        return False


def _is_as_stored(place: Path, blob: _Blob) -> bool:
    if blob.mode == "160000":
        return True
    try:
        with Confined(place) as confined, confined.folder(str(Path(blob.path).parent)) as held:
            name = Path(blob.path).name
            about = os.stat(name, dir_fd=held, follow_symlinks=False)
            if stat.S_ISLNK(about.st_mode):
                kind, data = "120000", os.fsencode(os.readlink(name, dir_fd=held))
            elif stat.S_ISREG(about.st_mode) and about.st_size <= MAX_BYTES:
                kind = "100755" if about.st_mode & stat.S_IXUSR else "100644"
                data = confined.read_in(held, name, about.st_size + 1, blob.path)[0]
            else:
                return False
    except (BadInput, OSError):
        return False
    digest = hashlib.sha1 if len(blob.digest) == 40 else hashlib.sha256
    return kind == blob.mode and digest(b"blob %d\0" % len(data) + data).hexdigest() == blob.digest


# ---- removing --------------------------------------------------------------------------------------------------------


def remove_worktree(root: Path, leaf: str) -> bool:
    """Remove a worktree that holds no work, with its branch; False, and everything stays, if it does.

    Work is files in `_changed`, commits that no other branch has, a HEAD that is not the branch's tip, and everything
    if that cannot be found out. Removing a worktree that is gone already is fine.
    """
    record, place = record_of(root, leaf), root / leaf
    is_complete = (root / f"{leaf}{READY}").exists()
    if record is None and is_complete and place.is_dir():
        return False  # the record was whole once
    if record is None:
        folders.remove_folder(root, leaf)  # nothing was made in it yet
        for suffix in (READY, RECORD):
            folders.remove_beside(root, leaf, suffix)  # a crash may have left an empty record
        return True
    repository = Path(record.repository)
    branch = f"refs/heads/{record.branch}"
    tip = answer(repository, "rev-parse", "--verify", "--quiet", branch) if repository.is_dir() else None
    if is_complete and _holds_work(place, repository, record, tip):
        return False
    folders.put_aside(root, leaf, GONE)
    folders.remove_folder(root, f"{leaf}{GONE}")
    if repository.is_dir():
        _forget(repository, place)
        if tip is not None:
            git(repository, "update-ref", "-d", branch, tip)
    for suffix in (READY, RECORD):
        folders.remove_beside(root, leaf, suffix)
    return True


def _holds_work(place: Path, repository: Path, record: Record, tip: str | None) -> bool:
    if not place.is_dir():
        return False  # an earlier removal has decided, and renamed it
    if tip is None:
        return True  # the branch or the repository is gone: these files are all there is
    try:
        _check_still(place, record)
        if tip != record.base and not _is_merged(repository, record.branch, tip):
            return True
        return bool(_changed(place, record.prefix)) or line(place, "rev-parse", "HEAD") != tip
    except (Refused, OSError, ValueError):
        return True


def _is_merged(repository: Path, branch: str, tip: str) -> bool:
    """True if another branch has these commits."""
    known = line(repository, "for-each-ref", "--contains", tip, "--format=%(refname)", "refs/heads", "refs/remotes")
    return any(name and name != f"refs/heads/{branch}" for name in known.split("\n"))


def _forget(repository: Path, place: Path) -> None:
    """Remove the repository's own record of this worktree, and no other's."""
    with files_of(repository / "worktrees") as held:
        if held is None:
            return
        for name in os.listdir(held):
            with files_of(name, held) as record:
                worktree = "" if record is None else line_in(record, "gitdir")
            if worktree == str(place / ".git"):
                folders.remove_tree(held, name)
