"""A page of documentation, played as its reader would: its files are written, its commands are run, in order.

A block with a title (```python title="NAME") is a file. A block `console` has commands behind `$ ` and below each what
it prints. What a program prints must be exactly what the page shows. What `fledge` and `pytest` print has numbers, ids
and widths of its own: those may differ, and an id that the page shows stands for the one that was printed, in later
commands too.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.docs.clone import NOWHERE, ROOT

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"\b[0-9a-f]{8}\b")
_LOOSE = re.compile(r"[0-9a-f]{8}\b|\d+(?:\.\d+)?k?|[ ─]{2,}")


class File(NamedTuple):
    """A file that the reader writes."""

    name: str
    text: str


class Command(NamedTuple):
    """A command that the reader gives, and what the page says it prints."""

    line: str
    prints: str


def steps(page: Path) -> list[File | Command]:
    """What the reader does, in order. Blocks of other languages are not for doing."""
    found: list[File | Command] = []
    for language, name, text in _BLOCK.findall(page.read_text("utf-8")):
        if name:
            found.append(File(name, text))
        elif language == "console":
            commands = re.split(r"^\$ ", text, flags=re.MULTILINE)
            assert commands[0] == "", f"{page.name}: a console block begins with a command"
            found += [Command(line, prints) for line, _, prints in (one.partition("\n") for one in commands[1:])]
    return found


def programs(page: Path) -> list[File]:
    """The Python files of a page."""
    return [step for step in steps(page) if isinstance(step, File) and step.name.endswith(".py")]


def write_programs(folder: Path) -> None:
    """Write every program of the tutorial and the cookbook into this folder, for checkers. Their names differ."""
    for page in (ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "cookbook").glob("*.md"))):
        for name, text in programs(page):
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)


class Reader:
    """Somebody without a key, in an empty folder, who does what a page says."""

    def __init__(self, folder: Path) -> None:
        self._folder, home = folder / "work", folder / "home"
        self._folder.mkdir()
        home.mkdir()
        self._ids: dict[str, str] = {}
        """The ids that the page shows, each with the one that was printed in its place."""
        self._env = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(home),
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENAI_BASE_URL": NOWHERE,
            "COLUMNS": "100",
        }

    def plays(self, page: Path) -> None:
        """Do everything in order, and compare what is printed."""
        for step in steps(page):
            if isinstance(step, File):
                (self._folder / step.name).parent.mkdir(parents=True, exist_ok=True)
                (self._folder / step.name).write_text(step.text, "utf-8")
            else:
                self._gives(step)

    def _gives(self, command: Command) -> None:
        line = _ID.sub(lambda shown: self._ids.get(shown[0], shown[0]), command.line)
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        # A shell says of a command that was killed so, some with more words.
        printed = done.stdout + ("Killed\n" if done.returncode in (-9, 137) else done.stderr)
        if not line.startswith(("fledge ", "pytest ")):
            assert printed == command.prints, f"$ {line}\n{printed}"
            return
        assert _loosely(printed) == _loosely(command.prints), f"$ {line}\n{printed}"
        self._ids |= zip(_ID.findall(command.prints), _ID.findall(printed), strict=True)


def _loosely(text: str) -> str:
    return "\n".join(
        _LOOSE.sub(lambda part: " " if part[0][0] in " ─" else "0", line).rstrip() for line in text.splitlines()
    )
