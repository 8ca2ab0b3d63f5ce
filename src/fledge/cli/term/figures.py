"""The sign of a subagent that ended, and when a model is tried next.

A file of its own: plain lines need both without the extra `chat`.
"""

from typing import Final

from fledge.core.figures import elapsed

SIGNS: Final = {"done": ("✔", "g"), "killed": ("■", "y"), "failed": ("✖", "r")}


def sign_of(status: str) -> tuple[str, str]:
    """What stands before a subagent that has ended like this, and in which style."""
    return SIGNS.get(status, ("●", "y"))


def next_try(attempt: int, retry_at: float, now: float) -> str:
    """Which try comes next, and when; without a time if nobody knows it."""
    when = f" in {elapsed(max(0, retry_at - now) + 0.999)}" if retry_at else " follows"
    return f"try {attempt}{when}"
