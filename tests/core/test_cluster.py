"""Several engines on one store: who is alive, shares of the work, settings that fit together, and news as messages."""

import pytest
from msgspec.structs import replace

from fledge.core.cluster import (
    MOST_BYTES,
    Member,
    News,
    clashes,
    count_drivers,
    differences,
    from_message,
    is_alive,
    is_proved_dead,
    merged,
    share,
    to_messages,
)

OWN = Member("one", "here", 7, started_at=90.0, seen_at=100.0, lease_s=15.0)
EVERYTHING = News(look=True, everything=True)


@pytest.mark.parametrize(("at", "alive"), [(100.0, True), (114.9, True), (115.0, False), (500.0, False)])
def test_an_engine_is_alive_while_its_lease_lasts(at: float, alive: bool) -> None:
    assert is_alive(OWN, at) is alive


HERE = replace(OWN, machine="boot pid:[1]", born="500")


@pytest.mark.parametrize(
    ("other", "born", "dead"),
    [
        ({}, "", True),
        ({}, "501", True),
        ({}, "500", False),
        ({}, None, False),
        ({"machine": "boot pid:[2]"}, "", False),
        ({"machine": "another pid:[1]"}, "", False),
        ({"host": "there"}, "", False),
        ({"machine": ""}, "", False),
        ({"born": ""}, "501", False),
    ],
)
def test_the_death_of_an_engine_is_proved_only_on_its_own_machine(
    other: dict[str, str], born: str | None, dead: bool
) -> None:
    assert is_proved_dead(replace(HERE, id="two", **other), HERE, born) is dead
    nowhere = replace(HERE, machine="")
    assert is_proved_dead(replace(HERE, id="two", machine=""), nowhere, "") is False


@pytest.mark.parametrize(
    ("up_at", "at", "alive"), [(200.0, 200.0, True), (200.0, 214.9, True), (200.0, 215.0, False), (50.0, 115.0, False)]
)
def test_a_lease_lasts_at_least_as_long_after_an_outage(up_at: float, at: float, alive: bool) -> None:
    assert is_alive(OWN, at, up_at) is alive


def test_engines_share_the_work_that_are_alive_drive_and_do_not_close() -> None:
    members = [OWN, replace(OWN, drives=False), replace(OWN, drains=True), replace(OWN, seen_at=10.0), OWN]
    assert count_drivers(members, 101.0) == 2


@pytest.mark.parametrize(
    ("width", "engines", "most"), [(8, 1, 8), (8, 2, 4), (8, 3, 3), (1, 4, 1), (8, 0, 8), (0, 2, 0)]
)
def test_shares_fill_a_lane_together(width: int, engines: int, most: int) -> None:
    assert share(width, engines) == most
    assert share(width, engines) * max(1, engines) >= width


def test_limits_that_both_know_and_that_differ_clash() -> None:
    own = replace(OWN, limits={"lanes.main": "4", "lanes.subagent": "8", "lanes.coder": "2"})
    other = replace(OWN, id="two", pid=9, host="there", limits={"lanes.main": "4", "lanes.subagent": "16"})
    assert clashes(own, [own, other]) == ["process 9 on there works with lanes.subagent = 16, not 8"]


def test_settings_differ_by_section() -> None:
    other = replace(OWN, settings={"web": "a", "hooks": "b"})
    assert differences(replace(OWN, settings={"web": "a", "announce": "c"}), other) == ["announce", "hooks"]


def test_news_is_told_as_it_is() -> None:
    news = News(True, [("a", 1)], [("b", 2, 3)], ["c"], ["d", "e"])
    (message,) = to_messages(news)
    assert from_message(message) == news


def test_news_of_several_commits_is_one_and_says_nothing_twice() -> None:
    one, other = News(True, [("a", 1)], moved=["d"]), News(False, [("a", 1), ("a", 2)], ended=["c"], moved=["d", "e"])
    assert merged([one, other]) == News(True, [("a", 1), ("a", 2)], ended=["c"], moved=["d", "e"])
    assert merged([one]) is one


def test_much_news_is_several_messages_that_fit() -> None:
    keys = [f"agent:main:subagent:{number:060}" for number in range(1000)]
    news = News(True, [(key, 1) for key in keys[:99]], ended=keys[:500], moved=keys)
    messages = to_messages(news)
    assert max(len(message.encode()) for message in messages) <= MOST_BYTES
    assert merged([from_message(message) for message in messages]) == news


def test_news_that_fits_into_no_message_is_to_look_at_everything() -> None:
    assert [from_message(message) for message in to_messages(News(moved=["x" * MOST_BYTES]))] == [EVERYTHING]


def test_a_message_of_another_version_is_to_look_at_everything() -> None:
    assert from_message('{"what": "is this"}') == EVERYTHING


def test_sessions_that_are_watched_are_told_in_messages_that_fit() -> None:
    watched = [f"agent:main:{number:0300}" for number in range(100)]
    messages = to_messages(merged([News(watched=watched), News(watched=watched[:1])]))
    assert len(messages) > 1
    assert all(len(message) <= MOST_BYTES for message in messages)
    assert [session for message in messages for session in from_message(message).watched] == watched
