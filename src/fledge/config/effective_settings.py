"""Which setting applies: to an agent's children, to a session's queue, to a tool.

Pure functions of a `Config`. An agent without an entry of its own has the defaults. This file changes no settings.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from fledge.config.forms import duration_s
from fledge.config.schema import (
    AgentBlock,
    ApprovalSetting,
    ChannelQueue,
    Config,
    ModelChoice,
    SandboxBlock,
    Subagents,
)
from fledge.core.access import AgentToAgent, Visibility, refuse_target, sandboxed_visibility
from fledge.core.heartbeat import HeartbeatSettings, active_hours
from fledge.core.inbox import QueueSettings
from fledge.core.keys import check_agent_id
from fledge.core.policy import Budget
from fledge.core.progress import StepLimits
from fledge.core.value import Value
from fledge.errors import BadInput
from fledge.models.base import LEVELS

_T = TypeVar("_T", bound=Struct)
_SHELL = ("exec", "bash")
"""Two names of one tool."""


DEFAULT_MODEL = "agents.defaults.model"
"""The setting that names a model if no more specific setting does."""


class Chosen(Value):
    """The chosen model, and the setting (or the parameter of the spawn) that names it."""

    name: str
    setting: str
    fallbacks: tuple[str, ...] = ()


_P = TypeVar("_P")
REMEMBERED = 256
"""The number of agents for which a choice is cached."""


def remembered(choose: Callable[[Config, str], _P]) -> Callable[[Config, str], _P]:
    """The same choice, cached by agent for the latest configuration: a configuration does not change."""
    latest: tuple[Config | None, dict[str, _P]] = (None, {})

    @wraps(choose)
    def chosen(config: Config, agent_id: str) -> _P:
        nonlocal latest
        known_of, known = latest
        if known_of is config and agent_id in known:
            return known[agent_id]
        if known_of is not config or len(known) >= REMEMBERED:
            known = {}
            latest = (config, known)
        found = known[agent_id] = choose(config, agent_id)
        return found

    return chosen


@remembered
def agent(config: Config, agent_id: str) -> AgentBlock:
    """The agent's entry, or an empty one if it has none. Refused: an invalid agent id."""
    wanted = check_agent_id(agent_id)
    return next((one for one in config.agents.list if one.id == wanted), AgentBlock(id=wanted))


@remembered
def subagent_limits(config: Config, agent_id: str) -> Subagents:
    """The agent's block `subagents`, with the defaults for all that it does not set. Model, thinking and budget apply
    to children that run as this agent, the rest to children that it spawns."""
    defaults, own = config.agents.defaults.subagents, agent(config, agent_id).subagents
    return replace(_overlaid(defaults, own), budget=_overlaid(defaults.budget, own.budget))


def budget_for(config: Config, agent_id: str) -> Budget | None:
    """The budget of a child that runs as this agent (0 is no limit); None: the settings give none."""
    given = subagent_limits(config, agent_id).budget
    found = Budget(given.tokens or None, given.usd or None, given.turns or None, given.seconds or None)
    return None if found == Budget() else found


def lane_for(config: Config, agent_id: str) -> str:
    """The lane of the children this agent spawns: one of its own if it sets `subagents.maxConcurrent`."""
    own = agent(config, agent_id)
    return "subagent" if own.subagents.max_concurrent is None else f"subagent:{own.id}"


@remembered
def sandbox_for(config: Config, agent_id: str) -> SandboxBlock:
    """Where this agent's tools run: by its own settings, else by the defaults."""
    return _overlaid(config.agents.defaults.sandbox, agent(config, agent_id).sandbox)


def visibility_for(config: Config, agent_id: str, is_conversation: bool) -> Visibility:
    """Which sessions the session tools of a session reach.

    One that a setting puts into a sandbox reaches no further than its tree, unless `sessionToolsVisibility` is `all`.
    `auto` is no such setting: the visibility must not depend on whether a sandbox is installed.
    """
    sandbox, asked = sandbox_for(config, agent_id), config.tools.sessions.visibility
    if sandbox.mode == "all" or (sandbox.mode == "non-main" and not is_conversation):
        return sandboxed_visibility(asked, sandbox.session_tools_visibility)
    return asked


def agent_to_agent(config: Config) -> AgentToAgent:
    """Which agents may talk to each other, and for how many turns."""
    rules = config.tools.agent_to_agent
    turns = config.session.agent_to_agent.max_ping_pong_turns
    return AgentToAgent(enabled=rules.enabled, allow=rules.allow, max_turns=turns)


class AgentView(Value, rename="camel", omit_defaults=True):
    """One agent, as lists show it."""

    id: str
    description: str = ""
    model: str = ""
    """The model of a child that runs as this agent; empty if none is set."""


def spawnable(config: Config, own: str) -> list[AgentView]:
    """The agents that a model of agent `own` may spawn: itself first, then those it is allowed, by name."""
    known, allowed = known_agents(config, own), subagent_limits(config, own).allow_agents
    may = [one for one in known if refuse_target(own, one, known, allowed, by_model=True) is None]
    return [agent_view(config, agent_id) for agent_id in may]


def known_agents(config: Config, own: str) -> list[str]:
    """Every known agent, `own` first: main, those of `agents.list`, those that `own` names in `allowAgents`."""
    named = subagent_limits(config, own).allow_agents or ()
    return [own, *sorted({"main", *(one.id for one in config.agents.list), *named} - {own, "*"})]


def agent_view(config: Config, agent_id: str) -> AgentView:
    """An agent as lists show it."""
    model = model_for_child(config, None, agent_id)
    return AgentView(agent_id, agent(config, agent_id).description or "", "" if model is None else model.name)


def model_for_child(config: Config, requested: str | None, target_agent: str) -> Chosen | None:
    """The model of a child that runs as the target agent; None if none is set.

    In this order: the spawn's parameter, the agent's `subagents.model`, the defaults' `subagents.model`, the agent's
    model, the defaults' model. Refused: a blank parameter.
    """
    if requested is not None:
        if not requested.strip():
            raise BadInput("model", "must be a model's name", requested)
        return Chosen(requested.strip(), "model")
    return _model_for_children(config, target_agent)


@remembered
def _model_for_children(config: Config, agent_id: str) -> Chosen | None:
    own = agent(config, agent_id)
    order = (
        (own.subagents.model, f"agents.list.{own.id}.subagents.model"),
        (config.agents.defaults.subagents.model, "agents.defaults.subagents.model"),
    )
    return _first_model(order) or model_for_conversation(config, agent_id)


@remembered
def model_for_conversation(config: Config, agent_id: str) -> Chosen | None:
    """The model of the agent's own sessions: the agent's, else the defaults'; None if neither is set."""
    own = agent(config, agent_id)
    order = ((own.model, f"agents.list.{own.id}.model"), (config.agents.defaults.model, DEFAULT_MODEL))
    return _first_model(order)


def _first_model(order: Iterable[tuple[ModelChoice | None, str]]) -> Chosen | None:
    return next((Chosen(model.primary, setting, model.fallbacks) for model, setting in order if model), None)


def max_tokens_for(config: Config, agent_id: str) -> int | None:
    """The longest reply of sessions that run as this agent, in tokens; None if it is not set."""
    own = agent(config, agent_id).max_tokens
    return config.agents.defaults.max_tokens if own is None else own


def thinking_for_child(config: Config, requested: str | None, target_agent: str) -> str | None:
    """The thinking level of a child that runs as the target agent; None if none is set.

    In this order: the spawn's parameter, the agent's `subagents.thinking`, the defaults'. Refused: an unknown level.
    """
    if requested is not None:
        if requested not in LEVELS:
            raise BadInput("thinking", f"must be one of {', '.join(LEVELS)}", requested)
        return requested
    return subagent_limits(config, target_agent).thinking


def queue_settings(config: Config, channel: str | None = None) -> QueueSettings:
    """How items reach a session: by the settings of its channel, else by those for all channels.

    Both have a mode for all items, and may have another mode for people's messages. Without any mode completions are
    collected and people's messages steer.
    """
    queue, name = config.messages.queue, (channel or "").strip().lower()
    there = {key.lower(): said for key, said in queue.by_channel.items()}.get(name, ChannelQueue())
    pauses = {key.lower(): pause for key, pause in queue.debounce_ms_by_channel.items()}
    return QueueSettings(
        mode=there.mode or queue.mode or "collect",
        people=there.people or there.mode or queue.people or queue.mode or "steer",
        debounce_s=pauses.get(name, queue.debounce_ms) / 1000,
        cap=queue.cap,
        drop=queue.drop,
    )


def heartbeat_settings(config: Config) -> HeartbeatSettings:
    """When conversations have heartbeats, which are turns without a message."""
    said = config.agents.defaults.heartbeat
    hours = said.active_hours
    return HeartbeatSettings(
        every_s=duration_s(said.every),
        hours=None if hours is None else active_hours(hours.start, hours.end),
        zone="local" if hours is None else hours.timezone,
        ack_chars=said.ack_max_chars,
        prompt=said.prompt or "",
        target=said.target,
        to=said.to or "",
    )


def step_limits(config: Config) -> StepLimits:
    """The limits on the steps of an attempt or a turn."""
    defaults = config.agents.defaults
    return StepLimits(defaults.max_steps, defaults.max_repeated_steps)


def approval_for(config: Config, agent_id: str, tool: str) -> ApprovalSetting | None:
    """`ask`: a person must approve each call of the tool; `never`: calls need no approval; None: the tool decides.

    The agent's own rule goes before that for all agents; `exec` and `bash` are one tool, and if either asks, it asks.
    """
    names = _SHELL if tool in _SHELL else (tool,)
    for_all = {**config.tools.rules, "sessions_spawn": config.tools.sessions_spawn, "exec": config.tools.exec}
    for rules in (agent(config, agent_id).tools.rules, for_all):
        said = [rule.approval for name, rule in rules.items() if name in names and rule.approval]
        if said:
            return "ask" if "ask" in said else "never"
    return None


def _overlaid(base: _T, over: Struct) -> _T:
    """The base with every field that `over` sets."""
    said = {name: getattr(over, name) for name in over.__struct_fields__}
    return replace(base, **{name: value for name, value in said.items() if value is not None})
