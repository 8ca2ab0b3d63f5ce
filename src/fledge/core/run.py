"""A run, its phases and its outcomes: the nouns. Every value is frozen; only `lifecycle.transition` makes a new one.

Each phase holds just the fields that are true in it. A phase's docstring answers four questions: what it means, what
ends it, what a crash in it does, how long it is kept; `docs/lifecycle.md` is generated from them.
This file does not know how phases follow each other, nor anything of stores and clocks.
"""

from typing import ClassVar, Literal, get_args

from fledge.core.value import Value

Instant = float
"""Seconds since the epoch; arrives on events, is never read from a clock here."""
TextId = str
"""Names a text that the store keeps once (a result, a plan, a partial)."""

Mode = Literal["run", "session"]
Cleanup = Literal["keep", "delete"]
PlanState = Literal["none", "planning", "approved"]
SkipReason = Literal["announce-skip", "silent", "suppressed"]
DeferReason = Literal["descendants-active", "missing-requester"]
Path = Literal["direct", "queued", "steered"]


# ---- outcomes: how a run came out ------------------------------------------------------------------------------------


class _Outcome(Value):
    status: ClassVar[str]
    """Its tag."""


class _Wordless(_Outcome):
    """The common part of outcomes without words of their own for people."""

    error: ClassVar[str | None] = None


class Ok(_Wordless, tag="ok", omit_defaults=True):
    """The attempt finished its task. `cut`: its last words were cut at the token limit."""

    cut: bool = False


class Failed(_Outcome, tag="error"):
    """It could not go on; `error` says why, in words for people."""

    error: str


class TimedOut(_Wordless, tag="timeout"):
    """Its time was up; its work so far was kept."""


class Killed(_Outcome, tag="killed"):
    """It was killed. `named` is true of the run the kill named, false of those below it."""

    named: bool
    error: ClassVar[str | None] = "killed"


class Unknown(_Wordless, tag="unknown"):
    """Nothing else can be said."""


Outcome = Ok | Failed | TimedOut | Killed | Unknown
for _outcome in get_args(Outcome):
    _outcome.status = _outcome.__struct_config__.tag

RESUMABLE = (Failed, TimedOut, Killed)
"""Outcomes after which a run may go on."""

WireStatus = Literal["ok", "error", "timeout", "unknown"]
EndedReason = Literal["complete", "error", "timeout", "killed", "unknown"]


_ON_WIRE: dict[str, tuple[WireStatus, EndedReason]] = {
    "ok": ("ok", "complete"),
    "error": ("error", "error"),
    "timeout": ("timeout", "timeout"),
    "killed": ("error", "killed"),
    "unknown": ("unknown", "unknown"),
}


def on_wire(outcome: Outcome) -> tuple[WireStatus, EndedReason]:
    """Status and `endedReason` as they stand on the wire: a kill is an error whose reason is `killed`."""
    return _ON_WIRE[outcome.status]


class Ended(Value):
    """The outcome with its times and its frozen result. Fixed in one commit, carried by every later phase."""

    outcome: Outcome
    started_at: Instant | None
    """When it first ran; None if it never did."""
    ended_at: Instant
    result: TextId | None = None
    """The frozen text; None if there was none (or an error, which carries its message instead)."""

    @property
    def elapsed_s(self) -> float:
        """Wall time from first running to the end; 0 for a run that never ran."""
        return 0.0 if self.started_at is None else max(0.0, self.ended_at - self.started_at)


# ---- deliveries: how an announce came out ----------------------------------------------------------------------------


class _Delivery(Value, tag_field="kind"):
    word: ClassVar[str]
    """Its tag."""


class Delivered(_Delivery, tag="delivered"):
    """The requester's transcript has it."""

    path: Path


class Skipped(_Delivery, tag="skipped"):
    """There was nothing to tell, or a kill or a plan's answer made it moot."""

    reason: SkipReason


class Undelivered(_Delivery, tag="undelivered"):
    """No session could receive it; the result is in the visible *undelivered* list."""

    error: str


Delivery = Delivered | Skipped | Undelivered
for _delivery in get_args(Delivery):
    _delivery.word = _delivery.__struct_config__.tag


# ---- phases: where a run is in its life ------------------------------------------------------------------------------


class _Phase(Value):
    name: ClassVar[str]
    """Its tag, but for `Asking`, which people are shown as waiting."""


class _Unended(_Phase):
    """The common part of all phases before the end."""

    ended: ClassVar[Ended | None] = None
    delivery: ClassVar[Delivery | None] = None


class Spawning(_Unended, tag="spawning", omit_defaults=True):
    """Means: admitted, its place reserved; session, attachments and binding are being prepared.
    Ends by: prepared; failed; withdrawn with its caller's call; 30 s.
    After a crash: a reservation without an answer is deleted with all it prepared; the resumed call prepares again.
    Kept: until it ends; a reservation that failed leaves nothing behind.
    """

    due_at: Instant
    owner: str = ""
    """The engine that prepares it, where several share the store."""


WaitsFor = Literal["model", "program"]
"""The reason why a run pauses: no model can answer; no process has brought its agent, its functions or its runtime."""


class Retry(Value, omit_defaults=True):
    """No model could answer, or something is missing that only a program can bring: it is tried again then."""

    at: Instant
    reason: str
    waits_for: WaitsFor = "model"


class Queued(_Unended, tag="queued", omit_defaults=True):
    """Means: accepted, waits for a slot in its lane; or it pauses without a slot, because no model could answer or what
    only a program can bring is missing.
    Ends by: claimed, after a pause not before its time; steered; killed; the queue timeout or the run's own deadline. A
    send ends a pause; so does a process that brings what is missing.
    After a crash: claimed again.
    Kept: until claimed.
    """

    due_at: Instant | None = None
    """The queue timeout, where one is set and the run has never run."""
    serving: "Waiting | None" = None
    """Set while a send's turn interrupts a waiting period; that period goes on afterwards."""
    retry: Retry | None = None
    """Set while it pauses."""


class Running(_Unended, tag="running"):
    """Means: an attempt holds the lease and a slot.
    Ends by: the attempt's end; yield; final text while descendants are unsettled; steer; kill; the deadline.
    After a crash: back to queued under a new epoch, resumed from the transcript; the third crash without a committed
    step in between fails the run with a reason.
    Kept: as long as it works; without a committed step for `stuckAfterSeconds` it is reported as stuck, once.
    """

    due_at: Instant | None
    """When to look whether it is stuck; None once that was reported."""
    serving: "Waiting | None" = None
    stuck_at: Instant | None = None
    """When it was reported as stuck; it shows as such until its driver commits a step again."""


class Waiting(_Unended, tag="waiting"):
    """Means: it yielded, or its text was final while descendants were unsettled; it holds no slot.
    Ends by: its condition (all children settled, or `until_settled` of them); the yield's deadline; send; steer; kill;
    the run's deadline.
    After a crash: stays; the condition is a number in the row.
    Kept: until woken; once per waiting period.
    """

    until_settled: int | None
    """Woken as soon as this many children have settled; None waits for all. All settled always wakes."""
    due_at: Instant | None
    """The yield's deadline; a wait after a final text has none of its own."""
    asked: str = "all"
    """The condition as it was asked for (`all`, `any`, a number, or `final text`), for people."""


class Asking(_Unended, tag="asking"):
    """Means: a tool call of the turn waits for a person's approval; shown as `waiting`. It holds no slot, and the run's
    own clock stands still.
    Ends by: every question answered or expired; steer; kill.
    After a crash: stays; questions and answers are rows.
    Kept: until the first question expires.
    """

    name: ClassVar[str] = "waiting"
    due_at: Instant
    left_s: float | None = None
    """The rest of the run's own time, if it has a limit."""
    serving: "Waiting | None" = None


class Grace(Value, tag="grace"):
    """A provisional signal: its executor may still recover, and then goes on as `resumes`."""

    error: str
    aborted: bool
    """An aborted end is a timeout if nothing follows; any other is an error."""
    resumes: Running
    cause: Literal["error", "limit"] = "error"
    """At a limit of ours, that is at the end of its patience, a run hands over partial work."""


class Stopping(Value, tag="stopping"):
    """A kill found it driven. `named`: the kill named this very run. `may_win`: and a complete end would be its result,
    so one that is committed before the driver stops wins over the kill."""

    named: bool
    may_win: bool = False


class Ending(_Unended, tag="ending"):
    """Means: a terminal signal was seen and is not yet decided: a provisional error in its 15 s grace (driver and slot
    kept), or stopping after a kill (at most 5 s; no new step, no send, no steer).
    Ends by: start (back to running), end, the grace running out; for stopping the driver's acknowledgement, a complete
    end, or 5 s.
    After a crash: a grace continues from its due time; stopping is decided as killed.
    Kept: 15 s or 5 s.
    """

    due_at: Instant
    cause: Grace | Stopping


class Announcing(_Phase, tag="announcing"):
    """Means: the outcome is fixed, the result frozen, and the requester's inbox row written in that same commit.
    Ends by: the row being consumed, skipped (suppressed), or found undeliverable.
    After a crash: the row is still there.
    Kept: until the requester reads it; a program that never reads gives it up after 30 min.
    """

    delivery: ClassVar[Delivery | None] = None
    ended: Ended
    due_at: Instant | None = None
    """When a result for a program is given up; a session's never is."""


class AnnounceDeferred(_Phase, tag="announce_deferred"):
    """Means: the announce is postponed for `reason`; its row, where one is written, stays consumable.
    Ends by: its due time; the row being consumed; descendants settling; giving up after `announce.maxRetries`.
    After a crash: continues from its due time.
    Kept: until decided; 5 or 30 min at most while nothing holds the clock.
    """

    delivery: ClassVar[Delivery | None] = None
    ended: Ended
    reason: DeferReason
    tries: int
    since_at: Instant
    expires_at: Instant
    due_at: Instant | None
    """When it is tried again; None while only descendants can end the deferral."""


class AwaitingApproval(_Unended, tag="awaiting_approval"):
    """Means: the plan is written and a person or the requester must answer it. Holds no slot, takes a child place, is
    settled for its parent.
    Ends by: approved; rejected; expired after `plan.approvalHours`, which is announced; killed.
    After a crash: stays.
    Kept: never archived while it waits.
    """

    due_at: Instant
    plan: TextId | None


class CleanupPending(_Phase, tag="cleanup_pending"):
    """Means: the delivery is decided; hooks, attachments and session deletion remain.
    Ends by: all of them done.
    After a crash: repeated; every step is idempotent.
    Kept: until done, retried with backoff; `delete` waits for a send that was accepted.
    """

    ended: Ended
    delivery: Delivery
    tries: int
    due_at: Instant


class Completed(_Phase, tag="completed"):
    """Means: settled, delivered or skipped, cleaned up.
    Ends by: being archived; a killed, failed or timed-out run also by being resumed; one whose requester was killed
    before it read the result, by that requester being resumed: the result is announced again.
    After a crash: stays.
    Kept: `archiveAfterMinutes` in the lists, never while a row from it or in its inbox is unread or undelivered;
    session mode for ever.
    """

    ended: Ended
    delivery: Delivery
    settled_at: Instant
    due_at: Instant | None
    """When the sweeper looks at it; None in session mode."""


class CompletedGiveup(_Phase, tag="completed_giveup"):
    """Means: settled, but the result could not be delivered; it sits in *undelivered*.
    Ends by: retried; dismissed; a failed or timed-out run also by being resumed; `undelivered.retentionDays`.
    After a crash: stays.
    Kept: 7 days, then as if dismissed.
    """

    ended: Ended
    delivery: Undelivered
    settled_at: Instant
    due_at: Instant


class Archived(_Phase, tag="archived"):
    """Means: left the lists; a tombstone with the timeline stays, and for a while the kept session.
    Ends by: the retention of both; then the row is gone.
    After a crash: stays.
    Kept: a kept session stays readable for `retention.keptDays`; the timeline stays `retention.timelineDays`, or
    as long as the session if that is longer.
    """

    ended: Ended
    delivery: Delivery
    due_at: Instant | None
    """When the session goes; once it has, or if the timeline goes no later, when everything does."""
    forget_at: Instant | None = None
    """When the timeline goes, where the session goes first."""


class Gone(_Unended, tag="gone"):
    """Means: the reservation failed or was withdrawn; the caller got no run.
    Ends by: nothing; the row is deleted in the same commit.
    After a crash: is not there.
    Kept: not at all.
    """

    due_at: ClassVar[Instant | None] = None
    reason: str


Phase = (
    Spawning
    | Queued
    | Running
    | Waiting
    | Asking
    | Ending
    | Announcing
    | AnnounceDeferred
    | AwaitingApproval
    | CleanupPending
    | Completed
    | CompletedGiveup
    | Archived
    | Gone
)

PHASES: tuple[type[Phase], ...] = get_args(Phase)
"""All phases in the order of a life."""
for _phase in PHASES:
    if _phase is not Asking:
        _phase.name = str(_phase.__struct_config__.tag)

ENDED = (Announcing, AnnounceDeferred, CleanupPending, Completed, CompletedGiveup, Archived)
"""Phases in which the outcome is fixed."""
UNREAD = (Announcing, AnnounceDeferred)
"""Phases in which the outcome's row may still be unread."""
SERVING = (Running, Queued, Asking)
"""Phases in which a turn may answer a message in the middle of a wait."""
TIMED = (Queued, Running, Waiting)
"""Phases in which the run's own deadline counts, besides a grace."""


# ---- the run ---------------------------------------------------------------------------------------------------------


class Terms(Value, omit_defaults=True, kw_only=True):
    """The parameters of the spawn that decisions need; they never change."""

    parent: str
    """The session that spawned it and gets its result; counted down when this run settles."""
    program: bool = False
    """The parent is a program that reads results through handles, not a conversation."""
    lane: str = "subagent"
    mode: Mode = "run"
    cleanup: Cleanup = "keep"
    expects: bool = True
    """`expectsCompletionMessage`: false makes it fire-and-forget."""
    plan: bool = False
    wakeable: bool = True
    """False of runtimes that cannot be continued once they have ended."""
    leaves: tuple[str, ...] = ()
    """The folders that its preparation makes, and when each is removed: see `child_files`."""
    retains: bool = False
    """Attachments of a kept session stay until it is archived."""
    depth: int = 1
    timeout_s: float = 0.0
    """0 means none."""
    queue_timeout_s: float = 0.0
    stuck_after_s: float = 300.0
    approval_s: float = 24 * 3600.0
    archive_after_s: float = 3600.0
    max_retries: int = 3
    undelivered_s: float = 7 * 86400.0
    kept_s: float = 30 * 86400.0
    timeline_s: float = 30 * 86400.0


class Failing(Value):
    """The step under way could not be answered by any model so far."""

    since_at: Instant
    """When it first failed; patience counts from here."""
    pauses: int


class Run(Value, kw_only=True):
    """One delegated task. Equal to the fold of its events: `lifecycle.replay(events) == run`."""

    key: str
    """The child session's key: the run's name for life."""
    terms: Terms
    run_id: str
    """The current attempt's id."""
    phase: Phase
    version: int = 1
    """How many events were applied to it."""
    attempt: int = 1
    plan: PlanState = "none"
    deadline_at: Instant | None = None
    """The hard timeout; None while no clock runs (none set, not started, or waiting for a person)."""
    started_at: Instant | None = None
    """When an attempt first ran; anew after the run was resumed."""
    fallback: TextId | None = None
    wakes: int = 0
    resumes: int = 0
    """How often it went on after an end: it has one end more than that."""
    crashes: int = 0
    """Crashes in a row with a step open and none committed in between."""
    steered_at: Instant | None = None
    failing: Failing | None = None
    """Set from the first pause of a step until a step is committed."""

    @property
    def due_at(self) -> Instant | None:
        """The next moment at which time alone changes this run; None if only events can."""
        phase, deadline = self.phase, self.deadline_at
        if deadline is None or not self._is_timed:
            return phase.due_at
        return deadline if phase.due_at is None else min(deadline, phase.due_at)

    @property
    def _is_timed(self) -> bool:
        phase = self.phase
        return isinstance(phase, TIMED) or (isinstance(phase, Ending) and isinstance(phase.cause, Grace))

    @property
    def ended(self) -> Ended | None:
        """The fixed outcome with its times, once there is one."""
        return self.phase.ended

    @property
    def delivery(self) -> Delivery | None:
        """How the announce came out, once that is decided."""
        return self.phase.delivery

    @property
    def concluded(self) -> bool:
        """True once it counts as settled for its parent, as far as this run alone is concerned."""
        return isinstance(self.phase, (*ENDED, AwaitingApproval, Gone))
