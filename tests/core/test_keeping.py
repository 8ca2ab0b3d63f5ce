"""How long things are kept: results that no program reads, and runs until the sweeper may take them."""

import pytest

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.lifecycle import transition
from fledge.core.run import (
    Archived,
    Completed,
)
from tests.core.samples import (
    AT,
    RUNS,
    SAMPLE_EVENTS,
    came_due,
    finished,
    play,
)
from tests.statements import proves

# ---- a program that never reads --------------------------------------------------------------------------------------


def test_a_result_a_program_leaves_unread_for_30_minutes_is_given_up_and_can_be_retried() -> None:
    run = play(RUNS["running, for a program"], finished())
    assert run.due_at == AT + 1800.0
    assert transition(run, came_due(AT + 1799.5)).ignored == "not due"
    given_up = play(run, came_due(AT + 1800.0), ev.CleanedUp(at=3000.0))
    assert given_up.phase.name == "completed_giveup"
    assert play(given_up, ev.Retried(at=4000.0)).due_at == 5800.0


@proves("2.hops.1", "Hop 1 cannot fail while a requester exists and never expires")
def test_a_conversations_result_is_never_given_up_unread() -> None:
    assert play(RUNS["running"], finished()).due_at is None


# ---- the sweeper and late rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "has_turn", "unsettled"), [(1, False, 0), (0, True, 0), (0, False, 1)], ids=["row", "turn", "below"]
)
def test_a_settled_run_is_not_archived_while_a_row_a_turn_or_a_descendant_is_open(
    rows: int, has_turn: bool, unsettled: int
) -> None:
    held = policy.held_by(rows, has_turn, unsettled)
    step = transition(RUNS["completed"], came_due(4570.0, held_by=held))
    assert isinstance(step.run.phase, Completed)
    assert step.run.due_at == 4630.0
    assert step.effects == ()
    free = transition(step.run, came_due(4630.0, held_by=policy.held_by(0, False, 0)))
    assert isinstance(free.run.phase, Archived)


def test_a_plan_is_never_archived_while_it_waits() -> None:
    impossible = (
        ev.Admitted,
        ev.Prepared,
        ev.Imported,
        ev.Claimed,
        ev.Progressed,
        ev.Yielded,
        ev.PersonAsked,
        ev.Paused,
    )
    for event in SAMPLE_EVENTS:
        if not isinstance(event, impossible):
            assert not isinstance(transition(RUNS["awaiting approval"], event).run.phase, Archived)
