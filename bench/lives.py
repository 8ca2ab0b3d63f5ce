"""Whole small lives through the engine: spawn → claim → finish → consumed by an idle conversation.

Children of one conversation, played by a `ScriptedPerformer` that takes no time to think, on a real store. With two
steps in between (a model's call and a tool's result) a life has the shape of the floor's, a hand-written loop with the
same guarantees that is run beside it.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import msgspec

from bench.measure import Meter
from fledge.core import policy
from fledge.core.inbox import QueueSettings
from fledge.core.run import Completed, Terms
from fledge.orchestrator import spawn
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.engine import Engine
from fledge.store.base import Spec, Store, Tx
from fledge.store.sqlite import SqliteStore
from fledge.testing import ScriptedPerformer, Stage

T = TypeVar("T")

MAIN = "agent:main:main"
ROOT = Path(__file__).resolve().parents[1]
FLOOR_STEPS = 2
FLOOR_COMMITS = 5 + 1 / 64
"""Spawn, claim, model step, tool result, end, and a share of the requester's drain."""
TIMEOUT_S = 900


class CountingStore:
    """A store that counts the logical commits and the reads it is asked for."""

    def __init__(self, store: Store) -> None:
        self._store, self.cluster = store, store.cluster
        self.asked = self.reads = 0

    def transact(self, job: Callable[[Tx], T]) -> Coroutine[Any, Any, T]:
        """One more logical commit."""
        self.asked += 1
        return self._store.transact(job)

    def read(self, job: Callable[[Tx], T]) -> Coroutine[Any, Any, T]:
        """One more read."""
        self.reads += 1
        return self._store.read(job)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


class Lives(msgspec.Struct, frozen=True):
    """What `children` lives cost together."""

    children: int
    width: int
    wall_s: float
    cpu_s: float
    commits: float
    """Logical ones."""
    reads: int = 0
    writes: int = 0
    """To disk; many commits share one."""
    grown_mb: float = 0.0
    lag_p99_ms: float = 0.0
    """Of the event loop meanwhile; 0 where it was not watched."""

    @property
    def cpu_ms_a_child(self) -> float:
        """CPU of one whole life."""
        return 1000 * self.cpu_s / self.children

    @property
    def cpu_us_a_commit(self) -> float:
        """CPU of one logical commit, everything around it included."""
        return 1e6 * self.cpu_s / self.commits

    def __str__(self) -> str:
        """CPU of a commit and of a child, and how many commits that was."""
        a_child = f"{self.cpu_ms_a_child:.2f} ms/child, {self.commits / self.children:.2f} commits"
        return f"{self.cpu_us_a_commit:.0f} µs/commit, {a_child}"


def median_lives(lives: list[Lives]) -> Lives:
    """The round with the median CPU, whole."""
    middle = median([x.cpu_s for x in lives])
    return min(lives, key=lambda x: abs(x.cpu_s - middle))


def live(children: int, width: int, steps: int = 0) -> Lives:
    """Let so many children live and be read, at most `width` at once, each committing `steps` steps before its end."""

    async def script(stage: Stage) -> None:
        if stage.session != MAIN:
            for number in range(steps):
                await stage.step(f"step {number}")
        await stage.say("done:5")

    async def main(folder: str) -> Lives:
        sqlite = SqliteStore.open(folder)
        store = CountingStore(sqlite)
        async with asyncio.timeout(TIMEOUT_S):
            found = await _measured(store, sqlite, ScriptedPerformer(script), children, width)
        await store.close()
        return found

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(folder))


async def _measured(
    store: CountingStore, sqlite: SqliteStore, performer: ScriptedPerformer, children: int, width: int
) -> Lives:
    # Without debounce a busy conversation reads again at once: waiting costs no CPU, it would only lengthen the run.
    rules = Rules(queue=QueueSettings(debounce_s=0.0), widths={"main": 4, "subagent": width})
    request = spawn.SpawnRequest(
        spec=Spec(task="add two and three", label="add"),
        terms=Terms(parent=MAIN),
        limits=policy.Limits(max_children=children),
    )
    ended: set[str] = set()
    changed = asyncio.Event()

    def on_change(key: str) -> None:
        ended.add(key)
        changed.set()

    async with Engine(store, performer, rules=rules) as engine:
        engine.on_change(on_change)
        await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
        asked, reads, writes = store.asked, store.reads, sqlite.commits
        with Meter() as m:
            await asyncio.gather(*(engine.commit(lambda c: spawn.spawn(c, request)) for _ in range(children)))
            while len(ended) < children or await store.read(lambda tx: bool(tx.inbox.unread(MAIN, 1))):
                await changed.wait()
                changed.clear()
        asked, reads, writes = store.asked - asked, store.reads - reads, sqlite.commits - writes
        await store.read(lambda tx: _check_all_read(tx, children))
    return Lives(children, width, m.wall_s, m.cpu_s, asked, reads, writes, m.grown_mb)


def _check_all_read(tx: Tx, children: int) -> None:
    phases = [tx.runs.load(key).phase for key in tx.runs.children(MAIN)]
    read = sum(isinstance(phase, Completed) and phase.delivery.word == "delivered" for phase in phases)
    if read != children:
        raise RuntimeError(f"{read} of {children} results were read: the figures mean nothing")


def in_own_process(module: str, *arguments: str) -> Any:
    """What a program of the benchmark prints behind the word RESULT."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])


def floor(children: int, width: int) -> Lives:
    """What the hand-written floor (`bench.floor`) takes for as many children at this width."""
    found = in_own_process("bench.floor", str(children), str(width))
    return Lives(
        children,
        width,
        found["wall_s"],
        found["cpu_s"],
        FLOOR_COMMITS * children,
        writes=found["fsyncs"],
        grown_mb=found["grown_mb"],
    )
