"""Nothing outside a folder is read, written or created through it: by path, by link, by race, by special file."""

import os
import resource
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fledge.confine import GUARDED, HIDDEN, MAX_DEPTH, MAX_LINKS, MAX_PATH, Confined
from fledge.core.protected import Protected
from fledge.errors import BadInput
from tests.statements import proves
from tests.tools.places import SECRET, open_descriptors, place, snapshot

pytestmark = pytest.mark.root

CODE = (
    f"path: {GUARDED}, and no person was asked (fledge itself runs from there, or it is a folder of PATH, so a person"
    " approves each change; to work on a folder of fledge's freely, install fledge outside the workspace (pipx install"
    " fledge))"
)
OUTSIDE = "path: must stay inside the workspace"
MISSING = "path: there is no such file or folder in the workspace"
NO_FILE = "path: must be a file, not a folder"
SPECIAL = "path: must be a regular file, not a link, device, pipe or socket"
STATE = f"path: {HIDDEN}"
TEXT = f"path: must be 1–{MAX_PATH} characters without NUL"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The parent of a workspace with files and all kinds of links, and of an outside."""
    place(tmp_path)
    ws = tmp_path / "ws"
    (ws / "sub" / "deep").mkdir(parents=True)
    (ws / "a.txt").write_text("a")
    (ws / "sub" / "b.txt").write_text("b")
    for name, target in {
        "inner": "sub/b.txt",
        "innerdir": "sub/deep",
        "up": "sub/../a.txt",
        "absolute": f"{ws}/a.txt",
        "sub/deep/back": "../../a.txt",
        "sub/deep/absolute": f"{ws}/sub/b.txt",
        "chain": "inner",
        "out": "../outside/secret.txt",
        "outabs": f"{tmp_path}/outside/secret.txt",
        "outdir": "../outside",
        "slyout": "sub/../../outside",
        "loop": "loop",
        "dangling": "sub/new.txt",
        "danglingdir": "sub/made",
        "proc": "/proc/self/environ",
        "state": ".fledge",
    }.items():
        (ws / name).symlink_to(target)
    return tmp_path


def hiding(*paths: Path) -> Protected:
    return Protected(hidden=tuple(map(str, paths)))


def read(home: Path, path: str) -> str:
    with Confined(home / "ws", hiding(home / "ws" / ".fledge")) as workspace:
        return workspace.read(path, 1000)[0].decode()


def replace(home: Path, path: str) -> bool:
    with Confined(home / "ws", hiding(home / "ws" / ".fledge")) as workspace:
        return workspace.replace(path, b"new")


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.txt", "a"),
        ("./sub//b.txt", "b"),
        ("sub/../a.txt", "a"),
        ("{ws}/a.txt", "a"),
        ("{ws}//sub/../a.txt", "a"),
        ("inner", "b"),
        ("chain", "b"),
        ("up", "a"),
        ("absolute", "a"),
        ("innerdir/back", "a"),
        ("innerdir/absolute", "b"),
        ("innerdir/../b.txt", "b"),
        ("sub/deep/../../a.txt/", "a"),
    ],
)
def test_what_is_inside_is_read_also_through_links_that_stay_inside(home: Path, path: str, content: str) -> None:
    assert read(home, path.format(ws=home / "ws")) == content


@proves("8.files.1", "Files are opened beneath the workspace without following links out")
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("", TEXT),
        ("a\x00b", TEXT),
        ("x" * (MAX_PATH + 1), TEXT),
        ("x" * MAX_PATH, "path: cannot be used (File name too long)"),
        ("\ud800", "path: must be Unicode text"),
        ("..", OUTSIDE),
        ("../outside/secret.txt", OUTSIDE),
        ("sub/../../outside/secret.txt", OUTSIDE),
        ("/etc/passwd", OUTSIDE),
        ("{home}/outside/secret.txt", OUTSIDE),
        ("{home}/wsx", OUTSIDE),
        ("{ws}/../outside/secret.txt", OUTSIDE),
        ("//etc/passwd", OUTSIDE),
        ("out", OUTSIDE),
        ("outabs", OUTSIDE),
        ("outdir/secret.txt", OUTSIDE),
        ("slyout/secret.txt", OUTSIDE),
        ("proc", OUTSIDE),
        ("~/.ssh/id", MISSING),
        ("absent", MISSING),
        ("sub/absent/x", MISSING),
        ("dangling", MISSING),
        ("a.txt/b", "path: cannot be used (Not a directory)"),
        (".", NO_FILE),
        ("sub", NO_FILE),
        ("sub/..", NO_FILE),
        ("innerdir", NO_FILE),
        ("{ws}", NO_FILE),
        ("loop", f"path: must not go through more than {MAX_LINKS} links"),
        ("loop/x", f"path: must not go through more than {MAX_LINKS} links"),
        (".fledge/fledge.db", STATE),
        ("state/fledge.db", STATE),
        ("sub/../.fledge/x", STATE),
    ],
)
def test_what_is_not_inside_or_no_file_is_refused_for_reading(home: Path, path: str, told: str) -> None:
    before = open_descriptors()
    with pytest.raises(BadInput) as refusal:
        read(home, path.format(ws=home / "ws", home=home))
    assert str(refusal.value).startswith(told)
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("path", "is_new", "where"),
    [
        ("a.txt", False, "a.txt"),
        ("n.txt", True, "n.txt"),
        ("x/y/z.txt", True, "x/y/z.txt"),
        ("inner", False, "sub/b.txt"),
        ("dangling", True, "sub/new.txt"),
        ("danglingdir/in.txt", True, "sub/made/in.txt"),
        ("innerdir/c", True, "sub/deep/c"),
        ("{ws}/sub/c", True, "sub/c"),
    ],
)
def test_a_file_is_replaced_whole_and_folders_are_made(home: Path, path: str, is_new: bool, where: str) -> None:
    assert replace(home, path.format(ws=home / "ws")) is is_new
    assert (home / "ws" / where).read_text() == "new"
    assert not list((home / "ws").rglob("*.tmp"))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("../n.txt", OUTSIDE),
        ("made/../../n.txt", OUTSIDE),
        ("{home}/outside/n.txt", OUTSIDE),
        ("out", OUTSIDE),
        ("outdir/n.txt", OUTSIDE),
        ("outdir/made/n.txt", OUTSIDE),
        ("slyout/n.txt", OUTSIDE),
        ("sub", NO_FILE),
        (".", NO_FILE),
        ("a.txt/n", "path: cannot be used (Not a directory)"),
        ("x" * 256, "path: cannot be used (File name too long)"),
        (".fledge/n", STATE),
        ("state/n", STATE),
        ("/".join("d" * (MAX_DEPTH + 1)) + "/f", f"path: must be at most {MAX_DEPTH} folders deep"),
    ],
)
def test_nothing_is_written_outside_nor_over_what_is_no_file(home: Path, path: str, told: str) -> None:
    outside, state = snapshot(home / "outside"), snapshot(home / "ws" / ".fledge")
    before = open_descriptors()
    with pytest.raises(BadInput) as refusal:
        replace(home, path.format(ws=home / "ws", home=home))
    assert str(refusal.value).startswith(told)
    assert open_descriptors() == before
    assert (snapshot(home / "outside"), snapshot(home / "ws" / ".fledge")) == (outside, state)
    assert {entry.name for entry in home.iterdir()} == {"ws", "outside"}
    assert not (home / "ws" / "made").exists()


def test_a_replaced_file_keeps_its_permissions_without_special_bits(home: Path) -> None:
    target = home / "ws" / "a.txt"
    target.chmod(0o4741)
    replace(home, "a.txt")
    assert target.stat().st_mode & 0o7777 == 0o741


def test_a_hard_link_outside_keeps_its_content(home: Path) -> None:
    os.link(home / "outside" / "secret.txt", home / "ws" / "hard")
    replace(home, "hard")
    assert (home / "outside" / "secret.txt").read_text() == SECRET


def test_a_write_that_fails_half_way_leaves_the_file_as_it_was_and_no_draft(home: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with Confined(home / "ws") as workspace, pytest.raises(BadInput, match="File too large"):
            workspace.replace("a.txt", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (home / "ws" / "a.txt").read_text() == "a"
    assert not list((home / "ws").glob(".fledge-*"))


def test_pipes_sockets_and_devices_are_refused_without_waiting(home: Path) -> None:
    os.mkfifo(home / "ws" / "pipe")
    (home / "ws" / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(home / "ws")
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        for name in ("pipe", "socket"):
            for attempt in (read, replace):
                with pytest.raises(BadInput) as refusal:
                    attempt(home, name)
                assert str(refusal.value).startswith(SPECIAL)
    with pytest.raises(BadInput, match="must stay inside"):
        read(home, "null")


def test_reading_stops_at_its_limit_and_tells_the_size(home: Path) -> None:
    (home / "ws" / "big").write_bytes(b"x" * 3_000_000)
    with Confined(home / "ws") as workspace:
        for limit in (0, 1, 1 << 20, (1 << 20) + 1, 2_999_999, 3_000_000, 4_000_000):
            data, size = workspace.read("big", limit)
            assert (len(data), size) == (min(limit, 3_000_000), 3_000_000)


@pytest.mark.parametrize("root", ["ws/a.txt", "ws/absent"])
def test_a_root_that_is_no_folder_is_refused(home: Path, root: str) -> None:
    with pytest.raises(BadInput, match="workspace: must be a folder"):
        Confined(home / root)


def test_the_state_folder_is_no_workspace_but_may_hold_one(home: Path) -> None:
    state = home / "ws" / ".fledge"
    before = open_descriptors()
    with pytest.raises(BadInput, match="workspace: must not be a folder that is hidden from tools"):
        Confined(state, hiding(state))
    assert open_descriptors() == before
    (state / "work").mkdir()
    (state / "work" / "x").write_text("mine")
    with Confined(state / "work", hiding(state)) as workspace:
        assert workspace.read("x", 10) == (b"mine", 4)
    with Confined(home / "ws", hiding(home / "absent")) as workspace:
        assert workspace.read("a.txt", 10) == (b"a", 1)


def test_a_root_named_through_a_link_takes_both_its_names(home: Path) -> None:
    (home / "alias").symlink_to("ws")
    with Confined(home / "alias") as workspace:
        assert workspace.read(f"{home}/alias/a.txt", 9) == workspace.read(f"{home}/ws/a.txt", 9) == (b"a", 1)


# ---- races -----------------------------------------------------------------------------------------------------------


@contextmanager
def swapping(*steps: Callable[[], object]) -> Iterator[None]:
    """While the block runs, a thread does the steps over and over."""
    over = threading.Event()
    failed: list[BaseException] = []

    def swap() -> None:
        try:
            while not over.is_set():
                for step in steps:
                    step()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert failed == []


ROUNDS = 1500


@proves("8.files.1")
def test_a_folder_swapped_for_a_link_to_outside_never_leads_there(tmp_path: Path) -> None:
    place(tmp_path)
    ws = tmp_path / "ws"
    (ws / "dir").mkdir()
    (ws / "dir" / "secret.txt").write_text("inside")
    (ws / "trap").symlink_to("../outside")
    outside = snapshot(tmp_path / "outside")
    before = open_descriptors()
    seen = set()

    def swap(here: str, there: str) -> None:
        with suppress(OSError):
            os.rename(ws / here, ws / there)

    def clear() -> None:
        # A write of ours may have made the folder anew while it was away.
        if (ws / "aside").exists() and not (ws / "dir").is_symlink():
            shutil.rmtree(ws / "dir", ignore_errors=True)

    with (
        swapping(
            lambda: swap("dir", "aside"),
            lambda: swap("trap", "dir"),
            lambda: swap("dir", "trap"),
            clear,
            lambda: swap("aside", "dir"),
        ),
        Confined(ws) as workspace,
    ):
        for number in range(ROUNDS):
            try:
                seen.add(workspace.read("dir/secret.txt", 100)[0])
            except BadInput:
                seen.add(b"refused")
            with suppress(BadInput):
                workspace.replace(f"dir/new-{number % 7}", b"x")
            with suppress(BadInput):
                workspace.replace("dir/made/below", b"x")
    assert seen <= {b"inside", b"refused"}
    assert snapshot(tmp_path / "outside") == outside
    assert {entry.name for entry in tmp_path.iterdir()} == {"ws", "outside"}
    assert open_descriptors() == before


def test_a_file_swapped_for_a_link_or_a_pipe_never_leads_out_nor_hangs(tmp_path: Path) -> None:
    place(tmp_path)
    ws = tmp_path / "ws"
    (ws / "file").write_text("inside")
    (ws / "trap").symlink_to("../outside/secret.txt")
    os.mkfifo(ws / "pipe")
    outside = snapshot(tmp_path / "outside")
    seen = set()

    def put(content: str) -> None:
        # A write of ours may have taken the place of whatever stood there.
        (ws / "fresh").write_text(content)
        os.replace(ws / "fresh", ws / "file")

    def trap(kind: str) -> None:
        if kind == "link":
            os.symlink("../outside/secret.txt", ws / "next")
        else:
            os.mkfifo(ws / "next")
        os.replace(ws / "next", ws / "file")

    with (
        swapping(lambda: put("inside"), lambda: trap("link"), lambda: put("inside"), lambda: trap("pipe")),
        Confined(ws) as workspace,
    ):
        for _ in range(ROUNDS):
            with suppress(BadInput):
                seen.add(workspace.read("file", 100)[0])
            with suppress(BadInput):
                workspace.replace("file", b"written")
    assert seen <= {b"inside", b"written", b""}
    assert snapshot(tmp_path / "outside") == outside
    assert not list(ws.glob(".fledge-*"))


@proves("8.files.11")
@pytest.mark.parametrize("path", [".venv/bin/python", ".VENV/bin/new", "sub/../.venv/x", "environment/bin/python"])
def test_what_fledge_runs_from_is_written_only_with_a_yes_and_by_its_own_path(home: Path, path: str) -> None:
    ws = home / "ws"
    (ws / ".venv" / "bin").mkdir(parents=True)
    (ws / "environment").symlink_to(".venv")
    protected = Protected(code=(f"{ws}/.venv", str(ws), f"{ws}/src/sitecustomize.py"), unguarded=(".venv",))
    with Confined(ws, protected) as workspace:
        with pytest.raises(BadInput) as error:
            workspace.replace(path, b"evil")
        assert str(error.value).startswith(CODE)
        with pytest.raises(BadInput, match="needs a person's approval"):
            workspace.replace("src/sitecustomize.py", b"evil")
        assert workspace.is_guarded(path) == (path != "environment/bin/python")
        assert workspace.replace("src/other.py", b"fine")
        if workspace.is_guarded(path):
            assert workspace.replace(path, b"approved", approved=True)
        else:
            with pytest.raises(BadInput, match="name it by its own path, not through a link"):
                workspace.replace(path, b"approved", approved=True)
