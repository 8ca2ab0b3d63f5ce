"""Messages to sessions: from one session to another (exchanges), from a caller who waits under a run id (requests), and
from the system (events and heartbeats).

Each step is part of one commit: the sender's, and then those that end turns. So a message goes on exactly once wherever
a process dies. The order of the messages of an exchange is decided in `core.exchange`; the caller checks who may send
to which session. A request's end follows from rows: the row that carries its words, the turn that reads that row, and
how that turn ends. Nothing here waits.
"""

import hashlib
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import exchange as rules
from fledge.core import policy
from fledge.core.effects import Owes
from fledge.core.exchange import Exchange, Over
from fledge.core.freeze import one_line, to_valid_utf8
from fledge.core.keys import is_child_key, parse_key
from fledge.core.policy import enforce
from fledge.core.route import INTERNAL
from fledge.core.run import Instant, Run, on_wire
from fledge.core.transcript import NOTHING_CARRIED, Carried
from fledge.core.turn import Looked, TurnEnd, TurnStopped
from fledge.errors import BadInput, NotFound, Refused
from fledge.orchestrator import control, effects, exchanges, heartbeat, inbox
from fledge.orchestrator.commit import Commit, Lease, check_lease
from fledge.orchestrator.spawn import check_wanted, open_conversation
from fledge.orchestrator.views import is_below, name_of
from fledge.store.base import MessageRequest, Tx, Wishes

# ---- exchanges: from session to session ------------------------------------------------------------------------------

FORGOTTEN_A_COMMIT = 20
"""How many old exchanges a new one puts out of the way, at most."""


class Sending(Struct, frozen=True, kw_only=True):
    """A message that was read and whose sender may send it."""

    id: str
    """The id of this message: sending it again finds the same exchange."""
    sender: str
    target: str
    message: str
    wait_s: float = 0.0
    """How long the sender waits for the answer; 0: not at all."""
    max_turns: int = 0
    """How many turns the two may take after the first answer, if they are no parent and child."""
    lease: Lease | None = None
    """Of the driver whose tool call this is; None for a person."""
    generations: Mapping[str, int] | None = None
    """Stop generations that the sender's turn stored when it opened; None for a person, who is never stopped."""
    opens: bool = False
    """A conversation that does not exist yet is made."""
    by_person: bool = False
    """A person says it, in the conversation of the sender."""


def find_exchange(c: Commit, exchange_id: str, wait_s: float) -> Exchange | None:
    """The exchange of a message that was sent before, or None; while it is not answered, its sender waits anew."""
    exchange = c.tx.exchanges.get(exchange_id)
    if exchange is None or exchange.kind == "tell" or exchange.speaker is None or exchange.reply is not None:
        return exchange
    waiting = replace(exchange, until_at=c.at + wait_s if wait_s > 0 else None)
    c.tx.exchanges.save(waiting, c.at)
    exchanges.hurry(c, waiting.target)
    return waiting


def begin_exchange(c: Commit, sending: Sending) -> Exchange:
    """Send a message.

    Where a plan awaits its answer, and the sender may give it, an answer is that; anything else is an ordinary message.
    """
    until_at = c.at + sending.wait_s if sending.wait_s > 0 else None
    message = to_valid_utf8(sending.message)
    if not message.strip():
        raise BadInput("message", "must not be empty")
    _check(c, sending)
    run = c.find(sending.target)
    sender = None if sending.by_person else sending.sender
    answer = rules.plan_answer(message) if control.may_answer_plan(c, run, sender) else None
    own = is_below(c.tx, sending.sender, sending.target)
    kind = "tell" if answer is not None else rules.kind_of(run, own, waits=until_at is not None)
    exchange = _exchange(c, sending, kind, None if kind == "tell" else until_at)
    if answer is not None:
        return _answered_plan(c, exchange, answer.approves, answer.reason)
    c.tx.exchanges.save(exchange, c.at)
    c.tx.exchanges.forget(c.at - c.rules.exchanges_s, FORGOTTEN_A_COMMIT)
    _post(c, exchange, rules.first_words(exchange, message))
    exchanges.hurry(c, sending.target)
    return exchange


def _check(c: Commit, sending: Sending) -> None:
    target, sender = sending.target, sending.sender
    if target == sender:
        raise Refused("forbidden", f"{sender} cannot send to itself")
    check_lease(c, sender, sending.lease)
    check_wanted(c, sender, sending.generations)
    session = c.tx.sessions.get(target)
    if session is None and sending.opens:
        open_conversation(c, target)
    elif session is None:
        raise NotFound(f"no session {target}")
    elif session.deleted:
        raise Refused("done", f"{target} has ended and its session is gone: sessions_history has its result")
    elif session.kind == "program":
        raise Refused("error", f"{target} is a program: it receives results, not messages")
    run = c.find(target)
    if run is not None:
        enforce(policy.refuse_send(run, name_of(c.tx, run.key)))


def _exchange(c: Commit, sending: Sending, kind: rules.ExchangeKind, until_at: Instant | None) -> Exchange:
    """A new exchange, below the one that its sender is answering, if there is one. Refused: too many messages under the
    same root."""
    above = max(c.tx.exchanges.answering(sending.sender), key=lambda one: len(one.path), default=None)
    path = (sending.sender,) if above is None else above.path
    exchange = Exchange(
        id=sending.id,
        root=sending.id if above is None else above.root,
        requester=sending.sender,
        target=sending.target,
        kind=kind,
        row=f"send:{sending.id}",
        path=(*path, sending.target),
        inherited=len(path),
        max_turns=sending.max_turns if kind == "talk" else 0,
        until_at=until_at,
    )
    enforce(rules.refuse_hop(exchange, c.tx.exchanges.hops_made(exchange.root)))
    return exchange


def answer_plan(c: Commit, exchange_id: str, sender: str, target: str, approves: bool, reason: str) -> Exchange:
    """Answer a plan; the id remembers that this was done. Refused: no plan awaits it, a rejection without a reason."""
    sending = Sending(id=exchange_id, sender=sender, target=target, message=reason)
    return _answered_plan(c, _exchange(c, sending, "tell", None), approves, reason)


def _answered_plan(c: Commit, exchange: Exchange, approves: bool, reason: str) -> Exchange:
    control.answer_plan(c, exchange.target, approves, rules.plan_words(approves, reason))
    done = replace(exchange, stage=Over("approved" if approves else "rejected"))
    c.tx.exchanges.save(done, c.at)
    return done


def _post(c: Commit, exchange: Exchange, words: str) -> None:
    """Put the message that is to be answered into its speaker's inbox."""
    session, run = exchange.speaker or "", c.find(exchange.speaker or "")
    sender = exchange.target if session == exchange.requester else exchange.requester
    inbox.put_message(c, session, exchange.row, "send", sender, words, exchange.origin)
    if run is not None:
        effects.apply(c, session, ev.SendArrived(at=c.at))
    if exchange.origin:
        inbox.wake(c, session)  # it has a turn of its own, so no step is called off for it
    else:
        inbox.arrived(c, session, inbox.mode_of(c, session, "send", exchange.origin))
    c.hints.look = True


def exchanges_answered(c: Commit, session: str, reply: str, owes: Owes = "nothing") -> None:
    """A turn is over with this reply: the exchanges that it answers go on, or have their answer."""
    for exchange in exchanges.unanswered(c, session, owes):
        move = rules.answered(exchange, reply, c.tx.exchanges.hops_made(exchange.root))
        after = move.exchange
        if move.say:
            after = replace(after, row=f"send:{after.id}:{after.hops}")
            why = _unreachable(c, after.speaker or "")
            after = after if why is None else rules.dropped(after, why)
        c.tx.exchanges.save(after, c.at)
        if move.say and after.speaker is not None:
            _post(c, after, move.say)
        c.moved(exchange.target)


def _unreachable(c: Commit, session: str) -> str | None:
    known, run = c.tx.sessions.get(session), c.find(session)
    if known is None or known.deleted:
        return f"no session {session}"
    refusal = None if run is None else policy.refuse_send(run, name_of(c.tx, run.key))
    return None if refusal is None else refusal.reason


# ---- requests: a message that a caller waits for under a run id ------------------------------------------------------

ANY_CALLER: Final = ""
"""The scope of a request's idempotency key: the same for all callers."""


def accept_request(
    c: Commit,
    session: str,
    message: str,
    wishes: Wishes | None = None,
    key: str = "",
    origin: str = "",
    carried: Carried = NOTHING_CARRIED,
) -> MessageRequest:
    """Accept a message with images and files for a session, and wishes for the turn that reads it; a conversation that
    does not exist, or was deleted, begins.

    The same key finds the same request; with another message or other wishes it is refused. Refused too: wishes for a
    live run, whose turn is under way.
    """
    wishes = wishes or Wishes()
    asked: tuple[object, ...] = (session, message, wishes, *([carried.images] if carried.images else []))
    if carried.files:
        asked += ([file.identity for file in carried.files],)
    digest = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()
    known = c.tx.asks.find(ANY_CALLER, key) if key else None
    if known is not None:
        if known.digest != digest:
            raise Refused("error", f"idempotencyKey: {key} was used before with other parameters")
        before = c.tx.requests.get(known.answer)
        if before is None:
            raise NotFound(f"no run {known.answer!r}")
        return before
    opened = c.tx.sessions.get(session)
    if (opened is None or opened.deleted) and not is_child_key(session):
        open_conversation(c, session)
    run = c.live_run(session)
    if run is not None:
        _check_wishes(run, wishes)
    run_id = c.ids.unique()
    row = f"send:{session}:{run_id}"
    request = MessageRequest(run_id=run_id, session=session, row=row, wishes=wishes, accepted_at=c.at)
    c.tx.requests.put(request)
    control.send(c, session, message, row_key=row, origin=origin if wishes.deliver else INTERNAL, carried=carried)
    if key:
        c.tx.asks.remember(ANY_CALLER, key, digest, run_id, owner=session)
    return request


def withdraw_request(c: Commit, session: str, run_id: str) -> bool:
    """Withdraw a message that is unread: it is never read. False if it was read, or is not known here."""
    request = c.tx.requests.get(run_id)
    if request is None or request.session != session:
        return False
    row = c.tx.inbox.get(request.row)
    if row is None or row.state != "unread":
        return False
    c.tx.inbox.void(row.key, c.at)
    c.then(session, Looked())  # a turn that was due for it alone does not open
    c.moved(session)
    return True


def _check_wishes(run: Run, wishes: Wishes) -> None:
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


def time_out_request(c: Commit, run_id: str) -> bool:
    """Stop the turn that answers this request, if its time is over; its children go on. False if there was nothing to
    do.

    If the turn that read it has yielded, and the open turn does not answer it, or none is open, only the request ends.
    """
    request = c.tx.requests.get(run_id)
    if request is None or request.started_at is None or request.ended_at is not None:
        return False
    if request.started_at + request.wishes.timeout_s > c.at:
        return False
    session = request.session
    state = c.tx.turns.state(session)
    if state is not None and state.open is not None and (state.wait is None or state.open.turn == request.turn):
        effects.move_turn(c, session, TurnStopped(TurnEnd("timeout"), keeps_wait=True))
    else:
        c.tx.requests.end(request.row, TurnEnd("timeout"), c.at)
        c.moved(session)
    return True


RequestStatus = Literal["ok", "error", "timeout", "pending"]


class RequestStanding(Struct, frozen=True, kw_only=True):
    """The status of a run id, of a request or of a run; `run_id` is that of the current attempt."""

    status: RequestStatus
    run_id: str
    session: str
    started_at: Instant | None = None
    ended_at: Instant | None = None
    error: str | None = None


def request_standing(tx: Tx, run_id: str) -> RequestStanding:
    """The status of a request, or of the run that this id, however old, was given to. NotFound if neither."""
    named = tx.runs.named(run_id)
    if named is not None:
        return _standing_of_run(tx.runs.load(named[0]))
    request = tx.requests.get(run_id)
    if request is None:
        raise NotFound(f"no run {run_id!r}")
    status, error = ("pending", None) if request.ended_at is None else _how_it_ended(tx, request)
    return RequestStanding(
        status=status,
        run_id=run_id,
        session=request.session,
        started_at=request.started_at,
        ended_at=request.ended_at,
        error=error,
    )


def _standing_of_run(run: Run) -> RequestStanding:
    standing = RequestStanding(status="pending", run_id=run.run_id, session=run.key, started_at=run.started_at)
    if run.ended is None:
        return standing
    outcome, _ = on_wire(run.ended.outcome)
    status: RequestStatus = "error" if outcome == "unknown" else outcome
    error = run.ended.outcome.error or ("its outcome is unknown" if status == "error" else None)
    started_at, ended_at = run.ended.started_at, run.ended.ended_at
    return replace(standing, status=status, started_at=started_at, ended_at=ended_at, error=error)


def _how_it_ended(tx: Tx, request: MessageRequest) -> tuple[RequestStatus, str | None]:
    end = request.ended or TurnEnd("over")
    match end.kind:
        case "replied" | "forwarded":
            return "ok", None
        case "over":
            run = tx.runs.find(request.session)
            outcome = None if run is None or run.ended is None else run.ended.outcome
            return ("ok", None) if outcome is None or outcome.status == "ok" else ("error", outcome.error)
        case "timeout":
            return "timeout", None
        case "dropped":
            return "error", "it gave way to newer messages: messages.queue.cap"
        case "void":
            return "error", "it was stopped before it read this"
        case _:
            return "error", end.description


# ---- system events and requested heartbeats --------------------------------------------------------------------------

EVENT_CHARS: Final = 4000
REASON_CHARS: Final = 200
EVENT_HEAD: Final = "[System event]"


def post_event(c: Commit, session: str, text: str) -> bool:
    """Post an event to a session; False if the last unread one there says the same. A main conversation is opened if
    need be. Refused: no text, too long a text, a session that does not exist, and a program's."""
    words = to_valid_utf8(text).strip()
    if not words:
        raise BadInput("text", "must not be empty")
    if len(words) > EVENT_CHARS:
        raise BadInput("text", f"must be at most {EVENT_CHARS} characters", len(words))
    _open_for_event(c, session)
    return inbox.notice(c, session, f"event:{session}:{c.ids.unique()}", f"{EVENT_HEAD} {words}")


def request_heartbeat(c: Commit, session: str, reason: str) -> str:
    """Ask for a heartbeat of a session; answers whose it is: of a run at work, the conversation's above it.

    Refused: a session that is not there, and one with no conversation above it.
    """
    _open_for_event(c, session)
    key = heartbeat.request(c, session, one_line(reason, REASON_CHARS) or "requested")
    if key is None:
        raise Refused("error", f"{session} belongs to a program: there is no conversation that could have a heartbeat")
    return key


def _open_for_event(c: Commit, session: str) -> None:
    known = c.tx.sessions.get(session)
    if known is not None and not known.deleted:
        if known.kind == "program":
            raise Refused("error", f"{session} is a program's: no model answers there")
    elif parse_key(session).kind == "main":
        open_conversation(c, session)
    else:
        raise NotFound(f"no session {session}")
