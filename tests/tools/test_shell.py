"""Commands: their output, their end, their whole group killed, their environment, and the walls around them."""

import asyncio
import os
import select
import signal
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fledge.own_code import SYSTEM_PATH
from fledge.tools import process
from fledge.tools.base import Tool, ToolContext
from fledge.tools.process import HeadTail
from fledge.tools.sandbox import Sandbox, find_sandbox
from fledge.tools.shell import environment, exec_tool
from tests.left_out import requires
from tests.statements import proves
from tests.tools.places import error, open_descriptors, place, text

PLAIN = exec_tool()


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return place(tmp_path, GREETING="hello")


@pytest.fixture(scope="module")
def sandboxed(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """The tool in a real sandbox."""
    requires("bubblewrap")
    return exec_tool(find_sandbox(tmp_path_factory.mktemp("state")))


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
    assert text(PLAIN, place(tmp_path), command="echo $PATH").startswith(SYSTEM_PATH + "\n")
    assert text(PLAIN, place(tmp_path / "other", PATH="/bin"), command="echo $PATH").startswith("/bin\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "exec: command: is required: text"),
        ({"command": ""}, "exec: command: must be text"),
        ({"command": "a\x00b"}, "exec: command: must not hold NUL"),
        ({"command": "é" * 99_999}, "exec: command: could not be started ("),
        (
            {"command": ":", "timeoutSeconds": 0},
            "exec: timeoutSeconds: must be a number above 0, at most 3600 (got 0",
        ),
        (
            {"command": ":", "timeoutSeconds": 3601},
            "exec: timeoutSeconds: must be a number above 0, at most 3600 (",
        ),
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
        ("MY_PAT", "x", False),
        ("X_BEARER", "x", False),
        ("SLACK_HOOK", "x", False),
        ("HARMLESS", "harmless", False),
        ("TERM", "sk-abcdefghijklmnop", False),
        ("TERM", "ghp_abcdefghijklmnop", False),
        ("TERM", "AKIAABCDEFGHIJKLMNOP", False),
        ("TERM", f"Bearer {JWT}", False),
        ("TERM", "-----BEGIN RSA PRIVATE KEY-----", False),
        ("TERM", "task-abcdefghijklmnop", True),
        ("HTTPS_PROXY", "https://u:p@proxy/x", False),
        ("https_proxy", "https://proxy/x", True),
    ],
)
def test_secrets_stay_out_of_the_environment(name: str, value: str, kept: bool) -> None:
    assert environment({name: value}) == ({name: value} if kept else {})
    assert environment({name: value}, named=(name,)) == {name: value}


@proves("8.exec.2", "exec is sandboxed where bubblewrap is available")
def test_the_tool_runs_through_the_sandbox_it_was_given(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "walls").write_text('#!/bin/sh\nfor last; do :; done\necho "walls: $1 $last"\n')
    (tmp_path / "walls").chmod(0o755)
    execute = exec_tool(Sandbox(program=str(tmp_path / "walls"), aside=tmp_path / "aside"))
    assert text(execute, context, command="echo x").startswith("walls: --die-with-parent echo x\n")
    assert "not sandboxed" in PLAIN.description
    assert "can change only the workspace" in execute.description


# ---- folders besides the workspace -----------------------------------------------------------------------------------


def test_a_command_starts_where_the_session_works_and_sees_what_it_was_given(execute: Tool, tmp_path: Path) -> None:
    here = place(tmp_path, PATH=os.environ["PATH"])
    state = here.workspace / ".fledge"
    handed = state / "given"
    handed.mkdir()
    (handed / "a.txt").write_text("handed in")
    (here.workspace / "sub").mkdir()
    context = replace(here, cwd="sub", readable=(handed,))
    assert text(execute, context, command="pwd").splitlines()[0] == f"{here.workspace}/sub"
    assert "handed in" in text(execute, context, command=f"cat {handed}/a.txt")
    if execute is not PLAIN:
        assert "Read-only" in error(execute, context, command=f"echo x > {handed}/a.txt")
        assert "No such file" in error(execute, context, command=f"cat {state}/fledge.db")
