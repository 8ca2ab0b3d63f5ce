"""Approvals of tool calls, requests with a run id, and idempotency keys."""

from typing import Any, Final

from msgspec.structs import asdict

from fledge.core.permission import Offer
from fledge.core.run import Instant
from fledge.core.turn import TurnEnd
from fledge.core.value import Value
from fledge.store.records import Approval, ApprovalState, MessageRequest, Wishes
from fledge.store.session_rows import IDLE, UNOPENED, ActiveRow
from fledge.store.sessions import Sessions
from fledge.store.unit import LAST, Noun, Table, Unit, insert_into, json_decoder, to_json

_offer = json_decoder(Offer)
_wishes = json_decoder(Wishes)
_decode_end = json_decoder(TurnEnd)

# In the order of the fields of `Approval`.
_APPROVAL: Final = (
    "id, session, entry, idx, tool, arguments, digest, state, asked_at, expires_at, answered_by, offer, words, rule,"
    " why"
)
_INSERT: Final = insert_into("approvals", _APPROVAL)
_ORIGINS: Final[dict[ApprovalState, str]] = {
    "allowed": "'waiting'",
    "denied": "'waiting'",
    "expired": "'waiting'",
    "void": "'waiting', 'allowed'",
    "started": "'allowed'",
    "waiting": "''",
}
"""The states from which each state can be reached, as SQL: `waiting` from none."""
# In the order of the fields of `MessageRequest`.
_REQUEST: Final = "run_id, session, row, wishes, accepted_at, turn, started_at, ended_at, ended, entry"
OVERDUE: Final = (
    "SELECT run_id FROM commissions WHERE deadline_at <= ? AND ended_at IS NULL ORDER BY deadline_at LIMIT ?"
)


class Approvals(Noun):
    """Tool calls that need a person's approval."""

    def ask(self, approval: Approval) -> None:
        """Store a question; asking about the same call again changes nothing."""
        values = asdict(approval) | {"offer": "" if approval.offer is None else to_json(approval.offer)}
        self._unit.execute(f"{_INSERT} ON CONFLICT (session, entry, idx) DO NOTHING", *values.values())

    def get(self, approval_id: str) -> Approval | None:
        """A question by its id."""
        return next(iter(self._found("id = ?", approval_id)), None)

    def of(self, session: str, first: int = 0, last: int | None = None) -> list[Approval]:
        """All questions of a session about calls of the entries `first` to `last`, oldest first."""
        if self._unit.is_empty("approvals"):
            return []
        until = LAST if last is None else last
        return self._found("session = ? AND entry BETWEEN ? AND ? ORDER BY entry, idx", session, first, until)

    def open(self) -> list[Approval]:
        """Questions of all sessions that wait for an answer, oldest first."""
        return self._found("state = 'waiting' ORDER BY asked_at, session, entry, idx")

    def decided(self, limit: int) -> list[Approval]:
        """Decided questions of all sessions, newest first."""
        newest = "ORDER BY asked_at DESC, session, entry DESC, idx DESC LIMIT ?"
        return self._found(f"state <> 'waiting' {newest}", limit)

    def _found(self, where: str, *args: object) -> list[Approval]:
        return [_approval(row) for row in self._unit.all(f"SELECT {_APPROVAL} FROM approvals WHERE {where}", *args)]

    def move(
        self,
        session: str,
        entry: int,
        index: int,
        state: ApprovalState,
        answered_by: str = "",
        words: str = "",
        rule: str = "",
    ) -> bool:
        """Change the state of the question about this call, and store the answer; False if there is no such question,
        or it is already decided."""
        cursor = self._unit.execute(
            "UPDATE approvals SET state = ?, answered_by = coalesce(nullif(?, ''), answered_by),"
            " words = coalesce(nullif(?, ''), words), rule = coalesce(nullif(?, ''), rule)"
            f" WHERE session = ? AND entry = ? AND idx = ? AND state IN ({_ORIGINS[state]})",
            *(state, answered_by, words, rule, session, entry, index),
        )
        return cursor.rowcount > 0


class MessageRequests:
    """Messages to sessions whose answers can be waited for by a run id."""

    def __init__(self, unit: Unit, sessions: Sessions, active: Table[str, ActiveRow]) -> None:
        self._unit, self._sessions, self._active = unit, sessions, active

    def put(self, request: MessageRequest) -> None:
        """Store an accepted request. The database refuses a run id or a row that was used before."""
        a = request
        self._unit.execute(
            "INSERT INTO commissions (run_id, session, row, wishes, accepted_at) VALUES (?,?,?,?,?)",
            *(a.run_id, a.session, a.row, to_json(a.wishes), a.accepted_at),
        )

    def get(self, run_id: str) -> MessageRequest | None:
        """A request by its run id."""
        row = self._unit.one(f"SELECT {_REQUEST} FROM commissions WHERE run_id = ?", run_id)
        return None if row is None else _request(row)

    def take_up(self, row: str, at: Instant) -> None:
        """Record that the open turn of its session has read this row, and so serves its request, if there is one."""
        for session, wishes in self._open("session, wishes", "row = ?", row):
            turn = (self._active.get(session) or IDLE).turn
            if turn is not None:
                limit_s = _wishes(wishes).timeout_s
                self._unit.execute(
                    "UPDATE commissions SET started_at = ?, deadline_at = ?, turn = ? WHERE row = ?",
                    *(at, at + limit_s if limit_s else None, turn.turn, row),
                )

    def end(self, row: str, end: TurnEnd, at: Instant) -> None:
        """End the open request of this row, if there is one: it was answered, or will not be."""
        for (session,) in self._open("session", "row = ?", row):
            self._end("row = ?", session, end, at, row)

    def reopen(self, row: str) -> None:
        """The message of this row, which no turn had read, will be read after all: its request is open again."""
        if not self._unit.is_empty("commissions"):
            reopened = "ended = NULL, ended_at = NULL, entry = NULL"
            self._unit.execute(f"UPDATE commissions SET {reopened} WHERE turn IS NULL AND row = ?", row)

    def end_read(self, session: str, end: TurnEnd, at: Instant, first: int) -> None:
        """End the open requests that turns of the session with this number or a higher one have read."""
        if not self._unit.is_empty("commissions"):
            self._end("session = ? AND turn >= ?", session, end, at, session, first)

    def _end(self, which: str, session: str, end: TurnEnd, at: Instant, *args: object) -> None:
        last_entry = (self._sessions.rows.get(session) or UNOPENED).last_entry
        self._unit.execute(
            f"UPDATE commissions SET ended = ?, ended_at = ?, entry = ? WHERE ended_at IS NULL AND {which}",
            *(to_json(end), at, last_entry, *args),
        )

    def of(self, session: str) -> list[MessageRequest]:
        """The open requests that a turn of the session has read, in the order of acceptance."""
        rows = self._open(_REQUEST, "session = ? AND turn IS NOT NULL ORDER BY accepted_at, run_id", session)
        return [_request(row) for row in rows]

    def lane(self, session: str, turn: int | None) -> str:
        """The lane that a request wishes for this turn; without a turn, the wish of the oldest unread request. Empty if
        there is none."""
        wished = (
            self._open("wishes", "session = ? AND turn IS NULL ORDER BY accepted_at, run_id LIMIT 1", session)
            if turn is None
            else self._open("wishes", "session = ? AND turn = ? ORDER BY accepted_at, run_id", session, turn)
        )
        return next((lane for lane in (_wishes(one).lane for (one,) in wished) if lane), "")

    def _open(self, columns: str, which: str, *args: object) -> list[Any]:
        """Columns of open requests."""
        if self._unit.is_empty("commissions"):
            return []
        return self._unit.all(f"SELECT {columns} FROM commissions WHERE ended_at IS NULL AND {which}", *args)

    def overdue(self, at: Instant, limit: int) -> list[str]:
        """Run ids of requests whose turn has passed its timeout, the longest overdue first."""
        return self._unit.column(OVERDUE, at, limit)


class Ask(Value):
    """A request under an idempotency key, and its answer."""

    digest: str
    """Digest of the request: another request may not use the same key."""
    answer: str


class IdempotencyKeys(Noun):
    """Idempotency keys by asker: the same key finds the answer to the first request."""

    def remember(self, asker: str, key: str, digest: str, answer: str, owner: str) -> None:
        """Store the answer of this key, until `owner` is deleted. The database refuses a key that was used."""
        self._unit.execute(
            "INSERT INTO asks (asker, key, digest, answer, owner) VALUES (?,?,?,?,?)", asker, key, digest, answer, owner
        )

    def find(self, asker: str, key: str) -> Ask | None:
        """The request and answer of this key, if it was used."""
        row = self._unit.one("SELECT digest, answer FROM asks WHERE asker = ? AND key = ?", asker, key)
        return None if row is None else Ask(*row)


def _request(row: Any) -> MessageRequest:
    given = dict(zip(MessageRequest.__struct_fields__, row, strict=True))
    given["wishes"] = _wishes(given["wishes"])
    given["ended"] = None if given["ended"] is None else _decode_end(given["ended"])
    given["entry"] = given["entry"] or 0
    return MessageRequest(**given)


def _approval(row: Any) -> Approval:
    given = dict(zip(Approval.__struct_fields__, row, strict=True))
    given["offer"] = _offer(given["offer"]) if given["offer"] else None
    return Approval(**given)
