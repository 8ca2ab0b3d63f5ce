"""Imports runs of another system as settled history. Nothing of it is resumed or announced.

Each run is one commit; one that is there already is left as it is, so importing twice is importing once.
"""

from collections.abc import Iterable

from fledge.core import events as ev
from fledge.core.freeze import freeze
from fledge.core.keys import parse_key
from fledge.core.run import Ended, Failed, Terms
from fledge.core.transcript import OpenCall, Replied
from fledge.openclaw import PastLine, PastResult, PastRun, conversation_key
from fledge.orchestrator import effects, transcripts
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.spawn import open_conversation
from fledge.store.base import SessionFacts, Spec

NOT_FINISHED = "it was not finished"


def import_run(c: Commit, past: PastRun, lines: Iterable[PastLine]) -> bool:
    """Write a run with its transcript; False if it is there already."""
    if c.find(past.key) is not None or c.tx.sessions.get(past.key) is not None:
        return False
    parent = conversation_key(past.requester)
    if c.tx.sessions.get(parent) is None:
        # Its requester was itself a child that is not there any more, or never was.
        parent = parent if parse_key(parent).kind in ("main", "named") else conversation_key("")
        open_conversation(c, parent)
    above = c.tx.sessions.get(parent)
    assert above is not None
    agent_id, depth = parse_key(past.key).agent_id, above.depth + 1
    c.tx.sessions.open(past.key, "subagent", parent, depth, SessionFacts(agent_id, past.label, "leaf"), past.created_at)
    terms = Terms(parent=parent, depth=depth, cleanup=past.cleanup)
    spec = Spec(past.task, past.label, agent_id, past.model, created_at=past.created_at)
    c.admit(ev.Admitted(at=past.created_at, key=past.key, terms=terms, run_id=past.run_id), spec)
    effects.unsettle_above(c, parent)
    last = write_transcript(c, past.key, lines)
    result = "" if isinstance(past.outcome, Failed) else past.result or last
    text = c.tx.texts.keep(past.key, freeze(result, "")) if result else None
    ended = Ended(past.outcome, past.started_at, past.ended_at, text)
    effects.apply(c, past.key, ev.Imported(at=c.at, ended=ended))
    return True


def import_conversation(c: Commit, requester: str, lines: Iterable[PastLine]) -> bool:
    """Write a conversation's transcript under a name of its own; False if something stands there already."""
    key = conversation_key(requester)
    open_conversation(c, key)
    if c.tx.transcripts.entries(key, limit=1):
        return False
    write_transcript(c, key, lines)
    return True


def write_transcript(c: Commit, session: str, lines: Iterable[PastLine]) -> str:
    """Append the messages; every call gets a result, so that nothing of it can ever be run. Answers the last words."""
    open_ones: dict[str, OpenCall] = {}
    last = ""
    for line in lines:
        if isinstance(line, PastResult):
            call = open_ones.pop(line.answers, None)
            if call is not None:
                transcripts.write(c, session, transcripts.result_of(call, line.text, line.is_error))
            continue
        _close(c, session, open_ones)
        seq = transcripts.write(c, session, line)
        if isinstance(line, Replied):
            open_ones = {call.id or str(at): OpenCall(seq, at, call) for at, call in enumerate(line.calls)}
            last = line.text or last
    _close(c, session, open_ones)
    return last


def _close(c: Commit, session: str, open_ones: dict[str, OpenCall]) -> None:
    results = [transcripts.result_of(call, NOT_FINISHED, is_error=True) for call in open_ones.values()]
    if results:
        transcripts.write(c, session, *results)
    open_ones.clear()
