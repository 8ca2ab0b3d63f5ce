"""Messages from one session to another: how they begin, and how they go on when a turn that read one is over.

Each step is part of a commit that happens anyway: the sender's, and then those that end turns. So an exchange goes on
exactly once wherever a process dies. What follows what is decided in `core.exchange`; who may send to whom is checked
by whoever calls.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import exchange as rules
from fledge.core import policy
from fledge.core.access import refuse_stopped
from fledge.core.effects import Owes
from fledge.core.exchange import Exchange, Over
from fledge.core.freeze import sound
from fledge.core.policy import enforce
from fledge.core.run import AwaitingApproval, Instant, Run
from fledge.errors import BadInput, NotFound, Refused
from fledge.orchestrator import control, deliver, drain, effects, exchanges, lease
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.lease import Lease
from fledge.orchestrator.spawn import generations_of, open_conversation
from fledge.orchestrator.views import is_below

FORGOTTEN_A_COMMIT = 20
"""How many old exchanges a new one puts out of the way, at most."""


class Sending(Struct, frozen=True, kw_only=True):
    """A message that was read and whose sender may send it."""

    id: str
    """Names this very message: sending it again finds what became of it."""
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
    """Stops the sender's turn knew of when it opened; None for a person, whom no stop has ended."""
    opens: bool = False
    """A conversation that does not exist yet is made."""


def again(c: Commit, exchange_id: str, wait_s: float) -> Exchange | None:
    """The exchange of a message that was sent before, or None; while it is not answered, its sender waits anew."""
    exchange = c.tx.exchanges.get(exchange_id)
    if exchange is None or exchange.kind == "tell" or exchange.speaker is None or exchange.reply is not None:
        return exchange
    waiting = replace(exchange, until_at=c.at + wait_s if wait_s > 0 else None)
    c.tx.exchanges.save(waiting, c.at)
    exchanges.hurry(c, waiting.target)
    return waiting


def begin(c: Commit, sending: Sending) -> Exchange:
    """Send a message.

    Where a plan awaits its answer, and the sender may give it, an answer is that; anything else is an ordinary message.
    """
    until_at = c.at + sending.wait_s if sending.wait_s > 0 else None
    message = sound(sending.message)
    if not message.strip():
        raise BadInput("message", "must not be empty")
    _check(c, sending)
    run = c.find(sending.target)
    answer = rules.plan_answer(message) if run is not None and _may_answer(c, run, sending.sender) else None
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
    lease.check(c, sender, sending.lease)
    if sending.generations is not None:
        enforce(refuse_stopped(sending.generations, generations_of(c, sender)))
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
        enforce(policy.refuse_send(run))


def _may_answer(c: Commit, run: Run, sender: str) -> bool:
    """A plan awaits its answer, and the sender is the requester or the controller."""
    return isinstance(run.phase, AwaitingApproval) and sender in (run.terms.parent, c.tx.runs.spec(run.key).controller)


def _exchange(c: Commit, sending: Sending, kind: rules.Kind, until_at: Instant | None) -> Exchange:
    """The exchange, as the one that its sender is answering leads to it. Refused: too many came of the same."""
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
    deliver.put_message(c, session, exchange.row, "send", sender, words, exchange.origin)
    if run is not None:
        effects.apply(c, session, ev.SendArrived(at=c.at))
    if exchange.origin:
        deliver.wake(c, session)  # it has a turn of its own, so no step is called off for it
    else:
        deliver.arrived(c, session, drain.mode_of(c, session, "send", exchange.origin))
    c.hints.look = True


def answered(c: Commit, session: str, reply: str, owes: Owes = "nothing") -> None:
    """A turn is over with this reply: whatever it answers goes on, or has its answer."""
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
        c.hints.moved.append(exchange.target)


def _unreachable(c: Commit, session: str) -> str | None:
    known, run = c.tx.sessions.get(session), c.find(session)
    if known is None or known.deleted:
        return f"no session {session}"
    refusal = None if run is None else policy.refuse_send(run)
    return None if refusal is None else refusal.reason
