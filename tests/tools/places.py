"""A workspace with an outside that must stay as it is, and calls into it as a model makes them."""

import asyncio
import json
import os
from pathlib import Path

from fledge.core.protected import Protected
from fledge.tools.base import Tool, ToolContext, ToolResult

SECRET = "the secret outside"


def place(tmp_path: Path, **env: str) -> ToolContext:
    """A workspace `ws` beside a folder `outside` with a secret, and a state folder inside the workspace."""
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    (workspace / ".fledge").mkdir(parents=True)
    (workspace / ".fledge" / "fledge.db").write_text(SECRET)
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    return ToolContext(
        session="agent:main:main",
        entry=7,
        index=2,
        workspace=workspace,
        protected=Protected(hidden=(str(workspace / ".fledge"),)),
        env=env,
    )


def call(tool: Tool, context: ToolContext, **arguments: object) -> ToolResult:
    return asyncio.run(tool.call(json.dumps(arguments), context))


def text(tool: Tool, context: ToolContext, **arguments: object) -> str:
    """The result of a call that must go well."""
    result = call(tool, context, **arguments)
    assert not result.is_error, result.text
    return result.text


def error(tool: Tool, context: ToolContext, **arguments: object) -> str:
    """The words of a call that must fail."""
    result = call(tool, context, **arguments)
    assert result.is_error, result.text
    return result.text


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in a folder: mode, time of change, content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def open_descriptors(beneath: Path | None = None) -> set[str]:
    """What this process has open beneath a folder, and its pipes, sockets and the like, each told from every other.

    Files elsewhere are not ours to judge: the interpreter and other tests open and close theirs when they like.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            what = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the one this list was read by
        is_there = beneath is not None and Path(what).is_relative_to(beneath.resolve())
        if is_there or what.startswith(("pipe:", "socket:", "anon_inode:")):
            found.add(f"{number} {what}")
    return found


def left_open(before: set[str], beneath: Path | None = None) -> set[str]:
    """What was opened since then and is open still. What was closed meanwhile, whoever it belonged to, is fine."""
    return open_descriptors(beneath) - before
