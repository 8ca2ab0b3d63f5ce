"""What stands at guarded paths that were missing: moved whatever it is, to any disk, by any user."""

import os
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fledge.tools.set_aside import SetAside, kept_in, settle_dead, watch

pytestmark = pytest.mark.root


@pytest.fixture(params=["same disk", "another disk"])
def aside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The folder for what is set aside."""
    if request.param == "same disk":
        yield tmp_path / "state" / "set-aside"
        return
    with TemporaryDirectory(dir="/dev/shm") as folder:
        assert os.stat(folder).st_dev != os.stat(tmp_path).st_dev
        yield Path(folder) / "set-aside"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "ws" / "deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("theirs")
    return tmp_path / "ws"


def tree(path: Path) -> None:
    (path / "closed").mkdir(parents=True)
    (path / "closed" / "file").write_text("evil")
    (path / "link").symlink_to("../../outside")
    os.mkfifo(path / "pipe")
    (path / "closed").chmod(0)


def hard_link(path: Path) -> None:
    os.link(path.parents[2] / "outside" / "file", path)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("evil"),
        lambda path: path.mkdir(mode=0),
        lambda path: path.symlink_to("../../outside"),
        lambda path: path.symlink_to("nowhere"),
        os.mkfifo,
        hard_link,
        tree,
    ],
)
def test_whatever_was_made_is_moved_and_nothing_else_is_touched(
    aside: Path, workspace: Path, make: Callable[[Path], object]
) -> None:
    path = workspace / "deep" / ".envrc"
    watched = watch(aside, workspace, [str(path), str(workspace / ".git")], [])
    make(path)
    kept = f"{watched.file.with_suffix('')}/deep/.envrc"
    assert watched.settle() == [SetAside(str(path), kept)]
    assert list(workspace.rglob("*")) == [workspace / "deep"]
    assert (workspace.parent / "outside" / "file").read_text() == "theirs"
    assert kept_in(aside) == [str(watched.file.with_suffix(""))]
    assert settle_dead(aside) == []
    if (closed := Path(kept) / "closed").is_dir():
        closed.chmod(0o700)  # else pytest cannot remove it


def test_a_link_or_a_file_in_the_place_of_a_folder_above_leads_nowhere(aside: Path, workspace: Path) -> None:
    paths = [str(workspace / "made" / "git"), str(workspace / "file" / "git")]
    (workspace.parent / "outside" / "git").write_text("theirs")
    watched = watch(aside, workspace, paths, [])
    (workspace / "made").symlink_to("../outside")
    (workspace / "file").write_text("mine")
    assert [one.path for one in watched.settle()] == [f"{workspace}/made"]
    assert (workspace.parent / "outside" / "git").read_text() == "theirs"
    assert (workspace / "file").read_text() == "mine"


def test_what_cannot_be_moved_is_told_and_tried_again(aside: Path, workspace: Path) -> None:
    watched = watch(aside, workspace, [str(workspace / ".envrc")], [])
    (workspace / ".envrc").write_text("evil")
    into = watched.file.with_suffix("")
    into.write_text("in the way")
    (told,) = watched.settle()
    assert told.words == f"{workspace}/.envrc appeared while a sandboxed command ran, and could not be set aside: " + (
        "File exists"
    )
    into.unlink()
    assert settle_dead(aside) == [SetAside(f"{workspace}/.envrc", f"{into}/.envrc")]
    assert settle_dead(aside) == []


def test_a_second_one_takes_no_place_of_the_first(aside: Path, workspace: Path) -> None:
    watched = watch(aside, workspace, [str(workspace / ".envrc")], [])
    into = watched.file.with_suffix("")
    into.mkdir()
    (into / ".envrc").write_text("first")
    (workspace / ".envrc").write_text("second")
    (told,) = watched.settle()
    assert (Path(told.kept).read_text(), (into / ".envrc").read_text()) == ("second", "first")


def test_a_record_that_was_not_written_whole_is_of_a_command_that_never_began(aside: Path, workspace: Path) -> None:
    assert settle_dead(aside) == []
    aside.mkdir(parents=True)
    (aside / "0.json").write_text('{"workspace":')
    (workspace / ".envrc").write_text("the person's")
    assert settle_dead(aside) == []
    assert list(aside.iterdir()) == []
    assert (workspace / ".envrc").exists()


def take_rights(user: int, ws: Path, aside: Path) -> None:
    """As this user: a command takes away its owner's rights to what it made and to all above."""
    os.setuid(user)
    for path in (ws / "deep", aside.parent):
        path.mkdir(parents=True)
    watched = watch(aside, ws, [str(ws / "deep" / ".git")], [])
    (ws / "deep" / ".git" / "hooks").mkdir(parents=True)
    for path in (ws / "deep" / ".git" / "hooks", ws / "deep" / ".git", ws / "deep", ws):
        path.chmod(0)
    (told,) = watched.settle()
    assert not told.error, told.error
    assert ws.stat().st_mode & 0o777 == 0
    ws.chmod(0o700)
    assert (ws / "deep").stat().st_mode & 0o777 == 0
    (ws / "deep").chmod(0o700)
    assert list((ws / "deep").iterdir()) == []
    assert Path(told.kept).stat().st_mode & 0o700 == 0o700


@pytest.mark.parametrize("disk", ["/var/tmp", "/dev/shm"])
@pytest.mark.parametrize("user", [os.geteuid(), os.geteuid() or 65534])
def test_rights_that_a_command_took_away_keep_nothing_in_its_place(user: int, disk: str) -> None:
    with TemporaryDirectory(dir="/var/tmp") as here, TemporaryDirectory(dir=disk) as there:
        for folder in (here, there):
            os.chown(folder, user, -1)
        paths = (Path(here) / "ws", Path(there) / "state" / "set-aside")
        # A fork: another user may not read this interpreter.
        process = get_context("fork").Process(target=take_rights, args=(user, *paths))
        process.start()
        process.join()
        assert process.exitcode == 0
