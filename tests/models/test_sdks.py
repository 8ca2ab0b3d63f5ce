"""The official SDKs against the strict servers: a server that its own SDK cannot use would prove nothing.

Each test talks as the SDK's users do: streamed, with a tool, with the reply handed back as the SDK holds it.
"""

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fledge.models.base import Call, Usage
from fledge.models.scripted import ScriptedReply
from tests import images
from tests.models.anthropic_server import AnthropicServer
from tests.models.asking import SCHEMA, run
from tests.models.compatible_servers import DeepSeekServer, GeminiServer, OpenRouterServer
from tests.models.openai_server import OpenAIServer
from tests.models.responses_server import ResponsesServer, event
from tests.models.serving import Answer, Send, Server

FUNCTION = {"name": "read", "description": "Reads a file.", "parameters": SCHEMA}
ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
PNG = base64.b64encode(images.png()).decode()
CALLS = (Call("call_1", "read", '{"path":"x"}'), Call("call_2", "read", '{"path":"ü"}'))


def openai_client(server: Server) -> Any:
    import openai

    return openai.AsyncOpenAI(api_key=server.key, base_url=server.base_url, max_retries=0)


def anthropic_client(server: Server) -> Any:
    import anthropic

    return anthropic.AsyncAnthropic(api_key=server.key, base_url=server.base_url, max_retries=0)


def talk(server: Server, client: Callable[[Server], Any], body: Callable[[Any], Awaitable[None]]) -> None:
    """Let the SDK talk; the server accepted all of it."""

    async def main() -> None:
        async with server, client(server) as sdk:
            await body(sdk)
        assert server.complaints == []

    run(main())


# ---- responses -------------------------------------------------------------------------------------------------------


def test_the_openai_sdk_talks_by_responses_with_a_tool_and_hands_the_reasoning_back() -> None:
    replies: list[Answer] = [
        ScriptedReply("I look. ", CALLS, "one\n\ntwo", usage=Usage(10, 5, 3, 2, 4)),
        ScriptedReply("done", thinking="three"),
    ]
    settings = {
        "model": "gpt-5.6-terra",
        "store": False,
        "tools": [{"type": "function", "strict": False, **FUNCTION}],
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }

    async def answered(sdk: Any, items: list[Any]) -> tuple[list[str], Any]:
        events = [event async for event in await sdk.responses.create(input=items, stream=True, **settings)]
        return [event.type for event in events], events[-1].response

    async def body(sdk: Any) -> None:
        kinds, first = await answered(sdk, [ASKED])
        assert "response.reasoning_summary_text.delta" in kinds
        assert "response.function_call_arguments.done" in kinds
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
        assert [part.text for part in first.output[0].summary] == ["one", "two"]
        assert (first.status, first.output_text) == ("completed", "I look. ")
        assert first.output[1].phase == "commentary"
        assert [json.loads(item.arguments) for item in first.output[2:]] == [{"path": "x"}, {"path": "ü"}]
        assert first.usage.input_tokens_details.cached_tokens == 3
        assert first.usage.output_tokens_details.reasoning_tokens == 4
        results = [{"type": "function_call_output", "call_id": call.id, "output": "content"} for call in CALLS]
        _, last = await answered(sdk, [ASKED, *first.output, *results])
        assert last.output_text == "done"

    talk(ResponsesServer(replies), openai_client, body)


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        (ScriptedReply("cut", stop="length"), "incomplete", "max_output_tokens"),
        (ScriptedReply("no", stop="refused"), "completed", None),
    ],
)
def test_the_openai_sdk_reads_replies_that_were_cut_short_or_refused(
    reply: ScriptedReply, status: str, reason: str | None
) -> None:
    async def body(sdk: Any) -> None:
        stream = await sdk.responses.create(model="gpt-4.1", input=[ASKED], store=False, stream=True)
        events = [event async for event in stream]
        last = events[-1].response
        assert last.status == status
        assert (last.incomplete_details.reason if reason else last.incomplete_details) == reason
        [part] = last.output[0].content
        assert (part.refusal if status == "completed" else part.text) == reply.text

    talk(ResponsesServer([reply]), openai_client, body)


def test_the_openai_sdk_raises_the_error_of_a_stream() -> None:
    import openai

    error = {"type": "server_error", "code": "server_error", "message": "why", "param": None}

    async def body(sdk: Any) -> None:
        stream = await sdk.responses.create(model="gpt-4.1", input=[ASKED], store=False, stream=True)
        with pytest.raises(openai.APIError, match="why"):
            [event async for event in stream]

    talk(ResponsesServer([[Send(event("error", error=error, sequence_number=0))]]), openai_client, body)


# ---- chat completions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "model", "extra"),
    [
        (OpenAIServer, "gpt-4.1", None),
        (DeepSeekServer, "deepseek-v4-pro", "reasoning_content"),
        (GeminiServer, "gemini-3.1-pro-preview", None),
        (OpenRouterServer, "anthropic/claude-opus-5", "reasoning"),
    ],
    ids=["openai", "deepseek", "gemini", "openrouter"],
)
def test_the_openai_sdk_talks_by_chat_completions_with_a_tool(
    server: type[Server], model: str, extra: str | None
) -> None:
    thinking = "" if extra is None else "let me think"
    replies: list[Answer] = [ScriptedReply("I look. ", CALLS, thinking, usage=Usage(10, 5, 3)), ScriptedReply("done")]
    settings = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": FUNCTION}],
    }

    async def gathered(sdk: Any, messages: list[Any]) -> tuple[list[Any], Any]:
        chunks = [chunk async for chunk in await sdk.chat.completions.create(messages=messages, **settings)]
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        assert chunks[-1].usage.total_tokens == chunks[-1].usage.prompt_tokens + chunks[-1].usage.completion_tokens
        return deltas, chunks[-1].usage

    async def body(sdk: Any) -> None:
        deltas, usage = await gathered(sdk, [{"role": "user", "content": "go"}])
        assert usage.prompt_tokens_details.cached_tokens == 3
        assert "".join(delta.content or "" for delta in deltas) == "I look. "
        pieces = [piece for delta in deltas for piece in delta.tool_calls or ()]
        assert {piece.function.name for piece in pieces if piece.function.name} == {"read"}
        assert "".join(piece.function.arguments for piece in pieces) == "".join(call.arguments for call in CALLS)
        if extra is not None:
            assert "".join(getattr(delta, extra, None) or "" for delta in deltas) == thinking
        deltas, _ = await gathered(sdk, [{"role": "user", "content": "go"}, *handed_back(server, deltas)])
        assert "".join(delta.content or "" for delta in deltas) == "done"

    talk(server(replies), openai_client, body)


def handed_back(server: type[Server], deltas: list[Any]) -> list[Any]:
    """The reply as users of this service hand it back, and the results of its calls."""
    calls: list[Any] = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in CALLS
    ]
    message: dict[str, Any] = {"role": "assistant", "content": "I look. ", "tool_calls": calls}
    if server is DeepSeekServer:
        message["reasoning_content"] = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    elif server is GeminiServer:
        signed = next(piece for delta in deltas for piece in delta.tool_calls or ())
        calls[0]["extra_content"] = signed.extra_content
    elif server is OpenRouterServer:
        details = [one for delta in deltas for one in getattr(delta, "reasoning_details", None) or ()]
        texts = [one for one in details if one["type"] == "reasoning.text"]
        text = "".join(one.get("text") or "" for one in texts)
        message["reasoning_details"] = [{**texts[-1], "text": text}, *(one for one in details if one not in texts)]
    return [message, *({"role": "tool", "tool_call_id": call.id, "content": "content"} for call in CALLS)]


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-opus-5", {"type": "adaptive"}),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 1024}),
    ],
)
@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")  # the SDK's, of models that will be retired
def test_the_anthropic_sdk_talks_with_a_tool_and_hands_the_thinking_back(model: str, thinking: dict[str, Any]) -> None:
    replies: list[Answer] = [
        ScriptedReply("I look. ", CALLS, "let me think", usage=Usage(10, 5, 3, 2)),
        ScriptedReply("done"),
    ]
    settings = {
        "model": model,
        "max_tokens": 4096,
        "thinking": thinking,
        "tools": [{"name": "read", "description": "Reads a file.", "input_schema": SCHEMA}],
    }

    async def body(sdk: Any) -> None:
        messages: list[Any] = [{"role": "user", "content": "go"}]
        async with sdk.messages.stream(messages=messages, **settings) as stream:
            assert "".join([text async for text in stream.text_stream]) == "I look. "
            first = await stream.get_final_message()
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert (first.content[0].thinking, first.stop_reason) == ("let me think", "tool_use")
        assert [block.input for block in first.content[2:]] == [{"path": "x"}, {"path": "ü"}]
        assert (first.usage.output_tokens, first.usage.cache_read_input_tokens) == (5, 3)
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "content"} for call in CALLS]
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        async with sdk.messages.stream(messages=messages, **settings) as stream:
            assert await stream.get_final_text() == "done"

    talk(AnthropicServer(replies), anthropic_client, body)


# ---- images ----------------------------------------------------------------------------------------------------------


def test_the_openai_sdk_sends_images_by_chat_completions() -> None:
    parts = [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ]

    async def body(sdk: Any) -> None:
        messages = [{"role": "user", "content": parts}]
        stream = await sdk.chat.completions.create(model="gpt-4.1", stream=True, messages=messages)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]) == "a cat"

    talk(OpenAIServer([ScriptedReply("a cat")]), openai_client, body)


def test_the_openai_sdk_sends_images_by_responses_in_messages_and_results() -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}, image]},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": [image]},
    ]

    async def body(sdk: Any) -> None:
        stream = await sdk.responses.create(model="gpt-4.1", input=items, store=False, stream=True)
        assert [event async for event in stream][-1].response.output_text == "a cat"

    talk(ResponsesServer([ScriptedReply("a cat")]), openai_client, body)


def test_the_anthropic_sdk_sends_images_in_messages_and_results() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look."}, image]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [image]}]},
    ]

    async def body(sdk: Any) -> None:
        async with sdk.messages.stream(model="claude-opus-5", max_tokens=4096, messages=messages) as stream:
            assert await stream.get_final_text() == "a cat"

    talk(AnthropicServer([ScriptedReply("a cat")]), anthropic_client, body)
