"""The context engine's port: something of yours that keeps context for subagents, and is told when they are done with.

Absent by default. It is told by rows in the outbox, so at least once, also after a crash; what it raises is tried again
and given up in the end, and changes no run.
"""

from typing import Protocol

from fledge.core.hook import Left

__all__ = ["ContextEngine", "Left"]


class ContextEngine(Protocol):
    """Keeps context for runs."""

    async def subagent_ended(self, session_key: str, reason: Left) -> None:
        """The run of this session is done with: `completed` and kept, `deleted`, `swept` when it was archived in its
        time, or `released` when somebody took it off the lists. May be told twice."""
