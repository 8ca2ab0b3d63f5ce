"""What is decided in a folder that nobody drives: its settings hold, and nothing in it goes on."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.scripted import ScriptedModel, echo
from fledge.store.files import DATABASE
from tests.cli.command import fledge as command
from tests.cli.holding import never
from tests.rows import look
from tests.statements import proves

HOOK = '{hooks: {ops: {url: "https://ops.example/hook", secretEnv: "OPS_SECRET", on: ["subagent_ended"]}}}'

LOOKING = """
import asyncio, sys
from pathlib import Path
from fledge.client.local import AtRest
found = asyncio.run(AtRest(Path(sys.argv[1]), lambda: None).call(sys.argv[2], {}))
print(*(name for name in sys.argv[3:] if name in sys.modules))
"""
DRIVES = [
    "aiohttp",
    "fledge.api.fledge",
    "fledge.config",
    "fledge.models",
    "fledge.orchestrator.engine",
    "fledge.runtime",
    "fledge.tools",
    "fledge.workspaces",
]
"""What only a process that drives a folder needs."""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A folder with a run that is under way, and nobody who drives it."""

    async def begin(fl: fledge.Fledge) -> None:
        await fl.spawn("dig", label="digger")

    folder = tmp_path / "state"
    fledge.run_sync(begin, folder, model=ScriptedModel(never), config={})
    return folder


@proves("6.hooks.9", "A command that decides something in a folder that nobody drives calls the hooks of the settings")
@pytest.mark.parametrize(("settings", "posts"), [(HOOK, 1), ("{}", 0)])
def test_a_kill_is_told_to_the_hooks_of_the_settings(state: Path, tmp_path: Path, settings: str, posts: int) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "fledge.json5").write_text(settings)
    env = {"HOME": str(tmp_path), "FLEDGE_CONFIG": str(folder), "OPS_SECRET": "s" * 32}
    done = command("kill", "digger", "--state", str(state), cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (0, "killed 1\n"), done.stderr
    assert look(state, lambda tx: tx.outbox.count_waiting()) == posts


def test_nothing_goes_on_while_somebody_looks_or_decides(state: Path) -> None:
    async def main() -> tuple[str, Any]:
        async with fledge.open(state, model=ScriptedModel(never), config={}, drives=False) as fl:
            run = next(iter(await fl.tree()))
            await asyncio.sleep(0)
            return run.phase, await fl.engine.store.read(lambda tx: tx.drivers.all())

    before = (state / DATABASE).read_bytes()
    phase, drivers = asyncio.run(main())
    assert phase in ("queued", "running")
    assert drivers == look(state, lambda tx: tx.drivers.all())
    assert (state / DATABASE).read_bytes() == before


@pytest.mark.parametrize("command_line", [["ps"], ["tree"]])
def test_a_folder_that_nobody_drives_says_so(state: Path, command_line: list[str]) -> None:
    done = command(*command_line, "--state", str(state))
    assert done.stdout.splitlines()[-1] == "no process is at work here: `fledge run --continue` continues"
    assert "without a free slot" not in done.stdout


def test_where_no_conversation_has_begun_there_is_nothing_to_kill(state: Path) -> None:
    done = command("kill", "all", "--state", str(state))
    assert (done.returncode, done.stdout) == (0, "killed 0\n"), done.stderr


@pytest.mark.parametrize("query", ["overview", "runs.tree", "sessions.list", "undelivered.list"])
def test_a_query_imports_nothing_that_drives(state: Path, query: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOOKING, state, query, *DRIVES], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


COMMAND = """
import sys
from fledge.cli.main import main
code = main(sys.argv[2].split() + ["--state", sys.argv[1]])
print("imported", *[name for name in sys.argv[3:] if name in sys.modules])
sys.exit(code)
"""
"""Does a command, then says which of these modules it has imported."""
RENDERS = ("fledge.cli.rendering", "fledge.commands.lines")
RESTS = ("fledge.client.resting", "fledge.store.base", "fledge.store.sqlite")


def imported(state: Path, line: str, modules: Sequence[str]) -> list[str]:
    """Which of these modules a command imports, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", COMMAND, state, line, *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:]


def test_ps_imports_nothing_that_drives_and_for_programs_nothing_that_shows(state: Path) -> None:
    assert imported(state, "ps", DRIVES) == []
    assert imported(state, "ps --json", [*DRIVES, *RENDERS]) == []
    assert imported(state, "ps", RENDERS) == list(RENDERS), "these are the modules that show it"


def test_ps_through_a_holder_imports_no_store(state: Path) -> None:
    async def main() -> list[str]:
        async with fledge.open(state, model=ScriptedModel(echo), config={}):
            return await asyncio.to_thread(imported, state, "ps", [*DRIVES, *RESTS])

    assert asyncio.run(main()) == []
    assert imported(state, "ps", RESTS) == list(RESTS)
