"""The lock of a store, which one process owns. It is on a file of its own: a POSIX lock on the database would be
dropped whenever any descriptor of it closes. The file names its holder, so that a second process can name the first.

A lock belongs to a file, not to its path: a file that was removed or replaced stays locked, and a second process can
lock the new one. So the lock is compared with the file at its path after it is taken, and before each write.
"""

import fcntl
import os
import socket
import time
from pathlib import Path

import msgspec

from fledge.errors import StoreError, StoreLocked
from fledge.plain_file import open_plain, read_plain
from fledge.store.processes import is_stopped, this_program
from fledge.store.unforked import forget, keep_from_children

MOST_BYTES = 64 * 1024
TRIES = 100
"""How often locking is tried if the file is replaced meanwhile."""


class Holder(msgspec.Struct, frozen=True):
    """The process that owns the store."""

    pid: int
    host: str
    command: str
    since_at: float
    address: str = ""
    """The address of its gateway, or the name of its socket in the folder; empty if it takes no requests."""

    def __str__(self) -> str:
        at = f", gateway at {self.address}" if ":" in self.address else ""
        return f"process {self.pid} on {self.host} ({self.command}{at})"


def silence_of(holder: Holder | None, state: Path) -> str:
    """Words for people while the process that holds the folder does not answer: which one, why, and what to do. Only
    SIGKILL ends a process that is stopped, or whose event loop is blocked."""
    if holder is None:
        return f"the process that holds {state} does not answer; it may be starting or ending"
    where = f"process {holder.pid} ({holder.command}) holds {state}"
    if holder.host != socket.gethostname():
        return (
            f"{where} on {holder.host} and does not answer: end it there with `kill -9 {holder.pid}`; nothing is lost"
        )
    if is_stopped(holder.pid):
        how = f"`fg` in its terminal or `kill -CONT {holder.pid}` lets it go on"
        return f"{where} and is stopped, as by Ctrl-Z: {how}, `kill -9 {holder.pid}` ends it; nothing is lost"
    return f"{where} and is too busy to answer: wait for it, or end it with `kill -9 {holder.pid}`; nothing is lost"


def this_process(address: str) -> bytes:
    """This process as the holder from now on, as JSON."""
    return msgspec.json.encode(Holder(os.getpid(), socket.gethostname(), this_program(), time.time(), address))


class StoreLock:
    """The lock, held from construction until `release`: exclusive, or shared, in which case the file names no holder.
    Raises `StoreLocked` if another process holds it in a way that conflicts."""

    def __init__(self, path: Path, address: str, alone: bool) -> None:
        self._path, self._alone = path, alone
        for _ in range(TRIES):
            self._fd = _locked(path, alone)
            if self.is_ours():
                break
            os.close(self._fd)  # the file was removed or replaced before it was locked
        else:
            raise StoreError(
                f"{path} is replaced again and again; stop the program that does that, or name another folder"
            )
        keep_from_children(self._fd)
        try:
            if alone:
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, this_process(address), 0)
        except OSError as error:
            self._close()
            raise StoreError(
                f"{path}: cannot be written ({error.strerror}); free some space or check the disk"
            ) from error

    def is_ours(self) -> bool:
        """False once the file was removed or replaced: then another process may hold the lock too."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock; the file stays, empty."""
        if self._alone:
            os.ftruncate(self._fd, 0)
        self._close()

    def _close(self) -> None:
        forget(self._fd)
        os.close(self._fd)


def _locked(path: Path, alone: bool) -> int:
    """A locked descriptor of the file at this path. Raises `StoreLocked` if another process has the lock."""
    try:
        descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened ({error.strerror}); check the folder's permissions") from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        who = holder_of(path) or "another process"
        raise StoreLocked(f"{path.parent} is in use by {who}: end that first, or name another folder") from error
    return descriptor


def holder_of(path: Path) -> Holder | None:
    """The holder that the file names; None if it names none or cannot be read."""
    try:
        return msgspec.json.decode(read_plain(path, MOST_BYTES), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None
