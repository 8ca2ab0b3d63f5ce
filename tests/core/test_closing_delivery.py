"""After the end: how a delivery is decided and what is cleaned up; a row for each way, exact to the last effect."""

import pytest
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core.lifecycle import transition
from fledge.core.run import (
    AnnounceDeferred,
    Announcing,
    Archived,
    CleanupPending,
    Completed,
    CompletedGiveup,
    Delivered,
    Ended,
    Failed,
    Gone,
    Undelivered,
)
from tests.core.samples import (
    AT,
    CLEAN,
    DELIVERED,
    FIRE_AND_FORGET,
    LOST,
    OK,
    PROGRAM,
    RUNS,
    SESSION,
    SUPPRESSED,
    TERMS,
    Row,
    came_due,
    cleaning,
    deferred,
    ended,
    ignored,
    moved,
    run_in,
    settled,
    terms,
)
from tests.statements import proves

IN_VAIN = fx.Trace("failed", "missing-requester")
CONSUMED = ev.RowConsumed(at=AT, row="outcome", path="steered")
MISSING = "deferred, missing-requester"


DELIVERY: dict[str, Row] = {
    "the row is consumed": (RUNS["announcing"], CONSUMED, cleaning(OK, Delivered("steered")), CLEAN, {}),
    "a given-up result is read after all, while it is cleaned up": (
        RUNS["cleanup, undelivered"],
        CONSUMED,
        replace(RUNS["cleanup, undelivered"].phase, delivery=Delivered("steered")),
        (),
        {},
    ),
    "a given-up result is read after all: it is undelivered no more": (
        RUNS["completed_giveup"],
        CONSUMED,
        Completed(OK, Delivered("steered"), settled_at=AT, due_at=AT + 3600.0),
        (),
        {},
    ),
    "a postponed row is consumed": (
        RUNS[MISSING],
        CONSUMED,
        cleaning(OK, Delivered("steered")),
        CLEAN,
        {},
    ),
    "consumed in session mode: no hook": (
        run_in(Announcing(OK), terms=SESSION),
        CONSUMED,
        cleaning(OK, Delivered("steered")),
        (fx.CleanUp(),),
        {},
    ),
    "the requester was killed: suppressed": (
        RUNS["announcing"],
        ev.RowSuppressed(at=AT),
        cleaning(OK, SUPPRESSED),
        CLEAN,
        {},
    ),
    "the requester was killed while it was postponed: suppressed": (
        RUNS[MISSING],
        ev.RowSuppressed(at=AT),
        cleaning(OK, SUPPRESSED),
        CLEAN,
        {},
    ),
    "nobody is left to tell: tried again in 1 s, for 30 min": (
        RUNS["announcing"],
        ev.RequesterLost(at=AT),
        AnnounceDeferred(OK, "missing-requester", 1, AT, 2800.0, 1001.0),
        (IN_VAIN,),
        {},
    ),
    "nobody is left to tell of a fire-and-forget run: for 5 min": (
        run_in(Announcing(OK), terms=FIRE_AND_FORGET),
        ev.RequesterLost(at=AT),
        AnnounceDeferred(OK, "missing-requester", 1, AT, 1300.0, 1001.0),
        (IN_VAIN,),
        {},
    ),
    "a program has it now: 30 min from now": (
        RUNS["announcing"],
        ev.HandedToProgram(at=AT),
        Announcing(OK, due_at=2800.0),
        (),
        {},
    ),
    "nobody was left, and now a program has it": (
        RUNS[MISSING],
        ev.HandedToProgram(at=AT),
        Announcing(OK, due_at=2800.0),
        (),
        {},
    ),
    "somebody is there again: addressed again": (
        RUNS["deferred, missing-requester for long"],
        came_due(5000.0, reachable=True),
        Announcing(OK),
        (fx.Readdress(),),
        {},
    ),
    "a program is there again: 30 min from now": (
        run_in(deferred("missing-requester", tries=1), terms=PROGRAM),
        came_due(1500.0, reachable=True),
        Announcing(OK, due_at=3300.0),
        (fx.Readdress(),),
        {},
    ),
    "still nobody: the second try was in vain, 2 s to the third": (
        RUNS[MISSING],
        came_due(1500.0),
        AnnounceDeferred(OK, "missing-requester", 2, 1500.0, 2750.0, 1502.0),
        (IN_VAIN,),
        {},
    ),
    "still nobody while the clock stands still: it expires later": (
        run_in(deferred("missing-requester", tries=2)),
        came_due(1500.0, paused=True),
        AnnounceDeferred(OK, "missing-requester", 3, 1500.0, 3300.0, 1504.0),
        (IN_VAIN,),
        {},
    ),
    "a moment before it expires: tried again": (
        RUNS[MISSING],
        came_due(2749.5),
        AnnounceDeferred(OK, "missing-requester", 2, 2749.5, 2750.0, 2751.5),
        (IN_VAIN,),
        {},
    ),
    "expired: given up": (
        RUNS[MISSING],
        came_due(2750.0),
        cleaning(OK, LOST, 2750.0),
        (fx.Trace("failed", LOST.error), fx.GiveUpRow(), *CLEAN),
        {},
    ),
    "expired but for a clock that stood still: tried again": (
        RUNS[MISSING],
        came_due(2750.0, paused=True),
        AnnounceDeferred(OK, "missing-requester", 2, 2750.0, 4550.0, 2752.0),
        (IN_VAIN,),
        {},
    ),
    "tried three times: given up": (
        RUNS["deferred, missing-requester for long"],
        came_due(1500.0),
        cleaning(OK, LOST, 1500.0),
        (fx.Trace("failed", LOST.error), fx.GiveUpRow(), *CLEAN),
        {},
    ),
    "tried three times of four: tried again": (
        run_in(deferred("missing-requester", tries=3), terms=terms(max_retries=4)),
        came_due(1500.0),
        AnnounceDeferred(OK, "missing-requester", 4, 1500.0, 2750.0, 1508.0),
        (IN_VAIN,),
        {},
    ),
    "a program did not read it: given up": (
        RUNS["announcing to a program"],
        came_due(2750.0),
        cleaning(OK, Undelivered("the program did not read it for 30 min"), 2750.0),
        (fx.Trace("failed", "the program did not read it for 30 min"), fx.GiveUpRow(), *CLEAN),
        {},
    ),
    "all below have settled: announced, and settled": (
        RUNS["deferred, descendants-active"],
        settled(),
        Announcing(OK),
        (fx.Announce("outcome", "t-result"), fx.CountDown()),
        {},
    ),
    "all below have settled, for a program": (
        run_in(deferred("descendants-active", due_at=None), terms=replace(PROGRAM, wakeable=False)),
        settled(),
        Announcing(OK, due_at=2800.0),
        (fx.Announce("outcome", "t-result"), fx.CountDown()),
        {},
    ),
    "a plan nobody answered: told by a row of its own": (
        RUNS["awaiting approval"],
        came_due(87400.0),
        cleaning(Ended(Failed("the plan was not answered in time"), 900.0, 87400.0, "t-plan"), SUPPRESSED, 87400.0),
        (fx.WithdrawPlan(), fx.Announce("expired", "t-plan"), fx.HandOver(), *CLEAN),
        {},
    ),
    "a given-up result is retried": (
        RUNS["completed_giveup"],
        ev.Retried(at=AT),
        Announcing(OK),
        (fx.ReviveRow(),),
        {},
    ),
    "a given-up result for a program is retried": (
        replace(RUNS["completed_giveup"], terms=PROGRAM),
        ev.Retried(at=AT),
        Announcing(OK, due_at=2800.0),
        (fx.ReviveRow(),),
        {},
    ),
    "a given-up result is dismissed": (
        RUNS["completed_giveup"],
        ev.Dismissed(at=AT),
        Completed(OK, LOST, AT, 4600.0),
        (fx.DismissRow(),),
        {},
    ),
    "a settled run is removed from the lists": (
        RUNS["completed"],
        ev.Removed(at=AT),
        Archived(OK, DELIVERED, AT + TERMS.timeline_s),
        (fx.Archive("released"),),
        {},
    ),
    "a given-up result is kept 7 days, then as if dismissed": (
        RUNS["completed_giveup"],
        came_due(605770.0),
        Completed(OK, LOST, 605770.0, 609370.0),
        (fx.DismissRow(),),
        {},
    ),
}

CLEANUP: dict[str, Row] = {
    "done: completed, swept after an hour": (
        RUNS["cleanup, delivered"],
        ev.CleanedUp(at=AT),
        Completed(OK, DELIVERED, AT, 4600.0),
        (),
        {},
    ),
    "done, with its own archive time": (
        replace(RUNS["cleanup, delivered"], terms=terms(archive_after_s=0.5)),
        ev.CleanedUp(at=AT),
        Completed(OK, DELIVERED, AT, 1000.5),
        (),
        {},
    ),
    "done, never archived": (
        replace(RUNS["cleanup, delivered"], terms=terms(archive_after_s=0.0)),
        ev.CleanedUp(at=AT),
        Completed(OK, DELIVERED, AT, None),
        (),
        {},
    ),
    "done in session mode: never archived": (
        replace(RUNS["cleanup, delivered"], terms=SESSION),
        ev.CleanedUp(at=AT),
        Completed(OK, DELIVERED, AT, None),
        (),
        {},
    ),
    "done, undelivered: kept in the list for 7 days": (
        RUNS["cleanup, undelivered"],
        ev.CleanedUp(at=AT),
        CompletedGiveup(OK, LOST, AT, 605800.0),
        (),
        {},
    ),
    "failed: tried again in 1 s": (
        RUNS["cleanup, delivered"],
        ev.CleanupFailed(at=AT, error="the folder is busy"),
        CleanupPending(OK, DELIVERED, tries=1, due_at=1001.0),
        (),
        {},
    ),
    "failed a third time: tried again in 4 s": (
        RUNS["cleanup, failed and delivered"],
        ev.CleanupFailed(at=AT, error="the folder is busy"),
        CleanupPending(ended(Failed("no model"), None), DELIVERED, tries=3, due_at=1004.0),
        (),
        {},
    ),
    "due and held by something: looked at a minute later": (
        RUNS["completed"],
        came_due(4570.0, held_by="1 unread or undelivered"),
        Completed(OK, DELIVERED, 970.0, 4630.0),
        (),
        {},
    ),
    "due and free: archived for 30 days": (
        RUNS["completed"],
        came_due(4570.0),
        Archived(OK, DELIVERED, 2596570.0),
        (fx.Archive(),),
        {},
    ),
    "due and free, its session kept for less: looked at when that goes": (
        replace(RUNS["completed"], terms=terms(kept_s=86400.0)),
        came_due(4570.0),
        Archived(OK, DELIVERED, 90970.0, 2596570.0),
        (fx.Archive(),),
        {},
    ),
    "due and free, its session kept for longer: the tombstone waits for it": (
        replace(RUNS["completed"], terms=terms(timeline_s=86400.0)),
        came_due(4570.0),
        Archived(OK, DELIVERED, 2596570.0),
        (fx.Archive(),),
        {},
    ),
    "the session was kept long enough: it goes, the tombstone stays": (
        RUNS["archived, its session kept for less"],
        came_due(1600000.0),
        Archived(OK, DELIVERED, 2600000.0),
        (fx.DeleteSession(),),
        {},
    ),
    "the timeline was kept long enough: forgotten": (
        RUNS["archived"],
        came_due(2600000.0),
        Gone("its timeline was kept long enough"),
        (fx.Forget(),),
        {},
    ),
}

TABLES = (DELIVERY, CLEANUP)


@proves("2.phases.23", "announcing ends when the row is consumed, skipped or undeliverable", row="the row is consumed")
@proves("2.phases.23", row="the requester was killed: suppressed")
@proves("2.phases.23", row="a program did not read it: given up")
@proves(
    "2.phases.25",
    "announce_deferred: postponed for a reason, until a due time or an event",
    row="nobody is left to tell: tried again in 1 s, for 30 min",
)
@proves("2.phases.25", row="all below have settled: announced, and settled")
@proves("2.phases.37", "completed is settled: it ends only by being archived", row="due and free: archived for 30 days")
@proves("2.phases.39", "Retrying an undelivered result announces it again", row="a given-up result is retried")
@proves("2.hops.3", "Consuming the outcome's row moves the child to cleanup_pending", row="the row is consumed")
@proves("2.hops.10", row="tried three times of four: tried again")
@proves(
    "2.hops.12",
    "It expires after 5 min without, 30 min with a completion message",
    row="nobody is left to tell: tried again in 1 s, for 30 min",
)
@proves("2.hops.12", row="nobody is left to tell of a fire-and-forget run: for 5 min")
@proves("2.hops.12", row="expired: given up")
@proves(
    "2.hops.13",
    "The clock stands still while a descendant lives",
    row="expired but for a clock that stood still: tried again",
)
@proves("4.session.6", "It is never archived", row="done in session mode: never archived")
@proves(
    "6.sweep.2",
    "A run that may not be archived yet is looked at every 60 s",
    row="due and held by something: looked at a minute later",
)
@proves("6.sweep.3", "Never in session mode", row="done in session mode: never archived")
@proves("6.sweep.10", row="the session was kept long enough: it goes, the tombstone stays")
@proves(
    "6.sweep.12",
    "A tombstone and the timeline stay `retention.timelineDays` 30",
    row="due and free: archived for 30 days",
)
@proves("6.sweep.12", row="the timeline was kept long enough: forgotten")
@pytest.mark.parametrize("row", [pytest.param(row, id=name) for table in TABLES for name, row in table.items()])
def test_the_event_moves_the_run_exactly_so(row: Row) -> None:
    run, event, phase, effects, changed = row
    assert transition(run, event) == moved(run, phase, *effects, **changed)


IGNORED: list[tuple[str, ev.Event, str]] = [
    ("announcing", replace(CONSUMED, row="plan"), "a row of kind plan leaves the phase alone"),
    ("announcing", replace(CONSUMED, row="late"), "a row of kind late leaves the phase alone"),
    ("cleanup, delivered", CONSUMED, "already decided"),
    ("running", CONSUMED, "already decided"),
    ("completed", ev.RowSuppressed(at=AT), "already decided"),
    ("deferred, missing-requester", ev.RequesterLost(at=AT), "nothing is being announced"),
    ("cleanup, delivered", ev.RequesterLost(at=AT), "nothing is being announced"),
    ("deferred, descendants-active", ev.HandedToProgram(at=AT), "nothing is being announced"),
    ("completed_giveup", ev.HandedToProgram(at=AT), "nothing is being announced"),
    ("running", ev.HandedToProgram(at=AT), "nothing is being announced"),
    ("completed", ev.Retried(at=AT), "nothing of it is undelivered"),
    ("announcing", ev.Dismissed(at=AT), "nothing of it is undelivered"),
    ("completed", ev.Removed(at=AT, held_by="1 unread or undelivered"), "1 unread or undelivered"),
    ("completed_giveup", ev.Removed(at=AT), "its result is undelivered: retry or dismiss it first"),
    ("archived", ev.Removed(at=AT), "it is not in the lists any more"),
    ("running", ev.Removed(at=AT), "it is running: wait for it, or kill it first"),
    ("completed", ev.CleanedUp(at=AT), "already cleaned up"),
    ("announcing", ev.CleanedUp(at=AT), "already cleaned up"),
    ("completed", ev.CleanupFailed(at=AT, error="busy"), "already cleaned up"),
]


def test_a_session_that_stays_open_in_its_thread_is_not_removed() -> None:
    bound = replace(RUNS["completed"], terms=replace(TERMS, mode="session"))
    assert transition(bound, ev.Removed(at=AT)) == ignored(bound, "its session stays open in its thread")


@proves("2.hops.4")
@pytest.mark.parametrize(("name", "event", "reason"), IGNORED)
def test_the_event_changes_nothing_and_the_reason_is_said(name: str, event: ev.Event, reason: str) -> None:
    assert transition(RUNS[name], event) == ignored(RUNS[name], reason)
