"""Directing subagents with models that think, through the Python API: plans from end to end, and stops."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.core.transcript import Resulted, Spoken, Told, from_body
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, ModelScript, last_text, use
from fledge.testing import ScriptedModel
from fledge.tools.base import tool
from tests.api.scene import Place
from tests.commands.slashing import run_command
from tests.statements import proves

MAIN = "agent:main:main"


@tool
async def push(word: str = "") -> str:
    """Push: it changes the world."""
    return f"pushed {word}"


def child_of(request: Request) -> bool:
    return "# Subagent Context" in request.system


def planner(request: Request) -> Answer:
    """Plans while that is all it may do, counting what was rejected; then pushes and says so."""
    words = last_text(request)
    if "## Plan mode" in request.system:
        assert "push" not in [spec.name for spec in request.tools], "a planner changes nothing"
        return f"1. push\nSUMMARY: plan after {words[:30]!r}"
    if isinstance(request.messages[-1], ToolMessage):
        return f"{request.messages[-1].text}\nSUMMARY: it is pushed"
    return use("push", word="it") if words.startswith("APPROVED") else f"heard {words}"


def boss(answer: str) -> ModelScript:
    """Starts a planner when told to go, answers its first plan as given and later ones with yes, tells the rest."""
    answered: list[str] = []

    def script(request: Request) -> Answer:
        if child_of(request):
            return planner(request)
        words = last_text(request)
        if words == "go":
            return use("sessions_spawn", task="push it", label="planner", planMode=True)
        ready = re.search(r'To approve: sessions_send sessionKey="([^"]+)"', words)
        if ready is not None:
            answered.append(words)
            message = answer if len(answered) == 1 else "APPROVED: proceed"
            return use("sessions_send", sessionKey=ready[1], message=message)
        return "NO_REPLY" if isinstance(request.messages[-1], ToolMessage) else f"told: {words}"

    return script


def transcript(tx: Any, session: str, *kinds: type) -> list[str]:
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(session)]
    return [body.text for body in bodies if isinstance(body, kinds)]


@proves("3.plan.18")
@pytest.mark.parametrize(("answer", "plans"), [("APPROVED: proceed", 1), ("REJECTED: be brief", 2)])
def test_a_model_answers_a_plan_as_the_plan_says_and_it_is_carried_out(tmp_path: Path, answer: str, plans: int) -> None:
    async def act(fl: fledge.Fledge) -> None:
        await fl.session("main").send("go")
        await fl.session("main").settled()
        await fl.engine.clock.wait_until(fl.engine.clock.now() + 60, asyncio.Event())
        (run,) = await fl.runs(requester=MAIN)
        assert (run.status, run.plan, run.attempt) == ("ok", "approved", plans + 1)
        spoken = await fl.engine.store.read(lambda tx: transcript(tx, run.session_key, Spoken))
        rejected = [answer] if plans == 2 else []
        assert spoken == ["push it", *rejected, "APPROVED: proceed"]
        assert await fl.engine.store.read(lambda tx: transcript(tx, run.session_key, Resulted)) == ["pushed it"]
        told = await fl.engine.store.read(lambda tx: transcript(tx, MAIN, Told))
        assert sum("[PLAN READY]" in text for text in told) == plans
        assert sum("completed successfully" in text for text in told) == 1
        listed = (await run_command(fl, MAIN, "/subagents list")).text
        assert "done [PLAN:APPROVED] · planner" in listed

    Place(tmp_path).act(act, ScriptedModel(boss(answer)), tools=[push])


def test_a_plan_that_nobody_answers_expires_and_that_is_told(tmp_path: Path) -> None:
    def script(request: Request) -> Answer:
        if child_of(request):
            return planner(request)
        words = last_text(request)
        if words == "go":
            return use("sessions_spawn", task="push it", label="planner", planMode=True)
        return "noted"

    async def act(fl: fledge.Fledge) -> None:
        await fl.session("main").send("go")
        await fl.engine.clock.wait_until(fl.engine.clock.now() + 60, asyncio.Event())
        assert (
            "awaiting approval [PLAN:AWAITING APPROVAL] · planner" in (await run_command(fl, MAIN, "/subagents")).text
        )
        await fl.engine.clock.wait_until(fl.engine.clock.now() + 3600, asyncio.Event())
        told = await fl.engine.store.read(lambda tx: transcript(tx, MAIN, Told))
        assert len(told) == 2
        assert told[1].startswith('[PLAN EXPIRED] "planner" plan was not answered in time, nothing was done')
        late = await run_command(fl, MAIN, "/subagents approve planner")
        assert (late.ok, "no plan awaits an answer" in late.text) == (False, True)

    Place(tmp_path).act(act, ScriptedModel(script), tools=[push], config={"plan": {"approvalHours": 1}})


def test_stop_ends_the_turn_and_the_tree_and_the_conversation_goes_on_with_the_next_message(tmp_path: Path) -> None:
    async def script(request: Request) -> Answer:
        words = last_text(request)
        if child_of(request):
            await asyncio.sleep(1000)
        if words == "go":
            return use("sessions_spawn", task="work", label="eyes")
        if isinstance(request.messages[-1], ToolMessage):
            await asyncio.sleep(1000)
        return f"echo {words}"

    async def act(fl: fledge.Fledge) -> None:
        await fl.session("main").post("go")
        await fl.engine.clock.wait_until(fl.engine.clock.now() + 5, asyncio.Event())
        stopped = await run_command(fl, MAIN, "/stop")
        assert (stopped.ok, stopped.text) == (True, "stopped; killed: eyes")
        (run,) = await fl.runs(requester=MAIN)
        assert run.status == "killed"
        assert (await fl.session("main").send("hello")).text == "echo hello"
        assert await fl.engine.store.read(lambda tx: transcript(tx, MAIN, Told)) == [], "a kill is silent"

    Place(tmp_path).act(act, ScriptedModel(script))
