"""The address of the terminal, and a terminal channel for processes that show no messages.

No channel of this package prints: `fledge` and `fledge run` show the messages for a terminal themselves, by a channel
of their own or from the feed.
"""

from fledge.core.route import TERMINAL, Address, ChannelMessage
from fledge.errors import Undeliverable

HERE = Address(TERMINAL, "user")
"""The person at the terminal."""


class NoTerminal:
    """The terminal channel of a process that shows no messages. A message has arrived once it is in the transcript,
    because the person at the terminal reads it there. One that a hook sent here has not: its receiver does not read
    that transcript."""

    async def send(self, message: ChannelMessage) -> None:
        """Do nothing: the transcript holds the message. Raises Undeliverable if a hook sent it here."""
        if message.route == "hook":
            raise Undeliverable("a hook chose the terminal, and no terminal is open")

    async def close(self) -> None:
        """There is nothing to close."""
