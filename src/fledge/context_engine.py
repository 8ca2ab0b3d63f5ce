"""The port of the context engine: an object of the user that keeps context for subagents, from start to end.

A program passes it, or the setting `plugins.slots.contextEngine` names it; without either there is none. Notifications
are rows in the outbox: each comes at least once, also after a crash, those of one run in order. One that raises is
repeated, given up in the end, and changes no run.
"""

from importlib import import_module
from typing import Final, Protocol, runtime_checkable

from fledge.cancellation import describe
from fledge.core.hook import Left
from fledge.errors import BadInput

__all__ = ["ContextEngine", "Left", "check_context_engine", "named_context_engine"]

SETTING: Final = "plugins.slots.contextEngine"


@runtime_checkable
class ContextEngine(Protocol):
    """Keeps context for runs."""

    async def subagent_started(self, session_key: str, requester: str, timeout_s: float) -> None:
        """The run of this session was accepted, or goes on after a kill; `requester` is the session that gets its
        result, `timeout_s` its time limit, 0 for none. May be called twice. A spawn that fails is not told."""

    async def subagent_ended(self, session_key: str, reason: Left) -> None:
        """The context of this session's run is not needed any more. The run is `completed` and kept, `deleted`, `swept`
        (archived in its time), or `released` (taken off the lists). May be called twice for a run."""


def check_context_engine(given: object, field: str = "context_engine") -> ContextEngine:
    """The context engine. Raises `BadInput` if a method is missing, or if it is a class."""
    if isinstance(given, type) or not isinstance(given, ContextEngine):
        raise BadInput(field, "must be an object with the methods subagent_started and subagent_ended", given)
    return given


def named_context_engine(name: str) -> ContextEngine | None:
    """The object of this name, as `module:object`; None for an empty name. Raises `BadInput` that names the setting."""
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        raise BadInput(SETTING, f"cannot be imported: {describe(error)}", name) from error
    return check_context_engine(found, SETTING)
