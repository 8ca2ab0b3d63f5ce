"""Fakes that implement fledge's own protocols, for its tests and for yours: no patching, no sleeping.

`ManualClock` and `run_virtual` make time a variable, `SeededIds` make names repeatable, `InlineStore` runs jobs in the
caller's thread on a real SQLite file, `ScriptedModel` answers from rules, `ScriptedPerformer` plays the whole world
from a script, `CrashPoint` ends the process before or after a chosen transaction, and `survives_crashes` does so to a
program of yours, at every commit or at some, and checks what comes of it.

What holds of virtual time: it passes only when every coroutine waits and no thread or process works for the loop.

- Threads: `asyncio.to_thread`, `run_in_executor`, plain (not async) tools and hooks, the built-in file tools, worktrees
  and folders of children, the SQLite store. They take no virtual time, so no deadline fires because of them.
- Processes: `exec`, `grep`, `CommandRuntime`, `asyncio.create_subprocess_exec` and `_shell`. They run in real time and
  take no virtual time: `sleep 60` takes a real minute, and no timeout ends it.
- A thread or process that has not ended after `patience_s` real seconds is a `RuntimeError`. A deadline that fires
  while one is stuck is tested inside `threads_ignored()`.
- Not waited for: sockets, and threads you start yourself; call `fledge.clock.hold_time` for those.
"""

import asyncio
import mmap
import os
import random
import selectors
import sqlite3
import struct
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple, Unpack

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.route import Address
from fledge.core.run import Instant, Run, Terms
from fledge.errors import StoreError
from fledge.models.base import Request, ToolMessage, UserMessage
from fledge.models.scripted import Reply, Rule, ScriptedModel, echo, last_text, use
from fledge.orchestrator import control, spawn, turns
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive, Goes
from fledge.store.base import Post, Row, Spec, Store, Tx
from fledge.store.files import DATABASE, log_of, unmark
from fledge.store.known import Known
from fledge.store.migrate import migrate
from fledge.store.sqlite import store_error
from fledge.store.sqlite_flow import SqliteTx

if TYPE_CHECKING:
    from fledge.crashes import survives_crashes

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

__all__ = [
    "START",
    "CrashPoint",
    "InlineStore",
    "ManualClock",
    "Reply",
    "Request",
    "Rule",
    "Script",
    "ScriptedModel",
    "ScriptedPerformer",
    "SeededIds",
    "SharedClock",
    "Stage",
    "ToolMessage",
    "UserMessage",
    "VirtualClock",
    "echo",
    "last_text",
    "run_virtual",
    "survives_crashes",
    "threads_ignored",
    "use",
    "virtual_runner",
]


def __getattr__(name: str) -> Any:
    if name == "survives_crashes":  # it opens folders, which fakes alone need not pay for
        from fledge.crashes import survives_crashes

        return survives_crashes
    raise AttributeError(f"module 'fledge.testing' has no attribute {name!r}")


START: Instant = 1_800_000_000.0
"""Where test time begins."""
PATIENCE_S = 120.0
"""How many real seconds virtual time waits for a thread or process; far more than any of ours takes."""


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
    """The time of a loop started by `run_virtual`: it passes at once whenever everybody waits.

    Threads of that loop may read it too. Make it inside the loop, or read it there first.
    """

    def __init__(self, start: Instant = START) -> None:
        self._start = start
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()

    def now(self) -> Instant:
        """Seconds since the epoch, from where it was started."""
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        if self._loop is None:
            raise RuntimeError("a VirtualClock tells the time of an event loop: make it, or first read it, inside one")
        return self._start + self._loop.time()

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


class SharedClock(VirtualClock):
    """Goes on where a process that is gone stood: it keeps the time in memory that forked processes share."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(struct.unpack("d", memory[:8])[0])
        self._memory = memory

    def now(self) -> Instant:
        """The time, which it leaves for the next process."""
        now = super().now()
        self._memory[:8] = struct.pack("d", now)
        return now


class _JumpingSelector(selectors.DefaultSelector):
    """Where a real selector would wait, time jumps instead, unless work outside the loop holds it."""

    def __init__(self, patience_s: float) -> None:
        super().__init__()
        self.time = 0.0
        self.held = 0
        self.is_ignoring = False
        self.has_given_up = False
        self._patience_s = patience_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.held and not self.has_given_up and not (self.is_ignoring and timeout is not None):
            ready = super().select(self._patience_s)
            self.has_given_up = not ready
            if ready:
                return ready
        if self.has_given_up:
            raise RuntimeError(
                f"virtual time has stood still for {self._patience_s:g} s: a thread or process has not ended; "
                "if it is meant to be stuck, wait inside fledge.testing.threads_ignored()"
            )
        if timeout is None:
            raise RuntimeError("everybody waits, and no time that could pass would wake anyone")
        self.time += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps. It knows of everything that works for it in threads and processes."""

    def __init__(self, patience_s: float) -> None:
        self._jumping = _JumpingSelector(patience_s)
        super().__init__(self._jumping)
        self._threads: Executor | None = None
        # A timer is due within this of its time. The machine's own billionth is lost in a time of months.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._jumping.time

    def hold_time(self) -> Callable[[], None]:
        """Let no time pass until the answer is called; see `fledge.clock.hold_time`."""
        is_held = True
        self._jumping.held += 1

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._jumping.held -= 1

        return release

    @contextmanager
    def threads_ignored(self) -> Iterator[None]:
        before, self._jumping.is_ignoring = self._jumping.is_ignoring, True
        try:
            yield
        finally:
            self._jumping.is_ignoring = before

    def set_default_executor(self, executor: ThreadPoolExecutor) -> None:  # type: ignore[override]  # as asyncio's own
        super().set_default_executor(executor)
        self._threads = executor

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Hold time until the thread is done and its result has arrived; cancelling the wait does not end a thread."""
        if executor is None and self._threads is None:
            self.set_default_executor(ThreadPoolExecutor(thread_name_prefix="virtual"))
        used = executor or self._threads
        assert used is not None
        job = used.submit(func, *args)
        release = self.hold_time()
        arriving = asyncio.wrap_future(job, loop=self)
        # In this order: `job` may be done before its result has arrived, `arriving` cancelled before `job` is done.
        arriving.add_done_callback(lambda _: job.add_done_callback(partial(self._release_soon, release)))
        return arriving

    def _release_soon(self, release: Callable[[], None], _: "Future[Any]") -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self.call_soon_threadsafe(release)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Join the threads, unless one of them is stuck: then whoever made it so must hear of it."""
        if self._jumping.has_given_up:
            return
        release = self.hold_time()
        try:
            await super().shutdown_default_executor()
        finally:
            release()

    async def subprocess_exec(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        """Hold time until the process has ended."""
        with self._held_until_exit(protocol_factory) as factory:
            return await super().subprocess_exec(factory, *args, **options)

    async def subprocess_shell(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        """Hold time until the process has ended."""
        with self._held_until_exit(protocol_factory) as factory:
            return await super().subprocess_shell(factory, *args, **options)

    @contextmanager
    def _held_until_exit(self, protocol_factory: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
        release = self.hold_time()

        def factory() -> Any:
            protocol = protocol_factory()
            heard = protocol.process_exited

            def process_exited() -> None:
                release()
                heard()

            protocol.process_exited = process_exited
            return protocol

        try:
            yield factory
        except BaseException:  # it did not start
            release()
            raise


def virtual_runner(patience_s: float = PATIENCE_S) -> asyncio.Runner:
    """A runner of coroutines in virtual time; between two runs its tasks, and its time, stand still."""
    return asyncio.Runner(loop_factory=lambda: _VirtualLoop(patience_s))


def run_virtual(main: Coroutine[Any, Any, T], patience_s: float = PATIENCE_S) -> T:
    """Run a coroutine in virtual time: every wait ends at once, in the right order.

    Time stands still while a thread or process works for the loop, at most `patience_s` real seconds; then it is a
    `RuntimeError`. What counts as work is listed at the top of this file.
    """
    with virtual_runner(patience_s) as runner:
        return runner.run(main)


@contextmanager
def threads_ignored() -> Iterator[None]:
    """Inside, virtual time does not wait for threads and processes: for deadlines that fire while one is stuck.

    >>> with threads_ignored(), pytest.raises(TimeoutError):
    ...     async with asyncio.timeout(5):
    ...         await asyncio.to_thread(stuck.wait)
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, _VirtualLoop):
        raise RuntimeError("threads_ignored() is for coroutines that run_virtual or virtual_runner runs")
    with loop.threads_ignored():
        yield


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

    async def wait(self, asked: ev.Asked | None = None, wait_s: float | None = None) -> None:
        """Yield; the turn goes on if what it would wait for was unread."""
        terms = policy.YieldTerms(asked, wait_s)
        self.over = await self.engine.commit(lambda c: turns.wait(c, self.drive, terms)) == "over"

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
