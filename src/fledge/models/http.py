"""Reading a reply: the stream of server-sent events, and its limits.

A `ReplyReading` interprets the events; nothing here knows a protocol's fields, or opens a connection.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from fledge.core.value import Value
from fledge.egress import is_http_address
from fledge.errors import BadInput
from fledge.models.base import Broke, Call, ModelEvent, Opaque, ReplyEnded, StopReason, Text, Usage
from fledge.models.opaque import seal
from fledge.models.provider_errors import ErrorBody, trouble_of


class HttpLimits(Value, kw_only=True):
    """The limits of time and size for a request and its reply."""

    connect_s: float = 15.0
    """Seconds until a connection is open."""
    request_s: float = 1800.0
    """Seconds for the whole reply."""
    idle_s: float = 300.0
    """Seconds between two pieces of a reply, and before the first one."""
    max_event_bytes: int = 8 * 1024 * 1024
    max_reply_bytes: int = 128 * 1024 * 1024


class BrokenReply(Exception):
    """The reply broke. Never leaves this package: `HttpModel.stream` makes an event of it."""

    def __init__(self, event: Broke) -> None:
        super().__init__(event.message)
        self.event = event


def broken_stream(fault: ErrorBody, words: str) -> BrokenReply:
    """The exception for an error that came inside the stream."""
    status = fault.status
    return BrokenReply(Broke(trouble_of(status, fault), f"error in the stream: {words}", None, status))


class Wire(Struct, gc=False):
    """A part of the data that a service sends, with the fields that are read."""


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
        """The model events in the data of one server-sent event."""

    @abstractmethod
    def ending(self) -> Iterable[ModelEvent]:
        """The last model events, once the reply is whole; ends with `ReplyEnded`."""

    def _ended(
        self,
        stop: StopReason,
        calls: Iterable[Call],
        dropped: str,
        usage: Usage | None,
        kept: object,
        sources: str = "",
    ) -> list[ModelEvent]:
        """The last events of a reply: the sources of its text, the data that the service wants back (none if `kept` is
        empty), its calls, the usage, and the stop reason."""
        events: list[ModelEvent] = [Text(sources)] if sources else []
        if kept:
            events.append(Opaque(seal(self._provider, self._asked, kept)))
        events += calls
        if usage is not None:
            events.append(usage)
        return [*events, ReplyEnded(stop, self._model, dropped)]


REPLACEMENT: Final = b"\\ufffd"
_ESCAPES: Final = re.compile(
    rb"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb'|(?P<first>\\u[dD][89abAB][0-9a-fA-F]{2}(?="))'
    rb'|(?P<second>(?<=")\\u[dD][c-fC-F][0-9a-fA-F]{2})'
    rb"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\."
)


class SurrogatePairs:
    """Joins the halves of characters that JSON writes as two escapes. A service that cuts text by UTF-16 units sends
    the first half at the end of a chunk, and the second at the beginning of the next one. A half without the other
    becomes U+FFFD, the replacement character."""

    def __init__(self) -> None:
        self._first = b""

    def joined(self, data: bytes) -> bytes:
        """The next chunk, with whole characters."""
        return _ESCAPES.sub(self._whole, data) if b"\\u" in data else data

    def _whole(self, found: re.Match[bytes]) -> bytes:
        match found.lastgroup:
            case "first":
                lone, self._first = bool(self._first), found[0]
                return REPLACEMENT if lone else b""
            case "second":
                first, self._first = self._first, b""
                return first + found[0] if first else REPLACEMENT
            case "lone":
                return REPLACEMENT
            case _:
                return found[0]


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
                # Nearly all services send one line of data: nothing to join, and JSON may have blanks around it.
                found.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
        self._held = len(rest) + sum(map(len, data))
        self._check()
        return found

    def _check(self) -> None:
        if self._held > self._most:
            raise BrokenReply(Broke("interrupted", f"one event of the reply has more than {self._most} bytes"))


def no_key(name: str) -> str:
    """The error text for a needed key that is not set."""
    return f"no key: set {name}, or {name}_FILE to a file that only you can read"


def checked_url(base_url: str, field: str = "base_url") -> str:
    """The address without a slash at its end; refused unless it is a plain http(s) one."""
    if not is_http_address(base_url):
        raise BadInput(field, "must be an address like https://host/v1", base_url)
    parts = urlsplit(base_url)
    if parts.username is not None or parts.query or parts.fragment:
        # The address is not shown: its parts that do not belong here may hold a secret.
        raise BadInput(field, "must have no user, password, query or fragment; a key has its own setting")
    return base_url.rstrip("/")
