"""A worker in a process of its own: `python -m tests.cluster.worker URL STEP_S LEASE_S POSTS`. It says "ready" once it
drives, and ends when its standard input does. Children take three steps, each committed once, and go on from what was
committed. What it sends from the outbox is a line of the file POSTS."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from fledge.errors import StoreError
from fledge.orchestrator.engine import Engine
from fledge.store.base import OutboxPost
from fledge.store.postgres import PostgresStore
from fledge.testing import ScriptedPerformer, Stage
from tests.cluster.several import RULES

STEPS = 3


async def main(url: str, step_s: float, lease_s: float, posts: str) -> None:
    """Work until nobody wants it any more."""

    async def surely(write: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await write()
            except StoreError:  # the server is away; what was not written is written later
                await asyncio.sleep(0.1)
            else:
                return

    async def play(stage: Stage) -> None:
        if ":subagent:" in stage.session:
            entries = await stage.engine.store.read(lambda tx: tx.transcripts.entries(stage.session))
            for number in range(sum(entry.kind == "tool" for entry in entries), STEPS):
                await asyncio.sleep(step_s)
                await surely(partial(stage.step, f"step {number}"))
        await surely(partial(stage.say, "done"))

    class Sender(ScriptedPerformer):
        """Writes down what it sends."""

        async def call(self, post: OutboxPost) -> None:
            with open(posts, "a") as sent:  # noqa: ASYNC230 (one short line)
                sent.write(f"{post.key} {os.getpid()}\n")
            await asyncio.sleep(step_s)

    store = PostgresStore.open(url, alone=False, lease_s=lease_s)
    async with Engine(store, Sender(play), rules=RULES):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]))
