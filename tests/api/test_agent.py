"""`agent` and `agent.wait` in-process: run ids for messages, wishes for the turn that answers, waiting for any run."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fledge
from fledge.models.base import Request
from fledge.models.scripted import Answer, last_text
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.statements import proves


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@proves("4.gateway.2", "`agent` answers runId and accepted")
@proves("4.gateway.3", "`agent.wait` answers ok, error, timeout or pending with times")
@proves("4.gateway.5", "`agent.wait`: an expired wait is pending, never terminal")
def test_an_accepted_message_is_waited_for_by_its_run_id(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        accepted = await fl.agent("wait 10", session_key="main")
        wire = msgspec.to_builtins(accepted)
        assert wire == {"runId": accepted.run_id, "status": "accepted"}
        pending = await fl.agent_wait(accepted.run_id, timeout_ms=4000)
        assert (pending.status, pending.run_id, pending.ended_at) == ("pending", accepted.run_id, None)
        done = await fl.agent_wait(accepted.run_id)
        began = place.now
        assert msgspec.to_builtins(done) == {
            "status": "ok",
            "runId": accepted.run_id,
            "startedAt": began,
            "endedAt": began + 10,
        }
        assert (await fl.session("main").reply(accepted.run_id)).text == "echo: wait 10"
        assert await fl.agent_wait(accepted.run_id, timeout_ms=0) == done

    place.act(body)


@proves("4.gateway.4", "`agent.wait`: an old id follows to the current attempt and names it")
def test_an_old_run_id_follows_to_the_attempt_that_stands_and_names_it(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Wait for me")
        await asyncio.sleep(1)
        assert (await fl.agent_wait(run.run_id, timeout_ms=0)).status == "pending"
        waiting = asyncio.ensure_future(fl.agent_wait(run.run_id))
        await asyncio.sleep(1)
        new = await run.steer("wait 3")
        done = await waiting
        assert (done.status, done.run_id) == ("ok", new)

    place.act(body)


@proves("2.outcome.3", "On the wire an outcome is {status, error?} plus endedReason; a kill is `error` and `killed`")
@proves("4.gateway.3")
def test_how_runs_end_is_told_in_the_words_of_the_wire(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        slow = await fl.spawn("Wait for me", timeout=5)
        killed = await fl.spawn("Wait for me")
        await asyncio.sleep(1)
        await killed.kill()
        late = await fl.agent_wait(slow.run_id)
        assert (late.status, late.error) == ("timeout", None)
        ended = await fl.agent_wait(killed.run_id)
        assert (ended.status, ended.error) == ("error", "killed")
        with pytest.raises(fledge.NotFound, match="no run 'nobody'"):
            await fl.agent_wait("nobody")

    place.act(body)


@proves("4.gateway.6", "`agent.wait`: an archived run answers its tombstone's outcome")
def test_an_archived_run_still_answers_with_its_outcome(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello")
        before = await run
        await asyncio.sleep(2 * 3600)
        assert (await run.info()).phase == "archived"
        done = await fl.agent_wait(run.run_id)
        assert (done.status, done.ended_at) == ("ok", before.ended_at)
        assert (await run).text == "echo: Say hello"

    place.act(body)


@proves("4.gateway.1")
def test_the_same_idempotency_key_finds_the_same_run_also_after_a_restart(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> str:
        first = await fl.agent("Hello", idempotency_key="k")
        assert await fl.agent("Hello", idempotency_key="k") == first
        with pytest.raises(fledge.Refused, match="other parameters"):
            await fl.agent("Goodbye", idempotency_key="k")
        with pytest.raises(fledge.Refused, match="other parameters"):
            await fl.agent("Hello", session_key="other", idempotency_key="k")
        await fl.agent_wait(first.run_id)
        assert len(await fl.session("main").history()) == 2
        return first.run_id

    assert place.act(body) == place.act(body)


@proves(
    "4.gateway.1",
    "`agent` takes message, sessionKey, deliver, lane, extraSystemPrompt, model, thinking, timeoutSeconds and a key",
)
def test_wishes_hold_for_the_turn_that_answers_and_no_other(place: Place) -> None:
    other = ScriptedModel(lambda request: f"{request.model} thinking {request.thinking}")
    usual = ScriptedModel(lambda request: f"usual, {'pirate' in request.system}")

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        asked = await fl.agent("Hello", model="other/clever", thinking="high", lane="nested")
        assert (await chat.reply(asked.run_id)).text == "clever thinking high"
        asked = await fl.agent("Hello", extra_system_prompt="Talk like a pirate.")
        assert (await chat.reply(asked.run_id)).text == "usual, True"
        assert (await chat.send("Hello")).text == "usual, False"

    place.act(body, usual, models={"other": other})


@proves("4.gateway.1")
def test_a_turn_that_takes_longer_than_wished_is_stopped_and_the_next_goes_on(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        asked = await fl.agent("Wait for me", timeout_seconds=30)
        done = await fl.agent_wait(asked.run_id, timeout_ms=60_000)
        assert (done.status, done.ended_at) == ("timeout", place.now + 30)
        reply = await fl.session("main").reply(asked.run_id)
        assert (reply.status, reply.error) == ("stopped", "timeout")
        assert (await fl.session("main").send("Hello")).text == "echo: Hello"

    place.act(body)


def test_a_time_limit_counts_on_over_a_restart(place: Place) -> None:
    async def before(fl: fledge.Fledge) -> str:
        asked = await fl.agent("Wait for me", timeout_seconds=30)
        await asyncio.sleep(10)
        return asked.run_id

    began = place.now
    run_id = place.act(before)

    async def after(fl: fledge.Fledge) -> None:
        done = await fl.agent_wait(run_id, timeout_ms=60_000)
        assert (done.status, done.ended_at) == ("timeout", began + 30)

    place.act(after)


def test_a_time_limit_that_is_kept_stops_nothing(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        asked = await fl.agent("wait 5", timeout_seconds=6)
        assert (await fl.agent_wait(asked.run_id)).status == "ok"
        waiting = asyncio.ensure_future(fl.session("main").send("wait 20"))
        await asyncio.sleep(10)
        assert (await waiting).status == "ok"

    place.act(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("message", ""),
        ("message", 3),
        ("thinking", "very"),
        ("model", "nowhere/nothing"),
        ("lane", "fast"),
        ("timeout_seconds", -1),
        ("timeout_seconds", True),
        ("deliver", "yes"),
        ("extra_system_prompt", 3),
        ("idempotency_key", None),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_is_accepted(place: Place, field: str, value: Any) -> None:
    async def body(fl: fledge.Fledge) -> None:
        asked: dict[str, Any] = {"message": "Hello"} | {field: value}
        with pytest.raises(fledge.BadInput, match=rf"^{field}: "):
            await fl.agent(**asked)
        assert await fl.session("main").history() == []
        for timeout_ms in (-1, True, "soon", float("nan")):
            with pytest.raises(fledge.BadInput, match=r"^timeout_ms: "):
                await fl.agent_wait("any", timeout_ms)  # type: ignore[arg-type]

    place.act(body)


def test_wishes_for_a_run_at_work_are_refused(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 10")
        await asyncio.sleep(1)
        with pytest.raises(fledge.BadInput, match=r"^timeout_seconds: cannot be changed"):
            await fl.agent("Hurry", session_key=run.session_key, timeout_seconds=3)
        asked = await fl.agent("Hurry", session_key=run.session_key)
        assert (await fl.agent_wait(asked.run_id)).status == "ok"
        assert (await run).text == "echo: wait 10"

    place.act(body)


def test_wishes_of_several_messages_in_one_turn_are_all_heard(place: Place) -> None:
    async def script(request: Request) -> Answer:
        if last_text(request) == "busy":
            await asyncio.sleep(5)
        return f"{request.model}: {request.system.count('Be ')}"

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").post("busy")
        await asyncio.sleep(1)
        one = await fl.agent("a", extra_system_prompt="Be kind.")
        two = await fl.agent("b", extra_system_prompt="Be brief.", model="other/x")
        replies = [await fl.session("main").reply(asked.run_id) for asked in (one, two)]
        assert [reply.text for reply in replies] == ["x: 2", "x: 2"]

    model = ScriptedModel(script)
    place.act(body, model, models={"other": model})
