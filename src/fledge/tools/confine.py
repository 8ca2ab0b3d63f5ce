"""Files beneath a folder, reached so that nothing outside it can be read, written or created, whoever races with us.

A path is walked part by part, each opened relative to the folder before it and never through a link (`O_NOFOLLOW`). A
link is read as text and its target walked the same way, so a link that stays inside works and one that leaves is
refused; `..` goes back to the folder we came from, not to what the disk says by then. Between two steps a folder may be
swapped for a link: the next step then starts from the folder we hold. What tools do with files is not known here.

Every file of a workspace is read through this module: by a path (`Confined`), or as a plain file of a folder
(`files_of` and `read_plain`). `read_trusted` is for files that their owner named outside any workspace. None of them
waits for a pipe, or opens anything but a regular file.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NoReturn

from fledge.errors import BadInput

MAX_LINKS: Final = 40
MAX_DEPTH: Final = 128
MAX_PATH: Final = 4096

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# What the kernels say when O_NOFOLLOW meets a link: with O_DIRECTORY, without, and on BSDs.
_MAYBE_LINK: Final = {errno.ENOTDIR, errno.ELOOP, getattr(errno, "EFTYPE", errno.ELOOP), errno.EMLINK}

Wanted = Literal["folder", "file", "new file"]
"""What the last part of a path is to be."""
Identity = tuple[int, int]
"""Device and inode: what a folder is, whatever it is called."""


class NoSuchFile(BadInput):
    """There is nothing at this path."""


class IsFolder(BadInput):
    """At this path is a folder."""


class Confined:
    """A folder, held open, and what may be reached through it. Use it as a context manager."""

    def __init__(self, root: Path, hidden: Path | None = None) -> None:
        """Refused: a root that is no folder or is the hidden one. What is hidden is refused wherever it is met."""
        self._named = (str(root.absolute()), os.path.realpath(root))
        self._hidden = None if hidden is None else _identity_of(hidden)
        try:
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise BadInput("workspace", f"must be a folder ({error.strerror})", str(root)) from None
        if _identity(self._root) == self._hidden:
            os.close(self._root)
            raise BadInput("workspace", "must not be the folder in which fledge keeps its state", str(root))

    def __enter__(self) -> "Confined":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A descriptor of the folder, open for the block. Refused: what is not there, not inside or no folder."""
        with self._walked(path, "folder") as (held, _):
            yield held

    def read(self, path: str, limit: int) -> tuple[bytes, int]:
        """The first `limit` bytes of a regular file, and its size. Refused: folders, devices, pipes, sockets."""
        with self._walked(path, "file") as (held, name):
            return self.read_in(held, name, limit, path)

    def read_in(self, folder: int, name: str, limit: int, shown: str) -> tuple[bytes, int]:
        """The same for a name in a folder that is held already; a link is refused. `shown` is for the message."""
        with _explained(shown), _regular(name, folder, shown) as (opened, found):
            return _read_up_to(opened, limit), found.st_size

    def read_own(self, name: str, limit: int) -> tuple[bytes, os.stat_result] | None:
        """The first `limit` bytes of a regular file that lies in the root itself, and its status; None if there is
        none that can be read, or a link in its place."""
        try:
            return read_plain(self._root, name, limit)
        except OSError:
            return None

    def replace(self, path: str, data: bytes) -> bool:
        """The file holds exactly these bytes, at once or not at all; folders on the way are made. True: it is new.

        A file that was there keeps its permissions; whatever else has a hard link to it keeps its content.
        """
        with self._walked(path, "new file") as (held, name), _explained(path):
            mode = None
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=held, follow_symlinks=False)
                _must_be_regular(found, path)
                mode = stat.S_IMODE(found.st_mode) & 0o777
            draft = f".fledge-{secrets.token_hex(8)}.tmp"
            opened = os.open(draft, _CREATE, 0o666, dir_fd=held)
            try:
                try:
                    if mode is not None:
                        os.fchmod(opened, mode)
                    with memoryview(data) as rest:
                        written = 0
                        while written < len(rest):
                            written += os.write(opened, rest[written:])
                finally:
                    os.close(opened)
                os.replace(draft, name, src_dir_fd=held, dst_dir_fd=held)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=held)
                raise
            return mode is None

    @contextmanager
    def below(self, folder: int, name: str) -> Iterator[int | None]:
        """A folder in one that is held, open for the block; None if it is a link, hidden, unreadable or gone."""
        with files_of(name, folder) as opened:
            yield None if opened is None or _identity(opened) == self._hidden else opened

    def is_hidden(self, found: os.stat_result) -> bool:
        """True for the folder that no tool may see."""
        return (found.st_dev, found.st_ino) == self._hidden

    # ---- the walk ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _walked(self, path: str, wanted: Wanted) -> Iterator[tuple[int, str]]:
        """The folder that holds the last part, and that part; for a folder, itself and nothing."""
        todo = self._parts(path, path)[::-1]
        _refuse_climbing(todo[::-1], path)
        held = [os.dup(self._root)]
        links = 0
        name = ""
        try:
            while todo:
                part = todo.pop()
                if part == "..":
                    if len(held) == 1:
                        _refuse_outside(path)
                    os.close(held.pop())
                    continue
                if len(held) > MAX_DEPTH:
                    raise BadInput("path", f"must be at most {MAX_DEPTH} folders deep", path)
                target = self._link_at(held[-1], part) if not todo and wanted != "folder" else None
                if target is None and not todo and wanted != "folder":
                    name = part
                    break
                if target is None:
                    target = self._enter(held, part, path, wanted)
                if target is None:
                    continue
                links += 1
                if links > MAX_LINKS:
                    raise BadInput("path", f"must not go through more than {MAX_LINKS} links", path)
                following = self._parts(target, path)
                if os.path.isabs(target):
                    while len(held) > 1:
                        os.close(held.pop())
                todo += following[::-1]
            if not name and wanted != "folder":
                raise BadInput("path", "must be a file, not a folder", path)
            yield held[-1], name
        finally:
            for descriptor in held:
                os.close(descriptor)

    def _enter(self, held: list[int], part: str, path: str, wanted: Wanted) -> str | None:
        """None: the part is a folder and is held now. Otherwise the text of the link that it is."""
        with _explained(path):
            if wanted == "new file":
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=held[-1])
            try:
                opened = os.open(part, _FOLDER, dir_fd=held[-1])
            except OSError as error:
                target = self._link_at(held[-1], part) if error.errno in _MAYBE_LINK else None
                if target is None:
                    raise
                return target
        held.append(opened)
        if _identity(opened) == self._hidden:
            raise BadInput("path", "must not be in the folder in which fledge keeps its state", path)
        return None

    @staticmethod
    def _link_at(folder: int, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=folder)
        except OSError:
            return None

    def _parts(self, text: str, path: str) -> list[str]:
        """The parts of a path or of a link's target, from where it starts; an absolute one must name the root."""
        if not text or "\x00" in text or len(text) > MAX_PATH:
            raise BadInput("path", f"must be 1–{MAX_PATH} characters without NUL", path)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput("path", "must be Unicode text", path) from None
        if os.path.isabs(text):
            for root in self._named:
                if text == root or text.startswith(root.rstrip("/") + "/"):
                    text = text[len(root) :]
                    break
            else:
                _refuse_outside(path)
        return [part for part in text.split("/") if part not in ("", ".")]


# ---- plain files -----------------------------------------------------------------------------------------------------


@contextmanager
def files_of(folder: Path | str, above: int | None = None) -> Iterator[int | None]:
    """A descriptor of the folder, open for the block; None if there is no folder, or a link in its place. `above` is
    the folder that it lies in, where that is held."""
    try:
        held = os.open(folder, _FOLDER, dir_fd=above)
    except (OSError, ValueError):
        yield None
        return
    try:
        yield held
    finally:
        os.close(held)


def read_plain(folder: int, name: str, limit: int) -> tuple[bytes, os.stat_result] | None:
    """The first `limit` bytes of a regular file in a folder that is held, and its status; None if there is none, or a
    link or something else in its place. Raises OSError if it cannot be read."""
    try:
        with _regular(name, folder, name) as (opened, found):
            return _read_up_to(opened, limit), found
    except (FileNotFoundError, BadInput):
        return None
    except OSError as error:
        if error.errno in _MAYBE_LINK or error.errno == errno.ENXIO:  # swapped since it was looked at
            return None
        raise


def read_trusted(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a file that its owner named: links are followed. Raises OSError, also for what is no
    regular file."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(opened).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return _read_up_to(opened, limit)
    finally:
        os.close(opened)


@contextmanager
def _regular(name: str, folder: int, shown: str) -> Iterator[tuple[int, os.stat_result]]:
    """A regular file that is no link, open for the block, with the status of what was opened.

    Looking first spares devices, which may act on being opened; looking again judges what was opened.
    """
    _must_be_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), shown)
    opened = os.open(name, _READ, dir_fd=folder)
    try:
        found = os.fstat(opened)
        _must_be_regular(found, shown)
        yield opened, found
    finally:
        os.close(opened)


def _identity(descriptor: int) -> Identity:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _identity_of(path: Path) -> Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _must_be_regular(found: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsFolder("path", "must be a file, not a folder", path)
    if not stat.S_ISREG(found.st_mode):
        raise BadInput("path", "must be a regular file, not a link, device, pipe or socket", path)


def _read_up_to(opened: int, limit: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.read(opened, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NoSuchFile("path", "there is no such file or folder in the workspace", path) from None
    except OSError as error:
        raise BadInput("path", f"cannot be used ({error.strerror})", path) from None


def _refuse_climbing(parts: list[str], path: str) -> None:
    # Seen before anything is touched, so that a refused path leaves no folder behind; links are seen on the walk.
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            _refuse_outside(path)


def _refuse_outside(path: str) -> NoReturn:
    raise BadInput("path", "must stay inside the workspace", path)
