"""How hard the suite tries. `make test` plays the same examples every time; `make soak` plays many others.

`FLEDGE_SOAK=n` makes a soak of n times the usual length, `FLEDGE_SEED` says where its seeds begin. `make soak` takes
the time of day for that, prints it, and the same two variables play the same soak again.
"""

import os

from hypothesis import HealthCheck, settings

SOAK = int(os.environ.get("FLEDGE_SOAK", "0"))
FIRST_SEED = int(os.environ.get("FLEDGE_SEED", "0")) if SOAK else 0

settings.register_profile("fledge", deadline=None, derandomize=not SOAK, database=None, print_blob=True)
"""No example of Hypothesis fails for taking long: speed is measured by the bench."""


def seeds(usual: int, soaking: int) -> range:
    """The seeds to play: always the same in the suite, others in each soak."""
    return range(FIRST_SEED, FIRST_SEED + (soaking * SOAK or usual))


def effort(examples: int, steps: int) -> settings:
    """So many examples of so many moves for a machine of moves; in a soak more, and others each time."""
    return settings(
        max_examples=examples * max(1, SOAK),
        stateful_step_count=steps,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
