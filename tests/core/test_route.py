"""Where words go when they leave a conversation, and when sending them is given up."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.heartbeat import HeartbeatSettings
from fledge.core.route import (
    INTERNAL,
    About,
    Address,
    ChannelMessage,
    address_of,
    answer_to,
    check_address,
    check_channel,
    expiry_s,
    heartbeat_address,
    is_of_another,
    is_same_place,
    is_worth_sending,
    joined,
    next_try_at,
    origin_of,
)
from fledge.errors import BadInput
from tests.statements import proves

OPS, NEWS = Address("ops", "u-1", "t-1"), Address("news", "u-2")
AT = 1000.0


@given(st.builds(Address, st.text(min_size=1), st.text(min_size=1), st.text()))
def test_an_origin_is_an_address_as_text_and_reads_back(address: Address) -> None:
    try:
        text = origin_of(address)
    except UnicodeEncodeError:
        return  # a lone surrogate: `check_address` refuses those
    assert address_of(text) == address


@pytest.mark.parametrize("origin", ["", INTERNAL])
def test_no_origin_and_an_internal_one_are_no_address(origin: str) -> None:
    assert address_of(origin) is None


@pytest.mark.parametrize(("address", "place"), [(Address("ops", "u", "t"), "thread:t"), (Address("ops", "u"), "to:u")])
def test_a_place_is_the_thread_whoever_speaks_in_it_else_the_one_spoken_to(address: Address, place: str) -> None:
    assert address.place == place


def test_an_address_is_shown_by_its_receiver_its_channel_and_its_thread() -> None:
    assert Address("ops", "ann").words == "ann on ops"
    assert Address("ops", "ann", "7").words == "ann on ops, thread 7"


@pytest.mark.parametrize("name", ["ops", "a", "0-9_x", "x" * 64, "terminal"])
def test_a_plain_word_names_a_channel(name: str) -> None:
    assert check_channel(name) == name


@pytest.mark.parametrize("name", ["", "Ops", "-x", "a b", "x" * 65, "ü", "internal", "a.b", 7])
def test_any_other_word_does_not(name: str) -> None:
    with pytest.raises(BadInput, match=r"^channels\.x: must be 1 to 64 lower-case letters"):
        check_channel(name, "channels.x")


@pytest.mark.parametrize("address", [OPS, NEWS, Address("ops", "x" * 256, "y" * 256)])
def test_an_address_that_can_be_reached_is_taken_as_it_is(address: Address) -> None:
    assert check_address(address) is address


@pytest.mark.parametrize(
    ("address", "field"),
    [
        (Address("Ops", "u"), "channel"),
        (Address("ops", ""), "to"),
        (Address("ops", "  "), "to"),
        (Address("ops", "x" * 257), "to"),
        (Address("ops", "a\nb"), "to"),
        (Address("ops", "\ud800"), "to"),
        (Address("ops", "u", "x" * 257), "thread"),
        (Address("ops", "u", "\x1b[2J"), "thread"),
    ],
)
def test_an_address_that_cannot_be_reached_is_refused_by_its_field(address: Address, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_address(address)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("target", "to", "usual", "goes"),
    [
        ("last", "", OPS, OPS),
        ("last", "", None, None),
        ("last", "u-3", OPS, Address("ops", "u-3")),
        ("last", "u-3", None, None),
        ("none", "", OPS, None),
        ("none", "u-3", OPS, None),
        ("ops", "", OPS, OPS),
        ("ops", "", NEWS, None),
        ("ops", "", None, None),
        ("ops", "u-3", NEWS, Address("ops", "u-3")),
        ("ops", "u-3", None, Address("ops", "u-3")),
    ],
)
def test_the_words_of_a_heartbeat_go_where_the_settings_say(
    target: str, to: str, usual: Address | None, goes: Address | None
) -> None:
    assert heartbeat_address(HeartbeatSettings(target=target, to=to), usual) == goes


@pytest.mark.parametrize(
    ("origin", "route", "goes"),
    [
        ("", None, None),
        ("", NEWS, NEWS),
        (origin_of(OPS), None, OPS),
        (origin_of(OPS), NEWS, OPS),
        (INTERNAL, None, None),
        (INTERNAL, NEWS, None),
    ],
)
def test_a_reply_goes_back_to_where_the_words_came_from_else_to_the_route(
    origin: str, route: Address | None, goes: Address | None
) -> None:
    assert answer_to(origin, route) == goes


FROM_OPS, FROM_NEWS = origin_of(OPS), origin_of(NEWS)


@pytest.mark.parametrize(
    ("turn", "rows", "is_first", "after"),
    [
        ("", "", True, ""),
        ("", FROM_OPS, True, FROM_OPS),
        ("", INTERNAL, True, INTERNAL),
        ("", "", False, ""),
        ("", FROM_OPS, False, FROM_OPS),
        ("", INTERNAL, False, ""),
        (INTERNAL, INTERNAL, False, INTERNAL),
        (INTERNAL, "", False, ""),
        (INTERNAL, FROM_OPS, False, FROM_OPS),
        (FROM_OPS, "", False, FROM_OPS),
        (FROM_OPS, FROM_NEWS, False, FROM_OPS),
        (FROM_OPS, INTERNAL, False, FROM_OPS),
    ],
)
def test_the_first_address_of_a_turn_counts_and_it_is_internal_only_if_nothing_else_was_read(
    turn: str, rows: str, is_first: bool, after: str
) -> None:
    assert joined(turn, rows, is_first) == after


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("hello", True),
        ("NO_REPLY is what I would say", True),
        ("", False),
        ("  \n", False),
        ("NO_REPLY", False),
        (" ANNOUNCE_SKIP\n", False),
        ("REPLY_SKIP", False),
        ("HEARTBEAT_OK", False),
        ("**HEARTBEAT_OK** all quiet", False),
        ("HEARTBEAT_OK " + "x" * 301, True),
    ],
)
def test_words_are_sent_and_silence_is_not(text: str, sent: bool) -> None:
    assert is_worth_sending(text) is sent


@proves("2.hops.11")
@pytest.mark.parametrize(
    ("retried", "retries", "expires_s", "wait_s", "again_s"),
    [
        (0, 3, 1800.0, 0.0, 1.0),
        (1, 3, 1800.0, 0.0, 2.0),
        (2, 3, 1800.0, 0.0, 4.0),
        (3, 3, 1800.0, 0.0, None),
        (3, 9, 1800.0, 0.0, 8.0),
        (7, 9, None, 0.0, 8.0),
        (0, 0, 1800.0, 0.0, None),
        (0, 3, 1.0, 0.0, 1.0),
        (0, 3, 0.9, 0.0, None),
        (0, 3, 1800.0, 60.0, 60.0),
        (0, 3, 1800.0, 0.5, 1.0),
        (0, 3, 1800.0, 1800.0, 1800.0),
        (0, 3, 1800.0, 1800.5, None),
        (0, 3, None, 9000.0, 9000.0),
    ],
)
def test_what_did_not_arrive_is_sent_again_1_2_4_8_s_later_or_when_it_is_wanted_and_then_given_up(
    retried: int, retries: int, expires_s: float | None, wait_s: float, again_s: float | None
) -> None:
    expires_at = None if expires_s is None else AT + expires_s
    assert next_try_at(retried, retries, AT, expires_at, wait_s) == (None if again_s is None else AT + again_s)


def test_replies_results_and_questions_are_tried_for_30_min_and_notices_for_5() -> None:
    assert {about: expiry_s(about) for about in get_args(About)} == {
        "reply": 1800.0,
        "result": 1800.0,
        "approval": 1800.0,
        "notice": 300.0,
    }


def test_a_message_knows_its_address() -> None:
    message = ChannelMessage(
        id="x", channel="ops", to="u-1", thread="t-1", about="reply", session_key="s", text="hi", posted_at=AT
    )
    assert message.address == OPS


@pytest.mark.parametrize(
    ("key", "about", "is_entry", "entry"),
    [
        ("reply:agent:main:main:17", "reply", True, 17),
        ("final:agent:main:subagent:x:run-1", "reply", True, 0),
        ("forward:agent:main:main:3", "result", True, 3),
        ("result:outcome:x:run-1", "result", False, 0),
        ("notice:reply:1", "notice", False, 0),
    ],
)
def test_a_message_knows_whether_a_transcript_has_its_words(key: str, about: About, is_entry: bool, entry: int) -> None:
    message = ChannelMessage(id=key, channel="ops", to="u-1", about=about, session_key="s", text="hi", posted_at=AT)
    assert (message.is_entry, message.entry) == (is_entry, entry)


@pytest.mark.parametrize(
    ("session", "about", "is_anothers"),
    [
        ("agent:main:main", "reply", True),
        ("agent:main:main", "result", True),
        ("agent:main:main", "notice", False),
        ("agent:main:docs-5cd1", "reply", False),
        ("agent:main:subagent:x", "reply", False),
    ],
)
def test_words_of_another_conversation_are_told_from_ones_own(session: str, about: About, is_anothers: bool) -> None:
    message = ChannelMessage(id="x", channel="ops", to="u-1", about=about, session_key=session, text="hi", posted_at=AT)
    assert is_of_another(message, "agent:main:docs-5cd1") is is_anothers


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (OPS, OPS, True),
        (OPS, Address("ops", "somebody else", "t-1"), True),
        (OPS, Address("ops", "u-1", "t-2"), False),
        (OPS, Address("ops", "u-1"), False),
        (OPS, Address("news", "u-1", "t-1"), False),
        (Address("ops", "u-1"), Address("ops", "u-1"), True),
        (None, OPS, False),
        (OPS, None, False),
        (None, None, False),
    ],
)
def test_two_addresses_are_one_place_if_the_same_thread_or_person_hears_both(
    one: Address | None, other: Address | None, same: bool
) -> None:
    assert is_same_place(one, other) is same
