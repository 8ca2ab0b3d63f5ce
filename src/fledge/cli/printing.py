"""The one way to print: no text of a model or a child can act on the terminal."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from fledge.core.printable import printable


class CommandOutput(NamedTuple):
    """The output of a command: for people, for programs, and its exit code."""

    words: list[str] | Callable[[], list[str]]
    """Lines for people, or a function that makes them, which `--json` does not call."""
    value: Any
    code: int = 0

    @property
    def lines(self) -> list[str]:
        """Lines for people."""
        return self.words if isinstance(self.words, list) else self.words()


CommandAnswer = int | list[str] | CommandOutput
"""The return value of a command: an exit code, if it has printed everything itself; lines to print; or lines with a
value and an exit code."""


def say(text: str, out: TextIO | None = None) -> None:
    """Print a text, made printable, and flush it."""
    print(printable(text), file=sys.stdout if out is None else out, flush=True)


def note(text: str) -> None:
    """Print a note about the command itself on standard error."""
    say(f"fledge: {text}", sys.stderr)


def is_at_terminal() -> bool:
    """True if a person at the terminal can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def says_yes(question: str) -> bool:
    """Ask the person at the terminal; True for yes."""
    print(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
