"""The outbox, and the routes of sessions: the addresses to which their replies go."""

from typing import Final

from fledge.core.route import Address
from fledge.core.run import Instant
from fledge.errors import Refused
from fledge.store.records import OutboxPost, Route
from fledge.store.unit import Noun

_POST: Final = "key, kind, run, body, tries, due_at, lane, retries, expires_at, state, coalesce(error, '')"
_ROUTE: Final = "session, kind, channel, recipient, thread, used_at, owner, idle_s, ends_at, made_by"
UNBOUND: Final = "SELECT session FROM routes WHERE due_at <= ? ORDER BY due_at, session LIMIT ?"

# All lanes with waiting posts: this walks over the first column of the index, not over its rows.
_HEADS: Final = f"""
WITH RECURSIVE found (lane) AS (
  SELECT min(lane) FROM outbox WHERE state = 'waiting' AND lane > ''
  UNION ALL
  SELECT (SELECT min(lane) FROM outbox WHERE state = 'waiting' AND lane > found.lane) FROM found WHERE lane IS NOT NULL
), heads (first) AS (
  SELECT (SELECT min(seq) FROM outbox o WHERE o.state = 'waiting' AND o.lane = found.lane) FROM found
  WHERE found.lane IS NOT NULL
) SELECT seq, {_POST} FROM heads JOIN outbox ON seq = first WHERE due_at <= ?
"""
_LOOSE: Final = f"""
SELECT seq, {_POST} FROM outbox
WHERE due_at IS NOT NULL AND (lane = '' OR state = 'undelivered') AND due_at <= ? ORDER BY due_at, seq LIMIT ?
"""


class Outbox(Noun):
    """Posts that are to be sent, were sent, or could not be sent."""

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
        """Put a post into the outbox; False, and no change, if this key was ever posted."""
        cursor = self._unit.execute(
            "INSERT INTO outbox (key, kind, run, body, due_at, lane, retries, expires_at) VALUES (?,?,?,?,?,?,?,?)"
            " ON CONFLICT (key) DO NOTHING",
            *(key, kind, run, body, due_at, lane, retries, expires_at),
        )
        return cursor.rowcount == 1

    def get(self, key: str) -> OutboxPost | None:
        """A post by its key, whatever its state."""
        row = self._unit.one(f"SELECT {_POST} FROM outbox WHERE key = ?", key)
        return None if row is None else OutboxPost(*row)

    def is_waiting(self, key: str) -> bool:
        """True if this post still waits to be sent."""
        return self._unit.one("SELECT 1 FROM outbox WHERE key = ? AND state = 'waiting'", key) is not None

    def due(self, at: Instant, limit: int) -> list[OutboxPost]:
        """Due posts, the longest overdue first: those to be sent, of each lane only the oldest, and undelivered ones
        that are to be dismissed."""
        if self._unit.is_empty("outbox"):
            return []
        rows = [*self._unit.all(_LOOSE, at, limit), *self._unit.all(_HEADS, at)]
        rows.sort(key=lambda row: (row[6], row[0]))
        return [OutboxPost(*row[1:]) for row in rows[:limit]]

    def count_waiting(self, but: str = "") -> int:
        """The number of posts that wait to be sent, due or not; without those of the kind `but`."""
        return self._unit.number("SELECT count(*) FROM outbox WHERE state = 'waiting' AND kind <> ?", but)

    def done(self, key: str, at: Instant) -> None:
        """The post was sent."""
        self._unit.execute(
            "UPDATE outbox SET state = 'sent', due_at = NULL, closed_at = ?, error = NULL"
            " WHERE key = ? AND state = 'waiting'",
            at,
            key,
        )

    def failed(self, key: str, error: str, due_at: Instant) -> None:
        """Sending failed: try again at `due_at`; later posts of its lane wait."""
        self._unit.execute(
            "UPDATE outbox SET tries = tries + 1, error = ?, due_at = ? WHERE key = ? AND state = 'waiting'",
            *(error, due_at, key),
        )

    def give_up(self, key: str, error: str, until: Instant, at: Instant) -> None:
        """Sending failed for good: the post is undelivered until it is retried or dismissed, at the latest at
        `until`."""
        self._unit.execute(
            "UPDATE outbox SET state = 'undelivered', tries = tries + 1, error = ?, due_at = ?, closed_at = ?"
            " WHERE key = ? AND state = 'waiting'",
            *(error, until, at, key),
        )

    def retry(self, key: str, at: Instant, expires_at: Instant | None) -> bool:
        """Let an undelivered post wait again, as if it were new, in its old place; False if it is not undelivered."""
        cursor = self._unit.execute(
            "UPDATE outbox SET state = 'waiting', tries = 0, error = NULL, due_at = ?, expires_at = ?, closed_at = NULL"
            " WHERE key = ? AND state = 'undelivered'",
            *(at, expires_at, key),
        )
        return cursor.rowcount == 1

    def dismiss(self, key: str, at: Instant) -> bool:
        """Take a post off the undelivered list; False if it is not undelivered."""
        cursor = self._unit.execute(
            "UPDATE outbox SET state = 'dismissed', due_at = NULL, closed_at = ?"
            " WHERE key = ? AND state = 'undelivered'",
            *(at, key),
        )
        return cursor.rowcount == 1

    def undelivered(self, lane: str | None = None) -> list[OutboxPost]:
        """All undelivered posts, oldest first; only those of a lane, if one is named."""
        wanted = "" if lane is None else " AND lane = ?"
        sql = f"SELECT {_POST} FROM outbox WHERE state = 'undelivered'{wanted} ORDER BY seq"
        return [OutboxPost(*row) for row in self._unit.all(sql, *(() if lane is None else (lane,)))]


class Routes(Noun):
    """The addresses to which replies of sessions go."""

    def get(self, session: str) -> Route | None:
        """The route of the session, if it has one."""
        return self._first("session = ?", session)

    def set(self, route: Route) -> None:
        """Set the route of a session. Raises `Refused` if another session is bound to the same place."""
        address = route.address
        held = self.bound_at(address.channel, address.place) if route.kind == "bound" else None
        if held is not None and held.session != route.session:
            raise Refused("error", f"{held.session} is bound there")
        self._unit.execute("DELETE FROM routes WHERE session = ?", route.session)
        self._unit.execute(
            "INSERT INTO routes (session, kind, channel, recipient, thread, place, owner, idle_s, ends_at, used_at,"
            " due_at, made_by) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            *(route.session, route.kind, address.channel, address.to, address.thread, address.place),
            *(route.owner, route.idle_s, route.ends_at, route.used_at, route.due_at, route.made_by),
        )

    def drop(self, session: str) -> bool:
        """Delete the route of the session; False if it had none."""
        return self._unit.execute("DELETE FROM routes WHERE session = ?", session).rowcount == 1

    def bound_at(self, channel: str, place: str) -> Route | None:
        """The binding of this place, if a session is bound to it."""
        return self._first("kind = 'bound' AND channel = ? AND place = ?", channel, place)

    def _first(self, where: str, *args: str) -> Route | None:
        if self._unit.is_empty("routes"):
            return None
        row = self._unit.one(f"SELECT {_ROUTE} FROM routes WHERE {where}", *args)
        if row is None:
            return None
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

    def due(self, at: Instant, limit: int) -> list[str]:
        """Sessions whose binding has expired, the longest overdue first."""
        return self._unit.column(UNBOUND, at, limit)
