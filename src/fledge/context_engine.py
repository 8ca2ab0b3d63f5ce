"""The port of the context engine: an object of yours that keeps context for subagents, and learns when to drop it.

Absent by default. Notifications are rows in the outbox: each comes at least once, also after a crash; one that raises
is repeated, given up in the end, and changes no run.
"""

from typing import Protocol

from fledge.core.hook import Left

__all__ = ["ContextEngine", "Left"]


class ContextEngine(Protocol):
    """Keeps context for runs."""

    async def subagent_ended(self, session_key: str, reason: Left) -> None:
        """The context of this session's run is not needed any more. The run is `completed` and kept, `deleted`, `swept`
        (archived in its time), or `released` (taken off the lists). May be called twice for a run."""
