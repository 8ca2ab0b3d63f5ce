"""§3 and §4 of the contract, where no other test would fail: clocks that start anew, what a child sees, who may direct
whom, sends and yields, what is not stuck."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.config import with_settings
from fledge.core.run import Terms
from fledge.models.base import Request, UserMessage
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply, use
from fledge.orchestrator import spawn
from fledge.orchestrator.spawn_params import Caller, SpawnParams, read_spawn
from fledge.runtime.profiles import rules_of
from fledge.store.base import Spec
from fledge.tools.base import ToolContext
from fledge.tools.sessions import yield_tool
from fledge.tools.subagents import subagents_tool
from tests.model.world import LIMITS, MAIN
from tests.orchestrator.host import FakeHost
from tests.orchestrator.scene import Scene, scene_fixture
from tests.orchestrator.stage import Theatre, World, works
from tests.runtime.desk import Desk, Kit, Office, asked, cast, in_turn, results, said
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


# ---- spawned ---------------------------------------------------------------------------------------------------------


@proves("3.limits.26", "It restarts on a plan's approval")
def test_the_run_timeout_starts_anew_when_a_plan_is_approved(scene: Scene) -> None:
    o = scene.orchestrator(plan=True, timeout_s=60.0)
    scene.clock.advance(50.0)
    scene.finish(o, "1. look")
    scene.pass_time(3600.0)
    assert scene.phase(o.session) == "awaiting_approval"
    scene.answer(o.session, True)
    scene.start(o.session)
    began_at = scene.clock.now()
    assert scene.run(o.session).deadline_at == began_at + 60.0
    scene.pass_time(59.0)
    assert scene.phase(o.session) == "running"
    scene.pass_time(1.0)
    assert scene.ended(o.session).outcome.status == "timeout"


@proves("3.prompt.10", "Nothing of the parent's history reaches a child that is not forked")
def test_a_child_sees_its_task_and_nothing_of_its_parents_conversation(office: Office) -> None:
    model = ScriptedModel(cast(main=lambda request: "I will remember", worker=lambda request: "done"))

    async def body(desk: Desk) -> None:
        await desk.send("the word is swordfish")
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN))
        await desk.work()

    office.act(body, model)
    assert asked(model, "main")[0] == (UserMessage("the word is swordfish"),)
    assert asked(model) == [(UserMessage("worker"),)]


@proves("3.limits.13")
@pytest.mark.parametrize(("agent_id", "at_once"), [("main", 4), ("research", 2)])
def test_an_agent_that_says_how_many_of_its_children_work_at_once_has_a_lane_of_its_own(
    tmp_path: Path, agent_id: str, at_once: int
) -> None:
    settings = {"agents": {"list": [{"id": "research", "subagents": {"maxConcurrent": 2}}]}}
    config = with_settings(settings, ("agents.defaults.subagents.maxConcurrent=4",)).config
    requester = f"agent:{agent_id}:main"

    async def body(world: World) -> None:
        await world.engine.commit(lambda c: spawn.open_conversation(c, requester))
        for n in range(5):
            params = SpawnParams(task=f"{n}", label="w")
            request = read_spawn(config, params, Caller(session=requester), FakeHost(), f"child-{n}")
            await world.engine.commit(partial(spawn.spawn, request=request))
        await world.clock.sleep(5)
        assert len(world.driven("w")) == at_once

    Theatre(tmp_path).act(body, {"w": works(100)}, rules_of(config))


# ---- who directs whom ------------------------------------------------------------------------------------------------


@proves("3.limits.17")
@proves("4.steer.1")
@pytest.mark.parametrize("action", ["steer", "kill", "approve", "reject"])
def test_a_requester_that_is_not_the_controller_directs_nothing(tmp_path: Path, action: str) -> None:
    """The controller is stored at the spawn, and that record wins over who the parent is."""

    async def body(world: World) -> None:
        spec = Spec(task="look", label="eyes", controller="agent:main:boss")
        request = spawn.SpawnRequest(spec=spec, terms=Terms(parent=MAIN, plan=True), limits=LIMITS)
        key = (await world.engine.commit(lambda c: spawn.spawn(c, request))).key
        await world.clock.sleep(5)
        before = await world.run(key)
        answers = {}
        for session in (MAIN, "agent:main:boss"):
            context = ToolContext(session=session, entry=1, index=0, workspace=tmp_path)
            arguments = {"action": action, "target": "eyes", "message": "because"}
            told = await subagents_tool(world.engine).call(msgspec.json.encode(arguments).decode(), context)
            answers[session] = msgspec.json.decode(told.text)
        assert answers[MAIN] == {
            "status": "forbidden",
            "error": f"{action}: {key} is controlled by another session, not by {MAIN}",
        }
        assert await world.run(key) == before

    Theatre(tmp_path).act(body, {"eyes": works(1, "1. look")})


# ---- send ------------------------------------------------------------------------------------------------------------


@proves("4.send.6", "… which reads no completion")
def test_a_sends_turn_in_a_waiting_period_reads_no_completion_and_the_period_goes_on(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    first, second = scene.begin(o), scene.begin(o)
    scene.wait(o)
    waiting = scene.run(o.session).phase
    scene.finish(first, "one")
    scene.send(o.session, "how far are you?")
    serving = scene.start(o.session)
    assert scene.told(o.session) == []
    scene.finish(serving, "half way")
    assert scene.run(o.session).phase == waiting
    scene.finish(second, "two")
    scene.start(o.session)
    assert scene.told(o.session) == [first.session, second.session]


# ---- yield -----------------------------------------------------------------------------------------------------------


@proves("4.yield.1", "The turn ends cleanly after all results of the step are in")
def test_a_yield_ends_the_turn_only_after_all_results_of_its_step_are_in(office: Office) -> None:
    kit = Kit()
    calls = (use("sessions_yield"), use("slow"), use("quick"))
    model = ScriptedModel(
        cast(worker=in_turn(ScriptedReply("", calls), "done"), child=in_turn(use("long"), "found it"))
    )

    async def body(desk: Desk) -> tuple[list[str], float]:
        key = await desk.spawn("worker")
        await desk.spawn("child", key)
        phases = []
        for at in (4.9, 5.1):
            await desk.sleep_until(at)
            phases.append((await desk.run(key)).phase.name)
        await desk.ended(key)
        return phases, (await desk.outcome(key))[2]

    tools = kit.tool("slow", 5), kit.tool("quick", 1), kit.tool("long", 60), yield_tool()
    phases, ended_at = office.act(body, model, *tools)
    assert phases == ["running", "waiting"]
    assert ended_at == pytest.approx(60, abs=0.1)
    assert kit.done == ["quick", "slow", "long"]
    _, second = asked(model)
    assert [name for name, _, _ in results(second)] == ["sessions_yield", "slow", "quick"]


@proves("4.yield.12", "The model gives `for` (all, any or a number), `deadlineSeconds` and `message`")
@pytest.mark.parametrize(
    ("asked_for", "woken_at", "read"),
    [({"for": "all"}, 60, 2), ({"for": "any"}, 10, 1), ({"for": 2}, 60, 2), ({"for": 2, "deadlineSeconds": 30}, 33, 1)],
)
def test_a_model_says_for_how_many_it_yields_and_for_how_long(
    office: Office, asked_for: dict[str, Any], woken_at: float, read: int
) -> None:
    def boss(request: Request) -> Answer:
        match said(request):
            case 0:
                return use("look")
            case 1:
                return use("sessions_yield", **asked_for)
            case _:
                return "done"

    model = ScriptedModel(cast(worker=boss, quick=in_turn(use("ten"), "q"), slow=in_turn(use("sixty"), "s")))

    async def body(desk: Desk) -> tuple[float, int]:
        key = await desk.spawn("worker")
        await desk.sleep_until(0.001)
        for label in ("quick", "slow"):
            await desk.spawn(label, key)
        await desk.until(lambda tx: tx.runs.load(key).wakes == 1)
        at = desk.at()
        await desk.clock.sleep(1)
        return at, len(await desk.all_told(key))

    kit = Kit()
    tools = (kit.tool("look", 3), kit.tool("ten", 10), kit.tool("sixty", 60), yield_tool())
    at, told = office.act(body, model, *tools)
    assert at == pytest.approx(woken_at, abs=0.1)
    assert told == read


@proves("4.yield.9")
def test_a_yields_deadline_brings_what_has_come_so_far_and_says_nothing_of_the_rest(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    first, second = scene.begin(o, stuck_after_s=1e6), scene.begin(o, stuck_after_s=1e6)
    scene.wait(o)
    scene.finish(first, "one")
    scene.pass_time(1800.0)
    scene.start(o.session)
    assert scene.told(o.session) == [first.session]
    assert scene.phase(second.session) == "running"


# ---- stuck -----------------------------------------------------------------------------------------------------------


def waits_for_a_child(scene: Scene) -> str:
    o = scene.orchestrator(stuck_after_s=30.0)
    scene.begin(o, stuck_after_s=1e6)
    scene.wait(o)
    return o.session


def waits_for_an_answer(scene: Scene) -> str:
    o = scene.orchestrator(stuck_after_s=30.0, plan=True)
    scene.finish(o, "1. look")
    scene.read_main()
    return o.session


def waits_for_a_slot(scene: Scene) -> str:
    main = scene.main()
    for _ in range(2):
        scene.begin(main, stuck_after_s=1e6)
    key = scene.spawn(main, stuck_after_s=30.0)
    scene.finish(main, "under way")
    return key


@proves("4.sight.4", "A run that waits or awaits an approval is not stuck")
@pytest.mark.parametrize("waits", [waits_for_a_child, waits_for_an_answer, waits_for_a_slot])
def test_a_run_that_waits_is_not_stuck(scene: Scene, waits: Any) -> None:
    key = waits(scene)
    phase = scene.phase(key)
    scene.pass_time(1000.0)
    assert scene.phase(key) == phase
    assert scene.unread(MAIN) == []
