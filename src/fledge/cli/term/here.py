"""The person's own machine, for the input: files to complete after `@`, and commands that `!` runs here.

A command runs in the person's terminal with the person's rights, never where the agents run. Its output is shown as it
comes and joins the next message.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

MOST_FILES: Final = 20_000
WALK_S: Final = 0.5
"""How long a folder is walked; the files found until then can be completed."""
MOST_MATCHES: Final = 8
KEPT_OUTPUT: Final = 30_000
"""Characters of a command's output that join the message: its beginning and its end."""
LEFT_OUT: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})


def files_below(folder: Path, most: int = MOST_FILES, now: Callable[[], float] = time.monotonic) -> list[str]:
    """Files and folders below this one, relative to it; hidden ones and those of `LEFT_OUT` are left out."""
    until = now() + WALK_S
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in LEFT_OUT)
        base = Path(place).relative_to(folder)
        found += [f"{(base / name).as_posix()}/" for name in folders]
        found += [(base / name).as_posix() for name in sorted(files) if not name.startswith(".")]
        if len(found) >= most or now() > until:
            break
    return found[:most]


def best_matches(typed: str, paths: Iterable[str], most: int = MOST_MATCHES) -> list[str]:
    """The paths that contain the typed text, best first: those that begin with it, those whose name does, then the
    rest. Of equals the least deep comes first, in the rest the shortest."""
    word = typed.casefold()

    def rank(path: str) -> tuple[int, int, str]:
        folded = path.casefold()
        if folded.startswith(word):
            return 0, path.count("/"), path
        if folded.rstrip("/").rpartition("/")[2].startswith(word):
            return 1, path.count("/"), path
        return 2, len(path), path

    return sorted((path for path in paths if word in path.casefold()), key=rank)[:most]


def file_word(before_cursor: str) -> str | None:
    """The word at the cursor without its `@`; None if it does not begin with one."""
    word = before_cursor.rpartition(" ")[2].rpartition("\n")[2]
    return word[1:] if word.startswith("@") else None


class CommandRan(Struct, frozen=True):
    """A command that was run here."""

    command: str
    code: int
    output: str

    @property
    def failure(self) -> str:
        """How it failed; empty if it did not."""
        return "" if self.code == 0 else f"exit code {self.code}" if self.code > 0 else f"ended by signal {-self.code}"

    @property
    def note(self) -> str:
        """The line about it above the input."""
        lines = self.output.count("\n") + 1 if self.output else 0
        facts = ", ".join(filter(None, [f"{lines} line{'s' * (lines != 1)}", self.failure]))
        return f"+ output of `{self.command}` ({facts}) joins the next message"

    @property
    def text(self) -> str:
        """The text that joins the message."""
        fence = "```"
        while fence in self.output:
            fence += "`"
        return f"I ran `{self.command}` (exit code {self.code}):\n{fence}\n{self.output}\n{fence}\n"


async def run_here(command: str, show: Callable[[bytes], None]) -> CommandRan:
    """Run a command by the person's shell. It reads from this terminal; its output is shown as it comes, and kept."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    process = await asyncio.create_subprocess_exec(
        shell, "-c", command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    kept = bytearray()
    while chunk := await process.stdout.read(65536):
        show(chunk)
        kept += chunk
        if len(kept) > 20 * KEPT_OUTPUT:
            del kept[2 * KEPT_OUTPUT : -2 * KEPT_OUTPUT]
    if kept and not kept.endswith(b"\n"):
        show(b"\n")
    code = await process.wait()
    return CommandRan(command, code, shortened(kept.decode("utf-8", "replace").rstrip()))


def shortened(text: str, most: int = KEPT_OUTPUT) -> str:
    """The text, or its beginning and end with the number of characters left out between."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def with_output(ran: Iterable[CommandRan], words: str) -> str:
    """A message with the output of commands before it."""
    return "\n".join([*(one.text for one in ran), words])
