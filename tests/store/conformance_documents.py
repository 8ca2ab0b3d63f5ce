"""What every store promises of workspaces: what is known of their documents, and who may write there now."""

from fledge.core.documents import Document, Version, Workspace
from fledge.core.turn import TurnEnd
from fledge.store.base import Tx
from tests.core.samples import AT
from tests.store.bench import Bench, change_turn, conversation


class DocumentConformance:
    """Documents of workspaces."""

    def test_what_is_known_of_a_workspace_is_as_it_was_saved_last(self, bench: Bench) -> None:
        first = Workspace("/w", (Document("SOUL.md", "one"),))
        last = Workspace("/w", (Document("SOUL.md", "one", Version("two", AT)),), ((AT, AT + 1), (AT + 2, AT + 3)))
        bench.do(lambda tx: tx.workspaces.save(first))
        assert bench.see(lambda tx: tx.workspaces.get("/w")) == first
        bench.do(lambda tx: tx.workspaces.save(last))
        assert bench.see(lambda tx: (tx.workspaces.get("/w"), tx.workspaces.get("/w/x"))) == (last, None)

    def test_who_may_write_is_known_from_the_first_time_on_until_it_ends_once(self, bench: Bench) -> None:
        def begin(tx: Tx) -> None:
            tx.workspaces.begin_work("b", "/w", AT)
            tx.workspaces.begin_work("a", "/", AT + 1)
            tx.workspaces.begin_work("b", "/elsewhere", AT + 2)

        assert bench.see(lambda tx: (tx.workspaces.at_work(), tx.workspaces.end_work("a"))) == ([], None)
        bench.do(begin)
        assert bench.see(lambda tx: tx.workspaces.at_work()) == [("/", AT + 1), ("/w", AT)]
        assert bench.do(lambda tx: (tx.workspaces.end_work("b"), tx.workspaces.end_work("b"))) == (("/w", AT), None)
        assert bench.see(lambda tx: tx.workspaces.at_work()) == [("/", AT + 1)]

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
