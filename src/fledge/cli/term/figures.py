"""The sign and the figures of a subagent or a call that ended, and the next try of a model.

A file of its own: plain lines need both without the extra `chat`.
"""

from typing import Final

from fledge.cli.term.shown import CallEnded, EndedItem, TurnShown
from fledge.core.figures import count_text, elapsed, money
from fledge.core.printable import printable

SIGNS: Final = {"done": ("✔", "g"), "killed": ("■", "y"), "failed": ("✖", "r")}


def sign_of(status: str) -> tuple[str, str]:
    """The sign before a subagent that has ended with this status, and its style."""
    return SIGNS.get(status, ("●", "y"))


def ended_facts(card: EndedItem) -> list[str]:
    """How a subagent ended: in a word, after how long, and what it used."""
    facts = [card.status, elapsed(card.seconds)]
    facts += [f"{count_text(card.tokens)} tok"] if card.tokens else []
    return facts + ([money(card.cost)] if card.cost else [])


def call_facts(ended: CallEnded) -> list[str]:
    """How long a call took, if that is known."""
    if ended.seconds is None:
        return []
    return [f"{max(0.0, ended.seconds):.1f}s" if ended.seconds < 10 else elapsed(ended.seconds)]


def first_lines(text: str, most: int) -> list[str]:
    """The first lines of a result that are not blank, made printable, and a sign if there are more."""
    lines = [line for line in printable(text).splitlines() if line.strip()]
    return lines if len(lines) <= most else [*lines[: most - 1], f"… {len(lines) - most + 1} more lines"]


def next_try(turn: TurnShown, now: float) -> str:
    """The number of a turn's next try, and its time if that is known."""
    when = f"in {elapsed(max(0, turn.retry_at - now) + 0.999)}" if turn.retry_at else "follows"
    return f"try {turn.attempt} {when}"
