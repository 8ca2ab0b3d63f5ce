"""Workers in processes of their own, which are killed, stopped and continued; and what must hold of the rows then."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from fledge.core.transcript import Told, from_body
from fledge.store.base import Tx
from tests.cluster.several import LEASE_S, MAIN
from tests.cluster.worker import STEPS

REPOSITORY = Path(__file__).parents[2]
MOST_SAID = 2**24


class Process:
    """A worker."""

    def __init__(self, url: str, step_s: float, lease_s: float = LEASE_S, posts: str = os.devnull) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it is killed)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.worker", url, str(step_s), str(lease_s), posts],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        self.pid = self._process.pid

    async def ready(self) -> "Process":
        """Wait until it drives."""
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line == b"ready\n", self.said
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    @property
    def complaint(self) -> str:
        """What it said last, if it has ended by itself."""
        return "" if self._process.poll() is None else f"ended with {self._process.returncode}: {self.said[-2000:]}"

    @property
    def said(self) -> str:
        """All that it has said, also after it was killed."""
        if not self._said.closed:  # it writes at the same position, which must not be moved
            self._words = os.pread(self._said.fileno(), MOST_SAID, 0).decode()
        return self._words

    def kill(self) -> None:
        """End it at once. Killing it twice is fine."""
        if not self._said.closed:
            self._process.kill()
            self._process.communicate()
            self._words = self.said
            self._said.close()


def busy(tx: Tx, at: float) -> int:
    """How many sessions of the children's lane are driven."""
    drivers = [one for one in tx.drivers.all() if one.lane == "subagent"]
    return sum(one.release_at is None or one.release_at > at for one in drivers)


def wrong(tx: Tx, keys: list[str]) -> list[str]:
    """What is wrong with the rows once everything has settled: something lost, doubled or done again."""
    found: list[str] = []
    told: Counter[str] = Counter()
    for entry in tx.transcripts.entries(MAIN):
        body = from_body(entry.body)
        if isinstance(body, Told):
            told.update(one.run or "" for one in body.completions)
    for key in keys:
        run = tx.runs.load(key)
        if run.ended is None or run.ended.outcome.status != "ok":
            found.append(f"{key} is {run.phase.name}: {run.ended}")
        if told[key] != 1:
            found.append(f"{key} was told {told[key]} times")
        steps = [from_body(entry.body) for entry in tx.transcripts.entries(key) if entry.kind == "tool"]
        if [getattr(step, "text", "") for step in steps] != [f"step {number}" for number in range(STEPS)]:
            found.append(f"{key} has the steps {steps}")
        outcomes = tx.unit.column("SELECT state FROM inbox WHERE kind = 'outcome' AND source = ?", key)
        if outcomes != ["consumed"]:
            found.append(f"{key} has the outcomes {outcomes}")
    if tx.sessions.counts(MAIN).unsettled:
        found.append(f"{tx.sessions.counts(MAIN).unsettled} are unsettled")
    if len(tx.drivers.all()) > 0 or tx.errands.of_others(""):
        found.append("something is still driven or done")
    return found


def settled(tx: Tx) -> int:
    """How many runs are delivered."""
    return int(tx.unit.one("SELECT count(*) FROM runs WHERE delivery = 'delivered'")[0])
