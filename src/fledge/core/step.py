"""What a decision is: the run as it stands afterwards, and what that asks of the world."""

from msgspec import Struct
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core.run import Phase, Run


class Step(Struct, frozen=True, gc=False):
    """What became of an event: a new run with its effects, or the old one and the reason it was ignored."""

    run: Run
    effects: tuple[fx.Effect, ...] = ()
    ignored: str | None = None


def ignore(run: Run, reason: str) -> Step:
    """Nothing changes, and nothing is recorded."""
    return Step(run, ignored=reason)


def move(run: Run, phase: Phase, *effects: fx.Effect) -> Step:
    """The run in its new phase, one event older."""
    return Step(replace(run, phase=phase, version=run.version + 1), effects)


def next_attempt(run: Run, run_id: str) -> Run:
    """A new execution of the same run."""
    return replace(run, attempt=run.attempt + 1, run_id=run_id, failing=None)
