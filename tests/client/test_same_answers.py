"""Whoever answers, the answer is the same: a process at its socket, a gateway over HTTP, or this process at rest."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from fledge.client.local import AtRest
from fledge.commands.index import READS
from fledge.config import Config
from fledge.errors import BadInput, FledgeError
from tests.gateway.asking import Hatch
from tests.gateway.serving import serving

Call = Callable[..., Any]
READING: dict[str, dict[str, object]] = {
    "agent.wait": {"runId": "{run}", "timeoutMs": 0},
    "approvals.list": {},
    "documents.pending": {"workspace": "/nowhere"},
    "overview": {},
    "permissions.list": {},
    "plans.list": {},
    "reply": {"sessionKey": "main", "runId": "{said}", "timeoutMs": 0},
    "sessions.below": {},
    "sessions.entry": {"key": "main", "seq": 1},
    "sessions.find": {"target": "digger"},
    "sessions.history": {"key": "main"},
    "sessions.list": {},
    "sessions.query": {"limit": 1},
    "sessions.wait": {"timeoutMs": 0},
    "slash.list": {},
    "runs.info": {"target": "digger"},
    "runs.ends": {"target": "digger"},
    "runs.list": {},
    "runs.query": {"search": "d"},
    "runs.row": {"target": "digger"},
    "runs.result": {"runId": "{run}", "timeoutMs": 0},
    "runs.spans": {"target": "digger"},
    "runs.tree": {},
    "undelivered.list": {},
}
"""A call of every verb that only reads, but for those that tell of the process that answers and of its settings."""
OF_PROCESS = {"agents.list", "config.shown", "events.watch", "health", "identity", "models.list", "signins.list"}
REFUSED: list[tuple[str, dict[str, object]]] = [
    ("runs.info", {"target": "nobody"}),
    ("runs.info", {"target": ""}),
    ("runs.info", {"target": 5}),
    ("runs.info", {}),
    ("runs.info", {"target": "digger", "colour": "red"}),
    ("runs.kill", {"target": "nobody"}),
    ("runs.resume", {"target": "digger"}),
    ("runs.again", {"target": "nobody"}),
    ("runs.remove", {"target": "nobody"}),
    ("runs.steer", {"target": "digger", "message": "left"}),
    ("runs.tree", {"limit": 0}),
    ("sessions.history", {"key": "agent:main:nobody"}),
    ("sessions.patch", {"key": "main", "model": "nowhere/model"}),
    ("answer", {"target": "digger", "approve": True}),
    ("permissions.revoke", {"id": "none"}),
    ("undelivered.retry", {"target": "digger"}),
    ("system.event", {"text": " ", "sessionKey": "agent:main:nobody"}),
    ("burn", {}),
]


class Told(Struct, frozen=True):
    """What the same call came to, by who answered."""

    by: dict[str, dict[str, object]]


def outcome(call: Call, method: str, params: dict[str, Any]) -> object:
    try:
        return call(method, **params)
    except BadInput as error:
        return type(error).__name__, error.field, error.expected
    except FledgeError as error:
        return type(error).__name__, str(error)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Every call, answered by each, on the same folder."""
    state: Path = tmp_path_factory.mktemp("same") / "state"
    by: dict[str, dict[str, object]] = {}

    def ask(who: str, call: Call, names: dict[str, str]) -> None:
        calls = [*READING.items(), *REFUSED]
        by[who] = {}
        for number, (method, params) in enumerate(calls):
            given = {key: one.format(**names) if isinstance(one, str) else one for key, one in params.items()}
            answer = outcome(call, method, given)
            if isinstance(answer, dict):
                answer = {key: one for key, one in answer.items() if key not in ("nowAt", "isDriven")}
            by[who][f"{method} {number}"] = answer

    with serving(state) as server:
        client = server.client()
        said = client.call("agent", message="Hello")["runId"]
        run = client.call("runs.spawn", params={"task": "dig", "label": "digger"})["runId"]
        client.call("sessions.wait", key="main")
        server.do(server.desk.fl.until(lambda tx: (not tx.drivers.all() and not tx.outbox.count_waiting()) or None))
        names = {"run": run, "said": said}
        ask("http", client.call, names)
        ask("socket", Hatch(state).call, names)
    local = AtRest(state, Config)
    ask("at rest", lambda method, **params: asyncio.run(local.call(method, params)), names)
    return Told(by)


def test_every_verb_that_only_reads_is_compared() -> None:
    assert set(READING) == READS - OF_PROCESS


@pytest.mark.parametrize("who", ["socket", "at rest"])
def test_values_and_errors_are_the_same(told: Told, who: str) -> None:
    assert told.by[who] == told.by["http"]
    assert all(answer for method, answer in told.by["http"].items() if method.startswith(("burn", "runs.info")))
