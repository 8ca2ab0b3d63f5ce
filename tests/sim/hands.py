"""The tools of simulated sessions. Each takes a while that follows from the seed, its session's label and its call;
some fail, some need a person, some will not be hurried. The play is told whenever one begins.
"""

import asyncio
from typing import Protocol

from fledge.tools.base import Tool, ToolContext, tool
from tests.sim.deaf import whatever_happens
from tests.sim.schedule import dice

TAKES_S = (0.0, 0.2, 1.0, 4.0, 20.0)
ASKS = frozenset({"hand_asks", "hand_asks_again"})
"""Those that need a person."""


class Witness(Protocol):
    """What a hand needs of the play."""

    seed: int

    def begins(self, name: str, context: ToolContext, repeatable: bool) -> int:
        """A tool is begun; answers how often this call has been, this time included."""
        ...

    def label(self, session: str) -> str:
        """What a session is called."""
        ...


def hands(witness: Witness, lingering: bool) -> list[Tool]:
    """All of them; one that lingers when it is told to stop only where that is wanted."""

    async def work(name: str, context: ToolContext, repeatable: bool) -> str:
        times = witness.begins(name, context, repeatable)
        throw = dice(witness.seed, "hand", witness.label(context.session), context.entry, context.index, times)
        takes_s = throw.choice(TAKES_S)
        if name == "hand_lingers" and lingering:
            cancelled = await whatever_happens(throw.choice([0.5, 3.0, 8.0]))
            if cancelled is not None:
                raise cancelled
        else:
            await asyncio.sleep(takes_s)
        if throw.random() < 0.1:
            raise RuntimeError("it slipped")
        return f"{name} is done"

    async def hand_looks(context: ToolContext) -> str:
        return await work("hand_looks", context, True)

    async def hand_repeats(context: ToolContext) -> str:
        return await work("hand_repeats", context, True)

    async def hand_acts(context: ToolContext) -> str:
        return await work("hand_acts", context, False)

    async def hand_asks(context: ToolContext) -> str:
        return await work("hand_asks", context, False)

    async def hand_asks_again(context: ToolContext) -> str:
        return await work("hand_asks_again", context, True)

    async def hand_lingers(context: ToolContext) -> str:
        return await work("hand_lingers", context, False)

    return [
        tool(read_only=True)(hand_looks),
        tool(repeatable=True)(hand_repeats),
        tool(hand_acts),
        tool(hand_asks),
        tool(repeatable=True)(hand_asks_again),
        tool(timeout=10.0)(hand_lingers),
    ]


def command() -> Tool:
    """The right to start programs; nobody here uses it otherwise than for a child's runtime."""

    async def run_it(context: ToolContext) -> str:
        return "nothing"

    return tool(name="exec")(run_it)
