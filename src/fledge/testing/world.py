"""A scripted world: a performer that plays every session from a script, so an engine needs neither model nor tools."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from fledge.clock import pause
from fledge.core import events as ev
from fledge.core import policy
from fledge.core.route import Address
from fledge.core.run import Run, Terms
from fledge.core.transcript import Replied, Resulted
from fledge.orchestrator import control, inbox, spawn, transcripts, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive, TurnContinues
from fledge.store.base import InboxRow, OutboxPost, Spec


def step(c: Commit, drive: Drive, entries: list[tuple[Literal["assistant", "tool"], str]]) -> int:
    """Commit a step: its entries, then the inbox rows that may enter at this boundary; returns the number of rows."""
    turns.fence(c, drive)
    for kind, text in entries:
        transcripts.write(c, drive.session, Replied(text) if kind == "assistant" else Resulted(0, 0, "", "step", text))
    taken = inbox.consume_waiting(c, drive.session, at_boundary=True)
    turns.progressed(c, drive.session)
    return taken


def wait(c: Commit, drive: Drive, terms: policy.YieldTerms) -> TurnContinues:
    """Yield: `over` if the turn waits, `on` if it has read unread completions. Refused as `judge_yield` says."""
    verdict = turns.judge_yield(c, drive, terms)
    policy.enforce(verdict if isinstance(verdict, policy.Refusal) else None)
    if verdict == "read":
        inbox.consume_completions(c, drive.session)
        return "on"
    turns.wait(c, drive, terms)
    return "over"


class Stage:
    """The actions of a script while it drives a session."""

    def __init__(self, engine: Engine, drive: Drive) -> None:
        self.engine, self.drive = engine, drive
        self.over = False

    @property
    def session(self) -> str:
        """The session being driven."""
        return self.drive.session

    @property
    def run(self) -> Run | None:
        """The run as it was when the drive began; None for a conversation."""
        return self.drive.run

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        await pause(self.engine.clock, seconds)

    async def task(self) -> str:
        """The words of the last task, steer, wake, approval or message in the transcript."""
        entries = await self.engine.store.read(lambda tx: tx.transcripts.entries(self.session))
        return next((entry.body for entry in reversed(entries) if entry.kind == "user"), "")

    async def inbox(self) -> list[InboxRow]:
        """The unread rows of the inbox."""
        return await self.engine.store.read(lambda tx: tx.inbox.unread(self.session))

    async def spawn(self, task: str, *, limits: policy.Limits | None = None, **terms: Any) -> str:
        """Spawn a child; return its session key."""
        request = spawn.SpawnRequest(
            spec=Spec(task=task, label=task),
            terms=Terms(parent=self.session, **terms),
            limits=limits or policy.Limits(max_depth=5, max_children=100),
            generations=self.drive.generations,
        )
        return (await self.engine.commit(spawn.spawn, request)).key

    async def step(self, text: str = "") -> int:
        """Commit a step; return how many inbox rows it read."""
        return await self.engine.commit(step, self.drive, [("tool", text)] if text else [])

    async def say(self, text: str) -> TurnContinues:
        """The final reply; `on` if completions had to be read first and the attempt goes on."""
        goes = await self.engine.commit(turns.finish, self.drive, text)
        self.over = goes == "over"
        return goes

    async def fail(self, error: str) -> None:
        """End with an error."""
        await self.engine.commit(turns.fail, self.drive, error)
        self.over = True

    async def falter(self, error: str) -> None:
        """Report a provisional error."""
        await self.engine.commit(turns.falter, self.drive, error)

    async def recover(self) -> None:
        """Go on after a provisional error."""
        await self.engine.commit(turns.recovered, self.drive)

    async def wait(self, asked: ev.YieldCondition | None = None, wait_s: float | None = None) -> None:
        """Yield; if completions are unread, the turn reads them and goes on."""
        terms = policy.YieldTerms(asked, wait_s)
        self.over = await self.engine.commit(wait, self.drive, terms) == "over"

    async def steer(self, key: str, message: str) -> None:
        """Steer a child."""
        await self.engine.commit(control.steer, key, message)

    async def kill(self, key: str) -> None:
        """Kill a child."""
        await self.engine.commit(control.kill, key)


Script = Callable[[Stage], Awaitable[None]]


class ScriptedPerformer:
    """Stands in for models, channels and files in tests of the engine: `script` drives every session."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.removed: list[str] = []
        self.posted: list[OutboxPost] = []
        self.driven: list[tuple[str, int]] = []

    async def drive(self, engine: Engine, drive: Drive) -> None:
        """Run the script; repeat a reply that first had to read new messages."""
        stage = Stage(engine, drive)
        self.driven.append((drive.session, drive.epoch))
        await self.script(stage)
        while not stage.over:
            await stage.say("done")

    def failed(self, drive: Drive, error: str, retry_in_s: float) -> None:
        """Do nothing: the rows say it."""

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """Record the files that would be removed."""
        self.removed.extend(leaves)

    async def call(self, post: OutboxPost) -> Address | None:
        """Record a message instead of sending it."""
        self.posted.append(post)
        return None
