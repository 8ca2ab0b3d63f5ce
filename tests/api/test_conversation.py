"""Talking from code: answers, failures, questions and silence as values; streams; waiting again after a restart."""

import asyncio
from pathlib import Path

import pytest

import fledge
from fledge.api import views
from fledge.commands.dispatch import call
from fledge.commands.gateway_state import GatewayState
from fledge.core.transcript import Noted, to_body
from fledge.models.base import Broke, Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.store.base import EntryKind
from fledge.testing import ScriptedModel, use
from tests.api.scene import Place, obedient
from tests.runtime.desk import said


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_conversation_remembers_and_others_know_nothing_of_it(place: Place) -> None:
    def counts(request: Request) -> Answer:
        return f"{len(request.messages)} messages"

    async def body(fl: fledge.Fledge) -> None:
        assert (await fl.session("main").send("one")).text == "1 messages"
        assert (await fl.session("agent:main:main").send("two")).text == "3 messages"
        assert (await fl.session("other").send("one")).text == "1 messages"
        history = await fl.session("other").history()
        assert [(m.seq, m.role, m.text, m.kind) for m in history] == [
            (1, "user", "one", "send"),
            (2, "assistant", "1 messages", ""),
        ]

    place.act(body, ScriptedModel(counts))


def test_each_of_several_messages_at_once_gets_an_answer(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        replies = await asyncio.gather(*(chat.send(f"wait {n}") for n in (3, 2, 1)))
        assert [reply.status for reply in replies] == ["ok"] * 3
        assert await chat.settled(timeout=0)

    place.act(body)


def test_silence_is_an_answer_without_words(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        reply = await fl.session("main").send("Anything?")
        assert (reply.status, reply.text) == ("ok", "")

    place.act(body, ScriptedModel(lambda _: "NO_REPLY"))


@pytest.mark.parametrize("after", [0, 1])
def test_history_has_the_newest_entries_of_a_transcript_of_any_length(place: Place, after: int) -> None:
    notes: list[tuple[EntryKind, str]] = [("note", to_body(Noted("from long ago")))] * views.LOOK_BACK

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        await chat.send("one")
        await fl.engine.commit(lambda c: c.tx.transcripts.append(chat.key, c.at, notes))
        await chat.send("two")
        assert [m.text for m in await chat.history(limit=2, after=after)] == ["two", "echo: two"]

    place.act(body)


def test_a_failed_turn_is_a_value_and_its_answer_can_be_waited_for(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        reply = await chat.send("Hello")
        assert (reply.status, reply.ok, reply.error) == ("error", False, "the key is wrong")
        assert (await chat.reply(reply.run_id)).status == "error", "it still stands so"
        assert await chat.settled(timeout=600)
        assert (await chat.reply(reply.run_id)).text == "echo: Hello"

    place.act(body, ScriptedModel(obedient, failures={1: Broke("auth", "the key is wrong")}))


def test_a_wait_that_expires_is_pending_and_the_answer_comes_all_the_same(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        reply = await chat.send("wait 10", timeout=5)
        assert (reply.status, reply.questions) == ("pending", ())
        assert (await chat.reply(reply.run_id, timeout=1)).status == "pending"
        assert (await chat.reply(reply.run_id)).text == "echo: wait 10"

    place.act(body)


@pytest.mark.parametrize("only_the_turn", [True, False])
def test_a_turn_that_is_stopped_while_it_waits_for_a_model_leaves_nothing_to_wait_for(
    place: Place, only_the_turn: bool
) -> None:
    down = Broke("retryable", "HTTP 503: down", 400.0, status=503)

    def answer(request: Request) -> Answer:
        return down if last_text(request) == "one" else "two is answered"

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        assert (await chat.send("one")).status == "error"
        began = fl.engine.clock.now()
        later = await chat.post("two") if only_the_turn else None
        await call(GatewayState(fl), "sessions.stop", {"session": "main", "below": not only_the_turn})
        assert await chat.settled(timeout=30)
        assert fl.engine.clock.now() - began < 10
        if later is not None:
            assert (await chat.reply(later)).text == "two is answered"

    place.act(body, ScriptedModel(answer))


def test_a_stopped_conversation_says_so_to_whoever_waits(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        waiting = asyncio.ensure_future(chat.send("Wait for me"))
        await asyncio.sleep(1)
        await chat.stop()
        reply = await waiting
        assert (reply.status, reply.error) == ("stopped", "stopped")

    place.act(body)


def test_a_message_that_gives_way_to_newer_ones_says_so_to_whoever_waits(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        await chat.post("wait 100")
        await asyncio.sleep(1)
        waiting = [asyncio.ensure_future(chat.send(f"message {n}")) for n in range(3)]
        replies = await asyncio.gather(*waiting)
        assert [reply.status for reply in replies] == ["stopped", "ok", "ok"]
        assert replies[0].error == "it gave way to newer messages: messages.queue.cap"

    place.act(body, config={"messages": {"queue": {"cap": 2}}})


def test_a_message_to_a_killed_run_is_answered_by_saying_so(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Wait for me")
        await asyncio.sleep(1)
        waiting = asyncio.ensure_future(fl.session(run.session_key).send("Hello?"))
        await asyncio.sleep(1)
        await run.kill()
        reply = await waiting
        assert (reply.status, reply.error) == ("stopped", "it was stopped before it read this")

    place.act(body)


def test_a_run_that_has_ended_can_be_talked_to(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello")
        await run
        assert (await fl.session(run.session_key).send("And now?")).text == "echo: And now?"
        assert (await run).text == "echo: Say hello", "its result stays"

    place.act(body)


def test_an_answer_is_found_again_after_a_restart(place: Place) -> None:
    async def before(fl: fledge.Fledge) -> str:
        return (await fl.session("main").send("wait 10", timeout=1)).run_id

    run_id = place.act(before)

    async def after(fl: fledge.Fledge) -> None:
        assert (await fl.session("main").reply(run_id)).text == "echo: wait 10"
        with pytest.raises(fledge.NotFound, match="has no message with the run id"):
            await fl.session("other").reply(run_id)

    place.act(after)


def test_a_stream_shows_the_words_and_tools_of_this_session_alone(place: Place) -> None:
    def script(request: Request) -> Answer:
        if "noise" in last_text(request):
            return "noise"
        return ScriptedReply(calls=(use("add", a=1, b=2),)) if said(request) == 0 else "It is three."

    @fledge.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def body(fl: fledge.Fledge) -> None:
        other = asyncio.ensure_future(fl.session("other").send("noise"))
        seen = [(event.kind, event.text) async for event in fl.session("main").stream("Add one and two")]
        assert [one for one in seen if one[0] != "usage"] == [
            ("start", ""),
            ("model:start", ""),
            ("tool:start", "add"),
            ("tool:end", "3"),
            ("model:start", ""),
            ("assistant:text", "It is three."),
            ("end", "It is three."),
            ("reply", "It is three."),
        ]
        await other

    place.act(body, ScriptedModel(script), tools=[add])


def test_leaving_a_stream_early_leaves_the_turn_alone(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        stream = fl.session("main").stream("wait 5")
        assert (await anext(stream)).kind == "start"
        await stream.aclose()
        assert await fl.session("main").settled(timeout=60)
        assert [m.text for m in await fl.session("main").history()] == ["wait 5", "echo: wait 5"]

    place.act(body)


# ---- subagents of a conversation -------------------------------------------------------------------------------------


def spawning(request: Request) -> Answer:
    """Main spawns a child when asked to, and passes on what it is told."""
    words = last_text(request)
    if words == "Delegate":
        return ScriptedReply(calls=(use("sessions_spawn", task="wait 5", label="child"),))
    return f"heard: {words.splitlines()[0]}"


def test_a_conversation_spawns_and_settles_once_the_childs_answer_was_read(place: Place) -> None:
    async def script(request: Request) -> Answer:
        return await obedient(request) if last_text(request) == "wait 5" else spawning(request)

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        assert (await chat.send("Delegate")).text.startswith("heard: {")
        assert not await chat.settled(timeout=1)
        (child,) = await fl.runs(requester="main")
        assert (child.label, child.status) == ("child", "running")
        assert [run.label for run in await fl.tree()] == ["child"]
        looked = await (await fl.run(child.run_id))
        assert looked.text == "echo: wait 5"
        assert await chat.settled(timeout=60)
        told = [m for m in await chat.history() if m.role == "event"]
        assert len(told) == 1, "looking at it does not take it from the conversation"
        assert (await fl.runs(requester="main"))[0].delivery == "delivered"

    place.act(body, ScriptedModel(script))


# ---- questions to a person -------------------------------------------------------------------------------------------


@fledge.tool(name="launch")
async def launch() -> str:
    """Launch."""
    return "launched"


def launching(request: Request) -> Answer:
    return ScriptedReply(calls=(use("launch"),)) if said(request) == 0 else f"it said: {last_text(request)}"


ASKS = {"tools": {"launch": {"approval": "ask"}}}


@pytest.mark.parametrize(
    ("allow", "words"), [(True, "it said: launched"), (False, "it said: launch was refused by the person")]
)
def test_a_question_to_a_person_makes_the_reply_pending_until_it_is_answered(
    place: Place, allow: bool, words: str
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        reply = await chat.send("Go")
        (question,) = await fl.approvals()
        assert (reply.status, reply.questions) == ("pending", (question,))
        assert (question.tool, question.session_key) == ("launch", chat.key)
        answer = fl.approve if allow else fl.deny
        with pytest.raises(fledge.Refused):
            await answer(question.id, digest="of another call")
        await answer(question.id, by="me", digest=question.digest)
        assert (await chat.reply(reply.run_id)).text.startswith(words)
        assert await fl.approvals() == []

    place.act(body, ScriptedModel(launching), tools=[launch], config=ASKS)


def test_a_function_that_answers_questions_is_asked_once_about_each(place: Place) -> None:
    asked: list[str] = []

    async def allow(question: fledge.Question) -> bool:
        asked.append(question.tool)
        return True

    async def body(fl: fledge.Fledge) -> None:
        fl.on_approval(lambda question: None)
        fl.on_approval(allow)
        assert (await fl.session("main").send("Go")).text == "it said: launched"
        assert asked == ["launch"]

    place.act(body, ScriptedModel(launching), tools=[launch], config=ASKS)


@pytest.mark.parametrize("sent_before", [False, True])
def test_a_conversation_from_before_the_function_waits_for_its_answers_too(place: Place, sent_before: bool) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        if sent_before:
            sending = asyncio.ensure_future(chat.send("Go"))
            await asyncio.sleep(0.5)
            fl.on_approval(lambda question: True)
        else:
            fl.on_approval(lambda question: True)
            sending = asyncio.ensure_future(chat.send("Go"))
        assert (await sending).text == "it said: launched"

    async def later(request: Request) -> Answer:
        await asyncio.sleep(1.0)
        return launching(request)

    place.act(body, ScriptedModel(later), tools=[launch], config=ASKS)


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_by_name_and_nothing_is_said(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        for message in ("", "  \n", 3, None):
            with pytest.raises(fledge.BadInput, match=r"^message: "):
                await chat.send(message)  # type: ignore[arg-type]
        for limit in (0, -1, True, "all"):
            with pytest.raises(fledge.BadInput, match=r"^limit: "):
                await chat.history(limit=limit)  # type: ignore[arg-type]
        for key in ("", "agent:", "agent:main:", "a b", 3, "agent:x y:main"):
            with pytest.raises(fledge.BadInput):
                fl.session(key)  # type: ignore[arg-type]
        with pytest.raises(fledge.BadInput, match="own name"):
            fl.session(fl.program)
        with pytest.raises(fledge.NotFound):
            await fl.session("agent:main:subagent:nobody").send("Hello")
        with pytest.raises(fledge.NotFound):
            await fl.session("nobody").stop()
        assert await chat.history() == []

    place.act(body)
