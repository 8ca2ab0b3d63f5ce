"""Workers in processes of their own that are killed or stopped: others go on, and nothing is lost or done twice."""

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fledge.errors import StoreError
from fledge.orchestrator.engine import Changes
from fledge.store.base import Driver, Tx
from tests.cluster.processes import Process, busy, settled, wrong
from tests.cluster.several import LEASE_S, RULES, Worker, eventually, play, working
from tests.effort import SOAK, seeds
from tests.left_out import requires
from tests.statements import proves
from tests.store.postgres import Server, running

WIDTH = RULES.widths["subagent"]
MARGIN_S = 2.0
"""How much later than promised something may happen on a machine that is busy with other tests."""


@asynccontextmanager
async def scene(url: str, count: int, step_s: float) -> AsyncIterator[tuple[Worker, list[Process]]]:
    """A gateway in this process, and so many workers in their own."""
    processes: list[Process] = []
    async with working(url, drives=False) as gateway:
        try:
            processes += [Process(url, step_s) for _ in range(count)]
            await asyncio.gather(*(process.ready() for process in processes))
            yield gateway, processes
        finally:
            for process in processes:
                process.kill()


async def judged(gateway: Worker, keys: list[str]) -> None:
    """Wait until nothing is wrong with the rows; what is wrong, if that does not come."""
    with contextlib.suppress(TimeoutError):
        await eventually(gateway, lambda tx: wrong(tx, keys) == [], 10.0)
    assert await gateway.see(lambda tx: wrong(tx, keys)) == []


async def drivers_of(gateway: Worker, process: Process) -> list[Driver]:
    def look(tx: Tx) -> list[Driver]:
        (own,) = [member.id for member in tx.engines.all() if member.pid == process.pid]
        return [driver for driver in tx.drivers.all() if driver.owner == own]

    return await gateway.see(look)


@proves("7.engines.14", "What a killed worker drove goes on elsewhere after its lease, from what was committed")
def test_what_a_killed_worker_drove_goes_on_elsewhere(server: Server) -> None:
    async def test() -> None:
        async with scene(server.url(server.new_schema()), 2, 0.5) as (gateway, (one, other)):
            keys = await gateway.spawn(8)
            await eventually(gateway, lambda tx: busy(tx, gateway.engine.clock.now()) == 8)
            taken = await drivers_of(gateway, one)
            assert len(taken) == 4
            one.signal(signal.SIGKILL)
            begun = time.monotonic()

            def is_taken_over(tx: Tx) -> bool:
                now = {driver.session: driver.epoch for driver in tx.drivers.all()}
                return all(now.get(driver.session, driver.epoch + 1) > driver.epoch for driver in taken)

            await eventually(gateway, is_taken_over)
            assert time.monotonic() - begun < LEASE_S + MARGIN_S
            await eventually(gateway, lambda tx: settled(tx) == 8)
            await judged(gateway, keys)
            members = await gateway.see(lambda tx: [member.pid for member in tx.engines.all() if member.drives])
            assert members == [other.pid]

    play(test())


@proves("7.engines.15", "A worker that was stopped beyond its lease writes nothing of what others have taken over")
def test_a_worker_that_was_stopped_beyond_its_lease_writes_nothing_more_of_it(server: Server) -> None:
    async def test() -> None:
        async with scene(server.url(server.new_schema()), 2, 0.4) as (gateway, (one, _)):
            keys = await gateway.spawn(8)
            await eventually(gateway, lambda tx: busy(tx, gateway.engine.clock.now()) == 8)
            one.signal(signal.SIGSTOP)
            await eventually(gateway, lambda tx: [m.pid for m in tx.engines.all() if m.pid == one.pid] == [])
            one.signal(signal.SIGCONT)
            await eventually(gateway, lambda tx: settled(tx) == 8)
            await judged(gateway, keys)
            more = await gateway.spawn(8)
            await eventually(gateway, lambda tx: settled(tx) == 16)
            await judged(gateway, keys + more)
            await eventually(gateway, lambda tx: len([m for m in tx.engines.all() if m.drives]) == 2)

    play(test())


@proves("7.engines.16", "Whoever follows the events on two gateways sees all of them on both, in the same order")
def test_two_watchers_see_the_same_events(server: Server) -> None:
    async def follow(worker: Worker, ended: asyncio.Event) -> list[int]:
        moved, seen = asyncio.Event(), list[int]()
        Changes(worker.engine).watch(moved)
        while True:
            moved.clear()
            is_last = ended.is_set()
            found = await worker.see(lambda tx: tx.events.after(seen[-1] if seen else 0, 10_000))  # noqa: B023
            seen += [one.seq for one in found]
            if is_last and not found:
                return seen
            try:
                async with asyncio.timeout(None if not ended.is_set() else 0):
                    await moved.wait()
            except TimeoutError:
                pass

    async def test() -> None:
        url = server.url(server.new_schema())
        async with scene(url, 2, 0.01) as (gateway, _), working(url, drives=False) as other:
            ended = asyncio.Event()
            following = [asyncio.ensure_future(follow(worker, ended)) for worker in (gateway, other)]
            await asyncio.gather(gateway.spawn(20), other.spawn(20))
            await eventually(gateway, lambda tx: settled(tx) == 40)
            await eventually(gateway, lambda tx: tx.drivers.all() == [])
            ended.set()
            for worker in (gateway, other):
                worker.engine._report([], [""])
            first, second = await asyncio.gather(*following)
            everything = await gateway.see(lambda tx: tx.unit.column("SELECT seq FROM run_events ORDER BY seq"))
            assert first == second == everything

    play(test())


@pytest.mark.parametrize("seed", seeds(1, 5))
@proves("7.engines.17", "Whatever is killed, stopped or restarted: nothing is lost, doubled or done again")
def test_whatever_fails_nothing_is_lost_or_done_twice(seed: int) -> None:
    requires("postgresql")
    children, dice = 200 if not SOAK else 600, random.Random(seed)

    async def test(server: Server) -> None:
        url = server.url("chaos")
        async with scene(url, 3, 0.05) as (gateway, processes):
            spawning = asyncio.ensure_future(_spawn(gateway, children))
            failing = asyncio.ensure_future(_fail(server, processes, url, dice))
            most = done = 0
            async with asyncio.timeout(50 if not SOAK else 300):
                while done < children or not failing.done():
                    try:
                        most = max(most, await gateway.see(lambda tx: busy(tx, gateway.engine.clock.now())))
                        done = await gateway.see(settled)
                    except StoreError:
                        continue  # the server is being restarted
                await failing
                await judged(gateway, spawning.result())
            assert [process.complaint for process in processes if process.complaint] == []
            assert WIDTH // 2 < most <= WIDTH

    with running() as server:
        play(test(server))


async def _spawn(gateway: Worker, children: int) -> list[str]:
    keys: list[str] = []
    while len(keys) < children:
        keys += await gateway.spawn(min(10, children - len(keys)))
    return keys


async def _fail(server: Server, processes: list[Process], url: str, dice: random.Random) -> None:
    """Kill workers and start others, stop and continue one for longer than its lease, cut all connections, restart the
    server."""
    for what in dice.sample(["kill", "kill", "stop", "cut", "cut", "restart"], 6):
        await asyncio.sleep(dice.uniform(0.3, 0.8))
        one = dice.choice(processes)
        if what == "kill":
            one.kill()
            processes.remove(one)
            processes.append(await Process(url, 0.05).ready())
        elif what == "stop":
            one.signal(signal.SIGSTOP)
            await asyncio.sleep(LEASE_S + dice.uniform(0.5, 1.5))
            one.signal(signal.SIGCONT)
        elif what == "cut":
            server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'fledge %'")
        else:
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
