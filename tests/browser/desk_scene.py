"""A gateway whose agents do as their words say, for the views of what waits, what found nobody, agents and health."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from fledge.models.base import Call, Request
from fledge.models.scripted import Answer, ScriptedReply, last_text, use
from fledge.store.base import Tx
from fledge.testing import ScriptedModel
from tests.gateway.serving import Server, serving

T = TypeVar("T")

HOSTILE = "<img src=x onerror=\"window.hacked='img'\"> \x1b[31mred\x07 \u202egnirts </script> javascript:alert(1)"
SHOWN = HOSTILE.replace("\x1b", "␛").replace("\x07", "␇").replace("\u202e", "<U+202E>")

SETTINGS: dict[str, Any] = {
    "announce": {"maxRetries": 0},
    "tools": {name: {"approval": "ask"} for name in ("exec", "write", "edit", "grep")},
    "agents": {
        "defaults": {"subagents": {"maxSpawnDepth": 2, "maxConcurrent": 2, "stuckAfterSeconds": 1}},
        "list": [
            {"id": "main", "subagents": {"allowAgents": ["main", "critic"]}},
            {
                "id": "critic",
                "description": "Reads and says what is wrong. <b onclick=alert(1)>bold</b>",
                "model": {"primary": "given/large", "fallbacks": ["given/small"]},
                "tools": {"deny": ["exec", "write"]},
                "subagents": {"budget": {"usd": 0.5, "tokens": 40_000}},
            },
        ],
    },
}


class Gates:
    """What agents wait for."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.deleted = asyncio.Event()


class Scene:
    """A gateway and what its agents are waiting for."""

    def __init__(self, server: Server, gates: Gates) -> None:
        self.server, self._gates = server, gates
        self.address, self.token = server.address, server.token

    def call(self, method: str, **params: object) -> Any:
        return self.server.client().call(method, **params)

    def go_on(self) -> None:
        """Let everything go on that waits."""
        self.server.loop.call_soon_threadsafe(self._gates.release.set)

    def say(self, words: str, session: str = "main") -> None:
        """Say something to a conversation; nobody waits for the answer."""
        self.call("agent", message=words, session=session)

    def ask(self, tool: str, session: str = "main", **arguments: object) -> str:
        """Have a conversation call a tool that asks; answers the question's id once it waits."""
        known = {one["id"] for one in self.call("approvals.list")}
        self.say(f"call {tool} {msgspec.json.encode(arguments).decode()}", session)
        return str(self.until(lambda tx: next((one.id for one in tx.approvals.open() if one.id not in known), None)))

    def plan(self, label: str, text: str) -> str:
        """Have a child plan; answers its session key once its plan waits."""
        spawned = self.call("runs.spawn", task=f"say {text}", label=label, planMode=True)
        key = str(spawned["childSessionKey"])
        self.until(lambda tx: True if key in tx.runs.awaiting() else None)
        return key

    def lose(self, label: str, words: str) -> str:
        """Have a result find nobody: its conversation is deleted before it is there. Answers the session key of its
        run."""
        deleted = self._gates.deleted
        self.server.loop.call_soon_threadsafe(deleted.clear)
        self.call("sessions.open", session="gone")
        run = self.call("runs.spawn", task=f"late {words}", label=label, requester="agent:main:gone")
        self.call("sessions.delete", session="gone")
        self.server.loop.call_soon_threadsafe(deleted.set)
        key = str(run["childSessionKey"])
        self.until(lambda tx: next((True for row in tx.inbox.undelivered() if key in row.key), None))
        return key

    def until(self, finds: Callable[[Tx], T | None]) -> T:
        """What `finds` finds in the store, now or soon."""
        found = self.server.do(self.server.desk.fl.until(finds, timeout=20))
        assert found is not None
        return cast(T, found)


def obeying(gates: Gates) -> Any:
    """A script: `call TOOL JSON` is that call, `say WORDS` is said, `wait`, alone or before one of these, goes on
    once it is released; `late WORDS` is said once its conversation is deleted."""

    async def answer(request: Request) -> Answer:
        return await obey(last_text(request).strip())

    async def obey(words: str) -> Answer:
        verb, _, rest = words.partition(" ")
        match verb:
            case "call":
                tool, _, arguments = rest.partition(" ")
                return ScriptedReply("", (Call("", tool, arguments),))
            case "say":
                return ScriptedReply(rest)
            case "spawn":
                return ScriptedReply("", (use("sessions_spawn", **msgspec.json.decode(rest)),))
            case "wait":
                await gates.release.wait()
                return await obey(rest or "say I waited")
            case "late":
                await gates.deleted.wait()
                return ScriptedReply(rest)
        return ScriptedReply(f"heard: {words[:60]}")

    return answer


@contextmanager
def scene(folder: Path, settings: dict[str, Any] | None = None) -> Iterator[Scene]:
    """A gateway of that kind, as long as the block lasts."""
    gates = Gates()
    model = ScriptedModel(obeying(gates))
    with serving(folder / "state", model, settings or SETTINGS) as server:
        one = Scene(server, gates)
        try:
            yield one
        finally:
            one.go_on()
