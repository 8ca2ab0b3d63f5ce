"""Kill a real process with SIGKILL at random moments, with the real store and its group commit, until it gets through.

    python -m tests.crash.at_random SEED

The scenario runs twenty times faster than its script says, in real time. Prints one JSON line: how often it was killed,
and what is wrong with the end.
"""

import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from fledge.clock import SystemClock
from fledge.core.run import Instant
from fledge.store.sqlite import SqliteStore
from tests.crash.scenario import perform, verdict

PACE = 20.0
KILLS = 2  # a third in the same step would, rightly, fail the run


class FastClock(SystemClock):
    """The machine's time, at another pace."""

    def now(self) -> Instant:
        return super().now() * PACE

    async def wait_until(self, at: Instant | None, poked: asyncio.Event) -> None:
        delay = None if at is None else max(0.0, at - self.now()) / PACE
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await poked.wait()


def main(seed: int) -> int:
    """Kill the player some times, let it finish, and judge."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.crash.at_random", "play", folder]
        kills = 0
        for _ in range(KILLS):
            with subprocess.Popen(command, stdout=subprocess.PIPE) as player:
                assert player.stdout is not None
                player.stdout.readline()  # it has opened the store
                try:
                    player.wait(timeout=chance.uniform(0.0, 0.6))
                except subprocess.TimeoutExpired:
                    player.send_signal(signal.SIGKILL)
                    kills += 1
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
        print(json.dumps({"kills": kills, "wrong": asyncio.run(judged(Path(folder)))}))
    return 0


async def judged(folder: Path) -> list[str]:
    """What is wrong with the end."""
    store = SqliteStore.open(folder)
    try:
        return await store.read(verdict)
    finally:
        await store.close()


async def play(folder: Path) -> None:
    """The player's part."""
    store = SqliteStore.open(folder)
    print("open", flush=True)
    await perform(store, FastClock())


if __name__ == "__main__":
    if sys.argv[1] == "play":
        asyncio.run(play(Path(sys.argv[2])))
    else:
        sys.exit(main(int(sys.argv[1])))
