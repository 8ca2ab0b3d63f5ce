"""Host-owned folders beneath one root: made private, filled once, removed whole; nothing outside the root is touched.

Everything is reached through descriptors, one name at a time and never through a link, so that neither a link nor a
rename made by a racing process leads anywhere else. A link that is met is removed as a link.
"""

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fledge.confine import FOLDER_FLAGS
from fledge.core.child_files import KINDS
from fledge.errors import BadInput
from fledge.plain_file import ANY_FOLDER_FLAGS, CREATE_FLAGS, kept_open

MAX_DEPTH: Final = 64
"""Folders deeper than this are moved up before they are removed: no depth takes more descriptors."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")


def split_leaf(leaf: str) -> tuple[str, str]:
    """The kind and the name of a leaf. Refused: anything that is not one plain name below one of our folders."""
    kind, _, name = leaf.partition("/")
    if kind not in KINDS or not _NAME.fullmatch(name):
        raise BadInput("leaf", f"must be a name in one of {', '.join(KINDS)}", leaf)
    return kind, name


def make_folder(root: Path, leaf: str) -> Path:
    """A new private folder; refused if there is one. Folders above it are private too."""
    with _held(root, leaf, make=True) as (held, name):
        os.mkdir(name, 0o700, dir_fd=held)
    return root / leaf


def write_file(root: Path, leaf: str, name: str, data: bytes) -> None:
    """A new private file in a folder of ours. Refused: a name that is not plain; a file that is there."""
    if not name or "/" in name or "\x00" in name or name in (".", ".."):
        raise BadInput("name", "must be a plain file name", name)
    with _held(root, leaf) as (above, own), kept_open(own, FOLDER_FLAGS, above) as held:
        write_in(held, name, data, 0o600)


def write_beside(root: Path, leaf: str, suffix: str, data: bytes) -> None:
    """A new private file beside a folder of ours, called like it with this suffix."""
    with _held(root, leaf) as (held, name):
        write_in(held, f"{name}{suffix}", data, 0o600)


def remove_beside(root: Path, leaf: str, suffix: str) -> None:
    """The file beside the folder is gone; one that is gone already is fine."""
    with suppress(FileNotFoundError), _held(root, leaf) as (held, name):
        os.unlink(f"{name}{suffix}", dir_fd=held)


def put_aside(root: Path, leaf: str, suffix: str) -> None:
    """The folder is renamed with this suffix; one that is gone already is fine."""
    with suppress(FileNotFoundError), _held(root, leaf) as (held, name):
        os.rename(name, f"{name}{suffix}", src_dir_fd=held, dst_dir_fd=held)


def write_in(held: int, name: str, data: bytes, mode: int) -> None:
    """Write a new file with this mode in a folder that is held. Refused: a file that is there."""
    with open(os.open(name, CREATE_FLAGS, mode, dir_fd=held), "wb") as file:
        file.write(data)


def remove_folder(root: Path, leaf: str) -> None:
    """The folder and everything in it is gone; one that is gone already is fine. Raises OSError if it cannot be."""
    with suppress(FileNotFoundError), _held(root, leaf) as (held, name):
        remove_tree(held, name)


def remove_tree(held: int, name: str) -> None:
    """Remove one name in a folder that is held: a file, a link as such, or a folder with all that is in it."""
    later = [name]
    """Names in the held folder that remain to be removed: folders that lie too deep are moved to it."""

    def remove(above: int, name: str, depth: int) -> None:
        if not _is_folder(above, name):
            os.unlink(name, dir_fd=above)
            return
        # A folder that was swapped for a link by now is not opened: OSError, and the removal is tried again later.
        folder = _open_folder(above, name)
        try:
            os.fchmod(folder, 0o700)
            for inner in os.listdir(folder):
                if depth < MAX_DEPTH or not _is_folder(folder, inner):
                    with suppress(FileNotFoundError):
                        remove(folder, inner, depth + 1)
                else:
                    later.append(f".fledge-removed-{secrets.token_hex(8)}")
                    os.rename(inner, later[-1], src_dir_fd=folder, dst_dir_fd=held)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=above)

    while later:
        with suppress(FileNotFoundError):
            remove(held, later.pop(), 0)


def _open_folder(held: int, name: str) -> int:
    try:
        return os.open(name, FOLDER_FLAGS, dir_fd=held)
    except PermissionError:
        # The child may have taken the permissions away. They are changed by descriptor, so that no link is followed.
        with kept_open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, held) as named:
            os.chmod(f"/proc/self/fd/{named}", 0o700)
            return os.open(name, FOLDER_FLAGS, dir_fd=held)


def _is_folder(held: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=held, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def _held(root: Path, leaf: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The folder that a leaf lies in, open for the block, and the leaf's name there. Refused: it is no leaf."""
    kind, name = split_leaf(leaf)
    with kept_open(root, ANY_FOLDER_FLAGS) as base:
        if make:
            with suppress(FileExistsError):
                os.mkdir(kind, 0o700, dir_fd=base)
        with kept_open(kind, FOLDER_FLAGS, base) as held:
            yield held, name
