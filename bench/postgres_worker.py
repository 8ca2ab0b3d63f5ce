"""A worker of the benchmark: `fledge.open` on a store of a server, with the scripted model of `bench.children`.

Usage: `python -m bench.postgres_worker URL FOLDER CHILDREN WIDTH DELAY_MS [COUNTS]`. It prints `ready`; then `asked`
and `stopped`, with the time of the machine, for every model call that waits; and on SIGTERM the CPU it took, how often
it committed, and its round trips if it counts them. A task with the word `wait-for-ever` is answered after SIGUSR1, any
other after the delay.
"""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import fledge
from bench import children, postgres_trips
from bench.measure import cpu_s
from fledge.models.base import Call, Request
from fledge.signals import set_on_signals
from fledge.store.postgres import PostgresStore

WAIT = "wait-for-ever"


def say(word: str, value: float) -> None:
    """One line for the process that measures."""
    print(word, f"{value:.6f}", flush=True)


async def main(url: str, folder: str, number: int, width: int, delay_s: float, counts: bool) -> None:
    """Work until told to end."""
    trips = postgres_trips.watch() if counts else {}

    async def answer(request: Request) -> Call | str:
        if any(WAIT in getattr(message, "text", "") for message in request.messages):
            say("asked", time.monotonic())
            try:
                await together.wait()
            except asyncio.CancelledError:
                say("stopped", time.monotonic())
                raise
            return children.ANSWER
        if delay_s:
            await asyncio.sleep(delay_s)
        return children.script(request)

    stop, together = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, together.set)
    options: dict[str, Any] = {"config": children.settings(number, width), "workspace": Path(folder), "env": {}}
    opened = fledge.open(folder, store=url, model=children.CannedModel(answer), tools=[children.add], **options)
    with set_on_signals(stop):
        async with opened:
            before = cpu_s()
            print("ready", flush=True)
            await stop.wait()
            say("cpu", cpu_s() - before)
            store = opened.engine.store
            assert isinstance(store, PostgresStore)
            say("commits", store.commits)
            for word, count in trips.items():
                say(f"trips:{word}", count)


if __name__ == "__main__":
    _, address, place, *figures = sys.argv
    delay = float(figures[2]) / 1000
    asyncio.run(main(address, place, int(figures[0]), int(figures[1]), delay, counts=len(figures) > 3))
