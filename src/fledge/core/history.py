"""A transcript and a result as another session may see them: without secrets, without thoughts, bounded.

Of a transcript the newest words win: what does not fit is left out from the oldest on, and the answer says so. A result
is read in pages, from its beginning to its end. Texts are what models, tools and strangers wrote; they are values of
typed fields here, never instructions. Who may look is decided elsewhere.
"""

from collections.abc import Callable, Iterable
from typing import Final, Literal, assert_never

import msgspec

from fledge.core.freeze import one_line
from fledge.core.redact import TextSpan, hidden, redacted, secrets
from fledge.core.run import Instant
from fledge.core.transcript import Body, CallEntry, Noted, Replied, Resulted, Spoken, Told, joined, shown_arguments
from fledge.core.value import Value
from fledge.errors import BadInput

HISTORY_BYTES: Final = 79 * 1024
"""The most that all messages take together, as JSON; the other fields of the answer have the rest of 80 KiB."""
TEXT_CHARS: Final = 4000
CALLS: Final = 20
"""How many calls of one reply are shown."""
ARGUMENT_CHARS: Final = 300
CUT: Final = "\n[cut: the rest is not shown]"
PAGE_CHARS: Final = 20_000
"""How much of a result one page has, unless another limit is asked for."""

_encode = msgspec.json.Encoder().encode


class ShownMessage(Value, rename="camel", omit_defaults=True):
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


class History(Value, rename="camel"):
    """The messages of a transcript that are shown, oldest first, and whether any were dropped, cut or redacted."""

    messages: tuple[ShownMessage, ...]
    truncated: bool
    """Something is missing: whole messages or the end of a text."""
    dropped_messages: int
    content_truncated: bool
    content_redacted: bool
    bytes: int


def history(said: Iterable[tuple[Instant, Body]], limit: int, include_tools: bool = False) -> History:
    """At most the newest `limit` messages, and no more than fit. Tool results and calls only if they are asked for."""
    parts = [part for at, body in joined(said) if (part := _part(at, body, include_tools)) is not None]
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


class _Part(Value):
    shown: ShownMessage
    cut: bool
    redacted: bool


def _part(at: Instant, body: Body, include_tools: bool) -> _Part | None:
    when, text = int(at * 1000), body.text
    match body:
        case Spoken(source=source):
            return _clean(ShownMessage("user", text, when, source))
        case Told():
            return _clean(ShownMessage("event", text, when))
        case Noted():
            return _clean(ShownMessage("note", text, when))
        case Resulted(name=name):
            return _clean(ShownMessage("tool", text, when, tool=name)) if include_tools else None
        case Replied(calls=calls):
            named = tuple(_call(call) for call in calls[:CALLS]) if include_tools else ()
            return _clean(ShownMessage("assistant", text, when, calls=named)) if text.strip() or named else None
        case _:
            assert_never(body)


def _call(call: CallEntry) -> str:
    return one_line(f"{call.name} {redacted(shown_arguments(call))}", ARGUMENT_CHARS)


def _clean(shown: ShownMessage) -> _Part:
    clean = redacted(shown.text)
    text = clean if len(clean) <= TEXT_CHARS else clean[:TEXT_CHARS] + CUT
    return _Part(msgspec.structs.replace(shown, text=text), text is not clean, clean != shown.text)


# ---- results ---------------------------------------------------------------------------------------------------------


class ResultPage(Value, omit_defaults=True):
    """A part of a result. Offsets count characters of the frozen text; a secret in it is shown as a mark."""

    text: str
    offset: int
    total: int
    """Characters of the whole result."""
    next: int | None = None
    """The offset of the next page; None at the end."""


def page(result: str, offset: int, limit: int) -> ResultPage:
    """The page of a result that begins at `offset`: at most `limit` characters, and no more than fit into an answer.

    No page ends inside a secret, and one that is asked for from there on begins with the mark. Refused: an offset
    beyond the end.
    """
    total = len(result)
    if offset > total:
        raise BadInput("offset", f"must be at most {total}, the length of the result", offset)
    found = secrets(result)
    end = min(total, offset + limit)
    end = largest(offset, end, lambda at: len(_encode(_between(result, found, offset, at))) <= HISTORY_BYTES)
    end = _after_secret(found, end)
    return ResultPage(_between(result, found, offset, end), offset, total, end if end < total else None)


def largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest number from `low` to `high` that fits. `low` fits, and so does each number below one that fits."""
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _between(result: str, found: list[TextSpan], start: int, end: int) -> str:
    """The result from start to end, without the secrets that lie in it or reach into it."""
    inside = [(max(first, start), min(last, end)) for first, last in found if first < end and last > start]
    return hidden(result[start:end], [(first - start, last - start) for first, last in inside])


def _after_secret(found: list[TextSpan], end: int) -> int:
    """The same place, or the end of the secret that it lies in."""
    return next((last for first, last in found if first < end < last), end)
