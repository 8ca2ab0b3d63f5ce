"""Exchanges: a message from one session to another, and its answer.

A *tell* has no answer. An *ask* is answered to its sender. A *talk* is agent to agent: after the first answer the two
take turns, then the target may tell its own people. Every further message is decided here, from the reply that ended a
turn; this file knows neither stores nor drivers. Messages that follow from each other share a root and together are
never more than `MAX_HOPS`, so that no ring of agents goes round for ever.
"""

import re
from typing import Final, Literal

from msgspec.structs import replace

from fledge.core.access import talks_on
from fledge.core.announce import guarded
from fledge.core.freeze import ANNOUNCE_SKIP, REPLY_SKIP, classify_reply
from fledge.core.policy import Refusal, refuse_send
from fledge.core.route import ANNOUNCED, APART
from fledge.core.run import (
    Asking,
    AwaitingApproval,
    Ending,
    Instant,
    Queued,
    Retry,
    Run,
    Running,
    Waiting,
)
from fledge.core.value import Value
from fledge.errors import BadInput

ExchangeKind = Literal["tell", "ask", "talk"]

MAX_HOPS: Final = 20
"""How many messages may follow from one, in all."""
REPLY_CHARS: Final = 30_000
"""The most of an answer that is kept for its sender, and passed on in a talk."""
_PLAN_ANSWER: Final = re.compile(
    r"\s*(approved?|reject(?:ed)?)(?=[\s:,.!–]|\Z)"  # the word, and how it ends
    r"[:,.!–]*(?:[^\S\n]+[:,.!–—-]+(?=\s|\Z))?\s*(.*)",  # a sign that stands apart on the same line is no word
    re.DOTALL | re.IGNORECASE,
)


# ---- stages: where an exchange is ------------------------------------------------------------------------------------


class Asked(Value, tag="asked"):
    """The message waits for the target's answer."""


class Talking(Value, tag="talking"):
    """The two take turns; so many have been taken."""

    turns: int


class Closing(Value, tag="closing"):
    """The target may say something in its own conversation, or nothing."""


class Over(Value, tag="over"):
    """The exchange has ended."""

    why: str


ExchangeStage = Asked | Talking | Closing | Over


class Exchange(Value, kw_only=True, omit_defaults=True):
    """One message, with all that followed from it."""

    id: str
    """The call's place, or any other name that a repetition has again."""
    root: str
    """The id of the exchange that all this began with."""
    requester: str
    target: str
    kind: ExchangeKind
    row: str
    """The inbox row of the message that waits to be answered."""
    path: tuple[str, ...]
    """The sessions that messages went through, from the sender of the root's first one on."""
    inherited: int = 1
    """How much of the path was there before."""
    stage: ExchangeStage = Asked()
    max_turns: int = 0
    until_at: Instant | None = None
    """Until when the sender waits for the first answer; None if it does not."""
    reply: str | None = None
    """The first answer."""

    @property
    def speaker(self) -> str | None:
        """The session whose answer is awaited; None once the exchange is over."""
        match self.stage:
            case Over():
                return None
            case Talking(turns=turns) if turns % 2 == 0:
                return self.requester
            case _:
                return self.target

    @property
    def hops(self) -> int:
        """How many messages have been sent for it."""
        return len(self.path) - self.inherited

    @property
    def origin(self) -> str:
        """The origin of its messages; empty if they may share a turn with others."""
        if self.kind != "talk":
            return ""
        return f"{APART}{self.id}{ANNOUNCED if isinstance(self.stage, Closing) else ''}"


def kind_of(run: Run | None, own: bool, waits: bool) -> ExchangeKind:
    """The kind of a message to this session; `run` is the session's, if it is a child, `own` if it is the sender's
    child.

    A live run reads it with its work and reports to its requester, so there is nothing to wait for; one that waits for
    its children takes a turn for it. A conversation, or another session's child that has ended, talks back.
    """
    if run is not None and run.ended is None:
        return "ask" if waits and _takes_a_turn(run) else "tell"
    if own:
        return "ask" if waits else "tell"
    return "talk"


def _takes_a_turn(run: Run) -> bool:
    match run.phase:
        case Waiting():
            return True
        case Queued(serving=serving) | Running(serving=serving):
            return serving is not None
        case _:
            return False


# ---- what follows ----------------------------------------------------------------------------------------------------


class Move(Value):
    """The exchange afterwards, and the words of the next message, if there is one."""

    exchange: Exchange
    say: str = ""


def answered(exchange: Exchange, reply: str, made: int) -> Move:
    """The next move of an exchange after a reply; `made` counts the messages under its root so far. Where a rule ends
    the talk, it is over and says why."""
    words = reply[:REPLY_CHARS]
    stage = exchange.stage
    if isinstance(stage, Over):
        return Move(exchange)
    if isinstance(stage, Closing):
        return Move(_over(exchange, "announced" if classify_reply(words) == "text" else "silent"))
    turns = 0
    if isinstance(stage, Talking):
        turns = stage.turns + 1
    else:
        exchange = replace(exchange, reply=words)
    if exchange.kind != "talk" or classify_reply(words) in ("empty", "silent"):
        return Move(_over(exchange, "answered"))
    goes_on = talks_on(exchange.max_turns, turns, words, exchange.requester == exchange.target)
    refusal = refuse_hop(exchange, made)
    if refusal is not None:
        return Move(_over(exchange, refusal.reason))
    moved = replace(exchange, stage=Talking(turns) if goes_on else Closing())
    moved = replace(moved, path=(*exchange.path, moved.speaker or ""))
    return Move(moved, _talk_words(moved, words, turns + 1) if goes_on else _CLOSING_WORDS)


def dropped(exchange: Exchange, why: str) -> Exchange:
    """The exchange after its message will not be answered: it is over, for this reason."""
    return exchange if isinstance(exchange.stage, Over) else _over(exchange, why)


def _over(exchange: Exchange, why: str) -> Exchange:
    return replace(exchange, stage=Over(why))


def refuse_hop(exchange: Exchange, made: int) -> Refusal | None:
    """None if one more message may be sent after the `made` ones under the same root."""
    if made < MAX_HOPS:
        return None
    last = " -> ".join(exchange.path[-3:])
    return Refusal("forbidden", f"hops {made} of {MAX_HOPS} (… {last}): fixed limit of messages that come of one")


# ---- words -----------------------------------------------------------------------------------------------------------

_CLOSING_WORDS: Final = (
    "[Agent to agent] The exchange is over. If your own user should hear of it, say so now in one or two sentences;"
    f" else reply {ANNOUNCE_SKIP} alone."
)


def first_words(exchange: Exchange, message: str) -> str:
    """The first message as its target reads it: in a talk it says who speaks and where the answer goes."""
    if exchange.kind != "talk":
        return message
    answer = "Your final text is sent back to it as your answer." if exchange.until_at or exchange.max_turns else ""
    return _framed(exchange.requester, message, answer)


def _talk_words(exchange: Exchange, reply: str, turn: int) -> str:
    other = exchange.target if exchange.speaker == exchange.requester else exchange.requester
    return _framed(
        other,
        reply,
        f"This is turn {turn} of at most {exchange.max_turns}. Your final text is sent back to it, not to your user. "
        f"Reply {REPLY_SKIP} alone to end the exchange.",
    )


def _framed(speaker: str, words: str, instruction: str) -> str:
    # Every line of the other's words is quoted, so none of them can pass for ours.
    quoted = [f"> {line}" for line in guarded(words).splitlines()]
    head = f"[Agent to agent] {speaker} says (it is another agent, not your user):"
    return "\n".join([head, *quoted, *([instruction] if instruction else [])])


# ---- how a message is read -------------------------------------------------------------------------------------------

IN_A_TURN: Final = "it is read in a turn of its own"
AWAITS_ANSWER: Final = (
    "it waits for an answer to its plan, and this was none: your message is kept and read once it has one. Its"
    " requester, its controller or a person approves with a message that begins with APPROVED, and rejects with one"
    " that begins with REJECTED and says why"
)
_ANNOUNCED: Final = "; the result is announced as usual"


def how_answered(run: Run) -> str:
    """The result of a message that answered the plan of this run."""
    return f"the plan is {'approved' if run.plan == 'approved' else 'rejected'}"


def how_read(run: Run | None) -> str:
    """How a message is read that was just sent, for its sender; `run` is that of the session, if it is a child.

    Total over the phases: of a run that takes no message it says so.
    """
    if run is None:
        return IN_A_TURN
    refusal = refuse_send(run, run.key)
    if refusal is not None:
        return refusal.reason
    match run.phase:
        case AwaitingApproval():
            return AWAITS_ANSWER
        case Queued(retry=Retry(reason=reason)):
            return f"the run pauses ({reason}) and reads it when it goes on{_ANNOUNCED}"
        case Waiting() | Queued(serving=Waiting()):
            return f"{IN_A_TURN}, while the run waits for its subagents{_ANNOUNCED}"
        case Queued():
            return f"the run waits for a slot and reads it then{_ANNOUNCED}"
        case Running():
            return f"it is read at the next step{_ANNOUNCED}"
        case Asking():
            return f"the run waits for a person to allow a tool call, and reads it after that{_ANNOUNCED}"
        case Ending():
            return "the last step of the run failed: it is read if the run recovers, else in a turn of its own"
        case _:
            return IN_A_TURN


# ---- answers to plans ------------------------------------------------------------------------------------------------


class PlanAnswer(Value):
    """An answer to a plan."""

    approves: bool
    reason: str


def plan_words(approves: bool, reason: str) -> str:
    """The message that answers a plan; the reason may be that message itself. Refused: a rejection that does not say
    why."""
    head, why = "APPROVED" if approves else "REJECTED", reason.strip()
    if why == head or why.startswith(f"{head}:"):
        why = why[len(head) + 1 :].strip()
    if not approves and not why:
        raise BadInput("message", "must say why the plan is rejected")
    return f"{head}: {why or 'proceed'}"


def plan_answer(message: str) -> PlanAnswer | None:
    """The answer to a plan that a message is; None if it is an ordinary one.

    The first word decides: approve, approved, reject or rejected, in any case, that ends there, at a blank or at one of
    `: , . ! –`. The other words are the reason.
    """
    found = _PLAN_ANSWER.fullmatch(message)
    return None if found is None else PlanAnswer(found[1][0] in "aA", found[2].rstrip())
