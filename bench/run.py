"""The table: what is measured, in which sizes, against which bars. `python -m bench [--quick]`.

Every comparison is made in this one run, its sides taking turns; bars are held against ratios of medians, because the
machine is noisy and its disk is its own. Exit code 1 if a bar fails.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import imports, lives, transitions
from bench.measure import ROUNDS, Bar, Line, Meter, Rate, machine, median_rate, table

RESULTS = Path(__file__).parent / "results"

HALF_THE_BARE_LOOP = Bar("at least", 0.5)
FLAT = Bar("at most", 1.3)
QUICK_TO_IMPORT = Bar("at most", 100, "ms")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int
    runs: int
    """In the table while transitions are compared."""
    alone: int
    """Transitions in a row by one coroutine."""
    together: int
    """Transitions by many coroutines, all counted."""
    waiting: tuple[int, ...]
    existing: int
    registry: tuple[tuple[int, int], ...]
    """Runs in the JSON file, changes made to it."""
    starts: int
    children: tuple[int, ...]
    widths: tuple[int, ...]


FULL = Sizes(
    rounds=ROUNDS,
    runs=1000,
    alone=2000,
    together=40_000,
    waiting=(1, 100, 1000),
    existing=100_000,
    registry=((1000, 50), (10_000, 20)),
    starts=9,
    children=(100, 1000),
    widths=(8, 1000),
)
QUICK = Sizes(
    rounds=ROUNDS,
    runs=1000,
    alone=100,
    together=10_000,
    waiting=(1, 100, 1000),
    existing=10_000,
    registry=((1000, 10), (10_000, 4)),
    starts=5,
    children=(100, 300),
    widths=(8, 1000),
)


def compared(sizes: Sizes) -> Iterator[Line]:
    """Transitions of fledge's store beside the bare loop's."""
    for waiting in sizes.waiting:
        each = sizes.alone if waiting == 1 else max(2, sizes.together // waiting)
        ours: list[Rate] = []
        blind: list[Rate] = []
        loading: list[Rate] = []
        for _ in range(sizes.rounds):
            blind.append(transitions.group_commit(waiting, each, sizes.runs))
            ours.append(transitions.fledge(waiting, each, sizes.runs))
            loading.append(transitions.group_commit(waiting, each, sizes.runs, "loading"))
        mine, yardstick, other = (median_rate(rates) for rates in (ours, blind, loading))
        bar = HALF_THE_BARE_LOOP if waiting > 1 else None
        ratio, against_other = mine.per_s / yardstick.per_s, mine.per_s / other.per_s
        yield Line(f"transitions, {waiting} waiting / bare group commit", str(mine), str(yardstick), ratio, bar)
        yield Line("  / one that also loads and re-encodes the row", str(mine), str(other), against_other)


def aged(sizes: Sizes) -> Iterator[Line]:
    """Transitions beside many older runs, and beside none."""
    waiting = max(sizes.waiting)
    each = max(2, sizes.together // waiting)
    found = transitions.growth(sizes.existing, waiting, each, sizes.rounds)
    empty, full, spread = (median_rate(rates) for rates in (found.empty, found.full, found.spread))
    beside = f"{sizes.existing:,} older runs"
    yield Line(
        f"CPU a transition, {waiting} waiting, {beside} / none", str(full), str(empty), full.cpu_us / empty.cpu_us, FLAT
    )
    yield Line("  by the clock", f"{full.per_s:,.0f}/s", f"{empty.per_s:,.0f}/s", empty.per_s / full.per_s)
    yield Line("  CPU, of runs spread evenly among the old", str(spread), str(empty), spread.cpu_us / empty.cpu_us)
    yield Line("  making them", f"{sizes.existing / found.populate_s:,.0f} runs/s  {found.file_mb:,.0f} MB on disk")


def rewritten(sizes: Sizes) -> Iterator[Line]:
    """The JSON file that many know, beside fledge with one coroutine and as many runs."""
    for runs, changes in sizes.registry:
        registry = transitions.json_registry(runs, changes)
        mine = transitions.fledge(1, changes, runs)
        yield Line(
            f"CPU a transition, {runs:,} runs, JSON file rewritten / fledge",
            str(registry),
            str(mine),
            registry.cpu_us / mine.cpu_us,
        )


def started(sizes: Sizes) -> Iterator[Line]:
    """What imports and the console script cost over an interpreter that does nothing."""
    found = imports.start_ms(sizes.starts)
    nothing = found.pop("pass") or 0.0
    for name, took in found.items():
        if took is None:
            yield Line(name, "does not run", f"{nothing:.0f} ms CPU (pass)")
            continue
        bar = QUICK_TO_IMPORT if name == "import fledge" else None
        beside = f"{nothing:.0f} ms CPU (pass)"
        yield Line(name, f"{took:.0f} ms CPU", beside, took - nothing, bar, "ms")


def lived(sizes: Sizes) -> Iterator[Line]:
    """Whole lives through the engine beside the floor."""
    for children in sizes.children:
        for width in sizes.widths:
            short, alike, floor = [], [], []
            for _ in range(sizes.rounds):
                short.append(lives.live(children, width))
                alike.append(lives.live(children, width, lives.FLOOR_STEPS))
                if (bottom := lives.floor(children, width)) is not None:
                    floor.append(bottom)
            yield from _lines_of(children, width, short, alike, floor)


def _lines_of(
    children: int, width: int, short: list[lives.Lives], alike: list[lives.Lives], floor: list[lives.Lives]
) -> Iterator[Line]:
    bottom = lives.median_lives(floor) if floor else None
    mine, same = lives.median_lives(short), lives.median_lives(alike)
    beside = "no floor here" if bottom is None else str(bottom)
    a_commit = None if bottom is None else mine.cpu_us_a_commit / bottom.cpu_us_a_commit
    a_child = None if bottom is None else same.cpu_ms_a_child / bottom.cpu_ms_a_child
    yield Line(f"{children} lives, {width} at once, CPU a commit / floor", str(mine), beside, a_commit)
    yield Line("  with the floor's two steps, CPU a child / floor", str(same), beside, a_child)


PARTS = (compared, aged, rewritten, started, lived)


def measured(sizes: Sizes) -> list[Line]:
    """All lines, in order, each part's name printed when it begins."""
    lines: list[Line] = []
    for part in PARTS:
        print(f"… {part.__name__}", flush=True)
        lines.extend(part(sizes))
    return lines


def keep(lines: list[Line], sizes: Sizes, wall_s: float, folder: Path = RESULTS) -> Path:
    """Write the table and what it depends on as JSON; answers the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    found = [asdict(line) | {"verdict": line.verdict} for line in lines]
    kept = {"machine": machine(), "sizes": asdict(sizes), "wall_s": wall_s, "lines": found}
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


def report(sizes: Sizes, folder: Path = RESULTS) -> int:
    """Measure, print the table, keep it; answers how many bars failed."""
    with Meter() as m:
        lines = measured(sizes)
    failed = sum(line.verdict == "FAIL" for line in lines)
    print(table(lines))
    print("µs and ms are CPU of all threads, except p50 and p99; value: measured / beside, or the difference in ms")
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"{m.wall_s:.0f} s; {failed} of {sum(bool(line.verdict) for line in lines)} bars failed")
    print(f"kept in {keep(lines, sizes, m.wall_s, folder)}")
    return failed


def main(arguments: list[str]) -> int:
    """The exit code: 1 if a bar failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What fledge costs, and whether bars hold.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, less than a minute")
    return 1 if report(QUICK if parser.parse_args(arguments).quick else FULL) else 0
