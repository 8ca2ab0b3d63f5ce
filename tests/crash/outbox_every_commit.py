"""Run a scenario that leaves notes in real processes, end one before or after each of its transactions, start another
on what it left, crash that too, and judge the end. Prints one JSON line: how many points, and what was wrong.

    python -m tests.crash.outbox_every_commit [--scenario NAME] [--step K] [--offset I]

`--scenario` is a module of this folder with `perform` and `verdict`, both of which are given the folder for its notes.
"""

import argparse
import importlib
import json
import mmap
import struct
import sys
import tempfile
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Protocol, cast

from fledge.clock import Clock
from fledge.store.base import Store, Tx
from fledge.testing import START, CrashPoint, InlineStore, SharedClock, VirtualClock, run_virtual
from tests.crash.every_commit import CRASHED, When, in_a_process
from tests.crash.outbox_scenario import notes


class Scenario(Protocol):
    """What is performed, and how its end is judged."""

    def perform(self, store: Store, clock: Clock, folder: Path) -> Coroutine[None, None, None]: ...
    def verdict(self, tx: Tx, folder: Path) -> list[str]: ...


def transactions(scenario: Scenario) -> int:
    """How many transactions it takes when nothing goes wrong."""
    with tempfile.TemporaryDirectory() as folder:
        counter = CrashPoint(InlineStore(folder), sys.maxsize, "before")
        run_virtual(scenario.perform(counter, VirtualClock(), Path(folder)))
        return counter.begun


def play(scenario: Scenario, folder: Path, memory: mmap.mmap, nth: int, when: When) -> None:
    """One process's part, with a crash at the chosen transaction."""
    run_virtual(scenario.perform(CrashPoint(InlineStore(folder), nth, when, CRASHED), SharedClock(memory), folder))


def crash_at(scenario: Scenario, nth: int, when: When, again: int) -> tuple[list[str], int]:
    """Crash there, and once more in the recovery, then let it end; answers what is wrong, and how many calls there
    were beyond those needed."""
    with tempfile.TemporaryDirectory() as name, mmap.mmap(-1, 8) as memory:
        folder = Path(name)
        memory[:8] = struct.pack("d", START)
        for point in (nth, again):
            code = in_a_process(partial(play, scenario, folder, memory, point, when))
            if code not in (CRASHED, 0):
                return [f"a process died with {code}"], 0
        code = in_a_process(lambda: play(scenario, folder, memory, sys.maxsize, "before"))
        if code != 0:
            return [f"the last process died with {code}"], 0
        store = InlineStore(folder)
        wrong = store.run(lambda tx: scenario.verdict(tx, folder))
        store.close_now()
        arrived = notes(folder, "arrived")
        return wrong, len(arrived) - len({key for key, _, _ in arrived})


def main() -> int:
    """Judge all points asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", default="outbox_scenario")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    options = parser.parse_args()
    scenario = cast(Scenario, importlib.import_module(f"tests.crash.{options.scenario}"))
    total = transactions(scenario)
    points: list[tuple[int, When]] = [(n, when) for n in range(1, total + 1) for when in ("before", "after")]
    chosen = points[options.offset :: options.step]
    ends = {f"{when} {nth}": crash_at(scenario, nth, when, 1 + nth % 5) for nth, when in chosen}
    wrong = {point: found for point, (found, _) in ends.items() if found}
    repeated = sum(more for _, more in ends.values())
    print(json.dumps({"transactions": total, "points": len(chosen), "repeated": repeated, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
