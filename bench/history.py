"""A folder with much history, made at once: a finished run is copied many times, row by row in SQL, and so is the last
entry of a conversation. Each copy is older than the one before, as a folder has them that was used for weeks.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

_WHOSE = {"sessions": "key", "entries": "session", "inbox": "source", "deliveries": "run"}
"""Tables with rows of a run by its session key; the others know it by its number."""
_TABLES = ("runs", "sessions", "entries", "attempts", "run_events", "inbox", "deliveries")
_NUMBERED = {"inbox": "seq", "deliveries": "seq", "run_events": "seq"}
"""The column that a table numbers its rows by itself."""
_COPIES = "WITH RECURSIVE copies(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copies WHERE n < ?)"


def copy_runs(path: Path, runs: int) -> None:
    """Copy a finished run of the database so many times; nothing may have it open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        number, key = db.execute("SELECT id, key FROM runs WHERE phase = 'completed' ORDER BY id LIMIT 1").fetchone()
        (run_id,) = db.execute("SELECT run_id FROM attempts WHERE run = ?", (number,)).fetchone()
        (requester,) = db.execute("SELECT parent FROM runs WHERE id = ?", (number,)).fetchone()
        (last,) = db.execute("SELECT max(id) FROM runs").fetchone()
        (spawned,) = db.execute("SELECT spawned FROM sessions WHERE key = ?", (requester,)).fetchone()
        named = f"replace(replace({{}}, '{key}', '{key[:-12]}' || printf('%012x', n)), '{run_id}', 'copy-' || n)"
        given = {
            "runs.id": f"{last} + n",
            "runs.number": f"{spawned} + n",
            "run": f"{last} + n",
            "created_at": "created_at - n",
            "due_at": "due_at + 9e6",
        }
        db.execute("BEGIN")
        for table in _TABLES:
            columns = [row[1:3] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != _NUMBERED.get(table)]
            values = [
                given.get(f"{table}.{name}") or (named.format(name) if kind == "TEXT" else given.get(name, name))
                for name, kind in columns
            ]
            where = (
                f"{_WHOSE[table]} = '{key}'" if table in _WHOSE else f"{'id' if table == 'runs' else 'run'} = {number}"
            )
            db.execute(
                f"{_COPIES} INSERT INTO {table} ({', '.join(name for name, _ in columns)})"
                f" SELECT {', '.join(values)} FROM copies CROSS JOIN (SELECT * FROM {table} WHERE {where})",
                (runs,),
            )
        db.execute("UPDATE sessions SET spawned = spawned + ? WHERE key = ?", (runs, requester))
        db.execute("UPDATE tallies SET listed = listed + ? WHERE session = ? OR session = ''", (runs, requester))
        db.execute("COMMIT")


def copy_entries(path: Path, session: str, entries: int) -> None:
    """Copy the last entry of a session's transcript so many times; nothing may have the database open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(entries)")]
        values = ["seq + n" if name == "seq" else name for name in columns]
        (last,) = db.execute("SELECT max(seq) FROM entries WHERE session = ?", (session,)).fetchone()
        db.execute(
            f"{_COPIES} INSERT INTO entries ({', '.join(columns)}) SELECT {', '.join(values)}"
            " FROM copies CROSS JOIN (SELECT * FROM entries WHERE session = ? AND seq = ?)",
            (entries, session, last),
        )
