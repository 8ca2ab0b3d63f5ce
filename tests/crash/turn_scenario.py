"""A turn with three model calls and three tools that must not be lost, repeated or torn by a crash anywhere.

The model and the tools leave a line in files outside the database each time they are asked or begun, so that this can
be counted across processes. One tool may not be repeated, one may, one only reads.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from fledge.clock import Clock
from fledge.core.transcript import Noted, Replied, Resulted, from_body
from fledge.ids import RandomIds
from fledge.models.base import AssistantMessage, ModelEvent, Request
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply, use
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.runtime.agent import UNKNOWN_OUTCOME, AgentLoop
from fledge.runtime.profile import Profile
from fledge.store.base import OutboxPost, Store, Tx
from fledge.store.entry_files import EntryFiles
from fledge.tools.base import Tool, ToolContext, tool
from fledge.tools.registry import ToolSet
from tests.runtime.no_runtimes import NoRuntimes

MAIN = "agent:main:main"
FINAL = "all three are done"
TOOLS = ("once", "again", "look")
CALLS_S = 1.0
"""How long a model call takes, and each tool."""


def note(folder: Path, what: str, **more: object) -> None:
    """Leave a line that no crash takes back."""
    with (folder / "notes.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"what": what, **more}) + "\n")


def notes(folder: Path, what: str) -> list[dict[str, object]]:
    """The lines of one kind, over all processes."""
    path = folder / "notes.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [found for found in map(json.loads, lines) if found["what"] == what]


# ---- who acts --------------------------------------------------------------------------------------------------------


def script(request: Request) -> Answer:
    """Two replies with calls, then the answer; what is said follows from the request alone."""
    replies = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if replies == 0:
        return ScriptedReply("first", (use("once"), use("look")))
    return ScriptedReply("second", (use("again"),)) if replies == 1 else FINAL


class NotedModel:
    """Plays the script, and leaves a line for each request."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._model = folder, ScriptedModel(script, latency_s=CALLS_S)

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        note(self._folder, "asked", messages=len(request.messages))
        async for event in self._model.stream(request):
            yield event

    async def close(self) -> None:
        return


def tools(folder: Path) -> list[Tool]:
    """The three, each of which leaves a line when it is begun and takes a while."""

    async def run(name: str, context: ToolContext) -> str:
        note(folder, "begun", tool=name, call=context.call_key)
        await asyncio.sleep(CALLS_S)
        return f"{name} is done"

    async def once(context: ToolContext) -> str:
        return await run("once", context)

    async def again(context: ToolContext) -> str:
        return await run("again", context)

    async def look(context: ToolContext) -> str:
        return await run("look", context)

    return [tool(once), tool(repeatable=True)(again), tool(read_only=True)(look)]


class Thinkers(NoRuntimes):
    """The same for the one session there is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        return Profile(
            model=NotedModel(self._folder),
            model_name="scripted",
            system="",
            tools=ToolSet(tools(self._folder)),
            workspace=self._folder,
            images=EntryFiles(self._folder),
        )

    async def remove(self, leaves: tuple[str, ...]) -> None:
        raise AssertionError(leaves)

    async def call(self, post: OutboxPost) -> None:
        raise AssertionError(post)


# ---- the performance -------------------------------------------------------------------------------------------------


async def perform(store: Store, clock: Clock, folder: Path) -> None:
    """Start, or go on wherever the store stands, until the conversation is answered."""
    try:
        async with Engine(store, AgentLoop(Thinkers(folder)), clock=clock, ids=RandomIds()) as engine:
            await engine.commit(_begin)
            while not await engine.store.read(is_over):
                await clock.wait_until(clock.now() + 0.5, asyncio.Event())
    finally:
        await store.close()


def _begin(c: Commit) -> None:
    if c.tx.sessions.get(MAIN) is None:
        spawn.open_conversation(c, MAIN)
        control.send(c, MAIN, "go", row_key="go")


def is_over(tx: Tx) -> bool:
    """The answer is there and nothing is open."""
    return tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN, 1) and len(tx.transcripts.entries(MAIN)) > 1


# ---- the judgement ---------------------------------------------------------------------------------------------------


def committed(tx: Tx) -> tuple[dict[int, int], set[str]]:
    """What a process that starts now must not ask for again: lengths of transcripts with a reply, calls with a result.

    The key of a reply is how many messages the model saw before it.
    """
    bodies = [(entry.seq, from_body(entry.body)) for entry in tx.transcripts.entries(MAIN)]
    asked = {sum(1 for seq, _ in bodies if seq < at): at for at, body in bodies if isinstance(body, Replied)}
    done = {f"{MAIN}#{body.entry}.{body.index}" for _, body in bodies if isinstance(body, Resulted)}
    return asked, done


def verdict(tx: Tx, folder: Path, before: list[tuple[int, dict[int, int], set[str]]]) -> list[str]:
    """What is wrong with the end; `before`: for each restart, how many notes there were, and what was committed."""
    wrong: list[str] = []
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(MAIN)]
    replies = [body.text for body in bodies if isinstance(body, Replied)]
    if replies != ["first", "second", FINAL]:
        wrong.append(f"replies: {replies}")
    results = Counter((body.entry, body.index) for body in bodies if isinstance(body, Resulted))
    if sorted(results.values()) != [1, 1, 1]:
        wrong.append(f"results: {results}")
    right = {("once", UNKNOWN_OUTCOME.text), *((name, f"{name} is done") for name in TOOLS)}
    for body in bodies:
        if isinstance(body, Noted):
            wrong.append(f"a note: {body}")
        if isinstance(body, Resulted) and (body.name, body.text) not in right:
            wrong.append(f"result of {body.name}: {body.text}")
    begun = Counter(str(found["tool"]) for found in notes(folder, "begun"))
    if begun["once"] > 1:
        wrong.append(f"once was begun {begun['once']} times")
    if not {"again", "look"} <= set(begun):
        wrong.append(f"begun: {begun}")
    path = folder / "notes.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for count, asked, done in before:
        for line in lines[count:]:
            if line["what"] == "asked" and line["messages"] in asked:
                wrong.append(f"asked again for the reply to {line['messages']} messages")
            if line["what"] == "begun" and line["call"] in done:
                wrong.append(f"{line['tool']} was begun again though its result was committed")
    if tx.drivers.all():
        wrong.append(f"drivers left: {tx.drivers.all()}")
    return wrong
