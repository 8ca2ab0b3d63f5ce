"""`--gateway URL`: every command that asks verbs asks a gateway elsewhere, and says plainly why it cannot."""

import http.server
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, ScriptedModel, last_text, use
from fledge.store.ways import TOKEN_FILE
from tests.cli import chat_server, command
from tests.cli.command import Done
from tests.cli.model_server import MODEL, serving, until, workspace
from tests.gateway import serving as gateway
from tests.gateway.serving import Server
from tests.statements import proves

NOWHERE = "http://127.0.0.1:9"
TOKEN = "t" * 43


async def answers(request: Request) -> Answer:
    """Echoes; asked to write, it does, with a person's yes."""
    if isinstance(request.messages[-1], ToolMessage):
        return "written"
    words = last_text(request)
    return use("write", path="made.txt", content="made") if words == "write" else f"echo: {words}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with gateway.serving(tmp_path / "state", ScriptedModel(answers), {"tools": {"write": {"approval": "ask"}}}) as one:
        yield one


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Somewhere else, where there is no state."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def ask(here: Path, *line: str, given: str = "", **env: str) -> Done:
    own = {"HOME": str(here), "PATH": os.environ["PATH"], **env}
    done = command.fledge(*line, cwd=here, env=own, given=given)
    assert "Traceback" not in done.stderr
    return done


@proves("4.tools.43", "With `--gateway URL` a command asks a gateway elsewhere, and nothing is made here")
def test_commands_ask_a_gateway_elsewhere(server: Server, here: Path) -> None:
    env = {"FLEDGE_GATEWAY": server.address, "FLEDGE_GATEWAY_TOKEN": server.token}

    def out(*line: str, given: str = "", code: int = 0) -> str:
        done = ask(here, *line, given=given, **env)
        assert done.returncode == code, done.stderr
        return done.stdout

    assert out("run", "hello") == "echo: hello\n"
    assert out("send", "main", "again") == "echo: again\n"
    assert out("spawn", "dig", "--label", "digger") == "echo: dig\n"
    assert "digger" in out("tree")
    assert out("ps").startswith("main · idle")
    assert "status    completed (ok)" in out("info", "digger")
    assert "echo: hello" in out("log")
    assert json.loads(out("sessions", "--json"))
    assert out("undelivered") == "nothing is undelivered\n"
    assert out("event", "it rains") == "posted to agent:main:main\n"
    assert out("heartbeat") == "a heartbeat of agent:main:main is asked for\n"
    assert out("kill", "all") == "killed 0\n"
    assert "written" not in out("run", "write", code=3)
    (question,) = server.client().call("approvals.list")
    assert out("approve", question["id"][:8]) == "write may be run, this once\n"
    server.client().call("sessions.wait", session="main")
    lines = out("chat", given="bye\n").splitlines()
    assert lines[0].startswith(f"fledge 0.1.0 · {server.address} · ")
    assert lines[-1] == "echo: bye"
    assert list(here.iterdir()) == []


def test_the_token_may_stand_in_a_file_and_the_option_counts_more_than_the_variable(server: Server, here: Path) -> None:
    named = ("--gateway", server.address, "--token-file", str(server.state / TOKEN_FILE))
    assert ask(here, "ps", *named, FLEDGE_GATEWAY=NOWHERE).stdout.startswith("main · idle")
    # A folder that is named counts more than the variable, too.
    done = ask(here, "ps", "--state", "nothing", FLEDGE_GATEWAY=NOWHERE, FLEDGE_GATEWAY_TOKEN=TOKEN)
    assert "nothing: no fledge.db there" in done.stderr


class Quiet(http.server.BaseHTTPRequestHandler):
    """Knows no request, and says so to the client alone."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@contextmanager
def web_server() -> Iterator[str]:
    """A server that is no gateway."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{one.server_port}"
        finally:
            one.shutdown()
            thread.join()


@pytest.mark.parametrize("line", [["ps"], ["kill", "all"], ["spawn", "dig"], ["run", "hello"], ["chat"]], ids=" ".join)
def test_why_no_gateway_answers_is_one_line(server: Server, here: Path, line: list[str]) -> None:
    def refused(address: str, token: str) -> str:
        done = ask(here, *line, "--gateway", address, FLEDGE_GATEWAY_TOKEN=token)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        return done.stderr

    assert f"the gateway at {server.address} answered 401: the token is not its token" in refused(server.address, TOKEN)
    assert f"the gateway at {NOWHERE} does not answer" in refused(NOWHERE, TOKEN)
    with web_server() as address:
        assert f"the gateway at {address} answered 501: it is not a fledge gateway" in refused(address, TOKEN)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["ps", "--gateway", NOWHERE], "--gateway: needs the token in gateway.token of its state folder: set $FLEDGE"),
        (["ps", "--gateway", "nowhere"], "--gateway: must be like http://127.0.0.1:18789 or https://example.org"),
        (["ps", "--gateway", NOWHERE, "--state", "s"], "--gateway: cannot stand beside --state"),
        (
            ["run", "x", "--gateway", NOWHERE, "--set", "tools.allow=[]"],
            "--set: cannot count here: the gateway at http",
        ),
        (["ps", "--token-file", "f"], "--token-file: needs --gateway URL (got 'f')"),
        (["ps", "--gateway", NOWHERE, "--token-file", "f"], "f: cannot be read (No such file or directory)"),
    ],
)
def test_options_that_cannot_go_together_are_refused(here: Path, line: list[str], words: str) -> None:
    done = ask(here, *line)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"fledge: {words}")


WAITING = [
    (["run", "hello"], "nothing is lost: it is answered there: `fledge log` shows it"),
    (["spawn", "dig deep"], "goes on there, `fledge info "),
    (["send", "main", "hello"], "does not answer"),
]
"""Commands that wait, and what they say when the gateway is killed meanwhile."""


def test_a_gateway_that_is_killed_while_commands_wait_is_told_in_plain_words(tmp_path: Path, here: Path) -> None:
    with serving(tmp_path, chat_server.talk) as model, ExitStack() as stack:
        model.hold.touch()
        serve = ("serve", "--port", "0", "--state", "../state", *MODEL)
        serves = stack.enter_context(command.begun(*serve, cwd=workspace(tmp_path), env=model.env))
        assert serves.stdout is not None
        address = serves.stdout.readline().split(" at ")[1].split(";")[0]
        token = (tmp_path / "state" / TOKEN_FILE).read_text().strip()
        env = {"HOME": str(here), "PATH": os.environ["PATH"], "FLEDGE_GATEWAY_TOKEN": token}
        waiting = [command.begun(*line, "--gateway", address, cwd=here, env=env) for line, _ in WAITING]
        for process in waiting:
            stack.enter_context(process)
        until(serves, lambda: model.requests == 2)  # the main conversation's turn, and the run
        until(serves, lambda: "1 unread" in command.fledge("ps", "--state", str(tmp_path / "state")).stdout)
        serves.send_signal(signal.SIGKILL)
        told = [process.communicate(timeout=60) for process in waiting]
        serves.communicate(timeout=60)
    assert [process.returncode for process in waiting] == [1, 1, 1]
    for (_, words), (out, err) in zip(WAITING, told, strict=True):
        assert words in out + err
        assert "Traceback" not in err


@pytest.mark.parametrize(
    "address",
    ["http://user:hunter22@127.0.0.1:9", "https://hunter22@host", "http://:hunter22@[::1]:9/", "http://host:99999",
     "http://host:x", "http://ho\tst:9"],
)  # fmt: skip
@pytest.mark.parametrize("token", ["", TOKEN])
def test_an_address_with_a_password_or_no_right_port_is_refused_without_repeating_a_password(
    here: Path, address: str, token: str
) -> None:
    env = {"FLEDGE_GATEWAY_TOKEN": token} if token else {}
    for done in (ask(here, "ps", "--gateway", address, **env), ask(here, "ps", FLEDGE_GATEWAY=address, **env)):
        assert done.returncode != 0
        assert re.search("(--gateway|FLEDGE_GATEWAY): must be", done.stderr)
        assert "hunter22" not in done.stderr + done.stdout
