"""What every store promises of workspaces: what is known of their documents, and who may write there now."""

from fledge.core.documents import Document, Version, Workspace
from fledge.core.turn import TurnEnd
from fledge.store.base import Tx
from tests.core.samples import AT
from tests.store.bench import Bench, change_turn, claim, conversation, queue


class DocumentConformance:
    """Documents of workspaces."""

    def test_what_is_known_of_a_workspace_is_as_it_was_saved_last(self, bench: Bench) -> None:
        first = Workspace("/w", (Document("SOUL.md", "one"),))
        last = Workspace("/w", (Document("SOUL.md", "one", Version("two", AT)),), ((AT, AT + 1), (AT + 2, AT + 3)))
        bench.do(lambda tx: tx.workspaces.put("/w", first))
        assert bench.see(lambda tx: tx.workspaces.get("/w")) == first
        bench.do(lambda tx: tx.workspaces.put("/w", last))
        assert bench.see(lambda tx: (tx.workspaces.get("/w"), tx.workspaces.get("/w/x"))) == (last, None)

    def test_where_a_driver_may_write_is_known_from_the_first_time_on_until_it_is_gone(self, bench: Bench) -> None:
        def begin(tx: Tx) -> None:
            tx.drivers.begin_work("b", "/w", AT)
            tx.drivers.begin_work("a", "/", AT + 1)
            tx.drivers.begin_work("b", "/elsewhere", AT + 2)
            tx.drivers.begin_work("idle", "/w", AT)

        def release(tx: Tx, session: str) -> str | None:
            driver = tx.drivers.release(session, 1)
            return None if driver is None else driver.works_in

        bench.do(lambda tx: queue(tx, "a", "b", "idle"))
        bench.do(lambda tx: (claim(tx, "a"), claim(tx, "b")))
        assert bench.see(lambda tx: tx.drivers.at_work()) == []
        bench.do(begin)
        assert bench.see(lambda tx: tx.drivers.at_work()) == [("/", AT + 1), ("/w", AT)]
        assert bench.do(lambda tx: (release(tx, "b"), release(tx, "b"))) == ("/w", None)
        assert bench.see(lambda tx: tx.drivers.at_work()) == [("/", AT + 1)]

    def test_a_driver_that_did_not_exit_in_time_leaves_its_work_to_the_next(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "s")
            claim(tx, "s")
            tx.drivers.begin_work("s", "/w", AT)
            tx.drivers.supersede("s", AT + 5)
            queue(tx, "s")
            claim(tx, "s", AT + 9)

        bench.do(job)
        assert bench.see(lambda tx: tx.drivers.at_work()) == [("/w", AT)]

    def test_a_turn_knows_that_a_person_began_it(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[bool]:
            conversation(tx, "s")
            seen = [tx.turns.open("s", {}, AT).by_person]
            change_turn(tx, "s", by_person=True)
            turn = tx.turns.get("s")
            assert turn is not None
            tx.turns.close("s", TurnEnd("replied"), AT)
            return [*seen, turn.by_person, tx.turns.open("s", {}, AT).by_person]

        assert bench.do(job) == [False, True, False]
