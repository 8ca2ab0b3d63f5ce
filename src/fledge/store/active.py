"""Sessions at work: their places in queues, their drivers, their open turns. All three are parts of one row."""

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec.structs import replace

from fledge.core.effects import Owes
from fledge.core.policy import fair_rank, lane_width
from fledge.core.run import Instant
from fledge.core.turn import AskingPerson, Driven, Due, Idle, OpenTurn, Turn, TurnEnd, Wait
from fledge.errors import NotFound, Refused, StaleWrite
from fledge.store.people import Approvals, MessageRequests
from fledge.store.records import Driver, LaneQueue, QueuePlace, TurnRan
from fledge.store.runs import Runs
from fledge.store.session_rows import DRIVER, IDLE, UNOPENED, ActiveRow, decode_turn, read_driver
from fledge.store.sessions import Sessions
from fledge.store.unit import Table, Unit, json_decoder, marks, plain_shape, to_json

_decode_ran = json_decoder(TurnRan)

WAITED: Final = "SELECT key FROM sessions WHERE wait_at <= ? ORDER BY wait_at LIMIT ?"
_LIVE: Final = "(release_at IS NULL OR release_at > ?)"
COUNTS: Final = f"SELECT lane, count(*) FROM active WHERE lane IS NOT NULL AND owner = ? AND {_LIVE} GROUP BY lane"
SUSPECTS: Final = f"SELECT count(*) FROM active WHERE lane IS NOT NULL AND suspect = 1 AND {_LIVE}"
_AT_WORK: Final = (
    "SELECT works_in, works_since FROM active WHERE lane IS NOT NULL AND works_in IS NOT NULL ORDER BY session"
)
# All lanes with queued sessions, and how many are driven in each: this walks over the first column of the index, not
# over its rows.
LANES: Final = f"""
WITH RECURSIVE found (lane) AS (
  SELECT min(queue_lane) FROM active WHERE queue_lane IS NOT NULL
  UNION ALL
  SELECT (SELECT min(queue_lane) FROM active WHERE queue_lane IS NOT NULL AND queue_lane > found.lane) FROM found
  WHERE found.lane IS NOT NULL
) SELECT lane, (SELECT count(*) FROM active a WHERE a.lane = found.lane AND {_LIVE}) FROM found WHERE lane IS NOT NULL
"""

# Sound and suspect sessions have an index each, so that neither search reads rows of the other.
_CLAIMABLE: Final = [
    f"""
SELECT rank, seq, session, {suspect} FROM active
WHERE queue_lane = ? AND (due_at IS NULL OR due_at <= ?) AND is_suspect = {suspect}
  AND (epoch IS NULL OR release_at <= ?)
ORDER BY rank, seq LIMIT ?
"""
    for suspect in (0, 1)
]


class Lane(msgspec.Struct, frozen=True, gc=False):
    """The current rank of a lane, and the last number given to a place."""

    lane: str
    rank: int = 0
    last_seq: int = 0


_LANE: Final = plain_shape(Lane, "lanes", "lane")


class Queue:
    """The queued sessions of each lane, in fair order."""

    def __init__(self, unit: Unit, active: Table[str, ActiveRow], sessions: Sessions) -> None:
        self._unit, self._active, self._sessions = unit, active, sessions
        self.lanes: Table[str, Lane] = Table(unit, _LANE)
        self._ranks = unit.memory("active")
        """The rank of the last place by lane and spawner. It may be that of a claimed place: the claim has raised the
        lane's rank, so an old value does no harm."""

    def put(self, session: str, lane: str, spawner: str, suspect: bool, due_at: Instant | None = None) -> None:
        """Queue the session, to be claimed from `due_at` on. A queued one keeps its place, with the new time."""
        row = self._active.get(session) or ActiveRow(session)
        if row.place is not None:
            self._active.put(session, replace(row, place=replace(row.place, suspect=suspect, due_at=due_at)))
            return
        behind = self._ranks.get((lane, spawner))
        if behind is None:
            sql = "SELECT max(rank) FROM active WHERE queue_lane = ? AND spawner = ?"
            behind = self._unit.one(sql, lane, spawner)[0] or 0
        at = self.lanes.get(lane) or Lane(lane)
        rank = self._ranks[lane, spawner] = fair_rank(at.rank, behind)
        seq = at.last_seq + 1
        self.lanes.put(lane, replace(at, last_seq=seq))
        place = QueuePlace(session, lane, rank, suspect, due_at)
        self._active.put(session, replace(row, place=place, spawner=spawner, seq=seq))

    def remove(self, session: str) -> None:
        """Take the session out of its queue."""
        row = self._active.get(session) or IDLE
        if row.place is not None:
            self._ranks.clear()
            self._active.put(session, row.without_place())

    def place(self, session: str) -> QueuePlace | None:
        """Its place in the queue, if it has one."""
        return (self._active.get(session) or IDLE).place

    def waiting_by_lane(self, at: Instant) -> list[LaneQueue]:
        """The sessions that wait for a slot at this time, by lane; lanes without any are left out."""
        # With min() SQLite takes the other columns from the row of the minimum; `dialect` does the same elsewhere.
        rows = self._unit.all(
            "SELECT queue_lane, count(*), session, min(seq) FROM active"
            " WHERE queue_lane IS NOT NULL AND (due_at IS NULL OR due_at <= ?) GROUP BY queue_lane ORDER BY queue_lane",
            at,
        )
        return [LaneQueue(lane, count, session) for lane, count, session, _ in rows]

    def lane_order(self, lane: str, limit: int) -> list[str]:
        """The first sessions of a lane's queue, in the order in which they are claimed, without paused ones."""
        sql = "SELECT session FROM active WHERE queue_lane = ? AND due_at IS NULL ORDER BY rank, seq LIMIT ?"
        return self._unit.column(sql, lane, limit)

    def paused(self, at: Instant, after: str, limit: int) -> list[str]:
        """Queued sessions that are not due yet, by key, after the key `after`."""
        sql = "SELECT session FROM active WHERE due_at > ? AND session > ? ORDER BY session LIMIT ?"
        return self._unit.column(sql, at, after, limit)

    def claimable(self, widths: dict[str, int], at: Instant, limit: int) -> list[QueuePlace]:
        """Sessions that can be claimed now, in fair order: with a free slot, without a driver, suspects one at a
        time."""
        ((suspects,),), lanes = self._unit.all_of((SUSPECTS, at), (LANES, at))
        rooms = [(lane, min(lane_width(widths, lane) - busy, limit)) for lane, busy in lanes]
        rooms = [(lane, room) for lane, room in rooms if room > 0]
        queued = self._unit.all_of(
            *((_CLAIMABLE[0], lane, at, at, room) for lane, room in rooms),
            *((_CLAIMABLE[1], lane, at, at, 0 if suspects else 1) for lane, _ in rooms),
        )
        found: list[QueuePlace] = []
        for (lane, room), sound, suspect in zip(rooms, queued, queued[len(rooms) :], strict=False):
            rows = sound if suspects else sorted(sound + suspect)
            for rank, _, session, is_suspect in rows[: min(room, limit - len(found))]:
                found.append(QueuePlace(session, lane, rank, bool(is_suspect)))
                suspects += is_suspect
        return found

    def claim(self, place: QueuePlace, owner: str, at: Instant) -> int:
        """Take the lease and the slot; returns the epoch that fences this driver's writes."""
        session = place.session
        row = self._active.get(session) or IDLE
        if row.place is None:
            raise StaleWrite(f"{session} is not queued any more")
        epoch = self._sessions.raise_epoch(session)
        lane = self.lanes.get(place.lane) or Lane(place.lane)
        if place.rank > lane.rank:
            self.lanes.put(place.lane, replace(lane, rank=place.rank))
        driver = Driver(
            session,
            epoch,
            owner,
            place.lane,
            place.suspect,
            claimed_at=at,
            progress_at=at,
            step_open=True,
            release_at=None,
        )
        if row.driver is not None:  # one that has not exited in time: what it may still write counts as the new one's
            driver = replace(driver, works_in=row.driver.works_in, works_since=row.driver.works_since)
        self._active.put(session, ActiveRow(session, driver=driver, turn=row.turn))
        return epoch


class Drivers:
    """The drivers of sessions: their leases and slots."""

    def __init__(self, unit: Unit, active: Table[str, ActiveRow], sessions: Sessions) -> None:
        self._unit, self._active, self._sessions = unit, active, sessions

    def get(self, session: str) -> Driver | None:
        """The driver of this session, superseded or not."""
        return (self._active.get(session) or IDLE).driver

    def all(self) -> list[Driver]:
        """All drivers."""
        return self._found("ORDER BY claimed_at, session")

    def of_others(self, owners: Collection[str], limit: int) -> list[Driver]:
        """Drivers of other engines than these, in the order of their claims."""
        others = f"AND owner NOT IN ({marks(len(owners))})"
        return self._found(f"{others} ORDER BY claimed_at, session LIMIT ?", *owners, limit)

    def of(self, owner: str) -> list[Driver]:
        """Drivers of this engine, in the order of their claims."""
        return self._found("AND owner = ? ORDER BY claimed_at, session", owner)

    def _found(self, which: str, *args: object) -> list[Driver]:
        sql = f"SELECT {DRIVER} FROM active WHERE lane IS NOT NULL {which}"
        return [read_driver(row) for row in self._unit.all(sql, *args)]

    def count_of(self, owner: str, at: Instant) -> dict[str, int]:
        """How many slots the drivers of this engine take at this time, by lane."""
        return dict(self._unit.all(COUNTS, owner, at))

    def fence(self, session: str, epoch: int) -> Driver:
        """The driver with this epoch. Raises `StaleWrite` if it was superseded or is gone."""
        driver, known = self.get(session), self._sessions.get(session)
        if driver is None or known is None or not driver.epoch == known.epoch == epoch:
            raise StaleWrite(f"epoch {epoch} of {session} is over")
        return driver

    def progress(self, session: str, at: Instant, step_open: bool, patient_until: Instant | None = None) -> None:
        """Record progress of the driver: whether a step is open, and until when its tools may take."""
        row = self._active.get(session) or IDLE
        if row.driver is not None:
            driver = replace(row.driver, progress_at=at, step_open=step_open, patient_until=patient_until)
            self._active.put(session, replace(row, driver=driver))

    def trust(self, session: str) -> None:
        """The driver of this session is no longer suspect: other suspects may be driven at the same time."""
        row = self._active.get(session) or IDLE
        if row.driver is not None:
            self._active.put(session, replace(row, driver=replace(row.driver, suspect=False)))

    def begin_work(self, session: str, workspace: str, at: Instant) -> None:
        """Record that the driver's tools may write in this workspace; does nothing if that is recorded."""
        row = self._active.get(session) or IDLE
        if row.driver is not None and row.driver.works_in is None:
            driver = replace(row.driver, works_in=workspace, works_since=at)
            self._active.put(session, replace(row, driver=driver))

    def at_work(self) -> list[tuple[str, Instant]]:
        """Workspaces in which drivers may write now, and since when, by session."""
        return [(workspace, since) for workspace, since in self._unit.all(_AT_WORK)]

    def release(self, session: str, epoch: int) -> Driver | None:
        """Free the slot of the driver with this epoch, which has exited; returns that driver, if it had one."""
        row = self._active.get(session) or IDLE
        driver = row.driver
        if driver is None or driver.epoch != epoch:
            return None
        self._active.put(session, row.without_driver())
        return driver

    def supersede(self, session: str, until: Instant) -> None:
        """Raise the session's epoch; the old driver, if any, keeps its slot until it exits or `until`."""
        if self._sessions.get(session) is not None:
            self._sessions.raise_epoch(session)
        self.stop(session, until)

    def stop(self, session: str, until: Instant) -> None:
        """Mark the driver as stopping; its epoch stays. A driver that is stopping already keeps its first deadline."""
        row = self._active.get(session) or IDLE
        if row.driver is not None and row.driver.release_at is None:
            self._active.put(session, replace(row, driver=replace(row.driver, release_at=until)))

    def interrupt(self, session: str) -> None:
        """Interrupt the driver's step: raise `interrupts` by one; the epoch stays."""
        row = self._active.get(session) or IDLE
        if row.driver is not None:
            driver = replace(row.driver, interrupts=row.driver.interrupts + 1)
            self._active.put(session, replace(row, driver=driver))


class Turns:
    """The turns of sessions: open turns and waits."""

    def __init__(
        self,
        unit: Unit,
        active: Table[str, ActiveRow],
        runs: Runs,
        sessions: Sessions,
        requests: MessageRequests,
        approvals: Approvals,
    ) -> None:
        self._unit, self._active, self._runs, self._sessions = unit, active, runs, sessions
        self._requests, self._approvals = requests, approvals

    def state(self, session: str) -> Turn | None:
        """The state of a session's turn: of a conversation, or of a child after its run's end. None for a live run,
        whose phase is its state, for a program, and for a session that is deleted or unknown."""
        known, run = self._sessions.rows.get(session), self._runs.find(session)
        if known is None or known.session.deleted or known.session.kind == "program":
            return None
        if run is not None and run.ended is None:
            return None
        row = self._active.get(session) or IDLE
        turn, driver, place = row.turn, row.driver, row.place
        if turn is None:
            return Turn(Idle() if place is None else Due(place.due_at), known.wait)
        if driver is not None and driver.release_at is None and driver.epoch == known.session.epoch:
            return Turn(Driven(turn), known.wait)
        due_at = None if place is None else place.due_at
        if due_at is not None and any(one.state == "waiting" for one in self._approvals.of(session)):
            return Turn(AskingPerson(due_at, turn), known.wait)
        return Turn(Due(due_at, turn), known.wait)

    def next(self, session: str, generations: dict[str, int], at: Instant) -> OpenTurn:
        """The turn that `open` would open."""
        known = self._sessions.row(session)
        return OpenTurn(session, known.last_turn + 1, generations, 0, 0, 0, at, opened_after=known.last_entry)

    def open(self, session: str, generations: dict[str, int], at: Instant) -> OpenTurn:
        """Open a turn. Raises `Refused` if one is open."""
        turn = self.next(session, generations, at)
        row = self._active.get(session) or ActiveRow(session)
        if row.turn is not None:
            raise Refused("error", f"a turn of {session} is open")
        self._sessions.rows.put(session, replace(self._sessions.row(session), last_turn=turn.turn))
        self._active.put(session, replace(row, turn=turn))
        return turn

    def get(self, session: str) -> OpenTurn | None:
        """The open turn, if any."""
        return (self._active.get(session) or IDLE).turn

    def save(self, turn: OpenTurn) -> None:
        """Store the open turn. Raises `NotFound` if it is not the open one."""
        row = self._active.get(turn.session) or IDLE
        if row.turn is None or row.turn.turn != turn.turn:
            raise NotFound(f"turn {turn.turn} of {turn.session} is not open")
        self._active.put(turn.session, replace(row, turn=turn))

    def wait(self, session: str) -> Wait | None:
        """The wait of a conversation that yielded, if there is one."""
        return (self._sessions.rows.get(session) or UNOPENED).wait

    def save_wait(self, session: str, wait: Wait | None) -> None:
        """Store the session's wait, or that it has none."""
        row = self._sessions.row(session)
        if row.wait != wait:
            self._sessions.rows.put(session, replace(row, wait=wait))

    def overdue(self, at: Instant, limit: int) -> list[str]:
        """Sessions whose wait is over by time, the longest overdue first."""
        return self._unit.column(WAITED, at, limit)

    def ran(self, session: str, ran: TurnRan) -> None:
        """Store what the open turn runs with; does nothing without an open turn."""
        if self.get(session) is not None:
            self._sessions.rows.put(session, replace(self._sessions.row(session), ran=to_json(ran)))

    def last_ran(self, session: str) -> TurnRan | None:
        """The model, tools and settings of the last turn that reached its model."""
        ran = (self._sessions.rows.get(session) or UNOPENED).ran
        return None if ran is None else _decode_ran(ran)

    def failing(self) -> list[OpenTurn]:
        """Open turns that have read inbox rows and have failed, the longest open first."""
        turns = [decode_turn(row) for row in self._unit.column("SELECT turn FROM active WHERE failing = 1")]
        return sorted(turns, key=lambda turn: (turn.opened_at, turn.session))

    def close(self, session: str, end: TurnEnd, at: Instant, owes: Owes = "nothing") -> None:
        """Close the open turn, if there is one, and end its unanswered requests: those that this turn and earlier ones
        have read, only those of this turn (`owes` is `earlier`), or none (`all`)."""
        row = self._active.get(session) or IDLE
        turn = row.turn
        if turn is not None:
            self._active.put(session, row.without_turn())
            known = self._sessions.row(session)
            self._sessions.rows.put(session, replace(known, ended=to_json(end)))
        if owes == "all" or (owes == "earlier" and turn is None):
            return
        first = 0 if owes == "nothing" or turn is None else turn.turn
        self._requests.end_read(session, end, at, first)
