"""The interface of a channel: it carries one message to its receiver, or raises if it could not.

When a message is sent, how often, and what happens if it never arrives is decided elsewhere (`orchestrator.outbox`).
"""

from typing import Protocol

from fledge.core.route import Address
from fledge.core.route import ChannelMessage as Message
from fledge.errors import NotArrived, Undeliverable

__all__ = ["Address", "Channel", "Message", "NotArrived", "Undeliverable"]


class Channel(Protocol):
    """Carries messages. One at a time: the next is sent when this one has arrived or was given up."""

    async def send(self, message: Message) -> None:
        """Return once the message has arrived, and raise otherwise: it is sent again after a while.

        `NotArrived` may say how long to wait (`wait_s`). `Undeliverable` says that trying again is useless: the message
        is undelivered at once.
        The same message, by its id, may come again: after a crash it is not known whether it arrived.
        """

    async def close(self) -> None:
        """Let go of connections. A later message opens new ones."""
