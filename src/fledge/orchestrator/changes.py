"""Waiting until the rows say something. Whoever waits looks first, is told of each move of what it watches, and looks
again: however a change and the wait for it fall together, none is missed, and nothing is asked on a timer.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import TypeVar

from fledge.core.run import Instant
from fledge.errors import BadInput, Refused
from fledge.orchestrator.engine import Engine
from fledge.store.base import Tx

T = TypeVar("T")

CLOSED = "this fledge is closed; open the state folder again and ask by run id or session key: nothing is lost"


class Changes:
    """Tells those who wait when something they watch has moved."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._everywhere: set[asyncio.Event] = set()
        self._closed = False
        engine.on_move(self._moved)

    def _moved(self, key: str) -> None:
        waiting = self._waiting.get(key, ()) if key else {one for some in self._waiting.values() for one in some}
        for event in (*waiting, *self._everywhere):
            event.set()

    def watch(self, moved: asyncio.Event, key: str | None = None) -> None:
        """Set the event whenever this session, or any, moves, until `unwatch`."""
        (self._everywhere if key is None else self._waiting.setdefault(key, set())).add(moved)

    def unwatch(self, moved: asyncio.Event, key: str | None = None) -> None:
        """Leave the event alone from now on."""
        if key is None:
            self._everywhere.discard(moved)
        elif key in self._waiting:
            self._waiting[key].discard(moved)
            if not self._waiting[key]:
                del self._waiting[key]

    def check_open(self) -> None:
        """Refused once nothing more will change here."""
        if self._closed:
            raise Refused("error", CLOSED)

    def close(self) -> None:
        """Nothing more will change here: whoever waits is told so, by `Refused`."""
        self._closed = True
        for events in (*self._waiting.values(), self._everywhere):
            for event in events:
                event.set()

    async def until(
        self, look: Callable[[Tx], T | None], keys: Collection[str] | None, at: Instant | None = None
    ) -> T | None:
        """What `look` finds, as soon as it finds something; None if `at` comes first.

        It looks again whenever one of these sessions moves; `keys` None: any. Giving up on the wait changes nothing.
        """
        moved = asyncio.Event()
        places = [self._everywhere] if keys is None else [self._waiting.setdefault(key, set()) for key in keys]
        for place in places:
            place.add(moved)
        try:
            while True:
                moved.clear()
                self.check_open()
                found = await self._engine.store.read(look)
                if found is not None or (at is not None and self._engine.clock.now() >= at):
                    return found
                await self._engine.clock.wait_until(at, moved)
        finally:
            for place in places:
                place.discard(moved)
            for key in keys or ():
                if not self._waiting.get(key, True):
                    del self._waiting[key]


def deadline(engine: Engine, timeout: float | None) -> Instant | None:
    """When a wait of so many seconds ends; None waits for ever. Refused: what is no number of seconds."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise BadInput("timeout", "must be seconds, 0 or more, or None to wait for ever", timeout)
    return engine.clock.now() + min(timeout, 1e9)
