"""The verbs of `commands`, called by the process that drives the folder itself, as others call them: request, answer.

So values, errors and words are the same, whoever answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from fledge.api.fledge import Fledge
from fledge.client.connection import EventBuffer, VerbParams, WireFeed
from fledge.client.resting import asked
from fledge.commands.control_socket import control_socket
from fledge.commands.feed import LIVE, FeedEvent, Subscribe
from fledge.commands.gateway_state import GatewayState
from fledge.commands.talk import Telling, watched
from fledge.commands.wire import to_wire
from fledge.runtime.feed import Subscription


class Driving:
    """Opens the folder with the first call, and drives it until closed. Unless its store is on a server, where each
    process commits itself, others can ask this process meanwhile."""

    def __init__(self, opening: Callable[[], Awaitable[Fledge] | Fledge], *, on_server: bool = False) -> None:
        self._opening, self._on_server = opening, on_server
        self._stack = AsyncExitStack()
        self._gateway: GatewayState | None = None
        self._entering = asyncio.Lock()
        self._feeds: set[Telling] = set()
        self._early: Subscription | None = None
        """Listens for the first feed: what is unfinished goes on as soon as the folder is open."""

    @property
    def is_open(self) -> bool:
        """This process holds the folder."""
        return self._gateway is not None

    async def opened(self) -> GatewayState:
        """This process holds the folder from here on. Raises StoreLocked if another one does."""
        async with self._entering:
            if self._gateway is None:
                opened = self._opening()
                fl = opened if isinstance(opened, Fledge) else await opened
                self._early = fl.listen(LIVE)
                await self._stack.enter_async_context(fl)
                self._gateway = GatewayState(fl)
                if not self._on_server:
                    await self._stack.enter_async_context(control_socket(fl, self._gateway))
            return self._gateway

    async def call(self, method: str, params: VerbParams) -> Any:
        """What the method answers. What happened before that was told by then on the feeds."""
        gateway = await self.opened()
        try:
            return await asked(gateway, method, params)
        finally:
            for feed in (*self._feeds,):
                await feed.tell()
            await asyncio.sleep(0)  # whoever reads them reads first

    async def events(self, cursor: int | None, session: str, live: bool) -> WireFeed:
        """What happens, from the cursor on, until closed."""
        gateway = await self.opened()
        early, self._early = self._early, None
        watch = await watched(gateway, Subscribe(cursor=cursor, session=session, live=live), early)
        heard = EventBuffer()

        async def put(event: FeedEvent) -> None:
            heard.put(to_wire(event))

        feed = Telling(gateway, watch, put)
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
        self._gateway = None
        await self._stack.aclose()
