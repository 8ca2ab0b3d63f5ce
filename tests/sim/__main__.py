"""Play schedules by their seeds.

python -m tests.sim SEED [--trace]      one seed; with every step it takes
python -m tests.sim FIRST --many N      N seeds from FIRST on; stops at none, prints those that failed
python -m tests.sim --breaks NAME       the first seed that finds out this store of broken.py
"""

import argparse
import sys
import time

from tests.sim import broken
from tests.sim.play import Play, play
from tests.sim.schedule import schedule
from tests.sim.watch import Spy


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--many", type=int, default=1)
    parser.add_argument("--breaks", metavar="NAME")
    options = parser.parse_args()
    if options.breaks:
        return first_that_shows(getattr(broken, options.breaks), options.seed)
    begun, failed, commits, runs = time.perf_counter(), 0, 0, 0
    for seed in range(options.seed, options.seed + options.many):
        report = play(seed, print if options.trace else None)
        commits, runs = commits + report.commits, runs + report.runs
        if report.wrong:
            failed += 1
            print(f"seed {seed} (python -m tests.sim {seed} --trace):")
            for what in report.wrong[:6]:
                print(f"    {what}")
        elif options.many == 1:
            print(report)
        sys.stdout.flush()
    took = time.perf_counter() - begun
    print(f"{options.many} seeds, {failed} failed; {commits} commits, {runs} runs, {took:.1f} s")
    return 1 if failed else 0


def first_that_shows(spy: type[Spy], first: int) -> int:
    """Print the first seed that finds out this store, and what is found."""
    for seed in range(first, first + 1000):
        wrong = Play(schedule(seed), spy=spy).run().wrong
        if wrong:
            print(f"seed {seed}: {wrong[0]}")
            return 0
    print("a thousand schedules, and none shows it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
