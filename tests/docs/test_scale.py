"""docs/scale.md does what it says: its commands on a real server, with three workers and two gateways; its file for
Docker Compose has services that start, as plain processes, and one folder for all."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli import command
from tests.docs.clone import ROOT
from tests.left_out import requires
from tests.store.postgres import Server, running

PAGE = (ROOT / "docs" / "scale.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def server() -> Iterator[Server]:
    requires("postgresql")
    with running() as found:
        found.sql("CREATE DATABASE fledge")
        yield found


def test_three_workers_and_two_gateways_work_as_shown(server: Server, tmp_path: Path) -> None:
    settings, work = tmp_path / ".config" / "fledge", tmp_path / "work"
    settings.mkdir(parents=True)
    work.mkdir()
    (settings / "fledge.json5").write_text('{agents: {defaults: {model: "scripted/echo"}}}')
    shown = "\n".join(blocks("sh"))
    script = shown.replace("127.0.0.1:5432", f"127.0.0.1:{server.port}")
    script, ports = re.subn(r"--port \d+", "--port 0", script)
    assert ports == 2
    env = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "HOME": str(tmp_path)}
    ending = "trap 'kill -9 $(jobs -p) 2> /dev/null || true' EXIT\n"
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{ending}{script}"], cwd=work, env=env, capture_output=True, text=True, timeout=120
    )
    logs = {path.name: path.read_text() for path in sorted(work.glob("*.log"))}
    assert done.returncode == 0, (done.stdout, done.stderr, logs)
    assert "other settings" not in done.stderr  # a gateway that listens elsewhere, a command that only decides
    lines = done.stdout.splitlines()
    started = [line.split()[:2] for line in lines if " runs agents of " in line or line.startswith("fledge serves ")]
    assert started == [["fledge", "worker"]] * 3 + [["fledge", "serves"]] * 2
    answers = [lines.index(words) for words in ("Say hello", "Say hello, too", "Say hello once more")]
    assert answers == sorted(answers)
    assert [line for line in lines if line.startswith("fail")] == []
    ended = [name for name, log in logs.items() if "ended; other workers go on with its sessions" in log]
    assert ended == ["worker-2.log", "worker-3.log"]
    assert [name for name, log in logs.items() if "Traceback" in log or " ERROR " in log] == []


def test_a_worker_that_cannot_start_is_not_waited_for(tmp_path: Path) -> None:
    first = blocks("sh")[0].partition("fledge serve")[0].replace("127.0.0.1:5432", "127.0.0.1:1")
    env = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "HOME": str(tmp_path)}
    (tmp_path / "work").mkdir()
    (tmp_path / ".config" / "fledge").mkdir(parents=True)
    (tmp_path / ".config" / "fledge" / "fledge.json5").write_text('{agents: {defaults: {model: "scripted/echo"}}}')
    done = subprocess.run(
        ["bash", "-c", first], cwd=tmp_path / "work", env=env, capture_output=True, text=True, timeout=60
    )
    said = done.stdout.splitlines()
    assert said, "the loop ends with the first worker that does"
    assert all("cannot be opened (connection failed" in line for line in said)


class Composed:
    """The services of the file for Docker Compose as plain processes: volumes are folders of a test, the database is
    its server, and each process has a port of its own. What ends with an error is started again, as the file says."""

    def __init__(self, server: Server, folder: Path) -> None:
        (text,) = blocks("yaml")
        services: dict[str, Any] = msgspec.yaml.decode(text.replace("${DB_PASSWORD}", "pass"))["services"]
        self.names = {"db", "worker", "gateway"}
        assert set(services) == self.names
        self.services = {name: services[name] for name in ("worker", "gateway")}
        self._server, self._folder = server, folder
        self.processes: dict[str, list[subprocess.Popen[str]]] = {"worker": [], "gateway": []}
        for volume in ("state", "work", "home"):  # no settings: the file says all that is needed
            (folder / volume).mkdir(parents=True)

    def start(self, name: str) -> "subprocess.Popen[str]":
        service = self.services[name]
        volumes = dict(reversed(one.split(":")) for one in service["volumes"])
        assert service["image"] == "fledge"
        assert volumes == {"/state": "state", "/work": "work"}, "what the image of deploy.md uses"
        env = {
            **{key: str(value) for key, value in service["environment"].items()},
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(self._folder / "home"),
            "FLEDGE_STATE": str(self._folder / "state"),
        }
        env["FLEDGE_STORE"] = env["FLEDGE_STORE"].replace("@db/", f"@127.0.0.1:{self._server.port}/")
        here = {"0.0.0.0": "127.0.0.1", "openai/gpt-5": "scripted/echo"}
        command = [here.get(word, word) for word in service["command"]]
        assert "scripted/echo" in command
        command += ["--port", "0"] if name == "gateway" else []
        process = subprocess.Popen(
            command, cwd=self._folder / "work", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.processes[name].append(process)
        return process

    def up(self) -> list[str]:
        """Start everything at once; the first line of each gateway, when all are ready."""
        started = {
            name: [self.start(name) for _ in range(one["deploy"]["replicas"])] for name, one in self.services.items()
        }
        lines = {name: [self._line(name, process) for process in some] for name, some in started.items()}
        assert all("runs agents of" in line for line in lines["worker"])
        return lines["gateway"]

    def _line(self, name: str, process: "subprocess.Popen[str]") -> str:
        """The first line that it says, or one that is started in its place."""
        for _ in range(20):
            assert process.stdout is not None
            if line := process.stdout.readline():
                return line.strip()
            assert self.services[name]["restart"] == "unless-stopped"
            process = self.start(name)
        raise AssertionError(process.communicate())

    def down(self) -> list[int]:
        """Stop what runs, as Compose does; the exit codes."""
        running = [process for some in self.processes.values() for process in some if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        grace_s = float(self.services["worker"]["stop_grace_period"].removesuffix("s"))
        for process in running:
            process.communicate(timeout=grace_s)
        return [process.returncode for process in running]

    def end(self) -> None:
        for process in (process for some in self.processes.values() for process in some):
            process.kill()
            process.communicate()


def test_the_file_for_compose_starts_three_workers_and_two_gateways_in_any_order(
    server: Server, tmp_path: Path
) -> None:
    composed = Composed(server, tmp_path)
    try:
        addresses = [line.partition(" at ")[2].partition("; the token is in ") for line in composed.up()]
        alive = {name: [one for one in some if one.poll() is None] for name, some in composed.processes.items()}
        assert {name: len(some) for name, some in alive.items()} == {"worker": 3, "gateway": 2}
        for number, (address, _, token) in enumerate(addresses):
            env = {"HOME": str(tmp_path / "home")}
            there = ["--gateway", address, "--token-file", token]
            done = command.fledge("run", f"hello {number}", "--quiet", *there, cwd=tmp_path / "work", env=env)
            assert (done.stdout, done.stderr) == (f"hello {number}\n", "")
        assert composed.down() == [0] * 5
    finally:
        composed.end()
