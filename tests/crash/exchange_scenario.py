"""Two agents that talk: one asks and waits, the other answers, they take turns, and it is closed. Wherever a process
dies, every word must have been said once, and the one who waited must have its answer.
"""

import asyncio
from pathlib import Path

from fledge.clock import Clock
from fledge.config import with_settings
from fledge.core.exchange import Over
from fledge.core.transcript import Replied, Resulted, Spoken, from_body
from fledge.ids import RandomIds
from fledge.models.base import Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply, use
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.messenger import Messenger
from fledge.orchestrator.turns import Drive
from fledge.runtime.agent import AgentLoop
from fledge.runtime.profile import Profile
from fledge.store.base import OutboxPost, Store, Tx
from fledge.store.entry_files import EntryFiles
from fledge.tools.registry import ToolSet
from fledge.tools.send import send_tool
from tests.runtime.no_runtimes import NoRuntimes

A, B = "agent:main:main", "agent:bob:main"
SETTINGS = (
    "tools.sessions.visibility=all",
    "tools.agentToAgent.enabled=true",
    "session.agentToAgent.maxPingPongTurns=2",
)
NARROW = Rules(widths={"main": 1, "subagent": 1, "nested": 1})
"""One slot: while the one who asks waits, the other must still be driven."""
LATENCY_S = 1.0


def script(request: Request) -> Answer:
    """What is said follows from the request alone."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return "done: hi" if '"reply":"hi"' in last.text else f"done: {last.text}"
    assert isinstance(last, UserMessage)
    if last.text == "go":
        return ScriptedReply("", (use("sessions_send", sessionKey=B, message="hello"),))
    if "> hello" in last.text:
        return "hi"
    if "> hi" in last.text:
        return "and you?"
    return "fine" if "> and you?" in last.text else "ANNOUNCE_SKIP"


class Thinkers(NoRuntimes):
    """The same model for both; the tool to speak."""

    def __init__(self) -> None:
        self._messengers: dict[Engine, Messenger] = {}

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        config = with_settings({}, SETTINGS).config
        messenger = self._messengers.setdefault(engine, Messenger(engine, config))
        return Profile(
            model=ScriptedModel(script, latency_s=LATENCY_S),
            model_name="scripted",
            system=drive.session,
            tools=ToolSet([send_tool(messenger)]),
            workspace=Path("/nowhere"),
            images=EntryFiles(Path("/nowhere")),
        )

    async def remove(self, leaves: tuple[str, ...]) -> None:
        raise AssertionError(leaves)

    async def call(self, post: OutboxPost) -> None:
        raise AssertionError(post)


async def perform(store: Store, clock: Clock) -> None:
    """Start, or go on wherever the store stands, until the exchange is over."""
    try:
        async with Engine(store, AgentLoop(Thinkers()), clock=clock, ids=RandomIds(), rules=NARROW) as engine:
            await engine.commit(_begin)
            while not await engine.store.read(is_over):
                await clock.wait_until(clock.now() + 0.5, asyncio.Event())
    finally:
        await store.close()


def _begin(c: Commit) -> None:
    if c.tx.sessions.get(A) is None:
        spawn.open_conversation(c, A)
        spawn.open_conversation(c, B)
        control.send(c, A, "go", row_key="go")


def is_over(tx: Tx) -> bool:
    """The exchange was closed and nothing is open."""
    exchange = tx.exchanges.get(f"{A}#2.0")
    at_rest = all(tx.turns.get(key) is None and not tx.inbox.unread(key, 1) for key in (A, B))
    return at_rest and exchange is not None and isinstance(exchange.stage, Over)


def verdict(tx: Tx) -> list[str]:
    """What is wrong with the end."""
    wrong: list[str] = []
    expected = {
        A: (["go", "hi"], ["", "done: hi", "and you?"], 1),
        B: (["hello", "and you?", "closing"], ["hi", "fine", "ANNOUNCE_SKIP"], 0),
    }
    for key, (heard, said, results) in expected.items():
        bodies = [from_body(entry.body) for entry in tx.transcripts.entries(key)]
        found = [_words(body.text) for body in bodies if isinstance(body, Spoken)]
        if found != heard:
            wrong.append(f"{key} heard {found}")
        spoken = [body.text for body in bodies if isinstance(body, Replied)]
        if spoken != said:
            wrong.append(f"{key} said {spoken}")
        if sum(isinstance(body, Resulted) for body in bodies) != results:
            wrong.append(f"{key} has other results")
    if tx.drivers.all():
        wrong.append(f"drivers left: {tx.drivers.all()}")
    return wrong


def _words(text: str) -> str:
    """What was said, without what stands around it."""
    quoted = [line[2:] for line in text.splitlines() if line.startswith("> ")]
    return quoted[0] if quoted else "closing" if "The exchange is over" in text else text
