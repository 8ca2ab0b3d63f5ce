"""One process of a play: a watched store, the real engine on it, the real agent. Time is virtual, and the witness
outlives them all.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fledge.orchestrator.commit import Rules
from fledge.orchestrator.engine import Engine
from fledge.runtime.agent import AgentLoop
from fledge.store.base import Tx
from fledge.testing import InlineStore, SeededIds, VirtualClock
from tests.sim.cast import Cast
from tests.sim.schedule import Death
from tests.sim.watch import Spy, WatchedStore
from tests.sim.witness import Witness

T = TypeVar("T")


class Process:
    """Made on what the one before has left. Must be ended by `bury`."""

    def __init__(
        self,
        witness: Witness,
        folder: Path,
        clock: VirtualClock,
        cast: Cast,
        rules: Rules,
        death: Death | None = None,
        spy: type[Spy] = Spy,
    ) -> None:
        self._inline = InlineStore(folder)
        witness.look_at(self._inline, clock)
        self.store = WatchedStore(
            self._inline,
            witness.ledger,
            witness.committing,
            witness.plan,
            witness.life,
            death,
            witness.talks,
            spy,
            lambda: bool(witness.wrong),
            witness.died,
        )
        ids = SeededIds(witness.plan.seed * 1000 + witness.life)
        self.engine = Engine(self.store, AgentLoop(cast), clock=clock, ids=ids, rules=cast.rules(rules))

    def look(self, view: Callable[[Tx], T]) -> T:
        """What the rows say now, to somebody outside."""
        return self._inline.run(view)

    async def bury(self) -> None:
        """It is gone, as after kill -9 if it was not closed before: nothing is written any more, every other task of
        this loop is ended (some will not be hurried), and the file is free for the next."""
        self.store.die()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=1.0)
        self._inline.close_now()
