"""How a conversation takes its turns: the one function that changes them.

A session whose words are no run's work has turns: a conversation, or a child after its run's end. Its state is one
value, `Turn`: nothing to do, due, driven, or asking a person; and beside that, whether it waits for its children. The
attempts of a live run are moved by `lifecycle`.

`transition_turn(turn, event, facts)` says what comes of an event, or raises `IllegalTurn` where only a bug of ours
could have produced it. It knows no clock and no store. Read it from the top: the value, what can happen, then one case
for each event. Whenever no turn is open, `_rest` alone says what the session does next. The docstrings of the states
answer four questions: what the state means, what ends it, what a crash leaves, how long it is kept; `docs/turns.md` is
generated from them.
"""

from typing import ClassVar, Literal, assert_never

from msgspec.structs import replace

from fledge.core import policy
from fledge.core.effects import FreeDriver, Owes, SupersedeDriver
from fledge.core.heartbeat import Cause
from fledge.core.progress import Progress
from fledge.core.reconcile import STOP_S
from fledge.core.route import RouteSource
from fledge.core.run import Instant
from fledge.core.value import Value
from fledge.errors import FledgeError

# ---- the value -------------------------------------------------------------------------------------------------------

EndKind = Literal[
    "replied",
    "forwarded",
    "no-answer",
    "yielded",
    "nothing",
    "over",
    "interrupted",
    "stopped",
    "timeout",
    "failed",
    "crashed",
    "dropped",
    "void",
]
"""How a turn, or a request to one, came out.

It answered; it forwarded the completions that it read; it had no words; it waits, and answers later; it had nothing to
do; the attempt that it was is over, and its run says how; a steer or the end of its run cut it off; a person stopped
it; its time ran out; a limit or an error ended it; it crashed too often. And of a message that no turn has read: newer
ones took its place; it was withdrawn.
"""


class TurnEnd(Value, omit_defaults=True):
    """How a turn ended."""

    kind: EndKind
    words: str = ""
    """Of some kinds, the reason."""

    @property
    def description(self) -> str:
        """The end in words for people."""
        return self.words or self.kind


REPLIED, FORWARDED, YIELDED, OVER = TurnEnd("replied"), TurnEnd("forwarded"), TurnEnd("yielded"), TurnEnd("over")


class FailedTry(Value):
    """The newest try of an open turn, if it failed and no step was committed since."""

    reason: str
    ends_at: Instant | None
    """When the turn is given up, if it still fails for reasons that are not the model's. None: no model could answer,
    which is waited out."""


class OpenTurn(Value, omit_defaults=True):
    """An open turn: how much it has read, and how it fares. Attempts have one too."""

    session: str
    turn: int
    generations: dict[str, int]
    """Generations of the session and its ancestors when it opened."""
    drained: int
    failures: int
    """Drives in a row that ended without a reply."""
    crashes: int
    opened_at: Instant
    told_bytes: int = 0
    """How many bytes of whole completions it has read."""
    origin: str = ""
    """Where the words it answers came from."""
    heartbeat: Cause | Literal[""] = ""
    """Heartbeat cause; empty for a normal turn."""
    by_person: bool = False
    """Its first row is a message of a person or a program, not of another session."""
    opened_after: int = 0
    """The newest entry when it opened: its own entries come behind that."""
    route: RouteSource = "fallback"
    """How its origin was found."""
    progress: Progress = Progress()
    """Its steps so far."""
    wakes: int = 0
    """How many waits in a row, without a message in between, ended with this turn."""
    failed: FailedTry | None = None


class Wait(Value, omit_defaults=True):
    """Means: the conversation has yielded, and waits for its children. Until the wait is over no turn reads a
    completion; a turn that opens meanwhile answers a message and leaves the wait as it is.
    Ends by: its condition (all children settled, or `until_settled` of them) or its time, whichever comes first: the
    next turn begins by saying so. A stop drops it; another yield takes its place.
    After a crash: stays; condition and time are in the row.
    Kept: until the turn that says that it is over has opened.
    """

    until_settled: int | None
    """Over as soon as this many children have settled; None waits for all. All settled always ends it."""
    due_at: Instant | None = None
    """When it is over in any case."""
    asked: str = "all"
    """The condition as it was asked for, for people."""
    origin: str = ""
    """Where the words came from that are answered once it is over."""
    wakes: int = 0
    """How many waits in a row, without a message in between, came before it."""
    over: Literal["", "settled", "past"] = ""
    """Why it is over: its condition holds, or its time has passed. The next turn begins by saying so."""


class Idle(Value):
    """Means: no turn is open, and none is due.
    Ends by: a message; a completion, unless it waits; a heartbeat; the end of its wait.
    After a crash: stays.
    Kept: until there is something to do.
    """

    open: ClassVar[OpenTurn | None] = None


class Due(Value):
    """Means: a driver may claim it: to open a turn, or to go on with the open one.
    Ends by: claimed, not before `from_at`; stop; without an open turn also when all that it was due for is taken back.
    After a crash: claimed again.
    Kept: until claimed. A message ends the pause before the next try.
    """

    from_at: Instant | None = None
    """Not before this time; None: at once."""
    open: OpenTurn | None = None


class Driven(Value):
    """Means: a driver has the lease and a slot, and works on the open turn.
    Ends by: a reply; a yield; a limit or an error; a question to a person; stop; the time of a request; the end of the
    driver.
    After a crash: due at once, resumed from the transcript under a new epoch; the third crash without a committed step
    in between closes the turn with a notice.
    Kept: as long as it works.
    """

    open: OpenTurn


class AskingPerson(Value):
    """Means: the open turn waits, without a driver and a slot, for a person's answers.
    Ends by: every question answered; the first one expired; stop. A message changes nothing: it is read afterwards.
    After a crash: stays; questions and answers are rows.
    Kept: until the first question expires.
    """

    due_at: Instant
    """When the first question expires."""
    open: OpenTurn


class Turn(Value):
    """The state of a session that takes turns."""

    at: Idle | Due | Driven | AskingPerson = Idle()
    wait: Wait | None = None

    @property
    def open(self) -> OpenTurn | None:
        """The open turn, if there is one."""
        return self.at.open


# ---- what can happen -------------------------------------------------------------------------------------------------


class Arrived(Value):
    """A row was put into the inbox."""

    quiet: bool = False
    """It waits for a heartbeat, because no caller expects an answer to it."""
    hurries: bool = False
    """It is a message: an open turn that waits for its next try has it now."""


class RowsLeft(Value):
    """The run of the session has ended: rows that it has not read have their turn now."""


class Looked(Value):
    """The reasons for a turn, or for waiting, may have changed: children settled, a row was taken back, a heartbeat is
    due."""


class WaitPassed(Value):
    """The time of the wait has passed."""


class TurnClaimed(Value):
    """A driver has claimed the session."""

    opens: OpenTurn
    """The turn that opens, where none is open."""


class TurnProgressed(Value):
    """The driver has committed a step."""


class TurnAsked(Value):
    """Nothing is left to do but to wait for a person's answers."""

    due_at: Instant


class TurnAnswered(Value):
    """Every question is answered."""


class TurnOver(Value):
    """The driver has ended the turn."""

    end: TurnEnd


class TurnYielded(Value):
    """The turn ends, and waits. The turn that the end of the wait opens answers the rows that it has read."""

    wait: Wait


class TurnFailed(Value):
    """A try has failed. It is tried again after `after_s`, until its patience is over."""

    reason: str
    after_s: float
    patience_s: float | None = None
    """For how long such failures are tried again; None: always, because no model could answer."""


class TurnLost(Value):
    """The driver is gone without a word."""

    step_open: bool
    """It crashed in the middle of a step."""


class TurnStopped(Value):
    """A person has stopped the session, or the time of a request is over."""

    end: TurnEnd
    keeps_wait: bool = False


TurnInput = (
    Arrived
    | RowsLeft
    | Looked
    | WaitPassed
    | TurnClaimed
    | TurnProgressed
    | TurnAsked
    | TurnAnswered
    | TurnOver
    | TurnYielded
    | TurnFailed
    | TurnLost
    | TurnStopped
)


class TurnFacts(Value, kw_only=True):
    """Facts about the session's children and inbox that a decision needs."""

    at: Instant
    unsettled: int = 0
    settled: int = 0
    rows_at: Instant | None = None
    """When a turn may begin for unread rows; None: there are none, or only quiet ones."""
    messages_at: Instant | None = None
    """When a turn may begin for unread messages; None: there are none."""
    quiet: bool = False
    """There are unread rows, and all of them are quiet."""
    wish: bool = False
    """A heartbeat wants its turn now."""


# ---- what is asked of the world --------------------------------------------------------------------------------------


class CloseTurn(Value):
    """The open turn is over with this end; so are the requests that were read and are not owed any longer."""

    end: TurnEnd
    owes: Owes


class CutCalls(Value):
    """Answer the open tool calls of the turn with this reason, and withdraw the spawns that they had begun."""

    reason: str


class PostWake(Value):
    """Tell the turn that opens that its wait is over, and why."""

    wait: Wait


class WishHeartbeat(Value):
    """Unread rows ask for a heartbeat's turn."""


class TellCrashed(Value):
    """Tell people, and the conversation unless it was a heartbeat's turn, that the turn was given up."""

    crashes: int
    turn: OpenTurn


class TellFailing(Value):
    """The turn begins to fail, or fails for another reason."""

    reason: str


class TellGivenUp(Value):
    """The turn is given up for this reason: post the completions that it read, as after a turn without words, and tell
    people and the conversation."""

    reason: str
    turn: OpenTurn


TurnEffect = (
    FreeDriver
    | SupersedeDriver
    | CloseTurn
    | CutCalls
    | PostWake
    | WishHeartbeat
    | TellCrashed
    | TellFailing
    | TellGivenUp
)


class TurnStep(Value):
    """A decision: the new state of the session, and its effects."""

    turn: Turn
    effects: tuple[TurnEffect, ...] = ()


class IllegalTurn(FledgeError):
    """An event that cannot happen to a turn in this state: a bug of ours."""

    def __init__(self, turn: Turn, event: TurnInput) -> None:
        super().__init__(f"{type(event).__name__} while {type(turn.at).__name__}")


# ---- the function ----------------------------------------------------------------------------------------------------


def transition_turn(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    """The state of the session after the event, and the effects of that."""
    match event:
        case Arrived():
            return _arrived(turn, event, facts)
        case RowsLeft() | Looked():
            wishes = isinstance(event, RowsLeft)
            return TurnStep(turn) if turn.open is not None else _rest(turn, facts, wishes=wishes)
        case WaitPassed():
            return _wait_passed(turn, facts)
        case TurnClaimed():
            return _claimed(turn, event, facts)
        case TurnAnswered():
            match turn.at:
                case AskingPerson(open=opened) | Due(open=OpenTurn() as opened):
                    return TurnStep(replace(turn, at=Due(None, opened)))
                case _:
                    return TurnStep(turn)
        case TurnStopped():
            return _stopped(turn, event, facts)
        case _:
            return _driven(turn, event, facts)


def _arrived(turn: Turn, event: Arrived, facts: TurnFacts) -> TurnStep:
    opened = turn.at.open
    if opened is None:
        wishes = event.quiet and turn.wait is None
        return TurnStep(turn, (WishHeartbeat(),)) if wishes else _rest(turn, facts)
    if event.hurries and isinstance(turn.at, Due):
        return TurnStep(replace(turn, at=Due(None, opened)))
    return TurnStep(turn)


def _wait_passed(turn: Turn, facts: TurnFacts) -> TurnStep:
    wait = turn.wait
    if wait is None or wait.over or wait.due_at is None or facts.at < wait.due_at:
        return TurnStep(turn)
    turn = replace(turn, wait=replace(wait, over="past"))
    return TurnStep(turn) if turn.open is not None else _rest(turn, facts)


def _claimed(turn: Turn, event: TurnClaimed, facts: TurnFacts) -> TurnStep:
    match turn.at:
        case Due(open=OpenTurn() as opened) | AskingPerson(open=opened):
            return TurnStep(replace(turn, at=Driven(opened)))
        case Due():
            return _opened(turn, event.opens, facts)
        case _:
            raise IllegalTurn(turn, event)


def _opened(turn: Turn, opens: OpenTurn, facts: TurnFacts) -> TurnStep:
    wait = turn.wait
    if wait is not None and wait.over:
        return TurnStep(Turn(Driven(replace(opens, wakes=wait.wakes + 1))), (PostWake(wait),))
    reads = facts.messages_at if wait is not None else facts.rows_at
    if reads is None and (wait is not None or not (facts.wish or facts.quiet)):
        return TurnStep(Turn(Idle(), wait), (FreeDriver(),))
    return TurnStep(Turn(Driven(opens), wait))


def _stopped(turn: Turn, event: TurnStopped, facts: TurnFacts) -> TurnStep:
    wait = turn.wait if event.keeps_wait else None
    close = CloseTurn(event.end, "nothing" if wait is None else "earlier")
    if turn.open is None:
        return _rest(Turn(turn.at, wait), facts, close, wishes=True)
    cut = (CutCalls(event.end.description), close, SupersedeDriver(facts.at + STOP_S))
    return _rest(Turn(Idle(), wait), facts, *cut, wishes=True, paced=True)


def _driven(
    turn: Turn,
    event: TurnProgressed | TurnAsked | TurnOver | TurnYielded | TurnFailed | TurnLost,
    facts: TurnFacts,
) -> TurnStep:
    """Events of the driver: a step, a question, an end, a failure, a loss."""
    if not isinstance(turn.at, Driven):
        raise IllegalTurn(turn, event)
    opened, wait = turn.at.open, turn.wait
    match event:
        case TurnProgressed():
            return TurnStep(replace(turn, at=Driven(replace(opened, crashes=0, failed=None))))
        case TurnAsked(due_at=due_at):
            return TurnStep(replace(turn, at=AskingPerson(due_at, opened)), (FreeDriver(),))
        case TurnOver(end=end):
            return _over(wait, facts, CloseTurn(end, "nothing" if wait is None else "earlier"), FreeDriver())
        case TurnYielded(wait=after):
            return _over(after, facts, CloseTurn(YIELDED, "all"), FreeDriver())
        case TurnFailed():
            return _failed(turn, opened, event, facts)
        case TurnLost(step_open=step_open):
            return _lost(turn, opened, step_open, facts)
        case _:
            assert_never(event)


def _failed(turn: Turn, opened: OpenTurn, event: TurnFailed, facts: TurnFacts) -> TurnStep:
    """The turn is tried again. What is not the model's is given up when its patience is over, at a last try then."""
    before, ends_at, next_at = opened.failed, None, facts.at + event.after_s
    if event.patience_s is not None:
        ends_at = facts.at + event.patience_s if before is None or before.ends_at is None else before.ends_at
        if facts.at >= ends_at:
            told = TellGivenUp(event.reason, opened)
            close = CloseTurn(TurnEnd("failed", event.reason), "nothing" if turn.wait is None else "earlier")
            return _over(turn.wait, facts, CutCalls(event.reason), told, close, FreeDriver())
        next_at = min(next_at, ends_at)
    failed = FailedTry(event.reason, ends_at)
    # A provider's words differ from try to try: its trouble is told once.
    is_known = before is not None and (before == failed or before.ends_at is ends_at is None)
    opened = replace(opened, failures=opened.failures + 1, crashes=0, failed=failed)
    effects = (FreeDriver(),) if is_known else (FreeDriver(), TellFailing(event.reason))
    return TurnStep(replace(turn, at=Due(next_at, opened)), effects)


def _lost(turn: Turn, opened: OpenTurn, step_open: bool, facts: TurnFacts) -> TurnStep:
    """The turn is driven again. After three crashes in the same step it is closed with its open calls: the next turn
    must not make them again."""
    crashes = policy.crashes_after(opened.crashes, step_open)
    gone = SupersedeDriver(facts.at)
    if crashes < policy.MAX_CRASHES:
        return TurnStep(replace(turn, at=Due(None, replace(opened, crashes=crashes))), (gone,))
    end = TurnEnd("crashed", f"crashed {crashes} times")
    close = CloseTurn(end, "nothing" if turn.wait is None else "earlier")
    return _over(turn.wait, facts, CutCalls(end.words), close, gone, TellCrashed(crashes, opened))


def _over(wait: Wait | None, facts: TurnFacts, *effects: TurnEffect) -> TurnStep:
    return _rest(Turn(Idle(), wait), facts, *effects, wishes=True, paced=True)


def _rest(turn: Turn, facts: TurnFacts, *effects: TurnEffect, wishes: bool = False, paced: bool = False) -> TurnStep:
    """The next state of a session without an open turn, in this order: end its wait, read rows that are not
    quiet, have a heartbeat, nothing. The wait comes first: else each message would postpone it.

    `wishes`: rows for a heartbeat may not have asked for one. `paced`: a turn was open until now, so unread rows may
    have to be collected.
    """
    at, wait = turn.at, turn.wait
    if wait is not None and not wait.over and policy.holds(wait.until_settled, facts.unsettled, facts.settled):
        wait = replace(wait, over="settled")
    if wait is not None and wait.over:
        return TurnStep(Turn(Due(), wait), effects)
    reads_at = facts.rows_at if wait is None else facts.messages_at
    if reads_at is not None:
        if not paced and not (isinstance(at, Due) and at.from_at is not None):
            reads_at = facts.at  # an idle session begins at once, and later rows do not delay it
        return TurnStep(Turn(Due(reads_at if reads_at > facts.at else None), wait), effects)
    if wait is None and facts.wish:
        return TurnStep(Turn(Due()), effects)
    if wait is None and facts.quiet and wishes:
        effects += (WishHeartbeat(),)
    return TurnStep(Turn(Idle(), wait), effects)
