"""What a channel is: something that can carry one message to somebody, or say that it could not.

When a message is sent, how often, and what happens if it never arrives is decided elsewhere (`orchestrator.outbox`).
"""

from typing import Protocol

from fledge.core.route import Address, Message
from fledge.errors import NotArrived

__all__ = ["Address", "Channel", "Message", "NotArrived"]


class Channel(Protocol):
    """Carries messages. One at a time: the next is sent when this one has arrived or was given up."""

    async def send(self, message: Message) -> None:
        """Return once the message has arrived. Raises, `NotArrived` if it is known when to try again, if it has not.

        The same message, by its id, may come again: after a crash nobody knows whether it arrived.
        """
        ...

    async def close(self) -> None:
        """Let go of connections. A later message opens new ones."""
        ...
