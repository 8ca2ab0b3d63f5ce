"""Events inside turns (`TurnEvent`), and how they travel to clients of other processes on the same store.

A process says which sessions its clients watch; that holds for a while (`WatchedSessions`). The process that drives
such a session sends its events as numbered messages of a size that PostgreSQL takes (`packed`). The receiver leaves out
what it has had and notices what is missing (`Received`). Messages may be lost: the entry of the transcript is the
truth, and what it has left behind, as words of a reply that is committed, is late (`is_late`). Pure.
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
    elsewhere: bool = False
    """Another process drives the turn: long texts other than words are cut, and events may be missing."""


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
    return is_words and (event.turn, event.entry) == (then.turn, then.entry)


def _pieces(event: TurnEvent, most: int) -> list[bytes]:
    """An event as JSON of at most so many bytes; words as several if they must be. Nothing of one that cannot fit."""
    # A provider may send half of a surrogate pair, which cannot be encoded.
    event = replace(event, **{name: to_valid_utf8(getattr(event, name)) for name in _TEXTS})
    piece = _encode(event)
    if len(piece) <= most:
        return [piece]
    if event.kind == "assistant:text":
        middle = len(event.text) // 2
        halves = (event.text[:middle], event.text[middle:]) if middle else ()
        return [piece for half in halves for piece in _pieces(replace(event, text=half), most)]
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
