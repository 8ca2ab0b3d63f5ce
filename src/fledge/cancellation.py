"""Tells a real stop from an exception that only looks like one.

Tools, models, runtimes, hooks and callbacks are code of others: one that calls `sys.exit`, or raises KeyboardInterrupt,
GeneratorExit or CancelledError, has failed like any other, and must not take the engine with it. A real stop is a
cancellation of the running task, a signal, or the closing of a coroutine. Every `except BaseException` around code of
others asks `is_stop` first, and raises a stop again. A block that other tasks may end without stopping its own task is
a `Leavable`. Tasks that run beside their owner are `BackgroundTasks`.
"""

import asyncio
import dis
import functools
import logging
import signal
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import CodeType, TracebackType
from typing import Any

from fledge.core.redact import error_words, redacted

_RAISES = ("RAISE_VARARGS", "RERAISE")
"""The instructions that `raise` is compiled to. A signal, or `close`, interrupts a frame at any other instruction."""


def is_stop(error: BaseException) -> bool:
    """True if the code that caught this must raise it again; False if it is a failure of the code that raised it."""
    if isinstance(error, Exception):
        return False
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    frames = list(_frames(error.__traceback__))
    if not frames or _is_of_a_handler(frames):
        return True
    # Without a handler in Python, SIGINT raises from between two instructions, and closing a coroutine does so too.
    interrupts = isinstance(error, GeneratorExit) or (
        isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    code, at = frames[-1]
    return interrupts and dis.opname[code.co_code[at]] not in _RAISES


class Leavable:
    """A block of a task that `leave` ends early: `asyncio.timeout` without a time, at a third of its cost. The task
    then goes on behind the block, whatever exception the block raised on its way out; only a real stop is raised. It
    may be entered again."""

    __slots__ = ("_cancel", "_cancelling", "_is_left", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        """Set inside the block."""
        self._cancel: asyncio.Handle | None = None
        self._cancelling = 0
        self._is_left = False

    def __enter__(self) -> None:
        task = self._task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()

    def leave(self) -> None:
        """End the block, if the task is in it, at its next await."""
        if self._task is not None and self._cancel is None:
            # Not at once: a block that calls this itself and then ends must not leave a cancellation behind.
            self._cancel = self._task.get_loop().call_soon(self._leave, self._task)

    def _leave(self, task: asyncio.Task[object]) -> None:
        self._is_left = True
        task.cancel()

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: object) -> bool:
        task, cancel, is_left = self._task, self._cancel, self._is_left
        self._task, self._cancel, self._is_left = None, None, False
        if cancel is not None:
            cancel.cancel()
        if task is None or not is_left:
            return False
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            return True
        return raised is not None and not is_stop(raised)


async def end_tasks(tasks: "Iterable[asyncio.Future[Any]]") -> None:
    """Cancel these tasks and wait until they have ended. Their results and errors are dropped."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


class BackgroundTasks:
    """Tasks that run beside their owner until `end`. A failure is logged while the owner `is_open`."""

    def __init__(self, log: logging.Logger, is_open: Callable[[], bool]) -> None:
        self._log, self._is_open = log, is_open
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in a task of its own."""
        task = asyncio.ensure_future(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # a task that was cancelled at once has never awaited it

    async def end(self) -> None:
        """Cancel all tasks and wait for them."""
        await end_tasks(self._tasks)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BaseException as error:
            if is_stop(error):
                raise
            if self._is_open():
                self._log.error("background task failed\n%s", trace(error))


def _frames(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    """The code that the exception went through, and the instruction it left each at; the one that raised it last."""
    while traceback is not None:
        yield traceback.tb_frame.f_code, traceback.tb_lasti
        traceback = traceback.tb_next


def _is_of_a_handler(frames: list[tuple[CodeType, int]]) -> bool:
    """True if a signal handler raised it, such as the one by which `asyncio.run` answers a second Ctrl-C."""
    codes = {code for code, _ in frames}
    return any(_code_of(signal.getsignal(number)) in codes for number in signal.valid_signals())


def _code_of(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None


def describe(error: BaseException) -> str:
    """The error's name and message, without secrets. Code of others may raise an exception that cannot be shown."""
    name, message = type(error).__name__, _message(error)
    return f"{name}: {message}" if message else name


def error_message(error: BaseException) -> str:
    """The error's message alone, without secrets; its name if it has none."""
    return _message(error) or type(error).__name__


def trace(error: BaseException) -> str:
    """Where the error was raised, and its message, without secrets: for logs."""
    return redacted("".join(traceback.format_exception(error)).rstrip())


def _message(error: BaseException) -> str:
    try:
        return error_words(error)
    except BaseException as worse:
        if is_stop(worse):
            raise
        return "(its message cannot be shown)"
