"""The messages adapter against the strict server: what is sent, and what is made of what comes back."""

import json
from typing import Any

import msgspec
import pytest

from fledge.models.anthropic import AnthropicModel
from fledge.models.base import (
    AssistantMessage,
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
from fledge.models.scripted import ScriptedReply
from fledge.models.transcript import BUDGETS
from tests.models.anthropic_server import AnthropicServer, event
from tests.models.asking import (
    ANTHROPIC,
    HELLO,
    NOWHERE,
    READ,
    answered,
    ask,
    broke_of,
    calls_of,
    run,
    service,
    text_of,
    thinking_of,
    usage_of,
)
from tests.models.serving import Send

BUDGETED = "claude-sonnet-4-5"
ADAPTIVE = "claude-opus-5"
CALL = Call("toolu_1", "read", '{"path":"x"}')
CLAUDE = AnthropicModel(service(NOWHERE, "anthropic"), None)


def start(index: int, kind: str, **more: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **more})


def delta(index: int, **more: Any) -> bytes:
    return event("content_block_delta", index=index, delta=more)


def finish(reason: str = "end_turn") -> list[bytes]:
    return [event("message_delta", delta={"stop_reason": reason}, usage={}), event("message_stop")]


async def heard(chunks: list[bytes], request: Request = HELLO) -> list[ModelEvent]:
    """What the adapter makes of these events."""
    async with AnthropicServer([[Send(chunk) for chunk in chunks]]) as server:
        model = ANTHROPIC.model(server)
        try:
            return await ask(model, request)
        finally:
            await model.close()


async def talked(replies: list[ScriptedReply], requests: list[Request]) -> tuple[list[list[ModelEvent]], list[Any]]:
    """What was answered to each request, and what was sent; nothing was rejected."""
    async with AnthropicServer(replies) as server:
        model = ANTHROPIC.model(server)
        events = [await ask(model, request) for request in requests]
        await model.close()
        assert server.complaints == []
        return events, server.bodies


def test_a_reply_arrives_whole_with_thinking_calls_usage_and_the_model_that_answered() -> None:
    reply = ScriptedReply(
        text="Grüße aus 東京 🎈",
        thinking="first, think",
        calls=(Call("a", "read", '{"path":"x"}'), Call("b", "read", "{}")),
        usage=Usage(100, 20, 30, 4),
    )
    [events], [body] = run(talked([reply], [msgspec.structs.replace(HELLO, tools=(READ,))]))
    assert text_of(events) == reply.text
    assert thinking_of(events) == reply.thinking
    assert tuple(calls_of(events)) == reply.calls
    assert events[-2:] == [Usage(100, 20, 30, 4), ReplyEnded("tools", "m-20260101")]
    assert body["tools"][0]["input_schema"] == READ.schema


def test_a_whole_conversation_is_accepted_by_the_strict_server() -> None:
    messages: tuple[ModelMessage, ...] = (
        AssistantMessage("I begin."),
        UserMessage("do"),
        UserMessage(" \n"),
        AssistantMessage("Well.", (Call("x.1", "read", '{"path":"a"}'), Call("y", "read", ""))),
        ToolMessage("x.1", "read", "content"),
        ToolMessage("y", "read", " ", is_error=True),
        UserMessage("and hurry"),
        AssistantMessage(" ", (Call("y", "read", "{broken"), Call("y", "read", "{}"))),
        ToolMessage("y", "read", "first"),
        ToolMessage("y", "read", "second"),
        AssistantMessage(""),
        UserMessage("thanks"),
    )
    request = Request(model="m", system="be brief", messages=messages, tools=(READ,), max_tokens=100)
    _, [body] = run(talked([ScriptedReply("ok")], [request]))
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body["max_tokens"] == 100
    assert body["system"] == [{"type": "text", "text": "be brief", **mark}]
    assert "thinking" not in body
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "(no text)"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I begin."}]},
        {"role": "user", "content": [{"type": "text", "text": "do"}, {"type": "text", "text": "(no text)"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Well."},
                {"type": "tool_use", "id": "call_0", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "y", "name": "read", "input": {"invalid_json": ""}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_0", "content": "content"},
                {"type": "tool_result", "tool_use_id": "y", "content": "(no output)", "is_error": True},
                {"type": "text", "text": "and hurry"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "call_2", "name": "read", "input": {"invalid_json": "{broken"}},
                {"type": "tool_use", "id": "call_3", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_2", "content": "first"},
                {"type": "tool_result", "tool_use_id": "call_3", "content": "second"},
                {"type": "text", "text": "thanks", **mark},
            ],
        },
    ]


def test_without_a_system_text_the_tools_are_marked_for_the_cache() -> None:
    request = msgspec.structs.replace(HELLO, tools=(READ,))
    assert "cache_control" in json.dumps(CLAUDE.body(request)["tools"])
    ends_with_assistant = msgspec.structs.replace(HELLO, messages=(UserMessage("a"), AssistantMessage("b")))
    assert "cache_control" not in json.dumps(CLAUDE.body(ends_with_assistant))


# ---- thinking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thinking", "asked", "budget", "most"),
    [
        ("off", 8192, None, 8192),
        ("minimal", 100, 1024, 1124),
        ("low", 8192, 2048, 10240),
        ("medium", 8192, 8192, 16384),
        ("high", 8192, 16384, 24576),
        ("high", 24576, 16384, 24576),
        ("high", 30000, 16384, 30000),
        ("xhigh", 8192, 22528, 30720),
        ("adaptive", 8192, 8192, 16384),
    ],
)
def test_levels_become_budgets_with_room_for_the_answer(
    thinking: Thinking, asked: int, budget: int | None, most: int
) -> None:
    request = msgspec.structs.replace(HELLO, model=BUDGETED, thinking=thinking, max_tokens=asked)
    _, [body] = run(talked([ScriptedReply("ok")], [request]))
    assert body["max_tokens"] == most
    assert body.get("thinking") == (None if budget is None else {"type": "enabled", "budget_tokens": budget})


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [("off", None), ("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high")],
)
def test_levels_become_efforts_where_a_model_decides_itself(thinking: Thinking, effort: str | None) -> None:
    request = msgspec.structs.replace(HELLO, model=ADAPTIVE, thinking=thinking)
    _, [body] = run(talked([ScriptedReply("ok")], [request]))
    assert body.get("output_config") == (None if effort is None else {"effort": effort})
    assert body.get("thinking") == (None if effort is None else {"type": "adaptive", "display": "summarized"})


def test_adaptive_thinking_names_no_effort_where_a_model_decides_itself() -> None:
    request = msgspec.structs.replace(HELLO, model=ADAPTIVE, thinking="adaptive")
    _, [body] = run(talked([ScriptedReply("ok")], [request]))
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert "output_config" not in body


@pytest.mark.parametrize(
    ("model", "budgeted"),
    [
        ("claude-3-7-sonnet-20250219", True),
        ("claude-opus-4-20250514", True),
        ("claude-opus-4-0", True),
        ("claude-opus-4-1-20250805", True),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-haiku-4-5", True),
        ("claude-opus-4-5", True),
        ("claude-opus-4-6", False),
        ("claude-sonnet-4-6", False),
        ("claude-sonnet-5", False),
        ("claude-haiku-5-5", False),
        ("claude-fable-5-1", False),
        ("somebody-elses", True),
    ],
)
def test_only_models_that_know_budgets_get_one(model: str, budgeted: bool) -> None:
    body = CLAUDE.body(msgspec.structs.replace(HELLO, model=model, thinking="low"))
    kind = body["thinking"]
    assert isinstance(kind, dict)
    assert (kind["type"] == "enabled") is budgeted


def after(events: list[ModelEvent], model: str, thinking: Thinking) -> Request:
    messages = (UserMessage("hello"), answered(events), ToolMessage("toolu_1", "read", "content"))
    return Request(model=model, messages=messages, thinking=thinking)


@pytest.mark.parametrize("model", [BUDGETED, ADAPTIVE])
@pytest.mark.parametrize("words", ["let me think", "redacted: secret"])
def test_thinking_is_handed_back_as_it_came(model: str, words: str) -> None:
    async def main() -> None:
        asked = msgspec.structs.replace(HELLO, model=model, thinking="low")
        async with AnthropicServer([ScriptedReply("Well.", (CALL,), words), ScriptedReply("done")]) as server:
            client = ANTHROPIC.model(server)
            events = await ask(client, asked)
            await ask(client, after(events, model, "low"))
            await client.close()
            assert server.complaints == []
        kind = "redacted_thinking" if words.startswith("redacted:") else "thinking"
        blocks = server.bodies[1]["messages"][1]["content"]
        assert [block["type"] for block in blocks] == [kind, "text", "tool_use"]
        assert "thinking" in server.bodies[1]

    run(main())


def test_blocks_keep_their_order_and_their_texts() -> None:
    chunks = [
        start(0, "thinking", thinking="", signature=""),
        delta(0, thinking="one"),
        delta(0, signature="s1"),
        start(1, "text", text="A"),
        delta(1, text="B"),
        start(2, "thinking", thinking=""),
        delta(2, signature="s2"),
        start(3, "tool_use", id="c1", name="read", input={}),
        delta(3, partial_json="{}"),
        start(4, "redacted_thinking", data="d"),
        start(5, "text", text=""),
        delta(5, text=" "),
        start(6, "tool_use", id="c2", name="read", input={"path": "p"}),
        *finish("tool_use"),
    ]
    events = run(heard(chunks, msgspec.structs.replace(HELLO, model=ADAPTIVE)))
    assert calls_of(events) == [Call("c1", "read", "{}"), Call("c2", "read", '{"path":"p"}')]
    kept = answered(events)
    assert (kept.text, kept.thinking) == ("AB ", "one")
    request = Request(
        model=ADAPTIVE,
        messages=(UserMessage("hello"), kept, ToolMessage("c1", "read", "1"), ToolMessage("c2", "read", "2")),
    )
    body = json.loads(msgspec.json.encode(CLAUDE.body(request)))
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "one", "signature": "s1"},
        {"type": "text", "text": "AB"},
        {"type": "thinking", "thinking": "", "signature": "s2"},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {}},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "p"}},
    ]


def kinds_sent(request: Request) -> list[str]:
    body = json.loads(msgspec.json.encode(CLAUDE.body(request)))
    return [block["type"] for block in body["messages"][1]["content"]]


@pytest.mark.parametrize("model", [BUDGETED, ADAPTIVE])
@pytest.mark.parametrize("change", ["another model", "other text", "other thinking", "a call less", "garbage"])
def test_thinking_that_cannot_be_proved_is_not_handed_back(model: str, change: str) -> None:
    asked = msgspec.structs.replace(HELLO, model=model, thinking="low")
    [events], _ = run(talked([ScriptedReply("Well.", (CALL,), "hm")], [asked]))
    kept = answered(events)
    assert kinds_sent(after(events, model, "low")) == ["thinking", "text", "tool_use"]
    changed = {
        "another model": kept,
        "other text": msgspec.structs.replace(kept, text="Well"),
        "other thinking": msgspec.structs.replace(kept, thinking="hmm"),
        "a call less": msgspec.structs.replace(kept, calls=()),
        "garbage": msgspec.structs.replace(kept, opaque="x"),
    }[change]
    named = f"{model}-20990101" if change == "another model" else model
    request = Request(model=named, messages=(UserMessage("hello"), changed, UserMessage("more")), thinking="low")
    assert "thinking" not in kinds_sent(request)


def test_a_turn_that_began_without_thinking_goes_on_without_it() -> None:
    before = AssistantMessage("", (CALL,))
    request = Request(
        model=BUDGETED, messages=(UserMessage("a"), before, ToolMessage("toolu_1", "read", "x")), thinking="high"
    )
    _, [body] = run(talked([ScriptedReply("ok")], [request]))
    assert "thinking" not in body
    assert body["max_tokens"] == 8192
    later = msgspec.structs.replace(request, messages=(*request.messages, AssistantMessage("ok"), UserMessage("b")))
    _, [body] = run(talked([ScriptedReply("ok")], [later]))
    assert body["thinking"]["budget_tokens"] == BUDGETS["high"]


# ---- what comes back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("pause_turn", "end"),
        ("tool_use", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
    ],
)
def test_stop_reasons_become_stops(reason: str, stop: StopReason) -> None:
    events = run(heard([start(0, "text", text="a"), *finish(reason)]))
    assert events == [Text("a"), ReplyEnded(stop, "m")]


TWO_CALLS = ((0, "a", "read"), (1, "b", "write"))


def test_a_call_that_was_cut_off_by_the_limit_is_no_call() -> None:
    first, second = (start(at, "tool_use", id=id, name=name, input={}) for at, id, name in TWO_CALLS)
    for cut in ([delta(1, partial_json='{"pa')], []):
        events = run(heard([first, second, *cut, *finish("max_tokens")]))
        assert calls_of(events) == [Call("a", "read", "{}")]
        assert isinstance(events[-1], ReplyEnded)
        assert events[-1].dropped == "write"


def test_thinking_is_handed_back_with_a_reply_that_lost_a_call() -> None:
    thought = start(0, "thinking", thinking="hm", signature="s")
    events = run(heard([thought, start(1, "tool_use", id="b", name="write"), *finish("max_tokens")]))
    message = answered(events)
    body: Any = CLAUDE.body(Request(model="m", messages=(UserMessage("x"), message, UserMessage("y")), thinking="low"))
    assert body["messages"][1]["content"] == [{"type": "thinking", "thinking": "hm", "signature": "s"}]


def test_ids_that_are_missing_are_made() -> None:
    chunks = [start(0, "text", text="a"), start(1, "tool_use", name="read"), start(2, "tool_use", name="read")]
    assert calls_of(run(heard([*chunks, *finish()]))) == [Call("call_0", "read", "{}"), Call("call_1", "read", "{}")]


def test_what_is_unknown_is_passed_over_and_a_missing_reason_is_an_end() -> None:
    chunks = [
        event("message_start", message={"usage": None}),
        event("ping"),
        event("brand_new", index=7, thing=[1]),
        start(0, "server_tool_use", id="s", name="web", input={"q": "x"}),
        start(1, "text", text="a"),
        event("content_block_delta", index=1, delta={"type": "citations_delta", "citation": {}}),
        event("message_delta", delta={"stop_reason": None}),
        event("message_stop"),
    ]
    assert run(heard(chunks)) == [Text("a"), ReplyEnded("end", "m")]


def test_counts_are_totals_and_cache_tokens_are_apart() -> None:
    counts = {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}
    totals = {"output_tokens": 9, "input_tokens": None, "output_tokens_details": {"thinking_tokens": 4}}
    chunks = [
        event("message_start", message={"model": "real", "usage": counts}),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage=totals),
        event("message_stop"),
    ]
    assert run(heard(chunks)) == [Usage(7, 9, 3, 2, 4), ReplyEnded("end", "real")]


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        ("overloaded_error", "retryable"),
        ("rate_limit_error", "retryable"),
        ("api_error", "retryable"),
        ("brand_new_error", "retryable"),
        ("authentication_error", "auth"),
        ("permission_error", "auth"),
        ("billing_error", "quota"),
        ("request_too_large", "overflow"),
        ("invalid_request_error", "bad_request"),
    ],
)
def test_an_error_in_the_stream_breaks_it(kind: str, trouble: str) -> None:
    chunks = [start(0, "text", text="a"), event("error", error={"type": kind, "message": "why"}), *finish()]
    broke = broke_of(run(heard(chunks)))
    assert (broke.trouble, broke.message) == (trouble, f"error in the stream: {kind}: why")


def test_an_error_without_a_reason_still_breaks_it() -> None:
    assert broke_of(run(heard([event("error")]))).message == "error in the stream: None: no reason given"


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([delta(3, text="a"), *finish()], "malformed chunk: no block 3 was begun"),
        ([start(0, "text"), start(0, "text"), *finish()], "malformed chunk: block 0 was begun twice"),
        ([start(0, "tool_use", id="a"), *finish()], "a tool call without a name"),
    ],
)
def test_blocks_out_of_order_break_the_reply(chunks: list[bytes], words: str) -> None:
    broke = broke_of(run(heard(chunks)))
    assert (broke.trouble, broke.message) == ("interrupted", words)


def test_thoughts_are_told_as_they_come_and_their_proof_once() -> None:
    [events], _ = run(talked([ScriptedReply("a", thinking="deep thought")], [HELLO]))
    thoughts = [event.text for event in events if isinstance(event, Thought)]
    assert thoughts == ["deep ", "thoug", "ht"]
    assert [type(event) for event in events].count(Opaque) == 1
    assert [type(event) for event in events[-3:]] == [Opaque, Usage, ReplyEnded]
    assert usage_of(events) == [Usage(10, 5)]
