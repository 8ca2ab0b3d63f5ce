"""What happens inside turns, for whoever watches. Watching never holds a turn: a slow listener loses the oldest events
and is told how many, an absent one costs nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Literal

from msgspec import Struct

TurnEventKind = Literal[
    "start",
    "end",
    "error",
    "model:start",
    "tool:start",
    "tool:end",
    "assistant:text",
    "usage",
    "retry",
    "interrupt",
    "lost",
    "message",
]


class TurnEvent(Struct, frozen=True, omit_defaults=True):
    """An event inside a turn. Depending on `kind`, `text` is text of the model, an error, a tool's name or result.

    >>> async for event in fl.session("main").stream("Hello"):
    ...     if event.kind == "assistant:text":
    ...         print(event.text)
    echo: Hello
    """

    kind: TurnEventKind
    session: str
    text: str = ""
    turn: int = 0
    call: str = ""
    count: int = 0
    """For `lost`: how many events a slow listener missed."""
    remedy: str = ""
    """For `error`: what the user must change; empty if trying again may help."""
    retry_in_s: float = 0.0
    """For `error` and `retry`: in how many seconds the model is asked again; 0 if it is not."""
    entry: int = 0
    """For `start`, `model:start`, `tool:start` and `end`: the newest entry of the transcript; text that follows belongs
    to a later one. For `message`: the entry whose whole text this is."""
    arguments: str = ""
    """For `tool:start`: the arguments of the call, as the model wrote them."""
    cause: str = ""
    """For `retry`: what went wrong."""
    tokens_in: int = 0
    """For `usage`, with the next two fields: what one reply used."""
    tokens_out: int = 0
    cost_usd: float | None = None
    """In US dollars; None if the price is unknown."""
    is_error: bool = False
    """For `tool:end`: the call failed."""


class Subscription:
    """A listener's view: an async iterator over events from now on. Close it when done."""

    def __init__(self, feed: "Feed", size: int, poke: Callable[[], None] | None = None) -> None:
        self._feed, self._size, self._poke = feed, size, poke
        self._waiting: deque[TurnEvent] = deque()
        self._lost = 0
        self._ready = asyncio.Event()
        self._closed = False

    def put(self, event: TurnEvent) -> None:
        """Keep an event for the listener; the oldest is dropped when too many wait."""
        if len(self._waiting) >= self._size:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._ready.set()
        if self._poke is not None:
            self._poke()

    def waiting(self) -> list[TurnEvent]:
        """What has come in since the last look, without waiting for more."""
        found = [TurnEvent("lost", "", count=self._lost)] if self._lost else []
        found += self._waiting
        self._waiting.clear()
        self._lost = 0
        return found

    def close(self) -> None:
        """No more events; an iteration under way ends once what waits has been read."""
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
        return self._waiting.popleft()


class Feed:
    """Hands events to everybody who listens. Emitting never waits and never fails."""

    def __init__(self) -> None:
        self._listeners: list[Subscription] = []

    def listen(self, size: int = 1000, poke: Callable[[], None] | None = None) -> Subscription:
        """Hear everything from now on; at most `size` events wait for a slow listener. `poke` is called at each."""
        subscription = Subscription(self, size, poke)
        self._listeners.append(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Stop handing events to it."""
        if subscription in self._listeners:
            self._listeners.remove(subscription)

    @property
    def is_heard(self) -> bool:
        """True while anybody listens: else an event need not even be made."""
        return bool(self._listeners)

    def emit(self, event: TurnEvent) -> None:
        """Hand an event to all listeners."""
        for listener in self._listeners:
            listener.put(event)
