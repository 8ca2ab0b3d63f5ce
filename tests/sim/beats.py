"""What must hold of heartbeats at every commit: none is early, none is late, missed ones are one, none is dropped, and
what nobody needed to hear is forgotten.
"""

from collections.abc import Mapping

from fledge.core.freeze import HEARTBEAT_OK
from fledge.core.heartbeat import PROMPT
from fledge.core.run import Instant
from fledge.models.base import AssistantMessage, Request, UserMessage
from fledge.store.base import HeartbeatRow, Tx
from tests.sim.schedule import Schedule

CLOSE_S = 1e-3
"""How far a beat may be from a whole number of periods: times are floats."""


def unsound(tx: Tx, plan: Schedule, beats: Mapping[str, tuple[HeartbeatRow, HeartbeatRow]], now: Instant) -> list[str]:
    """What is wrong with what a commit did to the wishes of conversations."""
    wrong: list[str] = []
    for session, (before, after) in beats.items():
        wrong += [f"heartbeat of {session}: {what}" for what in _moved(tx, plan, before, after, now)]
    return wrong


def _moved(tx: Tx, plan: Schedule, before: HeartbeatRow, after: HeartbeatRow, now: Instant) -> list[str]:
    wrong: list[str] = []
    every_s = plan.rules.heartbeat.every_s
    if before.beat_at is not None and after.beat_at is not None and after.beat_at != before.beat_at:
        periods = (after.beat_at - before.beat_at) / every_s
        if before.beat_at > now:
            wrong.append(f"it beats {before.beat_at - now:.3f} s early")
        if not now < after.beat_at <= now + every_s + CLOSE_S or abs(periods - round(periods)) * every_s > CLOSE_S:
            wrong.append(f"after the beat at {before.beat_at} the next is at {after.beat_at}, now it is {now}")
        if not after.cause and not _is_taken_up(tx, after.session):
            wrong.append("its time came, and nothing came of it")
    if before.cause and not after.cause and not _may_go(tx, before, after):
        wrong.append(f"{before.cause} was wanted, and is dropped")
    if after.cause and after.due_at is None and not after.held and not _is_taken_up(tx, after.session):
        wrong.append(f"{after.cause} is wanted, and nobody will look")
    return wrong


def _is_taken_up(tx: Tx, session: str) -> bool:
    """A turn of the conversation is open, or comes."""
    return (
        tx.turns.get(session) is not None or tx.queue.place(session) is not None or tx.drivers.get(session) is not None
    )


def _may_go(tx: Tx, before: HeartbeatRow, after: HeartbeatRow) -> bool:
    """A turn that is open takes it in; what was wanted of it was read meanwhile; or it is switched off."""
    if tx.turns.get(after.session) is not None:
        return True
    return before.cause == "default" or (before.cause == "interval" and after.beat_at is None)


def remembered(request: Request) -> list[str]:
    """What a model is shown of heartbeats that nobody needed to hear of."""
    pairs = zip(request.messages, request.messages[1:], strict=False)
    silent = [
        reply.text
        for said, reply in pairs
        if said == UserMessage(PROMPT) and isinstance(reply, AssistantMessage) and not reply.calls
    ]
    return [f"it is shown a silent heartbeat: {text}" for text in silent if text == HEARTBEAT_OK]
