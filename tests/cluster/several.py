"""Several engines on one schema of a server, in one event loop, each with a store of its own, as if in a process of its
own. Time is the server's."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from fledge.core import policy
from fledge.core.inbox import QueueSettings
from fledge.core.route import Address
from fledge.core.run import Run, Terms
from fledge.orchestrator import spawn
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.engine import Engine
from fledge.store.base import OutboxPost, Spec, Tx
from fledge.store.postgres import PostgresStore
from fledge.testing import ScriptedPerformer, Stage
from tests.store.postgres import Server

T = TypeVar("T")

GUARD_S = 60.0
MAIN = "agent:main:main"
LEASE_S = 2.0
RULES = Rules(queue=QueueSettings(debounce_s=0.0), widths={"main": 4, "subagent": 8, "nested": 1})
CHILD = spawn.SpawnRequest(spec=Spec(task="work"), terms=Terms(parent=MAIN), limits=policy.Limits(max_children=1000))


class Performer(ScriptedPerformer):
    """Lets children work until they are told to end; a post or a removal takes `post_s`."""

    def __init__(self) -> None:
        super().__init__(self.play)
        self.may_end = asyncio.Event()
        self.at_work: set[str] = set()
        self.stopped: dict[str, float] = {}
        self.post_s = 0.0
        self.began: Callable[[], object] = lambda: None

    async def play(self, stage: Stage) -> None:
        if ":subagent:" not in stage.session:
            await stage.say("noted")
            return
        self.at_work.add(stage.session)
        self.began()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.stopped[stage.session] = time.monotonic()
            raise
        finally:
            self.at_work.discard(stage.session)
        await stage.say("done")

    async def remove(self, leaves: tuple[str, ...]) -> None:
        await super().remove(leaves)
        await asyncio.sleep(self.post_s)

    async def call(self, post: OutboxPost) -> Address | None:
        self.posted.append(post)
        await asyncio.sleep(self.post_s)
        return None


class Worker:
    """An engine with its store and its performer."""

    def __init__(self, url: str, rules: Rules = RULES, **options: Any) -> None:
        self.url, self.performer = url, Performer()
        self.store = PostgresStore.open(url, alone=False, lease_s=LEASE_S)
        self.engine = Engine(self.store, self.performer, rules=rules, **options)

    async def see(self, look: Callable[[Tx], T]) -> T:
        return await self.store.read(look)

    async def spawn(self, children: int) -> list[str]:
        await self.engine.commit(lambda c: spawn.open_conversation(c, MAIN))
        runs: list[Run] = [await self.engine.commit(lambda c: spawn.spawn(c, CHILD)) for _ in range(children)]
        return [run.key for run in runs]


@asynccontextmanager
async def workers(server: Server, count: int, **options: Any) -> AsyncIterator[list[Worker]]:
    """So many engines at work on a new schema."""
    url = server.url(server.new_schema())
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        yield [await stack.enter_async_context(working(url, **options)) for _ in range(count)]


@asynccontextmanager
async def working(url: str, **options: Any) -> AsyncIterator[Worker]:
    """An engine at work, until the block ends."""
    worker = Worker(url, **options)
    try:
        async with worker.engine:
            yield worker
    finally:
        await worker.store.close()


async def until(holds: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait until this holds. The condition is of this process's memory; rows have `eventually`."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 (many things set it)
            await asyncio.sleep(0.005)


async def eventually(worker: Worker, holds: Callable[[Tx], bool], within_s: float = 20.0) -> None:
    """Wait until the rows say this."""
    async with asyncio.timeout(within_s):
        while not await worker.see(holds):  # noqa: ASYNC110 (others write the rows)
            await asyncio.sleep(0.02)


def play(test: Coroutine[Any, Any, T]) -> T:
    """Run a test."""
    return asyncio.run(test)
