"""How things are measured and shown: CPU of all threads, wall, RSS, percentiles, medians, bars, one table.

Standard library only, so that nothing measured here pays for what the measuring imports. This file does not know what
is measured.
"""

import asyncio
import gc
import os
import platform
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar, Literal

ROUNDS = 3
TICK_S = 0.01


def cpu_s() -> float:
    """User and system time of this process so far, all threads counted."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def children_cpu_s() -> float:
    """User and system time of all child processes that have been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rss_mb() -> float:
    """Memory this process holds now; where `/proc` is missing, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 2**20


def peak_mb() -> float:
    """The peak memory of this program. `ru_maxrss` is not that: it counts the process before `exec`, too."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


class Meter:
    """Measures what happens inside `with Meter() as m:`; its figures stand once the block is left."""

    switch: ClassVar[Callable[[str], None] | None] = None
    """Called with "on" when a block begins and with "off" when it ends; for `bench.instructions`."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = self.grown_mb = 0.0

    def __enter__(self) -> "Meter":
        # Garbage of what came before is not on this bill.
        gc.collect()
        self.grown_mb = -rss_mb()
        if Meter.switch is not None:
            Meter.switch("on")
        self.wall_s, self.cpu_s = -time.perf_counter(), -cpu_s()
        return self

    def __exit__(self, *error: object) -> None:
        self.wall_s += time.perf_counter()
        self.cpu_s += cpu_s()
        self.grown_mb += rss_mb()
        if Meter.switch is not None:
            Meter.switch("off")


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


async def record_lags(lags: list[tuple[float, float]]) -> None:
    """Until it is cancelled, append for every tick of the event loop when it was due and how late it was, both in
    seconds; those included that were due while the loop was busy."""
    due = time.perf_counter() + TICK_S
    while True:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        now = time.perf_counter()
        while due <= now:
            lags.append((due, now - due))
            due += TICK_S


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast something was done over and over by coroutines that each wait for their own to be durable."""

    waiting: int
    done: int
    wall_s: float
    cpu_s: float
    p50_ms: float
    p99_ms: float

    @property
    def per_s(self) -> float:
        """How many were done a second."""
        return self.done / self.wall_s

    @property
    def cpu_us(self) -> float:
        """CPU for one, in µs."""
        return 1e6 * self.cpu_s / self.done

    def __str__(self) -> str:
        """Rate, CPU for one, latency."""
        return f"{self.per_s:,.0f}/s {self.cpu_us:,.0f} µs, p50 {self.p50_ms:.1f} p99 {self.p99_ms:.1f} ms"


async def rate_of(waiting: int, each: int, once: Callable[[int, int], Awaitable[None]]) -> Rate:
    """The rate at which `waiting` coroutines, each `each` times in a row, do `once(coroutine, turn)`."""
    took_s: list[float] = []

    async def coroutine(number: int) -> None:
        for turn in range(each):
            began = time.perf_counter()
            await once(number, turn)
            took_s.append(time.perf_counter() - began)

    with Meter() as m:
        await asyncio.gather(*(coroutine(number) for number in range(waiting)))
    p50_ms, p99_ms = (1000 * percentile(took_s, percent) for percent in (50, 99))
    return Rate(waiting, waiting * each, m.wall_s, m.cpu_s, p50_ms, p99_ms)


def median_rate(rates: Sequence[Rate]) -> Rate:
    """Each figure's own median over the rounds; all rounds did the same."""
    return Rate(
        rates[0].waiting,
        rates[0].done,
        median(rate.wall_s for rate in rates),
        median(rate.cpu_s for rate in rates),
        median(rate.p50_ms for rate in rates),
        median(rate.p99_ms for rate in rates),
    )


# ---- what is shown ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit that a figure must keep."""

    sense: Literal["at least", "at most"]
    limit: float
    unit: str = "×"

    def holds(self, value: float) -> bool:
        """True if the value keeps the limit; the limit itself does."""
        return value >= self.limit if self.sense == "at least" else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.sense == 'at least' else '≤'} {self.limit:g} {self.unit}".replace(" ×", "×")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: a figure, what stands beside it, and the bar if there is one."""

    what: str
    measured: str
    beside: str = ""
    value: float | None = None
    """What the bar is held against: the ratio of the two, or the figure itself in the bar's unit."""
    bar: Bar | None = None
    unit: str = "×"

    @property
    def verdict(self) -> str:
        """PASS, FAIL, or nothing where there is no bar. What could not be measured keeps no bar."""
        if self.bar is None:
            return ""
        return "PASS" if self.value is not None and self.bar.holds(self.value) else "FAIL"

    @property
    def shown(self) -> str:
        """The value with its unit."""
        if self.value is None:
            return ""
        return f"{self.value:.2f}×" if self.unit == "×" else f"{self.value:.1f} {self.unit}"


def table(lines: Sequence[Line]) -> str:
    """The lines as one aligned table."""
    rows: list[tuple[str, ...]] = [("what", "measured", "beside", "value", "bar", "")]
    rows += [(x.what, x.measured, x.beside, x.shown, str(x.bar or ""), x.verdict) for x in lines]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def machine() -> dict[str, str | int]:
    """What the figures depend on besides the code."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": sys.platform,
        "cores": os.cpu_count() or 1,
        "tmp": tempfile.gettempdir(),
        "filesystem": filesystem_of(tempfile.gettempdir()),
    }


def filesystem_of(path: str) -> str:
    """The type of the filesystem this path is on, as far as `/proc/mounts` tells."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return "unknown"
    real = Path(path).resolve()
    on = [mount for mount in mounts if real.is_relative_to(mount[1])]
    return max(on, key=lambda mount: len(mount[1]))[2] if on else "unknown"
