"""Durations, numbers and ends in few signs. Apart from the rest: plain lines need it without the extra `chat`."""

from typing import Final

SIGNS: Final = {"done": ("✔", "g"), "killed": ("■", "y"), "failed": ("✖", "r")}


def sign_of(status: str) -> tuple[str, str]:
    """What stands before a subagent that has ended like this, and in which style."""
    return SIGNS.get(status, ("●", "y"))


def seconds(took: float) -> str:
    """A duration in few signs: 41s, 3m12s, 2h05m."""
    whole = max(0, int(took))
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02}m"


def count(number: int) -> str:
    """A number in few signs: 340, 8.1k, 2.0M."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 999_950 else f"{number / 1_000_000:.1f}M"


def next_try(attempt: int, retry_at: float, now: float) -> str:
    """Which try comes next, and when; without a time if nobody knows it."""
    when = f" in {seconds(max(0, retry_at - now) + 0.999)}" if retry_at else " follows"
    return f"try {attempt}{when}"
