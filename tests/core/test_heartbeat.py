"""Heartbeats: when they are due, when they are skipped, what they carry and what counts as silence."""

from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.heartbeat import (
    BUSY_RETRY_S,
    COALESCE_S,
    DAY_MINUTES,
    MAX_NOTICES,
    OK_EXTRA_CHARS,
    PROMPT,
    REPEAT_S,
    ActiveHours,
    Cause,
    HeartbeatSettings,
    HeartbeatVerdict,
    Wake,
    active_hours,
    has_periodic,
    is_blank_checklist,
    is_idle_round,
    is_open,
    is_repeat,
    is_silence,
    is_worth_noticing,
    minutes_until_open,
    next_periodic_at,
    opening,
    request_wake,
    spoken,
    verdict,
)
from fledge.errors import BadInput
from tests.statements import proves

CAUSES: tuple[Cause, ...] = get_args(Cause)


def test_the_constants_are_those_of_the_contract() -> None:
    assert (COALESCE_S, BUSY_RETRY_S, MAX_NOTICES, OK_EXTRA_CHARS) == (0.25, 1.0, 20, 300)
    assert (REPEAT_S, DAY_MINUTES) == (86400.0, 1440)


# ---- wakes -----------------------------------------------------------------------------------------------------------


def test_a_first_request_is_due_a_quarter_second_later() -> None:
    assert request_wake(None, "default", "child done", 10.0) == Wake("default", "child done", 10.25)


@proves("5.heartbeat.8")
@pytest.mark.parametrize("newer", CAUSES)
@pytest.mark.parametrize("older", CAUSES)
def test_the_strongest_cause_wins_the_newer_on_a_tie_and_the_time_stays(older: Cause, newer: Cause) -> None:
    merged = request_wake(Wake(older, "old", 10.25), newer, "new", 10.1)
    if CAUSES.index(newer) <= CAUSES.index(older):
        assert merged == Wake(newer, "new", 10.25)
    else:
        assert merged == Wake(older, "old", 10.25)


def test_causes_are_ordered_from_the_strongest() -> None:
    assert CAUSES == ("action", "default", "interval", "retry")


def test_no_request_shortens_a_retry() -> None:
    retried = Wake("interval", "periodic", 11.5)
    assert request_wake(retried, "action", "urgent", 10.6) == Wake("action", "urgent", 11.5)


# ---- active hours ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "minutes"),
    [
        ("08:00", "22:30", (480, 1350)),
        ("00:00", "24:00", (0, 1440)),
        (" 23:59 ", "00:00", (1439, 0)),
        ("19:05", "20:00", (1145, 1200)),
    ],
)
def test_times_of_day_are_read_as_minutes(start: str, end: str, minutes: tuple[int, int]) -> None:
    assert active_hours(start, end) == ActiveHours(*minutes)


@pytest.mark.parametrize("text", ["24:01", "25:00", "8:00", "08:60", "08.00", "", "08:00 am", "noon"])
def test_what_is_no_time_of_day_is_refused_by_field(text: str) -> None:
    with pytest.raises(BadInput) as start:
        active_hours(text, "10:00")
    assert str(start.value) == f"heartbeat.activeHours.start: must be a time of day like 08:30 (got {text!r})"
    with pytest.raises(BadInput) as end:
        active_hours("10:00", text)
    assert str(end.value) == f"heartbeat.activeHours.end: must be a time of day like 08:30 (got {text!r})"


def test_hours_cannot_start_at_24_00() -> None:
    with pytest.raises(BadInput) as refused:
        active_hours("24:00", "08:00")
    assert str(refused.value) == "heartbeat.activeHours.start: must lie between 00:00 and 23:59 (got 1440)"


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (1440, 5), (5, -1), (5, 1441)])
def test_minutes_outside_the_day_are_refused(start: int, end: int) -> None:
    with pytest.raises(BadInput) as refused:
        ActiveHours(start, end)
    if end == 5:
        assert refused.value.field == "heartbeat.activeHours.start"
    else:
        assert str(refused.value) == f"heartbeat.activeHours.end: must lie between 00:00 and 24:00 (got {end})"


@pytest.mark.parametrize(
    ("hours", "minute", "quiet"),
    [
        (None, 0, 0),
        (ActiveHours(480, 1320), 479, 1),
        (ActiveHours(480, 1320), 480, 0),
        (ActiveHours(480, 1320), 1319, 0),
        (ActiveHours(480, 1320), 1320, 600),
        (ActiveHours(480, 1320), 0, 480),
        (ActiveHours(1320, 360), 1319, 1),
        (ActiveHours(1320, 360), 1320, 0),
        (ActiveHours(1320, 360), 0, 0),
        (ActiveHours(1320, 360), 359, 0),
        (ActiveHours(1320, 360), 360, 960),
        (ActiveHours(0, 1440), 0, 0),
        (ActiveHours(0, 1440), 1439, 0),
        (ActiveHours(1, 1440), 0, 1),
        (ActiveHours(600, 600), 600, None),
        (ActiveHours(600, 600), 0, None),
        (ActiveHours(0, 0), 0, None),
    ],
)
def test_active_hours_may_wrap_around_and_are_closed_if_empty(
    hours: ActiveHours | None, minute: int, quiet: int | None
) -> None:
    assert minutes_until_open(hours, minute) == quiet
    assert is_open(hours, minute) is (quiet == 0)


@given(st.integers(0, 1439), st.integers(0, 1440), st.integers(0, 1439))
def test_after_the_quiet_minutes_the_hours_are_open(start: int, end: int, minute: int) -> None:
    hours = ActiveHours(start, end)
    quiet = minutes_until_open(hours, minute)
    assert (quiet is None) == (start == end)
    if quiet:
        assert (minute + quiet) % 1440 == start
        assert is_open(hours, start)


# ---- whether to run --------------------------------------------------------------------------------------------------

OFF = HeartbeatSettings()
EVERY = HeartbeatSettings(every_s=60.0)
NIGHT = HeartbeatSettings(every_s=60.0, hours=ActiveHours(1320, 360))
NEVER = HeartbeatSettings(every_s=60.0, hours=ActiveHours(600, 600))
Situation = tuple[int, float, Literal["idle", "busy", "waiting"], int]
"""The minute of the day and its second, how the session stands, what waits to be read."""
IDLE: Situation = (720, 0.0, "idle", 0)
BUSY: Situation = (720, 0.0, "busy", 0)
WAITING: Situation = (720, 0.0, "waiting", 0)
NEWS: Situation = (720, 0.0, "idle", 1)


@pytest.mark.parametrize(
    ("cause", "settings", "situation", "expected"),
    [
        ("interval", OFF, IDLE, HeartbeatVerdict("disabled")),
        ("interval", HeartbeatSettings(hours=NIGHT.hours), BUSY, HeartbeatVerdict("disabled")),
        ("default", OFF, NEWS, HeartbeatVerdict(None)),
        ("interval", EVERY, IDLE, HeartbeatVerdict(None)),
        ("interval", HeartbeatSettings(every_s=0.5), IDLE, HeartbeatVerdict(None)),
        ("interval", NIGHT, BUSY, HeartbeatVerdict("quiet-hours", 36000.0)),
        ("action", NIGHT, IDLE, HeartbeatVerdict("quiet-hours", 36000.0)),
        ("action", NIGHT, (720, 15.5, "idle", 0), HeartbeatVerdict("quiet-hours", 35984.5)),
        ("action", NEVER, IDLE, HeartbeatVerdict("quiet-hours", None)),
        ("interval", EVERY, BUSY, HeartbeatVerdict("busy", 1.0)),
        ("action", OFF, BUSY, HeartbeatVerdict("busy", 1.0)),
        ("default", OFF, BUSY, HeartbeatVerdict("busy", 1.0)),
        ("interval", EVERY, WAITING, HeartbeatVerdict("busy", 30.0)),
        ("default", EVERY, IDLE, HeartbeatVerdict("empty")),
        ("action", EVERY, IDLE, HeartbeatVerdict(None)),
        ("retry", EVERY, IDLE, HeartbeatVerdict(None)),
        ("interval", EVERY, NEWS, HeartbeatVerdict(None)),
    ],
)
def test_a_due_wake_runs_unless_a_reason_comes_first(
    cause: Cause, settings: HeartbeatSettings, situation: Situation, expected: HeartbeatVerdict
) -> None:
    assert verdict(cause, settings, *situation) == expected


def test_the_periodic_heartbeat_is_off_by_default_and_hours_are_open() -> None:
    settings = HeartbeatSettings()
    assert (settings.every_s, settings.hours, settings.zone, settings.ack_chars) == (0.0, None, "local", 300)


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True),
        ("\n \t\n", True),
        ("# Title\n\n## Part", True),
        ("-\n* \n+\n- [ ]\n- [x]\n* []", True),
        ("```markdown\n```", True),
        ("- [ ] call", False),
        ("- call", False),
        ("# Title\ncall", False),
        ("- [y]", False),
        (" " * 50_000 + "x", False),
    ],
)
def test_a_checklist_without_a_task_is_blank(text: str, blank: bool) -> None:
    assert is_blank_checklist(text) is blank


@pytest.mark.parametrize(
    ("cause", "checklist", "idle"),
    [
        ("interval", "# Watch\n- [ ]\n", True),
        ("interval", "- check the mail", False),
        ("interval", None, False),
        ("default", "", False),
        ("action", "", False),
        ("", "", False),
    ],
)
def test_a_periodic_beat_with_nothing_to_look_after_is_idle(cause: str, checklist: str | None, idle: bool) -> None:
    assert is_idle_round(cause, checklist) is idle


@pytest.mark.parametrize(
    ("every_s", "last_at", "now", "next_at"),
    [
        (0.0, 100.0, 100.0, None),
        (-1.0, 100.0, 100.0, None),
        (60.0, 100.0, 100.0, 160.0),
        (60.0, 100.0, 159.0, 160.0),
        (60.0, 100.0, 160.0, 220.0),
        (60.0, 100.0, 1000.0, 1060.0),
        (60.0, 100.0, 90.0, 160.0),
        (60.0, 100.0, 10.0, 160.0),
        (0.5, 100.0, 100.2, 100.5),
    ],
)
def test_the_next_beat_is_a_whole_number_of_periods_after_the_last(
    every_s: float, last_at: float, now: float, next_at: float | None
) -> None:
    assert next_periodic_at(every_s, last_at, now) == next_at


@pytest.mark.parametrize(
    ("spoken", "beats"),
    [
        ({}, "x"),
        ({"x": None}, "x"),
        ({"x": None, "main": None}, "main"),
        ({"x": None, "a": None}, "x"),
        ({"x": 1.0, "main": None}, "x"),
        ({"x": 1.0, "main": 2.0}, "main"),
        ({"x": 2.0, "main": 2.0}, "main"),
        ({"x": 3.0, "main": 2.0, "a": 1.0}, "x"),
    ],
)
def test_one_of_an_agents_main_conversations_has_the_periodic_heartbeat(
    spoken: dict[str, float | None], beats: str
) -> None:
    assert [one for one in spoken or {"x"} if has_periodic(one, "main", spoken)] == [beats]


# ---- what it says ----------------------------------------------------------------------------------------------------


@proves("5.heartbeat.5")
@pytest.mark.parametrize(
    ("text", "last", "worth"),
    [
        ("a", None, True),
        ("a", "b", True),
        ("a", "a", False),
        (" a\n", "a ", False),
        (" ", None, False),
        ("", "a", False),
    ],
)
def test_an_empty_notice_and_a_consecutive_duplicate_are_not_worth_a_row(
    text: str, last: str | None, worth: bool
) -> None:
    assert is_worth_noticing(text, last) is worth


@proves("5.heartbeat.11", "HEARTBEAT_OK, alone or with at most 300 characters, is silence")
@pytest.mark.parametrize(
    "reply",
    [
        "HEARTBEAT_OK",
        "  HEARTBEAT_OK\n",
        "**HEARTBEAT_OK**",
        "`HEARTBEAT_OK`.",
        "_HEARTBEAT_OK_",
        "__HEARTBEAT_OK__ all is well",
        "<b>HEARTBEAT_OK</b>",
        "&nbsp;HEARTBEAT_OK&nbsp;",
        "HEARTBEAT_OK!!!",
        "HEARTBEAT_OK, nothing new",
        "Nothing new. HEARTBEAT_OK",
        "Nothing new: **HEARTBEAT_OK**.",
        "Nothing new __HEARTBEAT_OK__",
        "HEARTBEAT_OK " + "x" * 300,
        "x" * 300 + " HEARTBEAT_OK",
        "HEARTBEAT_OK" + " " * 400 + "x",
    ],
)
def test_heartbeat_ok_at_either_end_is_silence(reply: str) -> None:
    assert is_silence(reply) is True


@proves("5.heartbeat.11")
@pytest.mark.parametrize(
    "reply",
    [
        "",
        "OK",
        "heartbeat_ok",
        "HEARTBEAT_OKAY",
        "HEARTBEAT_OK2",
        "HEARTBEAT_OK_NOT",
        "HEARTBEAT_OKé",
        "MY_HEARTBEAT_OK",
        "NOHEARTBEAT_OK",
        "They said HEARTBEAT_OK to me",
        "HEARTBEAT_OK " + "x" * 301,
        "x" * 301 + " HEARTBEAT_OK",
    ],
)
def test_anything_else_is_heard(reply: str) -> None:
    assert is_silence(reply) is False


LONG = "The disk is full. " * 20


@proves("5.heartbeat.14", "HEARTBEAT_OK is stripped from a heartbeat's reply that says something")
@pytest.mark.parametrize(
    ("reply", "aloud"),
    [
        (f"HEARTBEAT_OK {LONG}", LONG),
        (f"HEARTBEAT_OK. {LONG}", LONG),
        (f"HEARTBEAT_OK\n\n{LONG}", LONG),
        (f"**HEARTBEAT_OK**\n{LONG}", LONG),
        (f"HEARTBEAT_OK - {LONG}", LONG),
        (f"<b>HEARTBEAT_OK</b> {LONG}", LONG),
        (f"HEARTBEAT_OK\n- {LONG}\n- more", f"- {LONG}\n- more"),
        (f"{LONG}\n\nHEARTBEAT_OK", LONG.rstrip()),
        (f"{LONG} **HEARTBEAT_OK**.", LONG.rstrip()),
        (f"{LONG} __HEARTBEAT_OK__", LONG.rstrip()),
        (f"HEARTBEAT_OK: {LONG}(HEARTBEAT_OK)", LONG.rstrip()),
        (f"HEARTBEAT_OKAY {LONG}", f"HEARTBEAT_OKAY {LONG}"),
        (f"HEARTBEAT_OK_NOT {LONG}", f"HEARTBEAT_OK_NOT {LONG}"),
        (f"{LONG} MY_HEARTBEAT_OK", f"{LONG} MY_HEARTBEAT_OK"),
        (f"{LONG} HEARTBEAT_OK {LONG}", f"{LONG} HEARTBEAT_OK {LONG}"),
        (LONG, LONG),
        ("HEARTBEAT_OK all is quiet", "HEARTBEAT_OK all is quiet"),
        ("HEARTBEAT_OK", "HEARTBEAT_OK"),
    ],
)
def test_what_a_heartbeat_says_aloud_is_told_without_its_ok(reply: str, aloud: str) -> None:
    assert spoken(reply) == aloud


@pytest.mark.parametrize(("chars", "aloud"), [(3, "four"), (4, "HEARTBEAT_OK four")])
def test_what_is_short_enough_to_be_silence_stays_as_it_is(chars: int, aloud: str) -> None:
    assert spoken("HEARTBEAT_OK four", chars) == aloud


@pytest.mark.parametrize(("extra", "chars", "silent"), [(0, 0, True), (1, 0, False), (10, 10, True), (11, 10, False)])
def test_how_much_may_stand_beside_an_ok_is_a_setting(extra: int, chars: int, silent: bool) -> None:
    assert is_silence("HEARTBEAT_OK " + "x" * extra, chars) is silent


@pytest.mark.parametrize("hostile", ["<" * 100_000, " _" * 50_000, "HEARTBEAT_OK_" * 8_000, "\\" * 100_000])
def test_hostile_replies_are_read_in_passing(hostile: str) -> None:
    assert is_silence(hostile + "x") is False
    assert spoken(hostile + "x").endswith("x")


@pytest.mark.parametrize(
    ("text", "said", "now", "repeat"),
    [
        ("a", ("", None), 0.0, False),
        ("", ("", None), 0.0, False),
        ("a", ("a", 10.0), 10.0, True),
        (" a", ("a\n", 10.0), 86409.0, True),
        ("a", ("a", 10.0), 86410.0, False),
        ("b", ("a", 10.0), 10.0, False),
    ],
)
def test_the_same_words_within_a_day_are_a_repeat(
    text: str, said: tuple[str, float | None], now: float, repeat: bool
) -> None:
    assert is_repeat(text, *said, now) is repeat


# ---- what it is told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("", PROMPT),
        ("  ", PROMPT),
        ("Read the mail; else say HEARTBEAT_OK.", "Read the mail; else say HEARTBEAT_OK."),
        ("Read the mail. ", "Read the mail.\n\nIf nothing needs attention, answer only HEARTBEAT_OK."),
    ],
)
def test_a_heartbeat_always_says_how_to_answer_if_nothing_needs_attention(prompt: str, told: str) -> None:
    assert opening(HeartbeatSettings(prompt=prompt)) == told
