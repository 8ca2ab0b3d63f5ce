"""Limits and patience: every rule on both sides of its boundary, every refusal in its exact words."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fledge.core import policy
from fledge.core.events import YieldCondition
from fledge.core.policy import Budget, Limits, Occupancy, Refusal, Spent, enforce
from fledge.errors import Refused
from tests.core.samples import KEY, RUNS, WORKING, run_in
from tests.statements import proves

SETTING = "agents.defaults.subagents"
FREE = Occupancy(depth=0, children=0, retained=0)
CAPPED = Limits(max_retained=15)


def forbidden(reason: str) -> Refusal:
    return Refusal("forbidden", reason)


# ---- admission -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "now"),
    [
        (Limits(), FREE),
        (Limits(), replace(FREE, children=4)),
        (Limits(max_depth=2), replace(FREE, depth=1)),
        (Limits(), replace(FREE, retained=1000)),
        (CAPPED, replace(FREE, retained=14)),
        (Limits(), replace(FREE, wakes=9)),
    ],
)
def test_one_more_child_is_admitted_below_every_limit(limits: Limits, now: Occupancy) -> None:
    assert policy.admit(limits, now) is None


DEPTH = f"depth 1 of 1: {SETTING}.maxSpawnDepth"
CHILDREN = f"active children 5 of 5: {SETTING}.maxChildrenPerAgent"
FREE_ONE = "free one: sessions_subagent_remove, /subagents remove, fledge remove"
RETAINED = f"retained 15 of 15: {SETTING}.maxRetained; {FREE_ONE}"
WAKES = "woken 10 of 10 times: finish with what you have"
BUDGET = f"the tree's budget is spent: {SETTING}.budget"
FULL = Occupancy(depth=1, children=5, retained=15, wakes=10, budget_spent=True)


@proves("3.answer.6", "Every refusal names rule, value and setting")
@pytest.mark.parametrize(
    ("limits", "now", "reason"),
    [
        (Limits(), replace(FREE, depth=1), DEPTH),
        (Limits(max_depth=2), replace(FREE, depth=3), f"depth 3 of 2: {SETTING}.maxSpawnDepth"),
        (
            Limits(max_depth=3),
            replace(FREE, depth=1, is_leaf=True),
            "depth 1: it is a leaf and may not spawn: role stored at its own spawn",
        ),
        (Limits(), replace(FREE, children=5), CHILDREN),
        (Limits(max_children=1), replace(FREE, children=2), f"active children 2 of 1: {SETTING}.maxChildrenPerAgent"),
        (CAPPED, replace(FREE, retained=15), RETAINED),
        (Limits(max_retained=1), replace(FREE, retained=1), RETAINED.replace("15", "1")),
        (Limits(), replace(FREE, wakes=10), WAKES),
        (Limits(), replace(FREE, wakes=11), WAKES.replace("10 of", "11 of")),
        (Limits(), replace(FREE, budget_spent=True), BUDGET),
    ],
)
def test_a_reached_limit_forbids_a_child_and_names_rule_value_and_setting(
    limits: Limits, now: Occupancy, reason: str
) -> None:
    assert policy.admit(limits, now) == forbidden(reason)


@proves("3.answer.5")
def test_the_first_limit_that_forbids_is_the_one_named() -> None:
    assert policy.admit(CAPPED, FULL) == forbidden(DEPTH)
    assert policy.admit(CAPPED, replace(FULL, depth=0)) == forbidden(CHILDREN)
    assert policy.admit(CAPPED, replace(FULL, depth=0, children=0)) == forbidden(RETAINED)
    assert policy.admit(CAPPED, replace(FULL, depth=0, children=0, retained=0)) == forbidden(WAKES)
    assert policy.admit(CAPPED, replace(FREE, budget_spent=True)) == forbidden(BUDGET)


@pytest.mark.parametrize(("depth", "role"), [(0, "orchestrator"), (1, "orchestrator"), (2, "leaf"), (3, "leaf")])
def test_a_child_below_the_deepest_level_is_an_orchestrator(depth: int, role: str) -> None:
    assert policy.role_at(depth, 2) == role


# ---- control ---------------------------------------------------------------------------------------------------------

STEERABLE = {name for name in RUNS if name.startswith(("queued", "running", "waiting", "asking", "ending, grace"))}


@pytest.mark.parametrize("name", list(RUNS))
def test_live_work_can_be_steered_and_nothing_else(name: str) -> None:
    run = RUNS[name]
    assert policy.steerable(run) is (name in STEERABLE)
    refusal = None if name in STEERABLE else Refusal("done", f"{KEY} is {run.phase.name}: nothing to steer")
    assert policy.refuse_steer(run, KEY, "go left", 1000.0) == refusal


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ("", Refusal("error", "message: must not be empty")),
        (" \n\t", Refusal("error", "message: must not be empty")),
        ("x", None),
        ("x" * 4000, None),
        ("x" * 4001, Refusal("error", "message: 4001 characters, at most 4000")),
    ],
)
def test_a_steer_message_has_one_to_4000_characters(message: str, refusal: Refusal | None) -> None:
    assert policy.refuse_steer(RUNS["running"], KEY, message, 1000.0) == refusal


@pytest.mark.parametrize(
    ("at", "refusal"),
    [
        (1000.0, Refusal("rate_limited", "steered 0.0 s ago: wait 2 s between steers")),
        (1001.96, Refusal("rate_limited", "steered 2.0 s ago: wait 2 s between steers")),
        (1001.25, Refusal("rate_limited", "steered 1.2 s ago: wait 2 s between steers")),
        (1002.0, None),
        (1003.0, None),
    ],
)
def test_steers_are_two_seconds_apart(at: float, refusal: Refusal | None) -> None:
    assert policy.refuse_steer(run_in(WORKING, steered_at=1000.0), KEY, "go left", at) == refusal


def test_a_steer_is_judged_by_its_message_then_by_the_run_then_by_its_haste() -> None:
    done = replace(RUNS["completed"], steered_at=1000.0)
    refusals = [policy.refuse_steer(done, KEY, message, 1000.0) for message in ("", "x" * 4001, "x")]
    assert [refusal.status for refusal in refusals if refusal] == ["error", "error", "done"]


@pytest.mark.parametrize("name", list(RUNS))
def test_a_message_is_taken_unless_the_run_is_prepared_stopping_or_gone(name: str) -> None:
    run = RUNS[name]
    expected = None
    if name.startswith("archived"):
        expected = Refusal("done", f"{KEY} is archived: it takes no messages")
    elif name.startswith(("spawning", "gone")):
        expected = Refusal("error", f"{KEY} is {run.phase.name}: it takes no messages")
    elif name.startswith("ending, stopping"):
        expected = Refusal("error", f"{KEY} was killed and is stopping: it takes no messages")
    assert policy.refuse_send(run, KEY) == expected


@pytest.mark.parametrize(
    ("wakes", "refusal"),
    [(0, None), (9, None), (10, forbidden(WAKES)), (12, forbidden(WAKES.replace("10 of", "12 of")))],
)
def test_from_the_tenth_wake_on_a_wait_is_refused(wakes: int, refusal: Refusal | None) -> None:
    assert policy.refuse_wait(wakes, unsettled=1) == refusal
    assert policy.refuse_wait(wakes, unsettled=0) is None


NOTHING = Refusal("done", "nothing to wait for: none of your subagents is at work, and none of their results is unread")


@pytest.mark.parametrize(
    ("asked", "wakes", "unsettled", "unread", "verdict"),
    [
        ("all", 0, 2, 0, "wait"),
        ("all", 0, 2, 1, "wait"),
        ("all", 0, 0, 1, "read"),
        ("all", 0, 0, 0, NOTHING),
        ("any", 0, 2, 0, "wait"),
        ("any", 0, 2, 1, "read"),
        ("any", 0, 0, 0, NOTHING),
        (2, 0, 2, 1, "wait"),
        (2, 0, 2, 2, "read"),
        (2, 0, 0, 1, "read"),
        (9, 0, 1, 1, "wait"),
        ("all", 9, 1, 0, "wait"),
        ("all", 10, 1, 0, forbidden(WAKES)),
        ("any", 10, 1, 1, "read"),
        ("all", 10, 0, 1, "read"),
        ("all", 10, 0, 0, NOTHING),
    ],
)
def test_a_yield_waits_only_for_what_is_still_to_come(
    asked: Any, wakes: int, unsettled: int, unread: int, verdict: object
) -> None:
    assert policy.judge_yield(asked, wakes, unsettled, 5, unread) == verdict


@pytest.mark.parametrize(
    ("wakes", "unsettled", "unread", "verdict"),
    [(0, 1, 0, "wait"), (0, 0, 0, "wait"), (0, 0, 2, "wait"), (10, 0, 1, "wait"), (10, 1, 1, forbidden(WAKES))],
)
def test_a_yield_in_a_turn_beside_a_wait_reads_nothing(
    wakes: int, unsettled: int, unread: int, verdict: object
) -> None:
    assert policy.judge_yield("any", wakes, unsettled, 5, unread, is_aside=True) == verdict


@pytest.mark.parametrize("name", list(RUNS))
def test_only_a_plan_that_awaits_its_answer_can_be_answered(name: str) -> None:
    run = RUNS[name]
    done = Refusal("done", f"{KEY} is {run.phase.name}: no plan awaits an answer")
    assert policy.refuse_answer(run, KEY) == (None if name == "awaiting approval" else done)


# ---- waiting ---------------------------------------------------------------------------------------------------------


@proves("4.yield.6", "… capped at the number that can still come; with none it holds at once")
@pytest.mark.parametrize(
    ("asked", "unsettled", "settled", "unread", "until"),
    [
        ("all", 3, 1, 1, None),
        ("any", 3, 0, 0, 1),
        ("any", 3, 4, 0, 5),
        ("any", 3, 4, 1, 4),
        ("any", 0, 4, 0, 4),
        (1, 3, 4, 0, 5),
        (2, 3, 4, 1, 5),
        (2, 2, 0, 0, 2),
        (3, 2, 0, 0, 2),
        (3, 2, 5, 1, 7),
        (9, 2, 5, 1, 7),
        (9, 0, 0, 0, 0),
    ],
)
def test_a_condition_counts_from_the_yield_and_is_capped_at_what_can_still_come(
    asked: YieldCondition, unsettled: int, settled: int, unread: int, until: int | None
) -> None:
    assert policy.wait_until(asked, unsettled, settled, unread) == until


@pytest.mark.parametrize(
    ("until", "unsettled", "settled", "met"),
    [
        (None, 0, 0, True),
        (None, 1, 9, False),
        (2, 0, 0, True),
        (2, 1, 1, False),
        (2, 1, 2, True),
        (2, 1, 3, True),
        (0, 1, 0, True),
    ],
)
def test_a_condition_holds_when_all_or_enough_have_settled(
    until: int | None, unsettled: int, settled: int, met: bool
) -> None:
    assert policy.holds(until, unsettled, settled) is met


@given(
    asked=st.sampled_from(["all", "any"]) | st.integers(1, 9),
    unsettled=st.integers(0, 6),
    read=st.integers(0, 6),
    unread=st.integers(0, 6),
)
def test_every_condition_holds_at_the_latest_when_all_have_settled_and_never_before_enough_came(
    asked: YieldCondition, unsettled: int, read: int, unread: int
) -> None:
    settled = read + unread
    until = policy.wait_until(asked, unsettled, settled, unread)
    assert policy.holds(until, 0, settled + unsettled)
    wanted = unsettled + unread if asked == "all" else 1 if asked == "any" else asked
    for come in range(unsettled + 1):
        enough = unread + come >= wanted or come == unsettled
        assert policy.holds(until, unsettled - come, settled + come) is enough


# ---- patience --------------------------------------------------------------------------------------------------------


def test_a_delivery_is_retried_for_30_minutes_or_5_without_a_completion_message() -> None:
    assert (policy.expiry_s(True), policy.expiry_s(False)) == (1800.0, 300.0)


@proves("2.hops.10")
def test_tries_are_1_2_4_8_seconds_apart() -> None:
    assert [policy.retry_s(tries) for tries in range(7)] == [1.0, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert isinstance(policy.retry_s(1), float)


def test_a_failed_cleanup_is_tried_again_after_at_most_a_minute() -> None:
    assert [policy.cleanup_retry_s(tries) for tries in range(9)] == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert isinstance(policy.cleanup_retry_s(1), float)


@pytest.mark.parametrize(
    ("tries", "at", "over"),
    [(2, 99.5, False), (3, 99.5, True), (4, 99.5, True), (2, 100.0, True), (2, 100.5, True), (3, 100.0, True)],
)
def test_a_delivery_is_given_up_after_enough_tries_or_enough_time(tries: int, at: float, over: bool) -> None:
    assert policy.gives_up(tries, 3, at, 100.0) is over


# ---- crashes ---------------------------------------------------------------------------------------------------------


@proves("0.crash.5", "Only runs with an open step at the crash count it")
@pytest.mark.parametrize(("crashes", "step_open", "after"), [(0, True, 1), (2, True, 3), (2, False, 2), (0, False, 0)])
def test_only_an_open_step_counts_as_a_crash(crashes: int, step_open: bool, after: int) -> None:
    assert policy.crashes_after(crashes, step_open) == after


def test_from_the_second_crash_on_a_run_is_a_suspect() -> None:
    assert [policy.is_suspect(crashes) for crashes in range(4)] == [False, False, True, True]


# ---- retention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "has_turn", "unsettled", "reason"),
    [
        (0, False, 0, None),
        (1, True, 1, "1 unread or undelivered"),
        (3, False, 0, "3 unread or undelivered"),
        (0, True, 1, "a message is being answered"),
        (0, False, 1, "1 unsettled below"),
        (0, False, 4, "4 unsettled below"),
    ],
)
def test_a_settled_run_is_not_archived_while_something_hangs_on_it(
    rows: int, has_turn: bool, unsettled: int, reason: str | None
) -> None:
    assert policy.held_by(rows, has_turn, unsettled) == reason


@pytest.mark.parametrize(
    ("given_up", "waited_s", "program", "becomes"),
    [
        (False, 1e9, False, None),
        (False, 1799.9, True, None),
        (False, 1800.0, True, "undelivered"),
        (True, 599.9, False, None),
        (True, 600.0, False, "dismissed"),
        (True, 600.0, True, "dismissed"),
    ],
)
def test_a_row_that_announces_no_outcome_is_given_up_by_a_program_only_and_kept_for_its_retention(
    given_up: bool, waited_s: float, program: bool, becomes: str | None
) -> None:
    assert policy.outlived(given_up, waited_s, program, 600.0) == becomes


# ---- budgets ---------------------------------------------------------------------------------------------------------


def test_amounts_are_added_and_taken_away_and_never_fall_below_zero() -> None:
    a, b = Spent(10, 1.5, 3, 60.0), Spent(4, 0.5, 5, 10.0)
    assert a.plus(b) == Spent(14, 2.0, 8, 70.0)
    assert a.minus(b) == Spent(6, 1.0, 0, 50.0)
    assert b.minus(a) == Spent(0, 0.0, 2, 0.0)
    assert Spent().plus(b) == b
    assert b.minus(Spent()) == b
    assert Spent(1, 0.1, 1, 0.1).minus(Spent(2, 0.5, 2, 9.0)) == Spent()


@proves("3.budgets.1", "A budget counts tokens, money and turns")
@pytest.mark.parametrize(
    ("budget", "spent", "share"),
    [
        (Budget(), Spent(10**9, 10.0**9, 10**9, 10.0**9), 0.0),
        (Budget(tokens=100), Spent(tokens=25, usd=99.0, turns=99, seconds=99.0), 0.25),
        (Budget(usd=2.0), Spent(tokens=99, usd=1.0, turns=99, seconds=99.0), 0.5),
        (Budget(turns=4), Spent(tokens=99, usd=99.0, turns=3, seconds=99.0), 0.75),
        (Budget(seconds=10.0), Spent(tokens=99, usd=99.0, turns=99, seconds=20.0), 2.0),
        (Budget(tokens=100, usd=2.0, turns=4), Spent(50, 0.5, 1), 0.5),
        (Budget(tokens=0), Spent(), math.inf),
        (Budget(tokens=1), Spent(tokens=1), 1.0),
        (Budget(usd=-1.0), Spent(), math.inf),
    ],
)
def test_the_share_is_that_of_the_ceiling_used_most(budget: Budget, spent: Spent, share: float) -> None:
    assert policy.budget_share(budget, spent) == share


@pytest.mark.parametrize(
    ("tokens", "state"),
    [(0, "within"), (799, "within"), (800, "warned"), (999, "warned"), (1000, "spent"), (1001, "spent")],
)
def test_a_budget_warns_from_80_percent_on_and_is_spent_from_100_on(tokens: int, state: str) -> None:
    assert policy.budget_state(Budget(tokens=1000), Spent(tokens=tokens)) == state


@pytest.mark.parametrize(
    ("budget", "spent", "words"),
    [
        (Budget(), Spent(10**9, 10.0**9, 10**9, 10.0**9), ""),
        (Budget(1000, 0.5, 3, 60.0), Spent(999, 0.49, 2, 59.0), ""),
        (Budget(1000, 0.5, 3, 60.0), Spent(1000, 0.49, 2, 59.0), "1000 tokens"),
        (Budget(1000, 0.5, 3, 60.0), Spent(999, 0.51, 2, 59.0), "$0.5"),
        (Budget(1000, 0.5, 3, 60.0), Spent(999, 0.49, 3, 61.0), "3 turns and 60.0 s"),
        (Budget(tokens=0), Spent(), "0 tokens"),
    ],
)
def test_a_budget_that_is_spent_names_the_ceilings_that_are_reached(budget: Budget, spent: Spent, words: str) -> None:
    assert policy.reached_ceilings(budget, spent) == words
    assert (policy.budget_state(budget, spent) == "spent") is bool(words)


@pytest.mark.parametrize(
    ("parent", "asked", "given_"),
    [
        (Budget(), Budget(), Budget()),
        (Budget(100, 1.0, 5, 60.0), Budget(), Budget(100, 1.0, 5, 60.0)),
        (Budget(), Budget(100, 1.0, 5, 60.0), Budget(100, 1.0, 5, 60.0)),
        (Budget(100, 1.0, 5, 60.0), Budget(50, 2.0, 4, 90.0), Budget(50, 1.0, 4, 60.0)),
        (Budget(50, 2.0, 4, 90.0), Budget(100, 1.0, 5, 60.0), Budget(50, 1.0, 4, 60.0)),
        (Budget(tokens=0), Budget(turns=0), Budget(tokens=0, turns=0)),
    ],
)
def test_a_child_gets_what_was_asked_for_and_never_more_than_its_parent(
    parent: Budget, asked: Budget, given_: Budget
) -> None:
    inherited = policy.inherit(parent, asked)
    assert inherited == given_
    assert type(inherited.tokens) is type(given_.tokens)
    assert type(inherited.turns) is type(given_.turns)


# ---- lanes -----------------------------------------------------------------------------------------------------------


def test_a_spawner_of_many_takes_turns_with_a_spawner_of_few() -> None:
    assert [policy.fair_rank(4, own) for own in (0, 4, 5, 9)] == [5, 5, 6, 10]
    queue: list[tuple[int, str]] = []
    last = {"many": 0, "few": 0}
    for spawner in ("many", "many", "many", "few"):
        last[spawner] = policy.fair_rank(0, last[spawner])
        queue.append((last[spawner], spawner))
    assert [spawner for _, spawner in sorted(queue, key=lambda place: place[0])] == ["many", "few", "many", "many"]


# ---- constants -------------------------------------------------------------------------------------------------------


def test_the_limits_are_those_of_the_contract() -> None:
    assert (policy.RESERVATION_S, policy.MAX_WAKES, policy.MAX_CRASHES, policy.SUSPECT_AT) == (30.0, 10, 3, 2)
    assert (policy.YIELD_S, policy.UNREAD_PROGRAM_S, policy.SWEEP_S) == (1800.0, 1800.0, 60.0)
    assert (policy.STEER_EVERY_S, policy.STEER_CHARS, policy.WARN_SHARE) == (2.0, 4000, 0.8)
    assert Limits() == Limits(max_depth=1, max_children=5, max_retained=0)
    assert Occupancy(0, 0, 0, wakes=0, budget_spent=False) == FREE
    assert (Budget(), Spent()) == (Budget(None, None, None, None), Spent(0, 0.0, 0, 0.0))


def test_a_refusal_is_raised_as_what_a_caller_is_told_and_none_is_not() -> None:
    enforce(None)
    with pytest.raises(Refused, match="too many") as told:
        enforce(Refusal("forbidden", "too many"))
    assert told.value.status == "forbidden"


def test_a_lane_is_as_wide_as_its_name_or_the_part_before_a_colon_says() -> None:
    widths = {"main": 4, "nested": 2, "nested:b": 3}
    assert [policy.lane_width(widths, lane) for lane in ("main", "nested:a", "nested:b", "other")] == [4, 2, 3, 1]
