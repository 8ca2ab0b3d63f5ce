"""Events inside turns (`TurnEvent`), and how they travel to clients of other processes on the same store.

A process says which sessions its clients watch; that holds for a while (`WatchedSessions`). The process that drives
such a session sends its events as numbered messages of a size that PostgreSQL takes (`packed`). The receiver leaves out
what it has had and notices what is missing (`Received`). Messages may be lost: the entry of the transcript is the
truth, and what it has left behind, as words of a reply that is committed, is late (`is_late`). Pure.

A piece of text says where in its reply it begins (`offset`). So a listener that comes in the middle of a reply can get
the text so far as one piece (`OpenReplies`), and a piece that comes twice, or late, is recognised (`spliced`).
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from fledge.core.cluster import MOST_BYTES
from fledge.core.freeze import to_valid_utf8
from fledge.core.value import Value

WATCH_S: Final = 15.0
"""How long a session counts as watched after a process has said so."""
SAYS_A_WATCH: Final = 3
"""How often a process says so meanwhile."""
COLLECT_S: Final = 0.1
"""How long events are collected before they are sent together."""
CUTS: Final = (2000, 200)
"""Characters of each text of an event that is too long for a message and is not made of words."""

EVENT_BYTES: Final = 256
"""The memory of an event without its texts, about."""
MOST_SO_FAR: Final = 64 * 1024
"""The most characters of an open reply that a listener gets when it comes."""
MOST_HEARD: Final = 100
"""The most open replies of other processes whose text is kept."""

TurnEventKind = Literal[
    "start",
    "end",
    "error",
    "model:start",
    "tool:start",
    "tool:end",
    "assistant:text",
    "usage",
    "retry",
    "interrupt",
    "lost",
    "message",
]


ENDS_A_REPLY: Final[frozenset[TurnEventKind]] = frozenset(
    ("start", "model:start", "tool:start", "retry", "interrupt", "error", "end")
)
"""After an event of this kind no open reply has text: it was committed or given up, or it begins."""


class TurnEvent(Value, omit_defaults=True):
    """An event inside a turn. Depending on `kind`, `text` is text of the model, an error, a tool's name or result.

    >>> async for event in fl.session("main").stream("Hello"):
    ...     if event.kind == "assistant:text":
    ...         print(event.text)
    echo: Hello
    """

    kind: TurnEventKind
    session: str
    text: str = ""
    turn: int = 0
    call: str = ""
    count: int = 0
    """For `lost`: how many events a slow listener missed."""
    remedy: str = ""
    """For `error`: what the user must change; empty if trying again may help."""
    retry_in_s: float = 0.0
    """For `error` and `retry`: in how many seconds the turn is tried again; 0 if it is not."""
    may_pass: bool = False
    """For `error`: trying again may help, without a change by the user."""
    entry: int = 0
    """For `start`, `model:start`, `assistant:text`, `tool:start` and `end`: the newest entry of the transcript; text
    belongs to a later one. For `tool:end`: the entry of the result, once it is stored. For `message`: the entry whose
    whole text this is."""
    arguments: str = ""
    """For `tool:start`: the arguments of the call, as the model wrote them."""
    cause: str = ""
    """For `retry` and `error`: what went wrong with the model; empty if the reason is another."""
    tokens_in: int = 0
    """For `usage`, with the next two fields: what one reply used."""
    tokens_out: int = 0
    cost_usd: float | None = None
    """In US dollars; None if the price is unknown."""
    is_error: bool = False
    """For `tool:end`: the call failed."""
    offset: int = 0
    """For `assistant:text`: how many characters of the reply come before this piece. A piece that begins earlier than
    the text so far ends replaces the rest of it: the reply began anew, or the piece is the text so far."""
    elsewhere: bool = False
    """Another process drives the turn: long texts other than words are cut, and events may be missing."""


def held_bytes(event: TurnEvent) -> int:
    """How much memory an event takes, about."""
    return EVENT_BYTES + event.text.__sizeof__() + event.arguments.__sizeof__() + event.cause.__sizeof__()


class WatchedSessions:
    """Sessions that clients of other processes watch, each until a time."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def note(self, sessions: Iterable[str], now: float) -> None:
        """A process says that its clients watch these."""
        self._until.update(dict.fromkeys(sessions, now + WATCH_S))

    def ends_at(self, now: float) -> float | None:
        """When nothing is watched any more, unless a process says so again; None if nothing is."""
        self._until = {session: at for session, at in self._until.items() if at > now}
        return max(self._until.values(), default=None)

    def covers(self, lineage: Iterable[str], now: float) -> bool:
        """True if a session is watched: by itself, or with one above it."""
        return any(self._until.get(session, now) > now for session in lineage)


def is_late(event: TurnEvent, last: int) -> bool:
    """True of an event of another process that the transcript, whose newest entry is `last`, has left behind: words
    whose reply is committed, the beginning of a step that is over."""
    return event.elsewhere and event.kind != "tool:end" and 0 < event.entry < last


# ---- replies that are not committed ----------------------------------------------------------------------------------


class OpenReply:
    """The text so far of a reply that is not an entry yet."""

    def __init__(self, session: str, turn: int, entry: int, offset: int = 0, elsewhere: bool = False) -> None:
        self.session, self.turn, self.entry = session, turn, entry
        self.texts: list[str] = []
        """The pieces."""
        self.ends_at = offset
        """How many characters the reply has."""
        self._begins_at = offset
        self._elsewhere = elsewhere

    def add(self, text: str) -> None:
        """Add the next piece."""
        self.texts.append(text)
        self.ends_at += len(text)

    def put(self, event: TurnEvent) -> None:
        """Add a piece that says where it begins. Of a very long text the beginning is forgotten."""
        if event.offset == self.ends_at:
            self.texts.append(event.text)
        elif self._begins_at <= event.offset < self.ends_at:
            self.texts = [spliced("".join(self.texts), event.text, event.offset - self._begins_at)]
        else:  # pieces before it are missing
            self.texts, self._begins_at = [event.text], event.offset
        self.ends_at = self._begins_at + sum(map(len, self.texts))
        if self.ends_at - self._begins_at > 2 * MOST_SO_FAR:
            self.texts = [self.so_far().text]
            self._begins_at = self.ends_at - MOST_SO_FAR

    def so_far(self) -> TurnEvent:
        """The text so far, as one piece: of a very long one, its end."""
        self.texts[:] = ["".join(self.texts)]
        text = self.texts[0][-MOST_SO_FAR:]
        return TurnEvent(
            "assistant:text",
            self.session,
            text,
            self.turn,
            entry=self.entry,
            offset=self.ends_at - len(text),
            elsewhere=self._elsewhere,
        )


class OpenReplies:
    """The replies that are being written, by session: `own` are those of turns that this process drives, the others are
    known as far as their events were heard."""

    def __init__(self) -> None:
        self.own: dict[str, OpenReply] = {}
        self._heard: dict[str, OpenReply] = {}

    def begin(self, reply: OpenReply) -> None:
        """A turn of this process begins a reply; `end` it when it is committed or given up."""
        self.own[reply.session] = reply

    def end(self, reply: OpenReply | None) -> None:
        """The reply is not open any more. The session may have a newer one."""
        if reply is not None and self.own.get(reply.session) is reply:
            del self.own[reply.session]

    def hear(self, event: TurnEvent) -> None:
        """Follow turns of another process by their events."""
        if event.kind == "assistant:text":
            reply = self._heard.pop(event.session, None)
            if reply is None or (reply.turn, reply.entry) != (event.turn, event.entry):
                reply = OpenReply(event.session, event.turn, event.entry, event.offset, event.elsewhere)
            reply.put(event)
            self._heard[event.session] = reply  # now the newest
            if len(self._heard) > MOST_HEARD:
                del self._heard[next(iter(self._heard))]
        elif event.kind == "lost":
            self.forget_heard()
        elif event.kind in ENDS_A_REPLY:
            self._heard.pop(event.session, None)

    def forget_heard(self) -> None:
        """Forget the replies of other processes."""
        self._heard.clear()

    def so_far(self, session: str = "") -> list[TurnEvent]:
        """The text so far of the open reply of this session, or of each session, as one event."""
        found = [one for replies in (self.own, self._heard) for one in replies.values() if one.ends_at]
        return [one.so_far() for one in found if session in ("", one.session)]


def spliced(so_far: str, piece: str, offset: int) -> str:
    """The text of a reply after a piece that begins there. One that came before changes nothing."""
    return so_far if so_far.startswith(piece, offset) else so_far[:offset] + piece


# ---- as messages -----------------------------------------------------------------------------------------------------


class LiveMessage(Value, array_like=True):
    """Events of turns that one engine drives."""

    engine: str
    number: int
    """Of this engine's messages; each is one higher than the one before."""
    events: list[Raw]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LiveMessage).decode
_event = msgspec.json.Decoder(TurnEvent).decode
_TEXTS: Final = ("text", "arguments", "call", "cause", "remedy")


def packed(engine: str, number: int, events: Iterable[TurnEvent]) -> list[str]:
    """These events as messages that fit, from this number on. Words that follow each other are joined, and divided
    where they do not fit; other texts that do not fit are cut."""
    head = len(_encode(LiveMessage(engine, number + 10**9, [])))
    batches: list[list[bytes]] = []
    room = 0
    for event in joined(events):
        for piece in _pieces(event, MOST_BYTES - head):
            if len(piece) + 1 > room:
                batches.append([])
                room = MOST_BYTES - head + 1
            batches[-1].append(piece)
            room -= len(piece) + 1
    messages = (LiveMessage(engine, number + at, [Raw(one) for one in batch]) for at, batch in enumerate(batches))
    return [_encode(message).decode() for message in messages]


def joined(events: Iterable[TurnEvent]) -> list[TurnEvent]:
    """The events session by session, each session's in order; words that belong together as one event."""
    by_session: dict[str, list[TurnEvent]] = {}
    for event in events:
        so_far = by_session.setdefault(event.session, [])
        if so_far and _goes_on(so_far[-1], event):
            so_far[-1] = replace(so_far[-1], text=so_far[-1].text + event.text)
        else:
            so_far.append(event)
    return [event for events in by_session.values() for event in events]


def _goes_on(event: TurnEvent, then: TurnEvent) -> bool:
    is_words = event.kind == then.kind == "assistant:text"
    follows = event.offset + len(event.text) == then.offset
    return is_words and follows and (event.turn, event.entry) == (then.turn, then.entry)


def _pieces(event: TurnEvent, most: int) -> list[bytes]:
    """An event as JSON of at most so many bytes; words as several if they must be. Nothing of one that cannot fit."""
    # A provider may send half of a surrogate pair, which cannot be encoded.
    event = replace(event, **{name: to_valid_utf8(getattr(event, name)) for name in _TEXTS})
    piece = _encode(event)
    if len(piece) <= most:
        return [piece]
    if event.kind == "assistant:text":
        middle = len(event.text) // 2
        first, rest = event.text[:middle], event.text[middle:]
        halves = (replace(event, text=first), replace(event, text=rest, offset=event.offset + middle)) if middle else ()
        return [piece for half in halves for piece in _pieces(half, most)]
    for chars in CUTS:
        piece = _encode(replace(event, **{name: getattr(event, name)[:chars] for name in _TEXTS}))
        if len(piece) <= most:
            return [piece]
    return []


class Received:
    """Reads messages of other engines: each counts once, in order."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        """By engine: the number of its newest message."""

    def take(self, message: str) -> Sequence[TurnEvent]:
        """The events of a message, behind a `lost` if earlier ones are missing; nothing of one that came already, or
        that cannot be read because it is of another version."""
        try:
            sent = _decode(message)
            events = [replace(_event(event), elsewhere=True) for event in sent.events]
        except msgspec.DecodeError:
            return ()
        last = self._last.get(sent.engine)
        if last is not None and sent.number <= last:
            return ()
        self._last[sent.engine] = sent.number
        if last is not None and sent.number > last + 1:
            return (TurnEvent("lost", "", count=sent.number - last - 1), *events)
        return events
