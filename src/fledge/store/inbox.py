"""Inboxes: what waits to enter sessions, and what became of it.

What waits for a session that was looked at is counted, and kept as long as it is little: the inbox of a busy
conversation is looked at in every commit.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from fledge.core.route import RouteSource
from fledge.core.run import Instant, Path, TextId
from fledge.core.turn import TurnEnd
from fledge.store.people import MessageRequests
from fledge.store.records import COMPLETIONS, InboxRow, InboxRowKind, RowState
from fledge.store.runs import Runs
from fledge.store.unit import Table, TableShape, Unit

KEPT: Final = 2048
"""How many unread rows of a session are kept; of one with more they are only counted."""

_ROW: Final = "seq, key, session, kind, source, origin, state, path, body, text, arrived_at, closed_at, route, carried"
_COMPLETION: Final = "(" + " OR ".join(f"i.kind = '{kind}'" for kind in sorted(COMPLETIONS)) + ")"
_KINDS: Final = "SELECT kind, count(*) FROM inbox WHERE session = ? AND state = 'unread' GROUP BY kind"
_UNREAD: Final = f"SELECT {_ROW} FROM inbox WHERE session = ? AND state = 'unread' ORDER BY seq LIMIT ?"
# A message may come from a run, too: only a completion takes the place of the run it announces.
_UNREAD_BY_CHILD: Final = f"""
SELECT {", ".join(f"i.{column}" for column in _ROW.split(", "))} FROM inbox i
LEFT JOIN runs r ON r.key = i.source AND {_COMPLETION}
WHERE i.session = ? AND i.state = 'unread'
ORDER BY CASE WHEN {_COMPLETION} THEN 1 WHEN i.kind = 'wake' THEN 2 ELSE 0 END, r.id, i.seq LIMIT ?
"""


def _values(row: InboxRow) -> tuple[Any, ...]:
    return (
        *(row.seq, row.key, row.session, row.kind, row.source, row.origin, row.state, row.path, row.body, row.text),
        *(row.arrived_at, row.closed_at, row.route, row.carried),
    )


def _words(row: InboxRow) -> tuple[Any, ...]:
    """What a row says, and to whom: mostly only its state changes."""
    return row.session, row.origin, row.path, row.body, row.text, row.route


def _update(before: InboxRow, after: InboxRow) -> tuple[str, tuple[Any, ...]]:
    if _words(before) == _words(after):
        sql = "UPDATE inbox SET state = ?, closed_at = ? WHERE key = ? AND state = ?"
        return sql, (after.state, after.closed_at, after.key, before.state)
    sql = (
        "UPDATE inbox SET session = ?, origin = ?, state = ?, path = ?, body = ?, text = ?, closed_at = ?, route = ?"
        " WHERE key = ? AND state = ?"
    )
    what = (after.session, after.origin, after.state, after.path, after.body, after.text, after.closed_at, after.route)
    return sql, (*what, after.key, before.state)


_INBOX: Final = TableShape(
    name="inbox",
    select=f"SELECT {_ROW} FROM inbox WHERE key = ?",
    read=lambda row: InboxRow(*row),
    insert=f"INSERT INTO inbox ({_ROW}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    values=_values,
    update=_update,
    delete="DELETE FROM inbox WHERE key = ?",
    keeps=lambda row: row.state == "unread",  # others may be many, and long
)


class Inbox:
    """Rows by their keys, and by the sessions they wait for."""

    def __init__(self, unit: Unit, runs: Runs, commissions: MessageRequests) -> None:
        self._unit, self._runs, self._requests = unit, runs, commissions
        self._rows: Table[str, InboxRow] = Table(unit, _INBOX)
        self._unread = unit.memory("inbox")
        """By session, what waits for it."""
        self._lengths = unit.memory("inbox")
        """By key, a row that waits and how long it is."""
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
        """Put a row into an inbox; False, and nothing changes, if a row with this key was ever written. `is_new`: none
        was, so none is looked for; the database refuses the row if one was after all."""
        if not is_new and self._rows.get(key) is not None:
            return False
        seq = self._numbers.get("next") or 1 + int(self._unit.one("SELECT coalesce(max(seq), 0) FROM inbox")[0])
        self._numbers["next"] = seq + 1
        row = InboxRow(seq, key, session, kind, source, origin, "unread", path, body, text, at, None, route, carried)
        if is_new:
            self._rows.add(key, row)
        else:
            self._rows.put(key, row)
        waiting: _Waiting | None = self._unread.get(session)
        if waiting is not None:
            waiting.arrives(row)
        return True

    def open(self, session: str) -> None:
        """The session was never there before, so nothing waits for it: it need not be looked for."""
        self._unread[session] = _Waiting({}, {})

    def measured(self, row: InboxRow, measure: Callable[[], int]) -> int:
        """How long what a row says is, measured once while it waits unchanged: a full inbox is looked through again
        with every commit's worth that is read of it."""
        known = self._lengths.get(row.key)
        if known is None or known[0] is not row:
            known = self._lengths[row.key] = (row, measure())
        length: int = known[1]
        return length

    def get(self, key: str) -> InboxRow | None:
        """A row by its key, whatever its state."""
        return self._rows.get(key)

    # -- what waits

    def _waiting(self, session: str) -> "_Waiting":
        """What waits for a session."""
        waiting: _Waiting | None = self._unread.get(session)
        if waiting is None:
            found = self._unit.all(_UNREAD, session, KEPT + 1)
            if len(found) > KEPT:
                waiting = _Waiting(dict(self._unit.all(_KINDS, session)), None)
            else:
                rows = {row[1]: self._rows.found(row[1], row) for row in found}
                waiting = _Waiting(_counted(rows.values()), rows)
            self._unread[session] = waiting
        elif waiting.rows is None and sum(waiting.kinds.values()) <= KEPT // 2:
            waiting.rows = {row[1]: self._rows.found(row[1], row) for row in self._unit.all(_UNREAD, session, KEPT)}
        return waiting

    def unread(self, session: str, limit: int = 1_000_000) -> list[InboxRow]:
        """The rows that wait to enter a session, in order of arrival."""
        rows = self._waiting(session).rows
        if rows is None:
            return [InboxRow(*row) for row in self._unit.all(_UNREAD, session, limit)]
        return list(islice(rows.values(), max(0, limit)))

    def unread_by_child(self, session: str, limit: int) -> list[InboxRow]:
        """The rows that wait to enter a session: messages in order of arrival, then completions in the order in which
        their runs were made, then the wake."""
        rows = self._waiting(session).rows
        if rows is None:
            return [InboxRow(*row) for row in self._unit.all(_UNREAD_BY_CHILD, session, limit)]
        return sorted(rows.values(), key=self._turn)[: max(0, limit)]

    def _turn(self, row: InboxRow) -> tuple[int, int, int]:
        """When a row has its turn among those that wait."""
        if row.announces is None:
            return (2 if row.kind == "wake" else 0), 0, row.seq
        run = self._runs.rows.get(row.source or "")
        return 1, 0 if run is None else run.number, row.seq

    def newest_unread(self, session: str, kind: InboxRowKind | None = None) -> list[InboxRow]:
        """The row (of this kind) that arrived last and still waits; empty if none does."""
        waiting = self._waiting(session)
        if kind is not None and not waiting.kinds.get(kind):
            return []
        if waiting.rows is not None:
            newest = (row for row in reversed(waiting.rows.values()) if kind is None or row.kind == kind)
            return list(islice(newest, 1))
        sql = f"SELECT {_ROW} FROM inbox WHERE session = ? AND state = 'unread'"
        if kind is None:
            return [InboxRow(*row) for row in self._unit.all(f"{sql} ORDER BY seq DESC LIMIT 1", session)]
        return [
            InboxRow(*row) for row in self._unit.all(f"{sql} AND kind = ? ORDER BY seq DESC LIMIT 1", session, kind)
        ]

    def count_waiting(self, session: str, kind: InboxRowKind, origin: str) -> int:
        """How many rows of this kind and origin are unread in this inbox."""
        waiting = self._waiting(session)
        if not waiting.kinds.get(kind):
            return 0
        if waiting.rows is not None:
            return sum(row.kind == kind and row.origin == origin for row in waiting.rows.values())
        sql = "SELECT count(*) FROM inbox WHERE session = ? AND state = 'unread' AND kind = ? AND origin = ?"
        return int(self._unit.one(sql, session, kind, origin)[0])

    def count_unread(self, session: str) -> tuple[int, int]:
        """How many completions and how many sends are unread in this inbox."""
        kinds = self._waiting(session).kinds
        return sum(count for kind, count in kinds.items() if kind in COMPLETIONS), kinds.get("send", 0)

    def dropped(self, session: str, origin: str) -> list[InboxRow]:
        """Rows that gave way and whose line is still to be told, in order of arrival."""
        sql = (
            f"SELECT {_ROW} FROM inbox WHERE session = ? AND state = 'dropped' AND closed_at IS NULL AND origin = ?"
            " ORDER BY seq"
        )
        return [InboxRow(*row) for row in self._unit.all(sql, session, origin)]

    def of_run(self, run: str) -> list[InboxRow]:
        """Completions of this run that are unread or undelivered."""
        sql = (
            f"SELECT {_ROW} FROM inbox i WHERE source = ? AND (state = 'unread' OR state = 'undelivered')"
            f" AND {_COMPLETION} ORDER BY seq"
        )
        return [InboxRow(*row) for row in self._unit.all(sql, run)]

    def undelivered(self) -> list[InboxRow]:
        """Every row that was given up on, oldest first."""
        return [
            InboxRow(*row)
            for row in self._unit.all(f"SELECT {_ROW} FROM inbox WHERE state = 'undelivered' ORDER BY seq")
        ]

    # -- what becomes of a row. Each is False if the row is not there any more, and nothing changes.

    def consume(self, key: str, at: Instant) -> bool:
        """The session has read it."""
        return self._close(key, "consumed", at)

    def suppress(self, key: str, at: Instant) -> bool:
        """There is nothing to tell with it."""
        return self._close(key, "suppressed", at)

    def void(self, key: str, at: Instant) -> bool:
        """It will not be read; its request, if it has one, has ended so."""
        is_void = self._close(key, "void", at)
        self._requests.end(key, TurnEnd("void"), at)
        return is_void

    def give_up(self, key: str, at: Instant) -> bool:
        """Nobody could be found for it: it is on the undelivered list."""
        return self._close(key, "undelivered", at)

    def dismiss(self, key: str, at: Instant) -> bool:
        """It is taken off the undelivered list, for good."""
        return self._close(key, "dismissed", at)

    def reopen(self, key: str) -> bool:
        """It waits again, in its old place."""
        return self._close(key, "unread", None)

    def drop(self, key: str, at: Instant | None) -> None:
        """An unread message gives way to newer ones, without a word; if `at` is None, with a line still to be told."""
        self._change(key, lambda row: replace(row, state="dropped", closed_at=at))

    def line_told(self, key: str, at: Instant) -> None:
        """The line of a dropped row was told."""
        row = self._rows.get(key)
        if row is not None and row.state == "dropped":
            self._rows.put(key, replace(row, closed_at=at))

    def _close(self, key: str, state: RowState, at: Instant | None) -> bool:
        row = self._rows.get(key)
        if row is None or row.state not in ("unread", "undelivered"):
            return False
        self._lengths.pop(key, None)
        self._move(row, replace(row, state=state, closed_at=at))
        return True

    # -- changing what waits

    def readdress(self, key: str, session: str | None, path: Path = "direct") -> None:
        """Put an unread row, same key, into another inbox; None while nobody is left."""
        self._change(key, lambda row: replace(row, session=session, path=path))

    def rewrite(self, key: str, body: str, text: TextId | None) -> None:
        """Change what an unread row says."""
        self._change(key, lambda row: replace(row, body=body, text=text))

    def aim(self, key: str, origin: str, route: RouteSource) -> None:
        """Say where the answer to an unread row should go, and how that was found."""
        self._change(key, lambda row: replace(row, origin=origin, route=route))

    def _change(self, key: str, change: Callable[[InboxRow], InboxRow]) -> None:
        row = self._rows.get(key)
        if row is not None and row.state == "unread":
            self._move(row, change(row))

    def _move(self, before: InboxRow, after: InboxRow) -> None:
        """From now on the row is so: in no inbox any more, or in the same place of one, or in another."""
        self._rows.put(after.key, after)
        waiting: _Waiting | None = self._unread.get(before.session)
        if before.state == "unread" and waiting is not None:
            if after.state == "unread" and after.session == before.session:
                waiting.changes(after)
                return
            waiting.leaves(before)
        if after.state == "unread":
            self._unread.pop(after.session, None)  # it is not the last to arrive there


class _Waiting:
    """What waits for a session: how many rows of each kind, and the rows themselves unless they are many."""

    __slots__ = ("kinds", "rows")

    def __init__(self, kinds: dict[InboxRowKind, int], rows: dict[str, InboxRow] | None) -> None:
        self.kinds, self.rows = kinds, rows

    def arrives(self, row: InboxRow) -> None:
        """A row came last."""
        self.kinds[row.kind] = self.kinds.get(row.kind, 0) + 1
        if self.rows is not None:
            self.rows[row.key] = row
            if len(self.rows) > KEPT:
                self.rows = None

    def changes(self, row: InboxRow) -> None:
        """A row that waits says something else now."""
        if self.rows is not None:
            self.rows[row.key] = row

    def leaves(self, row: InboxRow) -> None:
        """A row waits no longer."""
        self.kinds[row.kind] -= 1
        if self.rows is not None:
            del self.rows[row.key]


def _counted(rows: Iterable[InboxRow]) -> dict[InboxRowKind, int]:
    return dict(Counter(row.kind for row in rows))
