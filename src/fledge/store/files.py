"""The files of a store: made whole or not at all, checked before they are opened, marked while they are open.

A new database is made under another name, migrated, closed and renamed into place; so an empty or half-made file there
is not ours. While a store is open, its newest commits are only in SQLite's log, and a mark beside the database says so:
a folder with a mark and without a log has lost commits, and is refused. This file keeps no connection open, and knows
no table.
"""

import os
import secrets
import socket
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fledge.core.redact import error_words
from fledge.errors import StoreError
from fledge.plain_file import ANY_FOLDER_FLAGS, kept_open, open_plain, read_plain, write_private
from fledge.store.lock import StoreLock
from fledge.store.migrate import make_private, migrate
from fledge.store.ways import check_folder

DATABASE = "fledge.db"
SERVER = "store"
"""The file that names the store on a server to which the files of the folder belong."""


class _Bound(msgspec.Struct, frozen=True):
    """The store whose files are in a folder."""

    id: str
    shown: str
    marker: str = ""
    """A random value that the store has too: it identifies the folder."""


class Home(msgspec.Struct, frozen=True):
    """The place of the files of a store on a server."""

    marker: str
    host: str
    """The machine that made it."""
    path: str


def log_of(path: Path) -> Path:
    """SQLite's log of a database."""
    return path.with_name(f"{path.name}-wal")


def mark_of(path: Path) -> Path:
    """The mark of an open database."""
    return path.with_name(f"{path.name}.open")


def check_plain(path: Path) -> None:
    """Raise if one of the store's files is not a plain file: SQLite would wait at a pipe."""
    for file in (path, log_of(path), path.with_name(f"{path.name}-shm"), mark_of(path)):
        _size(file)


def check_files(path: Path) -> None:
    """Raise, with a remedy, if the files are those of an incomplete store. Nothing is opened or changed."""
    check_plain(path)
    bound = _bound_to(path.parent)
    if bound is not None:
        raise StoreError(
            f"{path.parent} keeps the files of a store on a server ({bound.shown}): open it with that address, or name "
            "another folder. Nothing was changed."
        )
    log, mark = log_of(path), mark_of(path)
    database, has_log, has_mark = _size(path), log.exists(), mark.exists()
    if database is None and has_log:
        raise StoreError(
            f"{log} is there without its database {path.name}, to which it belongs. Nothing was changed: put the "
            f"database back, or move {log.name} away to start empty."
        )
    if has_mark and not has_log:
        raise StoreError(
            f"{path} was not closed, and its log {log.name}, with the newest commits, is gone. Nothing was changed: "
            f"put {log.name} back. If another program has opened the database since, it has taken the log in and "
            f"nothing is lost; then, or to go on without those commits, remove {mark.name}."
        )
    if database == 0:
        raise StoreError(
            f"{path} is empty, so it is not a fledge database. It was not changed: restore a copy (look for "
            f"{path.name}.*.backup beside it), or move it away to start empty."
        )


def _size(path: Path) -> int | None:
    """The size of the file; None if there is none. Raises `StoreError` if it is not a plain file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
    if stat.S_ISDIR(found.st_mode):
        raise StoreError(f"{path} is a folder, not a database; move it away, or name another state folder")
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is not a plain file; move it away, or name another state folder")
    return found.st_size


def make_database(path: Path) -> None:
    """Make a database with the newest schema, whole or not at all."""
    draft = path.with_name(f"{path.name}.new")
    try:
        for end in ("", "-journal", "-wal", "-shm"):  # left by a process that died here
            draft.with_name(draft.name + end).unlink(missing_ok=True)
        make_private(draft)  # SQLite makes its other files with the same permissions
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            migrate(db, draft)
            # Before the rename: a process that died after it would leave a journal to be rolled back.
            db.execute("PRAGMA journal_mode = WAL")
        draft.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be made ({error.strerror}); check the folder and the disk") from error


def mark_open(path: Path) -> None:
    """Mark the database as open, if it has a log; the log is on disk before the mark."""
    if not log_of(path).exists():
        return
    mark = mark_of(path)
    try:
        sync_folder(path.parent)
        with open(open_plain(mark, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            file.write(f"open since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n")
    except OSError as error:
        raise StoreError(f"{mark}: cannot be written ({error.strerror}); check the folder and the disk") from error


def unmark(path: Path) -> None:
    """Remove the mark: the whole log is in the database."""
    mark_of(path).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that new and renamed files survive a power cut."""
    with kept_open(folder, ANY_FOLDER_FLAGS) as descriptor:
        os.fsync(descriptor)


def own_folder(folder: Path, address: str, alone: bool = True) -> StoreLock:
    """Own a state folder whose database is on a server, and make it if needed; unless `alone`, together with other
    processes. Raises `StoreError` if it has a database of its own."""
    lock = lock_folder(folder, address, alone)
    if (folder / DATABASE).exists():
        lock.release()
        raise StoreError(f"{folder} has a database of its own, {DATABASE}: name another folder for a store on a server")
    return lock


def lock_folder(folder: Path, address: str, alone: bool = True) -> StoreLock:
    """Make the folder if needed, and own it. Raises if it cannot be made or written, or another process owns it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError as error:
        raise StoreError(f"{folder} is a file, not a folder; name another") from error
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made ({error.strerror}); choose a folder you may write to") from error
    check_folder(folder)
    return StoreLock(folder / "lock", address, alone)


def prove_folder(folder: Path, store_id: str, shown: str, home: Home | None) -> Home:
    """Check that this folder is the place of the store's files: both have the same random value. A store without a
    place (None) gets this one. Raises `StoreError` for a folder of another store, and for another place."""
    path = str(folder.resolve())
    bound = _bound_to(folder)
    if bound is not None and bound.id != store_id:
        raise StoreError(f"{folder} keeps the files of another store ({bound.shown}): name another folder")
    if home is not None:
        if bound is None or bound.marker != home.marker:
            raise StoreError(
                f"the files of {shown} are in {home.path} on {home.host}, and {path} on {socket.gethostname()} is "
                "another folder: all processes of a store share one, which is mounted at the same path on every "
                "machine. Name it with --state, or use a gateway (--gateway); if it was moved: `fledge store files`"
            )
        if path != home.path:
            raise StoreError(
                f"the files of {shown} must be mounted here at {home.path}, too, and not at {path}; if moved: "
                "`fledge store files`"
            )
        return home
    made = Home(marker=secrets.token_hex(16), host=socket.gethostname(), path=path)
    try:
        write_private(folder / SERVER, msgspec.json.encode(_Bound(store_id, shown, made.marker)).decode())
    except OSError as error:
        raise StoreError(f"{folder / SERVER}: cannot be written ({error.strerror})") from error
    return made


def _bound_to(folder: Path) -> _Bound | None:
    try:
        return msgspec.json.decode(read_plain(folder / SERVER), type=_Bound)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(
            f"{folder / SERVER} cannot be read ({error_words(error)}); restore it, or name another folder"
        ) from error
