"""The `fledge` command as tests use it: in this process, or in one of its own.

In this process it costs a few milliseconds instead of half a second of imports; folder, environment and the three
streams are the command's own while it runs. A test takes a real process where that is its subject: signals, `kill -9`,
a terminal, two commands at once, logging.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fledge.cli.main import main
from fledge.cli.verbs import RunsWanted
from fledge.core.keys import conversation_name, project_key

PROGRAM = (sys.executable, "-m", "fledge.cli.main")
"""The command in a process of its own: what to begin an argument list with."""
ANY_RUNS = RunsWanted(filter="all", search="", agent="", session="", limit=20)
"""What `fledge ps` shows without options."""

Done = subprocess.CompletedProcess[str]


def fledge(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, given: str = "") -> Done:
    """Run the command in this process, as `subprocess.run` would: its exit code and everything it printed."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as stdin,
        tempfile.TemporaryFile("w+", encoding="utf-8") as stdout,
        tempfile.TemporaryFile("w+", encoding="utf-8") as stderr,
    ):
        stdin.write(given)
        stdin.seek(0)
        with _surroundings(cwd, env), _streams(stdin, stdout, stderr):
            try:
                code = main(list(arguments))
            except SystemExit as leaving:  # argparse: --help, --version, usage
                code = leaving.code if isinstance(leaving.code, int) else 1
        stdout.seek(0)
        stderr.seek(0)
        return Done([*PROGRAM, *arguments], code, stdout.read(), stderr.read())


def session_of(folder: Path) -> str:
    """The key of the conversation that commands in this folder talk in."""
    return project_key(os.path.realpath(folder))


def name_in(folder: Path) -> str:
    """The name of that conversation."""
    return conversation_name(session_of(folder))


def process(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Run the command in a process of its own."""
    return subprocess.run([*PROGRAM, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)


def begun(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """The command in a process of its own, under way."""
    pipe = subprocess.PIPE
    return subprocess.Popen([*PROGRAM, *arguments], cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True)


@contextmanager
def _surroundings(cwd: Path | None, env: Mapping[str, str] | None) -> Iterator[None]:
    """This folder and exactly this environment, until the block ends."""
    folder, variables = os.getcwd(), dict(os.environ)
    try:
        if cwd is not None:
            os.chdir(cwd)
        if env is not None:
            _set_environment(env)
        yield
    finally:
        os.chdir(folder)
        _set_environment(variables)


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


@contextmanager
def _streams(stdin: TextIO, stdout: TextIO, stderr: TextIO) -> Iterator[None]:
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept


def ageless(shown: str) -> str:
    """Rows of runs without their age, which goes on between two looks."""
    return re.sub(r" +\d+s ", " age ", shown)
