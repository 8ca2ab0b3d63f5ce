"""DeepSeek, Gemini, OpenRouter and Mistral by chat completions: what each wants besides the protocol."""

from typing import Any

import msgspec
import pytest

from fledge.core.images import Image, ImageEntry, read_image
from fledge.models.base import AssistantMessage, Call, ModelEvent, Request, Thinking, ToolMessage, UserMessage
from fledge.models.catalog import Card
from fledge.models.keys import SecretKey
from fledge.models.openai import OpenAIModel
from fledge.models.providers import BUILT_IN, Quirks, usual_quirks
from fledge.models.scripted import ScriptedReply
from tests import images
from tests.models.asking import READ, answered, ask, broke_of, calls_of, run, service, text_of, thinking_of
from tests.models.compatible_servers import (
    SKIPPED,
    DeepSeekServer,
    GeminiServer,
    MistralServer,
    OpenRouterServer,
    signature,
)
from tests.models.openai_server import OpenAIServer
from tests.models.serving import KEY, Answer, Rejected

CALL = Call("c1", "read", '{"path":"x"}')
SECOND = Call("c2", "read", '{"path":"y"}')
RESULTS = (ToolMessage("c1", "read", "1"), ToolMessage("c2", "read", "2"))


def client_of(provider: str, server: OpenAIServer, card: Card | None = None) -> OpenAIModel:
    """The adapter of a built-in provider, pointed at the server."""
    quirks = usual_quirks(BUILT_IN[provider].base_url or "")
    return OpenAIModel(service(server.base_url, provider, quirks), SecretKey(KEY), card=lambda name: card)


async def talked(provider: str, server: OpenAIServer, request: Request, card: Card | None = None) -> list[ModelEvent]:
    """The reply of a built-in provider."""
    async with server:
        client = client_of(provider, server, card)
        events = await ask(client, request)
        await client.close()
        return events


async def one_step(provider: str, server: OpenAIServer, first: Request) -> tuple[list[ModelEvent], Any]:
    """The reply to a request, and the body of the request that answers its calls; none was refused."""
    async with server:
        client = client_of(provider, server)
        events = await ask(client, first)
        results = [ToolMessage(call.id, call.name, "content") for call in calls_of(events)]
        await ask(client, msgspec.structs.replace(first, messages=(*first.messages, answered(events), *results)))
        await client.close()
        assert server.complaints == []
        return events, server.bodies[1]


def asking(model: str, thinking: Thinking = "high") -> Request:
    return Request(model=model, messages=(UserMessage("go"),), tools=(READ,), thinking=thinking)


def taking_over(model: str, thinking: Thinking = "high") -> Request:
    """The model is to go on where another one called two tools."""
    messages = (UserMessage("go"), AssistantMessage("", (CALL, SECOND)), *RESULTS)
    return msgspec.structs.replace(asking(model, thinking), messages=messages)


@pytest.mark.parametrize(
    ("base_url", "quirks"),
    [
        ("https://api.deepseek.com", Quirks(thinking_switch=True)),
        ("https://notdeepseek.com/v1", Quirks()),
        ("https://api.mistral.ai/v1", Quirks(reply_after_results=True)),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", Quirks(signed_calls=True)),
        ("https://storage.googleapis.com/v1", Quirks()),
        ("https://openrouter.ai/api/v1", Quirks()),
    ],
)
def test_a_service_is_known_by_its_address_whatever_it_is_named(base_url: str, quirks: Quirks) -> None:
    assert usual_quirks(base_url) == quirks


# ---- DeepSeek --------------------------------------------------------------------------------------------------------


def test_deepseek_gets_its_reasoning_back_letter_by_letter() -> None:
    script: list[Answer] = [ScriptedReply("I look. ", (CALL,), "Grüße, let me think"), ScriptedReply("done")]
    events, body = run(one_step("deepseek", DeepSeekServer(script), asking("deepseek-v4-pro")))
    assert thinking_of(events) == "Grüße, let me think"
    assert body["messages"][1]["reasoning_content"] == "Grüße, let me think"
    assert (body["thinking"], body["reasoning_effort"]) == ({"type": "enabled"}, "high")


def test_deepseek_gets_an_empty_reasoning_for_replies_that_had_none() -> None:
    server = DeepSeekServer([ScriptedReply("done")])
    assert text_of(run(talked("deepseek", server, taking_over("deepseek-v4-pro")))) == "done"
    assert server.bodies[0]["messages"][1]["reasoning_content"] == ""


@pytest.mark.parametrize("card", [None, Card(efforts=("low", "high", "max"))])
def test_deepseek_thinks_only_if_it_is_asked_to(card: Card | None) -> None:
    server = DeepSeekServer([ScriptedReply("done")])
    assert text_of(run(talked("deepseek", server, taking_over("deepseek-v4-pro", "off"), card))) == "done"
    [body] = server.bodies
    assert body["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in body
    assert "reasoning_content" not in body["messages"][1]


def test_the_deepseek_server_refuses_what_deepseek_refuses() -> None:
    events = run(talked("openrouter", DeepSeekServer([ScriptedReply("done")]), taking_over("deepseek-v4-pro", "off")))
    words = "HTTP 400: The `reasoning_content` in the thinking mode must be passed back to the API."
    assert broke_of(events).message == words


# ---- Gemini ----------------------------------------------------------------------------------------------------------


def test_gemini_gets_the_signature_of_its_call_back() -> None:
    script: list[Answer] = [ScriptedReply("", (CALL, SECOND)), ScriptedReply("done")]
    events, body = run(one_step("google", GeminiServer(script), asking("gemini-3.1-pro-preview")))
    assert calls_of(events) == [CALL, SECOND]
    first, second = body["messages"][1]["tool_calls"]
    signed = signature("first", "gemini-3.1-pro-preview", "read")
    assert first["extra_content"] == {"google": {"thought_signature": signed}}
    assert "extra_content" not in second


@pytest.mark.parametrize(
    ("model", "extra"),
    [
        ("gemini-3.1-pro-preview", {"google": {"thought_signature": SKIPPED}}),
        ("models/gemini-4-flash", {"google": {"thought_signature": SKIPPED}}),
        ("gemini-2.5-flash", None),
    ],
)
def test_gemini_gets_the_placeholder_with_calls_of_other_models_unless_it_is_older_than_the_rule(
    model: str, extra: Any
) -> None:
    server = GeminiServer([ScriptedReply("done")])
    assert text_of(run(talked("google", server, taking_over(model)))) == "done"
    assert [call.get("extra_content") for call in server.bodies[0]["messages"][1]["tool_calls"]] == [extra, None]


def test_the_gemini_server_refuses_what_gemini_refuses_and_its_words_are_read() -> None:
    broke = broke_of(run(talked("openrouter", GeminiServer([ScriptedReply("done")]), taking_over("gemini-3-flash"))))
    words = "HTTP 400: Function call is missing a thought_signature in functionCall parts: `default_api:read`."
    assert (broke.trouble, broke.message) == ("bad_request", words)


# ---- OpenRouter ------------------------------------------------------------------------------------------------------


def test_openrouter_gets_its_reasoning_details_back_in_whole_blocks() -> None:
    script: list[Answer] = [ScriptedReply("", (CALL,), "let me think it over"), ScriptedReply("done")]
    model = "anthropic/claude-opus-5"
    events, body = run(one_step("openrouter", OpenRouterServer(script), asking(model)))
    assert thinking_of(events) == "let me think it over"
    text, hidden = body["messages"][1]["reasoning_details"]
    signed = signature("first", model, "let me think it over")
    assert (text["text"], text["signature"], text["index"]) == ("let me think it over", signed, 0)
    assert hidden["data"] == f"hidden:{signed}"
    assert "reasoning_content" not in body["messages"][1]


def test_the_openrouter_server_refuses_what_openrouter_refuses() -> None:
    pieces = [{"type": "reasoning.text", "text": piece, "index": 0} for piece in ("a", "b")]
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "reasoning_details": pieces}]
    with pytest.raises(Rejected, match="Invalid `signature` in `thinking` block"):
        OpenRouterServer([], key=None).check(
            {"content-type": "application/json"}, {"model": "m", "stream": True, "messages": said}
        )


# ---- Mistral ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", [None, read_image(Image(images.png(), "a.png"))], ids=["words", "an image"])
def test_mistral_has_replied_before_the_user_speaks_again(image: ImageEntry | None) -> None:
    server = MistralServer([ScriptedReply("ok")])
    shown = () if image is None else (image,)
    results = (ToolMessage("c1", "read", "1", images=shown), ToolMessage("c2", "read", "2"))
    request = Request(
        model="mistral-large-4",
        messages=(UserMessage("go"), AssistantMessage("", (CALL, SECOND)), *results, UserMessage("stop")),
        tools=(READ,),
        images={one.sha256: images.png() for one in shown},
    )
    assert text_of(run(talked("mistral", server, request, Card(images=True)))) == "ok"
    assert server.complaints == []
    assert server.bodies[0]["messages"][4] == {"role": "assistant", "content": "(no text)"}


def test_elsewhere_a_model_of_mistrals_is_told_of_images_in_words() -> None:
    server = MistralServer([ScriptedReply("ok")])
    image = read_image(Image(images.png(), "a.png"))
    result = ToolMessage("c1", "read", image.words, images=(image,))
    request = Request(
        model="mistralai/mistral-large-4",
        messages=(UserMessage("go"), AssistantMessage("", (CALL,)), result),
        tools=(READ,),
        images={image.sha256: images.png()},
    )
    assert text_of(run(talked("openrouter", server, request, Card(images=True)))) == "ok"
    assert server.complaints == ["Unexpected role 'user' after role 'tool'"]
    assert "[image a.png, 2×1 PNG]" in str(server.bodies[0])
