"""Decisions: the run afterwards, and its effects. An effect is one small order to the world, in the imperative.

Effects on rows are carried out in the very commit that records the event; that is how an end, its frozen result and the
requester's inbox row are one. An effect outside the process (a driver to start or stop, files to remove, hooks to call)
is always also readable from rows, so a crash between commit and act loses nothing: the engine asks what is due.
"""

from typing import Literal

from msgspec.structs import replace

from fledge.core.events import RowKind
from fledge.core.run import Instant, Phase, Run, TextId
from fledge.core.value import Value


class _Effect(Value, tag=True):
    pass


class Enqueue(_Effect):
    """Let the session be claimed in its lane, as soon as its old driver is gone, and not before `due_at`."""

    due_at: Instant | None = None


class Dequeue(_Effect):
    """It must not be claimed any more."""


Owes = Literal["nothing", "earlier", "all"]
"""Which messages are still to be answered once a turn is over: none; those that an earlier turn read before it yielded;
these and those that this turn has read."""


class ReleaseDriver(_Effect):
    """The driver that commits this is done: its lease and slot are free, its turn is over."""

    owes: Owes = "nothing"


class FreeDriver(_Effect):
    """The driver that commits this is done for now: its lease and slot are free, the turn stays open."""


class SupersedeDriver(_Effect):
    """Raise the epoch: what the old driver still writes is refused. Its slot is held until it exits, or `until_at`."""

    until_at: Instant


class StopDriver(_Effect):
    """Tell the driver to stop. Epoch and slot stay until it acknowledges, or `until_at`."""

    until_at: Instant


class CloseCalls(_Effect):
    """Answer open tool calls of the turn with `reason`, close the turn, and withdraw reservations those calls made."""

    reason: str


class Post(_Effect):
    """Put a message of the system into the run's own inbox."""

    kind: str
    """`task`, `wake`, `overdue`; the commands steer, send, resume and the answer to a plan write their own messages."""


class Drain(_Effect):
    """Take the unread completions into the transcript now; the same attempt goes on."""


class Announce(_Effect):
    """Write the completion row into the requester's inbox, or that of the nearest ancestor still there."""

    row: RowKind
    text: TextId | None


class RefreshRow(_Effect):
    """Replace what the unread outcome row says."""

    text: TextId | None


class WithdrawPlan(_Effect):
    """An unread plan row is suppressed: it has been answered, or never will be."""


class Readdress(_Effect):
    """Look again for a session that receives the unread row, and put it into that inbox."""


class Trace(_Effect):
    """Record that this try at delivering the outcome reached no session, and why."""

    result: Literal["deferred", "failed"]
    why: str


class GiveUpRow(_Effect):
    """Move the unread row to the undelivered list, and tell the conversation above, if there is one."""


class ReviveRow(_Effect):
    """Take the row off the undelivered list: it is unread again."""

    to: str | None = None
    """The session that receives it instead of the run's requester; None: the requester."""


class DismissRow(_Effect):
    """Take the row off the undelivered list for good."""


class HandOver(_Effect):
    """The session does not read as this run any longer: completions in its inbox go to its own requester, same row and
    key; task, steer and approval messages are left for a resume, wakes and notices are void."""


class ReadOn(_Effect):
    """The session outlives its run: unread rows get a turn of their own, except orders to the run, as in `HandOver`."""


class SuppressInbox(_Effect):
    """After a kill: every row in its inbox is suppressed, and the sender of a message gets an error."""


class ReviveInbox(_Effect):
    """After a resume: what the run's end suppressed in its inbox is unread again, and the results are announced again;
    a wait of its session is over."""


class CountDown(_Effect):
    """Settled for its parent: one unsettled child fewer there, and on upwards."""


class CountUp(_Effect):
    """Unsettled for its parent: one more there, and on upwards through parents that counted as settled."""


class KillBelow(_Effect):
    """Kill every descendant, silently, in this commit."""


class CallHook(_Effect):
    """Put a hook call into the outbox, once per run."""

    hook: str


class CleanUp(_Effect):
    """Do what remains after the delivery: attachments, session deletion."""


class Tell(_Effect):
    """Put a notice for the requester where it will be seen."""

    notice: str


class Archive(_Effect):
    """Leave the lists; keep a tombstone."""

    reason: Literal["swept", "released"] = "swept"
    """Its time had come, or a person or program took it off the lists."""


class DeleteSession(_Effect):
    """Delete the run's session and transcript; the tombstone stays."""


class Forget(_Effect):
    """Delete the run with everything that was prepared for it."""


Effect = (
    Enqueue
    | Dequeue
    | ReleaseDriver
    | FreeDriver
    | SupersedeDriver
    | StopDriver
    | CloseCalls
    | Post
    | Drain
    | Announce
    | RefreshRow
    | WithdrawPlan
    | Readdress
    | Trace
    | GiveUpRow
    | ReviveRow
    | DismissRow
    | HandOver
    | ReadOn
    | SuppressInbox
    | ReviveInbox
    | CountDown
    | CountUp
    | KillBelow
    | CallHook
    | CleanUp
    | Tell
    | Archive
    | DeleteSession
    | Forget
)


# ---- a decision ------------------------------------------------------------------------------------------------------


class Step(Value):
    """The result of an event: a new run with its effects, or the old one and the reason it was ignored."""

    run: Run
    effects: tuple[Effect, ...] = ()
    ignored: str | None = None


def ignore(run: Run, reason: str) -> Step:
    """Nothing changes, and nothing is recorded."""
    return Step(run, ignored=reason)


def move(run: Run, phase: Phase, *effects: Effect) -> Step:
    """The run in its new phase, one event older."""
    return Step(replace(run, phase=phase, version=run.version + 1), effects)


def next_attempt(run: Run, run_id: str) -> Run:
    """A new execution of the same run."""
    return replace(run, attempt=run.attempt + 1, run_id=run_id, failing=None)
