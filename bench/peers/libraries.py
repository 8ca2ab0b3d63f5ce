"""The libraries that fledge is compared with, how each is installed, and what a child costs there.

Each library has an environment of its own in `bench/.venv-peers/`. A program of `bench/peers/programs` runs in it, with
this repository's `bench.measure` and nothing else of ours. What is not installed is not measured, and the line says so.
Most libraries keep nothing over a crash: the name of each line says what is promised.
"""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.peers.programs import RESULT

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "bench" / ".venv-peers"
INSTALL_S = 900
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Peer:
    """A library, how it is installed, and the ways in which it is measured."""

    name: str
    packages: tuple[str, ...]
    program: str
    """A module of `bench.peers.programs`."""
    ways: tuple[tuple[str, tuple[str, ...]], ...] = (("not durable", ()),)
    """What is promised, with the program's arguments for it; the number of children comes last."""


PEERS = (
    Peer("openai-agents", ("openai-agents",), "openai_agents"),
    Peer(
        "pydantic-ai",
        ("pydantic-ai-slim[dbos]",),
        "pydantic_ai",
        (("not durable", ("plain",)), ("durable by DBOS", ("dbos",))),
    ),
    Peer(
        "langgraph",
        ("langchain", "langgraph-checkpoint-sqlite"),
        "langgraph",
        (("not durable", ("plain",)), ("SQLite checkpoints", ("sqlite",))),
    ),
    Peer("agent-framework", ("agent-framework-core",), "agent_framework"),
    Peer("nanobot", ("nanobot-ai",), "nanobot"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU of a child, or why there is none."""

    what: str
    cpu_ms: float | None
    detail: str


def measured(children: int, rounds: int, folder: Path = FOLDER) -> Iterator[Measured]:
    """Every way of every library that is installed in the folder, medians of the rounds; of the others, why not."""
    for peer in PEERS:
        python = folder / peer.name / "bin" / "python"
        if not python.exists():
            yield Measured(peer.name, None, f"not installed: python -m bench.peers install {peer.name}")
            continue
        for promise, arguments in peer.ways:
            module = f"bench.peers.programs.{peer.program}"
            command = [str(python), "-B", "-m", module, *arguments, str(children)]
            yield _median(f"{peer.name}, {promise}", command, rounds)


def _median(what: str, command: list[str], rounds: int) -> Measured:
    results = []
    for _ in range(rounds):
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Measured(what, None, f"not measured: over {TIMEOUT_S} s")
        printed = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
        if not printed:
            why = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            return Measured(what, None, f"not measured: {why[:80]}")
        results.append(json.loads(printed[-1].removeprefix(RESULT)))
    return Measured(what, median(result["cpu_ms"] for result in results), str(results[0]["library"]))


def install(names: Collection[str]) -> int:
    """Make the environments of these libraries, or of all; answers how many could not be made."""
    failed = 0
    for peer in PEERS:
        if names and peer.name not in names:
            continue
        folder = FOLDER / peer.name
        print(f"… {peer.name}", flush=True)
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *peer.packages],
        ):
            try:
                subprocess.run(command, timeout=INSTALL_S, check=True)
            except (OSError, subprocess.SubprocessError) as error:
                print(f"{peer.name} could not be installed: {error}")
                failed += 1
                break
    return failed
