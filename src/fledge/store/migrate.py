"""Numbered migrations: one file per schema version, applied in order, in one transaction, after a backup copy.

A file that is newer than this program, or damaged, is refused and never written to.
"""

import re
import sqlite3
from importlib import resources
from pathlib import Path

from fledge.errors import StoreError


def migrations() -> list[tuple[int, str]]:
    """All known migrations as (version, SQL), in order."""
    found = []
    for item in resources.files("fledge.store").joinpath("migrations").iterdir():
        number = re.fullmatch(r"(\d{4})_\w+\.sql", item.name)
        if number:
            found.append((int(number[1]), item.read_text("utf-8")))
    return sorted(found)


def schema_version(db: sqlite3.Connection) -> int:
    """The version this file was last migrated to; 0 if it is empty."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def refuse_newer(db: sqlite3.Connection, path: Path, known: list[tuple[int, str]] | None = None) -> None:
    """Raise unless this program knows the file's schema; nothing is written either way."""
    version, newest = schema_version(db), (known or migrations())[-1][0]
    if version > newest:
        raise StoreError(
            f"{path} was written by a newer fledge (schema {version}, this one knows {newest}): "
            "install that version or newer. The file was not changed."
        )


def migrate(db: sqlite3.Connection, path: Path, known: list[tuple[int, str]] | None = None) -> int:
    """Bring the file up to date; answers its version. Refused if it is newer than this program knows."""
    steps = known or migrations()
    refuse_newer(db, path, steps)
    before, newest = schema_version(db), steps[-1][0]
    if before and before < newest:
        _back_up(db, path, before)
    for version, sql in steps:
        if version > before:
            try:
                db.executescript(f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA user_version = {version};\nCOMMIT;")
            except sqlite3.Error as error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise StoreError(f"{path}: migration {version} failed ({error}); the file was not changed") from error
    return newest


def _back_up(db: sqlite3.Connection, path: Path, version: int) -> Path:
    copy = path.with_name(f"{path.name}.schema-{version}.backup")
    target = sqlite3.connect(copy)
    try:
        db.backup(target)
    finally:
        target.close()
    return copy
