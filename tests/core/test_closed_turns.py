"""A turn that a kill, a steer or its run's end closes is answered by that."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from tests.core.samples import (
    AT,
    RUNS,
    came_due,
    killed,
)


@pytest.mark.parametrize("name", ["queued", "running", "waiting, yielded", "ending, grace"])
def test_kill_steer_and_the_runs_end_close_the_turn(name: str) -> None:
    run = replace(RUNS[name], deadline_at=1001.0)
    for event in (killed(), ev.Steered(at=AT, next_run_id="run-2"), came_due(1001.0)):
        assert any(isinstance(effect, fx.CloseCalls) for effect in transition(run, event).effects)


@pytest.mark.parametrize("name", ["queued", "running", "waiting, yielded", "ending, grace"])
def test_what_kill_and_the_runs_end_close_cannot_be_claimed_again(name: str) -> None:
    run = replace(RUNS[name], deadline_at=1001.0)
    for event in (killed(), came_due(1001.0)):
        effects = transition(run, event).effects
        assert fx.Dequeue() in effects
        assert fx.Enqueue() not in effects
