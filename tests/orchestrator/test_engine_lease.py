"""Engines that share a store, one of which was not seen for a while: what it was about to send, others send once."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from fledge.core.cluster import BEATS_A_LEASE, LEASE_S, Member, News
from fledge.core.route import Address
from fledge.errors import StoreError
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.store.base import OutboxPost, Tx
from fledge.testing import START, InlineStore, ScriptedPerformer, Stage, VirtualClock, run_virtual
from tests.statements import proves

T = TypeVar("T")


class Server:
    """The store of all processes."""

    def __init__(self, folder: Path) -> None:
        self.store, self.processes = InlineStore(folder), list[Process]()
        self.sent: list[tuple[float, str, str]] = []
        """When something was sent, what, and by whom."""
        self.is_away = self.goes_away_in_commit = False


class Lease:
    """The time in which a process is seen."""

    def __init__(self, ends_at: float, clock: VirtualClock) -> None:
        self.ends_at, self._clock = ends_at, clock

    @property
    def is_over(self) -> bool:
        return self._clock.now() >= self.ends_at


class Process(ScriptedPerformer):
    """A process with its engine: its store, what connects it with the others, and what it sends with."""

    address, lease_s = "a server", LEASE_S

    def __init__(self, server: Server, name: str) -> None:
        super().__init__(self._play)
        self._server, self.name = server, name
        self.clock = VirtualClock()
        self.lease = Lease(0.0, self.clock)
        self.up_at = 0.0
        self.cluster = self
        self.send_s = 0.0
        self.stops_at = ""
        """It stops when it was given something to send ("taken"), or when it has looked whether that still waits."""
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._heard: Callable[[News], None] = lambda news: None
        self._beats: asyncio.Task[None] | None = None
        self.engine = Engine(self, self, clock=self.clock)

    async def _play(self, stage: Stage) -> None: ...

    # ---- its store

    async def transact(self, job: Callable[[Tx], T]) -> T:
        self._server.is_away |= self._server.goes_away_in_commit
        self._server.goes_away_in_commit = False
        self._refuse()
        return await self._answered("taken", await self._server.store.transact(job))

    async def read(self, job: Callable[[Tx], T]) -> T:
        self._refuse()
        return await self._answered("looked", await self._server.store.read(job))

    async def close(self) -> None: ...

    def _refuse(self) -> None:
        if self._server.is_away:
            raise StoreError("the server is away")

    async def _answered(self, moment: str, answer: T) -> T:
        if answer is True and moment == self.stops_at:
            self._goes_on.clear()
        await self._goes_on.wait()
        return answer

    # ---- what connects it with the others

    def join(self, engine: str, heard: Callable[[News], None]) -> None:
        self._heard = heard
        self._server.processes.append(self)
        self._beats = asyncio.ensure_future(self._beat())

    async def leave(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
            self._server.processes.remove(self)

    async def _beat(self) -> None:
        while True:
            await self._goes_on.wait()
            if self._server.is_away:
                self.up_at = math.inf
            else:
                self._be_seen(self.clock.now())
            await self.clock.sleep(self.lease_s / BEATS_A_LEASE)

    def _be_seen(self, now: float) -> None:
        if self.up_at == math.inf:
            self.up_at = now

        def seen(tx: Tx) -> bool:
            return tx.unit.execute("UPDATE engines SET seen_at = ? WHERE id = ?", now, self.engine.owner).rowcount == 1

        if not self._server.store.run(seen):
            self.lease.ends_at = 0.0
            self._heard(News(look=True, everything=True, expelled=True))
        elif self.lease.is_over:
            self.lease = Lease(now + self.lease_s, self.clock)
            self._heard(News(look=True))
        else:
            self.lease.ends_at = now + self.lease_s

    def tell(self, news: News) -> None: ...

    def send_live(self, messages: Sequence[str]) -> None: ...

    def hear_live(self, heard: Callable[[str], None] | None) -> None: ...

    # ---- what a test does with it

    async def call(self, post: OutboxPost) -> Address | None:
        self._server.sent.append((round(self.clock.now() - START, 1), post.key, self.name))
        await self.clock.sleep(self.send_s)
        return None

    def go_on(self) -> None:
        """Wake up after a stop."""
        self.stops_at = ""
        self._goes_on.set()

    async def post(self, key: str) -> None:
        """Put something into the outbox, and tell all processes."""

        def put(c: Commit) -> None:
            c.tx.outbox.post(key, "note", None, "{}", c.at)
            c.hints.look = True

        await self.engine.commit(put)


@asynccontextmanager
async def at_work(server: Server, name: str) -> AsyncIterator[Process]:
    """One more process."""
    process = Process(server, name)
    async with process.engine:
        yield process


@asynccontextmanager
async def processes(folder: Path, *names: str) -> AsyncIterator[tuple[Server, list[Process]]]:
    """Processes on a new store."""
    server = Server(folder)
    try:
        async with AsyncExitStack() as stack:
            yield server, [await stack.enter_async_context(at_work(server, name)) for name in names]
    finally:
        server.store.close_now()


@pytest.mark.parametrize("moment", ["taken", "looked"])
@proves("7.engines.23", "A process that wakes up after its lease sends nothing that another one was given meanwhile")
def test_a_process_that_wakes_up_after_its_lease_sends_nothing_that_others_were_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    async def test() -> None:
        async with processes(tmp_path, "one") as (server, (one,)):
            one.stops_at = moment
            await one.post("first")
            async with at_work(server, "other") as other:
                await other.clock.sleep(LEASE_S + 1.0)
                assert server.sent == [(LEASE_S, "first", "other")]
                one.go_on()
                await other.clock.sleep(1.0)
                assert server.sent == [(LEASE_S, "first", "other")]
            await one.post("second")
            await one.clock.sleep(LEASE_S)
            assert [(key, who) for _, key, who in server.sent] == [("first", "other"), ("second", "one")]
        died, missed = [record.message for record in caplog.records if record.name == "fledge.engine"]
        assert "has died" in died
        assert "took this process for dead" in missed

    run_virtual(test())


@proves("7.engines.22")
def test_an_outage_in_which_a_death_was_found_out_kills_no_other_engine(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path, "one", "other") as (server, (one, other)):
            one.send_s = other.send_s = 1000.0
            for process, key in ((one, "first"), (other, "second")):
                await process.clock.sleep(1.0)
                await process.post(key)
            await one.clock.sleep(1.0)
            sent = [(key, who) for _, key, who in server.sent]
            assert sent == [("first", "one"), ("second", "other")]
            dead = Member("dead", "elsewhere", 1, START, START - 5.0, LEASE_S)
            server.store.run(lambda tx: tx.engines.join(dead))
            server.goes_away_in_commit = True  # the first one, in which an engine takes over from the dead one
            await one.clock.sleep(2 * LEASE_S - 2.0)
            assert server.is_away
            server.is_away = False  # that commit is tried again before anyone is seen
            await one.clock.sleep(2 * LEASE_S)
            assert [(key, who) for _, key, who in server.sent] == sent
            members = server.store.run(lambda tx: [member.id for member in tx.engines.all()])
            assert members == [one.engine.owner, other.engine.owner]

    run_virtual(test())
