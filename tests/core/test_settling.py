"""A run settles for its parent once, in the commit that fixes its outcome or removes its reservation."""

import pytest

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from tests.core.samples import (
    AT,
    RUNS,
    broke,
    came_due,
    finished,
    killed,
    settled,
    stopped,
)
from tests.statements import proves

SILENT_ENDS: list[tuple[str, ev.Event]] = [
    ("spawning", ev.Withdrawn(at=AT, reason="no disk")),
    ("spawning", killed()),
    ("spawning", came_due(1030.0)),
    ("running", finished("skip")),
    ("running", finished("silent")),
    ("queued", killed()),
    ("waiting, final text", killed()),
    ("ending, stopping below", stopped()),
    ("ending, stopping below", came_due(1005.0)),
    ("running", finished()),
    ("running", broke(ev.Errored("no model"))),
    ("running, planning", finished()),
]


@proves(
    "2.nested.1", "A descendant settles for its parent in the commit that fixes its outcome or removes its reservation"
)
@pytest.mark.parametrize(("name", "event"), SILENT_ENDS)
def test_every_end_settles_the_run_for_its_parent_once_in_that_commit(name: str, event: ev.Event) -> None:
    step = transition(RUNS[name], event)
    assert step.run.concluded
    assert step.effects.count(fx.CountDown()) == 1


@proves("2.nested.2", "It does so only once it has no unsettled descendants itself")
def test_an_end_over_unsettled_children_settles_the_run_only_with_the_last_of_them() -> None:
    for event in (broke(ev.Errored("no model"), unsettled=1), killed(unsettled=1)):
        step = transition(RUNS["running"], event)
        assert fx.CountDown() not in step.effects
        assert transition(step.run, settled(unsettled=1)).effects == ()
        assert transition(step.run, settled(unsettled=0)).effects == (fx.CountDown(),)
