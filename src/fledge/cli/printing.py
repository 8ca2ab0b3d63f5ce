"""The one way to print: nothing that a model or a child said can act on the terminal."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from fledge.core.printable import printable


class CommandOutput(NamedTuple):
    """What a command has to say: to people, and to programs; and its exit code."""

    words: list[str] | Callable[[], list[str]]
    """Lines for people, or what makes them: a program needs none."""
    value: Any
    code: int = 0

    @property
    def lines(self) -> list[str]:
        """Lines for people."""
        return self.words if isinstance(self.words, list) else self.words()


CommandAnswer = int | list[str] | CommandOutput
"""What a command answers: an exit code, if it has printed everything itself; lines to print; or these with more."""


def say(text: str, out: TextIO | None = None) -> None:
    """Print, at once."""
    print(printable(text), file=sys.stdout if out is None else out, flush=True)


def note(text: str) -> None:
    """Say something about the command itself, beside what it prints."""
    say(f"fledge: {text}", sys.stderr)


def is_at_terminal() -> bool:
    """True if somebody sits there who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def says_yes(question: str) -> bool:
    """Ask whoever sits at the terminal."""
    print(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
