"""A driver's lease on its session: what it holds when it writes, and so what every tool that it runs holds.

A steer, a timeout or a stop gives the session a new epoch, an interrupt calls the step off; both have closed the step's
calls in that commit. What is committed on behalf of such a call afterwards would be something nobody was told of.
"""

from msgspec import Struct

from fledge.errors import Interrupted
from fledge.orchestrator.commit import Commit


class Lease(Struct, frozen=True, gc=False):
    """The epoch a driver was given, and how many of its steps were called off by now."""

    epoch: int
    interrupts: int = 0


def check(c: Commit, session: str, lease: Lease | None) -> None:
    """Raises StaleWrite if a newer driver has taken over, Interrupted if the step was called off. None holds always:
    a person or a program, who has no driver."""
    if lease is not None and c.tx.drivers.fence(session, lease.epoch).interrupts != lease.interrupts:
        raise Interrupted(f"a step of {session} was cancelled")
