"""Durations, counts and money in few characters, for people: the one place that decides how a figure is written.

`duration` says how long something took, rounded. `elapsed` is a clock that counts: whole seconds that have passed, of
a width that changes seldom, so that a line which is drawn again each second does not jump.
"""

import math

UNKNOWN = "n/a"


def duration(seconds: float | None) -> str:
    """How long something took: 41s, 2m34s, 25h0m; `n/a` if it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    minutes, rest_s = divmod(int(max(0.0, seconds) + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{rest_s}s" if minutes else f"{rest_s}s"


def elapsed(seconds: float) -> str:
    """How long something has lasted so far: 41s, 3m12s, 2h05m, 3d4h."""
    minutes, rest_s = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest_s:02}s" if minutes else f"{rest_s}s"


def count_text(number: int | None) -> str:
    """A count: 340, 8.1k, 2.0m; `n/a` if it is not known."""
    if number is None:
        return UNKNOWN
    if number < 1000:
        return str(number)
    # In whole tenths, so that 999 950 reads 1.0m and never 1000.0k.
    tenths, unit = (number + 50) // 100, "k"
    if tenths >= 10_000:
        tenths, unit = (number + 50_000) // 100_000, "m"
    return f"{tenths // 10}.{tenths % 10}{unit}"


def money(usd: float) -> str:
    """US dollars: $3.91, $0.0042, <$0.0001."""
    if usd >= 0.01 or usd <= 0:
        return f"${max(0.0, usd):.2f}"
    return f"${usd:.4f}" if usd >= 0.0001 else "<$0.0001"
