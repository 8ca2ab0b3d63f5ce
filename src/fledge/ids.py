"""The source of names: run ids, session ids, nonces. A parameter, like the clock, so that tests can repeat a run."""

import os
import secrets
import time
from collections import deque
from typing import Protocol


class Ids(Protocol):
    """Makes names that have never been used."""

    def unique(self) -> str:
        """A fresh uuid, as text."""

    def nonce(self) -> str:
        """A short secret for one message's markers."""


_NS_PER_MS = 1_000_000
_BYTES = 8
_AT_ONCE = 256
_drawn: deque[str] = deque()
"""Random bits in hex, drawn from the system many at once: a child has three names, and a draw costs more than they
do."""
os.register_at_fork(after_in_child=_drawn.clear)  # or two processes would give the same names


def _random_bits() -> str:
    """Random bits that no other call gets, in any thread."""
    try:
        return _drawn.popleft()
    except IndexError:
        drawn = os.urandom(_BYTES * _AT_ONCE).hex()
        width = 2 * _BYTES
        _drawn.extend(drawn[at : at + width] for at in range(width, len(drawn), width))
        return drawn[:width]


class RandomIds:
    """Names from the machine's clock and randomness."""

    def unique(self) -> str:
        """A fresh uuid (version 7): 60 bits of time in units of about 244 ns, 62 random ones.

        Newer names sort behind older ones, also within a millisecond, so rows stored under them lie together: with
        random names every row of a child would dirty a page of its own. Written by hand, because every event of a run
        has one.
        """
        bits = _random_bits()
        ms, rest = divmod(time.time_ns(), _NS_PER_MS)
        at = f"{ms:012x}"
        return f"{at[:8]}-{at[8:]}-7{rest * 4096 // _NS_PER_MS:03x}-{'89ab'[ord(bits[0]) & 3]}{bits[1:4]}-{bits[4:]}"

    def nonce(self) -> str:
        """64 random bits, in hex."""
        return secrets.token_hex(8)
