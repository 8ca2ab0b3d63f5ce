"""What the engine's tests share: a theatre on one folder, whose acts are processes that end by closing or by crashing.

Virtual time goes on from act to act. Agents are scripts by label; whoever has none answers at once. The store is
watched: commits are counted, and a test may make it refuse.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.inbox import QueueMode, QueueSettings
from fledge.core.route import Address
from fledge.core.run import Run, Terms
from fledge.errors import StoreError
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit, Listener, Rules
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.engine import Engine
from fledge.store.base import OutboxPost, Spec, Store, Tx
from fledge.testing import START, InlineStore, Script, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual

T = TypeVar("T")

MAIN = "agent:main:main"
PROGRAM = "agent:main:program"
NARROW = {"main": 1, "subagent": 1, "nested": 1}
WIDE = {"main": 4, "subagent": 400, "nested": 1}
LIMITS = policy.Limits(max_depth=5, max_children=400)


def rules(mode: QueueMode = "collect", widths: dict[str, int] | None = None, hooks: tuple[str, ...] = ()) -> Rules:
    """Rules that differ from the defaults in what a test is about."""
    return Rules(
        queue=QueueSettings(mode=mode, people=mode),
        widths=widths or WIDE,
        hooks={hook: (Listener("audit"),) for hook in hooks},
    )


class WatchedStore:
    """Counts commits; `check` sees every job's transaction before it is committed, `broken` makes everything fail, and
    `hold_s` keeps the next job waiting, whoever asked for it may be gone by then. `answer_s`: so late is told what was
    read."""

    def __init__(self, store: Store) -> None:
        self._store, self.cluster = store, store.cluster
        self.commits = 0
        self.broken = False
        self.hold_s = self.answer_s = 0.0
        self.check: Callable[[Tx], None] = lambda tx: None

    async def transact(self, job: Callable[[Tx], T]) -> T:
        def watched(tx: Tx) -> T:
            result = job(tx)
            self.check(tx)
            return result

        self._refuse()
        hold_s, self.hold_s = self.hold_s, 0.0
        if hold_s:
            return await asyncio.shield(asyncio.ensure_future(self._held(hold_s, watched)))
        result = await self._store.transact(watched)
        self.commits += 1
        return result

    async def _held(self, seconds: float, job: Callable[[Tx], T]) -> T:
        await asyncio.sleep(seconds)
        return await self._store.transact(job)

    async def read(self, job: Callable[[Tx], T]) -> T:
        self._refuse()
        seen = await self._store.read(job)
        if self.answer_s:
            await asyncio.sleep(self.answer_s)
        return seen

    async def close(self) -> None:
        await self._store.close()

    def _refuse(self) -> None:
        if self.broken:
            raise StoreError("disk full")


class Performer(ScriptedPerformer):
    """Remembers when it was asked to call and remove, and does as `calls` and `removes` say."""

    def __init__(self, script: Script, now: Callable[[], float]) -> None:
        super().__init__(script)
        self._now = now
        self.called: list[tuple[float, str]] = []
        self.cleaned: list[float] = []
        self.calls: Callable[[OutboxPost], Awaitable[Address | None]] = super().call
        self.removes: Callable[[tuple[str, ...]], Awaitable[None]] = super().remove

    async def call(self, post: OutboxPost) -> Address | None:
        self.called.append((self._now(), post.key.split(":")[1]))
        return await self.calls(post)

    async def remove(self, leaves: tuple[str, ...]) -> None:
        self.cleaned.append(self._now())
        await self.removes(leaves)


class World:
    """One act: an engine with its agents, and what a test asks of it."""

    def __init__(
        self, store: WatchedStore, start: float, seed: int, scripts: Mapping[str, Script], rules: Rules
    ) -> None:
        self.store, self.scripts = store, scripts
        self.clock = VirtualClock(START + start)
        self.performer = Performer(self._play, self.at)
        self.engine = Engine(store, self.performer, clock=self.clock, ids=SeededIds(seed), rules=rules)
        self.drives: list[tuple[float, str]] = []
        """When each drive began, and whose it was."""

    def at(self) -> float:
        """Seconds since the theatre opened."""
        return round(self.clock.now() - START, 6)

    async def _play(self, stage: Stage) -> None:
        label = await self.label(stage.session)
        self.drives.append((self.at(), label))
        script = self.scripts.get(label)
        if script is not None:
            await script(stage)
        else:
            await stage.say(f"answer of {label}")

    def driven(self, label: str) -> list[float]:
        """When each of this agent's drives began."""
        return [at for at, who in self.drives if who == label]

    # ---- doing

    async def sleep_until(self, at: float) -> None:
        await self.clock.sleep(START + at - self.clock.now())

    async def spawn(self, task: str, parent: str = MAIN, **terms: Any) -> str:
        request = spawn.SpawnRequest(
            spec=Spec(task=task, label=task), terms=Terms(parent=parent, **terms), limits=LIMITS, generations=None
        )
        return (await self.engine.commit(lambda c: spawn.spawn(c, request))).key

    async def send(self, message: str = "go", key: str = MAIN) -> None:
        await self.engine.commit(lambda c: control.send(c, key, message))

    async def kill(self, key: str) -> Killing:
        return await self.engine.commit(lambda c: control.kill(c, key))

    async def steer(self, key: str, message: str = "rather this") -> None:
        await self.engine.commit(lambda c: control.steer(c, key, message))

    # ---- looking

    async def look(self, job: Callable[[Tx], T]) -> T:
        return await self.store.read(job)

    async def label(self, key: str) -> str:
        return await self.look(lambda tx: "main" if tx.runs.find(key) is None else tx.runs.spec(key).label)

    async def run(self, key: str) -> Run:
        return await self.look(lambda tx: tx.runs.load(key))

    async def outcome(self, key: str) -> tuple[str, str | None, float]:
        """Status, error and time of a run's end."""
        ended = (await self.run(key)).ended
        assert ended is not None, f"{key} has not ended"
        return ended.outcome.status, ended.outcome.error, round(ended.ended_at - START, 6)

    async def result(self, key: str) -> str:
        ended = (await self.run(key)).ended
        assert ended is not None
        assert ended.result is not None
        text_id = ended.result
        return await self.look(lambda tx: tx.texts.get(text_id))

    async def timeline(self, key: str) -> list[tuple[str, float]]:
        events = await self.look(lambda tx: tx.events.of(key))
        return [(type(event).__name__, round(event.at - START, 6)) for event in events]

    async def happened(self, key: str, kind: type[ev.Event]) -> int:
        return [name for name, _ in await self.timeline(key)].count(kind.__name__)

    async def told(self, session: str = MAIN) -> list[list[str]]:
        """Labels of the runs whose completions are in the transcript, one list for each event entry."""

        def read(tx: Tx) -> list[list[str]]:
            entries = [entry for entry in tx.transcripts.entries(session, limit=100_000) if entry.kind == "event"]
            return [
                [tx.runs.spec(item["run"]).label for item in msgspec.json.decode(entry.body)["completions"]]
                for entry in entries
            ]

        return await self.look(read)

    async def all_told(self, session: str = MAIN) -> list[str]:
        """The same labels, sorted, however they came together."""
        return sorted(label for part in await self.told(session) for label in part)

    async def heard(self, session: str = MAIN, kind: Literal["user", "event", "assistant"] = "user") -> list[str]:
        """The words of all entries of a kind, but for what a heartbeat begins with."""
        entries = await self.look(lambda tx: tx.transcripts.entries(session, limit=100_000))
        bodies = [msgspec.json.decode(entry.body) for entry in entries if entry.kind == kind]
        return [str(body["text"]) for body in bodies if body.get("kind") != "heartbeat"]

    async def unsettled(self, session: str = MAIN) -> int:
        return await self.look(lambda tx: tx.sessions.counts(session).unsettled)


class Theatre:
    """One folder, act after act."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._acts = 0
        self.now = 0.0

    def act(
        self,
        body: Callable[[World], Awaitable[T]],
        scripts: Mapping[str, Script] | None = None,
        rules: Rules | None = None,
        ends: Literal["closed", "crashed"] = "closed",
    ) -> T:
        """Run an engine for as long as `body` takes; then close it, or let everything in memory vanish."""
        self._acts += 1
        return run_virtual(self._act(body, scripts or {}, rules or Rules(widths=WIDE), ends))

    async def _act(
        self, body: Callable[[World], Awaitable[T]], scripts: Mapping[str, Script], rules: Rules, ends: str
    ) -> T:
        inline = InlineStore(self._folder)
        world = World(WatchedStore(inline), self.now, self._acts, scripts, rules)
        try:
            await world.engine.__aenter__()
            try:
                await world.engine.commit(_open)
                result = await body(world)
            finally:
                if ends == "closed":
                    await world.engine.__aexit__()
        finally:
            self.now = world.at()
            inline.close_now()
        return result


def _open(c: Commit) -> None:
    spawn.open_conversation(c, MAIN)
    spawn.open_program(c, PROGRAM)


# ---- scripts ---------------------------------------------------------------------------------------------------------


def works(seconds: float, text: str = "") -> Script:
    """Take so long, then say something."""

    async def script(stage: Stage) -> None:
        await stage.sleep(seconds)
        if text:
            await stage.say(text)

    return script


def in_turns(*scripts: Script) -> Script:
    """A script for the first drive, one for the second, and so on; after the last nothing more is done."""
    left = iter(scripts)

    async def script(stage: Stage) -> None:
        following = next(left, None)
        if following is not None:
            await following(stage)

    return script


async def lingers(stage: Stage, seconds: float) -> None:
    """Go on for so long, whoever cancels."""
    clock = stage.engine.clock
    until = clock.now() + seconds
    while clock.now() < until:
        try:
            await stage.sleep(until - clock.now())
        except asyncio.CancelledError:
            continue


def at(stage: Stage) -> float:
    """Seconds since the theatre opened, for scripts."""
    return round(stage.engine.clock.now() - START, 6)


async def two_steps(stage: Stage) -> None:
    """One tool call, then the answer."""
    await stage.sleep(1)
    await stage.step("a tool's output")
    await stage.sleep(1)
    await stage.say("the answer")
