"""The schema, and the steps that upgrade older files: one file for each version, applied in order, in one transaction,
after a backup.

A new file is a copy of an empty in-memory database with the schema. A file that is newer than this program, older than
the oldest step, or damaged is refused and never written to.
"""

import os
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from pathlib import Path

from fledge.core.redact import error_words
from fledge.errors import StoreError

APPLICATION = 0x666C6467
"""Marks a SQLite file as ours ("fldg")."""
_HERE = Path(__file__).parent

Steps = tuple[tuple[int, str], ...]
"""Upgrades as (version, SQL), in order; each upgrades the version before it."""


@cache
def upgrades(database: str = "") -> Steps:
    """All steps, for SQLite or for another database."""
    return steps_of((_HERE / "upgrades").iterdir(), database)


def steps_of(files: Iterable[Path], database: str = "") -> Steps:
    """The steps in these files. A step that another database cannot run as it is has a second file for it
    (`0099_name.postgres.sql`)."""
    found: dict[int, str] = {}
    for file in sorted(files, key=lambda file: len(file.name)):
        step = re.fullmatch(r"(\d{4})_\w+(?:\.(\w+))?\.sql", file.name)
        if step and step[2] in (None, database):
            found[int(step[1])] = file.read_text("utf-8")
    return tuple(sorted(found.items()))


@cache
def schema() -> str:
    """The SQL of a new file."""
    return (_HERE / "schema.sql").read_text("utf-8")


def newest(steps: Steps | None = None) -> int:
    """The schema version of this program."""
    return (steps or upgrades())[-1][0]


def schema_version(db: sqlite3.Connection) -> int:
    """The schema version of this file; 0 if it is empty."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def refuse_foreign(db: sqlite3.Connection, path: Path, steps: Steps | None = None) -> None:
    """Raise unless the file is ours and of a version that this program knows. Nothing is written."""
    version, last, first = schema_version(db), newest(steps), (steps or upgrades())[0][0] - 1
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise StoreError(f"{path} is a database of another program. It was not changed: name another folder.")
    if version > last:
        raise StoreError(
            f"{path} was written by a newer fledge (schema {version}, this one knows {last}): "
            "install that version or newer. The file was not changed."
        )
    if version < first:
        raise StoreError(
            f"{path} was written by a fledge before 0.1 (schema {version}; 0.1 has {first}): open it once with "
            "fledge 0.1, which brings it up to date. The file was not changed."
        )


def migrate(db: sqlite3.Connection, path: Path, steps: Steps | None = None) -> int:
    """Upgrade the file, whole or not at all; returns its version. A file without tables is new. Raises `StoreError` if
    it is not ours, newer, or too old."""
    last = newest(steps)
    is_new = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not is_new:
        refuse_foreign(db, path, steps)
    before = schema_version(db)
    if before == last:
        return last
    if not is_new:
        _back_up(db, path, before)
    try:
        if is_new:
            _empty(schema(), last).backup(db)
        else:
            _apply(db, [step for version, step in steps or upgrades() if version > before], last)
    except sqlite3.Error as error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise StoreError(
            f"{path}: cannot be brought to schema {last} ({error_words(error)}); it was not changed"
        ) from error
    return last


def _apply(db: sqlite3.Connection, steps: list[str], version: int) -> None:
    marks = f"PRAGMA application_id = {APPLICATION};\nPRAGMA user_version = {version};"
    db.executescript("\n".join(("BEGIN IMMEDIATE;", *steps, marks, "COMMIT;")))


@cache
def _empty(sql: str, version: int) -> sqlite3.Connection:
    """An in-memory database without rows. SQLite serialises its use by threads."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _apply(db, [sql], version)
    return db


@cache
def columns_by_table() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The tables of the schema, each with its columns and those of its primary key, in order."""
    db = _empty(schema(), newest())
    found = {}
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall():
        columns = [(row[1], row[5]) for row in db.execute(f"PRAGMA table_info({table})")]
        keys = sorted((place, name) for name, place in columns if place)
        found[table] = tuple(name for name, _ in columns), tuple(name for _, name in keys)
    return found


def make_private(path: Path) -> None:
    """Make the file, if there is none, so that only its owner can read it: conversations are private."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreError(f"{path}: cannot be made ({error.strerror}); check the folder's permissions") from error


def _back_up(db: sqlite3.Connection, path: Path, version: int) -> None:
    copy = path.with_name(f"{path.name}.schema-{version}.backup")
    make_private(copy)
    with closing(sqlite3.connect(copy)) as target:
        db.backup(target)
