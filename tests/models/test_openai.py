"""The chat-completions adapter against the strict server: what is sent, and what is made of what comes back."""

import json
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
    ToolSpec,
    Usage,
    UserMessage,
)
from fledge.models.catalog import shipped
from fledge.models.keys import SecretKey
from fledge.models.openai import OpenAIModel
from fledge.models.providers import Quirks, usual_quirks
from fledge.models.scripted import ScriptedReply
from tests.models.asking import (
    HELLO,
    NOWHERE,
    OPENAI,
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
from tests.models.openai_server import OpenAIServer
from tests.models.serving import KEY, Send


def sent_by(server: OpenAIServer) -> Any:
    assert server.complaints == []
    return server.bodies[-1]


async def heard(chunks: list[Any], request: Request = HELLO) -> list[ModelEvent]:
    """What the adapter makes of these chunks."""
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    async with OpenAIServer([[Send(f"data: {line}\n\n".encode()) for line in lines]]) as server:
        model = OPENAI.model(server)
        try:
            return await ask(model, request)
        finally:
            await model.close()


def said(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_a_reply_arrives_whole_with_thinking_calls_usage_and_the_model_that_answered() -> None:
    reply = ScriptedReply(
        text="Grüße aus 東京 🎈",
        thinking="first, think",
        calls=(Call("a", "read", '{"path":"x"}'), Call("b", "read", '{"path":"ü"}')),
        usage=Usage(100, 20, 30, 4),
    )

    async def main() -> None:
        async with OpenAIServer([reply], piece_chars=3) as server:
            model = OPENAI.model(server)
            events = await ask(model, msgspec.structs.replace(HELLO, tools=(READ,)))
            await model.close()
        assert text_of(events) == reply.text
        assert thinking_of(events) == reply.thinking
        assert tuple(calls_of(events)) == reply.calls
        assert events[-2:] == [Usage(100, 20, 30, 4), ReplyEnded("tools", "m-2026-01-01")]
        assert sent_by(server)["tools"][0]["function"]["name"] == "read"

    run(main())


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

    async def main() -> None:
        async with OpenAIServer([ScriptedReply("ok")]) as server:
            model = OPENAI.model(server)
            events = await ask(model, Request(model="m", system="be brief", messages=messages, tools=(READ,)))
            await model.close()
        assert events[-1] == ReplyEnded("end", "m-2026-01-01")
        body = sent_by(server)
        assert body["stream"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert body["max_tokens"] == 8192
        assert [message["role"] for message in body["messages"]] == (
            ["system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user"]
        )
        first, second = body["messages"][2], body["messages"][5]
        assert [call["id"] for call in first["tool_calls"]] == ["x", "y"]
        assert first["tool_calls"][1]["function"]["arguments"] == '{"invalid_json":""}'
        assert second["tool_calls"][0]["id"] == body["messages"][6]["tool_call_id"] == "call_2"
        assert json.loads(second["tool_calls"][0]["function"]["arguments"]) == {"invalid_json": "{broken"}
        assert "content" not in second
        assert body["messages"][4]["content"] == "(no output)"
        assert body["messages"][7]["content"] == body["messages"][8]["content"] == "(no text)"

    run(main())


@pytest.mark.parametrize(
    ("model", "thinking", "tools", "effort"),
    [
        ("gpt-5.6-terra", "high", (READ,), "none"),
        ("gpt-5.6-terra", "off", (READ,), "none"),
        ("gpt-5.6-terra", "high", (), "high"),
        ("gpt-5.5", "off", (READ,), "none"),
        ("gpt-5.4", "medium", (READ,), "none"),
        ("gpt-5.4", "medium", (), "medium"),
        ("gpt-5.2", "low", (READ,), "none"),
        ("gpt-5.1", "minimal", (READ,), "low"),
        ("gpt-5", "off", (), "minimal"),
        ("gpt-5-mini-2025-08-07", "minimal", (), "minimal"),
        ("o3", "minimal", (), "low"),
        ("gpt-4.1", "off", (READ,), None),
        ("any", "off", (READ,), None),
        ("any", "minimal", (), "low"),
        ("any", "high", (READ,), "high"),
    ],
)
def test_a_model_gets_a_level_that_it_accepts_beside_its_tools(
    model: str, thinking: Thinking, tools: tuple[ToolSpec, ...], effort: str | None
) -> None:
    request = msgspec.structs.replace(HELLO, model=model, thinking=thinking, tools=tools)

    async def main() -> None:
        async with OpenAIServer([ScriptedReply("ok")]) as server:
            client = OpenAIModel(
                service(server.base_url, quirks=Quirks(token_field="max_completion_tokens")),
                SecretKey(KEY),
                card=lambda name: shipped().find(f"openai/{name}"),
            )
            await ask(client, request)
            await client.close()
        assert sent_by(server).get("reasoning_effort") == effort

    run(main())


@pytest.mark.parametrize(
    ("base_url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("http://127.0.0.1:11434/v1", "max_tokens"),
        ("https://notopenai.com/v1", "max_tokens"),
        ("https://openai.com.example/v1", "max_tokens"),
    ],
)
def test_the_token_limit_has_the_name_the_service_knows(base_url: str, field: str) -> None:
    assert usual_quirks(base_url).token_field == field


@pytest.mark.parametrize(
    ("thinking", "asked", "most"),
    [("off", 100, 100), ("low", 100, 2148), ("high", 8192, 24576), ("high", 30000, 30000)],
)
def test_room_to_think_is_added_where_the_service_counts_it(thinking: Thinking, asked: int, most: int) -> None:
    request = msgspec.structs.replace(HELLO, thinking=thinking, max_tokens=asked)
    for field, tokens in [("max_completion_tokens", most), ("max_tokens", asked)]:
        quirks = msgspec.convert({"token_field": field}, Quirks)
        assert OpenAIModel(service(NOWHERE, quirks=quirks), None).body(request)[field] == tokens


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "end"), ("length", "length"), ("content_filter", "refused"), ("tool_calls", "end"), ("odd", "end")],
)
def test_finish_reasons_become_stops(finish: str, stop: StopReason) -> None:
    events = run(heard([said(content="a"), said(finish), "[DONE]"]))
    assert events == [Text("a"), ReplyEnded(stop, "m")]


def test_a_finish_by_error_is_broken() -> None:
    assert broke_of(run(heard([said(content="a"), said("error"), "[DONE]"]))).trouble == "interrupted"


def test_a_refusal_is_told_as_text_and_as_the_reason() -> None:
    events = run(heard([said(refusal="I will not."), said("stop"), "[DONE]"]))
    assert events == [Text("I will not."), ReplyEnded("refused", "m")]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thinking_is_read_under_both_names_and_never_twice(name: str) -> None:
    chunks = [said(**{name: "hm"}), said(reasoning="so", reasoning_content="so"), said("stop", content="a")]
    events = run(heard([*chunks, "[DONE]"]))
    assert [event for event in events if not isinstance(event, Opaque)] == (
        [Thought("hm"), Thought("so"), Text("a"), ReplyEnded("end", "m")]
    )


def test_reasoning_details_are_joined_by_block_and_anything_else_stays_as_it_came() -> None:
    def detail(index: int, **more: Any) -> dict[str, Any]:
        return {"type": "reasoning.text", "index": index, **more}

    hidden = {"type": "reasoning.encrypted", "data": "x", "index": 0}
    pieces: list[Any] = [
        detail(0, text="one", signature="s0", format="f"),
        detail(0, text=" two", signature=None),
        detail(1, text=None),
        detail(1, signature="s1"),
        hidden,
        hidden,
        "odd",
        detail(1, text="three"),
    ]
    chunks = [said(reasoning_details=[piece]) for piece in pieces]
    reply = answered(run(heard([*chunks, said("stop", content="a"), "[DONE]"])))
    messages = (UserMessage("x"), reply, UserMessage("y"))
    body: Any = OpenAIModel(service(NOWHERE), None).body(Request(model="m", messages=messages))
    assert body["messages"][1]["reasoning_details"] == [
        detail(0, text="one two", signature="s0", format="f"),
        detail(1, text="", signature="s1"),
        hidden,
        hidden,
        "odd",
        detail(1, text="three"),
    ]


def piece(index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None) -> Any:
    return said(tool_calls=[{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}])


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        pytest.param(
            [piece(0, "a", "read", ""), piece(1, "b", "list", "{"), piece(0, arguments="{}"), piece(1, arguments="}")],
            [Call("a", "read", "{}"), Call("b", "list", "{}")],
            id="interleaved by index",
        ),
        pytest.param(
            [piece(0, None, "read", "{}"), piece(1, "", "list", "{}")],
            [Call("call_0", "read", "{}"), Call("call_1", "list", "{}")],
            id="no ids",
        ),
        pytest.param(
            [piece(0, "a", "read", "{"), piece(0, "a", "read", "}")],
            [Call("a", "read", "{}")],
            id="id and name repeated",
        ),
        pytest.param(
            [piece(0, "a", "read", "{}"), piece(0, "b", "list", "{}")],
            [Call("a", "read", "{}"), Call("b", "list", "{}")],
            id="one index for all",
        ),
        pytest.param(
            [piece(None, "a", "read", "{"), piece(None, arguments="}"), piece(None, "b", "list", "{}")],
            [Call("a", "read", "{}"), Call("b", "list", "{}")],
            id="no index",
        ),
        pytest.param([piece(0, "a", "read", {"n": 1})], [Call("a", "read", '{"n":1}')], id="arguments as an object"),
        pytest.param([piece(0, "a", "read")], [Call("a", "read", "{}")], id="no arguments"),
        pytest.param([piece(0, "a", "read", "{bad")], [Call("a", "read", "{bad")], id="broken arguments are told"),
    ],
)
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_calls_are_put_together_whatever_a_server_leaves_out(chunks: list[Any], calls: list[Call], finish: str) -> None:
    events = run(heard([*chunks, said(finish), "[DONE]"]))
    assert events == [*calls, ReplyEnded("tools", "m")]


def test_what_came_with_a_call_stays_with_it_when_another_was_cut_off() -> None:
    def signed(index: int, arguments: str) -> Any:
        function = {"name": "read", "arguments": arguments}
        return said(
            tool_calls=[{"index": index, "id": str(index), "function": function, "extra_content": {"n": index}}]
        )

    events = run(heard([signed(0, "{"), signed(1, "{}"), said("length"), "[DONE]"]))
    assert calls_of(events) == [Call("1", "read", "{}")]
    messages = (UserMessage("x"), answered(events), ToolMessage("1", "read", "y"))
    body: Any = OpenAIModel(service(NOWHERE), None).body(Request(model="m", messages=messages))
    assert [call["extra_content"] for call in body["messages"][1]["tool_calls"]] == [{"n": 1}]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_call_that_was_cut_off_by_the_limit_is_no_call(finish: str) -> None:
    for cut in (piece(1, "b", "write", '{"pa'), piece(1, "b", "write", "")):
        events = run(heard([piece(0, "a", "read", "{}"), cut, said(finish), "[DONE]"]))
        assert calls_of(events) == [Call("a", "read", "{}")]
        assert isinstance(events[-1], ReplyEnded)
        assert events[-1].dropped == "write"


def test_a_call_that_was_cut_off_before_its_name_is_no_call() -> None:
    events = run(heard([said(content="a"), piece(0, "a", None, ""), said("length"), "[DONE]"]))
    assert events == [Text("a"), ReplyEnded("length", "m", "an unknown tool")]


def test_a_call_without_a_name_breaks_the_reply() -> None:
    assert broke_of(run(heard([piece(0, "a", None, "{}"), said("tool_calls")]))).message == "a tool call without a name"


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2}, Usage(10, 2)),
        ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(10, 2)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 7}}, Usage(3, 0, 7)),
        (
            {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 2}},
            Usage(1, 0, 7, 2),
        ),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}, Usage(6, 0, 4)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 7}}, Usage(0, 0, 7)),
        (
            {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}},
            Usage(0, 9, reasoning_tokens=4),
        ),
        ({}, Usage()),
    ],
)
def test_usage_does_not_count_what_the_cache_served_twice(usage: dict[str, Any], counted: Usage) -> None:
    chunks = [said("stop", content="a"), {"choices": [], "usage": usage}, "[DONE]"]
    assert usage_of(run(heard(chunks))) == [counted]


def test_running_totals_are_replaced_not_added() -> None:
    first = said(content="a") | {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    last = said("stop") | {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    assert usage_of(run(heard([first, last, "[DONE]"]))) == [Usage(5, 2)]


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([said(content="a"), said("stop")], id="no DONE"),
        pytest.param([said(content="a"), {"choices": [{"finish_reason": "stop"}]}, "[DONE]"], id="no delta"),
        pytest.param([said("stop", content="a", tool_calls=None) | {"usage": None}, "[DONE]"], id="nulls"),
        pytest.param([{}, said("stop", content="a"), "[DONE]"], id="an empty chunk"),
        pytest.param([said("stop", content="a", extra={"x": [1]}) | {"more": 1}, "[DONE]"], id="unknown fields"),
    ],
)
def test_compatible_servers_may_leave_things_out(chunks: list[Any]) -> None:
    assert run(heard(chunks)) == [Text("a"), ReplyEnded("end", "m")]


@pytest.mark.parametrize(
    ("chunk", "trouble", "words"),
    [
        ({"error": {"message": "Overloaded", "code": 502}}, "retryable", "Overloaded"),
        ({"error": {"message": "slow down", "code": 429}}, "retryable", "slow down"),
        ({"error": {"message": "no", "code": "insufficient_quota"}}, "quota", "no"),
        ({"error": {"message": "flagged", "code": "content_filter"}}, "refused", "flagged"),
        ({"error": {"message": "long", "code": "context_length_exceeded"}}, "overflow", "long"),
        ({"error": {"message": "bad", "type": "invalid_request_error"}}, "bad_request", "bad"),
        ({"error": "plain words"}, "retryable", "plain words"),
        ({"object": "error", "message": "vLLM says no"}, "retryable", "vLLM says no"),
    ],
)
def test_an_error_in_the_stream_breaks_it(chunk: dict[str, Any], trouble: str, words: str) -> None:
    broke = broke_of(run(heard([said(content="a"), chunk, said("stop")])))
    assert (broke.trouble, broke.message) == (trouble, f"error in the stream: {words}")


def test_a_missing_key_is_told_without_asking_anybody() -> None:
    async def main() -> list[ModelEvent]:
        return await ask(OpenAIModel(service("http://model.example/v1"), None))

    words = "no key: set OPENAI_API_KEY, or OPENAI_API_KEY_FILE to a file that only you can read"
    assert run(main()) == [Broke("auth", words)]


def test_a_service_that_asks_for_no_key_gets_none() -> None:
    async def main() -> None:
        async with OpenAIServer([ScriptedReply("hi")], key=None) as server:
            model = OpenAIModel(service(server.base_url + "/"), None)
            assert text_of(await ask(model)) == "hi"
            await model.close()
            assert "authorization" not in server.headers[0]

    run(main())


def test_words_that_utf8_cannot_hold_do_not_stop_a_request() -> None:
    async def main() -> None:
        async with OpenAIServer([ScriptedReply("ok")]) as server:
            model = OPENAI.model(server)
            messages = (UserMessage("a\ud800b"), AssistantMessage("", (Call("1", "read", "\udfff"),)))
            done = (*messages, ToolMessage("1", "read", "\udcff"))
            await ask(model, Request(model="m", messages=done))
            await model.close()
        assert sent_by(server)["messages"][0]["content"] == "a?b"

    run(main())
