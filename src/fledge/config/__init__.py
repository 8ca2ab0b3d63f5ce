"""Settings: their definition (`schema`), how they are read, layered and checked, and which one applies.

    text ─► document ─► merge ─► with_settings ─► check ─► Config ─► choose
Knows nothing of stores, sessions or clocks. The JSON5 parser is imported only when a file needs it.
"""

from fledge.config.check import Loaded, check
from fledge.config.effective_settings import (
    DEFAULT_MODEL,
    Chosen,
    agent,
    agent_to_agent,
    agent_view,
    approval_for,
    budget_for,
    heartbeat_settings,
    known_agents,
    lane_for,
    max_tokens_for,
    model_for_child,
    model_for_conversation,
    queue_settings,
    remembered,
    sandbox_for,
    spawnable,
    step_limits,
    subagent_limits,
    thinking_for_child,
    visibility_for,
)
from fledge.config.forms import duration_s
from fledge.config.layers import SingleSettings, as_document, merge, with_agents, with_default_model, with_settings
from fledge.config.load import load, parse, parse_document, read
from fledge.config.reference import page
from fledge.config.schema import (
    AgentBlock,
    BudgetBlock,
    Config,
    ModelChoice,
    SandboxBlock,
)
from fledge.config.shape import describe

__all__ = [
    "DEFAULT_MODEL",
    "AgentBlock",
    "BudgetBlock",
    "Chosen",
    "Config",
    "Loaded",
    "ModelChoice",
    "SandboxBlock",
    "SingleSettings",
    "agent",
    "agent_to_agent",
    "agent_view",
    "approval_for",
    "as_document",
    "budget_for",
    "check",
    "describe",
    "duration_s",
    "heartbeat_settings",
    "known_agents",
    "lane_for",
    "load",
    "max_tokens_for",
    "merge",
    "model_for_child",
    "model_for_conversation",
    "page",
    "parse",
    "parse_document",
    "queue_settings",
    "read",
    "remembered",
    "sandbox_for",
    "spawnable",
    "step_limits",
    "subagent_limits",
    "thinking_for_child",
    "visibility_for",
    "with_agents",
    "with_default_model",
    "with_settings",
]
