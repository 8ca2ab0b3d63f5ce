"""Guarded paths that do not exist when a sandboxed command begins: what stands there at its end is set aside.

A mount needs something to lie on, so nothing can be mounted at a missing path without a trace in the person's folder.
Instead a private record names the missing paths before the command begins. At its end, whatever stands at one of them
is moved into a private folder beside the record. The record is locked as long as its command may run: one that is
unlocked belongs to a process that died, and the next command or the next start settles it. `core.protected` defines
guarded paths.
"""

import errno
import fcntl
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from fledge.confine import FOLDER_FLAGS
from fledge.core.redact import error_words
from fledge.plain_file import CREATE_FLAGS, kept_open, open_plain, read_plain, write_synced

log = logging.getLogger("fledge.sandbox")

FOLDER: Final = "set-aside"
"""The folder in a state folder."""
_ENDING: Final = ".json"


class SetAside(Struct, frozen=True):
    """What stood at a guarded path, and where it is now."""

    path: str
    kept: str
    """Empty: it could not be moved."""
    error: str = ""

    @property
    def words(self) -> str:
        """The same as one sentence."""
        if self.error:
            return f"{self.path} appeared while a sandboxed command ran, and could not be set aside: {self.error}"
        return f"{self.path} appeared while a sandboxed command ran, and was set aside: {self.kept}"


class _Record(Struct, frozen=True):
    workspace: str
    missing: list[str]
    made: list[str]
    """Paths at which something stood already that another running command may have made. That command sets it aside;
    what is made there after its end, this one."""


_record = msgspec.json.Decoder(_Record).decode


class WatchedPaths(Struct, frozen=True):
    """The missing paths of a running command, on record. Settle it once the command is over."""

    file: Path
    held: int
    """The locked record, a descriptor."""
    record: _Record

    def settle(self) -> list[SetAside]:
        """Set aside what stands at the paths now, and end the record. It is kept if something could not be moved."""
        try:
            into = self.file.with_suffix("")
            made = self.record.made and sorted({*self.record.made} - _watched(self.file.parent))
            moved = (_set_aside(self.record.workspace, path, into) for path in (*self.record.missing, *made))
            found = [one for one in moved if one is not None]
            for one in found:
                log.warning("%s", one.words)
            if not any(one.error for one in found):
                self.file.unlink()
            return found
        finally:
            os.close(self.held)


def watch(folder: Path, workspace: Path, missing: Collection[str], guarded: Collection[str]) -> WatchedPaths:
    """Put the missing paths of a workspace on record, before a command begins in it. OSError: it cannot be written.

    Of the `guarded` paths that exist, those on the record of a running command may have been made by it.
    """
    with _locked(folder):
        made = _watched(folder) & set(guarded)
        record = _Record(os.path.realpath(workspace), sorted(missing), sorted(made))
        file = folder / f"{secrets.token_hex(8)}{_ENDING}"
        write_synced(os.open(file, CREATE_FLAGS, 0o600), msgspec.json.encode(record))
        held = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return WatchedPaths(file, held, record)


def settle_dead(folder: Path) -> list[SetAside]:
    """Settle the records of processes that died while their commands ran."""
    if not folder.is_dir():
        return []
    with _locked(folder):
        dead = [one for file in _records(folder) if (one := _dead(file)) is not None]
    return [found for one in dead for found in one.settle()]


def _dead(file: Path) -> WatchedPaths | None:
    """The watch of a process that died; None if the process lives, has just settled it, or died before its command
    began."""
    with ExitStack() as stack:
        stack.enter_context(suppress(OSError))
        held = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(held).st_nlink:
            try:
                found = WatchedPaths(file, held, _record(read_plain(file)))
            except msgspec.DecodeError:
                file.unlink()
            else:
                stack.pop_all()
                return found
    return None


def kept_in(folder: Path) -> list[str]:
    """The folders that hold what was set aside."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


# ---- records ---------------------------------------------------------------------------------------------------------


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """No other process makes or takes up a record meanwhile."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with kept_open(folder, FOLDER_FLAGS) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _records(folder: Path) -> list[Path]:
    return sorted(folder / name for name in os.listdir(folder) if name.endswith(_ENDING))


def _watched(folder: Path) -> set[str]:
    """The missing paths on the records of running commands."""
    return {path for file in _records(folder) for path in _running(file)}


def _running(file: Path) -> list[str]:
    with suppress(OSError, msgspec.DecodeError), kept_open(file, os.O_RDONLY | os.O_CLOEXEC) as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _record(read_plain(file)).missing
    return []


# ---- moving ----------------------------------------------------------------------------------------------------------


def _set_aside(workspace: str, path: str, into: Path) -> SetAside | None:
    """Move what stands at a path below the workspace; None if nothing does. A link in the place of a folder above is
    moved itself."""
    parts = os.path.relpath(path, workspace).split("/")
    try:
        with ExitStack() as stack:
            folder = _opened(stack, workspace)
            for depth, name in enumerate(parts, 1):
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                if depth == len(parts) or stat.S_ISLNK(mode):
                    kept = into.joinpath(*parts[:depth])
                    kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    if os.path.lexists(kept):
                        kept = kept.with_name(f"{kept.name}.{secrets.token_hex(4)}")
                    _move(folder, name, mode, kept)
                    return SetAside(os.path.join(workspace, *parts[:depth]), str(kept))
                folder = _opened(stack, name, folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, shutil.Error) as error:
        return SetAside(path, "", getattr(error, "strerror", None) or error_words(error))
    return None


def _opened(stack: ExitStack, path: str, above: int | None = None) -> int:
    """A folder, held, with all rights for its owner: a command may have taken them away. The stack restores them."""
    folder = stack.enter_context(kept_open(path, os.O_PATH | FOLDER_FLAGS, above))
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(_name_of(folder), mode | stat.S_IRWXU)
        stack.callback(os.chmod, _name_of(folder), mode)
    return folder


def _name_of(held: int) -> str:
    """A path to what is held, whatever its name is by now."""
    return f"/proc/self/fd/{held}"


def _move(folder: int, name: str, mode: int, kept: Path) -> None:
    if stat.S_ISDIR(mode):
        _open_up(folder, name)
    try:
        os.rename(name, kept, src_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(folder, name, mode, kept)


def _open_up(folder: int, name: str) -> None:
    """Give the owner all rights to a folder: it is moved and copied by them."""
    with kept_open(name, os.O_PATH | FOLDER_FLAGS, folder) as held:
        os.chmod(_name_of(held), stat.S_IRWXU)


def _copy(folder: int, name: str, mode: int, kept: Path) -> None:
    """Move to another disk: pipes, sockets and devices are left out."""
    source = f"{_name_of(folder)}/{name}"
    try:
        if stat.S_ISDIR(mode):
            for above, below, _ in os.walk(source):
                with kept_open(above, FOLDER_FLAGS) as held:
                    for one in below:
                        with suppress(NotADirectoryError):
                            _open_up(held, one)
            shutil.copytree(source, kept, symlinks=True, ignore=_special, copy_function=_copy_file)
            shutil.rmtree(source)
        else:
            if stat.S_ISREG(mode):
                _copy_file(source, str(kept))
            elif stat.S_ISLNK(mode):
                kept.symlink_to(os.readlink(name, dir_fd=folder))
            os.unlink(name, dir_fd=folder)
    except BaseException:
        shutil.rmtree(kept, ignore_errors=True)
        raise


def _copy_file(source: str, target: str) -> None:
    held = open_plain(source, os.O_RDONLY | os.O_NOFOLLOW)
    with open(held, "rb") as reading, open(os.open(target, CREATE_FLAGS, 0o600), "wb") as writing:
        shutil.copyfileobj(reading, writing)


def _special(folder: str, names: list[str]) -> list[str]:
    modes = {name: os.lstat(f"{folder}/{name}").st_mode for name in names}
    return [
        name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    ]
