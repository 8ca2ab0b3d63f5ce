"""Messages between sessions, and their answers."""

from fledge.core.exchange import Exchange
from fledge.core.run import Instant
from fledge.store.unit import Noun, json_decoder, to_json

_exchange = json_decoder(Exchange)


class Exchanges(Noun):
    """Exchanges by their ids."""

    def save(self, exchange: Exchange, at: Instant) -> None:
        """Store an exchange as it stands at this time."""
        one = exchange
        until = None if one.speaker is None or one.reply is not None else one.until_at
        self._unit.execute(
            "INSERT INTO exchanges (id, root, requester, target, row, speaker, waits_until, hops, state, over_at)"
            " VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET root = excluded.root,"
            " requester = excluded.requester, target = excluded.target, row = excluded.row,"
            " speaker = excluded.speaker, waits_until = excluded.waits_until, hops = excluded.hops,"
            " state = excluded.state, over_at = excluded.over_at",
            *(one.id, one.root, one.requester, one.target, one.row, one.speaker, until, one.hops, to_json(one)),
            at if one.speaker is None else None,
        )

    def forget(self, before: Instant, limit: int) -> int:
        """Delete exchanges that were over before this time; returns how many. All exchanges of one root go together,
        and only if none of them is open, younger or unread."""
        if self._unit.is_empty("exchanges"):
            return 0
        return self._unit.execute(
            "DELETE FROM exchanges WHERE root IN (SELECT root FROM"
            " (SELECT root FROM exchanges WHERE over_at < ? ORDER BY over_at LIMIT ?) old"
            " WHERE NOT EXISTS (SELECT 1 FROM exchanges e LEFT JOIN inbox i ON i.key = e.row AND i.state = 'unread'"
            " WHERE e.root = old.root AND (e.over_at IS NULL OR e.over_at >= ? OR i.key IS NOT NULL)))",
            *(before, limit, before),
        ).rowcount

    def get(self, exchange_id: str) -> Exchange | None:
        """An exchange by its id."""
        return next(iter(self._found("WHERE e.id = ?", exchange_id)), None)

    def about(self, row: str) -> Exchange | None:
        """The exchange whose current message is in this inbox row."""
        return next(iter(self._found("WHERE e.row = ?", row)), None)

    def answering(self, session: str) -> list[Exchange]:
        """Exchanges that await this session's answer to a message it has read."""
        return self._found(
            "JOIN inbox i ON i.key = e.row WHERE e.speaker = ? AND i.state = 'consumed' ORDER BY i.seq", session
        )

    def begun(self, session: str) -> list[Exchange]:
        """Exchanges that this session began and that are not over."""
        return self._found("WHERE e.requester = ? AND e.speaker IS NOT NULL ORDER BY e.id", session)

    def _found(self, which: str, arg: str) -> list[Exchange]:
        if self._unit.is_empty("exchanges"):
            return []
        return [_exchange(row) for row in self._unit.column(f"SELECT e.state FROM exchanges e {which}", arg)]

    def is_waited_for(self, session: str, at: Instant) -> bool:
        """True if another session waits, at this time, for this one's answer."""
        if self._unit.is_empty("exchanges"):
            return False
        sql = "SELECT 1 FROM exchanges WHERE speaker = ? AND waits_until > ?"
        return self._unit.one(sql, session, at) is not None

    def hops_made(self, root: str) -> int:
        """How many messages were sent in all exchanges under this root."""
        return self._unit.number("SELECT coalesce(sum(hops), 0) FROM exchanges WHERE root = ?", root)
