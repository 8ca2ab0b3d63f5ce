"""The floor: whole lives of children, written by hand with the guarantees of fledge and none of its features.

Six logical commits a child: the spawn (run, inbox row, event), the claim (drain, turn), a model step, a tool result,
the end (entry, outcome, frozen result, the requester's inbox row, event), and a 64th of the requester's drain. Group
commit, WAL, `synchronous=FULL`, every change guarded by its version.

Usage: `python -m bench.floor CHILDREN WIDTH`; prints one line of JSON behind the word RESULT. A few children live
before those that are measured, as in `bench.children`: what first calls cost is on nobody's bill.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from bench.bare import GroupCommit
from bench.measure import Meter

SCHEMA = """
CREATE TABLE run (id TEXT PRIMARY KEY, phase TEXT, version INTEGER, outcome TEXT, result TEXT);
CREATE TABLE event (seq INTEGER PRIMARY KEY, run TEXT, kind TEXT, body TEXT);
CREATE TABLE entry (session TEXT, seq INTEGER, body TEXT, PRIMARY KEY (session, seq)) WITHOUT ROWID;
CREATE TABLE inbox (key TEXT PRIMARY KEY, session TEXT, body TEXT, read INTEGER DEFAULT 0);
CREATE INDEX inbox_unread ON inbox (session) WHERE read = 0;
CREATE TABLE turn (session TEXT PRIMARY KEY, epoch INTEGER, state TEXT);
"""
MAIN = "main"
ROWS_A_DRAIN = 64
POLL_S = 0.001
WARMING = 20


def _move(db: sqlite3.Connection, run: str, version: int, phase: str, event: str) -> None:
    """One transition: the row by its version, and the event."""
    moved = db.execute(
        "UPDATE run SET phase = ?, version = version + 1 WHERE id = ? AND version = ?", (phase, run, version)
    )
    if moved.rowcount != 1:
        raise RuntimeError(f"{run} is not at version {version}")
    db.execute("INSERT INTO event (run, kind, body) VALUES (?,?,'{}')", (run, event))


class Spawn(NamedTuple):
    """A child is accepted, its task waits."""

    run: str
    task: str

    def write(self, db: sqlite3.Connection) -> None:
        """The run, the row, the event."""
        db.execute("INSERT INTO run (id, phase, version) VALUES (?,'queued',0)", (self.run,))
        db.execute("INSERT INTO inbox (key, session, body) VALUES (?,?,?)", (f"task:{self.run}", self.run, self.task))
        db.execute("INSERT INTO event (run, kind, body) VALUES (?,'spawned','{}')", (self.run,))


class Claim(NamedTuple):
    """It is claimed and has read its task."""

    run: str
    task: str

    def write(self, db: sqlite3.Connection) -> None:
        """The transition, the drained row, the entry, the turn."""
        _move(db, self.run, 0, "running", "claimed")
        db.execute("UPDATE inbox SET read = 1 WHERE session = ? AND read = 0", (self.run,))
        Step(self.run, 0, {"role": "user", "content": self.task}).write(db)
        db.execute("INSERT INTO turn VALUES (?,1,'open')", (self.run,))


class Step(NamedTuple):
    """Its transcript has one more entry."""

    run: str
    seq: int
    message: dict[str, Any]

    def write(self, db: sqlite3.Connection) -> None:
        """The entry."""
        db.execute("INSERT INTO entry VALUES (?,?,?)", (self.run, self.seq, json.dumps(self.message)))


class End(NamedTuple):
    """It is over, and its answer waits in the requester's inbox."""

    run: str
    seq: int
    text: str

    def write(self, db: sqlite3.Connection) -> None:
        """The last entry, the transition with outcome and result, the turn, the row."""
        Step(self.run, self.seq, {"role": "assistant", "content": self.text}).write(db)
        _move(db, self.run, 1, "announcing", "ended")
        db.execute("UPDATE run SET outcome = 'ok', result = ? WHERE id = ?", (self.text, self.run))
        db.execute("UPDATE turn SET state = 'closed' WHERE session = ?", (self.run,))
        db.execute("INSERT INTO inbox (key, session, body) VALUES (?,?,?)", (f"answer:{self.run}", MAIN, self.text))


class Drain(NamedTuple):
    """The requester reads what waits, at most a commit's worth; answers how much that was."""

    def write(self, db: sqlite3.Connection) -> int:
        """Each row to an entry, each run completed."""
        rows = db.execute(
            "SELECT key, body FROM inbox WHERE session = ? AND read = 0 LIMIT ?", (MAIN, ROWS_A_DRAIN)
        ).fetchall()
        (before,) = db.execute("SELECT count(*) FROM entry WHERE session = ?", (MAIN,)).fetchone()
        for at, (key, body) in enumerate(rows):
            db.execute("UPDATE inbox SET read = 1 WHERE key = ?", (key,))
            db.execute("INSERT INTO entry VALUES (?,?,?)", (MAIN, before + at, body))
            _move(db, key.partition(":")[2], 2, "completed", "consumed")
        return len(rows)


async def _model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    await asyncio.sleep(0)
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": "done:5"}
    call = {"id": "c", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


async def _live(store: GroupCommit, lane: asyncio.Semaphore, run: str, task: str) -> None:
    async with lane:
        await store.change(Claim(run, task))
        messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
        while (reply := await _model(messages)).get("tool_calls"):
            messages.append(reply)
            await store.change(Step(run, len(messages) - 1, reply))
            for call in reply["tool_calls"]:
                given = json.loads(call["function"]["arguments"])
                result = {"role": "tool", "tool_call_id": call["id"], "content": str(given["a"] + given["b"])}
                messages.append(result)
                await store.change(Step(run, len(messages) - 1, result))
        await store.change(End(run, len(messages), reply["content"]))


async def lives(path: Path, children: int, width: int) -> dict[str, float]:
    """What so many lives take, at most `width` at once."""
    store = GroupCommit(path, asyncio.get_running_loop(), SCHEMA)
    store.start()
    lane = asyncio.Semaphore(width)

    async def spawn(number: int) -> asyncio.Task[None]:
        run, task = uuid.uuid4().hex, f"task {number}"
        await store.change(Spawn(run, task))
        return asyncio.create_task(_live(store, lane, run, task))

    with Meter() as m:
        living = await asyncio.gather(*(spawn(number) for number in range(children)))
        read = 0
        while read < children:
            taken = await store.change(Drain())
            read += taken
            if not taken:
                await asyncio.sleep(POLL_S)
        await asyncio.gather(*living)
    await asyncio.to_thread(store.close)
    return {"wall_s": m.wall_s, "cpu_s": m.cpu_s, "grown_mb": m.grown_mb, "fsyncs": store.commits}


def live(children: int, width: int) -> dict[str, float]:
    """Let them live in a folder of their own, and look whether all were read."""
    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        path = Path(folder) / "floor.db"
        found = asyncio.run(lives(path, children, width))
        db = sqlite3.connect(path)
        (read,) = db.execute("SELECT count(*) FROM run WHERE phase = 'completed'").fetchone()
        db.close()
    if read != children:
        raise RuntimeError(f"{read} of {children} answers were read: the figures mean nothing")
    return found


def main(arguments: list[str]) -> None:
    """Let a few live, then so many; print what these took."""
    children, width = map(int, arguments)
    live(WARMING, width)
    print("RESULT " + json.dumps(live(children, width)))


if __name__ == "__main__":
    main(sys.argv[1:])
