"""Which services can be used now, and which model stands for each.

A service can be used if its key is set, or if it needs none and somebody named its address. The model that stands for
it is the catalogue's default; servers that people run themselves are asked which models they have. Whether a model is
chosen at all, and whether that is remembered, is not decided here.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from fledge.core.value import Value
from fledge.egress import Environment, Headers, is_loopback
from fledge.errors import FledgeError
from fledge.models.catalog import Catalog
from fledge.models.keys import bearer
from fledge.models.providers import Provider, base_url_of, key_of, key_place, needed_key

if TYPE_CHECKING:
    from fledge.models.transport import Connections

ORDER = ("anthropic", "openai", "google", "deepseek", "openrouter")
"""Whose key goes first, where several are set."""
UNASKED_S = 0.2
"""How long a server may take to answer that nobody mentioned: a local Ollama."""
ASKED_S = 5.0
"""How long one may take whose address somebody gave."""
_MAX_BYTES = 1024 * 1024
Data = TypeVar("Data")


class ServiceStanding(Value):
    """Whether a service can be used now."""

    provider: Provider
    reason: str
    """Why it can be used, such as `OPENAI_API_KEY is set`; empty: it cannot."""
    missing: str
    """What would make it usable; empty: nothing is missing."""


def standing(provider: Provider, env: Environment, is_configured: bool = False) -> ServiceStanding:
    """Whether this service can be used now. `is_configured`: the settings describe it."""
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


def standings(providers: Iterable[Provider], env: Environment, configured: Collection[str]) -> list[ServiceStanding]:
    """Every service: those of `ORDER` first, then the other vendors, then servers that people run themselves."""

    def rank(provider: Provider) -> tuple[int, int]:
        first = ORDER.index(provider.name) if provider.name in ORDER else len(ORDER)
        return first, int(provider.key == "if set")

    return [standing(one, env, one.name in configured) for one in sorted(providers, key=rank)]


def default_model(provider: Provider, catalog: Catalog, env: Environment) -> str | None:
    """The full name of the model that stands for a service, by variables and the catalogue; None: they name none."""
    named = next((env[name].strip() for name in provider.model_env if env.get(name, "").strip()), None)
    if named is not None:
        return f"{provider.name}/{named}"
    if provider.name == "azure":
        # Azure's portal names a deployment like its model, unless the user changes that.
        return (catalog.default_of("openai") or "").replace("openai/", "azure/", 1) or None
    return catalog.default_of(provider.name) or next(iter(catalog.names_of(provider.name)), None)


# ---- asking a server which models it has -----------------------------------------------------------------------------


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
    ca_file: str | None = None,
    seconds: float = ASKED_S,
    *,
    first: bool = False,
) -> list[str]:
    """The models that a server says it has, by its own names; none if it does not answer in time.

    Models that make embeddings are left out, and of Ollama's those that cannot use tools. `first`: one is enough.
    """
    from fledge.models.transport import short_connections

    try:
        base_url = base_url_of(provider, env)
        fields = {"Accept": "application/json", **provider.headers, **bearer(key_of(provider, env))}
        address = base_url.removesuffix("/v1") if provider.name == "ollama" else base_url
        connections = short_connections(address, env, ca_file, seconds)
    except FledgeError:
        return []
    try:
        async with asyncio.timeout(seconds):
            if provider.name == "ollama":
                return await _ollama_models(connections, fields, first)
            listed = await _read(connections, "/models", fields, _Listed)
            return [one.id for one in listed.data if "embed" not in one.id.lower()]
    except (OSError, ValueError, msgspec.MsgspecError):  # TimeoutError is an OSError
        return []
    finally:
        await connections.close()


async def _ollama_models(connections: "Connections", fields: Headers, first: bool) -> list[str]:
    """Those that can use tools, which Ollama says of each model when it is asked."""
    found: list[str] = []
    for tag in (await _read(connections, "/api/tags", fields, _Tags)).models:
        body = msgspec.json.encode({"model": tag.name})
        shown = await _read(connections, "/api/show", {**fields, "Content-Type": "application/json"}, _Shown, body)
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


async def first_model(
    one: ServiceStanding, catalog: Catalog, env: Environment, ca_file: str | None = None, seconds: float = ASKED_S
) -> str | None:
    """The model to use of this service; None if there is none, or none can be told from the others."""
    provider = one.provider
    named = default_model(provider, catalog, env)
    if named is not None:
        return named
    found = await served_models(provider, env, ca_file, seconds, first=True)
    is_own = provider.key == "if set" or is_loopback(urlsplit(base_url_of(provider, env)).hostname or "")
    # A vendor's list has hundreds, in any order; a server of one's own has what its owner loaded.
    return f"{provider.name}/{found[0]}" if found and (is_own or len(found) == 1) else None


class ServiceModels(Value):
    """The models of a service."""

    standing: ServiceStanding
    reason: str
    """Why they can be used now; empty: they cannot."""
    models: tuple[str, ...]
    """Their full names."""
    default: str | None
    """The one that stands for the service."""


async def service_models(
    found: Sequence[ServiceStanding], catalog: Catalog, env: Environment, ca_file: str | None
) -> list[ServiceModels]:
    """The models of each service: the catalogue's, else what a server that people run themselves says."""
    return await asyncio.gather(*(_models_of(one, catalog, env, ca_file) for one in found))


async def _models_of(one: ServiceStanding, catalog: Catalog, env: Environment, ca_file: str | None) -> ServiceModels:
    provider, default = one.provider, default_model(one.provider, catalog, env)
    listed = catalog.names_of(provider.name)
    if not listed and (one.reason or provider.key != "needed"):
        if provider.model_env:
            listed = [] if default is None else [default]
        else:
            seconds = ASKED_S if one.reason else UNASKED_S
            served = await served_models(provider, env, ca_file, seconds)
            listed = [f"{provider.name}/{name}" for name in served]
    reason = one.reason or ("a local server answers" if listed and provider.key == "if set" else "")
    return ServiceModels(one, reason, tuple(listed), default)


def usable_words(found: Sequence[ServiceStanding], catalog: Catalog, env: Mapping[str, Any]) -> str:
    """What can be used now, or what would have to be set, in a line."""
    usable = [one for one in found if one.reason]
    if not usable:
        keys = ", ".join(dict.fromkeys(one.provider.key_env for one in found if one.missing and one.provider.key_env))
        return f"no provider can be used: set one of {keys}, or start a local Ollama"
    words = (f"{default_model(one.provider, catalog, env) or one.provider.name} ({one.reason})" for one in usable)
    return f"usable now: {', '.join(words)}"
