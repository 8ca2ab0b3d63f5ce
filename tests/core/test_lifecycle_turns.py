"""How a turn ends: a final reply or a yield, a row for each way, with the exact run and effects that follow."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from fledge.core.run import (
    Announcing,
    AwaitingApproval,
    Ended,
    Failing,
    Ok,
    Queued,
    Retry,
    Running,
    Waiting,
)
from tests.core.samples import (
    AT,
    BROKEN,
    FINAL_WAIT,
    RUNS,
    TOLD,
    WOKEN,
    WORKING,
    YIELD_WAIT,
    Row,
    broke,
    failed,
    finished,
    ignored,
    moved,
    run_in,
    terms,
    yielded,
)
from tests.statements import proves

FINISHED: dict[str, Row] = {
    "final text over unsettled children: it waits": (
        RUNS["running, fallback"],
        finished(unsettled=1),
        FINAL_WAIT,
        (fx.ReleaseDriver(),),
        {"fallback": "t-new"},
    ),
    "final text after crashes: they count no more": (
        run_in(WORKING, crashes=2),
        finished(unsettled=1),
        FINAL_WAIT,
        (fx.ReleaseDriver(),),
        {"crashes": 0, "fallback": "t-new"},
    ),
    "silence over unsettled children: the earlier text stays the fallback": (
        RUNS["running, fallback"],
        finished("silent", unsettled=1, settled=5, unread=3),
        FINAL_WAIT,
        (fx.ReleaseDriver(),),
        {},
    ),
    "a skip over unsettled children: no words of it are kept": (
        RUNS["running"],
        replace(finished(unsettled=1), end=ev.Finished("skip", "t-skip")),
        FINAL_WAIT,
        (fx.ReleaseDriver(),),
        {},
    ),
    "final text with a message unread: that is answered first, then it waits": (
        RUNS["running"],
        finished(unsettled=1, messages=1),
        Queued(serving=FINAL_WAIT),
        (fx.ReleaseDriver(), fx.Enqueue()),
        {"fallback": "t-new"},
    ),
    "final text with completions unread: read now, in the same attempt": (
        RUNS["ending, grace"],
        finished(unread=1),
        Running(due_at=1300.0),
        (fx.Drain(),),
        {"fallback": "t-new"},
    ),
    "an empty reply with completions unread: read now, the fallback stays": (
        RUNS["running, fallback"],
        finished("empty", unread=2),
        Running(due_at=1300.0),
        (fx.Drain(),),
        {},
    ),
    "final text: the result, announced in the same commit": (
        RUNS["running"],
        finished(messages=1, settled=3),
        Announcing(Ended(Ok(), 900.0, AT, "t-new")),
        (fx.ReleaseDriver(), fx.HandOver(), fx.Announce("outcome", "t-new"), fx.CountDown()),
        {},
    ),
    "final text within the grace: it decides": (
        RUNS["ending, grace"],
        finished(),
        Announcing(Ended(Ok(), 900.0, AT, "t-new")),
        (fx.ReleaseDriver(), fx.HandOver(), fx.Announce("outcome", "t-new"), fx.CountDown()),
        {},
    ),
    "an error within the grace: it decides": (
        RUNS["ending, grace"],
        broke(ev.Errored("no model")),
        failed("no model"),
        (fx.ReleaseDriver(), *BROKEN, *TOLD),
        {},
    ),
    "a send's turn ends: the waiting period goes on": (
        RUNS["running, serving"],
        finished(unsettled=2, settled=1),
        YIELD_WAIT,
        (fx.ReleaseDriver("earlier"),),
        {},
    ),
    "a send's turn ends within a grace: the waiting period goes on": (
        RUNS["ending, grace while serving"],
        finished(unsettled=1, settled=1),
        YIELD_WAIT,
        (fx.ReleaseDriver("earlier"),),
        {},
    ),
    "a send's turn ends after the condition came true, with another message unread: woken": (
        RUNS["running, serving"],
        finished(unsettled=1, settled=2, unread=1, messages=2),
        Queued(),
        (fx.ReleaseDriver("earlier"), fx.Post("wake"), fx.Enqueue()),
        WOKEN,
    ),
    "a send's turn ends at the yield's deadline, with another message unread: woken": (
        RUNS["running, serving"],
        finished(at=2000.0, unsettled=3, messages=2),
        Queued(),
        (fx.ReleaseDriver("earlier"), fx.Post("overdue"), fx.Enqueue()),
        WOKEN,
    ),
    "a send's turn ends after the yield's deadline and its condition: what it waited for is there": (
        RUNS["running, serving"],
        finished(at=2000.0, messages=2),
        Queued(),
        (fx.ReleaseDriver("earlier"), fx.Post("wake"), fx.Enqueue()),
        WOKEN,
    ),
    "a send's turn ends before the yield's deadline: the waiting period goes on": (
        RUNS["running, serving"],
        finished(at=1999.9, unsettled=3),
        YIELD_WAIT,
        (fx.ReleaseDriver("earlier"),),
        {},
    ),
    "a send's turn ends with another message unread: one more turn": (
        RUNS["running, serving"],
        finished(unsettled=3, messages=2),
        Queued(serving=YIELD_WAIT),
        (fx.ReleaseDriver("earlier"), fx.Enqueue()),
        {},
    ),
    "a send's turn ends after the condition came true: woken": (
        RUNS["running, serving"],
        finished(unsettled=1, settled=2, unread=1),
        Queued(),
        (fx.ReleaseDriver("earlier"), fx.Post("wake"), fx.Enqueue()),
        WOKEN,
    ),
    "a plan is written: announced, settled, its clock off": (
        replace(RUNS["running, planning"], deadline_at=1500.0, fallback="t-before"),
        finished(),
        AwaitingApproval(due_at=AT + 24 * 3600, plan="t-new"),
        (fx.ReleaseDriver(), fx.Announce("plan", "t-new"), fx.CountDown()),
        {"deadline_at": None},
    ),
    "planning ends in silence: the plan before it is asked about again": (
        replace(RUNS["running, planning"], fallback="t-before", terms=terms(plan=True, approval_s=60.0)),
        finished("silent"),
        AwaitingApproval(due_at=1060.0, plan="t-before"),
        (fx.ReleaseDriver(), fx.Announce("plan", "t-before"), fx.CountDown()),
        {},
    ),
    "planning ends without any plan: an error, and nothing to approve": (
        RUNS["running, planning"],
        finished("empty"),
        failed("it ended without a plan"),
        (fx.ReleaseDriver(), *BROKEN, *TOLD),
        {},
    ),
    "planning ends without any plan over children that cannot wake it: an error, not yet settled": (
        replace(RUNS["running, planning"], terms=terms(plan=True, wakeable=False)),
        finished("empty", unsettled=1),
        failed("it ended without a plan"),
        (fx.ReleaseDriver(), *BROKEN, fx.Announce("outcome", None)),
        {},
    ),
    "planning over unsettled children: it waits": (
        RUNS["running, planning"],
        finished(unsettled=1),
        FINAL_WAIT,
        (fx.ReleaseDriver(),),
        {"fallback": "t-new"},
    ),
    "an approved plan's attempt ends like any other": (
        RUNS["running, approved"],
        finished(),
        Announcing(Ended(Ok(), 900.0, AT, "t-new")),
        (fx.ReleaseDriver(), fx.HandOver(), fx.Announce("outcome", "t-new"), fx.CountDown()),
        {},
    ),
}

YIELDED: dict[str, Row] = {
    "for all": (
        RUNS["running"],
        yielded("all", unsettled=2),
        Waiting(None, 2800.0, "all"),
        (fx.ReleaseDriver("all"),),
        {},
    ),
    "for any, with one settled and read before": (
        RUNS["running"],
        yielded("any", unsettled=2, settled=1),
        Waiting(2, 2800.0, "any"),
        (fx.ReleaseDriver("all"),),
        {},
    ),
    "for three of which one is unread": (
        RUNS["running"],
        yielded(3, wait_s=5.0, unsettled=4, settled=2, unread=1),
        Waiting(4, 1005.0, "3"),
        (fx.ReleaseDriver("all"),),
        {},
    ),
    "never beyond the run's own deadline": (
        RUNS["running, deadline"],
        yielded(wait_s=500.5, unsettled=1),
        Waiting(None, 1500.0, "all"),
        (fx.ReleaseDriver("all"),),
        {},
    ),
    "within the run's own deadline": (
        RUNS["running, deadline"],
        yielded(wait_s=499.5, unsettled=1),
        Waiting(None, 1499.5, "all"),
        (fx.ReleaseDriver("all"),),
        {},
    ),
    "in a send's turn, with nothing to wait for: woken": (
        RUNS["running, serving"],
        yielded(),
        Queued(),
        (fx.ReleaseDriver("all"), fx.Post("wake"), fx.Enqueue()),
        WOKEN,
    ),
    "with a message unread: that is answered first": (
        RUNS["running"],
        yielded(2, unsettled=2, messages=1),
        Queued(serving=Waiting(2, 2800.0, "2")),
        (fx.ReleaseDriver("all"), fx.Enqueue()),
        {},
    ),
    "at the ninth wake": (
        run_in(WORKING, wakes=9),
        yielded(unsettled=1),
        Waiting(None, 2800.0, "all"),
        (fx.ReleaseDriver("all"),),
        {},
    ),
}

PAUSE = ev.Paused(at=AT, attempt=1, until_at=1008.0, since_at=990.0, reason="HTTP 429")

PAUSED: dict[str, Row] = {
    "no model can answer: queued until later, nothing held": (
        RUNS["running"],
        PAUSE,
        Queued(retry=Retry(1008.0, "HTTP 429")),
        (fx.FreeDriver(), fx.Enqueue(1008.0)),
        {"failing": Failing(990.0, 1)},
    ),
    "no model can answer again: one pause more, patience goes on": (
        RUNS["running, paused before"],
        PAUSE,
        Queued(retry=Retry(1008.0, "HTTP 429")),
        (fx.FreeDriver(), fx.Enqueue(1008.0)),
        {"failing": Failing(990.0, 2)},
    ),
    "no model can answer a send's turn: it goes on with that": (
        RUNS["running, serving"],
        PAUSE,
        Queued(serving=YIELD_WAIT, retry=Retry(1008.0, "HTTP 429")),
        (fx.FreeDriver(), fx.Enqueue(1008.0)),
        {"failing": Failing(990.0, 1)},
    ),
    "a send ends a pause, and patience goes on": (
        RUNS["queued, paused"],
        ev.SendArrived(at=AT),
        Queued(),
        (fx.Enqueue(),),
        {},
    ),
    "a run that waits for its program is queued until later": (
        RUNS["running"],
        replace(PAUSE, waits_for="program"),
        Queued(retry=Retry(1008.0, "HTTP 429", "program")),
        (fx.FreeDriver(), fx.Enqueue(1008.0)),
        {"failing": Failing(990.0, 1)},
    ),
    "its program ends the pause, and the next one is a first": (
        RUNS["queued, waits for its program"],
        ev.ProgramCame(at=AT),
        Queued(),
        (fx.Enqueue(),),
        {"failing": None},
    ),
    "a committed step starts patience anew": (
        RUNS["running, paused before"],
        ev.Progressed(at=AT),
        WORKING,
        (),
        {"failing": None},
    ),
    "a final reply starts patience anew": (
        RUNS["running, paused before"],
        finished(unsettled=1),
        FINAL_WAIT,
        (fx.ReleaseDriver(),),
        {"fallback": "t-new", "failing": None},
    ),
}

TABLES = (FINISHED, YIELDED, PAUSED)


@proves(
    "2.phases.22",
    "announcing: outcome fixed, result frozen, inbox row written in the same commit",
    row="final text: the result, announced in the same commit",
)
@proves("2.phases.26", row="final text over unsettled children: it waits")
@proves(
    "2.phases.28",
    "awaiting_approval is entered in the commit that ends the planning attempt and writes its plan row",
    row="a plan is written: announced, settled, its clock off",
)
@proves("2.signals.1", row="final text: the result, announced in the same commit")
@proves("2.signals.4", "`end` in the window cancels it", row="final text within the grace: it decides")
@proves("2.signals.4", row="an error within the grace: it decides")
@proves("2.frozen.12", row="silence over unsettled children: the earlier text stays the fallback")
@proves("3.plan.5", row="planning ends without any plan: an error, and nothing to approve")
@proves("4.send.8", row="a send's turn ends: the waiting period goes on")
@proves("4.yield.2", "The condition is stored and the run waits", row="for all")
@proves("4.yield.8", row="never beyond the run's own deadline")
@pytest.mark.parametrize("row", [pytest.param(row, id=name) for table in TABLES for name, row in table.items()])
def test_the_event_moves_the_run_exactly_so(row: Row) -> None:
    run, event, phase, effects, changed = row
    assert transition(run, event) == moved(run, phase, *effects, **changed)


@pytest.mark.parametrize("wakes", [10, 11])
def test_from_the_tenth_wake_on_a_yield_changes_nothing_and_the_reason_is_said(wakes: int) -> None:
    run = run_in(WORKING, wakes=wakes)
    reason = f"woken {wakes} of 10 times: finish with what you have"
    assert transition(run, yielded(unsettled=1)) == ignored(run, reason)
