"""Play schedules by their seeds.

python -m tests.sim SEED [--trace]      one seed; with every step it takes
python -m tests.sim FIRST --many N      N seeds from FIRST on; stops at none, prints those that failed
"""

import argparse
import sys
import time

from tests.sim.play import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("seed", type=int)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--many", type=int, default=1)
    options = parser.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
