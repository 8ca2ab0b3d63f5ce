"""Figures of models: windows, prices, costs, and the user's own."""

import json
from typing import Any

import pytest

from fledge.errors import BadInput
from fledge.models.base import Thinking, Usage
from fledge.models.catalog import Card, Catalog, LongPrice, Price, reasoning_effort, shipped

MILLION = 1_000_000


UNPRICED = {"groq/openai/gpt-oss-120b", "groq/openai/gpt-oss-20b"}
CACHE_UNKNOWN = {
    "together/openai/gpt-oss-120b",
    "google/gemini-3.5-flash-lite",
    "mistral/mistral-small-2603",
    "xai/grok-4.3",
}
"""What is read from a cache costs as input there: never less than it will."""


def test_every_shipped_card_is_complete_and_plausible() -> None:
    names = shipped().names()
    assert len(names) >= 20
    for name in names:
        card = shipped().card(name)
        assert card.window > card.max_output > 0, name
        assert (card.price is None) == (name in UNPRICED), name
        if card.price is None:
            continue
        assert 0 < card.price.input < card.price.output, name
        assert (card.price.cache_read is None) == (name in CACHE_UNKNOWN), name
        assert (card.price.cache_read or 0) < card.price.input, name


@pytest.mark.parametrize(
    "name",
    [
        "anthropic/claude-sonnet-4-5",
        "anthropic/claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-latest",
    ],
)
def test_a_model_is_found_with_or_without_provider_and_date(name: str) -> None:
    card = shipped().find(name)
    assert card is not None
    assert (card.window, card.max_output, card.price) == (200_000, 64_000, Price(3, 15, 0.3, 3.75, searches=10))
    assert (card.thinks, card.images, card.wire) == (True, True, None)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(MILLION), 3.0),
        (Usage(0, MILLION), 15.0),
        (Usage(0, 0, MILLION), 0.3),
        (Usage(0, 0, 0, MILLION), 3.75),
        (Usage(1000, 100, 10_000, 2000), 0.003 + 0.0015 + 0.003 + 0.0075),
        (Usage(), 0.0),
        (Usage(searches=2), 0.02),
    ],
)
def test_a_request_costs_what_its_tokens_cost(usage: Usage, dollars: float) -> None:
    assert shipped().cost("claude-sonnet-4-5", usage) == pytest.approx(dollars)


def test_long_requests_cost_more_from_the_first_token_over_the_limit() -> None:
    price = Price(1, 10, None, None, LongPrice(2, 20, 0.5, above=100))
    catalog = Catalog(
        {
            "a/b": {
                "price": json.loads(
                    '{"input":1,"output":10,"long":{"above":100,"input":2,"output":20,"cacheRead":0.5}}'
                )
            }
        }
    )
    assert catalog.card("a/b").price == price
    assert catalog.cost("a/b", Usage(90, 0, 10)) == pytest.approx(100 / MILLION)
    assert catalog.cost("a/b", Usage(90, 1, 11)) == pytest.approx((180 + 20 + 5.5) / MILLION)


def test_an_unknown_model_has_no_price_and_a_small_window() -> None:
    assert shipped().cost("nobody/knows", Usage(5)) is None
    assert shipped().find("nobody/knows") is None
    assert shipped().card("nobody/knows") == Card(32_000, 4_096)
    assert not shipped().card("nobody/knows").thinks
    assert Catalog({"a/b": {"window": 1000}}).cost("a/b", Usage(5)) is None


def test_users_add_models_and_correct_single_fields() -> None:
    mine: dict[str, Any] = {"ollama/llama3.2": {"window": 8000}, "openai/gpt-5": {"window": 100}}
    catalog = Catalog(mine)
    assert catalog.card("llama3.2").window == 8000
    assert catalog.card("openai/gpt-5").window == 100
    assert catalog.card("openai/gpt-5").price == shipped().card("openai/gpt-5").price
    assert shipped().card("openai/gpt-5").window == 400_000


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"bare": {}}, "names must be like provider/name"),
        ({"a/b": 3}, "must be an object"),
        ({"a/b": {"window": 0}}, ">= 1"),
        ({"a/b": {"windows": 5}}, "unknown field"),
        ({"a/b": {"efforts": ["hard"]}}, "Invalid enum value 'hard'"),
        ({"a/b": {"wire": "telex"}}, "Invalid enum value 'telex'"),
        ({"a/b": {"images": "yes"}}, "Expected `bool`"),
        ({"a/b": {"price": {"input": -1, "output": 1}}}, ">= 0"),
    ],
)
def test_a_wrong_override_is_refused(override: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Catalog(override)


@pytest.mark.parametrize(
    ("model", "thinking", "alone", "with_tools_on_chat"),
    [
        ("openai/gpt-5.6-terra", "off", "none", "none"),
        ("openai/gpt-5.6-terra", "minimal", "low", "none"),
        ("openai/gpt-5.6-terra", "high", "high", "none"),
        ("openai/gpt-5.6-terra", "xhigh", "xhigh", "none"),
        ("openai/gpt-5.6-terra", "adaptive", "medium", "none"),
        ("openai/gpt-5.4-mini", "medium", "medium", "none"),
        ("openai/gpt-5.2", "low", "low", "none"),
        ("openai/gpt-5.1", "off", "none", "none"),
        ("openai/gpt-5.1", "minimal", "low", "low"),
        ("openai/gpt-5-mini-2025-08-07", "minimal", "minimal", "minimal"),
        ("openai/gpt-5", "off", "minimal", "minimal"),
        ("openai/o3", "off", "low", "low"),
        ("openai/o3", "high", "high", "high"),
        ("openai/o3", "xhigh", "high", "high"),
        ("openai/gpt-4.1", "high", None, None),
        ("nobody/knows", "off", None, None),
        ("nobody/knows", "minimal", "low", "low"),
        ("nobody/knows", "high", "high", "high"),
        ("nobody/knows", "xhigh", "high", "high"),
        ("nobody/knows", "adaptive", "medium", "medium"),
    ],
)
def test_a_thinking_level_becomes_the_nearest_one_that_the_model_accepts(
    model: str, thinking: Thinking, alone: str | None, with_tools_on_chat: str | None
) -> None:
    card = shipped().find(model)
    assert reasoning_effort(card, thinking) == alone
    assert reasoning_effort(card, thinking, chat_with_tools=True) == with_tools_on_chat


def test_between_two_levels_the_lower_one_is_taken() -> None:
    assert reasoning_effort(Card(efforts=("low", "high")), "medium") == "low"
    assert reasoning_effort(Card(efforts=("high", "max")), "minimal") == "high"
    assert reasoning_effort(Card(efforts=("none",)), "high") == "none"
    assert not Card(efforts=("none",)).thinks


def test_the_models_of_a_user_say_what_they_accept() -> None:
    mine = {"efforts": ["low", "high"], "chatEfforts": [], "images": True, "wire": "openai-responses"}
    card = Catalog({"mine/m": mine}).card("mine/m")
    assert card == Card(efforts=("low", "high"), chat_efforts=(), images=True, wire="openai-responses")
    assert reasoning_effort(card, "medium", chat_with_tools=True) is None


def test_a_bare_name_of_two_providers_has_no_card() -> None:
    catalog = Catalog({"mine/gpt-5": {}})
    assert catalog.find("gpt-5") is None
    assert catalog.full_names("gpt-5") == ("openai/gpt-5", "mine/gpt-5")
