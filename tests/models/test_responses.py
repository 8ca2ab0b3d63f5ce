"""The responses adapter against the strict server: what is sent, and what is made of what comes back."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    ModelEvent,
    ModelMessage,
    Opaque,
    ReplyEnded,
    Request,
    StopReason,
    Text,
    Thinking,
    Thought,
    ToolMessage,
    Usage,
    UserMessage,
)
from fledge.models.catalog import Card, shipped
from fledge.models.keys import SecretKey
from fledge.models.responses import ResponsesModel
from fledge.models.scripted import ScriptedReply
from tests.models.asking import (
    HELLO,
    NOWHERE,
    READ,
    RESPONSES,
    answered,
    ask,
    broke_of,
    calls_of,
    opaque_of,
    run,
    service,
    text_of,
    thinking_of,
    usage_of,
)
from tests.models.responses_server import ResponsesServer, event
from tests.models.serving import KEY, Answer, Send
from tests.statements import proves

MODEL = "gpt-5.6-terra"
CALL = Call("call_a", "read", '{"path":"x"}')
GPT = ResponsesModel(service(NOWHERE), None)
"""An adapter that knows no model."""
THINK = Request(model=MODEL, messages=(UserMessage("hello"),), tools=(READ,), thinking="low")


def client_of(server: ResponsesServer) -> ResponsesModel:
    """An adapter that knows OpenAI's models."""
    return ResponsesModel(service(server.base_url), SecretKey(KEY), card=lambda name: shipped().find(f"openai/{name}"))


async def talked(script: Sequence[Answer], requests: Sequence[Request]) -> tuple[list[list[ModelEvent]], list[Any]]:
    """The replies to these requests, and the bodies that the server accepted; it rejected none."""
    async with ResponsesServer(script) as server:
        client = client_of(server)
        replies = [await ask(client, request) for request in requests]
        await client.close()
        assert server.complaints == []
        return replies, server.bodies


async def heard(events: Sequence[bytes], request: Request = HELLO) -> list[ModelEvent]:
    """What the adapter makes of these events."""
    async with ResponsesServer([[Send(event) for event in events]]) as server:
        model = RESPONSES.model(server)
        try:
            return await ask(model, request)
        finally:
            await model.close()


def said(delta: str, place: int = 0, kind: str = "output_text") -> bytes:
    return event(f"response.{kind}.delta", output_index=place, content_index=0, delta=delta)


def thought(delta: str, place: int = 0, part: int = 0, kind: str = "reasoning_summary_text") -> bytes:
    return event(f"response.{kind}.delta", output_index=place, summary_index=part, delta=delta)


def done(place: int, type: str, **fields: Any) -> bytes:
    return event("response.output_item.done", output_index=place, item={"type": type, **fields})


def called(place: int, id: str | None, name: str | None, arguments: str | None) -> bytes:
    return done(place, "function_call", call_id=id, name=name, arguments=arguments, id=f"fc_{place}")


def reasoned(place: int, encrypted: str | None, *summary: str) -> bytes:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return done(place, "reasoning", id=f"rs_{place}", summary=parts, encrypted_content=encrypted)


def finished(**response: Any) -> bytes:
    return event("response.completed", response={"status": "completed", **response})


def cut_short(reason: str | None) -> bytes:
    details = {"incomplete_details": None if reason is None else {"reason": reason}}
    return event("response.incomplete", response={"status": "incomplete", **details})


# ---- what is sent ----------------------------------------------------------------------------------------------------


def test_a_reply_arrives_whole_with_thinking_calls_usage_and_the_model_that_answered() -> None:
    reply = ScriptedReply(
        text="Grüße aus 東京 🎈",
        thinking="first, think\n\nthen think again",
        calls=(Call("a", "read", '{"path":"x"}'), Call("b", "read", '{"path":"ü"}')),
        usage=Usage(100, 20, 30, 4, 12),
    )
    [events], [body] = run(talked([reply], [THINK]))
    assert text_of(events) == reply.text
    assert thinking_of(events) == reply.thinking
    assert tuple(calls_of(events)) == reply.calls
    assert events[-2:] == [Usage(100, 20, 30, 4, 12), ReplyEnded("tools", f"{MODEL}-2026-01-01")]
    assert [type(event) for event in events].count(Opaque) == 1
    assert (body["stream"], body["store"]) == (True, False)
    assert body["tools"][0]["strict"] is False
    assert body["include"] == ["reasoning.encrypted_content"]


def test_a_whole_conversation_is_accepted_by_the_strict_server() -> None:
    messages: tuple[ModelMessage, ...] = (
        UserMessage("do two things"),
        AssistantMessage("Well.", (Call("x", "read", '{"path":"a"}'), Call("y", "read", "")), "thought", "signed"),
        ToolMessage("x", "read", "content"),
        ToolMessage("y", "read", "", is_error=True),
        AssistantMessage("", (Call("x", "read", "{broken"),)),
        ToolMessage("x", "read", "no"),
        AssistantMessage(""),
        UserMessage(""),
    )
    request = Request(model="gpt-4.1", system="be brief", messages=messages, tools=(READ,))
    [events], [body] = run(talked([ScriptedReply("ok")], [request]))
    assert events[-1] == ReplyEnded("end", "gpt-4.1-2026-01-01")
    assert body["instructions"] == "be brief"
    assert body["max_output_tokens"] == 8192
    assert "reasoning" not in body
    assert "include" not in body
    items = body["input"]
    assert [item.get("role", item["type"]) for item in items] == [
        "user",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "function_call",
        "function_call_output",
        "assistant",
        "user",
    ]
    assert [items[2]["call_id"], items[3]["call_id"]] == ["x", "y"]
    assert items[3]["arguments"] == '{"invalid_json":""}'
    assert items[5]["output"] == "(no output)"
    assert items[6]["call_id"] == items[7]["call_id"] == "call_2"
    assert items[8]["content"][0]["text"] == items[9]["content"][0]["text"] == "(no text)"


@pytest.mark.parametrize(
    ("model", "thinking", "reasoning"),
    [
        (MODEL, "off", {"effort": "none"}),
        (MODEL, "minimal", {"effort": "low", "summary": "auto"}),
        (MODEL, "high", {"effort": "high", "summary": "auto"}),
        ("gpt-5", "off", {"effort": "minimal", "summary": "auto"}),
        ("o3", "medium", {"effort": "medium", "summary": "auto"}),
        ("gpt-4.1", "off", None),
    ],
)
def test_a_model_thinks_as_hard_as_it_is_asked_to_with_tools_too(
    model: str, thinking: Thinking, reasoning: dict[str, str] | None
) -> None:
    _, [body] = run(talked([ScriptedReply("ok")], [msgspec.structs.replace(THINK, model=model, thinking=thinking)]))
    assert body.get("reasoning") == reasoning
    assert ("include" in body) is (reasoning is not None)


@pytest.mark.parametrize(("thinking", "reasoning"), [("off", None), ("high", {"effort": "high", "summary": "auto"})])
def test_a_model_without_a_card_is_asked_to_think_only_if_the_user_says_so(
    thinking: Thinking, reasoning: dict[str, str] | None
) -> None:
    request = msgspec.structs.replace(THINK, model="brand-new", thinking=thinking)
    assert GPT.body(request).get("reasoning") == reasoning


@pytest.mark.parametrize(
    ("thinking", "asked", "most"),
    [("off", 1, 16), ("off", 100, 100), ("low", 100, 2148), ("high", 8192, 24576), ("high", 30000, 30000)],
)
def test_the_token_limit_leaves_room_to_think_and_is_never_below_the_least(
    thinking: Thinking, asked: int, most: int
) -> None:
    request = msgspec.structs.replace(HELLO, thinking=thinking, max_tokens=asked)
    assert GPT.body(request)["max_output_tokens"] == most


def test_an_organization_that_gets_no_summaries_is_asked_again_without_them_and_never_again_with_them() -> None:
    async def main() -> None:
        async with ResponsesServer(
            [ScriptedReply("a", thinking="hm"), ScriptedReply("b"), ScriptedReply("c")]
        ) as server:
            server.verified = False
            client = client_of(server)
            texts = [text_of(await ask(client, THINK)) for _ in range(2)]
            await client.close()
        assert texts == ["a", "b"]
        assert server.complaints == ["Your organization must be verified to generate reasoning summaries."]
        assert [body["reasoning"] for body in server.bodies] == [{"effort": "low"}] * 2

    run(main())


# ---- reasoning, handed back ------------------------------------------------------------------------------------------


def after(events: Sequence[ModelEvent], request: Request = THINK) -> Request:
    """The next request of the turn: every call of the reply has its result."""
    reply = answered(events)
    results = [ToolMessage(call.id, call.name, "content") for call in reply.calls]
    follow_up: tuple[ModelMessage, ...] = tuple(results) or (UserMessage("more"),)
    return msgspec.structs.replace(request, messages=(*request.messages, reply, *follow_up))


def kinds(body: Any) -> list[str]:
    return [item["type"] for item in body["input"]]


@proves("0.crash.19")
def test_reasoning_is_handed_back_before_the_calls_it_led_to() -> None:
    async def main() -> None:
        first = ScriptedReply("Well.", (CALL, Call("call_b", "read", '{"path":"y"}')), "one\n\ntwo")
        async with ResponsesServer([first, ScriptedReply("", (CALL,), "three"), ScriptedReply("done")]) as server:
            client = client_of(server)
            second = after(await ask(client, THINK))
            third = after(await ask(client, second), second)
            assert text_of(await ask(client, third)) == "done"
            await client.close()
        assert server.complaints == []
        body = server.bodies[2]
        assert kinds(body) == (
            ["message", "reasoning", "message", "function_call", "function_call"]
            + ["function_call_output"] * 2
            + ["reasoning", "function_call", "function_call_output"]
        )
        assert [part["text"] for part in body["input"][1]["summary"]] == ["one", "two"]
        assert body["input"][2]["phase"] == "commentary"

    run(main())


def test_items_keep_their_order_their_texts_and_their_phases() -> None:
    stream = [
        thought("one"),
        reasoned(0, "e0", "one"),
        said("I will ", 1),
        said("look.", 1),
        done(1, "message", phase="commentary"),
        reasoned(2, "e2"),
        called(3, "c1", "read", "{}"),
        thought("half", 4, 0),
        thought("whole", 4, 1),
        reasoned(4, "e4", "half", "whole"),
        said("Here: 🎈", 5),
        done(5, "message", phase="final_answer"),
        called(6, "c2", "read", '{"path":"p"}'),
        finished(),
    ]
    request = msgspec.structs.replace(HELLO, tools=(READ,))
    reply = answered(run(heard(stream, request)))
    assert (reply.text, reply.thinking) == ("I will look.\n\nHere: 🎈", "one\n\nhalf\n\nwhole")
    results = (ToolMessage("c1", "read", "1"), ToolMessage("c2", "read", "2"))
    body: Any = GPT.body(Request(model="m", messages=(UserMessage("x"), reply, *results)))
    text = {"type": "message", "role": "assistant"}
    assert body["input"][1:-2] == [
        {
            "type": "reasoning",
            "id": "rs_0",
            "summary": [{"type": "summary_text", "text": "one"}],
            "encrypted_content": "e0",
        },
        text | {"content": [{"type": "output_text", "text": "I will look."}], "phase": "commentary"},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "e2"},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
        {
            "type": "reasoning",
            "id": "rs_4",
            "summary": [{"type": "summary_text", "text": "half"}, {"type": "summary_text", "text": "whole"}],
            "encrypted_content": "e4",
        },
        text | {"content": [{"type": "output_text", "text": "Here: 🎈"}], "phase": "final_answer"},
        {"type": "function_call", "call_id": "c2", "name": "read", "arguments": '{"path":"p"}'},
    ]


@proves("0.crash.19")
@pytest.mark.parametrize(
    "change", ["nothing", "another model", "another provider", "other text", "a call less", "garbage", "other data"]
)
def test_reasoning_goes_to_its_model_alone_and_only_with_its_reply(change: str) -> None:
    [events], _ = run(talked([ScriptedReply("Well.", (CALL,), "hm")], [THINK]))
    request = after(events)
    reply = request.messages[1]
    assert isinstance(reply, AssistantMessage)
    changed = {
        "other text": msgspec.structs.replace(reply, text="Well"),
        "a call less": msgspec.structs.replace(reply, calls=()),
        "garbage": msgspec.structs.replace(reply, opaque="x"),
        "other data": msgspec.structs.replace(reply, opaque=reply.opaque.replace('"kind":"call"', '"kind":"fax"')),
    }.get(change, reply)
    model = "gpt-5.5" if change == "another model" else MODEL
    request = msgspec.structs.replace(request, model=model, messages=(UserMessage("hello"), changed, UserMessage("x")))
    body = ResponsesModel(
        service(NOWHERE, "elsewhere" if change == "another provider" else "openai"), None, card=lambda _: Card()
    ).body(request)
    assert ("reasoning" in kinds(body)) is (change == "nothing")
    assert "message" in kinds(body)


@proves("0.crash.19")
def test_another_model_takes_the_conversation_over_and_hands_it_back() -> None:
    async def main() -> None:
        script = [ScriptedReply("", (CALL,), "hm"), ScriptedReply("", (CALL,), "hmm"), ScriptedReply("done")]
        async with ResponsesServer(script) as server:
            client = client_of(server)
            second = msgspec.structs.replace(after(await ask(client, THINK)), model="gpt-5.4")
            third = msgspec.structs.replace(after(await ask(client, second), second), model=MODEL)
            assert text_of(await ask(client, third)) == "done"
            await client.close()
        assert server.complaints == []
        assert [kinds(body).count("reasoning") for body in server.bodies] == [0, 0, 1]
        assert kinds(server.bodies[2]).index("reasoning") == 1

    run(main())


def test_items_are_handed_back_by_their_places_and_reasoning_only_with_its_encrypted_content() -> None:
    stream = [
        reasoned(2, "e2"),
        reasoned(0, None, "hm"),
        called(3, "c", "read", "{}"),
        said("a", 1),
        done(1, "message"),
    ]
    reply = answered(run(heard([*stream, finished()])))
    messages = (UserMessage("x"), reply, ToolMessage("c", "read", "y"))
    body = GPT.body(Request(model="m", messages=messages))
    assert kinds(body) == ["message", "message", "reasoning", "function_call", "function_call_output"]


def test_reasoning_that_led_to_nothing_is_not_handed_back() -> None:
    reply = answered(run(heard([said("a"), done(0, "message"), reasoned(1, "e1"), finished()])))
    body = GPT.body(Request(model="m", messages=(UserMessage("x"), reply, UserMessage("y"))))
    assert kinds(body) == ["message"] * 3


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param([said("a"), done(0, "message"), finished()], id="nothing to hand back"),
        pytest.param(
            [reasoned(0, None, "hm"), said("a", 1), done(1, "message"), finished()], id="no encrypted content"
        ),
        pytest.param([reasoned(0, "e"), said("a", 1), cut_short("max_output_tokens")], id="cut short"),
        pytest.param([reasoned(0, "e"), said("no", 1, "refusal"), finished()], id="refused"),
    ],
)
def test_nothing_is_sealed_where_nothing_can_be_handed_back(stream: list[bytes]) -> None:
    assert opaque_of(run(heard(stream))) == ""


# ---- what comes back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "stop"),
    [
        (finished(), "end"),
        (cut_short("max_output_tokens"), "length"),
        (cut_short("content_filter"), "refused"),
        (cut_short("brand_new"), "length"),
        (cut_short(None), "length"),
    ],
)
def test_the_last_event_says_why_it_ended(last: bytes, stop: StopReason) -> None:
    assert run(heard([said("a"), done(0, "message"), last])) == [Text("a"), ReplyEnded(stop, "m")]


def test_a_refusal_is_told_as_text_and_as_the_reason() -> None:
    [events], _ = run(talked([ScriptedReply("I will not.", stop="refused")], [HELLO]))
    assert (text_of(events), events[-1]) == ("I will not.", ReplyEnded("refused", "m-2026-01-01"))


def test_thinking_is_read_under_both_names() -> None:
    stream = [thought("hm"), thought("so", 1, kind="reasoning_text"), thought("!", 1, kind="reasoning_text")]
    assert run(heard([*stream, finished()])) == [Thought("hm"), Thought("\n\nso"), Thought("!"), ReplyEnded("end", "m")]


@pytest.mark.parametrize(
    ("stream", "calls"),
    [
        pytest.param(
            [called(1, "b", "list", "{}"), called(0, "a", "read", "{}")],
            [Call("a", "read", "{}"), Call("b", "list", "{}")],
            id="out of order",
        ),
        pytest.param([called(0, None, "read", "{}")], [Call("call_0", "read", "{}")], id="no id"),
        pytest.param([called(0, "a", "read", None)], [Call("a", "read", "{}")], id="no arguments"),
        pytest.param([called(0, "a", "read", "{bad")], [Call("a", "read", "{bad")], id="broken arguments are told"),
        pytest.param(
            [called(0, "a", "read", "{}"), done(1, "web_search_call", id="ws_1")],
            [Call("a", "read", "{}")],
            id="an item that nobody asked for",
        ),
    ],
)
def test_calls_come_whole_and_in_their_order(stream: list[bytes], calls: list[Call]) -> None:
    assert run(heard([*stream, finished()])) == [*calls, ReplyEnded("tools", "m")]


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
def test_a_call_that_was_cut_off_by_the_limit_is_no_call(reason: str) -> None:
    item = {"type": "function_call", "call_id": "b", "name": "write", "arguments": ""}
    begun = event("response.output_item.added", output_index=1, item=item)
    for cut in ([called(1, "b", "write", '{"pa')], [begun], [begun, called(1, "b", "write", "")]):
        events = run(heard([called(0, "a", "read", "{}"), *cut, cut_short(reason)]))
        assert calls_of(events) == [Call("a", "read", "{}")]
        assert isinstance(events[-1], ReplyEnded)
        assert events[-1].dropped == "write"


def test_a_call_without_a_name_breaks_the_reply() -> None:
    broke = broke_of(run(heard([called(0, "a", None, "{}"), finished()])))
    assert (broke.trouble, broke.message) == ("interrupted", "a tool call without a name")


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"input_tokens": 10, "output_tokens": 2}, Usage(10, 2)),
        ({"input_tokens": 10, "input_tokens_details": None, "output_tokens_details": None}, Usage(10)),
        ({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 7}}, Usage(3, 0, 7)),
        (
            {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 2}},
            Usage(1, 0, 7, 2),
        ),
        ({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 7}}, Usage(0, 0, 7)),
        ({"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 4}}, Usage(0, 9, 0, 0, 4)),
        ({}, Usage()),
    ],
)
def test_usage_does_not_count_what_the_cache_served_twice(usage: dict[str, Any], counted: Usage) -> None:
    assert usage_of(run(heard([said("a"), finished(usage=usage)]))) == [counted]


def test_usage_of_a_reply_that_was_cut_short_counts() -> None:
    [events], _ = run(talked([ScriptedReply("a", usage=Usage(3, 4), stop="length")], [HELLO]))
    assert events[-2:] == [Usage(3, 4), ReplyEnded("length", "m-2026-01-01")]


def test_what_is_unknown_is_passed_over() -> None:
    stream = [
        event("response.created", response={"model": "m", "tools": [{"type": "brand_new"}]}),
        event("response.brand_new", thing=[1], output_index=7),
        event("response.output_text.annotation.added", output_index=0, annotation={}),
        said(""),
        said("a"),
        event("response.output_item.done", output_index=0),
        finished(model="real", more={"x": 1}),
        b"data: [DONE]\n\n",
    ]
    assert run(heard(stream)) == [Text("a"), ReplyEnded("end", "real")]


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        ({"code": "rate_limit_exceeded", "message": "why"}, "retryable"),
        ({"code": "server_error", "message": "why"}, "retryable"),
        ({"code": "insufficient_quota", "message": "why"}, "quota"),
        ({"code": "context_length_exceeded", "message": "why"}, "overflow"),
        ({"code": "invalid_prompt", "message": "why"}, "refused"),
        ({"code": "bio_policy", "message": "why"}, "refused"),
        ({"code": "misalignment_policy_violation", "message": "why"}, "refused"),
        ({"code": 503, "message": "why"}, "retryable"),
        ({"code": 401, "message": "why"}, "auth"),
        ({"code": None, "message": "why", "type": "service_unavailable_error"}, "retryable"),
        ({"code": None, "message": "why", "type": "invalid_request_error"}, "bad_request"),
    ],
)
@pytest.mark.parametrize("shape", ["failed", "nested", "flat"])
def test_an_error_in_the_stream_breaks_it(shape: str, error: dict[str, Any], trouble: str) -> None:
    if shape == "failed":
        last = event("response.failed", response={"status": "failed", "error": error})
    elif shape == "nested":
        last = event("error", error=error)
    else:
        last = event("error", **{name: value for name, value in error.items() if name != "type"})
        trouble = "retryable" if trouble == "bad_request" else trouble
    broke = broke_of(run(heard([said("a"), last, finished()])))
    assert (broke.trouble, broke.message) == (trouble, "error in the stream: why")


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (event("error"), "no reason given"),
        (event("response.failed", response={"status": "failed", "error": None}), "no reason given"),
        (event("response.failed"), "no reason given"),
        (event("error", code="server_error"), "server_error"),
    ],
)
def test_an_error_without_words_still_breaks_it(last: bytes, words: str) -> None:
    assert broke_of(run(heard([said("a"), last]))) == Broke("retryable", f"error in the stream: {words}")


def test_a_missing_key_is_told_without_asking_anybody() -> None:
    async def main() -> list[ModelEvent]:
        return await ask(ResponsesModel(service("http://model.example/v1"), None))

    words = "no key: set OPENAI_API_KEY, or OPENAI_API_KEY_FILE to a file that only you can read"
    assert run(main()) == [Broke("auth", words)]


def test_a_service_that_asks_for_no_key_gets_none() -> None:
    async def main() -> None:
        async with ResponsesServer([ScriptedReply("hi")], key=None) as server:
            model = ResponsesModel(service(server.base_url + "/"), None)
            assert text_of(await ask(model)) == "hi"
            await model.close()
            assert "authorization" not in server.headers[0]

    run(main())


def test_words_that_utf8_cannot_hold_do_not_stop_a_request() -> None:
    messages = (
        UserMessage("a\ud800b"),
        AssistantMessage("", (Call("1", "read", "\udfff"),)),
        ToolMessage("1", "read", "\udcff"),
    )
    _, [body] = run(talked([ScriptedReply("ok")], [Request(model="m", messages=messages)]))
    assert body["input"][0]["content"][0]["text"] == "a?b"
