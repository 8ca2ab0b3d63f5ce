"""Reading a plain file without ever waiting: a pipe, a device or a folder in its place is refused instead.

Settings, profiles, tokens and the lock are read from places where anyone with write access can put something else.
Opening a named pipe waits for its other end; so files are opened without waiting, and looked at before they are read.
Private files are written here too: whole or not at all, for their owner alone.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ANY_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""For a folder, also through a link."""
CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""For a file that is not there yet, not even as a link."""


def open_plain(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the file; the caller closes it. OSError: it cannot be opened, or is no plain file."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is not a plain file", str(path))


def read_plain(path: Path | str, most: int = -1) -> bytes:
    """The file's first `most` bytes, or all. OSError: it cannot be read, or is no plain file."""
    with open(open_plain(path), "rb") as file:
        return file.read(most)


@contextmanager
def kept_open(path: Path | str, flags: int, above: int | None = None) -> Iterator[int]:
    """A descriptor, open for the block. `above` is the folder that the path begins in, where that is held."""
    descriptor = os.open(path, flags, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_synced(descriptor: int, data: bytes) -> None:
    """Write the data to disk, and close the descriptor."""
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_private(path: Path, text: str) -> None:
    """Put a file that only its owner can open in the place of this one, whole or not at all; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _written_beside(path, text) as new:
        new.replace(path)


def create_private(path: Path, text: str) -> None:
    """Create a file that only its owner can open, whole or not at all. FileExistsError: there is one already."""
    with _written_beside(path, text) as new:
        os.link(new, path, follow_symlinks=False)  # unlike a rename, it never replaces a file


@contextmanager
def _written_beside(path: Path, text: str) -> Iterator[Path]:
    """A new file with the text, in the same folder; under this name only for the block."""
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(new, CREATE_FLAGS, 0o600)
    try:
        write_synced(descriptor, text.encode())
        yield new
    finally:
        new.unlink(missing_ok=True)
