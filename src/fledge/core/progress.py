"""Progress of a turn: how many steps it has made, and how many of them in a row repeated earlier ones.

A step repeats an earlier one if both called the same tools with the same arguments and got the same results, digits
apart. Cycles of one, two or three steps are noticed. A slow step is work or waiting, not spinning: it ends a row of
repeats. This file knows neither models nor stores; the counts are kept with the turn, so a crash does not reset them.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from fledge.core.access import tool_name
from fledge.core.run import Instant
from fledge.core.transcript import CallEntry, Resulted
from fledge.core.value import Value

LONGEST_CYCLE: Final = 3
TELL_AT: Final = 30
"""The model is warned once a row of repeats is so long."""
SLOW_S: Final = 30.0
"""A step that takes longer repeats nothing."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_DIGITS: Final = re.compile(r"\d+")


class StepLimits(Value):
    """How far a turn may go (`agents.defaults`); 0 is no limit."""

    max_steps: int = 1000
    max_repeated: int = 100


class Progress(Value, omit_defaults=True):
    """The counts of one turn."""

    steps: int = 0
    """Model replies with tool calls whose results are all in."""
    recent: tuple[str, ...] = ()
    """Digests of the last steps, newest first."""
    repeats: tuple[int, ...] = (0,) * LONGEST_CYCLE
    """For cycles of one, two and three steps: how many steps in a row were equal to the one that far back."""
    at: Instant | None = None
    """When the last step was complete."""

    @property
    def repeated(self) -> int:
        """How many of the last steps, in a row, repeated earlier ones."""
        return max(self.repeats)


def step_digest(calls: Sequence[CallEntry], results: Sequence[Resulted]) -> str:
    """A digest that is equal for steps that repeat each other: tool names, canonical arguments, results with their
    digits masked. Images count by their bytes: a screen that changes is progress."""
    asked = [[tool_name(call.name), _canonical(call.arguments)] for call in calls]
    got = [
        [result.index, result.is_error, _DIGITS.sub("#", result.text), *[image.sha256 for image in result.images]]
        for result in results
    ]
    return hashlib.blake2b(_encode([asked, sorted(got)]), digest_size=8).hexdigest()


def _canonical(arguments: str) -> str:
    """The arguments with keys in order and no space between; as they are if they are not JSON."""
    try:
        return _encode(_decode(arguments.strip() or "{}")).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


def advance(before: Progress, digest: str, begun_at: Instant, at: Instant) -> Progress:
    """One more step is complete: the first of the turn began at `begun_at`, any other when the one before was
    complete."""
    if at - (begun_at if before.at is None else before.at) > SLOW_S:
        return Progress(before.steps + 1, at=at)
    repeats = tuple(
        [count + 1 if before.recent[back : back + 1] == (digest,) else 0 for back, count in enumerate(before.repeats)]
    )
    return Progress(before.steps + 1, (digest, *before.recent)[:LONGEST_CYCLE], repeats, at)


def is_told(progress: Progress) -> bool:
    """True at the step after which the model is warned that it repeats itself."""
    return progress.repeated == TELL_AT


def refuse_next_step(progress: Progress, limits: StepLimits) -> str | None:
    """Why the turn may not go on; None if it may."""
    if limits.max_repeated and progress.repeated >= limits.max_repeated:
        return (
            f"no progress: {progress.repeated} steps in a row repeated earlier ones (same calls, same results): "
            "agents.defaults.maxRepeatedSteps"
        )
    if limits.max_steps and progress.steps >= limits.max_steps:
        return f"{progress.steps} of {limits.max_steps} steps: agents.defaults.maxSteps"
    return None
