"""Where names come from: run ids, session ids, nonces. A parameter, like the clock, so that tests can repeat a run."""

import os
import secrets
import time
from typing import Protocol


class Ids(Protocol):
    """Makes names that have never been used."""

    def unique(self) -> str:
        """A fresh uuid, as text."""
        ...

    def nonce(self) -> str:
        """A short secret for one message's markers."""
        ...


class RandomIds:
    """The machine's randomness, behind its clock."""

    def unique(self) -> str:
        """A fresh uuid (version 7): 48 bits of time in ms, 74 random ones.

        Newer names sort behind older ones, so what is stored under them lies together: with random ones every row of a
        child would dirty a page of its own. Written by hand, because every event of a run has one.
        """
        bits = os.urandom(10).hex()
        at = f"{time.time_ns() // 1_000_000:012x}"
        return f"{at[:8]}-{at[8:]}-7{bits[1:4]}-{'89ab'[ord(bits[4]) & 3]}{bits[5:8]}-{bits[8:]}"

    def nonce(self) -> str:
        """64 random bits, in hex."""
        return secrets.token_hex(8)
