"""What history costs: a page of runs, a list of sessions, the agents' week, a turn and `fledge ps` with many finished
runs, beside few.

Both folders hold the same conversation with a few runs that were really lived. In one of them a finished run is then
copied many times, row by row in SQL, older than the others, as a conversation that has spawned for weeks has them. The
two take turns; CPU counts.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import fledge
from bench.history import copy_runs
from bench.measure import Meter, children_cpu_s
from fledge.commands.listing import RunsQuery, SessionsQuery, runs_query, sessions_query
from fledge.commands.table import Moment
from fledge.models.scripted import ScriptedModel, echo
from fledge.orchestrator.spawn_params import SpawnParams
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore

LIVED = 40
"""Runs that were really lived, in both folders."""
ROOM = {"agents": {"defaults": {"subagents": {"maxChildrenPerAgent": LIVED}}}}
CALLS = 20
"""Pages, lists and turns in one measurement."""
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU in ms."""

    opening: float
    """By the wall: opening and closing the store of the folder."""
    page: float
    sessions: float
    week: float
    turn: float
    ps: float


NAMES = ("opening", "page", "sessions", "week", "turn", "ps")


def measured(runs: int, rounds: int) -> tuple[Cost, Cost]:
    """What each costs with so many finished runs more, and without them."""
    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        fledge.run_sync(_live, few, model=ScriptedModel(echo), config=ROOM)
        shutil.copytree(few, many)
        copy_runs(many / DATABASE, runs)
        found: dict[Path, list[Cost]] = {many: [], few: []}
        for _ in range(rounds):
            for state, costs in found.items():
                costs.append(_cost(state))
    return _median(found[many]), _median(found[few])


def _median(rounds: list[Cost]) -> Cost:
    return Cost(*(median(getattr(one, name) for one in rounds) for name in NAMES))


async def _live(fl: fledge.Fledge) -> None:
    main = fl.session("main")
    await main.send("Hello")
    caller = await fl.spawner.caller_for(main.key)
    for number in range(LIVED):
        await fl.spawner.spawn(SpawnParams(task=f"task {number}", label=f"run {number}"), caller)
    await main.settled()


def _cost(state: Path) -> Cost:
    opening_ms = asyncio.run(_opening_ms(state))
    return Cost(opening_ms, *fledge.run_sync(_asked, state, model=ScriptedModel(echo), config={}), _ps_ms(state))


async def _opening_ms(state: Path) -> float:
    begun = time.perf_counter()
    await SqliteStore.open(state).close()
    return 1000 * (time.perf_counter() - begun)


async def _asked(fl: fledge.Fledge) -> tuple[float, float, float, float]:
    def page(tx: Tx) -> None:
        assert len(runs_query(Moment(tx, 0.0, True), RunsQuery(limit=LIVED)).rows) == LIVED

    def sessions(tx: Tx) -> None:
        assert len(sessions_query(Moment(tx, 0.0, True), SessionsQuery(limit=LIVED)).rows) == LIVED

    def week(tx: Tx) -> None:
        assert sum(one.runs for one in tx.lists.agent_days(0)) >= LIVED

    took = []
    for look in (page, sessions, week):
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
    return took[0], took[1], took[2], 1000 * m.cpu_s / CALLS


def _ps_ms(state: Path) -> float:
    before = children_cpu_s()
    command = [sys.executable, "-m", "fledge.cli.main", "ps", "--state", str(state)]
    subprocess.run(command, env=dict(os.environ), capture_output=True, timeout=TIMEOUT_S, check=True)
    return 1000 * (children_cpu_s() - before)
