"""Several engines on one store: none touches what another one does, and all of them together do everything once."""

import asyncio
import statistics
import time

import pytest

from fledge.core import events as ev
from fledge.core.run import Spawning
from fledge.errors import Refused
from fledge.orchestrator import control, effects, spawn
from fledge.orchestrator.changes import Changes
from fledge.orchestrator.commit import Rules
from fledge.store.base import Tx
from tests.cluster.several import CHILD, RULES, Worker, eventually, play, until, workers, working
from tests.statements import proves
from tests.store.postgres import Server


def delivered(tx: Tx) -> int:
    return int(tx.unit.one("SELECT count(*) FROM runs WHERE delivery = 'delivered'")[0])


@proves("7.engines.1", "An engine that starts takes nothing over from one that is alive")
def test_a_starting_engine_takes_nothing_from_one_that_is_alive(server: Server) -> None:
    async def test() -> None:
        async with workers(server, 1) as (one,):
            keys = await one.spawn(4)
            await until(lambda: len(one.performer.at_work) == 4)
            held = await one.engine.commit(lambda c: spawn.reserve(c, CHILD_WITH_FILES))
            async with working(server.url(f"s{server.schemas}")) as other:
                drivers = await other.see(lambda tx: tx.drivers.all())
                assert {driver.session for driver in drivers} == set(keys)
                assert {driver.owner for driver in drivers} == {one.engine.owner}
                phase = (await other.see(lambda tx: tx.runs.load(held.key))).phase
                assert isinstance(phase, Spawning) and phase.owner == one.engine.owner
                one.performer.may_end.set()
                await eventually(other, lambda tx: delivered(tx) == 4)
                assert other.performer.driven == [] or ":subagent:" not in str(other.performer.driven)
            lost = await one.see(
                lambda tx: [e for key in keys for e in tx.events.of(key) if isinstance(e, ev.LeaseLost)]
            )
            assert lost == []
            await one.engine.commit(lambda c: spawn.failed(c, held.key, "test"))

    play(test())


CHILD_WITH_FILES = spawn.Request(spec=CHILD.spec, terms=CHILD.terms, limits=CHILD.limits, binds_thread=True)
