"""Whole children as users have them: configuration, profiles, agent, engine, store; only the model is canned.

One conversation spawns them by the spawner that the tool, the API and the gateway use; each child makes two model calls
and one tool call; its answer is read by the conversation in turns of its own. Settings are the defaults, except for how
many children there may be and how many work at once. How long single things take is measured here too: a spawn, and the
way of an answer from a child's last word into the transcript of a conversation that has nothing else to do.

Usage: `python -m bench.children CHILDREN WIDTH [lag]`; prints one line of JSON behind the word RESULT. The lag of the
event loop is measured in runs of its own: its ticks cost CPU, which the floor beside it does not pay.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.floor import WARMING
from bench.lives import MAIN, CountingStore, Lives, in_own_process
from bench.measure import Meter, percentile, record_lags
from fledge.config import Config, check, with_default_model
from fledge.core.run import Completed
from fledge.models.base import Call, Model, ModelEvent, ReplyEnded, Request, Text, ToolMessage, Usage
from fledge.models.names import Registry
from fledge.orchestrator import spawn
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn_params import Caller, SpawnParams
from fledge.orchestrator.spawner import Spawner
from fledge.runtime.agent import AgentLoop
from fledge.runtime.profiles import ConfiguredProfiles, rules_of
from fledge.store.base import Tx
from fledge.store.sqlite import SqliteStore
from fledge.store.threads import ThreadedStore
from fledge.tools.base import tool

MODEL = "bench/scripted"
PROBE = "agent:main:probe"
TASK = SpawnParams(task="add two and three", label="add")
CALL = Call("call_0", "add", '{"a":2,"b":3}')
ANSWER = "done:5"
TIMEOUT_S = 900
LAG = "lag"

OpenStore = Callable[[Path], ThreadedStore]
"""Opens the store of a folder."""


@tool(repeatable=True)
async def add(a: int, b: int) -> str:
    """The sum of two numbers."""
    return str(a + b)


Script = Callable[[Request], Call | str | Awaitable[Call | str]]


class CannedModel:
    """Answers as the floor's model does, and neither counts nor keeps what it was asked: what a model costs is on
    nobody's bill."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """The script's answer."""
        answer = self._script(request)
        if not isinstance(answer, str | Call):
            answer = await answer
        yield Text(answer) if isinstance(answer, str) else answer
        yield Usage(1, 1)
        yield ReplyEnded("end" if isinstance(answer, str) else "tools", request.model)

    async def close(self) -> None:
        """It holds no connections."""


def script(request: Request) -> Call | str:
    """A child asks for a sum and says it; a conversation takes note of what it reads."""
    if request.system.startswith("You are a capable"):
        return "noted"
    return ANSWER if isinstance(request.messages[-1], ToolMessage) else CALL


def settings(children: int, width: int) -> Config:
    """The defaults, with room for so many."""
    subagents = {"maxChildrenPerAgent": children, "maxConcurrent": width}
    return check({"agents": {"defaults": {"subagents": subagents}}}, "bench").config


class Household(msgspec.Struct, frozen=True):
    """What is open while something is measured."""

    store: CountingStore
    inner: ThreadedStore
    engine: Engine
    spawner: Spawner

    async def spawn(self) -> str:
        """One more child of the conversation; its key."""
        return (await self.spawner.spawn(TASK, Caller(session=MAIN))).run.key


@asynccontextmanager
async def household(
    folder: Path, children: int, width: int, model: Model, open_store: OpenStore = SqliteStore.open
) -> AsyncIterator[Household]:
    """An engine on a store in this folder, or on another one, with one conversation."""
    config = with_default_model(settings(children, width), MODEL)
    registry = Registry({})
    registry.add_model(MODEL, model)
    profiles = ConfiguredProfiles(config, workspace=folder, state=folder, registry=registry, tools=[add], env={})
    inner = open_store(folder)
    store = CountingStore(inner)
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            Engine(store, AgentLoop(profiles), rules=rules_of(config)) as engine,
        ):
            await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
            yield Household(store, inner, engine, profiles.spawner(engine))
    finally:
        await store.close()
        await profiles.close()


def live(children: int, width: int, open_store: OpenStore = SqliteStore.open, with_lag: bool = False) -> Lives:
    """Let so many children live and be read, at most `width` at once."""

    async def main(folder: Path) -> Lives:
        async with household(folder, children, width, CannedModel(script), open_store) as home:
            if not with_lag:
                return await measured(home, children, width)
            lags: list[tuple[float, float]] = []
            ticking = asyncio.create_task(record_lags(lags))
            found = await measured(home, children, width)
            ticking.cancel()
            return msgspec.structs.replace(found, lag_p99_ms=1000 * percentile([late for _, late in lags], 99))

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(Path(folder)))


def live_apart(children: int, width: int, with_lag: bool = False) -> Lives:
    """The same in a process of its own, as the floor is measured: no other part's heap is walked by its collector."""
    lag = [LAG] if with_lag else []
    return msgspec.convert(in_own_process("bench.children", str(children), str(width), *lag), Lives)


async def measured(home: Household, children: int, width: int) -> Lives:
    """What so many children of this household cost, until all were read."""
    ended: set[str] = set()
    changed = asyncio.Event()

    def on_move(key: str) -> None:
        changed.set()

    home.engine.on_change(ended.add)
    home.engine.on_move(on_move)
    asked, reads, writes = home.store.asked, home.store.reads, home.inner.commits
    with Meter() as m:
        await asyncio.gather(*(home.spawn() for _ in range(children)))
        while len(ended) < children or await home.inner.read(_at_work):
            await changed.wait()
            changed.clear()
    asked, reads, writes = home.store.asked - asked, home.store.reads - reads, home.inner.commits - writes
    await home.inner.read(lambda tx: _check_all_read(tx, children))
    return Lives(children, width, m.wall_s, m.cpu_s, asked, reads, writes, m.grown_mb)


def _at_work(tx: Tx) -> bool:
    """True while the conversation has something to read, or is answering."""
    return bool(tx.inbox.unread(MAIN, 1)) or tx.turns.get(MAIN) is not None or tx.queue.place(MAIN) is not None


def _check_all_read(tx: Tx, children: int) -> None:
    phases = [tx.runs.load(key).phase for key in tx.runs.children(MAIN)]
    read = sum(isinstance(phase, Completed) and phase.delivery.word == "delivered" for phase in phases)
    if read != children:
        raise RuntimeError(f"{read} of {children} answers were read: the figures mean nothing")


class Latencies(msgspec.Struct, frozen=True):
    """How long single things took, one after the other, nothing else being done; in ms."""

    spawns: list[float]
    """From asking to being accepted."""
    deliveries: list[float]
    """From a child's last word to its place in the conversation's transcript."""
    commits: list[float]
    """The smallest commit there is, by nobody but itself, in between."""


def latencies(times: int) -> Latencies:
    """Spawn a child, let it live and be read, wait until all is quiet; so many times."""

    async def main(folder: Path) -> Latencies:
        said_at: list[float] = []

        def timed(request: Request) -> Call | str:
            answer = script(request)
            if answer == ANSWER:
                said_at.append(time.perf_counter())
            return answer

        async with household(folder, 1, 8, CannedModel(timed)) as home:
            return await _one_by_one(home, times, said_at)

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(Path(folder)))


async def _one_by_one(home: Household, times: int, said_at: list[float]) -> Latencies:
    told: list[float] = []
    quiet = asyncio.Event()
    await home.engine.commit(lambda c: spawn.open_conversation(c, PROBE))
    home.engine.on_change(lambda key: told.append(time.perf_counter()))
    home.engine.on_move(lambda key: quiet.set())
    spawns, deliveries, commits = [], [], []
    for _ in range(times):
        told.clear()
        said_at.clear()
        began = time.perf_counter()
        await home.spawn()
        spawns.append(1000 * (time.perf_counter() - began))
        # Told twice: when the outcome was fixed, and when the answer was in the transcript.
        while len(told) < 2 or await home.inner.read(_at_work):
            quiet.clear()
            await quiet.wait()
        deliveries.append(1000 * (told[-1] - said_at[0]))
        began = time.perf_counter()
        await home.inner.transact(lambda tx: tx.sessions.raise_generation(PROBE))
        commits.append(1000 * (time.perf_counter() - began))
    return Latencies(spawns, deliveries, commits)


def main(arguments: list[str]) -> None:
    """Let a few children live, then so many; print what these took."""
    children, width = map(int, arguments[:2])
    live(WARMING, width)
    print("RESULT " + json.dumps(msgspec.to_builtins(live(children, width, with_lag=LAG in arguments))))


if __name__ == "__main__":
    main(sys.argv[1:])
