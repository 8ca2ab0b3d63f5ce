"""What history costs: a page of runs, a list of sessions, a turn and `fledge ps` with many finished runs, beside few.

Both folders hold the same conversation with a few runs that were really lived. In one of them a finished run is then
copied many times, row by row in SQL, older than the others, as a conversation that has spawned for weeks has them. The
two take turns; CPU counts.
"""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import fledge
from bench.measure import Meter, children_cpu_s
from fledge.commands.listing import Wanted, WantedSessions, page_of_runs, page_of_sessions
from fledge.models.scripted import ScriptedModel, echo
from fledge.orchestrator.asked import SpawnParams
from fledge.store.base import Tx
from fledge.store.files import DATABASE

LIVED = 40
"""Runs that were really lived, in both folders."""
CALLS = 20
"""Pages, lists and turns in one measurement."""
TIMEOUT_S = 120
_TABLES = ("sessions", "entries", "turns", "attempts", "run_events", "inbox", "deliveries")
_OWN = {"inbox": "seq", "deliveries": "seq", "run_events": "seq"}
"""The column that numbers the rows of a table itself."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU in ms."""

    page: float
    sessions: float
    turn: float
    ps: float


def measured(runs: int, rounds: int) -> tuple[Cost, Cost]:
    """What each costs with so many finished runs more, and without them."""
    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        fledge.run_sync(_live, few, model=ScriptedModel(echo), config={})
        shutil.copytree(few, many)
        _copy_runs(many / DATABASE, runs)
        found: dict[Path, list[Cost]] = {many: [], few: []}
        for _ in range(rounds):
            for state, costs in found.items():
                costs.append(_cost(state))
    return _median(found[many]), _median(found[few])


def _median(rounds: list[Cost]) -> Cost:
    return Cost(*(median(getattr(one, name) for one in rounds) for name in ("page", "sessions", "turn", "ps")))


async def _live(fl: fledge.Fledge) -> None:
    main = fl.session("main")
    await main.send("Hello")
    caller = await fl.spawner.caller_for(main.key)
    for number in range(LIVED):
        await fl.spawner.spawn(SpawnParams(task=f"task {number}", label=f"run {number}"), caller)
    await main.settled()


def _copy_runs(path: Path, runs: int) -> None:
    """Copy one finished run so many times, each older than the one before."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        number, key = db.execute("SELECT id, key FROM runs WHERE phase = 'completed' ORDER BY id LIMIT 1").fetchone()
        (run_id,) = db.execute("SELECT run_id FROM attempts WHERE run = ?", (number,)).fetchone()
        (last,) = db.execute("SELECT max(id) FROM runs").fetchone()
        named = f"replace(replace({{}}, '{key}', '{key[:-12]}' || printf('%012x', n)), '{run_id}', 'copy-' || n)"
        given = {
            "runs.id": f"{last} + n",
            "run": f"{last} + n",
            "created_at": "created_at - n",
            "due_at": "due_at + 9e6",
        }
        whose = {"sessions": "key", "entries": "session", "turns": "session", "inbox": "source", "deliveries": "run"}
        db.execute("BEGIN")
        for table in ("runs", *_TABLES):
            columns = [row[1:3] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != _OWN.get(table)]
            values = [
                given.get(f"{table}.{name}")
                or (given.get(name) if kind != "TEXT" else None)
                or (named.format(name) if kind == "TEXT" else name)
                for name, kind in columns
            ]
            where = (
                f"{whose[table]} = '{key}'" if table in whose else f"{'id' if table == 'runs' else 'run'} = {number}"
            )
            db.execute(
                "WITH RECURSIVE copies(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copies WHERE n < ?)"
                f" INSERT INTO {table} ({', '.join(name for name, _ in columns)})"
                f" SELECT {', '.join(values)} FROM copies CROSS JOIN (SELECT * FROM {table} WHERE {where})",
                (runs,),
            )
        db.execute("UPDATE children SET spawned = spawned + ? WHERE session = 'agent:main:main'", (runs,))
        db.execute("COMMIT")


def _cost(state: Path) -> Cost:
    page, sessions, turn = fledge.run_sync(_asked, state, model=ScriptedModel(echo), config={})
    return Cost(page, sessions, turn, _ps_ms(state))


async def _asked(fl: fledge.Fledge) -> tuple[float, float, float]:
    def page(tx: Tx) -> None:
        assert len(page_of_runs(tx, Wanted(limit=LIVED), 0.0, True).rows) == LIVED

    def sessions(tx: Tx) -> None:
        assert len(page_of_sessions(tx, WantedSessions(limit=LIVED), 0.0).rows) == LIVED

    took = []
    for look in (page, sessions):
        with Meter() as m:
            for _ in range(CALLS):
                await fl.engine.store.read(look)
        took.append(1000 * m.cpu_s / CALLS)
    main = fl.session("main")
    await main.send("warm up")
    with Meter() as m:
        async with asyncio.timeout(TIMEOUT_S):
            for number in range(CALLS):
                assert (await main.send(f"turn {number}")).ok
    return took[0], took[1], 1000 * m.cpu_s / CALLS


def _ps_ms(state: Path) -> float:
    before = children_cpu_s()
    command = [sys.executable, "-m", "fledge.cli.main", "ps", "--state", str(state)]
    subprocess.run(command, env=dict(os.environ), capture_output=True, timeout=TIMEOUT_S, check=True)
    return 1000 * (children_cpu_s() - before)
