"""Commands: their output, their end, their whole group killed, their environment, and the walls around them."""

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fledge.errors import BadInput
from fledge.tools import process
from fledge.tools.base import Tool, ToolContext
from fledge.tools.process import HeadTail
from fledge.tools.shell import (
    DEFAULT_PATH,
    Mount,
    Network,
    Sandbox,
    bubblewrap,
    environment,
    exec_tool,
    find_sandbox,
    mounts_for,
)
from tests.left_out import requires
from tests.statements import proves
from tests.tools.places import SECRET, call, error, open_descriptors, place, snapshot, text

PLAIN = exec_tool()


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return place(tmp_path, GREETING="hello")


@pytest.fixture(scope="module")
def sandboxed() -> Tool:
    """The tool in a real sandbox."""
    requires("bubblewrap")
    return exec_tool(find_sandbox(Path("/nonexistent")))


@pytest.fixture(params=["plain", "sandboxed"])
def execute(request: pytest.FixtureRequest) -> Tool:
    if request.param == "plain":
        return PLAIN
    found: Tool = request.getfixturevalue("sandboxed")
    return found


def has_ended(pid: int) -> bool:
    """True once it is over: a killed process takes a moment to be."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return select.select([watched], [], [], 5) != ([], [], [])
    finally:
        os.close(watched)


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def without_time(told: str) -> str:
    return told.rpartition("; ")[0]


# ---- running ---------------------------------------------------------------------------------------------------------


@proves("8.exec.5")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo out; echo err >&2; echo out", "out\nerr\nout\n[exit code 0"),
        ("printf x", "x\n[exit code 0"),
        (":", "[exit code 0"),
        ("cat", "[exit code 0"),
        ('echo "$GREETING|$HOME|$SECRET_KEY"', "hello||\n[exit code 0"),
        ("printf '\\377\\000'", "\ufffd␀\n[exit code 0"),
    ],
)
def test_a_command_runs_with_no_input_and_only_the_given_environment(
    context: ToolContext, execute: Tool, command: str, told: str
) -> None:
    assert without_time(text(execute, context, command=command)) == told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("exit 3", "[exit code 3"),
        ("echo x; absent-program-x 2>/dev/null", "x\n[exit code 127"),
    ],
)
def test_a_failing_command_is_an_error_with_its_code(
    context: ToolContext, execute: Tool, command: str, told: str
) -> None:
    assert without_time(error(execute, context, command=command)) == told


def test_a_command_killed_by_a_signal_says_which(context: ToolContext) -> None:
    assert without_time(error(PLAIN, context, command="kill -SEGV $$")) == "[killed by signal 11 (Segmentation fault)"


def test_it_starts_in_the_workspace_and_can_write_there(context: ToolContext, execute: Tool) -> None:
    text(execute, context, command="pwd > here; mkdir -p a/b; echo x > a/b/c")
    assert (context.workspace / "here").read_text() == f"{context.workspace}\n"
    assert (context.workspace / "a" / "b" / "c").read_text() == "x\n"


def test_it_finds_programs_without_a_path_and_takes_one_that_is_given(tmp_path: Path) -> None:
    assert text(PLAIN, place(tmp_path), command="echo $PATH").startswith(DEFAULT_PATH + "\n")
    assert text(PLAIN, place(tmp_path / "other", PATH="/bin"), command="echo $PATH").startswith("/bin\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "exec: command: is required."),
        ({"command": ""}, 'exec: command: expected "str" of length >= 1.'),
        ({"command": "a\x00b"}, "exec: command: must not hold NUL"),
        ({"command": "é" * 99_999}, "exec: command: could not be started ("),
        ({"command": ":", "timeoutSeconds": 0}, 'exec: timeoutSeconds: expected "float" > 0.0.'),
        ({"command": ":", "timeoutSeconds": 3601}, 'exec: timeoutSeconds: expected "float" <= 3600.0.'),
    ],
)
def test_a_command_that_cannot_be_run_says_why(context: ToolContext, arguments: dict[str, object], told: str) -> None:
    before = open_descriptors()
    assert error(PLAIN, context, **arguments).startswith(told)
    assert open_descriptors() == before
    assert children() == []


# ---- ending ----------------------------------------------------------------------------------------------------------


def test_a_command_out_of_time_is_killed_with_everything_it_started(context: ToolContext, execute: Tool) -> None:
    before = open_descriptors()
    told = error(execute, context, command="echo begun; sleep 300 & sleep 300", timeoutSeconds=0.8)
    assert without_time(told) == "begun\n[killed: it ran longer than 0.8 s"
    assert children() == []
    assert open_descriptors() == before


def test_the_whole_group_is_gone_after_a_timeout_also_what_ignores_the_first_signal(context: ToolContext) -> None:
    command = (
        "trap '' TERM; sleep 301 & echo $! > pids; bash -c \"trap '' TERM; sleep 302\" & echo $! >> pids; wait; wait"
    )
    assert without_time(error(PLAIN, context, command=command, timeoutSeconds=0.8)) == (
        "[killed: it ran longer than 0.8 s"
    )
    pids = [int(pid) for pid in (context.workspace / "pids").read_text().split()]
    assert len(pids) == 2
    assert all(has_ended(pid) for pid in pids)


def test_a_command_may_tidy_up_when_its_time_is_over(context: ToolContext) -> None:
    command = "trap 'echo tidy; exit 0' TERM; echo begun; sleep 300 & wait"
    told = error(PLAIN, context, command=command, timeoutSeconds=0.8)
    assert without_time(told) == "begun\ntidy\n[killed: it ran longer than 0.8 s"


def test_background_processes_end_with_the_command_and_do_not_hold_it(context: ToolContext, execute: Tool) -> None:
    assert without_time(text(execute, context, command="sleep 300 & echo $! > pid; echo done")) == (
        "done\n[exit code 0"
    )
    if execute is PLAIN:
        assert has_ended(int((context.workspace / "pid").read_text()))
    assert children() == []


def test_a_process_that_left_the_group_does_not_hold_the_tool(context: ToolContext) -> None:
    before = open_descriptors()
    told = text(PLAIN, context, command="setsid sh -c 'echo $$ > pid; exec sleep 300' & while ! [ -s pid ]; do :; done")
    escaped = int((context.workspace / "pid").read_text())
    try:
        assert without_time(told) == "[exit code 0"
        assert Path(f"/proc/{escaped}").exists()
        assert open_descriptors() == before
    finally:
        os.kill(escaped, signal.SIGKILL)


def test_in_a_sandbox_no_process_leaves(sandboxed: Tool, context: ToolContext) -> None:
    marker = f"{300 + os.getpid() / 1e7:.7f}"
    text(sandboxed, context, command=f"setsid sleep {marker} & while ! pgrep -f 'sleep {marker}'; do :; done")
    assert not [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and marker in _command_line(entry) and not has_ended(int(entry.name))
    ]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def wait_for_line(path: Path) -> None:
    """Wait until a command has written a line into the file."""
    until = time.monotonic() + 60
    while not path.exists() or not path.read_text().endswith("\n"):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_cancelled_command_is_killed_whole_before_the_cancellation_is_over(context: ToolContext) -> None:
    before, threads = open_descriptors(), threading.active_count()

    async def main() -> None:
        task = asyncio.ensure_future(PLAIN.call('{"command": "sleep 300 & echo $! > pid; sleep 300"}', context))
        await asyncio.to_thread(wait_for_line, context.workspace / "pid")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children() == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert has_ended(int((context.workspace / "pid").read_text()))
    assert open_descriptors() == before
    assert threading.active_count() == threads


def test_a_command_cancelled_twice_is_killed_all_the_same(context: ToolContext) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(
            PLAIN.call('{"command": "trap \'\' TERM; echo $$ > pid; while :; do sleep 0.1; done"}', context)
        )
        await asyncio.to_thread(wait_for_line, context.workspace / "pid")
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children() == []

    asyncio.run(main())
    assert has_ended(int((context.workspace / "pid").read_text()))


def test_many_commands_at_once_leave_nothing_behind(context: ToolContext) -> None:
    before = open_descriptors()

    async def main() -> list[str]:
        calls = [PLAIN.call(f'{{"command": "echo {number}"}}', context) for number in range(40)]
        return [result.text.split("\n")[0] for result in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [str(number) for number in range(40)]
    assert children() == []
    assert open_descriptors() == before


# ---- output ----------------------------------------------------------------------------------------------------------


def test_long_output_keeps_both_ends_and_says_what_is_missing(context: ToolContext) -> None:
    told = text(PLAIN, context, command="echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert told.startswith("first\nxxx")
    assert "x\nlast\n[exit code 0" in told
    assert "\n[cut: 960012 of 1000012 bytes are not shown]\n" in told
    assert len(told) < 40_200


def test_a_command_that_writes_without_end_is_killed(context: ToolContext) -> None:
    told = error(PLAIN, context, command="yes", timeoutSeconds=60)
    assert f"[killed: it wrote more than {process.MAX_OUTPUT_BYTES} bytes" in told
    assert children() == []


@given(st.lists(st.binary(max_size=40)), st.integers(1, 30), st.integers(1, 30))
def test_head_and_tail_are_those_of_the_whole(pieces: list[bytes], head: int, tail: int) -> None:
    kept = HeadTail(head, tail)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    assert kept.total == len(whole)
    if len(whole) <= head + tail:
        assert kept.text() == whole.decode("utf-8", "replace")
    else:
        first, last = whole[:head].decode("utf-8", "replace"), whole[-tail:].decode("utf-8", "replace")
        missing = len(whole) - head - tail
        assert kept.text() == f"{first}\n[cut: {missing} of {len(whole)} bytes are not shown]\n{last}"


# ---- environment -----------------------------------------------------------------------------------------------------

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc"


@proves("8.exec.5", "Secrets are stripped from its environment")
@proves("8.child.6", "Keys are never sent to a child")
@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("PATH", "/bin", True),
        ("HOME", "/home/me", True),
        ("LANG", "C.UTF-8", True),
        ("LC_ALL", "C", True),
        ("TERM", "xterm", True),
        ("PWD", "/work", True),
        ("GIT_AUTHOR_NAME", "me", True),
        ("EDITOR", "vi", True),
        ("VIRTUAL_ENV", "/venv", True),
        ("HTTP_PROXY", "http://proxy:3128", True),
        ("HTTP_PROXY", "http://me:pw@proxy:3128", False),
        ("OPENAI_API_KEY", "x", False),
        ("OPENAI_BASE_URL", "x", False),
        ("ANTHROPIC_AUTH", "x", False),
        ("my_api_key", "x", False),
        ("GH_TOKEN", "x", False),
        ("CLIENT_SECRET", "x", False),
        ("DB_PASSWORD", "x", False),
        ("MYSQL_PWD", "x", False),
        ("PGPASSFILE", "x", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", "x", False),
        ("AWS_PROFILE", "x", False),
        ("SSH_AUTH_SOCK", "x", False),
        ("DATABASE_URL", "x", False),
        ("SENTRY_DSN", "x", False),
        ("FLEDGE_STATE", "x", False),
        ("KUBECONFIG", "x", False),
        ("HARMLESS", "sk-abcdefghijklmnop", False),
        ("HARMLESS", "ghp_abcdefghijklmnop", False),
        ("HARMLESS", "AKIAABCDEFGHIJKLMNOP", False),
        ("HARMLESS", f"Bearer {JWT}", False),
        ("HARMLESS", "-----BEGIN RSA PRIVATE KEY-----", False),
        ("HARMLESS", "task-abcdefghijklmnop", True),
        ("HARMLESS", "postgres://u:p@db/x", False),
    ],
)
def test_secrets_stay_out_of_the_environment(name: str, value: str, kept: bool) -> None:
    assert environment({name: value}) == ({name: value} if kept else {})


# ---- the sandbox -----------------------------------------------------------------------------------------------------

WALLS = ["--die-with-parent", "--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
WALLS += ["--unshare-cgroup-try"]
FLOOR = ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
RUN = ["/run/systemd/resolve", "/run/current-system", "/run/opengl-driver"]


@pytest.mark.parametrize(
    ("mounts", "network", "walls", "mounted"),
    [
        ([Mount("/w", "workspace")], "shared", [], ["--bind", "/w", "/w"]),
        ([Mount("/w", "workspace")], "none", ["--unshare-net"], ["--bind", "/w", "/w"]),
        (
            [Mount("/w/.fledge", "folder"), Mount("/w", "workspace")],
            "shared",
            [],
            ["--bind", "/w", "/w", "--tmpfs", "/w/.fledge"],
        ),
        (
            [Mount("/s/work/w", "workspace"), Mount("/s", "folder")],
            "shared",
            [],
            ["--tmpfs", "/s", "--bind", "/s/work/w", "/s/work/w"],
        ),
        (
            [Mount("/", "workspace"), Mount("/h/.netrc", "file"), Mount("/tmp", "folder")],
            "shared",
            [],
            ["--bind", "/", "/", "--tmpfs", "/tmp", "--ro-bind", "/dev/null", "/h/.netrc"],
        ),
        (
            [Mount("/w", "workspace"), Mount("/run", "folder")],
            "shared",
            [],
            [
                "--tmpfs",
                "/run",
                *(word for path in RUN for word in ("--ro-bind-try", path, path)),
                "--bind",
                "/w",
                "/w",
            ],
        ),
    ],
)
def test_the_sandbox_is_read_only_with_mounts_on_top_outer_ones_first(
    mounts: list[Mount], network: Network, walls: list[str], mounted: list[str]
) -> None:
    place_of = next(mount.path for mount in mounts if mount.kind == "workspace")
    assert bubblewrap("/usr/bin/bwrap", ["sh", "-c", "x"], mounts, network) == [
        *("/usr/bin/bwrap", *WALLS, *walls, *FLOOR, *mounted),
        *("--chdir", place_of, "--", "sh", "-c", "x"),
    ]


@pytest.mark.parametrize(
    "mounts",
    [
        [],
        [Mount("/w", "workspace"), Mount("/w", "folder")],
        [Mount("/w", "workspace"), Mount("/v", "workspace")],
    ],
)
def test_a_sandbox_needs_one_workspace_that_is_not_hidden(mounts: Iterable[Mount]) -> None:
    with pytest.raises(BadInput, match="workspace: must be one folder that is not hidden from tools"):
        bubblewrap("bwrap", ["x"], mounts)


@proves("8.exec.4", "The state folder is never visible to it")
def test_state_and_secrets_at_home_are_hidden_by_their_real_paths(tmp_path: Path) -> None:
    home, workspace, state = tmp_path / "home", tmp_path / "ws", tmp_path / "state"
    for folder in (home / ".ssh", home / "real-aws", workspace, state):
        folder.mkdir(parents=True)
    (home / ".netrc").touch()
    (home / ".aws").symlink_to("real-aws")
    (tmp_path / "link").symlink_to("ws")
    (tmp_path / "key").touch()
    also = [tmp_path / "key", tmp_path / "absent"]
    mounts = {mount.path: mount.kind for mount in mounts_for(tmp_path / "link", state, home, also)}
    assert {path: kind for path, kind in mounts.items() if path.startswith(str(tmp_path))} == {
        str(home / ".ssh"): "folder",
        str(home / "real-aws"): "folder",
        str(home / ".netrc"): "file",
        str(state): "folder",
        str(tmp_path / "key"): "file",
        str(workspace): "workspace",
    }
    assert mounts["/tmp"] == "folder"
    assert mounts_for(Path("/tmp"), None, home).count(Mount("/tmp", "workspace")) == 1
    assert Mount("/tmp", "folder") not in mounts_for(Path("/tmp"), None, home)


@pytest.mark.parametrize("program", ["absent-program-x", "false", "{tmp}/no-program"])
def test_a_sandbox_that_does_not_work_is_none(tmp_path: Path, program: str) -> None:
    (tmp_path / "no-program").write_text("")
    (tmp_path / "no-program").chmod(0o755)
    assert find_sandbox(tmp_path, program.format(tmp=tmp_path)) is None


@proves("8.exec.2")
def test_a_sandbox_that_works_is_found(tmp_path: Path) -> None:
    (tmp_path / "walls").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "walls").chmod(0o755)
    assert find_sandbox(tmp_path, str(tmp_path / "walls"), "none") == Sandbox(
        program=str(tmp_path / "walls"), home=tmp_path, network="none"
    )


@proves("8.exec.2", "exec is sandboxed where bubblewrap is available")
def test_the_tool_runs_through_the_sandbox_it_was_given(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "walls").write_text('#!/bin/sh\nfor last; do :; done\necho "walls: $1 $last"\n')
    (tmp_path / "walls").chmod(0o755)
    execute = exec_tool(Sandbox(program=str(tmp_path / "walls"), home=tmp_path))
    assert text(execute, context, command="echo x").startswith("walls: --die-with-parent echo x\n")
    assert "not sandboxed" in PLAIN.description
    assert "can change only the workspace" in execute.description


@pytest.fixture
def visible() -> Iterator[Path]:
    """A folder that a sandbox does not cover as a whole, as it does /tmp, where this checkout may be."""
    covered = ("/tmp/", "/var/tmp/", "/run/")
    places = (Path(__file__).resolve().parent, Path.home(), Path("/srv"))
    open_place = next(one for one in places if not f"{one}/".startswith(covered) and os.access(one, os.W_OK))
    with TemporaryDirectory(dir=open_place, prefix=".fledge-sandbox-") as folder:
        yield Path(folder)


@proves("8.exec.2")
@proves("8.exec.4")
@pytest.mark.parametrize("network", ["shared", "none"])
def test_from_a_real_sandbox_no_secret_is_seen_and_nothing_outside_is_changed(visible: Path, network: Network) -> None:
    requires("bubblewrap")
    context, home = place(visible), visible / "home"
    (home / ".ssh").mkdir(parents=True)
    for path in (home / ".ssh" / "id", home / ".netrc", visible / "key"):
        path.write_text(SECRET)
    (visible / "outside" / "secret.txt").write_text("may be read")
    before = snapshot(visible / "outside"), snapshot(context.workspace / ".fledge"), snapshot(home)
    found = find_sandbox(home, network=network, hidden=(visible / "key",))
    assert found is not None
    told = call(
        exec_tool(found),
        context,
        command=f"cat {home}/.ssh/id {home}/.netrc {visible}/key .fledge/*; cat {visible}/outside/*;"
        f" echo x > .fledge/new; echo x > {visible}/outside/new; rm -rf {visible}/outside {home};"
        f" touch /etc/fledge-was-here; cat /proc/{os.getpid()}/environ; echo mine > mine",
    ).text
    assert SECRET not in told
    assert "may be read" in told
    assert f"cat: /proc/{os.getpid()}/environ: No such file or directory" in told
    assert (context.workspace / "mine").read_text() == "mine\n"
    assert (snapshot(visible / "outside"), snapshot(context.workspace / ".fledge"), snapshot(home)) == before
    assert not Path("/etc/fledge-was-here").exists()


# ---- folders besides the workspace -----------------------------------------------------------------------------------


def test_folders_that_may_be_read_are_shown_over_what_hides_them(tmp_path: Path) -> None:
    state, handed = tmp_path / "state", tmp_path / "state" / "given"
    work = tmp_path / "work"
    for folder in (handed, work):
        folder.mkdir(parents=True)
    mounts = mounts_for(work, state, tmp_path, readable=(handed, work, tmp_path / "nowhere"))
    kinds = {mount.path: mount.kind for mount in mounts}
    assert (kinds[str(state)], kinds[str(handed)], kinds[str(work)]) == ("folder", "readable", "workspace")
    assert str(tmp_path / "nowhere") not in kinds
    command = bubblewrap("bwrap", ["true"], mounts, cwd="sub")
    at = command.index(str(handed))
    assert command[at - 1 : at + 2] == ["--ro-bind", str(handed), str(handed)]
    assert command.index(str(state)) < at
    assert command[command.index("--chdir") + 1] == f"{work}/sub"


def test_a_command_starts_where_the_session_works_and_sees_what_it_was_given(execute: Tool, tmp_path: Path) -> None:
    here = place(tmp_path, PATH=os.environ["PATH"])
    assert here.state is not None
    handed = here.state / "given"
    handed.mkdir()
    (handed / "a.txt").write_text("handed in")
    (here.workspace / "sub").mkdir()
    context = replace(here, cwd="sub", readable=(handed,))
    assert text(execute, context, command="pwd").splitlines()[0] == f"{here.workspace}/sub"
    assert "handed in" in text(execute, context, command=f"cat {handed}/a.txt")
    if execute is not PLAIN:
        assert "Read-only" in error(execute, context, command=f"echo x > {handed}/a.txt")
        assert "No such file" in error(execute, context, command=f"cat {here.state}/fledge.db")
