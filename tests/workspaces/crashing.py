"""Ends a process before each thing it does to the disk while it makes or removes a worktree, and looks what is left.

For every n a forked process works and exits, at once and without cleanup, before its n-th change; then the removal is
asked for again, as after a restart, and nothing may be left: no folder, no record, no branch. Prints how many n there
were. Run as `python -m tests.workspaces.crashing make|remove FOLDER`.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from fledge.workspaces.worktrees import make_worktree, remove_worktree
from tests.workspaces.repository import make_small_repository, run_git

LEAF = "worktrees/0123456789abcdef"
CRASHED = 86
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "subprocess.Popen"}


def ends_before(nth: int, act: Callable[[], object]) -> bool:
    """Do it in a process of its own that ends before its n-th change; True if it did not come that far."""
    child = os.fork()
    if child == 0:
        begun = 0

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal begun
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
            begun += bool(event in CHANGES or writes)
            if begun == nth:
                os._exit(CRASHED)

        sys.addaudithook(count)
        act()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, CRASHED):
        raise SystemExit(f"{nth}: exit code {code}")
    return code == 0


def main(act: str, folder: Path) -> int:
    """How many places there were to crash at."""
    nth = 0
    is_over = False
    while not is_over:
        nth += 1
        root, repo = folder / "state", folder / "repo"
        root.mkdir(parents=True)
        make_small_repository(repo)
        if act == "make":
            is_over = ends_before(nth, lambda: make_worktree(root, LEAF, repo))  # noqa: B023 (called here)
        else:
            make_worktree(root, LEAF, repo)
            is_over = ends_before(nth, lambda: remove_worktree(root, LEAF))  # noqa: B023 (called here)
        if not remove_worktree(root, LEAF):
            raise SystemExit(f"{nth}: it was taken to hold work")
        there = [path.name for path in (root / "worktrees").iterdir()] if (root / "worktrees").exists() else []
        records = run_git(repo, "worktree", "list").splitlines()[1:]
        branches = run_git(repo, "branch", "--format=%(refname:short)").split()
        if there or records or branches != ["main"]:
            raise SystemExit(f"{nth}: left behind: {there} {records} {branches}")
        shutil.rmtree(folder)
    return nth


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2]) / "crashing"))
