"""The store's contract. One conformance suite (`tests/store/`) runs over every store.

A `Store` runs *jobs*: plain functions that get a `Tx`, decide, and write, all inside one transaction. Many jobs may
share one write to disk, but each stands or falls alone: a job that raises has changed nothing. What a job can say is in
`tx`, noun by noun; what a store holds is in `records`.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from fledge.clock import Clock
from fledge.core.cluster import News
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


class Cluster(Protocol):
    """What connects the engines of several processes on one store."""

    @property
    def clock(self) -> Clock:
        """The time of the database."""
        ...

    @property
    def lease_s(self) -> float:
        """How long an engine counts as alive after it was last seen."""
        ...

    def join(self, engine: str, heard: Callable[[News], None]) -> None:
        """Let this engine, whose row is stored, be seen from now on, and hear what others commit: in the event loop
        that calls this, and after any gap "look at everything"."""
        ...

    async def leave(self) -> None:
        """It is neither seen nor hears anything any more."""
        ...


class Store(Protocol):
    """A place where jobs run. Open it with its own class; close it when done."""

    @property
    def cluster(self) -> Cluster | None:
        """What connects this engine with those of other processes; None: the store is this process's alone."""
        ...

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Run the job in one transaction and answer what it returned, once that is durable.

        The job may be run more than once before that; only what its last run did and returned counts, so it must touch
        nothing but its `Tx`.
        """
        ...

    async def read(self, job: Callable[[Tx], T]) -> T:
        """Run a job that only reads, beside the writer; a write in it raises StoreError."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, then let go of the file."""
        ...
