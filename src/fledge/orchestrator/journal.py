"""What commits did, told once it is durable: how often, and one line of log for each change of phase and each try at a
delivery, with the reason.

Lines are `key=value` on the loggers `fledge.run` and `fledge.delivery`; nothing is formatted unless somebody listens.
The counts are of this process, for `health` and metrics. This file decides nothing and touches no row.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from fledge.core.announce import DeliveryTrace
from fledge.core.events import Event, reason
from fledge.core.freeze import one_line
from fledge.core.run import ENDED, AnnounceDeferred, Delivered, Run, Skipped, Undelivered
from fledge.orchestrator.commit import Hints

VALUE_CHARS: Final = 200

_BY_PATH: Final = {
    "direct": "the requester was free",
    "queued": "the requester was busy or waiting",
    "steered": "it joined the live turn",
}

_runs = logging.getLogger("fledge.run")
_deliveries = logging.getLogger("fledge.delivery")


class Counters:
    """How often what has happened since this process began."""

    def __init__(self) -> None:
        self.phases: Counter[str] = Counter()
        """Phases that were entered, by name."""
        self.outcomes: Counter[str] = Counter()
        """Outcomes that were fixed, by status."""
        self.deliveries: Counter[tuple[str, str]] = Counter()
        """Deliveries by how they came out (delivered, deferred, skipped, undelivered) and path or reason."""
        self.interrupts = 0
        """Steps that were called off."""

    def note(self, hints: Hints) -> None:
        """Count what a commit did."""
        for before, after, _ in hints.moves:
            phase = after.phase
            if before is None or type(before.phase) is not type(phase):
                self.phases[phase.name] += 1
            if before is not None and isinstance(phase, ENDED):
                self._decided(before, after)
        self.interrupts += len(hints.interrupted)

    def _decided(self, before: Run, after: Run) -> None:
        ended, phase, delivery = after.ended, after.phase, after.delivery
        if ended is not None and before.ended is None:
            self.outcomes[ended.outcome.status] += 1
        if delivery is not None and delivery != before.delivery:
            match delivery:
                case Delivered(path=path):
                    self.deliveries["delivered", path] += 1
                case Skipped(reason=why):
                    self.deliveries["skipped", why] += 1
                case Undelivered(error=error):
                    self.deliveries["undelivered", error] += 1
        elif isinstance(phase, AnnounceDeferred):
            self.deliveries["deferred", phase.reason] += 1

    def shown(self) -> dict[str, dict[str, int]]:
        """All counts, as plain values."""
        deliveries = {f"{how}:{why}": count for (how, why), count in sorted(self.deliveries.items())}
        return {
            "phases": dict(sorted(self.phases.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            "deliveries": deliveries,
            "interrupts": {"steps": self.interrupts},
        }


def write(hints: Hints) -> None:
    """Log what a commit did, to whoever listens."""
    if hints.moves and _runs.isEnabledFor(logging.INFO):
        for before, after, event in hints.moves:
            if before is None or before.phase.name != after.phase.name or before.attempt != after.attempt:
                _runs.info("%s", _move_line(before, after, event))
    if hints.tries and _deliveries.isEnabledFor(logging.INFO):
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
