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
from fledge.store.session_rows import DRIVER, ActiveRow, read_driver
from fledge.store.sessions import Sessions
from fledge.store.unit import Table, Unit, plain_shape, to_json

_decode_ran = msgspec.json.Decoder(TurnRan).decode
_decode_turn = msgspec.json.Decoder(OpenTurn).decode

# Every lane that has somebody in it: a walk over the first column of the index, not over its rows.
_LANES: Final = """
WITH RECURSIVE found (lane) AS (
  SELECT min(queue_lane) FROM active WHERE queue_lane IS NOT NULL
  UNION ALL
  SELECT (SELECT min(queue_lane) FROM active WHERE queue_lane IS NOT NULL AND queue_lane > found.lane) FROM found
  WHERE found.lane IS NOT NULL
) SELECT lane FROM found WHERE lane IS NOT NULL
"""

# Sound and suspect sessions have an index each: neither is searched through the other.
_CLAIMABLE: Final = [
    f"""
SELECT rank, seq, session, queue_lane FROM active
WHERE queue_lane = ? AND (due_at IS NULL OR due_at <= ?) AND is_suspect = {suspect}
  AND (epoch IS NULL OR release_at <= ?)
ORDER BY rank, seq LIMIT ?
"""
    for suspect in (0, 1)
]


class Lane(msgspec.Struct, frozen=True, gc=False):
    """How far a lane's queue has come."""

    lane: str
    rank: int = 0
    last_seq: int = 0


_LANE: Final = plain_shape(Lane, "lanes", "lane")


class Queue:
    """Who waits to be driven, lane by lane, in fair order."""

    def __init__(self, unit: Unit, active: Table[str, ActiveRow], sessions: Sessions) -> None:
        self._unit, self._active, self._sessions = unit, active, sessions
        self._lanes: Table[str, Lane] = Table(unit, _LANE)
        self._ranks = unit.memory("active")
        """By lane and spawner, the rank of its last place there. One that was claimed since has raised the lane's own
        rank, so what is remembered of it does no harm."""

    def put(self, session: str, lane: str, spawner: str, suspect: bool, due_at: Instant | None = None) -> None:
        """Let the session be claimed, from `due_at` on; one already queued keeps its place but takes the new time."""
        row = self._active.get(session) or ActiveRow(session)
        if row.place is not None:
            self._active.put(session, replace(row, place=replace(row.place, suspect=suspect, due_at=due_at)))
            return
        behind = self._ranks.get((lane, spawner))
        if behind is None:
            sql = "SELECT max(rank) FROM active WHERE queue_lane = ? AND spawner = ?"
            behind = self._unit.one(sql, lane, spawner)[0] or 0
        at = self._lanes.get(lane) or Lane(lane)
        rank = self._ranks[lane, spawner] = fair_rank(at.rank, behind)
        seq = at.last_seq + 1
        self._lanes.put(lane, replace(at, last_seq=seq))
        place = QueuePlace(session, lane, rank, suspect, due_at)
        self._active.put(session, replace(row, place=place, spawner=spawner, seq=seq))

    def remove(self, session: str) -> None:
        """It may not be claimed any more."""
        row = self._active.get(session)
        if row is not None and row.place is not None:
            self._ranks.clear()
            self._active.put(session, row.without_place())

    def place(self, session: str) -> QueuePlace | None:
        """Its place in the queue, if it has one."""
        row = self._active.get(session)
        return None if row is None else row.place

    def waiting_by_lane(self, at: Instant) -> list[LaneQueue]:
        """Who waits for a slot at this time, lane by lane; lanes for which nobody waits are left out."""
        # Beside a smallest number stands the session that has it: SQLite says so, and the dialect for others.
        rows = self._unit.all(
            "SELECT queue_lane, count(*), session, min(seq) FROM active"
            " WHERE queue_lane IS NOT NULL AND (due_at IS NULL OR due_at <= ?) GROUP BY queue_lane ORDER BY queue_lane",
            at,
        )
        return [LaneQueue(lane, count, session) for lane, count, session, _ in rows]

    def lane_order(self, lane: str, limit: int) -> list[str]:
        """The first sessions in a lane's queue, in the order in which they are claimed; none that pauses."""
        sql = "SELECT session FROM active WHERE queue_lane = ? AND due_at IS NULL ORDER BY rank, seq LIMIT ?"
        return self._unit.column(sql, lane, limit)

    def paused(self, at: Instant, after: str, limit: int) -> list[str]:
        """Queued sessions that may not be claimed yet at this time, by key, those behind `after`."""
        sql = "SELECT session FROM active WHERE due_at > ? AND session > ? ORDER BY session LIMIT ?"
        return self._unit.column(sql, at, after, limit)

    def claimable(self, widths: dict[str, int], at: Instant, limit: int) -> list[QueuePlace]:
        """Sessions that may be claimed now, in fair order: lane not full, no driver left, suspects one at a time."""
        found: list[QueuePlace] = []
        live = "(release_at IS NULL OR release_at > ?)"
        one = self._unit.one
        suspects = one(f"SELECT count(*) FROM active WHERE lane IS NOT NULL AND suspect = 1 AND {live}", at)[0]
        for lane in self._unit.column(_LANES):
            width = lane_width(widths, lane)
            busy = one(f"SELECT count(*) FROM active WHERE lane = ? AND {live}", lane, at)[0]
            free = min(width - busy, limit - len(found))
            if free <= 0:
                continue
            rows = [(*row, False) for row in self._unit.all(_CLAIMABLE[0], lane, at, at, free)]
            if not suspects:
                rows += [(*row, True) for row in self._unit.all(_CLAIMABLE[1], lane, at, at, 1)]
            for rank, _, session, _, suspect in sorted(rows)[:free]:
                found.append(QueuePlace(session, lane, rank, suspect))
                suspects += suspect
        return found

    def claim(self, place: QueuePlace, owner: str, at: Instant) -> int:
        """Take the lease and the slot; answers the epoch that fences this driver's writes."""
        session = place.session
        row = self._active.get(session)
        if row is None or row.place is None:
            raise StaleWrite(f"{session} is not queued any more")
        epoch = self._sessions.raise_epoch(session)
        lane = self._lanes.get(place.lane) or Lane(place.lane)
        if place.rank > lane.rank:
            self._lanes.put(place.lane, replace(lane, rank=place.rank))
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
        self._active.put(session, ActiveRow(session, driver=driver, turn=row.turn))
        return epoch


class Drivers:
    """Who drives which session: the lease and the slot."""

    def __init__(self, unit: Unit, active: Table[str, ActiveRow], sessions: Sessions) -> None:
        self._unit, self._active, self._sessions = unit, active, sessions

    def get(self, session: str) -> Driver | None:
        """Who drives this session now, superseded or not."""
        row = self._active.get(session)
        return None if row is None else row.driver

    def all(self) -> list[Driver]:
        """All drivers."""
        sql = f"SELECT {DRIVER} FROM active WHERE lane IS NOT NULL ORDER BY claimed_at, session"
        return [read_driver(row) for row in self._unit.all(sql)]

    def of_others(self, owners: Collection[str], limit: int) -> list[Driver]:
        """Drivers that engines other than these started, in order of their claims."""
        marks = ",".join("?" * len(owners))
        sql = (
            f"SELECT {DRIVER} FROM active WHERE lane IS NOT NULL AND owner NOT IN ({marks})"
            " ORDER BY claimed_at, session LIMIT ?"
        )
        return [read_driver(row) for row in self._unit.all(sql, *owners, limit)]

    def of(self, owner: str) -> list[Driver]:
        """Drivers of this engine, in order of their claims."""
        sql = f"SELECT {DRIVER} FROM active WHERE lane IS NOT NULL AND owner = ? ORDER BY claimed_at, session"
        return [read_driver(row) for row in self._unit.all(sql, owner)]

    def count_of(self, owner: str, at: Instant) -> dict[str, int]:
        """How many drivers of this engine take a slot at this time, by lane."""
        sql = (
            "SELECT lane, count(*) FROM active WHERE lane IS NOT NULL AND owner = ?"
            " AND (release_at IS NULL OR release_at > ?) GROUP BY lane"
        )
        return dict(self._unit.all(sql, owner, at))

    def fence(self, session: str, epoch: int) -> Driver:
        """The driver with this epoch; StaleWrite if it was superseded or is gone."""
        driver, known = self.get(session), self._sessions.get(session)
        if driver is None or known is None or not driver.epoch == known.epoch == epoch:
            raise StaleWrite(f"epoch {epoch} of {session} is over")
        return driver

    def progress(self, session: str, at: Instant, step_open: bool, patient_until: Instant | None = None) -> None:
        """The driver is at work; `step_open` says whether a step is under way, which may take until then."""
        row = self._active.get(session)
        if row is not None and row.driver is not None:
            driver = replace(row.driver, progress_at=at, step_open=step_open, patient_until=patient_until)
            self._active.put(session, replace(row, driver=driver))

    def trust(self, session: str) -> None:
        """The driver of this session is no suspect any more: other suspects may be driven beside it."""
        row = self._active.get(session)
        if row is not None and row.driver is not None:
            self._active.put(session, replace(row, driver=replace(row.driver, suspect=False)))

    def release(self, session: str, epoch: int) -> None:
        """The driver with this epoch has exited: its slot is free."""
        row = self._active.get(session)
        if row is not None and row.driver is not None and row.driver.epoch == epoch:
            self._active.put(session, row.without_driver())

    def supersede(self, session: str, until: Instant) -> None:
        """Raise the session's epoch; the old driver, if any, keeps its slot until it exits or `until`."""
        if self._sessions.get(session) is not None:
            self._sessions.raise_epoch(session)
        self.stop(session, until)

    def stop(self, session: str, until: Instant) -> None:
        """Mark the driver as told to stop; its epoch stands. One that was told already keeps its first limit."""
        row = self._active.get(session)
        if row is not None and row.driver is not None and row.driver.release_at is None:
            self._active.put(session, replace(row, driver=replace(row.driver, release_at=until)))

    def interrupt(self, session: str) -> None:
        """The driver's step is called off: its `interrupts` goes up by one, its epoch stands."""
        row = self._active.get(session)
        if row is not None and row.driver is not None:
            driver = replace(row.driver, interrupts=row.driver.interrupts + 1)
            self._active.put(session, replace(row, driver=driver))


class Turns:
    """What sessions that take turns are at: their open turns, and what they wait for."""

    def __init__(
        self,
        unit: Unit,
        active: Table[str, ActiveRow],
        sessions: Sessions,
        commissions: MessageRequests,
        approvals: Approvals,
    ) -> None:
        self._unit, self._active, self._sessions = unit, active, sessions
        self._requests, self._approvals = commissions, approvals

    def state(self, session: str) -> Turn:
        """What the session is at."""
        row, known = self._active.get(session), self._sessions.rows.get(session)
        if known is None:
            return Turn()
        if row is None:
            return Turn(Idle(), known.wait)
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
        """The turn that would open now."""
        known = self._sessions.row(session)
        return OpenTurn(session, known.last_turn + 1, generations, 0, 0, 0, at, opened_after=known.last_entry)

    def open(self, session: str, generations: dict[str, int], at: Instant) -> OpenTurn:
        """Open a turn; refused while one is open."""
        turn = self.next(session, generations, at)
        row = self._active.get(session) or ActiveRow(session)
        if row.turn is not None:
            raise Refused("error", f"a turn of {session} is open")
        self._sessions.rows.put(session, replace(self._sessions.row(session), last_turn=turn.turn))
        self._active.put(session, replace(row, turn=turn))
        return turn

    def get(self, session: str) -> OpenTurn | None:
        """The open turn, if any."""
        row = self._active.get(session)
        return None if row is None else row.turn

    def save(self, turn: OpenTurn) -> None:
        """The open turn is this now; NotFound if another one is open, or none."""
        row = self._active.get(turn.session)
        if row is None or row.turn is None or row.turn.turn != turn.turn:
            raise NotFound(f"turn {turn.turn} of {turn.session} is not open")
        self._active.put(turn.session, replace(row, turn=turn))

    def wait(self, session: str) -> Wait | None:
        """What the session waits for, if it is a conversation that yielded."""
        row = self._sessions.rows.get(session)
        return None if row is None else row.wait

    def save_wait(self, session: str, wait: Wait | None) -> None:
        """It waits for this now, or for nothing."""
        row = self._sessions.row(session)
        if row.wait != wait:
            self._sessions.rows.put(session, replace(row, wait=wait))

    def overdue(self, at: Instant, limit: int) -> list[str]:
        """Sessions whose wait has lasted its time, the longest overdue first."""
        return self._unit.column("SELECT key FROM sessions WHERE wait_at <= ? ORDER BY wait_at LIMIT ?", at, limit)

    def ran(self, session: str, ran: TurnRan) -> None:
        """The open turn runs with this; without one, nothing happens."""
        if self.get(session) is not None:
            self._sessions.rows.put(session, replace(self._sessions.row(session), ran=to_json(ran)))

    def last_ran(self, session: str) -> TurnRan | None:
        """What the session's newest turn that ran with anything ran with."""
        row = self._sessions.rows.get(session)
        return None if row is None or row.ran is None else _decode_ran(row.ran)

    def failing(self) -> list[OpenTurn]:
        """Open turns that have taken rows and were driven in vain, the longest open first."""
        turns = [_decode_turn(row) for row in self._unit.column("SELECT turn FROM active WHERE failing = 1")]
        return sorted(turns, key=lambda turn: (turn.opened_at, turn.session))

    def close(self, session: str, end: TurnEnd, at: Instant, owes: Owes = "nothing") -> None:
        """Close the open turn, if there is one. What was taken up and not answered ends with it: by this turn and by
        earlier ones that yielded, or by this turn alone (`earlier` is still owed), or nothing."""
        row = self._active.get(session)
        turn = None if row is None else row.turn
        if row is not None and turn is not None:
            self._active.put(session, row.without_turn())
            known = self._sessions.row(session)
            self._sessions.rows.put(session, replace(known, ended=to_json(end)))
        if owes == "all" or (owes == "earlier" and turn is None):
            return
        first = 0 if owes == "nothing" or turn is None else turn.turn
        self._requests.end_read(session, end, at, first)
