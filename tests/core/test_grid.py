"""Every situation with every event: one table that says what may happen, and what holds of all transitions.

A situation is a phase, split where the phase alone does not decide. In the table an event stands on each line that some
sample of it can lead to, so one event may stand on several lines of a situation. Where and how exactly each move leads
stands in `test_lifecycle`, `test_closing` and their siblings.
"""

from collections.abc import Iterator

import msgspec
import pytest

from fledge.core import events as ev
from fledge.core.effects import Step
from fledge.core.lifecycle import transition
from fledge.core.run import (
    ENDED,
    PHASES,
    RESUMABLE,
    AnnounceDeferred,
    Asking,
    Ending,
    Gone,
    Grace,
    Run,
    Stopping,
)
from fledge.errors import IllegalTransition
from tests.core.samples import RUNS, SAMPLE_EVENTS
from tests.statements import proves

ILLEGAL, IGNORED = "illegal", "ignored"
SIGNALS = "AttemptStarted AttemptEnded AttemptFaltered DriverStopped LeaseLost"
PLAN = "PlanApproved PlanRejected"
ANSWERS = f"{PLAN} PersonAnswered Resumed"
CLEANUP = "Removed CleanedUp CleanupFailed"
DELIVERY = f"RowConsumed RowSuppressed Revived RequesterLost HandedToProgram Retried Dismissed {CLEANUP}"
LATE = "Withdrawn ProgramCame"
BIRTH = "Admitted Prepared Imported Claimed"

GRID: dict[str, dict[str, str]] = {
    "spawning": {
        "queued": "Prepared",
        "completed": "Imported",
        "gone": "Withdrawn KillOrdered CameDue",
        IGNORED: f"{SIGNALS} ProgramCame ChildrenSettled Steered {ANSWERS} {DELIVERY} CameDue",
        ILLEGAL: "Admitted Claimed Yielded SendArrived PersonAsked Paused Progressed",
    },
    "queued": {
        "running": "Claimed",
        "queued": "Steered SendArrived ProgramCame",
        "announcing": "CameDue",
        "cleanup_pending": "KillOrdered",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived {ANSWERS} {DELIVERY} CameDue",
        ILLEGAL: "Admitted Prepared Imported Yielded PersonAsked Paused Progressed",
    },
    "running": {
        "running": "AttemptEnded CameDue Progressed",
        "queued": "AttemptEnded DriverStopped LeaseLost Yielded Steered Paused",
        "waiting": "AttemptEnded Yielded PersonAsked",
        "ending": "AttemptFaltered KillOrdered",
        "announcing": "AttemptEnded LeaseLost CameDue",
        "announce_deferred": "AttemptEnded",
        "awaiting_approval": "AttemptEnded",
        "cleanup_pending": "AttemptEnded KillOrdered",
        IGNORED: f"{LATE} AttemptStarted Progressed Yielded ChildrenSettled SendArrived {ANSWERS} {DELIVERY} CameDue",
        ILLEGAL: BIRTH,
    },
    "waiting": {
        "queued": "ChildrenSettled SendArrived Steered CameDue",
        "announcing": "CameDue",
        "cleanup_pending": "KillOrdered",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled {ANSWERS} {DELIVERY} CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "waiting for a person": {
        "queued": "PersonAnswered Steered CameDue",
        "cleanup_pending": "KillOrdered",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived {PLAN} Resumed {DELIVERY} CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "ending, grace": {
        "running": "AttemptStarted AttemptEnded",
        "queued": "AttemptEnded Steered",
        "waiting": "AttemptEnded",
        "ending": "KillOrdered",
        "announcing": "AttemptEnded CameDue",
        "cleanup_pending": "AttemptEnded KillOrdered",
        IGNORED: f"{LATE} AttemptStarted AttemptFaltered DriverStopped LeaseLost ChildrenSettled SendArrived "
        f"{ANSWERS} {DELIVERY} CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "ending, stopping": {
        "announcing": "AttemptEnded",
        # A yield in the window is one of the ends that never win; it may come from a driver that did nothing wrong.
        "cleanup_pending": "AttemptEnded DriverStopped LeaseLost Yielded CameDue",
        IGNORED: f"{LATE} AttemptStarted AttemptFaltered ChildrenSettled Steered KillOrdered {ANSWERS} {DELIVERY} "
        "CameDue",
        ILLEGAL: f"{BIRTH} SendArrived PersonAsked Paused Progressed",
    },
    "announcing": {
        "announcing": "AttemptEnded ChildrenSettled KillOrdered HandedToProgram",
        "announce_deferred": "RequesterLost",
        "cleanup_pending": "RowConsumed RowSuppressed CameDue",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived Steered {ANSWERS} RowConsumed Revived Retried "
        "Dismissed Removed CleanedUp CleanupFailed CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "deferred, descendants-active": {
        "announcing": "ChildrenSettled",
        "announce_deferred": "AttemptEnded KillOrdered",
        "cleanup_pending": "RowConsumed RowSuppressed",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived Steered {ANSWERS} RowConsumed Revived RequesterLost "
        "HandedToProgram Retried Dismissed Removed CleanedUp CleanupFailed CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "deferred, missing-requester": {
        "announcing": "HandedToProgram CameDue",
        "announce_deferred": "AttemptEnded ChildrenSettled KillOrdered CameDue",
        "cleanup_pending": "RowConsumed RowSuppressed CameDue",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived Steered {ANSWERS} RowConsumed Revived RequesterLost "
        "Retried Dismissed Removed CleanedUp CleanupFailed CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "awaiting_approval": {
        "queued": PLAN,
        "awaiting_approval": "ChildrenSettled",
        "cleanup_pending": "KillOrdered CameDue",
        IGNORED: f"{LATE} {SIGNALS} PersonAnswered Resumed ChildrenSettled SendArrived Steered {DELIVERY} CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "cleanup_pending": {
        "cleanup_pending": "RowConsumed AttemptEnded ChildrenSettled KillOrdered CleanupFailed",
        "completed": "CleanedUp",
        "completed_giveup": "CleanedUp",
        "announcing": "Revived",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived Steered {ANSWERS} RowConsumed RowSuppressed Revived "
        "RequesterLost HandedToProgram Retried Dismissed Removed CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "completed": {
        "completed": "AttemptEnded ChildrenSettled KillOrdered CameDue",
        "archived": "CameDue Removed",
        "queued": "Resumed",
        "announcing": "Revived",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived Steered {ANSWERS} {DELIVERY} CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "completed_giveup": {
        "announcing": "Retried",
        "completed": "RowConsumed Dismissed CameDue",
        "completed_giveup": "AttemptEnded ChildrenSettled KillOrdered",
        "queued": "Resumed",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived Steered {ANSWERS} RowConsumed RowSuppressed Revived "
        "RequesterLost HandedToProgram Removed CleanedUp CleanupFailed CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "archived": {
        "archived": "ChildrenSettled CameDue",
        "gone": "CameDue",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled SendArrived Steered KillOrdered {ANSWERS} {DELIVERY} CameDue",
        ILLEGAL: f"{BIRTH} Yielded PersonAsked Paused Progressed",
    },
    "gone": {
        "gone": "ChildrenSettled",
        IGNORED: f"{LATE} {SIGNALS} ChildrenSettled Steered KillOrdered {ANSWERS} {DELIVERY} CameDue",
        ILLEGAL: f"{BIRTH} Yielded SendArrived PersonAsked Paused Progressed",
    },
}


def situation(run: Run) -> str:
    """The row of the table a run belongs to."""
    match run.phase:
        case Ending(cause=Grace()):
            return "ending, grace"
        case Ending(cause=Stopping()):
            return "ending, stopping"
        case Asking():
            return "waiting for a person"
        case AnnounceDeferred(reason=reason):
            return f"deferred, {reason}"
        case phase:
            return phase.name


def verdict(run: Run, event: ev.Event) -> str:
    """Where the event leads: the name of the next phase, `ignored` or `illegal`."""
    try:
        step = transition(run, event)
    except IllegalTransition:
        return ILLEGAL
    return step.run.phase.name if step.ignored is None else IGNORED


CELLS = [(name, event.__name__) for name in GRID for event in ev.EVENTS]


def expected(name: str, event: str) -> set[str]:
    return {line for line, events in GRID[name].items() if event in events.split()}


@proves("2.phases.41", "Every (phase, event) pair moves, is ignored with a reason, or is a bug of ours")
@proves("2.signals.6")
@pytest.mark.parametrize(("name", "event"), CELLS)
def test_the_event_leads_in_this_situation_exactly_where_the_table_says(name: str, event: str) -> None:
    runs = [run for run in RUNS.values() if situation(run) == name]
    samples = [sample for sample in SAMPLE_EVENTS if type(sample).__name__ == event]
    assert {verdict(run, sample) for run in runs for sample in samples} == expected(name, event)


@proves("2.phases.41")
def test_the_table_has_every_phase_and_every_cell_and_nothing_unknown() -> None:
    assert {situation(run) for run in RUNS.values()} == set(GRID)
    assert {type(run.phase) for run in RUNS.values()} == set(PHASES)
    assert {type(sample) for sample in SAMPLE_EVENTS} == set(ev.EVENTS)
    assert [cell for cell in CELLS if not expected(*cell)] == []
    named = {event for lines in GRID.values() for events in lines.values() for event in events.split()}
    assert named == {event.__name__ for event in ev.EVENTS}
    assert {line for lines in GRID.values() for line in lines} <= {phase.name for phase in PHASES} | {ILLEGAL, IGNORED}


# ---- what holds of every transition ----------------------------------------------------------------------------------


def steps() -> Iterator[tuple[Run, ev.Event, Step]]:
    for run in RUNS.values():
        for event in SAMPLE_EVENTS:
            try:
                yield run, event, transition(run, event)
            except IllegalTransition:
                continue


STEPS = list(steps())


def test_an_ignored_event_leaves_the_very_same_run_asks_nothing_and_says_why() -> None:
    for run, event, step in STEPS:
        if step.ignored is not None:
            assert (step.run is run, step.effects) == (True, ()), event
            assert step.ignored


def test_a_move_makes_the_run_exactly_one_event_older() -> None:
    for run, event, step in STEPS:
        if step.ignored is None:
            assert step.run.version == run.version + 1, event


def test_key_and_terms_never_change_and_an_attempt_grows_by_at_most_one_with_its_id() -> None:
    for run, event, step in STEPS:
        assert (step.run.key, step.run.terms) == (run.key, run.terms)
        assert step.run.attempt - run.attempt in (0, 1), event
        assert (step.run.attempt == run.attempt) == (step.run.run_id == run.run_id), event


def test_a_fixed_outcome_changes_only_when_a_late_complete_refreshes_it() -> None:
    for run, event, step in STEPS:
        if run.ended is not None and step.run.ended not in (run.ended, None):
            assert isinstance(event, ev.AttemptEnded)
            assert step.run.ended is not None
            assert step.run.ended.outcome.status == "ok"


def test_a_run_that_has_ended_works_again_only_when_it_is_resumed_and_had_not_ended_well() -> None:
    for run, event, step in STEPS:
        if run.ended is not None and isinstance(event, ev.Resumed) and step.ignored is None:
            assert isinstance(run.ended.outcome, RESUMABLE)
        elif run.ended is not None:
            assert isinstance(step.run.phase, (*ENDED, Gone)), event


def test_transition_is_a_function_of_its_arguments() -> None:
    for run, event, step in STEPS:
        assert transition(run, event) == step


# ---- the way through JSON --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_survives_its_way_through_json(name: str) -> None:
    assert msgspec.json.decode(msgspec.json.encode(RUNS[name]), type=Run) == RUNS[name]


@pytest.mark.parametrize("event", SAMPLE_EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_its_way_through_json(event: ev.Event) -> None:
    assert msgspec.json.decode(msgspec.json.encode(event), type=ev.Event) == event
    assert msgspec.json.decode(msgspec.json.encode(event))["type"] == type(event).__name__


def test_effects_survive_their_way_through_json() -> None:
    for _, _, step in STEPS:
        assert msgspec.json.decode(msgspec.json.encode(step), type=Step) == step
