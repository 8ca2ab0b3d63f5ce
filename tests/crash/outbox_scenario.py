"""A message from a channel that is down at first, a child, hooks that listen and one that answers, a context engine:
what leaves must leave at least once, whole and in order, wherever the process dies.

Whoever is outside leaves a line in a file for each call, so that calls can be counted across processes.
"""

import asyncio
import json
from pathlib import Path

from fledge.channels.inbound import heard
from fledge.clock import Clock
from fledge.core.hook import DeliveryTarget
from fledge.core.route import Address
from fledge.errors import NotArrived
from fledge.ids import RandomIds
from fledge.orchestrator import outbox
from fledge.orchestrator.commit import Listener, Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.outbox import message_of
from fledge.store.base import OutboxPost, Store, Tx
from fledge.testing import ScriptedPerformer, Stage

MAIN = "agent:main:main"
OPS, NEWS = Address("ops", "ann", "t-1"), Address("news", "bob")
DOWN = 2
"""So many calls fail before the first channel is up."""
RULES = Rules(
    hooks={
        "subagent_spawned": (Listener("audit"),),
        "subagent_ended": (Listener("audit"),),
        "subagent_delivery_target": (Listener("router"),),
    },
    context_engine=True,
)


class Outside(ScriptedPerformer):
    """Everybody outside, with a memory that no crash takes away."""

    def __init__(self, folder: Path) -> None:
        super().__init__(play)
        self._folder = folder

    async def call(self, post: OutboxPost) -> Address | None:
        """Take it, or be down; it takes a while to say so."""
        message, call = message_of(post), outbox.call_of(post)
        note(self._folder, "tried", post)
        await asyncio.sleep(0.5)
        if message is not None and message.channel == "ops" and len(notes(self._folder, "tried")) <= DOWN:
            raise NotArrived("ops is down")
        note(self._folder, "arrived", post)
        return NEWS if call is not None and isinstance(call.event, DeliveryTarget) else None


def note(folder: Path, what: str, post: OutboxPost) -> None:
    """Leave a line that no crash takes back."""
    with (folder / f"{what}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps([post.key, post.lane, post.body]) + "\n")


def notes(folder: Path, what: str) -> list[list[str]]:
    """The lines of one kind, over all processes."""
    path = folder / f"{what}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


async def play(stage: Stage) -> None:
    """Main delegates, then tells; the child works. Both look at what is there before they act."""
    if stage.session != MAIN:
        await stage.sleep(1)
        await stage.say("42")
        return
    children = await stage.engine.store.read(lambda tx: tx.runs.children(MAIN))
    entries = await stage.engine.store.read(lambda tx: tx.transcripts.entries(MAIN))
    if not children:
        await stage.spawn("child")
    await stage.say("it says 42" if any(entry.kind == "event" for entry in entries) else "under way")


async def perform(store: Store, clock: Clock, folder: Path) -> None:
    """Start, or go on wherever the store stands, until everything has come to rest and nothing is left to send."""
    try:
        async with Engine(store, Outside(folder), clock=clock, ids=RandomIds(), rules=RULES) as engine:
            await engine.commit(lambda c: heard(c, OPS, "go", "m-1"))
            while not await engine.store.read(is_over):
                await clock.wait_until(clock.now() + 0.5, asyncio.Event())
    finally:
        await store.close()


def is_over(tx: Tx) -> bool:
    """Everything is read, answered and sent."""
    runs = [tx.runs.load(key) for key in tx.runs.children(MAIN)]
    settled = bool(runs) and all(run.phase.name == "completed" for run in runs)
    return settled and tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN, 1) and not tx.outbox.count_waiting()


def verdict(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with the end, in sentences; empty if nothing is."""
    wrong: list[str] = []
    keys = tx.runs.children(MAIN)
    if len(keys) != 1:
        return [f"{len(keys)} children"]
    expected = {f"hook:subagent_{hook}:audit:{keys[0]}" for hook in ("spawned", "ended")}
    expected |= {f"hook:subagent_delivery_target:router:{keys[0]}"}
    expected |= {f"context:{what}:{keys[0]}" for what in ("started", "completed")}
    replies = [f"reply:{MAIN}:{entry.seq}" for entry in tx.transcripts.entries(MAIN) if entry.kind == "assistant"]
    if len(replies) != 2:
        wrong.append(f"{len(replies)} replies")
    arrived = notes(folder, "arrived")
    bodies: dict[str, str] = {}
    for key, _, body in arrived:
        if bodies.setdefault(key, body) != body:
            wrong.append(f"{key} came with another body")
    if set(bodies) != expected | set(replies):
        wrong.append(f"arrived: {sorted(bodies)}")
    for key in bodies:
        post = tx.outbox.get(key)
        if post is None or post.state != "sent":
            wrong.append(f"{key} is {post}")
    lanes = {key: lane for key, lane, _ in arrived}
    if [lanes.get(key) for key in replies] != ["ops", "news"]:
        wrong.append(f"replies went to {[lanes.get(key) for key in replies]}")
    told = [entry for entry in tx.transcripts.entries(MAIN) if entry.kind == "event"]
    if len(told) != 1:
        wrong.append(f"told {len(told)} times")
    return wrong
