"""Kill real processes with SIGKILL at moments and points by chance, with the real store and its group commit, until one
gets through.

    python -m tests.crash.at_random FIRST ROUNDS

Each round plays a story, faster than its script says, in real time; two processes are killed (a third time in the same
step would, rightly, fail a run) and the third is let through. A process dies at a moment, during the very first opening
of its folder, or at a point that somebody passes, inside a call or around an order; every fourth round the second dies
at the same point as the first. In every eighth round both are stopped first, as by Ctrl-Z, and go on for a while.
Players are forked from this process. Prints one JSON line: how often something was killed, and what was lost, doubled,
repeated or otherwise wrong, by the command that plays it again. The moments are real: the same seed kills after the
same time, not at the same instruction.
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

from msgspec import Struct
from msgspec.structs import replace

from fledge.clock import SystemClock
from fledge.core.run import Instant
from fledge.store.sqlite import SqliteStore
from fledge.testing import InlineStore
from tests.crash.at_points import ALL, Fate, dies_after, dies_at, points
from tests.crash.judgement import Found, judge, left
from tests.crash.players import Story, perform

PACE = 30.0
PATIENCE_S = 120.0
"""How long a process may take that nothing kills from outside."""
OPENING_S = 0.03
"""About how long it takes to open a folder for the first time."""


class Death(Struct, frozen=True):
    """How a process dies: after so many seconds, or at a fate of its own. Stopped for `stopped_s`, it goes on as long
    again before it is killed."""

    after_s: float = PATIENCE_S
    stopped_s: float = 0.0
    fate: Fate = lambda point: None


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
        time.sleep(0.001)


def kill(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ended(pid: int, death: Death) -> int:
    """Let a process die this way; its exit code."""
    if (code := gone(pid, death.after_s)) is None and death.stopped_s:
        os.kill(pid, signal.SIGSTOP)
        gone(pid, death.stopped_s)
        os.kill(pid, signal.SIGCONT)
        code = gone(pid, death.after_s)
    return kill(pid) if code is None else code


def deaths(story: Story, seed: int) -> list[Death]:
    """How the first two processes of a round die."""
    chance = random.Random(seed)
    if seed % 4 == 0:
        return [Death(chance.uniform(0.0, OPENING_S)), Death(chance.uniform(0.0, 0.3))]
    if seed % 4 == 1:
        moments = [Death(chance.uniform(0.0, 0.3)) for _ in range(2)]
        return moments if seed % 8 == 1 else [replace(one, stopped_s=chance.uniform(0.0, 0.5)) for one in moments]
    passed = points(story)
    first = chance.randrange(len(passed))
    second = dies_at(passed[first]) if seed % 4 == 2 else dies_after(chance.randrange(len(passed)))
    return [Death(fate=dies_after(first)), Death(fate=second)]


def play(seed: int) -> tuple[int, Found]:
    """One round: how often it was killed, and what is wrong with the end."""
    names = sorted(ALL)
    story = ALL[names[seed // 4 % len(names)]]
    with tempfile.TemporaryDirectory() as name:
        folder, before, kills = Path(name), [], 0
        for death in deaths(story, seed):
            pid = started(replace(story, fate=death.fate), folder)
            code = ended(pid, death)
            if code not in (0, -signal.SIGKILL):
                return kills, Found([], [], [], [f"a player ended with {code}"])
            kills += code != 0
            before.append(left(folder))
        code = ended(started(story, folder), Death())
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
    again = "python -m tests.crash.at_random {} 1"
    wrong = {again.format(seed): found.wrong for seed, (_, found) in played.items() if found.wrong}
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
