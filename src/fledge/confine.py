"""Files beneath a folder, reached so that nothing outside it can be read, written or created, whatever other processes
change meanwhile.

A path is walked part by part, each opened relative to the folder before it and never through a link (`O_NOFOLLOW`). A
link is read as text and its target walked the same way, so a link that stays inside works and one that leaves is
refused; `..` goes back to the folder we came from, not to what the disk says by then. Between two steps a folder may be
swapped for a link: the next step then starts from the folder we hold. This file does not know what tools do with files.

Every file of a workspace is read through this module: by a path (`Confined`), or as a plain file of a folder
(`files_of` and `read_plain`). Neither waits for a pipe, or opens anything but a regular file. Files that their owner
named outside any workspace are read by `plain_file`.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NoReturn

from fledge.core.protected import GUARDED_NAMES, UNPROTECTED, Protected, is_within
from fledge.errors import BadInput
from fledge.plain_file import ANY_FOLDER_FLAGS, CREATE_FLAGS

HIDDEN: Final = "is hidden from tools: it holds secrets, or fledge's own settings or state"
GUARDED: Final = "needs a person's approval to be written, because it runs or counts with their rights"
RUNS_FROM: Final = (
    "fledge itself runs from there, or it is a folder of PATH, so a person approves each change; to work on a folder of"
    " fledge's freely, install fledge outside the workspace (pipx install fledge)"
)
MAX_LINKS: Final = 40
MAX_DEPTH: Final = 128
MAX_PATH: Final = 4096

FOLDER_FLAGS: Final = ANY_FOLDER_FLAGS | os.O_NOFOLLOW
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The errors of kernels when O_NOFOLLOW meets a link: with O_DIRECTORY, without, and on BSDs.
_MAYBE_LINK: Final = {errno.ENOTDIR, errno.ELOOP, getattr(errno, "EFTYPE", errno.ELOOP), errno.EMLINK}

PathKind = Literal["folder", "file", "new file"]
"""The wanted kind of the last part of a path."""
FileIdentity = tuple[int, int]
"""Device and inode: they identify a file or folder under any name."""


class NoSuchFile(BadInput):
    """There is nothing at this path."""


class IsFolder(BadInput):
    """At this path is a folder."""


class Confined:
    """A folder, held open, and the files and folders below it. Use it as a context manager."""

    def __init__(self, root: Path, protected: Protected = UNPROTECTED) -> None:
        """Refused: a root that is no folder or is hidden. Hidden files and folders are refused on every path."""
        self._named = (str(root.absolute()), os.path.realpath(root))
        self._protected = protected
        self._hidden = {found for path in protected.hidden if (found := _identity_of(path)) is not None}
        self._code = protected.code_in(self._named[1])
        try:
            self._root = os.open(root, ANY_FOLDER_FLAGS)
        except OSError as error:
            raise BadInput("workspace", f"must be a folder ({error.strerror})", str(root)) from None
        if self.is_hidden(os.fstat(self._root)):
            os.close(self._root)
            raise BadInput("workspace", f"must not be a folder that {HIDDEN}", str(root))

    def __enter__(self) -> "Confined":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A descriptor of the folder, open for the block. Refused: a path that does not exist, leaves the root, or is
        no folder."""
        with self._walked(path, "folder") as (held, _):
            yield held

    def read(self, path: str, limit: int) -> tuple[bytes, int]:
        """The first `limit` bytes of a regular file, and its size. Refused: folders, devices, pipes, sockets."""
        with self._walked(path, "file") as (held, name):
            return self.read_in(held, name, limit, path)

    def read_in(self, folder: int, name: str, limit: int, shown: str) -> tuple[bytes, int]:
        """The same for a name in a folder that is held already; a link is refused. `shown` is for the message."""
        with _explained(shown), _regular(name, folder, shown) as (file, found):
            if self.is_hidden(found):
                _refuse_hidden(shown)
            return _read_up_to(file, limit), found.st_size

    def content_in(self, folder: int, name: str, limit: int) -> bytes | None:
        """The first `limit` bytes of a regular file in a folder that is held; None if it cannot be read, or may not."""
        try:
            return self.read_in(folder, name, limit, name)[0]
        except BadInput:
            return None

    def read_own(self, name: str, limit: int) -> tuple[bytes, os.stat_result] | None:
        """The first `limit` bytes of a regular file that lies in the root itself, and its status; None if there is
        none that can be read, it is hidden, or a link in its place."""
        try:
            found = read_plain(self._root, name, limit)
        except OSError:
            return None
        return None if found is None or self.is_hidden(found[1]) else found

    def replace(self, path: str, data: bytes, approved: bool = False) -> bool:
        """The file holds exactly these bytes, at once or not at all; folders on the way are made. True: it is new.

        A replaced file keeps its permissions; its other hard links keep the old content. Refused: a guarded place,
        unless a person has approved it; also then, if the path leads there through a link.
        """
        with self._walked(path, "new file", approved) as (held, name), _explained(path):
            mode = None
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=held, follow_symlinks=False)
                _must_be_regular(found, path)
                if self.is_hidden(found):
                    _refuse_hidden(path)
                mode = stat.S_IMODE(found.st_mode) & 0o777
            draft = f".fledge-{secrets.token_hex(8)}.tmp"
            descriptor = os.open(draft, CREATE_FLAGS, 0o666, dir_fd=held)
            try:
                with open(descriptor, "wb") as file:
                    if mode is not None:
                        os.fchmod(descriptor, mode)
                    file.write(data)
                os.replace(draft, name, src_dir_fd=held, dst_dir_fd=held)
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=held)
                raise
            return mode is None

    @contextmanager
    def below(self, folder: int, name: str) -> Iterator[int | None]:
        """A folder in one that is held, open for the block; None if it is a link, hidden, unreadable or gone."""
        with files_of(name, folder) as held:
            yield None if held is None or self.is_hidden(os.fstat(held)) else held

    def is_hidden(self, found: os.stat_result) -> bool:
        """True of a file or folder that no tool may see, under any name."""
        return (found.st_dev, found.st_ino) in self._hidden

    def inner(self, path: str) -> str:
        """A path as it is written, from the root; links on it are not followed."""
        return "/".join(self._written(path))

    def is_guarded(self, path: str) -> bool:
        """True of a path that is guarded as it is written, and not hidden; links on it are not followed."""
        names = self._written(path)
        hidden = (os.path.realpath(one) for one in self._protected.hidden)
        if any(is_within(self._place(names), one) for one in hidden):
            return False
        return self._guards(names, self._guarded_places())

    def _written(self, path: str) -> list[str]:
        return _plain(self._parts(path, path), path)

    # ---- the walk ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _walked(self, path: str, wanted: PathKind, approved: bool = False) -> Iterator[tuple[int, str]]:
        """The folder that holds the last part, and that part; for a folder, the folder itself and an empty name."""
        parts = self._parts(path, path)
        todo = parts[::-1]
        written = _plain(parts, path)
        judge = self._judge(path, written, approved) if wanted == "new file" else None
        held = [os.dup(self._root)]
        names: list[str] = []
        """The folders that are held below the root: none of them was reached through a link."""
        links = 0
        name = ""
        try:
            while todo:
                part = todo.pop()
                if part == "..":
                    if not names:
                        _refuse_outside(path)
                    os.close(held.pop())
                    names.pop()
                    continue
                if len(held) > MAX_DEPTH:
                    raise BadInput("path", f"must be at most {MAX_DEPTH} folders deep", path)
                if judge is not None:
                    judge([*names, part])
                is_last = not todo and wanted != "folder"
                target = self._link_at(held[-1], part) if is_last else self._enter(held, part, path, wanted)
                if target is None and is_last:
                    name = part
                    break
                if target is None:
                    names.append(part)
                    continue
                links += 1
                if links > MAX_LINKS:
                    raise BadInput("path", f"must not go through more than {MAX_LINKS} links", path)
                following = self._parts(target, path)
                if os.path.isabs(target):
                    names.clear()
                    while len(held) > 1:
                        os.close(held.pop())
                todo += following[::-1]
            if not name and wanted != "folder":
                raise IsFolder("path", "must be a file, not a folder", path)
            yield held[-1], name
        finally:
            for descriptor in held:
                os.close(descriptor)

    def _judge(self, path: str, written: list[str], approved: bool) -> Callable[[list[str]], None]:
        """Checks each place on the way to a file to be written: refused if it is hidden, or guarded and not approved.

        The target of a link with a guarded name is guarded too: a start-up file may link to a folder of such files.
        """
        hidden, guarded = [os.path.realpath(one) for one in self._protected.hidden], self._guarded_places()

        def judge(names: list[str]) -> None:
            if self._place(names) in hidden:
                _refuse_hidden(path)
            if not self._guards(names, guarded):
                return
            if not approved:
                why = f" ({RUNS_FROM})" if self._is_code(names) else ""
                raise BadInput("path", f"{GUARDED}, and no person was asked{why}", path)
            if names != written[: len(names)]:
                raise BadInput("path", f"{GUARDED}: name it by its own path, not through a link", path)

        return judge

    def _place(self, names: list[str]) -> str:
        return "/".join([self._named[1].rstrip("/"), *names])

    def _guarded_places(self) -> list[str]:
        at_top = (self._place([name]) for name in GUARDED_NAMES if name not in self._protected.unguarded)
        return [os.path.realpath(one) for one in (*self._protected.guarded, *at_top)]

    def _guards(self, names: list[str], guarded: list[str]) -> bool:
        place = self._place(names)
        if self._protected.guards("/".join(names)) or any(is_within(place, one) for one in guarded):
            return True
        return self._is_code(names)

    def _is_code(self, names: list[str]) -> bool:
        # Some file systems take two spellings of a name for one.
        place = self._place(names).casefold()
        return any(is_within(place, one.casefold()) for one in self._code)

    def _enter(self, held: list[int], part: str, path: str, wanted: PathKind) -> str | None:
        """None: the part is a folder and is held now. Otherwise the text of the link that it is."""
        with _explained(path):
            if wanted == "new file":
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=held[-1])
            try:
                entered = os.open(part, FOLDER_FLAGS, dir_fd=held[-1])
            except OSError as error:
                target = self._link_at(held[-1], part) if error.errno in _MAYBE_LINK else None
                if target is None:
                    raise
                return target
        held.append(entered)
        if self.is_hidden(os.fstat(entered)):
            _refuse_hidden(path)
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
            root = next((one for one in self._named if is_within(text, one)), None)
            if root is None:
                _refuse_outside(path)
            text = text[len(root) :]
        return [part for part in text.split("/") if part not in ("", ".")]


# ---- plain files -----------------------------------------------------------------------------------------------------


@contextmanager
def files_of(folder: Path | str, above: int | None = None) -> Iterator[int | None]:
    """A descriptor of the folder, open for the block; None if there is no folder, or a link in its place. `above` is
    the folder that it lies in, where that is held."""
    try:
        held = os.open(folder, FOLDER_FLAGS, dir_fd=above)
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
        with _regular(name, folder, name) as (file, found):
            return _read_up_to(file, limit), found
    except (FileNotFoundError, BadInput):
        return None
    except OSError as error:
        if error.errno in _MAYBE_LINK or error.errno == errno.ENXIO:  # swapped since it was looked at
            return None
        raise


@contextmanager
def _regular(name: str, folder: int, shown: str) -> Iterator[tuple[int, os.stat_result]]:
    """A regular file that is no link, open for the block, with the status of what was opened.

    Looking first spares devices, which may act on being opened; looking again judges what was opened.
    """
    _must_be_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), shown)
    file = os.open(name, _READ, dir_fd=folder)
    try:
        found = os.fstat(file)
        _must_be_regular(found, shown)
        yield file, found
    finally:
        os.close(file)


def _identity_of(path: str) -> FileIdentity | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _plain(parts: list[str], path: str) -> list[str]:
    """The parts with each `..` taken back, as they are written. Refused: a path that leaves the workspace."""
    # Seen before anything is touched, so that a refused path leaves no folder behind; links are seen on the walk.
    plain: list[str] = []
    for part in parts:
        if part != "..":
            plain.append(part)
        elif plain:
            plain.pop()
        else:
            _refuse_outside(path)
    return plain


def _must_be_regular(found: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsFolder("path", "must be a file, not a folder", path)
    if not stat.S_ISREG(found.st_mode):
        raise BadInput("path", "must be a regular file, not a link, device, pipe or socket", path)


def _read_up_to(file: int, limit: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.read(file, min(limit, 1 << 20))):
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


def _refuse_hidden(path: str) -> NoReturn:
    raise BadInput("path", HIDDEN, path)


def _refuse_outside(path: str) -> NoReturn:
    raise BadInput("path", "must stay inside the workspace", path)
