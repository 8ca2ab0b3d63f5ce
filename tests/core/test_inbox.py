"""Queue rules: who is told how, when a drain starts, which rows enter, what gives way."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fledge.core.announce import DeliveryPhase
from fledge.core.inbox import (
    INTERRUPT_PREFIX,
    LINE_CHARS,
    MAX_DEBOUNCE_S,
    ROWS_A_COMMIT,
    UNANSWERED_S,
    Drop,
    ItemKind,
    QueueMode,
    QueueSettings,
    RequesterState,
    WaitingItem,
    backoff_s,
    delivery_phases,
    drain_at,
    is_unanswered,
    left_out,
    opening,
    path_to,
    refuses_latest,
    standing_of_run,
    standing_of_turn,
    take,
)
from fledge.core.route import INTERNAL
from fledge.core.run import Path
from fledge.core.turn import Turn
from fledge.errors import BadInput
from tests.core.samples import RUNS
from tests.core.turn_samples import ALL, STATES
from tests.statements import proves

MODES: tuple[QueueMode, ...] = get_args(QueueMode)
KINDS: tuple[ItemKind, ...] = get_args(ItemKind)


def row(
    key: str,
    kind: ItemKind = "completion",
    at: float = 100.0,
    origin: str = "chat",
    mode: QueueMode = "collect",
) -> WaitingItem:
    return WaitingItem(key, kind, at, origin, mode)


def in_mode(mode: QueueMode, items: list[WaitingItem]) -> list[WaitingItem]:
    """The same rows, all of them with this queue mode."""
    return [replace(item, mode=mode) for item in items]


def keys(items: tuple[WaitingItem, ...]) -> str:
    return " ".join(item.key for item in items)


# ---- settings --------------------------------------------------------------------------------------------------------


@proves("2.arbitration.7")
def test_the_defaults_are_those_of_the_contract() -> None:
    settings = QueueSettings()
    assert (settings.mode, settings.people) == ("collect", "steer")
    assert (settings.debounce_s, MAX_DEBOUNCE_S) == (1.0, 5.0)
    assert (settings.cap, settings.drop) == (20, "summarize")
    assert (ROWS_A_COMMIT, LINE_CHARS, UNANSWERED_S, INTERRUPT_PREFIX) == (64, 160, 1800.0, "[INTERRUPT]")


# ---- arbitration -----------------------------------------------------------------------------------------------------

DIRECT: tuple[DeliveryPhase, ...] = ("direct-primary",)
DIRECT_QUEUE: tuple[DeliveryPhase, ...] = ("direct-primary", "queue-fallback")
QUEUE: tuple[DeliveryPhase, ...] = ("queue-primary",)
QUEUE_DIRECT: tuple[DeliveryPhase, ...] = ("queue-primary", "direct-fallback")


@proves("2.arbitration.1", "With `expectsCompletionMessage`, the default, direct is tried before the queue")
@proves("2.arbitration.2")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("state", "expects", "path", "phases"),
    [
        ("idle", True, "direct", DIRECT),
        ("idle", False, "direct", QUEUE_DIRECT),
        ("waiting", True, "queued", DIRECT_QUEUE),
        ("waiting", False, "queued", QUEUE),
        ("gone", True, "queued", DIRECT_QUEUE),
        ("gone", False, "queued", QUEUE_DIRECT),
        ("program", True, "direct", ()),
        ("program", False, "direct", ()),
    ],
)
def test_a_requester_that_is_not_busy_is_told_alike_in_every_mode(
    mode: QueueMode,
    state: RequesterState,
    expects: bool,
    path: Path,
    phases: tuple[DeliveryPhase, ...],
) -> None:
    assert (path_to(state, mode), delivery_phases(state, expects)) == (path, phases)


def test_a_live_run_is_busy_while_it_is_driven_or_pauses_and_waiting_while_it_waits() -> None:
    live = {name: run for name, run in RUNS.items() if run.ended is None and name != "gone"}
    standings = {name: standing_of_run(run) for name, run in live.items()}
    waiting = [name for name in live if name.startswith(("waiting", "asking"))]
    pauses = ["queued, waits for its program", "queued, paused"]
    busy = [name for name in live if name.startswith(("running", "ending, grace"))]
    assert [name for name, standing in standings.items() if standing == "waiting"] == waiting
    assert [name for name, standing in standings.items() if standing == "busy"] == [*pauses, *busy]
    assert {standing for name, standing in standings.items() if name not in (*waiting, *pauses, *busy)} == {"idle"}


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        ("idle", "idle"),
        ("due", "idle"),
        ("due later", "busy"),
        ("open and due", "idle"),
        ("open and due later", "busy"),
        ("driven", "busy"),
        ("driven, crashed before", "busy"),
        ("asking", "busy"),
    ],
)
def test_a_session_that_takes_turns_is_waiting_busy_or_idle_as_its_turn_says(
    state: str, standing: RequesterState
) -> None:
    assert standing_of_turn(Turn(STATES[state])) == standing
    assert standing_of_turn(Turn(STATES[state], ALL)) == "waiting"


def test_a_program_takes_no_turns() -> None:
    assert standing_of_turn(None) == "program"


@pytest.mark.parametrize(
    ("mode", "path", "prefix"),
    [
        ("steer", "steered", "[INTERRUPT]"),
        ("steer-backlog", "steered", "[INTERRUPT]"),
        ("interrupt", "steered", ""),
        ("followup", "queued", ""),
        ("collect", "queued", ""),
    ],
)
def test_a_busy_requester_is_told_by_its_queue_mode(mode: QueueMode, path: Path, prefix: str) -> None:
    assert (path_to("busy", mode), opening(mode)) == (path, prefix)
    assert (delivery_phases("busy", True), delivery_phases("busy", False)) == (DIRECT_QUEUE, QUEUE)


# ---- when a drain starts ---------------------------------------------------------------------------------------------


@proves("2.queue.1")
@pytest.mark.parametrize(
    ("arrivals", "now", "due"),
    [
        ([100.0], 100.0, 101.0),
        ([100.0, 100.8], 100.9, 101.8),
        ([100.0, 103.9], 104.0, 104.9),
        ([100.0, 104.0], 104.0, 105.0),
        ([100.0, 104.5], 104.6, 105.0),
        ([104.5, 100.0], 104.6, 105.0),
        ([100.0], 101.0, 101.0),
        ([100.0], 300.0, 300.0),
    ],
    ids=["one", "restarted", "just below the maximum", "at it", "capped", "order is no matter", "due now", "overdue"],
)
def test_collect_waits_for_quiet_but_never_beyond_the_maximum(arrivals: list[float], now: float, due: float) -> None:
    items = [row(f"r{n}", at=at) for n, at in enumerate(arrivals)]
    assert drain_at(items, QueueSettings(), now) == pytest.approx(due)


def test_debounce_times_come_from_the_settings() -> None:
    items = [row("a", at=100.0), row("b", at=102.0)]
    assert drain_at(items, QueueSettings(debounce_s=2.5), 102.0) == 104.5
    assert drain_at(items, QueueSettings(debounce_s=4.0), 102.0) == 105.0


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "collect"])
def test_other_modes_start_at_once(mode: QueueMode) -> None:
    assert drain_at([row("a", at=100.0, mode=mode)], QueueSettings(), 100.0) == 100.0
    waiting = [row("a", at=100.0), row("b", "send", at=100.0, mode=mode)]
    assert drain_at(waiting, QueueSettings(), 100.0) == 100.0, "one of them is enough"


@pytest.mark.parametrize(
    ("kind", "due"),
    [("task", 100.0), ("steer", 100.0), ("wake", 100.0), ("approval", 100.0), ("send", 101.0), ("notice", 101.0)],
)
def test_a_row_that_begins_an_attempt_is_not_debounced(kind: ItemKind, due: float) -> None:
    assert drain_at([row("a", at=99.0), row("b", kind, at=100.0)], QueueSettings(), 100.0) == due


@proves("2.queue.2")
def test_another_origin_does_not_put_the_oldest_off() -> None:
    items = [row("a", at=100.0), row("b", at=100.9, origin="mail")]
    assert drain_at(items, QueueSettings(), 100.9) == 101.0


def test_without_rows_there_is_no_time_to_drain() -> None:
    with pytest.raises(BadInput) as refused:
        drain_at([], QueueSettings(), 100.0)
    assert str(refused.value) == "items: must hold at least one waiting row"


# ---- which rows enter ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_at_a_step_boundary_orders_and_notices_join_and_what_has_a_steering_mode(mode: QueueMode) -> None:
    items = in_mode(mode, [row(kind, kind, origin=f"from {kind}") for kind in KINDS])
    joins = mode in ("steer", "steer-backlog", "interrupt")
    assert keys(take(items, at_boundary=True)) == ("completion steer send notice" if joins else "steer notice")


def test_completions_and_messages_join_each_by_its_own_mode() -> None:
    items = [row("a", mode="collect"), row("b", "send", mode="steer"), row("c", mode="steer"), row("d", "send")]
    assert keys(take(items, at_boundary=True)) == "b c"


def test_completions_of_another_origin_do_not_join_a_live_turn() -> None:
    places = {"a": "mail", "b": "chat", "c": "", "d": INTERNAL}
    items = [row(key, origin=origin, mode="steer") for key, origin in places.items()]
    assert keys(take(items, True, live_origin="chat")) == "b c d"
    for nowhere in ("", INTERNAL):
        assert keys(take(items, True, live_origin=nowhere)) == "a b c d"


@pytest.mark.parametrize("mode", MODES)
def test_words_of_another_origin_do_not_join_a_live_turn_but_orders_and_notices_do(mode: QueueMode) -> None:
    items = in_mode(mode, [row(kind, kind, origin="mail") for kind in KINDS])
    assert keys(take(items, True, live_origin="chat")) == "steer notice"


@proves("2.queue.2", "The queue is per requester session and origin")
@pytest.mark.parametrize("mode", ["collect", "steer", "interrupt"])
def test_a_new_turn_takes_all_of_the_oldest_origin_and_no_other(mode: QueueMode) -> None:
    items = [row("a", origin="mail"), row("b"), row("c", "send", origin="mail"), row("d", "notice", origin="mail")]
    assert keys(take(in_mode(mode, items), at_boundary=False)) == "a c d"


@pytest.mark.parametrize("mode", ["followup", "steer-backlog"])
@pytest.mark.parametrize("first", ["completion", "send", "notice"])
def test_followup_takes_one_row_a_turn_oldest_first(mode: QueueMode, first: ItemKind) -> None:
    items = in_mode(mode, [row("a", first), row("b"), row("c", "send")])
    assert keys(take(items, at_boundary=False)) == "a"


@pytest.mark.parametrize("mode", ["followup", "steer-backlog"])
def test_a_turn_for_others_leaves_what_has_a_turn_of_its_own(mode: QueueMode) -> None:
    items = [row("a"), row("b", "send", mode=mode), row("c"), row("d", "send", mode="steer")]
    assert keys(take(items, at_boundary=False)) == "a c d"
    assert keys(take(items[1:], at_boundary=False)) == "b"


@pytest.mark.parametrize("mode", ["followup", "steer-backlog"])
@pytest.mark.parametrize("kind", ["task", "steer", "approval"])
def test_followup_starts_an_attempt_with_the_messages_that_wait_and_without_completions(
    mode: QueueMode, kind: ItemKind
) -> None:
    items = [row("a"), row("b", "send"), row("c", kind), row("d", "notice"), row("e", "send", origin="mail")]
    assert keys(take(in_mode(mode, items), at_boundary=False)) == "b c d"


@proves("2.nested.8")
@pytest.mark.parametrize("mode", MODES)
def test_a_woken_run_reads_everything_it_waited_for(mode: QueueMode) -> None:
    items = in_mode(mode, [row("a"), row("b"), row("c", "wake"), row("d", origin="mail")])
    assert keys(take(items, at_boundary=False)) == "a b c"


@pytest.mark.parametrize("mode", MODES)
def test_a_wake_of_one_origin_comes_before_older_rows_of_another(mode: QueueMode) -> None:
    items = in_mode(mode, [row("a", origin="mail"), row("b"), row("c", "wake")])
    assert keys(take(items, at_boundary=False)) == "b c"


def test_a_row_that_is_apart_joins_no_turn_and_shares_none() -> None:
    items = [row("a", "send", origin="exchange:x"), row("b", "send"), row("c", "send", origin="exchange:y")]
    items = in_mode("steer", items)
    assert keys(take(items, at_boundary=True)) == "b"
    assert keys(take(items, at_boundary=False)) == "a"
    assert keys(take(items[1:], at_boundary=False)) == "b"
    assert keys(take(items[2:], at_boundary=False)) == "c"


@pytest.mark.parametrize("mode", MODES)
def test_a_turn_that_is_apart_is_joined_only_by_steers_and_notices(mode: QueueMode) -> None:
    items = in_mode(mode, [row(kind, kind) for kind in KINDS])
    assert keys(take(items, at_boundary=True, live_origin="exchange:x")) == "steer notice"


@pytest.mark.parametrize("at_boundary", [True, False])
@pytest.mark.parametrize(("waiting", "taken"), [(0, 0), (1, 1), (63, 63), (64, 64), (65, 64)])
def test_a_drain_commit_takes_at_most_64_rows_the_oldest(at_boundary: bool, waiting: int, taken: int) -> None:
    items = [row(f"r{n}", mode="steer") for n in range(waiting)]
    assert take(items, at_boundary) == tuple(items[:taken])


rows = st.lists(
    st.builds(
        WaitingItem,
        key=st.uuids().map(str),
        kind=st.sampled_from(KINDS),
        arrived_at=st.floats(0, 1e6),
        origin=st.sampled_from(["chat", "mail"]),
        mode=st.sampled_from(MODES),
    ),
    max_size=80,
    unique_by=lambda item: item.key,
)


@given(rows)
def test_draining_turn_after_turn_takes_every_row_once(items: list[WaitingItem]) -> None:
    waiting, taken = list(items), list[WaitingItem]()
    while waiting:
        turn = take(waiting, at_boundary=False)
        assert 0 < len(turn) <= 64
        assert len({item.origin for item in turn}) == 1
        assert list(turn) == [item for item in waiting if item in turn], "order is kept"
        waiting = [item for item in waiting if item not in turn]
        taken += turn
    assert sorted(item.key for item in taken) == sorted(item.key for item in items)


# ---- overflow --------------------------------------------------------------------------------------------------------

WORDS = ["first", "second", "third"]


@pytest.mark.parametrize("drop", ["summarize", "old", "new"])
def test_new_refuses_the_newcomers_but_a_notice_has_no_sender_to_refuse(drop: Drop) -> None:
    assert refuses_latest("send", drop) is (drop == "new")
    assert not refuses_latest("notice", drop)


@proves("2.queue.5")
def test_those_that_gave_way_are_counted_and_have_a_line_each() -> None:
    assert left_out([], 2) == ""
    assert left_out(WORDS[:1], 2) == "[1 older message left out: messages.queue.cap]\n- first"
    assert left_out(WORDS[:2], 2) == "[2 older messages left out: messages.queue.cap]\n- first\n- second"


def test_at_most_cap_lines_are_told_the_latest_and_all_are_counted() -> None:
    assert left_out(WORDS, 1) == "[3 older messages left out: messages.queue.cap]\n- third"


@proves("2.queue.5", "What is dropped leaves lines of at most 160 characters")
@pytest.mark.parametrize(
    ("text", "line"),
    [("x" * 160, "x" * 160), ("x" * 161, "x" * 159 + "…"), ("a\n- b\t c", "a - b c")],
)
def test_a_line_is_one_line_of_at_most_160_characters(text: str, line: str) -> None:
    assert left_out([text], 1).splitlines()[1:] == [f"- {line}"]


# ---- failed turns ----------------------------------------------------------------------------------------------------


@proves("2.queue.10", "Failures back off 2, 4, 8 … 60 s")
@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(-1, 0.0), (0, 0.0), (1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 32.0), (6, 60.0), (7, 60.0), (5000, 60.0)],
)
def test_failures_back_off_doubling_up_to_a_minute(failures: int, seconds: float) -> None:
    assert backoff_s(failures) == seconds


@pytest.mark.parametrize(("now", "is_late"), [(1000.0, False), (2799.0, False), (2800.0, True), (9000.0, True)])
def test_a_turn_without_a_reply_is_unanswered_after_half_an_hour(now: float, is_late: bool) -> None:
    assert is_unanswered(1000.0, now) is is_late
