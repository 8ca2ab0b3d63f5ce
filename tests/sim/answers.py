"""What must hold of the ends of turns, and of what is heard in threads: no conversation ends its turn without words for
somebody who waits for some, it is asked for them once, and a thread hears the last words of the child it is bound to,
once.

Computed from entries and posts as they were committed, never by the functions that decide about them.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from fledge.core.freeze import classify_reply
from fledge.core.route import INTERNAL, Address, ChannelMessage, is_apart
from fledge.core.transcript import Body, Replied, Spoken, Told
from fledge.core.turn import TurnEnd
from fledge.store.base import Tx

_message = msgspec.json.Decoder(ChannelMessage).decode


class Closed(Struct, frozen=True):
    """A turn that was closed: how, and everything that it had read and written."""

    session: str
    turn: int
    ended: TurnEnd
    origin: str
    is_talk: bool
    """It belonged to a conversation and was no heartbeat."""
    answers_earlier: bool
    """It answered what an earlier turn had read before it yielded."""
    bodies: tuple[Body, ...]

    @property
    def told(self) -> list[str]:
        """Keys of the completions that it had read."""
        entries = [body for body in self.bodies if isinstance(body, Told)]
        return [item.row for entry in entries for item in entry.completions]

    @property
    def heard(self) -> bool:
        """Somebody spoke to it, or it read completions."""
        return bool(self.told) or any(isinstance(body, Spoken) and body.row for body in self.bodies)


def unsound(tx: Tx, closed: Iterable[Closed], posted: Iterable[str]) -> list[str]:
    """What is wrong with the turns that one commit closed; `posted` is what it put into the outbox."""
    wrong: list[str] = []
    for turn in closed:
        name = f"turn {turn.turn} of {turn.session}"
        nudges = sum(isinstance(body, Spoken) and body.row.startswith("nudge:") for body in turn.bodies)
        if turn.is_talk and nudges > 1:
            wrong.append(f"{name} was asked for words {nudges} times")
        texts = [classify_reply(body.text) for body in turn.bodies if isinstance(body, Replied)]
        mute = turn.is_talk and turn.heard and set(texts) <= {"empty"} and not is_apart(turn.origin)
        if mute and turn.ended.kind == "replied":
            wrong.append(f"{name} ended without words")
        state = tx.turns.state(turn.session)
        if turn.is_talk and turn.answers_earlier:
            wrong.append(f"{name} answers for an earlier one that still waits")
        if turn.is_talk and turn.ended.kind == "yielded" and (state is None or state.wait is None):
            wrong.append(f"{name} has yielded and waits for nothing")
        if turn.ended.kind in ("no-answer", "forwarded"):
            wrong += _handed_on(tx, turn, name)
        rows = [tx.inbox.get(key) for key in turn.told]
        quiet = bool(rows) and all(row is not None and row.origin == INTERNAL for row in rows)
        only = quiet and not any(isinstance(body, Spoken) and body.row for body in turn.bodies)
        if only and any(key.startswith(f"reply:{turn.session}:") for key in posted):
            wrong.append(f"{name} repeats what its thread has heard")
    return wrong


def _handed_on(tx: Tx, turn: Closed, name: str) -> list[str]:
    """Results that were read and for which there were no words stand in the transcript as the subagents' own."""
    rows = [tx.inbox.get(key) for key in turn.told if tx.outbox.get(f"result:{key}") is None]
    open_rows = [row.key for row in rows if row is not None and row.origin != INTERNAL]
    forwards = [body for body in turn.bodies if isinstance(body, Replied) and body.text.startswith("[No reply. What ")]
    if len(forwards) != bool(open_rows):
        return [f"{name} read {open_rows}, had no words, and handed on {forwards}"]
    return []


def unheard(posted: dict[str, str], threads: dict[str, Address]) -> list[str]:
    """Threads that did not hear what they should, by the posts of the whole play: a body by key."""
    finals = {key: _message(body).address for key, body in posted.items() if key.startswith("final:")}
    wrong = [f"its thread never heard {key}" for key in threads if key not in finals]
    wrong += [f"{key} is not told to {at}" for key, at in threads.items() if finals.get(key, at) != at]
    return wrong + [f"{key} is told, and nobody is bound there" for key in finals if key not in threads]
