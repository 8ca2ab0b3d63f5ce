"""Hop 1, into the inbox: whom a child's end is told to, what else is put there, and what becomes of an inbox whose
session ends.

A completion is one row from the commit that fixed the outcome on; it is put into an inbox, perhaps moved to another,
and consumed once (`drain`). What is said outside goes through `outbox`.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import inbox
from fledge.core.announce import Completion, announce_key
from fledge.core.freeze import Stats
from fledge.core.goods import Goods
from fledge.core.heartbeat import MAX_NOTICES, is_worth_noticing
from fledge.core.prompts import Named
from fledge.core.route import INTERNAL, Address, Found, answer_to, is_same_place, origin_of
from fledge.core.run import Killed, Ok, Path, Run, Running, TextId
from fledge.core.schema import fit
from fledge.core.transcript import NOTHING_CARRIED, Carried, carried_body
from fledge.core.turn import Arrived, AskingPerson, Driven, Due, Looked, RowsLeft, TurnEnd
from fledge.errors import Refused
from fledge.orchestrator import drain, exchanges, hook_calls, outbox, transcripts
from fledge.orchestrator.commit import Commit
from fledge.store.base import Row, RowKind

_encode = msgspec.json.Encoder().encode

CONTROL = ("task", "steer", "wake", "approval", "notice")
"""Messages that are void once the run they belong to has ended."""


class Told(Struct, frozen=True, gc=False):
    """Who is to be told: a session, nobody, or nobody because a kill lies on the way."""

    session: str | None
    suppressed: bool = False


def told(c: Commit, parent: str) -> Told:
    """The nearest of parent and its ancestors that is still there.

    A run-mode requester counts as gone from the commit that fixes its outcome; a killed one silences what is below it.
    """
    for session in c.tx.sessions.lineage(parent):
        run = c.find(session.key)
        if run is not None and run.ended is not None and run.terms.mode == "run":
            if isinstance(run.ended.outcome, Killed):
                return Told(None, suppressed=True)
        elif not session.deleted:
            return Told(session.key)
    return Told(None)


def silent_children(c: Commit, session: str) -> list[Named]:
    """Children that ended without anything to tell; each is named to its parent once."""
    return named(c, c.tx.runs.name_silent(session))


def named(c: Commit, runs: Iterable[str]) -> list[Named]:
    """Runs by what they are called; one that is forgotten has its key alone."""
    return [Named(run, "" if c.find(run) is None else c.tx.runs.spec(run).label) for run in runs]


# ---- writing rows ----------------------------------------------------------------------------------------------------


def announce(c: Commit, run: Run, kind: ev.RowKind, text: TextId | None) -> None:
    """Write the completion row and let whoever is to be told know."""
    key = announce_key(run.key, run.run_id, kind)
    target = told(c, run.terms.parent)
    completion = _completion(c, run, kind, text)
    body = _encode(completion).decode()
    thread = _tell_thread(c, completion, text) if kind == "outcome" else None
    origin, route = _aim(c, run, target.session, thread)
    path = _path(c, target.session, run.terms.expects, origin)
    # While somebody is asked where its answer should go, it is in nobody's inbox; `aimed` puts it there.
    asked = kind == "outcome" and route == "fallback" and _ask(c, run, target.session, origin)
    place = None if asked else target.session
    if not c.tx.inbox.put(key, place, kind, run.key, body, c.at, text=text, path=path, origin=origin, route=route):
        c.tx.inbox.rewrite(key, body, text)
        return
    if asked:
        return
    if target.suppressed:
        c.tx.inbox.suppress(key, c.at)
        if kind == "outcome":
            c.then(run.key, ev.RowSuppressed(at=c.at))
    else:
        _arrived(c, key, kind, run.key, target.session, origin)


def _tell_thread(c: Commit, completion: Completion, text: TextId | None) -> Address | None:
    """Say a child's last words, or how it came out, in the thread that it is bound to; answers the thread."""
    route = c.tx.routes.get(completion.child_session_key)
    if route is None or route.kind != "bound":
        return None
    outbox.final(c, route.address, replace(completion, result="" if text is None else c.tx.texts.get(text)))
    return route.address


def _aim(c: Commit, run: Run, session: str | None, thread: Address | None) -> tuple[str, Found]:
    """Where the answer to this run's completion should go: to where its requester belongs, else whence it was asked;
    nowhere if the child's own thread is the same place, which has heard it."""
    if session is None or drain.is_attempt(c, session):
        return "", "fallback"
    route = c.tx.routes.get(session)
    if route is not None and route.kind == "bound":
        return origin_of(route.address), "bound"
    origin = c.tx.runs.spec(run.key).origin if session == run.terms.parent else ""
    heard = is_same_place(thread, answer_to(origin, None if route is None else route.address))
    return (INTERNAL if heard else origin), "fallback"


def _ask(c: Commit, run: Run, session: str | None, origin: str) -> bool:
    """Ask whoever listens where the answer should go: only of a completion that a conversation is to tell."""
    if session is None or not run.terms.expects or is_program(c, session) or drain.is_attempt(c, session):
        return False
    return hook_calls.ask_target(c, run, session, origin)


def is_aiming(c: Commit, key: str) -> bool:
    """True while a completion of this run is in nobody's inbox, because a hook is asked where its answer should go."""
    return any(row.session is None and row.state == "unread" for row in c.tx.inbox.of_run(key))


def aimed(c: Commit, key: str, address: Address | None) -> None:
    """Somebody who was asked where a run's answer should go has said so, or nothing.

    The first address counts. Without one the answer goes where it would have gone, once everybody has had their say.
    """
    run = c.find(key)
    if run is None or (address is None and hook_calls.is_asked(c, key)):
        return
    for row in c.tx.inbox.of_run(key):
        if row.kind == "outcome" and row.state == "unread" and row.session is None:
            if address is not None:
                c.tx.inbox.aim(row.key, origin_of(address), "hook")
                row = replace(row, origin=origin_of(address), route="hook")
            target = told(c, run.terms.parent)
            readdress_row(c, row, target, _path(c, target.session, run.terms.expects, row.origin))


def _arrived(c: Commit, key: str, kind: RowKind, source: str, session: str | None, origin: str) -> None:
    if session is not None:
        if c.rules.deliver == "send" and drain.post(c, key, session):
            c.then(session, Looked())  # it may be what the session waits for
            return
        arrived(c, session, drain.mode_of(c, session, "completion", origin), quiet=not drain.is_awaited(c, source))
        if kind == "outcome" and is_program(c, session) and not c.run(source).terms.program:
            c.then(source, ev.HandedToProgram(at=c.at))
    elif kind == "outcome":
        c.then(source, ev.RequesterLost(at=c.at))
    else:
        c.tx.inbox.give_up(key, c.at)


def is_program(c: Commit, session: str | None) -> bool:
    """True of a program's inbox: what is in it is read through handles."""
    known = None if session is None else c.tx.sessions.get(session)
    return known is not None and known.kind == "program"


def _completion(c: Commit, run: Run, kind: ev.RowKind, text: TextId | None) -> Completion:
    spec = c.tx.runs.spec(run.key)
    ended = run.ended
    used = c.tx.transcripts.used(run.key)
    runtime_s = None if ended is None else ended.elapsed_s
    outcome = Ok() if ended is None or kind == "late" else ended.outcome
    answers = kind in ("outcome", "late") and isinstance(outcome, Ok) and spec.output_schema is not None
    words = "" if text is None or not answers else c.tx.texts.get(text)
    return Completion(
        kind=kind,
        child_session_key=run.key,
        run_id=run.run_id,
        outcome=outcome,
        label=spec.label,
        task=spec.task[:2000],
        stats=Stats(runtime_s, used.tokens_in, used.tokens_out, used.cost_usd, used.tokens_cached),
        goods=(c.tx.sessions.goods(run.key) if kind in ("outcome", "late") else None) or Goods(),
        plan=run.plan,
        schema_error=fit(spec.output_schema or {}, words).error if answers else None,
    )


def refresh(c: Commit, run: Run, text: TextId | None) -> None:
    """Let the unread outcome row say something else."""
    for row in c.tx.inbox.of_run(run.key):
        if row.kind == "outcome" and row.state == "unread":
            c.tx.inbox.rewrite(row.key, _encode(_completion(c, run, "outcome", text)).decode(), text)


def readdress(c: Commit, run: Run, to: str | None = None) -> None:
    """Put the unread outcome row where somebody is, or into the inbox of `to`; without anybody the run says so."""
    target = told(c, run.terms.parent) if to is None else Told(to)
    for row in c.tx.inbox.of_run(run.key):
        if row.kind == "outcome" and row.state == "unread":
            readdress_row(c, row, target, _path(c, target.session, run.terms.expects, row.origin))


def open_rows(c: Commit, run: str, kind: ev.RowKind) -> list[str]:
    """Keys of the run's rows of this kind that are unread or undelivered."""
    return [row.key for row in c.tx.inbox.of_run(run) if row.kind == kind]


def notice(c: Commit, session: str, key: str, words: str) -> bool:
    """Tell a session something the system noticed, once per key and not twice in a row; False if it is not told. One
    that is gone needs no telling, a program looks."""
    known = c.tx.sessions.get(session)
    if known is None or known.deleted or known.kind == "program":
        return False
    last = c.tx.inbox.newest_unread(session, "notice")
    if not is_worth_noticing(words, last[0].body if last else None):
        return False
    if not put_message(c, session, key, "notice", None, words):
        return False
    wake(c, session, quiet=True)
    return True


def put_message(
    c: Commit,
    session: str,
    key: str,
    kind: Literal["send", "notice"],
    source: str | None,
    words: str,
    origin: str = "",
    carried: Carried = NOTHING_CARRIED,
) -> bool:
    """Put a message into an inbox; what is too much gives way as `messages.queue.drop` says. False if it was there.

    Refused, under `new`, while `messages.queue.cap` of them wait.
    """
    if not c.tx.inbox.put(key, session, kind, source, words, c.at, origin=origin, carried=carried_body(carried)):
        return False
    transcripts.hold_files(c, session, carried)
    queue = c.rules.queue
    cap = min(queue.cap, MAX_NOTICES) if kind == "notice" else queue.cap
    if c.tx.inbox.count_waiting(session, kind, origin) > cap:
        waiting = [drain.item(row) for row in c.tx.inbox.unread(session) if row.kind == kind and row.origin == origin]
        kept = inbox.overflow(waiting, cap, queue.drop)
        if kept.refused:
            raise Refused("rate_limited", f"{queue.cap} messages wait for {session} already: messages.queue.cap")
        for item in kept.dropped:
            c.tx.inbox.drop(item.key, None if queue.drop == "summarize" else c.at)
            exchanges.drop_row(c, item.key, f"it gave way to newer messages to {session}: messages.queue.cap")
            c.tx.commissions.end(item.key, TurnEnd("dropped"), c.at)
            c.hints.moved.append(session)
    return True


# ---- inboxes of sessions that end ------------------------------------------------------------------------------------


def hand_over(c: Commit, key: str) -> None:
    """The session reads no more: its completions go to its own requester, its orders are void, sends stay."""
    rows = c.tx.inbox.unread(key)
    completions = [row for row in rows if row.announces]
    target = told(c, key) if completions else Told(None)
    for row in completions:
        readdress_row(c, row, target, "queued")
    for row in rows:
        if row.kind in CONTROL:
            c.tx.inbox.void(row.key, c.at)
    if any(not row.announces and row.kind not in CONTROL for row in rows):
        c.then(key, RowsLeft())


def readdress_row(c: Commit, row: Row, target: Told, path: Path) -> None:
    """Same row, same key, another inbox: somebody's, nobody's, or none because a kill lies on the way."""
    if target.suppressed:
        _suppress_row(c, row)
        return
    c.tx.inbox.readdress(row.key, target.session, path)
    _arrived(c, row.key, row.kind, row.source or "", target.session, row.origin)


def _suppress_row(c: Commit, row: Row) -> None:
    c.tx.inbox.suppress(row.key, c.at)
    if row.kind == "outcome" and row.source is not None:
        c.then(row.source, ev.RowSuppressed(at=c.at))


def read_on(c: Commit, key: str) -> None:
    """The session outlives its run: orders to the run are void, everything else gets a turn."""
    rows = c.tx.inbox.unread(key)
    for row in rows:
        if row.kind in CONTROL:
            c.tx.inbox.void(row.key, c.at)
    c.then(key, RowsLeft())


def suppress(c: Commit, run: Run) -> None:
    """A kill silences the run's inbox: nothing in it is read, and those who sent something are told."""
    for row in c.tx.inbox.unread(run.key):
        if row.announces:
            _suppress_row(c, row)
        else:
            c.tx.inbox.void(row.key, c.at)
            words = f"{run.key} was killed before it read your message"
            if not exchanges.drop_row(c, row.key, words) and row.kind == "send" and row.source is not None:
                notice(c, row.source, f"void:{row.key}", words)


# ---- waking and reading ----------------------------------------------------------------------------------------------


def _path(c: Commit, session: str | None, expects: bool, origin: str) -> Path:
    """How a row will reach this session, from how the session stands now."""
    if session is None:
        return "queued"
    run, turn = c.find(session), c.tx.turns.state(session)
    state: inbox.RequesterState = "idle"
    if turn.wait is not None or (run is not None and run.phase.name == "waiting"):
        state = "waiting"
    elif isinstance(turn.at, Driven | AskingPerson) or (isinstance(turn.at, Due) and turn.at.from_at is not None):
        state = "busy"
    return inbox.arbitrate(state, drain.mode_of(c, session, "completion", origin), expects).path or "queued"


def arrived(c: Commit, session: str, mode: inbox.QueueMode, quiet: bool = False) -> None:
    """A completion or a message with this queue mode has arrived: it calls off the step of a busy session, if its mode
    says so, and is read at once; else it waits, and the session is woken."""
    if mode != "interrupt" or not interrupt(c, session):
        wake(c, session, quiet)


def interrupt(c: Commit, session: str) -> bool:
    """Call off the step under way: its open calls are closed, what waits enters, the same turn and attempt go on.

    False, and nothing changes, if no driver is at work (a turn that waits for a person, or for its next try, has no
    step), for a foreign runtime, whose work is one whole, and if nothing that waits may join this turn.
    """
    driver, run = c.tx.drivers.get(session), c.find(session)
    if driver is None or driver.release_at is not None or c.tx.turns.get(session) is None:
        return False
    if run is not None and (not run.terms.wakeable or (run.ended is None and not isinstance(run.phase, Running))):
        return False
    if not drain.would_join(c, session):
        return False
    transcripts.close_calls(c, session, "interrupted")
    for child in c.tx.runs.children_in(session, "spawning"):
        c.then(child, ev.Withdrawn(at=c.at, reason="interrupted"))
    c.tx.drivers.interrupt(session)
    drain.take(c, session, at_boundary=True)
    c.hints.interrupted.append((session, driver.epoch, driver.interrupts + 1))
    return True


def wake(c: Commit, session: str, quiet: bool = False) -> None:
    """A row has arrived in the inbox of a session that takes turns: it has one when it should. For what is quiet, which
    nobody waits for, that is a heartbeat's. A live run reads at its own boundaries, a program through its handles."""
    c.then(session, Arrived(quiet, hurries=bool(c.tx.inbox.newest_unread(session, "send"))))
