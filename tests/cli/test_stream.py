"""`fledge run --json`: one event a line, of the types of `stream`, and `settled` with the exit code at the end."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fledge.cli import stream
from fledge.cli.stream import StreamEvent
from fledge.commands.feed import RunHappened
from fledge.commands.reading import from_wire
from fledge.commands.wire import to_wire
from fledge.core.keys import short_id
from fledge.models.base import Usage
from fledge.models.scripted import ScriptedReply
from tests.cli import command
from tests.cli.model_server import MODEL, Model, serving, until, workspace
from tests.cli.stage import call, is_child
from tests.models.serving import Answer, Body
from tests.statements import proves

HOSTILE = "red \x1b[31malert\u202e"


def says(body: Body) -> Answer:
    """A main agent that sends a scout, which reads a file; asked for a plan, it has one made."""
    last = body["messages"][-1]
    if is_child(body):
        if "plan" in body["messages"][1]["content"]:
            return ScriptedReply("1. read")
        return (
            ScriptedReply(HOSTILE) if last["role"] == "tool" else ScriptedReply("", (call("read", path="notes.txt"),))
        )
    if last["role"] == "tool":
        return ScriptedReply("It is under way.", usage=Usage(100, 7))
    match last["content"].strip():
        case "delegate":
            return ScriptedReply("I send a scout.", (call("sessions_spawn", task="look", label="scout"),))
        case "plan":
            return ScriptedReply("", (call("sessions_spawn", task="plan", label="checker", planMode=True),))
        case "write":
            return ScriptedReply("", (call("write", path="made.txt", content="made"),))
        case _:
            return ScriptedReply("All is found.")


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, says) as model:
        yield model


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return workspace(tmp_path)


def events(told: str) -> list[Any]:
    """The events, each of a type of `stream` and with nothing that the type does not have."""
    found: list[Any] = []
    for line in told.splitlines():
        wire = json.loads(line)
        event: Any = from_wire(StreamEvent, wire)  # type: ignore[arg-type]
        assert to_wire(event) == wire
        found.append(event)
    return found


def run(model: Model, work: Path, *arguments: str, **env: str) -> tuple[int, list[Any], str]:
    line = ("run", "--json", "--state", "../state", *MODEL, *arguments)
    done = command.fledge(*line, cwd=work, env=model.env | env)
    found = events(done.stdout)
    assert [one for one in found if isinstance(one, stream.Settled)] == [stream.Settled(exit=done.returncode)]
    assert found[-1] == stream.Settled(exit=done.returncode)
    return done.returncode, found, done.stderr


@proves("4.tools.56", "`fledge run --json` prints an event a line, and `settled` with the exit code once, at the end")
def test_what_happens_is_told_as_events(model: Model, work: Path) -> None:
    code, found, errors = run(model, work, "delegate")
    assert (code, errors) == (0, "")
    kinds = [type(one).__name__ for one in found]
    answers = [one.text for one in found if isinstance(one, stream.AnswerLine)]
    assert answers == ["I send a scout.", "It is under way.", "All is found."]
    streamed = "".join(one.text for one in found if isinstance(one, stream.TextLine))
    assert streamed == "".join(answers)
    (result,) = [one for one in found if isinstance(one, stream.ResultLine)]
    assert (result.label, result.status, result.ended_reason, result.text) == ("scout", "ok", "complete", HOSTILE)
    runs = [one for one in found if isinstance(one, RunHappened)]
    assert {one.session_key for one in runs} == {result.session_key}
    assert (runs[0].event, runs[0].label) == ("Admitted", "scout")
    tools = [one for one in found if isinstance(one, stream.ToolLine)]
    read = [one for one in tools if one.session_key == result.session_key]
    assert [one.kind for one in read] == ["tool:start", "tool:end"]
    assert (read[0].text, "hello" in read[1].text) == ("read", True)
    assert json.loads(read[0].arguments) == {"path": "notes.txt"}
    assert read[0].call == read[1].call
    assert stream.UsageLine(session_key=command.session_of(work), tokens_in=100, tokens_out=7, cost_usd=None) in found
    assert kinds.index("ResultLine") > kinds.index("RunHappened")


def test_lines_can_be_shown_on_a_terminal(model: Model, work: Path) -> None:
    done = command.fledge("run", "--json", "--state", "../state", *MODEL, "delegate", cwd=work, env=model.env)
    assert not {"\x1b", "\u202e"} & set(done.stdout)


@proves("4.tools.56")
def test_a_question_and_a_plan_are_events_and_the_exit_code_is_three(model: Model, work: Path) -> None:
    code, found, errors = run(model, work, "--set", "tools.write.approval=ask", "write")
    (asked,) = [one for one in found if isinstance(one, stream.QuestionLine)]
    assert (code, asked.tool, json.loads(asked.arguments)["path"]) == (3, "write", "made.txt")
    assert f"fledge approve {short_id(asked.id)}" in errors
    done = command.fledge("reject", short_id(asked.id), "--state", "../state", cwd=work, env=model.env)
    assert done.returncode == 0, done.stderr
    code, found, errors = run(model, work, "plan")
    (plan,) = [one for one in found if isinstance(one, stream.Planned)]
    assert (code, plan.label, plan.text) == (3, "checker", "1. read")
    assert f"fledge approve {short_id(plan.run_id)}" in errors


@proves("4.tools.56")
@pytest.mark.parametrize(
    ("arguments", "env", "kinds"),
    [
        (["hello"], {"OPENAI_API_KEY": "sk-mistaken-key"}, ["FailureLine", "NoticeLine", "NoticeLine", "Settled"]),
        ([""], {}, ["Settled"]),
        (["hello", "--set", "nonsense"], {}, ["Settled"]),
        (["hello", "--model", "nowhere/model"], {}, ["Settled"]),
    ],
    ids=["a wrong key", "no prompt", "a wrong setting", "no such model"],
)
def test_a_run_that_fails_is_settled_too(
    model: Model, work: Path, arguments: list[str], env: dict[str, str], kinds: list[str]
) -> None:
    code, found, errors = run(model, work, *arguments, **env)
    assert (code, [type(one).__name__ for one in found]) == (1, kinds)
    assert errors.startswith("fledge: ")


@proves("4.tools.56")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_called_off_is_settled_too(model: Model, work: Path, number: int, code: int) -> None:
    model.hold.touch()
    line = [*command.PROGRAM, "run", "--json", "--state", "../state", *MODEL, "hello"]
    with subprocess.Popen(line, cwd=work, env=model.env, stdout=subprocess.PIPE, text=True) as process:
        until(process, lambda: model.requests == 1)
        process.send_signal(number)
        told, _ = process.communicate()
    assert (process.returncode, events(told)) == (code, [stream.Settled(exit=code)])
    model.hold.unlink()


def test_a_second_ctrl_c_ends_a_run_that_cannot_print_its_end_without_a_traceback(model: Model, work: Path) -> None:
    model.hold.touch()
    line = [*command.PROGRAM, "run", "--json", "--state", "../state", *MODEL, "hello"]
    reads, full = os.pipe()
    os.set_blocking(full, False)
    with suppress(BlockingIOError):
        while True:
            os.write(full, bytes(4096))
    os.set_blocking(full, True)  # whatever the command prints waits for a reader
    with (
        os.fdopen(reads, "rb"),
        os.fdopen(full, "wb") as stdout,
        subprocess.Popen(line, cwd=work, env=model.env, stdout=stdout, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        until(process, lambda: model.requests == 1)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "fledge: stopped; `fledge run --continue` goes on\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == -signal.SIGINT
    model.hold.unlink()
