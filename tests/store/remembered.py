"""What a writer keeps in memory from one commit to the next is what is stored."""

from collections import Counter

from fledge.core.policy import fair_rank
from fledge.store.active import Lane
from fledge.store.base import COMPLETIONS, Tx
from fledge.store.unit import Table


def check_remembered(kept: Tx, stored: Tx) -> None:
    """Compare all that one knows with what the other, which knows nothing yet, finds."""
    assert not kept.unit.dirty
    for name, table in kept.unit.tables.items():
        other = stored.unit.tables[name]
        if isinstance(table, Table) and isinstance(other, Table):
            assert table.kept == {key: other.get(key) for key in table.kept}, name
    assert kept.runs.awaiting() == stored.runs.awaiting()
    specs = {key: kept.runs.spec(key) for key in kept.runs._specs}
    assert specs == {key: stored.runs.spec(key) for key in specs}
    (last_run,) = stored.unit.one("SELECT coalesce(max(id), 0) FROM runs")
    assert kept.runs._known.get("next", last_run + 1) > last_run
    (last_row,) = stored.unit.one("SELECT coalesce(max(seq), 0) FROM inbox")
    assert kept.inbox._numbers.get("next", last_row + 1) > last_row
    assert kept.texts._recent == {key: stored.texts.get(key) for key in kept.texts._recent}
    for session, waiting in kept.inbox._unread.items():
        unread = stored.inbox.unread(session)
        assert waiting.rows is None or list(waiting.rows.values()) == unread
        assert {kind: count for kind, count in waiting.kinds.items() if count} == Counter(row.kind for row in unread)
    for session in kept.inbox._unheard:
        assert not COMPLETIONS & set(stored.unit.column("SELECT kind FROM inbox WHERE source = ?", session))
    for (lane, spawner), rank in kept.queue._ranks.items():
        at = stored.queue.lanes.get(lane) or Lane(lane)
        sql = "SELECT max(rank) FROM active WHERE queue_lane = ? AND spawner = ?"
        assert fair_rank(at.rank, rank) == fair_rank(at.rank, stored.unit.one(sql, lane, spawner)[0] or 0)
    empty = {table: stored.unit.is_empty(table) for table in kept.unit._empty}
    assert kept.unit._empty == empty
