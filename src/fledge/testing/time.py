"""Time as a variable: clocks that are moved by hand, and event loops whose time jumps whenever every coroutine waits.

The top of `fledge.testing` lists the work that virtual time waits for.
"""

import asyncio
import mmap
import selectors
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack

from fledge.clock import SystemClock
from fledge.core.run import Instant

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START: Instant = 1_800_000_000.0
"""The time at which virtual clocks begin."""
PATIENCE_S = 120.0
"""How many real seconds virtual time waits for a thread or process; far more than any of ours takes."""


class ManualClock:
    """A clock that stands still until `advance` moves it."""

    def __init__(self, start: Instant = START) -> None:
        self._now = start
        self._moved = asyncio.Event()

    def now(self) -> Instant:
        """Return the current time of this clock."""
        return self._now

    def advance(self, seconds: float) -> Instant:
        """Move the clock forward and wake the waits whose time has come; return the new time."""
        self._now += seconds
        self._moved.set()
        return self._now

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        """Return when the clock has reached `at`, or when the event is set."""
        while not poked.is_set() and (at is None or self._now < at):
            self._moved.clear()
            waits = [asyncio.ensure_future(event.wait()) for event in (poked, self._moved)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()


class VirtualClock(SystemClock):
    """The clock of a loop started by `run_virtual`: its time jumps ahead whenever every coroutine waits.

    Threads of that loop may read it too. Make it inside the loop, or read it there first.
    """

    def __init__(self, start: Instant = START) -> None:
        self._start = start
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()

    def now(self) -> Instant:
        """Seconds since the epoch; `start` when the loop's time is 0."""
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        if self._loop is None:
            raise RuntimeError("a VirtualClock tells the time of an event loop: make it, or first read it, inside one")
        return self._start + self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)


class SharedClock(VirtualClock):
    """A virtual clock that continues where a killed process stopped: forked processes share its memory."""

    def __init__(self, memory: mmap.mmap) -> None:
        super().__init__(struct.unpack("d", memory[:8])[0])
        self._memory = memory

    def now(self) -> Instant:
        """Return the time, and store it for the next process."""
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
    """A loop whose time jumps. It counts the threads and processes that work for it."""

    def __init__(self, patience_s: float) -> None:
        self.jumping = _JumpingSelector(patience_s)
        super().__init__(self.jumping)
        self._threads: Executor | None = None
        # Timers due within this time run now. The default, a billionth of a second, is lost by rounding after months.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.jumping.time

    def hold_time(self) -> Callable[[], None]:
        """Let no time pass until the returned function is called; see `fledge.clock.hold_time`."""
        is_held = True
        self.jumping.held += 1

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self.jumping.held -= 1

        return release

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
        """Join the threads, unless one of them is stuck: the caller must get the error that reports it."""
        if self.jumping.has_given_up:
            return
        release = self.hold_time()
        try:
            await super().shutdown_default_executor()
        finally:
            release()

    async def subprocess_exec(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        """Hold time until the process has ended."""
        return await self._held_until_exit(super().subprocess_exec, protocol_factory, *args, **options)

    async def subprocess_shell(self, protocol_factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        """Hold time until the process has ended."""
        return await self._held_until_exit(super().subprocess_shell, protocol_factory, *args, **options)

    async def _held_until_exit(
        self, start: Callable[..., Awaitable[Any]], protocol_factory: Callable[[], Any], *args: Any, **options: Any
    ) -> Any:
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
            return await start(factory, *args, **options)
        except BaseException:  # it did not start
            release()
            raise


def virtual_runner(patience_s: float = PATIENCE_S) -> asyncio.Runner:
    """A runner of coroutines in virtual time; between two runs its tasks, and its time, stand still."""
    return asyncio.Runner(loop_factory=lambda: _VirtualLoop(patience_s))


def run_virtual(main: Coroutine[Any, Any, T], patience_s: float = PATIENCE_S) -> T:
    """Run a coroutine in virtual time: every wait ends at once, in the right order.

    Time stands still while a thread or process works for the loop, at most `patience_s` real seconds; then it is a
    `RuntimeError`. The top of `fledge.testing` lists what counts as work.
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
    selector = loop.jumping
    before, selector.is_ignoring = selector.is_ignoring, True
    try:
        yield
    finally:
        selector.is_ignoring = before
