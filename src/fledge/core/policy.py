"""Limits and patience: admission, refusals, retries, giving up, crashes, retention, budgets, fair lanes.

Each function answers one question from its arguments. A refusal is a value that names the rule, the value and the
setting; nothing here knows where the facts come from or what is done about them.
"""

import math
from collections.abc import Mapping
from operator import add, sub
from typing import Literal, TypeVar

from msgspec.structs import astuple

from fledge.core.events import YieldCondition
from fledge.core.run import (
    RESUMABLE,
    UNREAD,
    Archived,
    Asking,
    AwaitingApproval,
    CleanupPending,
    Ending,
    Grace,
    Instant,
    Killed,
    Outcome,
    Queued,
    Run,
    Running,
    Stopping,
    Waiting,
)
from fledge.core.value import Value
from fledge.errors import Refused

RESERVATION_S = 30.0
"""How long a reservation may be prepared."""
MAX_WAKES = 10
MAX_CRASHES = 3
SUSPECT_AT = 2
"""From this many crashes on, a run or a turn is driven only while no other suspect is."""
YIELD_S = 30 * 60.0
"""A yield that names no deadline."""
NOTHING_TO_WAIT_FOR = "nothing to wait for: none of your subagents is at work, and none of their results is unread"
UNREAD_PROGRAM_S = 30 * 60.0
"""How long a program may leave a result unread before it is given up."""
SWEEP_S = 60.0
STEER_EVERY_S = 2.0
STEER_CHARS = 4000
WARN_SHARE = 0.8
_SETTING = "agents.defaults.subagents"
N = TypeVar("N", int, float)


class Refusal(Value):
    """A rule that forbids it: `forbidden` is policy, `error` is bad input, `done` and `rate_limited` are about now."""

    status: Literal["forbidden", "error", "done", "rate_limited"]
    reason: str


def enforce(refusal: Refusal | None) -> None:
    """Raise a refusal as `Refused`; without one nothing happens."""
    if refusal is not None:
        raise Refused(refusal.status, refusal.reason)


# ---- admission -------------------------------------------------------------------------------------------------------


class Limits(Value):
    """The limits that hold for one spawning session."""

    max_depth: int = 1
    max_children: int = 5
    max_retained: int = 0
    """0 is off."""


class Occupancy(Value):
    """The children and limits of a spawning session, counted in the admitting commit."""

    depth: int
    children: int
    """Unsettled children, plans awaiting approval and reservations."""
    retained: int
    """Settled, active and reserved; archived ones not counted."""
    wakes: int = 0
    budget_spent: bool = False
    is_leaf: bool = False
    """By its role, stored at its own spawn; whatever the settings say now."""


def admit(limits: Limits, now: Occupancy) -> Refusal | None:
    """None if one more child may be reserved; else the first limit that forbids it."""
    if now.depth >= limits.max_depth:
        return Refusal("forbidden", f"depth {now.depth} of {limits.max_depth}: {_SETTING}.maxSpawnDepth")
    if now.is_leaf:
        return Refusal("forbidden", f"depth {now.depth}: it is a leaf and may not spawn: role stored at its own spawn")
    full = refuse_children(limits.max_children, now.children)
    if full is not None:
        return full
    if limits.max_retained and now.retained >= limits.max_retained:
        return Refusal(
            "forbidden",
            f"retained {now.retained} of {limits.max_retained}: {_SETTING}.maxRetained; "
            "free one: sessions_subagent_remove, /subagents remove, fledge remove",
        )
    if now.wakes >= MAX_WAKES:
        return Refusal("forbidden", f"woken {now.wakes} of {MAX_WAKES} times: finish with what you have")
    if now.budget_spent:
        return Refusal("forbidden", f"the tree's budget is spent: {_SETTING}.budget")
    return None


def refuse_children(cap: int, children: int) -> Refusal | None:
    """None if a session with so many active children may have one more."""
    if children < cap:
        return None
    return Refusal("forbidden", f"active children {children} of {cap}: {_SETTING}.maxChildrenPerAgent")


def role_at(depth: int, max_depth: int) -> Literal["orchestrator", "leaf"]:
    """A child at `depth` may spawn only above the deepest level."""
    return "orchestrator" if depth < max_depth else "leaf"


# ---- control ---------------------------------------------------------------------------------------------------------


def refuse_steer(run: Run, name: str, message: str, at: Instant) -> Refusal | None:
    """None if the run may be steered now."""
    if not message.strip():
        return Refusal("error", "message: must not be empty")
    if len(message) > STEER_CHARS:
        return Refusal("error", f"message: {len(message)} characters, at most {STEER_CHARS}")
    if not steerable(run):
        return Refusal("done", f"{name} is {run.phase.name}: nothing to steer")
    if run.steered_at is not None and at - run.steered_at < STEER_EVERY_S:
        return Refusal(
            "rate_limited", f"steered {at - run.steered_at:.1f} s ago: wait {STEER_EVERY_S:.0f} s between steers"
        )
    return None


def steerable(run: Run) -> bool:
    """Live work that can be redirected: waiting, queued, running, or in the grace of a provisional error."""
    match run.phase:
        case Queued() | Running() | Waiting() | Asking() | Ending(cause=Grace()):
            return True
        case _:
            return False


def refuse_send(run: Run, name: str) -> Refusal | None:
    """None if a message may be added; a run that is being prepared or is stopping takes none."""
    match run.phase.name:
        case "spawning" | "gone":
            return Refusal("error", f"{name} is {run.phase.name}: it takes no messages")
        case "archived":
            return Refusal("done", f"{name} is archived: it takes no messages")
        case "ending" if not steerable(run):
            return Refusal("error", f"{name} was killed and is stopping: it takes no messages")
        case _:
            return None


def refuse_answer(run: Run, name: str) -> Refusal | None:
    """None if a plan of this run awaits its answer."""
    if isinstance(run.phase, AwaitingApproval):
        return None
    return Refusal("done", f"{name} is {run.phase.name}: no plan awaits an answer")


def refuse_resume(run: Run, name: str) -> Refusal | None:
    """None if the run was killed, failed or timed out and may go on; else why not, and what to do instead."""
    ended, phase = run.ended, run.phase
    if isinstance(phase, Ending) and isinstance(phase.cause, Stopping):
        return Refusal("error", f"{name} was killed and is stopping: try again in a moment")
    if ended is None:
        instead = "answer its plan" if isinstance(phase, AwaitingApproval) else "steer it, or send it a message"
        return Refusal("done", f"{name} is {phase.name} and has not ended: {instead}")
    if not isinstance(ended.outcome, RESUMABLE):
        return Refusal("done", f"{name} has ended ({ended.outcome.status}): send it a message, or run it again")
    if (lost := _lost_for_resume(run, ended.outcome)) is not None:
        return Refusal("done", f"{name} {lost}")
    if isinstance(phase, UNREAD):
        return Refusal("error", f"{name} has ended, and its result is still unread: try again once it is read")
    if isinstance(phase, CleanupPending):
        return Refusal("error", f"{name} is still being cleaned up: try again in a moment")
    return None


def _lost_for_resume(run: Run, outcome: Outcome) -> str | None:
    """Why an ended run cannot go on, and what to do instead; None if it has everything it needs."""
    if run.terms.cleanup == "delete":
        return "was spawned with cleanup delete, so its transcript is gone: run it again"
    if isinstance(run.phase, Archived):
        return "is archived: run it again"
    if run.terms.mode == "session":
        if isinstance(outcome, Killed):
            return "left its thread when it was killed: run it again"
        return "is still open in its thread: send it a message there"
    if not run.terms.wakeable:
        return "has a runtime that cannot go on where it was stopped: run it again"
    return None


# ---- waiting ---------------------------------------------------------------------------------------------------------


class YieldTerms(Value):
    """The arguments of `sessions_yield`; None: not given."""

    asked: YieldCondition | None = None
    wait_s: float | None = None
    message: str = ""


def judge_yield(
    asked: YieldCondition, wakes: int, unsettled: int, settled: int, unread: int, is_aside: bool = False
) -> Literal["wait", "read"] | Refusal:
    """The result of a yield: the turn ends and waits; or the completions it would wait for are unread, so they are read
    at once and the turn goes on; or there is nothing to wait for, or no wake left to wait with.

    A turn beside a waiting period reads no completions: it ends, and the run is woken.
    """
    if not is_aside and holds(wait_until(asked, unsettled, settled, unread), unsettled, settled):
        return "read" if unread else Refusal("done", NOTHING_TO_WAIT_FOR)
    return refuse_wait(wakes, unsettled) or "wait"


def refuse_wait(wakes: int, unsettled: int) -> Refusal | None:
    """None if a run may wait for its children; from the tenth wake on it must finish."""
    if wakes >= MAX_WAKES and unsettled:
        return Refusal("forbidden", f"woken {wakes} of {MAX_WAKES} times: finish with what you have")
    return None


def wait_until(asked: YieldCondition, unsettled: int, settled: int, unread: int) -> int | None:
    """How many children must be settled for the condition to hold; None waits for all of them.

    `k` counts children settled since the yield plus completions then unread, and is capped at what can still come; so
    with nothing to come it holds at once.
    """
    if asked == "all":
        return None
    wanted = 1 if asked == "any" else asked
    return settled - unread + min(wanted, unsettled + unread)


def holds(until_settled: int | None, unsettled: int, settled: int) -> bool:
    """True when a waiting run may be woken: all have settled, or as many as it waits for."""
    return unsettled == 0 or (until_settled is not None and settled >= until_settled)


# ---- patience --------------------------------------------------------------------------------------------------------


def expiry_s(expects: bool) -> float:
    """How long a delivery may be retried: 30 min for a completion message, 5 min without."""
    return 30 * 60.0 if expects else 5 * 60.0


def retry_s(tries: int) -> float:
    """Seconds until the next try after `tries` of them: 1, 2, 4, 8, 8 …"""
    return doubled_s(1.0, tries - 1, 8.0)


def cleanup_retry_s(tries: int) -> float:
    """Seconds until a failed cleanup is tried again: 1, 2, 4 … at most a minute, for ever."""
    return doubled_s(1.0, tries - 1, 60.0)


def doubled_s(first_s: float, times: int, longest_s: float) -> float:
    """A pause that was doubled so many times."""
    return min(longest_s, first_s * 2.0 ** min(max(0, times), 30))


def gives_up(tries: int, max_retries: int, at: Instant, expires_at: Instant) -> bool:
    """True when a delivery has been tried often or long enough."""
    return tries >= max_retries or at >= expires_at


# ---- crashes ---------------------------------------------------------------------------------------------------------


def crashes_after(crashes: int, step_open: bool) -> int:
    """The count after a lost lease: only an open step adds to it. A committed step has reset it before."""
    return crashes + step_open


def is_suspect(crashes: int) -> bool:
    """True of runs and turns that must be driven one at a time."""
    return crashes >= SUSPECT_AT


# ---- retention -------------------------------------------------------------------------------------------------------


def held_by(rows: int, has_turn: bool, unsettled: int) -> str | None:
    """Why a settled run may not be archived yet; None if it may.

    `rows` are those from it, or in its inbox, that are unread or undelivered; `has_turn`: a send's turn is open or due;
    `unsettled` counts the runs below.
    """
    if rows:
        return f"{rows} unread or undelivered"
    if has_turn:
        return "a message is being answered"
    return f"{unsettled} unsettled below" if unsettled else None


def outlived(
    given_up: bool, waited_s: float, program: bool, undelivered_s: float
) -> Literal["undelivered", "dismissed"] | None:
    """The next state of a row that announces no outcome, once it has waited so long; None: it waits on.

    A conversation reads in its own time; a program has half an hour, and the undelivered list its retention.
    """
    if given_up:
        return "dismissed" if waited_s >= undelivered_s else None
    return "undelivered" if program and waited_s >= UNREAD_PROGRAM_S else None


# ---- budgets ---------------------------------------------------------------------------------------------------------


class Budget(Value, omit_defaults=True):
    """Limits for a run and everything below it; None means no limit. A run ends when it reaches one.

    >>> run = await fl.spawn("Say hello", budget=fledge.Budget(tokens=50_000, usd=0.50))
    >>> (await run).status
    'ok'
    """

    tokens: int | None = None
    usd: float | None = None
    turns: int | None = None
    seconds: float | None = None


class Spent(Value, omit_defaults=True):
    """Used amounts, together with the reservations of open model steps."""

    tokens: int = 0
    usd: float = 0.0
    turns: int = 0
    seconds: float = 0.0

    def plus(self, other: "Spent") -> "Spent":
        """Both together."""
        return Spent(*map(add, astuple(self), astuple(other)))

    def minus(self, other: "Spent") -> "Spent":
        """Without the other; never below zero."""
        return Spent(*(max(0, left) for left in map(sub, astuple(self), astuple(other))))


def budget_share(budget: Budget, spent: Spent) -> float:
    """The largest share used of any ceiling; 0 without ceilings."""
    pairs = zip(astuple(budget), astuple(spent), strict=True)
    shares = [math.inf if ceiling <= 0 else used / ceiling for ceiling, used in pairs if ceiling is not None]
    return max(shares, default=0.0)


BudgetState = Literal["within", "warned", "spent"]


def budget_state(budget: Budget, spent: Spent) -> BudgetState:
    """`warned` from 80 % on, `spent` from 100 % on."""
    share = budget_share(budget, spent)
    if share >= 1.0:
        return "spent"
    return "warned" if share >= WARN_SHARE else "within"


def reached_ceilings(budget: Budget, spent: Spent) -> str:
    """The ceilings that are reached, in words such as `3 turns`; empty while there is something left of each."""
    pairs = (
        (budget.tokens, spent.tokens, f"{budget.tokens} tokens"),
        (budget.usd, spent.usd, f"${budget.usd}"),
        (budget.turns, spent.turns, f"{budget.turns} turn{'s' * (budget.turns != 1)}"),
        (budget.seconds, spent.seconds, f"{budget.seconds} s"),
    )
    return " and ".join(words for ceiling, used, words in pairs if ceiling is not None and used >= ceiling)


def inherit(parent: Budget, asked: Budget) -> Budget:
    """A child's budget: the one asked for, within its parent's."""
    return Budget(*map(_tighter, astuple(parent), astuple(asked)))


def _tighter(one: N | None, other: N | None) -> N | None:
    return min((ceiling for ceiling in (one, other) if ceiling is not None), default=None)


# ---- lanes -----------------------------------------------------------------------------------------------------------


def lane_width(widths: Mapping[str, int], lane: str) -> int:
    """How many sessions of a lane may be driven at once: as its name, or the part before a colon, says; else 1."""
    return widths.get(lane, widths.get(lane.partition(":")[0], 1))


def fair_rank(lane_rank: int, spawner_rank: int) -> int:
    """The rank of a spawner's next run: behind its own last one, never behind what others queued long ago.

    Claims go by rank, then by order of arrival, so sessions that spawn many take turns with sessions that spawn few.
    """
    return max(lane_rank, spawner_rank) + 1
