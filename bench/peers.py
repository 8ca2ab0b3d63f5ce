"""Other libraries doing the same: N children of one parent, two model calls and a tool call each, a model in-process.

The programs are those of the peer benchmarks (`../shared/bench/peers`); each library has an environment of its own in
`bench/.venv-peers/`, made by `python -m bench.peers install [NAME …]`. What is not there is not measured, and why is
said. Most of them keep nothing over a crash: what they do and do not promise is in the name of each line.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

FOLDER = Path(__file__).parent / ".venv-peers"
PROGRAMS = Path(__file__).resolve().parents[2] / "shared" / "bench" / "peers"
INSTALL_S = 900
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Peer:
    """A library, how it is installed, and the ways in which it is measured."""

    name: str
    packages: tuple[str, ...]
    ways: Mapping[str, tuple[str, ...]]
    """What is promised, and the program with its arguments; the number of children comes last."""
    env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By what is promised: variables of the environment."""


PEERS = (
    Peer("openai-agents", ("openai-agents",), {"not durable": ("bench_openai_agents.py", "fake")}),
    Peer(
        "pydantic-ai",
        ("pydantic-ai-slim[openai,dbos]", "pydantic-ai-harness"),
        {
            "not durable": ("bench_pydantic_ai.py", "plain", "fake"),
            "durable by DBOS": ("bench_pydantic_ai.py", "dbos", "fake"),
        },
    ),
    Peer(
        "deepagents",
        ("deepagents", "langchain-openai", "langgraph-checkpoint-sqlite"),
        {
            "lean, not durable": ("bench_deepagents.py", "lean", "fake"),
            "lean, SQLite checkpoints": ("bench_deepagents.py", "lean", "fake"),
        },
        {"lean, SQLite checkpoints": {"CKPT": "sqlite"}},
    ),
    Peer("agent-framework", ("agent-framework-core",), {"not durable": ("bench_msaf.py",)}),
    Peer("nanobot", ("nanobot-ai",), {"not durable": ("bench_nanobot.py",)}),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU of a child, or why there is none."""

    what: str
    cpu_ms: float | None
    detail: str


def measured(children: int, rounds: int, folder: Path = FOLDER) -> Iterator[Measured]:
    """Every way of every library that is installed in the folder, medians of the rounds; why not, of the others."""
    if not PROGRAMS.is_dir():
        yield Measured("peers", None, f"not measured: no {PROGRAMS}")
        return
    for peer in PEERS:
        python = folder / peer.name / "bin" / "python"
        if not python.exists():
            yield Measured(peer.name, None, f"not installed: python -m bench.peers install {peer.name}")
            continue
        for promise, (program, *arguments) in peer.ways.items():
            command = [str(python), "-B", str(PROGRAMS / program), *arguments, str(children)]
            yield _median(f"{peer.name}, {promise}", command, peer.env.get(promise, {}), rounds)


def _median(what: str, command: list[str], env: Mapping[str, str], rounds: int) -> Measured:
    found = []
    for _ in range(rounds):
        try:
            done = subprocess.run(
                command, env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", **env}, capture_output=True, text=True,
                timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Measured(what, None, f"not measured: over {TIMEOUT_S} s")
        said = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if not said:
            why = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            return Measured(what, None, f"not measured: {why[:80]}")
        found.append(json.loads(said[-1].removeprefix("RESULT ")))
    return Measured(what, median(one["cpu_ms_per_child"] for one in found), str(found[0]["lib"]))


def install(names: list[str]) -> int:
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


def main(arguments: list[str]) -> int:
    """`install [NAME …]`, or measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install").add_argument("names", nargs="*", choices=[[], *(peer.name for peer in PEERS)])
    commands.add_parser("measure").add_argument("children", type=int, nargs="?", default=100)
    asked = parser.parse_args(arguments)
    if asked.command == "install":
        return 1 if install(asked.names) else 0
    for one in measured(asked.children, 1):
        print(f"{one.what}: {one.detail}" if one.cpu_ms is None else f"{one.what}: {one.cpu_ms:.2f} ms ({one.detail})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
