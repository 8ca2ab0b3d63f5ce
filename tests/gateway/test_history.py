"""`sessions.history` and `sessions.entry` over the wire: a transcript as typed values, page by page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.testing import ScriptedModel, use
from tests.api.scene import Place, obedient
from tests.gateway.serving import OverHttp, OverSocket, Server, serving
from tests.runtime.desk import said
from tests.statements import proves

LONG = "ä" * 5000


@fledge.tool
async def launch() -> str:
    """Launch."""
    return LONG


@fledge.tool
async def fail() -> str:
    """Fail."""
    raise ValueError("broken")


async def script(request: Request) -> Answer:
    """Makes the calls that it is told to make, then says what it heard."""
    words = last_text(request)
    if said(request):
        return f"heard: {words.splitlines()[0][:80]}"
    if words == "Delegate":
        return ScriptedReply(
            "I will ask.", calls=(use("sessions_spawn", task="Say hello", label="digger"), use("sessions_yield"))
        )
    if words == "Launch and fail":
        return ScriptedReply(calls=(use("launch"), use("fail")))
    if words == "Ask":
        return ScriptedReply(calls=(use("guarded"),))
    return await obedient(request)


@fledge.tool
async def guarded() -> str:
    """Asks first."""
    return "done"


SETTINGS: dict[str, object] = {"tools": {"guarded": {"approval": "ask"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("history") / "state"
    with serving(folder, ScriptedModel(script), SETTINGS, tools=[launch, fail, guarded]) as server:
        yield server


@pytest.fixture
def ask(server: Server) -> OverHttp:
    return OverHttp(server)


@pytest.fixture
def chat(server: Server, request: pytest.FixtureRequest) -> str:
    """A conversation of this test's own, in which nothing was said yet."""
    key = "agent:main:" + "".join(c if c.isalnum() else "-" for c in request.node.name)
    server.begin(key)
    return key


def values(ask: OverHttp, session: str, **more: Any) -> list[dict[str, Any]]:
    """The entries of a page."""
    found: list[dict[str, Any]] = ask.call("sessions.history", session=session, view="entries", **more)["entries"]
    return found


@proves("4.gateway.18", "`sessions.history` with the view `entries` gives a transcript as typed values, page by page")
def test_calls_and_results_are_values(ask: OverHttp, chat: str) -> None:
    run = ask.call("agent", session=chat, message="Launch and fail")["runId"]
    assert ask.call("agent.wait", run=run)["status"] == "ok"
    message, reply, first, second, last = values(ask, chat)
    assert (message["type"], message["by"], message["text"], message["runId"]) == (
        "message",
        "person",
        "Launch and fail",
        run,
    )
    launched, failed = reply["calls"]
    assert (launched["name"], launched["status"], launched["resultSeq"]) == ("launch", "ok", first["seq"])
    assert (failed["name"], failed["status"], failed["resultSeq"]) == ("fail", "error", second["seq"])
    assert reply["at"] == launched["startedAt"] <= launched["endedAt"] == first["at"]
    assert (first["type"], first["callId"], first["callSeq"]) == ("result", launched["id"], reply["seq"])
    assert (len(first["text"]), first["size"]) == (1024, 10_000)
    assert second["isError"]
    assert last["type"] == "reply"
    assert last["model"]


@proves("4.gateway.19", "`sessions.entry` gives one entry whole")
def test_one_entry_is_had_whole(ask: OverHttp, chat: str) -> None:
    ask.call("send", session=chat, message="Launch and fail")
    (seq,) = [one["seq"] for one in values(ask, chat) if one.get("size")]
    whole = ask.call("sessions.entry", session=chat, seq=seq)
    assert whole["text"] == LONG
    assert "size" not in whole
    with pytest.raises(fledge.NotFound, match="no entry 99"):
        ask.call("sessions.entry", session=chat, seq=99)


@proves("4.gateway.20", "A completion in a history is a typed value: run, label, status, summary, figures, result")
def test_a_completion_is_a_value_that_outlives_its_run(ask: OverHttp, chat: str, server: Server) -> None:
    ask.call("send", session=chat, message="Delegate")
    ask.call("sessions.wait", session=chat)
    told = values(ask, chat)
    (reply,) = [one for one in told if one.get("calls")]
    spawn = reply["calls"][0]
    (entry,) = [one for one in told if one["type"] == "completions"]
    (completion,) = entry["completions"]
    assert completion["runId"] == spawn["childRunId"]
    assert completion["sessionKey"] == spawn["childSessionKey"]
    assert (completion["kind"], completion["label"], completion["status"]) == ("outcome", "digger", "ok")
    assert completion["summary"].startswith("echo: ")
    assert completion["resultBytes"] > 0
    assert completion["stats"]["runtimeS"] is not None
    whole = ask.call("sessions.entry", session=chat, seq=entry["seq"])
    assert whole["completions"][0]["result"].endswith("Say hello")
    (message,) = [one for one in ask.call("sessions.history", session=chat) if one["role"] == "event"]
    assert message["completions"] == entry["completions"]

    async def forgotten() -> None:
        await server.desk.fl.engine.commit(lambda c: c.tx.runs.forget(completion["sessionKey"]))

    server.do(forgotten())
    (after,) = [one for one in values(ask, chat) if one["type"] == "completions"]
    assert after == entry
    assert "result" not in ask.call("sessions.entry", session=chat, seq=entry["seq"])["completions"][0]


def test_a_page_upwards_begins_where_the_last_one_ended_and_nothing_is_twice(ask: OverHttp, chat: str) -> None:
    for _ in range(3):
        ask.call("send", session=chat, message="Launch and fail")
    everything = values(ask, chat)
    assert len(everything) == 9
    pages: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    while True:
        page = ask.call("sessions.history", session=chat, view="entries", limit=4, **before)
        pages[:0] = page["entries"]
        assert page["newer"] == bool(before)
        if not page["older"]:
            break
        before = {"before": page["first"]}
    assert pages == everything
    down = ask.call("sessions.history", session=chat, view="entries", limit=4, after=everything[3]["seq"])
    assert (down["entries"], down["older"], down["newer"]) == (everything[4:8], True, True)
    assert values(ask, chat, after=everything[-1]["seq"]) == []


def test_a_question_stands_at_its_call(ask: OverHttp, chat: str) -> None:
    asked = ask.call("send", session=chat, message="Ask", timeoutSeconds=30)["questions"][0]
    call = values(ask, chat)[-1]["calls"][0]
    assert (call["status"], call["question"]) == ("asked", {"id": asked["id"], "state": "waiting"})
    ask.call("approvals.deny", id=asked["id"], digest=asked["digest"], words="not today")
    ask.call("sessions.wait", session=chat)
    (call,) = [one for each in values(ask, chat) for one in each.get("calls", ())]
    assert (call["status"], call["question"]["state"], call["question"]["words"]) == ("error", "denied", "not today")


@proves("4.gateway.21", "Steer, kill, resume, crash and a plan's answer are lines in the history of run and parent")
def test_what_is_done_to_a_child_is_a_line_in_both_histories(ask: OverHttp, chat: str) -> None:
    spawned = ask.call("runs.spawn", requester=chat, task="Wait for me", label="sleeper")
    key = spawned["childSessionKey"]
    ask.call("runs.steer", target=key, message="Wait for me elsewhere")
    ask.call("runs.kill", target=key, wait=True)
    ask.call("send", session=chat, message="hello")
    lines = [one for one in values(ask, chat) if one["type"] == "line"]
    assert [(one["kind"], one["sessionKey"], one["label"]) for one in lines] == [
        ("steered", key, "sleeper"),
        ("killed", key, "sleeper"),
    ]
    assert [one["kind"] for one in values(ask, key) if one["type"] == "line"] == ["steered", "killed"]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"before": 3}, "before"),
        ({"before": 3, "after": 1, "view": "entries"}, "before"),
        ({"before": 0, "view": "entries"}, "before"),
        ({"view": "pictures"}, "view"),
        ({"view": "entries", "limit": 501}, "limit"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(
    ask: OverHttp, chat: str, params: dict[str, Any], field: str
) -> None:
    with pytest.raises(fledge.BadInput) as refused:
        ask.call("sessions.history", session=chat, **params)
    assert refused.value.field == field


def test_the_library_gives_the_same_completions(tmp_path: Path) -> None:
    async def talk(fl: fledge.Fledge) -> list[fledge.Message]:
        await fl.session("main").send("Delegate")
        await fl.session("main").settled(timeout=60)
        return await fl.session("main").history()

    told = Place(tmp_path).act(talk, ScriptedModel(script))
    (event,) = [one for one in told if one.role == "event"]
    assert [(one.label, one.status, one.kind) for one in event.completions] == [("digger", "ok", "outcome")]


@proves("4.gateway.22", "A feed with `entries` tells each new entry once, as the value that the history has of it")
def test_a_feed_tells_new_entries_as_values(server: Server, ask: OverHttp, chat: str) -> None:
    ask.call("send", session=chat, message="before")
    known = len(values(ask, chat))
    with server.socket() as connection:
        watching = OverSocket(connection)
        watching.call("events.subscribe", session=chat, entries=True)
        watching.call("send", session=chat, message="after")
        told: list[dict[str, Any]] = []
        while len(told) < 2:
            event = watching.event()
            told += [event["entry"]] if event["type"] == "entry" else []
    assert told == values(ask, chat)[known:]
    assert [one["type"] for one in told] == ["message", "reply"]
