"""Providers: which services there are, where each is, which protocol it speaks and where its key comes from.

`BUILT_IN` has the ones that need no settings; `config.providers` makes others from the settings. Nothing here opens a
connection.
"""

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from fledge.core.redact import redacted
from fledge.core.value import Value
from fledge.egress import Environment, Headers
from fledge.errors import BadInput
from fledge.models.catalog import Card, WireName
from fledge.models.http import checked_url
from fledge.models.keys import SecretKey, key_in_file, read_key

TokenField = Literal["max_tokens", "max_completion_tokens"]
RESERVED = frozenset({"scripted", "given"})
"""Provider prefixes of model names that stand for no service."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,200}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]{0,4000}")
_SECRET_NAME = re.compile(
    r"(?i)authorization|cookie|.*(?:api|access|subscription|auth)[-_]?(?:key|token)|key|.*token|.*secret|.*password|sig"
)
_OWN_HEADERS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept", "accept-encoding"}
)


class Quirks(Value, kw_only=True):
    """Demands of a service beyond the protocol."""

    token_field: TokenField = "max_tokens"
    """The name of the token limit: OpenAI has a new one, most compatible servers know only the old."""
    thinking_switch: bool = False
    """It thinks unless `thinking: {type: disabled}` is sent; when it thinks, it wants `reasoning_content` with every
    reply, even an empty one (DeepSeek)."""
    signed_calls: bool = False
    """The first call of a reply needs a signature in its `extra_content` (Gemini)."""
    reply_after_results: bool = False
    """A user message must not follow a tool message directly: the model must have replied in between (Mistral)."""


def usual_quirks(base_url: str) -> Quirks:
    """The quirks of the service at this address; the defaults for an address that is not known here."""
    host = f".{urlsplit(base_url).hostname}"
    openai = host.endswith((".openai.com", ".openai.azure.com"))
    return Quirks(
        token_field="max_completion_tokens" if openai else "max_tokens",
        thinking_switch=host.endswith(".deepseek.com"),
        signed_calls=host == ".generativelanguage.googleapis.com",
        reply_after_results=host.endswith(".mistral.ai"),
    )


class Provider(Value, kw_only=True):
    """A model service. Given to `open(providers=[…])`, it serves models named `name/…`.

    The setting `models.providers` has the same fields.

    >>> acme = fledge.Provider(name="acme", base_url="https://models.acme.example/v1", key_env="ACME_API_KEY")
    >>> acme.api
    'openai-chat'
    """

    name: str
    api: WireName = "openai-chat"
    """Its protocol, unless the catalogue names another one for a model."""
    compatible_api: WireName | None = None
    """The protocol at an address other than its own; None: the same."""
    base_url: str | None = None
    """Its address; None if a setting or variable must give it."""
    base_url_env: tuple[str, ...] = ()
    """Environment variables that can replace the address; the first one set is used."""
    key_env: str | None = None
    """The environment variable with its API key; None if it needs none."""
    key_file: str | None = None
    """The file with its API key; used instead of `key_env`."""
    key: Literal["needed", "if set"] = "needed"
    """`needed`: it cannot be used without a key, except on this machine; `if set`: the key is optional."""
    headers: Mapping[str, str] = {}
    """Additional headers of every request."""
    query: Mapping[str, str] = {}
    """Added to the address of every request."""
    timeout_s: float | None = None
    """Timeout of one request; None for the default."""
    model_env: tuple[str, ...] = ()
    """Environment variables that name its default model; the first one set is used."""
    quirks: Quirks | None = None
    """Deviations from the chat completions protocol; None: those known for its address."""


def _cloud(name: str, base_url: str, key_env: str) -> Provider:
    # The quirks belong to the name of the service: a gateway at another address passes requests through to it.
    return Provider(name=name, base_url=base_url, key_env=key_env, quirks=usual_quirks(base_url))


def _local(name: str, port: int) -> Provider:
    variable = f"{name.upper()}_BASE_URL"
    return Provider(
        name=name,
        base_url=f"http://127.0.0.1:{port}/v1",
        base_url_env=(variable,),
        key_env=f"{name.upper()}_API_KEY",
        key="if set",
    )


BUILT_IN: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            name="openai",
            api="openai-responses",
            compatible_api="openai-chat",
            base_url="https://api.openai.com/v1",
            base_url_env=("OPENAI_BASE_URL",),
            key_env="OPENAI_API_KEY",
        ),
        Provider(
            name="anthropic",
            api="anthropic",
            base_url="https://api.anthropic.com",
            base_url_env=("ANTHROPIC_BASE_URL",),
            key_env="ANTHROPIC_API_KEY",
        ),
        Provider(
            name="azure",
            api="openai-responses",
            base_url_env=("AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
            key_env="AZURE_OPENAI_API_KEY",
            model_env=("AZURE_OPENAI_DEPLOYMENT", "AZURE_OPENAI_DEPLOYMENT_NAME"),
            quirks=Quirks(token_field="max_completion_tokens"),
        ),
        _cloud("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        _cloud("google", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
        _cloud("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _cloud("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        _cloud("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        _cloud("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _cloud("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
        _local("llamacpp", 8080),
        _local("lmstudio", 1234),
        _local("ollama", 11434),
        _local("vllm", 8000),
    )
}


# ---- a provider in its environment -----------------------------------------------------------------------------------


def base_url_of(provider: Provider, env: Environment) -> str:
    """The address of the service. Refused, naming the variable or setting: an invalid address, or none at all."""
    for variable in provider.base_url_env:
        if given := env.get(variable, "").strip():
            address = checked_url(given, variable)
            return azure_v1(address) if provider.name == "azure" else address
    if provider.base_url is None:
        variables = "".join(f", or {variable} in the environment" for variable in provider.base_url_env[:1])
        raise BadInput(
            f"models.providers.{provider.name}.baseUrl",
            f"is required: {provider.name} has no default address{variables}",
        )
    return checked_url(provider.base_url)


def azure_v1(base_url: str) -> str:
    """The v1 address of a resource if only its host is given, as Azure's portal shows it; else the address as it is."""
    return base_url if urlsplit(base_url).path else f"{base_url}/openai/v1"


def api_of(provider: Provider, card: Card | None, env: Environment) -> WireName:
    """The protocol of a model."""
    if card is not None and card.wire is not None:
        return card.wire
    if provider.compatible_api is None:
        return provider.api
    # OpenAI has regional hosts: eu.api.openai.com.
    vendors = f".{urlsplit(base_url_of(provider, env)).hostname}".endswith(".api.openai.com")
    return provider.api if vendors else provider.compatible_api


def key_of(provider: Provider, env: Environment) -> SecretKey | None:
    """The key of the service; None where none is set. Refused: an unusable key, a file that other users can read."""
    if provider.key_file is not None:
        return key_in_file(f"models.providers.{provider.name}.apiKeyFile", provider.key_file)
    return read_key(provider.key_env, env) if provider.key_env else None


def key_place(provider: Provider) -> str:
    """Where its key comes from: the variable, or the setting that names a file or would name a variable."""
    block = f"models.providers.{provider.name}"
    return f"{block}.apiKeyFile" if provider.key_file else provider.key_env or f"{block}.apiKeyEnv"


def needed_key(provider: Provider, env: Environment) -> str | None:
    """The variable without which the service cannot be used. None: it needs no key, or has one in a file, or is a
    server on this machine, which itself refuses requests without a key if it wants one."""
    here = urlsplit(base_url_of(provider, env)).hostname in _LOOPBACK
    return provider.key_env if provider.key == "needed" and provider.key_file is None and not here else None


# ---- checks ----------------------------------------------------------------------------------------------------------


def check_provider_name(name: str, field: str) -> None:
    """Refused: a name that could not stand before the slash of a model's name."""
    if not _NAME.fullmatch(name) or name in RESERVED:
        taken = f", and none of {', '.join(sorted(RESERVED))}" if name in RESERVED else ""
        raise BadInput(field, f"must be a name of letters, digits, '.', '_' and '-'{taken}", name)


def check_headers(headers: Headers, field: str) -> None:
    """Refused: a header that HTTP cannot carry, one that fledge sets itself, and one that carries a key."""
    for name, value in headers.items():
        at = f"{field}.{name[:60]}"
        if not _HEADER.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise BadInput(at, "must be a header's name and a value of printable ASCII on one line")
        if name.lower() in _OWN_HEADERS:
            raise BadInput(at, "is set by fledge; leave it out")
        _refuse_secret(name, value, at)


def check_query(query: Mapping[str, str], field: str) -> None:
    """Refused: a query that carries a key."""
    for name, value in query.items():
        _refuse_secret(name, value, f"{field}.{name[:60]}")


def _refuse_secret(name: str, value: str, at: str) -> None:
    if _SECRET_NAME.fullmatch(name) or redacted(value) != value:
        # The value is not shown: it is a secret.
        raise BadInput(at, "would put a key into the settings; name it with apiKeyEnv or apiKeyFile instead")
