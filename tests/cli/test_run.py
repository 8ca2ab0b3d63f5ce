"""`fledge run` and `ps` against a strict server that speaks the real protocol."""

import asyncio
import base64
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fledge as library
from fledge.api.values import Message as Entry
from fledge.channels.base import Message
from fledge.channels.terminal import HERE
from fledge.cli.run import RunOutput
from fledge.models.base import Broke, ToolMessage
from fledge.models.base import Request as Asked
from fledge.models.scripted import Answer as Said
from fledge.models.scripted import ScriptedModel, ScriptedReply, echo, last_text, use
from tests import images
from tests.cli import command
from tests.cli.command import Done, name_in
from tests.cli.model_server import MODEL, Model, serving, until, workspace
from tests.gateway import serving as gateway
from tests.models.openai_server import tool_then_answer
from tests.models.serving import Answer, Body, Script, Status
from tests.statements import proves

ROOT = Path(__file__).parents[2]
LAST_WORDS = "The tool said: notes.txt (5)"
ANSWER = f"Let me see.\n{LAST_WORDS}\n"
"""What the model says: words before it uses a tool, and words after that."""


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, tool_then_answer) as model:
        yield model


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return workspace(tmp_path)


def fledge(model: Model, work: Path, *arguments: str, **env: str) -> Done:
    return command.fledge(*arguments, cwd=work, env=model.env | env)


@contextmanager
def killed_amid(model: Model, work: Path, command: list[str]) -> Iterator[None]:
    """Run a command until the model has been asked, and end it with -9 while the reply is on its way."""
    model.hold.touch()
    asked = model.requests
    with subprocess.Popen(command, cwd=work, env=model.env) as process:
        until(process, lambda: model.requests > asked)
        process.send_signal(signal.SIGKILL)
    model.hold.unlink()
    yield


@proves("4.tools.40", "`fledge run` prints the words before a tool call, too, in order")
def test_run_uses_a_tool_prints_the_answer_and_returns_when_all_is_settled(model: Model, work: Path) -> None:
    done = fledge(model, work, "run", "--state", "../state", *MODEL, "Please use list")
    assert (done.returncode, done.stdout) == (0, ANSWER), done.stderr
    assert fledge(model, work, "ps", "--state", "../state").stdout == f"{name_in(work)} · idle\n"
    assert model.requests == 2


def test_run_killed_with_minus_nine_goes_on_with_continue(model: Model, work: Path) -> None:
    arguments = ["run", "--state", "../state", *MODEL]
    command = [sys.executable, "-m", "fledge.cli.main", *arguments, "Please use list"]
    with killed_amid(model, work, command):
        assert fledge(model, work, "ps", "--state", "../state").stdout == (
            f"{name_in(work)} · a turn is open\nno process is at work here: `fledge run --continue` continues\n"
        )
        done = fledge(model, work, *arguments, "--continue")
    assert (done.returncode, done.stdout) == (0, ANSWER), done.stderr
    assert model.requests == 3  # the one that was under way at the kill, then two


@pytest.mark.parametrize("forwards", [False, True], ids=["a reply", "a forwarded result"])
def test_an_answer_that_a_killed_process_has_not_sent_is_printed_by_the_next(
    forwards: bool, model: Model, work: Path
) -> None:
    answer = asyncio.run(leave_unsent(work.parent / "state", forwards))
    arguments = ("run", "--state", "../state", *MODEL, "--session", "main", "--continue")
    printed = [fledge(model, work, *arguments).stdout for _ in range(2)]
    assert printed == [f"{answer}\n", ""]


def test_a_subagent_that_goes_on_with_continue_is_shown_by_its_label(model: Model, work: Path) -> None:
    async def leave_a_child_at_work() -> None:
        at_work = asyncio.Event()

        async def says(request: Asked) -> Said:
            if "Subagent Context" not in request.system:
                return (
                    use("sessions_spawn", task="Please use list", label="digger") if len(request.messages) == 1 else ""
                )
            at_work.set()
            await asyncio.Event().wait()
            return ""

        async with library.open(work.parent / "state", model=ScriptedModel(says)) as fl:
            await fl.session("main", address=HERE).post("Delegate")
            await at_work.wait()

    asyncio.run(leave_a_child_at_work())
    done = fledge(model, work, "run", "--state", "../state", *MODEL, "--session", "main", "--continue")
    assert "digger · list" in done.stderr
    assert "a subagent" not in done.stderr


async def leave_unsent(state: Path, forwards: bool) -> str:
    """Leave a state folder as a process does that is killed before it has sent this answer to the terminal."""

    def says(request: Asked) -> Said:
        words = last_text(request)
        if words == "Delegate":
            return use("sessions_spawn", task="survey", label="survey")
        return "" if forwards and "Subagent Context" not in request.system else "the survey"

    async with library.open(state, model=ScriptedModel(says), channels={"terminal": Unsent()}) as fl:
        await fl.session("main", address=HERE).send("Delegate" if forwards else "hello")
        assert await fl.session("main").settled(timeout=60)
        return (await fl.session("main").history())[-1].text


class Unsent:
    """A channel whose receiver is away."""

    async def send(self, message: Message) -> None:
        raise OSError("no terminal is open")

    async def close(self) -> None:
        """Nothing is held."""


def test_an_open_turn_of_another_conversation_is_work_of_the_folder(model: Model, work: Path) -> None:
    arguments = ["run", "--state", "../state", *MODEL]
    command = [sys.executable, "-m", "fledge.cli.main", *arguments, "--session", "trip", "Please use list"]
    with killed_amid(model, work, command):
        assert fledge(model, work, "ps", "--state", "../state").stdout == (
            "main · idle\nno process is at work here: `fledge run --continue` continues\n"
        )
        done = fledge(model, work, *arguments, "--continue")
    assert done.returncode == 0, done.stderr
    assert fledge(model, work, "log", "trip", "--state", "../state").stdout.endswith(f"assistant: {LAST_WORDS}\n")


def test_the_conversation_remembers_what_was_said_before(model: Model, work: Path) -> None:
    arguments = ("run", "--state", "../state", *MODEL, "--set", "tools.allow=[]")
    assert fledge(model, work, *arguments, "one").stdout == "You said: one\n"
    assert fledge(model, work, *arguments, "two").stdout == "You said: two\n"
    assert all(f'"content":"{word}"' in model.log.read_text().splitlines()[-1] for word in ("one", "two"))


@proves("4.tools.40")
@pytest.mark.parametrize(
    ("told", "printed"),
    [
        (["begin 4", "add 5 6"], [5, 6]),
        (["hear 4", "begin 6", "add 5 6"], [5, 6]),
        (["begin 6", "hear 4", "add 5 6"], [5, 6]),
        (["hear 4", "hear 5", "begin 6", "add 5 6"], [5, 6]),
        (["begin 4", "add 5", "hear 3", "add 6"], [5, 6]),
        (["hear 7", "begin 6", "add 7"], [7]),
    ],
    ids=str,
)
def test_what_a_turn_says_before_the_run_knows_where_it_begins_is_printed_once(
    told: list[str], printed: list[int]
) -> None:
    class Answers(RunOutput):
        def answer(self, text: str, *, is_cut: bool = False) -> None:
            shown.append(int(text))

    shown: list[int] = []
    one = Answers("agent:main:main", streams=False)
    for move in told:
        name, *numbers = move.split()
        if name == "add":
            entries = [Entry(seq=int(seq), at=0.0, role="assistant", text=seq) for seq in ("5", "6", "7")]
            one.add([entry for entry in entries if entry.text in numbers and entry.seq > one.last])
        else:
            {"begin": one.begin, "hear": one.hear}[name](int(numbers[0]))
    assert shown == printed


@proves("4.tools.51", "`--session NAME` talks in another conversation, which begins if there is none of this name")
def test_a_prompt_can_be_said_in_another_conversation(model: Model, work: Path) -> None:
    arguments = ("run", "--state", "../state", *MODEL, "--set", "tools.allow=[]")
    assert fledge(model, work, *arguments, "one").stdout == "You said: one\n"
    assert fledge(model, work, *arguments, "--session", "trip", "two").stdout == "You said: two\n"
    assert fledge(model, work, *arguments, "--session", "trip", "three").stdout == "You said: three\n"
    last = model.log.read_text().splitlines()[-1]
    assert ['"content":"one"' in last, '"content":"two"' in last] == [False, True]
    assert fledge(model, work, *arguments, "--session", "no name", "x").stderr.startswith("fledge: --session: must be")


def test_a_prompt_can_come_from_standard_input(model: Model, work: Path) -> None:
    command = [sys.executable, "-m", "fledge.cli.main", "run", "--state", "s", *MODEL, "--set", "tools.allow=[]", "-"]
    done = subprocess.run(command, cwd=work, env=model.env, input="from a pipe", capture_output=True, text=True)
    assert done.stdout == "You said: from a pipe\n"


def test_documents_of_the_workspace_reach_the_model(model: Model, work: Path) -> None:
    (work / "AGENTS.md").write_text("Always answer in rhyme.")
    fledge(model, work, "run", "--state", "../state", *MODEL, "hello")
    assert "Always answer in rhyme." in model.log.read_text()


def test_a_wrong_key_is_one_readable_line_and_nothing_is_lost(model: Model, work: Path) -> None:
    arguments = ("run", "--state", "../state", *MODEL, "--set", "tools.allow=[]")
    refused = fledge(model, work, *arguments, "hello", OPENAI_API_KEY="sk-mistaken-key")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "fledge: HTTP 401: Incorrect API key provided: [key]; openai refuses the key: correct OPENAI_API_KEY",
        "fledge: nothing is lost: after that change `fledge run --continue` goes on",
    ]
    assert "sk-mistaken-key" not in refused.stdout + refused.stderr
    assert fledge(model, work, *arguments, "--continue").stdout == "You said: hello\n"


def slow_down(times: int, retry_after: str) -> Script:
    """A provider at its rate limit, for so many requests."""
    left = [times]

    def script(body: Body) -> Answer:
        left[0] -= 1
        limit = {"error": {"message": "slow down", "type": "rate_limit_error"}}
        return ScriptedReply("here I am") if left[0] < 0 else [Status(429, limit, {"Retry-After": retry_after})]

    return script


@proves("2.asking.15", "`fledge run` waits for a provider as long as a run does, says so, and then ends with 1")
def test_a_provider_at_its_limit_is_waited_for_and_that_is_said(tmp_path: Path, work: Path) -> None:
    with serving(tmp_path, slow_down(1, "5.1")) as model:
        done = fledge(model, work, "run", "--state", "../state", *MODEL, "--set", "tools.allow=[]", "hello")
    assert (done.returncode, done.stdout) == (0, "here I am\n")
    assert done.stderr == "model: HTTP 429: slow down · try 2 in 6s\n"


@proves("2.asking.15")
def test_a_provider_that_stays_at_its_limit_ends_the_command_with_one(tmp_path: Path, work: Path) -> None:
    settings = ("--set", "tools.allow=[]", "--set", "models.patienceSeconds=0")
    with serving(tmp_path, slow_down(99, "50")) as model:
        done = fledge(model, work, "run", "--state", "../state", *MODEL, *settings, "hello")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "fledge: HTTP 429: slow down")


def test_a_call_that_needs_a_person_ends_the_command_with_three_and_says_what_waits(model: Model, work: Path) -> None:
    arguments = ("run", "--state", "../state", *MODEL, "--set", "tools.list.approval=ask")
    done = fledge(model, work, *arguments, "Please use list")
    assert (done.returncode, done.stdout) == (3, "Let me see.\n")
    *events, waits = done.stderr.splitlines()
    assert events == ["main · list", "main · waits for you"]
    assert re.fullmatch(r"waits for approval (\w+): list {}  \(fledge approve \1, or reject\)", waits)
    shown = fledge(model, work, "ps", "--state", "../state").stdout.splitlines()
    assert shown == [f"{name_in(work)} · a turn is open", waits]


def test_a_model_that_cannot_answer_is_told_alike_beside_the_process_that_holds_the_folder(work: Path) -> None:
    async def refuses(request: Asked) -> Said:
        return Broke("auth", "HTTP 401: no such key")

    with gateway.serving(work.parent / "state", ScriptedModel(refuses)):
        done = command.fledge("run", "--state", "../state", "hello", cwd=work)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "fledge: HTTP 401: no such key",
        "fledge: nothing is lost: `fledge run --continue` tries again",
    ]


@proves("2.asking.15")
@pytest.mark.parametrize("patience_s", [0, 600])
def test_a_model_that_is_down_is_waited_for_as_long_as_the_holders_settings_say(work: Path, patience_s: int) -> None:
    async def is_down(request: Asked) -> Said:
        return Broke("retryable", "HTTP 503: busy", retry_after_s=50)

    settings: dict[str, object] = {"models": {"patienceSeconds": patience_s}}
    with gateway.serving(work.parent / "state", ScriptedModel(is_down), settings):
        line = [*command.PROGRAM, "run", "--state", "../state", "hello"]
        with subprocess.Popen(line, cwd=work, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            said = process.stderr.readline()
            if patience_s:
                process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
    if patience_s:
        assert (process.returncode, said) == (130, "model: HTTP 503: busy · try 2 in 50s\n")
    else:
        assert (process.returncode, said) == (1, "fledge: HTTP 503: busy\n")
        assert rest == "fledge: nothing is lost: `fledge run --continue` tries again\n"


def test_a_question_of_a_subagent_ends_the_command_with_three_beside_the_process_that_holds_the_folder(
    work: Path,
) -> None:
    async def asks(request: Asked) -> Said:
        if isinstance(request.messages[-1], ToolMessage):
            return "it is under way"
        if "# Subagent Context" in request.system:
            return use("write", path="made.txt", content="made")
        return use("sessions_spawn", task="write it", label="writer")

    with gateway.serving(work.parent / "state", ScriptedModel(asks), {"tools": {"write": {"approval": "ask"}}}):
        done = command.fledge("run", "--state", "../state", "go", cwd=work)
    assert (done.returncode, done.stdout) == (3, "it is under way\n")
    assert "writer · started\nwriter · waits for you\n" in done.stderr
    assert re.search(r'^waits for approval \w+: write .*"made.txt".*\(fledge approve', done.stderr, re.MULTILINE)


@proves("7.input.1")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([""], "fledge: prompt: must not be empty: say what to do, or use --continue\n"),
        (["--continue", "hello"], "fledge: --continue: takes no prompt: it continues unfinished work\n"),
        (
            ["hello", "--set", "agents.defaults.subagents.maxConcurent=3"],
            "fledge: agents.defaults.subagents.maxConcurent: unknown key (did you mean maxConcurrent?)",
        ),
        (["hello", "--model", "opnai/gpt-5"], "fledge: model: no provider 'opnai'; did you mean openai, xai?"),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_is_made(
    model: Model, work: Path, arguments: list[str], error: str
) -> None:
    done = fledge(model, work, "run", "--state", "../state", *MODEL, *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(error)
    assert done.stderr.count("\n") == 1
    assert not (work.parent / "state").exists()


def test_without_a_key_nothing_is_said_yet(model: Model, work: Path) -> None:
    env = {name: value for name, value in model.env.items() if not name.startswith("OPENAI")}
    command = [
        sys.executable,
        "-m",
        "fledge.cli.main",
        "run",
        "--state",
        "../state",
        "--model",
        "openai/gpt-5",
        "hello",
    ]
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert (
        done.stderr == "fledge: no key: set OPENAI_API_KEY, or OPENAI_API_KEY_FILE to a file that only you can read\n"
    )
    assert not (work.parent / "state").exists()


def test_a_second_process_is_answered_by_the_one_that_has_the_store(model: Model, work: Path) -> None:
    arguments = [sys.executable, "-m", "fledge.cli.main", "run", "--state", "../state", *MODEL, "Please use list"]
    model.hold.touch()
    with subprocess.Popen(arguments, cwd=work, env=model.env, stdout=subprocess.PIPE, text=True) as first:
        until(first, lambda: model.requests == 1)
        second = fledge(model, work, "ps", "--state", "../state")
        assert second.stdout == f"{name_in(work)} · a turn is open\n"
        third = fledge(model, work, "serve", "--state", "../state", "--port", "0")
        assert third.returncode == 1
        assert f"is in use by process {first.pid} on " in third.stderr
        assert ": end that first, or name another folder\n" in third.stderr
        model.hold.unlink()
        assert first.communicate()[0] == ANSWER


def test_two_who_run_at_once_share_the_conversation_and_both_are_answered(model: Model, work: Path) -> None:
    command = [sys.executable, "-m", "fledge.cli.main", "run", "--state", "../state", *MODEL, "Please use list"]
    model.hold.touch()
    with subprocess.Popen(command, cwd=work, env=model.env, stdout=subprocess.PIPE, text=True) as first:
        until(first, lambda: model.requests == 1)
        with subprocess.Popen(command, cwd=work, env=model.env, stdout=subprocess.PIPE, text=True) as second:
            until(second, lambda: "1 unread" in fledge(model, work, "ps", "--state", "../state").stdout)
            model.hold.unlink()
            answers = [first.communicate(timeout=60)[0], second.communicate(timeout=60)[0]]
        assert (first.returncode, second.returncode) == (0, 0)
    assert answers[0] == answers[1]
    assert answers[0].endswith(ANSWER)


def test_the_twenty_line_example_goes_on_after_kill_minus_nine(model: Model, work: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "programs" / "conversation.py"), "../state"]
    with killed_amid(model, work, command):
        done = subprocess.run(command, cwd=work, env=model.env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "The tool said: 1 files\n"), done.stderr


@proves("3.images.19", "`fledge run --image FILE` shows an image with the prompt")
def test_run_shows_images(model: Model, work: Path) -> None:
    (work / "cat.png").write_bytes(images.png(640, 480))
    (work / "dog.jpg").write_bytes(images.jpeg())
    arguments = ("run", "--state", "../state", "--model", "openai/gpt-4o", "--set", "tools.allow=[]")
    done = fledge(model, work, *arguments, "--image", "cat.png", "--image", "dog.jpg", "Look.")
    assert done.returncode == 0, done.stderr
    asked = model.log.read_text()
    assert base64.b64encode(images.png(640, 480)).decode() in asked
    assert base64.b64encode(images.jpeg()).decode() in asked
    assert "[image cat.png, 640×480 PNG]" in asked


@proves("3.images.15")
def test_another_model_is_given_the_same_entry_as_it_takes_it(model: Model, work: Path) -> None:
    (work / "cat.png").write_bytes(images.png(640, 480))
    packed = base64.b64encode(images.png(640, 480)).decode()
    arguments = ("run", "--state", "../state", "--set", "tools.allow=[]")
    fledge(model, work, *arguments, *MODEL, "--image", "cat.png", "Look.")
    fledge(model, work, *arguments, "--model", "openai/gpt-4o", "And?")
    fledge(model, work, *arguments, *MODEL, "Really?")
    requests = model.log.read_text().splitlines()
    assert [packed in request for request in requests] == [False, True, False]
    assert ["[image cat.png, 640×480 PNG]" in request for request in requests] == [True] * 3


@proves("3.images.19")
def test_run_shows_images_through_the_process_that_holds_the_folder(work: Path) -> None:
    (work / "cat.png").write_bytes(images.png(640, 480))
    scripted = ScriptedModel(echo)
    with gateway.serving(work.parent / "state", scripted):
        done = command.fledge("run", "--state", "../state", "--image", "cat.png", "Look.", cwd=work)
    assert (done.returncode, done.stdout) == (0, "Look.\n[image cat.png, 640×480 PNG]\n"), done.stderr
    assert list(scripted.requests[0].images.values()) == [images.png(640, 480)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--image", "notes.txt", "Look."), "--image[0]: must be a PNG, JPEG, GIF or WebP image (got 'notes.txt')"),
        (("--image", "no.png", "Look."), "--image[0]: must be a file that can be read (No such file or directory)"),
        (("--image", "notes.txt", "--continue"), "--continue: takes no image: it continues unfinished work"),
    ],
)
def test_run_refuses_what_is_no_image(model: Model, work: Path, arguments: tuple[str, ...], words: str) -> None:
    done = fledge(model, work, "run", "--state", "../state", *MODEL, *arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert model.requests == 0


@proves("3.attached.13", "`fledge run --attach FILE` gives the model a file with the prompt")
def test_run_attaches_files(model: Model, work: Path) -> None:
    (work / "report.csv").write_text("a,b\n")
    arguments = ("run", "--state", "../state", *MODEL, "--attach", "report.csv", "--attach", "notes.txt", "Look.")
    done = fledge(model, work, *arguments)
    assert done.returncode == 0, done.stderr
    asked = model.log.read_text()
    assert "[file report.csv, 4 B]" in asked
    assert f"[notes.txt can be read at {os.path.realpath(work.parent)}/state/attached/" in asked


@proves("3.attached.13")
def test_run_attaches_files_through_the_process_that_holds_the_folder(work: Path) -> None:
    (work / "report.csv").write_text("a,b\n")
    scripted = ScriptedModel(echo)
    with gateway.serving(work.parent / "state", scripted):
        done = command.fledge("run", "--state", "../state", "--attach", "report.csv", "Look.", cwd=work)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Look.\n[file report.csv, 4 B]\n[report.csv can be read at "), done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--attach", "no.csv", "Look."), "--attach[0]: must be a file that can be read (No such file or directory)"),
        (("--attach", "notes.txt", "--continue"), "--continue: takes no attachment: it continues unfinished work"),
        (("--attach", "empty", "Look."), "attachments[0].content: must not be empty (got 'empty')"),
    ],
)
def test_run_refuses_what_cannot_be_attached(model: Model, work: Path, arguments: tuple[str, ...], words: str) -> None:
    (work / "empty").touch()
    done = fledge(model, work, "run", "--state", "../state", *MODEL, *arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert model.requests == 0


def test_answers_that_cannot_be_written_end_the_command_with_one(model: Model, work: Path) -> None:
    line = [*command.PROGRAM, "run", "--state", "../state", *MODEL, "hello"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, cwd=work, env=model.env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "fledge: standard output cannot be written: No space left on device\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_answers_that_nobody_reads_are_no_error(model: Model, work: Path) -> None:
    line = " ".join([*command.PROGRAM, "run", "--state", "../state", *MODEL, "hello"])
    done = subprocess.run(
        ["bash", "-c", f"{line} | true; echo ${{PIPESTATUS[0]}}"],
        cwd=work,
        env=model.env,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0\n"
    assert "Traceback" not in done.stderr
