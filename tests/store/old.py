"""Databases as fledge 0.1 made them, to be brought up to date."""

import sqlite3
from pathlib import Path

from fledge.store.migrate import APPLICATION

OLD = 15
"""The schema of fledge 0.1."""


def make_old(path: Path) -> sqlite3.Connection:
    """An empty database of fledge 0.1 in this file."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(Path(__file__).with_name("schema_15.sql").read_text("utf-8"))
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {OLD}")
    return db
