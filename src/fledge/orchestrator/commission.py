"""Commissions: words to a session that somebody waits for under a run id, with wishes for the turn that reads them.

Accepting one is one commit; from then on its fate follows from rows: the row that carries its words, the turn that
reads that row, how that turn ends, or, if it yields, the turn that answers in its place. A turn that takes longer than
was wished is stopped. Nothing here waits.
"""

import hashlib
from typing import Final, Literal

import msgspec
from msgspec import Struct

from fledge.core.keys import is_child_key
from fledge.core.route import INTERNAL
from fledge.core.run import Instant, Run, on_wire
from fledge.core.transcript import NOTHING_CARRIED, Carried
from fledge.core.turn import Looked, TurnEnd, TurnStopped
from fledge.errors import BadInput, NotFound, Refused
from fledge.orchestrator import control, drain, effects, spawn
from fledge.orchestrator.commit import Commit
from fledge.store.base import Commission, Tx, Wishes

NOBODY: Final = ""
"""Who asks with an idempotency key of a request: it is the same for everybody."""


def accept(
    c: Commit,
    session: str,
    message: str,
    wishes: Wishes | None = None,
    key: str = "",
    origin: str = "",
    carried: Carried = NOTHING_CARRIED,
) -> Commission:
    """Take words, images and files for a session, and wishes for the turn that reads them; a conversation that is not
    there, or not any more, begins.

    The same key finds the same commission; with other words or wishes it is refused. Refused too: wishes for a run that
    works on its task, whose turn is under way.
    """
    wishes = wishes or Wishes()
    asked: tuple[object, ...] = (session, message, wishes, *([carried.images] if carried.images else []))
    if carried.files:
        asked += ([file.identity for file in carried.files],)
    digest = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()
    known = c.tx.asks.find(NOBODY, key) if key else None
    if known is not None:
        if known.digest != digest:
            raise Refused("error", f"idempotencyKey: {key} was used before with other parameters")
        before = c.tx.commissions.get(known.answer)
        if before is None:
            raise NotFound(f"no run {known.answer!r}")
        return before
    opened = c.tx.sessions.get(session)
    if (opened is None or opened.deleted) and not is_child_key(session):
        spawn.open_conversation(c, session)
    _check_wishes(c.find(session), wishes)
    run_id = c.ids.unique()
    row = f"send:{session}:{run_id}"
    commission = Commission(run_id=run_id, session=session, row=row, wishes=wishes, accepted_at=c.at)
    c.tx.commissions.put(commission)
    control.send(c, session, message, row_key=row, origin=origin if wishes.deliver else INTERNAL, carried=carried)
    if key:
        c.tx.asks.remember(NOBODY, key, digest, run_id, owner=session)
    return commission


def withdraw(c: Commit, session: str, run_id: str) -> bool:
    """Take words back that nobody has read: they are never read. False of any that was read, or is not known here."""
    commission = c.tx.commissions.get(run_id)
    if commission is None or commission.session != session:
        return False
    row = c.tx.inbox.get(commission.row)
    if row is None or row.state != "unread":
        return False
    c.tx.inbox.void(row.key, c.at)
    c.then(session, Looked())  # a turn that was due for it alone does not open
    c.hints.moved.append(session)
    return True


def _check_wishes(run: Run | None, wishes: Wishes) -> None:
    if run is None or run.ended is not None:
        return
    wished = {
        "model": wishes.model,
        "thinking": wishes.thinking,
        "extra_system_prompt": wishes.extra_system_prompt,
        "lane": wishes.lane,
        "timeout_seconds": wishes.timeout_s,
    }
    for field, wish in wished.items():
        if wish:
            raise BadInput(field, f"cannot be changed: {run.key} is at work; send the message alone, or steer it")


def time_out(c: Commit, run_id: str) -> bool:
    """Stop the turn that answers this, if its time is over; what is below it goes on. False if nothing was to do.

    If the turn that read it has yielded, and another is open that does not answer it, or none, only its time is over.
    """
    commission = c.tx.commissions.get(run_id)
    if commission is None or commission.started_at is None or commission.ended_at is not None:
        return False
    if commission.started_at + commission.wishes.timeout_s > c.at:
        return False
    session = commission.session
    turn, waits = c.tx.turns.get(session), c.tx.turns.wait(session) is not None
    if turn is None or drain.is_attempt(c, session) or (waits and turn.turn != commission.turn):
        c.tx.commissions.end(commission.row, TurnEnd("timeout"), c.at)
        c.hints.moved.append(session)
    else:
        effects.move_turn(c, session, TurnStopped(TurnEnd("timeout"), keeps_wait=True))
    return True


Status = Literal["ok", "error", "timeout", "pending"]


class Standing(Struct, frozen=True, kw_only=True):
    """What has become of a run id, whatever it names; `run_id` is of the attempt that stands now."""

    status: Status
    run_id: str
    session: str
    started_at: Instant | None = None
    ended_at: Instant | None = None
    error: str | None = None


def standing(tx: Tx, run_id: str) -> Standing:
    """What has become of a commission, or of the run that this id, however old, was given to. NotFound if neither."""
    named = tx.runs.named(run_id)
    if named is not None:
        return _of_run(tx.runs.load(named[0]))
    commission = tx.commissions.get(run_id)
    if commission is None:
        raise NotFound(f"no run {run_id!r}")
    return _of_commission(tx, commission)


def _of_run(run: Run) -> Standing:
    ended = run.ended
    if ended is None:
        return Standing(status="pending", run_id=run.run_id, session=run.key, started_at=run.started_at)
    outcome = ended.outcome
    told, _ = on_wire(outcome)
    status: Status = "error" if told == "unknown" else told
    error = outcome.error or ("its outcome is unknown" if status == "error" else None)
    return Standing(
        status=status,
        run_id=run.run_id,
        session=run.key,
        started_at=ended.started_at,
        ended_at=ended.ended_at,
        error=error,
    )


def _of_commission(tx: Tx, commission: Commission) -> Standing:
    status: Status = "pending"
    error: str | None = None
    if commission.ended_at is not None:
        status, error = _how_it_ended(tx, commission)
    return Standing(
        status=status,
        run_id=commission.run_id,
        session=commission.session,
        started_at=commission.started_at,
        ended_at=commission.ended_at,
        error=error,
    )


def _how_it_ended(tx: Tx, commission: Commission) -> tuple[Status, str | None]:
    end = commission.ended or TurnEnd("over")
    match end.kind:
        case "replied" | "forwarded":
            return "ok", None
        case "over":
            run = tx.runs.find(commission.session)
            outcome = None if run is None or run.ended is None else run.ended.outcome
            return ("ok", None) if outcome is None or outcome.status == "ok" else ("error", outcome.error)
        case "timeout":
            return "timeout", None
        case "dropped":
            return "error", "it gave way to newer messages: messages.queue.cap"
        case "void":
            return "error", "it was stopped before it read this"
        case _:
            return "error", end.told
