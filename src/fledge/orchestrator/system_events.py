"""System events and heartbeats that somebody outside asks for: a program, the gateway, a command.

An event is a notice in a session's inbox: an idle conversation reads it in a heartbeat turn, a busy one at its next
step. How many wait, and what becomes of duplicates, is the inbox's rule (`deliver.notice`); when a heartbeat becomes a
turn is decided in `heartbeat`.
"""

from typing import Final

from fledge.core.freeze import one_line, sound
from fledge.core.keys import parse_key
from fledge.errors import BadInput, NotFound, Refused
from fledge.orchestrator import deliver, heartbeat, spawn
from fledge.orchestrator.commit import Commit

EVENT_CHARS: Final = 4000
REASON_CHARS: Final = 200
HEAD: Final = "[System event]"


def post(c: Commit, session: str, text: str) -> bool:
    """Post an event to a session; False if the last one that waits there says the same. A main conversation begins
    with it if it has to. Refused: no text, too long a text, a session that is not there, and a program's."""
    words = sound(text).strip()
    if not words:
        raise BadInput("text", "must not be empty")
    if len(words) > EVENT_CHARS:
        raise BadInput("text", f"must be at most {EVENT_CHARS} characters", len(words))
    _open(c, session)
    return deliver.notice(c, session, f"event:{session}:{c.ids.unique()}", f"{HEAD} {words}")


def request_heartbeat(c: Commit, session: str, reason: str) -> str:
    """Ask for a heartbeat of a session; answers whose it is: of a run at work, the conversation's above it.

    Refused: a session that is not there, and one with no conversation above it.
    """
    _open(c, session)
    key = heartbeat.request(c, session, one_line(reason, REASON_CHARS) or "requested")
    if key is None:
        raise Refused("error", f"{session} belongs to a program: there is no conversation that could have a heartbeat")
    return key


def _open(c: Commit, session: str) -> None:
    known = c.tx.sessions.get(session)
    if known is not None and not known.deleted:
        if known.kind == "program":
            raise Refused("error", f"{session} is a program's: no model answers there")
    elif parse_key(session).kind == "main":
        spawn.open_conversation(c, session)
    else:
        raise NotFound(f"no session {session}")
