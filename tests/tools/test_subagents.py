"""The `subagents` and `sessions_spawn` tools as a model uses them: what they answer, and what they refuse."""

from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.config import with_settings
from fledge.orchestrator import control, spawn
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawner import Spawner
from fledge.testing import InlineStore, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual
from fledge.tools.base import ToolContext
from fledge.tools.sessions import spawn_tool, yield_tool
from fledge.tools.subagents import subagents_tool
from tests.model.world import MAIN
from tests.orchestrator.host import FakeHost

SETTINGS = ("agents.defaults.subagents.maxChildrenPerAgent=3", "agents.defaults.subagents.allowAgents=['helper']")


class Desk:
    """A conversation in the middle of a turn, with the session tools at hand."""

    def __init__(self, engine: Engine, workspace: Path, generations: Mapping[str, int]) -> None:
        config = with_settings({}, SETTINGS).config
        self.engine, self.workspace, self.calls, self.generations = engine, workspace, 0, generations
        self.tools = [spawn_tool(Spawner(engine, config, FakeHost())), subagents_tool(engine), yield_tool()]

    async def __call__(self, name: str, index: int | None = None, **arguments: Any) -> dict[str, Any]:
        self.calls += 1
        tool = next(tool for tool in self.tools if tool.name == name)
        at = self.calls if index is None else index
        context = ToolContext(session=MAIN, entry=1, index=at, workspace=self.workspace, generations=self.generations)
        result = await tool.call(msgspec.json.encode(arguments).decode(), context)
        assert not result.is_error, result.text
        answer: dict[str, Any] = msgspec.json.decode(result.text)
        return answer


def play(tmp_path: Path, body: Any) -> None:
    async def script(stage: Stage) -> None:
        if stage.session == MAIN:
            await body(Desk(stage.engine, tmp_path, stage.drive.generations))
            await stage.say("done")
        elif stage.run is not None and stage.run.terms.plan and stage.run.attempt == 1:
            await stage.say("1. look 2. tell")
        else:
            await stage.sleep(1000)

    async def main() -> None:
        ended: list[BaseException | None] = []
        store = InlineStore(tmp_path / "state")

        async def guarded(stage: Stage) -> None:
            try:
                await script(stage)
            except BaseException as error:
                ended.append(error)
                raise
            if stage.session == MAIN:
                ended.append(None)

        async with Engine(store, ScriptedPerformer(guarded), clock=VirtualClock(), ids=SeededIds(3)) as engine:
            await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
            await engine.commit(lambda c: control.send(c, MAIN, "go"))
            while not ended:
                await engine.clock.wait_until(engine.clock.now() + 1.0, _never())
        await store.close()
        first = ended[0]
        if first is not None:
            raise first

    run_virtual(main())


def _never() -> Any:
    import asyncio

    return asyncio.Event()


Body = Coroutine[Any, Any, None]


def test_an_accepted_spawn_names_child_run_model_and_says_not_to_poll(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        answer = await desk("sessions_spawn", task="look", label="eyes", model="openai/gpt-5")
        assert answer["status"] == "accepted"
        assert answer["childSessionKey"].startswith("agent:main:subagent:")
        assert (answer["mode"], answer["modelApplied"], answer["resolvedModel"]) == ("run", True, "openai/gpt-5")
        assert "Do not poll" in answer["note"]

    play(tmp_path, body)


def test_the_same_call_repeated_finds_the_child_it_made_before(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        first = await desk("sessions_spawn", index=7, task="look")
        assert await desk("sessions_spawn", index=7, task="look") == first
        other = await desk("sessions_spawn", index=8, task="look")
        assert other["childSessionKey"] != first["childSessionKey"]

    play(tmp_path, body)


def test_one_key_with_other_parameters_is_refused(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        first = await desk("sessions_spawn", task="look", idempotencyKey="k")
        assert (await desk("sessions_spawn", task="look", idempotencyKey="k"))["runId"] == first["runId"]
        refused = await desk("sessions_spawn", task="listen", idempotencyKey="k")
        assert refused == {"status": "error", "error": "idempotencyKey: k was used before with other parameters"}

    play(tmp_path, body)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"task": " "}, {"status": "error", "error": "task: must not be empty"}),
        (
            {"task": "x", "agentId": "stranger"},
            {"status": "forbidden", "error": "stranger"},
        ),
        ({"task": "x", "agentId": "../etc"}, {"status": "error", "error": "agentId: must be 1 to 64"}),
        ({"task": "x", "model": "gpt-0"}, {"status": "error", "error": "model: no such model"}),
    ],
)
def test_a_bad_spawn_is_answered_with_its_reason_and_leaves_nothing(
    tmp_path: Path, arguments: dict[str, Any], answer: dict[str, str]
) -> None:
    async def body(desk: Desk) -> None:
        given = await desk("sessions_spawn", **arguments)
        assert given["status"] == answer["status"]
        assert answer["error"] in given["error"]
        assert await desk.engine.store.read(lambda tx: tx.children(MAIN)) == []
        assert await desk.engine.store.read(lambda tx: tx.counts(MAIN).spawned) == 0

    play(tmp_path, body)


def test_the_cap_names_rule_value_and_setting(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        for n in range(3):
            assert (await desk("sessions_spawn", task=f"{n}"))["status"] == "accepted"
        refused = await desk("sessions_spawn", task="one too many")
        assert refused == {
            "status": "forbidden",
            "error": "active children 3 of 3: agents.defaults.subagents.maxChildrenPerAgent",
        }

    play(tmp_path, body)


def test_list_shows_what_there_is_as_people_see_it(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        assert (await desk("subagents"))["text"].splitlines()[0] == "Subagents (current session)"
        await desk("sessions_spawn", task="look", label="eyes")
        answer = await desk("subagents")
        assert (answer["status"], answer["total"]) == ("ok", 1)
        assert answer["text"].splitlines()[1] == "Active: 1 · Done: 0"

    play(tmp_path, body)


def test_steer_and_kill_reach_the_one_that_is_meant(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        first = await desk("sessions_spawn", task="look", label="eyes")
        await desk("sessions_spawn", task="listen", label="ears")
        steered = await desk("subagents", action="steer", target="eyes", message="rather there")
        assert (steered["status"], steered["sessionKey"]) == ("accepted", first["childSessionKey"])
        assert steered["runId"] != first["runId"]
        again = await desk("subagents", action="steer", target="eyes", message="no, here")
        assert again["status"] == "rate_limited"
        killed = await desk("subagents", action="kill", target="ears")
        assert killed["status"] == "ok"
        assert len(killed["killed"]) + len(killed["stopping"]) == 1
        assert (await desk("subagents", action="kill", target="nobody"))["error"] == "no subagent 'nobody'"

    play(tmp_path, body)


def test_kill_all_takes_every_active_one_and_none_is_fine(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        assert await desk("subagents", action="kill", target="all") == {"status": "ok", "killed": [], "stopping": []}
        for n in range(3):
            await desk("sessions_spawn", task=f"{n}")
        done = await desk("subagents", action="kill", target="*")
        assert len(done["killed"]) + len(done["stopping"]) == 3

    play(tmp_path, body)


def test_a_plan_is_approved_or_rejected_by_the_one_who_asked_for_it(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        planned = await desk("sessions_spawn", task="plan it", label="p", planMode=True)
        await desk.engine.clock.wait_until(desk.engine.clock.now() + 5.0, _never())
        refused = await desk("subagents", action="reject", target="p")
        assert refused == {"status": "error", "error": "message: must say why the plan is rejected"}
        approved = await desk("subagents", action="approve", target="p")
        assert (approved["status"], approved["sessionKey"]) == ("accepted", planned["childSessionKey"])
        assert (await desk("subagents", action="approve", target="p"))["status"] == "done"

    play(tmp_path, body)


def test_a_stopped_turn_spawns_nothing_more(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk.engine.store.transact(lambda tx: tx.raise_generation(MAIN))
        refused = await desk("sessions_spawn", task="too late")
        assert refused["status"] == "forbidden"
        assert "was stopped" in refused["error"]

    play(tmp_path, body)
