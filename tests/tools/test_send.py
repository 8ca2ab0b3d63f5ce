"""`sessions_send` to one's own: who reads it when, what comes back, and that no wait ever starves its own answer."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.core.inbox import QueueSettings
from fledge.core.transcript import Replied, Spoken, from_body
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Rules
from fledge.store.base import InboxRow, Tx
from fledge.testing import Stage
from tests.model.world import MAIN
from tests.statements import proves
from tests.tools.desk import SAY, Desk, play, play_child

NARROW = Rules(widths={"main": 1, "subagent": 1, "nested": 1})
DEEP = "agents.defaults.subagents.maxSpawnDepth=3"


async def words(desk: Desk, session: str) -> list[str]:
    """What stands in a transcript: words that came in, and replies."""

    def view(tx: Tx) -> list[str]:
        bodies = [from_body(entry.body) for entry in tx.transcripts.entries(session)]
        return [body.text for body in bodies if isinstance(body, Spoken | Replied)]

    return await desk.engine.store.read(view)


async def inbox(desk: Desk, session: str = MAIN) -> list[InboxRow]:
    return await desk.engine.store.read(lambda tx: tx.inbox.unread(session))


async def ended_child(desk: Desk, label: str = "eyes") -> str:
    """A child that has answered its task."""
    key: str = (await desk("sessions_spawn", task=f"{SAY}done", label=label))["childSessionKey"]
    await desk.pass_time(1.0)
    return key


# ---- to a child that works -------------------------------------------------------------------------------------------


@proves("4.tools.2", "`sessions_send` sends")
def test_a_running_child_reads_it_at_its_next_step_and_nobody_waits(tmp_path: Path) -> None:
    async def worker(stage: Stage) -> None:
        await stage.sleep(5)
        await stage.step("looked")
        await stage.say((await stage.task()).upper())

    async def body(desk: Desk) -> None:
        child = await desk("sessions_spawn", task="work", label="eyes")
        await desk.pass_time(1.0)
        before = desk.engine.clock.now()
        sent = await desk("sessions_send", label="eyes", message="look left")
        assert desk.engine.clock.now() == before
        assert sent == {
            "status": "accepted",
            "sessionKey": child["childSessionKey"],
            "runId": child["runId"],
            "messageId": sent["messageId"],
            "delivery": "it is read at the next step; the result is announced as usual",
        }
        await desk.pass_time(10.0)
        assert "look left" in await words(desk, child["childSessionKey"])
        assert [row.kind for row in await inbox(desk)] == ["outcome"]

    play(tmp_path, body, others=worker)


def test_a_message_that_misses_the_last_boundary_gets_a_turn_of_its_own_and_no_announce(tmp_path: Path) -> None:
    async def worker(stage: Stage) -> None:
        await stage.sleep(5)
        await stage.say("done" if stage.run is not None else "heard you")

    async def body(desk: Desk) -> None:
        child = (await desk("sessions_spawn", task="work"))["childSessionKey"]
        await desk.pass_time(1.0)
        assert (await desk("sessions_send", sessionKey=child, message="look left"))["status"] == "accepted"
        await desk.pass_time(60.0)
        assert await words(desk, child) == ["work", "done", "look left", "heard you"]
        assert [row.kind for row in await inbox(desk)] == ["outcome"]

    play(tmp_path, body, others=worker)


def test_a_queued_child_reads_it_with_its_task(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="work")
        second = (await desk("sessions_spawn", task="work too", label="second"))["childSessionKey"]
        sent = await desk("sessions_send", label="second", message="and this")
        assert sent["status"] == "accepted"
        await desk("subagents", action="kill", target="1")
        await desk.pass_time(10.0)
        assert await words(desk, second) == ["work too", "and this"]

    play(tmp_path, body, rules=NARROW)


# ---- to a child that has ended, or waits -----------------------------------------------------------------------------


@proves("4.tools.2")
@proves("4.send.10", "… whose reply is returned within the wait of 30 s")
def test_a_child_that_has_ended_answers_in_a_turn_of_its_own(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        sent = await desk("sessions_send", sessionKey=key, message=f"{SAY}still here")
        assert (sent["status"], sent["reply"], sent["sessionKey"]) == ("ok", "still here", key)
        assert "delivery" not in sent
        assert [row.kind for row in await inbox(desk)] == ["outcome"]
        run = await desk.engine.store.read(lambda tx: tx.runs.load(key))
        assert (run.attempt, run.run_id) == (1, sent["runId"])

    play(tmp_path, body)


def test_silence_is_an_answer_without_words(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        sent = await desk("sessions_send", sessionKey=key, message=f"{SAY}NO_REPLY")
        assert sent["status"] == "ok"
        assert "reply" not in sent

    play(tmp_path, body)


@proves("4.send.10")
def test_an_answer_that_takes_too_long_is_a_timeout_and_still_comes(tmp_path: Path) -> None:
    async def slow(stage: Stage) -> None:
        if stage.run is None:
            await stage.sleep(50)
        await play_child(stage)

    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        before = desk.engine.clock.now()
        sent = await desk("sessions_send", sessionKey=key, message=f"{SAY}at last")
        assert desk.engine.clock.now() - before == 30.0
        assert (sent["status"], sent["error"]) == (
            "timeout",
            "no answer yet; the message stays. Look later with sessions_history",
        )
        await desk.pass_time(30.0)
        assert (await words(desk, key))[-1] == "at last"

    play(tmp_path, body, others=slow)


def test_who_does_not_wait_is_told_at_once(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        before = desk.engine.clock.now()
        sent = await desk("sessions_send", sessionKey=key, message=f"{SAY}later", timeoutSeconds=0)
        assert (sent["status"], sent["delivery"]) == ("accepted", "it is read in a turn of its own")
        assert desk.engine.clock.now() == before
        await desk.pass_time(5.0)
        assert (await words(desk, key))[-1] == "later"

    play(tmp_path, body)


async def lead(stage: Stage) -> None:
    """Spawns one that works, waits for it, and answers messages meanwhile."""
    if stage.run is not None and not await stage.engine.store.read(lambda tx: tx.runs.children(stage.session)):
        if stage.run.terms.depth == 1:
            await stage.spawn("work")
            await stage.wait("all")
            return
        await stage.sleep(200)
        return
    await stage.say(msgspec.json.decode(await stage.task())["text"].removeprefix(SAY))


def test_a_waiting_child_answers_and_goes_on_waiting(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = (await desk("sessions_spawn", task="lead", label="lead"))["childSessionKey"]
        await desk.pass_time(1.0)
        sent = await desk("sessions_send", label="lead", message=f"{SAY}half way")
        assert (sent["status"], sent["reply"]) == ("ok", "half way")
        run = await desk.engine.store.read(lambda tx: tx.runs.load(key))
        assert (run.phase.name, run.attempt, run.fallback) == ("waiting", 1, None)

    play(tmp_path, body, DEEP, others=lead)


# ---- lanes -----------------------------------------------------------------------------------------------------------


def test_with_every_lane_full_the_answer_still_comes(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        await desk("sessions_spawn", task="work for ever")
        await desk.pass_time(1.0)
        before = desk.engine.clock.now()
        sent = await desk("sessions_send", sessionKey=key, message=f"{SAY}here")
        assert (sent["status"], sent["reply"]) == ("ok", "here")
        assert desk.engine.clock.now() - before < 1.0

    play(tmp_path, body, rules=NARROW)


def test_an_orchestrator_in_the_only_slot_gets_its_childs_answer(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = []

    async def orchestrator(stage: Stage) -> None:
        if stage.run is None or stage.run.terms.depth == 2:
            await play_child(stage)
        elif stage.run.attempt == 1:
            await stage.spawn(f"{SAY}done")
            await stage.wait("all")
        else:
            child = (await stage.engine.store.read(lambda tx: tx.runs.children(stage.session)))[0]
            before = stage.engine.clock.now()
            answers.append(await Desk(stage, tmp_path)("sessions_send", sessionKey=child, message=f"{SAY}here"))
            answers[0]["took"] = stage.engine.clock.now() - before
            await stage.say("all done")

    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="lead")
        await desk.pass_time(100.0)

    play(tmp_path, body, DEEP, others=orchestrator, rules=NARROW)
    assert (answers[0]["status"], answers[0]["reply"]) == ("ok", "here")
    assert answers[0]["took"] < 1.0


def test_a_waiting_child_that_is_queued_behind_its_parent_is_let_past(tmp_path: Path) -> None:
    """A person's message has queued it in the lane whose only slot is taken; then its parent asks."""
    answers: list[dict[str, Any]] = []

    async def script(stage: Stage) -> None:
        depth = 0 if stage.run is None else stage.run.terms.depth
        children = await stage.engine.store.read(lambda tx: tx.runs.children(stage.session))
        match depth, bool(children):
            case 1, False:
                await stage.spawn("middle")
                await stage.wait("all", 20.0)
            case 1, True:
                await stage.engine.commit(lambda c: control.send(c, children[0], "a person's words"))
                place = await stage.engine.store.read(lambda tx: tx.queue.place(children[0]))
                assert place is not None
                assert place.lane == "subagent"
                sent = await Desk(stage, tmp_path)("sessions_send", sessionKey=children[0], message=f"{SAY}here")
                answers.append(sent)
                await stage.say("done")
            case 2, False:
                await stage.spawn("below")
                await stage.wait("all")
            case 2, True:
                await stage.say("here")
            case _:
                await stage.sleep(10_000)

    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="top")
        await desk.pass_time(500.0)

    play(tmp_path, body, DEEP, others=script, rules=Rules(widths={"main": 1, "subagent": 2, "nested": 1}))
    assert (answers[0]["status"], answers[0].get("reply")) == ("ok", "here")


# ---- plans -----------------------------------------------------------------------------------------------------------


async def plan(desk: Desk) -> str:
    """A child whose plan awaits its answer."""
    key: str = (await desk("sessions_spawn", task="plan it", label="p", planMode=True))["childSessionKey"]
    await desk.pass_time(5.0)
    return key


@proves("3.plan.7", "… by `sessions_send`")
@proves("4.tools.10")
@pytest.mark.parametrize(
    ("message", "state", "told"),
    [
        ("APPROVED: proceed", "approved", "the plan is approved"),
        ("REJECTED: too long", "planning", "the plan is rejected"),
    ],
)
def test_a_plan_is_answered_by_its_requester(tmp_path: Path, message: str, state: str, told: str) -> None:
    async def body(desk: Desk) -> None:
        key = await plan(desk)
        sent = await desk("sessions_send", sessionKey=key, message=message, index=77)
        assert (sent["status"], sent["delivery"]) == ("accepted", told)
        run = await desk.engine.store.read(lambda tx: tx.runs.load(key))
        assert (run.plan, run.attempt, run.run_id) == (state, 2, sent["runId"])
        await desk.pass_time(1.0)
        assert (await words(desk, key))[2] == message
        # The same call again, as after a crash: no second answer, no stray message.
        assert await desk("sessions_send", sessionKey=key, message=message, index=77) == sent
        await desk.pass_time(1.0)
        assert (await words(desk, key)).count(message) == 1

    play(tmp_path, body)


def test_a_rejection_must_say_why(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await plan(desk)
        refused = await desk("sessions_send", sessionKey=key, message="REJECTED:")
        assert refused == {
            "status": "error",
            "error": "message: must say why the plan is rejected",
        }
        assert (await desk.engine.store.read(lambda tx: tx.runs.load(key))).phase.name == "awaiting_approval"

    play(tmp_path, body)


def test_another_message_to_a_planner_waits_for_the_next_attempt(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await plan(desk)
        sent = await desk("sessions_send", sessionKey=key, message="mind the cat")
        assert sent["status"] == "accepted"
        assert (await desk.engine.store.read(lambda tx: tx.runs.load(key))).phase.name == "awaiting_approval"
        await desk("sessions_send", sessionKey=key, message="APPROVED")
        await desk.pass_time(1.0)
        assert (await words(desk, key))[-2:] == ["mind the cat", "APPROVED: proceed"]

    play(tmp_path, body)


def test_without_a_plan_the_same_words_are_an_ordinary_message(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        await desk("sessions_send", sessionKey=key, message="APPROVED: proceed", timeoutSeconds=0)
        await desk.pass_time(1.0)
        assert "APPROVED: proceed" in await words(desk, key)

    play(tmp_path, body)


@proves("3.plan.7")
def test_only_requester_or_controller_answer_a_plan(tmp_path: Path) -> None:
    async def script(stage: Stage) -> None:
        if stage.run is not None and stage.run.terms.plan:
            await stage.say("1. look")
        elif await stage.engine.store.read(lambda tx: tx.runs.children(stage.session)):
            await stage.sleep(1000)
        else:
            await stage.spawn("plan it", plan=True)
            await stage.sleep(1000)

    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="lead")
        await desk.pass_time(5.0)
        child = (await desk.engine.store.read(lambda tx: tx.runs.children(MAIN)))[0]
        below = (await desk.engine.store.read(lambda tx: tx.runs.children(child)))[0]
        sent = await desk("sessions_send", sessionKey=below, message="APPROVED: proceed")
        assert sent["status"] == "accepted"
        assert (await desk.engine.store.read(lambda tx: tx.runs.load(below))).phase.name == "awaiting_approval"

    play(tmp_path, body, DEEP, others=script)


# ---- repeating, killing, refusing ------------------------------------------------------------------------------------


@proves("4.tools.10", "Every other side-effecting session tool is idempotent by the same")
def test_a_repeated_call_sends_nothing_more_and_finds_the_answer(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        first = await desk("sessions_send", sessionKey=key, message=f"{SAY}once", index=9)
        assert await desk("sessions_send", sessionKey=key, message=f"{SAY}once", index=9) == first
        assert (await words(desk, key)).count(f"{SAY}once") == 1
        # Even if whom it meant cannot be found any more.
        await desk.engine.store.transact(lambda tx: tx.sessions.delete(key))
        assert (await desk("sessions_send", sessionKey=key, message="x", index=9))["reply"] == "once"

    play(tmp_path, body)


def test_a_child_that_is_killed_while_it_is_waited_for_is_told_as_an_error(tmp_path: Path) -> None:
    async def slow(stage: Stage) -> None:
        if stage.run is None:
            await stage.sleep(5)
            key = stage.session
            await stage.engine.commit(lambda c: control.stop(c, key))
            await stage.sleep(5)
        await play_child(stage)

    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        before = desk.engine.clock.now()
        sent = await desk("sessions_send", sessionKey=key, message="hello")
        assert sent["status"] == "error"
        assert sent["error"] == "eyes read your message and gave no answer to it (its turn: stopped)"
        assert desk.engine.clock.now() - before < 10.0

    play(tmp_path, body, others=slow)


def test_a_message_that_a_kill_made_void_is_told_to_the_sender_once(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="work", label="eyes")
        await desk.pass_time(1.0)
        await desk("sessions_send", label="eyes", message="look left")
        await desk("subagents", action="kill", target="eyes")
        notices = [row.body for row in await inbox(desk) if row.kind == "notice"]
        assert notices == ["eyes was killed before it read your message"]

    play(tmp_path, body)


@proves("4.tools.2")
@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        ({"message": "x"}, "error", "sessionKey: give either sessionKey or label"),
        (
            {"message": "x", "sessionKey": "last", "label": "eyes"},
            "error",
            "sessionKey: give either sessionKey or label",
        ),
        ({"message": " ", "label": "eyes"}, "error", "message: must not be empty"),
        ({"message": "x", "label": "nobody"}, "error", "no session labelled 'nobody' that you may see"),
        ({"message": "x", "sessionKey": "last", "agentId": "main"}, "error", "agentId: goes with label"),
        ({"message": "x", "sessionKey": "agent:main:subagent:none"}, "forbidden", "may not see"),
        ({"message": "x", "sessionKey": MAIN}, "forbidden", f"{MAIN} cannot send to itself"),
        ({"message": "x", "sessionKey": "agent:main:notes"}, "forbidden", "tools.sessions.visibility"),
        ({"message": "x", "label": "twin"}, "error", "'twin' is ambiguous: agent:main:subagent:"),
        ({"message": "x", "label": "gone"}, "error", "no session labelled 'gone'"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_reason_and_sends_nothing(
    tmp_path: Path, arguments: dict[str, Any], status: str, reason: str
) -> None:
    async def body(desk: Desk) -> None:
        await desk.engine.commit(lambda c: spawn.open_conversation(c, "agent:main:notes"))
        await ended_child(desk)
        gone = await ended_child(desk, "gone")
        await desk.engine.store.transact(lambda tx: tx.sessions.delete(gone))
        for _ in range(2):
            await ended_child(desk, "twin")
        answer = await desk("sessions_send", **arguments)
        assert answer["status"] == status
        assert reason in answer["error"]

    play(tmp_path, body, "agents.defaults.subagents.maxChildrenPerAgent=9")


def test_a_session_that_is_gone_is_done(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        await desk.engine.store.transact(lambda tx: tx.sessions.delete(key))
        assert await desk("sessions_send", sessionKey=key, message="x") == {
            "status": "done",
            "error": f"{key} has ended and its session is gone: sessions_history has its result",
        }

    play(tmp_path, body)


def test_a_stopped_turn_sends_nothing_more(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        await desk.engine.store.transact(lambda tx: tx.sessions.raise_generation(MAIN))
        refused = await desk("sessions_send", sessionKey=key, message="too late")
        assert refused["status"] == "forbidden"
        assert "was stopped" in refused["error"]

    play(tmp_path, body)


def test_delete_waits_for_the_answer_to_a_message(tmp_path: Path) -> None:
    async def slow(stage: Stage) -> None:
        if stage.run is None:
            await stage.sleep(10)
        await play_child(stage)

    async def body(desk: Desk) -> None:
        key = (await desk("sessions_spawn", task=f"{SAY}done", cleanup="delete"))["childSessionKey"]
        await desk.pass_time(1.0)
        sent = await desk("sessions_send", sessionKey=key, message=f"{SAY}one more thing")
        assert (sent["status"], sent["reply"]) == ("ok", "one more thing")

    play(tmp_path, body, others=slow)


def test_a_message_that_gave_way_to_newer_ones_is_told_to_who_waits_for_its_answer(tmp_path: Path) -> None:
    async def slow(stage: Stage) -> None:
        if stage.run is None:
            await stage.sleep(20)
            await stage.engine.commit(lambda c: control.send(c, stage.session, "a newer one"))
        await play_child(stage)

    async def body(desk: Desk) -> None:
        key = await ended_child(desk)
        await desk("sessions_send", sessionKey=key, message=f"{SAY}first", timeoutSeconds=0)
        await desk.pass_time(1.0)
        sent = await desk("sessions_send", sessionKey=key, message="second")
        assert sent["status"] == "error"
        assert sent["error"] == "it gave way to newer messages to eyes: messages.queue.cap"

    play(tmp_path, body, others=slow, rules=Rules(queue=QueueSettings(cap=1)))
