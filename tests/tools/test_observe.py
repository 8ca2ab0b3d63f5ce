"""What a session may see of others: lists, histories, how one stands, whom it may start."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.core.keys import project_key
from fledge.core.transcript import CallEntry, Replied, Resulted, Spoken, to_body
from fledge.core.turn import TurnEnd
from fledge.orchestrator import spawn, transcripts
from fledge.store.base import EntryKind, Tx
from fledge.testing import Stage
from tests.model.world import MAIN
from tests.orchestrator.host import MODEL
from tests.statements import proves
from tests.tools.desk import SAY, Desk, play, play_child

SECRET = "sk-proj-abcdef123456"
OTHER, STRANGER = "agent:main:notes", "agent:bob:main"
KINDS: dict[str, EntryKind] = {"user": "user", "assistant": "assistant", "tool": "tool"}
OPEN = ("tools.sessions.visibility=all", "tools.agentToAgent.enabled=true")


def write(*bodies: tuple[str, Any], session: str = MAIN, at: float = 0.0) -> Any:
    """A job that adds entries to a transcript."""

    def job(tx: Tx) -> None:
        tx.transcripts.append(session, at, [(KINDS[kind], to_body(body)) for kind, body in bodies])

    return job


async def converse(desk: Desk, key: str) -> None:
    """One more conversation."""
    await desk.engine.commit(lambda c: spawn.open_conversation(c, key))


async def others_of(desk: Desk) -> None:
    """Two more conversations: one of the same agent, one of another."""
    for key in (OTHER, STRANGER):
        await converse(desk, key)


def keys(answer: dict[str, Any]) -> set[str]:
    return {session["key"] for session in answer["sessions"]}


# ---- sessions_list ---------------------------------------------------------------------------------------------------


@proves("4.tools.3", "`sessions_list` lists sessions")
@proves("4.sight.1")
@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ((), {MAIN, "child"}),
        (("tools.sessions.visibility=self",), {MAIN}),
        (("tools.sessions.visibility=agent",), {MAIN, "child", OTHER}),
        (("tools.sessions.visibility=all",), {MAIN, "child", OTHER}),
        (OPEN, {MAIN, "child", OTHER, STRANGER}),
        ((*OPEN, "tools.agentToAgent.allow=['main']"), {MAIN, "child", OTHER}),
        ((*OPEN, "agents.defaults.sandbox.mode=all"), {MAIN, "child"}),
        ((*OPEN, "agents.defaults.sandbox.mode=non-main"), {MAIN, "child", OTHER, STRANGER}),
        (
            (*OPEN, "agents.defaults.sandbox.mode=all", "agents.defaults.sandbox.sessionToolsVisibility=all"),
            {MAIN, "child", OTHER, STRANGER},
        ),
    ],
)
def test_a_list_has_what_the_visibility_shows_and_nothing_else(
    tmp_path: Path, settings: tuple[str, ...], seen: set[str]
) -> None:
    async def body(desk: Desk) -> None:
        await others_of(desk)
        child = (await desk("sessions_spawn", task="work"))["childSessionKey"]
        answer = await desk("sessions_list")
        assert keys(answer) == {child if name == "child" else name for name in seen}
        assert answer["count"] == len(seen)

    play(tmp_path, body, *settings)


@proves("4.tools.3")
def test_a_listed_session_says_what_it_is_and_how_it_stands(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        child = await desk("sessions_spawn", task="work", label="eyes")
        await desk.pass_time(1.0)
        first = (await desk("sessions_list", kinds=["subagent"]))["sessions"]
        created = first[0].pop("createdAt")
        assert created == int((desk.engine.clock.now() - 1.0) * 1000)
        assert first == [
            {
                "key": child["childSessionKey"],
                "kind": "subagent",
                "agentId": "main",
                "updatedAt": created,
                "label": "eyes",
                "parent": MAIN,
                "status": "running",
                "runId": child["runId"],
                "startedAt": created,
                "runtimeMs": 1000,
            }
        ]

    play(tmp_path, body)


def test_a_list_can_be_of_some_kinds_of_the_active_or_short(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await others_of(desk)
        await desk("sessions_spawn", task="work")
        assert {session["kind"] for session in (await desk("sessions_list", kinds=["other"]))["sessions"]} == {
            "subagent",
            "named",
        }
        docs = project_key("/src/docs")
        await desk.engine.commit(lambda c: spawn.open_conversation(c, docs, "/src/docs"))
        assert keys(await desk("sessions_list", kinds=["main"])) == {MAIN, STRANGER, docs}
        await desk.pass_time(600)
        await desk.engine.store.transact(write(("user", Spoken("hello")), session=OTHER, at=desk.engine.clock.now()))
        assert keys(await desk("sessions_list", activeMinutes=5)) == {OTHER}
        assert [session["key"] for session in (await desk("sessions_list", limit=1))["sessions"]] == [OTHER]

    play(tmp_path, body, *OPEN)


def test_the_last_words_of_each_are_shown_if_asked_for_without_secrets(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await others_of(desk)
        said = [("user", Spoken(f"{n} {SECRET}")) for n in range(5)]
        await desk.engine.store.transact(write(*said, session=OTHER))
        answer = await desk("sessions_list", kinds=["named"], messageLimit=2)
        assert [message["text"] for message in answer["sessions"][0]["messages"]] == ["3 [redacted]", "4 [redacted]"]

    play(tmp_path, body, *OPEN)


def test_a_list_of_much_is_bounded_and_says_how_many_are_left_out(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        for n in range(12):
            key = f"agent:main:n{n}"
            await converse(desk, key)
            await desk.engine.store.transact(write(*[("user", Spoken("x" * 4000))] * 5, session=key))
        answer = await desk("sessions_list", messageLimit=20, kinds=["named"])
        assert len(msgspec.json.encode(answer)) <= 80 * 1024
        assert answer["count"] + answer["leftOut"] == 12

    play(tmp_path, body, *OPEN)


# ---- sessions_history ------------------------------------------------------------------------------------------------


@proves("4.tools.4", "`sessions_history` is redacted, at most 80 KiB, tools excluded by default")
def test_a_childs_history_is_its_words_and_its_tools_only_if_asked_for(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        child = (await desk("sessions_spawn", task=f"{SAY}found it", label="eyes"))["childSessionKey"]
        await desk.pass_time(1.0)
        await desk.engine.store.transact(
            write(
                ("assistant", Replied("", (CallEntry("c", "exec", f'{{"command": "{SECRET}"}}'),))),
                ("tool", Resulted(3, 0, "c", "exec", "output")),
                session=child,
            )
        )
        answer = await desk("sessions_history", sessionKey="eyes")
        assert (answer["status"], answer["sessionKey"]) == ("ok", child)
        assert [(said["role"], said["text"]) for said in answer["messages"]] == [
            ("user", f"{SAY}found it"),
            ("assistant", "found it"),
        ]
        everything = await desk("sessions_history", sessionKey=child, includeTools=True)
        assert [said["role"] for said in everything["messages"]] == ["user", "assistant", "assistant", "tool"]
        assert everything["messages"][2]["calls"] == ['exec {"command": "[redacted]"}']
        assert (await desk("sessions_history", sessionKey="1", limit=1))["droppedMessages"] == 1

    play(tmp_path, body)


@proves("2.frozen.17", "`sessions_history` serves the frozen result")
def test_what_a_deleted_child_said_last_is_still_served(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        child = (await desk("sessions_spawn", task=f"{SAY}it is {SECRET}", cleanup="delete"))["childSessionKey"]
        await desk.pass_time(1.0)
        await desk.engine.store.transact(lambda tx: tx.sessions.delete(child))
        answer = await desk("sessions_history", sessionKey=child)
        assert [said["text"] for said in answer["messages"]] == ["it is [redacted]"]

    play(tmp_path, body)


def test_of_a_session_that_is_gone_without_a_result_nothing_is_found(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        child = (await desk("sessions_spawn", task="work"))["childSessionKey"]
        await desk.engine.store.transact(lambda tx: tx.sessions.delete(child))
        assert await desk("sessions_history", sessionKey=child) == {"status": "error", "error": f"no session {child}"}

    play(tmp_path, body)


@pytest.mark.parametrize(
    ("word", "status", "reason"),
    [
        (STRANGER, "forbidden", f"{MAIN} may not see {STRANGER}: another agent's session, visibility is tree, needs"),
        (OTHER, "forbidden", f"{MAIN} may not see {OTHER}: visibility is tree, needs agent: tools.sessions.visibility"),
        ("agent:main:nobody", "error", "no session agent:main:nobody"),
        ("nobody", "error", "there are no subagents here"),
        ("agent:../etc", "error", "sessionKey: must look like"),
    ],
)
def test_a_history_that_may_not_be_seen_or_is_not_there_is_refused_with_the_reason(
    tmp_path: Path, word: str, status: str, reason: str
) -> None:
    async def body(desk: Desk) -> None:
        await others_of(desk)
        answer = await desk("sessions_history", sessionKey=word)
        assert answer["status"] == status
        assert reason in answer["error"]

    play(tmp_path, body)


@proves("4.tools.4")
def test_a_history_stays_within_eighty_kilobytes(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        said = [("user", Spoken("é" * 4000))] * 100
        await desk.engine.store.transact(write(*said))
        answer = await desk("sessions_history", sessionKey="main", limit=500)
        assert len(msgspec.json.encode(answer)) <= 80 * 1024
        assert answer["truncated"]
        assert answer["droppedMessages"] > 50

    play(tmp_path, body)


@proves("4.tools.36")
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"result": True, "offset": 9}, "offset: must be at most 8, the length of the result (got 9)"),
        ({"result": True, "includeTools": True}, "includeTools: does not go with result: a result has no tool calls"),
        ({"offset": 1}, "offset: is for a result: give result true, or leave it out (got 1)"),
        ({"limit": 501}, "limit: must be at most 500 messages (got 501)"),
    ],
)
def test_parameters_of_a_history_that_do_not_go_together_are_refused(
    tmp_path: Path, asked: dict[str, Any], reason: str
) -> None:
    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task=f"{SAY}found it", label="eyes")
        await desk.pass_time(1.0)
        assert await desk("sessions_history", sessionKey="eyes", **asked) == {"status": "error", "error": reason}

    play(tmp_path, body)


@proves("4.tools.36")
def test_a_result_is_read_whatever_came_of_the_child(tmp_path: Path) -> None:
    async def others(stage: Stage) -> None:
        task = msgspec.json.decode(await stage.task())["text"]
        if task == "fail":
            await stage.fail("no such host")
        else:
            await play_child(stage)

    async def body(desk: Desk) -> None:
        async def result(key: str) -> tuple[Any, ...]:
            answer = await desk("sessions_history", sessionKey=key, result=True)
            return answer.get("text"), answer.get("error")

        await desk("sessions_spawn", label="plan", task="plan it", planMode=True)
        await desk("sessions_spawn", label="failed", task="fail")
        await desk("sessions_spawn", label="silent", task=f"{SAY}NO_REPLY")
        await desk.pass_time(20.0)
        assert await result("plan") == ("1. look 2. tell", None)
        assert await result("failed") == ("no such host", None)
        assert await result("silent") == ("", None)
        busy = (await desk("sessions_spawn", task="work"))["childSessionKey"]
        await desk.pass_time(1.0)
        waits = f"{busy} has no result yet: it is running, and its result will be pushed to you"
        assert await result(busy) == (None, waits)
        assert await result("main") == (None, f"{MAIN} is not a subagent: only those have a result")
        await others_of(desk)
        answer = await desk("sessions_history", sessionKey=STRANGER, result=True)
        assert (answer["status"], "may not see" in answer["error"]) == ("forbidden", True)

    play(tmp_path, body, others=others)


# ---- session_status and agents_list ----------------------------------------------------------------------------------


@proves("0.ran.1")
@proves("4.tools.7", "`session_status` tells how a session stands")
def test_a_status_is_read_back_from_what_ran(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        usage = {"input": 100, "cacheRead": 20, "output": 7}
        first = Replied("a", model="other-1", usage={"input": 1}, cost_usd=0.25)
        second = Replied("b", model="scripted-1", usage=usage, cost_usd=0.5)
        await desk.engine.commit(lambda c: transcripts.write(c, MAIN, first, second))
        await desk("sessions_spawn", task="work")
        await desk("sessions_spawn", task=f"{SAY}done")
        await desk.pass_time(1.0)
        assert await desk("session_status") == {
            "status": "ok",
            "sessionKey": MAIN,
            "agentId": "main",
            "kind": "main",
            "state": "working",
            "model": "scripted-1",
            "tokensIn": 101,
            "tokensOut": 7,
            "tokensCached": 20,
            "costUsd": 0.75,
            "contextTokens": 127,
            "contextWindow": 1000,
            "queueMode": "collect",
            "peopleMode": "steer",
            "unread": 1,
            "childrenActive": 1,
            "childrenDone": 1,
        }

    play(tmp_path, body)


@proves("4.tools.7")
def test_the_status_of_a_child_tells_its_run_and_its_plan(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        child = await desk("sessions_spawn", task="plan it", label="p", planMode=True)
        await desk.pass_time(5.0)
        status = await desk("session_status", sessionKey="p")
        assert (status["sessionKey"], status["runId"]) == (child["childSessionKey"], child["runId"])
        assert status["runStatus"] == "awaiting approval [PLAN:AWAITING APPROVAL]"
        assert status["state"] == "idle"
        assert (await desk("session_status", sessionKey=STRANGER))["error"] == f"no session {STRANGER}"

    play(tmp_path, body)


@proves("4.tools.67")
def test_a_session_sets_no_model_but_its_own_and_none_that_cannot_be_used(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        child = (await desk("sessions_spawn", task="work"))["childSessionKey"]
        refused = await desk("session_status", sessionKey=child, model=MODEL)
        assert (refused["status"], refused["error"]) == (
            "forbidden",
            "model: a session sets only its own; a subagent gets one by sessions_spawn",
        )
        wrong = await desk("session_status", model="nope")
        assert (wrong["status"], wrong["error"]) == ("error", "model: no such model (got 'nope')")
        assert (await desk("session_status", model=MODEL))["changedModel"]
        held = {one.key: one.facts.model for one in await desk.engine.store.read(lambda tx: tx.sessions.lineage(child))}
        assert held == {child: "", MAIN: MODEL}
        assert (await desk("session_status", model="default"))["changedModel"]
        found = await desk.engine.store.read(lambda tx: tx.sessions.get(MAIN))
        assert found is not None
        assert found.facts.model == ""

    play(tmp_path, body)


@proves("4.tools.38", "`sessions_list` and `session_status` tell when a child began and ended, and how long it worked")
def test_when_a_child_began_and_ended_and_how_long_it_worked_is_told(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        begun = int(desk.engine.clock.now() * 1000)
        await desk("sessions_spawn", task="work", label="long")
        await desk.pass_time(2.0)
        assert await times(desk, "long") == (begun, None, 2000)
        await desk("subagents", action="kill", target="long")
        await desk.pass_time(3.0)
        ended = begun + 2000
        assert await times(desk, "long") == (begun, ended, 2000)

    async def times(desk: Desk, label: str) -> tuple[object, ...]:
        status = await desk("session_status", sessionKey=label)
        (row,) = (await desk("sessions_list", kinds=["subagent"]))["sessions"]
        told = [(one.get("startedAt"), one.get("endedAt"), one.get("runtimeMs")) for one in (status, row)]
        assert told[0] == told[1]
        return told[0]

    play(tmp_path, body)


def test_a_child_that_waits_for_a_slot_has_no_times(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk("sessions_spawn", task="work", label="first")
        status = await desk("session_status", sessionKey="first")
        assert not status.keys() & {"startedAt", "endedAt", "runtimeMs"}

    play(tmp_path, body)


def test_the_states_of_a_session_are_told_apart(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        async def state(key: str) -> str:
            found: str = (await desk("session_status", sessionKey=key))["state"]
            return found

        await desk.engine.commit(lambda c: spawn.open_conversation(c, OTHER))
        assert await state(OTHER) == "idle"
        await desk.engine.store.transact(lambda tx: tx.turns.open(OTHER, {}, 0.0))
        assert await state(OTHER) == "waiting"
        await desk.engine.store.transact(lambda tx: tx.turns.close(OTHER, TurnEnd("replied"), 0.0))
        later = desk.engine.clock.now() + 1000
        await desk.engine.store.transact(lambda tx: tx.queue.put(OTHER, "main", OTHER, False, later))
        assert await state(OTHER) == "queued"
        await desk.engine.store.transact(lambda tx: tx.sessions.delete(OTHER))
        assert await state(OTHER) == "deleted"

    play(tmp_path, body, *OPEN)


@proves("4.tools.8", "`agents_list` lists the agents that may be spawned")
def test_the_agents_list_has_those_that_may_be_started(tmp_path: Path) -> None:
    settings = (
        "agents.list=[{id:'helper',description:'looks things up',model:'openai/gpt-5'},{id:'secret'}]",
        "agents.defaults.subagents.model='openai/small'",
    )

    async def body(desk: Desk) -> None:
        assert await desk("agents_list") == {
            "status": "ok",
            "requester": "main",
            "agents": [
                {"id": "main", "model": "openai/small"},
                {"id": "helper", "description": "looks things up", "model": "openai/small"},
            ],
        }

    play(tmp_path, body, *settings)
