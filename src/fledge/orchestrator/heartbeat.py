"""Heartbeats: turns of a conversation without a message. When one is wanted, when it becomes a turn, what its reply
hides.

Notices and fire-and-forget completions wake an idle conversation this way; so does a request, and the clock where
`heartbeat.every` is set. A wake is a row with a due time, so after a crash it is simply found due. The rules are in
`core.heartbeat`; this file knows the time of day.
"""

import time
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from fledge.core import heartbeat as rules
from fledge.core.heartbeat import Cause, Wake
from fledge.core.keys import agent_of, main_key
from fledge.core.run import Instant
from fledge.core.transcript import Noted, Replied, Spoken
from fledge.core.turn import Driven, Due, Looked, OpenTurn
from fledge.orchestrator import inbox, transcripts
from fledge.orchestrator.commit import Commit
from fledge.store.base import HeartbeatRow, InboxRow


def request(c: Commit, session: str, reason: str, cause: Cause = "action") -> str | None:
    """Request a heartbeat of the conversation, and answer its key; requests within a quarter of a second are one.

    A live run has no heartbeats: the nearest conversation above it has this one. None: there is no such conversation.
    """
    key = _conversation(c, session)
    if key is None:
        return None
    known = c.tx.heartbeats.get(key) or HeartbeatRow(key)
    wake = rules.request_wake(_pending(known), cause, reason, c.at)
    held = known.held if known.due_at is not None else ""
    c.tx.heartbeats.save(replace(known, cause=wake.cause, reason=wake.reason, due_at=wake.due_at, held=held))
    c.hints.look = True
    return key


def _conversation(c: Commit, session: str) -> str | None:
    lineage = [
        above for above in c.tx.sessions.lineage(session) if inbox.inbox_of(c, above.key) is inbox.ConversationInbox
    ]
    found = lineage[0] if lineage else None
    return None if found is None or found.deleted or found.kind == "program" else found.key


def _pending(known: HeartbeatRow) -> Wake | None:
    return None if not known.cause or known.due_at is None else Wake(known.cause, known.reason, known.due_at)


# ---- time ------------------------------------------------------------------------------------------------------------


def schedule(c: Commit) -> None:
    """Let every main conversation beat as often as the settings say from now on; one that was missed is due at once.
    Of those of one agent, only one has the heartbeat when it is due."""
    for session, _ in c.tx.lists.recent_sessions(limit=1_000_000):
        if session.is_main:
            keep_beat(c, session.key)


def keep_beat(c: Commit, session: str) -> None:
    """Set the time of the next periodic heartbeat of one conversation, from the settings."""
    every_s = c.rules.heartbeat.every_s
    known = c.tx.heartbeats.get(session) or HeartbeatRow(session)
    if every_s <= 0:
        beat_at = None
    elif known.beat_at is None:
        beat_at = c.at + every_s
    else:
        beat_at = min(known.beat_at, c.at + every_s)
    if beat_at != known.beat_at:
        c.tx.heartbeats.save(replace(known, beat_at=beat_at))
        c.hints.look = True


def come_due(c: Commit, session: str) -> bool:
    """Begin, postpone or drop a heartbeat whose time has come; False if none was due any more."""
    known = c.tx.heartbeats.get(session)
    if known is None:
        return False
    if known.beat_at is not None and known.beat_at <= c.at:
        known = _beaten(c, known, known.beat_at)
    wake = _pending(known)
    if wake is None or wake.due_at > c.at:
        return _saved(c, known)
    turn = c.tx.turns.state(session)
    if turn is None:
        # It takes no turns now, because its run was resumed or it was deleted: its next turn is the heartbeat's.
        return _saved(c, replace(known, due_at=None, held=""))
    busy = isinstance(turn.at, Driven) or turn.wait is not None
    if not busy and turn.open is not None:
        # Another turn is open: it reads the waiting rows, and wishes for a heartbeat if it leaves some.
        return _saved(c, _over(known))
    if not busy and isinstance(turn.at, Due):
        # A turn comes anyway. If it finds nothing else to read, it is this one's.
        return _saved(c, replace(known, due_at=None, held=""))
    minute, second = time_of_day(c.at, c.rules.heartbeat.zone)
    unread = sum(inbox.is_quiet(c, row) for row in c.tx.inbox.unread(session, inbox.WINDOW))
    standing: Literal["idle", "busy", "waiting"] = "waiting" if turn.wait is not None else "busy" if busy else "idle"
    verdict = rules.verdict(wake.cause, c.rules.heartbeat, minute, second, standing, unread)
    match verdict.skip:
        case None:
            c.then(session, Looked())
            return _saved(c, replace(known, due_at=None, held=""))
        case "busy" | "quiet-hours" as held:
            due_at = None if verdict.again_s is None else c.at + verdict.again_s
            return _saved(c, replace(known, due_at=due_at, held=held))
        case _:
            return _saved(c, _over(known))


def is_wanted(c: Commit, session: str) -> bool:
    """True if a heartbeat wants its turn now."""
    known = c.tx.heartbeats.get(session)
    return known is not None and known.cause != "" and known.due_at is None and not known.held


def _beaten(c: Commit, known: HeartbeatRow, beat_at: Instant) -> HeartbeatRow:
    """The periodic heartbeat is wanted now, if it is this conversation's, and the next a whole number of periods later:
    missed ones are one."""
    every_s = c.rules.heartbeat.every_s
    known = replace(known, beat_at=rules.next_periodic_at(every_s, beat_at, c.at))
    if _pending(known) is not None or every_s <= 0 or not _has_periodic(c, known.session):
        return known
    return replace(known, cause="interval", reason="heartbeat.every", due_at=c.at, held="")


def _has_periodic(c: Commit, session: str) -> bool:
    agent_id = agent_of(session)
    mains = [one.key for one, _ in c.tx.lists.recent_sessions(agent_id, 1_000_000) if one.is_main]
    return rules.has_periodic(session, main_key(agent_id), {key: c.tx.transcripts.last_spoken_at(key) for key in mains})


def _over(known: HeartbeatRow) -> HeartbeatRow:
    return replace(known, cause="", reason="", due_at=None, held="")


def _saved(c: Commit, known: HeartbeatRow) -> Literal[True]:
    c.tx.heartbeats.save(known)
    return True


def is_open(c: Commit) -> bool:
    """True inside `heartbeat.activeHours`."""
    settings = c.rules.heartbeat
    return settings.hours is None or rules.is_open(settings.hours, time_of_day(c.at, settings.zone)[0])


def time_of_day(at: Instant, zone: str) -> tuple[int, float]:
    """The minute of the day in that zone, and the seconds of that minute."""
    if zone == "local":
        now = time.localtime(at)
        return now.tm_hour * 60 + now.tm_min, now.tm_sec + at % 1
    from datetime import datetime  # read only where a zone is named
    from zoneinfo import ZoneInfo

    there = datetime.fromtimestamp(at, ZoneInfo(zone))
    return there.hour * 60 + there.minute, there.second + there.microsecond / 1e6


# ---- turns -----------------------------------------------------------------------------------------------------------


def begin(c: Commit, session: str, rows: Sequence[InboxRow]) -> Cause | Literal[""]:
    """A turn of a conversation opens with these rows: it is a heartbeat's if no row is a message or an awaited
    completion, and then begins with the heartbeat prompt.

    Answers the cause, or nothing. The turn fulfils the wish for a heartbeat; without rows, and while the heartbeat must
    wait, there is no turn and the wish stays.
    """
    known = c.tx.heartbeats.get(session) or HeartbeatRow(session)
    wanted: Cause | Literal[""] = "" if known.held else known.cause
    if not (rows or wanted):
        return ""
    if known.cause:
        known = _over(known)
        _saved(c, known)
    if any(not inbox.is_quiet(c, row) for row in rows):
        return ""
    if known.beat_at is not None and known.beat_at <= c.at:
        # The periodic one is due as well, after a restart perhaps for the second time: this is it.
        _saved(c, replace(known, beat_at=rules.next_periodic_at(c.rules.heartbeat.every_s, known.beat_at, c.at)))
    cause: Cause = "default" if rows and wanted != "action" else wanted or "default"
    turn = c.tx.turns.get(session)
    if turn is not None:
        c.tx.turns.save(replace(turn, heartbeat=cause))
    transcripts.write(c, session, Spoken(rules.opening(c.rules.heartbeat), kind="heartbeat"))
    return cause


def spoken(c: Commit, session: str, text: str) -> str:
    """The part of a reply that is sent: of a heartbeat's turn, the text without `HEARTBEAT_OK`, unless it is
    silence."""
    turn = c.tx.turns.get(session)
    return text if turn is None or not turn.heartbeat else rules.spoken(text, c.rules.heartbeat.ack_chars)


def answered(c: Commit, turn: OpenTurn, text: str) -> bool:
    """A heartbeat's turn was answered; True if the reply is not sent: it is silence, or repeats the last one word for
    word.

    Silence is hidden from later requests to the model, unless the turn used tools.
    """
    if not turn.heartbeat:
        return False
    if rules.is_silence(text, c.rules.heartbeat.ack_chars):
        hide(c, turn.session)
        return True
    known = c.tx.heartbeats.get(turn.session) or HeartbeatRow(turn.session)
    if rules.is_repeat(text, known.said, known.said_at, c.at):
        return True
    return not _saved(c, replace(known, said=text, said_at=c.at))


def hide(c: Commit, session: str) -> None:
    """Let the model see nothing more of the turn that is ending, unless it used tools."""
    for line in reversed(transcripts.lines(c.tx, session)):
        match line.body:
            case Replied(calls=calls) if calls:
                return
            case Spoken(kind="heartbeat"):
                transcripts.write(c, session, Noted("a heartbeat: nothing needed attention", hides_from=line.seq))
                return
            case _:
                continue
