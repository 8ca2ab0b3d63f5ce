"""A request whose turn yields: it is pending until the turn that answers it ends, whatever happens in between."""

import asyncio
from pathlib import Path

import pytest

import fledge
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.testing import ScriptedModel, use
from tests.api.scene import Place
from tests.statements import proves


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def script(request: Request) -> Answer:
    """Main delegates and yields; children take as many seconds as their task says, `Wait for me` for ever."""
    words = last_text(request)
    if "Subagent Context" in request.system:
        if words == "Wait for me":
            await asyncio.Event().wait()
        await asyncio.sleep(float(words))
        return "NO_REPLY" if float(words) == 7 else f"answer at {words}"
    if words.startswith("Delegate "):
        tasks = words.removeprefix("Delegate ").split(", ")
        return ScriptedReply("", (*(use("sessions_spawn", task=task) for task in tasks), use("sessions_yield")))
    return f"heard: {words.splitlines()[0]}"


MODEL = ScriptedModel(script)


@proves("4.gateway.15", "A request whose turn yields is pending until the turn that answers it ends")
def test_a_request_whose_turn_yields_is_pending_until_the_results_are_answered(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await chat.send("Delegate 10", timeout=5)
        assert first.status == "pending"
        assert (await fl.agent_wait(first.run_id, timeout_ms=0)).status == "pending"
        reply = await chat.reply(first.run_id)
        assert (reply.status, reply.text) == ("ok", 'heard: [Subagent] "10" completed successfully')
        assert (await fl.agent_wait(first.run_id)).status == "ok"
        assert (await chat.send("Delegate 1")).text == 'heard: [Subagent] "1" completed successfully'

    place.act(body, MODEL)


@proves("4.gateway.15")
def test_what_is_said_in_between_is_answered_by_itself_and_the_request_stays_pending(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await chat.post("Delegate 10")
        await asyncio.sleep(5)
        assert (await chat.send("Hello")).text == "heard: Hello"
        assert (await fl.agent_wait(first, timeout_ms=0)).status == "pending"
        assert (await chat.reply(first)).text == 'heard: [Subagent] "10" completed successfully'

    place.act(body, MODEL)


@proves("4.gateway.15")
def test_a_request_that_is_yielded_again_is_still_pending(place: Place) -> None:
    async def twice(request: Request) -> Answer:
        words = last_text(request)
        if "Subagent Context" not in request.system and words.startswith("[Subagent]") and '"10"' in words:
            return ScriptedReply("", (use("sessions_yield"),))
        if words == "Delegate two":
            spawns = (use("sessions_spawn", task=task) for task in ("10", "20"))
            return ScriptedReply("", (*spawns, use("sessions_yield", **{"for": "any"})))
        return await script(request)

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await chat.post("Delegate two")
        await asyncio.sleep(15)
        assert (await fl.agent_wait(first, timeout_ms=0)).status == "pending"
        assert (await chat.reply(first)).text == 'heard: [Subagent] "20" completed successfully'

    place.act(body, ScriptedModel(twice))


@proves("4.yield.13", "A conversation that yielded is woken when its last child settles with nothing to read")
@pytest.mark.parametrize("ends", ["silently", "by a kill"])
def test_a_conversation_whose_children_have_nothing_to_tell_is_woken_and_answers(place: Place, ends: str) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await chat.post("Delegate 7" if ends == "silently" else "Delegate Wait for me")
        await asyncio.sleep(5)
        if ends == "by a kill":
            (child,) = await fl.runs(requester="main")
            await (await fl.run(child.run_id)).kill()
        reply = await chat.reply(first)
        assert reply.ok
        assert reply.text.startswith("heard: What you waited for is here.")
        assert await chat.settled(timeout=60)

    place.act(body, MODEL)


@proves("4.gateway.15")
def test_a_stop_answers_a_request_that_yielded(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await chat.post("Delegate Wait for me")
        await asyncio.sleep(5)
        await chat.stop()
        reply = await chat.reply(first, timeout=0)
        assert (reply.status, reply.error) == ("stopped", "stopped")
        await asyncio.sleep(60)
        assert [message.text for message in await chat.history() if message.role == "user"] == ["Delegate Wait for me"]

    place.act(body, MODEL)


@proves("4.gateway.15")
def test_the_time_of_a_request_that_yielded_runs_out_and_nothing_else_is_stopped(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        first = await fl.agent("Delegate 20", timeout_seconds=10)
        await asyncio.sleep(9)
        other = await chat.post("wait 5")
        done = await fl.agent_wait(first.run_id, timeout_ms=60_000)
        assert (done.status, done.ended_at) == ("timeout", place.now + 10)
        assert (await chat.reply(other)).text == "heard: wait 5"
        assert await chat.settled(timeout=60)
        assert (await chat.history())[-1].text == 'heard: [Subagent] "20" completed successfully'

    async def slow(request: Request) -> Answer:
        if last_text(request) == "wait 5":
            await asyncio.sleep(5)
        return await script(request)

    place.act(body, ScriptedModel(slow))


def test_wishes_hold_for_the_turn_that_answers_and_not_for_those_in_between(place: Place) -> None:
    systems: dict[str, str] = {}

    async def noting(request: Request) -> Answer:
        systems[last_text(request).splitlines()[0]] = request.system
        return await script(request)

    async def body(fl: fledge.Fledge) -> None:
        first = await fl.agent("Delegate 10", extra_system_prompt="Talk like a pirate.")
        await asyncio.sleep(5)
        await fl.session("main").send("Hello")
        await fl.agent_wait(first.run_id)
        pirate = {words: "pirate" in system for words, system in systems.items() if words != "10"}
        assert pirate == {"Delegate 10": True, "Hello": False, '[Subagent] "10" completed successfully': True}

    place.act(body, ScriptedModel(noting))


@proves("4.gateway.15")
def test_a_request_that_yielded_is_answered_after_a_restart(place: Place) -> None:
    async def before(fl: fledge.Fledge) -> str:
        run_id = await fl.session("main").post("Delegate 10")
        await asyncio.sleep(5)
        return run_id

    run_id = place.act(before, MODEL)

    async def after(fl: fledge.Fledge) -> None:
        assert (await fl.session("main").reply(run_id)).text == 'heard: [Subagent] "10" completed successfully'

    place.act(after, MODEL)


@proves("4.gateway.15")
def test_a_message_to_a_run_that_yields_is_pending_until_the_run_has_its_results(place: Place) -> None:
    async def nested(request: Request) -> Answer:
        words = last_text(request)
        if words == "orchestrate":
            await asyncio.sleep(3)
            return ScriptedReply("", (use("sessions_spawn", task="10"),))
        if words == "Hurry":
            return ScriptedReply("", (use("sessions_yield"),))
        if words.startswith("What you waited for"):
            return "all done"
        if words == "And?":
            return "still waiting"
        return await script(request)

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("orchestrate")
        await asyncio.sleep(1)
        asked = await fl.session(run.session_key).post("Hurry")
        await asyncio.sleep(5)
        assert (await fl.agent_wait(asked, timeout_ms=0)).status == "pending"
        aside = await fl.session(run.session_key).send("And?")
        assert (aside.status, aside.text) == ("ok", "still waiting")
        assert (await fl.agent_wait(asked, timeout_ms=0)).status == "pending"
        waited = await fl.agent_wait(asked)
        assert (waited.status, (await run).text) == ("ok", "all done")

    config = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}
    place.act(body, ScriptedModel(nested), config=config)


def test_a_session_that_asks_another_gets_the_answer_of_the_turn_that_follows_a_yield(place: Place) -> None:
    async def other(request: Request) -> Answer:
        words = last_text(request)
        if words == "Ask":
            send = use("sessions_send", sessionKey="agent:main:other", message="Delegate 10", timeoutSeconds=60)
            return ScriptedReply("", (send,))
        if words.startswith("[Agent to agent]"):
            if "Delegate 10" in words:
                return ScriptedReply("", (use("sessions_spawn", task="10"), use("sessions_yield")))
            return "REPLY_SKIP" if "turn" in words else "ANNOUNCE_SKIP"
        return await script(request)

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("other").send("Hi")
        reply = await fl.session("main").send("Ask")
        assert '"reply":"heard: [Subagent] \\"10\\" completed successfully"' in reply.text.replace("\\\\", "\\")

    config = {"tools": {"agentToAgent": {"enabled": True}, "sessions": {"visibility": "all"}}}
    place.act(body, ScriptedModel(other), config=config)
