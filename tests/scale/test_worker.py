"""`fledge worker` and `fledge serve --store` as processes: what they say, what they do, and how they end."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fledge.models.scripted import ScriptedReply
from tests.cli import command
from tests.cli.model_server import Model, serving, until
from tests.scale.test_store_option import Desk, unfinished
from tests.statements import proves
from tests.store.postgres import Server

PATIENCE_S = 60


@pytest.fixture
def desk(server: Server, tmp_path: Path) -> Desk:
    return Desk(server, tmp_path)


@contextmanager
def started(desk: Desk, *line: str) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """A command that runs until it is told to end, and the first lines that it prints."""
    process = command.begun(*line, "--store", desk.url, cwd=desk.folder / "work", env=desk.env)
    assert process.stdout is not None
    try:
        count = 4 if line == ("worker",) else 1
        yield process, [process.stdout.readline().rstrip("\n") for _ in range(count)]
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def end(process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    """Tell it to end: its exit code, and what else it printed."""
    process.send_signal(number)
    said, trouble = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in trouble
    return process.returncode, said


@proves(
    "7.server.19", "A worker drives what is unfinished in its store, and ends in order with exit code 0 when told to"
)
def test_a_worker_drives_what_is_unfinished_and_ends_in_order(desk: Desk) -> None:
    unfinished(desk)
    with started(desk, "worker") as (process, said):
        shown = desk.url.replace("?", "?")
        assert said == [
            f"fledge worker {process.pid} runs agents of {shown}",
            f"files: {next((desk.folder / 'own' / 'stores').iterdir())}",
            "lanes: main 4, subagent 8, nested 1",
            "agents: main",
        ]
        assert "done" in desk.told("tree", "--watch")
        assert (
            f"ok    workers      1: process {process.pid} on "
            in desk.do("doctor", "--offline", "--store", desk.url).stdout
        )
        assert end(process) == (0, "ended; other workers go on with its sessions\n")
    assert desk.told("tree", "--active") == "no runs\n"


@proves("7.server.19")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_speaks_json_and_ends_by_each_signal(desk: Desk, number: signal.Signals) -> None:
    with started(desk, "worker", "--json") as (process, said):
        told = json.loads(said[0])
        assert (told["type"], told["pid"], told["store"]) == ("worker", process.pid, desk.url)
        assert (told["agents"], told["lanes"]["main"]) == (["main"], 4)
        code, rest = end(process, number)
        assert (code, json.loads(rest)) == (0, {"type": "ended"})


def test_a_worker_needs_a_store_and_a_model(desk: Desk) -> None:
    assert "--store: must be the address of a PostgreSQL server" in desk.do("worker").stderr
    assert "--store: is empty: give the address" in desk.do("worker", "--store", "", FLEDGE_STORE=desk.url).stderr
    for line, env in ((("--store", "./state"), {}), ((), {"FLEDGE_STORE": "./state"})):
        refused = desk.do("ps", *line, **env).stderr
        assert "must be an address that begins with postgresql://; a folder is given by --state" in refused
    for needs in (("worker",), ("serve", "--no-drive")):
        line = (*needs, "--state", str(desk.folder / "own"))
        assert "give --store too" in desk.do(*line, FLEDGE_STORE=desk.url).stderr
        assert "FLEDGE_STORE does not count" not in desk.do(*line).stderr
    (desk.folder / "config" / "fledge.json5").unlink()
    done = desk.do("worker", "--store", desk.url)
    assert (done.returncode, "no model is set" in done.stderr) == (1, True)
    assert "--no-drive: needs --store" in desk.do("serve", "--no-drive").stderr


@contextmanager
def two_workers(desk: Desk, folder: Path) -> Iterator[tuple["subprocess.Popen[str]", "subprocess.Popen[str]", Model]]:
    """A worker whose model is asked and holds its answer, and a second worker that has nothing to do yet."""
    with serving(folder, lambda body: ScriptedReply("dug")) as model:
        model.hold.touch()
        desk.env |= {name: model.env[name] for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY")}
        (desk.folder / "config" / "fledge.json5").write_text('{agents: {defaults: {model: "openai/gpt-test"}}}')
        unfinished(desk)
        with started(desk, "worker") as (first, _):
            until(first, lambda: model.requests == 1)
            with started(desk, "worker") as (second, _):
                yield first, second, model


@proves("7.engines.8")
def test_a_worker_that_is_told_to_end_hands_its_session_over(desk: Desk, tmp_path: Path) -> None:
    """No lease is waited for: the next worker asks the model once the first has ended, and counts no crash."""
    with two_workers(desk, tmp_path) as (first, second, model):
        assert end(first) == (0, "ended; other workers go on with its sessions\n")
        until(second, lambda: model.requests == 2)
        model.hold.unlink()
        shown = desk.told("tree", "--watch")
        assert ("done" in shown, "crash" in shown) == (True, False)
        assert end(second)[0] == 0


@proves("7.engines.20")
def test_a_worker_says_which_one_has_died(desk: Desk, tmp_path: Path) -> None:
    with two_workers(desk, tmp_path) as (first, second, model):
        first.kill()
        first.wait()
        until(second, lambda: model.requests == 2)
        model.hold.unlink()
        assert "done" in desk.told("tree", "--watch")
        second.send_signal(signal.SIGTERM)
        _, logged = second.communicate(timeout=PATIENCE_S)
    who = f"process {first.pid} on {socket.gethostname()}"
    assert [line for line in logged.splitlines() if f"{who} has died: other processes go on with its work" in line]


@proves("7.server.20", "A gateway on a store of a server answers with an engine of its own, or without one")
@pytest.mark.parametrize("drives", [True, False])
def test_a_gateway_on_a_store_of_a_server_answers(desk: Desk, drives: bool) -> None:
    unfinished(desk)
    with started(desk, "serve", "--port", "0", *([] if drives else ["--no-drive"])) as (process, said):
        serves, _, rest = said[0].partition(" at ")
        address, _, token = rest.partition("; the token is in ")
        assert serves == f"fledge serves {desk.url}"
        there = ["--gateway", address, "--token-file", token]
        shown = command.fledge("tree", *there, cwd=desk.folder / "work", env=desk.env | {"FLEDGE_STORE": ""})
        assert (shown.returncode, "digger" in shown.stdout) == (0, True), shown.stderr
        if not drives:
            assert "digger" in desk.told("tree", "--active")
            killed = command.fledge("kill", "digger", *there, cwd=desk.folder / "work", env=desk.env)
            assert (killed.stdout, killed.stderr) == ("killed 1\n", "")
        assert end(process)[0] == 0
    assert not os.path.exists(desk.folder / "own" / "stores" / "hatch")
