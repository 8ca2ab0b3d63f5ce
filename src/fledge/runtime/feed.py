"""Events inside turns, for listeners. A listener never delays a turn: a slow one loses the oldest events and gets their
number, and without listeners an event costs nothing. A listener may begin with the text so far of the replies that are
being written: its subscription and that text are of the same moment.

Where several processes share a store, a listener that names a session also gets events of turns that another process
drives; `relay` carries them.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable

from fledge.core.live import OpenReplies, TurnEvent, TurnEventKind, held_bytes

MOST_BYTES = 512 * 1024
"""The most memory of events that wait for a slow listener."""

__all__ = ["Feed", "Subscription", "TurnEvent", "TurnEventKind"]


class Subscription:
    """A listener's view: an async iterator over events from now on. Close it when done."""

    def __init__(self, feed: "Feed", size: int, poke: Callable[[], None] | None = None, session: str = "") -> None:
        self._feed, self._size, self._poke = feed, size, poke
        self.session = session
        """The session that is watched, with those below; empty: none in particular."""
        self._waiting: deque[TurnEvent] = deque()
        self._bytes = 0
        self._lost = 0
        self._ready = asyncio.Event()
        self._closed = False

    def put(self, event: TurnEvent) -> None:
        """Queue an event; a full queue drops its oldest."""
        self._waiting.append(event)
        self._bytes += held_bytes(event)
        while len(self._waiting) > self._size or self._bytes > MOST_BYTES:
            self._take()
            self._lost += 1
        self._ready.set()
        if self._poke is not None:
            self._poke()

    def _take(self) -> TurnEvent:
        event = self._waiting.popleft()
        self._bytes -= held_bytes(event)
        return event

    def waiting(self) -> list[TurnEvent]:
        """The queued events, without waiting for more."""
        found = [TurnEvent("lost", "", count=self._lost)] if self._lost else []
        found += self._waiting
        self._waiting.clear()
        self._lost = self._bytes = 0
        return found

    def close(self) -> None:
        """Take no more events; an iteration ends after the queued ones."""
        self._closed = True
        self._feed.forget(self)
        self._ready.set()

    def __aiter__(self) -> AsyncIterator[TurnEvent]:
        return self

    async def __anext__(self) -> TurnEvent:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return TurnEvent("lost", "", count=lost)
        return self._take()


def _nothing() -> None:
    """Do nothing."""


class Feed:
    """Gives events to all listeners. Emitting never waits and never fails."""

    def __init__(self) -> None:
        self._listeners: list[Subscription] = []
        self._watched: Counter[str] = Counter()
        self._relay: Callable[[TurnEvent], None] | None = None
        self.open = OpenReplies()
        """The replies that are being written. A turn enters its own, also while there are no listeners."""
        self.is_heard = False
        """True if there are listeners; otherwise no event need be made. A turn asks often, so it is no property."""
        self.on_watch: Callable[[], None] = _nothing
        """Called when the first listener of a session comes or the last one leaves."""

    def listen(
        self,
        size: int = 1000,
        poke: Callable[[], None] | None = None,
        session: str = "",
        so_far: str | None = None,
    ) -> Subscription:
        """Subscribe to all events from now on. The queue holds `size` events; `poke` is called at each event. Events of
        turns that another process drives come for sessions that a listener here names by `session`. With `so_far`, the
        first events are the text so far of open replies: of this session, or with an empty name of all."""
        subscription = Subscription(self, size, poke, session)
        if so_far is not None:
            for event in self.open.so_far(so_far):
                subscription.put(event)
        self._listeners.append(subscription)
        self.is_heard = True
        if session:
            self._watched[session] += 1
            self.on_watch()
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        if subscription in self._listeners:
            self._listeners.remove(subscription)
            self.is_heard = bool(self._listeners) or self._relay is not None
            if subscription.session:
                self._watched[subscription.session] -= 1
                self._watched = +self._watched
                self.on_watch()

    @property
    def watched(self) -> frozenset[str]:
        """The sessions that listeners name."""
        return frozenset(self._watched)

    @property
    def relay(self) -> Callable[[TurnEvent], None] | None:
        """Gets the events of this process for clients of others, while these watch anything."""
        return self._relay

    @relay.setter
    def relay(self, relay: Callable[[TurnEvent], None] | None) -> None:
        self._relay = relay
        self.is_heard = bool(self._listeners) or relay is not None

    def emit(self, event: TurnEvent) -> None:
        """Give an event of this process to all listeners, here and in other processes."""
        self._give(event)
        if self._relay is not None:
            self._relay(event)

    def receive(self, event: TurnEvent) -> None:
        """Give an event of another process to the listeners of this one."""
        self.open.hear(event)
        self._give(event)

    def _give(self, event: TurnEvent) -> None:
        for listener in self._listeners:
            listener.put(event)
