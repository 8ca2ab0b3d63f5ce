"""docs/deploy.md does what it says: its unit, its settings and its shell commands, on a real gateway.

Blocks of `sh` are run in order, in one folder. Blocks of `console` need root, Docker or another machine and are only
read by test_commands.py.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from textwrap import indent

import pytest

import fledge
import fledge.testing
from fledge.config.load import parse
from tests.docs.clone import NOWHERE, ROOT

PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


class Machine:
    """A folder with a gateway at work in it, as the page sets one up."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.port = folder, folder / "state", ""
        bin_folder = str(Path(sys.executable).parent)
        self.env = {
            "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
            "HOME": str(folder / "home"),
            "FLEDGE_STATE": str(self.state),
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": NOWHERE,
        }
        settings = folder / "home" / ".config" / "fledge"
        settings.mkdir(parents=True)
        (settings / "fledge.json5").write_text(blocks("json5")[0], "utf-8")
        (folder / "work").mkdir()

    def start(self) -> "subprocess.Popen[str]":
        """Start the gateway by the unit's command, at a free port."""
        (unit,) = blocks("ini")
        command = re.search(r"^ExecStart=/opt/fledge/bin/(.*)$", unit, re.MULTILINE)
        assert command is not None
        with (self.folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*command[1].split(), "--port", "0"],
                cwd=self.folder / "work",
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert process.stdout is not None
        found = re.search(r" at http://127.0.0.1:(\d+);", process.stdout.readline())
        assert found is not None, (self.folder / "log").read_text()
        self.port = found[1]
        return process

    def sh(self, block: str) -> "subprocess.CompletedProcess[str]":
        """Run a block of the page."""
        script = "set -e\n" + block.replace(":18789", f":{self.port}")
        return subprocess.run(
            ["bash", "-c", script], cwd=self.folder / "work", env=self.env, capture_output=True, text=True, timeout=60
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("machine"))
    process = made.start()
    try:
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_health_metrics_backup_and_restore_work_as_shown_while_the_gateway_runs(machine: Machine) -> None:
    assert machine.sh('fledge event --session main "the disk is almost full"').returncode == 0
    health, backup, restore = blocks("sh")
    told = machine.sh(health)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("status    ok: fledge ")
    assert '{"status":"ok"' in told.stdout
    named = re.findall(r"`(fledge_\w+)", PAGE)
    assert [name for name in named if f"# TYPE {name} " not in told.stdout] == []
    for block in (backup, restore):
        told = machine.sh(block)
        assert told.returncode == 0, told.stdout + told.stderr
    assert re.findall(r"^fail .*", told.stdout, re.MULTILINE) == []  # of the doctor; the turn may have failed by then
    assert "no process is at work here: `fledge run --continue` continues" in told.stdout
    assert (machine.folder / "work" / "restored" / "gateway.token").read_text() == (
        machine.state / "gateway.token"
    ).read_text()


def test_the_settings_of_the_page_are_valid() -> None:
    (settings,) = blocks("json5")
    assert list(parse(settings).config.gateway.allowed_hosts) == ["fledge.example.org"]


def test_the_unit_starts_the_gateway_and_systemd_accepts_it(tmp_path: Path) -> None:
    (unit,) = blocks("ini")
    read = ConfigParser(interpolation=None)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(unit)
    assert read.sections() == ["Unit", "Service", "Install"]
    assert read["Service"]["ExecStart"] == "/opt/fledge/bin/fledge serve"
    assert (
        read["Service"]["Environment"]
        .removeprefix("FLEDGE_STATE=")
        .startswith(read["Service"]["ReadWritePaths"].split()[0])
    )
    if shutil.which("systemd-analyze") is None:
        return  # a container without systemd: no other part of the suite needs it
    path = tmp_path / "fledge.service"
    path.write_text(unit.replace("/opt/fledge/bin/fledge", str(Path(sys.executable).parent / "fledge")))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_two_processes_share_a_folder_as_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    code = code.replace('"/var/lib/fledge/state"', repr(str(tmp_path / "state"))).replace('"openai/gpt-5"', "model")
    known: dict[str, object] = {
        "fledge": fledge,
        "model": fledge.testing.ScriptedModel(fledge.testing.echo),
        "reviewer": fledge.Agent("reviewer", instructions="You review."),
    }
    exec(f"async def main():\n{indent(code, '    ')}", known)
    asyncio.run(known["main"]())  # type: ignore[operator]
    assert capsys.readouterr().out == "holds the folder\nReview setup.py\n"
