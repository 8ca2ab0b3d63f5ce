"""Runs git in a repository that others can write to: without hooks, filters, network, prompts or settings of its own.

A repository's configuration can name programs to run. Only plumbing commands are used here, which run none of them, and
the few programs that could still be named are overridden on the command line, which wins over every file. Nothing here
checks files out or reads those of a working tree: that is where filters run.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

from fledge.errors import Refused
from fledge.tools.shell import DEFAULT_PATH

TIMEOUT_S: Final = 20.0
MAX_BYTES: Final = 256 * 1024 * 1024
"""The longest output of one command; a longer one is refused."""

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
    "PATH": DEFAULT_PATH,
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
        done = subprocess.run(
            ["git", *settings, "-C", str(folder), *arguments],
            input=given,
            capture_output=True,
            timeout=TIMEOUT_S,
            env=_ENVIRONMENT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refused("error", f"git {arguments[0]} took longer than {TIMEOUT_S:.0f} s in {folder}") from None
    except OSError as error:
        raise Refused("error", f"git could not be run: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Refused("error", f"git {arguments[0]}: {said[-1][:300] if said else f'exit code {done.returncode}'}")
    if len(done.stdout) > MAX_BYTES:
        raise Refused("error", f"git {arguments[0]} says more than {MAX_BYTES} bytes")
    return done.stdout


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
