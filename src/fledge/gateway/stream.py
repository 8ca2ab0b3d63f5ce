"""A feed as server-sent events. A client that does not read is disconnected: it comes back with the id it last saw."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fledge.cancellation import end_tasks
from fledge.commands.feed import FeedClosing, FeedEvent, RowEvent, RunHappened, Watch
from fledge.commands.gateway_state import GatewayState
from fledge.commands.wire import to_wire

_encode = msgspec.json.Encoder().encode


class EventStream(Response):
    """The answer to a request for a feed: it sends the events of a `Watch`, and ends that."""

    media_type = "text/event-stream"

    def __init__(self, gateway: GatewayState, watch: Watch, is_let_in: Callable[[], Awaitable[bool]]) -> None:
        """The feed ends once `is_let_in` says no."""
        super().__init__(headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._gateway, self._watch, self._is_let_in = gateway, watch, is_let_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client leaves, is too slow, or the gateway closes."""
        telling = asyncio.ensure_future(self._tell(send))
        leaving = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait((telling, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks((telling, leaving))
            self._gateway.unsubscribe(self._watch)

    async def _tell(self, send: Send) -> None:
        async def put(body: bytes, more: bool = True) -> None:
            async with asyncio.timeout(self._gateway.patience.stuck_s):
                await send({"type": "http.response.body", "body": body, "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await put(f": from {self._watch.cursor}\n\n".encode())

        async def page() -> bytes:
            async with self._gateway.slice_for(self._watch):
                return b"".join(map(lines, await self._watch.take()))

        while not self._gateway.closing.is_set():
            body = await page()
            if not body:
                await self._watch.wait(self._gateway.patience.quiet_s)
                body = await page()
            if not await self._is_let_in():
                return
            await put(body or b": quiet\n\n")
        await put(lines(FeedClosing(cursor=self._watch.cursor, reason="the gateway closes")), more=False)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def lines(event: FeedEvent) -> bytes:
    """One event, as a stream has it. An event from which a feed can be resumed carries its number."""
    told = to_wire(event)
    number = f"id: {event.cursor}\n" if isinstance(event, RunHappened | RowEvent | FeedClosing) else ""
    return f"{number}event: {told['type']}\ndata: ".encode() + _encode(told) + b"\n\n"
