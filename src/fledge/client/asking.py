"""What a guest of a folder is made of: verbs with typed answers, waits, and what it hears, whoever holds the folder.

One feed of runs wakes whoever waits for a run; another, only while somebody listens, tells what happens in turns. Both
go on with the next holder. A wait never trusts the feed: woken or not, it asks.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fledge.cancellation import BackgroundTasks
from fledge.client.connection import WireEvent
from fledge.client.folder import Client
from fledge.clock import deadline_after, wait_for_event
from fledge.commands.reading import turn_event
from fledge.errors import FledgeError, Refused
from fledge.runtime.feed import Feed, Subscription, TurnEvent

T = TypeVar("T")

SLICE_MS = 60_000
"""One request waits no longer than this; whoever waits longer asks again."""
TROUBLE_S = 1.0
"""How long a feed that cannot be heard is left alone."""

log = logging.getLogger("fledge.client")


class VerbCaller:
    """The verbs of a folder, for one program. `start` it, and `close` it when done."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[str | None, set[asyncio.Event]] = {}
        """By session: those who wait for it to move; by None, for anything."""
        self._trouble: FledgeError | None = None
        """Why nothing can be heard now."""
        self._told: list[Callable[[WireEvent], None]] = []
        self._turns = Feed()
        self._hears_runs, self._hears_turns = asyncio.Event(), asyncio.Event()
        self._follows_turns = False
        self._is_open = False
        self.background = BackgroundTasks(log, lambda: self._is_open)
        self.asks = False
        """Somebody here answers questions to a person."""

    async def start(self) -> None:
        """Hear what happens from here on."""
        self._is_open = True
        self.background.start(self._follow(False, self._hears_runs, self._ran))
        if self._follows_turns:
            self._follow_turns()
        await self._hears_runs.wait()

    async def close(self) -> None:
        """Ask nothing more; whoever waits is told."""
        self._is_open = False
        await self.background.end()
        self._wake(None)
        await self._client.close()

    async def call(self, kind: type[T], method: str, *, once: bool = True, **params: object) -> T:
        """What a verb answers, as a value of the library."""
        if not self._is_open:
            raise Refused("error", "this fledge is not open: use `async with fledge.open(…) as fl:`")
        if self._follows_turns:
            await self._hears_turns.wait()  # so that nothing of what this sets going is missed
        return await self._client.value(kind, method, once=once, **params)

    # ---- waiting

    async def until(
        self, key: str | None, look: Callable[[], Awaitable[T | None]], ends_at: float | None = None
    ) -> T | None:
        """What `look` finds, as soon as it finds something; it looks whenever this session moves (None: any does). None
        if the deadline passes first."""
        moved = asyncio.Event()
        self.watch(moved, key)
        try:
            while True:
                moved.clear()
                if (found := await look()) is not None:
                    return found
                if not await wait_for_event(moved, None if ends_at is None else ends_at - time.monotonic()):
                    return None
                self.check_heard()
        finally:
            self.unwatch(moved, key)

    def watch(self, moved: asyncio.Event, key: str | None) -> None:
        """Set this event whenever this session (None: any) moves, or nothing can be heard, until `unwatch`."""
        self._waiting.setdefault(key, set()).add(moved)

    def unwatch(self, moved: asyncio.Event, key: str | None) -> None:
        """Leave the event alone from now on."""
        self._waiting[key].discard(moved)
        if not self._waiting[key]:
            del self._waiting[key]

    def check_heard(self) -> None:
        """Raise why nothing can be heard of the folder now, if that is so."""
        if self._trouble is not None:
            raise self._trouble

    async def in_slices(self, look: Callable[[int], Awaitable[T | None]], ends_at: float | None) -> T | None:
        """What `look` finds, given so many milliseconds to wait at a time; None if the deadline passes first."""
        while True:
            left_ms = SLICE_MS if ends_at is None else round(max(0.0, ends_at - time.monotonic()) * 1000)
            if (found := await look(min(SLICE_MS, left_ms))) is not None:
                return found
            if left_ms == 0:
                return None

    # ---- hearing

    def listen(self, size: int = 1000, poke: Callable[[], None] | None = None, session: str = "") -> Subscription:
        """Hear what happens inside turns from now on, of all sessions: the holder drives them all."""
        if not self._follows_turns:
            self._follows_turns = True
            if self._is_open:
                self._follow_turns()
        return self._turns.listen(size, poke)

    def on_event(self, told: Callable[[WireEvent], None]) -> None:
        """Be told every event of the feed of runs. Must not raise or block."""
        self._told.append(told)

    def _follow_turns(self) -> None:
        self.background.start(self._follow(True, self._hears_turns, self._turned))

    async def _follow(self, live: bool, hears: asyncio.Event, take: Callable[[WireEvent], None]) -> None:
        """Hear a feed for ever. While it cannot be heard, whoever waits is told why."""
        cursor: int | None = None
        while True:
            try:
                async for event in self._client.events(cursor, live=live):
                    cursor = event.get("cursor", cursor)
                    self._trouble = None
                    if event["type"] == "closing":
                        hears.clear()  # until the next holder tells it
                    else:
                        hears.set()
                    take(event)
            except FledgeError as error:
                log.warning("no events from the state folder for now: %s", error)
                self._trouble = error
                self._wake(None)
                hears.set()
                await asyncio.sleep(TROUBLE_S)

    def _ran(self, event: WireEvent) -> None:
        self._wake(event["sessionKey"] if event["type"] == "run" else None)
        for told in self._told:
            told(event)

    def _wake(self, key: str | None) -> None:
        """Let those look who wait for this session; with None, all."""
        for waits_for, waiting in self._waiting.items():
            if key is None or waits_for in (None, key):
                for moved in waiting:
                    moved.set()

    def _turned(self, event: WireEvent) -> None:
        match event["type"]:
            case "turn":
                self._turns.emit(turn_event(event))
            case "lost" | "closing":
                # With a holder that left, nobody knows how many.
                self._turns.emit(TurnEvent("lost", "", count=event.get("count", 0)))


def deadline(timeout: float | None) -> float | None:
    """When a wait of so many seconds ends, by `time.monotonic`; None waits for ever."""
    return deadline_after(time.monotonic(), timeout)
