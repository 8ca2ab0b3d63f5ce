"""Hop 1: from a child's end into its requester's transcript.

A completion is one row from the commit that fixed the outcome on; it is put into an inbox, perhaps moved to another,
and consumed once, in the commit that appends it to a transcript. Nothing here tells anybody outside.
"""

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import inbox
from fledge.core.announce import Audience, Completion, DeliveryTrace, Tried, announce_key, collect
from fledge.core.freeze import Stats, partial
from fledge.core.run import Killed, Ok, Path, Run, TextId
from fledge.errors import NotFound
from fledge.orchestrator.commit import Commit
from fledge.store.base import EntryKind, Row, RowKind, RowState

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Completion).decode

CONTROL = ("task", "steer", "wake", "approval", "notice")
"""Messages that are void once the run they belong to has ended."""
FRAGMENT_ENTRIES = 200


class Told(Struct, frozen=True):
    """Who is to be told: a session, nobody, or nobody because a kill lies on the way."""

    session: str | None
    suppressed: bool = False


def told(c: Commit, parent: str) -> Told:
    """The nearest of parent and its ancestors that is still there.

    A run-mode requester counts as gone from the commit that fixes its outcome; a killed one silences what is below it.
    """
    for session in c.tx.lineage(parent):
        run = c.find(session.key)
        if run is not None and run.ended is not None and run.terms.mode == "run":
            if isinstance(run.ended.outcome, Killed):
                return Told(None, suppressed=True)
        elif not session.deleted:
            return Told(session.key)
    return Told(None)


# ---- writing rows ----------------------------------------------------------------------------------------------------


def announce(c: Commit, run: Run, kind: ev.RowKind, text: TextId | None) -> None:
    """Write the completion row and let whoever is to be told know."""
    key = announce_key(run.key, run.run_id, kind)
    target = told(c, run.terms.parent)
    path = _path(c, target.session, run.terms.expects)
    body = _encode(_completion(c, run, kind)).decode()
    if not c.tx.put_row(key, target.session, kind, run.key, body, c.at, text=text, path=path):
        c.tx.rewrite_row(key, body, text)
        return
    if target.suppressed:
        c.tx.close_row(key, "suppressed", c.at)
        if kind == "outcome":
            c.apply(run.key, ev.RowSuppressed(at=c.at))
    else:
        _arrived(c, key, kind, run.key, target.session)


def _arrived(c: Commit, key: str, kind: RowKind, source: str, session: str | None) -> None:
    if session is not None:
        wake(c, session)
    elif kind == "outcome":
        c.apply(source, ev.RequesterLost(at=c.at))
    else:
        c.tx.close_row(key, "undelivered", c.at)


def _completion(c: Commit, run: Run, kind: ev.RowKind) -> Completion:
    spec = c.tx.spec(run.key)
    ended = run.ended
    return Completion(
        kind=kind,
        child_session_key=run.key,
        run_id=run.run_id,
        outcome=Ok() if ended is None or kind == "late" else ended.outcome,
        label=spec.label,
        task=spec.task[:2000],
        stats=Stats(runtime_s=None if ended is None else ended.elapsed_s),
        plan=run.plan,
    )


def refresh(c: Commit, run: Run, text: TextId | None) -> None:
    """Let the unread outcome row say something else."""
    for row in c.tx.rows_of(run.key):
        if row.kind == "outcome" and row.state == "unread":
            c.tx.rewrite_row(row.key, _encode(_completion(c, run, "outcome")).decode(), text)


def readdress(c: Commit, run: Run) -> None:
    """Put the unread outcome row where somebody is; without anybody the run says so."""
    target = told(c, run.terms.parent)
    for row in c.tx.rows_of(run.key):
        if row.kind == "outcome" and row.state == "unread":
            c.tx.readdress_row(row.key, target.session, _path(c, target.session, run.terms.expects))
            _arrived(c, row.key, row.kind, run.key, target.session)


def close_rows(c: Commit, run: str, kind: ev.RowKind, state: RowState) -> None:
    """Suppress, give up, dismiss or reopen the open row of this kind."""
    for row in c.tx.rows_of(run):
        if row.kind == kind:
            c.tx.close_row(row.key, state, c.at)


def notice(c: Commit, session: str, key: str, words: str) -> None:
    """Tell a session something the system noticed, once per key; a session that is gone needs no telling."""
    known = c.tx.session(session)
    if known is None or known.deleted:
        return
    if c.tx.put_row(key, session, "notice", None, words, c.at):
        wake(c, session)


# ---- inboxes of sessions that end ------------------------------------------------------------------------------------


def hand_over(c: Commit, key: str) -> None:
    """The session reads no more: its completions go to its own requester, its orders are void, sends stay."""
    target: Told | None = None
    moved = 0
    sends = 0
    for row in c.tx.unread(key):
        if row.announces:
            target = target or told(c, key)
            c.tx.readdress_row(row.key, target.session, "queued")
            moved += 1
            if target.session is None:
                _arrived(c, row.key, row.kind, row.source or "", None)
        elif row.kind in CONTROL:
            c.tx.close_row(row.key, "void", c.at)
        else:
            sends += 1
    if moved and target is not None and target.session is not None:
        wake(c, target.session)
    if sends:
        wake(c, key)


def read_on(c: Commit, key: str) -> None:
    """The session outlives its run: orders to the run are void, everything else gets a turn."""
    rows = c.tx.unread(key)
    for row in rows:
        if row.kind in CONTROL:
            c.tx.close_row(row.key, "void", c.at)
    if any(row.kind not in CONTROL for row in rows):
        wake(c, key)


def suppress(c: Commit, run: Run) -> None:
    """A kill silences the run's inbox: nothing in it is read, and those who sent something are told."""
    for row in c.tx.unread(run.key):
        if row.announces:
            c.tx.close_row(row.key, "suppressed", c.at)
            if row.kind == "outcome" and row.source is not None:
                c.apply(row.source, ev.RowSuppressed(at=c.at))
        else:
            c.tx.close_row(row.key, "void", c.at)
            if row.kind == "send" and row.source is not None:
                notice(c, row.source, f"void:{row.key}", f"{run.key} was killed before it read your message")


# ---- waking and reading ----------------------------------------------------------------------------------------------


def _is_busy(c: Commit, session: str) -> bool:
    driver = c.tx.driver(session)
    return driver is not None and (driver.release_at is None or driver.release_at > c.at)


def _path(c: Commit, session: str | None, expects: bool) -> Path:
    """How a row will reach this session, from how the session stands now."""
    if session is None:
        return "queued"
    run = c.find(session)
    state: inbox.RequesterState = "idle"
    if run is not None and run.phase.name == "waiting":
        state = "waiting"
    elif _is_busy(c, session):
        state = "busy"
    return inbox.arbitrate(state, c.rules.queue.mode, expects).path or "queued"


def wake(c: Commit, session: str) -> None:
    """A row has arrived: an idle conversation gets a turn now, a busy one when its queue mode says so.

    A run that is still alive reads at its own boundaries, a program through its handles; neither needs waking here.
    """
    known = c.tx.session(session)
    run = c.find(session)
    if known is None or known.deleted or known.kind == "program" or (run is not None and run.ended is None):
        return
    place = c.tx.queued(session)
    due_at = None
    if _is_busy(c, session) or (place is not None and place.due_at is not None):
        first, last = c.tx.unread(session, 1), c.tx.newest_unread(session)
        due_at = inbox.drain_at([_item(row) for row in (*first, *last)], c.rules.queue, c.at)
    lane = "main" if run is None else run.terms.lane
    c.tx.enqueue(session, lane, session, False, due_at)
    c.hints.look = True


def _item(row: Row) -> inbox.Item:
    match row.kind:
        case "outcome" | "plan" | "expired" | "late":
            return inbox.Item(row.key, "completion", row.arrived_at, row.origin)
        case kind:
            return inbox.Item(row.key, kind, row.arrived_at, row.origin)


def take(c: Commit, session: str, at_boundary: bool) -> int:
    """Consume what may enter the session now, at the start of a turn or at a step boundary; answers how many rows."""
    rows = {row.key: row for row in c.tx.unread(session, 4 * inbox.ROWS_A_COMMIT)}
    items = [_item(row) for row in rows.values()]
    taken = [rows[item.key] for item in inbox.take(items, c.rules.queue.mode, at_boundary)]
    consume(c, session, taken, at_boundary)
    return len(taken)


def take_completions(c: Commit, session: str) -> int:
    """Consume the completions that are unread, whatever the queue mode says: a final text has to wait for them."""
    rows = [row for row in c.tx.unread(session) if row.announces][: inbox.ROWS_A_COMMIT]
    consume(c, session, rows, at_boundary=True)
    return len(rows)


def consume(c: Commit, session: str, rows: list[Row], at_boundary: bool) -> None:
    """Rows to transcript, each once, with what that means for the runs they announce."""
    if not rows:
        return
    completions = [row for row in rows if row.announces]
    entries: list[tuple[EntryKind, str]] = []
    if completions:
        entries.append(("event", _collected(c, session, completions)))
    for row in rows:
        if not row.announces:
            said = {"text": row.body, "row": row.key, "kind": row.kind, "from": row.source or ""}
            entries.append(("user", _encode(said).decode()))
    c.tx.append(session, c.at, entries)
    c.tx.drained(session, len(rows))
    for row in rows:
        if not c.tx.close_row(row.key, "consumed", c.at):
            raise NotFound(f"row {row.key} was already taken")
        kind = row.announces
        if kind is not None and row.source is not None:
            path: Path = "steered" if at_boundary else row.path if row.path != "steered" else "queued"
            _traced(c, session, row, path)
            if c.find(row.source) is not None:
                c.apply(row.source, ev.RowConsumed(at=c.at, row=kind, path=path))


def _collected(c: Commit, session: str, rows: list[Row]) -> str:
    nested = c.find(session) is not None
    completions = []
    for row in rows:
        completion = _decode(row.body)
        expects = _expects(c, row)
        audience: Audience = "nested" if nested else "main" if expects else "quiet"
        text = "" if row.text is None else c.tx.text(row.text)
        completions.append(replace(completion, result=text, audience=audience))
    told_as = collect(completions, c.rules.style, c.ids.nonce(), inline_chars=c.rules.inline_chars)
    typed = [
        {"row": row.key, "run": row.source, "status": item.outcome.status}
        for row, item in zip(rows, completions, strict=True)
    ]
    return _encode({"text": told_as.text, "completions": typed, "summarised": told_as.summarised}).decode()


def _expects(c: Commit, row: Row) -> bool:
    run = c.find(row.source or "")
    return run is None or run.terms.expects


def _traced(c: Commit, session: str, row: Row, path: Path) -> None:
    run = c.find(row.source or "")
    expects = run is None or run.terms.expects
    state: inbox.RequesterState = "idle" if path == "direct" else "busy"
    phases = inbox.arbitrate(state, c.rules.queue.mode, expects).phases
    tried = (*(Tried(phase, "deferred") for phase in phases[:-1]), Tried(phases[-1], "delivered", path))
    trace = DeliveryTrace(
        key=row.key,
        requester=session,
        depth="main" if c.find(session) is None else "nested",
        route="fallback",
        tried=tried,
        path=path,
    )
    c.tx.trace(row.key, row.source or "", c.at, _encode(trace).decode())


# ---- what a run has said so far --------------------------------------------------------------------------------------


def last_words(c: Commit, key: str) -> TextId | None:
    """The last thing the session's assistant said, kept as a text; None if it said nothing."""
    for entry in reversed(c.tx.entries(key, limit=1_000_000)):
        if entry.kind == "assistant" and (text := _text(entry.body)).strip():
            return c.tx.keep_text(key, text)
    return None


def progress_so_far(c: Commit, key: str) -> TextId | None:
    """The partial-progress note of a run that is cut short; None if it never began."""
    entries = c.tx.entries(key, limit=1_000_000)
    if not entries:
        return None
    calls = sum(entry.kind == "tool" for entry in entries)
    fragments = [_text(entry.body) for entry in entries[-FRAGMENT_ENTRIES:] if entry.kind == "assistant"]
    return c.tx.keep_text(key, partial(calls, fragments))


def _text(body: str) -> str:
    return str(msgspec.json.decode(body).get("text") or "")
