"""A connection to the process that holds a state folder. It carries concurrent requests, and feeds, until either side
closes it.

There are two transports: the control socket, a socket in the folder that only its owner can reach, and the WebSocket of
a gateway, with a token. Both carry the same messages, so values, errors and feeds are the same.
"""

import asyncio
import contextlib
import io
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from fledge.cancellation import end_tasks
from fledge.commands.line_pipe import LinePipe
from fledge.core.redact import error_words
from fledge.errors import BadInput, FledgeError, HolderLeft, NotFound, Refused, StoreError
from fledge.store.lock import holder_of, silence_of
from fledge.store.ways import CONTROL_SOCKET, check_folder, reached, read_token

if TYPE_CHECKING:
    import aiohttp

ANSWER_S: Final = 60.0
"""How long an answer may take, in addition to the wait that the request itself asks for: verbs that wait do so for 30 s
if the request names no time."""
CONNECT_S: Final = 5.0
PROBE_S: Final = 1.0
"""How long a request waits before the other side is probed, and how long it may take to answer that."""
PROBE: Final = msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "method": "ping"})
"""A request that any process refuses at once, unless it is stopped or its event loop is blocked."""
LARGE_BYTES: Final = 64 * 1024
"""A request larger than this is sent separately: no other request waits behind it, and if the other side refuses its
size, it is clear which request was refused."""
MOST_BYTES: Final = 1 << 62
"""The limit for the length of a message from the other side: in effect, none."""
MOST_HEARD: Final = 10_000
"""How many events wait for a slow reader of a feed before events of turns are dropped."""

log = logging.getLogger("fledge.client")

VerbParams = Mapping[str, object]
"""The parameters of a verb, by their names on the wire."""
WireEvent = dict[str, Any]
WireFeed = AsyncGenerator[WireEvent, None]
"""Events, as they look on the wire."""


class ClientPipe(Protocol):
    """Carries whole messages."""

    async def send(self, message: bytes) -> None:
        """Send a message. Raises ConnectionError if the other side is gone."""

    async def receive(self) -> bytes | None:
        """The next message; None once the other side is gone."""

    async def close(self) -> None:
        """Close the connection."""


class VerbServer(Protocol):
    """A place at which a process answers requests: a control socket or a gateway."""

    async def reach(self) -> ClientPipe:
        """A new connection. Raises HolderLeft if no process accepts it, Refused if the process rejects it."""

    async def alone(self, number: int, request: bytes, wait_s: float) -> WireEvent:
        """The answer to one large request, sent separately."""

    @property
    def left(self) -> str:
        """The text of the error that the process there is gone."""

    @property
    def silence(self) -> str:
        """Words for people while the process there does not answer at all."""

    on_silence: Callable[[str], None]
    """Gets these words."""


class Connection:
    """One connection. Made by `connect`; close it when done."""

    def __init__(self, place: VerbServer, pipe: ClientPipe) -> None:
        self._place, self._pipe = place, pipe
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[WireEvent]] = {}
        self._feeds: dict[int, EventBuffer] = {}
        self._says_closing = False
        """True once the other side has announced its end: it has answered all requests that it read, and carries out no
        others."""
        self._over = asyncio.Event()
        self._heard = 0
        """How many messages have come from the other side."""
        self._watching: asyncio.Task[None] | None = None
        """Watches that the other side answers anything at all, while requests wait."""
        self._reading = asyncio.ensure_future(self._read())

    @property
    def is_open(self) -> bool:
        """False once either side has closed the connection."""
        return not self._over.is_set()

    async def ended(self) -> None:
        """Wait until either side has closed the connection."""
        await self._over.wait()

    async def close(self) -> None:
        """Close the connection. Calls that still wait get HolderLeft."""
        await end_tasks([self._reading, *([] if self._watching is None else [self._watching])])
        await self._end()

    async def call(self, method: str, params: VerbParams) -> Any:
        """The answer of the method. Raises its refusal as the library would; HolderLeft if the other side leaves before
        it has answered, StoreError if it does not answer in time."""
        number, wait_s = next(self._numbers), _patience(params)
        raw = msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            if len(raw) > LARGE_BYTES:
                told = await self._place.alone(number, raw, wait_s)
            else:
                async with asyncio.timeout(wait_s):
                    told = await self._exchange(number, raw)
        except TimeoutError:
            raise StoreError(f"{self._place} takes too long to answer") from None
        return result_of(told)

    async def _exchange(self, number: int, raw: bytes) -> WireEvent:
        if not self.is_open:
            raise HolderLeft(self._place.left, acted=False)
        answer: asyncio.Future[WireEvent] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch_silence())
        try:
            with contextlib.suppress(ConnectionError):  # then the reading task finds that the other side is gone
                await self._pipe.send(raw)
            return await answer
        finally:
            del self._asked[number]
            if answer.done() and not answer.cancelled():
                answer.exception()  # so that asyncio does not report it as never retrieved

    async def _watch_silence(self) -> None:
        """Probe the other side while requests wait for it: they may take long, but a process at work answers a probe.
        Says once that it does not, and again after it has answered."""
        is_told = False
        while self._asked and self.is_open:
            await asyncio.sleep(PROBE_S)
            heard = self._heard
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(PROBE_S):
                    await self._pipe.send(PROBE)
            await asyncio.sleep(PROBE_S)
            is_silent = bool(self._asked) and self.is_open and self._heard == heard
            if is_silent and not is_told:
                self._place.on_silence(self._place.silence)
            is_told = is_silent

    async def events(self, cursor: int | None = None, session: str = "", live: bool = True) -> WireFeed:
        """Events from the cursor on (from now on, without one); the last one is of type `closing`, with the cursor to
        resume from."""
        wanted = {"session": session, "live": live} | ({} if cursor is None else {"cursor": cursor})
        told = await self.call("events.subscribe", wanted)
        number, at = told["subscription"], told["cursor"]
        heard = self._feeds.setdefault(number, EventBuffer())
        if not self.is_open:
            heard.end()
        try:
            yield {"type": "from", "cursor": at}
            while (event := await heard.next()) is not None:
                at = event.get("cursor", at)
                yield event
                if event["type"] == "closing":
                    return
            yield {"type": "closing", "cursor": at, "reason": self._place.left}
        finally:
            self._feeds.pop(number, None)
            if self.is_open:
                with contextlib.suppress(FledgeError):
                    await self.call("events.unsubscribe", {"subscription": number})

    async def _read(self) -> None:
        try:
            while (raw := await self._pipe.receive()) is not None:
                self._heard += 1
                self._hear(msgspec.json.decode(raw))
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            pass  # the other side is not fledge: close the connection
        await self._end()

    async def _end(self) -> None:
        self._over.set()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(HolderLeft(self._place.left, acted=not self._says_closing))
        for heard in self._feeds.values():
            heard.end()
        await self._pipe.close()

    def _hear(self, told: WireEvent) -> None:
        match told.get("method"):
            case "event":
                event = dict(told["params"])
                self._feeds.setdefault(event.pop("subscription"), EventBuffer()).put(event)
            case "closing":
                self._says_closing = True
            case None:
                number = told["id"]
                # A refusal without a number is for a message that could not be read: all requests under way get it.
                for answer in (*self._asked.values(),) if number is None else (self._asked.get(number),):
                    if answer is not None and not answer.done():
                        answer.set_result(told)


async def connect(place: VerbServer) -> Connection:
    """A connection to the process at this place. Raises HolderLeft if no process accepts it, Refused if the process
    rejects it."""
    return Connection(place, await place.reach())


def _patience(params: VerbParams) -> float:
    wait_s = ANSWER_S
    for name, seconds in (("timeoutSeconds", 1.0), ("timeoutMs", 0.001)):
        given = params.get(name)
        wait_s += given * seconds if isinstance(given, int | float) else 0.0
    return wait_s


class EventBuffer:
    """Events that wait for the reader of a feed."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[WireEvent | None] = asyncio.Queue()
        self._lost = 0

    def put(self, event: WireEvent) -> None:
        """Add an event; one of a turn is dropped and counted if too many wait."""
        if event["type"] == "turn" and self._waiting.qsize() >= MOST_HEARD:
            self._lost += 1
        else:
            self._waiting.put_nowait(event)

    def end(self) -> None:
        """Add the end: after the events that wait, `next` returns None."""
        self._tell_lost()
        self._waiting.put_nowait(None)

    async def next(self) -> WireEvent | None:
        """The next event; None at the end."""
        if self._waiting.empty():
            self._tell_lost()
        return await self._waiting.get()

    def _tell_lost(self) -> None:
        if self._lost:
            self._waiting.put_nowait({"type": "lost", "count": self._lost})
            self._lost = 0


def result_of(told: WireEvent) -> Any:
    """The result in an answer. Raises the error in it as the library would."""
    if "error" in told:
        raise error_of(told["error"])
    return told["result"]


def error_of(error: dict[str, Any]) -> FledgeError:
    """The error in an answer, as the library would raise it."""
    data = error.get("data") or {}
    match error["code"]:
        case -32602 if "expected" in data:
            return BadInput(data["field"], error["message"].removeprefix(f"{data['field']}: "))
        case -32001:
            return NotFound(error["message"])
        case -32002:
            return StoreError(error["message"])
        case _:
            return Refused(data.get("status", "error"), error["message"])


# ---- the two transports ----------------------------------------------------------------------------------------------


class ControlSocket:
    """The socket of the process that holds a folder."""

    def __init__(self, state: Path, on_silence: Callable[[str], None] = log.warning) -> None:
        self._state, self.on_silence = state, on_silence

    def __str__(self) -> str:
        return f"the process that holds {self._state}"

    @property
    def silence(self) -> str:
        """Words for people while the process there does not answer at all."""
        return silence_of(holder_of(self._state / "lock"), self._state)

    @property
    def left(self) -> str:
        """The text of the error that the process there is gone."""
        return f"the process that held {self._state} ended before it answered"

    async def reach(self) -> ClientPipe:
        """A new connection."""
        try:
            async with asyncio.timeout(CONNECT_S):
                with reached(self._state) as path:
                    reader, writer = await asyncio.open_unix_connection(path, limit=MOST_BYTES)
        except TimeoutError:
            raise StoreError(f"{self} takes too long to answer") from None
        except OSError:
            raise HolderLeft(self.left, acted=False) from None
        return LinePipe(reader, writer)

    async def alone(self, number: int, request: bytes, wait_s: float) -> WireEvent:
        """The answer to one request, on a connection of its own."""
        own = await connect(self)
        try:
            async with asyncio.timeout(wait_s):
                return await own._exchange(number, request)
        finally:
            await own.close()


def checked_address(address: str) -> str:
    """The address of a gateway. Raises BadInput, without repeating a password, for one that cannot be right."""
    from urllib.parse import urlsplit  # needed only for gateways

    try:
        parts = urlsplit(address)
        has_secret = "@" in parts.netloc
        is_right = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not (parts.query or parts.fragment)
            and address.isprintable()
        )
    except ValueError:
        is_right = has_secret = False
    if has_secret:  # the error does not repeat it
        raise BadInput("gateway", "must be an address without a name and password: the gateway asks for its token")
    if not is_right:
        raise BadInput("gateway", "must be like http://127.0.0.1:18789 or https://example.org", address)
    return address.rstrip("/")


class Gateway:
    """A gateway, by its address and token."""

    def __init__(self, address: str, token: str) -> None:
        address = checked_address(address)
        if not token or not token.isascii() or not token.isprintable():
            raise BadInput("token", "must be the gateway's token: the file gateway.token of its state folder has it")
        self.address = address
        self.on_silence: Callable[[str], None] = log.warning
        self._headers = {"authorization": f"Bearer {token}"}

    def __str__(self) -> str:
        return f"the gateway at {self.address}"

    @property
    def silence(self) -> str:
        """Words for people while the process there does not answer at all."""
        return f"{self} does not answer: its process is stopped or too busy, or the network is down"

    @property
    def left(self) -> str:
        """The text of the error that the process there is gone."""
        return f"{self} ended before it answered"

    async def reach(self) -> ClientPipe:
        """A new connection."""
        import aiohttp

        session = aiohttp.ClientSession(trust_env=True)
        try:
            async with asyncio.timeout(CONNECT_S):
                websocket = await session.ws_connect(
                    f"{self.address}/ws", headers=self._headers, heartbeat=20.0, max_msg_size=0
                )
        except BaseException as error:
            await session.close()
            raise self._refusal(error) from None
        return _Messages(session, websocket)

    async def alone(self, number: int, request: bytes, wait_s: float) -> WireEvent:
        """The answer to one request, by POST."""
        import aiohttp

        headers = {**self._headers, "content-type": "application/json"}
        patience, body = aiohttp.ClientTimeout(total=wait_s), io.BytesIO(request)
        try:
            async with (
                aiohttp.ClientSession(trust_env=True, timeout=patience) as session,
                session.post(f"{self.address}/rpc", data=body, headers=headers) as answer,
            ):
                told: WireEvent = msgspec.json.decode(await answer.read())
        except aiohttp.ClientError as error:
            acted = not isinstance(error, aiohttp.ClientConnectorError)
            raise HolderLeft(f"{self.left} ({error_words(error)})", acted) from None
        except msgspec.DecodeError:
            raise Refused("error", f"{self}: it is not a fledge gateway") from None
        if answer.status == 503:
            raise HolderLeft(f"{self} takes no requests now", acted=False)
        if answer.status >= 400:
            raise Refused("error", f"{self} answered {answer.status}: {told.get('error')}")
        return told

    def _refusal(self, error: BaseException) -> BaseException:
        """The error for the caller when no connection was made; an exception with another cause is returned as it
        is."""
        from aiohttp import ClientError, WSServerHandshakeError

        match error:
            case TimeoutError():
                return StoreError(f"{self} takes too long to answer")
            case WSServerHandshakeError(status=503):
                return HolderLeft(f"{self} takes no requests now", acted=False)
            case WSServerHandshakeError(status=status):
                return Refused("error", f"{self} answered {status}: {_MEANT.get(status, 'it is not a fledge gateway')}")
            case ClientError() | OSError():
                return HolderLeft(f"{self} does not answer ({error_words(error)})", acted=False)
            case _:
                return error


TEXT: Final = 1
"""The type of text messages of a WebSocket."""
_MEANT: Final = {
    401: "the token is not its token",
    421: "it is not asked for under that name: gateway.allowedHosts",
    429: "too many requests: wait a moment",
}


class _Messages:
    """The messages of a WebSocket."""

    def __init__(self, session: "aiohttp.ClientSession", websocket: "aiohttp.ClientWebSocketResponse") -> None:
        self._session, self._websocket = session, websocket

    async def send(self, message: bytes) -> None:
        await self._websocket.send_str(message.decode())

    async def receive(self) -> bytes | None:
        message = await self._websocket.receive()
        return message.data.encode() if message.type == TEXT else None

    async def close(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            await self._websocket.close()
        await self._session.close()
        await asyncio.sleep(0)  # so that the socket is closed even if the loop ends next


async def find(state: Path, on_silence: Callable[[str], None] = log.warning) -> Connection | None:
    """A connection to the process that holds this state folder: to its control socket, else to its gateway. None if no
    process holds the folder, or if the holder takes no requests. Raises Refused or StoreError if it has only a gateway,
    whose token cannot be read.

    The lock file may still name a process that is dead, so only a connection that is accepted counts.
    """
    check_folder(state)
    holder = holder_of(state / "lock")
    if holder is None or not holder.address:
        return None
    try:
        return await connect(ControlSocket(state, on_silence))
    except HolderLeft:
        pass
    if holder.address == CONTROL_SOCKET:
        return None
    try:
        gateway = Gateway(holder.address, read_token(state))
        gateway.on_silence = on_silence
        return await connect(gateway)
    except HolderLeft:
        return None
