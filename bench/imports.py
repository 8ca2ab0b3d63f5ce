"""What starting costs: CPU of a fresh interpreter that imports something or runs a command, beside an idle one.

Each figure is the median of fresh processes, user and system time, after one that is not counted: it writes the
byte-code, into a folder of the measurement's own, whatever the environment says, because an installed package has its
byte-code. The processes take turns, so that a busy moment hits all alike. `fledge ps` is run on two folders with the
same runs: one that no process holds, and one that a gateway holds, which answers through its private socket.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import fledge
from bench.measure import children_cpu_s
from fledge.models.scripted import ScriptedModel, echo
from fledge.orchestrator.spawn_params import SpawnParams

IMPORTS = ("fledge", "fledge.testing")
RUNS = 10
ROOM = {"agents": {"defaults": {"subagents": {"maxChildrenPerAgent": RUNS}}}}
"""Finished runs in the folders that `fledge ps` shows."""
TIMEOUT_S = 60


def start_ms(runs: int) -> dict[str, float | None]:
    """CPU ms of each command (`pass`, imports, the console script if there is one); None for one that fails."""
    with tempfile.TemporaryDirectory() as folder, _commands(Path(folder)) as commands:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        works = {name for name, command in commands.items() if _cpu_of(command, env) is not None}
        took: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name in works:
                cpu = _cpu_of(commands[name], env)
                if cpu is not None:
                    took[name].append(1000 * cpu)
    return {name: median(figures) if figures else None for name, figures in took.items()}


def nothing_ms(runs: int) -> float:
    """CPU ms of an interpreter that does nothing."""
    took = [_cpu_of([sys.executable, "-c", "pass"], dict(os.environ)) for _ in range(runs)]
    return 1000 * median(one for one in took if one is not None)


def _cpu_of(command: list[str], env: dict[str, str]) -> float | None:
    """CPU seconds of one process; None if it failed."""
    before = children_cpu_s()
    done = subprocess.run(command, env=env, capture_output=True, timeout=TIMEOUT_S, check=False)
    return children_cpu_s() - before if done.returncode == 0 else None


@contextmanager
def _commands(folder: Path) -> Iterator[dict[str, list[str]]]:
    """The commands to measure, by the name of their line."""
    python = sys.executable
    commands = {"pass": [python, "-c", "pass"]}
    commands |= {f"import {name}": [python, "-c", f"import {name}"] for name in IMPORTS}
    script = Path(python).with_name("fledge")
    if not script.exists():
        yield commands
        return
    free, held = folder / "free", folder / "held"
    fledge.run_sync(_spawn_runs, free, model=ScriptedModel(echo), config=ROOM)
    shutil.copytree(free, held)
    commands["fledge --help"] = [str(script), "--help"]
    commands["fledge ps, a folder that no process holds"] = [str(script), "ps", "--state", str(free)]
    commands["fledge ps, through the holder's socket"] = [str(script), "ps", "--state", str(held)]
    with _holding(script, held):
        yield commands


async def _spawn_runs(fl: fledge.Fledge) -> None:
    """Let the main conversation have runs that are finished."""
    main = fl.session("main")
    await main.send("Hello")
    caller = await fl.spawner.caller_for(main.key)
    for number in range(RUNS):
        await fl.spawner.spawn(SpawnParams(task=f"task {number}", label=f"run {number}"), caller)
    await main.settled()


@contextmanager
def _holding(script: Path, state: Path) -> Iterator[None]:
    """A gateway holds the folder while the block lasts. Its CPU is not counted: it is waited for only in the end."""
    command = [str(script), "serve", "--state", str(state), "--port", "0"]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()  # it says where it listens once it can be asked
        yield
    finally:
        holder.terminate()
        holder.communicate(timeout=TIMEOUT_S)
