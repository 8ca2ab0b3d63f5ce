"""The store's contract, in verbs of the domain. One conformance suite (`tests/store/`) runs over every store.

A `Store` runs *jobs*: plain functions that get a `Tx`, decide, and write, all inside one transaction. Many jobs may
share one write to disk, but each stands or falls alone: a job that raises has changed nothing. Decisions are made on
what the job itself reads, so there is nothing to compare and retry; what comes from outside (a driver's write) is
fenced by the session's epoch, and every save by the run's version.

Nothing here knows SQL, phases' rules or time; `at` is always an argument.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from fledge.core.effects import Owes
from fledge.core.events import Event
from fledge.core.progress import Progress
from fledge.core.route import Found
from fledge.core.run import Instant, Path, Run, TextId
from fledge.store.outgoing import OutgoingTx
from fledge.store.records import (
    COMPLETIONS,
    Approval,
    ApprovalState,
    ChildrenPage,
    Commission,
    CompletionKind,
    Counts,
    Driver,
    Entry,
    EntryKind,
    Happened,
    Heartbeat,
    LaneQueue,
    ListedRun,
    ListedSession,
    Place,
    Post,
    PostState,
    Purse,
    Ran,
    Route,
    Row,
    RowKind,
    RowState,
    RunCounts,
    RunFilter,
    RunMark,
    RunWalk,
    Session,
    SessionFacts,
    SessionKind,
    Spec,
    Turn,
    Used,
    Wishes,
)
from fledge.store.rows import RowsTx
from fledge.store.work import WorkTx

T = TypeVar("T")

__all__ = [
    "COMPLETIONS",
    "Approval",
    "ApprovalState",
    "ChildrenPage",
    "Commission",
    "CompletionKind",
    "Counts",
    "Driver",
    "Entry",
    "EntryKind",
    "Happened",
    "Heartbeat",
    "LaneQueue",
    "ListedRun",
    "ListedSession",
    "Place",
    "Post",
    "PostState",
    "Purse",
    "Ran",
    "Route",
    "Row",
    "RowKind",
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
    "Turn",
    "Tx",
    "Used",
    "Wishes",
]


class Tx(WorkTx, OutgoingTx, RowsTx, Protocol):
    """One transaction. Valid only inside the job it was given to."""

    # -- runs
    def create_run(self, run: Run, spec: Spec, event: Event) -> None:
        """Store a run that was just admitted, with its first event. Refused if the key exists."""
        ...

    def load_run(self, key: str) -> Run:
        """The run of this session; NotFound if there is none."""
        ...

    def find_run(self, key: str) -> Run | None:
        """The run of this session, or None."""
        ...

    def save_run(self, before: Run, after: Run, event: Event) -> None:
        """Store a run's next state with the event that made it; StaleWrite unless `before` is what is stored."""
        ...

    def forget_run(self, key: str) -> None:
        """Delete the run, its timeline, texts, names, session and inbox.

        Completions stay while they are unread or undelivered; closed ones go with whoever wrote them, or with the
        inbox they are in if that one is gone.
        """
        ...

    def run_named(self, run_id: str) -> tuple[str, int] | None:
        """The run and attempt that this run id, however old, was given to."""
        ...

    def remember_spawn(self, requester: str, key: str, run: str, digest: str) -> None:
        """From now on this key of this requester means this run; `digest` is of what was asked."""
        ...

    def spawned_by(self, requester: str, key: str) -> tuple[str, str] | None:
        """The run that this key of this requester means, and the digest of what was asked."""
        ...

    def spec(self, key: str) -> Spec:
        """What was asked of this run."""
        ...

    def children(self, session: str) -> list[str]:
        """Keys of all runs spawned by this session, oldest first."""
        ...

    def children_page(self, session: str, limit: int, newest: bool = False) -> ChildrenPage:
        """The first children in list order: active ones first, otherwise the oldest first, or the newest; archived ones
        left out. What it costs does not depend on how many there are."""
        ...

    def archived_above(self, session: str) -> list[str]:
        """Keys of the session's archived children with something below them that is not archived, oldest first."""
        ...

    def count_retained(self, session: str) -> int:
        """How many runs of this session are still kept in its lists: all but archived ones."""
        ...

    def children_in(self, session: str, phase: Literal["spawning", "awaiting_approval"]) -> list[str]:
        """Keys of the session's children in this phase, oldest first."""
        ...

    def reservations(self, limit: int) -> list[str]:
        """Keys of all runs that are still being prepared, oldest first."""
        ...

    def awaiting(self) -> list[str]:
        """Keys of all runs whose plan awaits its answer, oldest first."""
        ...

    def due_runs(self, at: Instant, limit: int) -> list[str]:
        """Runs whose due time has come, the longest overdue first."""
        ...

    def events(self, key: str) -> list[Event]:
        """The timeline of a run, oldest first."""
        ...

    def events_after(self, seq: int, limit: int) -> list[Happened]:
        """Events of all runs numbered above `seq`, in the order they were stored."""
        ...

    def events_around(
        self, session: str, names: Sequence[str], since: Instant, until: Instant, scanned: int
    ) -> list[Happened]:
        """Events with these names of the session's own run and of its children, from `since` on and before `until`,
        oldest first. At most the newest `scanned` events of that time are looked at, whosever they are."""
        ...

    def last_event(self) -> int:
        """The number of the event stored last; 0 if there is none."""
        ...

    # -- texts
    def keep_text(self, owner: str, text: str) -> TextId:
        """Keep a text for a run; the same text gets the same id."""
        ...

    def text(self, text_id: TextId) -> str:
        """A kept text; NotFound if it is gone."""
        ...

    # -- sessions
    def open_session(
        self, key: str, kind: SessionKind, parent: str | None, depth: int, facts: SessionFacts, at: Instant
    ) -> None:
        """Make a session; opening one that exists changes nothing, and one that was deleted is open again, empty."""
        ...

    def session(self, key: str) -> Session | None:
        """The session, or None if it was never opened. A deleted one is still known, with `deleted` set."""
        ...

    def sessions(self, agent_id: str | None = None, limit: int = 1000) -> list[tuple[Session, Instant]]:
        """Sessions that are not deleted (of one agent, or of all) with the time of their last entry, newest first.

        One that has no entry counts from when it was opened.
        """
        ...

    def roots(self) -> list[str]:
        """Keys of open sessions that nobody spawned: conversations and programs, oldest first."""
        ...

    def change_session(self, key: str, facts: SessionFacts, kind: SessionKind | None = None) -> None:
        """From now on this is known of the session, and it is of this kind, if one is given."""
        ...

    def delete_session(self, key: str, keep_transcript: bool = False) -> None:
        """Mark a session deleted, and remove its transcript unless that is kept. No row of any inbox is touched."""
        ...

    def lineage(self, key: str) -> list[Session]:
        """The session and its ancestors, nearest first; a cycle ends it."""
        ...

    def raise_generation(self, key: str) -> int:
        """Whatever was decided under an older generation of this session must not go on."""
        ...

    # -- counting children
    def counts(self, session: str) -> Counts:
        """Its children, spawned and unsettled."""
        ...

    def child_admitted(self, session: str) -> Counts:
        """One more spawned, one more unsettled."""
        ...

    def child_unsettled(self, session: str) -> Counts:
        """A settled child is unsettled again."""
        ...

    def child_settled(self, session: str) -> Counts:
        """One unsettled child fewer."""
        ...

    def unsettled_children(self, session: str, limit: int) -> list[str]:
        """Children of this session that are unsettled, or have something unsettled below them, oldest first."""
        ...

    def name_silent_children(self, session: str) -> list[str]:
        """Children of this session that ended without anything to tell (skipped, not failed), oldest first.

        Each is answered once: from now on its parent knows. One that is resumed may end silently again.
        """
        ...

    def waits_until(self, session: str) -> int | None:
        """The number of settled children this session's waiting run wants, if it waits for a number."""
        ...

    # -- transcripts and turns
    def append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        """Append entries, and add what their replies used; answers the sequence number of the last."""
        ...

    def used(self, session: str) -> Used:
        """What all replies of the session used; nothing of one that was never opened, or was deleted."""
        ...

    def entries(self, session: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        """A page of the transcript, oldest first."""
        ...

    def hold_images(self, session: str, digests: Sequence[str]) -> None:
        """The session's transcript, or a message in its inbox, holds these files: images by digest, attached ones by
        name. Ends with its transcript."""
        ...

    def holds_images(self, session: str) -> bool:
        """True if the session holds any such file."""
        ...

    def images(self) -> set[str]:
        """All files that any session holds: images by digest, attached ones by name."""
        ...

    def last_entry(self, session: str) -> int:
        """The number of the entry appended last, deleted or not; 0 if there was none."""
        ...

    def tail(
        self, session: str, limit: int, without: Sequence[EntryKind] = (), before: int | None = None
    ) -> list[Entry]:
        """The newest entries of the transcript, or of those numbered below `before`; those kinds left out, oldest
        first."""
        ...

    def last_spoken_at(self, session: str) -> Instant | None:
        """When the newest words of a person, or of a program in their place, were read in a conversation."""
        ...

    def open_turn(self, session: str, generations: dict[str, int], at: Instant) -> Turn:
        """Open a turn; refused while one is open."""
        ...

    def turn(self, session: str) -> Turn | None:
        """The open turn, if any."""
        ...

    def failing_turns(self) -> list[Turn]:
        """Open turns that have taken rows and were driven in vain, the longest open first."""
        ...

    def drained(self, session: str, count: int, told_bytes: int = 0) -> None:
        """The open turn has taken this many more rows, and was told so much of completions whole."""
        ...

    def begun_by_person(self, session: str) -> None:
        """What the open turn read first was said by a person or a program."""
        ...

    def set_origin(self, session: str, origin: str, route: Found = "fallback") -> None:
        """The words that the open turn answers came from there; `route` is how that was found."""
        ...

    def turn_failed(self, session: str, failures: int, crashes: int) -> None:
        """Remember how often the open turn was driven in vain."""
        ...

    def turn_stepped(self, session: str, progress: Progress) -> None:
        """Remember how far the open turn has come; without one, nothing happens."""
        ...

    def close_turn(self, session: str, ended: str, at: Instant, owes: Owes = "nothing") -> None:
        """Close the open turn, if there is one, saying how it ended. What was taken up and not answered ends with it:
        by this turn and by earlier ones that yielded, or by this turn alone (`earlier` is still owed), or nothing."""
        ...

    def owed_origin(self, session: str) -> str | None:
        """The origin of the newest turn that closed as `yielded` and that no later turn has answered; None if there is
        none."""
        ...

    def turn_ran(self, session: str, ran: Ran) -> None:
        """The open turn runs with this; without one, nothing happens."""
        ...

    def last_ran(self, session: str) -> Ran | None:
        """What the session's newest turn that ran with anything ran with."""
        ...

    def covered(self, session: str) -> int:
        """The last entry that a note stands for; 0 if there is no such note."""
        ...

    def cover(self, session: str, entry: int) -> None:
        """From now on a note stands for everything up to this entry."""
        ...

    # -- inboxes
    def put_row(
        self,
        key: str,
        session: str | None,
        kind: RowKind,
        source: str | None,
        body: str,
        at: Instant,
        *,
        text: TextId | None = None,
        path: Path = "direct",
        origin: str = "",
        route: Found = "fallback",
        images: str = "",
    ) -> bool:
        """Put a row into an inbox; False, and nothing changes, if a row with this key was ever written."""
        ...

    def row(self, key: str) -> Row | None:
        """A row by its key, whatever its state."""
        ...

    def unread(self, session: str, limit: int = 1_000_000) -> list[Row]:
        """The rows that wait to enter a session, in order of arrival."""
        ...

    def unread_by_child(self, session: str, limit: int) -> list[Row]:
        """The rows that wait to enter a session: messages in order of arrival, then completions in the order in which
        their runs were made, then the wake."""
        ...

    def newest_unread(self, session: str, kind: RowKind | None = None) -> list[Row]:
        """The row (of this kind) that arrived last and still waits; empty if none does."""
        ...

    def count_waiting(self, session: str, kind: RowKind, origin: str) -> int:
        """How many rows of this kind and origin are unread in this inbox."""
        ...

    def drop_row(self, key: str, at: Instant | None) -> None:
        """An unread message gives way to newer ones, without a word; if `at` is None, with a line still to be told."""
        ...

    def dropped(self, session: str, origin: str) -> list[Row]:
        """Rows that gave way and whose line is still to be told, in order of arrival."""
        ...

    def line_told(self, key: str, at: Instant) -> None:
        """The line of a dropped row was told."""
        ...

    def count_unread(self, session: str) -> tuple[int, int]:
        """How many completions and how many sends are unread in this inbox."""
        ...

    def rows_of(self, run: str) -> list[Row]:
        """Completions of this run that are unread or undelivered."""
        ...

    def undelivered(self) -> list[Row]:
        """Every row that was given up on, oldest first."""
        ...

    def close_row(self, key: str, state: RowState, at: Instant) -> bool:
        """Move an unread or undelivered row to `state`; False if it is not there any more. `unread` reopens it.

        The commission of a row that is void has ended so.
        """
        ...

    def readdress_row(self, key: str, session: str | None, path: Path = "direct") -> None:
        """Put an unread row, same key, into another inbox; None while nobody is left."""
        ...

    def rewrite_row(self, key: str, body: str, text: TextId | None) -> None:
        """Change what an unread row says."""
        ...

    def aim_row(self, key: str, origin: str, route: Found) -> None:
        """Say where the answer to an unread row should go, and how that was found."""
        ...

    def trace(self, row_key: str, run: str, at: Instant, trace: str) -> None:
        """Record one attempt to deliver a row."""
        ...

    def traces(self, run: str) -> list[tuple[Instant, str]]:
        """What was recorded of attempts to deliver rows of this run, and when, oldest first."""
        ...

    # -- lanes, leases and slots
    def enqueue(self, session: str, lane: str, spawner: str, suspect: bool, due_at: Instant | None = None) -> None:
        """Let the session be claimed, from `due_at` on; one already queued keeps its place but takes the new time."""
        ...

    def dequeue(self, session: str) -> None:
        """It may not be claimed any more."""
        ...

    def queued(self, session: str) -> Place | None:
        """Its place in the queue, if it has one."""
        ...

    def paused(self, at: Instant, after: str, limit: int) -> list[str]:
        """Queued sessions that may not be claimed yet at this time, by key, those behind `after`."""
        ...

    def waiting_by_lane(self, at: Instant) -> list[LaneQueue]:
        """Who waits for a slot at this time, lane by lane; lanes for which nobody waits are left out."""
        ...

    def count_rows(self) -> tuple[int, int]:
        """How many runs there are and how many sessions, archived and deleted ones included."""
        ...

    def claimable(self, widths: dict[str, int], at: Instant, limit: int) -> list[Place]:
        """Sessions that may be claimed now, in fair order: lane not full, no driver left, suspects one at a time."""
        ...

    def claim(self, place: Place, owner: str, at: Instant) -> int:
        """Take the lease and the slot; answers the epoch that fences this driver's writes."""
        ...

    def driver(self, session: str) -> Driver | None:
        """Who drives this session now, superseded or not."""
        ...

    def drivers(self) -> list[Driver]:
        """All drivers."""
        ...

    def drivers_of_others(self, owner: str, limit: int) -> list[Driver]:
        """Drivers that another process started, in order of their claims."""
        ...

    def fence(self, session: str, epoch: int) -> Driver:
        """The driver with this epoch; StaleWrite if it was superseded or is gone."""
        ...

    def progress(self, session: str, at: Instant, step_open: bool, patient_until: Instant | None = None) -> None:
        """The driver is at work; `step_open` says whether a step is under way, which may take until then."""
        ...

    def trust_driver(self, session: str) -> None:
        """The driver of this session is no suspect any more: other suspects may be driven beside it."""
        ...

    def release(self, session: str, epoch: int) -> None:
        """The driver with this epoch has exited: its slot is free."""
        ...

    def supersede(self, session: str, until: Instant) -> None:
        """Raise the session's epoch; the old driver, if any, keeps its slot until it exits or `until`."""
        ...

    def stop_driver(self, session: str, until: Instant) -> None:
        """Mark the driver as told to stop; its epoch stands."""
        ...

    def interrupt(self, session: str) -> None:
        """The driver's step is called off: its `interrupts` goes up by one, its epoch stands."""
        ...

    def next_due(self, after: Instant) -> Instant | None:
        """The earliest time later than `after` at which a run, a queued session, a slot, a post or a binding
        is due."""
        ...


class Store(Protocol):
    """A place where jobs run. Open it with its own class; close it when done."""

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
