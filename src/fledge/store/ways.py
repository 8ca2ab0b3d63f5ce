"""How to reach the process that holds a state folder: its socket in the folder, and the token of its gateway.

Both the listening and the connecting process use this file.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fledge.errors import Refused, StoreError
from fledge.plain_file import ANY_FOLDER_FLAGS, create_private, kept_open, open_plain

TOKEN_FILE: Final = "gateway.token"
CONTROL_SOCKET: Final = "hatch"
"""The name of the socket. It is in the lock file in place of an address."""
PATH_BYTES: Final = 100
"""The longest path of a socket, about."""


@contextmanager
def reached(state: Path) -> Iterator[str]:
    """A path of the folder's socket that is short enough to be used, as long as the block lasts."""
    path = str(state / CONTROL_SOCKET)
    if len(os.fsencode(path)) <= PATH_BYTES:
        yield path
        return
    with kept_open(state, ANY_FOLDER_FLAGS) as folder:
        yield f"/proc/self/fd/{folder}/{CONTROL_SOCKET}"


def check_folder(state: Path) -> None:
    """Raises if others may write into this state folder: they could replace the database, the socket and the token. A
    folder of another owner may be written by its group, as a volume of a container is."""
    try:
        about = state.stat()
    except OSError:
        return  # it is made, or the error says so where it is used
    others = 0o022 if about.st_uid == os.geteuid() else 0o002
    if stat.S_ISDIR(about.st_mode) and about.st_mode & others:
        raise StoreError(
            f"{state} can be written by others (mode {stat.S_IMODE(about.st_mode):o}): chmod go-w {state},"
            " or name another folder"
        )


def read_token(state: Path) -> str:
    """The token of this state folder's gateway. Raises if there is none, or if others can read it."""
    path = state / TOKEN_FILE
    if not path.exists():
        raise StoreError(f"{path}: no gateway has ever run here; start one with `fledge serve`")
    return token_in(path)


def token_in(path: Path) -> str:
    """The token in a file. Raises if there is none, or if others can read it."""
    try:
        with open(open_plain(path), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            words = file.read(4096)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
    if stat.S_IMODE(mode) & 0o077:
        raise Refused("error", f"{path} can be read by others: chmod 600, or remove it and start the gateway again")
    token = words.decode("ascii", "replace").strip()
    if len(token) < 32 or not token.isprintable():
        raise Refused("error", f"{path} holds no token: remove it and start the gateway again")
    return token


def make_token(state: Path) -> str:
    """The token of this state folder; a new one, in a file that only its owner can read, if there is none."""
    import secrets  # needed by a gateway alone

    path = state / TOKEN_FILE
    if not path.exists():
        # Another gateway may start at the same moment, and neither may read a token that is half written.
        with suppress(FileExistsError):
            create_private(path, f"{secrets.token_urlsafe(32)}\n")
    return read_token(state)
