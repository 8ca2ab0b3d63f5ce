"""Swaps a path for a link to its twin outside before each thing that a process asks of the disk, and looks outside.

For every n a forked process works, and before its n-th call somebody moves a file or folder away and puts a link in its
place; so it happens at every point between two calls, not only where a thread is lucky. The twin is a copy, with a
secret in it: whoever follows the link finds what it looks for. Nothing outside may have changed, and nothing of it may
be told. Some races put a pipe there instead, which nobody writes to: whoever waits for it is ended by an alarm.
Afterwards everything is put back and removed, as it is after a restart. Run as
`python -m tests.workspaces.racing RACE FOLDER`; prints how many n there were. Of a worktree every eighth n is taken,
all of them if `FLEDGE_SOAK` is set.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from fledge.config.load import read
from fledge.config.profiles_md import profile_files
from fledge.core.attachments import File
from fledge.errors import BadInput, FledgeError
from fledge.workspaces.artifacts import find_artifacts
from fledge.workspaces.documents import read_documents
from fledge.workspaces.places import Places
from fledge.workspaces.worktrees import look_at, make_worktree, remove_worktree
from tests.workspaces.repository import make_repository

CALLS = frozenset(
    (
        *("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink"),
        *("os.chmod", "subprocess.Popen"),
    )
)
STATE, WORKSPACE = "state", "repo"
ATTACHED, TREE = "attachments/0123456789abcdef", "worktrees/0123456789abcdef"
FILES = (File("a.txt", b"given"), File("b.txt", b"given too"))
FAILED = 3
PATIENCE_S = 60
"""Whoever has not ended by then waits for a pipe."""
SECRETS = {".json5": '{announce: {style: "the secret"}}'}
"""What a twin says, by its suffix, so that whoever reads it finds it in order."""


class Race(Struct, frozen=True):
    """What is done, and what is swapped meanwhile."""

    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    swapped: str
    again: Callable[[Path], object] | None = None
    """What must succeed once everything is back in its place."""
    pipe: bool = False
    """A pipe is put there, not a link."""


def _places(folder: Path) -> Places:
    return Places(folder / STATE)


def _attach(folder: Path) -> None:
    _places(folder).make((ATTACHED,), FILES)


def _detach(folder: Path) -> None:
    _places(folder).remove((ATTACHED,))
    if (folder / STATE / ATTACHED).exists():
        raise SystemExit("it is still there")


def _kind_only(folder: Path) -> None:
    (folder / STATE / "attachments").mkdir()


def _hand_over(folder: Path) -> None:
    (folder / WORKSPACE / "artifacts" / "sub").mkdir(parents=True)
    (folder / WORKSPACE / "artifacts" / "one").write_text("own")
    (folder / WORKSPACE / "artifacts" / "sub" / "two").write_text("own")


def _find(folder: Path) -> object:
    return find_artifacts(folder / WORKSPACE, "artifacts", True)


def _describe(folder: Path) -> None:
    (folder / WORKSPACE / "agents").mkdir(parents=True)
    for name in ("AGENTS.md", "TOOLS.md", "HEARTBEAT.md", "agents/one.md", "agents/two.md"):
        (folder / WORKSPACE / name).write_text("own")
    (folder / WORKSPACE / "fledge.json5").write_text("{}")


def _read_documents(folder: Path) -> object:
    return read_documents(folder / WORKSPACE, ("AGENTS.md", "TOOLS.md", "HEARTBEAT.md"))


def _read_settings(folder: Path) -> object:
    found: list[object] = [list(profile_files(folder / WORKSPACE / "agents"))]
    try:
        found.append(read(folder / WORKSPACE / "fledge.json5", in_workspace=True))
    except BadInput as refused:
        found.append(refused)
    return found


def _branch_off(folder: Path) -> None:
    make_repository(folder / WORKSPACE)
    make_worktree(folder / STATE, TREE, folder / WORKSPACE)


def _look(folder: Path) -> object:
    return look_at(folder / STATE, TREE, True)


def _cut(folder: Path) -> object:
    return remove_worktree(folder / STATE, TREE)


def _cut_whole(folder: Path) -> None:
    if not remove_worktree(folder / STATE, TREE):
        raise SystemExit("it was taken to hold work")
    if left := os.listdir(folder / STATE / "worktrees"):
        raise SystemExit(f"it is still there: {left}")


RACES = {
    "attaching, above": Race(_kind_only, _attach, f"{STATE}/attachments", _detach),
    "attaching, in it": Race(_kind_only, _attach, f"{STATE}/{ATTACHED}", _detach),
    "detaching, above": Race(_attach, _detach, f"{STATE}/attachments", _detach),
    "detaching, in it": Race(_attach, _detach, f"{STATE}/{ATTACHED}", _detach),
    "artifacts, above": Race(_hand_over, _find, f"{WORKSPACE}/artifacts"),
    "artifacts, a folder": Race(_hand_over, _find, f"{WORKSPACE}/artifacts/sub"),
    "artifacts, a file": Race(_hand_over, _find, f"{WORKSPACE}/artifacts/one"),
    "worktree looked at, a folder": Race(_branch_off, _look, f"{STATE}/{TREE}/sub"),
    "worktree looked at, a file": Race(_branch_off, _look, f"{STATE}/{TREE}/readme.md"),
    "worktree removed, a folder": Race(_branch_off, _cut, f"{STATE}/{TREE}/sub", _cut_whole),
    "worktree removed, a file": Race(_branch_off, _cut, f"{STATE}/{TREE}/readme.md", _cut_whole),
    "worktree removed, above": Race(_branch_off, _cut, f"{STATE}/worktrees", _cut_whole),
    "artifacts, a pipe": Race(_hand_over, _find, f"{WORKSPACE}/artifacts/one", pipe=True),
    "documents, a file": Race(_describe, _read_documents, f"{WORKSPACE}/TOOLS.md"),
    "documents, a pipe": Race(_describe, _read_documents, f"{WORKSPACE}/TOOLS.md", pipe=True),
    "settings, the file": Race(_describe, _read_settings, f"{WORKSPACE}/fledge.json5"),
    "settings, a pipe": Race(_describe, _read_settings, f"{WORKSPACE}/fledge.json5", pipe=True),
    "agents, the folder": Race(_describe, _read_settings, f"{WORKSPACE}/agents"),
    "agents, a file": Race(_describe, _read_settings, f"{WORKSPACE}/agents/two.md"),
    "agents, a pipe": Race(_describe, _read_settings, f"{WORKSPACE}/agents/two.md", pipe=True),
}


# ---- the race --------------------------------------------------------------------------------------------------------


def swaps_before(nth: int, race: Race, folder: Path) -> tuple[bool, str]:
    """Act in a process of its own, in which the path is swapped before its n-th call; True if it made fewer. With what
    it told."""
    path, heard = folder / race.swapped, folder / "told"
    child = os.fork()
    if child == 0:
        begun, swapping = 0, False

        def swap(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal begun, swapping
            if swapping or event not in CALLS:
                return
            begun += 1
            if begun == nth:
                swapping = True
                with suppress(FileNotFoundError):  # it is gone by now, with all above it
                    if os.path.lexists(path):
                        os.rename(path, folder / "away")
                    if race.pipe:
                        os.mkfifo(path)
                    else:
                        os.symlink(folder / "outside" / "twin", path)

        signal.alarm(PATIENCE_S)
        sys.addaudithook(swap)
        try:
            told = repr(race.act(folder))
        except (OSError, FledgeError, SystemExit) as refused:
            told = f"refused: {refused}"
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(FAILED)
        is_over = begun < nth
        swapping = True
        heard.write_text(told)
        os._exit(0 if is_over else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1):
        raise SystemExit(f"{nth}: exit code {code}")
    return code == 0, heard.read_text()


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything beneath a folder: mode, time of change, content."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.lstat()
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (about.st_mode, about.st_mtime_ns, content)
    return found


def make_twin(race: Race, folder: Path) -> None:
    """What the link leads to: a copy of what will be swapped, or of what will be made, with something more in it."""
    outside, path = folder / "outside", folder / race.swapped
    outside.mkdir()
    if path.is_file():
        (outside / "twin").write_text(SECRETS.get(path.suffix, "the secret"))
        return
    if path.is_dir():
        shutil.copytree(path, outside / "twin", symlinks=True)
    for name in ("", Path(ATTACHED).name, Path(TREE).name):
        (outside / "twin" / name).mkdir(parents=True, exist_ok=True)
        (outside / "twin" / name / "secret").write_text("the secret")


def put_back(race: Race, folder: Path) -> None:
    """Nobody races any more."""
    path = folder / race.swapped
    if path.is_symlink() or path.is_fifo():
        path.unlink()
    if (folder / "away").exists() and path.parent.exists():
        if path.exists():
            shutil.rmtree(path)
        (folder / "away").rename(path)


def main(name: str, folder: Path) -> int:
    """How many places there were to be swapped at."""
    race = RACES[name]
    step = 1 if "worktree" not in name or "FLEDGE_SOAK" in os.environ else 8
    nth, is_over = 1 - step, False
    while not is_over:
        nth += step
        (folder / STATE).mkdir(parents=True)
        race.prepare(folder)
        make_twin(race, folder)
        before = snapshot(folder / "outside")
        is_over, told = swaps_before(nth, race, folder)
        if snapshot(folder / "outside") != before:
            raise SystemExit(f"{nth}: something outside was touched; it told {told}")
        if "secret" in told:
            raise SystemExit(f"{nth}: something from outside was told: {told}")
        put_back(race, folder)
        if race.again is not None:
            try:
                race.again(folder)
            except SystemExit as wrong:
                raise SystemExit(f"{nth}: {wrong}; it told {told}") from None
        shutil.rmtree(folder)
    return nth


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2]) / "racing"))
