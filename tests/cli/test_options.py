"""Options that several commands share mean the same before the command and behind it: every command, every option."""

import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest

import fledge
from fledge.cli.main import SHARED, commands, parse
from fledge.commands.looking import run_meant
from fledge.core.keys import main_key
from fledge.testing import ScriptedModel
from tests import rows
from tests.api.scene import obedient
from tests.cli import command
from tests.statements import proves

LINES: dict[str, list[str]] = {
    "chat": ["chat"],
    "run": ["run", "hello"],
    "serve": ["serve", "--port", "0"],
    "worker": ["worker"],
    "page": ["page", "--no-open"],
    "ps": ["ps"],
    "tree": ["tree"],
    "info": ["info", "digger"],
    "log": ["log", "digger"],
    "undelivered": ["undelivered"],
    "sessions": ["sessions"],
    "health": ["health"],
    "agents": ["agents"],
    "spawn": ["spawn", "dig"],
    "send": ["send", "main", "hello"],
    "steer": ["steer", "nobody", "left"],
    "kill": ["kill", "nobody"],
    "resume": ["resume", "nobody"],
    "again": ["again", "nobody"],
    "remove": ["remove", "nobody"],
    "approve": ["approve", "nobody"],
    "reject": ["reject", "nobody", "no"],
    "permissions": ["permissions"],
    "event": ["event", "it rains"],
    "heartbeat": ["heartbeat"],
    "init": ["init", "elsewhere"],
    "config": ["config"],
    "trust": ["trust", "there"],
    "doctor": ["doctor"],
    "models": ["models"],
    "store": ["store", "copy", "there", "elsewhere"],
    "import": ["import", "openclaw", "there"],
    "docs": ["docs", "agents"],
    "completion": ["completion", "bash"],
    "bench": ["bench", "--quick"],
    "demo": ["demo"],
}
"""A line for each command, without the options that commands share."""

GIVEN: dict[str, list[str]] = {
    "state": ["--state", "a-file/state"],
    "store": ["--store", "postgresql://127.0.0.1:1/nowhere"],
    "gateway": ["--gateway", "nowhere"],
    "token_file": ["--token-file", "a-file/token"],
    "model": ["--model", "nowhere/model"],
    "settings": ["--set", "nonsense"],
    "session": ["--session", "agent:nobody"],
    "json": ["--json"],
    "verbose": ["-v"],
}
"""Each shared option, with a value that a command that uses it must complain about."""

CELLS = [(command, option) for command in LINES for option in GIVEN]


def parsed(line: list[str]) -> dict[str, object] | None:
    """What a command line asks for; None if it is refused."""
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            return vars(parse(line))
        except SystemExit:
            return None


TAKEN = [(command, option) for command, option in CELLS if parsed([*LINES[command], *GIVEN[option]]) is not None]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to work in; its state folder `default` has one unfinished run."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "config").mkdir()
    (folder / "config" / "fledge.json5").write_text('{agents: {defaults: {model: "scripted/echo"}}}')
    (folder / "there" / "subagents").mkdir(parents=True)
    (folder / "there" / "subagents" / "runs.json").write_text('{"version": 2, "runs": {}}')
    (folder / "a-file").touch()

    async def spawn(fl: fledge.Fledge) -> None:
        await fl.spawn("Wait for me", label="digger")

    fledge.run_sync(spawn, folder / "default", model=ScriptedModel(obedient), config={})
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A copy of the prepared folder."""
    return shutil.copytree(prepared, tmp_path / "work")


def do(folder: Path, line: list[str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a command in this folder, whose state folder is `default` by default."""
    done = command.fledge(*line, cwd=folder, env=os.environ | {"FLEDGE_STATE": "default", "FLEDGE_CONFIG": "config"})
    out = re.sub(r"\d+ MB free", "some MB free", done.stdout)
    of_moment = r'"(pid|bytes|freeBytes|commitMs|commitP95Ms|oldestWaitS|startedAt|nowAt)": [\d.]+'
    return done.returncode, re.sub(of_moment, r'"\1": 0', out) if "health" in line else out, done.stderr


def phase_in(state: Path) -> str:
    return rows.look(state, lambda tx: tx.runs.load(run_meant(tx, "digger", main_key())).phase.name)


def test_the_table_has_every_command_and_every_shared_option() -> None:
    assert list(LINES) == list(commands())
    assert list(GIVEN) == list(SHARED)


@proves("4.tools.32", "An option that commands share means the same before the command and behind it")
@pytest.mark.parametrize(("command", "option"), CELLS)
def test_an_option_asks_for_the_same_before_the_command_and_behind_it(command: str, option: str) -> None:
    line, given = LINES[command], GIVEN[option]
    assert parsed([*given, *line]) == parsed([*line, *given])
    # Each option of this table says something: it is refused, or it changes what is asked for.
    assert parsed([*line, *given]) != parsed(line)


@pytest.mark.parametrize(("name", "option"), [cell for cell in CELLS if cell not in TAKEN])
def test_an_option_that_a_command_does_not_take_is_refused_before_it_too(
    tmp_path: Path, name: str, option: str
) -> None:
    code, out, err = do(tmp_path, [*GIVEN[option], *LINES[name]])
    assert (code, out) == (2, "")
    assert err.endswith(f"fledge {name}: error: takes no {GIVEN[option][0]}\n")


@pytest.mark.parametrize("name", LINES)
def test_an_option_that_nobody_knows_is_refused_with_what_the_command_takes(tmp_path: Path, name: str) -> None:
    code, out, err = do(tmp_path, [*LINES[name], "--bogus", "--twice"])
    assert (code, out) == (2, "")
    assert err.startswith(f"usage: fledge {name} ")
    assert err.endswith(f"fledge {name}: error: unrecognized arguments: --bogus --twice\n")


def test_an_option_that_nobody_knows_is_refused_without_a_command_too(tmp_path: Path) -> None:
    code, out, err = do(tmp_path, ["--bogus"])
    assert (code, out) == (2, "")
    assert err.startswith("usage: fledge [-h] [--version]")
    assert err.endswith("fledge: error: unrecognized arguments: --bogus\n")


WITHOUT_END = {
    *((command, "verbose") for command in LINES),
    *((command, "json") for command in ("run", "spawn", "send", "event")),
}
"""Cells in which the option does not end the command: it would serve, measure or play. The test above has them all."""


@proves("4.tools.32")
@pytest.mark.parametrize(("name", "option"), [cell for cell in TAKEN if cell not in WITHOUT_END])
def test_a_command_does_the_same_with_an_option_before_it_and_behind_it(folder: Path, name: str, option: str) -> None:
    line, given = LINES[name], GIVEN[option]
    code, out, err = do(folder, [*given, *line])
    assert do(folder, [*line, *given]) == (code, out, err)
    if option == "json":
        assert code == 1 or json.loads(out) is not None
    else:
        assert given[1].partition("/")[0] in out + err
    drives = option == "model" and name in ("chat", "run", "spawn", "send")
    # With a model that does not exist a command that drives the folder may fail the run in it; no other touches it.
    assert drives or phase_in(folder / "default") in ("queued", "running")


def test_a_kill_in_the_folder_named_before_the_command_leaves_the_default_folder_alone(folder: Path) -> None:
    shutil.copytree(folder / "default", folder / "named")
    assert do(folder, ["--state", "named", "kill", "digger"]) == (0, "killed 1\n", "")
    assert phase_in(folder / "named") == "completed"
    assert phase_in(folder / "default") in ("queued", "running")


@proves("4.tools.33", "Of two values of an option the one that stands last counts; settings and -v add up")
def test_of_two_values_the_last_counts_and_settings_add_up() -> None:
    asked = parse(["--state", "a", "--model", "x", "--set", "a=1", "-v", "run", "hello", "--set", "b=2", "-v"])
    assert (asked.state, asked.model, asked.settings, asked.verbose) == ("a", "x", ("a=1", "b=2"), 2)
    asked = parse(["--state", "a", "--state", "b", "--model", "x", "run", "--model", "y", "hello", "--state", "c"])
    assert (asked.state, asked.model, asked.settings, asked.verbose) == ("c", "y", (), 0)
    assert parse(["--model", "x"]).model == "x"


def test_a_chat_without_a_command_takes_all_that_the_command_takes() -> None:
    for option, given in GIVEN.items():
        assert (parsed(given) is None) == (("chat", option) not in TAKEN)
        assert option != "session" or vars(parse(given))["session"] == given[1]
