"""A restart with many unfinished runs: how soon does a new process go on with them?

One process spawns them through the spawner, lets as many as the lane holds work at a model that never answers, and is
killed with -9. Another is started on what it left. Counted from its start, interpreter and imports included: when it
makes the first model call, and when as many are under way as the lane holds.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Restart:
    """What a new process took."""

    runs: int
    width: int
    first_s: float
    """Until it made the first model call."""
    full_s: float
    """Until as many as the lane holds were under way."""
    prepared_s: float
    """What the process before took to spawn them."""


# ---- in the processes ------------------------------------------------------------------------------------------------


async def _work(folder: Path, runs: int, width: int, spawns: int) -> None:
    """Open the store, spawn so many, wait until the lane is full, and say when its model calls were made."""
    from bench.children import CannedModel, household
    from fledge.models.base import Request

    called: list[float] = []
    full = asyncio.Event()

    async def never(request: Request) -> str:
        called.append(time.time())
        if len(called) == width:
            full.set()
        return await asyncio.Event().wait() and ""

    async with household(folder, runs, width, CannedModel(never)) as home:
        await asyncio.gather(*(home.spawn() for _ in range(spawns)))
        await full.wait()
        print(json.dumps({"first": called[0], "full": called[-1], "ready": time.time()}), flush=True)
        await asyncio.Event().wait()


def main(arguments: list[str]) -> None:
    """Be one of the processes: `python -m bench.restart FOLDER RUNS WIDTH SPAWNS`. It never ends by itself."""
    folder, runs, width, spawns = Path(arguments[0]), *map(int, arguments[1:])
    asyncio.run(_work(folder, runs, width, spawns))


# ---- from outside ----------------------------------------------------------------------------------------------------


@contextmanager
def _process(folder: str, runs: int, width: int, spawns: int) -> Iterator[dict[str, float]]:
    """What the process says of its model calls; it is killed with -9 at the end."""
    command = [sys.executable, "-m", "bench.restart", folder, str(runs), str(width), str(spawns)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = process.stdout.readline()
        if not said:
            raise RuntimeError(f"the process failed: {process.stderr.read()[-2000:]}")
        yield json.loads(said)
    finally:
        process.kill()
        process.communicate()


def restart(runs: int, width: int) -> Restart:
    """Leave so many runs unfinished, `width` of them at work, and start again."""
    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        began = time.time()
        with _process(folder, runs, width, runs) as said:
            prepared_s = said["ready"] - began
        began = time.time()
        with _process(folder, runs, width, 0) as said:
            return Restart(runs, width, said["first"] - began, said["full"] - began, prepared_s)


if __name__ == "__main__":
    main(sys.argv[1:])
