"""Commands while the process that holds the folder is stopped or blocked: after two seconds they say which one, and
what to do."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from fledge.store.lock import Holder, silence_of
from fledge.store.ways import CONTROL_SOCKET, reached
from tests.cli.command import PROGRAM, fledge
from tests.statements import proves

PATIENCE_S = 60.0
ASKS = {
    "chat": (),
    "run": ("hello",),
    "ps": (),
    "tree": (),
    "info": ("x",),
    "log": (),
    "undelivered": (),
    "sessions": (),
    "health": (),
    "spawn": ("task",),
    "send": ("main", "hello"),
    "steer": ("x", "words"),
    "kill": ("all",),
    "resume": ("x",),
    "again": ("x",),
    "remove": ("x",),
    "approve": ("x",),
    "reject": ("x",),
    "permissions": (),
    "event": ("words",),
    "heartbeat": (),
}
"""The commands that ask the process which holds the folder, with arguments."""


@contextmanager
def held(state: Path, host: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A folder whose holder listens on its socket and answers nothing: a process beside this one."""
    state.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
        holder = Holder(process.pid, host or socket.gethostname(), "fledge serve", time.time(), CONTROL_SOCKET)
        (state / "lock").write_bytes(msgspec.json.encode(holder))
        with closing(socket.socket(socket.AF_UNIX)) as listening:
            with reached(state) as path:
                listening.bind(path)
            listening.listen(128)
            try:
                yield process
            finally:
                process.kill()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process as Ctrl-Z does, and wait until it is."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def begun(state: Path, *arguments: str) -> "subprocess.Popen[str]":
    """A command that has been started in a folder of its own."""
    own = {"HOME": str(state.parent), "PYTHONPATH": os.pathsep.join(sys.path)}
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLEDGE_")} | own
    command = [*PROGRAM, arguments[0], "--state", str(state), *arguments[1:]]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=env, cwd=state.parent
    )


def said(command: "subprocess.Popen[str]", words: str) -> str:
    """What the command prints, up to a line with these words; then it is killed."""
    assert command.stdout is not None
    lines = []
    try:
        for line in command.stdout:
            lines.append(line)
            if words in line:
                break
    finally:
        command.kill()
        command.communicate()
    return "".join(lines)


@proves(
    "4.tools.59", "While the holder is stopped or blocked, each command says after 2 s which process, and what to do"
)
def test_every_command_that_asks_says_that_the_holder_is_stopped(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with held(state) as holder:
        stop(holder)
        commands = {name: begun(state, name, *arguments) for name, arguments in ASKS.items()}
        told = {name: said(command, "is stopped") for name, command in commands.items()}
        for name, words in told.items():
            assert f"process {holder.pid} (fledge serve) holds {state} and is stopped" in words, (name, words)
            assert f"`kill -9 {holder.pid}` ends it; nothing is lost" in words


def test_the_table_has_every_command_that_asks_a_holder() -> None:
    names = re.findall(r"^    ([a-z]+)\s", fledge("--help").stdout, re.MULTILINE)
    assert len(names) > len(ASKS)
    assert {name for name in names if "--gateway" in fledge(name, "--help").stdout} == {*ASKS}


def test_a_watch_says_that_the_holder_does_not_answer_any_more(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with held(state) as holder:
        words = said(begun(state, "ps", "--watch"), "too busy")
        assert f"process {holder.pid} (fledge serve) holds {state} and is too busy to answer" in words


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (None, "the process that holds /s does not answer; it may be starting or ending"),
        (Holder(7, "elsewhere", "fledge", 0.0), "on elsewhere and does not answer: end it there with `kill -9 7`"),
        (Holder(2**30, socket.gethostname(), "fledge", 0.0), "is too busy to answer: wait for it, or end it"),
    ],
)
def test_the_words_name_the_process_and_what_to_do(holder: Holder | None, words: str) -> None:
    assert words in silence_of(holder, Path("/s"))
