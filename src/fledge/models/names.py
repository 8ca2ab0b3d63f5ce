"""Names of models: `provider/name`, or a bare name that the catalogue knows to be one provider's.

A `Registry` holds providers and models by name, the user's own among them, and opens what a name stands for: one
adapter for each provider, so that all its sessions share connections. It does not know what a model can do or costs.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict
from urllib.parse import urlsplit

from msgspec import Struct

from fledge.clock import Clock
from fledge.errors import BadInput, Refused
from fledge.models.anthropic import BASE_URL as ANTHROPIC_URL
from fledge.models.anthropic import AnthropicModel
from fledge.models.base import Model
from fledge.models.catalog import Card, Catalog, WireName, shipped
from fledge.models.http import Limits, checked_url, no_key
from fledge.models.keys import Key, read_key
from fledge.models.openai import BASE_URL as OPENAI_URL
from fledge.models.openai import OpenAIModel, Quirks
from fledge.models.responses import ResponsesModel
from fledge.models.retry import Patience, Retrying
from fledge.models.scripted import ScriptedModel, echo

SCRIPTED = "scripted"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Provider(Struct, frozen=True, kw_only=True):
    """A service: where it is, what it speaks, and which variables of the environment say otherwise."""

    name: str
    api: WireName = "openai-chat"
    """The protocol of its models, unless the catalogue says otherwise of one."""
    base_url: str
    base_url_env: str | None = None
    key_env: str | None = None
    """The variable with its key; None: it asks for none."""
    key: Literal["needed", "if set"] = "needed"
    quirks: Quirks | None = None
    """Its demands beyond chat completions; None: those of the service at its address."""


BUILT_IN = (
    Provider(
        name="openai",
        api="openai-responses",
        base_url=OPENAI_URL,
        base_url_env="OPENAI_BASE_URL",
        key_env="OPENAI_API_KEY",
    ),
    Provider(
        name="anthropic",
        api="anthropic",
        base_url=ANTHROPIC_URL,
        base_url_env="ANTHROPIC_BASE_URL",
        key_env="ANTHROPIC_API_KEY",
    ),
    Provider(name="ollama", base_url="http://127.0.0.1:11434/v1", base_url_env="OLLAMA_BASE_URL"),
    Provider(name="lmstudio", base_url="http://127.0.0.1:1234/v1", base_url_env="LMSTUDIO_BASE_URL"),
    Provider(name="llamacpp", base_url="http://127.0.0.1:8080/v1", base_url_env="LLAMACPP_BASE_URL"),
    Provider(
        name="vllm",
        base_url="http://127.0.0.1:8000/v1",
        base_url_env="VLLM_BASE_URL",
        key_env="VLLM_API_KEY",
        key="if set",
    ),
    Provider(name="openrouter", base_url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY"),
    Provider(name="deepseek", base_url="https://api.deepseek.com/v1", key_env="DEEPSEEK_API_KEY"),
    Provider(
        name="google",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_env="GEMINI_API_KEY",
    ),
    Provider(name="groq", base_url="https://api.groq.com/openai/v1", key_env="GROQ_API_KEY"),
    Provider(name="xai", base_url="https://api.x.ai/v1", key_env="XAI_API_KEY"),
)


def base_url_of(provider: Provider, env: Mapping[str, str]) -> str:
    """Where the service is. Refused, by the variable that says it: what is no address."""
    said = (provider.base_url_env and env.get(provider.base_url_env)) or None
    try:
        return checked_url(said or provider.base_url)
    except BadInput as error:
        raise BadInput(str(provider.base_url_env) if said else error.field, error.expected, error.got) from None


def api_of(provider: Provider, card: Card | None, env: Mapping[str, str]) -> WireName:
    """The protocol of a model. A compatible server in the place of OpenAI's own speaks chat completions."""
    if card is not None and card.wire is not None:
        return card.wire
    base_url = base_url_of(provider, env)
    # OpenAI has regional hosts: eu.api.openai.com.
    compatible = base_url != provider.base_url and not f".{urlsplit(base_url).hostname}".endswith(".api.openai.com")
    return "openai-chat" if provider.api == "openai-responses" and compatible else provider.api


def needed_key(provider: Provider, env: Mapping[str, str]) -> str | None:
    """The variable without which the service cannot be used; None of a server on this machine, which says itself
    whether it wants a key."""
    here = urlsplit(base_url_of(provider, env)).hostname in _LOOPBACK
    return provider.key_env if provider.key == "needed" and not here else None


class _Service(TypedDict):
    """What every adapter is made with."""

    key: Key | None
    key_name: str | None
    base_url: str
    provider: str
    limits: Limits | None
    clock: Clock | None


class Registry:
    """Providers and models by name. What it opened it closes."""

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        *,
        catalog: Catalog | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._env = os.environ if env is None else env
        self._catalog, self._limits, self._clock = catalog, limits, clock
        self._providers = {provider.name: provider for provider in BUILT_IN}
        self._models: dict[str, Model] = {f"{SCRIPTED}/echo": ScriptedModel(echo)}
        self._opened: dict[tuple[str, WireName], Model] = {}

    def add_provider(self, provider: Provider) -> None:
        """Names `provider/…` are served by it from now on. A built-in one of that name is replaced."""
        if not provider.name or "/" in provider.name or not provider.name.isprintable():
            raise BadInput("provider.name", "must be a word without a slash", provider.name)
        checked_url(provider.base_url)
        if any(provider.name == opened for opened, _ in self._opened):
            raise BadInput("provider.name", "is in use; add it before a model of it is opened", provider.name)
        self._providers[provider.name] = provider

    def add_model(self, name: str, model: Model) -> None:
        """`name` is this model from now on: `provider/name` for itself alone, `provider` for all names below it."""
        if not name.strip("/") or not name.isprintable():
            raise BadInput("model", "must be named like provider/name", name)
        self._models[name.strip("/")] = model

    def open(self, name: str) -> tuple[Model, str]:
        """The model a name stands for, and its provider's name for it. An unknown name is refused with its nearest."""
        if not name or not name.isprintable() or name != name.strip():
            raise BadInput("model", "must be a name like provider/name", name)
        if name in self._models:
            return self._models[name], name.partition("/")[2] or name
        prefix, slash, rest = name.partition("/")
        if not slash:
            return self.open(self._full(name))
        if prefix in self._models and rest:
            return self._models[prefix], rest
        provider = self._providers.get(prefix)
        if provider is None or not rest:
            raise self._unknown(name)
        api = api_of(provider, self._card(name), self._env)
        if (prefix, api) not in self._opened:
            self._opened[prefix, api] = self._adapter(provider, api)
        return self._opened[prefix, api], rest

    def _card(self, name: str) -> Card | None:
        return (self._catalog or shipped()).find(name)

    def choose(
        self, primary: str, fallbacks: Iterable[str] = (), patience: Patience | None = None
    ) -> tuple[Retrying, str]:
        """The primary model with retries and its fallbacks behind it, and the provider's name for the primary."""
        model, name = self.open(primary)
        return Retrying(model, [self.open(other) for other in fallbacks], patience=patience), name

    async def close(self) -> None:
        """Let go of all connections, of the user's own models too."""
        for model in (*self._opened.values(), *self._models.values()):
            await model.close()

    def check_key(self, name: str) -> None:
        """Refused: the name means no model, or one whose service wants a key where none is set."""
        self.open(name)
        whole = name if "/" in name or name in self._models else self._full(name)
        provider = None if whole in self._models else self._providers.get(whole.partition("/")[0])
        if provider is None or whole.partition("/")[0] in self._models:
            return
        wanted = needed_key(provider, self._env)
        if wanted is not None and read_key(wanted, self._env) is None:
            raise Refused("error", no_key(wanted))

    def _adapter(self, provider: Provider, api: WireName) -> Model:
        env = self._env
        service: _Service = {
            "key": read_key(provider.key_env, env) if provider.key_env else None,
            "key_name": needed_key(provider, env),
            "base_url": base_url_of(provider, env),
            "provider": provider.name,
            "limits": self._limits,
            "clock": self._clock,
        }

        def card(model: str) -> Card | None:
            return self._card(f"{provider.name}/{model}")

        match api:
            case "anthropic":
                return AnthropicModel(**service)
            case "openai-responses":
                return ResponsesModel(card=card, **service)
            case "openai-chat":
                return OpenAIModel(card=card, quirks=provider.quirks, **service)

    def _full(self, bare: str) -> str:
        found = (self._catalog or shipped()).full_names(bare)
        if len(found) == 1:
            # The user's own spelling is kept: it may carry a date.
            return f"{found[0].partition('/')[0]}/{bare}"
        if found:
            raise BadInput("model", f"is known of several providers: {', '.join(found)}", bare)
        raise self._unknown(bare)

    def _unknown(self, name: str) -> BadInput:
        from difflib import get_close_matches

        prefix, slash, _ = name.partition("/")
        if slash and prefix != SCRIPTED and prefix not in self._providers:
            known = sorted({*self._providers, *(own.partition("/")[0] for own in self._models)})
            near = get_close_matches(prefix, known, 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(known)}"
            return BadInput("model", f"no provider {prefix!r}; {hint}", name)
        names = {*(self._catalog or shipped()).names(), *self._models}
        if prefix == SCRIPTED:
            names = {own for own in names if own.startswith(f"{SCRIPTED}/")}
        spelled = {full.partition("/")[2]: full for full in sorted(names)} | {full: full for full in names}
        near = list(dict.fromkeys(spelled[match] for match in get_close_matches(name, spelled, 6, 0.5)))[:3]
        hint = f"did you mean {', '.join(near)}?" if near else "a full name is like openai/gpt-5"
        return BadInput("model", f"no such model; {hint}", name)


def open_model(
    name: str, registry: Registry | None = None, *, env: Mapping[str, str] | None = None
) -> tuple[Model, str]:
    """The model a name stands for, and its provider's name for it. Close the model (or the registry) when done."""
    return (registry or Registry(env)).open(name)
