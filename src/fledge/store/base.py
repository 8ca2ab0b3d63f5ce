"""The store's contract. One conformance suite (`tests/store/`) runs over every store.

A `Store` runs *jobs*: plain functions that get a `Tx`, decide, and write, all inside one transaction. Several jobs may
share one write to disk, but each succeeds or fails alone: a job that raises has changed nothing. `tx` has the
operations of a job by noun, `records` the stored values.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from fledge.clock import Clock
from fledge.core.cluster import News
from fledge.core.run import Instant
from fledge.store.records import (
    COMPLETIONS,
    AgentDay,
    Approval,
    ApprovalState,
    BudgetAccount,
    ChildrenPage,
    CompletionKind,
    Counts,
    Driver,
    Entry,
    EntryKind,
    Happened,
    HeartbeatRow,
    InboxRow,
    InboxRowKind,
    LaneQueue,
    ListedRun,
    ListedSession,
    MessageRequest,
    OutboxPost,
    PostState,
    QueuePlace,
    Route,
    RowState,
    RunCounts,
    RunFilter,
    RunMark,
    RunWalk,
    Session,
    SessionFacts,
    SessionKind,
    Spec,
    TurnRan,
    Used,
    Wishes,
)
from fledge.store.tx import Tx

T = TypeVar("T")

__all__ = [
    "COMPLETIONS",
    "AgentDay",
    "Approval",
    "ApprovalState",
    "BudgetAccount",
    "ChildrenPage",
    "Cluster",
    "CompletionKind",
    "Counts",
    "Driver",
    "EngineLease",
    "Entry",
    "EntryKind",
    "Happened",
    "HeartbeatRow",
    "InboxRow",
    "InboxRowKind",
    "LaneQueue",
    "ListedRun",
    "ListedSession",
    "MessageRequest",
    "OutboxPost",
    "PostState",
    "QueuePlace",
    "Route",
    "RowState",
    "RunCounts",
    "RunFilter",
    "RunMark",
    "RunWalk",
    "Session",
    "SessionFacts",
    "SessionKind",
    "Spec",
    "Store",
    "TurnRan",
    "Tx",
    "Used",
    "Wishes",
]


class EngineLease(Protocol):
    """A time without a gap in which an engine counts as alive."""

    @property
    def is_over(self) -> bool:
        """False: no other engine can have counted this one as dead since it got this lease."""


class Cluster(Protocol):
    """Connects the engines of several processes on one store."""

    @property
    def address(self) -> str:
        """Of the store, for people: without a password."""

    @property
    def clock(self) -> Clock:
        """The clock of the database."""

    @property
    def lease_s(self) -> float:
        """How long an engine counts as alive after it was last seen."""

    @property
    def lease(self) -> EngineLease:
        """The lease that this engine has now, by the clock of this machine. It lasts while the engine is seen. When a
        new lease follows a gap, the function given to `join` gets news to look."""
        ...

    @property
    def up_at(self) -> Instant:
        """Since when the database can be reached without a break, as far as this process knows; infinite if it cannot
        be."""

    def join(self, engine: str, heard: Callable[[News], None]) -> None:
        """Mark this engine, whose row is stored, as seen from now on, and call `heard` with the commits of others: in
        the event loop that calls this, and after any gap with "look at everything"."""

    async def leave(self) -> None:
        """Stop both."""

    def tell(self, news: News) -> None:
        """Tell the other engines something that no commit says. It may be lost."""

    def send_live(self, messages: Sequence[str]) -> None:
        """Send messages to those that hear live ones, in order. They may be lost."""

    def hear_live(self, heard: Callable[[str], None] | None) -> None:
        """Hear live messages of other engines from now on, in the event loop of `join`; None: stop."""


class Store(Protocol):
    """Runs jobs in transactions. Open it with its own class; close it when done."""

    @property
    def cluster(self) -> Cluster | None:
        """Connects this engine with those of other processes; None: only this process uses the store."""

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run the job in one transaction and return its result, once the transaction is durable.

        The job may run more than once before that; only its last run counts, so it must change nothing but its `Tx`.
        """

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Run a job that only reads, concurrently with the writer; a write in it raises `StoreError`."""

    async def close(self) -> None:
        """Finish the submitted jobs, then close the database."""
