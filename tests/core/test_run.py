"""What a run says of itself: when it is due, how it ended, whether it is concluded; and what it is made of."""

import pytest
from msgspec.structs import replace

from fledge.core.run import (
    ENDED,
    PHASES,
    TIMED,
    UNREAD,
    AnnounceDeferred,
    Announcing,
    Archived,
    Asking,
    AwaitingApproval,
    CleanupPending,
    Completed,
    CompletedGiveup,
    Ended,
    Ending,
    Failed,
    Gone,
    Grace,
    Killed,
    Ok,
    Outcome,
    Queued,
    Running,
    Terms,
    TimedOut,
    Unknown,
    Waiting,
    on_wire,
)
from tests.core.samples import RUNS
from tests.statements import proves


@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_is_due_when_its_phase_is_and_by_its_deadline_where_that_counts(name: str) -> None:
    run = replace(RUNS[name], deadline_at=None)
    assert run.due_at == run.phase.due_at
    counts = isinstance(run.phase, TIMED) or (isinstance(run.phase, Ending) and isinstance(run.phase.cause, Grace))
    sooner, later = (replace(run, deadline_at=at) for at in (1.0, 1e12))
    assert sooner.due_at == (1.0 if counts else run.phase.due_at)
    assert later.due_at == (1e12 if counts and run.phase.due_at is None else run.phase.due_at)
    assert (Queued, Running, Waiting) == TIMED


@pytest.mark.parametrize("name", list(RUNS))
def test_a_run_is_concluded_once_its_outcome_is_fixed_its_plan_awaits_an_answer_or_it_is_gone(name: str) -> None:
    run = RUNS[name]
    assert run.concluded is (run.ended is not None or isinstance(run.phase, AwaitingApproval | Gone))
    assert (run.ended is not None) is isinstance(run.phase, ENDED)
    assert run.ended is getattr(run.phase, "ended", None)


def test_every_phase_has_a_name_that_is_its_tag_and_only_the_two_kinds_of_waiting_share_one() -> None:
    assert [phase.name for phase in PHASES] == [
        "spawning",
        "queued",
        "running",
        "waiting",
        "waiting",
        "ending",
        "announcing",
        "announce_deferred",
        "awaiting_approval",
        "cleanup_pending",
        "completed",
        "completed_giveup",
        "archived",
        "gone",
    ]
    for phase in PHASES:
        assert phase.__struct_config__.tag == ("asking" if phase is Asking else phase.name)


@pytest.mark.parametrize("name", list(RUNS))
def test_a_delivery_is_known_once_it_is_decided(name: str) -> None:
    run = RUNS[name]
    assert run.delivery is getattr(run.phase, "delivery", None)
    assert (run.delivery is not None) is (isinstance(run.phase, ENDED) and not isinstance(run.phase, UNREAD))


@proves("2.outcome.2", "An outcome has start, end and elapsed time")
@pytest.mark.parametrize(
    ("started_at", "elapsed_s"), [(None, 0.0), (900.0, 50.0), (949.5, 0.5), (950.0, 0.0), (951.0, 0.0)]
)
def test_elapsed_time_runs_from_the_first_start_and_is_never_negative(
    started_at: float | None, elapsed_s: float
) -> None:
    assert Ended(Ok(), started_at, 950.0).elapsed_s == elapsed_s


@proves("2.outcome.1", "An outcome is ok, error, timeout, killed or unknown")
@pytest.mark.parametrize(
    ("outcome", "status", "error"),
    [
        (Ok(), "ok", None),
        (Failed("no model"), "error", "no model"),
        (TimedOut(), "timeout", None),
        (Killed(named=True), "killed", "killed"),
        (Unknown(), "unknown", None),
    ],
)
def test_an_outcome_has_a_status_and_perhaps_an_error(outcome: Outcome, status: str, error: str | None) -> None:
    assert (outcome.status, outcome.error) == (status, error)
    assert outcome.__struct_config__.tag == status


def test_phases_are_grouped_by_what_is_true_in_them() -> None:
    assert (Announcing, AnnounceDeferred) == UNREAD
    assert (Queued, Running, Waiting) == TIMED
    assert {*UNREAD, CleanupPending, Completed, CompletedGiveup, Archived} == set(ENDED)


def test_what_is_agreed_unless_said_otherwise_is_what_the_contract_says() -> None:
    assert Terms(parent="p") == Terms(
        parent="p",
        program=False,
        lane="subagent",
        mode="run",
        cleanup="keep",
        expects=True,
        plan=False,
        wakeable=True,
        leaves=(),
        depth=1,
        timeout_s=0.0,
        queue_timeout_s=0.0,
        stuck_after_s=300.0,
        approval_s=86400.0,
        archive_after_s=3600.0,
        max_retries=3,
        undelivered_s=604800.0,
        kept_s=2592000.0,
        timeline_s=2592000.0,
    )


@proves("2.outcome.3")
@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Ok(), ("ok", "complete")),
        (Failed("no"), ("error", "error")),
        (TimedOut(), ("timeout", "timeout")),
        (Killed(named=True), ("error", "killed")),
        (Unknown(), ("unknown", "unknown")),
    ],
)
def test_on_the_wire_a_kill_is_an_error_whose_reason_is_killed(outcome: Outcome, told: tuple[str, str]) -> None:
    assert on_wire(outcome) == told
