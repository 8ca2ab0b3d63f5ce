"""Inboxes: messages and completions for sessions, and their states.

The unread rows of a session are counted, and cached unless they are many: the inbox of a busy conversation is read in
every commit.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import astuple, replace

from fledge.core.route import RouteSource
from fledge.core.run import Instant, Path, TextId
from fledge.core.turn import TurnEnd
from fledge.store.people import MessageRequests
from fledge.store.records import COMPLETIONS, InboxRow, InboxRowKind, RowState
from fledge.store.runs import Runs
from fledge.store.unit import Table, TableShape, Unit, insert_into

KEPT: Final = 2048
"""The most unread rows of a session that are cached; of a session with more they are only counted."""
FEW: Final = 100
"""At most this many rows of an inbox that is not cached are read alone: mostly for a reader, which caches nothing."""

_ROW: Final = "seq, key, session, kind, source, origin, state, path, body, text, arrived_at, closed_at, route, carried"
_COMPLETION: Final = "(" + " OR ".join(f"i.kind = '{kind}'" for kind in sorted(COMPLETIONS)) + ")"
_KINDS: Final = "SELECT kind, count(*) FROM inbox WHERE session = ? AND state = 'unread' GROUP BY kind"
_UNREAD: Final = f"SELECT {_ROW} FROM inbox WHERE session = ? AND state = 'unread' ORDER BY seq LIMIT ?"
# A run may also send a message: only a completion is ordered by its run.
_UNREAD_BY_CHILD: Final = f"""
SELECT {", ".join(f"i.{column}" for column in _ROW.split(", "))} FROM inbox i
LEFT JOIN runs r ON r.key = i.source AND {_COMPLETION}
WHERE i.session = ? AND i.state = 'unread'
ORDER BY CASE WHEN {_COMPLETION} THEN 1 WHEN i.kind = 'wake' THEN 2 ELSE 0 END, r.id, i.seq LIMIT ?
"""


_NEW: Final = "seq, key, session, kind, source, origin, path, body, text, arrived_at, route"
_INSERT: Final = insert_into("inbox", _NEW)
"""An unread row that carries nothing."""
_INSERT_ANY: Final = insert_into("inbox", _ROW)
_inserted: Final = attrgetter(*_NEW.split(", "))


def _insert(row: InboxRow) -> tuple[str, tuple[Any, ...]]:
    if row.state == "unread" and not row.carried:
        return _INSERT, _inserted(row)
    return _INSERT_ANY, astuple(row)


def _words(row: InboxRow) -> tuple[Any, ...]:
    """The content and the receiver of a row, which seldom change."""
    return row.session, row.origin, row.path, row.body, row.text, row.route


_CLOSED: Final = ("state = ?", "closed_at = ?")
_CHANGED: Final = (*_CLOSED, *("session = ?", "origin = ?", "path = ?", "body = ?", "text = ?", "route = ?"))


def _update(before: InboxRow, after: InboxRow) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    closed, found = (after.state, after.closed_at), (after.seq, before.state)
    words = _words(after)
    if _words(before) == words:
        return _CLOSED, closed + found
    return _CHANGED, closed + words + found


_INBOX: Final = TableShape(
    name="inbox",
    select=f"SELECT {_ROW} FROM inbox WHERE key = ?",
    read=lambda row: InboxRow(*row),
    insert=_insert,
    update=_update,
    found="seq = ? AND state = ?",
    delete="DELETE FROM inbox WHERE key = ?",
    keeps=lambda row: row.state == "unread",  # others may be many, and long
    group=lambda row: row.session,
)


class Inbox:
    """Inbox rows by key, and the unread ones by session."""

    def __init__(self, unit: Unit, runs: Runs, commissions: MessageRequests) -> None:
        self._unit, self._runs, self._requests = unit, runs, commissions
        self.rows: Table[str, InboxRow] = Table(unit, _INBOX)
        self.get = self.rows.get
        """A row by its key, whatever its state."""
        self._unread = unit.memory("inbox", by="group")
        """Unread rows by session."""
        self._lengths = unit.memory("inbox", by="key")
        """Unread rows by key, with their lengths."""
        self._unheard = unit.memory("inbox")
        """Sessions that were opened since the cache was last cleared and have announced nothing."""
        self._numbers = unit.memory("inbox")
        """`next`: the number of the next row."""

    def put(
        self,
        key: str,
        session: str | None,
        kind: InboxRowKind,
        source: str | None,
        body: str,
        at: Instant,
        *,
        text: TextId | None = None,
        path: Path = "direct",
        origin: str = "",
        route: RouteSource = "fallback",
        carried: str = "",
        is_new: bool = False,
    ) -> bool:
        """Put a row into an inbox; False, and no change, if a row with this key was ever written. `is_new`: the key is
        new, so no row is looked up; the database refuses a key that exists."""
        is_new = is_new or (kind in COMPLETIONS and self._unheard.pop(source, False))
        if not is_new and self.rows.get(key) is not None:
            return False
        seq = self._numbers.get("next") or self._unit.number("SELECT coalesce(max(seq), 0) + 1 FROM inbox")
        self._numbers["next"] = seq + 1
        row = InboxRow(seq, key, session, kind, source, origin, "unread", path, body, text, at, None, route, carried)
        if is_new:
            self.rows.add(key, row)
        else:
            self.rows.put(key, row)
        waiting: _Waiting | None = self._unread.get(session)
        if waiting is not None:
            waiting.arrives(row)
        return True

    def open(self, session: str) -> None:
        """Note that the session is new: its inbox is empty, and it has announced nothing. Neither needs a query."""
        self._unread[session] = _Waiting({}, {})
        self._unheard[session] = True

    def measured(self, row: InboxRow, measure: Callable[[], int]) -> int:
        """The length of a row, measured once while it is unread and unchanged: a full inbox is measured again for each
        batch that is read of it."""
        known = self._lengths.get(row.key)
        if known is None or known[0] is not row:
            known = self._lengths[row.key] = (row, measure())
        length: int = known[1]
        return length

    # -- unread rows

    def _waiting(self, session: str) -> "_Waiting":
        """The unread rows of a session."""
        waiting: _Waiting | None = self._unread.get(session)
        if waiting is None:
            waiting = self._keep(session, self._unit.all(_UNREAD, session, KEPT + 1))
        elif waiting.rows is None and sum(waiting.kinds.values()) <= KEPT // 2:
            waiting.rows = {row[1]: self.rows.found(row[1], row) for row in self._unit.all(_UNREAD, session, KEPT)}
        return waiting

    def _keep(self, session: str, found: list[Any]) -> "_Waiting":
        if len(found) > KEPT:
            waiting = _Waiting(dict(self._unit.all(_KINDS, session)), None)
        else:
            rows = {row[1]: self.rows.found(row[1], row) for row in found}
            waiting = _Waiting(dict(Counter(row.kind for row in rows.values())), rows)
        self._unread[session] = waiting
        return waiting

    def ask(self, sessions: Iterable[str]) -> Callable[[], None]:
        """Ask for what waits for these, unless it is known; answers a function that reads it."""
        missing = [session for session in sessions if session not in self._unread]
        asked = [(session, self._unit.execute(_UNREAD, session, KEPT + 1)) for session in missing]

        def keep() -> None:
            for session, cursor in asked:
                self._keep(session, cursor.fetchall())

        return keep

    def has_unread(self, session: str) -> bool:
        """True if a row waits for the session. At most boundaries of steps none does."""
        rows = self._waiting(session).rows
        return rows is None or bool(rows)

    def unread(self, session: str, limit: int = 1_000_000) -> list[InboxRow]:
        """The unread rows of a session, in the order of arrival."""
        is_glance = limit <= FEW and session not in self._unread
        rows = None if is_glance else self._waiting(session).rows
        if rows is None:
            return [InboxRow(*row) for row in self._unit.all(_UNREAD, session, max(0, limit))]
        return list(islice(rows.values(), max(0, limit)))

    def unread_by_child(self, session: str, limit: int) -> list[InboxRow]:
        """The unread rows of a session: messages in the order of arrival, then completions in the order in which their
        runs were created, then the wake."""
        rows = self._waiting(session).rows
        if rows is None:
            return [InboxRow(*row) for row in self._unit.all(_UNREAD_BY_CHILD, session, limit)]
        return sorted(rows.values(), key=self._turn)[: max(0, limit)]

    def _turn(self, row: InboxRow) -> tuple[int, int, int]:
        """The sort key of `unread_by_child`."""
        if row.announces is None:
            return (2 if row.kind == "wake" else 0), 0, row.seq
        run = self._runs.rows.get(row.source or "")
        return 1, 0 if run is None else run.number, row.seq

    def newest_unread(self, session: str, kind: InboxRowKind | None = None) -> list[InboxRow]:
        """The newest unread row (of this kind); empty if there is none."""
        waiting = self._waiting(session)
        if kind is not None and not waiting.kinds.get(kind):
            return []
        if waiting.rows is not None:
            newest = (row for row in reversed(waiting.rows.values()) if kind is None or row.kind == kind)
            return list(islice(newest, 1))
        newest_of = "session = ? AND state = 'unread' AND kind = coalesce(?, kind) ORDER BY seq DESC LIMIT 1"
        return self._found(newest_of, session, kind)

    def count_waiting(self, session: str, kind: InboxRowKind, origin: str) -> int:
        """The number of unread rows of this kind and origin."""
        waiting = self._waiting(session)
        if not waiting.kinds.get(kind):
            return 0
        if waiting.rows is not None:
            return sum(row.kind == kind and row.origin == origin for row in waiting.rows.values())
        sql = "SELECT count(*) FROM inbox WHERE session = ? AND state = 'unread' AND kind = ? AND origin = ?"
        return self._unit.number(sql, session, kind, origin)

    def count_unread(self, session: str) -> tuple[int, int]:
        """The numbers of unread completions and of unread sends."""
        kinds = self._waiting(session).kinds
        return sum(count for kind, count in kinds.items() if kind in COMPLETIONS), kinds.get("send", 0)

    def dropped(self, session: str, origin: str) -> list[InboxRow]:
        """Dropped rows whose line the session has not read yet, in the order of arrival."""
        dropped = "session = ? AND state = 'dropped' AND closed_at IS NULL AND origin = ? ORDER BY seq"
        return self._found(dropped, session, origin)

    def of_run(self, run: str) -> list[InboxRow]:
        """Completions of this run that are unread or undelivered."""
        is_open = "(state = 'unread' OR state = 'undelivered')"
        return self._found(f"source = ? AND {is_open} AND {_COMPLETION} ORDER BY seq", run)

    def suppressed(self, session: str) -> list[InboxRow]:
        """The suppressed rows in this inbox, in the order of arrival."""
        return self._found("session = ? AND state = 'suppressed' ORDER BY seq", session)

    def undelivered(self) -> list[InboxRow]:
        """All undelivered rows, oldest first."""
        return self._found("state = 'undelivered' ORDER BY seq")

    def _found(self, where: str, *args: object) -> list[InboxRow]:
        return [InboxRow(*row) for row in self._unit.all(f"SELECT {_ROW} FROM inbox i WHERE {where}", *args)]

    # -- closing a row. Each returns False, and changes nothing, if the row is closed already.

    def consume(self, key: str, at: Instant) -> bool:
        """The session has read the row."""
        return self._close(key, "consumed", at)

    def suppress(self, key: str, at: Instant) -> bool:
        """The row has nothing to announce, or its run ended before it read it; this ends its request, if it has one."""
        is_suppressed = self._close(key, "suppressed", at)
        self._requests.end(key, TurnEnd("void"), at)
        return is_suppressed

    def revive(self, key: str) -> None:
        """Make a suppressed row unread again, in its old place; its request waits for an answer again."""
        row = self.rows.get(key)
        if row is not None and row.state == "suppressed":
            self._move(row, replace(row, state="unread", closed_at=None))
            self._requests.reopen(key)

    def void(self, key: str, at: Instant) -> bool:
        """The row will not be read; this ends its request, if it has one."""
        is_void = self._close(key, "void", at)
        self._requests.end(key, TurnEnd("void"), at)
        return is_void

    def give_up(self, key: str, at: Instant) -> bool:
        """The row could not be delivered: put it on the undelivered list."""
        return self._close(key, "undelivered", at)

    def dismiss(self, key: str, at: Instant) -> bool:
        """Take the row off the undelivered list."""
        return self._close(key, "dismissed", at)

    def reopen(self, key: str) -> bool:
        """Make the row unread again, in its old place."""
        return self._close(key, "unread", None)

    def drop(self, key: str, at: Instant | None) -> None:
        """Drop an unread message to make room for newer ones; if `at` is None, the session is yet to read a line about
        it."""
        self._change(key, state="dropped", closed_at=at)

    def line_told(self, key: str, at: Instant) -> None:
        """The session has read the line about a dropped row."""
        row = self.rows.get(key)
        if row is not None and row.state == "dropped":
            self.rows.put(key, replace(row, closed_at=at))

    def _close(self, key: str, state: RowState, at: Instant | None) -> bool:
        row = self.rows.get(key)
        if row is None or row.state not in ("unread", "undelivered"):
            return False
        self._lengths.pop(key, None)
        self._move(row, replace(row, state=state, closed_at=at))
        return True

    # -- changing unread rows

    def readdress(self, key: str, session: str | None, path: Path = "direct") -> None:
        """Move an unread row into another inbox; None while there is no receiver."""
        self._change(key, session=session, path=path)

    def rewrite(self, key: str, body: str, text: TextId | None) -> None:
        """Change the content of an unread row."""
        self._change(key, body=body, text=text)

    def aim(self, key: str, origin: str, route: RouteSource) -> None:
        """Set the address for the answer to an unread row, and how it was found."""
        self._change(key, origin=origin, route=route)

    def _change(self, key: str, **changes: Any) -> None:
        row = self.rows.get(key)
        if row is not None and row.state == "unread":
            self._move(row, replace(row, **changes))

    def _move(self, before: InboxRow, after: InboxRow) -> None:
        """Store a changed row, and update the cached unread rows of its old and its new inbox."""
        self.rows.put(after.key, after)
        waiting: _Waiting | None = self._unread.get(before.session)
        if before.state == "unread" and waiting is not None:
            if after.state == "unread" and after.session == before.session:
                waiting.changes(after)
                return
            waiting.leaves(before)
        if after.state == "unread":
            self._unread.pop(after.session, None)  # the row is not the last one there, so its place must be read


class _Waiting:
    """The unread rows of a session: their number by kind, and the rows themselves unless they are many."""

    __slots__ = ("kinds", "rows")

    def __init__(self, kinds: dict[InboxRowKind, int], rows: dict[str, InboxRow] | None) -> None:
        self.kinds, self.rows = kinds, rows

    def arrives(self, row: InboxRow) -> None:
        """Add a row at the end."""
        self.kinds[row.kind] = self.kinds.get(row.kind, 0) + 1
        if self.rows is not None:
            self.rows[row.key] = row
            if len(self.rows) > KEPT:
                self.rows = None

    def changes(self, row: InboxRow) -> None:
        """Replace a row."""
        if self.rows is not None:
            self.rows[row.key] = row

    def leaves(self, row: InboxRow) -> None:
        """Remove a row."""
        self.kinds[row.kind] -= 1
        if self.rows is not None:
            del self.rows[row.key]
