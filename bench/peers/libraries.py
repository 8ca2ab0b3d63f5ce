"""The libraries that fledge is compared with, how each is installed, and what a child costs there.

Each library has an environment of its own in `bench/.venv-peers/`. A program of `bench/peers/programs` runs in it, with
this repository's `bench.measure` and nothing else of ours. What is not installed is not measured, and the line says so.
Most libraries keep nothing over a crash: the name of each line says what is promised.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

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
    Peer("deepagents", ("deepagents",), "deepagents"),
    Peer("agent-framework", ("agent-framework-core",), "agent_framework"),
    Peer("nanobot", ("nanobot-ai",), "nanobot"),
)


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which a library is measured, or why it is not."""

    what: str
    command: tuple[str, ...] = ()
    """Lets so many children live, and prints what that took; empty if the library is not there."""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a child costs there, beside one of ours: CPU of each round, taken in turns. Without rounds, why not."""

    what: str
    library: str
    theirs_ms: tuple[float, ...] = ()
    ours_ms: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        """How many times as much as ours."""
        return median(self.theirs_ms) / median(self.ours_ms)


def ways(children: int, folder: Path = FOLDER) -> Iterator[Way]:
    """Every way of every library that is installed in the folder; of the others, that they are not."""
    for peer in PEERS:
        python = folder / peer.name / "bin" / "python"
        if not python.exists():
            yield Way(peer.name, missing=f"not installed: python -m bench.peers install {peer.name}")
            continue
        for promise, arguments in peer.ways:
            module = f"bench.peers.programs.{peer.program}"
            yield Way(f"{peer.name}, {promise}", (str(python), "-B", "-m", module, *arguments, str(children)))


def measured(way: Way, rounds: int, ours: Callable[[], float]) -> Measured:
    """A way of a library beside ours, which answers what a child of ours costs, in ms; they take turns."""
    if way.missing:
        return Measured(way.what, way.missing)
    library, theirs_ms, ours_ms = "", list[float](), list[float]()
    for _ in range(rounds):
        try:
            found = _once(way.command)
        except subprocess.TimeoutExpired:
            return Measured(way.what, f"not measured: over {TIMEOUT_S} s")
        except RuntimeError as error:
            return Measured(way.what, f"not measured: {str(error)[:80]}")
        library = str(found["library"])
        theirs_ms.append(float(found["cpu_ms"]))
        ours_ms.append(ours())
    return Measured(way.what, library, tuple(theirs_ms), tuple(ours_ms))


def _once(command: Sequence[str]) -> dict[str, Any]:
    """What one run of a program printed. RuntimeError: its last words, because it printed nothing."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    printed = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not printed:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it printed nothing"])[-1])
    result: dict[str, Any] = json.loads(printed[-1].removeprefix(RESULT))
    return result


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
