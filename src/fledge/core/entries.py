"""A transcript as typed values: a person's words, replies with their calls, results of tools, completions, notes; and
the lines between them that tell what was done to a run (steered, killed, resumed, a crash, answers to its plan).

Programs and the page read these instead of text. Long outputs are cut, with the size of the whole; one entry can be
had whole. This file is pure: what it needs besides the entries (questions, events) is given to it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, assert_never

import msgspec
from msgspec.structs import replace

from fledge.core.attachments import FileEntry
from fledge.core.events import Event, KillOrdered, LeaseLost, PlanApproved, PlanRejected, Resumed, Steered
from fledge.core.events import reason as reason_of
from fledge.core.file_change import ChangeLine, FileChange
from fledge.core.freeze import Stats, to_valid_utf8
from fledge.core.handover import Artifact
from fledge.core.images import ImageEntry
from fledge.core.run import Instant
from fledge.core.transcript import (
    SPAWN,
    Body,
    CallEntry,
    CompletionRead,
    Noted,
    Replied,
    Resulted,
    Spoken,
    Told,
    joined,
    shown_arguments,
)
from fledge.core.value import Value

OUTPUT_BYTES: Final = 2048
"""So much of a tool's result, of a call's arguments and of a note is shown in a page."""
WORDS_BYTES: Final = 100 * 1024
"""So much of a message or a reply."""

CallStatus = Literal["running", "asked", "ok", "error", "unknown"]
"""`asked`: a person must allow it first. `unknown`: a process died in it."""
By = Literal["person", "session", "fledge"]


class _Value(Value, kw_only=True, omit_defaults=True, tag_field="type"):
    seq: int
    at: Instant


class ImageShown(Value, kw_only=True):
    """An image that came with an entry."""

    name: str
    media_type: str
    bytes: int
    width: int
    height: int


class AttachmentShown(Value, kw_only=True):
    """A file that came with a message. `GET /attachments/<session>/<name>` downloads it."""

    name: str
    size: int
    type: str
    """Its media type."""


class MessageEntry(_Value, kw_only=True, tag="message"):
    """Words that came in."""

    kind: str
    """task, send, steer, wake, approval or notice, and others that fledge writes."""
    by: By
    """`person`: a person or a program outside. `session`: another session, named in `source`. Else fledge itself."""
    text: str
    size: int = 0
    """Where the text is cut: the bytes of the whole. Else 0, here and below."""
    source: str = ""
    run_id: str = ""
    """The run id under which it was accepted."""
    images: tuple[ImageShown, ...] = ()
    attachments: tuple[AttachmentShown, ...] = ()


class CallAsked(Value, kw_only=True, omit_defaults=True):
    """The question to a person about a call, and its answer."""

    id: str
    state: str
    answered_by: str = ""
    words: str = ""
    rule: str = ""


class CallValue(Value, kw_only=True, omit_defaults=True):
    """One tool call of a reply."""

    id: str
    name: str
    arguments: str
    """As the model wrote them, without the contents of attached files."""
    size: int = 0
    status: CallStatus
    started_at: Instant
    """When the reply was stored."""
    ended_at: Instant | None = None
    result_seq: int = 0
    """The entry of its result; 0: there is none yet."""
    child_run_id: str = ""
    """Of a spawn: the run it started."""
    child_session_key: str = ""
    change: FileChange | None = None
    """Of a call about which a person was asked: the change of a file, as the file was then."""
    question: CallAsked | None = None


class EntryUsage(Value, kw_only=True, omit_defaults=True):
    """Tokens that a reply used, as its provider counted them."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    """Input that the provider's cache served or stored; it is not among `tokens_in`."""
    tokens_reasoning: int = 0


class ReplyEntry(_Value, kw_only=True, tag="reply"):
    """A model's reply."""

    text: str
    size: int = 0
    calls: tuple[CallValue, ...] = ()
    model: str = ""
    usage: EntryUsage = EntryUsage()
    cost_usd: float | None = None
    is_aside: bool = False
    """It answers a message beside the task, and is no part of the result."""
    is_cut: bool = False
    """The token limit cut it, and no rest follows."""


class ResultEntry(_Value, kw_only=True, tag="result"):
    """The result of a tool call."""

    call_id: str
    call_seq: int
    """The entry of the reply that made the call."""
    name: str
    text: str
    size: int = 0
    is_error: bool = False
    is_unknown: bool = False
    images: tuple[ImageShown, ...] = ()


class CompletionValue(Value, kw_only=True, omit_defaults=True):
    """A completion of a child that the session has read."""

    kind: str
    """outcome, plan, expired or late."""
    session_key: str
    run_id: str = ""
    label: str = ""
    status: str
    error: str = ""
    summary: str = ""
    stats: Stats = Stats()
    artifacts: tuple[Artifact, ...] = ()
    more_artifacts: int = 0
    result_id: str = ""
    """Names its result; empty if it has none. `sessions.entry` has the words."""
    result_bytes: int = 0
    in_one_line: bool = False
    """The model read only the status: there was no room for the words."""
    result: str = ""
    """The whole result, where one entry was asked for and the result is still kept."""


class CompletionsEntry(_Value, kw_only=True, tag="completions"):
    """Completions that the session read at once."""

    completions: tuple[CompletionValue, ...] = ()
    text: str = ""
    """The text that the model was given."""
    size: int = 0


class NoteEntry(_Value, kw_only=True, tag="note"):
    """Something for the record, such as a summary of older entries."""

    text: str
    size: int = 0
    covers: int = 0
    """It stands for all entries up to this one in what the model sees."""


LineKind = Literal["steered", "killed", "resumed", "crashed", "restarted", "plan_approved", "plan_rejected"]
"""`crashed`: its process died in one of its steps. `restarted`: its process left or died between two steps."""


class LineEntry(_Value, kw_only=True, tag="line"):
    """Something was done to a run: to this session's own, or to a child of the session."""

    kind: LineKind
    session_key: str
    label: str = ""
    reason: str = ""


HistoryEntry = MessageEntry | ReplyEntry | ResultEntry | CompletionsEntry | NoteEntry | LineEntry
"""An entry of a transcript. A line has the number of the entry that it follows."""


class EntryPlace(Value):
    """An entry's number and time."""

    seq: int
    at: Instant


class _Spawned(Value, rename="camel"):
    run_id: str = ""
    child_session_key: str = ""


def cut(text: str, limit: int) -> tuple[str, int]:
    """The beginning of a text, at most so many bytes of UTF-8, and the size of the whole; 0 if it is not cut."""
    data = to_valid_utf8(text).encode()
    return (text, 0) if len(data) <= limit else (data[:limit].decode(errors="ignore"), len(data))


def entries(
    known: Iterable[tuple[EntryPlace, Body]],
    first: int,
    last: int,
    asked: Mapping[tuple[int, int], CallAsked],
    whole: bool = False,
) -> list[HistoryEntry]:
    """The entries numbered `first` to `last` as values.

    `known` has them and their neighbours: a reply that the token limit cut and its rest are one, in the place of the
    rest, and a call has its result wherever that stands. `whole`: nothing is cut.
    """
    placed = joined(known)
    results = {(body.entry, body.index): (place, body) for place, body in placed if isinstance(body, Resulted)}
    limits = (1 << 62, 1 << 62) if whole else (WORDS_BYTES, OUTPUT_BYTES)
    return [_entry(place, body, results, asked, *limits) for place, body in placed if first <= place.seq <= last]


def _entry(
    place: EntryPlace,
    body: Body,
    results: Mapping[tuple[int, int], tuple[EntryPlace, Resulted]],
    asked: Mapping[tuple[int, int], CallAsked],
    words: int,
    output: int,
) -> HistoryEntry:
    seq, at = place.seq, place.at
    text, size = cut(body.text, words if isinstance(body, Spoken | Replied) else output)
    match body:
        case Spoken():
            return MessageEntry(
                seq=seq,
                at=at,
                kind=body.kind,
                by=_by(body),
                text=text,
                size=size,
                source=body.source,
                run_id=body.row.rpartition(":")[2] if body.kind == "send" else "",
                images=_images(body.images),
                attachments=attachments(body.files),
            )
        case Told():
            return CompletionsEntry(seq=seq, at=at, completions=completions(body), text=text, size=size)
        case Replied():
            return ReplyEntry(
                seq=seq,
                at=at,
                text=text,
                size=size,
                calls=tuple(
                    _call(place, call, results.get((seq, index)), asked.get((seq, index)), output)
                    for index, call in enumerate(body.calls)
                ),
                model=body.model,
                usage=_usage(body.usage),
                cost_usd=body.cost_usd,
                is_aside=body.aside,
                is_cut=body.cut,
            )
        case Resulted():
            return ResultEntry(
                seq=seq,
                at=at,
                call_id=body.call_id,
                call_seq=body.entry,
                name=body.name,
                text=text,
                size=size,
                is_error=body.is_error,
                is_unknown=body.unknown,
                images=_images(body.images),
            )
        case Noted():
            return NoteEntry(seq=seq, at=at, text=text, size=size, covers=body.covers)
        case _:
            assert_never(body)


def _by(spoken: Spoken) -> By:
    if spoken.source:
        return "session"
    return "person" if spoken.kind in ("send", "task", "steer", "approval") else "fledge"


def _images(images: tuple[ImageEntry, ...]) -> tuple[ImageShown, ...]:
    return msgspec.convert(images, tuple[ImageShown, ...], from_attributes=True)


def attachments(files: tuple[FileEntry, ...]) -> tuple[AttachmentShown, ...]:
    """Files of a message, as views show them."""
    return tuple(AttachmentShown(name=one.name, size=one.bytes, type=one.type) for one in files)


def _usage(counted: Mapping[str, int]) -> EntryUsage:
    return EntryUsage(
        tokens_in=counted.get("input", 0),
        tokens_out=counted.get("output", 0),
        tokens_cached=counted.get("cacheRead", 0) + counted.get("cacheWrite", 0),
        tokens_reasoning=counted.get("reasoning", 0),
    )


def _call(
    reply: EntryPlace,
    call: CallEntry,
    answered: tuple[EntryPlace, Resulted] | None,
    asked: CallAsked | None,
    limit: int,
) -> CallValue:
    arguments, size = cut(shown_arguments(call), limit)
    spawned = _spawned(call, answered)
    return CallValue(
        id=call.id,
        name=call.name,
        arguments=arguments,
        size=size,
        status=_status(answered, asked),
        started_at=reply.at,
        ended_at=None if answered is None else answered[0].at,
        result_seq=0 if answered is None else answered[0].seq,
        child_run_id=spawned.run_id,
        child_session_key=spawned.child_session_key,
        change=None if call.change is None else _cut_change(call.change, limit),
        question=asked,
    )


def _cut_change(change: FileChange, limit: int) -> FileChange:
    """The change with as many of its lines as have room."""
    kept: list[ChangeLine] = []
    for line in change.lines:
        limit -= len(line.text) + 1
        if limit < 0:
            missing = len(change.lines) - len(kept)
            return replace(change, lines=(*kept, ChangeLine("gap", f"{missing} more lines of the change")))
        kept.append(line)
    return change


def _status(answered: tuple[EntryPlace, Resulted] | None, asked: CallAsked | None) -> CallStatus:
    if answered is None:
        return "asked" if asked is not None and asked.state == "waiting" else "running"
    result = answered[1]
    return "unknown" if result.unknown else "error" if result.is_error else "ok"


def _spawned(call: CallEntry, answered: tuple[EntryPlace, Resulted] | None) -> _Spawned:
    """The run that a spawn started, as the tool answered it."""
    if call.name != SPAWN or answered is None or answered[1].is_error:
        return _Spawned()
    try:
        return msgspec.json.decode(answered[1].text, type=_Spawned)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _Spawned()


def completions(body: Told) -> tuple[CompletionValue, ...]:
    """The completions in an entry, each as a value."""
    return tuple(_completion(one, at in body.summarised) for at, one in enumerate(body.completions))


def _completion(read: CompletionRead, in_one_line: bool) -> CompletionValue:
    return CompletionValue(
        kind=read.kind,
        session_key=read.run or "",
        run_id=read.run_id,
        label=read.label,
        status=read.status,
        error=read.error,
        summary=read.summary,
        stats=read.stats,
        artifacts=read.artifacts,
        more_artifacts=read.more_artifacts,
        result_id=read.text,
        result_bytes=read.text_bytes,
        in_one_line=in_one_line,
    )


# ---- lines -----------------------------------------------------------------------------------------------------------

_LINES: Final[dict[type[Event], LineKind]] = {
    Steered: "steered",
    KillOrdered: "killed",
    Resumed: "resumed",
    LeaseLost: "restarted",
    PlanApproved: "plan_approved",
    PlanRejected: "plan_rejected",
}
LINES: Final = tuple(kind.__name__ for kind in _LINES)
"""The names of the events that make a line."""


def lines(timeline: Iterable[Event], session_key: str, label: str) -> list[LineEntry]:
    """The lines that the timeline of a run makes; they have no number before they have a place.

    Of a tree that is killed, only the run that was named has one. A driver that is lost after a kill has only stopped.
    """
    found: list[LineEntry] = []
    killed = False
    for event in timeline:
        kind = _LINES.get(type(event))
        match event:
            case KillOrdered(named=named):
                killed, kind = True, kind if named else None
            case Resumed():
                killed = False
            case LeaseLost(step_open=step_open):
                kind = None if killed else "crashed" if step_open else kind
            case _:
                pass
        if kind is not None:
            why = reason_of(event)
            found.append(LineEntry(seq=0, at=event.at, kind=kind, session_key=session_key, label=label, reason=why))
    return found


def merged(shown: Iterable[HistoryEntry], between: Iterable[LineEntry]) -> list[HistoryEntry]:
    """Entries with the lines between them, by time: each line follows the last entry that is not younger, and has the
    number of that entry; 0 if it is older than all of them."""
    left = list(between)
    found: list[HistoryEntry] = []
    after = 0
    for one in shown:
        while left and left[0].at < one.at:
            found.append(replace(left.pop(0), seq=after))
        found.append(one)
        after = one.seq
    return [*found, *(replace(one, seq=after) for one in left)]
