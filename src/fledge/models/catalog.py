"""The facts about models: their windows, their abilities, their prices.

The figures are data (`catalog.json`: list prices in US dollars per million tokens), which the settings can add to or
correct, field by field. A model that is not listed has no price and a small window. Nothing here opens a model.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from fledge.core.redact import error_words
from fledge.core.value import Value
from fledge.errors import BadInput
from fledge.models.base import Thinking, Usage

Dollars = Annotated[float, Meta(ge=0, description="US dollars per million tokens")]
Tokens = Annotated[int, Meta(ge=1, description="tokens")]
_DATED = re.compile(r"(?:-\d{8}|-\d{4}-\d\d-\d\d|-latest|@\d{8})$")
REMEMBERED = 256
"""The size of each cache by names of models."""
_SHIPPED = Path(__file__).with_name("catalog.json")


class TokenRates(Value, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """US dollars per million tokens. Without a price of their own, cache reads and writes cost as much as input."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


class LongPrice(TokenRates, kw_only=True):
    """The prices of a request whose input is longer than `above` tokens: they hold for all of its tokens."""

    above: Tokens


class Price(TokenRates):
    """The price of a request."""

    long: LongPrice | None = None
    searches: Annotated[float, Meta(ge=0, description="for a thousand searches by the provider")] = 0.0


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""Reasoning levels in the providers' words, lowest first."""
WireName = Literal["openai-chat", "openai-responses", "anthropic"]
"""The wire protocols: chat completions, responses, messages."""
_EFFORTS: tuple[Effort, ...] = get_args(Effort)
_AS_EFFORT: Mapping[Thinking, Effort] = {
    "off": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "adaptive": "medium",
}
_COMMON: Mapping[Thinking, Effort] = {"minimal": "low", "xhigh": "high"}
"""For levels that few models know, the nearest that most do."""


class Card(Value, rename="camel", forbid_unknown_fields=True):
    """One model's figures and abilities. The defaults are the assumptions about a model that is not listed."""

    window: Tokens = 32_000
    """Tokens of input and output together."""
    max_output: Tokens = 4_096
    efforts: tuple[Effort, ...] = ()
    """The reasoning levels it accepts; empty: it does not reason."""
    chat_efforts: tuple[Effort, ...] | None = None
    """The levels it accepts together with tools on chat completions, if they are fewer; None: the same."""
    images: bool = False
    """True if it accepts images."""
    search: bool = False
    """True if its provider searches the web for it."""
    wire: WireName | None = None
    """The protocol of this model, where it differs from its provider's."""
    price: Price | None = None
    default: bool = False
    """True if it is the default model of its provider."""

    @property
    def thinks(self) -> bool:
        """True if it can be asked to think."""
        return any(effort != "none" for effort in self.efforts)


def reasoning_effort(card: Card | None, thinking: Thinking, *, chat_with_tools: bool = False) -> Effort | None:
    """Our thinking level as the nearest level that the model accepts; None: the request names no level.

    A model that cannot stop thinking gets its lowest level for `off`. A model without a card gets a level only if the
    user set one, and only `low`, `medium` or `high`, which most models know.
    """
    wished: Effort = _AS_EFFORT[thinking]
    if card is None:
        return None if thinking == "off" else _COMMON.get(thinking, wished)
    levels = card.efforts
    if chat_with_tools and card.chat_efforts is not None:
        levels = card.chat_efforts
    if thinking != "off":
        levels = tuple(level for level in levels if level != "none") or levels
    wanted = _EFFORTS.index(wished)
    ranks = [_EFFORTS.index(level) for level in levels]
    return _EFFORTS[min(ranks, key=lambda rank: (abs(rank - wanted), rank))] if ranks else None


class Catalog:
    """Cards by `provider/name`."""

    def __init__(self, override: Mapping[str, Any]) -> None:
        """The shipped cards, with the override's fields laid over them. Raises `BadInput` for a wrong override."""
        merged: dict[str, Any] = msgspec.json.decode(_SHIPPED.read_bytes())
        for name, card in override.items():
            if not isinstance(name, str) or "/" not in name:
                raise BadInput("catalog", "names must be like provider/name", name)
            if not isinstance(card, Mapping):
                raise BadInput(f"catalog.{name}", "must be an object", card)
            merged[name] = {**merged.get(name, {}), **card}
        try:
            self._cards = msgspec.convert(merged, dict[str, Card])
        except msgspec.ValidationError as error:
            raise BadInput("catalog", error_words(error)) from None
        self._found = lru_cache(REMEMBERED)(self._find)
        """Cards by name, cached: each step looks one up."""
        self._bare: dict[str, list[str]] = {}
        for name in self._cards:
            self._bare.setdefault(name.split("/", 1)[1], []).append(name)

    def names(self) -> tuple[str, ...]:
        """Every `provider/name`, sorted."""
        return tuple(sorted(self._cards))

    def names_of(self, provider: str) -> list[str]:
        """The full names of a provider's models, sorted."""
        return [name for name in self.names() if name.startswith(f"{provider}/")]

    def default_of(self, provider: str) -> str | None:
        """The default model of the provider; None if none is marked."""
        return next((name for name in self.names_of(provider) if self._cards[name].default), None)

    def full_names(self, bare: str) -> tuple[str, ...]:
        """Every `provider/name` for a name without a provider."""
        return tuple(self._bare.get(bare) or self._bare.get(_DATED.sub("", bare)) or ())

    def find(self, name: str) -> Card | None:
        """The card of a model, with or without provider, with or without a date; None if there is none."""
        return self._found(name)

    def _find(self, name: str) -> Card | None:
        for candidate in (name, _DATED.sub("", name)):
            if candidate in self._cards:
                return self._cards[candidate]
        # The model name in a provider's reply has no provider prefix.
        full = self.full_names(name)
        return self._cards[full[0]] if len(full) == 1 else None

    def card(self, name: str) -> Card:
        """The card of a model; one with cautious figures if the model is not listed."""
        return self.find(name) or Card()

    def cost(self, name: str, usage: Usage) -> float | None:
        """US dollars for one request; None if the model has no price."""
        card = self.find(name)
        if card is None or card.price is None:
            return None
        price: TokenRates = card.price
        long, searched = card.price.long, usage.searches * card.price.searches / 1000
        given = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        if long is not None and given > long.above:
            price = long
        read = price.input if price.cache_read is None else price.cache_read
        write = price.input if price.cache_write is None else price.cache_write
        return (
            usage.input_tokens * price.input
            + usage.output_tokens * price.output
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
        ) / 1_000_000 + searched


@cache
def shipped() -> Catalog:
    """The shipped catalogue, without overrides; read once."""
    return Catalog({})
