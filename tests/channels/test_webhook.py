"""Signed webhooks: what is sent, what counts as arrived, and how a receiver knows who it is from."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.channels.inbound import Incoming, read_incoming
from fledge.channels.webhook import Poster, WebhookChannel, sign, verify, wire_id
from fledge.core.route import ChannelMessage
from fledge.errors import BadInput, NotArrived, Refused
from fledge.models.keys import SecretKey
from fledge.testing import ManualClock
from tests.channels.receiver import SECRET, Answer, Receiver
from tests.statements import proves

T = TypeVar("T")
AT = 1_800_000_000.0
MESSAGE = ChannelMessage(
    id="reply:agent:main:a.b:7",
    channel="ops",
    to="ann",
    thread="t-1",
    about="reply",
    session_key="agent:main:a.b",
    text="grüß dich",
    posted_at=AT,
)


def run(main: Awaitable[T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(20):
            return await main

    return asyncio.run(bounded())


async def post(receiver: Receiver, timeout_s: float = 10.0, body: bytes = b"{}") -> bytes:
    poster = Poster(receiver.url, SecretKey(SECRET), timeout_s, ManualClock(AT))
    try:
        return await poster.post("m-1", body)
    finally:
        await poster.close()


def refused_with(answer: Answer, timeout_s: float = 10.0) -> NotArrived:
    """What is raised if the receiver answers so."""

    async def main() -> NotArrived:
        async with Receiver(answer) as receiver:
            with pytest.raises(NotArrived) as raised:
                await post(receiver, timeout_s)
            assert receiver.complaints == []
            return raised.value

    return run(main())


# ---- sending ---------------------------------------------------------------------------------------------------------


def test_a_message_is_posted_as_signed_json_under_its_own_id() -> None:
    async def main() -> None:
        async with Receiver(now=AT) as receiver:
            channel = WebhookChannel(Poster(receiver.url, SecretKey(SECRET), 10.0, ManualClock(AT)))
            for _ in range(2):
                await channel.send(MESSAGE)
            await channel.close()
        assert receiver.complaints == []
        assert receiver.ids == ["reply:agent:main:a%2Eb:7"] * 2
        assert json.loads(receiver.bodies[0]) == {
            "id": "reply:agent:main:a.b:7",
            "channel": "ops",
            "to": "ann",
            "thread": "t-1",
            "about": "reply",
            "sessionKey": "agent:main:a.b",
            "text": "grüß dich",
            "postedAt": AT,
        }
        headers = receiver.headers[0]
        assert headers["user-agent"] == "fledge"
        assert "cookie" not in headers
        assert SECRET not in str(receiver.headers) + str(receiver.bodies)

    run(main())


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_two_hundred_has_arrived(status: int) -> None:
    async def main() -> None:
        async with Receiver(Answer(status, b"thanks" if status != 204 else b"")) as receiver:
            assert await post(receiver) == (b"thanks" if status != 204 else b"")

    run(main())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(500), "HTTP 500"),
        (Answer(404, b"<h1>not <b>here</b></h1>"), "HTTP 404: not here"),
        (Answer(401, b"no bearer abc.def"), "HTTP 401: no [key]"),
        (
            Answer(302, headers={"Location": "http://127.0.0.1:9/"}),
            "HTTP 302: a redirect, which is not followed; give the address it leads to",
        ),
    ],
)
def test_any_other_answer_has_not_and_is_told_in_one_safe_line(answer: Answer, words: str) -> None:
    assert str(refused_with(answer)) == words


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("soon", 0.0), ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0)],
)
def test_when_to_come_again_is_read_from_the_answer(header: str, wait_s: float) -> None:
    assert refused_with(Answer(429, headers={"Retry-After": header})).wait_s == wait_s


def test_an_answer_that_does_not_come_has_not_arrived_after_the_time_allowed() -> None:
    assert str(refused_with(Answer(hang=True), timeout_s=0.05)) == "no answer within 0.05 s"


def test_of_a_huge_answer_only_the_beginning_is_read() -> None:
    async def main() -> None:
        async with Receiver(Answer(200, b"x" * 1_000_000)) as receiver:
            assert await post(receiver) == b"x" * (64 * 1024)
        words = str(raised)
        assert len(words) <= 500

    raised = refused_with(Answer(500, b"y" * 1_000_000))
    run(main())


def test_nobody_there_is_not_arrived_and_shows_no_secret() -> None:
    async def main() -> None:
        async with Receiver() as receiver:
            pass
        with pytest.raises(NotArrived) as raised:
            await post(receiver)
        assert SECRET not in str(raised.value)

    run(main())


def test_a_certificate_that_nobody_vouches_for_is_not_accepted() -> None:
    async def main() -> None:
        async with Receiver() as receiver:
            poster = Poster(receiver.url.replace("http:", "https:"), SecretKey(SECRET), 5.0)
            with pytest.raises(NotArrived):
                await poster.post("m-1", b"{}")
            await poster.close()
            assert receiver.bodies == []

    run(main())


# ---- proof -----------------------------------------------------------------------------------------------------------


@proves("8.child.3")
def test_the_signature_is_that_of_the_standard_webhooks_convention() -> None:
    raw = b"0123456789abcdef0123456789abcdef"
    secret = "whsec_" + base64.b64encode(raw).decode()
    body = b'{"a":1}'
    expected = base64.b64encode(hmac.new(raw, b"m-1.1800000000." + body, hashlib.sha256).digest()).decode()
    assert sign(secret, "m-1", AT + 0.9, body) == {
        "webhook-id": "m-1",
        "webhook-timestamp": "1800000000",
        "webhook-signature": f"v1,{expected}",
    }


@proves("8.child.3")
@given(st.text(max_size=40), st.binary(max_size=60), st.floats(-300, 299))
def test_what_was_signed_is_verified_within_five_minutes(message_id: str, body: bytes, off_s: float) -> None:
    headers = sign(SECRET, f"m{message_id}", AT, body)
    assert verify(SECRET, headers, body, AT + off_s) == wire_id(f"m{message_id}")


Change = Callable[[dict[str, str]], dict[str, str]]
CHANGED: dict[str, tuple[Change, bytes, float, str]] = {
    "another body": (lambda h: h, b'{"a":2}', 0.0, "signature is wrong"),
    "another id": (lambda h: h | {"webhook-id": "m-2"}, b'{"a":1}', 0.0, "signature is wrong"),
    "another time": (lambda h: h | {"webhook-timestamp": "1800000001"}, b'{"a":1}', 0.0, "signature is wrong"),
    "no signature": (lambda h: h | {"webhook-signature": ""}, b'{"a":1}', 0.0, "signature is wrong"),
    "another version": (
        lambda h: h | {"webhook-signature": "v2" + h["webhook-signature"][2:]},
        b'{"a":1}',
        0.0,
        "signature is wrong",
    ),
    "strange letters": (lambda h: h | {"webhook-signature": "v1,é\ud800"}, b'{"a":1}', 0.0, "signature is wrong"),
    "too late": (lambda h: h, b'{"a":1}', 301.0, "time is more than 5 minutes off"),
    "too early": (lambda h: h, b'{"a":1}', -301.0, "time is more than 5 minutes off"),
    "no id": (lambda h: h | {"webhook-id": ""}, b'{"a":1}', 0.0, "webhook is not signed"),
    "no time": (lambda h: h | {"webhook-timestamp": "soon"}, b'{"a":1}', 0.0, "webhook is not signed"),
    "a time beyond reason": (lambda h: h | {"webhook-timestamp": "9" * 400}, b'{"a":1}', 0.0, "webhook is not signed"),
    "a dot in the id": (lambda h: h | {"webhook-id": "m-1.1800000000"}, b'{"a":1}', 0.0, "webhook is not signed"),
    "no headers": (lambda h: {}, b'{"a":1}', 0.0, "webhook is not signed"),
}


@proves("8.child.3", "Webhooks are signed: HMAC over timestamp, id and body, ±5 min")
@pytest.mark.parametrize("name", CHANGED)
def test_whatever_was_changed_is_refused(name: str) -> None:
    change, body, off_s, words = CHANGED[name]
    with pytest.raises(Refused, match=words) as refused:
        verify(SECRET, change(sign(SECRET, "m-1", AT, b'{"a":1}')), body, AT + off_s)
    assert refused.value.status == "forbidden"


def test_another_secret_is_refused() -> None:
    with pytest.raises(Refused, match="signature is wrong"):
        verify("another-secret-altogether", sign(SECRET, "m-1", AT, b""), b"", AT)


def test_while_a_secret_is_changed_one_fitting_signature_of_several_is_enough_and_headers_may_be_spelled_anyhow() -> (
    None
):
    old, new = sign("the-old-secret-of-last-year", "m-1", AT, b"x"), sign(SECRET, "m-1", AT, b"x")
    both = new | {"webhook-signature": f"{old['webhook-signature']} {new['webhook-signature']}"}
    assert verify(SECRET, {name.title(): value for name, value in both.items()}, b"x", AT) == "m-1"


@pytest.mark.parametrize(
    ("secret", "words"),
    [("", "at least 16"), ("short", "at least 16"), ("whsec_c2hvcnQ=", "at least 16"), ("whsec_*", "base64")],
)
def test_a_weak_secret_is_refused_without_being_shown(secret: str, words: str) -> None:
    for act in (
        lambda: sign(secret, "m", AT, b""),
        lambda: verify(secret, {}, b"", AT),
        lambda: Poster("", SecretKey(secret), 1.0),
    ):
        with pytest.raises(BadInput, match=words) as refused:
            act()
        assert not secret or secret not in str(refused.value)


# ---- what comes in ---------------------------------------------------------------------------------------------------


def test_a_message_is_read_and_anything_else_is_refused() -> None:
    body = b'{"sender":"ann","text":"hello","thread":"t-1"}'
    assert read_incoming(body) == Incoming(sender="ann", text="hello", thread="t-1")
    wrong = {
        b"": "body: must be JSON: {sender, text, thread?}",
        b"\xff": "body: must be JSON: {sender, text, thread?}",
        b"[" * 100_000: "body: must be JSON: {sender, text, thread?}",
        b"[]": "body: must be an object (got [])",
        b'{"sender":"ann"}': "text: is required: text",
        b'{"sender":"ann","text":7}': "text: must be text (got 7)",
        b'{"sender":"a","text":"b","x":1}': "x: is not a parameter",
    }
    for body, told in wrong.items():
        with pytest.raises(BadInput, match=f"^{re.escape(told)}$"):
            read_incoming(body)
