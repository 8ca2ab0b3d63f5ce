"""Slash commands through the Python API, with an agent that thinks: what a person at a chat sees."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.commands.gateway_state import GatewayState
from fledge.commands.looking import rest
from fledge.commands.methods import call
from fledge.commands.orders import COMPACTED
from fledge.commands.params import InSession
from fledge.commands.queries import sessions_below
from fledge.commands.table import Moment
from fledge.commands.values import Below
from fledge.models.base import Broke, Request, ToolMessage
from fledge.models.scripted import Answer, ScriptedReply, last_text, use
from fledge.runtime.context import COMPACT_PROMPT
from fledge.store.base import Tx
from fledge.testing import ScriptedModel
from fledge.tools.base import tool
from tests.api.scene import Place
from tests.commands.slashing import run_command
from tests.statements import proves

MAIN = "agent:main:main"
Say = Callable[[str], Awaitable[str]]


# ---- doing -----------------------------------------------------------------------------------------------------------


async def world(request: Request) -> Answer:
    """Children wait as long as they are told; `push` needs a person; the main agent only notes what it hears."""
    words = last_text(request)
    if isinstance(request.messages[-1], ToolMessage):
        return f"done: {words}"
    if "# Subagent Context" not in request.system:
        return use("push") if words == "push it" else "noted"
    if "for ever" in words:
        await asyncio.Event().wait()
    if "take time" in words:
        await asyncio.sleep(100)
    return ScriptedReply(f"did: {words[-40:]}")


@tool
async def push() -> str:
    """Push."""
    return "pushed"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def play(place: Place, body: Callable[[fledge.Fledge, Say], Awaitable[None]], **options: Any) -> None:
    async def acting(fl: fledge.Fledge) -> None:
        await fl.session("main").send("hello")

        async def say(line: str) -> str:
            return (await run_command(fl, MAIN, line)).text

        await body(fl, say)

    config = {"tools": {"push": {"approval": "ask"}}, **options}
    place.act(acting, ScriptedModel(world), tools=[push], config=config)


async def below(fl: fledge.Fledge) -> Below:
    """What goes on in the main conversation and below it."""
    return await fl.engine.store.read(lambda tx: sessions_below(Moment(tx, fl.engine.clock.now(), True), InSession()))


async def until_ended(fl: fledge.Fledge, label: str) -> None:
    (run,) = [run for run in await fl.runs(requester=MAIN) if run.label == label]
    await (await fl.run(run.run_id)).result()
    await fl.session("main").settled()


@proves("4.tools.12", "`/subagents list`")
@proves("4.tools.14", "`/subagents log <id|#> [n] [tools]`")
@proves("4.tools.15", "`/subagents info`")
@proves("4.tools.16", "`/subagents send`")
@proves("4.tools.18", "`/subagents spawn <agent> <task>`")
@proves("4.tools.20", "`/subagents tree`")
@proves("4.tools.21", "`/subagents undelivered [retry|dismiss]`")
@proves("4.tools.23")
def test_subagents_are_spawned_listed_sent_to_and_told_of(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        assert await say("/subagents list") == "Subagents (current session)\nActive: 0 · Done: 0"
        assert (await say("/subagents spawn main look around")).startswith("started look around · run ")
        await until_ended(fl, "look around")
        await say("/subagents spawn main wait for ever")
        listed = (await say("/subagents list")).splitlines()
        assert listed[:2] == ["Subagents (current session)", "Active: 1 · Done: 1"]
        assert listed[2].startswith("2) queued · wait for ever")
        assert listed[3].startswith("1) done · look around · 0s · run ")
        assert "└─ #2 wait for ever" in await say("/subagents tree")
        assert "task      look around" in await say("/subagents info look")
        assert "assistant: did: look around" in await say('/subagents log "look around" 3 tools')
        assert "did: more" in await say("/subagents send 1 more")
        assert "it is read at the next step" in await say("/tell 2 more")
        assert "nothing of it is undelivered" in await say("/subagents undelivered retry look")
        assert await say("/subagents undelivered") == "nothing is undelivered"
        assert "ambiguous" not in await say("/subagents info last")
        assert "no subagent" in await say("/subagents info nobody")
        assert "no subagent '1 lots'" in await say("/subagents log 1 lots")

    play(place, body)


@proves("4.resume.1")
@proves("4.resume.10", "Again starts a new run with the task and the parameters of an earlier one")
def test_a_killed_subagent_is_resumed_and_another_is_started_like_it(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        assert "wait for ever is running and has not ended: steer it, or send it a message" in await say(
            "/subagents resume 1"
        )
        await say("/kill 1")
        assert (await say("/subagents resume 1 a little longer")).startswith("resumed wait for ever: attempt 2 · run ")
        await until_ended(fl, "wait for ever")
        (run,) = await fl.runs(requester=MAIN)
        assert (run.status, run.attempt) == ("ok", 2)
        told = await fl.session("main").history()
        assert sum("a little longer" in message.text for message in told if message.role == "event") == 1
        assert "has ended (ok): send it a message, or run it again" in await say("/subagents resume 1")
        assert (await say("/subagents again 1")).startswith("started wait for ever · run ")
        first, second = await fl.runs(requester=MAIN)
        assert (second.task, second.label, second.status) == (first.task, first.label, "queued")
        assert "write it like this: /subagents again <id|#>" in await say("/subagents again")

    play(place, body)


@proves("4.tools.13", "`/subagents kill <id|#|all>`, alias stop")
@proves("4.tools.17", "`/subagents steer`")
@proves("4.tools.23", "`/kill /steer /tell /stop /status /agents`")
def test_subagents_are_steered_and_killed_with_exact_refusals(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        assert (await say("/steer 1 for ever, but left")).startswith("steered wait for ever: attempt 2")
        assert "wait 2 s between steers" in await say("/steer 1 right")
        assert "at most 4000" in await say("/steer 1 " + "x" * 4001)
        await asyncio.sleep(1)
        done = await say("/kill 1")
        assert done == "killed: wait for ever"
        assert "nothing to steer" in await say("/steer 1 again")
        assert "has ended" in await say("/kill 1")
        assert await say("/subagents kill all") == "nothing was running"
        await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        assert await say("/subagents stop all") == "killed: wait for ever"
        await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        assert await say("/stop") == "stopped; killed: wait for ever"
        assert all(run.ended_at is not None for run in await fl.runs(requester=MAIN))

    play(place, body)


@proves("3.plan.8", "… by `/subagents approve`")
@proves("4.tools.19", "`/subagents approve` and `reject`")
def test_a_plan_is_answered_by_its_person(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        from fledge.orchestrator.spawn_params import Caller, SpawnParams

        await fl.spawner.spawn(SpawnParams(task="make a plan", label="planner", plan_mode=True), Caller(session=MAIN))
        await asyncio.sleep(1)
        assert "[PLAN:AWAITING APPROVAL]" in await say("/subagents list")
        assert await say("/subagents reject planner too short") == "rejected the plan of planner: attempt 2"
        await asyncio.sleep(5)
        assert await say("/subagents approve planner") == "approved the plan of planner: attempt 3"
        seen = await below(fl)
        assert [child.state for child in seen.children] == ["queued"]  # where the plan stands is not its work
        assert "no plan awaits an answer" in await say("/subagents approve planner")
        await until_ended(fl, "planner")
        assert "[PLAN:APPROVED]" in await say("/subagents list")

    play(place, body)


def test_a_tool_call_is_allowed_or_denied_by_its_person(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        assert await say("/approvals") == "nothing waits for you"
        assert "no question is waiting" in await say("/allow")
        await fl.session("main").send("push it")
        (asked,) = await fl.approvals()
        assert (await say("/approvals")).startswith(f"{asked.id[:8]}  push {{}}  for {MAIN}")
        assert "no question is named 'zzz'" in await say("/allow zzz")
        assert await say(f"/allow {asked.id[:8]}") == f"allowed: push for {MAIN}"
        await fl.session("main").settled()
        await fl.session("main").send("push it")
        assert await say("/deny") == f"denied: push for {MAIN}"
        await fl.session("main").settled()
        said = [message.text for message in await fl.session("main").history()]
        assert "done: pushed" in said
        assert any("refused by the person" in text for text in said)

    play(place, body)


@proves("4.tools.58", "`/compact` lets the model go on from notes of what was said so far")
def test_a_conversation_is_summarised_when_its_person_wants_it(place: Place) -> None:
    model = ScriptedModel(world)

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("remember the cat")
        told = (await run_command(fl, MAIN, "/compact and the dog")).text
        assert told == "the conversation so far is summarised before the next answer"
        await fl.session("main").settled()
        await fl.session("main").send("go on")

    place.act(body, model)
    assert [last_text(request) for request in model.requests[-3:]] == [
        COMPACT_PROMPT,
        f"{COMPACTED} and the dog",
        "go on",
    ]
    summarised, *later = ["remember the cat" in str(request.messages[0]) for request in model.requests[-3:]]
    assert (summarised, later) == (True, [False, False])


@proves("4.gateway.41", "Only a person is awaited while nothing is driven, and nothing that is queued can be")
def test_what_is_about_to_be_driven_is_not_left_for_a_question(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        await fl.session("main").send("push it")
        engine = fl.engine

        def stands(tx: Tx) -> int:
            return len(rest(tx, MAIN, True, engine.rules, 0.0, engine.clock.now()).questions)

        def with_one_queued(tx: Tx) -> tuple[int, int, int]:
            before = stands(tx)
            tx.queue.put(MAIN, "main", MAIN, False)
            queued = stands(tx)
            tx.queue.remove(MAIN)
            return before, queued, stands(tx)

        assert await engine.store.transact(with_one_queued) == (1, 0, 1)

    play(place, body)


@proves("4.tools.22", "`/subagents help`")
@proves("4.tools.23")
def test_status_agents_focus_and_help_answer(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        shown = await say("/status")
        assert "agent:main:main · idle" in shown
        assert "subagents" not in shown
        assert (await say("/agents")).splitlines()[1].startswith("  main")
        await say("/subagents spawn main look around")
        assert "subagents 1 active · 0 done" in await say("/status")
        assert "you speak from no place that could be bound" in await say("/focus last")
        assert "nothing is bound here" in await say("/unfocus")
        assert "/stop" in await say("/help")
        assert "/subagents steer <id|#> <message>" in await say("/subagents help")
        assert not (await run_command(fl, MAIN, "/nothing")).ok

    play(place, body)


@proves("3.limits.33")
@proves("3.limits.31", "A person's spawn inside a conversation keeps the ceiling of that conversation")
def test_a_person_may_spawn_every_agent_within_the_ceiling_of_the_conversation(place: Place) -> None:
    seen: dict[str, set[str]] = {}

    async def body(fl: fledge.Fledge, say: Say) -> None:
        assert "critic · finds faults" in await say("/agents")
        assert (await say("/subagents spawn critic look hard")).startswith("started look hard · run ")
        await until_ended(fl, "look hard")
        (child,) = await fl.runs(requester=MAIN)
        key = child.session_key
        ran = await fl.engine.store.read(lambda tx: tx.turns.last_ran(key))
        assert ran is not None
        seen["tools"] = set(ran.tools)

    own = {"id": "main", "tools": {"deny": ["write"]}}
    play(place, body, agents={"list": [own, {"id": "critic", "description": "finds faults"}]})
    assert "read" in seen["tools"]
    assert "write" not in seen["tools"]


def test_what_goes_on_below_a_conversation_names_every_subagent_at_work(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        idle = await below(fl)
        assert (idle.state, idle.opened_at, idle.children) == ("idle", None, ())
        for _ in range(2):
            await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        at_work = await below(fl)
        shown = [(child.label, child.state, child.depth, child.waits) for child in at_work.children]
        assert shown == [("wait for ever", "running", 1, False)] * 2
        assert all(child.started_at is not None and child.started_at < at_work.now_at for child in at_work.children)

    play(place, body)


def test_the_status_of_a_session_that_waits_says_for_how_many_children_and_until_when(place: Place) -> None:
    async def waiting(request: Request) -> Answer:
        match last_text(request):
            case words if "lead" in words:
                tasks = [use("sessions_spawn", task="Wait for me")]
                return ScriptedReply("", (*tasks, use("sessions_yield", deadlineSeconds=600)))
            case "go":
                tasks = [
                    use("sessions_spawn", task=task, label=task.split()[0]) for task in ("lead", "Wait a", "Wait b")
                ]
                return ScriptedReply("", (*tasks, use("sessions_yield", **{"for": 2})))
        await asyncio.Event().wait()
        return ""

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").post("go")
        await asyncio.sleep(5)
        [shown, lead] = [(await run_command(fl, MAIN, line)).text for line in ("/status", "/status lead")]
        assert re.match(r"session   agent:main:main · waits for 2 of 3 children, until \d\d:\d\d\n", shown)
        assert "subagents 3 active · 0 done" in shown
        assert re.search(r"^session .* · waits for 1 of 1 child, until \d\d:\d\d", lead)

    place.act(body, ScriptedModel(waiting), config={"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}})


@proves("2.hops.7")
@proves("4.tools.39", "A turn that cannot answer for half an hour is shown as unanswered wherever its session is shown")
def test_what_is_read_and_cannot_be_answered_is_shown_in_status_info_chat_and_gateway(place: Place) -> None:
    async def down(request: Request) -> Answer:
        if "# Subagent Context" in request.system:
            return "gold"
        return "hello" if last_text(request) == "hello" else Broke("bad_request", "no such model")

    async def body(fl: fledge.Fledge) -> None:
        async def say(line: str) -> str:
            return (await run_command(fl, MAIN, line)).text

        async def unanswered() -> str:
            return (await below(fl)).unanswered

        async def ask(method: str, **params: object) -> Any:
            return await call(GatewayState(fl), method, params)

        await fl.session("main").send("hello")
        await say("/subagents spawn main dig")
        await asyncio.sleep(25 * 60)
        shown = [await say("/status"), await say("/subagents info 1"), await unanswered()]
        assert not any("unanswered" in words for words in shown)
        await asyncio.sleep(10 * 60)
        late = "unanswered for 35 min, tried "
        assert f"turn      {late}" in await say("/status")
        info = await say("/subagents info 1")
        assert f"read      {late}" in info
        assert f"times, by {MAIN}\n" in info
        assert (await unanswered()).startswith(late)
        (row,) = await ask("sessions.list", kinds=["main"])
        assert row["unanswered"].startswith(late)
        (told,) = (await ask("runs.info", target="1"))["unanswered"]
        assert told["session"] == MAIN

    place.act(body, ScriptedModel(down))
