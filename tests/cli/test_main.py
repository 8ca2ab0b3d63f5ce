"""The command line: what it prints, and how it refuses."""

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.command import PROGRAM, fledge
from tests.cli.model_server import until
from tests.statements import proves


def test_the_demo_wants_a_new_folder(tmp_path: Path) -> None:
    (tmp_path / "fledge.db").touch()
    done = fledge("demo", "--state", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "--state: must be a new folder" in done.stderr


def test_a_folder_without_a_store_is_refused_in_one_line_and_nothing_is_made(tmp_path: Path) -> None:
    done = fledge("tree", "--state", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert (
        done.stderr == f"fledge: {tmp_path}/nothing: no fledge.db there; name the folder that holds it with --state\n"
    )
    assert not (tmp_path / "nothing").exists()


@proves("7.input.9")
def test_a_damaged_store_is_refused_in_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "fledge.db").write_bytes(b"not a database" * 100)
    done = fledge("tree", "--state", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "restore a copy" in done.stderr
    assert (tmp_path / "fledge.db").read_bytes() == b"not a database" * 100


def test_the_demo_says_what_is_wrong_with_a_folder() -> None:
    done = fledge("demo", "--state", "/proc/nothing")
    assert done.returncode == 1
    assert done.stderr.startswith("fledge: /proc/nothing: cannot be made (")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("decoding", ["strict", "surrogateescape"])
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, decoding: str) -> None:
    (tmp_path / "work").mkdir()
    env = os.environ | {"PYTHONIOENCODING": f"utf-8:{decoding}", "HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "fledge.cli.main"]
    model = ["--model", "scripted/echo", "--state", str(tmp_path / "state")]

    def say(*words: str | bytes, given: bytes = b"") -> tuple[int, str]:
        done = subprocess.run(
            [*command, *words], env=env, input=given, capture_output=True, timeout=60, cwd=tmp_path / "work"
        )
        return done.returncode, (done.stdout + done.stderr).decode()

    assert say("run", *model, given=b"\xff") == (1, "fledge: standard input: must be text in UTF-8\n")
    assert say("run", *model, b"\xff") == (1, "fledge: prompt: must be text in UTF-8\n")
    assert say("spawn", *model, "-", given=b"\xff") == (1, "fledge: standard input: must be text in UTF-8\n")
    code, told = say(*model, given=b"say \xff\n")
    assert code == 0
    assert "\nsay \ufffd\n" in told


def test_help_and_version_are_readable() -> None:
    assert fledge("--version").stdout == "fledge 0.1.0\n"
    assert "COMMAND" in fledge("--help").stdout
    assert fledge("fly").returncode == 2


def test_a_shell_can_complete_commands_and_their_options() -> None:
    script = fledge("completion", "bash").stdout
    check = f"{script}\nCOMP_WORDS=(fledge undelivered re) COMP_CWORD=2; _fledge; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, timeout=60)
    assert done.stdout == "retry\n", done.stderr
    check = f"{script}\nCOMP_WORDS=(fledge doct) COMP_CWORD=1; _fledge; echo ${{COMPREPLY[@]}}"
    assert subprocess.run(["bash", "-c", check], capture_output=True, text=True, timeout=60).stdout == "doctor\n"
    assert "complete -c fledge" in fledge("completion", "fish").stdout
    assert "bashcompinit" in fledge("completion", "zsh").stdout


def test_more_is_said_of_an_error_if_asked_for(tmp_path: Path) -> None:
    done = fledge("-v", "tree", "--state", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[0].startswith("fledge: ")


def test_output_that_nobody_reads_any_more_is_no_error() -> None:
    command = f"{sys.executable} -m fledge.cli.main config | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n", "")


@proves("8.exec.7")
def test_spawning_a_runtime_is_refused_where_a_sandbox_is_demanded(tmp_path: Path) -> None:
    settings = ("--set", "runtimes.foreign.command=['true']", "--set", "agents.defaults.sandbox.mode=all")
    done = fledge("spawn", "work", "--runtime", "foreign", "--state", str(tmp_path / "state"), *settings)
    why = 'subagents of agent "main" must be sandboxed (sandbox.mode is all)'
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"fledge: {why}, but runtime foreign runs outside any sandbox\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("run", "-", "--model", "scripted/echo"), "fledge: stopped; `fledge run --continue` goes on\n"),
        (("event", "-"), ""),
    ],
)
def test_ctrl_c_says_how_to_go_on_only_where_something_was_under_way(
    tmp_path: Path, line: tuple[str, ...], words: str
) -> None:
    pipe = subprocess.PIPE
    begun = [*PROGRAM, *line, "--state", str(tmp_path / "state")]
    with subprocess.Popen(begun, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("it rains")
        process.stdin.flush()
        until(process, lambda: _unread(process) == 0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", words)


def _unread(process: "subprocess.Popen[str]") -> int:
    """How many bytes of its standard input a process has not read yet."""
    assert process.stdin is not None
    unread = array.array("i", [0])
    fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, unread)
    return unread[0]


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "fledge", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, fledge("--version").stdout)
