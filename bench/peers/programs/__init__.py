"""One program per library: a parent whose model spawns N children in one reply, then reads their answers.

A child makes two model calls and one tool call (the sum of two and three) and answers `done:5`; parent and children
have models in the same process that answer at once. Each program lets one child live before it measures, checks that
all answers have come, and prints one line behind the word RESULT. They run in the libraries' own environments
(`bench.peers.libraries`), so they import `bench.measure` and nothing else of this repository.
"""

import json

from bench.measure import Meter

RESULT = "RESULT "
ANSWER = "done:5"


def report(library: str, children: int, meter: Meter) -> None:
    """Print what one child took."""
    print(RESULT + json.dumps({"library": library, "cpu_ms": 1000 * meter.cpu_s / children}), flush=True)


def check(what: str, found: object, wanted: object) -> None:
    """Raise if the library has done something else than it was asked to: the figure would mean nothing."""
    if found != wanted:
        raise RuntimeError(f"{what}: {found!r}, not {wanted!r}")
