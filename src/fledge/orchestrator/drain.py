"""Hop 1, out of the inbox: rows into a transcript, each once, in the commit that appends them.

Which rows enter now is decided in `core.inbox`, how they are worded in `core.announce`. This file knows neither who
wrote a row nor when a session is woken (`deliver`).
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fledge.core import answer, inbox
from fledge.core import events as ev
from fledge.core.announce import (
    LABEL_CHARS,
    LEAST_BYTES,
    LINE_CHARS,
    TURN_BYTES,
    Audience,
    Collected,
    Completion,
    DeliveryTrace,
    Tried,
    announce_key,
    collect,
    room_beside,
    whole_bytes,
)
from fledge.core.freeze import one_line, summary
from fledge.core.route import INTERNAL, Found, is_apart, joined
from fledge.core.run import Asking, Instant, Path, Queued, Run, Running
from fledge.core.transcript import Body, CompletionRead, Spoken, Told, from_carried_body
from fledge.core.turn import OpenTurn
from fledge.errors import NotFound
from fledge.orchestrator import outbox, transcripts
from fledge.orchestrator.commit import Commit
from fledge.store.base import Row

_decode = msgspec.json.Decoder(Completion).decode

WINDOW = 5 * inbox.ROWS_A_COMMIT
"""How many waiting rows a drain looks at: those it may take, and as many behind them as could be told whole."""


def item(row: Row, mode: inbox.QueueMode = "collect") -> inbox.Item:
    """What scheduling needs to know of a row."""
    match row.kind:
        case "outcome" | "plan" | "expired" | "late":
            return inbox.Item(row.key, "completion", row.arrived_at, row.origin, mode)
        case kind:
            head = row.body[: 2 * inbox.LINE_CHARS]
            return inbox.Item(row.key, kind, row.arrived_at, row.origin, mode, text_head=head)


def items(c: Commit, session: str, rows: Sequence[Row]) -> list[inbox.Item]:
    """The same of several rows of an inbox, each with its queue mode."""
    return [item(row, _mode_of(c, session, row)) for row in rows]


def queue_at(c: Commit, session: str, origin: str) -> inbox.QueueSettings:
    """How what has this origin reaches the session: as its channel is set, or the session's route."""
    if not c.rules.queues or is_attempt(c, session):
        return c.rules.queue
    address = outbox.address_for(c, session, origin)
    return c.rules.queue if address is None else c.rules.queues.get(address.channel, c.rules.queue)


def mode_of(c: Commit, session: str, kind: Literal["completion", "send"], origin: str) -> inbox.QueueMode:
    """The queue mode of a completion or a message for this session.

    A live run hears every message at its next step. What agents say to each other has turns of its own in any mode.
    """
    queue = queue_at(c, session, origin)
    if kind == "completion":
        return queue.mode
    if is_apart(origin):
        return "steer"
    if is_attempt(c, session):
        return "interrupt" if queue.mode == "interrupt" else "steer"
    return queue.people


def _mode_of(c: Commit, session: str, row: Row) -> inbox.QueueMode:
    if row.announces is not None:
        return mode_of(c, session, "completion", row.origin)
    return mode_of(c, session, "send", row.origin) if row.kind == "send" else "collect"


def take(c: Commit, session: str, at_boundary: bool) -> int:
    """Consume what may enter the session now, at the start of a turn or at a step boundary; answers how many rows."""
    rows = _waiting(c, session)
    if not rows:
        return 0
    taken = _entering(c, session, rows, at_boundary)
    consume(c, session, taken, at_boundary, _behind(taken, rows))
    return len(taken)


def _waiting(c: Commit, session: str) -> list[Row]:
    """What may enter, in the order in which it is told: a run hears of its children in the order in which it made them,
    a conversation in order of arrival. In a turn beside a wait for them no completion may."""
    if is_aside(c, session):
        return [row for row in c.tx.inbox.unread(session) if not row.announces][:WINDOW]
    return c.tx.inbox.unread_by_child(session, WINDOW) if is_attempt(c, session) else c.tx.inbox.unread(session, WINDOW)


def entering(c: Commit, session: str) -> list[Row]:
    """The rows that a turn which opens now would read first."""
    return _entering(c, session, _waiting(c, session), at_boundary=False)


def is_quiet(c: Commit, row: Row) -> bool:
    """True of what nobody waits for: a notice, or something of a fire-and-forget run."""
    return row.kind == "notice" or (row.announces is not None and not is_awaited(c, row.source))


class Times(Struct, frozen=True, gc=False):
    """When a turn may begin for what is unread, and for the messages among it; None: there is none that somebody waits
    for. `quiet`: something is unread, and nobody waits for any of it."""

    rows_at: Instant | None = None
    messages_at: Instant | None = None
    quiet: bool = False


def times(c: Commit, session: str) -> Times:
    """When a conversation may read what is unread."""
    first = c.tx.inbox.unread(session, 1)
    if not first:
        return Times()
    sends = c.tx.inbox.newest_unread(session, "send")
    if not sends and all(is_quiet(c, row) for row in c.tx.inbox.unread(session, WINDOW)):
        return Times(quiet=True)
    every = items(c, session, [*first, *c.tx.inbox.newest_unread(session), *sends])
    queue = queue_at(c, session, every[0].origin)
    messages_at = inbox.drain_at(items(c, session, sends), queue, c.at) if sends else None
    return Times(inbox.drain_at(every, queue, c.at), messages_at)


def would_join(c: Commit, session: str) -> bool:
    """True if something that waits may enter the live turn at its next boundary."""
    return bool(_entering(c, session, _waiting(c, session), at_boundary=True))


def _entering(c: Commit, session: str, rows: list[Row], at_boundary: bool) -> list[Row]:
    if len(rows) == 1 and not at_boundary:
        return rows  # a turn opens with the oldest row, whatever it is
    turn = c.tx.turns.get(session) if at_boundary and rows and not is_attempt(c, session) else None
    taken = inbox.take(items(c, session, rows), at_boundary, turn.origin if turn else "")
    keys = {item.key for item in taken}
    return [row for row in rows if row.key in keys]


def take_completions(c: Commit, session: str) -> int:
    """Consume the unread completions that the live turn may read, whatever the queue mode says: it has nothing else to
    do, or would end without them."""
    rows = readable_completions(c, session)
    taken = rows[: inbox.ROWS_A_COMMIT]
    consume(c, session, taken, at_boundary=True, behind=_behind(taken, rows))
    return len(taken)


def readable_completions(c: Commit, session: str) -> list[Row]:
    """Unread completions that may enter the session's live turn: of a conversation, those that it may answer there."""
    rows = [row for row in _waiting(c, session) if row.announces]
    turn = None if is_attempt(c, session) else c.tx.turns.get(session)
    if turn is None or not rows:
        return rows
    keys = {taken.key for taken in inbox.take([item(row, "steer") for row in rows], True, turn.origin)}
    return [row for row in rows if row.key in keys]


def _behind(taken: list[Row], rows: list[Row]) -> list[Row]:
    """Completions that the same turn will read after a full commit's worth."""
    if len(taken) < inbox.ROWS_A_COMMIT:
        return []
    last = taken[-1]
    return [row for row in rows[rows.index(last) + 1 :] if row.announces and row.origin == last.origin]


def consume(c: Commit, session: str, rows: list[Row], at_boundary: bool, behind: Sequence[Row] = ()) -> None:
    """Rows to transcript, each once, with what that means for the runs they announce.

    The newest completions of a turn are told whole, up to 64 KiB; `behind` are newer ones that it will read next.
    """
    if not rows:
        return
    completions = [row for row in rows if row.announces]
    messages = [row for row in rows if not row.announces]
    bodies: list[Body] = []
    summarised: set[str] = set()
    told_bytes = 0
    if completions:
        told = [_whole(c, session, row) for row in completions]
        collected = _collected(c, session, told, behind)
        summarised = {completions[at].key for at in collected.summarised}
        told_bytes = collected.whole_bytes
        bodies.append(_entry(c, session, completions, told, collected, at_boundary))
    bodies += _left_out(c, session, messages)
    for row in messages:
        carried = from_carried_body(row.carried)
        bodies.append(Spoken(row.body, row.key, row.kind, row.source or "", carried.images, carried.files))
    transcripts.write(c, session, *bodies)
    _drained(c, session, rows, told_bytes)
    for row in rows:
        if not c.tx.inbox.consume(row.key, c.at):
            raise NotFound(f"row {row.key} was already taken")
        if row.kind == "send":
            c.tx.commissions.take_up(row.key, c.at)
        kind = row.announces
        if kind is not None and row.source is not None:
            path = _path_taken(c, session, row, at_boundary)
            traced(c, session, row, path, "summarised" if row.key in summarised else "whole")
            if c.find(row.source) is not None:
                c.then(row.source, ev.RowConsumed(at=c.at, row=kind, path=path))


def _drained(c: Commit, session: str, rows: list[Row], told_bytes: int) -> None:
    """The open turn, if there is one, has taken these rows. A conversation's reply goes where they came from; a turn
    that somebody speaks in is a heartbeat's no more."""
    turn = c.tx.turns.get(session)
    if turn is None:
        return
    turn = replace(turn, drained=turn.drained + len(rows), told_bytes=turn.told_bytes + told_bytes)
    c.tx.turns.save(turn if is_attempt(c, session) else _addressed(c, turn, rows))


def _addressed(c: Commit, turn: OpenTurn, rows: list[Row]) -> OpenTurn:
    is_first = turn.drained == len(rows)
    by_person = turn.by_person or (is_first and any(row.kind == "send" and row.source is None for row in rows))
    origin, route = next(((row.origin, row.route) for row in rows if row.origin), ("", "fallback"))
    if not origin and all(row.kind == "send" and row.source is not None for row in rows):
        origin = INTERNAL
    after = joined(turn.origin, origin, is_first=is_first)
    if after != turn.origin:
        turn = replace(turn, origin=after, route=route if after == origin else "fallback")
    is_spoken = turn.heartbeat and not all(is_quiet(c, row) for row in rows)
    is_sent = any(row.kind == "send" for row in rows)
    return replace(
        turn,
        by_person=by_person,
        heartbeat="" if is_spoken else turn.heartbeat,
        wakes=0 if is_sent else turn.wakes,
    )


def is_aside(c: Commit, session: str) -> bool:
    """True of a session whose turn answers a message while it waits for its children, or would."""
    run = c.find(session)
    if run is None or run.ended is not None:
        return c.tx.turns.wait(session) is not None
    return isinstance(run.phase, Queued | Running | Asking) and run.phase.serving is not None


def is_attempt(c: Commit, session: str) -> bool:
    """True of a session whose turns belong to a live run: what it says is a result, and never goes to a channel."""
    run = c.find(session)
    return run is not None and run.ended is None


def post(c: Commit, key: str, session: str) -> bool:
    """Post a completion to the requester's channel and read it, in this commit; False if it has no channel. One whose
    words its thread has heard, in the same place, is only read."""
    row = c.tx.inbox.get(key)
    if row is None or row.state != "unread" or row.announces is None or is_attempt(c, session):
        return False
    address = outbox.address_for(c, session, row.origin)
    if address is None and row.origin != INTERNAL:
        return False
    completion = replace(_whole(c, session, row), audience="posted")
    collected = collect([completion], c.rules.style, c.ids.nonce(), inline_chars=c.rules.inline_chars)
    transcripts.write(c, session, _entry(c, session, [row], [completion], collected, at_boundary=False))
    c.tx.inbox.consume(key, c.at)
    traced(c, session, row, "direct", "summarised" if collected.summarised else "whole")
    if address is not None:
        outbox.result(c, session, address, row, completion)
    if row.source is not None and c.find(row.source) is not None:
        c.then(row.source, ev.RowConsumed(at=c.at, row=row.announces, path="direct"))
    return True


def completions_read(c: Commit, session: str, bodies: Sequence[Body]) -> list[Completion]:
    """The completions that stand in these entries, apart from those that people were shown already."""
    read = [c.tx.inbox.get(key) for key in answer.completions_read(bodies)]
    rows = [row for row in read if row is not None and row.origin != INTERNAL]
    return [_whole(c, session, row) for row in rows if c.tx.outbox.get(f"result:{row.key}") is None]


def _left_out(c: Commit, session: str, messages: list[Row]) -> list[Body]:
    """What is told of messages that gave way to those that are read now."""
    told: list[Body] = []
    for origin in dict.fromkeys(row.origin for row in messages if row.kind in ("send", "notice")):
        dropped = c.tx.inbox.dropped(session, origin)
        if dropped:
            told.append(Spoken(inbox.left_out([item(row) for row in dropped], c.rules.queue.cap), kind="dropped"))
        for row in dropped:
            c.tx.inbox.line_told(row.key, c.at)
    return told


def _path_taken(c: Commit, session: str, row: Row, at_boundary: bool) -> Path:
    """How a row really arrived: what was to be steered and missed its boundary was queued."""
    if at_boundary:
        return inbox.arbitrate("busy", _mode_of(c, session, row), is_awaited(c, row.source)).path or "queued"
    return "queued" if row.path == "steered" else row.path


def _collected(c: Commit, session: str, completions: list[Completion], behind: Sequence[Row]) -> Collected:
    turn = c.tx.turns.get(session)
    room = TURN_BYTES - (0 if turn is None else turn.told_bytes)
    style, inline_chars = c.rules.style, c.rules.inline_chars
    if len(behind) * LEAST_BYTES >= room:
        room = 0
    elif behind:
        room = room_beside((_whole_bytes(c, session, row) for row in behind), room)
    return collect(completions, style, c.ids.nonce(), max(0, room), inline_chars)


def _whole_bytes(c: Commit, session: str, row: Row) -> int:
    return c.tx.inbox.measured(row, lambda: whole_bytes(_whole(c, session, row), c.rules.style, c.rules.inline_chars))


def _whole(c: Commit, session: str, row: Row) -> Completion:
    """A completion with its words, for whoever reads it here."""
    audience: Audience = "main" if is_awaited(c, row.source) else "quiet"
    if row.origin == INTERNAL:
        audience = "posted"
    elif c.find(session) is not None:
        audience = "nested"
    text = "" if row.text is None else c.tx.texts.get(row.text)
    return replace(_decode(row.body), result=text, audience=audience)


def _entry(
    c: Commit, session: str, rows: list[Row], completions: list[Completion], collected: Collected, at_boundary: bool
) -> Told:
    typed = [_read(row, completion) for row, completion in zip(rows, completions, strict=True)]
    prefix = inbox.arbitrate("busy", _mode_of(c, session, rows[0]), True).prefix if at_boundary else ""
    text = f"{prefix} {collected.text}" if prefix else collected.text
    return Told(text, tuple(typed), collected.summarised)


def _read(row: Row, completion: Completion) -> CompletionRead:
    goods = completion.goods
    return CompletionRead(
        row=row.key,
        run=row.source,
        status=completion.outcome.status,
        kind=completion.kind,
        run_id=completion.run_id,
        label=one_line(completion.label or completion.task, LABEL_CHARS),
        error=one_line(completion.outcome.error or "", LINE_CHARS),
        summary=summary(completion.result),
        stats=completion.stats,
        artifacts=goods.artifacts,
        more_artifacts=goods.more,
        text=row.text or "",
        text_bytes=len(completion.result.encode()),
    )


def is_awaited(c: Commit, run: str | None) -> bool:
    """False of a fire-and-forget run: nobody waits for its completions."""
    known = c.find(run or "")
    return known is None or known.terms.expects


def traced(c: Commit, session: str, row: Row, path: Path, form: Literal["whole", "summarised"] = "whole") -> None:
    """Record how a completion was delivered."""
    run = c.find(row.source or "")
    state: inbox.RequesterState = "idle" if path == "direct" else "busy"
    phases = inbox.arbitrate(state, _mode_of(c, session, row), is_awaited(c, row.source)).phases
    tried = tuple(Tried(phase, "deferred") for phase in phases[:-1])
    if run is None or not run.terms.program:
        tried += (Tried(phases[-1], "delivered", path),)
    c.trace(row.source or "", _trace(c, row.key, session, tried, path, form, route=row.route))


def tried_in_vain(c: Commit, run: Run, result: Literal["deferred", "failed"], why: str) -> None:
    """Record a try at announcing a run's outcome that told nobody."""
    phases = () if run.terms.program else inbox.arbitrate("gone", "collect", run.terms.expects).phases
    tried = tuple(Tried(phase, result, why) for phase in (phases if result == "failed" else phases[:1]))
    c.trace(run.key, _trace(c, announce_key(run.key, run.run_id, "outcome"), run.terms.parent, tried, why=why))


def _trace(
    c: Commit,
    key: str,
    requester: str,
    tried: tuple[Tried, ...],
    path: Path | None = None,
    form: Literal["whole", "summarised"] = "whole",
    route: Found = "fallback",
    why: str = "",
) -> DeliveryTrace:
    depth: Literal["nested", "main"] = "main" if c.find(requester) is None else "nested"
    return DeliveryTrace(
        key=key, requester=requester, depth=depth, route=route, tried=tried, path=path, form=form, why=why
    )
