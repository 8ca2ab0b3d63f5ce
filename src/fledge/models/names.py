"""Names of models: `provider/name`, or a bare name that the catalogue knows to be one provider's.

A `Registry` holds providers and models by name, the user's own among them, and opens the model of a name: one adapter
for each provider and protocol, so that all sessions share its connections. It also finds the default model of a
service: the one that a variable names, else the catalogue's, else one that the service itself lists. It does not know
what a model can do or costs.
"""

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from fledge.egress import Environment, is_loopback
from fledge.errors import BadInput, Refused
from fledge.models.adapter import HttpModel
from fledge.models.anthropic import AnthropicModel
from fledge.models.base import Model
from fledge.models.catalog import REMEMBERED, Card, Catalog, WireName, shipped
from fledge.models.choosing import (
    ASKED_S,
    ORDER,
    UNASKED_S,
    ServiceModels,
    ServiceStanding,
    served_models,
    standing,
)
from fledge.models.http import checked_url, no_key
from fledge.models.openai import OpenAIModel
from fledge.models.providers import (
    BUILT_IN,
    Provider,
    api_of,
    base_url_of,
    check_headers,
    check_provider_name,
    key_of,
    needed_key,
)
from fledge.models.responses import ResponsesModel
from fledge.models.retry import Retrying
from fledge.models.scripted import ScriptedModel, echo

SCRIPTED = "scripted"
USUAL_KEYS = 3
"""How many keys a newcomer without any is told of."""
_ADAPTERS: Mapping[WireName, type[HttpModel]] = {
    "anthropic": AnthropicModel,
    "openai-responses": ResponsesModel,
    "openai-chat": OpenAIModel,
}


class Registry:
    """Providers and models by name. `close` closes the models that it opened, and those that were added."""

    def __init__(
        self,
        env: Environment | None = None,
        *,
        catalog: Catalog | None = None,
        ca_file: str | None = None,
    ) -> None:
        self.ca_file = ca_file
        self._env = os.environ if env is None else env
        self._catalog = catalog or shipped()
        self._providers = dict(BUILT_IN)
        self._models: dict[str, Model] = {f"{SCRIPTED}/echo": ScriptedModel(echo)}
        self._opened: dict[tuple[str, WireName], Model] = {}
        self._named = lru_cache(REMEMBERED)(self._find)
        """`_find`, cached: each turn calls it."""

    def add_provider(self, provider: Provider) -> None:
        """From now on this provider serves the names `provider/…`; it replaces a built-in one of the same name."""
        check_provider_name(provider.name, "provider.name")
        check_headers(provider.headers, "provider.headers")
        if provider.base_url is not None:
            checked_url(provider.base_url)
        if any(provider.name == opened for opened, _ in self._opened):
            raise BadInput("provider.name", "is in use; add it before a model of it is opened", provider.name)
        self._providers[provider.name] = provider
        self._named.cache_clear()

    def add_model(self, name: str, model: Model) -> None:
        """From now on `name` means this model: `provider/name` only that name, `provider` all names below it."""
        if not name.strip("/") or not name.isprintable():
            raise BadInput("model", "must be named like provider/name", name)
        self._models[name.strip("/")] = model
        self._named.cache_clear()

    def open(self, name: str) -> tuple[Model, str]:
        """The model of a name, and its provider's name for it. Refused: an unknown name, with the nearest ones."""
        if not name or not name.isprintable() or name != name.strip():
            raise BadInput("model", "must be a name like provider/name", name)
        model, provider, own = self._named(name)
        if model is not None:
            return model, own
        assert provider is not None
        api = api_of(provider, self._catalog.find(f"{provider.name}/{own}"), self._env)
        if (provider.name, api) not in self._opened:
            self._opened[provider.name, api] = self._adapter(provider, api)
        return self._opened[provider.name, api], own

    def _find(self, name: str) -> tuple[Model | None, Provider | None, str]:
        """The added model or else the provider that serves this name, and the provider's own name for the model."""
        if name in self._models:
            return self._models[name], None, name.partition("/")[2] or name
        prefix, slash, rest = name.partition("/")
        if not slash:
            return self._find(self._full(name))
        if rest and prefix in self._models:
            return self._models[prefix], None, rest
        if rest and prefix in self._providers:
            return None, self._providers[prefix], rest
        raise self._unknown(name)

    def standings(self, configured: Collection[str]) -> list[ServiceStanding]:
        """The standing of each service: those of `ORDER` first, then the other vendors, then servers that people run
        themselves. `configured`: the names of the services that the settings describe."""

        def rank(provider: Provider) -> tuple[int, int]:
            first = ORDER.index(provider.name) if provider.name in ORDER else len(ORDER)
            return first, int(provider.key == "if set")

        in_order = sorted(self._providers.values(), key=rank)
        return [standing(one, self._env, one.name in configured) for one in in_order]

    def default_model(self, provider: Provider) -> str | None:
        """The full name of a service's default model, from its variables or the catalogue; None if they name none."""
        named = next((self._env[name].strip() for name in provider.model_env if self._env.get(name, "").strip()), None)
        if named is not None:
            return f"{provider.name}/{named}"
        catalog = self._catalog
        if provider.name == "azure":
            # Azure's portal names a deployment like its model, unless the user changes that.
            return (catalog.default_of("openai") or "").replace("openai/", "azure/", 1) or None
        return catalog.default_of(provider.name) or next(iter(catalog.names_of(provider.name)), None)

    async def service_models(self, configured: Collection[str]) -> list[ServiceModels]:
        """The models of each service, and whether they can be used now. A service without models in the catalogue is
        asked, if it can be used or people run it themselves."""
        return await asyncio.gather(*map(self._models_of, self.standings(configured)))

    async def _models_of(self, one: ServiceStanding) -> ServiceModels:
        """The models of the catalogue, else the one that a variable names, else those that the service itself lists."""
        provider, default = one.provider, self.default_model(one.provider)
        listed = self._catalog.names_of(provider.name)
        if not listed and (one.reason or provider.key != "needed"):
            if provider.model_env:
                listed = [] if default is None else [default]
            else:
                seconds = ASKED_S if one.reason else UNASKED_S
                served = await served_models(provider, self._env, self.ca_file, seconds)
                listed = [f"{provider.name}/{name}" for name in served]
        reason = one.reason or ("a local server answers" if listed and provider.key == "if set" else "")
        return ServiceModels(one, reason, tuple(listed), default)

    async def first_model(self, provider: Provider, seconds: float = ASKED_S) -> str | None:
        """The model to use of this service: its default, else one that it lists. None if it lists none, or if a vendor
        lists several."""
        named = self.default_model(provider)
        if named is not None:
            return named
        found = await served_models(provider, self._env, self.ca_file, seconds, first=True)
        is_own = provider.key == "if set" or is_loopback(urlsplit(base_url_of(provider, self._env)).hostname or "")
        # A vendor lists hundreds of models, in any order; the user's own server lists those that the user loaded.
        return f"{provider.name}/{found[0]}" if found and (is_own or len(found) == 1) else None

    def usable_words(self, configured: Collection[str], names_all: bool = False) -> str:
        """The services that can be used now, or the keys of which one must be set, in a line: the usual ones, or all
        (`names_all`)."""
        found = self.standings(configured)
        usable = [one for one in found if one.reason]
        if not usable:
            keys = dict.fromkeys(one.provider.key_env for one in found if one.missing and one.provider.key_env)
            if names_all or len(keys) <= USUAL_KEYS:
                return f"no provider can be used: set one of {', '.join(keys)}, or start a local Ollama"
            *first, last = list(keys)[:USUAL_KEYS]
            others = "or start a local Ollama (`fledge doctor` names the keys of other services)"
            return f"no provider can be used: set {', '.join(first)} or {last}, {others}"
        words = (f"{self.default_model(one.provider) or one.provider.name} ({one.reason})" for one in usable)
        return f"usable now: {', '.join(words)}"

    def choose(self, primary: str, fallbacks: Iterable[str]) -> tuple[Retrying, str]:
        """The primary model with retries and its fallbacks behind it, and the provider's name for the primary."""
        model, name = self.open(primary)
        return Retrying(model, tuple([self.open(other) for other in fallbacks]) if fallbacks else ()), name

    async def close(self) -> None:
        """Close all connections, those of the user's own models too."""
        for model in (*self._opened.values(), *self._models.values()):
            await model.close()

    def provider_of(self, name: str) -> Provider | None:
        """The provider that serves this name; None for a model added as an object. Refused: an unknown name."""
        return self._named(name)[1]

    def takes_images(self, name: str) -> bool:
        """True if a model is given images: its card says so, or it was added as an object, which may ignore them."""
        if self.provider_of(name) is None:
            return True
        return self._catalog.card(name).images

    def check_key(self, name: str) -> None:
        """Refused: an unknown name, and a model whose service needs a key that is not set."""
        self.open(name)
        provider = self.provider_of(name)
        if provider is None:
            return
        wanted = needed_key(provider, self._env)
        if wanted is not None and key_of(provider, self._env) is None:
            raise Refused("error", no_key(wanted))

    def _adapter(self, provider: Provider, api: WireName) -> Model:
        def card(model: str) -> Card | None:
            return self._catalog.find(f"{provider.name}/{model}")

        return _ADAPTERS[api](provider, key_of(provider, self._env), self._env, self.ca_file, card)

    def _full(self, bare: str) -> str:
        found = self._catalog.full_names(bare)
        if len(found) == 1:
            # The user's own spelling is kept: it may carry a date.
            return f"{found[0].partition('/')[0]}/{bare}"
        if found:
            raise BadInput("model", f"is a model of several providers: {', '.join(found)}", bare)
        raise self._unknown(bare)

    def _has_key(self, provider: str) -> bool:
        known = self._providers.get(provider)
        return known is not None and key_of(known, self._env) is not None

    def _unknown(self, name: str) -> BadInput:
        from difflib import get_close_matches

        prefix, slash, _ = name.partition("/")
        if slash and prefix != SCRIPTED and prefix not in self._providers:
            known = sorted({*self._providers, *(own.partition("/")[0] for own in self._models)})
            near = get_close_matches(prefix, known, 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(known)}"
            return BadInput("model", f"no provider {prefix!r}; {hint}", name)
        if not slash and prefix in self._providers:
            example = self._catalog.default_of(prefix) or f"{prefix}/<model>"
            return BadInput("model", f"is a provider; name one of its models, such as {example}", name)
        names = {*self._catalog.names(), *self._models}
        with_key = {full for full in names if self._has_key(full.partition("/")[0])}
        if with_key:
            names = with_key | set(self._models)
        if prefix == SCRIPTED:
            names = {own for own in names if own.startswith(f"{SCRIPTED}/")}
        spelled = {full.partition("/")[2]: full for full in sorted(names)} | {full: full for full in names}
        near = list(dict.fromkeys(spelled[match] for match in get_close_matches(name, spelled, 6, 0.5)))[:3]
        hint = f"did you mean {', '.join(near)}?" if near else "a full name is like openai/gpt-5"
        return BadInput("model", f"no such model; {hint}", name)
