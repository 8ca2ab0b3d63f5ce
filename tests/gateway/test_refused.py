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
NAMES = ("session", "requester", "target")
"""Parameters that name a session."""
HELLO = {"message": "hello"}

REFUSED: dict[str, list[dict[str, Any]]] = {
    "agent": [
        {"session": NONSENSE, **HELLO},
        {"session": NO_CHILD, **HELLO},
        {"session": NOBODY, "message": "  "},
        {"session": NOBODY, **HELLO, "model": "nowhere/model"},
        {"session": NOBODY, **HELLO, "defaultModel": "nowhere/model"},
        {"session": NOBODY, **HELLO, "lane": "nowhere"},
        {"session": MAIN, **HELLO, "thinking": "hard"},
        {"session": MAIN, **HELLO, "address": ["ops", "u-1"]},
        {"session": MAIN, **HELLO, "address": ["terminal", "user", "t-1"]},
        {"session": MAIN, **HELLO, "address": "terminal"},
    ],
    "send": [
        {"session": NONSENSE, **HELLO},
        {"session": NO_CHILD, **HELLO},
        {"session": NOBODY, "message": "  "},
        {"session": NOBODY, **HELLO, "timeoutSeconds": -1},
    ],
    "reply": [{"session": NOBODY, "run": "none"}, {"session": MAIN, "run": "{run}"}],
    "sessions.entry": [
        {"session": NOBODY, "seq": 1},
        {"session": NONSENSE, "seq": 1},
        {"session": MAIN, "seq": 0},
        {"session": MAIN, "seq": 100_000},
    ],
    "runs.spans": [{"target": "nobody"}, {"target": "{planner}", "from": 5, "to": 4}],
    "sessions.history": [{"session": NOBODY}, {"session": NONSENSE}, {"session": MAIN, "limit": 0}],
    "sessions.patch": [
        {"session": NOBODY, "label": "x"},
        {"session": MAIN, "model": "nowhere/model"},
        {"session": MAIN, "thinking": "hard"},
    ],
    "sessions.delete": [{"session": NOBODY}, {"session": NONSENSE}, {"session": "{planner}"}],
    "sessions.stop": [{"session": NOBODY}, {"session": NONSENSE}, {"session": NO_CHILD}],
    "sessions.wait": [{"session": NONSENSE}],
    "sessions.below": [{"session": NONSENSE}],
    "sessions.open": [
        {"session": NONSENSE},
        {"session": NO_CHILD},
        {"session": "{planner}"},
        {"session": "agent:nobody:main"},
        {"session": MAIN, "address": ["ops", "u-1"]},
        {"session": "side", "folder": "here"},
        {"session": "side", "folder": "/nowhere/at/all"},
        {"session": "side", "folder": "/etc/passwd"},
        {"session": "side", "folder": "/usr/../usr"},
    ],
    "overview": [{"session": NONSENSE}],
    "system.event": [{"text": "it rains", "session": NOBODY}, {"text": "it rains", "session": NONSENSE}],
    "heartbeat.request": [{"session": NOBODY}, {"session": NONSENSE}],
    "slash.run": [
        {"session": NONSENSE, "line": "/stop"},
        {"session": NOBODY, "line": "/subagents spawn main dig"},
        {"session": NOBODY, "line": "/stop"},
        {"session": NOBODY, "line": "/model scripted/echo"},
        {"session": MAIN, "line": "/model nowhere/model"},
        {"session": MAIN, "line": "/subagents spawn nobody dig"},
        {"session": MAIN, "line": "/subagents spawn main dig --model nowhere/model"},
        {"session": MAIN, "line": "/kill nobody"},
        {"session": MAIN, "line": "/steer nobody left"},
        {"session": MAIN, "line": "/tell nobody hello"},
        {"session": MAIN, "line": "/subagents approve done"},
        {"session": MAIN, "line": "/subagents undelivered retry done"},
        {"session": MAIN, "line": "/focus planner"},
        {"session": MAIN, "line": "/allow nobody"},
        {"session": MAIN, "line": "/focus planner", "address": ["ops", "u-1"]},
    ],
    "runs.spawn": [
        {"requester": MAIN, "task": "dig", "tools": ["reed"]},
        {"program": "new", "task": "dig", "tools": ["read", "nothing"]},
        {"requester": NOBODY, "task": "dig"},
        {"requester": NO_CHILD, "task": "dig"},
        {"requester": "agent:nobody:main", "task": "dig"},
        {"requester": NONSENSE, "task": "dig"},
        {"requester": MAIN, "task": " "},
        {"requester": MAIN, "task": "dig", "agent": "nobody"},
        {"requester": MAIN, "task": "dig", "model": "nowhere/model"},
        {"requester": MAIN, "task": "dig", "defaultModel": "nowhere/model"},
        {"requester": MAIN, "task": "dig", "mode": "session"},
        {"requester": "{done}", "task": "dig"},
        {"program": "new", "task": "dig", "model": "nowhere/model"},
        {"program": "new", "task": "dig", "agent": "nobody"},
        {"program": "new", "task": "dig", "context": "fork"},
        {"program": "new", "task": "dig", "attachments": [{"name": "a", "content": "b"}]},
        {"program": "talk", "task": "dig"},
        {"program": "a b", "task": "dig"},
    ],
    "runs.list": [{"requester": NONSENSE}, {"requester": MAIN, "status": "asleep"}],
    "runs.tree": [{"requester": NONSENSE}, {"requester": MAIN, "limit": 0}],
    "runs.query": [{"requester": NONSENSE}, {"below": NONSENSE}, {"limit": 501}, {"cursor": "nowhere"}],
    "runs.row": [{"target": "nobody"}, {"target": "#9"}],
    "runs.ends": [{"target": "nobody"}, {"target": "all", "requester": NOBODY}],
    "runs.info": [{"target": "nobody"}, {"target": "done", "requester": NOBODY}],
    "runs.steer": [{"target": "nobody", **HELLO}, {"target": "done", **HELLO}, {"target": "planner", **HELLO}],
    "runs.send": [{"target": "nobody", **HELLO}, {"target": "done", "message": " "}],
    "runs.tell": [{"target": "nobody", **HELLO}, {"target": "done", "message": " "}],
    "runs.resume": [{"target": "nobody"}, {"target": "done"}, {"target": "planner"}],
    "runs.again": [{"target": "nobody"}, {"target": "done", "defaultModel": "nowhere/model"}],
    "runs.remove": [{"target": "nobody"}, {"target": "planner"}],
    "sessions.focus": [
        {"session": NOBODY, "address": ["ops", "ann"]},
        {"session": NONSENSE, "address": ["ops", "ann"]},
        {"session": MAIN, "address": ["Ops!", "ann"]},
        {"session": MAIN, "address": ["ops", " "]},
        {"session": MAIN, "address": "ops"},
    ],
    "sessions.unfocus": [
        {"session": MAIN},
        {"session": NONSENSE},
        {"session": MAIN, "address": ["ops", "x"]},
    ],
    "runs.kill": [{"target": "nobody"}, {"target": "done"}, {"target": "all", "requester": NOBODY}],
    "plans.approve": [{"target": "nobody"}, {"target": "done"}, {"target": "planner", "run": "another"}],
    "plans.reject": [
        {"target": "nobody", "reason": "x"},
        {"target": "done", "reason": "x"},
        {"target": "planner", "reason": "x", "run": "another"},
    ],
    "answer": [
        {"target": "nobody", "approve": True},
        {"target": "done", "approve": True},
        {"target": "planner", "approve": False},
    ],
    "sessions.find": [{"target": "nobody"}, {"target": NONSENSE}],
    "events.watch": [{"session": NONSENSE}, {"session": ""}],
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
        client.call("runs.spawn", task="dig", label="done")
        client.call("runs.spawn", task="dig", label="planner", planMode=True)
        known = client.call("runs.spawn", program="known", task="dig", label="read")
        client.call("runs.result", run=known["runId"])
        client.call("sessions.wait", session=MAIN)
        server.do(server.desk.fl.until(lambda tx: (not tx.drivers.all() and not tx.outbox.count_waiting()) or None))
        yield server


def named(server: Server) -> dict[str, str]:
    runs = server.client().call("runs.list")
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
    if method == "slash.run" and params["session"] != NONSENSE and "address" not in params:
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
                client.call("runs.spawn", task="dig", cwd="nowhere", **whose)
            assert client.call("sessions.list") == there
            assert client.call("runs.tree")["runs"] == []
        assert client.call("runs.spawn", task="dig")["status"] == "accepted"


def test_the_main_conversation_begins_with_a_spawn_that_is_accepted(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        accepted = server.client().call("runs.spawn", task="dig")
        assert server.client().call("agent.wait", run=accepted["runId"])["status"] == "ok"
        assert MAIN in [one["key"] for one in server.client().call("sessions.list")]
