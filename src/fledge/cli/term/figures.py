"""The sign and the figures of a subagent that ended, and the next try of a model.

A file of its own: plain lines need both without the extra `chat`.
"""

from typing import Final

from fledge.cli.term.shown import EndedItem, TurnShown
from fledge.core.figures import count_text, elapsed, money

SIGNS: Final = {"done": ("✔", "g"), "killed": ("■", "y"), "failed": ("✖", "r")}


def sign_of(status: str) -> tuple[str, str]:
    """The sign before a subagent that has ended with this status, and its style."""
    return SIGNS.get(status, ("●", "y"))


def ended_facts(card: EndedItem) -> list[str]:
    """How a subagent ended: in a word, after how long, and what it used."""
    facts = [card.status, elapsed(card.seconds)]
    facts += [f"{count_text(card.tokens)} tok"] if card.tokens else []
    return facts + ([money(card.cost)] if card.cost else [])


def next_try(turn: TurnShown, now: float) -> str:
    """The number of a turn's next try, and its time if that is known."""
    when = f"in {elapsed(max(0, turn.retry_at - now) + 0.999)}" if turn.retry_at else "follows"
    return f"try {turn.attempt} {when}"
