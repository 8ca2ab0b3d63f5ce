"""Which setting holds, for an agent, its children and a session's queue."""

from collections.abc import Callable
from typing import Any

import pytest

from fledge import config as settings
from fledge.config import (
    AgentBlock,
    BudgetBlock,
    Chosen,
    Config,
    ModelChoice,
    SandboxBlock,
    check,
    model_for_child,
    parse,
    queue_settings,
    sandbox_for,
    subagent_limits,
    thinking_for_child,
    with_settings,
)
from fledge.config.schema import Subagents
from fledge.core.inbox import QueueMode, QueueSettings
from fledge.core.policy import Budget
from fledge.errors import BadInput
from tests.statements import proves

RESEARCH = {"agents": {"list": [{"id": "main"}, {"id": "Research", "model": "m"}]}, "tools": {"deny": ["x", "y"]}}
S = "agents.defaults.subagents."


def refusal(act: Callable[..., object], *given: object) -> str:
    """The message with which this is refused."""
    with pytest.raises(BadInput) as caught:
        act(*given)
    return str(caught.value)


@proves("3.limits.12", "`model`, `thinking` and `budget` have settings for children")
@proves("3.limits.13", "Each limit can be overridden per agent")
def test_an_agent_overrides_the_limits_it_sets_and_no_other() -> None:
    config = parse(
        """{agents: {
            defaults: {subagents: {maxSpawnDepth: 2, runTimeoutSeconds: 9, allowAgents: ["x"],
                budget: {tokens: 5, usd: 2}}},
            list: [{id: "a", subagents: {
                maxSpawnDepth: 3, maxChildrenPerAgent: 1, maxConcurrent: 2, maxRetained: 4, archiveAfterMinutes: 0,
                runTimeoutSeconds: 0, queueTimeoutSeconds: 6, stuckAfterSeconds: 7, allowAgents: [],
                model: "m", thinking: "low", budget: {usd: 0, turns: 3, seconds: 1}}}]}}"""
    ).config
    assert subagent_limits(config, "b") == config.agents.defaults.subagents
    assert subagent_limits(config, "A") == Subagents(
        max_spawn_depth=3,
        max_children_per_agent=1,
        max_concurrent=2,
        max_retained=4,
        archive_after_minutes=0,
        run_timeout_seconds=0,
        queue_timeout_seconds=6,
        stuck_after_seconds=7,
        model=ModelChoice("m"),
        thinking="low",
        budget=BudgetBlock(tokens=5, usd=0.0, turns=3, seconds=1.0),
        allow_agents=(),
    )
    assert settings.budget_for(config, "A") == Budget(tokens=5, usd=None, turns=3, seconds=1.0)
    assert settings.budget_for(parse("{}").config, "a") is None


def test_an_agent_without_an_entry_is_an_empty_one() -> None:
    config = check(RESEARCH).config
    assert settings.agent(config, "RESEARCH") == AgentBlock(id="research", model=ModelChoice("m"))
    assert settings.agent(config, "Other") == AgentBlock(id="other")
    assert refusal(settings.agent, config, "a b").startswith("agentId: must be 1 to 64")


def test_an_agent_overrides_its_sandbox() -> None:
    config = parse(
        "{agents: {defaults: {sandbox: {mode: 'all'}}, list: [{id: 'a', sandbox: {sessionToolsVisibility: 'all'}}]}}"
    ).config
    assert sandbox_for(config, "a") == SandboxBlock(mode="all", session_tools_visibility="all")
    assert sandbox_for(config, "b") == SandboxBlock(mode="all", session_tools_visibility="spawned")


MODELS = [
    (("agents.list.a.subagents.model",), "own-child"),
    (("agents.defaults.subagents.model",), "child"),
    (("agents.list.a.model",), "own"),
    (("agents.defaults.model",), "all"),
]


@proves(
    "3.limits.20",
    "The model: the parameter, the agent's subagents.model, the defaults' subagents.model, the agent's, the global",
)
@pytest.mark.parametrize("first", range(4))
def test_the_model_of_a_child_is_the_first_that_is_set(first: int) -> None:
    rest = MODELS[first:]
    chosen = [f"{key}={{primary: '{name}', fallbacks: ['{name}-2']}}" for (key,), name in rest]
    config = with_settings({"agents": {"list": [{"id": "a"}]}}, chosen).config
    (setting,), name = rest[0]
    assert model_for_child(config, None, "A") == Chosen(name, setting, (f"{name}-2",))
    assert model_for_child(config, " asked ", "a") == Chosen("asked", "model")
    assert refusal(model_for_child, config, " ", "a") == "model: must be a model's name (got ' ')"


def test_without_any_setting_no_model_and_no_thinking_is_named() -> None:
    assert model_for_child(Config(), None, "main") is None
    assert thinking_for_child(Config(), None, "main") is None


@proves("3.params.6")
def test_the_thinking_of_a_child_is_the_first_that_is_set() -> None:
    document = {"agents": {"list": [{"id": "a", "subagents": {"thinking": "off"}}]}}
    config = with_settings(document, [S + "thinking=low"]).config
    assert thinking_for_child(config, "high", "a") == "high"
    assert thinking_for_child(config, None, "A") == "off"
    assert thinking_for_child(config, None, "b") == "low"
    assert refusal(thinking_for_child, config, "huge", "a") == (
        "thinking: must be one of off, minimal, low, medium, high, xhigh, adaptive (got 'huge')"
    )


QUEUE = {"mode": "followup", "debounceMs": 5, "byChannel": {"IRC": "steer"}, "debounceMsByChannel": {"mail": 7}}


def queued(mode: QueueMode, debounce_s: float = 0.005, **settings: Any) -> QueueSettings:
    """Queue settings with one mode for everything."""
    return QueueSettings(mode=mode, people=mode, debounce_s=debounce_s, **settings)


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        (None, queued("followup")),
        ("irc ", queued("steer")),
        ("Mail", queued("followup", 0.007)),
        ("web", queued("followup")),
    ],
)
def test_a_channels_own_queue_settings_go_before_those_for_all(channel: str | None, expected: QueueSettings) -> None:
    config = check({"messages": {"queue": QUEUE}}).config
    assert queue_settings(config, channel) == expected


@pytest.mark.parametrize(
    ("queue", "modes", "there"),
    [
        ({}, ("collect", "steer"), ("collect", "steer")),
        ({"mode": "followup"}, ("followup", "followup"), ("followup", "followup")),
        ({"people": "collect"}, ("collect", "collect"), ("collect", "collect")),
        ({"mode": "steer", "people": "followup"}, ("steer", "followup"), ("steer", "followup")),
        ({"byChannel": {"irc": "followup"}}, ("collect", "steer"), ("followup", "followup")),
        ({"byChannel": {"irc": {"people": "followup"}}}, ("collect", "steer"), ("collect", "followup")),
        ({"byChannel": {"irc": {"mode": "steer", "people": "collect"}}}, ("collect", "steer"), ("steer", "collect")),
        (
            {"mode": "steer", "people": "collect", "byChannel": {"irc": "interrupt"}},
            ("steer", "collect"),
            ("interrupt", "interrupt"),
        ),
    ],
)
def test_a_mode_is_for_completions_and_messages_and_people_for_messages_alone_on_a_channel_too(
    queue: dict[str, object], modes: tuple[QueueMode, QueueMode], there: tuple[QueueMode, QueueMode]
) -> None:
    config = check({"messages": {"queue": queue}}).config
    for channel, expected in ((None, modes), ("irc", there)):
        settings = queue_settings(config, channel)
        assert (settings.mode, settings.people) == expected


def test_a_choice_is_that_of_the_configuration_asked_about_however_they_alternate() -> None:
    wide, narrow = (check({"agents": {"defaults": {"subagents": {"maxConcurrent": n}}}}, "x").config for n in (9, 2))
    agents = [f"a{number}" for number in range(300)]
    found = [(subagent_limits(wide, one).max_concurrent, subagent_limits(narrow, one).max_concurrent) for one in agents]
    assert set(found) == {(9, 2)}
    assert subagent_limits(wide, "a0") is subagent_limits(wide, "a0")
