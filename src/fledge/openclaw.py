"""Reading a state folder of OpenClaw: its runs (`subagents/runs.json`, versions 1 and 2, or the older
`subagent-registry.json`, a map of runs without a version) and its transcripts.

The files are another system's: every field may be missing or wrong, and they may be JSON5. A row, file or line that
makes no sense is skipped, and the result says so; a registry that cannot be read is refused. Nothing is written there,
and nothing here knows a store.
"""

import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from fledge.core.freeze import to_valid_utf8
from fledge.core.keys import SessionKey, parse_key
from fledge.core.redact import error_words
from fledge.core.run import Failed, Instant, Killed, Ok, Outcome, TimedOut, Unknown
from fledge.core.transcript import CallEntry, Replied, Spoken
from fledge.errors import BadInput

OLD_REGISTRY = "subagent-registry.json"
MAX_REGISTRY = 256 * 1024 * 1024
MAX_JSON5 = 4 * 1024 * 1024
"""JSON5 is read at about 150 000 characters a second."""
MAX_TRANSCRIPT = 64 * 1024 * 1024
MAX_TEXT = 100_000
COUNTED = ("input", "output", "cacheRead", "cacheWrite")
"""The counts of tokens that are read."""
UNFINISHED = "it was not finished when it was imported"


class PastResult(Struct, frozen=True):
    """A tool's result."""

    answers: str
    """The call it answers, by its id."""
    text: str
    is_error: bool


PastLine = Spoken | Replied | PastResult
"""One message of a transcript."""


class PastRun(Struct, frozen=True, kw_only=True):
    """A run of OpenClaw."""

    key: str
    run_id: str
    requester: str
    task: str
    label: str
    model: str
    cleanup: Literal["keep", "delete"]
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant
    outcome: Outcome
    result: str
    """Empty if nothing is left of it."""


class Past(Struct, frozen=True):
    """The runs and transcripts that were found in the folder."""

    runs: tuple[PastRun, ...]
    """Parents before their children, oldest first."""
    transcripts: Mapping[str, Path]
    """Files by session key, as OpenClaw writes the keys."""
    left_out: int
    """The number of rows of the registry that made no sense."""
    superseded: int
    """The number of older rows of a child, or of a run id, that has a newer row."""
    skipped: tuple[str, ...]
    """Files that could not be read, each with the reason."""


def read_past(folder: Path) -> Past:
    """All that can be read of the folder; of several rows for one child or run id the newest. Refused: a folder without
    a registry, or with one of another version or form."""
    rows = _rows(folder)
    readable = [run for run_id, row in rows.items() if (run := _run(str(run_id), row)) is not None]
    found: dict[str, PastRun] = {}
    ids: set[str] = set()
    # Of two that are equally old the later in the file is the newer one.
    for run in sorted(readable, key=_age)[::-1]:
        if run.key not in found and run.run_id not in ids:
            found[run.key] = run
            ids.add(run.run_id)
    transcripts, skipped = _transcripts(folder)
    return Past(
        runs=tuple(_parents_first(found)),
        transcripts=transcripts,
        left_out=len(rows) - len(readable),
        superseded=len(readable) - len(found),
        skipped=skipped,
    )


def _rows(folder: Path) -> Mapping[str, object]:
    """The rows of the newest kind of registry in the folder, by run id."""
    places = (folder / "subagents" / "runs.json", folder / "subagents" / OLD_REGISTRY, folder / OLD_REGISTRY)
    path = next((place for place in places if place.exists()), places[0])
    registry = _document(path)
    if path.name == OLD_REGISTRY and "version" not in registry:
        rows: object = registry.get("runs", registry)
    elif (version := registry.get("version")) in (1, 2):
        rows = registry.get("runs")
    else:
        raise BadInput(str(path), "must be a registry of version 1 or 2", version)
    if not isinstance(rows, Mapping):
        raise BadInput(str(path), "must hold an object of runs")
    return rows


def _age(run: PastRun) -> tuple[Instant, Instant, Instant]:
    return run.created_at, run.started_at or run.created_at, run.ended_at


def _document(path: Path) -> Mapping[str, object]:
    """The object that a file holds, as JSON or JSON5. Refused: anything else."""
    try:
        if path.stat().st_size > MAX_REGISTRY:
            raise BadInput(str(path), f"must be at most {MAX_REGISTRY} bytes")
        document = _decoded(path, path.read_bytes())
    except FileNotFoundError:
        raise BadInput(str(path), "must be there: name OpenClaw's state folder, often ~/.openclaw") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise BadInput(str(path), "must be JSON or JSON5") from None
    if not isinstance(document, Mapping):
        raise BadInput(str(path), "must be a JSON object")
    return document


def _decoded(path: Path, raw: bytes) -> object:
    try:
        return json.loads(raw)
    except ValueError:
        if len(raw) > MAX_JSON5:
            raise BadInput(str(path), f"must be JSON, or JSON5 of at most {MAX_JSON5} bytes", len(raw)) from None
        import json5  # slow to read with, so only where plain JSON will not do

        return json5.loads(raw.decode("utf-8-sig"))


# ---- runs ------------------------------------------------------------------------------------------------------------


def _run(run_id: str, row: object) -> PastRun | None:
    if not isinstance(row, Mapping):
        return None
    key = _child_key(row.get("childSessionKey"))
    started_at, ended_at = _instant(row.get("startedAt")), _instant(row.get("endedAt"))
    created_at = _instant(row.get("createdAt")) or started_at
    if key is None or created_at is None or not _text(row, "task"):
        return None
    # Times of that system may be out of order; ours are not.
    began_at = None if started_at is None else max(created_at, started_at)
    over_at = max(created_at, began_at or created_at, ended_at or created_at)
    return PastRun(
        key=key,
        run_id=_text(row, "runId") or run_id,
        requester=_text(row, "requesterSessionKey"),
        task=_text(row, "task"),
        label=_text(row, "label"),
        model=_text(row, "model"),
        cleanup="delete" if row.get("cleanup") == "delete" else "keep",
        created_at=created_at,
        started_at=began_at,
        ended_at=over_at,
        outcome=_outcome(row) if ended_at is not None else Failed(UNFINISHED),
        result=_text(row, "frozenResultText"),
    )


def _outcome(row: Mapping[str, object]) -> Outcome:
    if "killed" in _text(row, "endedReason"):
        return Killed(named=True)
    outcome = row.get("outcome")
    told = outcome if isinstance(outcome, Mapping) else {}
    match told.get("status"):
        case "ok":
            return Ok()
        case "error":
            return Failed(_text(told, "error") or "it failed")
        case "timeout":
            return TimedOut()
        case _:
            return Unknown()


def _child_key(value: object) -> str | None:
    try:
        key = parse_key(value) if isinstance(value, str) else None
    except BadInput:
        return None
    return str(key) if key is not None and key.kind in ("subagent", "acp") else None


def conversation_key(requester: str) -> str:
    """Our key for a requester there: a subagent's stays, a conversation's is renamed, as it must not mix with ours."""
    try:
        key = parse_key(requester)
    except BadInput:
        key = SessionKey("main", "main", "main")
    if key.kind in ("subagent", "acp"):
        return str(key)
    return f"agent:{key.agent_id}:openclaw-{key.name}"[:190]


def _parents_first(runs: Mapping[str, PastRun]) -> Iterator[PastRun]:
    done: set[str] = set()
    for run in sorted(runs.values(), key=lambda run: (run.created_at, run.key)):
        above: list[PastRun] = []
        parent: PastRun | None = run
        while parent is not None and parent.key not in done:
            done.add(parent.key)
            above.append(parent)
            parent = runs.get(conversation_key(parent.requester))
        yield from reversed(above)


def _text(row: Mapping[str, object], key: str) -> str:
    value = row.get(key)
    return to_valid_utf8(value[:MAX_TEXT]) if isinstance(value, str) else ""


def _instant(value: object) -> Instant | None:
    """Seconds, from milliseconds; None for a value that is no time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e14:
        return None
    return value / 1000


# ---- transcripts -----------------------------------------------------------------------------------------------------


def _transcripts(folder: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Files by session key, and a line for each index or file that was skipped."""
    found: dict[str, Path] = {}
    skipped: list[str] = []
    for index in sorted(folder.glob("agents/*/sessions/sessions.json")):
        try:
            sessions = _document(index)
        except BadInput as error:
            skipped.append(str(error))
            continue
        missing = 0
        for key, entry in sessions.items():
            name = entry.get("sessionId") if isinstance(entry, Mapping) else None
            path = index.parent / f"{name}.jsonl"
            size = _file_size(path) if isinstance(name, str) and path.parent == index.parent else None
            if size is None:
                missing += 1
            elif size > MAX_TRANSCRIPT:
                skipped.append(f"{path}: must be at most {MAX_TRANSCRIPT} bytes")
            else:
                found[key] = path
        if missing:
            skipped.append(f"{index}: {missing} of {len(sessions)} sessions have no transcript beside it")
    return found, tuple(skipped)


def _file_size(path: Path) -> int | None:
    """The size of a plain file; None if there is none, or if no file can have this name."""
    try:
        about = path.lstat()
    except (OSError, ValueError):
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None


class Transcript(Struct, frozen=True):
    """The messages in a file, and how much of it could not be read."""

    lines: tuple[PastLine, ...]
    """Its messages, oldest first."""
    unreadable: int
    """The number of lines that were no JSON, not UTF-8 or nested too deeply."""
    error: str = ""
    """Why the file, or the rest of it, could not be read; empty if it could."""


def read_transcript(path: Path) -> Transcript:
    """The messages of a transcript. Entries that are no messages are passed over."""
    lines: list[PastLine] = []
    unreadable = 0
    error = ""
    try:
        with path.open("rb") as file:
            for raw in file:
                try:
                    line = _line(raw)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    unreadable += 1
                    continue
                if line is not None:
                    lines.append(line)
    except OSError as failure:
        error = failure.strerror or error_words(failure)
    return Transcript(tuple(lines), unreadable, error)


def _line(raw: bytes) -> PastLine | None:
    """The message in a line of the file; None for an entry that is no message."""
    entry = msgspec.json.decode(raw)
    message = entry.get("message") if isinstance(entry, dict) and entry.get("type") == "message" else None
    if not isinstance(message, dict):
        return None
    text = _content(message.get("content"))
    match message.get("role"):
        case "user":
            return Spoken(text, kind="history")
        case "assistant":
            calls, usage = tuple(_calls(message.get("content"))), _usage(message.get("usage"))
            return Replied(text, calls, model=_text(message, "model"), usage=usage)
        case "toolResult":
            return PastResult(_text(message, "toolCallId"), text, message.get("isError") is True)
        case _:
            return None


def _content(content: object) -> str:
    if isinstance(content, str):
        return to_valid_utf8(content[:MAX_TEXT])
    parts = content if isinstance(content, list) else []
    texts = [_text(part, "text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(texts)[:MAX_TEXT]


def _calls(content: object) -> Iterator[CallEntry]:
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "toolCall":
            arguments = json.dumps(part.get("arguments") or {}, ensure_ascii=False)[:MAX_TEXT]
            yield CallEntry(_text(part, "id"), _text(part, "name") or "tool", to_valid_utf8(arguments))


def _usage(usage: object) -> dict[str, int]:
    found = {name: usage.get(name) for name in COUNTED} if isinstance(usage, dict) else {}
    return {name: count for name, count in found.items() if type(count) is int and 0 < count < 10**12}
