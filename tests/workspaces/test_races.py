"""Somebody swaps files and folders for links, and back, while attachments, artifacts and worktrees are made, looked at
and removed: nothing outside is touched, and nothing of it is told."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fledge.core.attachments import File
from fledge.workspaces.places import Places
from fledge.workspaces.worktrees import look_at, make_worktree, remove_worktree
from tests.statements import proves
from tests.workspaces.racing import RACES, snapshot
from tests.workspaces.repository import make_repository

ATTACHED, TREE = "attachments/0123456789abcdef", "worktrees/0123456789abcdef"


@proves("8.files.2")
@pytest.mark.parametrize("race", RACES)
def test_a_path_that_is_swapped_at_any_point_leads_nowhere(race: str, tmp_path: Path) -> None:
    """A path is swapped before each thing a process asks of the disk; see `racing`."""
    command = [sys.executable, "-m", "tests.workspaces.racing", race, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stderr, done.returncode) == ("", 0)
    assert int(done.stdout) > (3 if race.startswith("documents") else 5)


@contextmanager
def swapping(path: Path, target: Path) -> Iterator[Callable[[], int]]:
    """While this is open, somebody keeps swapping the path for a link to the target, and back; answers how often."""
    over, swaps, aside = threading.Event(), 0, path.parent.parent / "aside"

    def swap() -> None:
        nonlocal swaps
        while not over.is_set():
            with suppress(OSError):
                os.rename(path, aside)
                os.symlink(target, path)
                swaps += 1
                os.unlink(path)
            with suppress(OSError):
                os.rename(aside, path)

    racer = threading.Thread(target=swap)
    racer.start()
    try:
        yield lambda: swaps
    finally:
        over.set()
        racer.join()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What must stay as it is, and is called as what is looked for."""
    for name in ("", "sub", "0123456789abcdef", "0123456789abcdef/sub"):
        (tmp_path / "outside" / name).mkdir(exist_ok=True, parents=True)
        (tmp_path / "outside" / name / "secret").write_text("secret")
        (tmp_path / "outside" / name / "code.py").write_text("secret")
    return tmp_path / "outside"


@proves("8.files.2")
def test_attachments_are_written_and_removed_in_their_own_folder_whoever_swaps_it(
    tmp_path: Path, outside: Path
) -> None:
    state, before = tmp_path / "state", snapshot(outside)
    (state / "attachments").mkdir(parents=True)
    places = Places(state)
    files = (File("a.txt", b"given"), File("b.txt", b"given too"))
    with swapping(state / "attachments", outside) as swaps:
        while swaps() <= 300:
            with suppress(OSError):
                places.make((ATTACHED,), files)
            with suppress(OSError):
                places.remove((ATTACHED,))
    assert snapshot(outside) == before
    places.remove((ATTACHED,))
    assert os.listdir(state / "attachments") == []


@proves("8.files.3")
def test_a_worktree_is_looked_at_and_removed_without_leading_out_whoever_swaps_folders_in_it(
    tmp_path: Path, outside: Path
) -> None:
    state, repo, before = tmp_path / "state", tmp_path / "repo", snapshot(outside)
    state.mkdir()
    make_repository(repo)
    place = make_worktree(state, TREE, repo)
    told: set[str] = set()
    with swapping(place / "sub", outside) as swaps:
        looks = 0
        while looks < 6 or swaps() <= 100:
            seen = look_at(state, TREE, True)
            assert seen is not None
            told.update(seen.changed)
            looks += 1
        gone = remove_worktree(state, TREE)
    assert not [name for name in told if "secret" in name]
    assert snapshot(outside) == before
    assert gone or remove_worktree(state, TREE)
    assert snapshot(outside) == before
