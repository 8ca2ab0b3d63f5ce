"""Reading a state folder of OpenClaw: its runs (`subagents/runs.json`, versions 1 and 2) and its transcripts.

Somebody else's files: every field may be missing or wrong. A row that makes no sense is left out and counted; a file
that is no registry at all is refused. Nothing is written there, and nothing here knows a store.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from fledge.core.freeze import sound
from fledge.core.keys import SessionKey, parse_key
from fledge.core.run import Failed, Instant, Killed, Ok, Outcome, TimedOut, Unknown
from fledge.errors import BadInput

MAX_REGISTRY = 256 * 1024 * 1024
MAX_TRANSCRIPT = 64 * 1024 * 1024
MAX_TEXT = 100_000
UNFINISHED = "it was not finished when it was imported"


class Call(Struct, frozen=True):
    """A tool call of a reply."""

    id: str
    name: str
    arguments: str


class Line(Struct, frozen=True):
    """One message of a transcript."""

    role: Literal["user", "assistant", "tool"]
    text: str
    at: Instant
    calls: tuple[Call, ...] = ()
    answers: str = ""
    """Of a tool's result: the call it answers."""
    tool: str = ""
    model: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    is_error: bool = False


class PastRun(Struct, frozen=True, kw_only=True):
    """A run as it was lived there."""

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
    """What was found in the folder."""

    runs: tuple[PastRun, ...]
    """Parents before their children, oldest first."""
    transcripts: Mapping[str, Path]
    """Files by session key, as that system writes the keys."""
    left_out: int
    """Rows that made no sense."""


def read_past(folder: Path) -> Past:
    """What can be read of the folder. Refused: one without a registry, or with one of another version or form."""
    path = folder / "subagents" / "runs.json"
    registry = _document(path)
    version = registry.get("version")
    if version not in (1, 2):
        raise BadInput(str(path), "must be a registry of version 1 or 2", version)
    rows = registry.get("runs")
    if not isinstance(rows, Mapping):
        raise BadInput(str(path), "must hold an object of runs")
    found: dict[str, PastRun] = {}
    ids: set[str] = set()
    for run_id, row in rows.items():
        run = _run(str(run_id), row)
        if run is not None and run.key not in found and run.run_id not in ids:
            found[run.key] = run
            ids.add(run.run_id)
    transcripts = _transcripts(folder)
    return Past(tuple(_parents_first(found)), transcripts, len(rows) - len(found))


def _document(path: Path) -> Mapping[str, object]:
    try:
        if path.stat().st_size > MAX_REGISTRY:
            raise BadInput(str(path), f"must be at most {MAX_REGISTRY} bytes")
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(str(path), "must be there: name OpenClaw's state folder, often ~/.openclaw") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise BadInput(str(path), "must be JSON") from None
    if not isinstance(document, Mapping):
        raise BadInput(str(path), "must be a JSON object")
    return document


# ---- runs ------------------------------------------------------------------------------------------------------------


def _run(run_id: str, row: object) -> PastRun | None:
    if not isinstance(row, Mapping):
        return None
    key = _child_key(row.get("childSessionKey"))
    created_at = _instant(row.get("createdAt")) or _instant(row.get("startedAt"))
    if key is None or created_at is None or not _text(row, "task"):
        return None
    started_at, ended_at = _instant(row.get("startedAt")), _instant(row.get("endedAt"))
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
    """Our key for a conversation of that system: a named one, so that it never mixes with one that lives here."""
    try:
        key = parse_key(requester)
    except BadInput:
        key = SessionKey("main", "main", "main")
    if key.kind in ("subagent", "acp"):
        return str(key)
    return f"agent:{key.agent_id}:openclaw-{key.name}"[:190]


def _parents_first(runs: Mapping[str, PastRun]) -> Iterator[PastRun]:
    done: set[str] = set()

    def visit(run: PastRun, above: frozenset[str]) -> Iterator[PastRun]:
        parent = runs.get(conversation_key(run.requester))
        if parent is not None and parent.key not in done and parent.key not in above:
            yield from visit(parent, above | {run.key})
        if run.key not in done:
            done.add(run.key)
            yield run

    for run in sorted(runs.values(), key=lambda run: (run.created_at, run.key)):
        yield from visit(run, frozenset())


def _text(row: Mapping[str, object], key: str) -> str:
    value = row.get(key)
    return sound(value[:MAX_TEXT]) if isinstance(value, str) else ""


def _instant(value: object) -> Instant | None:
    """Seconds, from milliseconds; None for what is no time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e14:
        return None
    return value / 1000


# ---- transcripts -----------------------------------------------------------------------------------------------------


def _transcripts(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for index in sorted(folder.glob("agents/*/sessions/sessions.json")):
        try:
            sessions = _document(index)
        except BadInput:
            continue
        for key, entry in sessions.items():
            name = entry.get("sessionId") if isinstance(entry, Mapping) else None
            path = index.parent / f"{name}.jsonl"
            if isinstance(name, str) and path.parent == index.parent and path.is_file() and not path.is_symlink():
                found[key] = path
    return found


def read_transcript(path: Path) -> Iterator[Line]:
    """The messages of a transcript, oldest first; what is no message, or no JSON, is passed over."""
    if path.stat().st_size > MAX_TRANSCRIPT:
        return
    with path.open("rb") as file:
        for raw in file:
            try:
                entry = msgspec.json.decode(raw)
            except msgspec.DecodeError:
                continue
            message = entry.get("message") if isinstance(entry, dict) and entry.get("type") == "message" else None
            if isinstance(message, dict):
                line = _line(message, _stamp(entry.get("timestamp")))
                if line is not None:
                    yield line


def _line(message: Mapping[str, object], at: Instant) -> Line | None:
    text = _content(message.get("content"))
    match message.get("role"):
        case "user":
            return Line("user", text, at)
        case "assistant":
            return Line(
                "assistant",
                text,
                at,
                calls=tuple(_calls(message.get("content"))),
                model=_text(message, "model"),
                usage=_usage(message.get("usage")),
            )
        case "toolResult":
            answers, tool = _text(message, "toolCallId"), _text(message, "toolName")
            return Line("tool", text, at, answers=answers, tool=tool, is_error=message.get("isError") is True)
        case _:
            return None


def _content(content: object) -> str:
    if isinstance(content, str):
        return sound(content[:MAX_TEXT])
    parts = content if isinstance(content, list) else []
    texts = [_text(part, "text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(texts)[:MAX_TEXT]


def _calls(content: object) -> Iterator[Call]:
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "toolCall":
            arguments = json.dumps(part.get("arguments") or {}, ensure_ascii=False)[:MAX_TEXT]
            yield Call(_text(part, "id"), _text(part, "name") or "tool", sound(arguments))


def _usage(usage: object) -> dict[str, int]:
    told = usage if isinstance(usage, dict) else {}
    names = {"input": "input", "output": "output", "cacheRead": "cacheRead", "cacheWrite": "cacheWrite"}
    found = {ours: told.get(theirs) for theirs, ours in names.items()}
    return {name: count for name, count in found.items() if type(count) is int and 0 < count < 10**12}


def _stamp(value: object) -> Instant:
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else 0.0
    except (ValueError, OverflowError):
        return 0.0
