"""Calls the verbs of `commands` in a process that drives the folder itself, as other processes call them: by a request
and its answer.

So values, errors and texts are the same, whichever process answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from fledge.api.fledge import Fledge
from fledge.client.connection import EventBuffer, VerbParams, WireEvent, WireFeed
from fledge.client.resting import asked
from fledge.commands.control_socket import control_socket
from fledge.commands.feed import LIVE, Subscribe
from fledge.commands.gateway_state import GatewayState
from fledge.commands.talk import Telling, watched
from fledge.commands.wire import to_wire
from fledge.runtime.feed import Subscription


class Driving:
    """Opens the folder with the first call, and drives it until closed. Other processes can ask this one meanwhile,
    unless the store is on a server: there each process commits by itself."""

    def __init__(self, opening: Callable[[], Awaitable[Fledge] | Fledge], *, on_server: bool = False) -> None:
        self._opening, self._on_server = opening, on_server
        self._stack = AsyncExitStack()
        self._gateway: GatewayState | None = None
        self._entering = asyncio.Lock()
        self._feeds: set[Telling[WireEvent]] = set()
        self._early: Subscription | None = None
        """Keeps events for the first feed: unfinished work continues as soon as the folder is open, before there is a
        feed."""

    @property
    def is_open(self) -> bool:
        """True if this process holds the folder."""
        return self._gateway is not None

    async def opened(self) -> GatewayState:
        """Open the folder, if it is not open; this process then holds it. Raises StoreLocked if another process
        does."""
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
        """The answer of the method. Events that happened before it have been put on the feeds by then."""
        gateway = await self.opened()
        try:
            return await asked(gateway, method, params)
        finally:
            for feed in (*self._feeds,):
                await feed.tell()
            await asyncio.sleep(0)  # so that readers of the feeds run before the caller

    async def events(self, cursor: int | None, session: str, live: bool) -> WireFeed:
        """The events from the cursor on, until this is closed."""
        gateway = await self.opened()
        early, self._early = self._early, None
        watch = await watched(gateway, Subscribe(cursor=cursor, session=session, live=live), early)
        heard = EventBuffer()

        async def put(event: WireEvent) -> None:
            heard.put(event)

        feed = Telling(gateway, watch, put, to_wire)
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
        """Stop driving, and release the folder."""
        self._gateway = None
        await self._stack.aclose()
