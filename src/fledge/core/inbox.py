"""When and how a session reads its inbox: arbitration, debounce, queue modes, overflow, backoff.

A row is written durably before anything here is asked, so no answer below can lose one: it only moves the moment. Rows
come in the order they were written. A *completion* announces a child and is never dropped; any other is a message. This
file does not know how rows are stored, how they are worded (`announce`), nor what a run does about them.
"""

from collections.abc import Sequence
from typing import Final, Literal

from fledge.core.announce import DeliveryPhase
from fledge.core.freeze import one_line
from fledge.core.policy import doubled_s
from fledge.core.route import INTERNAL, is_apart
from fledge.core.run import Ending, Grace, Instant, Path, Queued, Retry, Run, Running
from fledge.core.transcript import BEGINS
from fledge.core.turn import Due, Idle, Turn
from fledge.core.value import Value
from fledge.errors import BadInput

ItemKind = Literal["completion", "task", "steer", "wake", "approval", "send", "notice"]
QueueMode = Literal["steer", "followup", "collect", "steer-backlog", "interrupt"]
Drop = Literal["summarize", "old", "new"]
RequesterState = Literal["idle", "busy", "waiting", "gone", "program"]

ROWS_A_COMMIT: Final = 64
"""A drain takes at most this many rows in one commit."""
LINE_CHARS: Final = 160
"""The length of a line that stands for a dropped message."""
INTERRUPT_PREFIX: Final = "[INTERRUPT]"
BACKOFF_MAX_S: Final = 60.0
MAX_DEBOUNCE_S: Final = 5.0
"""The longest that a busy session waits for more rows."""
UNANSWERED_S: Final = 30 * 60.0
"""After this long without a reply, drained rows are shown as unanswered."""

_NOWHERE: Final = {"", INTERNAL}
"""Origins that are no place on a channel."""
_LIVE_MODES: Final = ("steer", "steer-backlog", "interrupt")
_ONE_BY_ONE: Final = ("followup", "steer-backlog")


class WaitingItem(Value):
    """The facts about one waiting row that scheduling needs."""

    key: str
    kind: ItemKind
    arrived_at: Instant
    origin: str
    """Where its answer will go (channel and account); rows of different origins never share a turn."""
    mode: QueueMode = "collect"
    """Of a completion or a message: its queue mode, by what it is and by its channel."""


class QueueSettings(Value, kw_only=True):
    """How a busy session treats what arrives (`messages.queue`), on one channel or without any."""

    mode: QueueMode = "collect"
    """Of completions."""
    people: QueueMode = "steer"
    """Of messages to a conversation."""
    debounce_s: float = 1.0
    cap: int = 20
    drop: Drop = "summarize"


# ---- arbitration: how a completion reaches its requester -------------------------------------------------------------


def standing_of_run(run: Run) -> RequesterState:
    """How a live run stands towards a completion for it."""
    if run.phase.name == "waiting":
        return "waiting"
    match run.phase:
        case Running() | Ending(cause=Grace()) | Queued(retry=Retry()):
            return "busy"
        case _:
            return "idle"


def standing_of_turn(turn: Turn | None) -> RequesterState:
    """How a session that takes turns stands towards a completion for it; None: a program, which takes none."""
    if turn is None:
        return "program"
    if turn.wait is not None:
        return "waiting"
    at = turn.at
    return "idle" if type(at) is Idle or (type(at) is Due and at.from_at is None) else "busy"


def path_to(requester: RequesterState, mode: QueueMode) -> Path:
    """How a completion reaches a requester in this state. A waiting requester holds it until its condition does; a
    program is no conversation: it reads."""
    if requester in ("idle", "program"):
        return "direct"
    return "steered" if requester == "busy" and mode in _LIVE_MODES else "queued"


def opening(mode: QueueMode) -> str:
    """The prefix of a completion that enters a live turn; empty for an interrupted turn, whose closed calls say the
    same."""
    return "" if mode == "interrupt" or mode not in _LIVE_MODES else INTERRUPT_PREFIX


def delivery_phases(requester: RequesterState, expects_completion: bool) -> tuple[DeliveryPhase, ...]:
    """The phases of a delivery, for the trace. Expected completions try to start a turn, then queue; fire-and-forget
    ones queue, then start a heartbeat turn. Nothing is tried for a program."""
    if requester == "program":
        return ()
    if expects_completion:
        return ("direct-primary",) if requester == "idle" else ("direct-primary", "queue-fallback")
    return ("queue-primary", "direct-fallback") if requester in ("idle", "gone") else ("queue-primary",)


# ---- drains: which rows enter, and when ------------------------------------------------------------------------------


def drain_at(items: Sequence[WaitingItem], settings: QueueSettings, now: Instant) -> Instant:
    """When a session that was busy may start its next turn for these rows; never before `now`.

    As long as all of them have the mode `collect` it waits until nothing of the leading origin has arrived for the
    debounce, and no longer than 5 s after the first. A row with another mode starts the turn at once, and so
    does one that begins an attempt. Refused: no rows.
    """
    if not items:
        raise BadInput("items", "must hold at least one waiting row")
    lead = _lead(items)
    if lead.kind in BEGINS:
        return now
    arrivals = []
    for item in items:
        if item.mode != "collect":
            return now
        if item.origin == lead.origin:
            arrivals.append(item.arrived_at)
    return max(now, min(max(arrivals) + settings.debounce_s, min(arrivals) + MAX_DEBOUNCE_S))


def take(items: Sequence[WaitingItem], at_boundary: bool, live_origin: str = "") -> tuple[WaitingItem, ...]:
    """The rows that enter now, in order, at most one commit's worth. The other rows stay and wait.

    At a step boundary of a live turn: steers and notices, and the sends and completions whose mode is a steering one.
    Where the turn's origin and that of a send or completion are both known they must be the same; a row that is apart
    joins none, and a turn that is apart is joined only by steers and notices. At the start of a turn: rows of one
    origin, that of the oldest row or of the oldest that begins an attempt. A row whose mode is `followup` or
    `steer-backlog` has that turn alone; with any other come all whose mode is neither. A task, steer or approval takes
    every message along, a wake everything.
    """
    if at_boundary:
        taken = [item for item in items if _joins_step(item, live_origin)]
    elif items:
        taken = _turn_rows(items)
    else:
        taken = []
    return tuple(taken[:ROWS_A_COMMIT])


def _joins_step(item: WaitingItem, live_origin: str) -> bool:
    if is_apart(item.origin):
        return False
    if item.kind in ("steer", "notice"):
        return True
    if is_apart(live_origin) or (item.origin != live_origin and not {item.origin, live_origin} & _NOWHERE):
        return False
    return item.kind in ("send", "completion") and item.mode in _LIVE_MODES


def _turn_rows(items: Sequence[WaitingItem]) -> list[WaitingItem]:
    lead = _lead(items)
    together = [item for item in items if item.origin == lead.origin]
    if any(item.kind == "wake" for item in together):
        return together
    if lead.kind in BEGINS:
        return [item for item in together if item.kind != "completion" or item.mode not in _ONE_BY_ONE]
    if lead.mode in _ONE_BY_ONE:
        return [lead]
    return [item for item in together if item.mode not in _ONE_BY_ONE]


def _lead(items: Sequence[WaitingItem]) -> WaitingItem:
    for item in items:
        if item.kind in BEGINS:
            return item
    return items[0]


# ---- overflow: what gives way when too much waits --------------------------------------------------------------------


def refuses_latest(kind: Literal["send", "notice"], drop: Drop) -> bool:
    """True if the latest of too many messages of a kind is refused; else the oldest are dropped.

    `summarize` and `old` drop the oldest, the one with a line for each (`left_out`), the other without a word; `new`
    refuses the latest, except that a notice has no sender to refuse.
    """
    return drop == "new" and kind != "notice"


def left_out(dropped: Sequence[str], cap: int) -> str:
    """The text about dropped messages for the next turn: how many, and a line for each of the latest `cap`; empty if
    there were none."""
    if not dropped:
        return ""
    count = len(dropped)
    head = f"[{count} older {'message' if count == 1 else 'messages'} left out: messages.queue.cap]"
    lines = [f"- {one_line(words[: 2 * LINE_CHARS], LINE_CHARS)}" for words in dropped[-cap:]]
    return "\n".join([head, *lines])


# ---- failed turns ----------------------------------------------------------------------------------------------------


def backoff_s(failures: int) -> float:
    """Seconds before the next try after this many failures in a row: 2, 4, 8 … at most a minute; none after none."""
    return doubled_s(1.0, failures, BACKOFF_MAX_S) if failures > 0 else 0.0


def is_unanswered(opened_at: Instant, now: Instant) -> bool:
    """True of an open turn that has read something and has had no reply for 30 min."""
    return now - opened_at >= UNANSWERED_S
