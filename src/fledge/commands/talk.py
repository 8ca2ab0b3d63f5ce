"""JSON-RPC on a connection that lasts: requests side by side, answers as they are ready, feeds as notifications.

The WebSocket of the gateway and the private socket both speak it; nothing here knows which. A client that reads too
slowly is disconnected, and resumes with the cursor it last saw. A process that leaves reads nothing more, answers the
requests that it has read, and then sends `closing`: a request without an answer by then was not carried out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, Literal, Protocol, TypeVar

from fledge.cancellation import end_tasks
from fledge.commands import rpc
from fledge.commands.events import Subscribed, Unsubscribe
from fledge.commands.feed import FeedClosing, FeedEvent, Subscribe, Watch
from fledge.commands.gateway_state import GatewayState
from fledge.commands.methods import METHODS, call
from fledge.commands.rpc import TOO_MANY, RpcFault
from fledge.commands.table import carry_out
from fledge.commands.wire import WireObject, to_wire
from fledge.errors import NotFound
from fledge.runtime.feed import Subscription

AT_ONCE: Final = 1024
"""Requests of one connection that are carried out at the same time."""
FEEDS: Final = 8
"""Feeds that one connection may watch."""

T = TypeVar("T")
CallOnGateway = Callable[[GatewayState, str, WireObject], Awaitable[object]]
"""Carries out a method."""
ConnectionEnd = Literal["gone", "slow", "closing"]
"""Why a connection is over: the client left, it did not read in time, or the process leaves."""


class MessagePipe(Protocol):
    """A connection that carries whole messages."""

    async def receive(self) -> bytes | str | None:
        """The next message; None once the client is gone."""

    async def send(self, told: bytes) -> None:
        """Send one; ConnectionError if the client is gone."""


async def talk(gateway: GatewayState, pipe: MessagePipe, call: CallOnGateway = call) -> ConnectionEnd:
    """Carry out the requests that come on a connection until it is over, by `call`."""
    return await _Talk(gateway, pipe, call).run()


class _Talk:
    def __init__(self, gateway: GatewayState, pipe: MessagePipe, call: CallOnGateway) -> None:
        self._gateway, self._pipe, self._carry_out = gateway, pipe, call
        self._stuck_s = gateway.patience.stuck_s
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._feeds: dict[int, Telling[bytes]] = {}
        self._stuck = asyncio.Event()
        """Set when the client did not read a message in time."""
        self._next = 1
        self._asking = 0

    async def run(self) -> ConnectionEnd:
        reading = asyncio.ensure_future(self._read())
        closing = asyncio.ensure_future(self._gateway.closing.wait())
        stuck = asyncio.ensure_future(self._stuck.wait())
        try:
            await asyncio.wait((reading, closing, stuck), return_when=asyncio.FIRST_COMPLETED)
            if stuck.done():
                return "slow"
            if reading.done():
                return "gone"
            reading.cancel()
            await self._drain()
            return "closing"
        finally:
            feeds = (feed.task for feed in self._feeds.values())
            await end_tasks((reading, closing, stuck, *self._tasks, *feeds))

    async def _drain(self) -> None:
        """Wait until the requests are answered and the feeds have sent where to resume; then send `closing`, which says
        that nothing else was carried out. It is not sent if this takes too long."""
        waiting = {*self._tasks, *(feed.task for feed in self._feeds.values())}
        left = (await asyncio.wait(waiting, timeout=self._stuck_s))[1] if waiting else set()
        if not left:
            await self._write(rpc.notification("closing", {}))

    async def _read(self) -> None:
        while (raw := await self._pipe.receive()) is not None:
            task = asyncio.ensure_future(self._answer(raw))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, raw: str | bytes) -> None:
        self._gateway.requests += 1
        begun: list[Telling[bytes]] = []
        told = await rpc.answer(raw, partial(self._call, begun))
        for feed in (*self._feeds.values(),):
            if not feed.is_far_behind:
                await feed.tell()  # events that precede an answer are sent before it
        if told is not None:
            await self._write(told)
        for feed in begun:
            feed.announced.set()

    async def _call(self, begun: list["Telling[bytes]"], name: str, given: WireObject) -> object:
        """Carry out a method; feeds that begin are added to `begun`."""
        if self._asking >= AT_ONCE:
            raise RpcFault(TOO_MANY, f"{AT_ONCE} requests of this connection are being carried out: wait for one")
        self._asking += 1
        try:
            match name:
                case "events.subscribe":
                    return await carry_out(self._gateway, METHODS[name], given, partial(self._subscribe, begun))
                case "events.unsubscribe":
                    return await carry_out(self._gateway, METHODS[name], given, self._unsubscribe)
                case _:
                    return await self._carry_out(self._gateway, name, given)
        finally:
            self._asking -= 1

    async def _write(self, told: bytes) -> None:
        """Send a message; a client that does not read it in time is disconnected."""
        try:
            async with asyncio.timeout(self._stuck_s), self._writing:
                await self._pipe.send(told)
        except TimeoutError:
            self._stuck.set()
        except ConnectionError:
            pass  # it is gone already

    # ---- feeds

    async def _subscribe(self, begun: list["Telling[bytes]"], params: Subscribe) -> object:
        if len(self._feeds) >= FEEDS:
            raise RpcFault(TOO_MANY, f"{FEEDS} feeds are watched on this connection already")
        watch = await watched(self._gateway, params)
        number, self._next = self._next, self._next + 1
        cursor = watch.cursor
        feed = self._feeds[number] = Telling(self._gateway, watch, self._write, partial(_event, number))
        begun.append(feed)
        return to_wire(Subscribed(subscription=number, cursor=cursor))

    async def _unsubscribe(self, params: Unsubscribe) -> object:
        feed = self._feeds.pop(params.subscription, None)
        if feed is None:
            raise NotFound(f"no subscription {params.subscription} on this connection")
        await feed.end()
        return {"ok": True}


def _event(number: int, event: FeedEvent) -> bytes:
    return rpc.notification("event", {"subscription": number, **to_wire(event)})


async def watched(gateway: GatewayState, wanted: Subscribe, early: Subscription | None = None) -> Watch:
    """A feed that has begun; its user, such as `Telling`, ends it. Refused: too many feeds, a cursor above the last
    event."""
    watch = Watch(gateway.fl, wanted, early)
    gateway.subscribe(watch)
    try:
        await watch.begin()
    except BaseException:
        gateway.unsubscribe(watch)
        raise
    return watch


class Telling(Generic[T]):
    """Sends the events of one feed, from `announced` on, until the process leaves or `end` is called: each encoded, and
    then written."""

    def __init__(
        self,
        gateway: GatewayState,
        watch: Watch,
        write: Callable[[T], Awaitable[None]],
        encode: Callable[[FeedEvent], T],
    ) -> None:
        self._gateway, self._watch, self._write, self._encode = gateway, watch, write, encode
        self._telling = asyncio.Lock()
        self.announced = asyncio.Event()
        """Set once the watcher knows the number of its subscription."""
        self.task = asyncio.ensure_future(self._run())

    async def tell(self) -> None:
        """Send the events so far; once the process leaves, a page at most."""
        if not self.announced.is_set():
            return
        async with self._telling:
            await self._page()
            last = self._watch.last
            while self._watch.is_behind(last) and not self._gateway.closing.is_set():
                await self._page()

    async def _page(self) -> None:
        async with self._gateway.slice_for(self._watch):
            page = [self._encode(event) for event in await self._watch.take()]
        for event in page:
            await self._write(event)

    @property
    def is_far_behind(self) -> bool:
        """True if many events come before the present ones."""
        return self._watch.is_far_behind

    async def end(self) -> None:
        """Stop sending."""
        await end_tasks([self.task])

    async def _run(self) -> None:
        try:
            await self.announced.wait()
            while not self._gateway.closing.is_set():
                await self.tell()
                await self._watch.wait(self._gateway.patience.quiet_s)
            await self.tell()
            reason = "the process that holds the folder leaves"
            await self._write(self._encode(FeedClosing(cursor=self._watch.cursor, reason=reason)))
        finally:
            self._gateway.unsubscribe(self._watch)
