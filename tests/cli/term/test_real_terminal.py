"""The screen in real terminals: a pseudo-terminal that stalls or is gone, signals, and tmux, which folds rows."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from bench.terminal_scene import RESIZED_AT

from fledge.cli.term.writer import Writer
from tests.cli.term.pty_program import PATIENCE_S, program
from tests.left_out import requires

ROOT = Path(__file__).parents[3]
SCENE = [sys.executable, "-m", "bench.terminal_scene"]


def test_a_terminal_that_takes_no_bytes_holds_up_nobody_and_gets_everything_in_the_end() -> None:
    async def story() -> None:
        ours, theirs = os.pipe()
        written = asyncio.Event()
        writer = Writer(theirs)
        writer.on_written = written.set
        writer.put("x" * 1_000_000)
        writer.put("the end")
        assert writer.is_busy
        assert not await writer.drain(0)
        taken = bytearray()

        def take() -> None:
            while not taken.endswith(b"the end"):
                taken.extend(os.read(ours, 65536))

        await asyncio.to_thread(take)
        assert await writer.drain(PATIENCE_S)
        assert not writer.is_busy
        assert written.is_set()
        assert len(taken) == 1_000_007
        writer.close()
        os.close(ours)
        os.close(theirs)

    asyncio.run(story())


def test_a_terminal_that_is_gone_takes_everything_and_shows_nothing() -> None:
    async def story() -> None:
        ours, theirs = os.pipe()
        writer = Writer(theirs)
        os.close(ours)
        writer.put("nobody reads this")
        assert await writer.drain(PATIENCE_S)
        writer.close()
        os.close(theirs)

    asyncio.run(story())


def test_a_signal_stops_the_turn_like_its_key_and_leaving_gives_the_terminal_back_as_it_was() -> None:
    with program([*SCENE, "20"], ROOT) as (scene, terminal):
        scene.wait_for("answering")
        raw = termios.tcgetattr(terminal)
        os.kill(scene.process.pid, signal.SIGINT)
        scene.wait_for("stopped; subagents go on")
        scene.type("\x04")
        assert scene.process.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(terminal)[3] & termios.ECHO
        assert not raw[3] & termios.ECHO
        assert scene.wait_for("stopped").rstrip().endswith("stopped; subagents go on")  # the region is gone


def test_tmux_shows_every_word_once_through_all_resizes() -> None:
    requires("tmux")
    name = f"fledge-test-{os.getpid()}"

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-L", name, "-f", "/dev/null", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    def text() -> str:
        return tmux("capture-pane", "-p", "-J", "-S", "-")

    def wait_until(holds: Callable[[str], bool]) -> str:
        until = time.monotonic() + PATIENCE_S
        while not holds(shown := text()):
            assert time.monotonic() < until, shown
            time.sleep(0.05)
        return shown

    def shows(word: str) -> Callable[[str], bool]:
        return lambda shown: word in shown

    command = f"env NUMBERED=1 RESIZES=1 {' '.join(SCENE)} 120"
    tmux("new-session", "-d", "-x", "100", "-y", "26", command)
    try:
        tmux("set", "-g", "history-limit", "20000")
        for number, width in enumerate((60, 110, 47, 120, 33, 90)):
            wait_until(shows(f"w{RESIZED_AT[number]:04d}"))
            if number == 3:
                tmux("send-keys", "words that are typed")  # from here on the cursor stands in the input
            tmux("resize-window", "-x", str(width), "-y", str(22 + number))
        shown = wait_until(lambda shown: "w0419" in shown and "answering" not in shown)
        assert re.findall(r"w\d{4}", shown) == [f"w{number:04d}" for number in range(420)]
        assert shown.count("› words that are typed") == 1
        assert shown.count("? scout wants to run") == 1
    finally:
        tmux("kill-server")
