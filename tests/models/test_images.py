"""Images on the wire, against the strict servers: what models get that take images, and what the others get."""

import base64
import hashlib
from typing import Any

import pytest
from msgspec.structs import replace

from fledge.core.images import Image, ImageEntry, read_image, with_names
from fledge.models.anthropic import AnthropicModel
from fledge.models.base import AssistantMessage, Call, Model, ModelMessage, Request, ToolMessage, UserMessage
from fledge.models.catalog import Card
from fledge.models.keys import SecretKey
from fledge.models.openai import OpenAIModel
from fledge.models.responses import ResponsesModel
from fledge.models.retry import Retrying
from fledge.models.scripted import ScriptedReply
from tests import images
from tests.models.asking import (
    ANTHROPIC,
    OPENAI,
    PROTOCOLS,
    READ,
    RESPONSES,
    Protocol,
    ask,
    broke_of,
    run,
    service,
    text_of,
    tried,
)
from tests.models.serving import Server, Status
from tests.statements import proves

CAT, DOG = images.png(640, 480), images.jpeg(20, 10)
IDS = [protocol.name for protocol in PROTOCOLS]
SEES = Card(images=True)


def entry(data: bytes, name: str) -> ImageEntry:
    return read_image(Image(data, name))


CAT_ENTRY, DOG_ENTRY = entry(CAT, "cat.png"), entry(DOG, "dog.jpg")
ASKED = UserMessage(with_names("Look.", [CAT_ENTRY]), (CAT_ENTRY,))
CALLS = (Call("a", "read", '{"path":"dog.jpg"}'), Call("b", "read", '{"path":"x"}'))
RESULTS: tuple[ModelMessage, ...] = (
    ToolMessage("a", "read", DOG_ENTRY.words, images=(DOG_ENTRY,)),
    ToolMessage("b", "read", "words"),
)
REQUEST = Request(
    model="m",
    messages=(ASKED, AssistantMessage("", CALLS), *RESULTS, UserMessage("And?")),
    tools=(READ,),
    images={CAT_ENTRY.sha256: CAT, DOG_ENTRY.sha256: DOG},
)


def adapter(protocol: Protocol, server: Server, card: Card | None) -> Model:
    made: type[OpenAIModel | ResponsesModel | AnthropicModel] = protocol.adapter
    return made(service(server.base_url), SecretKey(str(server.key)), card=lambda _: card)


async def sent(protocol: Protocol, request: Request, card: Card | None = SEES) -> dict[str, Any]:
    """The request as the strict server got it, and accepted it."""
    async with protocol.serve([ScriptedReply("ok")]) as server:
        model = adapter(protocol, server, card)
        try:
            assert text_of(await ask(model, request)) == "ok"
        finally:
            await model.close()
        assert server.complaints == []
        [body] = server.bodies
        return body


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


@proves("3.images.13", "Each wire protocol carries images of messages and of tool results as its service takes them")
def test_the_messages_protocol_carries_images_where_they_belong() -> None:
    messages = run(sent(ANTHROPIC, REQUEST))["messages"]
    cat = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": packed(CAT)}}
    dog = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": packed(DOG)}}
    assert messages[0]["content"] == [{"type": "text", "text": ASKED.text}, cat]
    assert messages[2]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "text", "text": "[image dog.jpg, 20×10 JPEG]"}, dog],
    }
    assert messages[2]["content"][1]["content"] == "words"


def test_a_request_may_end_with_an_image_and_is_marked_there() -> None:
    messages = run(sent(ANTHROPIC, replace(REQUEST, messages=(ASKED,))))["messages"]
    assert messages[-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


@proves("3.images.13")
def test_chat_completions_carry_images_of_results_in_a_message_behind_them() -> None:
    messages = run(sent(OPENAI, REQUEST))["messages"]
    assert messages[0]["content"] == [
        {"type": "text", "text": ASKED.text},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{packed(CAT)}"}},
    ]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert messages[2]["content"] == "[image dog.jpg, 20×10 JPEG]"
    assert messages[4]["content"] == [
        {"type": "text", "text": "[Images of the tool results above]\n[image dog.jpg, 20×10 JPEG]"},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{packed(DOG)}"}},
    ]


def test_images_of_the_last_results_are_sent_too() -> None:
    messages = run(sent(OPENAI, replace(REQUEST, messages=REQUEST.messages[:-1])))["messages"]
    assert messages[-1]["content"][1]["image_url"]["url"].endswith(packed(DOG))


@proves("3.images.13")
def test_responses_carry_images_where_they_belong() -> None:
    items = run(sent(RESPONSES, REQUEST))["input"]
    assert items[0]["content"] == [
        {"type": "input_text", "text": ASKED.text},
        {"type": "input_image", "image_url": f"data:image/png;base64,{packed(CAT)}", "detail": "auto"},
    ]
    assert [item["output"] for item in items if item["type"] == "function_call_output"] == [
        [
            {"type": "input_text", "text": "[image dog.jpg, 20×10 JPEG]"},
            {"type": "input_image", "image_url": f"data:image/jpeg;base64,{packed(DOG)}", "detail": "auto"},
        ],
        "words",
    ]


@proves("3.images.14", "A model that takes no images, or of which that is not known, gets a line of text for each")
@pytest.mark.parametrize("card", [None, Card()], ids=["no card", "a card without images"])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=IDS)
def test_other_models_get_the_words(protocol: Protocol, card: Card | None) -> None:
    body = run(sent(protocol, REQUEST, card))
    shown = str(body)
    assert packed(CAT) not in shown
    assert packed(DOG) not in shown
    assert "[image cat.png, 640×480 PNG]" in shown
    assert "[image dog.jpg, 20×10 JPEG]" in shown


@proves("3.images.15", "A fallback gets the same entry as it takes it: images or words")
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=IDS)
def test_a_fallback_gets_what_it_takes(protocol: Protocol) -> None:
    async def main() -> None:
        async with protocol.serve([[Status(401)]]) as first, protocol.serve([ScriptedReply("ok")]) as second:
            models = adapter(protocol, first, None), adapter(protocol, second, SEES)
            try:
                assert text_of(await tried(Retrying(models[0], [(models[1], "other")]).tries(REQUEST), [])) == "ok"
            finally:
                for model in models:
                    await model.close()
            assert packed(CAT) not in str(first.bodies)
            assert packed(CAT) in str(second.bodies)

    run(main())


@proves("3.images.16", "An image that its provider refuses is a line of text from then on, and the turn goes on")
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=IDS)
def test_a_refused_image_does_not_end_the_conversation(protocol: Protocol) -> None:
    damaged = CAT[:29] + b"\0\0\0\0" + CAT[33:]
    image = entry(damaged, "cat.png")
    messages = (UserMessage(with_names("Look.", [image]), (image,)), AssistantMessage("I see."), UserMessage("And?"))
    request = Request(model="m", messages=messages, images={hashlib.sha256(damaged).hexdigest(): damaged})

    async def main() -> None:
        async with protocol.serve([ScriptedReply("ok")]) as server:
            model = adapter(protocol, server, SEES)
            try:
                assert text_of(await ask(model, request)) == "ok"
            finally:
                await model.close()
            assert len(server.complaints) == 1
            [body] = server.bodies
            assert "[the model's provider refused the images of this conversation: " in str(body)
            assert "Could not process image" in str(body)

    run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=IDS)
def test_a_refusal_for_another_reason_stands(protocol: Protocol) -> None:
    async def main() -> str:
        refusal = Status(400, {"error": {"type": "invalid_request_error", "message": "no such thing"}})
        async with protocol.serve([[refusal], ScriptedReply("ok")]) as server:
            model = adapter(protocol, server, SEES)
            try:
                return broke_of(await ask(model, REQUEST)).message
            finally:
                await model.close()

    assert "no such thing" in run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=IDS)
def test_a_request_of_many_megabytes_arrives(protocol: Protocol) -> None:
    data = [images.png(extra=b"%d" % at * 3_700_000) for at in range(4)]
    entries = tuple(entry(one, "large.png") for one in data)
    request = Request(
        model="m",
        messages=(UserMessage("Look.", entries),),
        images={image.sha256: one for image, one in zip(entries, data, strict=True)},
    )
    shown = str(run(sent(protocol, request)))
    assert [packed(one) in shown for one in data] == [True] * 4
