"""The state of the model: runs, their sessions, and the completion rows between them. Nothing here decides anything.

A `State` is what the database holds after a commit, with who drives what at that moment. The search keeps states as
tuples (`State.key`), because tuples are small and hash fast; a step is taken on a `State` made from one (`State.of`).
Run and session 0 are main, whose run never changes its phase.
"""

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Literal, NamedTuple

Phase = Literal[
    "none",
    "spawning",
    "queued",
    "running",
    "waiting",
    "ending",
    "announcing",
    "announce_deferred",
    "awaiting_approval",
    "cleanup_pending",
    "completed",
    "completed_giveup",
    "archived",
    "gone",
]
"""The contract's phases; `none`: not spawned yet; `gone`: refused, failed or withdrawn."""
Outcome = Literal["ok", "error", "timeout", "killed"]
Kind = Literal["done", "plan", "expired", "late"]
Content = Literal["text", "fallback", "send_reply", "aborted"]
"""What a row says: the attempt's text, an earlier text, the reply to a later send, the abort that a kill caused."""
Message = Literal["task", "steer", "resume", "approved", "rejected", "send", "send_after_end"]
Key = tuple[Any, ...]

LIVE: frozenset[Phase] = frozenset({"spawning", "queued", "running", "waiting", "ending"})
SETTLED: frozenset[Phase] = frozenset({"completed", "completed_giveup", "archived", "gone"})
OFFERED: frozenset[Phase] = frozenset({"announcing", "announce_deferred"})
NOWHERE = -1
"""The inbox of a row whose requesters are all gone."""


class RowKey(NamedTuple):
    """Unique: one row per run, attempt and kind."""

    run: int
    attempt: int
    kind: Kind


class Row(NamedTuple):
    """A completion on its way."""

    status: Literal["unread", "consumed", "undelivered", "suppressed", "dismissed"]
    inbox: int
    content: Content
    times_read: int


class Turn(NamedTuple):
    """The open turn of a session."""

    stage: Literal["model", "call", "preparing"]
    """The model is asked; it has replied with a spawn call; the child is admitted and being prepared."""
    child: int
    generation: int
    """The session's stop generation when the turn began."""
    repeats: int = 0
    """Steps in a row that changed nothing."""


class Condition(NamedTuple):
    """What a waiting run waits for: `wanted` of its children, 0 for all."""

    wanted: int
    unsettled_before: int


@dataclass(slots=True)
class Run:
    phase: Phase = "none"
    attempt: int = 1
    is_driven: bool = False
    has_old_driver: bool = False
    """A superseded driver whose model call is still in flight."""
    stop: Literal["no", "stopping", "stopped"] = "no"
    """`stopping`: killed while driven, the window for a late complete is open."""
    unsettled: int = 0
    """How many of its children are not settled."""
    condition: Condition | None = None
    fallback_attempt: int = 0
    outcome: Outcome | None = None
    wakes: int = 0
    is_settled: bool = False
    """Settled for its parent."""
    is_killed: bool = False
    """Named by a kill, or below one."""
    is_send_turn: bool = False
    """The turn was opened by a send to a waiting run, which waits again afterwards."""
    is_overdue: bool = False
    """The yield's deadline passed during such a turn."""
    is_planning: bool = False
    skipped: Literal["silent", "announce-skip", "suppressed"] | None = None
    ended_hook_ran: bool = False
    completed_late: bool = False


@dataclass(slots=True)
class Session:
    exists: bool = True
    messages: tuple[Message, ...] = ()
    left_unread: tuple[Message, ...] = ()
    """Messages that the end of its run left unread; the run reads them if it is resumed."""
    turn: Turn | None = None
    generation: int = 0
    is_driven: bool = False
    """Only main's; a run's session is driven with the run."""


@dataclass(slots=True)
class State:
    runs: list[Run]
    sessions: list[Session]
    rows: dict[RowKey, Row] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    """How many events of each kind people, models and faults may still cause."""
    kills_pending: tuple[int, ...] = ()
    """Runs a kill has not reached yet, where a kill is not one commit."""
    violation: str = ""
    """The first property broken on the way here."""

    def key(self) -> Key:
        return (
            tuple(map(_run_values, self.runs)),
            tuple(map(_session_values, self.sessions)),
            tuple(sorted(self.rows.items())),
            tuple(sorted(self.left.items())),
            self.kills_pending,
            self.violation,
        )

    @staticmethod
    def of(key: Key) -> "State":
        runs, sessions, rows, left, kills_pending, violation = key
        return State(
            [Run(*values) for values in runs],
            [Session(*values) for values in sessions],
            dict(rows),
            dict(left),
            kills_pending,
            violation,
        )


_run_values = attrgetter(*(each.name for each in fields(Run)))
_session_values = attrgetter(*(each.name for each in fields(Session)))
