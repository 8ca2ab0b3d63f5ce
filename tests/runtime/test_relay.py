"""Events of turns between processes that share a store: nothing is sent of what no client elsewhere watches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fledge.clock import Clock, SystemClock
from fledge.core.cluster import News
from fledge.core.live import COLLECT_S, WATCH_S, TurnEvent
from fledge.orchestrator import spawn
from fledge.orchestrator.engine import Engine
from fledge.runtime.feed import Feed
from fledge.runtime.relay import MOST_WAITING, Relay
from fledge.testing import InlineStore, ScriptedPerformer, Stage, run_virtual
from tests.statements import proves

MAIN = "agent:main:main"
OTHER = "agent:main:other"


class Bus:
    """What PostgreSQL is to the processes of a store: each hears what the others send."""

    def __init__(self) -> None:
        self.ends: list[BusEnd] = []
        self.live: list[str] = []
        """All live messages that were sent."""


class Lease:
    """The lease of an engine that is always seen."""

    is_over = False


class BusEnd:
    """The bus as one process has it."""

    address = "a bus"
    lease_s = 15.0
    up_at = 0.0
    lease = Lease()

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._heard: Callable[[News], None] = lambda news: None
        self._heard_live: Callable[[str], None] | None = None
        self.clock: Clock = SystemClock()
        bus.ends.append(self)

    def join(self, engine: str, heard: Callable[[News], None]) -> None:
        self._heard = heard

    async def leave(self) -> None:
        self._bus.ends.remove(self)

    def tell(self, news: News) -> None:
        for end in self._bus.ends:
            if end is not self:
                end._heard(news)

    def send_live(self, messages: Sequence[str]) -> None:
        self._bus.live += messages
        for end in self._bus.ends:
            if end is not self and end._heard_live is not None:
                for message in messages:
                    end._heard_live(message)

    def hear_live(self, heard: Callable[[str], None] | None) -> None:
        self._heard_live = heard


class Process:
    """A process on the bus: its feed, and what carries it."""

    def __init__(self, bus: Bus, engine: Engine) -> None:
        self.feed, self.end = Feed(), BusEnd(bus)
        self.relay = Relay(self.feed, engine, self.end)
        self.end.join(engine.owner, engine._hear)
        self.relay.start()

    def say(self, *texts: str, session: str = MAIN) -> None:
        for text in texts:
            if self.feed.is_heard:
                self.feed.emit(TurnEvent("assistant:text", session, text, 1, entry=1))

    def die(self) -> None:
        """End as by kill -9: nothing is said any more."""
        assert self.relay._task is not None
        self.relay._task.cancel()


async def _silent(stage: Stage) -> None:
    await stage.say("done")


@asynccontextmanager
async def processes(folder: Path) -> AsyncIterator[tuple[Bus, Process, Process]]:
    """A worker and a gateway."""
    bus, store = Bus(), InlineStore(folder / "store.db")
    engines = [Engine(store, ScriptedPerformer(_silent), drives=False) for _ in range(2)]
    for key in (MAIN, OTHER):
        await engines[0].commit(lambda c: spawn.open_conversation(c, key))  # noqa: B023 (awaited here)
    worker, gateway = (Process(bus, engine) for engine in engines)
    yield bus, worker, gateway
    for process in (worker, gateway):
        await process.relay.stop()


def texts(events: Sequence[TurnEvent]) -> list[str]:
    return [event.text for event in events]


@proves("7.live.1", "Live words go to a process whose client watches their session, some at a time, and to no other")
def test_words_of_a_watched_session_are_sent_together(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (bus, worker, gateway):
            heard, deaf = gateway.feed.listen(session=MAIN), worker.feed.listen()
            await asyncio.sleep(COLLECT_S)
            worker.say("hel", "lo")
            worker.say("secret", session=OTHER)
            assert bus.live == []
            await asyncio.sleep(COLLECT_S * 2)
            assert texts(heard.waiting()) == ["hello"]
            assert len(bus.live) == 1
            assert "secret" not in bus.live[0]
            assert texts(deaf.waiting()) == ["hel", "lo", "secret"], "what a process sends does not come back"

    run_virtual(test())


@proves("7.live.2", "Nothing is sent of live words while no client of another process watches")
def test_nothing_is_sent_while_nobody_elsewhere_watches(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (bus, worker, gateway):
            here, all_there = worker.feed.listen(session=MAIN), gateway.feed.listen()
            await asyncio.sleep(COLLECT_S)
            worker.say("hello")
            await asyncio.sleep(2 * WATCH_S)
            assert (bus.live, texts(here.waiting()), all_there.waiting()) == ([], ["hello"], [])
            assert not worker.feed.relay

    run_virtual(test())


@proves("7.live.3", "A watcher that has gone, or has died, costs nothing more after its lease")
def test_a_watcher_that_dies_costs_nothing_after_its_lease(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (bus, worker, gateway):
            heard = gateway.feed.listen(session=MAIN)
            for _ in range(10):
                await asyncio.sleep(WATCH_S / 2)
                worker.say("still ")
            await asyncio.sleep(2 * COLLECT_S)
            assert len(heard.waiting()) == 10, "it says again that it watches"
            gateway.die()
            await asyncio.sleep(WATCH_S / 2)
            worker.say("perhaps")
            await asyncio.sleep(WATCH_S / 2 + 1)
            assert not worker.feed.is_heard
            sent = len(bus.live)
            worker.say("nobody")
            await asyncio.sleep(1)
            assert len(bus.live) == sent

    run_virtual(test())


@proves("7.live.3")
def test_a_watcher_that_has_gone_is_not_said_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (_, worker, gateway):
            first, second = gateway.feed.listen(session=MAIN), gateway.feed.listen(session=MAIN)
            await asyncio.sleep(WATCH_S)
            first.close()
            await asyncio.sleep(WATCH_S)
            worker.say("hello")
            await asyncio.sleep(1)
            assert texts(second.waiting()) == ["hello"]
            second.close()
            await asyncio.sleep(WATCH_S + 1)
            assert not worker.feed.is_heard
            assert gateway.end._heard_live is None

    run_virtual(test())


def test_words_that_wait_are_bounded_and_what_is_left_out_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (_, worker, gateway):
            heard = gateway.feed.listen(session=MAIN)
            await asyncio.sleep(COLLECT_S)
            worker.say("x" * (MOST_WAITING - 1), "yy", "z")
            await asyncio.sleep(2 * COLLECT_S)
            assert [(event.kind, event.text, event.count) for event in heard.waiting()] == [
                ("lost", "", 2),
                ("assistant:text", "z", 0),
            ]

    run_virtual(test())
