"""Data that a provider wants back: sealed for its provider and model, and given up where the provider refuses it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from fledge.models.base import (
    AssistantMessage,
    Broke,
    Call,
    Model,
    ModelEvent,
    ModelMessage,
    ProviderErrorKind,
    ReplyEnded,
    Request,
    ToolMessage,
    UserMessage,
)
from fledge.models.catalog import shipped
from fledge.models.keys import SecretKey
from fledge.models.opaque import seal, unseal, without_refused
from fledge.models.openai import OpenAIModel
from fledge.models.providers import Quirks
from fledge.models.responses import ResponsesModel
from fledge.models.scripted import ScriptedReply
from tests.models.anthropic_server import AnthropicServer
from tests.models.asking import ANTHROPIC, READ, answered, ask, broke_of, run, service, text_of
from tests.models.compatible_servers import DeepSeekServer, GeminiServer, OpenRouterServer
from tests.models.responses_server import ResponsesServer
from tests.models.serving import KEY, Server
from tests.statements import proves

CALL = Call("c1", "read", '{"path":"x"}')
SECOND = Call("c2", "read", '{"path":"y"}')


# ---- sealing ---------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_data_comes_back_for_its_provider_and_model(model: str, data: str) -> None:
    sealed = seal("openai", model, [data])
    assert unseal(sealed, "openai", model, list[str]) == [data]
    assert unseal(sealed, "openai", model + "-mini", list[str]) is None
    assert unseal(sealed, "azure", model, list[str]) is None
    assert unseal(sealed, "openai", model, list[int]) is None


@pytest.mark.parametrize("text", ["", "x", "{}", '{"provider":"p","model":"m"}', "\ud800", "[" * 10_000])
def test_a_text_that_cannot_be_read_holds_nothing(text: str) -> None:
    assert unseal(text, "p", "m", list[str]) is None


REQUEST = Request(model="m", messages=(UserMessage("x"), AssistantMessage("y", opaque="sealed"), UserMessage("z")))


@pytest.mark.parametrize(
    ("trouble", "words", "given_up"),
    [
        ("bad_request", "The encrypted content gAAA...Rg== could not be verified.", True),
        ("bad_request", "messages.1.content.0: Invalid `signature` in `thinking` block", True),
        ("bad_request", "Corrupted thought signature.", True),
        ("bad_request", "model: no such model", False),
        ("retryable", "HTTP 503: the signature service is down", False),
        ("auth", "invalid signature", False),
    ],
)
def test_data_is_given_up_only_where_it_is_the_reason_of_the_refusal(
    trouble: ProviderErrorKind, words: str, given_up: bool
) -> None:
    bare = without_refused(REQUEST, Broke(trouble, words))
    assert (bare is not None) is given_up
    if bare is not None:
        assert bare.messages == (UserMessage("x"), AssistantMessage("y"), UserMessage("z"))
        assert without_refused(bare, Broke(trouble, words)) is None


# ---- on every wire ---------------------------------------------------------------------------------------------------


class Thinker(Struct, frozen=True):
    """A service whose replies carry data that it wants back, and how its adapter is made."""

    name: str
    model: str
    server: type[Server]
    adapter: Callable[[str], Model]


def _responses(base_url: str) -> Model:
    return ResponsesModel(service(base_url), SecretKey(KEY), card=lambda name: shipped().find(f"openai/{name}"))


def _gemini(base_url: str) -> Model:
    return OpenAIModel(service(base_url, "google", Quirks(signed_calls=True)), SecretKey(KEY))


def _deepseek(base_url: str) -> Model:
    return OpenAIModel(service(base_url, "deepseek", Quirks(thinking_switch=True)), SecretKey(KEY))


def _openrouter(base_url: str) -> Model:
    return OpenAIModel(service(base_url, "openrouter"), SecretKey(KEY))


def _anthropic(base_url: str) -> Model:
    return ANTHROPIC.adapter(service(base_url, "anthropic"), SecretKey(KEY))


DEEPSEEK = Thinker("deepseek", "deepseek-v4-pro", DeepSeekServer, _deepseek)
SIGNING = (
    Thinker("responses", "gpt-5.6-terra", ResponsesServer, _responses),
    Thinker("anthropic", "claude-opus-5", AnthropicServer, _anthropic),
    Thinker("anthropic with a budget", "claude-sonnet-4-5", AnthropicServer, _anthropic),
    Thinker("gemini", "gemini-3.1-pro-preview", GeminiServer, _gemini),
    Thinker("openrouter", "anthropic/claude-opus-5", OpenRouterServer, _openrouter),
)
"""Those whose data another account cannot use."""
THINKERS = (*SIGNING, DEEPSEEK)
each = pytest.mark.parametrize("thinker", THINKERS, ids=[thinker.name for thinker in THINKERS])
signing = pytest.mark.parametrize("thinker", SIGNING, ids=[thinker.name for thinker in SIGNING])


def first(thinker: Thinker) -> Request:
    return Request(model=thinker.model, messages=(UserMessage("go"),), tools=(READ,), thinking="medium")


def after(request: Request, events: list[ModelEvent]) -> Request:
    """The next request of the turn: every call of the reply has its result."""
    reply = answered(events)
    results: tuple[ModelMessage, ...] = tuple(ToolMessage(call.id, call.name, "content") for call in reply.calls)
    return msgspec.structs.replace(request, messages=(*request.messages, reply, *results))


@proves("0.crash.19", "Data that a provider wants back with a reply goes back to the same provider and model, no other")
@each
def test_a_model_that_thinks_goes_on_over_several_steps_with_tools(thinker: Thinker) -> None:
    script = [
        ScriptedReply("I look. ", (CALL, SECOND), "let me think"),
        ScriptedReply("", (SECOND,), "once more"),
        ScriptedReply("done"),
    ]

    async def main() -> None:
        async with thinker.server(script) as server:
            model = thinker.adapter(server.base_url)
            request = first(thinker)
            for _ in range(2):
                events = await ask(model, request)
                assert isinstance(events[-1], ReplyEnded)
                request = after(request, events)
            assert text_of(await ask(model, request)) == "done"
            await model.close()
            assert server.complaints == []

    run(main())


@proves("0.crash.19")
@each
def test_a_model_takes_over_a_conversation_of_every_other(thinker: Thinker) -> None:
    async def begun(other: Thinker) -> Request:
        async with other.server([ScriptedReply("I look. ", (CALL, SECOND), "let me think")]) as server:
            model = other.adapter(server.base_url)
            request = after(first(other), await ask(model, first(other)))
            await model.close()
            return msgspec.structs.replace(request, model=thinker.model)

    async def main() -> None:
        requests = [await begun(other) for other in THINKERS if other.server is not thinker.server]
        async with thinker.server([ScriptedReply("done", thinking="so")] * len(requests)) as server:
            model = thinker.adapter(server.base_url)
            for request in requests:
                assert text_of(await ask(model, request)) == "done"
            await model.close()
            assert server.complaints == []

    run(main())


@proves("0.crash.20", "A conversation goes on when its provider refuses the data it once gave")
@signing
def test_a_provider_that_refuses_its_own_data_is_asked_again_without_it(thinker: Thinker) -> None:
    async def main() -> None:
        async with thinker.server(
            [ScriptedReply("I look. ", (CALL,), "let me think"), ScriptedReply("done")]
        ) as server:
            model = thinker.adapter(server.base_url)
            request = after(first(thinker), await ask(model, first(thinker)))
            server.account = "second"
            assert text_of(await ask(model, request)) == "done"
            await model.close()
            assert len(server.complaints) == 1
            assert len(server.bodies) == 2

    run(main())


def test_a_refusal_for_another_reason_is_told_and_nothing_is_asked_twice() -> None:
    thinker = THINKERS[0]

    async def main() -> Any:
        async with thinker.server([ScriptedReply("", (CALL,), "hm")]) as server:
            model = thinker.adapter(server.base_url)
            request = after(first(thinker), await ask(model, first(thinker)))
            wrong = msgspec.structs.replace(request, tools=(READ, READ))
            broke = broke_of(await ask(model, wrong))
            await model.close()
            assert server.complaints == [broke.message.removeprefix("HTTP 400: ")]
            return broke.trouble

    assert run(main()) == "bad_request"
