"""The life of a run as spans on a time axis, in lanes: its phases, attempts, model calls, tool calls, children, waits
and tries at delivery; and marks for what was done to it.

Made from what is stored anyway. A call begins when its reply was stored and ends with its result; a model call begins
with the entry before its reply, so its start is approximate. Pure: rows and entries in, spans out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

from fledge.core import events as ev
from fledge.core.announce import DeliveryTrace
from fledge.core.doing import call_line
from fledge.core.entries import HistoryEntry, LineEntry, LineKind, ReplyEntry, lines
from fledge.core.freeze import one_line
from fledge.core.lifecycle import states
from fledge.core.run import (
    Archived,
    Asking,
    AwaitingApproval,
    Completed,
    CompletedGiveup,
    Instant,
    Phase,
    Queued,
    Retry,
    Run,
    Waiting,
)
from fledge.core.value import Value

SpanLane = Literal["phase", "attempts", "model", "tools", "children", "waits", "delivery"]
MOST_SPANS: Final = 2000
"""The most spans of one answer; the newest are kept."""
SHORT_CHARS: Final = 120
_CHILDREN: Final = {
    "all": "waits for all its children",
    "any": "waits for one of its children",
    "final text": "has its answer, waits for its children",
}
"""Waits in words, by condition."""
_Lived = Sequence[tuple[Instant, Run]]
"""The run after each of its events, with their times."""
_OVER: Final = (Completed, CompletedGiveup, Archived)


class Span(Value, kw_only=True, omit_defaults=True):
    """Something that took a while, or still does."""

    lane: SpanLane
    started_at: Instant
    ended_at: Instant | None = None
    """None: it goes on."""
    name: str
    short: str = ""
    """A few words about it."""
    status: str = ""
    tokens: int = 0
    run_id: str = ""
    """Of a child, and of the call that started it."""
    session_key: str = ""
    seq: int = 0
    """Of a model or tool call: the entry of the reply."""


class Mark(Value, kw_only=True, omit_defaults=True):
    """A moment at which something was done to the run."""

    at: Instant
    name: LineKind
    reason: str = ""


class Spans(Value, kw_only=True):
    """The spans of a run in a time, by lane and start, and its marks."""

    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]
    left_out: int = 0
    """How many older spans there was no room for."""


def marks(timeline: Sequence[ev.Event]) -> tuple[Mark, ...]:
    """The marks of a whole life."""
    return tuple(Mark(at=one.at, name=one.kind, reason=one.reason) for one in lines(timeline, "", ""))


def spans(
    timeline: Sequence[ev.Event],
    entries: Iterable[HistoryEntry],
    children: Iterable[Span],
    tries: Iterable[tuple[Instant, DeliveryTrace]],
    since: Instant | None = None,
    until: Instant | None = None,
) -> Spans:
    """The spans of a run that touch the time from `since` to `until`; without those, of its whole life."""
    lived = list(states(timeline))
    made = [
        *_phases(lived),
        *_attempts(lived),
        *_calls(entries),
        *children,
        *_waits(lived),
        *(_delivery(at, trace) for at, trace in tries),
    ]
    found = [one for one in made if _touches(one.started_at, one.ended_at, since, until)]
    kept = sorted(found, key=lambda one: one.started_at)[-MOST_SPANS:]
    shown = tuple(one for one in marks(timeline) if _touches(one.at, one.at, since, until))
    return Spans(spans=tuple(kept), marks=shown, left_out=len(found) - len(kept))


def _touches(start: Instant, end: Instant | None, since: Instant | None, until: Instant | None) -> bool:
    return (since is None or end is None or end >= since) and (until is None or start <= until)


def _phases(lived: _Lived) -> Iterator[Span]:
    """One span for each stretch in one phase; phases after the end have none."""
    for start, end, run, _ in _stretches(lived, lambda run: run.phase.name):
        if not isinstance(run.phase, _OVER):
            name = run.phase.name
            yield Span(lane="phase", started_at=start, ended_at=end, name=name, status=name)


def _attempts(lived: _Lived) -> Iterator[Span]:
    for start, end, run, after in _stretches(lived, lambda run: (run.attempt, run.ended is None)):
        if run.ended is None:
            status = "running" if after is None else _came_out(after)
            yield Span(
                lane="attempts",
                started_at=start,
                ended_at=end,
                name=f"attempt {run.attempt}",
                status=status,
                run_id=run.run_id,
            )


def _waits(lived: _Lived) -> Iterator[Span]:
    for start, end, run, _ in _stretches(lived, lambda run: _wait(run.phase)):
        if (wait := _wait(run.phase)) is not None:
            yield Span(lane="waits", started_at=start, ended_at=end, name=wait[0], short=wait[1], status="waiting")


def _wait(phase: Phase) -> tuple[str, str] | None:
    """The kind of wait that a phase is, and in words; None if it does not wait."""
    match phase:
        case Waiting(asked=asked):
            return "children", _CHILDREN.get(asked, f"waits for {asked} of its children")
        case Asking():
            return "person", "a tool call waits for a person"
        case AwaitingApproval():
            return "plan", "its plan waits for an answer"
        case Queued(retry=Retry(reason=reason)):
            return "model", one_line(reason, SHORT_CHARS)
        case Queued():
            return "slot", "waits for a free slot"
        case _:
            return None


def _came_out(after: Run) -> str:
    """How the attempt before came out: as the run did, or this one took its place."""
    return "superseded" if after.ended is None else after.ended.outcome.status


def _stretches(lived: _Lived, of: Callable[[Run], object]) -> Iterator[tuple[Instant, Instant | None, Run, Run | None]]:
    """From when until when a value of the run stayed the same, the run then and the run afterwards. It still is the
    same where the end and the run afterwards are None."""
    start, run = lived[0]
    for at, after in lived[1:]:
        if of(after) != of(run):
            yield start, at, run, after
            start, run = at, after
    yield start, None, run, None


def _calls(entries: Iterable[HistoryEntry]) -> Iterator[Span]:
    """A span for each model call and each of the tools it called."""
    before: Instant | None = None
    for entry in entries:
        if isinstance(entry, ReplyEntry):
            yield Span(
                lane="model",
                started_at=entry.at if before is None else before,
                ended_at=entry.at,
                name=entry.model,
                short=one_line(entry.text, SHORT_CHARS),
                status="cut" if entry.is_cut else "ok",
                tokens=entry.usage.tokens_in + entry.usage.tokens_out,
                seq=entry.seq,
            )
            for call in entry.calls:
                yield Span(
                    lane="tools",
                    started_at=call.started_at,
                    ended_at=call.ended_at,
                    name=call.name,
                    short=call_line(call.name, call.arguments),
                    status=call.status,
                    run_id=call.child_run_id,
                    session_key=call.child_session_key,
                    seq=entry.seq,
                )
        if not isinstance(entry, LineEntry):
            before = entry.at


def _delivery(at: Instant, trace: DeliveryTrace) -> Span:
    last = trace.tried[-1] if trace.tried else None
    return Span(
        lane="delivery",
        started_at=at,
        ended_at=at,
        name="read by handle" if last is None else f"{last.phase} {last.result}",
        short=one_line(trace.why or trace.requester, SHORT_CHARS),
        status="delivered" if last is None else last.result,
        session_key=trace.requester,
    )
