"""Where names come from: run ids, session ids, nonces. A parameter, like the clock, so that tests can repeat a run."""

import secrets
import uuid
from typing import Protocol


class Ids(Protocol):
    """Makes names that have never been used."""

    def unique(self) -> str:
        """A fresh uuid4, as text."""
        ...

    def nonce(self) -> str:
        """A short secret for one message's markers."""
        ...


class RandomIds:
    """The machine's randomness."""

    def unique(self) -> str:
        """A fresh uuid4."""
        return str(uuid.uuid4())

    def nonce(self) -> str:
        """64 random bits, in hex."""
        return secrets.token_hex(8)
