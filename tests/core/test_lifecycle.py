"""How a run lives up to its end: a row per transition, each with the exact run and effects that follow.

How a turn ends stands in `test_lifecycle_turns`; steer, kill, plan answers and time in `test_lifecycle_control`; what
follows once an outcome is fixed in `test_closing`; every phase with every event in `test_grid`.
"""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import born, replay, transition
from fledge.core.run import (
    Completed,
    Delivered,
    Ended,
    Ending,
    Gone,
    Grace,
    Ok,
    PlanState,
    Queued,
    Run,
    Running,
    Spawning,
)
from fledge.errors import IllegalTransition
from tests.core.samples import (
    AT,
    ATTEMPT_2,
    BROKEN,
    CLEAN,
    KEY,
    KILL,
    RUNS,
    SERVING,
    TERMS,
    TOLD,
    WOKEN,
    WORKING,
    YIELD_WAIT,
    Row,
    came_due,
    dead,
    failed,
    faltered,
    finished,
    ignored,
    killed,
    lost,
    moved,
    run_in,
    settled,
    started,
    stopped,
    terms,
    yielded,
)
from tests.statements import proves

SPAWNING: dict[str, Row] = {
    "prepared: accepted, its task posted": (
        RUNS["spawning"],
        ev.Prepared(at=AT),
        Queued(),
        (fx.Post("task"), fx.Enqueue(), fx.CallHook("subagent_spawned")),
        {},
    ),
    "prepared with a queue timeout: counted from now": (
        run_in(Spawning(1030.0), terms=terms(queue_timeout_s=60.0)),
        ev.Prepared(at=AT),
        Queued(due_at=1060.0),
        (fx.Post("task"), fx.Enqueue(), fx.CallHook("subagent_spawned")),
        {},
    ),
    "prepared with a queue timeout below a second: that counts too": (
        run_in(Spawning(1030.0), terms=terms(queue_timeout_s=0.5)),
        ev.Prepared(at=AT),
        Queued(due_at=1000.5),
        (fx.Post("task"), fx.Enqueue(), fx.CallHook("subagent_spawned")),
        {},
    ),
    "withdrawn: forgotten, and its parent need not wait": (
        RUNS["spawning"],
        ev.Withdrawn(at=AT, reason="no disk"),
        Gone("no disk"),
        (fx.CountDown(), fx.Forget()),
        {},
    ),
    "killed: forgotten": (RUNS["spawning"], killed(), Gone("killed"), (fx.CountDown(), fx.Forget()), {}),
    "not prepared in 30 s: forgotten": (
        RUNS["spawning"],
        came_due(1030.0),
        Gone("not prepared in time"),
        (fx.CountDown(), fx.Forget()),
        {},
    ),
}

QUEUED: dict[str, Row] = {
    "claimed for the first time: it has started": (
        RUNS["queued"],
        ev.Claimed(at=AT, epoch=4),
        Running(due_at=1300.0),
        (),
        {"started_at": AT},
    ),
    "claimed again: it started when it first did": (
        run_in(Queued(), terms=terms(stuck_after_s=10.0)),
        ev.Claimed(at=AT, epoch=4),
        Running(due_at=1010.0),
        (),
        {},
    ),
    "claimed with a timeout: the clock starts": (
        run_in(Queued(), started_at=None, terms=terms(timeout_s=0.5)),
        ev.Claimed(at=AT, epoch=4),
        Running(due_at=1300.0),
        (),
        {"started_at": AT, "deadline_at": 1000.5},
    ),
    "claimed again with a timeout: the clock runs on": (
        run_in(Queued(), deadline_at=1500.0, terms=terms(timeout_s=60.0)),
        ev.Claimed(at=AT, epoch=4),
        Running(due_at=1300.0),
        (),
        {},
    ),
    "claimed for a send's turn: the waiting period is kept": (
        RUNS["queued, serving"],
        ev.Claimed(at=AT, epoch=4),
        Running(due_at=1300.0, serving=YIELD_WAIT),
        (),
        {},
    ),
    "waited too long for a slot": (
        RUNS["queued, limited"],
        came_due(1060.0, unsettled=0),
        failed("it waited 60 s for a slot: queueTimeoutSeconds", 1060.0, None),
        (*BROKEN, *TOLD),
        {},
    ),
    "waited too long, with children of an earlier life": (
        RUNS["queued, limited"],
        came_due(1060.5, unsettled=1),
        failed("it waited 60 s for a slot: queueTimeoutSeconds", 1060.5, None),
        (*BROKEN, fx.Announce("outcome", None)),
        {},
    ),
}

SIGNALS: dict[str, Row] = {
    "faltered: a grace of 15 s, driver and slot kept": (
        RUNS["running"],
        faltered(),
        Ending(1015.0, Grace("overloaded", False, WORKING)),
        (),
        {},
    ),
    "aborted while it serves a send: the grace remembers both": (
        RUNS["running, serving"],
        faltered("gone away", aborted=True),
        Ending(1015.0, Grace("gone away", True, SERVING)),
        (),
        {},
    ),
    "started within the grace: it goes on": (RUNS["ending, grace"], started(), Running(due_at=1300.0), (), {}),
    "started within a grace while it serves": (
        RUNS["ending, grace while serving"],
        started(),
        Running(due_at=1300.0, serving=YIELD_WAIT),
        (),
        {},
    ),
    "crashed once: queued again under a new epoch, same attempt": (
        RUNS["running"],
        lost(),
        Queued(),
        (fx.SupersedeDriver(AT), fx.Enqueue()),
        {"crashes": 1},
    ),
    "crashed with no step open: counts nothing": (
        run_in(WORKING, crashes=2),
        lost(step_open=False),
        Queued(),
        (fx.SupersedeDriver(AT), fx.Enqueue()),
        {},
    ),
    "a committed step after a crash: the count starts again": (
        run_in(SERVING, crashes=2),
        ev.Progressed(at=AT),
        SERVING,
        (),
        {"crashes": 0},
    ),
    "stopped gracefully: queued again, counts nothing": (
        RUNS["running, crashed twice"],
        stopped(),
        Queued(),
        (fx.SupersedeDriver(AT), fx.Enqueue()),
        {},
    ),
    "crashed a third time: failed with a reason": (
        RUNS["running, crashed twice"],
        lost(),
        failed("it crashed 3 times in the same step and was not tried again"),
        (fx.SupersedeDriver(AT), *BROKEN, *TOLD),
        {"crashes": 3},
    ),
    "crashed a third time over children": (
        RUNS["running, crashed twice"],
        lost(unsettled=2),
        failed("it crashed 3 times in the same step and was not tried again"),
        (fx.SupersedeDriver(AT), *BROKEN, fx.Announce("outcome", None)),
        {"crashes": 3},
    ),
    "stopping, acknowledged: killed": (
        RUNS["ending, stopping named"],
        stopped(),
        dead(),
        (fx.FreeDriver(), *KILL, fx.CountDown(), *CLEAN),
        {},
    ),
    "stopping below, acknowledged over children: killed, not yet settled": (
        RUNS["ending, stopping below"],
        stopped(unsettled=1),
        dead(named=False),
        (fx.FreeDriver(), *KILL, *CLEAN),
        {},
    ),
}

WAITING: dict[str, Row] = {
    "all have settled: woken": (
        RUNS["waiting, final text"],
        settled(unsettled=0),
        Queued(),
        (fx.Post("wake"), fx.Enqueue()),
        WOKEN,
    ),
    "as many as asked for have settled: woken": (
        RUNS["waiting, yielded"],
        settled(unsettled=1, settled=2),
        Queued(),
        (fx.Post("wake"), fx.Enqueue()),
        WOKEN,
    ),
    "at the tenth wake all have settled: woken all the same": (
        RUNS["waiting, woken ten times"],
        settled(unsettled=0, settled=3),
        Queued(),
        (fx.Post("wake"), fx.Enqueue()),
        {**ATTEMPT_2, "wakes": 11},
    ),
    "at the ninth wake some have settled: woken": (
        run_in(YIELD_WAIT, wakes=9),
        settled(unsettled=1, settled=2),
        Queued(),
        (fx.Post("wake"), fx.Enqueue()),
        {**ATTEMPT_2, "wakes": 10},
    ),
    "the yield's deadline: woken to read what there is": (
        RUNS["waiting, yielded"],
        came_due(2000.0, unsettled=3),
        Queued(),
        (fx.Post("overdue"), fx.Enqueue()),
        WOKEN,
    ),
    "a message: a turn of the same attempt, and the condition is kept": (
        RUNS["waiting, yielded"],
        ev.SendArrived(at=AT),
        Queued(serving=YIELD_WAIT),
        (fx.Enqueue(),),
        {},
    ),
}


TABLES = (SPAWNING, QUEUED, SIGNALS, WAITING)


@proves("1.attempts.2", "A wake makes a new attempt", row="all have settled: woken")
@proves(
    "1.attempts.4",
    "Recovery goes on with the same attempt under a new epoch",
    row="crashed once: queued again under a new epoch, same attempt",
)
@proves(
    "2.phases.9",
    "queued: accepted, waits for a slot of its lane until claimed",
    row="claimed for the first time: it has started",
)
@proves(
    "2.phases.12",
    "After a crash a running run is queued again and resumed from its transcript under a new epoch",
    row="crashed once: queued again under a new epoch, same attempt",
)
@proves("2.nested.3", row="as many as asked for have settled: woken")
@proves("2.nested.12", "A run is woken once per waiting period", row="all have settled: woken")
@proves("3.limits.10", row="claimed for the first time: it has started")
@proves("3.limits.11", row="prepared: accepted, its task posted")
@pytest.mark.parametrize("row", [pytest.param(row, id=name) for table in TABLES for name, row in table.items()])
def test_the_event_moves_the_run_exactly_so(row: Row) -> None:
    run, event, phase, effects, changed = row
    assert transition(run, event) == moved(run, phase, *effects, **changed)


IGNORED: list[tuple[str, ev.Event, str]] = [
    ("queued", ev.Withdrawn(at=AT, reason="no disk"), "already accepted"),
    ("completed", ev.Withdrawn(at=AT, reason="no disk"), "already accepted"),
    ("running", started(), "already running"),
    ("running", started(attempt=9), "attempt 9, now 1"),
    ("running", settled(), "nothing waits for it"),
    ("queued, serving", settled(), "nothing waits for it"),
    ("ending, stopping named", settled(), "nothing waits for it"),
    ("waiting, final text", settled(unsettled=1, settled=9), "nothing waits for it"),
    ("waiting, yielded", settled(unsettled=1, settled=1), "nothing waits for it"),
    ("waiting, woken ten times", settled(unsettled=1, settled=2), "woken 10 times: only when all below have settled"),
    ("deferred, descendants-active", settled(unsettled=1), "nothing waits for it"),
    ("announcing", settled(unsettled=1), "nothing waits for it"),
    ("queued", ev.SendArrived(at=AT), "joins at the next step boundary"),
    ("running", ev.SendArrived(at=AT), "joins at the next step boundary"),
    ("ending, grace", ev.SendArrived(at=AT), "joins at the next step boundary"),
    ("awaiting approval", ev.SendArrived(at=AT), "joins at the next step boundary"),
    ("announcing", ev.SendArrived(at=AT), "answered by a turn of its own"),
    ("deferred, missing-requester", ev.SendArrived(at=AT), "answered by a turn of its own"),
    ("cleanup, delivered", ev.SendArrived(at=AT), "answered by a turn of its own"),
    ("completed", ev.SendArrived(at=AT), "answered by a turn of its own"),
    ("completed_giveup", ev.SendArrived(at=AT), "answered by a turn of its own"),
]


@pytest.mark.parametrize(("name", "event", "reason"), IGNORED)
def test_the_event_changes_nothing_and_the_reason_is_said(name: str, event: ev.Event, reason: str) -> None:
    assert transition(RUNS[name], event) == ignored(RUNS[name], reason)


ILLEGAL: list[tuple[str, ev.Event]] = [
    ("spawning", ev.Admitted(at=AT, key=KEY, terms=TERMS, run_id="run-1")),
    ("queued", ev.Prepared(at=AT)),
    ("spawning", ev.Claimed(at=AT, epoch=1)),
    ("running", ev.Claimed(at=AT, epoch=1)),
    ("waiting, yielded", ev.Claimed(at=AT, epoch=1)),
    ("running", replace(yielded(), attempt=9)),
    ("queued", yielded()),
    ("spawning", ev.SendArrived(at=AT)),
    ("ending, stopping named", ev.SendArrived(at=AT)),
    ("gone", ev.SendArrived(at=AT)),
]


@pytest.mark.parametrize(("name", "event"), ILLEGAL)
def test_what_only_a_bug_of_ours_could_produce_raises_and_says_what_and_where(name: str, event: ev.Event) -> None:
    run = RUNS[name]
    with pytest.raises(IllegalTransition) as caught:
        transition(run, event)
    assert str(caught.value) == f"{type(event).__name__} cannot happen to {KEY} in phase {run.phase.name}"


# ---- birth and replay ------------------------------------------------------------------------------------------------


@proves("2.phases.1", "spawning: admitted, its place reserved for 30 s")
@pytest.mark.parametrize(("planned", "plan"), [(False, "none"), (True, "planning")])
def test_a_run_is_born_reserved_for_30_seconds(planned: bool, plan: PlanState) -> None:
    agreed = terms(plan=planned)
    run = born(ev.Admitted(at=AT, key=KEY, terms=agreed, run_id="run-1"))
    assert run == Run(key=KEY, terms=agreed, run_id="run-1", phase=Spawning(due_at=1030.0), plan=plan)
    assert (run.version, run.attempt, run.wakes, run.crashes) == (1, 1, 0, 0)
    assert (run.deadline_at, run.started_at, run.fallback, run.steered_at) == (None, None, None, None)


def test_a_timeline_folds_into_the_run_it_made() -> None:
    birth = ev.Admitted(at=1.0, key=KEY, terms=TERMS, run_id="run-1")
    timeline: list[ev.Event] = [
        ev.Prepared(at=2.0),
        ev.Claimed(at=3.0, epoch=1),
        yielded("all", at=4.0, unsettled=1),
        settled(at=5.0),
        ev.Claimed(at=6.0, epoch=2),
        replace(finished(at=7.0), attempt=2),
        ev.RowConsumed(at=8.0, row="outcome", path="queued"),
        ev.CleanedUp(at=9.0),
    ]
    run = born(birth)
    for event in timeline:
        run = transition(run, event).run
    assert replay([birth, *timeline]) == run
    assert run.phase == Completed(Ended(Ok(), 3.0, 7.0, "t-new"), Delivered("queued"), 9.0, 3609.0)
    assert (run.version, run.attempt, run.run_id, run.wakes) == (9, 2, "run-2", 1)


def test_history_that_was_lived_elsewhere_awaits_no_plan() -> None:
    birth = ev.Admitted(at=1.0, key=KEY, terms=replace(TERMS, plan=True), run_id="run-1")
    run = replay([birth, ev.Imported(at=2.0, ended=Ended(Ok(), 0.5, 0.7, "t-new"))])
    assert (run.plan, run.started_at, run.phase.name) == ("none", 0.5, "completed")


def test_a_timeline_of_one_event_is_the_newborn_run() -> None:
    first = ev.Admitted(at=1.0, key=KEY, terms=TERMS, run_id="run-1")
    assert replay(iter([first])) == born(first)


def test_a_timeline_that_does_not_start_with_the_birth_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a timeline starts with Admitted, not Prepared$"):
        replay([ev.Prepared(at=1.0)])
