"""Who acts in the stories: models that follow a script by label, tools and a host that leave notes, people who look.

Notes are lines in a file that no crash takes back: what a model was asked, which tool began. So it can be counted
across processes what was asked or begun again. Every actor passes its story's `fate` as it begins, with the name of
what it does (`model w1: do w1`, `compact w1: …`, `tool look`, `spawn`, `runtime`), and people before and after an order
(`before steer`, `after steer`); a fate may end the process there.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fledge.clock import Clock
from fledge.config import Config, parse
from fledge.core.access import Role, ToolRules, child_tools, planning_tools
from fledge.core.handover import Handover
from fledge.core.route import Address
from fledge.core.run import Run
from fledge.errors import FledgeError
from fledge.ids import RandomIds
from fledge.models.base import ModelEvent, ModelMessage, Request, UserMessage
from fledge.models.scripted import Answer, ScriptedModel
from fledge.orchestrator import bindings, outbox
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.messenger import Messenger
from fledge.orchestrator.spawn import SpawnRequest
from fledge.orchestrator.spawn_params import Caller
from fledge.orchestrator.spawner import Spawner
from fledge.orchestrator.turns import Drive
from fledge.runtime import context
from fledge.runtime.agent import AgentLoop
from fledge.runtime.base import Runtime, Work
from fledge.runtime.callable import CallableRuntime
from fledge.runtime.child_files import ChildFiles
from fledge.runtime.profile import Profile
from fledge.store.base import OutboxPost, Session, Spec, Store, Tx
from fledge.store.entry_files import EntryFiles
from fledge.tools.base import Tool, ToolContext, tool
from fledge.tools.registry import ToolSet
from fledge.tools.send import send_tool
from fledge.tools.sessions import spawn_tool, yield_tool
from fledge.tools.subagents import subagents_tool
from tests.crash import worktree_story
from tests.sim import verdict
from tests.sim.people import NAMES, opening, walk

Mind = Callable[[Request], Answer]
Wishes = Callable[[Tx, float], list[Callable[[Commit], object]]]
LIMITS = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 3, "maxChildrenPerAgent": 8}}}}
CONFIG = parse(json.dumps(LIMITS)).config
AGENTS_TALK = {
    "tools": {"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True}},
    "session": {"agentToAgent": {"maxPingPongTurns": 0}},
}
TALKING = parse(json.dumps(LIMITS | AGENTS_TALK)).config
"""Agents may send each other messages."""
MODEL_S = 1.0
"""How long a model takes to answer."""
LOOK_S = 0.5
"""How often people look."""
WINDOW = 128_000
RUNTIME = "helper"
"""The name of the runtime besides our own."""


class Story(Struct, frozen=True, kw_only=True):
    """A scenario as data."""

    minds: dict[str, Mind]
    """By label; `main` and `other` are the conversations."""
    begin: Callable[[Commit], object]
    """What people say first; again after a restart that changes nothing."""
    ends: dict[str, str]
    """How each run must come out, whatever happens; several words where a crash may decide."""
    told: dict[str, str]
    """In whose transcript each answer must be, once; runs that are not named are told nowhere."""
    wishes: Wishes = lambda tx, at: []
    """What people want done, seeing what there is."""
    rules: Rules = Rules()
    config: Config = CONFIG
    tool_s: float = 1.0
    """How long each of the tools takes."""
    bind_s: float = 0.0
    """How long it takes to bind a thread."""
    asks: frozenset[str] = frozenset()
    """Tools that need a person's approval."""
    windows: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many tokens a session sees, by label, where its transcript must be compacted."""
    repeatable: bool = True
    """Whether the foreign runtime's work may be repeated."""
    fate: Callable[[str], None] = lambda point: None
    """Called with each point that an actor comes to; it may end the process."""
    thread: Address | None = None
    """The thread that a child is bound to which asks for one; None: binding it does nothing."""
    worktrees: bool = False
    """There is a repository, and children may work in worktrees of it."""
    weight: int = 1
    """How many times as long as others it takes: so many times fewer of its points are in a sample."""
    faults: Callable[[Tx, Path], list[str]] = lambda tx, folder: []
    """What is wrong with what is left outside the database."""


# ---- notes -----------------------------------------------------------------------------------------------------------


def note(folder: Path, what: str, **more: object) -> None:
    """Leave a line that no crash takes back."""
    with (folder / "notes.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"what": what, **more}) + "\n")


def notes(folder: Path) -> list[dict[str, Any]]:
    """All lines, over all processes."""
    path = folder / "notes.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def place(messages: tuple[ModelMessage, ...]) -> str:
    """The name of a place in a conversation: the same for the same messages."""
    return hashlib.sha256(msgspec.json.encode(messages)).hexdigest()


# ---- who acts --------------------------------------------------------------------------------------------------------


class NotedModel:
    """Plays a script, and leaves a line for each request."""

    def __init__(self, folder: Path, session: str, label: str, story: Story, clock: Clock) -> None:
        self._folder, self._session, self._label, self._story = folder, session, label, story
        mind = story.minds[label]
        self._model = ScriptedModel(mind, latency_s=MODEL_S, sleep=lambda seconds: wait(clock, seconds))

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        note(self._folder, "asked", session=self._session, place=place(request.messages))
        last = request.messages[-1]
        does = "compact" if last == UserMessage(context.COMPACT_PROMPT) else "model"
        self._story.fate(f"{does} {self._label}: {last.text}")
        async for event in self._model.stream(request):
            yield event

    async def close(self) -> None:
        return


async def wait(clock: Clock, seconds: float) -> None:
    """Let time pass, at the pace of this clock."""
    await clock.wait_until(clock.now() + seconds, asyncio.Event())


def noted_tools(folder: Path, story: Story, clock: Clock) -> list[Tool]:
    """Two that may not be repeated, two that may, one that only reads; each leaves a line when it begins."""

    async def work(name: str, context: ToolContext) -> str:
        note(folder, "begun", tool=name, call=context.call_key)
        story.fate(f"tool {name}")
        await wait(clock, story.tool_s * (5 if name == "slow" else 1))
        return f"{name} is done"

    async def once(context: ToolContext) -> str:
        return await work("once", context)

    async def again(context: ToolContext) -> str:
        return await work("again", context)

    async def look(context: ToolContext) -> str:
        return await work("look", context)

    async def slow(context: ToolContext) -> str:
        return await work("slow", context)

    async def command(context: ToolContext) -> str:
        return await work("exec", context)

    repeatable = tool(repeatable=True)
    return [tool(once), repeatable(again), tool(read_only=True)(look), repeatable(slow), tool(name="exec")(command)]


class Cast:
    """The sessions of a story."""

    def __init__(self, story: Story, folder: Path, clock: Clock) -> None:
        self._story, self._folder, self._clock = story, folder, clock
        self._files = ChildFiles(folder / "state")
        self._tools: ToolSet | None = None

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        label, facts = await engine.store.read(lambda tx: (label_of(tx, drive.session), tx.sessions.get(drive.session)))
        tools = self._tools_of(engine)
        names = tools.names
        if facts is not None and facts.kind == "subagent":
            role: Role = "orchestrator" if facts.facts.role == "orchestrator" else "leaf"
            names = child_tools(names, role, ToolRules())
        if drive.run is not None and drive.run.plan == "planning":
            names = planning_tools(names, tools.read_only)
        return Profile(
            model=NotedModel(self._folder, drive.session, label, self._story, self._clock),
            model_name="scripted",
            system=label,
            tools=tools.only(names),
            workspace=self.workspace_of("", "" if facts is None else facts.facts.workspace),
            handover=None if facts is None else self.handover(facts, drive.run),
            asks=self._story.asks,
            images=EntryFiles(self._folder / "state"),
            window=self._story.windows.get(label, WINDOW),
        )

    def _tools_of(self, engine: Engine) -> ToolSet:
        """All tools there are, made once: making them takes longer than a turn."""
        if self._tools is None:
            self._tools = ToolSet(
                [
                    *noted_tools(self._folder, self._story, self._clock),
                    *(worktree_story.working_tools() if self._story.worktrees else ()),
                    *(spawn_tool(Spawner(engine, self._story.config, self)), yield_tool(), subagents_tool(engine)),
                    send_tool(Messenger(engine, self._story.config)),
                ]
            )
        return self._tools

    def handover(self, session: Session, run: Run | None) -> Callable[[bool], Handover] | None:
        if not self._story.worktrees:
            return None
        return self._files.handover(session, run, self.workspace_of("", session.facts.workspace))

    def runtime(self, name: str) -> Runtime:
        """The one foreign runtime: it says that it is at work, takes its time and answers."""
        story = self._story

        async def work(work: Work) -> str:
            work.say("at work")
            await wait(self._clock, story.tool_s)
            story.fate("runtime")
            return f"SUMMARY: {work.label} is done"

        return CallableRuntime(function=work, repeatable=story.repeatable)

    def check_needs(self, spec: Spec) -> None:
        """Nothing is missing: every runtime here is in the settings."""

    def work_place(self, session: Session) -> tuple[Path, Mapping[str, str]]:
        return self.workspace_of("", session.facts.workspace), {}

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """What a child leaves; the first time, where that is wanted, not to its end."""
        if (self._folder / worktree_story.MORTAL).exists():
            worktree_story.die_halfway(self._folder, len(notes(self._folder)))
        await self._files.remove(leaves)

    async def call(self, post: OutboxPost) -> None:
        """Messages leave a line, what is to be removed is removed, nothing else leaves."""
        if outbox.message_of(post) is None:
            await self._files.call(post)
        else:
            note(self._folder, "sent", key=post.key, body=post.body)

    @property
    def model(self) -> str | None:
        return None

    @property
    def has_sandbox(self) -> bool:
        return False

    def person_in(self, engine: Engine, session: Session, run: Run | None) -> Caller:
        return Caller(session=session.key)

    program_runtimes: frozenset[str] = frozenset()
    tool_names: frozenset[str] = frozenset()

    @property
    def runtimes(self) -> tuple[str, ...]:
        return (RUNTIME,)

    def check_model(self, name: str, thinking: str | None) -> None:
        """Every name will do."""

    def functions_of(self, agent_id: str) -> frozenset[str] | None:
        return None

    def check_folder(self, agent_id: str, project: str) -> None:
        """Every folder will do."""

    def workspace_of(self, agent_id: str, given: str, project: str = "") -> Path:
        return Path(given or self._folder / ("repo" if self._story.worktrees else ""))

    def own_folder(self, leaf: str, workspace: Path) -> Path:
        return self._files.places.own_folder(leaf, workspace)

    async def make(self, request: SpawnRequest) -> None:
        await self._files.make(request)

    async def bind_thread(self, engine: Engine, run: Run) -> None:
        self._story.fate("spawn")
        await wait(self._clock, self._story.bind_s)
        thread = self._story.thread
        if thread is not None:
            await engine.commit(lambda c: bindings.bind(c, run.key, thread))


def label_of(tx: Tx, session: str) -> str:
    """What a session is called."""
    return NAMES.get(session) or tx.runs.spec(session).label


# ---- the performance -------------------------------------------------------------------------------------------------


async def perform(story: Story, store: Store, clock: Clock, folder: Path) -> None:
    """Start, or go on wherever the store stands, until everything has come to rest."""
    try:
        if story.worktrees:
            worktree_story.set_up(folder)
        cast = Cast(story, folder, clock)
        agent = AgentLoop(cast)
        async with Engine(store, agent, clock=clock, ids=RandomIds(), rules=story.rules) as engine:
            await engine.commit(opening)
            await engine.commit(story.begin)
            while True:
                wishes, over = await engine.store.read(lambda tx: (story.wishes(tx, clock.now()), is_over(tx, story)))
                if over and not wishes:
                    return
                for decide in wishes:
                    name = decide.func.__name__ if isinstance(decide, partial) else "order"
                    story.fate(f"before {name}")
                    try:
                        await engine.commit(decide)
                    except FledgeError:
                        continue  # it came out otherwise between looking and acting
                    story.fate(f"after {name}")
                await wait(clock, LOOK_S)
    finally:
        await store.close()


def is_over(tx: Tx, story: Story) -> bool:
    """Every run that must exist does, and nothing goes on any more."""
    labels = {tx.runs.spec(key).label for key in walk(tx)}
    return labels >= set(story.ends) and not verdict.restless(tx)
