"""What tests of the session tools share: a conversation in the middle of a turn, with the tools at hand.

Children are played by a script: one that is asked for a plan gives one, one whose task says what to answer answers it,
every other works for a long time. Time is virtual.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from fledge.config import with_settings
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.messenger import Messenger
from fledge.orchestrator.spawner import Spawner
from fledge.testing import InlineStore, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual
from fledge.tools.base import ToolContext
from fledge.tools.observe import observing_tools
from fledge.tools.send import send_tool
from fledge.tools.sessions import remove_tool, spawn_tool, yield_tool
from fledge.tools.subagents import subagents_tool
from tests.model.world import MAIN
from tests.orchestrator.host import FakeHost

SETTINGS = ("agents.defaults.subagents.maxChildrenPerAgent=3", "agents.defaults.subagents.allowAgents=['helper']")
SAY = "say: "
"""A task that begins so is answered at once, with what follows."""


class Desk:
    """A session in the middle of a turn, with the session tools at hand."""

    def __init__(self, stage: Stage, workspace: Path, settings: tuple[str, ...] = ()) -> None:
        config = with_settings({}, (*SETTINGS, *settings)).config
        self.engine, self.stage, self.workspace, self.calls = stage.engine, stage, workspace, 0
        engine = stage.engine
        self.tools = [
            spawn_tool(Spawner(engine, config, FakeHost())),
            subagents_tool(engine),
            yield_tool(),
            send_tool(Messenger(engine, config)),
            remove_tool(engine),
            *observing_tools(engine, config, {"scripted-1": 1000}.get, FakeHost().check_model),
        ]

    async def __call__(self, name: str, index: int | None = None, **arguments: Any) -> dict[str, Any]:
        """What the tool answers; a repeated call has the index of the first."""
        self.calls += 1
        tool = next(tool for tool in self.tools if tool.name == name)
        at = self.calls if index is None else index
        context = ToolContext(
            session=self.stage.session,
            entry=1,
            index=at,
            workspace=self.workspace,
            generations=self.stage.drive.generations,
        )
        result = await tool.call(msgspec.json.encode(arguments).decode(), context)
        assert not result.is_error, result.text
        answer: dict[str, Any] = msgspec.json.decode(result.text)
        return answer

    async def pass_time(self, seconds: float) -> None:
        """Let the others work."""
        await self.engine.clock.wait_until(self.engine.clock.now() + seconds, asyncio.Event())


Script = Callable[[Stage], Awaitable[None]]


async def play_child(stage: Stage) -> None:
    """What a child does unless a test says otherwise."""
    task = msgspec.json.decode(await stage.task())["text"]
    if stage.run is not None and stage.run.terms.plan and stage.run.attempt == 1:
        await stage.say("1. look 2. tell")
    elif task.startswith(SAY):
        await stage.say(task.removeprefix(SAY))
    else:
        await stage.sleep(1000)


def play(
    tmp_path: Path,
    body: Callable[[Desk], Awaitable[None]],
    *settings: str,
    others: Script = play_child,
    rules: Rules | None = None,
) -> None:
    """Run the body as the main conversation's turn, and raise what it raised."""

    async def main() -> None:
        ended: list[BaseException | None] = []
        store = InlineStore(tmp_path / "state")

        async def script(stage: Stage) -> None:
            if stage.session != MAIN or ended:
                await others(stage)
                return
            try:
                await body(Desk(stage, tmp_path, settings))
            except BaseException as error:
                ended.append(error)
                raise
            ended.append(None)
            await stage.say("done")

        performer = ScriptedPerformer(script)
        async with Engine(store, performer, clock=VirtualClock(), ids=SeededIds(3), rules=rules) as engine:
            await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
            await engine.commit(lambda c: control.send(c, MAIN, "go"))
            while not ended:
                await engine.clock.wait_until(engine.clock.now() + 1.0, asyncio.Event())
        await store.close()
        if ended[0] is not None:
            raise ended[0]

    run_virtual(main())
