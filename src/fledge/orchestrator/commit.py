"""One commit: the rows that a decision reads and changes, all in the same transaction, and the events it leads to.

It knows no rule. `effects.apply` takes an event up: `core.lifecycle` decides what it means, and rows are changed as
that asks. Events that one change causes elsewhere are put into the queue here (`then`), and taken up afterwards, first
in, first out. Hints for the engine, such as that a session may now be claimed, are collected on the way; losing them
loses nothing, for the rows say the same. A driver's lease is checked here too: every write for a driver or for a tool
that it runs begins with that check.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, TypeVar

import msgspec
from msgspec import Struct, field

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.announce import DeliveryTrace, Style
from fledge.core.cluster import News
from fledge.core.documents import Workspace
from fledge.core.heartbeat import HeartbeatSettings
from fledge.core.inbox import QueueSettings
from fledge.core.lifecycle import born
from fledge.core.run import Instant, Run
from fledge.core.transcript import Line
from fledge.core.turn import TurnInput
from fledge.core.value import Value
from fledge.errors import Interrupted, NotFound
from fledge.ids import Ids
from fledge.store.base import Session, Spec, Tx

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class Listener(Struct, frozen=True):
    """A function that listens to a hook."""

    name: str
    retries: int = 3
    """How often a call that does not arrive is tried again. A question is asked once."""


class Rules(Struct, frozen=True, kw_only=True):
    """The settings that commits need, already chosen."""

    queue: QueueSettings = QueueSettings()
    """How things reach a busy session, where its channel has no settings of its own."""
    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    """These settings by channel."""
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    style: Style = "auto"
    inline_chars: int = 4000
    hooks: Mapping[str, tuple[Listener, ...]] = field(default_factory=dict)
    """Listeners by hook; a hook without listeners costs nothing."""
    context_engine: bool = False
    """A context engine is set; it is called when a run is over or deleted."""
    binds: bool = True
    """Sessions may be bound to places outside."""
    binding_idle_s: float = 24 * 3600.0
    """A binding ends after this long without a word; 0: never."""
    binding_max_age_s: float = 0.0
    """A binding ends at this age; 0: never."""
    delete_kept: bool = False
    deliver: Literal["turn", "send"] = "turn"
    """`send`: a child's result goes to its requester's channel without a model turn."""
    max_retries: int = 3
    """How often a message to a channel is sent again before it is undelivered."""
    undelivered_s: float = 7 * 86400.0
    """How long it is kept then."""
    exchanges_s: float = 30 * 86400.0
    """How long a finished exchange of messages between sessions is kept."""
    patience_s: float = 600.0
    """For how long a turn, or a model's step of a run, is tried again."""
    widths: dict[str, int] = field(default_factory=lambda: {"main": 4, "subagent": 8, "nested": 1})
    """Lane widths; a lane that is not named here is 1 wide."""

    def width(self, lane: str) -> int:
        """How many sessions of a lane may be driven at once."""
        return policy.lane_width(self.widths, lane)


class Facts(TypedDict):
    """Children and unread rows of a session: what a decision about it needs besides its own row, by the names of the
    fields of events."""

    unsettled: int
    settled: int
    unread: int
    messages: int


class Hints(Struct, gc=False):
    """Next steps for the engine. Only ever a shortcut to asking the rows. Most commits have few kinds of
    hints, so the first of a kind makes its list (`added`)."""

    look: bool = False
    """Something became due or claimable, or a slot or result became free."""
    stop: Sequence[tuple[str, int]] = ()
    """Sessions whose drivers, up to this epoch, should stop now."""
    interrupted: Sequence[tuple[str, int, int]] = ()
    """Sessions and epochs whose driver should leave its step and read on, with the count of its cancelled steps: a
    driver that knows this count has left that step already."""
    released: Sequence[tuple[str, int]] = ()
    """Sessions and epochs whose driver is done."""
    moved: Sequence[str] = ()
    """Sessions whose turn has changed, and others that callers may wait for; those of `moves` are not repeated."""
    moves: Sequence[tuple[Run | None, Run, ev.Event]] = ()
    """Changes of runs: the run before (None: just born), the run after, and the event."""
    tries: Sequence[DeliveryTrace] = ()
    """Tries at a delivery, with their results."""
    was_missed: bool = False
    """The others had counted this engine as dead. It is one of them again."""
    failing: Sequence[tuple[Instant, str, str]] = ()
    """Since when, which session's turn fails, and why: once for each reason."""
    replied_at: Instant | None = None
    """When a model's reply was appended; None if none was."""

    def changed(self) -> tuple[list[str], set[str]]:
        """Runs whose outcome was fixed or whose delivery was decided; and all sessions whose run or turn has changed or
        is to stop: callers may wait for that."""
        ended: list[str] = []
        moved = set(self.moved)
        for before, run, _ in self.moves:
            if before is not None:
                moved.add(run.key)
                if run.phase.ended is not None:
                    ended.append(run.key)
        for session, _ in self.stop:
            moved.add(session)
        return ended, moved


def added(hints: Sequence[T], one: T) -> Sequence[T]:
    """These hints with one more, in the same list if there is one."""
    if type(hints) is not list:
        return [*hints, one]
    hints.append(one)
    return hints


def news_of(hints: Hints) -> News | None:
    """The news in these hints for engines of other processes; None if there are none."""
    ended, moved = hints.changed()
    if not (hints.look or hints.interrupted or moved):
        return None
    return News(hints.look, list(hints.stop), list(hints.interrupted), ended, list(moved))


class Commit:
    """One job's view of the world while it decides."""

    __slots__ = ("at", "find", "hints", "ids", "owner", "queue", "rules", "run", "settled", "tx", "written")

    def __init__(self, tx: Tx, at: Instant, ids: Ids, rules: Rules, owner: str = "") -> None:
        self.tx, self.at, self.ids, self.rules = tx, at, ids, rules
        self.find = tx.runs.find
        """The run of a session as this commit sees it, or None."""
        self.run = tx.runs.load
        """The run of a session; NotFound if there is none."""
        self.owner = owner
        """The engine that commits this, where several share the store."""
        self.queue: list[tuple[str, ev.Event | TurnInput]] = []
        """Events that follow from those so far, each with its session."""
        self.settled: dict[str, str] = {}
        """Sessions of which a child has settled, in order, and the last such child. Each learns of it once, after the
        queue: how many are left is counted then."""
        self.hints = Hints()
        self.written: dict[str, list[Line]] = {}
        """Lines appended to transcripts in this commit, by session."""

    def live_run(self, session: str) -> Run | None:
        """The run of a session while it has no outcome; None of any other session."""
        run = self.find(session)
        return None if run is None or run.phase.ended is not None else run

    def session(self, key: str) -> Session:
        """The session; NotFound if there is none, or it was deleted."""
        session = self.tx.sessions.get(key)
        if session is None or session.deleted:
            raise NotFound(f"no session {key}")
        return session

    def admit(self, event: ev.Admitted, spec: Spec) -> Run:
        """Give birth to a run: one more unsettled child for its parent, which numbers it; its row, its first event."""
        run = born(event)
        number = self.tx.sessions.child_admitted(event.terms.parent).spawned
        self.tx.runs.create(run, spec, event, number)
        self.hints.moves = added(self.hints.moves, (None, run, event))
        self.hints.look = True
        return run

    def moved(self, session: str) -> None:
        """The turn of this session has changed, or something else that callers may wait for."""
        self.hints.moved = added(self.hints.moved, session)

    def then(self, key: str, event: ev.Event | TurnInput) -> None:
        """Let this event be taken up in this commit: after the effects of the event under way, and behind what was put
        into the queue before. An event for the very session whose effect this is comes before all others."""
        self.queue.append((key, event))

    def trace(self, run: str, trace: DeliveryTrace) -> None:
        """Record a try at delivering a row of this run."""
        self.tx.deliveries.note(trace.key, run, self.at, _encode(trace).decode())
        self.hints.tries = added(self.hints.tries, trace)

    def release(self, session: str, epoch: int) -> None:
        """The driver with this epoch is done: its slot is free, and it writes nowhere any more."""
        driver = self.tx.drivers.release(session, epoch)
        if driver is not None and driver.works_in is not None and driver.works_since is not None:
            workspace = self.tx.workspaces.get(driver.works_in) or Workspace(driver.works_in)
            self.tx.workspaces.put(driver.works_in, workspace.with_span((driver.works_since, self.at)))
        self.hints.released = added(self.hints.released, (session, epoch))
        self.moved(session)
        self.hints.look = True

    def stop(self, session: str) -> None:
        """Let the drivers that this session has had until now stop."""
        known = self.tx.sessions.get(session)
        self.hints.stop = added(self.hints.stop, (session, 0 if known is None else known.epoch))

    def facts(self, key: str) -> Facts:
        """Children and unread rows of this session, as they stand in this commit."""
        counts = self.tx.sessions.counts(key)
        unread, messages = self.tx.inbox.count_unread(key)
        return {"unsettled": counts.unsettled, "settled": counts.settled, "unread": unread, "messages": messages}


# ---- the lease of a driver -------------------------------------------------------------------------------------------


class Lease(Value):
    """The epoch a driver was given, and how many of its steps were called off by now."""

    epoch: int
    interrupts: int = 0


def check_lease(c: Commit, session: str, lease: Lease | None) -> None:
    """Raises StaleWrite if a newer driver has taken over, Interrupted if the step was called off. None holds always:
    a person or a program, who has no driver."""
    if lease is not None:
        check_driver(c, session, lease.epoch, lease.interrupts)


def check_driver(c: Commit, session: str, epoch: int, interrupts: int) -> None:
    """As `check_lease`, for the driver with this lease."""
    if c.tx.drivers.fence(session, epoch).interrupts != interrupts:
        raise Interrupted(f"a step of {session} was cancelled")
