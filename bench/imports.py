"""What starting costs: CPU of a fresh interpreter that imports something, beside one that does nothing.

Each figure is the median of fresh processes, user and system time, after one that is not counted (it writes the
byte-code). The processes take turns, so that a busy moment hits all alike.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median

from bench.measure import children_cpu_s

IMPORTS = ("fledge", "fledge.testing")
TIMEOUT_S = 60


def _cpu_of(command: list[str]) -> float | None:
    """CPU seconds of one process; None if it failed."""
    before = children_cpu_s()
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    return children_cpu_s() - before if done.returncode == 0 else None


def _commands() -> dict[str, list[str]]:
    python = sys.executable
    commands = {"pass": [python, "-c", "pass"]}
    commands |= {f"import {name}": [python, "-c", f"import {name}"] for name in IMPORTS}
    script = Path(python).with_name("fledge")
    if script.exists():
        commands["fledge --help"] = [str(script), "--help"]
    return commands


def start_ms(runs: int) -> dict[str, float | None]:
    """CPU ms of each command (`pass`, imports, the console script if there is one); None for one that fails."""
    commands = _commands()
    works = {name for name, command in commands.items() if _cpu_of(command) is not None}
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name in works:
            cpu = _cpu_of(commands[name])
            if cpu is not None:
                took[name].append(1000 * cpu)
    return {name: median(figures) if figures else None for name, figures in took.items()}
