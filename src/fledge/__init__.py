"""Subagents whose answers arrive: once, in the right conversation, whatever happens."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fledge.api.agents import Agent
    from fledge.api.conversation import Conversation
    from fledge.api.fledge import Fledge
    from fledge.api.handle import Handle
    from fledge.api.values import GivenUp, Message, Plan, Question, Reply, Result, RunInfo, TimelineEvent
    from fledge.client.opening import connect, open, run_sync
    from fledge.core.attachments import Attachment
    from fledge.core.images import Image
    from fledge.core.permission import Permission
    from fledge.core.policy import Budget
    from fledge.errors import BadInput, FledgeError, NotFound, Refused, RunFailed, StoreError, StoreLocked
    from fledge.models.providers import Provider
    from fledge.runtime.base import Work
    from fledge.runtime.command import CommandRuntime
    from fledge.runtime.feed import TurnEvent
    from fledge.tools.base import ToolContext, tool

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "Attachment",
    "BadInput",
    "Budget",
    "CommandRuntime",
    "Conversation",
    "Fledge",
    "FledgeError",
    "GivenUp",
    "Handle",
    "Image",
    "Message",
    "NotFound",
    "Permission",
    "Plan",
    "Provider",
    "Question",
    "Refused",
    "Reply",
    "Result",
    "RunFailed",
    "RunInfo",
    "StoreError",
    "StoreLocked",
    "TimelineEvent",
    "ToolContext",
    "TurnEvent",
    "Work",
    "__version__",
    "connect",
    "open",
    "run_sync",
    "tool",
]

_HOMES = {
    "fledge.api.agents": ("Agent",),
    "fledge.api.conversation": ("Conversation",),
    "fledge.api.handle": ("Handle",),
    "fledge.client.opening": ("connect", "open", "run_sync"),
    "fledge.api.fledge": ("Fledge",),
    "fledge.api.values": ("GivenUp", "Message", "Plan", "Question", "Reply", "Result", "RunInfo", "TimelineEvent"),
    "fledge.core.attachments": ("Attachment",),
    "fledge.core.images": ("Image",),
    "fledge.core.permission": ("Permission",),
    "fledge.core.policy": ("Budget",),
    "fledge.errors": ("BadInput", "FledgeError", "NotFound", "Refused", "RunFailed", "StoreError", "StoreLocked"),
    "fledge.models.providers": ("Provider",),
    "fledge.runtime.base": ("Work",),
    "fledge.runtime.command": ("CommandRuntime",),
    "fledge.runtime.feed": ("TurnEvent",),
    "fledge.tools.base": ("ToolContext", "tool"),
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import fledge` costs nothing."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(home), name)
            return found
    raise AttributeError(f"module 'fledge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
