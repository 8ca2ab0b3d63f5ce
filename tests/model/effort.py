"""How hard the machines try: the same few examples every time in the suite, many others in `make soak`."""

import os

from hypothesis import HealthCheck, settings

SOAK = int(os.environ.get("FLEDGE_SOAK", "0"))


def effort(examples: int, steps: int) -> settings:
    """So many examples of so many moves; under FLEDGE_SOAK=n n times as many, other ones each time."""
    return settings(
        max_examples=examples * max(1, SOAK),
        stateful_step_count=steps,
        derandomize=not SOAK,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        print_blob=True,
    )
