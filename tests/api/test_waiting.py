"""Whole programs whose models wait for subagents, and some that spin: what each model and the person is told."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.core.policy import NOTHING_TO_WAIT_FOR
from fledge.models.base import AssistantMessage, Call, Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, ModelScript, ScriptedReply, use
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.statements import proves

DEEP: dict[str, Any] = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}
TASK = re.compile(r"## Your task\n`+\n(.*)\n")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def who(request: Request) -> str:
    """A child by the first word of its task, or `main`."""
    found = TASK.search(request.system)
    return "main" if found is None else found[1].split()[0]


def cast(**scripts: ModelScript) -> ScriptedModel:
    """A script for each; a child without one answers at once, main with what it was told last."""

    def script(request: Request) -> Any:
        name = who(request)
        return scripts[name](request) if name in scripts else f"answer of {name}"

    return ScriptedModel(script)


def in_turn(*answers: Answer) -> ModelScript:
    """One answer after the other, by how often the model has replied."""
    return lambda request: answers[min(_replies(request), len(answers) - 1)]


def _replies(request: Request) -> int:
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


def child(task: str) -> Call:
    return use("sessions_spawn", task=task, label=task.split()[0])


def after(seconds: float, answer: str) -> ModelScript:
    async def script(request: Request) -> Answer:
        await asyncio.sleep(seconds)
        return answer

    return script


def told(model: ScriptedModel, name: str) -> list[str]:
    """Everything that a model was told in its last request, tool results apart."""
    last = [request for request in model.requests if who(request) == name][-1]
    return [message.text for message in last.messages if isinstance(message, UserMessage)]


def yields(model: ScriptedModel, name: str) -> list[tuple[str, bool]]:
    """The results of a model's yields, and whether each is an error."""
    last = [request for request in model.requests if who(request) == name][-1]
    results = [message for message in last.messages if isinstance(message, ToolMessage)]
    return [(result.text, result.is_error) for result in results if result.name == "sessions_yield"]


async def ask(fl: fledge.Fledge) -> fledge.Reply:
    """Ask main to begin, and wait until nothing is left to do."""
    reply = await fl.session("main").send("go")
    await fl.session("main").settled(timeout=7200)
    return reply


# ---- waiting ---------------------------------------------------------------------------------------------------------


@proves("2.nested.8")
def test_an_orchestrator_hears_of_its_children_in_the_order_in_which_it_made_them(place: Place) -> None:
    model = cast(
        main=in_turn(child("boss: survey"), "under way", "thank you"),
        **{
            "boss:": in_turn(
                ScriptedReply("", (child("first"), child("second"), child("third"), use("sessions_yield"))), "all"
            ),
            "first": after(30, "one"),
            "second": after(20, "two"),
            "third": after(10, "three"),
        },
    )
    place.act(ask, model, config=DEEP)
    (completions,) = [text for text in told(model, "boss:") if "background tasks" in text]
    assert re.findall(r'--- Task (\d): "(\w+)"', completions) == [("1", "first"), ("2", "second"), ("3", "third")]


@proves("4.yield.15")
@proves("2.nested.10")
def test_an_orchestrator_whose_time_ran_out_is_told_who_answered_and_who_is_missing(place: Place) -> None:
    waits = use("sessions_yield", deadlineSeconds=60)
    model = cast(
        main=in_turn(child("boss: survey"), "under way", "thank you"),
        **{
            "boss:": in_turn(ScriptedReply("", (child("slow"), child("quick"), child("quiet"), waits)), "what I have"),
            "slow": after(600, "late"),
            "quiet": after(1, "NO_REPLY"),
        },
    )
    place.act(ask, model, config=DEEP)
    late, wake = (next(text for text in told(model, "boss:") if text.startswith(head)) for head in ("Time", "What"))
    shape = r"Time ran out before what you waited for was here\. Had answered by then: \"quick\" \(\S+\)\. "
    shape += r"Ended without anything to tell: \"quiet\" \(\S+\)\. Still missing: \"slow\" \(\S+\)\."
    assert re.fullmatch(shape, late)
    assert wake == "What you waited for is here.", "who was silent is not named again"


@proves("4.yield.18")
@proves("4.yield.16")
def test_a_conversation_hears_that_it_has_nothing_to_wait_for(place: Place) -> None:
    model = cast(main=in_turn(use("sessions_yield", **{"for": "any"}), use("sessions_yield"), "then I answer"))

    assert place.act(ask, model).text == "then I answer"
    assert yields(model, "main") == [(f"sessions_yield: {NOTHING_TO_WAIT_FOR}.", True)] * 2


@proves("4.send.11")
def test_an_orchestrator_that_is_written_to_all_the_time_is_woken_all_the_same(place: Place) -> None:
    """Each of its turns beside the wait ends with another message unread."""
    model = cast(
        main=in_turn(child("boss: survey"), "under way", "thank you"),
        **{"boss:": talks_slowly, "slow": after(100, "found it")},
    )

    async def body(fl: fledge.Fledge) -> fledge.RunInfo:
        await fl.session("main").send("go")
        (boss,) = await fl.runs(requester=fl.session("main").key)
        handle = await fl.run(boss.session_key)
        for number in range(30):
            await handle.send(f"message {number}")
            await asyncio.sleep(5)
        await fl.session("main").settled(timeout=7200)
        return await handle.info()

    boss = place.act(body, model, config=DEEP)
    assert (boss.status, boss.attempt) == ("ok", 2)
    assert boss.started_at is not None
    assert boss.ended_at is not None
    assert boss.ended_at - boss.started_at < 130


async def talks_slowly(request: Request) -> Answer:
    """Spawns and waits; a message takes it ten seconds, so that another one has come in by then."""
    if not _replies(request):
        return ScriptedReply("", (child("slow"), use("sessions_yield")))
    await asyncio.sleep(10)
    return "SUMMARY: found" if any("found it" in str(message) for message in request.messages) else "half way"


# ---- spinning --------------------------------------------------------------------------------------------------------


@proves("4.progress.8")
def test_a_conversation_that_spins_is_stopped_and_says_why(place: Place) -> None:
    model = cast(main=lambda request: use("session_status"))

    async def body(fl: fledge.Fledge) -> fledge.Reply:
        reply = await fl.session("main").send("go")
        asked = len(model.requests)
        await asyncio.sleep(3600)
        assert len(model.requests) == asked, "the turn is not due again"
        return reply

    config = {"agents": {"defaults": {"maxRepeatedSteps": 40}}}
    reply = place.act(body, model, config=config)
    assert reply.status == "stopped"
    assert reply.error is not None
    assert reply.error.startswith("no progress: 40 steps in a row repeated earlier ones")
    assert len(model.requests) == 41
    assert sum(text.startswith("[Notice] Your last 30 steps") for text in told(model, "main")) == 1


@proves("4.progress.5")
def test_a_child_that_yields_for_ever_ends_and_its_requester_is_told(place: Place) -> None:
    model = cast(
        main=in_turn(child("spinner"), "under way", "it failed"), spinner=lambda request: use("sessions_yield")
    )
    place.act(ask, model)
    (completion,) = [text for text in told(model, "main") if "[Subagent]" in text]
    assert '[Subagent] "spinner" failed: no progress: 100 steps in a row repeated earlier ones' in completion
    assert len([request for request in model.requests if who(request) == "spinner"]) == 101
    assert set(yields(model, "spinner")) == {(f"sessions_yield: {NOTHING_TO_WAIT_FOR}.", True)}


@proves("4.progress.6")
@pytest.mark.parametrize(("most", "steps"), [(3, 3), (0, 12)])
def test_a_limit_of_steps_holds_for_runs_and_none_is_none(place: Place, most: int, steps: int) -> None:
    def works(request: Request) -> Answer:
        return "done" if _replies(request) == 12 else use("agents_list")

    async def body(fl: fledge.Fledge) -> tuple[str, str | None]:
        result = await (await fl.spawn("work"))
        return result.status, result.error

    model = cast(work=works)
    found = place.act(body, model, config={"agents": {"defaults": {"maxSteps": most}}})
    assert found == (("error", f"{steps} of {most} steps: agents.defaults.maxSteps") if most else ("ok", None))
