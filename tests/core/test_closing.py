"""The end of a run: how an outcome is fixed, and what comes late; a row for each way, exact to the last effect.

Delivery and cleanup stand in `test_closing_delivery`.
"""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from fledge.core.run import (
    AnnounceDeferred,
    Announcing,
    Archived,
    Ended,
    Failed,
    Killed,
    Ok,
    Skipped,
    TimedOut,
)
from tests.core.samples import (
    AT,
    BROKEN,
    CLEAN,
    RUNS,
    SESSION,
    WORKING,
    Row,
    broke,
    cleaning,
    dead,
    deferred,
    finished,
    ignored,
    killed,
    moved,
    run_in,
    settled,
    terms,
)
from tests.statements import proves

NEW = Ended(Ok(), 900.0, AT, "t-new")
NOTHING = Ended(Ok(), 900.0, AT, None)
RELEASED = (fx.ReleaseDriver(), fx.HandOver())
TELL_NEW = (fx.Announce("outcome", "t-new"), fx.CountDown())
MISSING = "deferred, missing-requester"


FIXED: dict[str, Row] = {
    "silence with a fallback: the fallback is announced": (
        RUNS["running, fallback"],
        finished("silent"),
        Announcing(Ended(Ok(), 900.0, AT, "t-before")),
        (*RELEASED, fx.Announce("outcome", "t-before"), fx.CountDown()),
        {},
    ),
    "an empty reply with a fallback: the fallback is announced": (
        RUNS["running, fallback"],
        finished("empty"),
        Announcing(Ended(Ok(), 900.0, AT, "t-before")),
        (*RELEASED, fx.Announce("outcome", "t-before"), fx.CountDown()),
        {},
    ),
    "an empty reply without one: announced as no output": (
        RUNS["running"],
        finished("empty"),
        Announcing(NOTHING),
        (*RELEASED, fx.Announce("outcome", None), fx.CountDown()),
        {},
    ),
    "words win over a fallback": (
        RUNS["running, fallback"],
        finished(),
        Announcing(NEW),
        (*RELEASED, *TELL_NEW),
        {},
    ),
    "silence without a fallback: skipped, settled, cleaned up": (
        RUNS["running"],
        finished("silent"),
        cleaning(NOTHING, Skipped("silent")),
        (*RELEASED, fx.CountDown(), *CLEAN),
        {},
    ),
    "a skip, even with a fallback: skipped": (
        RUNS["running, fallback"],
        finished("skip"),
        cleaning(NOTHING, Skipped("announce-skip")),
        (*RELEASED, fx.CountDown(), *CLEAN),
        {},
    ),
    "a skip over unsettled children that cannot wake it: not yet settled": (
        RUNS["running, not wakeable"],
        finished("skip", unsettled=1),
        cleaning(NOTHING, Skipped("announce-skip")),
        (*RELEASED, *CLEAN),
        {},
    ),
    "silence over unsettled children that cannot wake it: skipped, not yet settled": (
        RUNS["running, not wakeable"],
        finished("silent", unsettled=1),
        cleaning(NOTHING, Skipped("silent")),
        (*RELEASED, *CLEAN),
        {},
    ),
    "silence with a fallback over unsettled children that cannot wake it: told when they have settled": (
        replace(RUNS["running, not wakeable"], fallback="t-before"),
        finished("silent", unsettled=1),
        AnnounceDeferred(Ended(Ok(), 900.0, AT, "t-before"), "descendants-active", 0, AT, 2800.0, None),
        (*RELEASED, fx.Trace("deferred", "descendants-active")),
        {},
    ),
    "not wakeable, over unsettled children: announced when they have settled": (
        RUNS["running, not wakeable"],
        finished(unsettled=1),
        AnnounceDeferred(NEW, "descendants-active", 0, AT, 2800.0, None),
        (*RELEASED, fx.Trace("deferred", "descendants-active")),
        {},
    ),
    "not wakeable, fire and forget, over unsettled children: a shorter expiry": (
        run_in(WORKING, terms=terms(wakeable=False, expects=False)),
        finished(unsettled=1),
        AnnounceDeferred(NEW, "descendants-active", 0, AT, 1300.0, None),
        (*RELEASED, fx.Trace("deferred", "descendants-active")),
        {},
    ),
    "not wakeable, with completions unread: they go up": (
        RUNS["running, not wakeable"],
        finished(unread=1),
        Announcing(NEW),
        (*RELEASED, *TELL_NEW),
        {},
    ),
    "for a program: given up if unread for 30 min": (
        RUNS["running, for a program"],
        finished(),
        Announcing(NEW, due_at=2800.0),
        (*RELEASED, *TELL_NEW),
        {},
    ),
    "fire and forget: its ended hook does not wait for the announce": (
        RUNS["running, fire and forget"],
        finished(),
        Announcing(NEW),
        (*RELEASED, fx.Announce("outcome", "t-new"), fx.CallHook("subagent_ended"), fx.CountDown()),
        {},
    ),
    "session mode: the session reads on, and no hook says it ended": (
        RUNS["running, session mode"],
        finished(),
        Announcing(NEW),
        (fx.ReleaseDriver(), fx.ReadOn(), *TELL_NEW),
        {},
    ),
    "session mode, fire and forget: still no hook": (
        run_in(WORKING, terms=terms(mode="session", expects=False)),
        finished(),
        Announcing(NEW),
        (fx.ReleaseDriver(), fx.ReadOn(), *TELL_NEW),
        {},
    ),
    "an error carries its message and no result": (
        RUNS["running, fallback"],
        broke(ev.Errored("no model", partial="t-partial")),
        Announcing(Ended(Failed("no model"), 900.0, AT, None)),
        (fx.ReleaseDriver(), *BROKEN, fx.Announce("outcome", None), fx.CountDown()),
        {},
    ),
    "a limit of steps: an error with partial work, and nothing below is cancelled": (
        RUNS["running, fallback"],
        broke(ev.Errored("no progress", "limit", "t-partial"), unsettled=1),
        Announcing(Ended(Failed("no progress"), 900.0, AT, "t-partial")),
        (fx.ReleaseDriver(), *BROKEN, fx.Announce("outcome", "t-partial")),
        {},
    ),
    "a limit of steps before anything was done: the fallback": (
        RUNS["running, fallback"],
        broke(ev.Errored("no progress", "limit")),
        Announcing(Ended(Failed("no progress"), 900.0, AT, "t-before")),
        (fx.ReleaseDriver(), *BROKEN, fx.Announce("outcome", "t-before"), fx.CountDown()),
        {},
    ),
    "an error over unsettled children is announced, and cancels none of them": (
        RUNS["running, not wakeable"],
        broke(ev.Errored("no model"), unsettled=2),
        Announcing(Ended(Failed("no model"), 900.0, AT, None)),
        (fx.ReleaseDriver(), *BROKEN, fx.Announce("outcome", None)),
        {},
    ),
    "an error in session mode: its inbox stays its own": (
        RUNS["running, session mode"],
        broke(ev.Errored("no model")),
        Announcing(Ended(Failed("no model"), 900.0, AT, None)),
        (fx.ReleaseDriver(), *BROKEN[:2], fx.ReadOn(), fx.Announce("outcome", None), fx.CountDown()),
        {},
    ),
    "a spent budget hands over partial work and stops everything below": (
        RUNS["running, fallback"],
        broke(ev.Errored("tokens 9 of 9", cause="budget", partial="t-partial"), unsettled=1),
        Announcing(Ended(Failed("tokens 9 of 9"), 900.0, AT, "t-partial")),
        (fx.ReleaseDriver(), *BROKEN, fx.KillBelow(), fx.Announce("outcome", "t-partial")),
        {},
    ),
    "a spent budget without partial work hands over the fallback": (
        RUNS["running, fallback"],
        broke(ev.Errored("tokens 9 of 9", cause="budget")),
        Announcing(Ended(Failed("tokens 9 of 9"), 900.0, AT, "t-before")),
        (fx.ReleaseDriver(), *BROKEN, fx.KillBelow(), fx.Announce("outcome", "t-before"), fx.CountDown()),
        {},
    ),
    "time ran out: partial work is handed over": (
        RUNS["running, fallback"],
        broke(ev.RanOut("t-partial")),
        Announcing(Ended(TimedOut(), 900.0, AT, "t-partial")),
        (fx.ReleaseDriver(), *BROKEN, fx.Announce("outcome", "t-partial"), fx.CountDown()),
        {},
    ),
    "time ran out without partial work: the fallback is": (
        RUNS["running, fallback"],
        broke(ev.RanOut()),
        Announcing(Ended(TimedOut(), 900.0, AT, "t-before")),
        (fx.ReleaseDriver(), *BROKEN, fx.Announce("outcome", "t-before"), fx.CountDown()),
        {},
    ),
    "killed in session mode: the ended hook is called all the same": (
        run_in(WORKING, terms=SESSION),
        killed(),
        dead(),
        (
            fx.SupersedeDriver(AT),
            fx.Dequeue(),
            fx.CloseCalls("killed"),
            fx.WithdrawPlan(),
            fx.SuppressInbox(),
            fx.CountDown(),
            *CLEAN,
        ),
        {},
    ),
}

LATE: dict[str, Row] = {
    "a complete in the stopping window wins over the kill that named it": (
        RUNS["ending, stopping named"],
        finished(),
        Announcing(NEW),
        (fx.ReleaseDriver(), fx.SuppressInbox(), *TELL_NEW),
        {},
    ),
    "it wins over unsettled children too": (
        RUNS["ending, stopping named"],
        finished(unsettled=2, unread=1, messages=1),
        Announcing(NEW),
        (fx.ReleaseDriver(), fx.SuppressInbox(), fx.Announce("outcome", "t-new")),
        {},
    ),
    "it wins with a skip: nothing to tell": (
        RUNS["ending, stopping named"],
        finished("skip"),
        cleaning(NOTHING, Skipped("announce-skip")),
        (fx.ReleaseDriver(), fx.SuppressInbox(), fx.CountDown(), *CLEAN),
        {},
    ),
    "an unread outcome is refreshed": (
        RUNS["announcing an error"],
        finished(),
        Announcing(NEW),
        (fx.RefreshRow("t-new"),),
        {},
    ),
    "an unread result is refreshed, its give-up time kept": (
        RUNS["announcing to a program"],
        finished(),
        Announcing(NEW, due_at=2750.0),
        (fx.RefreshRow("t-new"),),
        {},
    ),
    "a postponed outcome is refreshed": (
        RUNS[MISSING],
        finished(),
        replace(deferred("missing-requester", tries=1), ended=NEW),
        (fx.RefreshRow("t-new"),),
        {},
    ),
    "after it was read: a row of its own, the phase left alone": (
        RUNS["cleanup, failed and delivered"],
        finished(),
        RUNS["cleanup, failed and delivered"].phase,
        (fx.Announce("late", "t-new"),),
        {},
    ),
    "after it settled: the same": (
        RUNS["completed, timed out"],
        finished(),
        RUNS["completed, timed out"].phase,
        (fx.Announce("late", "t-new"),),
        {},
    ),
    "after a kill that named it was decided: the same": (
        RUNS["cleanup, killed by name"],
        finished(),
        RUNS["cleanup, killed by name"].phase,
        (fx.Announce("late", "t-new"),),
        {},
    ),
}

TABLES = (FIXED, LATE)


@proves(
    "2.phases.26",
    "A deferral for `descendants-active` is only for runtimes that cannot be woken",
    row="not wakeable, over unsettled children: announced when they have settled",
)
@proves(
    "2.frozen.5", "An error freezes no result and carries its message", row="an error carries its message and no result"
)
@proves(
    "2.frozen.11",
    "The fallback is used when the new attempt ends empty or NO_REPLY",
    row="silence with a fallback: the fallback is announced",
)
@proves("2.frozen.11", row="an empty reply with a fallback: the fallback is announced")
@proves(
    "2.frozen.13", "A later end of the same attempt may refresh an unread outcome", row="an unread outcome is refreshed"
)
@proves(
    "2.announce.18",
    "A child whose whole reply is ANNOUNCE_SKIP is skipped and cleaned up",
    row="a skip, even with a fallback: skipped",
)
@proves(
    "2.announce.19",
    "NO_REPLY is skipped as silent unless a fallback exists",
    row="silence without a fallback: skipped, settled, cleaned up",
)
@proves("2.announce.19", row="silence with a fallback: the fallback is announced")
@proves("2.arbitration.21", row="an error over unsettled children is announced, and cancels none of them")
@proves("4.session.2", row="session mode: the session reads on, and no hook says it ended")
@proves(
    "4.session.4", "The ended hook comes on a kill", row="killed in session mode: the ended hook is called all the same"
)
@proves("4.session.4", row="session mode: the session reads on, and no hook says it ended")
@pytest.mark.parametrize("row", [pytest.param(row, id=name) for table in TABLES for name, row in table.items()])
def test_the_event_moves_the_run_exactly_so(row: Row) -> None:
    run, event, phase, effects, changed = row
    assert transition(run, event) == moved(run, phase, *effects, **changed)


ENDED = [name for name, run in RUNS.items() if run.ended is not None and not isinstance(run.phase, Archived)]


@proves("4.kill.8", "… and unread rows in its inbox are suppressed")
@pytest.mark.parametrize("name", ENDED)
def test_a_kill_after_the_end_suppresses_what_is_unread_in_its_inbox_and_leaves_its_own_row(name: str) -> None:
    run = RUNS[name]
    assert transition(run, killed(named=False, driven=True)) == moved(run, run.phase, fx.SuppressInbox())


@pytest.mark.parametrize("name", [n for n in ENDED if n != "deferred, descendants-active"] + ["awaiting approval"])
def test_an_ended_run_is_settled_when_the_last_below_it_is(name: str) -> None:
    run = RUNS[name]
    assert transition(run, settled(unsettled=0)) == moved(run, run.phase, fx.CountDown())
    assert transition(run, settled(unsettled=1, settled=9)) == ignored(run, "nothing waits for it")


@pytest.mark.parametrize("named", [True, False])
def test_a_decided_kill_keeps_whether_it_was_named(named: bool) -> None:
    run = transition(RUNS["queued"], killed(named=named)).run
    assert run.ended is not None
    assert run.ended.outcome == Killed(named)
