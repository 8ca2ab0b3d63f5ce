"""Running a program: bounded in time and output, and gone when it is over.

The program is the leader of a session and process group of its own, which is killed whole when the program ends, runs
out of time or is cancelled: its background processes end with it. This file does not know which program is run, nor who
may run it.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct

from fledge.clock import hold_time
from fledge.egress import Environment

HEAD_BYTES: Final = 16_000
TAIL_BYTES: Final = 24_000
MAX_OUTPUT_BYTES: Final = 100 * 1024 * 1024
"""A command that writes more is killed: reading the output costs time, and most of it is not shown."""
STOPPED: Final = 124
GRACE_S: Final = 2.0
"""Between SIGTERM and SIGKILL."""
DRAIN_S: Final = 0.5
"""How long output is still read after the group was killed: only a process that left the group keeps the pipe open."""


class ProcessEnded(Struct, frozen=True):
    """A command that is over."""

    code: int
    """As the shell counts: 128 and the signal, if it was killed by one; 124 if a limit of ours stopped it."""
    output: str
    said: str
    """How it ended, in words."""


async def run(
    argv: Sequence[str],
    cwd: Path,
    env: Environment,
    timeout_s: float | None,
    *,
    given: bytes = b"",
    kept: "HeadTail | None" = None,
    heard: Callable[[bytes], None] | None = None,
    passed: Sequence[int] = (),
) -> ProcessEnded:
    """Run a program to its end, or kill it and its whole group. Afterwards no process, zombie or descriptor is left.

    Its input is `given` and nothing else. Its output and errors are collected in `kept`; with `heard`, only its output
    is, and its errors go to `heard` as they come. It inherits the descriptors in `passed`. Only a process that made
    itself a new session survives; in a sandbox, none does.
    """
    kept = HeadTail(HEAD_BYTES, TAIL_BYTES) if kept is None else kept
    began = monotonic()
    process = _start(argv, cwd, env, given, passed, apart=heard is not None)
    assert process.stdout is not None
    ended = asyncio.ensure_future(_exit_of(process))
    loop = asyncio.get_running_loop()
    release = hold_time(loop)
    ended.add_done_callback(lambda _: release())
    flooded: asyncio.Future[None] = loop.create_future()
    closed = _collect(process.stdout.fileno(), kept.add, flooded)
    if process.stderr is not None and heard is not None:
        _collect(process.stderr.fileno(), heard, flooded)
    why = ""
    try:
        why = await _end_or_limit(ended, flooded, timeout_s)
        if why:
            await _terminate(process, ended, release)
    except asyncio.CancelledError:
        await _terminate(process, ended, release)
        raise
    finally:
        # The leader is not reaped yet, so its number still names its group and no other.
        _signal(process, signal.SIGKILL)
        try:
            await asyncio.wait({ended}, timeout=GRACE_S)
            await asyncio.wait({closed}, timeout=DRAIN_S)
        finally:
            ended.cancel()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    loop.remove_reader(pipe)
                    pipe.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE_S)
    code = process.returncode if process.returncode is not None else -signal.SIGKILL
    if why:
        code = STOPPED
    elif code < 0:
        why = f"killed by signal {-code} ({signal.strsignal(-code)})"
        code = 128 - code
    else:
        why = f"exit code {code}"
    return ProcessEnded(code, kept.text(), f"{why}; {monotonic() - began:.1f} s")


def _start(
    argv: Sequence[str], cwd: Path, env: Environment, given: bytes, passed: Sequence[int], apart: bool
) -> "subprocess.Popen[bytes]":
    """The started process, with a pipe for its output, and one for its errors if they are kept `apart`."""
    # A file as input: it can never fill up, whether the program reads it or not.
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=file if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
            start_new_session=True,
            pass_fds=passed,
        )


async def _end_or_limit(ended: "asyncio.Future[None]", flooded: "asyncio.Future[None]", timeout_s: float | None) -> str:
    """Wait for the end or a limit; returns which limit was reached first, empty if the process ended before any."""
    await asyncio.wait({ended, flooded}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        return ""
    if flooded.done():
        return f"killed: it wrote more than {MAX_OUTPUT_BYTES} bytes"
    return f"killed: it ran longer than {timeout_s:g} s"


async def _terminate(
    process: "subprocess.Popen[bytes]", ended: "asyncio.Future[None]", release: Callable[[], None]
) -> None:
    release()  # virtual time may pass from here on: the wait below has a deadline
    _signal(process, signal.SIGTERM)
    await asyncio.wait({ended}, timeout=GRACE_S)


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _exit_of(process: "subprocess.Popen[bytes]") -> None:
    """Return once the process is over. It stays a zombie where the system can tell its end without reaping it."""
    try:
        watched = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        await asyncio.to_thread(process.wait)
        return
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(watched, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)


def _collect(reading: int, keep: Callable[[bytes], None], flooded: "asyncio.Future[None]") -> "asyncio.Future[None]":
    """Keep all output. The returned future is done when every process has closed the pipe, `flooded` at too much
    output."""
    total = 0
    loop = asyncio.get_running_loop()
    closed: asyncio.Future[None] = loop.create_future()

    def take() -> None:
        nonlocal total
        try:
            data = os.read(reading, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            keep(data)
            total += len(data)
        if total > MAX_OUTPUT_BYTES and not flooded.done():
            flooded.set_result(None)
        if not data:
            loop.remove_reader(reading)
            if not closed.done():
                closed.set_result(None)

    os.set_blocking(reading, False)
    loop.add_reader(reading, take)
    return closed


class HeadTail:
    """The beginning and the end of a long text, and how much was between them."""

    def __init__(self, head: int, tail: int) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._head_room, self._tail_room = head, tail

    def add(self, data: bytes) -> None:
        """Add a piece of the text."""
        self.total += len(data)
        fits = self._head_room - len(self._head)
        self._head += data[:fits]
        self._tail += data[fits:]
        # Not at every piece: cutting moves the rest.
        if len(self._tail) > 8 * self._tail_room:
            del self._tail[: -self._tail_room]

    def text(self) -> str:
        """All of it, or both ends with a line between that says how much is missing."""
        tail = bytes(self._tail[-self._tail_room :])
        missing = self.total - len(self._head) - len(tail)
        if not missing:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        ends = [part.decode("utf-8", "replace") for part in (bytes(self._head), tail)]
        return f"{ends[0]}\n[cut: {missing} of {self.total} bytes are not shown]\n{ends[1]}"
