"""The verbs of `commands`, called by the process that drives the folder itself, as others call them: request, answer.

So values, errors and words are the same, whoever answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from fledge.api.program import Fledge
from fledge.api.views import session_key
from fledge.client.connection import Feed, Heard
from fledge.client.resting import asked
from fledge.commands.desk import Desk
from fledge.commands.feed import LIVE, FeedEvent, Wanted
from fledge.commands.hatch import hatch
from fledge.commands.talk import Telling, watched
from fledge.commands.wire import to_wire
from fledge.runtime.feed import Subscription


class Driving:
    """Opens the folder with the first call, and drives it until closed. Unless its store is on a server, where each
    process commits itself, others can ask this process meanwhile."""

    def __init__(self, opening: Callable[[], Awaitable[Fledge] | Fledge], *, on_server: bool = False) -> None:
        self._opening, self._on_server = opening, on_server
        self._stack = AsyncExitStack()
        self._desk: Desk | None = None
        self._entering = asyncio.Lock()
        self._feeds: set[Telling] = set()
        self._early: Subscription | None = None
        """Listens for the first feed: what is unfinished goes on as soon as the folder is open."""

    @property
    def is_open(self) -> bool:
        """This process holds the folder."""
        return self._desk is not None

    async def opened(self) -> Desk:
        """This process holds the folder from here on. Raises StoreLocked if another one does."""
        async with self._entering:
            if self._desk is None:
                opened = self._opening()
                fl = opened if isinstance(opened, Fledge) else await opened
                self._early = fl.listen(LIVE)
                await self._stack.enter_async_context(fl)
                self._desk = Desk(fl, fl.config.gateway)
                if not self._on_server:
                    await self._stack.enter_async_context(hatch(fl, self._desk))
            return self._desk

    async def call(self, method: str, params: Mapping[str, object]) -> Any:
        """What the method answers. What happened before that was told by then on the feeds."""
        desk = await self.opened()
        try:
            return await asked(desk, method, params)
        finally:
            for feed in (*self._feeds,):
                await feed.tell()
            await asyncio.sleep(0)  # whoever reads them reads first

    async def events(self, cursor: int | None, session: str, live: bool, rows: bool = False) -> Feed:
        """What happens, from the cursor on, until closed."""
        desk = await self.opened()
        key = session_key(session, "session") if session else ""
        early, self._early = self._early, None
        watch = await watched(desk, Wanted(cursor=cursor, session_key=key, live=live, rows=rows), early)
        heard = Heard()

        async def put(event: FeedEvent) -> None:
            heard.put(to_wire(event))

        feed = Telling(desk, watch, put)
        feed.announced.set()
        self._feeds.add(feed)
        try:
            yield {"type": "from", "cursor": watch.cursor}
            while (event := await heard.next()) is not None:
                yield event
                if event["type"] == "closing":
                    return
        finally:
            self._feeds.discard(feed)
            await feed.end()

    async def close(self) -> None:
        """Stop driving, and let go of the folder."""
        self._desk = None
        await self._stack.aclose()
