"""The one way to a provider: a POST whose answer is a stream of server-sent events.

`Endpoint` owns the connections to one service and turns everything that can go wrong on the way into one `Broke`. What
the events mean is the business of a `ReplyReading`; nothing here knows a protocol's fields. A stream that is closed
early, by its consumer or by cancellation, closes its connection. The connections are `transport.Connections`, which are
loaded with the first request.
"""

import asyncio
import errno
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from fledge.clock import Clock
from fledge.core.value import Value
from fledge.egress import Environment, Headers, is_http_address, proxy_for
from fledge.errors import BadInput
from fledge.models.base import Broke, ModelEvent
from fledge.models.keys import SecretKey
from fledge.models.provider_errors import ErrorBody, broke, fault_in, remedy, shown, trouble_of

if TYPE_CHECKING:
    from fledge.models.transport import Connections, HttpAnswer

_MOST_ERROR_BYTES = 64 * 1024
# A compressed stream comes in blocks: late, and costly to unpack.
_FIELDS = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "User-Agent": "fledge"}
_PROXY_REFUSES = 407
_NOBODY_THERE = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)


class HttpLimits(Value, kw_only=True):
    """How patient we are, and how much we take."""

    connect_s: float = 15.0
    """Until a connection stands."""
    request_s: float = 1800.0
    """For the whole reply."""
    idle_s: float = 300.0
    """Between two pieces of a reply, and before the first one."""
    max_event_bytes: int = 8 * 1024 * 1024
    max_reply_bytes: int = 128 * 1024 * 1024


class Access(Struct, frozen=True, kw_only=True):
    """How a service is asked, besides its address and its protocol."""

    headers: Headers = {}
    query: Mapping[str, str] = {}
    env: Environment = {}
    """Where proxies and the file of certificates are named."""
    ca_file: str | None = None
    """Certificates of authorities that are believed besides."""
    provider: str = ""
    """The name of the service, for what users are told to change; empty: they are told nothing."""
    key_place: str = ""
    """Where its key comes from: a variable or a setting."""


class BrokenReply(Exception):
    """The reply broke. Never leaves this package: `Endpoint.stream` makes an event of it."""

    def __init__(self, event: Broke) -> None:
        super().__init__(event.message)
        self.event = event


def broken_stream(fault: ErrorBody, words: str) -> BrokenReply:
    """A reply that broke by an error in the stream."""
    status = fault.status
    return BrokenReply(Broke(trouble_of(status, fault), f"error in the stream: {words}", None, status))


class Wire(Struct, gc=False):
    """A part of what a service sends, as far as it is read."""


class ReplyReading(ABC):
    """Makes model events of one reply's server-sent events. May raise `BrokenReply` or a msgspec error."""

    def __init__(self, model: str, provider: str, searches: bool = False) -> None:
        """`searches`: the service may search the web for it."""
        self.finished = False
        """The service has said why the reply ended: it is whole, whatever happens to the connection now."""
        self.over = False
        """The service has said that nothing more will come."""
        self._asked = self._model = model
        """The model that was asked, and the one that answers."""
        self._provider, self._searches = provider, searches

    @abstractmethod
    def take(self, data: bytes) -> Iterable[ModelEvent]:
        """What one event's data says."""

    @abstractmethod
    def ending(self) -> Iterable[ModelEvent]:
        """What is yielded last, once the reply is whole; ends with `Ended`."""


Plainer = Callable[[Broke], bytes | None]
"""The body to send instead of one that was refused with this `Broke`; None if there is none. Called until it is None,
so that it must run out of bodies."""


class EventLines:
    """Bytes in, however they were cut; the data of whole server-sent events out."""

    def __init__(self, max_event_bytes: int) -> None:
        self._most = max_event_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._held = 0

    def feed(self, raw: bytes) -> list[bytes]:
        """The data of every event that these bytes complete. An event over the limit is refused."""
        first, *lines = raw.split(b"\n")
        self._line.append(first)
        self._held += len(first)
        if not lines:
            self._check()
            return []
        lines.insert(0, b"".join(self._line))
        rest = lines.pop()
        self._line = [rest]
        found: list[bytes] = []
        data = self._data
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif data and line in (b"", b"\r"):
                # One line of data is what everybody sends: nothing to join, and JSON does not mind blanks around it.
                found.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
        self._held = len(rest) + sum(map(len, data))
        self._check()
        return found

    def _check(self) -> None:
        if self._held > self._most:
            raise BrokenReply(Broke("interrupted", f"one event of the reply has more than {self._most} bytes"))


class Endpoint:
    """The connections to one service. Use it from one event loop at a time."""

    def __init__(
        self,
        base_url: str,
        path: str,
        key: SecretKey | None,
        limits: HttpLimits,
        clock: Clock,
        access: Access,
    ) -> None:
        """`path`: where every request goes, below the address. `key`: what is never shown."""
        self._base, self._key = checked_url(base_url), key
        self._limits, self._clock, self._access = limits, clock, access
        self._path = path + (f"?{urlencode(access.query)}" if access.query else "")
        self._fields = _over(_FIELDS, access.headers)
        self._proxy = proxy_for(self._base, access.env)
        self._connections: Connections | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self._base})"

    async def stream(
        self, headers: Headers, body: bytes, reading: ReplyReading, plainer: Plainer
    ) -> AsyncIterator[ModelEvent]:
        """Send the request and yield what the reading makes of the answer; ends with one `Ended` or one `Broke`."""
        begun, key = False, self._key
        try:
            answer = await self._accepted(headers, body, plainer)
            begun = True
            try:
                lines = EventLines(self._limits.max_event_bytes)
                left = self._limits.max_reply_bytes
                while not reading.over:
                    raw = await _next(answer, reading)
                    if not raw:
                        break
                    left -= len(raw)
                    if left < 0:
                        raise BrokenReply(
                            Broke("interrupted", f"the reply has more than {self._limits.max_reply_bytes} bytes")
                        )
                    for data in lines.feed(raw):
                        for event in reading.take(data):
                            yield event
                if reading.over:
                    with suppress(OSError):
                        await answer.to_the_end()
            finally:
                answer.close()
            if not reading.finished:
                raise BrokenReply(Broke("interrupted", "the stream ended before the reply did"))
            for event in reading.ending():
                yield event
        except BrokenReply as reply:
            yield self._shown(reply.event)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            yield Broke("interrupted", shown(f"malformed chunk: {error}", key))
        except BadInput as error:
            yield Broke("bad_request", shown(str(error), key))
        except OSError as error:
            words = str(error) or type(error).__name__
            if isinstance(error, TimeoutError):
                words = f"no answer in time ({words})"
            elif not begun and (why := _unreachable(error)):
                words = f"{self._base} cannot be reached ({why}): is the address right, and the server running?"
            yield Broke("interrupted" if begun else "retryable", shown(words, key))

    def _shown(self, event: Broke) -> Broke:
        """The event as users may see it, with what they must change."""
        access = self._access
        change = remedy(event, access.provider, access.key_place, self._base) if access.provider else ""
        return msgspec.structs.replace(event, message=shown(event.message, self._key), remedy=change)

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        opened, self._connections = self._connections, None
        if opened is not None and (opened.loop is asyncio.get_running_loop() or opened.loop.is_closed()):
            await opened.close()

    async def _accepted(self, headers: Headers, body: bytes, plainer: Plainer) -> "HttpAnswer":
        """The answer to the request, or to the first plainer one that is not refused."""
        while True:
            try:
                return await self._post(headers, body)
            except BrokenReply as refusal:
                second = plainer(refusal.event)
                if second is None:
                    raise
                body = second

    async def _post(self, headers: Headers, body: bytes) -> "HttpAnswer":
        # Redirects are not followed: they would carry the key to a place nobody configured.
        answer = await (await self._opened()).send(self._path, _over(headers, self._fields), body)
        try:
            status, fields = answer.status, answer.fields
            kind = fields.get("content-type", "text/event-stream").lower()
            packed = fields.get("content-encoding", "identity").lower()
            if status == 200 and kind.startswith("text/event-stream") and packed == "identity":
                return answer
            raw = await _bounded(answer) if packed == "identity" else b""
            event = broke(status, raw, fields, self._clock.now(), self._key)
            if status == _PROXY_REFUSES and self._proxy is not None:
                from fledge.models.transport import credentials_wanted

                event = Broke("auth", credentials_wanted(self._proxy), None, status)
            elif 300 <= status < 400:
                event = Broke("bad_request", f"{event.message} (a redirect; base_url is wrong)", None, status)
            elif status < 300:
                fault = fault_in(raw)
                event = broke(fault.status or 400, raw, {}, 0.0, self._key) if fault else event
                words = f"expected text/event-stream, got {kind.split(';')[0]}; is base_url right? {event.message}"
                if packed != "identity":
                    words = f"the answer came compressed ({packed}), which was not asked for"
                event = Broke(event.trouble if fault else "bad_request", words, None, status)
        except BaseException:
            answer.close()
            raise
        answer.close()
        raise BrokenReply(event)

    async def _opened(self) -> "Connections":
        # Connections belong to their loop; those of another one, which may be closed, are of no use here.
        if self._connections is None or self._connections.loop is not asyncio.get_running_loop():
            await self.close()
            from fledge.models.transport import Connections

            self._connections = Connections(self._base, self._access.env, self._access.ca_file, self._limits)
        return self._connections


def _over(headers: Headers, over: Headers) -> dict[str, str]:
    """The headers with these over them, whatever their case."""
    names = {name.lower() for name in over}
    return {name: value for name, value in headers.items() if name.lower() not in names} | dict(over)


def _unreachable(error: OSError) -> str:
    """Why nobody is there to be asked, in the system's words; empty of every other trouble."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    # asyncio puts words of its own in the place of the system's.
    return os.strerror(error.errno) if error.errno in _NOBODY_THERE else ""


async def without_key(name: str) -> AsyncIterator[ModelEvent]:
    """The reply where a key is needed and there is none."""
    yield Broke("auth", no_key(name))


def no_key(name: str) -> str:
    """What is said where a key is needed and there is none."""
    return f"no key: set {name}, or {name}_FILE to a file that only you can read"


def checked_url(base_url: str, field: str = "base_url") -> str:
    """The address without a slash at its end; refused unless it is a plain http(s) one."""
    if not is_http_address(base_url):
        raise BadInput(field, "must be an address like https://host/v1", base_url)
    parts = urlsplit(base_url)
    if parts.username is not None or parts.query or parts.fragment:
        # Not shown: what does not belong here may well be a secret.
        raise BadInput(field, "must have no user, password, query or fragment; a key has its own setting")
    return base_url.rstrip("/")


async def _next(answer: "HttpAnswer", reading: ReplyReading) -> bytes:
    """The next bytes; none at the end. A reply that is whole cannot be broken by the end of its connection."""
    try:
        return await answer.read()
    except OSError:
        if reading.finished:
            return b""
        raise


async def _bounded(answer: "HttpAnswer") -> bytes:
    """The beginning of an error's body, or as much as came before the connection failed."""
    raw = b""
    with suppress(OSError):
        while len(raw) < _MOST_ERROR_BYTES and (piece := await answer.read()):
            raw += piece
    return raw[:_MOST_ERROR_BYTES]
