"""What every store promises of questions to a person and of budgets."""

import pytest
from msgspec.structs import replace

from fledge.core.permission import Asker, offer
from fledge.core.policy import Budget, Spent
from fledge.store.base import Approval, ApprovalState, BudgetAccount, Tx
from tests.core.samples import AT
from tests.store.bench import Bench, conversation


def question(name: str = "q", session: str = "s", entry: int = 1, index: int = 0, **fields: object) -> Approval:
    return Approval(
        id=name,
        session=session,
        entry=entry,
        index=index,
        tool="exec",
        arguments='{"command": "make"}',
        digest="d",
        state="waiting",
        asked_at=AT,
        expires_at=AT + 60,
        **fields,  # type: ignore[arg-type]
    )


MOVES: dict[ApprovalState, set[ApprovalState]] = {
    "waiting": {"allowed", "denied", "expired", "void"},
    "allowed": {"void", "started"},
    "denied": set(),
    "expired": set(),
    "void": set(),
    "started": set(),
}
WAYS: dict[ApprovalState, tuple[ApprovalState, ...]] = {
    "waiting": (),
    "allowed": ("allowed",),
    "denied": ("denied",),
    "expired": ("expired",),
    "void": ("void",),
    "started": ("allowed", "started"),
}


class ApprovalConformance:
    """Questions to a person."""

    def test_a_question_is_found_as_it_was_asked_and_asking_again_changes_nothing(self, bench: Bench) -> None:
        rule = offer("make all", Asker("/w", "main", False))
        asked = question(offer=rule, why="the settings ask")
        assert rule is not None
        bench.do(lambda tx: tx.approvals.ask(asked))
        bench.do(lambda tx: tx.approvals.ask(replace(asked, id="other", digest="other")))
        assert bench.see(lambda tx: (tx.approvals.get("q"), tx.approvals.get("other"))) == (asked, None)

    def test_questions_of_a_session_are_in_order_and_can_be_narrowed_to_entries(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for name, session, entry, index in (("c", "s", 7, 0), ("b", "s", 3, 1), ("a", "s", 3, 0), ("x", "t", 3, 0)):
                tx.approvals.ask(question(name, session, entry, index))

        def names(first: int = 0, last: int | None = None) -> list[str]:
            return [one.id for one in bench.see(lambda tx: tx.approvals.of("s", first, last))]

        assert names() == []
        bench.do(job)
        assert (names(), names(4), names(0, 3), names(3, 3), names(8)) == (
            *(["a", "b", "c"], ["c"], ["a", "b"], ["a", "b"], []),
        )

    @pytest.mark.parametrize("start", list(MOVES))
    def test_a_question_moves_only_where_its_state_leads(self, bench: Bench, start: ApprovalState) -> None:
        for number, end in enumerate(MOVES):
            name = f"q{number}"

            def job(tx: Tx, name: str = name, number: int = number, end: ApprovalState = end) -> bool:
                tx.approvals.ask(question(name, entry=number))
                for state in WAYS[start]:
                    assert tx.approvals.move("s", number, 0, state)
                return tx.approvals.move("s", number, 0, end)

            assert bench.do(job) == (end in MOVES[start])
            found = bench.see(lambda tx, name=name: tx.approvals.get(name))  # type: ignore[misc]
            assert found is not None
            assert found.state == (end if end in MOVES[start] else start)
        assert not bench.do(lambda tx: tx.approvals.move("nobody", 1, 0, "allowed"))

    def test_what_was_said_with_an_answer_stays_when_nothing_more_is_said(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.approvals.ask(question())
            tx.approvals.move("s", 1, 0, "allowed", answered_by="ann", words="go", rule="r1")
            tx.approvals.move("s", 1, 0, "started")

        bench.do(job)
        found = bench.see(lambda tx: tx.approvals.get("q"))
        assert found == replace(question(), state="started", answered_by="ann", words="go", rule="r1")

    def test_open_questions_come_oldest_first_and_decided_ones_newest_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for number, name in enumerate(("a", "b", "c", "d")):
                tx.approvals.ask(replace(question(name, entry=number), asked_at=AT - number))
            for entry in (0, 2):
                tx.approvals.move("s", entry, 0, "denied")

        bench.do(job)
        assert [one.id for one in bench.see(lambda tx: tx.approvals.open())] == ["d", "b"]
        assert [one.id for one in bench.see(lambda tx: tx.approvals.decided(9))] == ["a", "c"]
        assert [one.id for one in bench.see(lambda tx: tx.approvals.decided(1))] == ["a"]


class BudgetConformance:
    """Budgets."""

    def test_a_purse_is_found_as_it_was_saved_last(self, bench: Bench) -> None:
        assert bench.see(lambda tx: (tx.budgets.any(), tx.budgets.get("s"))) == (False, None)
        first = BudgetAccount("s", Budget(tokens=10, usd=1.5))
        second = replace(first, used=Spent(tokens=3), reserved=Spent(tokens=1), warned=True)
        bench.do(lambda tx: tx.budgets.save(first))
        assert bench.see(lambda tx: (tx.budgets.any(), tx.budgets.get("s"), tx.budgets.get("t"))) == (True, first, None)
        bench.do(lambda tx: tx.budgets.save(second))
        assert bench.see(lambda tx: tx.budgets.get("s")) == second

    def test_what_is_set_aside_is_answered_when_it_is_replaced(self, bench: Bench) -> None:
        steps = [Spent(tokens=1), Spent(tokens=2), None, None, Spent(tokens=3)]
        found = bench.do(lambda tx: [tx.budgets.swap_reserve("s", step) for step in steps])
        assert found == [None, Spent(tokens=1), Spent(tokens=2), None, None]
        assert bench.do(lambda tx: tx.budgets.swap_reserve("other", None)) is None


class CoverConformance:
    """Notes that stand for entries, and what is counted."""

    def test_a_note_stands_for_everything_up_to_the_last_entry_it_ever_covered(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[int]:
            conversation(tx, "s")
            found = [tx.transcripts.covered("s"), tx.transcripts.covered("nobody")]
            for entry in (4, 9, 7):
                tx.transcripts.cover("s", entry)
                found.append(tx.transcripts.covered("s"))
            return found

        assert bench.do(job) == [0, 0, 4, 9, 9]

    def test_rows_are_counted_with_what_is_archived_or_deleted(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s", "t")
            tx.sessions.delete("t")

        assert bench.see(lambda tx: tx.lists.count_rows()) == (0, 0)
        bench.do(job)
        assert bench.see(lambda tx: tx.lists.count_rows()) == (0, 2)

    def test_the_size_of_a_database_on_a_server_is_known(self, bench: Bench) -> None:
        size, is_remote = bench.see(lambda tx: (tx.lists.bytes_on_server(), tx.unit.is_remote))
        assert size > 100_000 if is_remote else size == 0

    def test_who_waits_is_told_by_lane_with_the_oldest_of_each(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for session, lane, due_at in (
                *(("b", "main", None), ("a", "main", None), ("c", "nested", AT), ("d", "nested", AT + 1)),
                ("e", "late", AT + 1),
            ):
                tx.queue.put(session, lane, session, False, due_at)

        bench.do(job)
        waiting = bench.see(lambda tx: tx.queue.waiting_by_lane(AT))
        assert [(one.lane, one.count, one.oldest) for one in waiting] == [("main", 2, "b"), ("nested", 1, "c")]
