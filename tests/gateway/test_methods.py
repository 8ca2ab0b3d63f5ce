"""Every method, over each transport: what the library does, reached from outside."""

import asyncio
import base64
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields

import fledge
from fledge.api import views
from fledge.commands.methods import METHODS
from fledge.commands.rpc import NO_METHOD
from fledge.commands.table import FORMER
from fledge.core import events as ev
from fledge.core.heartbeat import PROMPT
from fledge.core.policy import UNREAD_PROGRAM_S
from fledge.core.route import Address, origin_of
from fledge.core.run import CompletedGiveup
from fledge.core.turn import OpenTurn
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.orchestrator import bindings, effects, outbox
from fledge.orchestrator.commit import Commit
from fledge.runtime.base import Work
from fledge.store.base import SessionFacts
from fledge.testing import ScriptedModel, use
from fledge.tools.sandbox import find_sandbox
from tests import images
from tests.api.scene import obedient
from tests.gateway.asking import Client
from tests.gateway.serving import Asks, OverHttp, OverSocket, Server, serving
from tests.runtime.desk import said
from tests.statements import proves

MAIN = "agent:main:main"


@fledge.tool
async def launch() -> str:
    """Launch."""
    return "launched"


async def script(request: Request) -> Answer:
    """Echoes, waits for ever, delegates, launches: as it is told."""
    words = last_text(request)
    if words == "Delegate":
        return ScriptedReply(calls=(use("sessions_spawn", task="Say hello", label="child"),))
    if words == "Launch":
        return ScriptedReply(calls=(use("launch"),))
    if words == "Delegate and wait":
        return ScriptedReply(calls=(use("sessions_spawn", task="wait 1", label="child"), use("sessions_yield")))
    if words == "Say nothing" or words.startswith("[No reply]"):
        return ""
    if "Wait for me" not in words and said(request):
        return f"heard: {words.splitlines()[0]}"
    return await obedient(request)


HELD: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""By session: set when its runtime may finish the task "Hold"."""


async def foreign(work: Work) -> str:
    """A runtime, outside any sandbox."""
    if work.task == "Hold":
        await HELD[work.session].wait()
    return f"ran: {work.task}"


SETTINGS: dict[str, object] = {
    "tools": {"launch": {"approval": "ask"}},
    "agents": {"defaults": {"maxConcurrent": 16, "subagents": {"maxSpawnDepth": 2}}, "list": [{"id": "critic"}]},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("gateway") / "state"
    with serving(folder, ScriptedModel(script), SETTINGS, tools=[launch], runtimes={"foreign": foreign}) as server:
        yield server


@pytest.fixture(params=["http", "websocket"])
def ask(server: Server, request: pytest.FixtureRequest) -> Iterator[Asks]:
    if request.param == "http":
        yield OverHttp(server)
    else:
        with server.socket() as connection:
            yield OverSocket(connection)


@pytest.fixture
def chat(server: Server, request: pytest.FixtureRequest) -> str:
    """A conversation of this test's own, in which nothing was said yet."""
    key = "agent:main:" + "".join(c if c.isalnum() else "-" for c in request.node.name)
    server.begin(key)
    return key


# ---- sessions --------------------------------------------------------------------------------------------------------


@proves("5.heartbeat.15")
@proves("5.heartbeat.16")
def test_a_system_event_is_read_and_a_heartbeat_had_by_a_conversation(ask: Asks, chat: str) -> None:
    with pytest.raises(fledge.NotFound, match="no session"):
        ask.call("system.event", session=f"{chat}nobody", text="The build is red")
    ask.call("send", session=chat, message="Hello")
    assert ask.call("system.event", session=chat, text="The build is red") == {"posted": True}
    assert ask.call("sessions.wait", session=chat)["settled"]
    told = [one["text"] for one in ask.call("sessions.history", session=chat)]
    assert told[2:4] == [PROMPT, "[System event] The build is red"]
    assert ask.call("heartbeat.request", session=chat, reason="a new day") == {"sessionKey": chat}
    assert ask.call("sessions.wait", session=chat)["settled"]
    assert [one["text"] for one in ask.call("sessions.history", session=chat)].count(PROMPT) == 2


@proves("3.images.21", "The gateway's `send` and `agent` take images in base64, and refuse what is none")
@pytest.mark.parametrize("method", ["send", "agent"])
def test_images_are_sent_over_the_wire(ask: Asks, chat: str, method: str) -> None:
    data = base64.b64encode(images.png(640, 480)).decode()
    ask.call(method, session=chat, message="Hello", images=[{"data": data, "name": "cat.png"}, {"data": data}])
    ask.call("sessions.wait", session=chat)
    said = ask.call("sessions.history", session=chat)[0]["text"]
    assert said == "Hello\n[image cat.png, 640×480 PNG]\n[image, 640×480 PNG]"
    for wrong, words in (
        ([{"data": "!"}], "base64"),
        ([{"data": data, "more": 1}], "more"),
        ([{"name": "x"}], "data"),
        ([{"data": "AAAA"}], "must be a PNG, JPEG, GIF or WebP image"),
        ([{"data": data}] * 21, "at most 20"),
    ):
        with pytest.raises(fledge.FledgeError, match=words):
            ask.call(method, session=chat, message="Hello", images=wrong)


@proves("3.images.20")
def test_no_image_is_read_from_the_gateways_machine_by_a_command(ask: Asks, chat: str, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(images.png())
    done = ask.call("slash.run", session=chat, line=f"/image {tmp_path}/cat.png look")
    assert (done["ok"], "in a terminal only" in done["text"]) == (False, True)
    assert ask.call("sessions.history", session=chat) == []


@proves("4.gateway.1")
@proves("4.gateway.2")
@proves("4.gateway.3")
def test_agent_accepts_and_agent_wait_says_how_it_ended(ask: Asks, chat: str) -> None:
    accepted = ask.call("agent", message="Hello", session=chat, idempotencyKey=f"key {chat}")
    assert set(accepted) == {"runId", "status"}
    assert accepted["status"] == "accepted"
    assert ask.call("agent", message="Hello", session=chat, idempotencyKey=f"key {chat}") == accepted
    done = ask.call("agent.wait", run=accepted["runId"], timeoutMs=20_000)
    assert (done["status"], done["runId"]) == ("ok", accepted["runId"])
    assert isinstance(done["startedAt"], int)
    assert done["startedAt"] <= done["endedAt"]
    assert ask.call("reply", session=chat, run=accepted["runId"])["text"] == "echo: Hello"


@proves("4.gateway.15")
def test_a_request_whose_turn_yields_is_pending_until_its_results_are_answered(ask: Asks, chat: str) -> None:
    accepted = ask.call("agent", message="Delegate and wait", session=chat)
    assert ask.call("agent.wait", run=accepted["runId"], timeoutMs=200)["status"] == "pending"
    assert ask.call("agent.wait", run=accepted["runId"], timeoutMs=30_000)["status"] == "ok"
    reply = ask.call("reply", session=chat, run=accepted["runId"])
    assert reply["text"] == 'heard: [Subagent] "child" completed successfully'


@proves("2.hops.22")
def test_a_request_that_gets_no_words_is_not_ok(ask: Asks, chat: str) -> None:
    accepted = ask.call("agent", message="Say nothing", session=chat)
    done = ask.call("agent.wait", run=accepted["runId"], timeoutMs=30_000)
    assert (done["status"], done["error"]) == ("error", "no answer: the reply has no words")
    assert [entry["kind"] for entry in ask.call("sessions.history", session=chat)] == ["send", "", "nudge", "", ""]


@proves("4.gateway.5")
def test_a_wait_that_expires_is_pending(ask: Asks, chat: str, server: Server) -> None:
    accepted = ask.call("agent", message="Wait for me", session=chat)
    waited = ask.call("agent.wait", run=accepted["runId"], timeoutMs=1)
    assert (waited["status"], waited.get("endedAt")) == ("pending", None)
    server.do(server.desk.fl.until(lambda tx: tx.turns.get(chat), timeout=20))  # else nothing is stopped
    ask.call("sessions.stop", session=chat)
    done = ask.call("agent.wait", run=accepted["runId"])
    assert (done["status"], done["error"]) == ("error", "stopped")


@proves("4.gateway.7", "`send` sends")
@proves("4.gateway.8", "`sessions.list`, `history`, `patch`, `delete {key, deleteTranscript, emitLifecycleHooks}`")
def test_send_waits_for_the_answer_and_the_history_has_both(ask: Asks, chat: str) -> None:
    assert ask.call("send", session=chat, message="Hello")["text"] == "echo: Hello"
    history = ask.call("sessions.history", session=chat)
    assert [(one["role"], one["text"]) for one in history] == [("user", "Hello"), ("assistant", "echo: Hello")]
    assert ask.call("sessions.history", session=chat, after=1) == history[1:]
    assert ask.call("sessions.wait", session=chat)["settled"]
    assert chat in [one["key"] for one in ask.call("sessions.list", kinds=["named"], limit=1000)]


@proves("4.gateway.8")
def test_a_session_can_be_labelled_given_a_model_and_deleted(ask: Asks, chat: str) -> None:
    ask.call("send", session=chat, message="Hello")
    row = ask.call("sessions.patch", session=chat, label="Mine", model="scripted/echo", thinking="")
    assert (row["label"], row["state"]) == ("Mine", "idle")
    assert ask.call("send", session=chat, message="plain")["text"] == "plain"
    ask.call("sessions.patch", session=chat, model="")
    assert ask.call("send", session=chat, message="again")["text"] == "heard: again"
    assert ask.call("sessions.delete", session=chat, deleteTranscript=False) == {"ok": True}
    assert len(ask.call("sessions.history", session=chat)) == 6
    with pytest.raises(fledge.NotFound):
        ask.call("sessions.delete", session=chat)
    ask.call("send", session=chat, message="new")
    assert ask.call("sessions.delete", session=chat, emitLifecycleHooks=False) == {"ok": True}
    assert ask.call("sessions.history", session=chat) == []


@proves("4.tools.30", "Slash commands work over the gateway")
def test_slash_commands_do_what_they_do_in_the_chat(ask: Asks, chat: str) -> None:
    ask.call("send", session=chat, message="Hello")
    done = ask.call("slash.run", session=chat, line="/subagents list")
    assert done["ok"]
    assert done["text"].startswith("Subagents (current session)")
    refused = ask.call("slash.run", session=chat, line="/nonsense")
    assert not refused["ok"]


def test_a_turn_is_stopped_alone_or_with_everything_below(ask: Asks, chat: str) -> None:
    run = spawned(ask, "Wait for me", chat)
    said = ask.call("agent", session=chat, message="Wait for me")
    assert ask.call("agent.wait", run=said["runId"], timeoutMs=0)["status"] == "pending"
    assert ask.call("sessions.stop", session=chat, below=False) == {"killed": [], "stopping": []}
    assert ask.call("agent.wait", run=run["runId"], timeoutMs=0)["status"] == "pending"
    assert len(ask.call("sessions.stop", session=chat).values()) == 2
    assert ask.call("agent.wait", run=run["runId"], timeoutMs=30_000)["status"] == "error"


@proves("4.tools.44", "A stop takes back the messages that its caller names and that nobody has read")
def test_a_stop_takes_back_messages_that_nobody_has_read(ask: Asks, chat: str) -> None:
    read = ask.call("agent", session=chat, message="Wait for me")["runId"]
    until_busy(ask, chat)
    unread, other = (ask.call("agent", session=chat, message=words)["runId"] for words in ("never mind", "Hello"))
    elsewhere = ask.call("agent", session=f"{chat}-2", message="Hello")["runId"]
    done = ask.call("sessions.stop", session=chat, below=False, withdraw=[read, unread, elsewhere, "no-such-id"])
    assert done == {"killed": [], "stopping": [], "withdrawn": [unread]}
    gone = ask.call("agent.wait", run=unread)
    assert (gone["status"], gone["error"]) == ("error", "it was stopped before it read this")
    assert ask.call("reply", session=chat, run=other)["text"] == "echo: Hello"
    assert "never mind" not in [entry["text"] for entry in ask.call("sessions.history", session=chat)]


def until_busy(ask: Asks | Client, chat: str) -> None:
    """Wait until the conversation's turn has read what was said."""
    for _ in range(1000):
        if ask.call("sessions.history", session=chat):
            return
        time.sleep(0.01)
    raise AssertionError("nothing was read")


def test_a_client_has_no_place_that_could_be_bound(server: Server, ask: Asks, chat: str) -> None:
    key = spawned(ask, "Wait for me", chat)["childSessionKey"]
    place = Address("board", "somebody")
    server.do(server.desk.fl.engine.commit(lambda c: bindings.follow(c, chat, place)))
    told = ask.call("slash.run", session=chat, line=f"/focus {key}")
    assert not told["ok"]
    assert told["text"] == f"you speak from no place that could be bound: open the conversation {key} itself"
    assert server.do(server.desk.fl.engine.store.read(lambda tx: bindings.session_at(tx, place))) is None
    assert ask.call("slash.run", session=chat, line="/unfocus")["text"] == "nothing is bound here"


def test_a_tree_is_limited_and_says_what_it_left_out(ask: Asks, chat: str) -> None:
    waits = spawned(ask, "Wait for me", chat, label="oldest")["childSessionKey"]
    for label in ("first", "second", "third"):
        ask.call("agent.wait", run=spawned(ask, "Say hello", chat, label=label)["runId"], timeoutMs=30_000)
    whole = ask.call("runs.tree", requester=chat)
    assert [one["label"] for one in whole["runs"]] == ["oldest", "first", "second", "third"]
    assert whole["leftOut"] == 0
    some = ask.call("runs.tree", requester=chat, limit=2)
    assert [one["label"] for one in some["runs"]] == ["oldest", "third"]
    assert some["leftOut"] == 2
    for limit in (0, 100_001):
        with pytest.raises(fledge.BadInput, match="limit"):
            ask.call("runs.tree", requester=chat, limit=limit)
    ask.call("runs.kill", target=waits)


# ---- runs ------------------------------------------------------------------------------------------------------------


def spawned(ask: Asks, task: str, chat: str, **params: object) -> dict[str, Any]:
    answer: dict[str, Any] = ask.call("runs.spawn", requester=chat, task=task, **params)
    assert answer["status"] == "accepted"
    return answer


@proves("4.gateway.9", "`subagents.*`")
def test_a_spawn_for_a_conversation_is_told_there(ask: Asks, chat: str) -> None:
    accepted = spawned(ask, "Say hello", chat, label="child")
    result = ask.call("runs.result", run=accepted["runId"])
    assert (result["status"], result["text"], result["sessionKey"]) == (
        "ok",
        "echo: Say hello",
        accepted["childSessionKey"],
    )
    ask.call("sessions.wait", session=chat)
    (run,) = ask.call("runs.list", requester=chat)
    assert (run["label"], run["status"], run["delivery"]) == ("child", "ok", "delivered")
    assert [one["role"] for one in ask.call("sessions.history", session=chat)] == ["event", "assistant"]
    story = ask.call("runs.info", target="child", requester=chat)
    assert story["run"]["runId"] == accepted["runId"]
    assert [one["name"] for one in story["timeline"]][:3] == ["Admitted", "Prepared", "Claimed"]
    assert [one["label"] for one in ask.call("runs.tree", requester=chat)["runs"]] == ["child"]


@proves("2.announce.22", "The typed result is delivered, deferred, skipped or failed, with its fields")
def test_a_run_says_how_its_announce_came_out(ask: Asks, chat: str) -> None:
    waits = spawned(ask, "Wait for me", chat)["runId"]
    assert ask.call("runs.info", target=waits)["announced"] is None
    ask.call("runs.kill", target=waits)
    assert ask.call("sessions.wait", session=chat)["settled"]
    assert ask.call("runs.info", target=waits)["announced"] == {"kind": "skipped", "reason": "suppressed"}
    says = spawned(ask, "Say hello", chat)["runId"]
    ask.call("sessions.wait", session=chat)
    announced = ask.call("runs.info", target=says)["announced"]
    assert announced["kind"] == "delivered"
    assert announced["path"] in ("direct", "queued", "steered")


@proves("2.announce.22")
def test_the_announce_of_a_run_that_cannot_be_woken_is_deferred_for_its_children(
    ask: Asks, chat: str, server: Server
) -> None:
    async def release(session: str) -> None:
        HELD[session].set()

    program = f"{chat.rpartition(':')[2][:50]}-held"
    held = ask.call("runs.spawn", program=program, task="Hold", runtime="foreign")
    key, run = held["childSessionKey"], held["runId"]
    below = spawned(ask, "Wait for me", key)
    server.do(release(key))
    server.do(server.desk.fl.until(lambda tx: tx.runs.load(key).ended, timeout=20))
    deferred = {"kind": "deferred", "reason": "descendants-active"}
    assert ask.call("runs.info", target=run)["announced"] == deferred
    assert ask.call("runs.result", run=run, timeoutMs=0)["status"] == "pending"
    ask.call("runs.kill", target=below["runId"])
    assert ask.call("runs.result", run=run)["text"] == "ran: Hold"
    assert ask.call("runs.info", target=run)["announced"]["kind"] == "delivered"


@proves("3.params.25")
def test_the_old_name_of_the_timeout_is_read_with_a_warning(ask: Asks, chat: str) -> None:
    answer = spawned(ask, "Wait for me", chat, timeoutSeconds=1)
    assert answer["warning"] == "timeoutSeconds is the old name of runTimeoutSeconds"
    assert ask.call("runs.result", run=answer["runId"])["status"] == "timeout"


@proves("8.exec.7")
def test_a_spawn_of_a_runtime_is_refused_where_a_sandbox_is_demanded(ask: Asks, chat: str, server: Server) -> None:
    with pytest.raises(fledge.Refused, match="sandbox: require, but runtime foreign runs outside any sandbox"):
        spawned(ask, "Say hello", chat, runtime="foreign", sandbox="require")
    box = SessionFacts("main", boxed=True)
    server.do(server.desk.fl.engine.commit(lambda c: c.tx.sessions.open(f"{chat}-boxed", "named", None, 0, box, 1.0)))
    if find_sandbox(Path()) is None:
        words = "it was spawned to run in a sandbox, but bubblewrap does not work here"
    else:
        words = f"{chat}-boxed is sandboxed .agents.defaults.sandbox.mode., but runtime foreign runs outside any"
    with pytest.raises(fledge.Refused, match=words):
        spawned(ask, "Say hello", f"{chat}-boxed", runtime="foreign")
    program = f"p-{len(chat)}"
    answer = ask.call("runs.spawn", program=program, task="Say hello", runtime="foreign")
    assert ask.call("runs.result", run=answer["runId"])["text"] == "ran: Say hello"


@proves("4.gateway.9")
def test_a_spawn_for_a_program_is_read_by_its_run_id(ask: Asks, chat: str) -> None:
    program = f"{chat.rpartition(':')[2][:60]}-own"
    answer = ask.call("runs.spawn", program=program, task="Say hello")
    result = ask.call("runs.result", run=answer["runId"])
    assert result["text"] == "echo: Say hello"
    (run,) = ask.call("runs.list", requester=f"agent:main:{program}")
    assert run["delivery"] == "delivered"


@proves("2.outcome.3")
@proves("4.gateway.4")
@proves("4.gateway.9")
def test_a_run_is_steered_sent_to_and_killed(ask: Asks, chat: str) -> None:
    first = spawned(ask, "Wait for me", chat, label="one")
    assert ask.call("runs.send", target="last", requester=chat, message="Wait for me too")["status"] == "pending"
    steered = ask.call("runs.steer", target=first["runId"], message="Say goodbye")
    assert steered["sessionKey"] == first["childSessionKey"]
    done = ask.call("agent.wait", run=first["runId"])
    assert (done["status"], done["runId"]) == ("ok", steered["runId"])
    second = spawned(ask, "Wait for me", chat)
    third = spawned(ask, "Wait for me", chat)
    ended = ask.call("runs.kill", target=second["childSessionKey"])
    assert second["childSessionKey"] in (*ended["killed"], *ended["stopping"])
    result = ask.call("runs.result", run=second["runId"])
    assert (result["status"], result["error"], result["endedReason"]) == ("error", "killed", "killed")
    (listed,) = [one for one in ask.call("runs.list", requester=chat) if one["runId"] == second["runId"]]
    assert (listed["status"], listed["endedReason"]) == ("error", "killed")
    ask.call("runs.kill", target="all", requester=chat)
    assert ask.call("agent.wait", run=third["runId"])["error"] == "killed"


def test_runs_are_listed_by_the_status_they_show(ask: Asks, chat: str) -> None:
    killed, other = spawned(ask, "Wait for me", chat), spawned(ask, "Say hello", chat)
    ask.call("runs.kill", target=killed["runId"], wait=True)
    ask.call("agent.wait", run=other["runId"])

    def listed(status: str) -> list[str]:
        return [one["runId"] for one in ask.call("runs.list", requester=chat, status=status)]

    for run in ask.call("runs.list", requester=chat):
        assert listed(run["status"]) == [run["runId"]]
    assert listed("error") == listed("killed") == [killed["runId"]]
    assert listed("done") == [killed["runId"], other["runId"]]


@proves("4.resume.1")
@proves("4.resume.10")
def test_a_killed_run_is_resumed_and_run_again(ask: Asks, chat: str) -> None:
    first = spawned(ask, "Wait for me", chat, label="waiter", runTimeoutSeconds=300)
    with pytest.raises(fledge.Refused, match="has not ended: steer it, or send it a message"):
        ask.call("runs.resume", target=first["runId"])
    ask.call("runs.kill", target=first["runId"])
    assert ask.call("agent.wait", run=first["runId"])["error"] == "killed"
    resumed = ask.call("runs.resume", target="waiter", requester=chat, words="Say goodbye")
    assert (resumed["sessionKey"], resumed["attempt"]) == (first["childSessionKey"], 2)
    done = ask.call("agent.wait", run=first["runId"])
    assert (done["status"], done["runId"]) == ("ok", resumed["runId"])
    with pytest.raises(fledge.Refused, match=r"waiter has ended \(ok\): send it a message, or run it again"):
        ask.call("runs.resume", target=first["runId"])
    again = ask.call("runs.again", target=first["runId"], idempotencyKey=f"{chat}-again")
    assert ask.call("runs.again", target=first["runId"], idempotencyKey=f"{chat}-again") == again
    assert again["status"] == "accepted"
    assert again["childSessionKey"] != first["childSessionKey"]
    told = ask.call("runs.info", target=again["runId"])
    assert (told["run"]["label"], told["run"]["task"], told["timeoutS"]) == ("waiter", "Wait for me", 300)
    assert told["run"]["requester"] == chat
    ask.call("runs.kill", target=again["runId"])


@proves("4.kill.10", "With `wait`, a kill answers once everything that it stopped is gone, or after 6 s")
def test_a_kill_that_is_waited_for_says_what_is_over(ask: Asks, chat: str) -> None:
    runs = [spawned(ask, "Wait for me", chat) for _ in range(2)]
    wait_for(lambda: all(one["phase"] == "running" for one in ask.call("runs.list", requester=chat)))
    ended = ask.call("runs.kill", target="all", requester=chat, wait=True)
    assert sorted(ended["killed"]) == sorted(one["childSessionKey"] for one in runs)
    assert ended["stopping"] == []


def test_a_run_is_told_something_in_its_requesters_name(ask: Asks, chat: str) -> None:
    done = spawned(ask, "Say hello", chat, label="done")
    ask.call("agent.wait", run=done["runId"])
    told = ask.call("runs.tell", target="done", requester=chat, message="And now?")
    assert (told["status"], told["reply"]) == ("ok", "heard: And now?")
    planner = spawned(ask, "Say hello", chat, label="planner", planMode=True)
    wait_for(lambda: [one for one in ask.call("plans.list") if one["sessionKey"] == planner["childSessionKey"]])
    answered = ask.call("runs.tell", target="planner", requester=chat, message="APPROVED: go")
    assert answered["delivery"] == "the plan is approved"
    assert ask.call("agent.wait", run=planner["runId"])["status"] == "ok"


def test_a_place_is_bound_to_a_session_and_let_go(server: Server, ask: Asks, chat: str) -> None:
    at = ["ops", chat, "t1"]
    ask.call("send", session=chat, message="hello")
    assert ask.call("sessions.focus", session=chat, address=at) == {"sessionKey": chat}
    place = Address("ops", chat, "t1")
    assert server.do(server.desk.fl.engine.store.read(lambda tx: bindings.session_at(tx, place))) == chat
    assert ask.call("sessions.unfocus", address=at) == {"sessionKey": chat}
    with pytest.raises(fledge.NotFound, match="nothing is bound here"):
        ask.call("sessions.unfocus", address=at)


@pytest.mark.parametrize("words", ["mind the cat", "APPROVED: mind the cat"])
def test_an_approval_reads_the_same_with_and_without_its_first_word(ask: Asks, chat: str, words: str) -> None:
    planner = spawned(ask, "Say hello", chat, planMode=True)
    wait_for(lambda: [one for one in ask.call("plans.list") if one["sessionKey"] == planner["childSessionKey"]])
    ask.call("plans.approve", target=planner["runId"], words=words)
    said = wait_for(
        lambda: [
            one for one in ask.call("sessions.history", session=planner["childSessionKey"]) if one["kind"] == "approval"
        ]
    )
    assert [one["text"] for one in said] == ["APPROVED: mind the cat"]


@proves("4.gateway.10", "`plans.*`")
@proves("4.gateway.40", "An answer to a plan names the run id that was shown, and is refused for another plan")
def test_plans_are_listed_and_answered(ask: Asks, chat: str) -> None:
    accepted = spawned(ask, "Say hello", chat, label="planner", planMode=True)
    plan = wait_for(lambda: [one for one in ask.call("plans.list") if one["sessionKey"] == accepted["childSessionKey"]])
    assert (plan[0]["label"], plan[0]["text"]) == ("planner", "echo: Say hello")
    again = ask.call("plans.reject", target=accepted["runId"], reason="too short")
    wait_for(lambda: [one for one in ask.call("plans.list") if one["runId"] == again["runId"]])
    with pytest.raises(fledge.Refused, match="the plan has changed since it was shown"):
        ask.call("plans.approve", target=accepted["childSessionKey"], run=accepted["runId"])
    approved = ask.call("plans.approve", target=again["runId"], run=again["runId"])
    assert ask.call("agent.wait", run=approved["runId"])["status"] == "ok"


def wait_for(look: Any) -> Any:
    """What a look finds, once it finds something."""
    ends_at = time.monotonic() + 60
    while time.monotonic() < ends_at:
        found = look()
        if found:
            return found
    raise AssertionError("it never came to that")


# ---- people ----------------------------------------------------------------------------------------------------------


@proves("4.gateway.11", "`approvals.*`")
@proves("8.approvals.1", "Approvals are answered only by an authenticated client or the bound user")
@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_a_question_is_answered_only_for_the_call_that_was_shown(ask: Asks, chat: str, verdict: str) -> None:
    reply = ask.call("send", session=chat, message="Launch")
    (question,) = reply["questions"]
    assert question in ask.call("approvals.list")
    with pytest.raises(fledge.Refused):
        ask.call(f"approvals.{verdict}", id=question["id"], digest="of another")
    assert ask.call(f"approvals.{verdict}", id=question["id"], digest=question["digest"]) == {"ok": True}
    words = ask.call("reply", session=chat, run=reply["runId"])["text"]
    assert words.startswith("heard: launched" if verdict == "approve" else "heard: launch was refused")


@proves("2.announce.22")
@proves("4.gateway.12", "`undelivered.*`")
def test_undelivered_results_are_listed_retried_and_dismissed(server: Server, ask: Asks) -> None:
    fl = server.desk.fl

    async def lose() -> str:
        run = await fl.spawn("Say hello", label="lost")
        async for _ in run.events():
            pass
        await give_up(run.session_key)
        return run.session_key

    async def give_up(key: str) -> None:
        late = ev.CameDue(at=fl.engine.clock.now() + UNREAD_PROGRAM_S + 1, next_run_id="none")
        await fl.engine.commit(lambda c: effects.apply(c, key, late))
        await fl.until(lambda tx: isinstance(tx.runs.load(key).phase, CompletedGiveup) or None)

    key = server.do(lose())
    (lost,) = [one for one in ask.call("undelivered.list") if one["sessionKey"] == key]
    assert (lost["label"], lost["status"], lost["text"]) == ("lost", "ok", "echo: Say hello")
    assert lost["to"].startswith("agent:main:")
    assert lost["tries"] >= 1
    assert lost["keptUntilAt"] > lost["arrivedAt"]
    announced = ask.call("runs.info", target=key)["announced"]
    assert announced == {"kind": "failed", "retryable": True, "error": lost["reason"]}
    assert ask.call("undelivered.retry", target=key) == {"key": key, "name": "lost", "ok": True}
    assert key not in [one["sessionKey"] for one in ask.call("undelivered.list")]
    server.do(give_up(key))
    assert ask.call("undelivered.dismiss", target=key) == {"key": key, "name": "lost", "ok": True}
    with pytest.raises(fledge.Refused):
        ask.call("undelivered.retry", target=key)


@proves("4.gateway.25", "A given-up result can be retried to another conversation, which reads it once")
def test_a_given_up_result_is_delivered_to_another_conversation(server: Server, ask: Asks, chat: str) -> None:
    fl = server.desk.fl

    async def lose() -> str:
        run = await fl.spawn("Say hello", label="lost")
        async for _ in run.events():
            pass
        late = ev.CameDue(at=fl.engine.clock.now() + UNREAD_PROGRAM_S + 1, next_run_id="none")
        await fl.engine.commit(lambda c: effects.apply(c, run.session_key, late))
        await fl.until(lambda tx: isinstance(tx.runs.load(run.session_key).phase, CompletedGiveup) or None)
        return run.session_key

    key = server.do(lose())
    for nobody in (f"{chat}nobody", key):
        with pytest.raises(fledge.BadInput, match="to: must be a conversation that exists"):
            ask.call("undelivered.retry", target=key, to=nobody)
    ask.call("undelivered.retry", target=key, to=chat)
    assert ask.call("sessions.wait", session=chat)["settled"]
    (told,) = [one for one in ask.call("sessions.history", session=chat) if one["role"] == "event"]
    assert [one["sessionKey"] for one in told["completions"]] == [key]
    assert ask.call("runs.info", target=key)["run"]["delivery"] == "delivered"
    assert key not in [one["sessionKey"] for one in ask.call("undelivered.list")]


@proves("4.gateway.26", "A question names run, label, lineage, folder, sandbox and why; a plan who asked and when")
def test_a_question_and_a_plan_say_whose_they_are(server: Server, ask: Asks, chat: str) -> None:
    ask.call("sessions.patch", session=chat, label="billing")
    run = ask.call("runs.spawn", requester=chat, task="Launch", label="launcher")
    (question,) = server.do(
        server.desk.fl.until(
            lambda tx: [one for one in views.questions(tx) if one.session_key == run["childSessionKey"]] or None,
            timeout=20,
        )
    )
    (told,) = [one for one in ask.call("approvals.list") if one["id"] == question.id]
    assert (told["runId"], told["label"], told["lineage"]) == (run["runId"], "launcher", ["billing"])
    assert told["why"] == "the settings ask before each call of launch"
    assert told["cwd"] == str(server.state.parent)
    assert isinstance(told["isSandboxed"], bool)
    ask.call("runs.kill", target=run["runId"])
    planned = ask.call("runs.spawn", requester=chat, task="Say a plan", label="planner", planMode=True)
    key = planned["childSessionKey"]
    server.do(server.desk.fl.until(lambda tx: tx.runs.load(key).phase.name == "awaiting_approval" or None, timeout=20))
    (plan,) = [one for one in ask.call("plans.list") if one["sessionKey"] == key]
    assert (plan["requester"], plan["lineage"]) == (chat, ["billing"])
    assert 0 < plan["askedAt"] < plan["expiresAt"]
    ask.call("runs.kill", target=key)


@proves("4.gateway.14", "`health`")
def test_health_says_how_it_is(ask: Asks) -> None:
    health = ask.call("health")
    assert (health["status"], health["version"]) == ("ok", fledge.__version__)
    assert health["startedAt"] <= health["nowAt"]
    assert set(health["counters"]) >= {"phases", "outcomes", "deliveries"}


def test_an_overview_says_what_goes_on_and_what_waits_for_a_person(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        client = server.client()
        client.call("send", session="main", message="Hello")
        told = client.call("overview")
        assert (told["state"], told["isDriven"], told["isUnfinished"]) == ("idle", True, False)
        assert (told["runs"], told["questions"], told["plans"], told["undelivered"]) == ([], [], [], 0)
        client.call("runs.spawn", task="dig", label="planner", planMode=True)
        client.call("sessions.wait")
        told = client.call("overview")
        assert [run["label"] for run in told["runs"]] == ["planner"]
        assert [plan["label"] for plan in told["plans"]] == ["planner"]


@pytest.mark.parametrize("session", ["agent:main:main", "agent:main:trip"])
def test_the_whole_folder_rests_once_no_conversation_has_an_open_turn(tmp_path: Path, session: str) -> None:
    with serving(tmp_path / "state") as server:
        client = server.client()
        run_id = client.call("agent", session=session, message="Wait for me")["runId"]
        until_busy(client, session)
        assert client.call("overview")["isUnfinished"]
        assert not client.call("sessions.wait", session="other", timeoutMs=0, wholeFolder=True)["settled"]
        assert client.call("sessions.wait", session="other", timeoutMs=0)["settled"]
        client.call("sessions.stop", session=session)
        client.call("agent.wait", run=run_id)
        assert client.call("sessions.wait", session="other", wholeFolder=True)["settled"]
        assert not client.call("overview")["isUnfinished"]


def test_old_names_of_methods_are_answered_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path / "state") as server:
        client = server.client()
        client.call("send", session="main", message="Hello")
        for old, name in FORMER.items():
            codes = [_code(client, called) for called in (old, old, name)]
            assert codes[0] == codes[1] == codes[2]
            assert codes[0] != NO_METHOD
            assert [one.getMessage() for one in caplog.records].count(f"{old} is deprecated: it is called {name}") == 1
        assert len(FORMER) == 9


def _code(client: Client, method: str) -> int:
    """The error's code of a call without parameters; 0 if it was answered."""
    ask = {"jsonrpc": "2.0", "method": method, "params": {}, "id": 1}
    told = msgspec.json.decode(client.request("POST", "/rpc", msgspec.json.encode(ask)))
    return int(told.get("error", {}).get("code", 0))


def test_slash_commands_are_listed(ask: Asks) -> None:
    listed = ask.call("slash.list")
    assert [one["form"] for one in listed][:2] == ["/subagents list", "/subagents info <id|#>"]
    assert all(one["form"].startswith("/") and one["meaning"] for one in listed)


def test_a_word_for_a_session_is_found(ask: Asks) -> None:
    ask.call("send", session="main", message="Hello")
    assert ask.call("sessions.find", target="main") == {"sessionKey": "agent:main:main"}
    with pytest.raises(fledge.NotFound, match=r"nobody|no subagents here"):
        ask.call("sessions.find", target="nobody")


# ---- bad input -------------------------------------------------------------------------------------------------------


@proves("4.gateway.1")
@proves("7.input.8", "Bad calls of the gateway are answered with a typed, readable error")
@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("agent", {}, "message"),
        ("agent", {"message": ""}, "message"),
        ("agent", {"message": "x", "session": "a b"}, "session"),
        ("agent", {"message": "x", "sessionKey": "a b"}, "sessionKey"),
        ("agent", {"message": "x", "session": "main", "sessionKey": "main"}, "sessionKey"),
        ("agent", {"message": "x", "thinking": "very"}, "thinking"),
        ("agent", {"message": "x", "model": "nowhere/x"}, "model"),
        ("agent", {"message": "x", "lane": "fast"}, "lane"),
        ("agent", {"message": "x", "timeoutSeconds": -1}, "timeoutSeconds"),
        ("agent", {"message": "x", "colour": "red"}, "colour"),
        ("agent.wait", {"run": "x", "timeoutMs": 10**9}, "timeoutMs"),
        ("agent.wait", {"run": "x", "timeoutMs": "soon"}, "timeoutMs"),
        ("send", {"session": "main"}, "message"),
        ("sessions.history", {"session": "main", "limit": 0}, "limit"),
        ("sessions.patch", {"session": "main", "model": "nowhere/x"}, "model"),
        ("runs.spawn", {"task": ""}, "task"),
        ("runs.spawn", {"task": "x", "cleanup": "burn"}, "cleanup"),
        ("runs.spawn", {"task": "x", "program": "a b"}, "program"),
        ("runs.spawn", {"task": "x", "agent": "a b"}, "agent"),
        ("runs.spawn", {"task": "x", "agentId": "a b"}, "agentId"),
        ("runs.spawn", {"task": "x", "planMode": True, "mode": "session", "thread": True}, "planMode"),
        ("runs.spawn", {"params": {"task": ""}}, "params.task"),
        ("runs.spawn", {"params": {"task": "x", "cleanup": "burn"}}, "params.cleanup"),
        ("runs.spawn", {"params": {"task": "x"}, "task": "y"}, "task"),
        ("runs.spawn", {"params": "x"}, "params"),
        ("runs.spawn", {"params": None}, "task"),
        ("agent", {"": {"message": "x"}, "message": "x"}, ""),
        ("runs.tree", {"requester": "a b"}, "requester"),
        ("sessions.find", {"target": "agent:::"}, "target"),
        ("runs.info", {"target": "x", "sessionKey": "a b"}, "sessionKey"),
        ("plans.reject", {"target": "x", "reason": ""}, "reason"),
        ("approvals.approve", {"id": "x"}, "digest"),
        ("events.subscribe", {"cursor": -1}, "cursor"),
    ],
)
def test_bad_input_names_the_field(ask: Asks, method: str, params: dict[str, Any], field: str) -> None:
    with pytest.raises(fledge.BadInput) as refused:
        ask.call(method, **params)
    assert refused.value.field == field


OPTIONAL = [
    (name, wire)
    for name, method in METHODS.items()
    for wire, field in zip(method.params.__struct_encode_fields__, fields(method.params), strict=True)
    if not field.required
]


@proves("7.input.32")
def test_null_for_any_optional_parameter_of_any_method_means_not_given(ask: Asks) -> None:
    assert len(OPTIONAL) > 50
    for method, name in OPTIONAL:
        answer = ask.raw({"jsonrpc": "2.0", "method": method, "params": {name: None, "colour": 1}, "id": 1})
        assert answer["error"]["message"] == "colour: is not a parameter", (method, name)


@proves("7.input.33")
def test_a_wrong_type_is_told_with_the_field_what_it_must_be_and_what_was_given(ask: Asks) -> None:
    answer = ask.raw({"jsonrpc": "2.0", "method": "agent", "params": {"message": 5}, "id": 1})
    words = "must be text of at most 1000000 characters"
    assert answer["error"] == {
        "code": -32602,
        "message": f"message: {words} (got 5)",
        "data": {"field": "message", "expected": words},
    }
    with pytest.raises(fledge.BadInput, match=r"^message: must be text .* \(got 5\)$"):
        ask.call("agent", message=5)


# ---- old names -------------------------------------------------------------------------------------------------------


@proves(
    "4.gateway.16",
    "`session`, `run`, `agent`, `requester` and `target` mean the same in every method; their old names are read, and"
    " logged once for each method",
)
def test_old_names_of_parameters_are_read_and_logged_once(
    server: Server, ask: Asks, chat: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.desk.old_names.clear()
    said = ask.call("send", sessionKey=chat, message="Hello")
    assert ask.call("reply", sessionKey=chat, runId=said["runId"])["text"] == "echo: Hello"
    assert ask.call("sessions.history", key=chat) == ask.call("sessions.history", session=chat)
    assert ask.call("sessions.history", key=chat, limit=1)[0]["text"] == "echo: Hello"
    assert ask.call("sessions.list", agentId="nobody") == []
    assert ask.call("runs.tree", root=chat)["runs"] == []
    assert [line for line in caplog.messages if "deprecated" in line] == [
        "send: sessionKey is deprecated: the parameter is called session",
        "reply: sessionKey is deprecated: the parameter is called session",
        "reply: runId is deprecated: the parameter is called run",
        "sessions.history: key is deprecated: the parameter is called session",
        "sessions.list: agentId is deprecated: the parameter is called agent",
        "runs.tree: root is deprecated: the parameter is called requester",
    ]


@proves("4.gateway.17", "`runs.spawn` takes its parameters side by side; those in `params` are read as well")
def test_parameters_of_a_spawn_may_stand_in_params_as_formerly(
    server: Server, ask: Asks, chat: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.desk.old_names.clear()
    program, key = "nested", f"nested {chat}"
    nested = ask.call("runs.spawn", program=program, params={"task": "Say hello", "idempotencyKey": key})
    assert ask.call("runs.spawn", program=program, task="Say hello", idempotencyKey=key)["runId"] == nested["runId"]
    assert caplog.messages.count("runs.spawn: params is deprecated: give its members as parameters") == 1


def test_no_method_has_a_parameter_by_an_old_name() -> None:
    names = {name for method in METHODS.values() for name in method.params.__struct_encode_fields__}
    assert names & {"sessionKey", "key", "runId", "agentId", "root", "params"} == set()


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("agent.wait", {"run": "nobody"}),
        ("reply", {"session": "main", "run": "nobody"}),
        ("sessions.history", {"session": "agent:main:nobody"}),
        ("sessions.stop", {"session": "agent:main:nobody"}),
        ("runs.info", {"target": "nobody"}),
        ("runs.kill", {"target": "agent:main:subagent:nobody"}),
        ("runs.result", {"run": "nobody"}),
        ("runs.resume", {"target": "nobody"}),
        ("runs.again", {"target": "nobody"}),
        ("runs.remove", {"target": "nobody"}),
        ("plans.approve", {"target": "nobody"}),
        ("approvals.deny", {"id": "nobody", "digest": "x"}),
        ("undelivered.retry", {"target": "nobody"}),
    ],
)
def test_what_is_not_there_says_so(ask: Asks, method: str, params: dict[str, Any]) -> None:
    with pytest.raises(fledge.NotFound):
        ask.call(method, **params)


def test_an_unknown_method_is_refused_with_the_nearest(ask: Asks) -> None:
    told = ask.raw({"jsonrpc": "2.0", "method": "agent.waits", "id": 7})
    assert told == {
        "jsonrpc": "2.0",
        "error": {"code": -32601, "message": "no method 'agent.waits'; did you mean agent.wait?"},
        "id": 7,
    }


@proves("7.input.8")
@pytest.mark.parametrize(
    ("document", "code", "name"),
    [
        ("{", -32700, None),
        ("", -32700, None),
        ("nonsense", -32700, None),
        ('"\\ud800"', -32700, None),
        ([], -32600, None),
        (3, -32600, None),
        ({}, -32600, None),
        ({"jsonrpc": "1.0", "method": "health", "id": 1}, -32600, 1),
        ({"jsonrpc": "2.0", "method": 3, "id": 1}, -32600, 1),
        ({"jsonrpc": "2.0", "method": "health", "id": {}}, -32600, None),
        ({"jsonrpc": "2.0", "method": "health", "id": True}, -32600, None),
        ({"jsonrpc": "2.0", "method": "health", "id": 1, "extra": 1}, -32600, 1),
        ({"jsonrpc": "2.0", "method": "health", "params": [], "id": "x"}, -32602, "x"),
        ({"jsonrpc": "2.0", "method": "health", "params": None, "id": "x"}, -32602, "x"),
    ],
)
def test_what_is_no_request_gets_the_error_of_the_standard(
    ask: Asks, document: object, code: int, name: object
) -> None:
    told = ask.raw(document)
    assert (told["error"]["code"], told["id"]) == (code, name)


def test_a_batch_is_answered_as_a_batch_and_notifications_get_no_answer(ask: Asks, chat: str) -> None:
    asks = [
        {"jsonrpc": "2.0", "method": "health", "id": 1},
        {"jsonrpc": "2.0", "method": "agent", "params": {"message": "Hello", "session": chat}},
        {"jsonrpc": "2.0", "method": "nothing", "id": "two"},
    ]
    told = ask.raw(asks)
    assert {one["id"] for one in told} == {1, "two"}
    assert ask.raw({"jsonrpc": "2.0", "method": "nothing"}) is None
    ask.call("sessions.wait", session=chat)
    assert len(ask.call("sessions.history", session=chat)) == 2, "a notification is carried out"
    assert ask.raw([{"jsonrpc": "2.0", "method": "health", "id": 1}] * 51)["error"]["code"] == -32600


def test_our_own_trouble_is_told_without_its_words(server: Server, ask: Asks) -> None:
    from fledge.commands.methods import METHODS

    async def breaks(desk: object, params: object) -> object:
        raise RuntimeError("a secret")

    known = METHODS["health"]
    METHODS["breaks"] = type(known)("breaks", known.params, known.result, "", breaks)
    try:
        told = ask.raw({"jsonrpc": "2.0", "method": "breaks", "id": 1})
    finally:
        del METHODS["breaks"]
    assert told["error"] == {"code": -32603, "message": "internal error: see the gateway's log"}


def test_two_gateways_cannot_have_one_folder(server: Server, tmp_path: Path) -> None:
    with pytest.raises(fledge.StoreLocked, match=f"gateway at {server.address}"), serving(server.state):
        pass


def test_many_clients_ask_at_once_and_each_gets_its_own_answer(server: Server) -> None:
    async def many() -> list[str]:
        def one(number: int) -> str:
            told = server.client().call("send", session=f"many-{number}", message=f"number {number}")
            return str(told["text"])

        return list(await asyncio.gather(*(asyncio.to_thread(one, n) for n in range(20))))

    assert asyncio.run(many()) == [f"echo: number {n}" for n in range(20)]


@proves("3.limits.33")
@proves("3.limits.29")
@pytest.mark.parametrize("program", ["", "robot"])
def test_the_holder_of_the_token_may_spawn_every_agent_there_is(ask: Asks, chat: str, program: str) -> None:
    given: dict[str, Any] = {"program": program} if program else {"requester": chat}
    told = ask.call("runs.spawn", params={"task": "Say hello", "agentId": "critic"}, **given)
    assert told["childSessionKey"].startswith("agent:critic:subagent:")
    with pytest.raises(fledge.Refused, match=r'there is no agent "critc" \(did you mean critic\?\)'):
        ask.call("runs.spawn", params={"task": "Say hello", "agentId": "critc"}, **given)


@proves("2.hops.26")
def test_a_message_that_could_not_be_sent_is_listed_retried_and_dismissed(server: Server, ask: Asks, chat: str) -> None:
    key = f"reply:{chat}:7"

    def lose(c: Commit) -> None:
        turn = OpenTurn(chat, 1, {}, 0, 0, 0, c.at, origin=origin_of(Address("ops", "ann")))
        outbox.reply(c, turn, 7, "for ann")
        c.tx.outbox.give_up(key, "HTTP 500", c.at + 9e9, c.at)

    server.do(server.desk.fl.engine.commit(lose))
    (lost,) = [one for one in ask.call("undelivered.list") if one["sessionKey"] == chat]
    assert (lost["key"], lost["kind"], lost["label"], lost["text"]) == (key, "message", "ann on ops", "for ann")
    assert ask.call("health")["undelivered"] == len(ask.call("undelivered.list"))
    listed = ask.call("slash.run", sessionKey=chat, line="/subagents undelivered")["text"]
    assert f'{key}  to ann on ops: "for ann"' in listed
    assert ask.call("undelivered.dismiss", target=key)["key"] == key
    assert key not in [one["key"] for one in ask.call("undelivered.list")]
