"""Numbered migrations: one file per schema version, applied in order, in one transaction, after a backup copy.

A new file is a copy of an empty database in memory that went through all of them. A file that is newer than this
program, or damaged, is refused and never written to.
"""

import os
import re
import sqlite3
from functools import cache
from importlib import resources
from pathlib import Path

from fledge.errors import StoreError

APPLICATION = 0x666C6467
"""Marks a SQLite file as ours ("fldg")."""


Steps = tuple[tuple[int, str], ...]
"""Migrations as (version, SQL), in order."""


@cache
def migrations() -> Steps:
    """All known migrations."""
    found = []
    for item in resources.files("fledge.store").joinpath("migrations").iterdir():
        number = re.fullmatch(r"(\d{4})_\w+\.sql", item.name)
        if number:
            found.append((int(number[1]), item.read_text("utf-8")))
    return tuple(sorted(found))


def schema_version(db: sqlite3.Connection) -> int:
    """The version this file was last migrated to; 0 if it is empty."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def refuse_foreign(db: sqlite3.Connection, path: Path, known: Steps | None = None) -> None:
    """Raise unless the file is ours, and not newer than this program; nothing is written either way."""
    version, newest = schema_version(db), (known or migrations())[-1][0]
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise StoreError(f"{path} is a database of another program. It was not changed: name another folder.")
    if version > newest:
        raise StoreError(
            f"{path} was written by a newer fledge (schema {version}, this one knows {newest}): "
            "install that version or newer. The file was not changed."
        )


def migrate(db: sqlite3.Connection, path: Path, known: Steps | None = None) -> int:
    """Bring the file up to date, all or nothing; answers its version. Refused if it is not ours, or newer; one without
    any table is new."""
    steps = known or migrations()
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        refuse_foreign(db, path, steps)
    before, newest = schema_version(db), steps[-1][0]
    if before == newest:
        return newest
    if before:
        _back_up(db, path, before)
    try:
        if before:
            _apply(db, steps, before)
        else:
            _empty(steps).backup(db)
    except sqlite3.Error as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise StoreError(f"{path}: cannot be brought to schema {newest} ({error}); it was not changed") from error
    return newest


def _apply(db: sqlite3.Connection, steps: Steps, before: int) -> None:
    sql = "\n".join(step for version, step in steps if version > before)
    marks = f"PRAGMA application_id = {APPLICATION};\nPRAGMA user_version = {steps[-1][0]};"
    db.executescript(f"BEGIN IMMEDIATE;\n{sql}\n{marks}\nCOMMIT;")


@cache
def _empty(steps: Steps) -> sqlite3.Connection:
    """A database without rows that went through these steps. SQLite lets threads take turns with it."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _apply(db, steps, 0)
    return db


def is_behind(db: sqlite3.Connection) -> bool:
    """True if this program would migrate the file."""
    return schema_version(db) < migrations()[-1][0]


def make_private(path: Path) -> None:
    """Make the file, if there is none, so that only its owner can read it: conversations are private."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"{path}: cannot be made ({error.strerror}); check the folder's permissions") from error


def _back_up(db: sqlite3.Connection, path: Path, version: int) -> Path:
    copy = path.with_name(f"{path.name}.schema-{version}.backup")
    make_private(copy)
    target = sqlite3.connect(copy)
    try:
        db.backup(target)
    finally:
        target.close()
    return copy
