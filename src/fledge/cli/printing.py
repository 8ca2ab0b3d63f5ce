"""The one way to print: nothing that a model or a child said can act on the terminal."""

import sys
from typing import TextIO

from fledge.core.printable import printable


def say(text: str, out: TextIO | None = None) -> None:
    """Print, at once."""
    print(printable(text), file=sys.stdout if out is None else out, flush=True)


def note(text: str) -> None:
    """Say something about the command itself, beside what it prints."""
    say(f"fledge: {text}", sys.stderr)


def says_yes(question: str) -> bool:
    """Ask whoever sits at the terminal."""
    print(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
