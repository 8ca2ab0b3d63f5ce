"""`fledge serve` as a process: commands go through it while it holds the folder, SIGTERM ends it in order, kill -9
loses nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fledge.store.lock import holder_of
from fledge.store.ways import CONTROL_SOCKET, read_token
from tests.cli.command import ageless, fledge
from tests.gateway.asking import Client, Hatch, find
from tests.statements import proves


class Folder:
    """A state folder and the commands on it."""

    def __init__(self, tmp_path: Path) -> None:
        self.state, self.work = tmp_path / "state", tmp_path / "work"
        self.work.mkdir()
        self.env = os.environ | {"HOME": str(tmp_path), "FLEDGE_STATE": str(self.state), "PYTHONUNBUFFERED": "1"}

    def client(self) -> Client:
        """A client of the gateway's address, as the folder's lock names it."""
        holder = holder_of(self.state / "lock")
        assert holder is not None
        return Client(holder.address, read_token(self.state))

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "fledge.cli.main", *arguments]

    def run(self, *arguments: str, code: int = 0) -> str:
        done = fledge(*arguments, cwd=self.work, env=self.env)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    @contextmanager
    def served(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        """A gateway on it; ended by SIGTERM unless the block has ended it."""
        arguments = self.command("serve", "--port", "0", "--model", "scripted/echo", *options)
        with subprocess.Popen(
            arguments, cwd=self.work, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            try:
                assert line.startswith(f"fledge serves {self.state} at http://127.0.0.1:"), process.stderr
                assert read_token(self.state) not in line
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
            _, errors = process.communicate(timeout=30)
            if process.returncode != -signal.SIGKILL:
                assert process.returncode == 0
                assert [line for line in errors.splitlines() if " INFO fledge." not in line] == []


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@proves("8.gateway.5")
def test_commands_go_through_the_gateway_that_holds_the_folder_and_without_one_to_the_folder(folder: Folder) -> None:
    with folder.served():
        assert folder.run("run", "say this") == "say this\n"
        assert folder.run("send", "main", "and this") == "and this\n"
        assert folder.run("spawn", "a task", "--label", "child") == "a task\n"
        held = [
            folder.run(*command) for command in (("tree",), ("log", "main"), ("ps",), ("undelivered",), ("sessions",))
        ]
        shown = folder.run("info", "child")
        value = json.loads(folder.run("info", "child", "--json"))
        assert value["label"] == "child"
        assert "no subagent 'nobody'" in folder.run("info", "nobody", code=1)
        assert "has ended" in folder.run("kill", "child", code=1)
        assert "must not be empty" in folder.run("send", "main", " ", code=1)
    free = [folder.run(*command) for command in (("tree",), ("log", "main"), ("ps",), ("undelivered",), ("sessions",))]
    assert list(map(ageless, held)) == list(map(ageless, free))
    assert folder.run("info", "child") == shown
    assert "agent:main:cli" in held[0]


def test_a_gateway_that_is_killed_loses_nothing_and_its_folder_is_free(folder: Folder) -> None:
    with folder.served() as process:
        client = find(folder.state)
        assert client is not None
        spawned = client.call("runs.spawn", program="other", task="survive")
        said = client.call("agent", message="hello")
        process.send_signal(signal.SIGKILL)
    assert find(folder.state) is None, "what it left in the lock's file counts for nothing"
    assert "main" in folder.run("ps")
    with folder.served():
        client = find(folder.state)
        assert client is not None
        assert client.call("runs.result", run=spawned["runId"])["text"] == "survive"
        assert client.call("reply", session="main", run=said["runId"])["text"] == "hello"


def test_a_conversation_goes_on_in_a_terminal_while_a_gateway_holds_the_folder(folder: Folder) -> None:
    def chat(lines: str, *options: str) -> str:
        done = subprocess.run(
            folder.command(*options),
            cwd=folder.work,
            env=folder.env,
            input=lines,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    with folder.served():
        told = chat("say this\n/subagents spawn main dig deep\n/nonsense\n/help\n")
        assert "held by another process, which answers" in told
        assert "\nsay this\n" in told
        assert "started dig deep · run " in told
        assert "there is no such command" in told
        assert "it leaves, as Ctrl-D does" in told
        assert "\ndig deep · done · " in told
        again = chat("")
        assert "› say this\nsay this\n" in again
        assert again.count("dig deep · done") == 1, "its card is restored, once"
    assert "held by another process" not in chat("/quit\n", "--model", "scripted/echo")


def test_sigterm_answers_who_waits_and_ends_in_order(folder: Folder) -> None:
    with folder.served() as process:
        client = folder.client()
        events = client.events(cursor=0)
        client.call("runs.spawn", program="other", task="x")
        assert next(events)["event"] == "Admitted"
        process.terminate()
        last = list(events)[-1]
        assert (last["type"], last["reason"]) == ("closing", "the gateway closes")
    assert process.returncode == 0


def test_a_gateway_with_nonsense_is_refused_readably(folder: Folder) -> None:
    assert "--port: must be 0 to 65535" in folder.run("serve", "--port", "99999", code=1)
    assert "gateway.host: must be an address" in folder.run("serve", "--host", "no such host", code=1)
    with folder.served():
        assert "is in use by process" in folder.run("serve", "--port", "0", code=1)


def test_commands_use_the_private_socket_and_without_it_the_address_with_the_token_of_its_owner(folder: Folder) -> None:
    with folder.served():
        assert isinstance(find(folder.state), Hatch)
        (folder.state / "gateway.token").chmod(0o644)
        assert folder.run("ps") == "main · idle\n"
        (folder.state / CONTROL_SOCKET).unlink()
        assert "can be read by others" in folder.run("ps", code=1)
        (folder.state / "gateway.token").chmod(0o600)
        assert isinstance(find(folder.state), Client)
        assert folder.run("ps") == "main · idle\n"
