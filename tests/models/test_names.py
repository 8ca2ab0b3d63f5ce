"""Names of models: what they open, and what is said where they open nothing."""

import socket
from pathlib import Path

import pytest

from fledge.errors import BadInput, Refused
from fledge.models.anthropic import AnthropicModel
from fledge.models.base import ReplyEnded, Request, UserMessage
from fledge.models.catalog import Catalog
from fledge.models.names import Registry
from fledge.models.openai import OpenAIModel
from fledge.models.providers import Provider
from fledge.models.responses import ResponsesModel
from fledge.models.scripted import ScriptedModel, ScriptedReply
from tests.models.asking import HELLO, OPENAI, READ, ask, broke_of, run, text_of, tried
from tests.models.openai_server import OpenAIServer
from tests.models.serving import KEY


@pytest.mark.parametrize(
    ("name", "kind", "shown", "provider_name"),
    [
        ("openai/gpt-5", ResponsesModel, "https://api.openai.com/v1", "gpt-5"),
        ("anthropic/claude-sonnet-4-5", AnthropicModel, "https://api.anthropic.com", "claude-sonnet-4-5"),
        ("ollama/llama3.2", OpenAIModel, "http://127.0.0.1:11434/v1", "llama3.2"),
        ("openrouter/meta/llama:free", OpenAIModel, "https://openrouter.ai/api/v1", "meta/llama:free"),
        ("openai/brand-new", ResponsesModel, "https://api.openai.com/v1", "brand-new"),
        ("gpt-5", ResponsesModel, "https://api.openai.com/v1", "gpt-5"),
        ("gpt-5-2025-08-07", ResponsesModel, "https://api.openai.com/v1", "gpt-5-2025-08-07"),
        ("claude-haiku-4-5", AnthropicModel, "https://api.anthropic.com", "claude-haiku-4-5"),
    ],
)
def test_a_name_opens_its_provider(name: str, kind: type, shown: str, provider_name: str) -> None:
    model, called = Registry({}).open(name)
    assert isinstance(model, kind)
    assert called == provider_name
    assert f"({shown})" in repr(model)


@pytest.mark.parametrize(
    ("base_url", "kind"),
    [
        ("https://api.openai.com/v1/", ResponsesModel),
        ("https://eu.api.openai.com/v1", ResponsesModel),
        ("https://mine.openai.azure.com/openai/v1", OpenAIModel),
        ("https://api.openai.com.evil.example/v1", OpenAIModel),
        ("https://notapi.openai.com/v1", OpenAIModel),
        ("http://127.0.0.1:4000/v1", OpenAIModel),
    ],
)
def test_openai_itself_is_asked_by_responses_and_a_compatible_server_by_chat_completions(
    base_url: str, kind: type
) -> None:
    model, _ = Registry({"OPENAI_BASE_URL": base_url}).open("openai/gpt-5.6-terra")
    assert type(model) is kind


@pytest.mark.parametrize("model", ["gpt-5.6-terra", "gpt-5.4", "gpt-5", "o3", "gpt-4.1"])
def test_openais_models_can_be_used_with_tools_behind_a_server_that_hands_requests_through(model: str) -> None:
    async def main() -> None:
        async with OpenAIServer([ScriptedReply("hi")]) as server:
            registry = Registry({"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY})
            client, called = registry.open(f"openai/{model}")
            asked = Request(model=called, messages=(UserMessage("x"),), tools=(READ,))
            assert text_of(await ask(client, asked)) == "hi"
            await registry.close()
            assert server.complaints == []

    run(main())


def test_the_catalogue_names_the_protocol_of_a_single_model() -> None:
    catalog = Catalog({"openai/old": {"wire": "openai-chat"}, "vllm/new": {"wire": "openai-responses"}})
    registry = Registry({"OPENAI_BASE_URL": "https://api.openai.com/v1"}, catalog=catalog)
    kinds = {
        "openai/old": OpenAIModel,
        "openai/gpt-5": ResponsesModel,
        "vllm/new": ResponsesModel,
        "vllm/m": OpenAIModel,
    }
    for name, kind in kinds.items():
        assert type(registry.open(name)[0]) is kind
    assert registry.open("openai/old")[0] is registry.open("openai/old")[0]
    with pytest.raises(BadInput, match="in use"):
        registry.add_provider(Provider(name="vllm", base_url="http://a"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-55", "openai/gpt-5"),
        ("claude-sonet-4-5", "anthropic/claude-sonnet-4-5"),
        ("opnai/gpt-5", "no provider 'opnai'; did you mean openai"),
        ("zzz/qqq", "no provider 'zzz'; there are anthropic, azure, deepseek"),
        ("google", "is a provider; name one of its models, such as google/gemini-3.8-flash"),
        ("vllm", "is a provider; name one of its models, such as vllm/<model>"),
        ("zzzzzzzz", "a full name is like openai/gpt-5"),
        ("openai/", "no such model"),
        ("scripted/ecko", "did you mean scripted/echo?"),
        ("", "must be a name"),
        (" gpt-5", "must be a name"),
        ("gpt\n5", "must be a name"),
    ],
)
def test_a_name_that_opens_nothing_is_refused_with_its_nearest(name: str, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        Registry({}).open(name)
    assert refused.value.field == "model"
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("env", "hint"),
    [
        ({}, "did you mean mistral/mock-large, "),
        ({"OPENAI_API_KEY": "none"}, "a full name is like openai/gpt-5"),
        ({"OPENAI_API_KEY": "none", "MISTRAL_API_KEY": "none"}, "did you mean mistral/mock-large, "),
    ],
)
def test_models_of_providers_without_a_key_are_not_suggested_while_others_have_one(
    env: dict[str, str], hint: str
) -> None:
    registry = Registry(env, catalog=Catalog({"mistral/mock-large": {}, "openai/gpt-5": {}}))
    with pytest.raises(BadInput) as refused:
        registry.open("mock-larg")
    assert hint in str(refused.value)


def test_a_bare_name_of_two_providers_is_refused_with_both() -> None:
    registry = Registry({}, catalog=Catalog({"ollama/gpt-5": {}}))
    with pytest.raises(BadInput, match="several providers: openai/gpt-5, ollama/gpt-5"):
        registry.open("gpt-5")


def test_one_adapter_serves_all_models_of_a_provider() -> None:
    registry = Registry({})
    assert registry.open("openai/a")[0] is registry.open("openai/b")[0]


def test_addresses_and_keys_come_from_the_environment() -> None:
    async def main() -> None:
        async with OpenAIServer([ScriptedReply("hi"), ScriptedReply("again")]) as server:
            env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY, "MINE_KEY": KEY}
            registry = Registry(env)
            registry.add_provider(Provider(name="mine", base_url=server.base_url, key_env="MINE_KEY"))
            for name, text in [("openai/m", "hi"), ("mine/m", "again")]:
                model, called = registry.open(name)
                assert text_of(await ask(model, Request(model=called, messages=(UserMessage("x"),)))) == text
            await registry.close()

    run(main())


@pytest.mark.parametrize(("name", "key"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
def test_without_a_key_it_is_said_which_one_is_missing(name: str, key: str) -> None:
    model, _ = Registry({}).open(f"{name}/m")
    broke = broke_of(run(ask(model)))
    assert broke.trouble == "auth"
    assert key in broke.message


@pytest.mark.parametrize("name", ["openai/m", "gpt-5", "anthropic/m"])
def test_a_missing_key_is_found_before_anything_is_asked(name: str) -> None:
    with pytest.raises(Refused, match=r"no key: set [A-Z]+_API_KEY, or"):
        Registry({}).check_key(name)
    Registry({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}).check_key(name)


@pytest.mark.parametrize("name", ["ollama/m", "vllm/m", "scripted/echo", "own", "mine/x", "openai/own"])
def test_what_wants_no_key_is_not_asked_for_one(name: str) -> None:
    registry = Registry({})
    for own in ("own", "mine", "openai/own"):
        registry.add_model(own, ScriptedModel(lambda request: "hi"))
    registry.check_key(name)
    here = Registry({"OPENAI_BASE_URL": "http://localhost:1/v1"})
    here.check_key("openai/m")


def test_an_address_that_is_none_is_refused_by_the_variable_that_says_it() -> None:
    with pytest.raises(BadInput, match=r"^OPENAI_BASE_URL: must be an address like https://host/v1 \(got 'banana'\)$"):
        Registry({"OPENAI_BASE_URL": "banana"}).open("openai/m")


def test_where_nobody_is_the_address_is_told() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # and nobody listens
        at = f"http://127.0.0.1:{unheard.getsockname()[1]}/v1"
        model, _ = Registry({"OPENAI_BASE_URL": at}).open("openai/m")
        broke = broke_of(run(ask(model)))
        run(model.close())
    assert broke.trouble == "retryable"
    words = f"{at} cannot be reached (Connection refused): is the address right, and the server running?"
    assert broke.message == words


def test_a_server_on_this_machine_needs_no_key() -> None:
    async def main() -> None:
        async with OpenAIServer([ScriptedReply("hi")], key=None) as server:
            model, _ = Registry({"OPENAI_BASE_URL": server.base_url}).open("openai/m")
            assert text_of(await ask(model)) == "hi"
            await model.close()

    run(main())


def test_a_key_file_that_others_can_read_is_refused_on_opening(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("k")
    path.chmod(0o644)
    with pytest.raises(BadInput, match="chmod 600"):
        Registry({"OPENAI_API_KEY_FILE": str(path)}).open("openai/gpt-5")


def test_users_register_models_of_their_own() -> None:
    registry = Registry({})
    one, all_of_them = ScriptedModel(lambda r: "one"), ScriptedModel(lambda r: "all")
    registry.add_model("scripted/mine", one)
    registry.add_model("acme", all_of_them)
    assert registry.open("scripted/mine") == (one, "mine")
    assert registry.open("acme/anything/at-all") == (all_of_them, "anything/at-all")
    assert registry.open("acme") == (all_of_them, "acme")
    run(registry.close())


def test_what_cannot_be_registered_is_refused() -> None:
    registry = Registry({})
    with pytest.raises(BadInput):
        registry.add_model("/", ScriptedModel([]))
    for name in ("", "a/b", "a\n"):
        with pytest.raises(BadInput, match=r"provider\.name"):
            registry.add_provider(Provider(name=name, base_url="http://a"))
    with pytest.raises(BadInput, match="base_url"):
        registry.add_provider(Provider(name="a", base_url="nowhere"))
    registry.open("openai/gpt-5")
    with pytest.raises(BadInput, match="in use"):
        registry.add_provider(Provider(name="openai", base_url="http://a"))


def test_echo_is_always_there() -> None:
    model, called = Registry({}).open("scripted/echo")
    events = run(ask(model, HELLO))
    assert (called, text_of(events), events[-1]) == ("echo", "hello", ReplyEnded("end", "m"))


def test_a_choice_falls_back_in_order() -> None:
    async def main() -> None:
        registry = Registry({})
        model, called = registry.choose("openai/gpt-5", ["anthropic/claude-opus-5", "scripted/echo"])
        events = await tried(model.tries(Request(model=called, messages=(UserMessage("x"),))), [])
        assert (called, text_of(events), events[-1]) == ("gpt-5", "x", ReplyEnded("end", "echo"))
        with pytest.raises(BadInput):
            registry.choose("scripted/echo", ["nobody/knows"])
        await registry.close()

    run(main())


def test_the_adapter_keeps_to_the_protocol_of_its_provider() -> None:
    registry = Registry({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/v1/"})
    model, _ = registry.open("anthropic/m")
    assert "(http://127.0.0.1:9)" in repr(model)
    assert OPENAI.adapter is OpenAIModel


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("openai/gpt-4o", True),
        ("gpt-4o-2024-11-20", True),
        ("anthropic/claude-sonnet-4-5", True),
        ("deepseek/deepseek-v4-pro", False),
        ("ollama/llava", False),
        ("mine/eyes", True),
        ("scripted/echo", True),
    ],
)
def test_images_are_given_to_models_whose_cards_say_so_and_to_objects(name: str, takes: bool) -> None:
    registry = Registry(env={})
    registry.add_model("mine/eyes", ScriptedModel([]))
    assert registry.takes_images(name) == takes


def test_the_settings_may_say_that_a_model_takes_images() -> None:
    registry = Registry(env={}, catalog=Catalog({"ollama/llava": {"images": True}}))
    assert registry.takes_images("ollama/llava")
