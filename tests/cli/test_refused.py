"""A command whose options are wrong is refused before it makes anything, and names the option."""

import os
from pathlib import Path

import pytest

from fledge import Fledge, run_sync
from fledge.store.files import DATABASE
from fledge.testing import ScriptedModel
from tests.cli.command import fledge
from tests.statements import proves

NAME = "must be a name of letters, digits and . _ @ + -, or a key such as agent:main:main (got 'a b:c')"
ECHO = ("--model", "scripted/echo")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("chat", "--session", "a b:c", *ECHO), f"--session: {NAME}"),
        (("chat", "--session", "", *ECHO), "--session: must be a session's name or key (got '')"),
        (("run", "hi", "--session", "a b:c", *ECHO), f"--session: {NAME}"),
        (("spawn", "dig", "--timeout", "-1", *ECHO), "--timeout: must be a number from 0 to 31536000 (got -1.0)"),
        (("spawn", "dig", "--timeout", "nan", *ECHO), "--timeout: must be a number from 0 to 31536000 (got nan)"),
        (("spawn", "dig", "--timeout", "inf", *ECHO), "--timeout: must be a number from 0 to 31536000 (got inf)"),
        (("spawn", "dig", "--label", "x" * 201, *ECHO), "--label: must be text of at most 200 characters"),
        (("spawn", "dig", "--agent", "a b", *ECHO), "--agent: must be 1 to 64 letters"),
        (("spawn", "dig", "--agent", "nobody", *ECHO), 'there is no agent "nobody" (there are: main)'),
        (("spawn", "dig", "--runtime", "none", *ECHO), "--runtime: must be one that is configured: subagent"),
        (("spawn", "dig", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("send", "main", "hi", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("run", "hi", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("chat", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("serve", "--port", "0", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("serve", "--port", "99999", *ECHO), "--port: must be 0 to 65535 (got 99999)"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name_and_nothing_is_made(
    tmp_path: Path, line: tuple[str, ...], words: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    places = {"HOME": str(tmp_path), "FLEDGE_CONFIG": str(tmp_path / "user"), "FLEDGE_STATE": str(tmp_path / "state")}
    done = fledge(*line, cwd=work, env={"PATH": os.environ["PATH"], **places})
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["work"]


def _made(state: Path) -> None:
    """A state folder with some runs."""

    async def work(fl: Fledge) -> None:
        for _ in range(20):
            await (await fl.spawn("Say hello " * 50))

    run_sync(work, state, model=ScriptedModel(lambda request: "hello " * 500), config={}, workspace=state.parent)


@proves("8.files.14", "A state folder that others may write is refused, with the command that mends it")
@pytest.mark.parametrize(
    ("mode", "fits"), [(0o777, False), (0o770, False), (0o702, False), (0o755, True), (0o700, True)]
)
@pytest.mark.parametrize(
    "line",
    [
        ("ps",),
        ("event", "it rains"),
        ("run", "hi", *ECHO),
    ],
)
def test_a_state_folder_that_others_may_write_is_refused(
    tmp_path: Path, line: tuple[str, ...], mode: int, fits: bool
) -> None:
    state = tmp_path / "state"
    _made(state)
    state.chmod(mode)
    before = sorted(path.name for path in state.iterdir())
    done = fledge(*line, "--state", str(state), cwd=tmp_path, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    words = f"{state} can be written by others (mode {mode:o}): chmod go-w {state}"
    assert (words in done.stderr) is not fits, done.stderr
    assert fits or (done.returncode != 0 and sorted(path.name for path in state.iterdir()) == before)


@pytest.mark.parametrize("line", [("ps",), ("tree",), ("event", "it rains")])
def test_a_command_in_a_folder_with_a_damaged_database_says_so_and_not_to_try_again(
    tmp_path: Path, line: tuple[str, ...]
) -> None:
    state = tmp_path / "state"
    _made(state)
    with (state / DATABASE).open("r+b") as file:
        file.seek(4096 * 4)
        file.write(b"\xff" * ((state / DATABASE).stat().st_size - 4096 * 8))
    done = fledge(*line, "--state", str(state), cwd=tmp_path, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert done.returncode != 0
    assert "is damaged or not a fledge database" in done.stderr
    assert "restore a copy" in done.stderr
    assert "try again" not in done.stderr
