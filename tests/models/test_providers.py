"""Providers: where each is found, by which protocol and with which key it is asked."""

from pathlib import Path

import pytest

from fledge.errors import BadInput, Refused
from fledge.models.anthropic import AnthropicModel
from fledge.models.base import Request, UserMessage
from fledge.models.names import Registry
from fledge.models.openai import OpenAIModel
from fledge.models.providers import BUILT_IN, Provider, base_url_of
from fledge.models.responses import ResponsesModel
from fledge.models.scripted import ScriptedReply
from tests.models.asking import ask, run, text_of
from tests.models.openai_server import OpenAIServer
from tests.models.serving import KEY

NAMES = """openai anthropic azure deepseek google groq mistral openrouter together xai llamacpp lmstudio ollama vllm"""


def test_these_providers_are_built_in_and_each_is_asked_by_a_secure_address_or_on_this_machine() -> None:
    assert list(BUILT_IN) == NAMES.split()
    env = {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"}
    for provider in BUILT_IN.values():
        assert base_url_of(provider, env).startswith(("https://", "http://127.0.0.1:"))


@pytest.mark.parametrize(
    ("env", "address"),
    [
        ({"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"}, "https://mine.openai.azure.com/openai/v1"),
        ({"AZURE_OPENAI_BASE_URL": "https://gate.example/az/v1"}, "https://gate.example/az/v1"),
        (
            {"AZURE_OPENAI_BASE_URL": "https://a.example/v1", "AZURE_OPENAI_ENDPOINT": "https://b.example"},
            "https://a.example/v1",
        ),
    ],
)
def test_azure_is_found_by_its_variables_at_its_v1_address(env: dict[str, str], address: str) -> None:
    model, name = Registry(env).open("azure/my-deployment")
    assert (type(model), name) == (ResponsesModel, "my-deployment")
    assert f"({address})" in repr(model)


def test_azure_without_an_address_says_which_setting_or_variable_gives_one() -> None:
    with pytest.raises(BadInput) as refused:
        Registry({}).open("azure/m")
    assert str(refused.value) == (
        "models.providers.azure.baseUrl: is required: azure has no default address,"
        " or AZURE_OPENAI_BASE_URL in the environment"
    )
    with pytest.raises(BadInput, match=r"^AZURE_OPENAI_ENDPOINT: must be an address"):
        Registry({"AZURE_OPENAI_ENDPOINT": "mine"}).open("azure/m")


def test_headers_and_query_go_with_every_request_and_a_header_of_ours_is_replaced() -> None:
    async def main() -> None:
        async with OpenAIServer([ScriptedReply("hi")]) as server:
            provider = Provider(
                name="mine",
                base_url=server.base_url,
                key_env="MINE",
                headers={"X-Team": "birds", "user-agent": "nest/1"},
                query={"api-version": "v 1"},
            )
            registry = Registry({"MINE": KEY})
            registry.add_provider(provider)
            model, name = registry.open("mine/m")
            assert text_of(await ask(model, Request(model=name, messages=(UserMessage("x"),)))) == "hi"
            headers = server.headers[0]
            assert (headers["x-team"], headers["user-agent"]) == ("birds", "nest/1")
            assert headers["authorization"] == f"Bearer {KEY}"
            assert server.targets == ["/v1/chat/completions?api-version=v+1"]
            await registry.close()

    run(main())


def test_a_key_may_be_in_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(KEY)
    path.chmod(0o600)
    registry = Registry({})
    registry.add_provider(Provider(name="mine", base_url="https://a.example/v1", key_file=str(path)))
    registry.check_key("mine/m")
    path.chmod(0o640)
    registry.add_provider(Provider(name="other", base_url="https://a.example/v1", key_file=str(path)))
    with pytest.raises(
        BadInput, match=r"^models.providers.other.apiKeyFile: must be readable by its owner only: chmod 600"
    ):
        registry.open("other/m")


def test_a_provider_of_a_program_is_asked_by_the_protocol_it_names() -> None:
    registry = Registry({})
    kinds = {"openai-chat": OpenAIModel, "openai-responses": ResponsesModel, "anthropic": AnthropicModel}
    for api, kind in kinds.items():
        registry.add_provider(Provider(name=api, api=api, base_url="https://a.example/v1"))  # type: ignore[arg-type]
        assert type(registry.open(f"{api}/m")[0]) is kind
    registry.add_provider(Provider(name="keyed", base_url="https://a.example/v1", key_env="KEYED"))
    with pytest.raises(Refused, match=r"^no key: set KEYED, or KEYED_FILE"):
        registry.check_key("keyed/m")


def test_a_header_with_a_key_is_refused_of_programs_too() -> None:
    with pytest.raises(BadInput, match=r"^provider.headers.Authorization: would put a key"):
        Registry({}).add_provider(
            Provider(name="a", base_url="https://a.example", headers={"Authorization": f"Bearer {KEY}"})
        )
