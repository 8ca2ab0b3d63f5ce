"""The base of a guest of a folder: calls of verbs with typed answers, waits, and events. Any process may hold the
folder.

One feed of runs wakes callers that wait for a run; a second feed, followed only once there is a listener, has the
events inside turns. Both continue with the next holder. A wait takes no value from a feed: an event wakes it, and it
asks again.
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
from fledge.core.policy import doubled_s
from fledge.errors import FledgeError, Refused
from fledge.runtime.feed import Feed, Subscription, TurnEvent

T = TypeVar("T")

SLICE_MS = 60_000
"""One request waits no longer than this; a longer wait sends several requests."""
TROUBLE_S, MOST_TROUBLE_S = 1.0, 30.0
"""The pause before a feed that failed is opened again."""

log = logging.getLogger("fledge.client")


class VerbCaller:
    """Calls the verbs of a folder for one program. `start` it, and `close` it when done."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[str | None, set[asyncio.Event]] = {}
        """By session: the events of callers that wait until it moves; by None: until any session moves."""
        self._trouble: FledgeError | None = None
        """The error that keeps the feeds from working now; None if they work."""
        self._told: list[Callable[[WireEvent], None]] = []
        self._turns = Feed()
        self._hears_runs, self._hears_turns = asyncio.Event(), asyncio.Event()
        self._follows_turns = False
        self._is_open = False
        self.background = BackgroundTasks(log, lambda: self._is_open)
        self.asks = False
        """True if a function of this program answers the questions that wait for a person."""

    async def start(self) -> None:
        """Follow the feed of runs from now on, and that of turns if there is a listener."""
        self._is_open = True
        self.background.start(self._follow(False, self._hears_runs, self._ran))
        if self._follows_turns:
            self._follow_turns()
        await self._hears_runs.wait()

    async def close(self) -> None:
        """Make no more calls. Wakes callers that wait: they get `Refused`."""
        self._is_open = False
        await self.background.end()
        self._wake(None)
        self._hears_turns.set()  # a call that waits for the next holder is refused by the client
        await self._client.close()

    async def call(self, kind: type[T], method: str, *, once: bool = True, **params: object) -> T:
        """The answer of a verb, as a value of the library."""
        if not self._is_open:
            raise Refused("error", "this fledge is not open: use `async with fledge.open(…) as fl:`")
        if self._follows_turns:
            await self._hears_turns.wait()  # so that no event of the work that this starts is missed
        return await self._client.value(kind, method, once=once, **params)

    # ---- waiting

    async def until(
        self, key: str | None, look: Callable[[], Awaitable[T | None]], ends_at: float | None = None
    ) -> T | None:
        """The value of `look`, as soon as it is not None; `look` is called at once and whenever this session moves
        (`key` None: any session). None if the deadline passes first."""
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
        """Set this event whenever this session (None: any) moves or a feed fails, until `unwatch`."""
        self._waiting.setdefault(key, set()).add(moved)

    def unwatch(self, moved: asyncio.Event, key: str | None) -> None:
        """Stop setting the event."""
        self._waiting[key].discard(moved)
        if not self._waiting[key]:
            del self._waiting[key]

    def check_heard(self) -> None:
        """Raise the error that keeps the feeds of the folder from working now, if there is one."""
        if self._trouble is not None:
            raise self._trouble

    async def in_slices(self, look: Callable[[int], Awaitable[T | None]], ends_at: float | None) -> T | None:
        """The value of `look`, as soon as it is not None; each call of `look` gets the milliseconds that it may wait.
        None if the deadline passes first."""
        while True:
            left_ms = SLICE_MS if ends_at is None else round(max(0.0, ends_at - time.monotonic()) * 1000)
            if (found := await look(min(SLICE_MS, left_ms))) is not None:
                return found
            if left_ms == 0:
                return None

    # ---- events

    def listen(
        self,
        size: int = 1000,
        poke: Callable[[], None] | None = None,
        session: str = "",
        so_far: str | None = None,
    ) -> Subscription:
        """Subscribe to the events inside turns from now on, of all sessions: the holder drives them all. `so_far` as in
        `Feed.listen`; the feed of turns begins with it, too."""
        if not self._follows_turns:
            self._follows_turns = True
            if self._is_open:
                self._follow_turns()
        return self._turns.listen(size, poke, so_far=so_far)

    def on_event(self, told: Callable[[WireEvent], None]) -> None:
        """Call this function with every event of the feed of runs. It must not raise or block."""
        self._told.append(told)

    def _follow_turns(self) -> None:
        self.background.start(self._follow(True, self._hears_turns, self._turned))

    async def _follow(self, live: bool, hears: asyncio.Event, take: Callable[[WireEvent], None]) -> None:
        """Follow a feed for ever. While it fails, callers that wait get its error."""
        cursor: int | None = None
        failures, told = 0, ""
        while True:
            try:
                async for event in self._client.events(cursor, live=live):
                    cursor = event.get("cursor", cursor)
                    self._trouble = None
                    failures, told = 0, ""
                    if event["type"] == "closing":
                        hears.clear()  # until the feed of the next holder has begun
                    else:
                        hears.set()
                    take(event)
            except FledgeError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("no events from the state folder for now: %s", told)
                self._trouble = error
                self._wake(None)
                hears.set()
                await asyncio.sleep(doubled_s(TROUBLE_S, failures, MOST_TROUBLE_S))
                failures += 1

    def _ran(self, event: WireEvent) -> None:
        self._wake(event["sessionKey"] if event["type"] == "run" else None)
        for told in self._told:
            told(event)

    def _wake(self, key: str | None) -> None:
        """Wake the callers that wait for this session; with None, all."""
        for waits_for, waiting in self._waiting.items():
            if key is None or waits_for in (None, key):
                for moved in waiting:
                    moved.set()

    def _turned(self, event: WireEvent) -> None:
        match event["type"]:
            case "turn":
                self._turns.receive(turn_event(event))
            case "lost" | "closing":
                # If the holder left, the number of lost events is unknown.
                self._turns.receive(TurnEvent("lost", "", count=event.get("count", 0)))


def deadline(timeout: float | None) -> float | None:
    """When a wait of `timeout` seconds ends, by `time.monotonic`; None waits for ever."""
    return deadline_after(time.monotonic(), timeout)
