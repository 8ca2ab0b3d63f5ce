"""Kill real processes with SIGKILL at random moments, with the real store and its group commit, until one gets through.

    python -m tests.crash.at_random FIRST ROUNDS

Each round plays a story, faster than its script says, in real time; it is killed twice (a third time in the same step
would, rightly, fail a run) and then let through. Players are forked from this process. Prints one JSON line: how often
something was killed, and what was lost, doubled, repeated or otherwise wrong.
"""

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from fledge.clock import SystemClock
from fledge.core.run import Instant
from fledge.store.sqlite import SqliteStore
from fledge.testing import InlineStore
from tests.crash.judgement import Found, judge, left
from tests.crash.players import Story, perform
from tests.crash.stories import STORIES

PACE = 30.0
KILLS = 2
PATIENCE_S = 120.0
"""How long the last player of a round may take."""


class FastClock(SystemClock):
    """The machine's time, at another pace."""

    def now(self) -> Instant:
        return super().now() * PACE

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        delay = None if at is None else max(0.0, at - self.now()) / PACE
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await poked.wait()


def started(story: Story, folder: Path) -> int:
    """Fork a player, and answer its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(perform(story, SqliteStore.open(folder), FastClock(), folder))
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return pid


def gone(pid: int, within_s: float) -> int | None:
    """Wait for a process; its exit code, or None if it is still there."""
    until = time.monotonic() + within_s
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.002)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def play(seed: int) -> tuple[int, Found]:
    """One round: how often it was killed, and what is wrong with the end."""
    chance = random.Random(seed)
    story = STORIES[sorted(STORIES)[seed % len(STORIES)]]
    with tempfile.TemporaryDirectory() as name:
        folder, before, kills = Path(name), [], 0
        for _ in range(KILLS):
            pid = started(story, folder)
            if gone(pid, chance.uniform(0.0, 0.3)) is None:
                kill(pid)
                kills += 1
            before.append(left(folder))
        last = started(story, folder)
        code = gone(last, PATIENCE_S)
        if code is None:
            kill(last)
        if code != 0:
            return kills, Found([], [], [], [f"the last player ended with {code}"])
        store = InlineStore(folder)
        try:
            return kills, store.run(lambda tx: judge(tx, story, folder, before))
        finally:
            store.close_now()


def main(first: int, rounds: int) -> int:
    """Play them all, and add up."""
    played = {seed: play(seed) for seed in range(first, first + rounds)}
    wrong = {seed: found.wrong for seed, (_, found) in played.items() if found.wrong}
    counts = {
        "rounds": rounds,
        "kills": sum(kills for kills, _ in played.values()),
        "lost": sum(len(found.lost) for _, found in played.values()),
        "doubled": sum(len(found.doubled) for _, found in played.values()),
        "repeated": sum(len(found.repeated) for _, found in played.values()),
        "wrong": wrong,
    }
    print(json.dumps(counts))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
