"""Feeds for watchers from outside: events of runs, which are durable and numbered, and live events of turns.

A watcher reads the numbered events itself, from its own cursor on, so nothing is kept for a slow one, and one that
comes back with its cursor misses nothing. Live events are not kept: a slow watcher loses the oldest of them and gets
their number. The first ones are the text so far of replies that are being written.

A watcher may have rows in place of the numbered events: each run as it stands, at most once a second. A row that has to
wait holds the cursor back, so the last state of a run is never missed.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from fledge.api import entries
from fledge.api.fledge import Fledge
from fledge.api.views import session_key
from fledge.clock import wait_for_event
from fledge.commands.listing import RowReader, wire_status
from fledge.commands.looking import is_below
from fledge.commands.table import Moment, Params
from fledge.commands.values import RunRow
from fledge.core.entries import HistoryEntry, LineEntry
from fledge.core.live import is_late
from fledge.core.params import formerly
from fledge.core.run import EndedReason, Instant
from fledge.core.value import NamedValue
from fledge.errors import BadInput
from fledge.runtime.feed import Subscription, TurnEvent
from fledge.store.base import Happened, Tx

PAGE: Final = 200
FAR_BEHIND: Final = 3 * PAGE
LIVE: Final = 1000
"""The most live events that wait for a slow watcher."""
EVERY_S: Final = 1.0
"""The least time between two rows of the same run."""
ROW_KINDS: Final = frozenset(("start", "end", "error", "model:start", "tool:start", "tool:end", "usage", "retry"))
"""The kinds of live events that change the row of their run."""


class RunHappened(NamedValue, tag_field="type", tag="run"):
    """An event of a run. `phase` and `status` are the present ones when it is sent, not those just after the event."""

    cursor: int
    session_key: str
    run_id: str
    event: str
    version: int
    at: Instant
    phase: str
    status: str
    """The outcome's word once there is one, else the phase."""
    ended_reason: EndedReason | None
    requester: str
    label: str


class Live(NamedValue, omit_defaults=True, tag_field="type", tag="turn"):
    """A live event: something happened inside a turn. The fields mean the same as in the library's `TurnEvent`."""

    session_key: str
    kind: str
    text: str = ""
    turn: int = 0
    call: str = ""
    remedy: str = ""
    retry_in_s: float = 0.0
    entry: int = 0
    arguments: str = ""
    cause: str = ""
    offset: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    is_error: bool = False
    may_pass: bool = False


class NewEntry(NamedValue, tag_field="type", tag="entry"):
    """An entry was appended to a transcript; `entry` is the same value as in `sessions.history`."""

    session_key: str
    entry: HistoryEntry


class ApprovalsChanged(NamedValue, tag_field="type", tag="approvals"):
    """The questions that wait for a person have changed; `open` has the ids of all that wait now."""

    open: tuple[str, ...]


class Lost(NamedValue, tag_field="type", tag="lost"):
    """At least `count` live events are missing, because this watcher is slow, or messages between processes that share
    a store were lost."""

    count: int


class FeedClosing(NamedValue, tag_field="type", tag="closing"):
    """The feed ends here; a new feed from this cursor continues it."""

    cursor: int
    reason: str


class RowEvent(NamedValue, tag_field="type", tag="row"):
    """A run has changed; `row` is its present state. `cursor`: every event up to there is covered by this row or by
    earlier ones."""

    cursor: int
    row: RunRow


FeedEvent = RunHappened | Live | NewEntry | ApprovalsChanged | Lost | FeedClosing | RowEvent


class Subscribe(Params):
    """`events.subscribe`."""

    cursor: Annotated[int, Meta(ge=0, description="only what came after; without it, from now on")] | None = None
    session: Annotated[
        str, Meta(max_length=256, description="only of this session and below"), formerly("sessionKey")
    ] = ""
    live: Annotated[
        bool, Meta(description="also what turns tell while they last; it begins with the text so far of open replies")
    ] = True
    rows: Annotated[bool, Meta(description="rows of runs, as `runs.query` has them, in place of their events")] = False
    entries: Annotated[bool, Meta(description="also new entries of transcripts, as values")] = False
    """Entries of the session that is watched, and of each session with a live event."""


class Watch:
    """The view of one watcher. Call `begin`, then `next` (or `wait` and `take`) again and again, then `close`. `early`
    is a subscription that has collected live events for it until it begins."""

    def __init__(self, fl: Fledge, wanted: Subscribe, early: Subscription | None = None) -> None:
        self._fl, self._store, self._wanted = fl, fl.engine.store, wanted
        self._root = session_key(wanted.session, "session") if wanted.session else ""
        self._ready = asyncio.Event()
        self._within: dict[str, bool] = {}
        self._asked: tuple[str, ...] = ()
        self._heard: Subscription | None = None
        self._early, self._before = early, list[TurnEvent]()
        self._changed = Changed()
        self._since = fl.engine.clock.now()
        self._entries: dict[str, int] = {}
        """By session: the last entry that was given to the watcher."""
        self._looked_at = 0
        """The last numbered event that was looked at."""
        self.last = 0
        """The last numbered event that there was at the last look."""
        self._unfinished: tuple[str, ...] = ()
        """Sessions with more new entries than the last look took."""
        self.cursor = 0
        """Where to resume: every event up to there was given to the watcher."""

    async def begin(self) -> None:
        """Begin to watch. Refused: a cursor above the number of the last event."""
        wanted = self._wanted.cursor
        last = await self._store.read(lambda tx: tx.events.last())
        if wanted is not None and not 0 <= wanted <= last:
            raise BadInput("cursor", f"must be the cursor of an event, 0 to {last}", wanted)
        self.last = last
        self.cursor = self._looked_at = last if wanted is None else wanted
        if self._wanted.rows and wanted is not None:
            await self._store.read(self._all_driven)
        named = self._root if self._wanted.live else ""
        self._heard = self._fl.listen(LIVE, self._ready.set, session=named)
        self._fl.watch(self._ready)
        if self._early is not None:
            self._heard.waiting()  # the early one has heard the open replies from their beginning
            self._before = self._early.waiting()
            self._early.close()

    def close(self) -> None:
        """Stop watching."""
        if self._heard is not None:
            self._heard.close()
        self._fl.unwatch(self._ready)

    def poke(self) -> None:
        """Make `next` return at once, even without an event."""
        self._ready.set()

    async def next(self, quiet_s: float) -> list[FeedEvent]:
        """The events since the last look, as soon as there are any; none if there are none for `quiet_s` seconds, when
        poked, or when a whole page of numbered events was about other sessions."""
        if events := await self.take():
            return events
        await self.wait(quiet_s)
        return await self.take()

    @property
    def is_far_behind(self) -> bool:
        """True if many numbered events come before the present ones."""
        return self.last - self._looked_at > FAR_BEHIND

    async def take(self) -> list[FeedEvent]:
        """The numbered events after the cursor, a page at most, and the live events since the last look; moves the
        cursor behind them. After a full page `wait` returns at once."""
        self._ready.clear()
        told = [*self._before, *([] if self._heard is None else self._heard.waiting())]
        self._before = []
        tick_s = asyncio.get_running_loop().time()

        def look(tx: Tx) -> list[FeedEvent]:
            page = tx.events.after(self._looked_at, PAGE)
            self._looked_at = page[-1].seq if page else self._looked_at
            self.last = tx.events.last() if len(page) == PAGE else self._looked_at
            wanted = [one for one in page if self._is_wanted(tx, one.run)]
            events = self._rows(tx, wanted, told, tick_s) if self._wanted.rows else [_told(tx, one) for one in wanted]
            self.cursor = self._changed.safe(self._looked_at)
            asked = tuple(one.id for one in tx.approvals.open() if self._is_wanted(tx, one.session))
            if asked != self._asked:
                events.append(ApprovalsChanged(open=asked))
                self._asked = asked
            events += [one for event in told if (one := self._live(tx, event)) is not None]
            return events + self._new_entries(tx, [event.session for event in told])

        events = await self._store.read(look)
        if self.is_behind(self.last):
            self._ready.set()
        return events

    def is_behind(self, last: int) -> bool:
        """True if the last look has not come to the event of this number, or has left out new entries."""
        return self._looked_at < last or bool(self._unfinished)

    def _rows(self, tx: Tx, happened: Sequence[Happened], told: Sequence[TurnEvent], tick_s: float) -> list[FeedEvent]:
        """The rows of runs that have changed, except those whose row was sent within the last second."""
        for one in happened:
            self._changed.note(one.run, one.seq)
        for event in told:
            if event.kind == "lost":
                self._all_driven(tx)
            elif event.kind in ROW_KINDS:
                self._changed.note(event.session)
        due = self._changed.due(tick_s)
        if not due:
            return []
        reader = RowReader(Moment(tx, self._fl.engine.clock.now(), self._fl.drives))
        cursor = self._changed.safe(self._looked_at)
        rows: list[FeedEvent] = []
        # From the last row to the first: the cursor of a row stays before the events that only later rows show.
        for key, seq in reversed(due):
            if self._is_wanted(tx, key) and (run := tx.lists.run(key)) is not None:
                rows.append(RowEvent(cursor=cursor, row=reader.row(run)))
                cursor = cursor if seq is None else min(cursor, seq - 1)
        return rows[::-1]

    def _all_driven(self, tx: Tx) -> None:
        """Note each run at work as changed: it may have changed without an event."""
        for driver in tx.drivers.all():
            self._changed.note(driver.session)

    async def wait(self, quiet_s: float) -> None:
        """Wait until there may be an event, or a row that was held back may be sent; at most `quiet_s` seconds."""
        next_s = self._changed.next_s(asyncio.get_running_loop().time())
        await wait_for_event(self._ready, quiet_s if next_s is None else min(quiet_s, next_s))

    def _new_entries(self, tx: Tx, active: list[str]) -> list[FeedEvent]:
        """Entries that were not sent yet, a page of each session at most: of the session that is watched, of those that
        the last look did not finish, and of sessions with live events."""
        if not self._wanted.entries:
            return []
        found: list[FeedEvent] = []
        unfinished: list[str] = []
        for session in dict.fromkeys((self._root, *self._unfinished, *active)):
            if not session or not self._is_wanted(tx, session):
                continue
            if session not in self._entries:
                self._entries[session] = _last_before(tx, session, self._since)
            page = entries.page(tx, session, PAGE, after=self._entries[session])
            self._entries[session] = max(self._entries[session], page.last)
            new = (one for one in page.entries if not isinstance(one, LineEntry))
            found += [NewEntry(session_key=session, entry=one) for one in new]
            if page.newer:
                unfinished.append(session)
        self._unfinished = (*unfinished,)
        return found

    def _is_wanted(self, tx: Tx, session: str) -> bool:
        if self._root in ("", session):  # also before there is such a session
            return True
        if session not in self._within:
            self._within[session] = is_below(tx, self._root, session)
        return self._within[session]

    def _live(self, tx: Tx, event: TurnEvent) -> FeedEvent | None:
        if event.kind == "lost":
            return Lost(count=event.count)
        if not self._wanted.live or not self._is_wanted(tx, event.session):
            return None
        if event.elsewhere and is_late(event, tx.transcripts.last(event.session)):
            return None  # a newer entry may have been sent already
        return live_event(event)


_TOLD: Final = [name for name in Live.__struct_fields__ if name != "session_key"]
"""The fields that a live event takes from the `TurnEvent`, by the same names."""


class Changed:
    """Runs whose row has changed and was not sent since; each row is sent at most once in `EVERY_S`."""

    def __init__(self) -> None:
        self._changed: dict[str, int | None] = {}
        """By key, the first event that its row has yet to show; None: it changed without one."""
        self._told_at: dict[str, float] = {}
        """When the row of a run was last sent."""

    def note(self, key: str, seq: int | None = None) -> None:
        """The run has changed, by this event or without one."""
        if self._changed.get(key) is None:
            self._changed[key] = seq

    def due(self, now: float) -> list[tuple[str, int | None]]:
        """The runs whose rows must be sent now, each with the first event that its row has yet to show, in the order of
        these events; they count as sent from here on."""
        self._told_at = {key: at for key, at in self._told_at.items() if now - at < EVERY_S}
        due = [(key, seq) for key, seq in self._changed.items() if key not in self._told_at]
        for key, _ in due:
            del self._changed[key]
            self._told_at[key] = now
        return sorted(due, key=lambda one: one[1] or 0)

    def safe(self, looked_at: int) -> int:
        """The last event up to which every changed row was sent."""
        return min((seq - 1 for seq in self._changed.values() if seq is not None), default=looked_at)

    def next_s(self, now: float) -> float | None:
        """How many seconds until a row that was held back may be sent; None: there is none."""
        waits = [self._told_at[key] + EVERY_S - now for key in self._changed if key in self._told_at]
        return max(0.0, min(waits)) if waits else None


def _last_before(tx: Tx, session: str, since: Instant) -> int:
    """The number of the newest entry that is older than this; 0 if none is. Looks at one page of entries: if all of
    them are younger, it is the number before theirs."""
    newest = tx.transcripts.tail(session, PAGE)
    return max((one.seq for one in newest if one.at < since), default=newest[0].seq - 1 if newest else 0)


def live_event(event: TurnEvent) -> Live:
    """An event inside a turn, as a feed has it."""
    return Live(session_key=event.session, **{name: getattr(event, name) for name in _TOLD})


def _told(tx: Tx, happened: Happened) -> FeedEvent:
    run = tx.runs.load(happened.run)
    status, ended_reason = wire_status(run)
    return RunHappened(
        cursor=happened.seq,
        session_key=run.key,
        run_id=run.run_id,
        event=type(happened.event).__name__,
        version=happened.version,
        at=happened.event.at,
        phase=run.phase.name,
        status=status,
        ended_reason=ended_reason,
        requester=run.terms.parent,
        label=tx.runs.spec(run.key).label,
    )
