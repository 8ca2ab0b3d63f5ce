"""Run the turn in real processes, end one before or after each of its transactions, start another on what it left, and
judge the end. Prints one JSON line: how many points, and what was wrong.

    python -m tests.crash.turn_every_commit [--again]

`--again` crashes the recovery too, at each of its first transactions.
"""

import argparse
import json
import mmap
import struct
import sys
import tempfile
from functools import partial
from pathlib import Path

from fledge.testing import START, CrashPoint, InlineStore, SharedClock, VirtualClock, run_virtual
from tests.crash.every_commit import CRASHED, When, in_a_process
from tests.crash.turn_scenario import committed, perform, verdict

AGAIN = (1, 2, 3, 4)
"""Which transactions of the recovery are crashed, too."""


def transactions() -> int:
    """How many transactions the turn takes when nothing goes wrong."""
    with tempfile.TemporaryDirectory() as folder:
        counter = CrashPoint(InlineStore(folder), sys.maxsize, "before")
        run_virtual(perform(counter, VirtualClock(), Path(folder)))
        return counter.begun


def play(folder: Path, memory: mmap.mmap, nth: int, when: When) -> None:
    """One process's part: the turn, with a crash at the chosen transaction."""
    run_virtual(perform(CrashPoint(InlineStore(folder), nth, when, CRASHED), SharedClock(memory), folder))


def crash_at(nth: int, when: When, again: int) -> list[str]:
    """Crash there, perhaps once more in the recovery, then let it end; answers what is wrong with the end."""
    with tempfile.TemporaryDirectory() as name, mmap.mmap(-1, 8) as memory:
        folder = Path(name)
        memory[:8] = struct.pack("d", START)
        before: list[tuple[int, dict[int, int], set[str]]] = []
        for point in (nth, again) if again else (nth,):
            code = in_a_process(partial(play, folder, memory, point, when))
            if code not in (CRASHED, 0):
                return [f"a process died with {code}"]
            before.append(_left(folder))
        code = in_a_process(lambda: play(folder, memory, sys.maxsize, "before"))
        if code != 0:
            return [f"the last process died with {code}"]
        store = InlineStore(folder)
        wrong = store.run(lambda tx: verdict(tx, folder, before))
        store.close_now()
        return wrong


def _left(folder: Path) -> tuple[int, dict[int, int], set[str]]:
    """What a dead process has left: how many notes, which replies, which results."""
    path = folder / "notes.jsonl"
    count = len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0
    store = InlineStore(folder)
    asked, done = store.run(committed)
    store.close_now()
    return count, asked, done


def main() -> int:
    """Judge all points."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    total = transactions()
    whens: tuple[When, ...] = ("before", "after")
    points = [
        (nth, when, again)
        for nth in range(1, total + 1)
        for when in whens
        for again in (AGAIN if options.again else (0,))
    ]
    wrong = {f"{when} {nth}, {again}": found for nth, when, again in points if (found := crash_at(nth, when, again))}
    print(json.dumps({"transactions": total, "points": len(points), "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
