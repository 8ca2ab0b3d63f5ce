"""One process owns a store. The lock is on a file of its own: a POSIX lock on the database would be dropped whenever
any descriptor of it closes. The file says who holds it, so that whoever comes second can be told.
"""

import fcntl
import os
import socket
import sys
from pathlib import Path

import msgspec

from fledge.errors import StoreError, StoreLocked


class Holder(msgspec.Struct, frozen=True):
    """Who owns the store."""

    pid: int
    host: str
    command: str
    since_at: float
    address: str = ""
    """Where it can be asked, if it can: its gateway's address, or the word for a socket in the folder."""

    def __str__(self) -> str:
        at = f", gateway at {self.address}" if ":" in self.address else ""
        return f"process {self.pid} on {self.host} ({self.command}{at})"


class StoreLock:
    """The lock, held from construction until `release`. Raises StoreLocked if another process has it."""

    def __init__(self, path: Path, at: float, address: str = "") -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened ({error.strerror}); check the folder's permissions") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            who = holder_of(path) or "another process"
            raise StoreLocked(f"{path.parent} is in use by {who}: end that first, or name another folder") from error
        try:
            self.write(at, address)
        except OSError as error:
            os.close(self._fd)
            raise StoreError(
                f"{path}: cannot be written ({error.strerror}); free some space or check the disk"
            ) from error

    def write(self, at: float, address: str) -> None:
        """Say who holds it, and where they can be reached."""
        command = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
        holder = Holder(os.getpid(), socket.gethostname(), command, at, address)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, msgspec.json.encode(holder), 0)

    def release(self) -> None:
        """Let go; the file stays, empty."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def holder_of(path: Path) -> Holder | None:
    """Who says they hold the lock; None if nobody does or it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None
