"""What the chat's screen costs: a scripted scene in a real pseudo-terminal, whose other end is read here, or is not.

The scene (`bench/terminal_scene.py`) is a process of its own and reports its CPU and the lag of its loop from its first
word on. Keys are pressed while it streams; a key counts as echoed when the input with it has been read here. A start is
the real chat's, on a folder that was used before, until its greeting has been read here; the kernel says what CPU all
its threads took by then (Linux).
"""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.measure import percentile

RATE = 50.0
"""Words a second."""
COLUMNS, LINES = 80, 30
KEY_S = 0.25
"""A key is pressed so often."""
TYPED = 10
"""After so many keys the input is cleared."""
START_S = 10.0
"""A scene that has not begun until then has failed."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that was streamed."""

    words: int
    cpu_ms: float
    """A word."""
    bytes_a_word: float
    echoes_ms: tuple[float, ...]

    @property
    def echo_p95_ms(self) -> float:
        """From key to echo."""
        return percentile(self.echoes_ms, 95)

    def __str__(self) -> str:
        """CPU of one word."""
        return f"{self.cpu_ms:.2f} ms"


class Scene:
    """A scene in a terminal of ours."""

    def __init__(self, descriptor: int, process: "subprocess.Popen[bytes]", report: Path) -> None:
        self._descriptor, self._process, self._report = descriptor, process, report

    def read(self, patience_s: float) -> bytes:
        """What was written to the terminal until now; empty if nothing comes."""
        if not select.select([self._descriptor], [], [], patience_s)[0]:
            return b""
        try:
            return os.read(self._descriptor, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            return b""

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self._descriptor, key)

    def begin(self) -> None:
        """Read until the answer has begun."""
        until = time.monotonic() + START_S
        while b"answering" not in self.read(0.1):
            if time.monotonic() > until:
                raise RuntimeError("the scene does not begin")

    def leave(self) -> dict[str, float]:
        """Leave it; answers what it reports."""
        self.press(b"\x03" if self._process.poll() is None else b"")
        until = time.monotonic() + START_S
        while self._process.poll() is None and time.monotonic() < until:
            self.read(0.05)
            self.press(b"\x15\x04")
        self._process.kill()
        self._process.wait()
        cost: dict[str, float] = json.loads(self._report.read_text("utf-8"))
        return cost


@contextmanager
def scene() -> Iterator[Scene]:
    """A scene that streams for long enough."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        environment = os.environ | {"TERM": "xterm-256color", "REPORT": str(report)}
        command = [sys.executable, "-m", "bench.terminal_scene", str(RATE), "100"]
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        try:
            yield Scene(ours, process, report)
        finally:
            process.kill()
            process.wait()
            os.close(ours)


def start_ms(starts: int) -> float | None:
    """CPU of the chat until it can be talked with, in ms, the median; None where nobody can say."""
    if not Path("/proc/self/task").exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        state, home, work = (Path(folder) / name for name in ("state", "home", "work"))
        work.mkdir()
        # The byte-code goes into a folder of our own, whatever the environment says: an installed package has it.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "HOME": str(home), "TERM": "xterm-256color"}
        env |= {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
        command = [sys.executable, "-m", "fledge.cli.main", "--model", "openai/gpt-test", "--state", str(state)]
        found = [_started(command, env, work) for _ in range(starts + 1)]
    return median(found[1:])


def _started(command: list[str], env: dict[str, str], folder: Path) -> float:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=folder, start_new_session=True
    ) as chat:
        os.close(theirs)
        shown, until = b"", time.monotonic() + START_S
        while b"Ctrl-D" not in shown:
            if not select.select([ours], [], [], max(0.0, until - time.monotonic()))[0]:
                chat.kill()
                raise RuntimeError(f"the chat does not begin: {shown!r}")
            shown += os.read(ours, 65536)
        took_ns = sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{chat.pid}/task").glob("*/schedstat"))
        chat.kill()
    os.close(ours)
    return took_ns / 1e6


def streamed(seconds: float) -> Streamed:
    """An answer streams for so long while keys are pressed."""
    with scene() as playing:
        playing.begin()
        echoes: list[float] = []
        written, typed = 0, b""
        began = pressed_at = time.perf_counter()
        is_echoed = True
        while time.perf_counter() - began < seconds or not echoes:
            data = playing.read(0.002)
            now = time.perf_counter()
            written += len(data)
            if not is_echoed and "› ".encode() + typed in data:
                echoes.append(1000 * (now - pressed_at))
                is_echoed = True
            if is_echoed and now - pressed_at > KEY_S:
                if len(typed) == TYPED:
                    playing.press(b"\x15")
                    typed, pressed_at = b"", now
                else:
                    typed += b"zq"[len(typed) % 2 :][:1]
                    playing.press(typed[-1:])
                    is_echoed, pressed_at = False, now
        took_s = time.perf_counter() - began
        cost = playing.leave()
    words = int(cost["words"])
    return Streamed(words, 1000 * cost["cpu_s"] / words, written / (RATE * took_s), tuple(echoes))


def stalled(seconds: float) -> float:
    """The longest lag of the loop, in ms, while the terminal takes no bytes for so long."""
    with scene() as playing:
        playing.begin()
        time.sleep(seconds)
        return 1000 * playing.leave()["lag_s"]
