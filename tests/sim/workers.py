"""Foreign runtimes of a play: functions of the user's, and a program that is killed with what it does. Each takes a
while and comes out as the seed, its session's label and its attempt say: well, badly, cut short, or late because it
does not heed that it was told to stop.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from fledge.core.freeze import NO_REPLY
from fledge.runtime.base import Faltered, Runtime, Work
from fledge.runtime.callable import CallableRuntime
from tests.sim.deaf import whatever_happens
from tests.sim.schedule import Schedule, dice

TAKES_S = (0.1, 1.0, 4.0, 12.0, 40.0)
ENDS = ("well", "well", "well", "well", "badly", "cut short", "raises", "silently")


class Done(Struct, frozen=True):
    """A piece of work that came to its end in a living process: what it said, or nothing."""

    session: str
    run_id: str
    text: str
    at: float
    life: int


class Witness(Protocol):
    """What workers need of the play."""

    plan: Schedule
    dead: bool
    life: int
    wrong: list[str]

    def label(self, session: str) -> str:
        """What a session is called."""
        ...

    def now(self) -> float:
        """Seconds since the play began."""
        ...

    def say(self, words: str) -> None:
        """Something for whoever listens."""
        ...


class Workers:
    """All runtimes of a play. They outlive processes, as far as what they remember goes."""

    def __init__(self, witness: Witness) -> None:
        self._witness, self._plan = witness, witness.plan
        self._begun: Counter[tuple[str, str]] = Counter()
        self.done: list[Done] = []

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called."""
        return ("again", "once", "program") if self._plan.beyond.runtimes else ()

    def runtimes(self) -> Mapping[str, Runtime]:
        """Each by its name, for one process."""
        return {
            "again": CallableRuntime(function=self._work, repeatable=True, retries=1),
            "once": CallableRuntime(function=self._work_once),
            "program": _Program(self),
        }

    async def _work(self, work: Work) -> str:
        return await self.carry_out(work, deaf=True)

    async def _work_once(self, work: Work) -> str:
        self.begins_once(work)
        return await self.carry_out(work, deaf=True)

    def begins_once(self, work: Work) -> None:
        """Work that may not be repeated is begun; for a message after a run's end there is no id to count by."""
        if self._witness.dead:
            raise asyncio.CancelledError
        self._begun[work.session, work.run_id] += 1
        if work.run_id and self._begun[work.session, work.run_id] > 1:
            self._witness.wrong.append(f"work of {work.label} was begun again, though nobody knows what became of it")

    async def carry_out(self, work: Work, deaf: bool) -> str:
        """Do it, as fate has it."""
        label = self._witness.label(work.session)
        # What a process did not live to see is another fate in the next one.
        throw = dice(self._plan.seed, "work", label, work.attempt, len(work.prompt), self._witness.life)
        self._witness.say(f"work of {label} begins, attempt {work.attempt}")
        takes_s, end = throw.choice(TAKES_S), throw.choice(ENDS)
        wait = whatever_happens if deaf and throw.random() < 0.4 else asyncio.sleep
        work.say("it goes on")
        await wait(takes_s / 2)
        work.say("it still goes on")
        await wait(takes_s / 2)
        if self._witness.dead:
            raise asyncio.CancelledError
        match end:
            case "badly":
                raise Faltered("exit code 1: it did not work")
            case "cut short":
                raise Faltered("killed: it took too long", aborted=True)
            case "raises":
                raise Faltered("it raised")
            case "silently":
                text = NO_REPLY
            case _:
                text = f"work {work.attempt} of {label}"
                self.done.append(Done(work.session, work.run_id, text, self._witness.now(), self._witness.life))
        return text


class _Program:
    """A fake of a command: killed at once when it must stop, never repeated."""

    repeatable, retries = False, 0

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def run(self, work: Work) -> str:
        self._workers.begins_once(work)
        return await self._workers.carry_out(work, deaf=False)
