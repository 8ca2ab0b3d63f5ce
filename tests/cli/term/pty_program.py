"""A program in a real pseudo-terminal, before a glass (`scene.Glass`) that shows what a terminal would."""

import codecs
import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cli.term.scene import Glass

PATIENCE_S = 60
MARK = "⏹"


class Program:
    """A program, the glass, and keys."""

    def __init__(self, process: "subprocess.Popen[bytes]", descriptor: int, terminal: int, glass: Glass) -> None:
        self.process, self.glass = process, glass
        self._descriptor, self._terminal = descriptor, terminal
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while True:
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:
                return
            with self._lock:
                self.glass.feed(decode(data))

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._descriptor, text.encode())

    def rows(self) -> list[str]:
        """The scrollback, and what stands on the terminal."""
        with self._lock:
            return self.glass.all()

    def ended(self) -> tuple[int, list[str]]:
        """Wait for the program's end; answers its exit code and what it has left on the terminal."""
        code = self.process.wait(PATIENCE_S)
        os.write(self._terminal, f"\r\n{MARK}".encode())  # comes behind all that the program has written
        rows = self.wait_until(lambda rows: rows[-1:] == [MARK], "the end")[:-1]
        while rows and not rows[-1]:
            rows.pop()
        return code, rows

    def wait_for(self, pattern: str) -> str:
        """Wait until this stands on the terminal; answers all that does."""
        return "\n".join(self.wait_until(lambda rows: re.search(pattern, "\n".join(rows)), pattern))

    def wait_until(self, holds: Callable[[list[str]], object], what: str = "") -> list[str]:
        """Wait until this holds of the rows; answers them."""
        until = time.monotonic() + PATIENCE_S
        while not holds(rows := self.rows()):
            assert time.monotonic() < until, "\n".join([f"{what} does not come:", *rows])
            time.sleep(0.01)
        return rows


@contextmanager
def program(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str] | None = None,
    columns: int = 80,
    lines: int = 24,
) -> Iterator[tuple[Program, int]]:
    """A program in a pseudo-terminal, and the terminal's own side of it."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (lines, columns))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**(os.environ if env is None else env), "TERM": "xterm-256color"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        yield Program(process, ours, theirs, Glass(columns, lines)), theirs
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(theirs)
        os.close(ours)
