"""A method of the gateway that takes a session's key and is refused leaves the store exactly as it was."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.commands.methods import METHODS
from fledge.store.files import DATABASE
from tests.gateway.serving import Server, serving
from tests.statements import proves

MAIN, NOBODY = "agent:main:main", "agent:main:nobody"
NO_CHILD = "agent:main:subagent:00000000-0000-0000-0000-000000000000"
NONSENSE = "agent:::"
NAMES = ("key", "session_key", "requester", "root", "target")
"""Parameters that name a session."""
HELLO = {"message": "hello"}

REFUSED: dict[str, list[dict[str, Any]]] = {
    "agent": [
        {"sessionKey": NONSENSE, **HELLO},
        {"sessionKey": NO_CHILD, **HELLO},
        {"sessionKey": NOBODY, "message": "  "},
        {"sessionKey": NOBODY, **HELLO, "model": "nowhere/model"},
        {"sessionKey": NOBODY, **HELLO, "defaultModel": "nowhere/model"},
        {"sessionKey": NOBODY, **HELLO, "lane": "nowhere"},
        {"sessionKey": MAIN, **HELLO, "thinking": "hard"},
    ],
    "send": [
        {"sessionKey": NONSENSE, **HELLO},
        {"sessionKey": NO_CHILD, **HELLO},
        {"sessionKey": NOBODY, "message": "  "},
        {"sessionKey": NOBODY, **HELLO, "timeoutSeconds": -1},
    ],
    "reply": [{"sessionKey": NOBODY, "runId": "none"}, {"sessionKey": MAIN, "runId": "{run}"}],
    "sessions.history": [{"key": NOBODY}, {"key": NONSENSE}, {"key": MAIN, "limit": 0}],
    "sessions.patch": [
        {"key": NOBODY, "label": "x"},
        {"key": MAIN, "model": "nowhere/model"},
        {"key": MAIN, "thinking": "hard"},
    ],
    "sessions.delete": [{"key": NOBODY}, {"key": NONSENSE}, {"key": "{planner}"}],
    "sessions.stop": [{"key": NOBODY}, {"key": NONSENSE}, {"key": NO_CHILD}],
    "sessions.wait": [{"key": NONSENSE}],
    "system.event": [{"text": "it rains", "sessionKey": NOBODY}, {"text": "it rains", "sessionKey": NONSENSE}],
    "heartbeat.request": [{"sessionKey": NOBODY}, {"sessionKey": NONSENSE}],
    "commands.run": [
        {"sessionKey": NONSENSE, "line": "/stop"},
        {"sessionKey": NOBODY, "line": "/subagents spawn main dig"},
        {"sessionKey": NOBODY, "line": "/stop"},
        {"sessionKey": NOBODY, "line": "/model scripted/echo"},
        {"sessionKey": MAIN, "line": "/model nowhere/model"},
        {"sessionKey": MAIN, "line": "/subagents spawn nobody dig"},
        {"sessionKey": MAIN, "line": "/subagents spawn main dig --model nowhere/model"},
        {"sessionKey": MAIN, "line": "/kill nobody"},
        {"sessionKey": MAIN, "line": "/steer nobody left"},
        {"sessionKey": MAIN, "line": "/tell nobody hello"},
        {"sessionKey": MAIN, "line": "/subagents approve done"},
        {"sessionKey": MAIN, "line": "/subagents undelivered retry done"},
        {"sessionKey": MAIN, "line": "/focus planner"},
        {"sessionKey": MAIN, "line": "/allow nobody"},
    ],
    "subagents.spawn": [
        {"requester": NOBODY, "params": {"task": "dig"}},
        {"requester": NO_CHILD, "params": {"task": "dig"}},
        {"requester": "agent:nobody:main", "params": {"task": "dig"}},
        {"requester": NONSENSE, "params": {"task": "dig"}},
        {"requester": MAIN, "params": {"task": " "}},
        {"requester": MAIN, "params": {"task": "dig", "agentId": "nobody"}},
        {"requester": MAIN, "params": {"task": "dig", "model": "nowhere/model"}},
        {"requester": MAIN, "params": {"task": "dig"}, "defaultModel": "nowhere/model"},
        {"requester": MAIN, "params": {"task": "dig", "mode": "session"}},
        {"requester": "{done}", "params": {"task": "dig"}},
        {"program": "new", "params": {"task": "dig", "model": "nowhere/model"}},
        {"program": "new", "params": {"task": "dig", "agentId": "nobody"}},
        {"program": "new", "params": {"task": "dig", "context": "fork"}},
        {"program": "new", "params": {"task": "dig", "attachments": [{"name": "a", "content": "b"}]}},
        {"program": "talk", "params": {"task": "dig"}},
        {"program": "a b", "params": {"task": "dig"}},
    ],
    "subagents.list": [{"requester": NONSENSE}, {"requester": MAIN, "status": "asleep"}],
    "subagents.tree": [{"root": NONSENSE}, {"root": MAIN, "limit": 0}],
    "subagents.info": [{"target": "nobody"}, {"target": "done", "sessionKey": NOBODY}],
    "subagents.steer": [{"target": "nobody", **HELLO}, {"target": "done", **HELLO}, {"target": "planner", **HELLO}],
    "subagents.send": [{"target": "nobody", **HELLO}, {"target": "done", "message": " "}],
    "subagents.kill": [{"target": "nobody"}, {"target": "done"}, {"target": "all", "sessionKey": NOBODY}],
    "plans.approve": [{"target": "nobody"}, {"target": "done"}],
    "plans.reject": [{"target": "nobody", "reason": "x"}, {"target": "done", "reason": "x"}],
    "answer": [
        {"target": "nobody", "approve": True},
        {"target": "done", "approve": True},
        {"target": "planner", "approve": False},
    ],
    "sessions.find": [{"target": "nobody"}, {"target": NONSENSE}],
    "undelivered.retry": [{"target": "nobody"}, {"target": "done"}],
    "undelivered.dismiss": [{"target": "nobody"}, {"target": "done"}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A gateway at rest: a main conversation with a run that is over and one whose plan waits, one more conversation,
    and a program."""
    with serving(tmp_path_factory.mktemp("refused") / "state") as server:
        client = server.client()
        server.begin(MAIN, "agent:main:talk")
        client.call("subagents.spawn", params={"task": "dig", "label": "done"})
        client.call("subagents.spawn", params={"task": "dig", "label": "planner", "planMode": True})
        known = client.call("subagents.spawn", program="known", params={"task": "dig", "label": "read"})
        client.call("subagents.result", runId=known["runId"])
        client.call("sessions.wait", key=MAIN)
        server.do(server.desk.fl.until(lambda tx: (not tx.drivers() and not tx.waiting_posts()) or None))
        yield server


def named(server: Server) -> dict[str, str]:
    runs = server.client().call("subagents.list")
    keys = {run["label"]: run["sessionKey"] for run in runs}
    return {**keys, "run": runs[0]["runId"]}


def dump(state: Path) -> list[str]:
    with sqlite3.connect(f"file:{state / DATABASE}?mode=ro", uri=True) as db:
        return list(db.iterdump())


def test_the_table_has_every_method_that_names_a_session() -> None:
    named = {name for name, method in METHODS.items() if set(method.params.__struct_fields__) & set(NAMES)}
    assert named - {"events.subscribe"} == set(REFUSED)


CALLS = [(method, params) for method, calls in REFUSED.items() for params in calls]


@proves("7.input.14", "A method of the gateway that is refused leaves the store exactly as it was")
@pytest.mark.parametrize(("method", "params"), CALLS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(CALLS)])
def test_a_refused_method_leaves_the_store_exactly_as_it_was(
    server: Server, method: str, params: dict[str, Any]
) -> None:
    given = {name: value.format(**named(server)) if isinstance(value, str) else value for name, value in params.items()}
    before = dump(server.state)
    if method == "commands.run" and params["sessionKey"] != NONSENSE:
        assert not server.client().call(method, **given)["ok"]
    else:
        with pytest.raises((fledge.BadInput, fledge.Refused)):
            server.client().call(method, **given)
    assert dump(server.state) == before


@proves("3.answer.8", "A spawn that fails while it is prepared leaves neither a run nor the conversation it was for")
def test_a_spawn_that_fails_while_it_is_prepared_leaves_no_conversation_behind(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        client = server.client()
        there = client.call("sessions.list")
        for whose in ({"program": "new"}, {"requester": MAIN}):
            with pytest.raises(fledge.BadInput, match="cwd"):
                client.call("subagents.spawn", params={"task": "dig", "cwd": "nowhere"}, **whose)
            assert client.call("sessions.list") == there
            assert client.call("subagents.tree")["runs"] == []
        assert client.call("subagents.spawn", params={"task": "dig"})["status"] == "accepted"


def test_the_main_conversation_begins_with_a_spawn_that_is_accepted(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        accepted = server.client().call("subagents.spawn", params={"task": "dig"})
        assert server.client().call("agent.wait", runId=accepted["runId"])["status"] == "ok"
        assert MAIN in [one["key"] for one in server.client().call("sessions.list")]
