"""What the turn driver's tests share: a desk, that is an engine with a thinking agent, in virtual time on one folder.

The model is scripted and its answers follow from the request alone; a session's label is its system prompt, so that one
script can play many. Tools are made here, never touch the world, and remember what became of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from fledge.core.policy import Budget, Spent
from fledge.core.transcript import Body, Replied, Resulted, from_body
from fledge.errors import Refused
from fledge.models.base import AssistantMessage, Model, ModelMessage, Request, ToolMessage
from fledge.models.retry import Retrying
from fledge.models.scripted import Answer, ModelScript, ScriptedModel, use
from fledge.orchestrator import budget, spawn, steps
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.runtime.agent import AgentLoop
from fledge.runtime.feed import Feed, Subscription
from fledge.runtime.profile import Profile
from fledge.store.base import Approval, OutboxPost, Tx
from fledge.store.entry_files import EntryFiles
from fledge.testing import InlineStore, SeededIds, run_virtual
from fledge.tools.base import Tool, tool
from fledge.tools.registry import ToolSet
from tests.orchestrator.stage import MAIN, PROGRAM, WIDE, WatchedStore, World
from tests.runtime.no_runtimes import NoRuntimes

T = TypeVar("T")

PATIENCE_S = 900.0
"""How long, in virtual time, a test waits for what must happen."""


# ---- models ----------------------------------------------------------------------------------------------------------


def said(request: Request) -> int:
    """How many replies the model sees in its past."""
    return sum(isinstance(message, AssistantMessage) for message in request.messages)


def in_turn(*answers: Answer) -> ModelScript:
    """The first answer to a transcript without replies, the next to one with a single reply, and so on."""
    return lambda request: answers[min(said(request), len(answers) - 1)]


def cast(**scripts: ModelScript) -> ModelScript:
    """A script for each label; a session without one answers at once."""

    def script(request: Request) -> Answer | Awaitable[Answer]:
        own = scripts.get(request.system)
        return own(request) if own is not None else f"answer of {request.system}"

    return script


def worker(*answers: Answer, **model: Any) -> ScriptedModel:
    """A model that plays these answers for the session called worker, and answers all others at once."""
    return ScriptedModel(cast(worker=in_turn(*answers)), **model)


def asked(model: ScriptedModel, label: str = "worker") -> list[tuple[ModelMessage, ...]]:
    """What the model was asked on behalf of a session, request by request."""
    return [request.messages for request in model.requests if request.system == label]


def results(messages: Sequence[ModelMessage]) -> list[tuple[str, str, bool]]:
    """The tool results a model sees: name, text, whether it is an error."""
    return [(said.name, said.text, said.is_error) for said in messages if isinstance(said, ToolMessage)]


# ---- tools -----------------------------------------------------------------------------------------------------------


class Kit:
    """Makes tools and remembers, in order, how often each was begun, done and cancelled."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.cancelled: list[str] = []
        self.running = 0
        self.most = 0
        """How many ran at the same time, at most."""

    def tool(
        self,
        name: str,
        takes_s: float = 0.0,
        says: str | Exception = "",
        kind: Literal["once", "repeatable", "read_only"] = "once",
        **flags: Any,
    ) -> Tool:
        """A tool that takes so long and then says its words, its own name if there are none, or raises."""

        async def run(word: str = "") -> str:
            self.begun.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await asyncio.sleep(takes_s)
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            finally:
                self.running -= 1
            self.done.append(name)
            if isinstance(says, Exception):
                raise says
            return says or f"{name} {word}".strip()

        flags |= {"repeatable": kind == "repeatable", "read_only": kind == "read_only"}
        return tool(name=name, description=f"Does {name}.", **flags)(run)


# ---- the desk --------------------------------------------------------------------------------------------------------


class OneProfile(NoRuntimes):
    """The same model and tools for every session; its label is its prompt. `refuses` lists why there is no profile."""

    def __init__(self, model: Model | Retrying, tools: Sequence[Tool], settings: dict[str, Any]) -> None:
        self._model, self._tools, self._settings = model, tools, settings
        self.refuses: list[str] = []
        self.sent: list[str] = []
        """Keys of what left by the outbox."""

    def add(self, *tools: Tool) -> None:
        """From the next turn on sessions have these tools, too."""
        self._tools = (*self._tools, *tools)

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        if self.refuses:
            raise Refused("error", self.refuses.pop(0))
        session = drive.session
        label = await engine.store.read(
            lambda tx: "main" if tx.runs.find(session) is None else tx.runs.spec(session).label
        )
        return Profile(
            model=self._model,
            model_name="scripted-1",
            system=label,
            tools=ToolSet(self._tools),
            workspace=Path("/nowhere"),
            **({"images": EntryFiles(Path("/nowhere"))} | self._settings),
        )

    async def remove(self, leaves: tuple[str, ...]) -> None:
        raise AssertionError(f"nothing was made: {leaves}")

    async def call(self, post: OutboxPost) -> None:
        self.sent.append(post.key)


class Desk(World):
    """One act: an engine whose performer thinks."""

    def __init__(
        self,
        store: WatchedStore,
        start: float,
        seed: int,
        model: Model | Retrying,
        tools: Sequence[Tool],
        rules: Rules,
        settings: dict[str, Any],
    ) -> None:
        super().__init__(store, start, seed, {}, rules)
        self.profiles = OneProfile(model, tools, settings)
        self.agent = AgentLoop(self.profiles, Feed())
        self.engine = Engine(store, self.agent, clock=self.clock, ids=SeededIds(seed), rules=rules)

    def listen(self) -> Subscription:
        return self.agent.feed.listen()

    async def work(self, label: str = "worker", **terms: Any) -> str:
        """Spawn a run and wait until its outcome is fixed."""
        key = await self.spawn(label, **terms)
        await self.ended(key)
        return key

    async def ended(self, key: str) -> None:
        """Wait until the run's outcome is fixed."""
        await self.until(lambda tx: tx.runs.load(key).ended is not None)

    async def until(self, holds: Callable[[Tx], bool]) -> None:
        """Wait until the rows say so, for a quarter of an hour at most."""
        waited_until = self.at() + PATIENCE_S
        while not await self.look(holds):
            assert self.at() < waited_until, "it never came to that"
            await self.clock.sleep(0.01)

    async def rest(self) -> None:
        """Let everything that needs no time happen."""
        await self.clock.sleep(0.001)

    async def give(self, key: str, **ceilings: Any) -> None:
        """Give a session a budget."""
        await self.engine.commit(lambda c: budget.give(c, key, Budget(**ceilings)))

    async def purse(self, key: str) -> tuple[Spent, Spent]:
        """What a budget's owner has used, time apart, and what is set aside."""
        found = await self.look(lambda tx: tx.budgets.get(key))
        assert found is not None
        return replace(found.used, seconds=0.0), found.reserved

    async def worked_s(self, key: str) -> float:
        """How long a budget's owner, and those below it, have worked."""
        found = await self.look(lambda tx: tx.budgets.get(key))
        assert found is not None
        return round(found.used.seconds, 3)

    async def questions(self) -> list[Approval]:
        """What waits for a person, anywhere."""
        return await self.look(lambda tx: tx.approvals.open())

    async def answer(self, approval: Approval, allow: bool = True, digest: str | None = None) -> None:
        await self.engine.commit(lambda c: steps.answer(c, approval.id, allow, "a person", digest))

    async def bodies(self, key: str) -> list[Body]:
        """The whole transcript."""
        entries = await self.look(lambda tx: tx.transcripts.entries(key, limit=100_000))
        return [from_body(entry.body) for entry in entries]

    async def replies(self, key: str) -> list[Replied]:
        return [body for body in await self.bodies(key) if isinstance(body, Replied)]

    async def results(self, key: str) -> list[tuple[str, str, bool]]:
        """Committed results, in the order they were appended."""
        found = [body for body in await self.bodies(key) if isinstance(body, Resulted)]
        return [(result.name, result.text, result.is_error) for result in found]

    def growth(self) -> list[int]:
        """Filled, from now on, with the length of the youngest run's transcript after each commit that changed it."""
        lengths: list[int] = []

        def check(tx: Tx) -> None:
            for key in tx.runs.children(MAIN)[-1:]:
                length = len(tx.transcripts.entries(key))
                if length and length not in lengths[-1:]:
                    lengths.append(length)

        self.store.check = check
        return lengths


class Office:
    """One folder, act after act; virtual time goes on from each to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._acts = 0
        self.now = 0.0

    def act(
        self,
        body: Callable[[Desk], Awaitable[T]],
        model: Model | Retrying,
        *tools: Tool,
        rules: Rules | None = None,
        ends: Literal["closed", "crashed"] = "closed",
        patience_s: float = 600.0,
        **settings: Any,
    ) -> T:
        """Run an engine for as long as `body` takes; then close it, or let everything in memory vanish."""
        self._acts += 1
        return run_virtual(
            self._act(body, model, tools, rules or Rules(widths=WIDE, patience_s=patience_s), ends, settings)
        )

    async def _act(
        self,
        body: Callable[[Desk], Awaitable[T]],
        model: Model | Retrying,
        tools: Sequence[Tool],
        rules: Rules,
        ends: str,
        settings: dict[str, Any],
    ) -> T:
        inline = InlineStore(self._folder)
        desk = Desk(WatchedStore(inline), self.now, self._acts, model, tools, rules, settings)
        try:
            await desk.engine.__aenter__()
            try:
                await desk.engine.commit(_open)
                result = await body(desk)
            finally:
                if ends == "closed":
                    await desk.engine.__aexit__()
        finally:
            self.now = desk.at()
            inline.close_now()
        return result


def _open(c: Commit) -> None:
    spawn.open_conversation(c, MAIN)
    spawn.open_program(c, PROGRAM)


__all__ = ["MAIN", "PROGRAM", "Desk", "Kit", "Office", "asked", "cast", "in_turn", "results", "said", "use", "worker"]
