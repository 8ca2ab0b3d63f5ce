"""Trouble between us and a provider, for all protocols: no lost text, no doubled call, no connection left behind."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest

from fledge.clock import SystemClock
from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    Model,
    ModelEvent,
    ProviderErrorKind,
    ReplyEnded,
    Text,
    ToolMessage,
    UserMessage,
)
from fledge.models.http import HttpLimits
from fledge.models.keys import SecretKey
from fledge.models.scripted import ScriptedReply
from tests.models import anthropic_server, openai_server, responses_server
from tests.models.asking import (
    HELLO,
    OPENAI,
    PROTOCOLS,
    READ,
    RESPONSES,
    Protocol,
    ask,
    broke_of,
    calls_of,
    run,
    service,
    text_of,
)
from tests.models.serving import Action, Cut, Hang, Raw, Send, Status, Wait
from tests.statements import proves

each = pytest.mark.parametrize("protocol", PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
WHOLE_CALL = Call("c", "read", '{"a":"é"}')


def small(protocol: Protocol) -> list[bytes]:
    """A small reply with words, a call and usage; the chunk before the last says that it is finished."""
    if protocol is OPENAI:
        calls = [{"index": 0, "id": "c", "function": {"name": "read", "arguments": '{"a":'}}]
        more = [{"index": 0, "function": {"arguments": '"é"}'}}]
        deltas: list[dict[str, Any]] = [{"content": "zwölf"}, {"tool_calls": calls}, {"tool_calls": more}]
        events: list[dict[str, Any]] = [{"choices": [{"delta": delta}]} for delta in deltas]
        events.append({"choices": [{"finish_reason": "tool_calls"}]})
        return [openai_server.event(event) for event in events] + [b"data: [DONE]\n\n"]
    if protocol is RESPONSES:
        respond = responses_server.event
        call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "read", "arguments": '{"a":"é"}'}
        return [
            respond("response.output_item.added", output_index=0, item={"type": "message", "id": "msg_1"}),
            respond("response.output_text.delta", output_index=0, content_index=0, delta="zwölf"),
            respond("response.output_item.done", output_index=0, item={"type": "message", "id": "msg_1"}),
            respond("response.function_call_arguments.delta", output_index=1, delta='{"a":'),
            respond("response.output_item.done", output_index=1, item=call),
            respond("response.completed", response={"status": "completed"}),
            # OpenAI does not send this; some compatible servers do.
            b"data: [DONE]\n\n",
        ]
    event = anthropic_server.event
    begun = {"type": "tool_use", "id": "c", "name": "read", "input": {}}
    return [
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "zwölf"}),
        event("content_block_start", index=1, content_block=begun),
        event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": '{"a":"é"}'}),
        event("message_delta", delta={"stop_reason": "tool_use"}),
        event("message_stop"),
    ]


@each
@pytest.mark.parametrize("framing", ["chunked", "until it closes"])
def test_a_stream_cut_at_any_byte_is_broken_or_whole_and_never_between(protocol: Protocol, framing: str) -> None:
    chunks = small(protocol)
    stream = b"".join(chunks)
    whole_from = len(b"".join(chunks[:-1]))

    def script(body: dict[str, Any]) -> list[Action]:
        offset = int(body["model"])
        sent = Send(stream[:offset]) if framing == "chunked" else Raw(HEAD + stream[:offset])
        return [sent, Cut()]

    async def main() -> None:
        async with protocol.talk(script) as (server, model):
            for first in range(0, len(stream) + 1, 32):
                offsets = range(first, min(first + 32, len(stream) + 1))
                requests = [msgspec.structs.replace(HELLO, model=str(offset)) for offset in offsets]
                for offset, events in zip(
                    offsets, await asyncio.gather(*(ask(model, r) for r in requests)), strict=True
                ):
                    if offset >= whole_from:
                        assert text_of(events) == "zwölf", offset
                        assert calls_of(events) == [WHOLE_CALL], offset
                        assert events[-1] == ReplyEnded("tools", str(offset)), offset
                    else:
                        assert broke_of(events).trouble == "interrupted", offset
                        assert text_of(events) in ("", "zwölf"), offset
                        assert calls_of(events) == [], offset
            await server.no_connections()

    run(main())


@each
def test_lines_and_letters_may_be_cut_anywhere(protocol: Protocol) -> None:
    async def main() -> None:
        async with protocol.talk([[Send(bytes([byte])) for byte in b"".join(small(protocol))]]) as (_, model):
            events = await ask(model)
        assert text_of(events) == "zwölf"
        assert calls_of(events) == [WHOLE_CALL]

    run(main())


@each
def test_words_arrive_while_the_rest_is_still_to_come(protocol: Protocol) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        chunks = small(protocol)
        script: list[list[Action]] = [
            [*(Send(chunk) for chunk in chunks[:2]), Wait(gate), *(Send(chunk) for chunk in chunks[2:])]
        ]
        async with protocol.talk(script) as (_, model):
            events = model.stream(HELLO)
            assert await anext(events) == Text("zwölf")
            assert not gate.is_set()
            gate.set()
            assert [event async for event in events] == [WHOLE_CALL, ReplyEnded("tools", "m")]

    run(main())


@each
@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_a_stream_left_early_leaves_no_connection(protocol: Protocol, how: str) -> None:
    async def main() -> None:
        async with protocol.talk([[*(Send(chunk) for chunk in small(protocol)[:2]), Hang()]]) as (server, model):
            events = cast(AsyncGenerator[ModelEvent, None], model.stream(HELLO))
            assert await anext(events) == Text("zwölf")
            assert server.connections == 1
            if how == "closed":
                await events.aclose()
            else:
                waiting = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await server.no_connections()

    run(main())


@each
def test_cancelled_before_an_answer_leaves_no_connection(protocol: Protocol) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        def script(body: dict[str, Any]) -> list[Action]:
            asked.set()
            return [Hang()]

        async with protocol.talk(script) as (server, model):
            waiting = asyncio.ensure_future(ask(model))
            await asked.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await server.no_connections()

    run(main())


@each
def test_a_connection_serves_one_request_after_another(protocol: Protocol) -> None:
    async def main() -> None:
        async with protocol.talk([ScriptedReply("a"), ScriptedReply("b")]) as (server, model):
            assert [text_of(await ask(model)), text_of(await ask(model))] == ["a", "b"]
            assert server.peers[0] == server.peers[1]
            await model.close()
            await server.no_connections()

    run(main())


@each
def test_a_service_that_does_not_hang_up_does_not_hold_the_reply(protocol: Protocol) -> None:
    async def main() -> None:
        async with protocol.talk([[*(Send(chunk) for chunk in small(protocol)), Hang()]]) as (server, model):
            assert calls_of(await ask(model)) == [WHOLE_CALL]
            await server.no_connections()

    run(main())


@each
@pytest.mark.parametrize("begun", [0, 2])
@pytest.mark.parametrize("limits", [HttpLimits(idle_s=0.3), HttpLimits(request_s=0.3)])
def test_silence_ends_in_time(protocol: Protocol, begun: int, limits: HttpLimits) -> None:
    async def main() -> None:
        script: list[list[Action]] = [[*(Send(chunk) for chunk in small(protocol)[:begun]), Hang()]]
        async with protocol.talk(script, limits) as (server, model):
            broke = broke_of(await ask(model))
            assert broke.trouble == ("interrupted" if begun else "retryable")
            assert broke.message.startswith("no answer in time")
            await server.no_connections()

    run(main())


@each
def test_silence_after_the_finish_is_no_trouble(protocol: Protocol) -> None:
    async def main() -> None:
        script: list[list[Action]] = [[*(Send(chunk) for chunk in small(protocol)[:-1]), Hang()]]
        async with protocol.talk(script, HttpLimits(idle_s=0.3)) as (_, model):
            assert (await ask(model))[-1] == ReplyEnded("tools", "m")

    run(main())


@each
def test_nobody_at_the_address_is_retryable(protocol: Protocol) -> None:
    async def main() -> None:
        async with protocol.serve([]) as server:
            model = protocol.model(server)
        assert broke_of(await ask(model)).trouble == "retryable"
        await model.close()

    run(main())


@each
@pytest.mark.parametrize(
    "chunk",
    [
        b"data: {\n\n",
        b"data: nonsense\n\n",
        b"data: []\n\n",
        b'data: {"choices": 3, "type": 4}\n\n',
        b'data: {"choices": [{"delta": {"content": 5}}], "type": "content_block_delta", "index": "x", "item": 1}\n\n',
        b'data: {"model": "\xff\xfe", "type": "\xff"}\n\n',
    ],
)
def test_a_malformed_chunk_breaks_the_reply(protocol: Protocol, chunk: bytes) -> None:
    async def main() -> None:
        chunks = small(protocol)
        async with protocol.talk([[Send(b"".join(chunks[:2]) + chunk + b"".join(chunks[2:]))]]) as (_, model):
            events = await ask(model)
        broke = broke_of(events)
        assert broke.trouble == "interrupted"
        assert broke.message.startswith("malformed chunk: ")
        assert calls_of(events) == []

    run(main())


@each
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (HttpLimits(max_event_bytes=1000), "one event of the reply has more than 1000 bytes"),
        (HttpLimits(max_reply_bytes=1000), "the reply has more than 1000 bytes"),
    ],
)
@pytest.mark.parametrize("flood", [b"data: " + b"x" * 5000, b"x" * 5000, b"data: 1\n" * 600])
def test_a_flood_is_refused(protocol: Protocol, limits: HttpLimits, words: str, flood: bytes) -> None:
    if limits.max_event_bytes == 1000 and flood.endswith(b"\n"):
        flood = b"data: 1234567\n" * 600

    async def main() -> None:
        async with protocol.talk([[Send(flood), Hang()]], limits) as (server, model):
            assert broke_of(await ask(model)) == Broke("interrupted", words)
            await server.no_connections()

    run(main())


@each
@pytest.mark.parametrize("name", ["multi_tool_use.parallel", "read file", "lês", "x" * 200, "", "\ud800"])
def test_a_call_by_an_impossible_name_does_not_end_the_conversation(protocol: Protocol, name: str) -> None:
    messages = (
        UserMessage("go"),
        AssistantMessage("", (Call("c", name, "{}"),)),
        ToolMessage("c", name, "no such tool"),
    )

    async def main() -> None:
        async with protocol.talk([ScriptedReply("I see")]) as (server, model):
            assert (
                text_of(await ask(model, msgspec.structs.replace(HELLO, messages=messages, tools=(READ,)))) == "I see"
            )
            assert server.complaints == []

    run(main())


# ---- statuses --------------------------------------------------------------------------------------------------------


def fault(message: str = "why", **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"message": message, **more}}


@each
@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (400, fault(), "bad_request"),
        (404, fault(), "bad_request"),
        (422, fault(), "bad_request"),
        (401, fault(), "auth"),
        (403, fault(), "auth"),
        (402, fault(), "quota"),
        (429, fault(code="insufficient_quota"), "quota"),
        (429, fault(type="insufficient_quota"), "quota"),
        (400, fault("Your credit balance is too low to access the API."), "quota"),
        (413, fault(), "overflow"),
        (400, fault(code="context_length_exceeded"), "overflow"),
        (400, fault("prompt is too long: 210000 tokens > 200000 maximum"), "overflow"),
        (400, fault("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"), "overflow"),
        (400, fault("This model's maximum context length is 8192 tokens."), "overflow"),
        (400, fault("the request exceeds the available context size"), "overflow"),
        (400, fault(code="content_policy_violation"), "refused"),
        (400, fault(code="content_filter"), "refused"),
        (403, fault("Your input was flagged"), "refused"),
        (408, fault(), "retryable"),
        (409, fault(), "retryable"),
        (429, fault(), "retryable"),
        (500, fault(), "retryable"),
        (502, fault(), "retryable"),
        (503, fault("maximum context length is a word here"), "retryable"),
        (529, fault(type="overloaded_error"), "retryable"),
    ],
)
def test_a_status_is_a_kind_of_trouble(
    protocol: Protocol, status: int, body: dict[str, Any], trouble: ProviderErrorKind
) -> None:
    broke = run(refused(protocol, Status(status, body)))
    assert (broke.trouble, broke.status) == (trouble, status)
    assert broke.message == f"HTTP {status}: {body['error']['message']}"


async def refused(protocol: Protocol, status: Status) -> Broke:
    async with protocol.talk([[status]]) as (server, model):
        events = await ask(model)
        await model.close()
        await server.no_connections()
        assert len(events) == 1
        return broke_of(events)


@each
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "inf"}, None),
        ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_told(protocol: Protocol, headers: dict[str, str], seconds: float | None) -> None:
    broke = run(refused(protocol, Status(429, fault(), headers)))
    assert (broke.trouble, broke.retry_after_s) == ("retryable", seconds)


class At(SystemClock):
    """A clock that stands still."""

    def now(self) -> float:
        return 1_800_000_000.0


@each
def test_a_date_to_wait_for_is_told_in_seconds(protocol: Protocol) -> None:
    async def main() -> None:
        headers = {"Retry-After": "Fri, 15 Jan 2027 08:01:30 GMT"}
        async with protocol.serve([[Status(503, fault(), headers)]]) as server:
            model = protocol.adapter(service(server.base_url), SecretKey(str(server.key)), clock=At())
            assert broke_of(await ask(model)).retry_after_s == 90.0
            await model.close()

    run(main())


@each
@pytest.mark.parametrize(
    ("status", "trouble", "message"),
    [
        pytest.param(
            Status(502, b"<html><head><style>b{}</style></head><h1>Bad  Gateway</h1></html>", {}, "text/html"),
            "retryable",
            "HTTP 502: Bad Gateway",
            id="an error page",
        ),
        pytest.param(Status(503, b""), "retryable", "HTTP 503", id="nothing"),
        pytest.param(Status(500, b"\xff\x00{"), "retryable", "HTTP 500: \ufffd {", id="bytes"),
        pytest.param(
            Status(400, b'{"detail": "no such field"}'), "bad_request", "HTTP 400: no such field", id="detail"
        ),
        pytest.param(Status(400, b'{"error": "words"}'), "bad_request", "HTTP 400: words", id="words"),
        pytest.param(Status(400, b'{"error": {}}'), "bad_request", 'HTTP 400: {"error": {}}', id="an empty error"),
        pytest.param(
            Status(200, b"<html>Welcome!</html>", {}, "text/html"),
            "bad_request",
            "expected text/event-stream, got text/html; is base_url right? HTTP 200: Welcome!",
            id="a page",
        ),
        pytest.param(
            Status(200, b'{"error": {"message": "busy", "code": 503}}'),
            "retryable",
            "expected text/event-stream, got application/json; is base_url right? HTTP 503: busy",
            id="an error that says it is fine",
        ),
        pytest.param(
            Status(302, b"", {"Location": "http://127.0.0.1:1/"}),
            "bad_request",
            "HTTP 302 (a redirect; base_url is wrong)",
            id="a redirect",
        ),
    ],
)
def test_whatever_a_gateway_says_is_readable(protocol: Protocol, status: Status, trouble: str, message: str) -> None:
    broke = run(refused(protocol, status))
    assert (broke.trouble, broke.message, broke.status) == (trouble, message, status.code)


@each
def test_long_errors_are_cut(protocol: Protocol) -> None:
    broke = run(refused(protocol, Status(500, b"x" * 200_000, {}, "text/plain")))
    assert broke.message == "HTTP 500: " + "x" * 489 + "…"
    assert len(broke.message) == 500


@each
def test_an_error_body_that_is_cut_still_tells_its_status(protocol: Protocol) -> None:
    raw = b"HTTP/1.1 429 Slow\r\nContent-Length: 500\r\nRetry-After: 3\r\n\r\nslow do"

    async def main() -> None:
        async with protocol.talk([[Raw(raw), Cut()]]) as (_, model):
            assert broke_of(await ask(model)) == Broke("retryable", "HTTP 429: slow do", 3.0, 429)

    run(main())


@each
def test_cancelled_while_an_error_is_still_being_told_leaves_no_connection(protocol: Protocol) -> None:
    raw = b"HTTP/1.1 500 Oops\r\nContent-Length: 500\r\n\r\nbeginning"

    async def main() -> None:
        told = asyncio.Event()

        async def script(body: dict[str, Any]) -> list[Action]:
            asyncio.get_running_loop().call_later(0.1, told.set)
            return [Raw(raw), Hang()]

        async with protocol.talk(script) as (server, model):
            waiting = asyncio.ensure_future(ask(model))
            await told.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await server.no_connections()

    run(main())


# ---- keys ------------------------------------------------------------------------------------------------------------

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz"


@proves("8.child.5")
@each
@pytest.mark.parametrize(
    "words", [f"bad key {SECRET}.", f"Authorization: Bearer {SECRET}", "x" * 480 + SECRET, "other sk-ant-api03-zzzzzz"]
)
@pytest.mark.parametrize("place", ["status", "stream", "chunk"])
def test_a_key_is_never_repeated(protocol: Protocol, words: str, place: str) -> None:
    error = {"type": "error", "error": {"message": words, "type": "api_error"}}
    data = f"data: {json.dumps(error)}\n\n" if place == "stream" else f'data: {{"type": "{words}}}\n\n'
    actions: list[Action] = [Status(401, error)] if place == "status" else [Send(data.encode())]

    async def main() -> None:
        async with protocol.talk([actions], key=SECRET) as (_, model):
            broke = broke_of(await ask(model))
            assert "sk-" not in broke.message
            assert SECRET not in repr(model)
            assert len(broke.message) <= 500

    run(main())


@each
def test_a_wrong_key_is_told_as_such(protocol: Protocol) -> None:
    async def main() -> None:
        async with protocol.talk([]) as (server, _):
            wrong = protocol.model(server, key="wrong-key-0987654321")
            broke = broke_of(await ask(wrong))
            await wrong.close()
            assert (broke.trouble, broke.status) == ("auth", 401)
            assert "wrong-key" not in broke.message

    run(main())


@each
def test_a_model_can_be_used_again_after_it_was_closed_and_from_another_loop(protocol: Protocol) -> None:
    async def main(model: Model) -> None:
        assert text_of(await ask(model)) == "a"
        await model.close()
        await model.close()
        assert text_of(await ask(model)) == "a"
        await model.close()

    async def serving(loops: int) -> None:
        async with protocol.serve(lambda body: ScriptedReply("a")) as server:
            model = protocol.model(server)
            for _ in range(loops):
                await asyncio.to_thread(lambda: run(main(model)))

    run(serving(2))
