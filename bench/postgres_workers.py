"""Several workers on one PostgreSQL server: what they cost, how fast they are, how soon one takes over for another.

Each worker is a process (`bench.postgres_worker`); this process spawns children and watches, with an engine that drives
nothing. Schema and folder are dropped afterwards.
"""

import asyncio
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

import fledge
from bench import children
from bench.lives import MAIN, ROOT
from bench.measure import Meter
from bench.postgres_worker import WAIT
from fledge.orchestrator import control, spawn
from fledge.orchestrator.spawn_params import Caller, SpawnParams
from fledge.store.base import Tx

LOOK_S = 0.02
TIMEOUT_S = 300
IDLE_S = 10.0


class Family(msgspec.Struct, frozen=True):
    """What the children of one conversation took."""

    children: int
    workers: int
    wall_s: float
    cpu_s: float
    """Of the workers and of the process that spawned."""
    commits: int = 0
    """Of the workers."""
    trips: Counter[str] = msgspec.field(default_factory=Counter)
    """What the workers' writers waited for, where it was counted."""

    @property
    def cpu_ms_a_child(self) -> float:
        """CPU of one whole life, of all client processes."""
        return 1000 * self.cpu_s / self.children

    def __str__(self) -> str:
        """Seconds, children a second, CPU of a child."""
        rate = self.children / self.wall_s
        return f"{self.wall_s:.2f} s, {rate:.0f} children/s, {self.cpu_ms_a_child:.2f} ms/child"


class Worker:
    """A worker process, and what it has said."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.said: list[tuple[str, float]] = []
        self._heard = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            word, value = line.split()
            self.said.append((word.decode(), float(value)))
            self._heard.set()

    async def until(self, word: str, number: int) -> None:
        """Wait until it has said this so often."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.times(word)) < number:
                self._heard.clear()
                await self._heard.wait()

    def times(self, word: str) -> list[float]:
        """When it said this."""
        return [value for said, value in self.said if said == word]

    async def end(self, number: signal.Signals = signal.SIGTERM) -> float:
        """End it; the CPU it took since it was ready, if it could say so."""
        self.process.send_signal(number)
        await self.process.wait()
        await self._reading
        return sum(self.times("cpu"))


class Cluster:
    """A store with workers, and this process beside them."""

    def __init__(self, url: str, folder: Path, number: int, width: int, delay_ms: float, counts: bool) -> None:
        self._words = [url, str(folder), str(number), str(width), str(delay_ms), *(["counts"] if counts else [])]
        options: dict[str, Any] = {"config": children.settings(number, width), "workspace": folder, "env": {}}
        self._opened = fledge.open(
            folder,
            store=url,
            model=children.CannedModel(children.script),
            tools=[children.add],
            drives=False,
            **options,
        )
        self.workers: list[Worker] = []

    async def start(self) -> Worker:
        """One more worker, once it is ready."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.postgres_worker", *self._words, stdout=PIPE, cwd=ROOT
        )
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            raise RuntimeError("a worker did not start")
        self.workers.append(Worker(process))
        return self.workers[-1]

    async def __aenter__(self) -> "Cluster":
        await self._opened.__aenter__()
        await self._opened.engine.commit(lambda c: spawn.open_conversation(c, MAIN))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._opened.__aexit__(*error)
        for worker in self.workers:
            if worker.process.returncode is None:
                worker.process.kill()
                await worker.process.wait()

    async def spawn(self, task: str, number: int) -> list[str]:
        """So many children of the conversation; their keys."""
        params = SpawnParams(task=task, label="add")
        asked = (self._opened.spawner.spawn(params, Caller(session=MAIN)) for _ in range(number))
        return [accepted.run.key for accepted in await asyncio.gather(*asked)]

    async def kill(self, key: str) -> None:
        """End a child."""
        await self._opened.engine.commit(lambda c: control.kill(c, key))

    async def move(self, worker: Worker) -> None:
        """Let the row of a worker say that it is on another machine."""
        sql = "UPDATE engines SET machine = 'another' WHERE pid = ?"
        await self._opened.engine.store.transact(lambda tx: tx.unit.execute(sql, worker.process.pid).rowcount)

    async def until(self, look: Callable[[Tx], bool]) -> None:
        """Wait until the rows say so."""
        async with asyncio.timeout(TIMEOUT_S):
            while not await self._opened.engine.store.read(look):  # noqa: ASYNC110 (other processes write the rows)
                await asyncio.sleep(LOOK_S)


def _are_read(number: int) -> Callable[[Tx], bool]:
    def look(tx: Tx) -> bool:
        (read,) = tx.unit.one("SELECT count(*) FROM runs WHERE parent = ? AND delivery = 'delivered'", MAIN)
        return bool(read == number and tx.turns.get(MAIN) is None)

    return look


@asynccontextmanager
async def cluster(
    url: str, workers: int, number: int, width: int, delay_ms: float = 0.0, counts: bool = False
) -> AsyncIterator[Cluster]:
    """A store of its own with so many workers. The first one makes it."""
    import psycopg

    schema = f"bench_{time.time_ns()}"
    place = f"{url}?schema={schema}"
    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        try:
            found = Cluster(place, Path(folder), number, width, delay_ms, counts)
            for _ in range(workers):
                await found.start()
            async with found:
                yield found
        finally:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def family(url: str, workers: int, number: int, width: int, delay_ms: float = 0.0, counts: bool = False) -> Family:
    """Let so many children live and be read."""

    async def main() -> Family:
        async with cluster(url, workers, number, width, delay_ms, counts) as found:
            with Meter() as m:
                await found.spawn(children.TASK.task, number)
                await found.until(_are_read(number))
            used = [await worker.end() for worker in found.workers]
            said = [words for worker in found.workers for words in worker.said]
            trips: Counter[str] = Counter()
            for word, value in said:
                if word.startswith("trips:"):
                    trips[word.removeprefix("trips:")] += int(value)
            commits = sum(int(value) for word, value in said if word == "commits")
            return Family(number, workers, m.wall_s, m.cpu_s + sum(used), commits, trips)

    return asyncio.run(main())


def ending_at_once(url: str, workers: int, number: int) -> float:
    """How long it takes until so many children of one parent, which all end at the same moment, were read; s."""

    async def main() -> float:
        async with cluster(url, workers, number, number) as home:
            await home.spawn(WAIT, number)
            await home.until(lambda tx: sum(len(one.times("asked")) for one in home.workers) == number)
            with Meter() as m:
                for worker in home.workers:
                    worker.process.send_signal(signal.SIGUSR1)
                await home.until(_are_read(number))
            return m.wall_s

    return asyncio.run(main())


def takeovers(url: str, number: int, elsewhere: bool = False) -> list[float]:
    """How long after `kill -9` of their worker the model was asked again for each of so many children; s. `elsewhere`:
    as if that worker had been on another machine, so that only its lease says that it is dead."""

    async def main() -> list[float]:
        async with cluster(url, 1, number, number) as home:
            (first,) = home.workers
            await home.spawn(WAIT, number)
            await first.until("asked", number)
            second = await home.start()
            if elsewhere:
                await home.move(first)
            killed_at = time.monotonic()
            await first.end(signal.SIGKILL)
            await second.until("asked", number)
            return [at - killed_at for at in second.times("asked")]

    return asyncio.run(main())


def kills(url: str, number: int) -> list[float]:
    """How long after a kill was asked for here the driver in another process was stopped, one by one; ms."""

    async def main() -> list[float]:
        found: list[float] = []
        async with cluster(url, 1, number, number) as home:
            (worker,) = home.workers
            keys = await home.spawn(WAIT, number)
            await worker.until("asked", number)
            for count, key in enumerate(keys, 1):
                began = time.monotonic()
                await home.kill(key)
                await worker.until("stopped", count)
                found.append(1000 * (worker.times("stopped")[-1] - began))
        return found

    return asyncio.run(main())


def idle_percent(url: str) -> float:
    """The share of one core that a worker takes which has nothing to do."""

    async def main() -> float:
        async with cluster(url, 1, 1, 8) as home:
            await asyncio.sleep(IDLE_S)
            return 100 * await home.workers[0].end() / IDLE_S

    return asyncio.run(main())
