"""Races between the engine and those who act beside it, which are nobody's fault."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from fledge.core.run import Terms
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.store.base import Spec, Tx
from fledge.testing import InlineStore, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual
from tests.orchestrator.scene import PROGRAM
from tests.orchestrator.stage import Theatre, World

T = TypeVar("T")


class Meddler(InlineStore):
    """Lets somebody act between the engine's look at what may be claimed and its claim."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.meddle: Callable[[Tx], None] | None = None

    async def read(self, job: Callable[[Tx], T]) -> T:
        seen = await super().read(job)
        if self.meddle is not None and isinstance(seen, tuple) and seen[0]:
            meddle, self.meddle = self.meddle, None
            self.run(meddle)
        return seen


def test_a_run_that_is_killed_between_looking_and_claiming_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> str:
        store, clock, ids = Meddler(tmp_path), VirtualClock(), SeededIds()
        async with Engine(store, ScriptedPerformer(_silent), clock=clock, ids=ids) as engine:
            await engine.commit(lambda c: spawn.open_program(c, PROGRAM))
            store.meddle = lambda tx: _kill_all(tx, engine)
            await engine.commit(_spawn_for_program)
            await clock.sleep(30)
            keys = await store.read(lambda tx: tx.runs.children(PROGRAM))
            run = await store.read(lambda tx: tx.runs.load(keys[0]))
        await store.close()
        return run.phase.name if run.ended is None else run.ended.outcome.status

    with caplog.at_level(logging.ERROR, "fledge"):
        assert run_virtual(main()) == "killed"
    assert caplog.records == []


async def _silent(stage: Stage) -> None:
    raise AssertionError("nothing is left to drive")


def _spawn_for_program(c: Commit) -> None:
    spawn.spawn(c, spawn.SpawnRequest(spec=Spec(task="work"), terms=Terms(parent=PROGRAM)))


def _kill_all(tx: Tx, engine: Engine) -> None:
    c = Commit(tx, engine.clock.now(), engine.ids, engine.rules)
    for key in tx.runs.children(PROGRAM):
        control.kill(c, key)


def test_a_driver_that_learns_of_its_kill_by_a_refused_step_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def deaf(stage: Stage) -> None:
        with suppress(asyncio.CancelledError):
            await stage.kill(stage.session)
            await stage.sleep(1)
        await stage.step("one more")

    async def body(world: World) -> tuple[str, str | None, float]:
        key = await world.spawn("deaf")
        await world.clock.sleep(20)
        return await world.outcome(key)

    with caplog.at_level(logging.ERROR, "fledge"):
        assert Theatre(tmp_path).act(body, {"deaf": deaf}) == ("killed", "killed", 0.0)
    assert caplog.records == []


def test_an_engine_that_is_cancelled_while_it_opens_says_just_that(tmp_path: Path) -> None:
    class Slow(InlineStore):
        async def transact(self, job: Callable[[Tx], T]) -> T:
            await asyncio.sleep(60)
            return await super().transact(job)

    async def main() -> None:
        store = Slow(tmp_path)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await Engine(store, ScriptedPerformer(_silent), clock=VirtualClock()).__aenter__()
        await store.close()

    run_virtual(main())
