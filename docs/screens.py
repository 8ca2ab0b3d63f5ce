"""The terminals shown in docs/cli.md: scenes on the real screen, before a terminal of pyte's, in virtual time.

`python -m docs.screens` prints them. `docs.generate` writes them into docs/cli.md, behind their marks, and a test fails
when one is stale. `docs.pictures` draws the chat in colours.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.cli.term.scene import Glass, GlassPen, scene

from fledge.cli.progress_region import ProgressRegion
from fledge.cli.term.cells import Theme
from fledge.cli.term.inplace import InPlace, TerminalKeys
from fledge.cli.term.shown import Called, CallQuestion, EndedItem, SpokenItem, TurnShown, WorkingChild
from fledge.testing import run_virtual

TARGET = Path(__file__).with_name("cli.md")
COLUMNS = 68
CARD = EndedItem(
    "scout",
    "done",
    41,
    8100,
    0.01,
    "Both tests wait for port 8080.\nThe log server has taken it.\nIt is started twice.\nSee conftest.py.",
)


async def chat(look: Callable[[Glass], None] = lambda glass: None) -> list[str]:
    """A chat: a subagent has ended, two are at work, one of them asks something. `look` sees the terminal."""
    async with scene(COLUMNS, 30) as played:
        screen = played.screen
        screen.say(SpokenItem("Why did last night's build fail?", is_typed_here=True))
        screen.words("**Two tests** timed out, the others passed. Three subagents look for the cause, and I go on.\n\n")
        screen.say(CARD)
        begun = screen.now() - 12
        children = (
            WorkingChild("writer", "exec pytest -q", begun - 29, 8100),
            WorkingChild("checker", "waits for you", begun + 9, waits=True),
        )
        screen.turn(TurnShown("answering", begun, tokens=340))
        screen.children(children)
        screen.ask((CallQuestion("q", "checker", "rm -rf build && make"),))
        await played.pause(2)
        screen.turn(TurnShown("answering", screen.now() - 12, tokens=340))
        screen.children(
            tuple(WorkingChild(one.label, one.doing, one.since + 2, one.tokens, one.waits) for one in children)
        )
        await played.pause(0.2)
        look(played.glass)
        return [*played.glass.all()]


class _Keys(TerminalKeys):
    """Keys of a terminal that nobody types at."""

    def hush(self) -> bool:
        """There is nothing to echo."""
        return True

    def give_back(self) -> None:
        """There is nothing to echo."""


async def run() -> list[str]:
    """`fledge run` in a terminal: an answer before its tool calls, a card, and what goes on."""
    glass = Glass(COLUMNS, 30)
    place = InPlace(GlassPen(glass), lambda: os.terminal_size((COLUMNS, 30)), _Keys(-1), folds=False)
    region = ProgressRegion(Theme(), None, place)
    async with place:
        region.print("I send three subagents: one reads, one writes, one checks.")
        for label in ("scout", "writer", "checker"):
            region.tell("", Called(f"sessions_spawn {label}"))
        region.tell("", CARD)
        now = region.now()
        region.turn(TurnShown("thinking", now - 3))
        region.children(
            (
                WorkingChild("writer", "exec pytest -q", now - 41, 8100),
                WorkingChild("checker", "thinking", now - 12, 2000),
            )
        )
        await asyncio.sleep(0.2)
        return glass.all()


SCENES: dict[str, Callable[[], Coroutine[Any, Any, list[str]]]] = {"chat": chat, "run": run}


def picture(name: str) -> str:
    """What stands on the terminal in this scene."""
    return "\n".join(run_virtual(SCENES[name]()))


def page() -> str:
    """docs/cli.md with the scenes as they are now, each in the block behind its mark."""
    text = TARGET.read_text("utf-8")
    for name in SCENES:
        mark = f"<!-- screen: {name} -->\n```\n"
        before, found, behind = text.partition(mark)
        _, closed, after = behind.partition("\n```\n")
        if not found or not closed:
            raise ValueError(f"cli.md must have a block behind <!-- screen: {name} -->")
        text = f"{before}{mark}{picture(name)}\n```\n{after}"
    return text


if __name__ == "__main__":
    for scene_name in SCENES:
        print(f"{scene_name}:\n\n{picture(scene_name)}\n")
