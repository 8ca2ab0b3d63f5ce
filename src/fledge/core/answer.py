"""The end of a conversation's turn: whether it has words for whoever waits for some, and what it answers.

Judged by the turn's own entries, so a crash between two of them changes nothing. This file knows no store, no channel
and no run: a run that is alive ends by `lifecycle`.
"""

from collections.abc import Sequence

from fledge.core.freeze import said
from fledge.core.transcript import Body, Replied, Spoken, Told, joined

NUDGE = "nudge"
"""The kind of an entry that asks a model to answer again."""
NO_ANSWER = "no answer: the reply has no words"
"""How a turn ends that had nothing to say to whoever spoke to it."""


def rows_read(bodies: Sequence[Body]) -> tuple[str, ...]:
    """Keys of the inbox rows that stand in these entries, in order."""
    found: list[str] = []
    for body in bodies:
        match body:
            case Spoken(row=row, kind=kind) if row and kind != NUDGE:
                found.append(row)
            case Told():
                found += completions_read([body])
            case _:
                continue
    return tuple(found)


def completions_read(bodies: Sequence[Body]) -> list[str]:
    """The same for completions alone."""
    return [one.row for body in bodies if isinstance(body, Told) for one in body.completions]


def last_visible(bodies: Sequence[Body]) -> str:
    """The last words for people among these entries; empty if there are none."""
    whole = [body for _, body in joined((None, body) for body in bodies)]
    replies = (body for body in reversed(whole) if isinstance(body, Replied))
    return next((reply.text for reply in replies if said(reply.text) == "text"), "")


def lacks_words(bodies: Sequence[Body]) -> bool:
    """True if a turn with these entries has read something and has no words for people."""
    return bool(rows_read(bodies)) and not last_visible(bodies)


def was_nudged(bodies: Sequence[Body]) -> bool:
    """True if the model was asked for words in this turn."""
    return any(isinstance(body, Spoken) and body.kind == NUDGE for body in bodies)


def is_spoken_to(bodies: Sequence[Body]) -> bool:
    """True if somebody waits for an answer to what they said, now or before an earlier turn yielded."""
    return any(isinstance(body, Spoken) and body.kind in ("send", "wake") for body in bodies)
