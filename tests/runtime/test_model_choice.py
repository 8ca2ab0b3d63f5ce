"""A local Ollama that nobody mentioned, and which services can be used."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from fledge.config import Config
from fledge.errors import Refused
from fledge.models.catalog import Catalog
from fledge.models.choosing import standing
from fledge.models.names import Registry
from fledge.models.providers import BUILT_IN, Provider
from fledge.runtime.model_choice import ChosenModel, choose_by_key
from tests.cli.test_choosing import Listing, OllamaServer
from tests.models.openai_server import tool_then_answer
from tests.models.raw_server import RawServer, chunked, saying
from tests.statements import proves


async def chosen_beside(base_url: str) -> ChosenModel:
    """What is chosen without any key where the Ollama of this machine is at another address."""
    registry = Registry({})
    registry.add_provider(replace(BUILT_IN["ollama"], base_url=base_url))
    return await choose_by_key(Config(), registry)


@proves("7.input.26")
def test_without_any_key_a_local_ollama_is_asked_for_its_first_model_with_tools() -> None:
    async def main() -> None:
        async with OllamaServer(tool_then_answer) as server:
            chosen = await chosen_beside(server.base_url)
            assert chosen == ChosenModel("ollama/qwen3:8b", "ollama", "a local Ollama answers and no key is set")

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        chunked(b"[]"),
        chunked(b'{"models": []}'),
        chunked(b" " * 2_000_000),
    ],
    ids=["silence", "trouble", "something else", "no models", "too much"],
)
def test_an_ollama_that_has_nothing_to_offer_holds_nobody_up(answer: bytes) -> None:
    async def main() -> None:
        async with RawServer(saying(answer)) as server:
            with pytest.raises(Refused, match="no model is set, and no provider can be used: set ANTHROPIC"):
                async with asyncio.timeout(5):
                    await chosen_beside(f"http://127.0.0.1:{server.port}/v1")

    asyncio.run(main())


def test_services_come_in_the_order_in_which_they_are_chosen() -> None:
    own = Provider(name="acme", base_url="https://acme.example/v1", key_env="ACME_KEY")
    registry = Registry({})
    registry.add_provider(own)
    names = [one.provider.name for one in registry.standings(())]
    assert names[:5] == ["anthropic", "openai", "google", "deepseek", "openrouter"]
    assert names[5:] == [
        "azure",
        "groq",
        "mistral",
        "together",
        "xai",
        "acme",
        "llamacpp",
        "lmstudio",
        "ollama",
        "vllm",
    ]


ACME = Provider(name="acme", base_url="http://127.0.0.1:9/v1", key_env="ACME_KEY")


@pytest.mark.parametrize(
    ("provider", "env", "is_configured", "reason", "missing"),
    [
        (BUILT_IN["groq"], {"GROQ_API_KEY": "k"}, False, "GROQ_API_KEY is set", ""),
        (BUILT_IN["groq"], {"GROQ_API_KEY": " "}, False, "", "set GROQ_API_KEY, or GROQ_API_KEY_FILE to a file that"),
        (
            BUILT_IN["groq"],
            {"GROQ_API_KEY": "two words"},
            False,
            "",
            "GROQ_API_KEY: must hold a key of printable",
        ),
        (BUILT_IN["openai"], {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, False, "OPENAI_BASE_URL is set", ""),
        (BUILT_IN["azure"], {"AZURE_OPENAI_API_KEY": "k"}, False, "", "models.providers.azure.baseUrl: is required"),
        (BUILT_IN["vllm"], {}, False, "", "start it at http://127.0.0.1:8000/v1, or set VLLM_BASE_URL to its address"),
        (BUILT_IN["vllm"], {"VLLM_BASE_URL": "http://gpu:8000/v1"}, False, "VLLM_BASE_URL is set", ""),
        (ACME, {}, True, "models.providers.acme is set", ""),
        (ACME, {}, False, "", "start it at http://127.0.0.1:9/v1, or set models.providers.acme.baseUrl to its address"),
    ],
)
def test_a_service_says_why_it_can_be_used_or_what_is_missing(
    provider: Provider, env: dict[str, str], is_configured: bool, reason: str, missing: str
) -> None:
    found = standing(provider, env, is_configured)
    assert found.reason == reason
    assert found.missing.startswith(missing)
    assert bool(found.reason) != bool(found.missing)


def test_a_key_in_a_file_is_named_by_what_names_the_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a-key")
    key.chmod(0o600)
    assert standing(BUILT_IN["groq"], {"GROQ_API_KEY_FILE": str(key)}).reason == "GROQ_API_KEY_FILE is set"
    filed = replace(ACME, key_file=str(key))
    assert standing(filed, {}).reason == "models.providers.acme.apiKeyFile is set"


@pytest.mark.parametrize(
    ("name", "env", "model"),
    [
        ("anthropic", {}, "anthropic/claude-sonnet-5-5"),
        ("azure", {"AZURE_OPENAI_DEPLOYMENT": "mine"}, "azure/mine"),
        ("azure", {"AZURE_OPENAI_DEPLOYMENT": "", "AZURE_OPENAI_DEPLOYMENT_NAME": "other"}, "azure/other"),
        ("azure", {}, "azure/gpt-5.6-terra"),
        ("vllm", {}, None),
    ],
)
def test_the_model_that_stands_for_a_service(name: str, env: dict[str, str], model: str | None) -> None:
    assert Registry(env).default_model(BUILT_IN[name]) == model


def test_of_a_service_of_the_settings_the_first_listed_model_is_used() -> None:
    for small, named in (({}, "acme/big"), ({"default": True}, "acme/small")):
        catalog = Catalog({"acme/big": {}, "acme/small": small})
        assert Registry({}, catalog=catalog).default_model(ACME) == named


def test_of_a_vendor_that_lists_many_models_none_is_guessed() -> None:
    class Vendor(Listing):
        models = ("one", "two")

    async def main(provider: Provider) -> str | None:
        return await Registry({}).first_model(provider)

    async def beside() -> None:
        async with Vendor(tool_then_answer) as server:
            assert await main(replace(ACME, base_url=server.base_url)) == "acme/one"

    asyncio.run(beside())
    far = replace(ACME, base_url="http://acme.invalid/v1")
    assert asyncio.run(main(far)) is None
