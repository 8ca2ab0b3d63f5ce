"""Runs git in a repository that others can write to: without hooks, filters, network, prompts or settings of its own.

A repository's configuration can name programs to run. Only plumbing commands are used here, which run none of them, and
the few programs that could still be named are overridden on the command line, which wins over every file. Nothing here
checks files out or reads those of a working tree: that is where filters run.
"""

import os
import selectors
import subprocess
import tempfile
import time
from pathlib import Path
from subprocess import PIPE
from typing import IO, Final

from fledge.errors import Refused
from fledge.own_code import SYSTEM_PATH, program

TIMEOUT_S: Final = 20.0
MAX_OUTPUT: Final = 256 * 1024 * 1024
"""The longest output of one command, in bytes; a command that writes more is ended and refused."""
CHUNK_BYTES: Final = 64 * 1024

_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.alternateRefsCommand=false",
    "core.sshCommand=false",
    "core.askPass=",
    "core.pager=cat",
    "core.excludesFile=/dev/null",
    "core.attributesFile=/dev/null",
    "credential.helper=",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "advice.detachedHead=false",
)
_ENVIRONMENT: Final = {
    "PATH": SYSTEM_PATH,
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}


def git(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    """The output of git in this folder. Refused, with git's own words, if it fails, takes too long, is not there or
    writes too much."""
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    try:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(given)
            stdin.seek(0)
            status, said, errors = _run(
                [program("git", SYSTEM_PATH) or "git", *settings, "-C", str(folder), *arguments], stdin
            )
    except subprocess.TimeoutExpired:
        raise Refused("error", f"git {arguments[0]} took longer than {TIMEOUT_S:.0f} s in {folder}") from None
    except OSError as error:
        raise Refused("error", f"git could not be run: {error.strerror}") from None
    if len(said) > MAX_OUTPUT or len(errors) > MAX_OUTPUT:
        raise Refused("error", f"git {arguments[0]} says more than {MAX_OUTPUT} bytes")
    if status:
        words = errors.decode("utf-8", "replace").strip().splitlines()
        raise Refused("error", f"git {arguments[0]}: {words[-1][:300] if words else f'exit code {status}'}")
    return said


def _run(command: list[str], stdin: IO[bytes]) -> tuple[int, bytes, bytes]:
    """The exit code, output and errors of a command. One that writes too much is killed, and its output or errors are
    longer than MAX_OUTPUT. TimeoutExpired: it took too long, and was killed."""
    ends_at = time.monotonic() + TIMEOUT_S
    out, err = bytearray(), bytearray()
    with (
        subprocess.Popen(command, stdin=stdin, stdout=PIPE, stderr=PIPE, env=_ENVIRONMENT) as process,
        selectors.DefaultSelector() as ready,
    ):
        try:
            for pipe, read in ((process.stdout, out), (process.stderr, err)):
                assert pipe is not None
                ready.register(pipe, selectors.EVENT_READ, read)
            while ready.get_map() and max(len(out), len(err)) <= MAX_OUTPUT:
                if time.monotonic() > ends_at:
                    raise subprocess.TimeoutExpired(command, TIMEOUT_S)
                for key, _ in ready.select(ends_at - time.monotonic()):
                    chunk = os.read(key.fd, CHUNK_BYTES)
                    key.data.extend(chunk)
                    if not chunk:
                        ready.unregister(key.fileobj)
            if ready.get_map():
                process.kill()
            process.wait(max(0.0, ends_at - time.monotonic()))
        except BaseException:
            process.kill()
            raise
    return process.returncode, bytes(out), bytes(err)


def line(folder: Path, *arguments: str) -> str:
    """The one line of git's output."""
    return git(folder, *arguments).decode("utf-8", "surrogateescape").removesuffix("\n")


def names(folder: Path, *arguments: str, given: bytes = b"") -> list[str]:
    """The names in git's output, with NUL between them."""
    said = git(folder, *arguments, given=given).decode("utf-8", "surrogateescape")
    return [name for name in said.split("\0") if name]


def answer(folder: Path, *arguments: str) -> str | None:
    """The one line of git's output; None if it fails."""
    try:
        return line(folder, *arguments)
    except Refused:
        return None
