"""docs/scale.md does what it says: its commands on a real server, with three workers and two gateways; its file for
Docker Compose has commands that exist, and one folder for all."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fledge.cli.main import parse
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
    assert lines[0] == "Say hello"
    assert "Say hello, too" in lines
    assert "Say hello once more" in lines
    assert [line for line in lines if line.startswith("fail")] == []
    ended = [name for name, log in logs.items() if "ended; other workers go on with its sessions" in log]
    assert ended == ["worker-2.log", "worker-3.log"]
    assert [name for name, log in logs.items() if "Traceback" in log or " ERROR " in log] == []


def test_the_file_for_compose_names_commands_that_exist_and_one_folder_for_all() -> None:
    (text,) = blocks("yaml")
    commands = re.findall(r"^    command: \[fledge, (.*)\]$", text, re.MULTILINE)
    assert [parse(line.split(", ")).name for line in commands] == ["worker", "serve"]
    assert re.findall(r"replicas: (\d)", text) == ["3", "2"]
    # The gateway has what the worker has, unless it says otherwise; only the database has a volume of its own.
    assert "  gateway:\n    <<: *fledge\n" in text
    assert re.findall(r"^    volumes: (.*)$", text, re.MULTILINE) == [
        "[db:/var/lib/postgresql/data]",
        "[state:/state, work:/work]",
    ]
