"""The rows of sessions: one for each, and one more for each session at work.

A session at work is queued, is driven, or has an open turn. These change together, so they are one row.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from fledge.core.run import Instant
from fledge.core.turn import OpenTurn, Wait
from fledge.core.value import Value
from fledge.store.records import Counts, Driver, QueuePlace, Session, SessionFacts, Used
from fledge.store.unit import TableShape, to_json

_decode_facts = msgspec.json.Decoder(SessionFacts).decode
_decode_turn = msgspec.json.Decoder(OpenTurn).decode
_decode_wait = msgspec.json.Decoder(Wait).decode


class StoredSession(Value):
    """A session as it is stored."""

    session: Session
    last_at: Instant
    last_entry: int = 0
    last_turn: int = 0
    covered: int = 0
    used: Used = Used()
    below_usd: float | None = None
    counts: Counts = Counts(0, 0)
    handover: str | None = None
    ran: str | None = None
    ended: str | None = None
    wait: Wait | None = None


UNOPENED: Final = StoredSession(Session("", "named", None, 0, SessionFacts(), False, 0, 0, 0.0), 0.0)
"""What holds of a session that was never opened."""

SESSION: Final = "key, kind, parent, depth, facts, state, created_at, epoch, generation, last_at"
"""Columns of a session in a list."""
_REST: Final = (
    "last_entry, last_turn, covered, tokens_in, tokens_out, cost_usd, tokens_cached, below_usd, spawned, unsettled,"
    " goods, ran, ended, wait"
)


def _wait_values(wait: Wait | None) -> tuple[Any, ...]:
    """The wait, and its deadline."""
    return (None, None) if wait is None else (to_json(wait), None if wait.over else wait.due_at)


def _numbers(row: StoredSession) -> tuple[Any, ...]:
    """The columns that change when a driver or a turn begins."""
    return row.session.epoch, row.session.generation, row.last_turn, row.covered


def _used(row: StoredSession) -> tuple[Any, ...]:
    used = row.used
    return used.tokens_in, used.tokens_out, used.cost_usd, used.tokens_cached, row.below_usd


def _who(session: Session) -> tuple[Any, ...]:
    """The columns that seldom change."""
    return session.kind, to_json(session.facts), "deleted" if session.deleted else "open"


def _values(row: StoredSession) -> tuple[Any, ...]:
    one = row.session
    return (
        *(one.key, one.parent, one.depth, one.created_at, *_who(one), row.last_at, row.last_entry, *_numbers(row)),
        *(*_used(row), row.counts.spawned, row.counts.unsettled, row.handover, row.ran, row.ended),
        *_wait_values(row.wait),
    )


def _update(before: StoredSession, after: StoredSession) -> tuple[str, tuple[Any, ...]]:
    """Only what has changed is named: a column that is named rewrites its indexes."""
    was, now = before.session, after.session
    sets = "last_entry = ?"
    values: list[Any] = [after.last_entry]
    if before.last_at != after.last_at:
        sets += ", last_at = ?"
        values.append(after.last_at)
    if _numbers(before) != _numbers(after):
        sets += ", epoch = ?, generation = ?, last_turn = ?, covered = ?"
        values += _numbers(after)
    if before.used is not after.used or before.below_usd != after.below_usd:
        sets += ", tokens_in = ?, tokens_out = ?, cost_usd = ?, tokens_cached = ?, below_usd = ?"
        values += _used(after)
    if before.counts is not after.counts:
        sets += ", spawned = ?, unsettled = ?"
        values += (after.counts.spawned, after.counts.unsettled)
    if before.handover != after.handover:
        sets += ", goods = ?"
        values.append(after.handover)
    if before.ran != after.ran:
        sets += ", ran = ?"
        values.append(after.ran)
    if before.ended != after.ended:
        sets += ", ended = ?"
        values.append(after.ended)
    if before.wait != after.wait:
        sets += ", wait = ?, wait_at = ?"
        values += _wait_values(after.wait)
    if was.kind != now.kind or was.deleted != now.deleted or was.facts is not now.facts:
        sets += ", kind = ?, facts = ?, state = ?"
        values += _who(now)
    return f"UPDATE sessions SET {sets} WHERE key = ?", (*values, now.key)


def _read(row: Sequence[Any]) -> StoredSession:
    steps, below_usd, notes, wait = row[9:13], row[17], row[20:23], row[23]
    waits = None if wait is None else _decode_wait(wait)
    values: list[Any] = [*steps, Used(*row[13:17]), below_usd, Counts(*row[18:20]), *notes, waits]
    return StoredSession(read_session(row[:9]), *values)


def read_session(row: Sequence[Any]) -> Session:
    """A session from the columns in `SESSION` without the last."""
    key, kind, parent, depth, facts, state, created_at, epoch, generation = row
    return Session(key, kind, parent, depth, _decode_facts(facts), state == "deleted", epoch, generation, created_at)


SESSIONS: Final = TableShape(
    name="sessions",
    select=f"SELECT {SESSION}, {_REST} FROM sessions WHERE key = ?",
    read=_read,
    insert="INSERT INTO sessions (key, parent, depth, created_at, kind, facts, state, last_at, last_entry, epoch,"
    " generation, last_turn, covered, tokens_in, tokens_out, cost_usd, tokens_cached, below_usd, spawned, unsettled,"
    " goods, ran, ended, wait, wait_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    values=_values,
    update=_update,
    delete="DELETE FROM sessions WHERE key = ?",
)


class ActiveRow(Value):
    """A session at work."""

    session: str
    place: QueuePlace | None = None
    spawner: str = ""
    """Of its place: sessions of different spawners are claimed in turn."""
    seq: int = 0
    """Of its place: the order among places of the same rank."""
    driver: Driver | None = None
    turn: OpenTurn | None = None

    def without_turn(self) -> "ActiveRow | None":
        """The row without its turn; None if nothing is left."""
        return None if self.place is None and self.driver is None else replace(self, turn=None)

    def without_place(self) -> "ActiveRow | None":
        """The row without its place in the queue; None if nothing is left."""
        return None if self.turn is None and self.driver is None else replace(self, place=None, spawner="", seq=0)

    def without_driver(self) -> "ActiveRow | None":
        """The row without its driver; None if nothing is left."""
        return None if self.turn is None and self.place is None else replace(self, driver=None)


IDLE: Final = ActiveRow("")
"""What holds of a session that is not at work."""
_NO_PLACE: Final = (None,) * 6
_NO_DRIVER: Final = (None,) * 12


def _place_values(row: ActiveRow) -> tuple[Any, ...]:
    place = row.place
    if place is None:
        return _NO_PLACE
    return (place.lane, row.spawner, place.rank, row.seq, int(place.suspect), place.due_at)


def _driver_values(driver: Driver | None) -> tuple[Any, ...]:
    if driver is None:
        return _NO_DRIVER
    return (
        *(driver.epoch, driver.owner, driver.lane, int(driver.suspect), driver.claimed_at, driver.progress_at),
        *(int(driver.step_open), driver.release_at, driver.interrupts, driver.patient_until),
        *(driver.works_in, driver.works_since),
    )


def _turn_values(turn: OpenTurn | None) -> tuple[Any, ...]:
    return (None, 0) if turn is None else (to_json(turn), int(turn.drained > 0 and turn.failures > 0))


_PLACE: Final = "queue_lane, spawner, rank, seq, is_suspect, due_at"
DRIVER: Final = (
    "session, epoch, owner, lane, suspect, claimed_at, progress_at, step_open, release_at, interrupts, patient_until,"
    " works_in, works_since"
)
"""Columns of a driver."""
_SET_PLACE: Final = "queue_lane = ?, spawner = ?, rank = ?, seq = ?, is_suspect = ?, due_at = ?"
_SET_DRIVER: Final = (
    "epoch = ?, owner = ?, lane = ?, suspect = ?, claimed_at = ?, progress_at = ?, step_open = ?, release_at = ?,"
    " interrupts = ?, patient_until = ?, works_in = ?, works_since = ?"
)
_SET_PROGRESS: Final = (
    "progress_at = ?, step_open = ?, interrupts = ?, patient_until = ?, works_in = ?, works_since = ?"
)
_SET_TURN: Final = "turn = ?, failing = ?"


def _active_update(before: ActiveRow, after: ActiveRow) -> tuple[str, tuple[Any, ...]]:
    sets: list[str] = []
    values: tuple[Any, ...] = ()
    if (before.place, before.seq, before.spawner) != (after.place, after.seq, after.spawner):
        sets.append(_SET_PLACE)
        values = _place_values(after)
    was, now = before.driver, after.driver
    if was is not now:
        if was is None or now is None or _slot(was) != _slot(now):
            sets.append(_SET_DRIVER)
            values += _driver_values(now)
        else:
            sets.append(_SET_PROGRESS)
            values += (now.progress_at, int(now.step_open), now.interrupts, now.patient_until)
            values += (now.works_in, now.works_since)
    if before.turn is not after.turn:
        sets.append(_SET_TURN)
        values += _turn_values(after.turn)
    # Without a change, the update only checks that the row exists.
    what = ", ".join(sets) or "failing = failing"
    return f"UPDATE active SET {what} WHERE session = ?", (*values, after.session)


def _slot(driver: Driver) -> tuple[Any, ...]:
    """The columns that are indexed or do not change while a driver works."""
    return driver.epoch, driver.owner, driver.lane, driver.suspect, driver.claimed_at, driver.release_at


def read_driver(row: Sequence[Any]) -> Driver:
    """A driver from the columns in `DRIVER`."""
    session, epoch, owner, lane, suspect, claimed_at, progress_at, step_open, *rest = row
    return Driver(session, epoch, owner, lane, bool(suspect), claimed_at, progress_at, bool(step_open), *rest)


def _read_active(row: Sequence[Any]) -> ActiveRow:
    session, lane, spawner, rank, seq, suspect, due_at = row[:7]
    return ActiveRow(
        session,
        None if lane is None else QueuePlace(session, lane, rank, bool(suspect), due_at),
        spawner or "",
        seq or 0,
        None if row[7] is None else read_driver((session, *row[7:19])),
        None if row[19] is None else _decode_turn(row[19]),
    )


ACTIVE: Final = TableShape(
    name="active",
    select=f"SELECT session, {_PLACE}, {DRIVER.removeprefix('session, ')}, turn FROM active WHERE session = ?",
    read=_read_active,
    insert=f"INSERT INTO active (session, {_PLACE}, {DRIVER.removeprefix('session, ')}, turn, failing)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    values=lambda row: (row.session, *_place_values(row), *_driver_values(row.driver), *_turn_values(row.turn)),
    update=_active_update,
    delete="DELETE FROM active WHERE session = ?",
)
