"""Makes a provider from the settings `models.providers.<name>`. Refused, naming the field: a wrong value."""

from msgspec.structs import replace

from fledge.config.schema import ModelProvider
from fledge.errors import BadInput
from fledge.models.http import checked_url
from fledge.models.providers import (
    BUILT_IN,
    Provider,
    azure_v1,
    check_headers,
    check_provider_name,
    check_query,
)


def configured(name: str, said: ModelProvider) -> Provider:
    """The provider that `models.providers.<name>` describes, field by field over the built-in one of that name."""
    field = f"models.providers.{name}"
    check_provider_name(name, field)
    built_in = BUILT_IN.get(name)
    if built_in is None and said.base_url is None:
        known = ", ".join(BUILT_IN)
        raise BadInput(
            f"{field}.baseUrl", f"is required, such as https://host/v1; only {known} have addresses built in"
        )
    if said.api_key_env is not None and said.api_key_file is not None:
        raise BadInput(field, "must have an apiKeyEnv or an apiKeyFile, not both")
    check_headers(said.headers, f"{field}.headers")
    check_query(said.query, f"{field}.query")
    provider = built_in or Provider(name=name)
    if said.base_url is not None:
        address = checked_url(said.base_url, f"{field}.baseUrl")
        address = azure_v1(address) if name == "azure" else address
        provider = replace(provider, base_url=address, base_url_env=())
    if said.api is not None:
        provider = replace(provider, api=said.api, compatible_api=None)
    if said.api_key_env is not None:
        provider = replace(provider, key_env=said.api_key_env)
    return replace(
        provider,
        key_file=said.api_key_file,
        headers={**provider.headers, **said.headers},
        query={**provider.query, **said.query},
        timeout_s=said.timeout_seconds,
    )
