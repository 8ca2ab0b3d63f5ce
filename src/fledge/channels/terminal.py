"""The terminal as an address, and the channel of programs at which nobody sits.

No channel prints: `fledge` and `fledge run` show what goes to the terminal themselves, from the feed.
"""

from fledge.core.route import TERMINAL, Address, ChannelMessage
from fledge.errors import Undeliverable

HERE = Address(TERMINAL, "user")
"""The person at the terminal."""


class NoTerminal:
    """For programs at which nobody sits: what was meant for a terminal has arrived once it is in the transcript, for
    whoever sat there reads that. Whoever a hook wanted to be told there does not."""

    async def send(self, message: ChannelMessage) -> None:
        """Nobody is there to read it. Raises Undeliverable if a hook sent it here."""
        if message.route == "hook":
            raise Undeliverable("a hook chose the terminal, and no terminal is open")

    async def close(self) -> None:
        """Nothing is held."""
