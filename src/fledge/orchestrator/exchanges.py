"""Exchanges where they touch turns and lanes: which messages the end of a turn answers, and where a session is queued.

A turn that yields answers later: the turn after the wait answers the messages that it has read. A session that waits
for another's answer waits inside its own turn and holds a slot. So the other session is driven in a lane of its own:
however narrow the lanes are, it never waits for a slot that its asker holds. How exchanges begin and go on is in
`messages`.
"""

from fledge.core.effects import Owes
from fledge.core.exchange import Exchange, dropped
from fledge.core.run import Instant
from fledge.core.transcript import rows_read
from fledge.core.turn import TurnEnd
from fledge.orchestrator import transcripts
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.views import name_of

NESTED = "nested"


def enqueue(c: Commit, session: str, spawner: str, due_at: Instant | None = None, is_suspect: bool = False) -> None:
    """Let a session be claimed: in its usual lane, or in its own while another session waits for its answer."""
    lane = _lane(c, session)
    if lane.startswith(NESTED):
        place = c.tx.queue.place(session)
        if place is not None and place.lane != lane:
            c.tx.queue.remove(session)
    c.tx.queue.put(session, lane, spawner, is_suspect, due_at)
    c.hints.look = True


def _lane(c: Commit, session: str) -> str:
    if c.tx.exchanges.is_waited_for(session, c.at):
        return f"{NESTED}:{session}"
    run = c.find(session)
    if run is not None:
        return run.terms.lane
    turn = c.tx.turns.get(session)
    return c.tx.requests.lane(session, None if turn is None else turn.turn) or "main"


def hurry(c: Commit, session: str) -> None:
    """Move a queued session to its own lane, if another session waits for its answer."""
    place = c.tx.queue.place(session)
    if place is not None:
        enqueue(c, session, session, place.due_at, place.suspect)


def close_turn(c: Commit, session: str, end: TurnEnd, owes: Owes = "nothing") -> None:
    """Close the session's turn with this end. Messages that were read and not answered by now stay unanswered, except
    those that are still owed."""
    for exchange in unanswered(c, session, owes):
        name = name_of(c.tx, session)
        drop(c, exchange, f"{name} read your message and gave no answer to it (its turn: {end.description})")
    c.tx.turns.close(session, end, c.at, owes)


def unanswered(c: Commit, session: str, owes: Owes) -> list[Exchange]:
    """Exchanges whose message was read and not answered, except those that are still owed once this turn is over."""
    found = [] if owes == "all" else c.tx.exchanges.answering(session)
    if not found or owes == "nothing":
        return found
    turn = c.tx.turns.get(session)
    read = () if turn is None else rows_read(transcripts.of_turn(c.tx, turn))
    return [exchange for exchange in found if exchange.row in read]


def owed(c: Commit, session: str) -> Owes:
    """The answers that a conversation still owes once its open turn is over, unless that yields: while it waits for its
    children, those to messages that earlier turns read."""
    return "nothing" if c.tx.turns.wait(session) is None else "earlier"


def drop_row(c: Commit, row: str, why: str) -> bool:
    """A message will never be read; True if a sender who waits for its answer hears of that."""
    exchange = c.tx.exchanges.about(row)
    if exchange is None or exchange.speaker is None:
        return False
    drop(c, exchange, why)
    return exchange.reply is None and exchange.until_at is not None and exchange.until_at > c.at


def drop_begun(c: Commit, session: str, why: str) -> None:
    """Drop the exchanges that this session began: it was stopped."""
    for exchange in c.tx.exchanges.begun(session):
        drop(c, exchange, why)


def drop(c: Commit, exchange: Exchange, why: str) -> None:
    """End an exchange without an answer, for this reason."""
    c.tx.exchanges.save(dropped(exchange, why), c.at)
    c.moved(exchange.target)
