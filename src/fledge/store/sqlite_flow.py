"""The verbs on inboxes, lanes and leases, in SQL; with those it builds on, the whole `Tx`."""

from typing import Any

from msgspec.structs import replace

from fledge.core.policy import fair_rank
from fledge.core.route import Found
from fledge.core.run import Instant, Path, TextId
from fledge.errors import NotFound, StaleWrite
from fledge.store.base import COMPLETIONS, Driver, LaneQueue, Place, Row, RowKind, RowState
from fledge.store.sqlite_outgoing import OutgoingVerbs
from fledge.store.sqlite_rows import RowVerbs

_ROW = "seq, key, session, kind, source, origin, state, path, body, text, arrived_at, closed_at, route, images"
_COMPLETION = "(" + " OR ".join(f"i.kind = '{kind}'" for kind in sorted(COMPLETIONS)) + ")"
_DRIVER = (
    "session, epoch, owner, lane, suspect, claimed_at, progress_at, step_open, release_at, interrupts, patient_until"
)

_UNREAD = f"SELECT {_ROW} FROM inbox WHERE session = ? AND state = 'unread' ORDER BY seq LIMIT ?"
# A message may come from a run, too: only a completion takes the place of the run it announces.
_UNREAD_BY_CHILD = f"""
SELECT {", ".join(f"i.{column}" for column in _ROW.split(", "))} FROM inbox i
LEFT JOIN runs r ON r.key = i.source AND {_COMPLETION}
WHERE i.session = ? AND i.state = 'unread'
ORDER BY CASE WHEN {_COMPLETION} THEN 1 WHEN i.kind = 'wake' THEN 2 ELSE 0 END, r.id, i.seq LIMIT ?
"""

# Every lane that has somebody in it: a walk over the first column of the index, not over its rows.
_LANES = """
WITH RECURSIVE found (lane) AS (
  SELECT min(lane) FROM queue
  UNION ALL
  SELECT (SELECT min(lane) FROM queue WHERE lane > found.lane) FROM found WHERE found.lane IS NOT NULL
) SELECT lane FROM found WHERE lane IS NOT NULL
"""

# Sound and suspect sessions have an index each: neither is searched through the other.
_CLAIMABLE = [
    f"""
SELECT rank, seq, session, lane FROM queue q
WHERE lane = ? AND (due_at IS NULL OR due_at <= ?) AND suspect = {suspect}
  AND NOT EXISTS (SELECT 1 FROM drivers d WHERE d.session = q.session AND (d.release_at IS NULL OR d.release_at > ?))
ORDER BY rank, seq LIMIT ?
"""
    for suspect in (0, 1)
]

_NEXT_DUE = """
SELECT min(due) FROM (
  SELECT (SELECT due_at FROM runs WHERE due_at > :after ORDER BY due_at LIMIT 1) AS due
  UNION ALL SELECT (SELECT due_at FROM queue WHERE due_at > :after ORDER BY due_at LIMIT 1)
  UNION ALL SELECT (SELECT release_at FROM drivers WHERE release_at > :after ORDER BY release_at LIMIT 1)
  UNION ALL SELECT (SELECT due_at FROM outbox WHERE due_at > :after ORDER BY due_at LIMIT 1)
  UNION ALL SELECT (SELECT deadline_at FROM commissions
                    WHERE deadline_at > :after AND ended_at IS NULL ORDER BY deadline_at LIMIT 1)
  UNION ALL SELECT (SELECT due_at FROM routes WHERE due_at > :after ORDER BY due_at LIMIT 1)
  UNION ALL SELECT (SELECT due_at FROM heartbeats WHERE due_at > :after ORDER BY due_at LIMIT 1)
  UNION ALL SELECT (SELECT beat_at FROM heartbeats WHERE beat_at > :after ORDER BY beat_at LIMIT 1)
)
"""


class SqliteTx(OutgoingVerbs, RowVerbs):
    """One transaction on a SQLite connection."""

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
        """Insert a row unless its key was ever used."""
        cursor = self._db.execute(
            "INSERT INTO inbox (key, session, kind, source, origin, path, body, text, arrived_at, route, images)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (key) DO NOTHING",
            (key, session, kind, source, origin, path, body, text, at, route, images),
        )
        if session is not None:
            self._known.quiet.pop(session, None)
        return cursor.rowcount == 1

    def row(self, key: str) -> Row | None:
        """A row by its key."""
        row = self._one(f"SELECT {_ROW} FROM inbox WHERE key = ?", key)
        return None if row is None else Row(*row)

    def unread(self, session: str, limit: int = 1_000_000) -> list[Row]:
        """Unread rows of an inbox, in order of arrival."""
        return self._unread(_UNREAD, session, limit)

    def _unread(self, sql: str, session: str, limit: int) -> list[Row]:
        if session in self._known.quiet:
            return []
        rows = [Row(*row) for row in self._db.execute(sql, (session, limit))]
        if not rows and limit > 0:
            self._known.quiet[session] = None
        return rows

    def unread_by_child(self, session: str, limit: int) -> list[Row]:
        """Unread rows of an inbox, completions in creation order."""
        return self._unread(_UNREAD_BY_CHILD, session, limit)

    def newest_unread(self, session: str, kind: RowKind | None = None) -> list[Row]:
        """The last unread row of an inbox, or of one kind in it."""
        sql = f"SELECT {_ROW} FROM inbox WHERE session = ? AND state = 'unread'"
        if kind is None:
            found = self._db.execute(f"{sql} ORDER BY seq DESC LIMIT 1", (session,))
        else:
            found = self._db.execute(f"{sql} AND kind = ? ORDER BY seq DESC LIMIT 1", (session, kind))
        return [Row(*row) for row in found]

    def count_waiting(self, session: str, kind: RowKind, origin: str) -> int:
        """Unread rows of this kind and origin."""
        sql = "SELECT count(*) FROM inbox WHERE session = ? AND state = 'unread' AND kind = ? AND origin = ?"
        return int(self._one(sql, session, kind, origin)[0])

    def drop_row(self, key: str, at: Instant | None) -> None:
        """An unread row gives way."""
        self._db.execute(
            "UPDATE inbox SET state = 'dropped', closed_at = ? WHERE key = ? AND state = 'unread'", (at, key)
        )

    def dropped(self, session: str, origin: str) -> list[Row]:
        """Dropped rows whose line is still to be told."""
        sql = (
            f"SELECT {_ROW} FROM inbox WHERE session = ? AND state = 'dropped' AND closed_at IS NULL AND origin = ?"
            " ORDER BY seq"
        )
        return [Row(*row) for row in self._db.execute(sql, (session, origin))]

    def line_told(self, key: str, at: Instant) -> None:
        """Close a dropped row."""
        self._db.execute("UPDATE inbox SET closed_at = ? WHERE key = ? AND state = 'dropped'", (at, key))

    def count_unread(self, session: str) -> tuple[int, int]:
        """Unread completions and sends."""
        if session in self._known.quiet:
            return 0, 0
        kinds = self._column("SELECT kind FROM inbox WHERE session = ? AND state = 'unread'", session)
        if not kinds:
            self._known.quiet[session] = None
        return sum(kind in COMPLETIONS for kind in kinds), sum(kind == "send" for kind in kinds)

    def rows_of(self, run: str) -> list[Row]:
        """Open completions of a run."""
        sql = (
            f"SELECT {_ROW} FROM inbox WHERE source = ? AND (state = 'unread' OR state = 'undelivered')"
            " AND kind IN ('outcome', 'plan', 'expired', 'late') ORDER BY seq"
        )
        return [Row(*row) for row in self._db.execute(sql, (run,))]

    def undelivered(self) -> list[Row]:
        """Rows that were given up on."""
        sql = f"SELECT {_ROW} FROM inbox WHERE state = 'undelivered' ORDER BY seq"
        return [Row(*row) for row in self._db.execute(sql)]

    def close_row(self, key: str, state: RowState, at: Instant) -> bool:
        """Move an open row to `state`."""
        if state == "unread":
            self._known.quiet.clear()
        cursor = self._db.execute(
            "UPDATE inbox SET state = ?, closed_at = ? WHERE key = ? AND (state = 'unread' OR state = 'undelivered')",
            (state, None if state == "unread" else at, key),
        )
        if state == "void":
            self.end_commission(key, "void", at)
        return cursor.rowcount == 1

    def readdress_row(self, key: str, session: str | None, path: Path = "direct") -> None:
        """Put an unread row into another inbox."""
        if session is not None:
            self._known.quiet.pop(session, None)
        self._db.execute(
            "UPDATE inbox SET session = ?, path = ? WHERE key = ? AND state = 'unread'", (session, path, key)
        )

    def rewrite_row(self, key: str, body: str, text: TextId | None) -> None:
        """Change what an unread row says."""
        self._db.execute("UPDATE inbox SET body = ?, text = ? WHERE key = ? AND state = 'unread'", (body, text, key))

    def aim_row(self, key: str, origin: str, route: Found) -> None:
        """Change where the answer to an unread row goes."""
        self._db.execute(
            "UPDATE inbox SET origin = ?, route = ? WHERE key = ? AND state = 'unread'", (origin, route, key)
        )

    def trace(self, row_key: str, run: str, at: Instant, trace: str) -> None:
        """Record one attempt to deliver a row."""
        self._db.execute("INSERT INTO deliveries (row_key, run, at, trace) VALUES (?,?,?,?)", (row_key, run, at, trace))

    def traces(self, run: str) -> list[tuple[Instant, str]]:
        """What was recorded of attempts to deliver rows of this run."""
        return list(self._db.execute("SELECT at, trace FROM deliveries WHERE run = ? ORDER BY seq", (run,)))

    # -- lanes, leases and slots

    def enqueue(self, session: str, lane: str, spawner: str, suspect: bool, due_at: Instant | None = None) -> None:
        """Queue the session behind its spawner's last one."""
        place = self.queued(session)
        if place is not None:
            self._db.execute(
                "UPDATE queue SET due_at = ?, suspect = ? WHERE session = ?", (due_at, int(suspect), session)
            )
            self._known.places[session] = replace(place, suspect=suspect, due_at=due_at)
            return
        lane_rank, seq = self._one(
            "INSERT INTO lanes (lane, last_seq) VALUES (?, 1) ON CONFLICT DO UPDATE SET last_seq = last_seq + 1"
            " RETURNING rank, last_seq",
            lane,
        )
        # A place that was claimed since has raised the lane's own rank: what is remembered of it does no harm.
        behind = self._known.ranks.get((lane, spawner))
        if behind is None:
            behind = self._one("SELECT max(rank) FROM queue WHERE lane = ? AND spawner = ?", lane, spawner)[0]
        rank = self._known.ranks[lane, spawner] = fair_rank(lane_rank, behind or 0)
        self._db.execute(
            "INSERT INTO queue VALUES (?,?,?,?,?,?,?)", (session, lane, spawner, rank, seq, int(suspect), due_at)
        )
        self._known.places[session] = Place(session, lane, rank, suspect, due_at)

    def dequeue(self, session: str) -> None:
        """Take it out of its lane's queue."""
        self._known.places[session] = None
        self._known.ranks.clear()
        self._db.execute("DELETE FROM queue WHERE session = ?", (session,))

    def queued(self, session: str) -> Place | None:
        """Its place in the queue, if it has one."""
        places = self._known.places
        if session not in places:
            row = self._one("SELECT session, lane, rank, suspect, due_at FROM queue WHERE session = ?", session)
            places[session] = None if row is None else Place(row[0], row[1], row[2], bool(row[3]), row[4])
        return places[session]

    def paused(self, at: Instant, after: str, limit: int) -> list[str]:
        """The queue by session, without those that may be claimed."""
        sql = "SELECT session FROM queue WHERE due_at > ? AND session > ? ORDER BY session LIMIT ?"
        return [session for (session,) in self._db.execute(sql, (at, after, limit))]

    def waiting_by_lane(self, at: Instant) -> list[LaneQueue]:
        """The queue by lane; of the smallest number in each, SQLite answers the session."""
        sql = "SELECT lane, count(*), session, min(seq) FROM queue WHERE due_at IS NULL OR due_at <= ? GROUP BY lane"
        return [LaneQueue(lane, count, session) for lane, count, session, _ in self._db.execute(sql, (at,))]

    def count_rows(self) -> tuple[int, int]:
        """The rows of both tables."""
        row = self._one("SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM sessions)")
        return int(row[0]), int(row[1])

    def claimable(self, widths: dict[str, int], at: Instant, limit: int) -> list[Place]:
        """Queued sessions that may be driven now, lane by lane, in fair order."""
        found: list[Place] = []
        live = "(release_at IS NULL OR release_at > ?)"
        suspects = self._one(f"SELECT count(*) FROM drivers WHERE suspect = 1 AND {live}", at)[0]
        for lane in self._column(_LANES):
            width = widths.get(lane, widths.get(lane.partition(":")[0], 1))
            busy = self._one(f"SELECT count(*) FROM drivers WHERE lane = ? AND {live}", lane, at)[0]
            free = min(width - busy, limit - len(found))
            if free <= 0:
                continue
            rows = [(*row, False) for row in self._db.execute(_CLAIMABLE[0], (lane, at, at, free))]
            if not suspects:
                rows += [(*row, True) for row in self._db.execute(_CLAIMABLE[1], (lane, at, at, 1))]
            for rank, _, session, _, suspect in sorted(rows)[:free]:
                found.append(Place(session, lane, rank, suspect))
                suspects += suspect
        return found

    def claim(self, place: Place, owner: str, at: Instant) -> int:
        """Take the session out of the queue and give it a driver under a new epoch."""
        if not self._db.execute("DELETE FROM queue WHERE session = ?", (place.session,)).rowcount:
            raise StaleWrite(f"{place.session} is not queued any more")
        self._known.places[place.session] = None
        row = self._one("UPDATE sessions SET epoch = epoch + 1 WHERE key = ? RETURNING epoch", place.session)
        if row is None:
            raise NotFound(f"no session {place.session}")
        session = self._known.sessions.get(place.session)
        if session is not None:
            self._known.sessions[place.session] = replace(session, epoch=row[0])
        self._db.execute("UPDATE lanes SET rank = max(rank, ?) WHERE lane = ?", (place.rank, place.lane))
        self._db.execute(
            "INSERT OR REPLACE INTO drivers (session, epoch, owner, lane, suspect, claimed_at, progress_at, step_open)"
            " VALUES (?,?,?,?,?,?,?,1)",
            (place.session, row[0], owner, place.lane, int(place.suspect), at, at),
        )
        self._known.drivers[place.session] = Driver(
            place.session, row[0], owner, place.lane, place.suspect, at, at, step_open=True, release_at=None
        )
        return int(row[0])

    def driver(self, session: str) -> Driver | None:
        """Who drives this session, superseded or not."""
        drivers = self._known.drivers
        if session not in drivers:
            row = self._one(f"SELECT {_DRIVER} FROM drivers WHERE session = ?", session)
            drivers[session] = None if row is None else _driver(row)
        return drivers[session]

    def drivers(self) -> list[Driver]:
        """All drivers."""
        return [_driver(row) for row in self._db.execute(f"SELECT {_DRIVER} FROM drivers ORDER BY claimed_at, session")]

    def drivers_of_others(self, owner: str, limit: int) -> list[Driver]:
        """Drivers of other processes."""
        sql = f"SELECT {_DRIVER} FROM drivers WHERE owner <> ? ORDER BY claimed_at, session LIMIT ?"
        return [_driver(row) for row in self._db.execute(sql, (owner, limit))]

    def fence(self, session: str, epoch: int) -> Driver:
        """The driver whose epoch is still the session's."""
        driver, known = self.driver(session), self.session(session)
        if driver is None or known is None or not driver.epoch == known.epoch == epoch:
            raise StaleWrite(f"epoch {epoch} of {session} is over")
        return driver

    def progress(self, session: str, at: Instant, step_open: bool, patient_until: Instant | None = None) -> None:
        """The driver is at work."""
        self._db.execute(
            "UPDATE drivers SET progress_at = ?, step_open = ?, patient_until = ? WHERE session = ?",
            (at, int(step_open), patient_until, session),
        )
        driver = self._known.drivers.get(session)
        if driver is not None:
            self._known.drivers[session] = replace(
                driver, progress_at=at, step_open=step_open, patient_until=patient_until
            )

    def trust_driver(self, session: str) -> None:
        """Take the driver out of the count of suspects."""
        self._known.drivers.pop(session, None)
        self._db.execute("UPDATE drivers SET suspect = 0 WHERE session = ?", (session,))

    def release(self, session: str, epoch: int) -> None:
        """Free the slot of the driver with this epoch."""
        self._db.execute("DELETE FROM drivers WHERE session = ? AND epoch = ?", (session, epoch))
        self._known.drivers.pop(session, None)

    def supersede(self, session: str, until: Instant) -> None:
        """Raise the epoch; a driver that was already told to go keeps its first limit."""
        self._db.execute("UPDATE sessions SET epoch = epoch + 1 WHERE key = ?", (session,))
        self._known.sessions.pop(session, None)
        self.stop_driver(session, until)

    def stop_driver(self, session: str, until: Instant) -> None:
        """Mark the driver as told to stop."""
        self._known.drivers.pop(session, None)
        self._db.execute("UPDATE drivers SET release_at = coalesce(release_at, ?) WHERE session = ?", (until, session))

    def interrupt(self, session: str) -> None:
        """One more of the driver's steps was called off."""
        self._known.drivers.pop(session, None)
        self._db.execute("UPDATE drivers SET interrupts = interrupts + 1 WHERE session = ?", (session,))

    def next_due(self, after: Instant) -> Instant | None:
        """The earliest time later than `after` at which anything is due."""
        due: Instant | None = self._db.execute(_NEXT_DUE, {"after": after}).fetchone()[0]
        return due


def _driver(row: Any) -> Driver:
    session, epoch, owner, lane, suspect, claimed_at, progress_at, step_open, *rest = row
    return Driver(session, epoch, owner, lane, bool(suspect), claimed_at, progress_at, bool(step_open), *rest)
