"""Events of turns between processes that share a store: nothing is sent of what no client elsewhere watches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from fledge.api.streams import SessionWords
from fledge.clock import Clock, SystemClock
from fledge.core.cluster import News
from fledge.core.live import COLLECT_S, WATCH_S, OpenReply, TurnEvent
from fledge.errors import StoreError
from fledge.orchestrator import spawn
from fledge.orchestrator.engine import Engine
from fledge.runtime.feed import Feed
from fledge.runtime.relay import MOST_WAITING, Relay
from fledge.store.base import Tx
from fledge.testing import InlineStore, ScriptedPerformer, Stage, run_virtual
from tests.statements import proves

T = TypeVar("T")

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


class LostStore(InlineStore):
    """A store that can be out of reach."""

    is_out = False

    async def read(self, job: Callable[[Tx], T]) -> T:
        if self.is_out:
            raise StoreError("the store is out of reach")
        return await super().read(job)


class Process:
    """A process on the bus: its feed, and what carries it."""

    def __init__(self, bus: Bus, engine: Engine, store: LostStore) -> None:
        self.feed, self.end, self.store = Feed(), BusEnd(bus), store
        self.relay = Relay(self.feed, engine, self.end)
        self.end.join(engine.owner, engine._hear)
        self.relay.start()
        self.replies: dict[str, OpenReply] = {}

    def say(self, *texts: str, session: str = MAIN) -> None:
        reply = self.replies.setdefault(session, OpenReply(session, 1, 1))
        for text in texts:
            if self.feed.is_heard:
                self.feed.emit(TurnEvent("assistant:text", session, text, 1, entry=1, offset=reply.ends_at))
            reply.add(text)

    def write(self, *texts: str, session: str = MAIN) -> None:
        """Say it as a turn does, whose open reply the feed knows."""
        self.say(*texts, session=session)
        self.feed.open.begin(self.replies[session])

    def die(self) -> None:
        """End as by kill -9: nothing is said any more."""
        assert self.relay._task is not None
        self.relay._task.cancel()


async def _silent(stage: Stage) -> None:
    await stage.say("done")


@asynccontextmanager
async def processes(folder: Path) -> AsyncIterator[tuple[Bus, Process, Process]]:
    """A worker and a gateway."""
    bus, store = Bus(), LostStore(folder / "store.db")
    engines = [Engine(store, ScriptedPerformer(_silent), drives=False) for _ in range(2)]
    for key in (MAIN, OTHER):
        await engines[0].commit(lambda c: spawn.open_conversation(c, key))  # noqa: B023 (awaited here)
    worker, gateway = (Process(bus, engine, store) for engine in engines)
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


@proves("7.live.7")
def test_a_watch_that_begins_in_the_middle_of_a_reply_gets_the_text_so_far(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (bus, worker, gateway):
            worker.write("Once upon ", "a time ")
            worker.write("secret", session=OTHER)
            first = gateway.feed.listen(session=MAIN, so_far=MAIN)
            await asyncio.sleep(COLLECT_S / 2)
            worker.write("there ")
            await asyncio.sleep(2 * COLLECT_S)
            second = gateway.feed.listen(session=MAIN, so_far=MAIN)
            worker.write("was")
            await asyncio.sleep(2 * COLLECT_S)
            for heard in (first, second):
                words = SessionWords(MAIN)
                assert "".join(one.text for event in heard.waiting() for one in words.heard(event)) == (
                    "Once upon a time there was"
                )
            assert "secret" not in "".join(bus.live)
            await asyncio.sleep(2 * WATCH_S)
            assert "".join(bus.live).count("Once upon") == 1, "the text so far is sent once"

    run_virtual(test())


def test_after_a_gap_a_watcher_asks_for_the_text_so_far_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (_, worker, gateway):
            heard = gateway.feed.listen(session=MAIN, so_far=MAIN)
            await asyncio.sleep(COLLECT_S)
            worker.write("a")
            await asyncio.sleep(2 * COLLECT_S)
            listens, gateway.end._heard_live = gateway.end._heard_live, None
            worker.write("b")
            await asyncio.sleep(2 * COLLECT_S)
            gateway.end._heard_live = listens
            worker.write("c")
            await asyncio.sleep(WATCH_S)
            words = SessionWords(MAIN)
            told = [one for event in heard.waiting() for one in words.heard(event) if one.kind == "assistant:text"]
            assert texts(told) == ["a", "bc"]

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


def losses(events: Sequence[TurnEvent]) -> list[tuple[str, int]]:
    return [(event.session, event.count) for event in events if event.kind == "lost"]


def test_each_overflow_adds_to_the_number_of_lost_events(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (_, worker, gateway):
            heard = gateway.feed.listen(session=MAIN)
            await asyncio.sleep(COLLECT_S)
            worker.say(*["x" * (MOST_WAITING - 1), "yy"] * 3, "z")
            await asyncio.sleep(2 * COLLECT_S)
            events = heard.waiting()
            assert losses(events) == [(MAIN, 6)]
            assert texts(events)[-1] == "z"

    run_virtual(test())


def test_each_session_hears_how_many_of_its_own_events_are_lost(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (_, worker, gateway):
            heard = gateway.feed.listen(session=MAIN)
            await asyncio.sleep(COLLECT_S)
            worker.say("hello")
            worker.say("x" * MOST_WAITING, session=OTHER)
            worker.say("goodbye")
            await asyncio.sleep(2 * COLLECT_S)
            events = heard.waiting()
            assert losses(events) == [(MAIN, 1)]
            assert texts(events)[-1] == "goodbye"

    run_virtual(test())


def test_events_that_were_not_sent_before_the_watch_ended_take_no_room_in_the_next(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (bus, worker, gateway):
            gone = gateway.feed.listen(session=MAIN)
            await asyncio.sleep(COLLECT_S)
            gone.close()
            await asyncio.sleep(WATCH_S - COLLECT_S * 1.5)
            worker.say("x" * MOST_WAITING)  # the watch ends before they are sent
            await asyncio.sleep(COLLECT_S)
            assert (bus.live, worker.feed.is_heard) == ([], False)
            heard = gateway.feed.listen(session=MAIN)
            await asyncio.sleep(COLLECT_S)
            worker.say("hello")
            await asyncio.sleep(2 * COLLECT_S)
            assert [(event.kind, event.text) for event in heard.waiting()] == [("assistant:text", "hello")]

    run_virtual(test())


def test_events_that_could_not_be_sent_are_counted_as_lost(tmp_path: Path) -> None:
    async def test() -> None:
        async with processes(tmp_path) as (_, worker, gateway):
            heard = gateway.feed.listen(session=MAIN)
            await asyncio.sleep(COLLECT_S)
            worker.store.is_out = True
            worker.say("hello")
            await asyncio.sleep(2 * COLLECT_S)
            worker.store.is_out = False
            worker.say("goodbye")
            await asyncio.sleep(2 * COLLECT_S)
            assert [(event.kind, event.text, event.count) for event in heard.waiting()] == [
                ("lost", "", 1),
                ("assistant:text", "goodbye", 0),
            ]

    run_virtual(test())
