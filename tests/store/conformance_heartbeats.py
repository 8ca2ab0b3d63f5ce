"""What every store promises of heartbeats: what is wanted of a conversation by itself, and when it is due."""

from fledge.store.base import HeartbeatRow, InboxRowKind, Tx
from tests.core.samples import AT
from tests.store.bench import Bench, admit, change_turn, conversation


class HeartbeatConformance:
    """Heartbeats."""

    def test_what_is_wanted_is_as_it_was_saved_last(self, bench: Bench) -> None:
        first = HeartbeatRow("a", "default", "something came in", AT + 1)
        last = HeartbeatRow("a", "action", "somebody asked", None, "quiet-hours", AT + 9, "Look!", AT)
        bench.do(lambda tx: tx.heartbeats.save(first))
        assert bench.see(lambda tx: tx.heartbeats.get("a")) == first
        bench.do(lambda tx: tx.heartbeats.save(last))
        assert bench.see(lambda tx: (tx.heartbeats.get("a"), tx.heartbeats.get("b"))) == (last, None)

    def test_wakes_and_beats_are_due_from_their_time_on_the_longest_overdue_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.heartbeats.save(HeartbeatRow("a", "default", "", 20.0))
            tx.heartbeats.save(HeartbeatRow("b", beat_at=10.0))
            tx.heartbeats.save(HeartbeatRow("c", "action", "", 30.0, beat_at=15.0))
            tx.heartbeats.save(HeartbeatRow("d", "action", ""))

        bench.do(job)

        def due(at: float, limit: int = 9) -> list[str]:
            return bench.see(lambda tx: tx.heartbeats.due(at, limit))

        assert due(9.999) == []
        assert due(10.0) == ["b"]
        assert due(15.0) == ["b", "c"]
        assert due(99.0) == ["b", "c", "a"]
        assert due(99.0, limit=2) == ["b", "c"]
        found = [bench.see(lambda tx, at=at: tx.next_due(at)) for at in (0.0, 10.0, 15.0, 20.0, 30.0)]  # type: ignore[misc]
        assert found == [10.0, 15.0, 20.0, 30.0, None]

    def test_a_turn_knows_why_nobody_spoke_for_it(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            conversation(tx, "s")
            seen: list[str] = [tx.turns.open("s", {}, AT).heartbeat]
            for cause in ("interval", ""):
                change_turn(tx, "s", heartbeat=cause)
                turn = tx.turns.get("s")
                assert turn is not None
                seen.append(turn.heartbeat)
            return seen

        assert bench.do(job) == ["", "interval", ""]

    def test_a_deleted_session_and_a_forgotten_run_want_nothing(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s", "stays")
            admit(tx, "run")
            for session in ("s", "run", "stays"):
                tx.heartbeats.save(HeartbeatRow(session, "default", "", AT))
            tx.sessions.delete("s")
            tx.runs.forget("run")

        bench.do(job)
        assert bench.see(lambda tx: tx.heartbeats.due(AT, 9)) == ["stays"]

    def test_the_newest_unread_row_can_be_asked_for_by_kind(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            rows: tuple[tuple[str, InboxRowKind], ...] = (("n1", "notice"), ("n2", "notice"), ("s", "send"))
            for key, kind in rows:
                tx.inbox.put(key, "s", kind, None, "x", AT)
            kinds: tuple[InboxRowKind | None, ...] = (None, "notice", "send", "task")
            return [[row.key for row in tx.inbox.newest_unread("s", kind)] for kind in kinds]

        assert bench.do(job) == [["s"], ["n2"], ["s"], []]
