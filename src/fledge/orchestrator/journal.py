"""Counts and log lines of commits, once they are durable: one line for each change of phase and each try at a delivery,
with the reason.

Lines are `key=value` on the loggers `fledge.run`, `fledge.turn` and `fledge.delivery`; nothing is formatted unless the
logger is enabled. The counts are of this process, for `health` and metrics. This file decides nothing and touches no
row.
"""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from fledge.core.announce import DeliveryTrace
from fledge.core.events import Event, LeaseLost, Paused, reason
from fledge.core.freeze import one_line
from fledge.core.run import (
    AnnounceDeferred,
    CompletedGiveup,
    Delivered,
    Instant,
    Phase,
    Run,
    Running,
    Skipped,
    Undelivered,
)
from fledge.orchestrator.commit import Hints

VALUE_CHARS: Final = 200
MOST_WRONG: Final = 50
"""So much of what went wrong is remembered, the newest."""
MINUTES: Final = 30
"""For so many minutes steps are counted by the minute."""
MOST_COMMITS: Final = 256
"""Of so many commits it is remembered how long they took."""

_BY_PATH: Final = {
    "direct": "the requester was free",
    "queued": "the requester was busy or waiting",
    "steered": "it joined the live turn",
}

K = TypeVar("K")

_runs = logging.getLogger("fledge.run")
_deliveries = logging.getLogger("fledge.delivery")
_turns = logging.getLogger("fledge.turn")


WrongKind = Literal["failed", "undelivered", "crashed", "stuck", "model", "turn"]
_FAILED: Final = ("error", "timeout", "unknown")


class Wrong(Struct, frozen=True, kw_only=True):
    """Something that went wrong."""

    at: Instant
    kind: WrongKind
    """`failed`: a run ended so. `model`: no model could answer, and the run pauses. `turn`: a turn of a conversation
    fails, and is tried again."""
    session_key: str
    words: str


class Counters:
    """Counts of events since this process began."""

    def __init__(self) -> None:
        self.phases: dict[str, int] = {}
        """Phases that were entered, by name."""
        self.outcomes: dict[str, int] = {}
        """Outcomes that were fixed, by status."""
        self.deliveries: dict[tuple[str, str], int] = {}
        """Deliveries by how they came out (delivered, deferred, skipped, undelivered) and path or reason."""
        self.interrupts = 0
        """Steps that were called off."""
        self.wrong: deque[Wrong] = deque(maxlen=MOST_WRONG)
        """Faults, oldest first."""
        self.commits: deque[float] = deque(maxlen=MOST_COMMITS)
        """How many seconds the newest commits took, as their callers waited for them."""
        self._steps: dict[int, int] = {}
        """Model replies by minute."""

    def note(self, hints: Hints) -> None:
        """Count the changes of one commit."""
        if hints.replied_at is not None:
            self._step(hints.replied_at)
        for before, after, event in hints.moves:
            was, phase = None if before is None else before.phase, after.phase
            if (wrong := _wrong(was, after, event)) is not None:
                self.wrong.append(wrong)
            if type(was) is not type(phase):
                _count(self.phases, phase.name)
            if was is not None and phase.ended is not None:
                self._decided(was, phase)
        for at, session, why in hints.failing:
            self.wrong.append(Wrong(at=at, kind="turn", session_key=session, words=one_line(why, VALUE_CHARS)))
        self.interrupts += len(hints.interrupted)

    def _step(self, at: Instant) -> None:
        minute = int(at // 60)
        if minute in self._steps:
            self._steps[minute] += 1
            return
        self._steps[minute] = 1
        for old in [one for one in self._steps if one <= minute - MINUTES]:
            del self._steps[old]

    def steps(self, now: Instant) -> list[int]:
        """How many model replies there were in each of the last minutes, the present one last."""
        minute = int(now // 60)
        return [self._steps.get(one, 0) for one in range(minute - MINUTES + 1, minute + 1)]

    def commit_ms(self, part: float) -> float:
        """How many milliseconds that part of the newest commits took at most; 0 if there were none."""
        took = sorted(self.commits)
        return round(took[int(part * (len(took) - 1))] * 1000, 3) if took else 0.0

    def _decided(self, was: Phase, phase: Phase) -> None:
        ended, delivery = phase.ended, phase.delivery
        if ended is not None and was.ended is None:
            _count(self.outcomes, ended.outcome.status)
        if delivery is not None and delivery != was.delivery:
            match delivery:
                case Delivered(path=path):
                    _count(self.deliveries, ("delivered", path))
                case Skipped(reason=why):
                    _count(self.deliveries, ("skipped", why))
                case Undelivered(error=error):
                    _count(self.deliveries, ("undelivered", error))
        elif type(phase) is AnnounceDeferred:
            _count(self.deliveries, ("deferred", phase.reason))

    def shown(self) -> dict[str, dict[str, int]]:
        """All counts, as plain values."""
        deliveries = {f"{how}:{why}": count for (how, why), count in sorted(self.deliveries.items())}
        return {
            "phases": dict(sorted(self.phases.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            "deliveries": deliveries,
            "interrupts": {"steps": self.interrupts},
        }


def _count(counts: dict[K, int], key: K) -> None:
    """One more of these. A `Counter` takes three times as long: it has a `__delitem__` of its own."""
    counts[key] = counts.get(key, 0) + 1


def _wrong(was: Phase | None, after: Run, event: Event) -> Wrong | None:
    """The fault of a run that this event shows; None if it shows none. `was`: its phase before; None: just born.

    Asked of every move, so by types: `isinstance` of a struct that does not fit takes as long as a call.
    """
    phase, ended = after.phase, after.phase.ended
    if type(event) is LeaseLost and event.step_open:
        return _fault(after, event, "crashed", reason(event))
    if type(event) is Paused:
        return _fault(after, event, "model", reason(event))
    if ended is None:
        if type(phase) is Running and phase.stuck_at == event.at:
            return _fault(after, event, "stuck", "nothing was committed for long")
        return None
    if type(phase) is CompletedGiveup and type(was) is not CompletedGiveup:
        return _fault(after, event, "undelivered", phase.delivery.error)
    if was is not None and was.ended is None and ended.outcome.status in _FAILED:
        return _fault(after, event, "failed", ended.outcome.error or ended.outcome.status)
    return None


def _fault(run: Run, event: Event, kind: WrongKind, words: str) -> Wrong:
    return Wrong(at=event.at, kind=kind, session_key=run.key, words=one_line(words, VALUE_CHARS))


def write(hints: Hints) -> None:
    """Log the changes of one commit."""
    for _, session, why in hints.failing:
        _turns.warning("%s", _line({"turn": session, "event": "failed", "reason": why}))
    if _runs.isEnabledFor(logging.INFO):
        for before, after, event in hints.moves:
            if before is None or before.phase.name != after.phase.name or before.attempt != after.attempt:
                _runs.info("%s", _move_line(before, after, event))
    if _deliveries.isEnabledFor(logging.INFO):
        for trace in hints.tries:
            _deliveries.info("%s", _try_line(trace))


def _move_line(before: Run | None, after: Run, event: Event) -> str:
    ended, delivery = after.ended, after.delivery
    values = {
        "run": after.key,
        "id": after.run_id,
        "attempt": after.attempt,
        "from": None if before is None else before.phase.name,
        "to": after.phase.name,
        "event": type(event).__name__,
        "outcome": None if ended is None else ended.outcome.status,
        "error": None if ended is None else ended.outcome.error,
        "delivery": None if delivery is None else delivery.word,
        "reason": reason(event) or _why(after),
    }
    return _line(values)


def _why(run: Run) -> str:
    match run:
        case Run(phase=AnnounceDeferred(reason=why)):
            return why
        case _ if isinstance(run.delivery, Skipped):
            return run.delivery.reason
        case _:
            return ""


def _try_line(trace: DeliveryTrace) -> str:
    tried = ",".join(f"{step.phase}:{step.result}" for step in trace.tried)
    values = {
        "row": trace.key,
        "requester": trace.requester,
        "depth": trace.depth,
        "route": trace.route,
        "tried": tried,
        "path": trace.path,
        "form": trace.form,
        "reason": trace.why or _BY_PATH.get(trace.path or "", ""),
    }
    return _line(values)


def _line(values: Mapping[str, object]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in values.items() if value not in (None, ""))


def _value(value: object) -> str:
    """A value as one word, in quotes where it has to be: it can forge neither a line nor another value."""
    text = one_line(str(value), VALUE_CHARS)
    plain = all(letter.isalnum() or letter in "_-:.,/#" for letter in text)
    return text if plain else msgspec.json.encode(text).decode()
