"""The sign and the figures of a subagent that ended, and when a model is tried next.

A file of its own: plain lines need both without the extra `chat`.
"""

from typing import Final

from fledge.cli.term.shown import EndedItem, TurnShown
from fledge.core.figures import count_text, elapsed, money

SIGNS: Final = {"done": ("✔", "g"), "killed": ("■", "y"), "failed": ("✖", "r")}


def sign_of(status: str) -> tuple[str, str]:
    """What stands before a subagent that has ended like this, and in which style."""
    return SIGNS.get(status, ("●", "y"))


def ended_facts(card: EndedItem) -> list[str]:
    """How a subagent ended: in a word, after how long, and what it used."""
    facts = [card.status, elapsed(card.seconds)]
    facts += [f"{count_text(card.tokens)} tok"] if card.tokens else []
    return facts + ([money(card.cost)] if card.cost else [])


def next_try(turn: TurnShown, now: float) -> str:
    """Which try of a turn comes next, and when; without a time if nobody knows it."""
    when = f"in {elapsed(max(0, turn.retry_at - now) + 0.999)}" if turn.retry_at else "follows"
    return f"try {turn.attempt} {when}"
