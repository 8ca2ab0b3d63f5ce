"""Ends that come after the outcome: rows of their own kind; a send's turn refreshes nothing."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.effects import Step
from fledge.core.lifecycle import transition
from tests.core.samples import (
    AT,
    RUNS,
    came_due,
    finished,
    ignored,
    moved,
)
from tests.statements import proves

# ---- the key has a kind ----------------------------------------------------------------------------------------------


def rows(step: Step) -> list[str]:
    return [effect.row for effect in step.effects if isinstance(effect, fx.Announce)]


@proves("2.announce.23")
def test_outcome_plan_expiry_and_late_completes_are_rows_of_their_own_kinds() -> None:
    assert rows(transition(RUNS["running"], finished())) == ["outcome"]
    assert rows(transition(RUNS["running, planning"], finished())) == ["plan"]
    assert rows(transition(RUNS["awaiting approval"], came_due(87400.0))) == ["expired"]
    assert rows(transition(RUNS["completed, timed out"], finished())) == ["late"]


@pytest.mark.parametrize("name", ["announcing an error", "deferred, missing-requester"])
def test_a_late_complete_refreshes_an_unread_outcome_and_writes_no_second_row(name: str) -> None:
    step = transition(RUNS[name], finished())
    assert step.effects == (fx.RefreshRow("t-new"),)
    assert step.run.phase.name == RUNS[name].phase.name


@pytest.mark.parametrize("name", ["cleanup, failed and delivered", "completed, timed out", "cleanup, killed by name"])
def test_a_late_complete_after_that_changes_no_phase_hook_or_counter(name: str) -> None:
    run = RUNS[name]
    assert transition(run, finished()) == moved(run, run.phase, fx.Announce("late", "t-new"))


@proves("2.kill.15", "It is accepted until archive")
def test_a_late_complete_is_not_heard_once_archived() -> None:
    run = RUNS["archived, failed"]
    assert transition(run, finished()) == ignored(run, "already ended")


# ---- a send's turn never refreshes -----------------------------------------------------------------------------------


def test_a_send_after_the_outcome_is_fixed_makes_no_attempt_that_could_refresh_it() -> None:
    for name, run in RUNS.items():
        if run.ended is not None:
            assert transition(run, ev.SendArrived(at=AT)) == ignored(run, "answered by a turn of its own"), name


@proves("2.frozen.14", "An empty or silent later end never refreshes")
@pytest.mark.parametrize("said", ["empty", "silent", "skip"])
def test_a_later_end_without_words_never_refreshes(said: ev.Said) -> None:
    run = RUNS["announcing"]
    assert transition(run, finished(said)) == ignored(run, "a late end without words")


def test_an_end_of_another_attempt_never_refreshes() -> None:
    run = replace(RUNS["announcing"], attempt=2)
    assert transition(run, finished()) == ignored(run, "attempt 1, now 2")
