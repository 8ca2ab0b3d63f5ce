"""Events of a run. An event carries everything its decision needs: the time, new ids, limits, and the facts of
other rows that were true in the commit that records it (children `unsettled` and `settled`, `unread` completions,
`messages`: unread sends). So a run is the fold of its events, and replaying needs nothing else.

Names are in the past tense. *Signals* bear on whether an attempt is over; `reconcile` judges them.
"""

from typing import Literal, get_args

from fledge.core.run import Ended, Instant, Path, Terms, TextId, WaitsFor
from fledge.core.value import Value

Said = Literal["text", "empty", "silent", "skip"]
"""The meaning of a whole reply: words, nothing, `NO_REPLY`, `ANNOUNCE_SKIP`."""
RowKind = Literal["outcome", "plan", "expired", "late"]
"""The kinds of completion rows."""
YieldCondition = Literal["all", "any"] | int
"""The condition of a yield."""


# ---- ends: what an executor says when an attempt is over -------------------------------------------------------------


class Finished(Value, tag="finished", omit_defaults=True):
    """A final reply was committed. `cut`: the token limit cut it, and its rest too."""

    said: Said
    text: TextId | None = None
    cut: bool = False


class Errored(Value, tag="errored"):
    """It cannot go on. A spent budget and a limit (of steps, of patience) hand over partial work; a spent budget also
    stops everything below."""

    error: str
    cause: Literal["error", "budget", "limit"] = "error"
    partial: TextId | None = None


class RanOut(Value, tag="ran_out"):
    """The executor itself enforced a time limit."""

    partial: TextId | None = None


End = Finished | Errored | RanOut


# ---- events ----------------------------------------------------------------------------------------------------------


class _Event(Value, kw_only=True, tag=True, omit_defaults=True):
    at: Instant


class Admitted(_Event, kw_only=True):
    """All checks passed and its place is reserved: the run's birth."""

    key: str
    terms: Terms
    run_id: str
    owner: str = ""
    """The engine that prepares it, where several share the store."""


class Prepared(_Event):
    """Session, attachments and binding are in place; only now is `accepted` answered."""


class Imported(_Event, kw_only=True):
    """It was lived in another system and is over: history, of which nothing goes on here."""

    ended: Ended


class Withdrawn(_Event, kw_only=True):
    """The reservation failed, or the call that asked for it was closed."""

    reason: str


class Claimed(_Event, kw_only=True):
    """A driver took the session's lease and a slot in its lane."""

    epoch: int


class _Signal(_Event, kw_only=True, omit_defaults=True):
    attempt: int
    next_run_id: str
    """The id of the attempt that follows, should one follow at once."""
    unsettled: int = 0
    settled: int = 0
    unread: int = 0
    messages: int = 0


class AttemptStarted(_Signal):
    """Signal: the executor began, or began again after a provisional error."""


class AttemptEnded(_Signal, kw_only=True):
    """Signal, authoritative: the attempt's committed end."""

    end: End


class AttemptFaltered(_Signal, kw_only=True):
    """Signal, provisional: an error that may be retried, or a foreign runtime's aborted end."""

    error: str
    aborted: bool = False
    cause: Literal["error", "limit"] = "error"
    """`limit`: the run has no patience left with its model."""


class DriverStopped(_Signal):
    """Signal: the driver acknowledged a stop, and is gone."""


class LeaseLost(_Signal, kw_only=True):
    """Signal: the driver is gone without an end: a crash, or a graceful stop (then no step was open)."""

    step_open: bool


class Progressed(_Event):
    """A step was committed after a crash or a pause: crashes and patience count from the start again."""


class Yielded(_Signal, kw_only=True):
    """The turn ended on `sessions_yield`: wait for children under a condition."""

    asked: YieldCondition
    wait_s: float


class PersonAsked(_Event, kw_only=True):
    """Nothing of the turn is left to do but calls that need a person's approval."""

    attempt: int
    due_at: Instant
    """When the first question expires."""


class Paused(_Event, kw_only=True):
    """No model could answer the step, or what only a program can bring is missing: it is tried again later, and nothing
    is held meanwhile."""

    attempt: int
    until_at: Instant
    since_at: Instant
    """When the step first failed."""
    reason: str
    waits_for: WaitsFor = "model"


class ProgramCame(_Event):
    """A process has brought the agent, the functions and the runtime that the run needs of a program."""


class PersonAnswered(_Event):
    """Every question of the turn is answered or has expired."""


class ChildrenSettled(_Event, kw_only=True):
    """Another child has settled, which may end the wait."""

    unsettled: int
    settled: int
    next_run_id: str


class SendArrived(_Event):
    """A message was added to the session's inbox."""


class Steered(_Event, kw_only=True):
    """The controller redirected the run; `text` is what the old attempt had said so far."""

    next_run_id: str
    text: TextId | None = None


class Resumed(_Event, kw_only=True):
    """An ended run was resumed; `text` is what it had said before."""

    next_run_id: str
    unsettled: int
    text: TextId | None = None


class KillOrdered(_Event, kw_only=True):
    """A kill reached this run, by name or from above."""

    named: bool
    driven: bool
    """A driver holds the lease right now."""
    unsettled: int
    partial: TextId | None = None


class PlanApproved(_Event, kw_only=True):
    """The plan was approved."""

    next_run_id: str
    unsettled: int = 0


class PlanRejected(_Event, kw_only=True):
    """The plan was rejected; the reason is in the inbox."""

    next_run_id: str
    unsettled: int = 0


class RowConsumed(_Event, kw_only=True):
    """The requester's transcript has a row of this run."""

    row: RowKind
    path: Path


class RowSuppressed(_Event):
    """The requester was killed with this run's outcome unread."""


class Revived(_Event):
    """The requester was resumed: the result that its kill had suppressed is announced again."""


class RequesterLost(_Event):
    """No session is left, up to main, to which the outcome could be announced."""


class HandedToProgram(_Event):
    """Its requester is gone, and the nearest above is a program, which reads through handles."""


class Retried(_Event, kw_only=True):
    """An undelivered result is to be delivered again."""

    to: str | None = None
    """The session that receives it instead of the run's requester; None: the requester."""


class Dismissed(_Event):
    """An undelivered result was dismissed."""


class Removed(_Event, kw_only=True):
    """A settled run was removed from the lists early."""

    held_by: str | None = None
    """Why it may not be archived yet."""


class CleanedUp(_Event):
    """Hooks, attachments and session deletion are done."""


class CleanupFailed(_Event, kw_only=True):
    """A cleanup step could not be done; it is tried again."""

    error: str


class CameDue(_Event, kw_only=True):
    """The run's due time has passed. The facts are those its phase needs."""

    next_run_id: str
    unsettled: int = 0
    progress_at: Instant | None = None
    """When its driver last committed a step, or until when its tools may take."""
    partial: TextId | None = None
    """Its work so far, as a text, for a timeout."""
    reachable: bool = False
    """A session is there to receive it."""
    paused: bool = False
    """The give-up clock stands still: requester busy, outside active hours, or a descendant lives."""
    held_by: str | None = None
    """Why it may not be archived yet."""


Event = (
    Admitted
    | Prepared
    | Imported
    | Withdrawn
    | Claimed
    | AttemptStarted
    | AttemptEnded
    | AttemptFaltered
    | DriverStopped
    | LeaseLost
    | Yielded
    | Progressed
    | PersonAsked
    | PersonAnswered
    | Paused
    | ProgramCame
    | ChildrenSettled
    | SendArrived
    | Steered
    | Resumed
    | KillOrdered
    | PlanApproved
    | PlanRejected
    | RowConsumed
    | RowSuppressed
    | Revived
    | RequesterLost
    | HandedToProgram
    | Retried
    | Dismissed
    | Removed
    | CleanedUp
    | CleanupFailed
    | CameDue
)

Signal = AttemptStarted | AttemptEnded | AttemptFaltered | DriverStopped | LeaseLost

EVENTS: tuple[type[Event], ...] = get_args(Event)
"""All events, in the order above."""


_WORDS: dict[type[Event], str] = {
    Admitted: "accepted",
    Prepared: "ready to start",
    Imported: "imported",
    Withdrawn: "withdrawn",
    Claimed: "taken up",
    AttemptStarted: "started",
    AttemptFaltered: "failed, may go on",
    DriverStopped: "stopped",
    LeaseLost: "interrupted",
    Yielded: "waits for children",
    Progressed: "got through a step",
    PersonAsked: "asks a person",
    PersonAnswered: "person answered",
    Paused: "paused",
    ProgramCame: "program came",
    ChildrenSettled: "child settled",
    SendArrived: "message came",
    Steered: "steered",
    Resumed: "resumed",
    KillOrdered: "killed",
    PlanApproved: "plan approved",
    PlanRejected: "plan rejected",
    RowSuppressed: "result dropped",
    Revived: "told again",
    RequesterLost: "no one to tell",
    HandedToProgram: "left to a program",
    Retried: "offered again",
    Dismissed: "dismissed",
    Removed: "taken off lists",
    CleanedUp: "cleaned up",
    CleanupFailed: "cleanup failed",
    CameDue: "time was up",
}
_END_WORDS: dict[str, str] = {"error": "failed", "budget": "budget spent", "limit": "limit reached"}
_ROW_WORDS: dict[RowKind, str] = {
    "outcome": "result read",
    "plan": "plan read",
    "expired": "expiry read",
    "late": "late result read",
}


def people_words(event: Event) -> str:
    """The event in words for people, at most 18 characters: for timelines. Programs read the event's name."""
    match event:
        case AttemptEnded(end=Finished()):
            return "finished"
        case AttemptEnded(end=RanOut()):
            return "ran out of time"
        case AttemptEnded(end=Errored(cause=cause)):
            return _END_WORDS[cause]
        case RowConsumed(row=row):
            return _ROW_WORDS[row]
        case _:
            return _WORDS[type(event)]


def reason(event: Event) -> str:
    """Why it happened, in a few words for people; empty where the event says it all."""
    match event:
        case AttemptEnded(end=Errored(error=error)) | AttemptFaltered(error=error) | CleanupFailed(error=error):
            return error
        case Withdrawn(reason=why):
            return why
        case LeaseLost(step_open=step_open):
            return "crash in a step" if step_open else "its process is gone"
        case RowConsumed(path=path):
            return path
        case KillOrdered(named=False):
            return "from above"
        case Paused(at=at, until_at=until_at, reason=why):
            return f"retrying in {until_at - at:.0f} s: {why}"
        case Yielded(asked=asked):
            return f"for {asked}"
        case _:
            return ""
