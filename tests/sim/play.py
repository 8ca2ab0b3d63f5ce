"""One schedule played to its end: the real engine and the real agent on a virtual clock, life after life on one file.

A life is a process: it ends by dying at a commit, by being closed, or by everything having come to rest. `play(seed)`
answers everything that was found wrong, in sentences; nothing if all held.
"""

import asyncio
import logging
import shutil
import traceback
from collections.abc import Callable

from msgspec import Struct

from fledge.errors import FledgeError
from fledge.orchestrator.engine import Engine
from fledge.store.base import Tx
from fledge.testing import START, VirtualClock, run_virtual
from tests.empty import empty_store
from tests.sim import verdict
from tests.sim.cast import Cast
from tests.sim.people import deeds, opening
from tests.sim.process import Process
from tests.sim.schedule import HORIZON_S, Death, Schedule, at_last, schedule
from tests.sim.watch import Spy
from tests.sim.witness import Ears, Witness

REST_S = 3 * 86_400.0
"""Nothing may take longer than this to come to rest."""
AFTERWARDS_S = 2 * 3600.0
"""The sweeper's time: what held at rest must hold after it, too."""


class Report(Struct, frozen=True):
    """How a play came out."""

    seed: int
    wrong: list[str]
    commits: int
    lives: int
    runs: int
    requests: int
    seconds: float
    """Of virtual time."""


def play(seed: int, tell: Callable[[str], None] | None = None) -> Report:
    """Play the seed; `tell` hears every step of it."""
    return Play(schedule(seed), tell).run()


class Play:
    """What outlives processes: the file, the witness, the people's place in their acts, the time."""

    def __init__(self, plan: Schedule, tell: Callable[[str], None] | None = None, spy: type[Spy] = Spy) -> None:
        self._plan, self._witness, self._spy = plan, Witness(plan, tell), spy
        self._lives = self._acted = 0
        self._at = 0.0
        self._folder = empty_store("fledge-sim-")

    def run(self) -> Report:
        """All lives, one after the other, until everything is at rest or something is wrong."""
        witness, ears, log = self._witness, Ears(self._witness), logging.getLogger("fledge")
        log.addHandler(ears)
        log.propagate = False
        try:
            for death in (*self._plan.deaths, None):
                self._lives += 1
                if run_virtual(self._life(death)) or witness.wrong:
                    break
                self._at += 0.0 if death is None else death.down_s
        finally:
            log.removeHandler(ears)
            log.propagate = True
            shutil.rmtree(self._folder)
        runs, requests = len(witness.ledger.admitted), witness.requests
        return Report(self._plan.seed, witness.wrong, witness.commits, self._lives, runs, requests, self._at)

    async def _life(self, death: Death | None) -> bool:
        """One process; True if everything had come to rest when it ended."""
        plan, witness = self._plan, self._witness
        asyncio.get_running_loop().set_exception_handler(lambda loop, trouble: None)
        clock = VirtualClock(START + self._at)
        rules = (plan if death is not None else at_last(plan)).rules
        process = Process(witness, self._folder, clock, Cast(witness), rules, death, self._spy)
        store = process.store
        witness.say(f"---- life {self._lives}, to end {death}")
        story = asyncio.create_task(self._story(process.engine, death))
        died = asyncio.create_task(store.died.wait())
        try:
            await asyncio.wait([story, died], return_when=asyncio.FIRST_COMPLETED)
            self._at = clock.now() - START
            witness.died()
            if store.died.is_set():
                witness.say("---- died")
                if store.runs_away:
                    witness.wrong.append(f"goes round in circles: {store.begun} commits")
                return False
            raised = story.exception()
            if raised is not None:
                witness.wrong.append("".join(traceback.format_exception(raised)))
            return raised is None and story.result()
        finally:
            await process.bury()

    async def _story(self, engine: Engine, death: Death | None) -> bool:
        """Open, let people act, come to rest or be closed before; then nothing may be left of the process."""
        plan, witness = self._plan, self._witness
        before = asyncio.all_tasks()
        closes_at = witness.now() + death.commits if death is not None and death.how == "closed" else None
        if plan.rules.heartbeat.every_s and death is not None:
            # While there are periodic heartbeats nothing is ever at rest.
            closes_at = max(witness.now(), min(HORIZON_S, closes_at or HORIZON_S))
        async with engine:
            await engine.commit(opening)
            while self._acted < len(plan.acts):
                act = plan.acts[self._acted]
                if closes_at is not None and act.at >= closes_at:
                    break
                await asyncio.sleep(max(0.0, act.at - witness.now()))
                self._acted += 1
                await self._act(engine)
            if closes_at is not None:
                await asyncio.sleep(max(0.0, closes_at - witness.now()))
            else:
                await self._rest(engine)
            witness.closes = True
        left = asyncio.all_tasks() - before
        if left:
            witness.wrong.append(f"tasks left: {sorted(task.get_name() for task in left)}")
        return closes_at is None

    async def _act(self, engine: Engine) -> None:
        """The next act: one commit after the other; a refusal is an answer like any other."""
        number = self._acted
        act = self._plan.acts[number - 1]
        for decide in await engine.store.read(lambda tx: deeds(self._plan, act, number, tx)):
            self._witness.say(f"person {number}: {act.deed}")
            try:
                await engine.commit(decide)
            except FledgeError as refused:
                self._witness.say(f"refused: {refused}")

    async def _rest(self, engine: Engine) -> None:
        """Let time pass until nothing goes on any more; then judge, and once more after the sweeper came."""
        witness = self._witness
        await asyncio.sleep(max(0.0, HORIZON_S - witness.now()))
        wrong = await self._judged_at_rest(engine)
        if wrong is None:
            return
        witness.say("---- at rest")
        witness.wrong += wrong
        await asyncio.sleep(AFTERWARDS_S)
        witness.wrong += [f"later: {what}" for what in await self._judged_at_rest(engine) or ()]

    async def _judged_at_rest(self, engine: Engine) -> list[str] | None:
        """What is wrong once nothing goes on; None if something always does. Both are seen in one look: between two,
        time may bring the next thing to do."""

        def look(tx: Tx) -> tuple[list[str], list[str]]:
            found = verdict.restless(tx)
            return found, [] if found else self._witness.judge(tx)

        by, wait_s = self._witness.now() + REST_S, 1.0
        while True:
            found, wrong = await engine.store.read(look)
            if not found:
                return wrong
            if self._witness.now() > by:
                self._witness.wrong += [f"never comes to rest: {what}" for what in found]
                return None
            await asyncio.sleep(wait_s)
            wait_s = min(600.0, wait_s * 1.5)
