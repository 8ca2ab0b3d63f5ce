"""HTTP/1.1 as bytes: a request's head is made here, an answer's head and body are read here.

As much of the protocol as a POST to a model service needs, read strictly: where two readers could disagree on where an
answer ends, it is refused as `BadAnswer`. Every size is bounded. Nothing here waits, or knows a socket.
"""

import re
from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from fledge.errors import BadInput

MOST_HEAD_BYTES = 64 * 1024
"""Of an answer's head, whatever comes before it (1xx) included."""
MOST_LINE_BYTES = 16 * 1024
_MOST_SIZE_LINE_BYTES = 1024
_MOST_TRAILER_BYTES = 4096

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_LONE_LF = re.compile(rb"(?<!\r)\n")
_LENGTH = re.compile(r"\d{1,18}")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_SIZE_BEGUN = re.compile(rb"[0-9a-fA-F]{0,15}(?:(?<=[0-9a-fA-F])[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r?)?")


class BadAnswer(Exception):
    """What came back is no HTTP/1.1 that can be trusted. Never leaves this package: it becomes a `Broke`."""


# ---- what is sent ----------------------------------------------------------------------------------------------------


def request_head(target: str, fields: Mapping[str, str], body_bytes: int) -> bytes:
    """The head of a POST. A value that could end its line early is refused, and not repeated: it may be a key."""
    lines = [f"POST {target} HTTP/1.1"]
    for name, value in fields.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadInput("headers", f"no header can carry what was given for {name!r}")
        lines.append(f"{name}: {value}")
    lines.append(f"Content-Length: {body_bytes}\r\n\r\n")
    return "\r\n".join(lines).encode("latin-1")


# ---- an answer's head ------------------------------------------------------------------------------------------------


class Head(Struct, frozen=True):
    """Status and header fields of an answer; names in lower case, repeated fields joined by commas."""

    version: Literal["1.0", "1.1"]
    status: int
    fields: dict[str, str]

    @property
    def lasting(self) -> bool:
        """The connection may serve another request once the body was read to its end."""
        return self.version == "1.1" and "close" not in _listed(self.fields.get("connection", ""))


class HeadReader:
    """Bytes in, however they were cut; the final head out, and what came after it."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._room = MOST_HEAD_BYTES

    def feed(self, raw: bytes) -> tuple[Head, bytes] | None:
        """The head and the beginning of the body; None while the head is not whole."""
        held, known = self._held, len(self._held)
        held += raw
        while True:
            # Only what is new is searched: a head that comes byte by byte costs no more than one that does not.
            end = held.find(b"\r\n\r\n", max(0, known - 3))
            if (end if end >= 0 else len(held)) > self._room:
                raise BadAnswer(f"the head of the answer has more than {MOST_HEAD_BYTES} bytes")
            if end < 0:
                if not b"HTTP/1.".startswith(held[:7]) or _LONE_LF.search(held, known):
                    raise BadAnswer("the answer is not HTTP/1.1")
                return None
            head = _head(bytes(held[:end]))
            del held[: end + 4]
            if head.status >= 200:
                return head, bytes(held)
            if head.status == 101:
                raise BadAnswer("the service changed the protocol without being asked")
            # An interim answer: the real one follows.
            self._room -= end
            known = 0


def _head(raw: bytes) -> Head:
    first, *lines = raw.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise BadAnswer("the answer is not HTTP/1.1")
    fields: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None or len(line) > MOST_LINE_BYTES:
            raise BadAnswer("the answer has a malformed header")
        name, value = field[1].decode("ascii").lower(), field[2].decode("latin-1")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return Head("1.1" if status[1] == b"1" else "1.0", int(status[2]), fields)


def _listed(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",")]


# ---- an answer's body ------------------------------------------------------------------------------------------------


class Body(Protocol):
    """Takes the bytes after a head and gives those of the body."""

    over: bool
    """The whole body was seen."""
    beyond: bool
    """More came than belongs to this answer."""

    def feed(self, raw: bytes) -> bytes:
        """What these bytes say; may be nothing."""
        ...

    def closed(self) -> None:
        """Nothing more comes. Refused unless the body may end so."""
        ...


def body_after(head: Head) -> Body:
    """How the body after this head is to be read. Refused if the head says it in two ways, or in one we do not know."""
    coding, length = head.fields.get("transfer-encoding"), head.fields.get("content-length")
    if head.status in (204, 304):
        return Counted(0)
    if coding is not None:
        if coding.lower() != "chunked" or length is not None or head.version == "1.0":
            raise BadAnswer("the answer does not say clearly where it ends")
        return Chunked()
    if length is not None:
        lengths = set(_listed(length))
        if len(lengths) != 1 or not _LENGTH.fullmatch(length := lengths.pop()):
            raise BadAnswer("the answer does not say clearly where it ends")
        return Counted(int(length))
    return UntilClosed()


class Counted:
    """A body of a length that was said beforehand."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.over = length == 0
        self.beyond = False

    def feed(self, raw: bytes) -> bytes:
        """As much of it as belongs to the body."""
        self.beyond = self.beyond or len(raw) > self._left
        piece = raw[: self._left]
        self._left -= len(piece)
        self.over = not self._left
        return piece

    def closed(self) -> None:
        """Refused while bytes are missing."""
        if not self.over:
            raise BadAnswer("the connection was closed in the middle of the answer")


class UntilClosed:
    """A body that ends with its connection."""

    def __init__(self) -> None:
        self.over = False
        self.beyond = False

    def feed(self, raw: bytes) -> bytes:
        """All of it."""
        return raw

    def closed(self) -> None:
        """This is how it ends."""
        self.over = True


class Chunked:
    """A body in chunks, each with its size before it. What a chunk extension or a trailer says is dropped."""

    def __init__(self) -> None:
        self.over = False
        self.beyond = False
        self._next: Literal["size", "data", "end of data", "trailer"] = "size"
        self._left = 0
        self._held = b""

    def feed(self, raw: bytes) -> bytes:
        """The data of the chunks, those included that are not yet whole."""
        if self._held:
            raw, self._held = self._held + raw, b""
        found: list[bytes] = []
        at, size = 0, len(raw)
        while at < size and not self.over:
            if self._next == "size":
                line = _SIZE.match(raw, at)
                if line is None:
                    self._hold_size(raw[at:])
                    break
                at, left = line.end(), int(line[1], 16)
                end = at + left
                if left and raw.startswith(b"\r\n", end):  # a whole chunk, as nearly all are
                    found.append(raw[at:end])
                    at = end + 2
                else:
                    self._left, self._next = left, "data" if left else "trailer"
            elif self._next == "data":
                end = at + self._left
                found.append(raw[at:end])
                self._left = max(0, end - size)
                if not self._left:
                    self._next = "end of data"
                at = end
            elif self._next == "end of data":
                if not raw.startswith(b"\r\n", at):
                    self._hold_end(raw[at:])
                    break
                at, self._next = at + 2, "size"
            else:
                at = self._trailer(raw, at)
        self.beyond = self.beyond or (self.over and at < size)
        return b"".join(found)

    def closed(self) -> None:
        """Refused before the last chunk."""
        if not self.over:
            raise BadAnswer("the connection was closed in the middle of the answer")

    def _hold_size(self, rest: bytes) -> None:
        if len(rest) > _MOST_SIZE_LINE_BYTES or not _SIZE_BEGUN.fullmatch(rest):
            raise BadAnswer("the answer has a chunk of no known size")
        self._held = rest

    def _hold_end(self, rest: bytes) -> None:
        if rest != b"\r":
            raise BadAnswer("a chunk of the answer is longer than it said")
        self._held = rest

    def _trailer(self, raw: bytes, at: int) -> int:
        """Where the answer ends; the end of what is there, if it does not end yet."""
        if raw.startswith(b"\r\n", at):
            self.over = True
            return at + 2
        end = raw.find(b"\r\n\r\n", at)
        if (end if end >= 0 else len(raw)) - at > _MOST_TRAILER_BYTES:
            raise BadAnswer(f"the trailer of the answer has more than {_MOST_TRAILER_BYTES} bytes")
        if end < 0 and not _LONE_LF.search(raw, at):
            self._held = raw[at:]
            return len(raw)
        if end < 0 or not all(_FIELD.fullmatch(line) for line in raw[at:end].split(b"\r\n")):
            raise BadAnswer("the answer has a malformed trailer")
        self.over = True
        return end + 4
