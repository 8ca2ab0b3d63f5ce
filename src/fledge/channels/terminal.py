"""The terminal as a channel: whoever sits there reads lines.

Replies and results go to one stream, what the system itself has to say to the other. Words of models are shown without
control characters, so that none of them can move the cursor, hide a line or speak to the terminal itself.
"""

from typing import TextIO

from fledge.core.printable import printable
from fledge.core.route import TERMINAL, About, Address, Message
from fledge.errors import Undeliverable

HERE = Address(TERMINAL, "user")
"""Whoever sits at the terminal."""


class TerminalChannel:
    """Prints. `left_out` names what the program shows by itself, so that nothing is shown twice."""

    def __init__(self, said: TextIO, noticed: TextIO, left_out: frozenset[About] = frozenset()) -> None:
        self._said, self._noticed, self._left_out = said, noticed, left_out

    async def send(self, message: Message) -> None:
        """Print the message. Raises OSError if nobody can read it any more."""
        if message.about in self._left_out:
            return
        text = printable(message.text).rstrip("\n")
        if message.about in ("reply", "result"):
            print(text, file=self._said, flush=True)
        else:
            print(f"fledge: {text}", file=self._noticed, flush=True)

    async def close(self) -> None:
        """Nothing is held: the streams belong to the program."""


class NoTerminal:
    """For programs at which nobody sits: what was meant for a terminal has arrived once it is in the transcript, for
    whoever sat there reads that. Whoever a hook wanted to be told there does not."""

    async def send(self, message: Message) -> None:
        """Nobody is there to read it. Raises Undeliverable if a hook sent it here."""
        if message.route == "hook":
            raise Undeliverable("a hook named the terminal, and nobody is there")

    async def close(self) -> None:
        """Nothing is held."""
