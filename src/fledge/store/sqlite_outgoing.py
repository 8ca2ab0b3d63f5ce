"""The verbs on the outbox and on routes, in SQL."""

from typing import Any

from fledge.core.route import Address
from fledge.core.run import Instant
from fledge.errors import Refused
from fledge.store.base import Post, Route
from fledge.store.sqlite_work import WorkVerbs

_POST = "key, kind, run, body, tries, due_at, lane, retries, expires_at, state, coalesce(error, '')"
_ROUTE = "session, kind, channel, recipient, thread, used_at, owner, idle_s, ends_at, made_by"

# Every lane in which somebody waits: a walk over the first column of the index, not over its rows.
_HEADS = f"""
WITH RECURSIVE found (lane) AS (
  SELECT min(lane) FROM outbox WHERE state = 'waiting' AND lane > ''
  UNION ALL
  SELECT (SELECT min(lane) FROM outbox WHERE state = 'waiting' AND lane > found.lane) FROM found WHERE lane IS NOT NULL
), heads (first) AS (
  SELECT (SELECT min(seq) FROM outbox o WHERE o.state = 'waiting' AND o.lane = found.lane) FROM found
  WHERE found.lane IS NOT NULL
) SELECT seq, {_POST} FROM heads JOIN outbox ON seq = first WHERE due_at <= ?
"""
_LOOSE = f"""
SELECT seq, {_POST} FROM outbox
WHERE due_at IS NOT NULL AND (lane = '' OR state = 'undelivered') AND due_at <= ? ORDER BY due_at, seq LIMIT ?
"""


class OutgoingVerbs(WorkVerbs):
    """The outbox and the routes."""

    def post(
        self,
        key: str,
        kind: str,
        run: str | None,
        body: str,
        due_at: Instant,
        *,
        lane: str = "",
        retries: int = 3,
        expires_at: Instant | None = None,
    ) -> bool:
        """Insert unless the key was ever posted."""
        cursor = self._db.execute(
            "INSERT INTO outbox (key, kind, run, body, due_at, lane, retries, expires_at) VALUES (?,?,?,?,?,?,?,?)"
            " ON CONFLICT (key) DO NOTHING",
            (key, kind, run, body, due_at, lane, retries, expires_at),
        )
        return cursor.rowcount == 1

    def find_post(self, key: str) -> Post | None:
        """A post by its key."""
        row = self._one(f"SELECT {_POST} FROM outbox WHERE key = ?", key)
        return None if row is None else Post(*row)

    def is_due(self, key: str) -> bool:
        """True if this post still waits to be sent."""
        return self._one("SELECT 1 FROM outbox WHERE key = ? AND state = 'waiting'", key) is not None

    def due_posts(self, at: Instant, limit: int) -> list[Post]:
        """What is due: posts without a lane, the first of each lane, and what leaves the undelivered list."""
        rows = [*self._db.execute(_LOOSE, (at, limit)), *self._db.execute(_HEADS, (at,))]
        rows.sort(key=lambda row: (row[6], row[0]))
        return [Post(*row[1:]) for row in rows[:limit]]

    def waiting_posts(self) -> int:
        """How many wait to be sent."""
        return int(self._one("SELECT count(*) FROM outbox WHERE state = 'waiting'")[0])

    def post_done(self, key: str, at: Instant) -> None:
        """It was sent."""
        self._db.execute(
            "UPDATE outbox SET state = 'sent', due_at = NULL, closed_at = ?, error = NULL"
            " WHERE key = ? AND state = 'waiting'",
            (at, key),
        )

    def post_failed(self, key: str, error: str, due_at: Instant, at: Instant) -> None:
        """Try again later."""
        self._db.execute(
            "UPDATE outbox SET tries = tries + 1, error = ?, due_at = ? WHERE key = ? AND state = 'waiting'",
            (error, due_at, key),
        )

    def give_up_post(self, key: str, error: str, until: Instant, at: Instant) -> None:
        """Put it on the undelivered list."""
        self._db.execute(
            "UPDATE outbox SET state = 'undelivered', tries = tries + 1, error = ?, due_at = ?, closed_at = ?"
            " WHERE key = ? AND state = 'waiting'",
            (error, until, at, key),
        )

    def retry_post(self, key: str, at: Instant, expires_at: Instant | None) -> bool:
        """Take it off the undelivered list, to be sent."""
        cursor = self._db.execute(
            "UPDATE outbox SET state = 'waiting', tries = 0, error = NULL, due_at = ?, expires_at = ?, closed_at = NULL"
            " WHERE key = ? AND state = 'undelivered'",
            (at, expires_at, key),
        )
        return cursor.rowcount == 1

    def dismiss_post(self, key: str, at: Instant) -> bool:
        """Take it off the undelivered list, for good."""
        cursor = self._db.execute(
            "UPDATE outbox SET state = 'dismissed', due_at = NULL, closed_at = ?"
            " WHERE key = ? AND state = 'undelivered'",
            (at, key),
        )
        return cursor.rowcount == 1

    def undelivered_posts(self, lane: str | None = None) -> list[Post]:
        """Posts that were given up on."""
        sql = f"SELECT {_POST} FROM outbox WHERE state = 'undelivered' AND (? IS NULL OR lane = ?) ORDER BY seq"
        return [Post(*row) for row in self._db.execute(sql, (lane, lane))]

    # -- routes

    def route(self, session: str) -> Route | None:
        """Where the session's words go."""
        if self._is_unused("routes"):
            return None
        row = self._one(f"SELECT {_ROUTE} FROM routes WHERE session = ?", session)
        return None if row is None else _route(row)

    def set_route(self, route: Route) -> None:
        """Insert or replace, unless the place belongs to another session."""
        address = route.address
        held = self.bound_at(address.channel, address.place) if route.kind == "bound" else None
        if held is not None and held.session != route.session:
            raise Refused("error", f"{held.session} is bound there")
        self._uses("routes")
        self._db.execute(
            "INSERT OR REPLACE INTO routes (session, kind, channel, recipient, thread, place, owner, idle_s, ends_at,"
            " used_at, due_at, made_by) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(route.session, route.kind, address.channel, address.to, address.thread, address.place),
                *(route.owner, route.idle_s, route.ends_at, route.used_at, route.due_at, route.made_by),
            ),
        )

    def drop_route(self, session: str) -> bool:
        """Delete it."""
        return self._db.execute("DELETE FROM routes WHERE session = ?", (session,)).rowcount == 1

    def bound_at(self, channel: str, place: str) -> Route | None:
        """The binding of this place."""
        row = self._one(
            f"SELECT {_ROUTE} FROM routes WHERE kind = 'bound' AND channel = ? AND place = ?", channel, place
        )
        return None if row is None else _route(row)

    def bindings(self) -> list[Route]:
        """Every binding."""
        rows = self._db.execute(f"SELECT {_ROUTE} FROM routes WHERE kind = 'bound' ORDER BY session")
        return [_route(row) for row in rows]

    def due_routes(self, at: Instant, limit: int) -> list[str]:
        """Sessions whose binding ends."""
        return self._column("SELECT session FROM routes WHERE due_at <= ? ORDER BY due_at, session LIMIT ?", at, limit)


def _route(row: Any) -> Route:
    session, kind, channel, recipient, thread, used_at, owner, idle_s, ends_at, made_by = row
    return Route(
        session=session,
        kind=kind,
        address=Address(channel, recipient, thread),
        used_at=used_at,
        owner=owner,
        idle_s=idle_s,
        ends_at=ends_at,
        made_by=made_by,
    )
