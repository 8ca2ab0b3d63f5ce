"""Three children in git worktrees of their own, deleted once they are told of: one leaves nothing, one a file that is
not committed, one a commit that nobody merged. Wherever a process dies, also in the middle of a removal: what holds
work is kept whole and named in the answer, what holds none is gone with its branch and the repository's record.

Files and git are real; only time is not.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fledge.core.transcript import Told, from_body
from fledge.models.scripted import Answer, use
from fledge.store.base import Tx
from fledge.tools.base import Tool, ToolContext, tool
from tests.crash.every_commit import CRASHED
from tests.sim.people import MAIN
from tests.workspaces.crashing import CHANGES
from tests.workspaces.repository import make_small_repository, run_git

LABELS = ("clean", "dirty", "ahead")
MORTAL = "mortal"
"""While this file is there, the first removal ends its process somewhere in its middle."""


class AtOnce(ThreadPoolExecutor):
    """Does in the caller's thread what is given to it: changes to the disk come in the same order every time."""

    def submit(self, act: Callable[..., Any], /, *args: Any, **more: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(act(*args, **more))
        except BaseException as error:
            done.set_exception(error)
        return done


def set_up(folder: Path) -> None:
    """The repository, made once, also if a process died while it made it."""
    asyncio.get_running_loop().set_default_executor(AtOnce())
    (folder / "state").mkdir(exist_ok=True)
    if not (folder / "repo").exists():
        shutil.rmtree(folder / "making", ignore_errors=True)  # of a process that was killed in between
        make_small_repository(folder / "making")
        (folder / "making").rename(folder / "repo")


def spawned(label: str) -> Answer:
    """A child in a worktree."""
    return use("sessions_spawn", task=f"do {label}", label=label, workspace="worktree", cleanup="delete")


def working_tools() -> list[Tool]:
    """What children do to files: each may be done again."""

    async def scribble(context: ToolContext) -> str:
        (context.workspace / "new.txt").write_text("precious")
        return "written"

    async def record(context: ToolContext) -> str:
        (context.workspace / "kept.txt").write_text("precious")
        run_git(context.workspace, "add", "kept.txt")
        with_changes = run_git(context.workspace, "status", "--porcelain")
        if with_changes:
            run_git(context.workspace, "commit", "-q", "-m", "work")
        return "recorded"

    return [tool(repeatable=True)(scribble), tool(repeatable=True)(record)]


def die_halfway(folder: Path, places: int) -> None:
    """From now on this process ends before one of its changes to the disk; which one differs from point to point."""
    (folder / MORTAL).unlink()
    left = 1 + places % 16

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        left -= event in CHANGES
        if left == 0:
            os._exit(CRASHED)

    sys.addaudithook(count)


def faults(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with files, branches and answers."""
    wrong: list[str] = []
    labels = {key: tx.runs.spec(key).label for key in tx.runs.children(MAIN)}
    leaves = {label: tx.runs.load(key).terms.leaves[0] for key, label in labels.items()}
    told = [from_body(entry.body) for entry in tx.transcripts.entries(MAIN, limit=1000)]
    answers = "\n".join(body.text for body in told if isinstance(body, Told))
    kept = {"dirty": "new.txt", "ahead": "kept.txt"}
    for label, leaf in leaves.items():
        place = folder / "state" / leaf
        if label in kept:
            if not (place / kept[label]).is_file() or (place / kept[label]).read_text() != "precious":
                wrong.append(f"the work of {label} is lost")
            if str(place) not in answers:
                wrong.append(f"nobody was told where the work of {label} is")
        elif place.exists():
            wrong.append(f"{label} is still there")
    repo = folder / "repo"
    branches = run_git(repo, "branch", "--format=%(refname:short)").split()
    if len(branches) != 1 + len(kept):
        wrong.append(f"branches: {branches}")
    records = run_git(repo, "worktree", "list").splitlines()[1:]
    if len(records) != len(kept):
        wrong.append(f"worktrees that the repository knows of: {records}")
    names = sorted(path.name for path in (folder / "state" / "worktrees").iterdir() if path.is_dir())
    if names != sorted(leaves[label].partition("/")[2] for label in kept):
        wrong.append(f"folders: {names}")
    if run_git(folder / "state" / leaves["ahead"], "rev-list", "--count", "main..HEAD") != "1":
        wrong.append("the commit of ahead is lost")
    return wrong
