"""Finds out whether a service can be used now, and which models a server lists.

A service can be used if its key is set, or if it needs no key and the user gave its address. `names` decides which
servers are asked for their models, and which model is the default of a service; whether a model is chosen at all, and
whether the choice is remembered, is not decided here.
"""

import asyncio
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from fledge.core.value import Value
from fledge.egress import Environment, Headers
from fledge.errors import FledgeError
from fledge.models.adapter import overlaid
from fledge.models.anthropic import access_headers
from fledge.models.keys import SecretKey, bearer
from fledge.models.providers import Provider, base_url_of, key_of, key_place, needed_key

if TYPE_CHECKING:
    from fledge.models.transport import Connections

ORDER = ("anthropic", "openai", "google", "deepseek", "openrouter")
"""The order in which services are preferred if the keys of several are set; all others come after these."""
UNASKED_S = 0.2
"""Seconds within which a server must answer that is not configured, such as a local Ollama."""
ASKED_S = 5.0
"""Seconds within which a configured server must answer."""
_MAX_BYTES = 1024 * 1024
Data = TypeVar("Data")


class ServiceStanding(Value):
    """A service, with the reason why it can be used now, or with the step that would make it usable."""

    provider: Provider
    reason: str
    """Why it can be used, such as `OPENAI_API_KEY is set`; empty: it cannot."""
    missing: str
    """The step that would make it usable, or the error in its settings; empty: nothing is missing."""


class ServiceModels(Value):
    """The models of a service."""

    standing: ServiceStanding
    reason: str
    """Why they can be used now; empty: they cannot."""
    models: tuple[str, ...]
    """Their full names."""
    default: str | None
    """The full name of the default model of the service; None if there is none."""


def standing(provider: Provider, env: Environment, is_configured: bool = False) -> ServiceStanding:
    """The standing of this service. `is_configured`: the settings describe it."""
    try:
        base_url, key, wanted = base_url_of(provider, env), key_of(provider, env), needed_key(provider, env)
    except FledgeError as error:
        return ServiceStanding(provider, "", str(error))
    address = next((name for name in provider.base_url_env if env.get(name, "").strip()), "")
    if key is not None:
        is_variable = provider.key_file is not None or env.get(provider.key_env or "", "").strip()
        return ServiceStanding(provider, f"{key_place(provider)}{'' if is_variable else '_FILE'} is set", "")
    if wanted is not None:
        return ServiceStanding(provider, "", f"set {wanted}, or {wanted}_FILE to a file that only you can read")
    if is_configured or address:
        return ServiceStanding(provider, f"{address or f'models.providers.{provider.name}'} is set", "")
    variable = provider.base_url_env[0] if provider.base_url_env else f"models.providers.{provider.name}.baseUrl"
    return ServiceStanding(provider, "", f"start it at {base_url}, or set {variable} to its address")


# ---- the models that a server lists ----------------------------------------------------------------------------------


class _Named(Struct):
    id: str


class _Listed(Struct):
    data: list[_Named]


class _Tag(Struct):
    name: str


class _Tags(Struct):
    models: list[_Tag]


class _Shown(Struct):
    capabilities: list[str] | None = None


async def served_models(
    provider: Provider,
    env: Environment,
    ca_file: str | None,
    seconds: float,
    *,
    first: bool = False,
) -> list[str]:
    """The models that a server lists, by its own names; none if it fails or does not answer in time.

    Models that make embeddings are left out, and of Ollama's those that cannot use tools. `first`: one is enough.
    """
    from fledge.models.transport import short_connections

    try:
        base_url = base_url_of(provider, env)
        address, path, fields = models_request(provider, base_url, key_of(provider, env))
        connections = short_connections(address, env, ca_file, seconds)
    except FledgeError:
        return []
    try:
        async with asyncio.timeout(seconds):
            if provider.name == "ollama":
                return await _ollama_models(connections, path, fields, first)
            listed = await _read(connections, path, fields, _Listed)
            return [one.id for one in listed.data if "embed" not in one.id.lower()]
    except (OSError, ValueError, msgspec.MsgspecError):  # TimeoutError is an OSError
        return []
    finally:
        await connections.close()


def models_request(provider: Provider, base_url: str, key: SecretKey | None) -> tuple[str, str, dict[str, str]]:
    """The request for the list of a service's models: its address, the path and query below that, its headers."""
    query = f"?{urlencode(provider.query)}" if provider.query else ""
    access = access_headers(key) if provider.api == "anthropic" else bearer(key)
    fields = overlaid({"Accept": "application/json", **access}, provider.headers)
    if provider.name == "ollama":
        return base_url.removesuffix("/v1"), f"/api/tags{query}", fields
    if provider.api == "anthropic":
        return base_url.removesuffix("/v1"), f"/v1/models{query}", fields
    return base_url, f"/models{query}", fields


async def _ollama_models(connections: "Connections", path: str, fields: Headers, first: bool) -> list[str]:
    """The models that can use tools. Ollama must be asked for each model whether it can."""
    found: list[str] = []
    for tag in (await _read(connections, path, fields, _Tags)).models:
        body, show = msgspec.json.encode({"model": tag.name}), path.replace("/api/tags", "/api/show", 1)
        shown = await _read(connections, show, {**fields, "Content-Type": "application/json"}, _Shown, body)
        if "tools" in (shown.capabilities or ()):
            found.append(tag.name)
            if first:
                break
    return found


async def _read(
    connections: "Connections", path: str, fields: Headers, type: type[Data], body: bytes | None = None
) -> Data:
    answer = await connections.send(path, fields, body)
    try:
        raw = await answer.body(_MAX_BYTES)
        if answer.status != 200 or len(raw) > _MAX_BYTES:
            raise ValueError(f"{path} answers {answer.status}")
        return msgspec.json.decode(raw, type=type)
    finally:
        answer.close()
