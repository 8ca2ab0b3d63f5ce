"""The entries of a transcript, and readings of them: the messages for a model, the open calls, and whether a turn has
words for its senders.

An entry's body is one of the structs below, as JSON. Entries are appended and never changed; results of one step may
stand in any order, so reading puts them back behind the calls they answer. This file knows no store and no model.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from fledge.core.attachments import FileEntry
from fledge.core.file_change import FileChange, Replaced
from fledge.core.freeze import Stats, classify_reply
from fledge.core.handover import Artifact
from fledge.core.images import ImageEntry
from fledge.core.redact import error_words
from fledge.core.value import Value
from fledge.errors import BadInput

CallState = Literal["ready", "started", "asked"]
"""Where a call without a result stands: it may be run; it was begun and must not be again; a person was asked."""


class CallEntry(Value, omit_defaults=True):
    """One tool call of a reply. Its name is its place: the entry's number and its index; ids of providers repeat."""

    id: str
    name: str
    arguments: str
    state: CallState = "ready"
    """As it stood in the commit that appended the reply."""
    change: FileChange | None = None
    """Of a call about which a person is asked: the change of a file, as the file was then."""


class Spoken(Value, omit_defaults=True, tag="user"):
    """Words that came in through the inbox."""

    text: str
    row: str = ""
    kind: str = ""
    source: str = ""
    images: tuple[ImageEntry, ...] = ()
    """Each is named in the text, too."""
    files: tuple[FileEntry, ...] = ()
    """So is each of these."""


class CompletionRead(Value, omit_defaults=True):
    """A completion as the entry that tells it keeps it: its inbox row is removed with the run, the entry stays.

    Entries of older versions have the first three fields alone.
    """

    row: str
    run: str | None
    """The session key of the run."""
    status: str
    kind: str = "outcome"
    run_id: str = ""
    label: str = ""
    """The run's label, else the beginning of its task."""
    error: str = ""
    summary: str = ""
    stats: Stats = Stats()
    artifacts: tuple[Artifact, ...] = ()
    more_artifacts: int = 0
    """Files besides those named."""
    text: str = ""
    """The id of its result among the kept texts; empty if it has none."""
    text_bytes: int = 0


class Told(Value, omit_defaults=True, tag="event"):
    """Completions that were read: their text for the model, and as values."""

    text: str
    completions: tuple[CompletionRead, ...] = ()
    summarised: tuple[int, ...] = ()


class Replied(Value, omit_defaults=True, tag="assistant"):
    """A committed model reply."""

    text: str = ""
    calls: tuple[CallEntry, ...] = ()
    thinking: str = ""
    opaque: str = ""
    """Data of the provider that must go back to it with this reply."""
    model: str = ""
    """The model that really answered."""
    usage: dict[str, int] = msgspec.field(default_factory=dict)
    cost_usd: float | None = None
    aside: bool = False
    """It answers a message beside the task, and is no part of its result."""
    cut: bool = False
    """The token limit cut it."""


class Resulted(Value, omit_defaults=True, tag="tool"):
    """The result of one call: of the reply at `entry`, the `index`-th."""

    entry: int
    index: int
    call_id: str
    name: str
    text: str
    is_error: bool = False
    unknown: bool = False
    """A process died in this call, and it may not be made again: its outcome is unknown."""
    images: tuple[ImageEntry, ...] = ()
    """Each is named in the text, too."""
    replaced: Replaced | None = None
    """The content that the call has replaced in a file."""


class Noted(Value, omit_defaults=True, tag="note"):
    """Something for the record. `covers`: it stands for all entries up to that number in what a model sees."""

    text: str
    covers: int = 0
    hides_from: int = 0
    """From that entry up to this note, nothing is seen by a model any more; 0: nothing is hidden."""


Body = Spoken | Told | Replied | Resulted | Noted
_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Body] = msgspec.json.Decoder(Body)


class Carried(Value, omit_defaults=True):
    """Images and files that came with a message."""

    images: tuple[ImageEntry, ...] = ()
    files: tuple[FileEntry, ...] = ()


NOTHING_CARRIED = Carried()
_carried: msgspec.json.Decoder[tuple[ImageEntry, ...] | Carried] = msgspec.json.Decoder(
    tuple[ImageEntry, ...] | Carried
)


def to_body(body: Body) -> str:
    """An entry's body as it is stored."""
    return _encode(body).decode()


def from_body(text: str) -> Body:
    """A stored body. Refused if it is not one of ours."""
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput("entry", f"is not a transcript entry ({error_words(error)})", text) from error


def carried_body(carried: Carried) -> str:
    """Images and files of a message as an inbox row holds them: images alone as an array, as in rows of older versions;
    empty if there are none."""
    if carried.files:
        return _encode(carried).decode()
    return _encode(carried.images).decode() if carried.images else ""


def from_carried_body(text: str) -> Carried:
    """Images and files of the message in an inbox row."""
    if not text:
        return NOTHING_CARRIED
    found = _carried.decode(text)
    return found if isinstance(found, Carried) else Carried(found)


class Line(Value):
    """One entry with its number."""

    seq: int
    body: Body


class OpenCall(Value):
    """A call that has no result yet."""

    entry: int
    index: int
    call: CallEntry


CONTINUE = "continue"
"""The kind of an entry that asks a model for the rest of the reply before it."""
DROPPED = "dropped"
"""The kind of an entry that tells a model that a call of the reply before it was cut and not run."""
T = TypeVar("T")


def follows_cut(lines: Sequence[Line]) -> bool:
    """True if the next reply goes on where the token limit cut the last one, or makes a call again that it cut."""
    return _last_kind(lines) in (CONTINUE, DROPPED)


def awaits_rest(lines: Sequence[Line]) -> bool:
    """True if the next reply is the rest of the last one."""
    return _last_kind(lines) == CONTINUE


def _last_kind(lines: Sequence[Line]) -> str:
    """The kind of words that the last entry is, notes apart; empty if it is something else."""
    for line in reversed(lines):
        if type(line.body) is not Noted:
            return line.body.kind if type(line.body) is Spoken else ""
    return ""


def begun_text(lines: Sequence[Line]) -> str:
    """The text that the next reply goes on with; empty if it is a reply of its own."""
    return last_step(lines)[1].text if awaits_rest(lines) else ""


def joined(entries: Iterable[tuple[T, Body]]) -> list[tuple[T, Body]]:
    """Entries as people read them: a reply that the token limit cut and its rest are one, in the place of the rest.

    The entry that asked for the rest is left out.
    """
    found: list[tuple[T, Body]] = []
    cut: int | None = None
    """Where the reply stands that may be continued."""
    asked = False
    for place, body in entries:
        match body:
            case Spoken(kind=kind) if kind == CONTINUE:
                asked = cut is not None
                continue
            case Noted():
                pass
            case Replied() if asked and cut is not None:
                before = found.pop(cut)[1]
                assert isinstance(before, Replied)
                body = msgspec.structs.replace(body, text=before.text + body.text)
                cut, asked = None, False
            case _:
                cut, asked = (len(found) if isinstance(body, Replied) and body.cut else None), False
        found.append((place, body))
    return found


def joined_bodies(bodies: Iterable[Body]) -> list[Body]:
    """As `joined`, where places do not matter."""
    return [body for _, body in joined((None, body) for body in bodies)]


SPAWN = "sessions_spawn"


MOST_ARGUMENT_BYTES = 1024 * 1024
"""The most bytes of a call's arguments."""
MOST_SPAWN_BYTES = 8 * 1024 * 1024
"""The same for `sessions_spawn`, whose arguments hold the attachments."""
_LEFT_OUT = '{"leftOut": "'


def kept_arguments(tool: str, arguments: str) -> str:
    """The arguments of a call as they are stored: words in their place if they are too large, and the call fails."""
    most = MOST_SPAWN_BYTES if tool == SPAWN else MOST_ARGUMENT_BYTES
    size = len(arguments) if arguments.isascii() else len(arguments.encode("utf-8", "replace"))
    return arguments if size <= most else f'{_LEFT_OUT}{size} bytes of arguments, at most {most}"}}'


def why_left_out(arguments: str) -> str:
    """What the model is told of a call whose arguments were too large; empty if they were not."""
    if not arguments.startswith(_LEFT_OUT):
        return ""
    told = arguments[len(_LEFT_OUT) : -2]
    return f"It was not run, and its arguments were not kept: {told}. Send less at once, such as a file in parts."


def images_of(body: Body) -> tuple[ImageEntry, ...]:
    """The images that came with an entry."""
    return body.images if type(body) is Spoken or type(body) is Resulted else ()


def files_of(body: Body) -> tuple[FileEntry, ...]:
    """The files that came with an entry."""
    return body.files if type(body) is Spoken else ()


def shown_arguments(call: CallEntry) -> str:
    """A call's arguments as they are shown again, to a model or a person: without the contents of attached files. The
    entry keeps them, because after a crash the call may have to be made again; the model that made it has seen them."""
    if call.name != SPAWN or '"attachments"' not in call.arguments:
        return call.arguments
    try:
        given = msgspec.json.decode(call.arguments, type=dict[str, object])
    except msgspec.DecodeError:
        return call.arguments
    files = given.get("attachments")
    if isinstance(files, list):
        given["attachments"] = [_without_content(file) for file in files]
    return msgspec.json.encode(given).decode()


def _without_content(file: object) -> object:
    if not isinstance(file, dict) or not isinstance(file.get("content"), str):
        return file
    return {**file, "content": f"[{len(file['content'])} characters, not shown again]"}


def last_step(lines: Sequence[Line]) -> tuple[int, Replied, tuple[Resulted, ...]]:
    """The last reply with its number and the results of its calls so far; number 0 and nothing if there is none."""
    results: list[Resulted] = []
    for line in reversed(lines):
        body = line.body
        if type(body) is Replied:
            return line.seq, body, tuple([result for result in reversed(results) if result.entry == line.seq])
        if type(body) is Resulted:
            results.append(body)
    return 0, Replied(), ()


def open_calls(lines: Sequence[Line]) -> list[OpenCall]:
    """Calls of the last reply that have no result yet, in order."""
    entry, reply, results = last_step(lines)
    if not reply.calls:
        return []
    done = {result.index for result in results}
    return [OpenCall(entry, i, call) for i, call in enumerate(reply.calls) if i not in done]


def is_in_doubt(lines: Sequence[Line]) -> bool:
    """True if the newest whole step, or the one under way, holds a call that a process died in and whose outcome is
    unknown. A model that makes such a call anew would crash one process after the other, with a reply before each."""
    results: dict[int, list[Resulted]] = {}
    for line in reversed(lines):
        body = line.body
        if type(body) is Resulted:
            results.setdefault(body.entry, []).append(body)
        elif type(body) is Replied:
            found = results.get(line.seq, ())
            for result in found:
                if result.unknown:
                    return True
            if len(found) == len(body.calls):
                return False
    return False


YIELD = "sessions_yield"
"""The tool by which a turn ends to wait for children."""


BEGINS = ("task", "steer", "wake", "approval")
"""Kinds of words that begin an attempt."""
DIRECTING = ("sessions_", "session_", "subagents", "agents_list")
"""Prefixes of tools that direct sessions; their results are no work."""


def _of_attempt(lines: Sequence[Line]) -> Iterator[Body]:
    """The entries of the present attempt, the newest first."""
    for body in reversed(joined_bodies(line.body for line in lines)):
        if isinstance(body, Spoken) and body.kind in BEGINS:
            return
        yield body


def last_said(lines: Sequence[Line]) -> str:
    """The last words of the present attempt; empty if it had none. Answers to messages beside its task are not its."""
    replies = (body for body in _of_attempt(lines) if isinstance(body, Replied) and not body.aside)
    return _first_words(replies)


def last_output(lines: Sequence[Line]) -> str:
    """The newest tool result of the present attempt; empty if there is none."""
    results = (body for body in _of_attempt(lines) if isinstance(body, Resulted) and not body.is_error)
    return next((result.text for result in results if not result.name.startswith(DIRECTING)), "")


def in_order(lines: Iterable[Line]) -> list[Line]:
    """The lines as a model must see them: without entries that a note stands for, each result behind its call."""
    ordered = list(lines)
    types = {type(line.body) for line in ordered}
    found = _seen(ordered) if Noted in types else ordered
    if Resulted not in types:
        return found
    results: dict[int, list[Line]] = {}
    for line in found:
        if type(line.body) is Resulted:
            results.setdefault(line.body.entry, []).append(line)
    placed: list[Line] = []
    for line in found:
        if type(line.body) is not Resulted:
            placed.append(line)
            placed.extend(sorted(results.get(line.seq, ()), key=_index))
    return placed


def _seen(lines: list[Line]) -> list[Line]:
    """The lines that remain where there are notes: the newest note that stands for others first, then the lines that
    none stands for."""
    notes = [(line, line.body) for line in lines if isinstance(line.body, Noted)]
    covered = max(note.covers for _, note in notes)
    hidden = [(note.hides_from, line.seq) for line, note in notes if note.hides_from]
    seen = [
        line for line in lines if line.seq > covered and not any(first <= line.seq < last for first, last in hidden)
    ]
    standing = [line for line in seen if covered and _covers(line) == covered]
    return [*standing[-1:], *(line for line in seen if not _covers(line))]


def _covers(line: Line) -> int:
    return line.body.covers if isinstance(line.body, Noted) else 0


def _index(line: Line) -> int:
    return line.body.index if isinstance(line.body, Resulted) else 0


# ---- the entries of one turn: does it have an answer? ----------------------------------------------------------------

NUDGE = "nudge"
"""The kind of an entry that asks a model to answer again."""
NO_ANSWER = "no answer: the reply has no words"
"""The end of a turn that has no answer for its sender."""


def rows_read(bodies: Sequence[Body]) -> tuple[str, ...]:
    """Keys of the inbox rows that stand in these entries, in order."""
    found: list[str] = []
    for body in bodies:
        if isinstance(body, Spoken) and body.row and body.kind != NUDGE:
            found.append(body.row)
        found += completions_read([body])
    return tuple(found)


def completions_read(bodies: Sequence[Body]) -> list[str]:
    """Keys of the completions among the rows that these entries read."""
    return [one.row for body in bodies if isinstance(body, Told) for one in body.completions]


def last_visible(bodies: Sequence[Body]) -> str:
    """The last words for people among these entries; empty if there are none."""
    return _first_words(body for body in reversed(joined_bodies(bodies)) if isinstance(body, Replied))


def _first_words(replies: Iterable[Replied]) -> str:
    return next((reply.text for reply in replies if classify_reply(reply.text) == "text"), "")


def lacks_words(bodies: Sequence[Body]) -> bool:
    """True if a turn with these entries has read something and has no words for people."""
    return bool(rows_read(bodies)) and not last_visible(bodies)


def was_nudged(bodies: Sequence[Body]) -> bool:
    """True if the model was asked for words in this turn."""
    return any(isinstance(body, Spoken) and body.kind == NUDGE for body in bodies)


def is_spoken_to(bodies: Sequence[Body]) -> bool:
    """True if a sender waits for an answer: to a message that this turn read, or an earlier one that yielded."""
    return any(isinstance(body, Spoken) and body.kind in ("send", "wake") for body in bodies)
