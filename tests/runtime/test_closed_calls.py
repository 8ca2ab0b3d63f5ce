"""What is still under way for a call when that call is closed (steer, interrupt, timeout) changes nothing any more.

The store may come to a job late: the job was handed in before the call was closed, and is run after it. And a driver
that is superseded before it has read anything asks nothing.
"""

from pathlib import Path

import pytest

from fledge.config import parse
from fledge.models.scripted import ScriptedModel, ScriptedReply, use
from fledge.orchestrator import control
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.messenger import Messenger, SendParams
from fledge.orchestrator.spawn_params import SpawnParams
from fledge.orchestrator.spawner import Spawner
from fledge.orchestrator.turns import Drive
from fledge.runtime.profile import Profile
from fledge.tools.base import Tool, ToolContext, tool
from fledge.tools.sessions import caller_of
from fledge.tools.subagents import subagents_tool
from tests.orchestrator.host import FakeHost
from tests.orchestrator.stage import rules
from tests.runtime.desk import MAIN, Desk, Office, OneProfile, cast, in_turn

HELD_S = 1.0
CONFIG = parse('{"agents": {"defaults": {"subagents": {"maxSpawnDepth": 3}}}}').config


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


class Box:
    """The desk, for tools that are made before it is there."""

    desk: Desk
    children: tuple[str, ...] = ()

    def holding(self, name: str) -> Tool:
        """The real tool, whose next commit waits in the store."""

        async def hold(context: ToolContext) -> object:
            desk = self.desk
            desk.store.hold_s = HELD_S
            match name:
                case "spawn":
                    spawner = Spawner(desk.engine, CONFIG, FakeHost())
                    return await spawner.answer(SpawnParams(task="child", label="child"), caller_of(context))
                case "kill":
                    return (await subagents_tool(desk.engine).call('{"action": "kill", "target": "1"}', context)).text
                case "send":
                    child = self.children[0]
                    sent = SendParams(session_key=child, message="hello", timeout_seconds=0)
                    return (await Messenger(desk.engine, CONFIG).send(sent, caller_of(context))).status
                case _:
                    return "done"

        return tool(name="hold", repeatable=True)(hold)


async def close_the_call(desk: Desk, how: str, key: str) -> None:
    match how:
        case "interrupt":
            await desk.send("wait", key)
        case "steer":
            await desk.steer(key)
        case _:
            await desk.clock.sleep(2.0)  # its time is up


@pytest.mark.parametrize("how", ["interrupt", "steer", "timeout"])
@pytest.mark.parametrize("what", ["result", "spawn", "kill", "send"])
def test_a_job_for_a_closed_call_changes_nothing(office: Office, how: str, what: str) -> None:
    box = Box()
    script = cast(
        worker=in_turn(ScriptedReply("", (use("hold"),)), "done"),
        older=in_turn(ScriptedReply("", (use("wait"),)), "old"),
    )
    model = ScriptedModel(script, latency_s=1.0)

    async def wait() -> str:
        await box.desk.clock.sleep(100)
        return "waited"

    async def body(desk: Desk) -> None:
        box.desk = desk
        key = await desk.spawn("worker", timeout_s=1.6 if how == "timeout" else 0.0)
        if what in ("kill", "send"):
            box.children = (await desk.spawn("older", parent=key),)
        await desk.clock.sleep(1.5)
        assert desk.store.hold_s == 0.0, "the tool's job, or its result, is with the store"
        await close_the_call(desk, how, key)
        await desk.clock.sleep(5)
        assert [said for _, said, _ in await desk.results(key)] == ["interrupted; it was not finished"]
        assert await desk.look(lambda tx: tuple(tx.runs.children(key))) == box.children
        for child in box.children:
            assert (await desk.run(child)).phase.name == "running"
            assert await desk.heard(child) == ["older"]

    office.act(body, model, box.holding(what), tool(name="wait", read_only=True)(wait), rules=rules("interrupt"))


def test_what_is_done_for_an_open_call_is_done(office: Office) -> None:
    box = Box()

    async def body(desk: Desk) -> list[str]:
        box.desk = desk
        key = await desk.spawn("worker")
        await desk.ended(key)
        return [await desk.label(child) for child in await desk.look(lambda tx: tx.runs.children(key))]

    model = ScriptedModel(cast(worker=in_turn(ScriptedReply("", (use("hold"),)), "done")))
    assert office.act(body, model, box.holding("spawn")) == ["child"]


def test_a_driver_that_was_superseded_before_its_first_look_asks_nothing(office: Office) -> None:
    model = ScriptedModel(cast())

    async def body(desk: Desk) -> None:
        profiles = desk.profiles

        class Deletes(OneProfile):
            async def profile(self, engine: Engine, drive: Drive) -> Profile:
                found = await profiles.profile(engine, drive)
                await engine.commit(lambda c: control.delete_session(c, MAIN))
                return found

        desk.agent.profiles = Deletes(model, [], {})
        await desk.send("go")
        await desk.clock.sleep(5)

    office.act(body, model)
    assert model.requests == []
