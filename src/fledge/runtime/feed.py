"""What happens inside turns, for whoever watches. Watching never holds a turn: a slow listener loses the oldest events
and is told how many, an absent one costs nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Literal

from msgspec import Struct

Kind = Literal[
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
    """One thing that happened in a turn. `text` is words, an error, a tool's name or result, by kind.

    >>> async for event in fl.session("main").stream("Hello"):
    ...     if event.kind == "assistant:text":
    ...         print(event.text)
    echo: Hello
    """

    kind: Kind
    session: str
    text: str = ""
    turn: int = 0
    call: str = ""
    count: int = 0
    """Of `lost`: how many events were dropped because this listener was slow."""
    remedy: str = ""
    """Of `error`: what the user must change before another try can help; empty: trying again may help."""
    retry_in_s: float = 0.0
    """Of `error`: in how many seconds it is tried again because the trouble may pass; 0 if it may not. Of `retry`: in
    how many seconds the model is asked again."""
    entry: int = 0
    """Of `start`, `model:start`, `tool:start` and `end`: the newest entry of the transcript. Words that follow are of a
    later one. Of `message`: the entry whose whole text it is, told where pieces of it were lost."""
    arguments: str = ""
    """Of `tool:start`: the arguments of the call, as the model wrote them."""
    cause: str = ""
    """Of `retry`: what went wrong, alone."""
    tokens_in: int = 0
    """Of `usage`, with the next two: what one reply has used."""
    tokens_out: int = 0
    cost_usd: float | None = None
    """In dollars; None if the price is not known."""
    is_error: bool = False
    """Of `tool:end`: the call failed."""


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

    def emit(self, event: TurnEvent) -> None:
        """Hand an event to all listeners."""
        for listener in self._listeners:
            listener.put(event)
