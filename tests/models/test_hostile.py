"""Whatever a service answers, a reply ends with one event: nothing hangs, nothing is raised, nothing leaks."""

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fledge.models.base import Broke, ModelEvent, ReplyEnded
from fledge.models.http import HttpLimits
from fledge.models.keys import SecretKey
from fledge.models.openai import OpenAIModel
from tests.models.asking import ANTHROPIC, OPENAI, RESPONSES, Protocol, ask, broke_of, run, service, text_of
from tests.models.raw_server import RawServer, Request, chunked, saying


def streamed(*events: bytes) -> bytes:
    """An answer that streams these events."""
    return chunked(*events).replace(b"\r\n", b"\r\nContent-Type: text/event-stream\r\n", 1)


GOOD = streamed(
    b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n',
    b'data: {"choices":[{"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
ANSWERS: list[tuple[Protocol, bytes]] = [
    (OPENAI, GOOD),
    (
        RESPONSES,
        streamed(
            b'data: {"type":"response.output_text.delta","output_index":0,"delta":"hi"}\n\n',
            b'data: {"type":"response.output_item.done","output_index":1,"item":{"type":"reasoning","id":"rs_1",'
            b'"encrypted_content":"e","summary":[{"type":"summary_text","text":"hm"}]}}\n\n',
            b'data: {"type":"response.completed","response":{"model":"m"}}\n\n',
        ),
    ),
    (
        ANTHROPIC,
        streamed(
            b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hi"}}\n\n',
            b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n',
            b'data: {"type":"message_stop"}\n\n',
        ),
    ),
]
each = pytest.mark.parametrize(("protocol", "good"), ANSWERS, ids=[protocol.name for protocol, _ in ANSWERS])
IMPATIENT = HttpLimits(connect_s=5.0, request_s=5.0, idle_s=5.0)


async def answered(protocol: Protocol, raw: bytes, cut: int) -> list[ModelEvent]:
    """The events of a reply that came as these bytes, in two writes, before the service closed."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw[:cut])
        await asyncio.sleep(0)
        writer.write(raw[cut:])
        writer.close()

    async with RawServer(script) as server:
        model = protocol.adapter(service(server.url), SecretKey("none"), limits=IMPATIENT)
        events = await ask(model)
        await model.close()
        await server.no_connections()
        return list(events)


def told(part: str) -> dict[str, bytes]:
    """A piece of text, as the JSON of each protocol has it."""
    return {
        OPENAI.name: f'data: {{"choices":[{{"delta":{{"content":"{part}"}}}}]}}\n\n'.encode(),
        RESPONSES.name: f'data: {{"type":"response.output_text.delta","output_index":0,"delta":"{part}"}}\n\n'.encode(),
        ANTHROPIC.name: b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
        + f'"text":"{part}"}}}}\n\n'.encode(),
    }


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["a\\ud83d", "\\ude00b"], "a😀b"),
        (["\\uD83D", "", "\\uDE00\\ud83d", "\\ude00"], "😀😀"),
        (["a\\ud83d\\ude00b"], "a😀b"),
        (["a\\ud83db\\ude00c"], "a�b�c"),
        (["a\\ud83d", "b", "c\\ud83d"], "abc�"),
        (["\\\\ud83d", '\\u00e9\\"'], '\\ud83dé"'),
    ],
)
@each
def test_a_character_that_a_stream_cuts_in_two_arrives_whole(
    protocol: Protocol, good: bytes, parts: list[str], text: str
) -> None:
    first, *end = re.findall(rb"data: .*\n\n", good.replace(b'"hi"', b'""'))
    raw = streamed(first, *(told(part)[protocol.name] for part in parts), *end)
    assert text_of(run(answered(protocol, raw, 0))) == text


@each
def test_the_answer_that_is_damaged_below_is_good(protocol: Protocol, good: bytes) -> None:
    assert run(answered(protocol, good, 0))[-1] == ReplyEnded("end", "m")


@each
@settings(max_examples=100)
@given(data=st.data())
def test_a_damaged_answer_ends_the_reply(protocol: Protocol, good: bytes, data: st.DataObject) -> None:
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.one_of(
                st.binary(max_size=4), st.sampled_from([b"\r\n", b"\r\n\r\n", b"0\r\n\r\n", b"ffffff\r\n", b"data:"])
            )
        )
        raw = raw or bytearray(b"\r\n")
    last = run(answered(protocol, bytes(raw), data.draw(st.integers(0, len(raw)))))[-1]
    assert isinstance(last, ReplyEnded) or (isinstance(last, Broke) and last.trouble != "auth")


@settings(max_examples=50)
@given(st.binary(max_size=2000))
def test_noise_ends_the_reply(noise: bytes) -> None:
    last = run(answered(OPENAI, noise, len(noise) // 2))[-1]
    assert isinstance(last, Broke)
    assert last.trouble == "retryable"


@pytest.mark.parametrize(
    ("answer", "broke"),
    [
        (b"SSH-2.0-x\r\n", Broke("retryable", "the answer is not HTTP/1.1")),
        (
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
            Broke("retryable", "the answer is not HTTP/1.1"),
        ),
        (GOOD.replace(b"\r\n\r\n", b"\r\n\r\nx", 1), Broke("retryable", "the answer is not HTTP/1.1")),
        # It could end in two places.
        (GOOD.replace(b"\r\n", b"\r\nContent-Length: 5\r\n", 1), Broke("retryable", "the answer is not HTTP/1.1")),
        (
            GOOD.replace(b"\r\n", b"\r\nContent-Encoding: gzip\r\n", 1),
            Broke("bad_request", "the answer came compressed (gzip), which was not asked for", None, 200),
        ),
        (
            b"HTTP/1.1 503 Busy\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\n\x01\x02\x03",
            Broke("retryable", "HTTP 503", None, 503),
        ),
    ],
)
def test_what_is_wrong_with_an_answer_is_told_while_the_service_still_waits(answer: bytes, broke: Broke) -> None:
    async def main() -> None:
        async with RawServer(saying(answer)) as server:
            model = OpenAIModel(service(server.url), SecretKey("none"), limits=IMPATIENT)
            assert (await ask(model))[-1] == broke
            await model.close()
            await server.no_connections()

    run(main())


def test_a_key_that_no_header_can_carry_is_refused_before_anything_is_sent() -> None:
    async def main() -> None:
        async with RawServer(saying(GOOD)) as server:
            model = OpenAIModel(service(server.url), SecretKey("secret\r\nX-Evil: 1"), limits=IMPATIENT)
            broke = broke_of(await ask(model))
            assert broke.trouble == "bad_request"
            assert "Authorization" in broke.message
            assert "secret" not in broke.message
            assert server.requests == []
            await model.close()

    run(main())


def test_a_service_that_closed_meanwhile_is_asked_again_without_anybody_noticing() -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.number:
            writer.close()
        else:
            writer.write(GOOD)

    async def main() -> None:
        async with RawServer(script) as server:
            model = OpenAIModel(service(server.url), SecretKey("none"), limits=IMPATIENT)
            assert [text_of(await ask(model)) for _ in range(3)] == ["hi"] * 3
            assert [request.connection for request in server.requests] == [0, 0, 1, 1, 2]
            await model.close()

    run(main())
