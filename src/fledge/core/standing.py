"""How runs and sessions stand, for people: which limits hold for a run and which rule made them smaller, what time
alone does to it next, and how a session stands.

Nothing here reads rows, so a program that only shows these values imports no store.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from fledge.core.freeze import one_line
from fledge.core.keys import ListKind
from fledge.core.policy import Budget
from fledge.core.run import (
    AnnounceDeferred,
    Announcing,
    Archived,
    Asking,
    AwaitingApproval,
    CleanupPending,
    Completed,
    CompletedGiveup,
    Ending,
    Instant,
    Phase,
    Queued,
    Run,
    Running,
    Spawning,
    Waiting,
)
from fledge.core.value import NamedValue, Value

# ---- a run -----------------------------------------------------------------------------------------------------------

CEILINGS: Final = ("tokens", "usd", "turns", "seconds")


class Limit(Value, kw_only=True):
    """A limit of a run: the value asked for, the value that holds, and the rule that set it where they differ."""

    name: str
    """timeoutSeconds, or a ceiling of the budget: tokens, usd, turns, seconds."""
    asked: float | None = None
    """None: nothing was asked for."""
    applied: float | None = None
    """None: there is no limit."""
    rule: str = ""
    """The setting, or whose budget; empty: it is the value asked for."""
    is_cut: bool = False
    """More was asked for than holds."""


class Above(Value, kw_only=True):
    """A budget above the run, the nearest first."""

    name: str
    budget: Budget


def limits(
    asked: Mapping[str, Any], agent: str, timeout_s: float, budget: Budget | None, above: Sequence[Above]
) -> tuple[Limit, ...]:
    """The limits of a run that was spawned with these parameters."""
    given = asked.get("runTimeoutSeconds", asked.get("timeoutSeconds"))
    wanted = asked.get("budget") or {}
    timeout = _limit("timeoutSeconds", given or None, timeout_s or None, f"subagents.runTimeoutSeconds of {agent}")
    found = [timeout]
    for name in CEILINGS:
        own = getattr(budget or Budget(), name)
        rule = _rule_above(name, own, above) or f"subagents.budget of {agent}"
        found.append(_limit(name, wanted.get(name), own, rule))
    return tuple(one for one in found if (one.asked, one.applied) != (None, None))


def _limit(name: str, asked: float | None, applied: float | None, rule: str) -> Limit:
    cut = asked is not None and applied is not None and applied < asked
    from_rule = cut or (asked is None and applied is not None)
    return Limit(name=name, asked=asked, applied=applied, rule=rule if from_rule else "", is_cut=cut)


def _rule_above(name: str, own: float | None, above: Sequence[Above]) -> str:
    """The nearest budget above the run that is no larger than its own."""
    for one in above:
        ceiling = getattr(one.budget, name)
        if own is not None and ceiling is not None and ceiling <= own:
            return f"the budget of {one.name}"
    return ""


class NextDue(Value, kw_only=True):
    """The next change of a run that needs no event but time."""

    at: Instant
    what: str


_DUE: Final[dict[type[Phase], str]] = {
    Spawning: "its preparation is given up",
    Queued: "it has waited too long for a slot: it ends",
    Running: "it is reported as stuck if it has not finished a step",
    Waiting: "it is woken, whatever its children do",
    Asking: "the question expires: the call is not run",
    Ending: "its end is decided",
    Announcing: "its result is given up: its requester has not read it",
    AnnounceDeferred: "the delivery is tried again",
    AwaitingApproval: "the plan expires",
    CleanupPending: "it is cleaned up",
    Completed: "it is archived",
    CompletedGiveup: "it is taken off the undelivered list",
    Archived: "its session or its timeline is removed",
}


def next_due(run: Run) -> NextDue | None:
    """When time changes the run next, and how; None if only events can."""
    phase, at = run.phase, run.due_at
    if isinstance(phase, Queued) and phase.retry is not None and (at is None or phase.retry.at < at):
        return NextDue(at=phase.retry.at, what="the model is asked again")
    if at is None:
        return None
    is_deadline = at == run.deadline_at and at != phase.due_at
    return NextDue(at=at, what="its time is up: it ends" if is_deadline else _DUE[type(phase)])


# ---- a session -------------------------------------------------------------------------------------------------------

State = Literal["idle", "working", "queued", "waiting", "deleted"]
FAILING_CHARS: Final = 300


class UnansweredTurn(Value, kw_only=True):
    """A turn that has read something and could not answer it for half an hour; it is still being tried."""

    session: str
    turn: int
    since_at: Instant
    tries: int
    rows: tuple[str, ...]
    """Keys of the rows that it has read."""

    def words(self, now: Instant) -> str:
        """For how long, and how often an answer was tried."""
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return f"unanswered for {(now - self.since_at) / 60:.0f} min, tried {times}"


class FailingTurn(NamedValue):
    """A turn whose newest try has failed; it is tried again."""

    tries: int
    reason: str
    next_at: Instant | None
    """When it is tried again; None: now."""
    ends_at: Instant | None
    """When it is given up, if it still fails; None: no model could answer, and it is waited for."""

    def words(self, now: Instant) -> str:
        """How often it failed and why, and when it is tried again."""
        times = "once" if self.tries == 1 else f"{self.tries} times"
        again = "tried again now" if self.next_at is None else f"tried again in {max(0.0, self.next_at - now):.0f} s"
        ends = "" if self.ends_at is None else f", given up in {max(0.0, self.ends_at - now):.0f} s"
        return f"failed {times}: {one_line(self.reason, FAILING_CHARS)}; {again}{ends}"


class StatusView(Value, rename="camel", omit_defaults=True):
    """How one session stands, read back from what was executed."""

    session_key: str
    agent_id: str
    kind: ListKind
    state: State
    label: str = ""
    run_id: str = ""
    run_status: str = ""
    started_at: int | None = None
    """When its run first worked, in milliseconds since the epoch; with the next two, as in a list of sessions."""
    ended_at: int | None = None
    runtime_ms: int | None = None
    model: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    """Input that the provider's cache served or stored; it is not among `tokens_in`."""
    cost_usd: float | None = None
    context_tokens: int | None = None
    """Tokens of the model's window that the last request filled."""
    queue_mode: str = ""
    """How completions reach it while it is busy."""
    people_mode: str = ""
    """How messages of people reach it while it is busy."""
    unread: int = 0
    children_active: int = 0
    children_done: int = 0
    questions: int = 0
    """Calls that wait for a person's approval."""
    waits_for: str = ""
    """How many of its children it waits for after a yield, in words."""
    waits_until: int | None = None
    """When that wait ends in any case, in milliseconds since the epoch."""
    note: str = ""
    """The fault of the last reply: that the token limit cut it."""
    unanswered: str = ""
    """For how long something that it has read is unanswered; empty if nothing is, for half an hour."""
    failing: str = ""
    """Why its turn fails, how often it did, and when it is tried again; empty if it does not."""
