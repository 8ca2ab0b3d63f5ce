"""`fledge approve --always`, `fledge reject ID words` and `fledge permissions`."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fledge.models.base import Call
from fledge.models.scripted import ScriptedReply
from tests.cli import command
from tests.cli.model_server import MODEL, Model, serving, workspace
from tests.models.serving import Body

OFF = ("--set", "agents.defaults.sandbox.mode=off")


def runs(body: Body) -> ScriptedReply:
    """Runs what it is told as a command, then says what came of it."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return ScriptedReply(f"The tool said: {last['content']}")
    return ScriptedReply("", (Call("", "exec", json.dumps({"command": last["content"]})),))


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, runs) as model:
        yield model


def test_a_command_is_allowed_for_good_from_the_shell(model: Model, tmp_path: Path) -> None:
    work, user = workspace(tmp_path), tmp_path / "user"
    env = model.env | {"FLEDGE_STATE": str(tmp_path / "state"), "FLEDGE_CONFIG": str(user)}

    def fledge(*arguments: str, cwd: Path = work) -> command.Done:
        return command.fledge(*arguments, cwd=cwd, env=env)

    def question(words: str) -> str:
        asked = fledge("run", words, *MODEL, *OFF)
        assert asked.returncode == 3
        return asked.stderr.split("waits for approval ")[1]

    asked = question("echo hi")
    assert "or reject; --always: `echo hi` here from now on)" in asked
    assert "always: applies to a tool call that waits for approval" in fledge("approve", "nobody", "--always").stderr
    assert "words: go with a no" in fledge("approve", asked[:8], "gladly", "--always").stderr
    assert "children: needs always" in fledge("approve", asked[:8], "--children").stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    allowed = fledge("approve", asked[:8], "--always", cwd=elsewhere).stdout.splitlines()
    assert allowed[0] == "exec may be run; `fledge run --continue` goes on with it"
    (rule,) = json.loads(fledge("permissions", "--json").stdout)
    assert (rule["folder"], rule["words"]) == (os.path.realpath(work), ["echo", "hi"])
    assert fledge("permissions").stdout == allowed[1].removeprefix("from now on: ") + "\n"
    assert "The tool said: hi" in fledge("run", "--continue", *MODEL, *OFF).stdout
    assert "The tool said: hi" in fledge("run", "echo hi", *MODEL, *OFF).stdout
    assert "id: must be named: fledge permissions revoke ID" in fledge("permissions", "revoke").stderr
    assert fledge("permissions", "revoke", rule["id"]).stdout.startswith("asks again: ")
    assert fledge("permissions").stdout == "no rule lets a command run without a question\n"
    asked = question("echo hi")
    assert "exec will not run; the model gets a refusal" in fledge("reject", asked[:8], "use printf").stdout
    assert "The person's words: use printf" in fledge("run", "--continue", *MODEL, *OFF).stdout
