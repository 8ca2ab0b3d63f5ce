"""Instructions of a child and of the floor's, counted by valgrind's callgrind: the machine's load hardly matters.

Usage: `python -m bench.instructions [CHILDREN WIDTH]` (300 and 1000 if left out; a minute, with Debian's package
valgrind). Threads count alone and together; only what runs inside a `Meter` is counted, the kernel's part never.
`python -m bench.instructions counted children|floor CHILDREN WIDTH` is the program that callgrind watches.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import children, floor, lives
from bench.measure import Meter

SIDES = ("children", "floor")


def _switch(how: str) -> None:
    """Switch the counting of callgrind, which watches this process."""
    subprocess.run(["vgdb", f"--pid={os.getpid()}", "instrumentation", how], check=True, capture_output=True)


def counted(side: str, number: int, width: int) -> None:
    """Let a few live that are not counted, then so many that are."""
    live = floor.live if side == "floor" else children.live
    live(floor.WARMING, width)
    Meter.switch = _switch
    live(number, width)


def millions(folder: Path, children: int) -> list[float]:
    """Millions of instructions of one child, by thread, as callgrind wrote them: the event loop's first. Idle threads
    are left out."""
    texts = [path.read_text("utf-8", "replace") for path in sorted(folder.glob("out-*"))]
    totals = [int(found[1]) for text in texts if (found := re.search(r"^totals: (\d+)$", text, re.MULTILINE))]
    return [total / children / 1e6 for total in totals if total]


def count(side: str, number: int, width: int) -> list[float]:
    """The millions of instructions of a child of this side, by thread."""
    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        watch = ["--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes"]
        program = [sys.executable, "-m", "bench.instructions", "counted", side, str(number), str(width)]
        command = ["valgrind", "--quiet", *watch, f"--callgrind-out-file={folder}/out", *program]
        subprocess.run(command, cwd=lives.ROOT, check=True, timeout=lives.TIMEOUT_S)
        return millions(Path(folder), number)


def main(arguments: list[str]) -> None:
    """Count both sides, and print them."""
    if arguments[:1] == ["counted"]:
        counted(arguments[1], int(arguments[2]), int(arguments[3]))
        return
    given = arguments or ["300", "1000"]
    if len(given) != 2 or not all(one.isdecimal() and int(one) for one in given):
        sys.exit("usage: python -m bench.instructions [CHILDREN WIDTH], both at least 1")
    if shutil.which("valgrind") is None or shutil.which("vgdb") is None:
        sys.exit("valgrind is missing: install it (Debian: apt-get install valgrind)")
    number, width = map(int, given)
    sums: list[float] = []
    for side in SIDES:
        threads = count(side, number, width)
        sums.append(sum(threads))
        shown = ", ".join(f"{one:.3f}" for one in threads)
        print(f"{side}: {sums[-1]:.3f} million instructions a child (threads: {shown})")
    print(f"children / floor: {sums[0] / sums[1]:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
