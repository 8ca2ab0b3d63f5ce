"""The verbs on questions to a person, commissions, budgets, what turns ran with, exchanges and
heartbeats, in SQL."""

from typing import Any

import msgspec

from fledge.core.documents import Workspace
from fledge.core.exchange import Exchange
from fledge.core.goods import Goods
from fledge.core.permission import Offer
from fledge.core.policy import Budget, Spent
from fledge.core.run import Instant
from fledge.store.base import Approval, ApprovalState, Commission, Heartbeat, Purse, Ran, Wishes
from fledge.store.sqlite_runs import LAST, to_json
from fledge.store.sqlite_sessions import SessionVerbs

_HEARTBEAT = "session, cause, reason, due_at, held, beat_at, said, said_at"
_APPROVAL = (
    "id, session, entry, idx, tool, arguments, digest, state, asked_at, expires_at, answered_by, offer, words, rule,"
    " why"
)
_MOVES: dict[ApprovalState, tuple[str, ...]] = {
    "allowed": ("waiting",),
    "denied": ("waiting",),
    "expired": ("waiting",),
    "void": ("waiting", "allowed"),
    "started": ("allowed",),
    "waiting": (),
}
"""From which states each state may be reached."""
_COMMISSION = "run_id, session, row, wishes, key, digest, accepted_at, turn, started_at, ended_at, ended, entry"
_offer = msgspec.json.Decoder(Offer).decode
_wishes = msgspec.json.Decoder(Wishes).decode
_exchange = msgspec.json.Decoder(Exchange).decode
_budget = msgspec.json.Decoder(Budget).decode
_spent = msgspec.json.Decoder(Spent).decode
_decode_goods = msgspec.json.Decoder(Goods).decode
_decode_workspace = msgspec.json.Decoder(Workspace).decode
_decode_ran = msgspec.json.Decoder(Ran).decode


class WorkVerbs(SessionVerbs):
    """Notes, approvals, commissions, purses, what ran, exchanges, heartbeats."""

    def turn_ran(self, session: str, ran: Ran) -> None:
        """The open turn runs with this."""
        self._db.execute("UPDATE turns SET ran = ? WHERE session = ? AND state = 'open'", (to_json(ran), session))

    def last_ran(self, session: str) -> Ran | None:
        """What the newest turn ran with."""
        sql = "SELECT ran FROM turns WHERE session = ? AND ran IS NOT NULL ORDER BY turn DESC LIMIT 1"
        row = self._one(sql, session)
        return None if row is None else _decode_ran(row[0])

    def keep_goods(self, session: str, goods: Goods) -> None:
        """What the session hands over, as far as is known now."""
        self._known.goods.pop(session, None)
        self._db.execute("UPDATE sessions SET goods = ? WHERE key = ?", (to_json(goods), session))

    def goods(self, session: str) -> Goods | None:
        """What the session hands over."""
        known = self._known.goods
        if session not in known:
            row = self._one("SELECT goods FROM sessions WHERE key = ?", session)
            known[session] = None if row is None or row[0] is None else _decode_goods(row[0])
        return known[session]

    def children_with_leaves(self, session: str, limit: int) -> list[str]:
        """The newest children that left something outside the database."""
        sql = (
            "SELECT key FROM runs WHERE parent = ? AND phase <> 'archived' AND json_extract(state, '$.terms.leaves')"
            " IS NOT NULL ORDER BY id DESC LIMIT ?"
        )
        return self._column(sql, session, limit)

    def workspace(self, path: str) -> Workspace | None:
        """What is known of a workspace."""
        row = self._one("SELECT state FROM workspaces WHERE path = ?", path)
        return None if row is None else _decode_workspace(row[0])

    def save_workspace(self, workspace: Workspace) -> None:
        """Insert or replace what is known of it."""
        self._db.execute("INSERT OR REPLACE INTO workspaces VALUES (?,?)", (workspace.path, to_json(workspace)))

    def begin_work(self, session: str, workspace: str, at: Instant) -> None:
        """Insert where the session's drive may write."""
        self._uses("workers")
        self._db.execute("INSERT OR IGNORE INTO workers VALUES (?,?,?)", (session, workspace, at))

    def end_work(self, session: str) -> tuple[str, Instant] | None:
        """Delete it."""
        if self._is_unused("workers"):
            return None
        row = self._one("DELETE FROM workers WHERE session = ? RETURNING workspace, since", session)
        return None if row is None else (row[0], row[1])

    def at_work(self) -> list[tuple[str, Instant]]:
        """Where drives may write now."""
        return [(row[0], row[1]) for row in self._db.execute("SELECT workspace, since FROM workers ORDER BY session")]

    def covered(self, session: str) -> int:
        """The last entry that a note stands for."""
        row = self._one("SELECT covered FROM sessions WHERE key = ?", session)
        return 0 if row is None else int(row[0])

    def cover(self, session: str, entry: int) -> None:
        """A note stands for everything up to this entry."""
        self._db.execute("UPDATE sessions SET covered = max(covered, ?) WHERE key = ?", (entry, session))

    def ask_approval(self, approval: Approval) -> None:
        """Insert a question unless that call was asked about."""
        a = approval
        self._db.execute(
            f"INSERT INTO approvals ({_APPROVAL}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
            " ON CONFLICT (session, entry, idx) DO NOTHING",
            (
                a.id,
                a.session,
                a.entry,
                a.index,
                a.tool,
                a.arguments,
                a.digest,
                a.state,
                a.asked_at,
                a.expires_at,
                a.answered_by,
                "" if a.offer is None else to_json(a.offer),
                a.words,
                a.rule,
                a.why,
            ),
        )

    def approval(self, approval_id: str) -> Approval | None:
        """A question by its id."""
        row = self._one(f"SELECT {_APPROVAL} FROM approvals WHERE id = ?", approval_id)
        return None if row is None else _approval(row)

    def approvals(self, session: str, first: int = 0, last: int | None = None) -> list[Approval]:
        """Questions of a session, by entry."""
        sql = f"SELECT {_APPROVAL} FROM approvals WHERE session = ? AND entry BETWEEN ? AND ? ORDER BY entry, idx"
        return [_approval(row) for row in self._db.execute(sql, (session, first, LAST if last is None else last))]

    def open_approvals(self) -> list[Approval]:
        """Questions that wait for an answer."""
        sql = f"SELECT {_APPROVAL} FROM approvals WHERE state = 'waiting' ORDER BY asked_at, session, entry, idx"
        return [_approval(row) for row in self._db.execute(sql)]

    def decided_approvals(self, limit: int) -> list[Approval]:
        """Questions that wait for nobody."""
        newest = "ORDER BY asked_at DESC, session, entry DESC, idx DESC LIMIT ?"
        sql = f"SELECT {_APPROVAL} FROM approvals WHERE state <> 'waiting' {newest}"
        return [_approval(row) for row in self._db.execute(sql, (limit,))]

    def move_approval(
        self,
        session: str,
        entry: int,
        index: int,
        state: ApprovalState,
        answered_by: str = "",
        words: str = "",
        rule: str = "",
    ) -> bool:
        """Move a question to a state it may reach."""
        moved = 0
        for origin in _MOVES[state]:
            moved += self._db.execute(
                "UPDATE approvals SET state = ?, answered_by = CASE WHEN ? = '' THEN answered_by ELSE ? END,"
                " words = CASE WHEN ? = '' THEN words ELSE ? END, rule = CASE WHEN ? = '' THEN rule ELSE ? END"
                " WHERE session = ? AND entry = ? AND idx = ? AND state = ?",
                (state, answered_by, answered_by, words, words, rule, rule, session, entry, index, origin),
            ).rowcount
        return moved > 0

    def remember_spawn(self, requester: str, key: str, run: str, digest: str) -> None:
        """Insert what a key means."""
        self._db.execute("INSERT INTO spawns VALUES (?,?,?,?)", (requester, key, run, digest))

    def spawned_by(self, requester: str, key: str) -> tuple[str, str] | None:
        """The run a key means, and the digest of what was asked."""
        row = self._one("SELECT run, digest FROM spawns WHERE requester = ? AND key = ?", requester, key)
        return None if row is None else (row[0], row[1])

    def put_commission(self, commission: Commission) -> None:
        """Insert a commission."""
        a = commission
        self._uses("commissions")
        self._db.execute(
            "INSERT INTO commissions (run_id, session, row, wishes, key, digest, accepted_at) VALUES (?,?,?,?,?,?,?)",
            (a.run_id, a.session, a.row, to_json(a.wishes), a.key or None, a.digest, a.accepted_at),
        )

    def commission(self, run_id: str) -> Commission | None:
        """A commission by its run id."""
        row = self._one(f"SELECT {_COMMISSION} FROM commissions WHERE run_id = ?", run_id)
        return None if row is None else _commission(row)

    def commission_keyed(self, key: str) -> Commission | None:
        """A commission by its key."""
        row = self._one(f"SELECT {_COMMISSION} FROM commissions WHERE key = ?", key)
        return None if row is None else _commission(row)

    def take_up(self, row: str, at: Instant) -> None:
        """Give the row's commission to the open turn of its session."""
        found = self._one("SELECT session, wishes FROM commissions WHERE row = ? AND ended_at IS NULL", row)
        if found is None:
            return
        limit_s = _wishes(found[1]).timeout_s
        self._db.execute(
            "UPDATE commissions SET started_at = ?, deadline_at = ?,"
            " turn = (SELECT turn FROM turns WHERE session = ? AND state = 'open') WHERE row = ?",
            (at, at + limit_s if limit_s else None, found[0], row),
        )

    def end_commission(self, row: str, ended: str, at: Instant) -> None:
        """It will not be read."""
        self._db.execute(
            "UPDATE commissions SET ended = ?, ended_at = ?,"
            " entry = (SELECT last_entry FROM sessions WHERE key = commissions.session)"
            " WHERE row = ? AND ended_at IS NULL",
            (ended, at, row),
        )

    def commissions(self, session: str) -> list[Commission]:
        """Those that were read and not answered."""
        if self._is_unused("commissions"):
            return []
        sql = (
            f"SELECT {_COMMISSION} FROM commissions WHERE session = ? AND ended_at IS NULL AND turn IS NOT NULL"
            " ORDER BY accepted_at, run_id"
        )
        return [_commission(row) for row in self._db.execute(sql, (session,))]

    def overdue_commissions(self, at: Instant, limit: int) -> list[str]:
        """Those whose turn takes too long."""
        return self._column(
            "SELECT run_id FROM commissions WHERE deadline_at <= ? AND ended_at IS NULL ORDER BY deadline_at LIMIT ?",
            at,
            limit,
        )

    def heartbeat(self, session: str) -> Heartbeat | None:
        """What is wanted of this conversation by itself."""
        row = self._one(f"SELECT {_HEARTBEAT} FROM heartbeats WHERE session = ?", session)
        return None if row is None else Heartbeat(*row)

    def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Insert or replace what is wanted."""
        self._db.execute(
            f"INSERT OR REPLACE INTO heartbeats ({_HEARTBEAT}) VALUES (?,?,?,?,?,?,?,?)",
            tuple(getattr(heartbeat, name) for name in heartbeat.__struct_fields__),
        )

    def due_heartbeats(self, at: Instant, limit: int) -> list[str]:
        """Sessions whose wake or periodic heartbeat is due."""
        return self._column(
            "SELECT session FROM (SELECT session, due_at AS due FROM heartbeats WHERE due_at <= ?"
            " UNION ALL SELECT session, beat_at FROM heartbeats WHERE beat_at <= ?)"
            " GROUP BY session ORDER BY min(due), session LIMIT ?",
            at,
            at,
            limit,
        )

    def set_heartbeat(self, session: str, cause: str) -> None:
        """The open turn is a heartbeat's, or no more."""
        self._known.turns.pop(session, None)
        self._db.execute("UPDATE turns SET heartbeat = ? WHERE session = ? AND state = 'open'", (cause, session))

    def has_purses(self) -> bool:
        """True if any session has a budget."""
        return not self._is_unused("purses")

    def purse(self, session: str) -> Purse | None:
        """The session's own purse."""
        row = self._one("SELECT budget, used, reserved, warned FROM purses WHERE session = ?", session)
        return None if row is None else Purse(session, _budget(row[0]), _spent(row[1]), _spent(row[2]), bool(row[3]))

    def save_purse(self, purse: Purse) -> None:
        """Insert or replace a purse."""
        self._uses("purses")
        self._db.execute(
            "INSERT OR REPLACE INTO purses VALUES (?,?,?,?,?)",
            (purse.session, to_json(purse.budget), to_json(purse.used), to_json(purse.reserved), int(purse.warned)),
        )

    def swap_reserve(self, session: str, step: Spent | None) -> Spent | None:
        """Replace what the session's step has set aside."""
        row = self._one("DELETE FROM reserves WHERE session = ? RETURNING step", session)
        if step is not None:
            self._db.execute("INSERT INTO reserves VALUES (?,?)", (session, to_json(step)))
        return None if row is None else _spent(row[0])

    # -- messages between sessions

    def save_exchange(self, exchange: Exchange, at: Instant) -> None:
        """Insert or replace an exchange."""
        one = exchange
        until = None if one.speaker is None or one.reply is not None else one.until_at
        self._uses("exchanges")
        self._db.execute(
            "INSERT OR REPLACE INTO exchanges VALUES (?,?,?,?,?,?,?,?,?,?)",
            (
                *(one.id, one.root, one.requester, one.target, one.row, one.speaker, until, one.hops, to_json(one)),
                at if one.speaker is None else None,
            ),
        )

    def forget_exchanges(self, before: Instant, limit: int) -> int:
        """Delete whole roots, the oldest first."""
        if self._is_unused("exchanges"):
            return 0
        return self._db.execute(
            "DELETE FROM exchanges WHERE root IN (SELECT root FROM"
            " (SELECT root FROM exchanges WHERE over_at < :before ORDER BY over_at LIMIT :most) old"
            " WHERE NOT EXISTS (SELECT 1 FROM exchanges e LEFT JOIN inbox i ON i.key = e.row AND i.state = 'unread'"
            " WHERE e.root = old.root AND (e.over_at IS NULL OR e.over_at >= :before OR i.key IS NOT NULL)))",
            {"before": before, "most": limit},
        ).rowcount

    def exchange(self, exchange_id: str) -> Exchange | None:
        """An exchange by its id."""
        row = self._one("SELECT state FROM exchanges WHERE id = ?", exchange_id)
        return None if row is None else _exchange(row[0])

    def exchange_about(self, row: str) -> Exchange | None:
        """The exchange that this message belongs to."""
        found = self._one("SELECT state FROM exchanges WHERE row = ?", row)
        return None if found is None else _exchange(found[0])

    def answering(self, session: str) -> list[Exchange]:
        """Exchanges whose message this session has read and not answered."""
        if self._is_unused("exchanges"):
            return []
        rows = self._column(
            "SELECT e.state FROM exchanges e JOIN inbox i ON i.key = e.row"
            " WHERE e.speaker = ? AND i.state = 'consumed' ORDER BY i.seq",
            session,
        )
        return [_exchange(row) for row in rows]

    def exchanges_begun(self, session: str) -> list[Exchange]:
        """Exchanges of this requester that are not over."""
        rows = self._column(
            "SELECT state FROM exchanges WHERE requester = ? AND speaker IS NOT NULL ORDER BY id", session
        )
        return [_exchange(row) for row in rows]

    def is_waited_for(self, session: str, at: Instant) -> bool:
        """True if somebody waits for this session's answer."""
        if self._is_unused("exchanges"):
            return False
        return self._one("SELECT 1 FROM exchanges WHERE speaker = ? AND waits_until > ?", session, at) is not None

    def hops_made(self, root: str) -> int:
        """All messages under this root."""
        return int(self._one("SELECT coalesce(sum(hops), 0) FROM exchanges WHERE root = ?", root)[0])


def _commission(row: Any) -> Commission:
    run_id, session, inbox_row, wishes, key, digest, accepted_at, turn, started_at, ended_at, ended, entry = row
    return Commission(
        run_id=run_id,
        session=session,
        row=inbox_row,
        wishes=_wishes(wishes),
        key=key or "",
        digest=digest,
        accepted_at=accepted_at,
        turn=turn,
        started_at=started_at,
        ended_at=ended_at,
        ended=ended or "",
        entry=entry or 0,
    )


def _approval(row: Any) -> Approval:
    *known, offer, words, rule, why = row
    names = ("id", "session", "entry", "index", "tool", "arguments", "digest", "state")
    more = ("asked_at", "expires_at", "answered_by")
    given = dict(zip((*names, *more), known, strict=True))
    return Approval(**given, offer=_offer(offer) if offer else None, words=words, rule=rule, why=why)
