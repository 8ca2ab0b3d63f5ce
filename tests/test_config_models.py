"""The block `models` of the settings: providers, their keys, the catalogue; a pasted file of OpenClaw."""

from typing import Any

import pytest

from fledge.config import as_document, check
from fledge.config.providers import configured
from fledge.config.schema import CatalogRow
from fledge.errors import BadInput
from fledge.models import catalog
from fledge.models.providers import BUILT_IN
from fledge.runtime.model_settings import configured_catalog, configured_registry
from tests.statements import proves

KEY = "sk-live-0123456789abcdef"
P = "models.providers.acme"


def acme(**fields: Any) -> dict[str, Any]:
    return {"models": {"providers": {"acme": {"baseUrl": "https://llm.acme.example/v1", **fields}}}}


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as refused:
        check(document)
    return str(refused.value)


# ---- what is refused -------------------------------------------------------------------------------------------------

NO_KEY = (
    "no key may stand in the settings: leave apiKey out, put the key into an environment variable and name that here,"
    ' apiKeyEnv: "NAME", or into a file that only you can read, apiKeyFile: "path"'
)


@proves("8.child.7", "A key never stands in the settings file; the refusal says where to put it and does not repeat it")
@pytest.mark.parametrize(
    "given",
    [
        KEY,
        "ACME_API_KEY",
        "",
        5,
        {"source": "file", "id": "/x"},
        {"source": "env", "id": f"x {KEY}"},
        f"${{{KEY}",
    ],
)
def test_a_key_in_the_settings_is_refused_with_the_way_to_do_it_right(given: object) -> None:
    words = refusal(acme(apiKey=given))
    assert words == f"{P}.apiKey: {NO_KEY}"
    assert KEY not in words


@proves("8.child.7")
@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "api-key", "Ocp-Apim-Subscription-Key", "Cookie"])
def test_a_header_that_carries_a_key_is_refused(name: str) -> None:
    words = refusal(acme(headers={name: "abc"}))
    assert words.startswith(f"{P}.headers.{name}: would put a key into the settings; name it with apiKeyEnv")


@proves("8.child.7")
def test_a_key_is_recognised_wherever_a_text_is_sent_to_the_provider() -> None:
    for field, named in (("headers", "x-tenant"), ("query", "tenant"), ("query", "key"), ("query", "access_token")):
        words = refusal(acme(**{field: {named: KEY}}))
        assert words.startswith(f"{P}.{field}.{named}: would put a key")
        assert KEY not in words


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ({"api": "openai-chat"}, f"{P}.baseUrl: is required, such as https://host/v1; only openai, anthropic, azure,"),
        ({"baseUrl": "acme"}, f"{P}.baseUrl: must be an address like https://host/v1 (got 'acme')"),
        ({"baseUrl": "https://u:p@acme/v1"}, f"{P}.baseUrl: must have no user, password, query or fragment;"),
        (
            {"baseUrl": "https://a/v1", "api": "grpc"},
            f"{P}.api: must be one of openai-chat, openai-responses, anthropic",
        ),
        (
            {"baseUrl": "https://a/v1", "apiKeyEnv": "A", "apiKeyFile": "b"},
            f"{P}: must have an apiKeyEnv or an apiKeyF",
        ),
        ({"baseUrl": "https://a/v1", "headers": {"a b": "c"}}, f"{P}.headers.a b: must be a header's name and a value"),
        ({"baseUrl": "https://a/v1", "headers": {"a": "ü"}}, f"{P}.headers.a: must be a header's name and a value"),
        ({"baseUrl": "https://a/v1", "headers": {"Host": "c"}}, f"{P}.headers.Host: is set by fledge; leave it out"),
        ({"baseUrl": "https://a/v1", "timeoutSeconds": 0}, f"{P}.timeoutSeconds: must be a number above 0, at most"),
        ({"baseUrl": "https://a/v1", "baseURL": "x"}, f"{P}.baseURL: unknown key (did you mean baseUrl?)"),
        ({"baseUrl": "https://a/v1", "models": [{}]}, f"{P}.models.0.id: is required"),
    ],
)
def test_a_wrong_provider_is_refused_by_its_field(provider: dict[str, Any], words: str) -> None:
    assert refusal({"models": {"providers": {"acme": provider}}}).startswith(words)


@pytest.mark.parametrize("name", ["a/b", "", "scripted", "given", "a b", "é"])
def test_a_name_that_cannot_stand_before_a_slash_is_refused(name: str) -> None:
    assert "models.providers" in refusal({"models": {"providers": {name: {"baseUrl": "https://a/v1"}}}})


def test_a_row_of_the_catalogue_is_named_by_provider_and_model() -> None:
    assert refusal({"models": {"catalog": {"gpt-5": {}}}}) == "models.catalog.gpt-5: must be named like provider/name"
    words = refusal({"models": {"catalog": {"a/b": {"window": 0}}}})
    assert words == "models.catalog.'a/b'.window: must be an integer of at least 1 (got 0)"


# ---- what holds ------------------------------------------------------------------------------------------------------


def test_a_setting_for_a_built_in_provider_overrides_its_fields_and_no_others() -> None:
    document = {"models": {"providers": {"groq": {"apiKeyEnv": "MY_GROQ", "headers": {"X-Team": "a"}}}}}
    config = check(document).config
    found = configured("groq", config.models.providers["groq"])
    assert (found.base_url, found.key_env, found.headers) == (BUILT_IN["groq"].base_url, "MY_GROQ", {"X-Team": "a"})
    assert check(as_document(config)).config == config


def test_the_address_in_the_settings_wins_over_the_variable() -> None:
    document = {"models": {"providers": {"ollama": {"baseUrl": "http://192.0.2.1:11434/v1/"}}}}
    registry = configured_registry(check(document).config, {"OLLAMA_BASE_URL": "http://127.0.0.1:1/v1"})
    assert "(http://192.0.2.1:11434/v1)" in repr(registry.open("ollama/m")[0])


@proves("7.input.21", "A pasted OpenClaw file works: its providers and models are read, what is not used is a warning")
def test_a_pasted_file_of_openclaw_works() -> None:
    model = {
        "id": "big-1",
        "name": "Big",
        "reasoning": True,
        "input": ["text", "image"],
        "cost": {"input": 1, "output": 4, "cacheRead": 0.1, "cacheWrite": 0},
        "contextWindow": 200000,
        "maxTokens": 64000,
    }
    acme = {
        "baseUrl": "https://llm.acme.example/anthropic",
        "apiKey": "${ACME_KEY}",
        "api": "anthropic-messages",
        "headers": {"X-Proxy": "1"},
        "authHeader": True,
        "models": [model],
    }
    local = {"baseUrl": "http://127.0.0.1:8080/v1", "api": "openai-completions", "models": []}
    named = {"baseUrl": "https://b.example/v1", "apiKey": {"source": "env", "provider": "default", "id": "B_KEY"}}
    loaded = check({"models": {"mode": "merge", "providers": {"acme": acme, "local": local, "b": named}}})
    ignored = "ignored, a key of OpenClaw that fledge does not use"
    assert loaded.warnings == (
        f"models.mode: {ignored}; built-in providers and models are always there",
        f"{P}.authHeader: {ignored}",
        f"{P}.models.big-1.name: {ignored}",
    )
    said = loaded.config.models.providers
    assert (said["acme"].api, said["acme"].api_key_env, said["b"].api_key_env) == ("anthropic", "ACME_KEY", "B_KEY")
    card = configured_catalog(loaded.config).card("acme/big-1")
    assert (card.window, card.max_output, card.images, card.thinks) == (200000, 64000, True, True)
    assert card.price == catalog.Price(1, 4, 0.1, 0)
    registry = configured_registry(loaded.config, {"ACME_KEY": KEY, "B_KEY": KEY})
    kinds = [type(registry.open(name)[0]).__name__ for name in ("acme/big-1", "local/m", "b/m")]
    assert kinds == ["AnthropicModel", "OpenAIModel", "OpenAIModel"]
    registry.check_key("acme/big-1")
    registry.check_key("local/m")


@proves("7.input.20", "models.catalog adds or corrects figures of models, field by field")
def test_the_catalogue_of_the_settings_adds_and_corrects_rows() -> None:
    rows = {"openai/gpt-5": {"maxOutput": 5}, "acme/m": {"window": 9, "price": {"input": 1, "output": 2}}}
    found = configured_catalog(check(acme() | {"models": {"catalog": rows}}).config)
    shipped = catalog.shipped().card("openai/gpt-5")
    assert (found.card("openai/gpt-5").max_output, found.card("openai/gpt-5").price) == (5, shipped.price)
    assert (found.card("acme/m").window, found.card("acme/m").max_output) == (9, catalog.Card().max_output)


def test_a_row_in_the_settings_has_the_fields_of_the_catalogue() -> None:
    assert CatalogRow.__struct_encode_fields__ == catalog.Card.__struct_encode_fields__


def test_every_cloud_provider_with_rows_has_exactly_one_default_model() -> None:
    shipped = catalog.shipped()
    providers = {name.partition("/")[0] for name in shipped.names()}
    assert providers == {name for name, one in BUILT_IN.items() if one.key == "needed" and name != "azure"}
    assert providers <= set(BUILT_IN)
    for provider in providers:
        marked = [name for name in shipped.names() if name.startswith(f"{provider}/") and shipped.card(name).default]
        assert marked == [shipped.default_of(provider)]
