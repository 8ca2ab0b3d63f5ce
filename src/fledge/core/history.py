"""A transcript as another session may see it: without secrets, without thoughts, bounded as a whole and in each part.

The newest words win: what does not fit is left out from the oldest on, and the answer says so. Texts are what models,
tools and strangers wrote; they are values of typed fields here, never instructions. Who may look is decided elsewhere.
"""

from collections.abc import Iterable
from typing import Final, Literal, assert_never

import msgspec
from msgspec import Struct

from fledge.core.freeze import one_line
from fledge.core.redact import redacted
from fledge.core.run import Instant
from fledge.core.transcript import Body, CallEntry, Noted, Replied, Resulted, Spoken, Told, shown_arguments

HISTORY_BYTES: Final = 79 * 1024
"""The most all messages take together, as JSON; what stands around them has the rest of 80 KiB."""
TEXT_CHARS: Final = 4000
CALLS: Final = 20
"""How many calls of one reply are shown."""
ARGUMENT_CHARS: Final = 300
CUT: Final = "\n[cut: the rest is not shown]"

_encode = msgspec.json.Encoder().encode


class Shown(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One message of a transcript, fit to be shown."""

    role: Literal["user", "assistant", "tool", "event", "note"]
    text: str
    at: int
    """Milliseconds since the epoch."""
    source: str = ""
    """Which session sent it, if one did."""
    tool: str = ""
    calls: tuple[str, ...] = ()
    """The tools a reply called, each with its arguments on one line."""


class History(Struct, frozen=True, gc=False, rename="camel"):
    """What is shown of a transcript, oldest first, and what became of the rest."""

    messages: tuple[Shown, ...]
    truncated: bool
    """Something is missing: whole messages or the end of a text."""
    dropped_messages: int
    content_truncated: bool
    content_redacted: bool
    bytes: int


def history(said: Iterable[tuple[Instant, Body]], limit: int, include_tools: bool = False) -> History:
    """At most the newest `limit` messages, and no more than fit. Tool results and calls only if they are asked for."""
    parts = [part for at, body in said if (part := _part(at, body, include_tools)) is not None]
    kept: list[_Part] = []
    room = HISTORY_BYTES - 2
    for part in reversed(parts[-limit:]):
        room -= len(_encode(part.shown)) + 1
        if room < 0:
            break
        kept.append(part)
    kept.reverse()
    messages = tuple(part.shown for part in kept)
    dropped = len(parts) - len(kept)
    cut = any(part.cut for part in kept)
    return History(
        messages=messages,
        truncated=dropped > 0 or cut,
        dropped_messages=dropped,
        content_truncated=cut,
        content_redacted=any(part.redacted for part in kept),
        bytes=len(_encode(messages)),
    )


class _Part(Struct, frozen=True, gc=False):
    shown: Shown
    cut: bool
    redacted: bool


def _part(at: Instant, body: Body, include_tools: bool) -> _Part | None:
    when = int(at * 1000)
    match body:
        case Spoken(text=text, source=source):
            return _clean(Shown("user", text, when, source))
        case Told(text=text):
            return _clean(Shown("event", text, when))
        case Noted(text=text):
            return _clean(Shown("note", text, when))
        case Resulted(name=name, text=text):
            return _clean(Shown("tool", text, when, tool=name)) if include_tools else None
        case Replied(text=text, calls=calls):
            named = tuple(_call(call) for call in calls[:CALLS]) if include_tools else ()
            return _clean(Shown("assistant", text, when, calls=named)) if text.strip() or named else None
        case _:
            assert_never(body)


def _call(call: CallEntry) -> str:
    return one_line(f"{call.name} {redacted(shown_arguments(call))}", ARGUMENT_CHARS)


def _clean(shown: Shown) -> _Part:
    clean = redacted(shown.text)
    text = clean if len(clean) <= TEXT_CHARS else clean[:TEXT_CHARS] + CUT
    return _Part(msgspec.structs.replace(shown, text=text), text is not clean, clean != shown.text)
