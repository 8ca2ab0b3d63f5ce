"""Slash commands: how a line is read, and what each does on a real engine."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.cli.commands import PLAIN, SUBAGENTS, Command, complete, parse, run_command, status_line
from fledge.errors import BadInput
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, Reply, last_text, use
from fledge.testing import ScriptedModel
from fledge.tools.base import tool
from tests.api.scene import Place

MAIN = "agent:main:main"
Say = Callable[[str], Awaitable[str]]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/subagents", Command("subagents list")),
        ("  /subagents   LIST ", Command("subagents list")),
        ("/subagents kill #2", Command("subagents kill", "#2")),
        ("/subagents stop all", Command("subagents kill", "all")),
        ("/subagents log last 5 tools", Command("subagents log", "last", "5 tools")),
        ('/subagents steer "my label" go left', Command("subagents steer", "my label", "go left")),
        ("/subagents send 1 two\nlines", Command("subagents send", "1", "two\nlines")),
        ("/subagents spawn main look around", Command("subagents spawn", "main", "look around")),
        ("/subagents undelivered retry x", Command("subagents undelivered", "", "retry x")),
        ("/kill 1", Command("kill", "1")),
        ("/tell 1 hello", Command("tell", "1", "hello")),
        ("/stop", Command("stop")),
        ("/allow 1a2b", Command("allow", "", "1a2b")),
        ("/focus last", Command("focus", "last")),
    ],
)
def test_a_line_is_read(line: str, command: Command) -> None:
    assert parse(line) == command


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/subagent", "did you mean subagents?"),
        ("/zzz", "there are subagents"),
        ("/subagents kil 1", "did you mean kill?"),
        ("/subagents kill", "target: must be named: /subagents kill <id|#|all>"),
        ("/steer 1", "message: must not be empty"),
        ("/subagents reject 1", "reason: must not be empty"),
        ("/subagents spawn main", "task: must not be empty"),
        ("/" + "x" * 200_000, "at most"),
    ],
)
def test_a_line_that_makes_no_sense_says_what_would(line: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(line)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/", [f"/{name}" for name in PLAIN]),
        ("/st", ["/steer", "/stop", "/status"]),
        ("/subagents ", list(SUBAGENTS)),
        ("/subagents s", ["send", "steer", "spawn"]),
        ("/subagents undelivered r", ["retry"]),
        ("/steer 1 ", []),
        ("hello", []),
        ("/st\n", []),
    ],
)
def test_what_is_being_typed_is_completed(typed: str, offered: list[str]) -> None:
    assert [word for word, _ in complete(typed)] == offered


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
    return Reply(f"did: {words[-40:]}")


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


async def until_ended(fl: fledge.Fledge, label: str) -> None:
    (run,) = [run for run in await fl.runs(requester=MAIN) if run.label == label]
    await (await fl.run(run.run_id)).result()
    await fl.session("main").settled()


def test_subagents_are_spawned_listed_sent_to_and_told_of(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        assert await say("/subagents list") == "Subagents (current session)\nActive: 0 · Done: 0"
        assert (await say("/subagents spawn main look around")).startswith("accepted: agent:main:subagent:")
        await until_ended(fl, "look around")
        await say("/subagents spawn main wait for ever")
        listed = (await say("/subagents list")).splitlines()
        assert listed[:2] == ["Subagents (current session)", "Active: 1 · Done: 1"]
        assert listed[2].startswith("1) queued · wait for ever")
        assert listed[3].startswith("2) done · look around · 0s · run ")
        assert "└─ wait for ever" in await say("/subagents tree")
        assert "task      look around" in await say("/subagents info look")
        assert "assistant: did: look around" in await say('/subagents log "look around" 3 tools')
        assert "did: more" in await say("/subagents send 2 more")
        assert "reads it at its next step" in await say("/tell 1 more")
        assert "nothing of it is undelivered" in await say("/subagents undelivered retry look")
        assert await say("/subagents undelivered") == "nothing is undelivered"
        assert "ambiguous" not in await say("/subagents info last")
        assert "no subagent" in await say("/subagents info nobody")
        assert "takes a number" in await say("/subagents log 1 lots")

    play(place, body)


def test_subagents_are_steered_and_killed_with_exact_refusals(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        assert (await say("/steer 1 for ever, but left")).startswith("steered: attempt 2")
        assert "wait 2 s between steers" in await say("/steer 1 right")
        assert "at most 4000" in await say("/steer 1 " + "x" * 4001)
        await asyncio.sleep(1)
        done = await say("/kill 1")
        assert done.startswith("killed ")
        await asyncio.sleep(6)
        assert "nothing to steer" in await say("/steer 1 again")
        assert "has ended" in await say("/kill 1")
        assert await say("/subagents kill all") == "nothing is running"
        await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        assert (await say("/subagents stop all")).startswith("killed ")
        await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        assert (await say("/stop")).startswith("stopped")
        await asyncio.sleep(6)
        assert all(run.ended_at is not None for run in await fl.runs(requester=MAIN))

    play(place, body)


def test_a_plan_is_answered_by_its_person(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        from fledge.orchestrator.asked import Caller, SpawnParams

        await fl.spawner.spawn(SpawnParams(task="make a plan", label="planner", plan_mode=True), Caller(session=MAIN))
        await asyncio.sleep(1)
        assert "[PLAN:AWAITING APPROVAL]" in await say("/subagents list")
        assert (await say("/subagents reject planner too short")).startswith("rejected: it plans again")
        await asyncio.sleep(5)
        assert (await say("/subagents approve planner")).startswith("approved: it carries the plan out now")
        assert "no plan awaits an answer" in await say("/subagents approve planner")
        await until_ended(fl, "planner")
        assert "[PLAN:APPROVED]" in await say("/subagents list")

    play(place, body)


def test_a_tool_call_is_allowed_or_denied_by_its_person(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        assert await say("/approvals") == "nothing waits for you"
        assert "not among those that wait" in await say("/allow")
        await fl.session("main").send("push it")
        (asked,) = await fl.approvals()
        assert f"waits for approval {asked.id[:8]}: push" in await say("/approvals")
        assert "not among those that wait" in await say("/allow zzz")
        assert await say(f"/allow {asked.id[:8]}") == "push may be run, this once"
        await fl.session("main").settled()
        await fl.session("main").send("push it")
        assert await say("/deny") == "push is not run; the model is told so"
        await fl.session("main").settled()
        said = [message.text for message in await fl.session("main").history()]
        assert "done: pushed" in said
        assert any("refused by the person" in text for text in said)

    play(place, body)


def test_status_agents_focus_and_help_answer(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        shown = await say("/status")
        assert "agent:main:main · idle" in shown
        assert "subagents: 0 active, 0 done · queue collect" in shown
        assert (await say("/agents")).splitlines()[0].startswith("main")
        assert "not bound to a thread" in await say("/focus last")
        assert "not bound to a thread" in await say("/unfocus")
        assert "/subagents <command>" in await say("/help")
        assert "/subagents steer <id|#> <message>" in await say("/subagents help")
        assert not (await run_command(fl, MAIN, "/nothing")).ok

    play(place, body)


def test_the_line_of_what_goes_on_names_the_first_few(place: Place) -> None:
    async def body(fl: fledge.Fledge, say: Say) -> None:
        async def look() -> str:
            return await fl.engine.store.read(lambda tx: status_line(tx, MAIN, fl.engine.clock.now()))

        assert await look() == ""
        for _ in range(5):
            await say("/subagents spawn main wait for ever")
        await asyncio.sleep(1)
        line = await look()
        assert line.count("wait for ever running") == 4
        assert line.endswith("and 1 more")

    play(place, body)
