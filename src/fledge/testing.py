"""Fakes that implement fledge's own protocols, for its tests and for yours: no patching, no sleeping.

`ManualClock` and `run_virtual` make time a variable, `SeededIds` make names repeatable, `InlineStore` runs jobs in the
caller's thread on a real SQLite file, `ScriptedModel` answers from rules, `ScriptedPerformer` plays the whole world
from a script, and `CrashPoint` ends the process before or after a chosen transaction.
"""

import asyncio
import os
import random
import selectors
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.route import Address
from fledge.core.run import Instant, Run, Terms
from fledge.errors import StoreError
from fledge.models.scripted import Reply, Rule, ScriptedModel, use
from fledge.orchestrator import control, spawn, turns
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive, Goes
from fledge.store.base import Post, Row, Spec, Store, Tx
from fledge.store.files import DATABASE, log_of, unmark
from fledge.store.known import Known
from fledge.store.migrate import migrate
from fledge.store.sqlite import store_error
from fledge.store.sqlite_flow import SqliteTx

T = TypeVar("T")

__all__ = [
    "START",
    "CrashPoint",
    "InlineStore",
    "ManualClock",
    "Reply",
    "Rule",
    "Script",
    "ScriptedModel",
    "ScriptedPerformer",
    "SeededIds",
    "Stage",
    "VirtualClock",
    "run_virtual",
    "use",
    "virtual_runner",
]

START: Instant = 1_800_000_000.0
"""Where test time begins."""


# ---- time ------------------------------------------------------------------------------------------------------------


class ManualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, start: Instant = START) -> None:
        self._now = start
        self._moved = asyncio.Event()

    def now(self) -> Instant:
        """The time it was last set to."""
        return self._now

    def advance(self, seconds: float) -> Instant:
        """Move on; whoever waits for a time that has come is woken."""
        self._now += seconds
        self._moved.set()
        return self._now

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        """Return when the clock was moved past `at`, or when poked."""
        while not poked.is_set() and (at is None or self._now < at):
            self._moved.clear()
            waits = [asyncio.ensure_future(event.wait()) for event in (poked, self._moved)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()


class VirtualClock:
    """The time of a loop started by `run_virtual`: it passes at once whenever everybody waits."""

    def __init__(self, start: Instant = START) -> None:
        self._start = start

    def now(self) -> Instant:
        """Seconds since the epoch, from where it was started."""
        return self._start + asyncio.get_running_loop().time()

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        """Wait in virtual time."""
        delay = None if at is None else max(0.0, at - self.now())
        try:
            async with asyncio.timeout(delay):
                await poked.wait()
        except TimeoutError:
            pass

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)


class _JumpingSelector(selectors.DefaultSelector):
    """Where a real selector would wait, time jumps instead."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everybody waits, and no time that could pass would wake anyone")
            self.time += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        # A timer is due within this of its time. The machine's own billionth is lost in a time of months.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._jumping.time


def virtual_runner() -> asyncio.Runner:
    """A runner of coroutines in virtual time; between two runs its tasks, and its time, stand still."""
    return asyncio.Runner(loop_factory=_VirtualLoop)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time: every wait ends at once, in the right order. For single-threaded code only."""
    with virtual_runner() as runner:
        return runner.run(main)


class SeededIds:
    """The same names in the same order for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def unique(self) -> str:
        """The next uuid of the seed."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def nonce(self) -> str:
        """The next 64 bits of the seed, in hex."""
        return f"{self._random.getrandbits(64):016x}"


# ---- stores ----------------------------------------------------------------------------------------------------------


class InlineStore:
    """A real SQLite file, one job at a time, in the caller's thread and without waiting for the disk.

    What a crash test needs of it: a job is written whole or not at all, and closing without ceremony loses nothing.
    """

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._path = Path(folder) / DATABASE
        self._db = sqlite3.connect(self._path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA temp_store = MEMORY")
        migrate(self._db, self._path)
        self._known = Known()

    def run(self, job: Callable[[Tx], T]) -> T:
        """Run a job now."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            result = job(SqliteTx(self._db, self._known))
        except BaseException as error:
            self._known.forget()
            self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise store_error(error) from error
            raise
        self._db.execute("COMMIT")
        return result

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run a job now, and let others run before its answer arrives, as with a real store."""
        result = self.run(job)
        await asyncio.sleep(0)
        return result

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Run a job that only reads; a write in it is refused."""
        self._db.execute("PRAGMA query_only = ON")
        try:
            return job(SqliteTx(self._db))
        except sqlite3.OperationalError as error:
            raise StoreError(str(error)) from error
        finally:
            self._db.execute("PRAGMA query_only = OFF")

    async def close(self) -> None:
        """Close the file."""
        self.close_now()

    def close_now(self) -> None:
        """Close the file, from code that has no loop. What a dead process left in its log is taken in."""
        self._db.close()
        if not log_of(self._path).exists():
            unmark(self._path)


class CrashPoint:
    """A store that ends the process, at once and without cleanup, at one chosen transaction.

    Wrapped around a store with a batch of 1, `before` the n-th leaves n - 1 transactions on disk, `after` it leaves n.
    """

    def __init__(self, store: Store, nth: int, when: Literal["before", "after"], code: int = 86) -> None:
        self._store, self._nth, self._when, self._code = store, nth, when, code
        self.begun = 0

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run the job, unless its turn has come."""
        number = 0

        def counted(tx: Tx) -> T:
            nonlocal number
            number = self.begun = self.begun + 1
            # A job that begins proves that the one before it is on disk.
            if self.begun == self._nth + (self._when == "after"):
                os._exit(self._code)
            return job(tx)

        result = await self._store.transact(counted)
        if self._when == "after" and number == self._nth:
            os._exit(self._code)  # nobody has heard that it is done
        return result

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Reading crashes nothing."""
        return await self._store.read(job)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


# ---- the world -------------------------------------------------------------------------------------------------------


class Stage:
    """What a script can do while it drives a session."""

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
        """Take time."""
        clock = self.engine.clock
        await clock.wait_until(clock.now() + seconds, asyncio.Event())

    async def task(self) -> str:
        """The words of the last task, steer, wake, approval or message in the transcript."""
        entries = await self.engine.store.read(lambda tx: tx.entries(self.session))
        return next((entry.body for entry in reversed(entries) if entry.kind == "user"), "")

    async def inbox(self) -> list[Row]:
        """What is unread."""
        return await self.engine.store.read(lambda tx: tx.unread(self.session))

    async def spawn(self, task: str, *, limits: policy.Limits | None = None, **terms: Any) -> str:
        """Spawn a child; answers its key."""
        request = spawn.Request(
            spec=Spec(task=task, label=task),
            terms=Terms(parent=self.session, **terms),
            limits=limits or policy.Limits(max_depth=5, max_children=100),
            generations=self.drive.generations,
        )
        return (await self.engine.commit(lambda c: spawn.spawn(c, request))).key

    async def step(self, text: str = "") -> int:
        """Commit a step; answers how many rows entered at its boundary."""
        return await self.engine.commit(lambda c: turns.step(c, self.drive, [("tool", text)] if text else []))

    async def say(self, text: str) -> Goes:
        """The final reply; `on` if completions had to be read first and the attempt goes on."""
        goes = await self.engine.commit(lambda c: turns.finish(c, self.drive, text))
        self.over = goes == "over"
        return goes

    async def fail(self, error: str) -> None:
        """End with an error."""
        await self.engine.commit(lambda c: turns.fail(c, self.drive, error))
        self.over = True

    async def falter(self, error: str) -> None:
        """Report a provisional error."""
        await self.engine.commit(lambda c: turns.falter(c, self.drive, error))

    async def recover(self) -> None:
        """Go on after a provisional error."""
        await self.engine.commit(lambda c: turns.recovered(c, self.drive))

    async def wait(self, asked: ev.Asked = "all", wait_s: float = policy.YIELD_S) -> None:
        """Yield."""
        await self.engine.commit(lambda c: turns.wait(c, self.drive, asked, wait_s))
        self.over = True

    async def steer(self, key: str, message: str) -> None:
        """Steer a child."""
        await self.engine.commit(lambda c: control.steer(c, key, message))

    async def kill(self, key: str) -> None:
        """Kill a child."""
        await self.engine.commit(lambda c: control.kill(c, key))


Script = Callable[[Stage], Awaitable[None]]


class ScriptedPerformer:
    """Plays the world: `script` drives every session, removals and posts are remembered."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.removed: list[str] = []
        self.posted: list[Post] = []
        self.driven: list[tuple[str, int]] = []

    async def drive(self, engine: Engine, drive: Drive) -> None:
        """Play the script; a reply that has to read first is said again, with what it read."""
        stage = Stage(engine, drive)
        self.driven.append((drive.session, drive.epoch))
        await self.script(stage)
        while not stage.over:
            await stage.say("done")

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """Remember what was to be removed."""
        self.removed.extend(leaves)

    async def call(self, post: Post) -> Address | None:
        """Remember what was to be sent; nobody answers."""
        self.posted.append(post)
        return None
