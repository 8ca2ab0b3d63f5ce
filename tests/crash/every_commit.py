"""Run the scenario in real processes, end one before or after each of its transactions, start another on what it left,
and judge the end. Prints one JSON line: how many points, and what was wrong.

    python -m tests.crash.every_commit [--scenario NAME] [--step K] [--offset I] [--again] [--store URL [--unpipelined]]

`--scenario` is a module of this folder with `perform` and `verdict`; `--step K --offset I` takes every K-th point only;
`--again` crashes the recovery too, at a point of its own; `--store` plays on a PostgreSQL server, each point in a
schema of its own, and with `--unpipelined` statement by statement.
Time is virtual, so a point takes milliseconds; it goes on from where the dead process stood.
"""

import argparse
import asyncio
import importlib
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Literal, Protocol, cast

from fledge.clock import Clock
from fledge.store.base import Store, Tx
from fledge.testing import START, CrashPoint, InlineStore, SharedClock, VirtualClock, run_virtual

When = Literal["before", "after"]
CRASHED = 86
PATIENCE_S = 120


class Scenario(Protocol):
    """What is performed, and how its end is judged."""

    def perform(self, store: Store, clock: Clock) -> Coroutine[None, None, None]: ...
    def verdict(self, tx: Tx) -> list[str]: ...


def in_a_process(work: Callable[[], None]) -> int:
    """Fork, work, and answer the exit code: 0, or whatever it died of. One that never ends dies of its alarm."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE_S)
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


OpenStore = Callable[[Path], Store]
"""Opens the store of one point, by the name of its folder."""


def on_server(url: str, unpipelined: bool) -> OpenStore:
    """Stores on a PostgreSQL server, each in a schema named like its folder."""
    from fledge.store.postgres import PostgresStore
    from tests.store.unpipelined import UnpipelinedStore

    kind = UnpipelinedStore if unpipelined else PostgresStore
    return lambda folder: kind.open(f"{url}?schema={folder.name.lower()}", batch=1)


def play(scenario: Scenario, store: Store, memory: mmap.mmap, nth: int, when: When) -> None:
    """One process's part: the scenario, with a crash at the chosen transaction."""
    run_virtual(_perform(scenario, CrashPoint(store, nth, when, CRASHED), lambda: SharedClock(memory)))


def transactions(scenario: Scenario, open_in: OpenStore) -> int:
    """How many transactions the scenario takes when nothing goes wrong."""
    with tempfile.TemporaryDirectory(prefix="fledge_") as folder:
        counter = CrashPoint(open_in(Path(folder)), sys.maxsize, "before")
        run_virtual(_perform(scenario, counter, VirtualClock))
        return counter.begun


async def _perform(scenario: Scenario, store: Store, clock: Callable[[], Clock]) -> None:
    """Perform it to its end. The clock is made here, in its loop: a store's thread has none."""
    await scenario.perform(store, clock())
    await store.close()


def crash_at(scenario: Scenario, nth: int, when: When, again: int, open_in: OpenStore) -> list[str]:
    """Crash there, perhaps once more in the recovery, then let it end; answers what is wrong with the end."""
    with tempfile.TemporaryDirectory(prefix="fledge_") as name, mmap.mmap(-1, 8) as memory:
        folder = Path(name)
        memory[:8] = struct.pack("d", START)
        code = in_a_process(lambda: play(scenario, open_in(folder), memory, nth, when))
        if code not in (CRASHED, 0):
            return [f"the first process died with {code}"]
        if again:
            in_a_process(lambda: play(scenario, open_in(folder), memory, again, when))
        code = in_a_process(lambda: play(scenario, open_in(folder), memory, sys.maxsize, "before"))
        if code != 0:
            return [f"the last process died with {code}"]
        return asyncio.run(_judged(scenario, open_in(folder)))


async def _judged(scenario: Scenario, store: Store) -> list[str]:
    try:
        return await store.read(scenario.verdict)
    finally:
        await store.close()


def main() -> int:
    """Judge all points asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", default="scenario")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--store", default="")
    parser.add_argument("--unpipelined", action="store_true")
    options = parser.parse_args()
    open_in = on_server(options.store, options.unpipelined) if options.store else InlineStore
    scenario = cast(Scenario, importlib.import_module(f"tests.crash.{options.scenario}"))
    total = transactions(scenario, open_in)
    points: list[tuple[int, When]] = [(n, when) for n in range(1, total + 1) for when in ("before", "after")]
    chosen = points[options.offset :: options.step]
    wrong = {
        f"{when} {nth}": found
        for nth, when in chosen
        if (found := crash_at(scenario, nth, when, 1 + nth % 7 if options.again else 0, open_in))
    }
    print(json.dumps({"transactions": total, "points": len(chosen), "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
