"""What every store promises of heartbeats: what is wanted of a conversation by itself, and when it is due."""

from fledge.store.base import Heartbeat, RowKind, Tx
from tests.core.samples import AT
from tests.store.bench import Bench, admit, conversation


class HeartbeatConformance:
    """Heartbeats."""

    def test_what_is_wanted_is_as_it_was_saved_last(self, bench: Bench) -> None:
        first = Heartbeat("a", "default", "something came in", AT + 1)
        last = Heartbeat("a", "action", "somebody asked", None, "quiet-hours", AT + 9, "Look!", AT)
        bench.do(lambda tx: tx.save_heartbeat(first))
        assert bench.see(lambda tx: tx.heartbeat("a")) == first
        bench.do(lambda tx: tx.save_heartbeat(last))
        assert bench.see(lambda tx: (tx.heartbeat("a"), tx.heartbeat("b"))) == (last, None)

    def test_wakes_and_beats_are_due_from_their_time_on_the_longest_overdue_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.save_heartbeat(Heartbeat("a", "default", "", 20.0))
            tx.save_heartbeat(Heartbeat("b", beat_at=10.0))
            tx.save_heartbeat(Heartbeat("c", "action", "", 30.0, beat_at=15.0))
            tx.save_heartbeat(Heartbeat("d", "action", ""))

        bench.do(job)

        def due(at: float, limit: int = 9) -> list[str]:
            return bench.see(lambda tx: tx.due_heartbeats(at, limit))

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
            seen: list[str] = [tx.open_turn("s", {}, AT).heartbeat]
            for cause in ("interval", ""):
                tx.set_heartbeat("s", cause)
                turn = tx.turn("s")
                assert turn is not None
                seen.append(turn.heartbeat)
            tx.set_heartbeat("nobody", "action")
            return seen

        assert bench.do(job) == ["", "interval", ""]

    def test_a_deleted_session_and_a_forgotten_run_want_nothing(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s", "stays")
            admit(tx, "run")
            for session in ("s", "run", "stays"):
                tx.save_heartbeat(Heartbeat(session, "default", "", AT))
            tx.delete_session("s")
            tx.forget_run("run")

        bench.do(job)
        assert bench.see(lambda tx: tx.due_heartbeats(AT, 9)) == ["stays"]

    def test_the_newest_unread_row_can_be_asked_for_by_kind(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            rows: tuple[tuple[str, RowKind], ...] = (("n1", "notice"), ("n2", "notice"), ("s", "send"))
            for key, kind in rows:
                tx.put_row(key, "s", kind, None, "x", AT)
            kinds: tuple[RowKind | None, ...] = (None, "notice", "send", "task")
            return [[row.key for row in tx.newest_unread("s", kind)] for kind in kinds]

        assert bench.do(job) == [["s"], ["n2"], ["s"], []]
