"""Finds the files that a child hands over: regular files beneath its folder of artifacts, named and counted within
bounds.

The folder lies where the child can write, so it is walked by descriptors and never through a link. Only regular files
are opened, and those only to take their digest.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from fledge.confine import Confined
from fledge.core.freeze import to_valid_utf8
from fledge.core.handover import MOST, Artifact, Handover
from fledge.core.protected import UNPROTECTED, Protected
from fledge.errors import BadInput, NotFound

MAX_DEPTH: Final = 16
MAX_SEEN: Final = 10_000
DIGEST_BYTES: Final = 32 * 1024 * 1024
"""How many bytes are read for digests in all; files beyond that are listed without one."""
DIGEST_CHARS: Final = 16


def find_artifacts(workspace: Path, folder: str, digests: bool, protected: Protected = UNPROTECTED) -> Handover:
    """The files beneath `folder` of a workspace, by name; none if the folder is not there, hidden, or leads out of the
    workspace."""
    if not os.access(f"{workspace}/{folder}", os.F_OK):
        return Handover()  # most children hand over words only: one system call finds that
    found: list[Artifact] = []
    room = DIGEST_BYTES if digests else -1  # no file is so small
    try:
        with Confined(workspace, protected) as confined, confined.folder(folder) as top:
            for held, name, shown, size in _files(confined, top, iter(range(MAX_SEEN))):
                data = confined.content_in(held, name, size) if size <= room else None
                digest = "" if data is None else hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]
                room -= len(data or b"")
                found.append(Artifact(to_valid_utf8(shown), size, digest))
    except (BadInput, OSError):
        return Handover()
    found.sort(key=lambda one: one.name)
    return Handover(str(workspace / folder), tuple(found[:MOST]), len(found[MOST:])) if found else Handover()


def read_artifact(
    workspace: str, folder: str, name: str, limit: int, protected: Protected = UNPROTECTED
) -> tuple[bytes, int]:
    """The first `limit` bytes of a file beneath `folder` of a workspace, and its size. Raises BadInput for a name that
    climbs, and if the file is missing, hidden or a link; NotFound if a folder on the way is."""
    *parts, last = (*folder.split("/"), *name.split("/"))
    if any(part in ("", ".", "..") or "\x00" in part for part in (*parts, last)):
        raise BadInput("name", "must be a file's name beneath the folder of artifacts", name)
    with ExitStack() as stack:
        confined = stack.enter_context(Confined(Path(workspace), protected))
        held: int | None = stack.enter_context(confined.folder("."))
        for part in parts:
            held = None if held is None else stack.enter_context(confined.below(held, part))
        if held is None:
            raise NotFound(f"no file {name[:80]!r}")
        return confined.read_in(held, last, limit, name)


def _files(
    confined: Confined, held: int, seen: Iterator[int], prefix: str = "", depth: int = 0
) -> Iterator[tuple[int, str, str, int]]:
    """Regular files beneath a folder that is held: the folder of each, its name there, its name beneath the top, its
    size. Ends when `seen` is used up."""
    for name in sorted(os.listdir(held)):
        if next(seen, None) is None:
            return
        try:
            about = os.stat(name, dir_fd=held, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(about.st_mode):
            yield held, name, f"{prefix}{name}", about.st_size
        elif stat.S_ISDIR(about.st_mode) and depth < MAX_DEPTH:
            with confined.below(held, name) as inner:
                if inner is not None:
                    yield from _files(confined, inner, seen, f"{prefix}{name}/", depth + 1)
