"""Kill real processes with SIGKILL at the points that actors and people pass: inside every kind of call, before and
after every order, twice in a row.

    python -m tests.crash.at_points [--story NAME]                    each point by name, twice in a row
    python -m tests.crash.at_points --first SEED --rounds N           points by chance, in all stories

A point by name is met where a process first comes to it, and the next process dies there too if it comes to it again:
two crashes in the same step. A third would, rightly, fail a run, so the third process gets through. Processes are
forked from this one and time is virtual, so a round takes a fraction of a second and is the same every time. Prints one
JSON line: how many rounds and kills, and what was wrong, by the command that plays it again.
"""

import argparse
import json
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from fledge.testing import START, InlineStore, SharedClock, VirtualClock, run_virtual
from tests.crash.every_commit import in_a_process
from tests.crash.judgement import Left, judge, left
from tests.crash.players import Story, perform
from tests.crash.stories import STORIES, UNDER_FIRE
from tests.empty import MEMORY

Fate = Callable[[str], None]
ALL = STORIES | UNDER_FIRE
ORDERS = ("before ", "after ")


def name_of(point: str) -> str:
    """A point without the words that a model was asked."""
    return point.partition(":")[0]


def points(story: Story) -> list[str]:
    """All points that are passed when nothing goes wrong, in order."""
    passed: list[str] = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        told = replace(story, fate=lambda point: passed.append(name_of(point)))
        run_virtual(perform(told, InlineStore(folder), VirtualClock(), Path(folder)))
    return passed


def dies_at(name: str) -> Fate:
    """Die at the first point of this name."""

    def fate(point: str) -> None:
        if name_of(point) == name:
            die()

    return fate


def dies_after(many: int) -> Fate:
    """Die at the point that so many were passed before."""
    left = many

    def fate(point: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            die()

    return fate


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def play(story: Story, fate: Fate, folder: Path, memory: mmap.mmap) -> None:
    """One process's part."""
    run_virtual(perform(replace(story, fate=fate), InlineStore(folder), SharedClock(memory), folder))


def round_of(story: Story, fates: list[Fate]) -> tuple[int, list[str]]:
    """Let one process after the other meet its fate, then one get through: how many died, what is wrong in the end."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, mmap.mmap(-1, 8) as memory:
        folder, kills = Path(name), 0
        memory[:8] = struct.pack("d", START)
        before: list[Left] = []
        for fate in [*fates, lambda point: None]:
            code = in_a_process(partial(play, story, fate, folder, memory))
            if code not in (0, -signal.SIGKILL):
                return kills, [f"a process ended with {code}"]
            kills += code != 0
            before.append(left(folder))
        store = InlineStore(folder)
        try:
            return kills, store.run(lambda tx: judge(tx, story, folder, before[:-1])).wrong
        finally:
            store.close_now()


def by_name(names: list[str]) -> tuple[int, int, dict[str, list[str]]]:
    """Every named point of these stories, twice in a row; of the story of orders, the orders."""
    rounds, kills, wrong = 0, 0, {}
    for name in names:
        for point in dict.fromkeys(points(ALL[name])):
            if name == "every order" and not point.startswith(ORDERS):
                continue  # the same calls as in the other one
            died, found = round_of(ALL[name], [dies_at(point)] * 2)
            rounds, kills = rounds + 1, kills + died
            if found:
                wrong[f'python -m tests.crash.at_points --story "{name}" --point "{point}"'] = found
    return rounds, kills, wrong


def by_chance(first: int, rounds: int) -> tuple[int, int, dict[str, list[str]]]:
    """Points by chance; every second time, the second process dies at the same point as the first."""
    passed: dict[str, list[str]] = {}
    kills, wrong = 0, {}
    for seed in range(first, first + rounds):
        chance = random.Random(seed)
        name = chance.choice(sorted(ALL))
        if name not in passed:
            passed[name] = points(ALL[name])
        at = chance.randrange(len(passed[name]))
        again = dies_at(passed[name][at]) if seed % 2 else dies_after(chance.randrange(len(passed[name])))
        died, found = round_of(ALL[name], [dies_after(at), again])
        kills += died
        if found:
            wrong[f"python -m tests.crash.at_points --first {seed} --rounds 1"] = [name, *found]
    return rounds, kills, wrong


def main() -> int:
    """Play what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.at_points")
    parser.add_argument("--story", choices=sorted(ALL))
    parser.add_argument("--point")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0)
    options = parser.parse_args()
    if options.rounds:
        rounds, kills, wrong = by_chance(options.first, options.rounds)
    elif options.point:
        kills, found = round_of(ALL[options.story], [dies_at(options.point)] * 2)
        rounds, wrong = 1, {options.point: found} if found else {}
    else:
        rounds, kills, wrong = by_name([options.story] if options.story else sorted(UNDER_FIRE))
    print(json.dumps({"rounds": rounds, "kills": kills, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
