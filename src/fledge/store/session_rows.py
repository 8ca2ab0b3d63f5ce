"""The rows of sessions: one for each, and one more for each session at work.

A session at work is queued, is driven, or has an open turn. These change together, so they are one row.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from fledge.core.run import Instant
from fledge.core.turn import OpenTurn, Wait
from fledge.core.value import Value
from fledge.store.records import Counts, Driver, QueuePlace, Session, SessionFacts, Used
from fledge.store.unit import TableShape, insert_into, json_decoder, to_json

_decode_facts = json_decoder(SessionFacts)
decode_turn = json_decoder(OpenTurn)
_decode_wait = json_decoder(Wait)


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
"""The row of a session that was never opened."""

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


_NEW: Final = "key, parent, depth, created_at, kind, facts, state, last_at"
_SPOKEN: Final = (
    "last_entry, epoch, generation, last_turn, covered, tokens_in, tokens_out, cost_usd, tokens_cached, below_usd,"
    " spawned, unsettled, goods, ran, ended, wait, wait_at"
)
_INSERT_NEW: Final = insert_into("sessions", _NEW)
_INSERT_ANY: Final = insert_into("sessions", f"{_NEW}, {_SPOKEN}")


def _insert(row: StoredSession) -> tuple[str, tuple[Any, ...]]:
    one = row.session
    new = (one.key, one.parent, one.depth, one.created_at, *_who(one), row.last_at)
    if row == StoredSession(one, row.last_at) and _numbers(row) == (0, 0, 0, 0):
        return _INSERT_NEW, new
    spoken = (row.last_entry, *_numbers(row), *_used(row), row.counts.spawned, row.counts.unsettled)
    return _INSERT_ANY, (*new, *spoken, row.handover, row.ran, row.ended, *_wait_values(row.wait))


def _update(before: StoredSession, after: StoredSession) -> tuple[tuple[str, ...], list[Any]]:
    was, now = before.session, after.session
    sets = ["last_entry = ?"]
    values: list[Any] = [after.last_entry]
    if before.last_at != after.last_at:
        sets.append("last_at = ?")
        values.append(after.last_at)
    if _numbers(before) != _numbers(after):
        sets.append("epoch = ?, generation = ?, last_turn = ?, covered = ?")
        values += _numbers(after)
    if before.used is not after.used or before.below_usd != after.below_usd:
        sets.append("tokens_in = ?, tokens_out = ?, cost_usd = ?, tokens_cached = ?, below_usd = ?")
        values += _used(after)
    if before.counts is not after.counts:
        sets.append("spawned = ?, unsettled = ?")
        values += (after.counts.spawned, after.counts.unsettled)
    if before.handover != after.handover:
        sets.append("goods = ?")
        values.append(after.handover)
    if before.ran != after.ran:
        sets.append("ran = ?")
        values.append(after.ran)
    if before.ended != after.ended:
        sets.append("ended = ?")
        values.append(after.ended)
    if before.wait != after.wait:
        sets.append("wait = ?, wait_at = ?")
        values += _wait_values(after.wait)
    if was.kind != now.kind or was.deleted != now.deleted or was.facts is not now.facts:
        sets.append("kind = ?, facts = ?, state = ?")
        values += _who(now)
    values.append(now.key)
    return tuple(sets), values


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
    insert=_insert,
    update=_update,
    found="key = ?",
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
"""The row of a session that is not at work."""


def _place_values(row: ActiveRow, place: QueuePlace) -> tuple[Any, ...]:
    return place.lane, row.spawner, place.rank, row.seq, int(place.suspect), place.due_at


def _slot(driver: Driver) -> tuple[Any, ...]:
    """The columns that seldom change while a driver works."""
    return driver.epoch, driver.owner, driver.lane, int(driver.suspect), driver.claimed_at, driver.interrupts


def _progress(driver: Driver) -> tuple[Any, ...]:
    """The columns that each step changes."""
    return driver.progress_at, int(driver.step_open), driver.patient_until


def _fails(turn: OpenTurn | None) -> bool:
    """True if a turn has read rows and was driven in vain."""
    return turn is not None and turn.drained > 0 and turn.failures > 0


def _set_each(columns: str, value: str = "?") -> str:
    return ", ".join(f"{column} = {value}" for column in columns.split(", "))


_PLACE: Final = "queue_lane, spawner, rank, seq, is_suspect, due_at"
_SLOT: Final = "epoch, owner, lane, suspect, claimed_at, interrupts"
_PROGRESS: Final = "progress_at, step_open, patient_until"
DRIVER: Final = (
    "session, epoch, owner, lane, suspect, claimed_at, progress_at, step_open, release_at, interrupts, patient_until,"
    " works_in, works_since"
)
"""Columns of a driver."""
_INSERT_QUEUED: Final = insert_into("active", f"session, {_PLACE}")
_INSERT_ACTIVE: Final = insert_into(
    "active", f"session, {_PLACE}, {_SLOT}, {_PROGRESS}, release_at, works_in, works_since, turn, failing"
)
_NOBODY: Final = Driver("", 0, "", "", False, 0.0, 0.0, False, None)
"""Stands for no driver in comparisons: its columns that may be NULL are."""
_SET_PLACE: Final = _set_each(_PLACE)
_SET_NO_PLACE: Final = _set_each(_PLACE.removesuffix(", due_at"), "NULL")
_SET_SLOT: Final = _set_each(_SLOT)
_SET_PROGRESS: Final = _set_each(_PROGRESS)
_SET_NO_DRIVER: Final = _set_each(f"{_SLOT}, {_PROGRESS}, release_at, works_in, works_since", "NULL")


def _active_insert(row: ActiveRow) -> tuple[str, tuple[Any, ...]]:
    driver, turn = row.driver, row.turn
    place = (None,) * 6 if row.place is None else _place_values(row, row.place)
    if driver is None and turn is None:
        return _INSERT_QUEUED, (row.session, *place)
    driven: tuple[Any, ...] = (None,) * 12
    if driver is not None:
        driven = *_slot(driver), *_progress(driver), driver.release_at, driver.works_in, driver.works_since
    return _INSERT_ACTIVE, (row.session, *place, *driven, None if turn is None else to_json(turn), int(_fails(turn)))


def _active_update(before: ActiveRow, after: ActiveRow) -> tuple[tuple[str, ...], list[Any]]:
    sets: list[str] = []
    values: list[Any] = []
    if before.place != after.place or before.seq != after.seq or before.spawner != after.spawner:
        if after.place is not None:
            sets.append(_SET_PLACE)
            values += _place_values(after, after.place)
        else:
            sets.append(_SET_NO_PLACE)
            if before.place is not None and before.place.due_at is not None:
                sets.append("due_at = NULL")
    was, now = before.driver, after.driver
    if now is None:
        if was is not None:
            sets.append(_SET_NO_DRIVER)
    elif was is not now:
        sets.append(_SET_PROGRESS)
        values += _progress(now)
        was = was or _NOBODY
        if _slot(was) != _slot(now):
            sets.append(_SET_SLOT)
            values += _slot(now)
        if was.release_at != now.release_at:
            sets.append("release_at = ?")
            values.append(now.release_at)
        if was.works_in != now.works_in or was.works_since != now.works_since:
            sets.append("works_in = ?, works_since = ?")
            values += (now.works_in, now.works_since)
    if before.turn is not after.turn:
        sets.append("turn = ?")
        values.append(None if after.turn is None else to_json(after.turn))
        if _fails(before.turn) != _fails(after.turn):
            sets.append("failing = ?")
            values.append(int(_fails(after.turn)))
    values.append(after.session)
    # Without a change, the update only checks that the row exists.
    return tuple(sets) or ("turn = turn",), values


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
        None if row[19] is None else decode_turn(row[19]),
    )


ACTIVE: Final = TableShape(
    name="active",
    select=f"SELECT session, {_PLACE}, {DRIVER.removeprefix('session, ')}, turn FROM active WHERE session = ?",
    read=_read_active,
    insert=_active_insert,
    update=_active_update,
    found="session = ?",
    delete="DELETE FROM active WHERE session = ?",
)
