"""Conversations that wait for their subagents: with a condition and a time, and with people who speak meanwhile."""

import asyncio
import re
from pathlib import Path

import pytest

import fledge
from fledge.commands.queries import OverviewOf, overview
from fledge.commands.table import Moment
from fledge.core.policy import MAX_WAKES
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text, use
from fledge.orchestrator import control
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.statements import proves


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def waiting(**terms: object) -> ScriptedModel:
    """Main spawns the children that it is told of and yields like this; they take as many seconds as their task says,
    and main answers with the first words of what it reads, or of each result."""

    async def script(request: Request) -> Answer:
        words = last_text(request)
        if "Subagent Context" in request.system:
            await asyncio.sleep(float(words))
            return f"answer at {words}"
        if words.startswith("Delegate "):
            tasks = words.removeprefix("Delegate ").split(", ")
            return ScriptedReply(
                "", (*(use("sessions_spawn", task=task) for task in tasks), use("sessions_yield", **terms))
            )
        return f"heard: {', '.join(re.findall('answer at [0-9]+', words)) or words.splitlines()[0]}"

    return ScriptedModel(script)


def spoken(history: list[fledge.Message]) -> list[str]:
    return [message.text for message in history if message.role == "assistant" and message.text]


@proves("4.yield.19", "A conversation that yields hears of its children once its condition holds, and not before")
@pytest.mark.parametrize(
    ("terms", "heard"),
    [
        ({}, ["answer at 10, answer at 20, answer at 30"]),
        ({"for": "all"}, ["answer at 10, answer at 20, answer at 30"]),
        ({"for": "any"}, ["answer at 10", "answer at 20", "answer at 30"]),
        ({"for": 2}, ["answer at 10, answer at 20", "answer at 30"]),
        ({"for": 9}, ["answer at 10, answer at 20, answer at 30"]),
    ],
)
def test_a_conversation_reads_results_once_what_it_waits_for_is_there(
    place: Place, terms: dict[str, object], heard: list[str]
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        reply = await chat.send("Delegate 30, 10, 20")
        assert reply.text == f"heard: {heard[0]}"
        assert await chat.settled(timeout=120)
        assert spoken(await chat.history()) == [f"heard: {one}" for one in heard]

    place.act(body, waiting(**terms))


@proves("4.yield.20", "A conversation's wait ends at its deadline, which tells who answered and who is missing")
def test_a_conversation_whose_time_runs_out_is_told_who_is_missing_and_reads_what_there_is(place: Place) -> None:
    model = waiting(deadlineSeconds=60)

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await chat.post("Delegate 10, 600")
        reply = await chat.reply(first)
        assert reply.ok
        assert re.match(r"heard: Time ran out before .* Had answered by then: .* Still missing: ", reply.text)
        assert "answer at 10" in "\n".join(message.text for message in await chat.history())
        assert place.now + 60 <= fl.engine.clock.now() < place.now + 70
        assert await chat.settled(timeout=3600)
        assert spoken(await chat.history())[-1] == "heard: answer at 600"

    place.act(body, model)


@proves("4.yield.21", "Who speaks to a conversation that waits is answered by a turn that reads no result")
def test_messages_are_answered_meanwhile_and_put_neither_condition_nor_deadline_off(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await chat.post("Delegate 10, 47")
        for number in range(9):
            await asyncio.sleep(5)
            assert (await chat.send(f"message {number}")).text == f"heard: message {number}"
            assert (await fl.agent_wait(first, timeout_ms=0)).status == "pending"
        assert (await chat.reply(first)).text == "heard: answer at 10, answer at 47"

    place.act(body, waiting())


@proves("4.yield.21")
def test_a_conversation_that_waits_says_what_for(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await chat.post("Delegate 10, 20, 30")
        await asyncio.sleep(15)
        now = fl.engine.clock.now()
        shown = await fl.engine.store.read(lambda tx: overview(Moment(tx, now, True), OverviewOf(session=chat.key)))
        assert re.fullmatch(r"waits for 2 of 3 children, 29m4\ds at most", shown.state)
        await chat.reply(first)

    place.act(body, waiting())


@proves("4.yield.22", "A stop ends a conversation's wait; what it killed tells nothing, what had come before is read")
def test_a_stop_ends_the_wait(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        await chat.post("Delegate 10, 600")
        await asyncio.sleep(60)
        await chat.stop()
        await asyncio.sleep(3600)
        assert await chat.settled(timeout=1)
        # What had come by then is read, as always after a stop; what was killed tells nothing.
        assert spoken(await chat.history()) == ["heard: answer at 10"]
        assert (await chat.send("And now?")).text == "heard: And now?"

    place.act(body, waiting())


@proves("4.yield.22")
def test_stopping_the_turn_alone_lets_results_come_as_they_end(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        await chat.post("Delegate 20, 40")
        await asyncio.sleep(5)
        await fl.engine.commit(lambda c: control.interrupt(c, chat.key))
        assert await chat.settled(timeout=120)
        assert spoken(await chat.history()) == ["heard: answer at 20", "heard: answer at 40"]

    place.act(body, waiting())


@proves("4.yield.19")
@pytest.mark.parametrize("terms", [{"for": "any"}, {"deadlineSeconds": 30}])
def test_a_wait_outlives_its_process(place: Place, terms: dict[str, object]) -> None:
    model = waiting(**terms)

    async def before(fl: fledge.Fledge) -> str:
        run_id = await fl.session("main").post("Delegate 25, 600")
        await asyncio.sleep(20)
        return run_id

    run_id = place.act(before, model)

    async def after(fl: fledge.Fledge) -> str:
        return (await fl.session("main").reply(run_id)).text

    said = place.act(after, model)
    assert said.startswith("heard: answer at 25" if "for" in terms else "heard: Time ran out")


@proves("4.yield.23", "From the tenth wake in a row on, in which nobody spoke, a conversation's yield is refused")
def test_a_conversation_that_yields_again_and_again_must_answer_in_the_end(place: Place) -> None:
    yields = 0

    async def script(request: Request) -> Answer:
        nonlocal yields
        words = last_text(request)
        if "Subagent Context" in request.system:
            await asyncio.sleep(36_000)
            return "late"
        if "finish with what you have" in words:
            return "I give up"
        yields += 1
        spawn = (use("sessions_spawn", task="long"),) if words == "go" else ()
        return ScriptedReply("", (*spawn, use("sessions_yield", deadlineSeconds=10)))

    async def body(fl: fledge.Fledge) -> str:
        return (await fl.session("main").send("go")).text

    assert place.act(body, ScriptedModel(script)) == "I give up"
    assert yields == MAX_WAKES + 1
