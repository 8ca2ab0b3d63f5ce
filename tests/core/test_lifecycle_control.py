"""What people, plans and time do to a live run: a row per transition, each with the exact run and effects."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from fledge.core.run import Asking, Ending, Queued, Running, Stopping
from tests.core.samples import (
    AT,
    ATTEMPT_2,
    BROKEN,
    CLEAN,
    KILL,
    LATER,
    RUNS,
    TOLD,
    WORKING,
    YIELD_WAIT,
    Row,
    came_due,
    dead,
    failed,
    ignored,
    killed,
    moved,
    run_in,
    terms,
    timed_out,
)
from tests.statements import proves

STEER = ev.Steered(at=AT, next_run_id="run-2")

REDIRECTED: dict[str, Row] = {
    name: (
        RUNS[name],
        STEER,
        Queued(),
        (fx.SupersedeDriver(1005.0), fx.CloseCalls("interrupted"), fx.Enqueue()),
        {**ATTEMPT_2, "steered_at": AT, "deadline_at": None},
    )
    for name in ("queued, deadline", "queued, serving", "running, deadline", "waiting, final text", "ending, grace")
}
STEERED: dict[str, Row] = {
    "what it had said becomes the fallback": (
        RUNS["running, fallback"],
        ev.Steered(at=AT, next_run_id="run-2", text="t-so-far"),
        Queued(),
        (fx.SupersedeDriver(1005.0), fx.CloseCalls("interrupted"), fx.Enqueue()),
        {**ATTEMPT_2, "steered_at": AT, "fallback": "t-so-far"},
    ),
    "before it ever ran: queue time counts anew": (
        RUNS["queued, limited"],
        replace(STEER, at=1010.0),
        Queued(due_at=1070.0),
        (fx.SupersedeDriver(1015.0), fx.CloseCalls("interrupted"), fx.Enqueue()),
        {**ATTEMPT_2, "steered_at": 1010.0},
    ),
    "after it ran: queue time has no limit": (
        run_in(WORKING, terms=terms(queue_timeout_s=60.0)),
        STEER,
        Queued(),
        (fx.SupersedeDriver(1005.0), fx.CloseCalls("interrupted"), fx.Enqueue()),
        {**ATTEMPT_2, "steered_at": AT},
    ),
}

KILLED: dict[str, Row] = (
    {
        name: (
            RUNS[name],
            killed(driven=True),
            Ending(1005.0, Stopping(True, True)),
            (fx.StopDriver(1005.0), KILL[-1]),
            {},
        )
        for name in ("running", "ending, grace", "ending, grace after an abort")
    }
    | {
        f"{name}: what a send's turn says is no result that could win": (
            RUNS[name],
            killed(driven=True),
            Ending(1005.0, Stopping(True, False)),
            (fx.StopDriver(1005.0), KILL[-1]),
            {},
        )
        for name in ("running, serving", "ending, grace while serving")
    }
    | {
        "a planner: a plan is no result that could win": (
            run_in(WORKING, plan="planning"),
            killed(driven=True),
            Ending(1005.0, Stopping(True, False)),
            (fx.StopDriver(1005.0), KILL[-1]),
            {},
        ),
        "driven, from above: stopping, and it cannot win": (
            RUNS["running"],
            killed(named=False, driven=True, unsettled=1),
            Ending(1005.0, Stopping(False)),
            (fx.StopDriver(1005.0), fx.SuppressInbox()),
            {},
        ),
        "queued: decided at once": (
            RUNS["queued"],
            killed(),
            dead(started_at=None),
            (fx.SupersedeDriver(AT), *KILL, fx.CountDown(), *CLEAN),
            {},
        ),
        "queued behind a driver that was superseded: decided at once": (
            RUNS["queued"],
            killed(driven=True),
            dead(started_at=None),
            (fx.SupersedeDriver(AT), *KILL, fx.CountDown(), *CLEAN),
            {},
        ),
        "running without a driver, over children, with partial work": (
            RUNS["running, fallback"],
            killed(named=False, unsettled=1, partial="t-partial"),
            dead(False, "t-partial"),
            (fx.SupersedeDriver(AT), *KILL, *CLEAN),
            {},
        ),
        "waiting: the fallback is kept for people to read": (
            RUNS["waiting, final text"],
            killed(),
            dead(result="t-before"),
            (fx.SupersedeDriver(AT), *KILL, fx.CountDown(), *CLEAN),
            {},
        ),
        "in a grace without a driver": (
            RUNS["ending, grace"],
            killed(),
            dead(),
            (fx.SupersedeDriver(AT), *KILL, fx.CountDown(), *CLEAN),
            {},
        ),
        "while its plan awaits an answer: it was settled already": (
            RUNS["awaiting approval"],
            killed(),
            dead(),
            (fx.SupersedeDriver(AT), *KILL, *CLEAN),
            {},
        ),
    }
)

PLANS: dict[str, Row] = {
    "approved: a new attempt without the plan as fallback": (
        replace(RUNS["awaiting approval"], fallback="t-before"),
        ev.PlanApproved(at=AT, next_run_id="run-2"),
        Queued(),
        (fx.WithdrawPlan(), fx.CountUp(), fx.Enqueue()),
        {**ATTEMPT_2, "plan": "approved", "fallback": None},
    ),
    "rejected: a new attempt that plans again": (
        RUNS["awaiting approval"],
        ev.PlanRejected(at=AT, next_run_id="run-2"),
        Queued(),
        (fx.WithdrawPlan(), fx.CountUp(), fx.Enqueue()),
        {**ATTEMPT_2, "plan": "planning", "fallback": "t-plan"},
    ),
    "something below is unsettled again: it is counted already": (
        RUNS["awaiting approval"],
        ev.PlanApproved(at=AT, next_run_id="run-2", unsettled=1),
        Queued(),
        (fx.WithdrawPlan(), fx.Enqueue()),
        {**ATTEMPT_2, "plan": "approved"},
    ),
}


PERSONS: dict[str, Row] = {
    "asked: no slot, the turn stays open": (
        RUNS["running"],
        ev.PersonAsked(at=AT, attempt=1, due_at=1500.0),
        Asking(due_at=1500.0),
        (fx.FreeDriver(),),
        {},
    ),
    "asked with a deadline: the clock stands still": (
        run_in(WORKING, deadline_at=1060.0),
        ev.PersonAsked(at=AT, attempt=1, due_at=1500.0),
        Asking(due_at=1500.0, left_s=60.0),
        (fx.FreeDriver(),),
        {"deadline_at": None},
    ),
    "asked in a send's turn: the waiting period is kept": (
        RUNS["running, serving"],
        ev.PersonAsked(at=AT, attempt=1, due_at=1500.0),
        Asking(due_at=1500.0, serving=YIELD_WAIT),
        (fx.FreeDriver(),),
        {},
    ),
    "answered: the same attempt goes on": (
        RUNS["asking"],
        ev.PersonAnswered(at=AT),
        Queued(),
        (fx.Enqueue(),),
        {},
    ),
    "answered: its clock runs again": (
        RUNS["asking, with time left"],
        ev.PersonAnswered(at=AT),
        Queued(),
        (fx.Enqueue(),),
        {"deadline_at": 1060.0},
    ),
    "answered in a send's turn": (
        RUNS["asking, serving"],
        ev.PersonAnswered(at=AT),
        Queued(serving=YIELD_WAIT),
        (fx.Enqueue(),),
        {},
    ),
    "not answered in time: it goes on and is told so": (
        RUNS["asking, with time left"],
        came_due(at=1500.0),
        Queued(),
        (fx.Enqueue(),),
        {"deadline_at": 1560.0},
    ),
}


TIME: dict[str, Row] = {
    f"the run's deadline ends it: {name}": (
        RUNS[name],
        came_due(due_at, partial="t-partial"),
        timed_out(due_at),
        (fx.SupersedeDriver(due_at + 5.0), *BROKEN, fx.Announce("outcome", "t-partial"), fx.CountDown()),
        {},
    )
    for name, due_at in (
        ("queued, deadline", 1500.0),
        ("running, deadline", 1500.5),
        ("waiting, deadline", 1500.0),
        ("ending, grace with a deadline", 1010.0),
    )
} | {
    "the deadline over children, with a fallback only": (
        run_in(WORKING, deadline_at=1100.0, fallback="t-before"),
        came_due(1100.0, unsettled=1),
        timed_out(1100.0, "t-before"),
        (fx.SupersedeDriver(1105.0), *BROKEN, fx.Announce("outcome", "t-before")),
        {},
    ),
    "a step was committed meanwhile: looked at again": (
        RUNS["running, serving"],
        came_due(1200.0, progress_at=900.5),
        Running(due_at=1200.5, serving=YIELD_WAIT),
        (),
        {},
    ),
    "no step for its limit: told once as stuck": (
        RUNS["running, serving"],
        came_due(1200.0, progress_at=900.0),
        Running(due_at=None, serving=YIELD_WAIT, stuck_at=1200.0),
        (fx.Tell("no progress for 300 s"),),
        {},
    ),
    "no step at all: told as stuck": (
        run_in(WORKING, terms=terms(stuck_after_s=299.6), deadline_at=1500.0),
        came_due(1499.5),
        Running(due_at=None, stuck_at=1499.5),
        (fx.Tell("no progress for 300 s"),),
        {},
    ),
    "a grace runs out: an error": (
        RUNS["ending, grace"],
        came_due(1015.0, unsettled=0, partial="t-partial"),
        failed("overloaded", 1015.0),
        (fx.SupersedeDriver(1020.0), *BROKEN, *TOLD),
        {},
    ),
    "a grace runs out after an abort, over children: a timeout": (
        RUNS["ending, grace after an abort"],
        came_due(1015.0, unsettled=1, partial="t-partial"),
        timed_out(1015.0),
        (fx.SupersedeDriver(1020.0), *BROKEN, fx.Announce("outcome", "t-partial")),
        {},
    ),
    "stopping for 5 s: killed, the driver fenced off": (
        RUNS["ending, stopping below"],
        came_due(1005.0, partial="t-partial"),
        dead(False, "t-partial", 1005.0),
        (fx.SupersedeDriver(1005.0), *KILL, fx.CountDown(), *CLEAN),
        {},
    ),
    "stopping for 5 s over children": (
        RUNS["ending, stopping named"],
        came_due(1005.5, unsettled=1),
        dead(True, None, 1005.5),
        (fx.SupersedeDriver(1005.5), *KILL, *CLEAN),
        {},
    ),
}


TABLES = (REDIRECTED, STEERED, KILLED, PLANS, PERSONS, TIME)


@proves(
    "2.signals.5",
    "An aborted end is provisional, and a timeout if nothing follows",
    row="a grace runs out after an abort, over children: a timeout",
)
@proves(
    "2.kill.1",
    "A run without a driver goes to cleanup_pending at once, killed, its announce suppressed",
    row="queued: decided at once",
)
@proves(
    "2.kill.9",
    "Otherwise, and after a crash, the epoch is raised and the run is cleaned up",
    row="stopping for 5 s: killed, the driver fenced off",
)
@pytest.mark.parametrize("row", [pytest.param(row, id=name) for table in TABLES for name, row in table.items()])
def test_the_event_moves_the_run_exactly_so(row: Row) -> None:
    run, event, phase, effects, changed = row
    assert transition(run, event) == moved(run, phase, *effects, **changed)


APPROVE = ev.PlanApproved(at=AT, next_run_id="run-2")
REJECT = ev.PlanRejected(at=AT, next_run_id="run-2")

IGNORED: list[tuple[str, ev.Event, str]] = [
    ("spawning", STEER, "done"),
    ("ending, stopping named", STEER, "done"),
    ("announcing", STEER, "done"),
    ("awaiting approval", STEER, "done"),
    ("completed", STEER, "done"),
    ("ending, stopping named", killed(driven=True), "already stopping"),
    ("ending, stopping below", killed(), "already stopping"),
    ("archived", killed(), "not there any more"),
    ("gone", killed(), "not there any more"),
    ("running, planning", APPROVE, "no plan awaits an answer"),
    ("running, planning", REJECT, "no plan awaits an answer"),
    ("completed", REJECT, "no plan awaits an answer"),
]


@pytest.mark.parametrize(("name", "event", "reason"), IGNORED)
def test_the_event_changes_nothing_and_the_reason_is_said(name: str, event: ev.Event, reason: str) -> None:
    assert transition(RUNS[name], event) == ignored(RUNS[name], reason)


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if run.due_at is not None])
def test_a_moment_before_its_due_time_nothing_happens_and_at_it_something_is_decided(name: str) -> None:
    run = RUNS[name]
    assert run.due_at is not None
    assert transition(run, came_due(run.due_at - 0.001)) == ignored(run, "not due")
    assert transition(run, came_due(run.due_at)).ignored in (None, "nothing is decided by time here")


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if run.due_at is None])
def test_a_run_without_a_due_time_is_never_due(name: str) -> None:
    assert transition(RUNS[name], came_due(LATER)) == ignored(RUNS[name], "not due")


@pytest.mark.parametrize("name", ["cleanup, delivered", "cleanup, undelivered"])
def test_a_due_cleanup_is_work_for_the_engine_not_a_change_of_the_run(name: str) -> None:
    assert transition(RUNS[name], came_due(960.0)) == ignored(RUNS[name], "nothing is decided by time here")
