"""Exchanges where they touch turns and lanes: what the end of a turn answers, and where a session is queued.

A turn that yields answers later: what it has read stays to be answered by the turn that reads what it waits for.
A session that waits for another's answer waits inside its own turn and holds a slot. So whoever is waited for is driven
in a lane of its own: however narrow the lanes are, nobody waits for a slot that its asker holds. How exchanges begin
and go on is in `messages`.
"""

from fledge.core import policy
from fledge.core.effects import Owes
from fledge.core.exchange import Exchange, dropped
from fledge.core.run import Instant
from fledge.core.transcript import rows_read
from fledge.core.turn import TurnEnd
from fledge.orchestrator import transcripts
from fledge.orchestrator.commit import Commit

NESTED = "nested"


def enqueue(c: Commit, session: str, spawner: str, due_at: Instant | None = None) -> None:
    """Let a session be claimed: in its usual lane, or in its own while another session waits for its answer."""
    lane = _lane(c, session)
    if lane.startswith(NESTED):
        place = c.tx.queue.place(session)
        if place is not None and place.lane != lane:
            c.tx.queue.remove(session)
    c.tx.queue.put(session, lane, spawner, is_suspect(c, session), due_at)
    c.hints.look = True


def is_suspect(c: Commit, session: str) -> bool:
    """True of a session whose run, or open turn, has crashed so often that it is driven beside no other suspect."""
    run = c.find(session)
    if run is not None and run.ended is None:
        return policy.is_suspect(run.crashes)
    turn = c.tx.turns.get(session)
    return turn is not None and policy.is_suspect(turn.crashes)


def _lane(c: Commit, session: str) -> str:
    if c.tx.exchanges.is_waited_for(session, c.at):
        return f"{NESTED}:{session}"
    run = c.find(session)
    if run is not None:
        return run.terms.lane
    turn = c.tx.turns.get(session)
    return c.tx.requests.lane(session, None if turn is None else turn.turn) or "main"


def hurry(c: Commit, session: str) -> None:
    """Somebody waits for this session now: if it is queued behind others, it need not be any longer."""
    place = c.tx.queue.place(session)
    if place is not None:
        run = c.find(session)
        enqueue(c, session, session if run is None else run.terms.parent, place.due_at)


def close_turn(c: Commit, session: str, end: TurnEnd, owes: Owes = "nothing") -> None:
    """Close the session's turn, saying how it ended. What was read and not answered by now will not be answered, except
    what is still owed."""
    for exchange in unanswered(c, session, owes):
        drop(c, exchange, f"{session} read your message and gave no answer to it (its turn: {end.told})")
    c.tx.turns.close(session, end, c.at, owes)


def unanswered(c: Commit, session: str, owes: Owes) -> list[Exchange]:
    """Exchanges whose message was read and not answered, apart from what is still owed once this turn is over."""
    found = [] if owes == "all" else c.tx.exchanges.answering(session)
    turn = c.tx.turns.get(session)
    if not found or owes == "nothing":
        return found
    read = () if turn is None else rows_read(transcripts.of_turn(c.tx, turn))
    return [exchange for exchange in found if exchange.row in read]


def owed(c: Commit, session: str) -> Owes:
    """What is still to be answered once the open turn of a conversation is over, unless it yields: while the
    conversation waits for its children, what it had read before."""
    return "nothing" if c.tx.turns.wait(session) is None else "earlier"


def drop_row(c: Commit, row: str, why: str) -> bool:
    """A message will never be read; True if a sender who waits for its answer hears of that."""
    exchange = c.tx.exchanges.about(row)
    if exchange is None or exchange.speaker is None:
        return False
    drop(c, exchange, why)
    return exchange.reply is None and exchange.until_at is not None and exchange.until_at > c.at


def drop_begun(c: Commit, session: str, why: str) -> None:
    """What this session began with others is over: it was stopped."""
    for exchange in c.tx.exchanges.begun(session):
        drop(c, exchange, why)


def drop(c: Commit, exchange: Exchange, why: str) -> None:
    """Nothing more will come of an exchange."""
    c.tx.exchanges.save(dropped(exchange, why), c.at)
    c.hints.moved.append(exchange.target)
