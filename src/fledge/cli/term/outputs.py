"""Standard output and standard error of a command that shows its work: each written by a thread, so that one that takes
no bytes (Ctrl-S, a stuck pipe) blocks nothing else. If both are the same file, one thread writes them, in order.
"""

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stderr, suppress
from typing import Final, TextIO

from fledge.cli.term.opening import manner
from fledge.cli.term.writer import Writer

LEAVING_S: Final = 1.0
"""How long to wait for an output that takes no bytes, when the command is cancelled."""


class Outputs:
    """Standard output and standard error."""

    def __init__(self) -> None:
        out, err = sys.stdout.fileno(), sys.stderr.fileno()
        self.is_one = os.path.samestat(os.fstat(out), os.fstat(err))
        """True if both are the same file, or the same terminal."""
        self.out = Writer(out)
        self.err = self.out if self.is_one else Writer(err)


@asynccontextmanager
async def opened_outputs() -> AsyncIterator[Outputs]:
    """Both outputs, until the block ends; then everything is written. A blocked output is waited for, but only for
    `LEAVING_S` if the block ends by an error or a cancellation, or if it is a separate standard error. Raises as
    `Writer.check` does."""
    outputs = Outputs()
    patience_s: float | None = LEAVING_S
    try:
        yield outputs
        patience_s = None
    finally:
        try:
            # The reader of standard error may have gone; the answers on standard output count.
            await outputs.err.drain(patience_s if outputs.is_one else LEAVING_S)
            await outputs.out.drain(patience_s)
            outputs.out.check()
        finally:
            for writer in {outputs.out, outputs.err}:
                writer.close()


def draws_on(stream: TextIO) -> bool:
    """True if a live region can be drawn there, and the person wants one."""
    found = manner(os.environ, reads_terminal=True, writes_terminal=stream.isatty())
    return found == "terminal" and is_in_foreground(stream.fileno())


def is_in_foreground(descriptor: int) -> bool:
    """True if this process may draw on the terminal: it is in the foreground, or the terminal has no job control."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True


@asynccontextmanager
async def stray_lines(tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Pass everything else that is written to standard error, such as a log, to `tell` line by line, until the block
    ends."""
    lines = _Lines(tell)
    try:
        with redirect_stderr(lines):
            yield
    finally:
        lines.finish()
        await asyncio.sleep(0)  # by then lines of other threads are passed on


class _Lines(io.TextIOBase):
    """A text file that passes its lines to `tell`."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._begun = tell, ""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def write(self, text: str) -> int:
        """Keep the text until its line is complete. Any thread may write."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if threading.get_ident() == self._thread:
                self._tell(line)
            else:
                with suppress(RuntimeError):  # the loop is closed: nothing is shown any more
                    self._loop.call_soon_threadsafe(self._tell, line)
        return len(text)

    def finish(self) -> None:
        """Pass on a last line that is not complete."""
        if self._begun:
            self.write("\n")
