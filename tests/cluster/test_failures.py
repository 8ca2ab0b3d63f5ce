"""Workers in processes of their own that are killed or stopped: others go on, and nothing is lost or done twice."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fledge.core import events as ev
from fledge.core.cluster import Member
from fledge.store.base import Driver, Tx
from tests.cluster.processes import Process, busy, settled, wrong
from tests.cluster.several import LEASE_S, RULES, Worker, eventually, play, working
from tests.left_out import requires
from tests.statements import proves
from tests.store.postgres import Server, running

WIDTH = RULES.widths["subagent"]
HOUR_S = 3600.0
MARGIN_S = 2.0
"""How much later than promised something may happen on a machine that is busy with other tests."""


@asynccontextmanager
async def scene(
    url: str, count: int, step_s: float, lease_s: float = LEASE_S
) -> AsyncIterator[tuple[Worker, list[Process]]]:
    """A gateway in this process, and so many workers in their own."""
    processes: list[Process] = []
    async with working(url, drives=False) as gateway:
        try:
            processes += [Process(url, step_s, lease_s) for _ in range(count)]
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


async def from_elsewhere(server: Server, schema: str, process: Process, column: str = "machine") -> None:
    """Let a worker be of another machine, as far as its row says."""
    await asyncio.to_thread(server.sql, f"UPDATE {schema}.engines SET {column} = 'another' WHERE pid = {process.pid}")


async def member_of(gateway: Worker, process: Process) -> Member:
    (own,) = await gateway.see(lambda tx: [member for member in tx.engines.all() if member.pid == process.pid])
    return own


def lost_at(tx: Tx) -> list[float]:
    """When drivers were taken over."""
    keys = tx.unit.column("SELECT key FROM runs")
    return [event.at for key in keys for event in tx.events.of(key) if isinstance(event, ev.LeaseLost)]


@proves("7.engines.20", "What a worker drove that was killed goes on at once, where its machine can prove its death")
def test_a_lone_worker_that_was_killed_and_starts_again_goes_on_at_once(server: Server) -> None:
    async def test() -> None:
        url = server.url(server.new_schema())
        async with scene(url, 1, 0.2, HOUR_S) as (gateway, processes):
            keys = await gateway.spawn(4)
            await eventually(gateway, lambda tx: busy(tx, gateway.engine.clock.now()) == 4)
            processes[0].signal(signal.SIGKILL)
            processes.append(await Process(url, 0.2, HOUR_S).ready())
            await eventually(gateway, lambda tx: settled(tx) == 4)
            await judged(gateway, keys)
            assert len(await gateway.see(lost_at)) == 4
            drive = await gateway.see(lambda tx: [one.pid for one in tx.engines.all() if one.drives])
            assert drive == [processes[1].pid]

    play(test())


@proves("7.engines.20")
def test_a_worker_notices_that_another_one_of_its_machine_was_killed(server: Server) -> None:
    async def test() -> None:
        async with scene(server.url(server.new_schema()), 2, 0.2, HOUR_S) as (gateway, (one, _)):
            keys = await gateway.spawn(8)
            await eventually(gateway, lambda tx: busy(tx, gateway.engine.clock.now()) == 8)
            assert len(await drivers_of(gateway, one)) == 4
            one.signal(signal.SIGKILL)
            await eventually(gateway, lambda tx: settled(tx) == 8)
            await judged(gateway, keys)

    play(test())


@proves("7.engines.21", "Nothing is taken over from another machine or container before its lease is over")
@pytest.mark.parametrize("column", ["machine", "host"])
def test_nothing_is_taken_from_an_engine_elsewhere_before_its_lease_is_over(server: Server, column: str) -> None:
    async def test() -> None:
        schema = server.new_schema()
        async with scene(server.url(schema), 1, 0.2) as (gateway, processes):
            await gateway.spawn(4)
            await eventually(gateway, lambda tx: busy(tx, gateway.engine.clock.now()) == 4)
            await from_elsewhere(server, schema, processes[0], column)
            processes[0].kill()
            until_at = (await member_of(gateway, processes[0])).until_at
            processes.append(await Process(server.url(schema), 0.2).ready())
            await eventually(gateway, lambda tx: settled(tx) == 4)
            assert min(await gateway.see(lost_at)) >= until_at

    play(test())


@proves("7.engines.14", "What a killed worker drove goes on elsewhere after its lease, from what was committed")
def test_what_a_killed_worker_drove_goes_on_elsewhere(server: Server) -> None:
    async def test() -> None:
        schema = server.new_schema()
        async with scene(server.url(schema), 2, 0.5) as (gateway, (one, other)):
            await from_elsewhere(server, schema, one)
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


@proves(
    "7.engines.22", "After an outage of the server, no engine takes over from others that could not be seen meanwhile"
)
def test_nothing_is_taken_over_because_the_server_was_away() -> None:
    requires("postgresql")

    async def test(server: Server) -> None:
        url = server.url("outage")
        async with scene(url, 2, 1.5) as (gateway, processes):
            keys = await gateway.spawn(8)
            await eventually(gateway, lambda tx: busy(tx, gateway.engine.clock.now()) == 8)
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(LEASE_S + 0.5)
            await asyncio.to_thread(server.start)
            processes.append(await Process(url, 1.5).ready())  # one that has not seen the outage
            await judged(gateway, keys)
            assert await gateway.see(lost_at) == []

    with running() as server:
        play(test(server))
