"""What every store promises of commissions: accepted, taken up by a turn, ended with it."""

import pytest

from fledge.errors import FledgeError
from fledge.store.base import Commission, Tx, Wishes
from tests.core.samples import AT
from tests.store.bench import Bench, conversation

WISHES = Wishes(model="m", thinking="low", extra_system_prompt="é", lane="nested", timeout_s=5.0, deliver=False)


def asked(run_id: str = "r", row: str = "row", **fields: object) -> Commission:
    return Commission(run_id=run_id, session="s", row=row, accepted_at=AT, **fields)  # type: ignore[arg-type]


class CommissionConformance:
    """Commissions."""

    def test_a_commission_is_found_as_it_was_put_by_its_id_and_by_its_key(self, bench: Bench) -> None:
        put = asked(wishes=WISHES, key="k", digest="d")
        bench.do(lambda tx: tx.put_commission(put))
        assert bench.see(lambda tx: (tx.commission("r"), tx.commission_keyed("k"))) == (put, put)
        assert bench.see(lambda tx: (tx.commission("other"), tx.commission_keyed("other"))) == (None, None)

    def test_no_run_id_row_or_key_is_used_twice_but_many_have_no_key(self, bench: Bench) -> None:
        bench.do(lambda tx: tx.put_commission(asked(key="k")))
        for again in (asked("r", "other"), asked("other", "row"), asked("other", "other", key="k")):
            with pytest.raises(FledgeError):
                bench.do(lambda tx, again=again: tx.put_commission(again))  # type: ignore[misc]
        for name in ("one", "two"):
            bench.do(lambda tx, name=name: tx.put_commission(asked(name, name)))  # type: ignore[misc]

    def test_a_commission_starts_when_the_open_turn_reads_its_row_and_ends_with_that_turn(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            conversation(tx, "s")
            tx.put_commission(asked())
            tx.put_commission(asked("later", "later row"))
            tx.open_turn("s", {}, AT + 1)
            before = [one.run_id for one in tx.commissions("s")]
            tx.take_up("row", AT + 2)
            tx.take_up("nobody's row", AT + 2)
            during = [one.run_id for one in tx.commissions("s")]
            tx.append("s", AT + 3, [("user", "x"), ("assistant", "y")])
            tx.close_turn("s", "replied", AT + 4)
            return [before, during, [one.run_id for one in tx.commissions("s")]]

        assert bench.do(job) == [[], ["r"], []]
        ended = asked(turn=1, started_at=AT + 2, ended_at=AT + 4, ended="replied", entry=2)
        assert bench.see(lambda tx: (tx.commission("r"), tx.commission("later"))) == (
            ended,
            asked("later", "later row"),
        )

    def test_closing_the_next_turn_leaves_what_has_ended_alone(self, bench: Bench) -> None:
        def job(tx: Tx) -> Commission | None:
            conversation(tx, "s")
            tx.put_commission(asked())
            tx.open_turn("s", {}, AT)
            tx.take_up("row", AT)
            tx.close_turn("s", "stopped", AT + 1)
            tx.open_turn("s", {}, AT + 2)
            tx.close_turn("s", "replied", AT + 3)
            return tx.commission("r")

        assert bench.do(job) == asked(turn=1, started_at=AT, ended_at=AT + 1, ended="stopped")

    def test_what_a_turn_read_that_yielded_ends_with_the_turn_that_answers_it(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            conversation(tx, "s")
            tx.child_admitted("s")
            found = []
            for at, (name, ended, owes) in enumerate(
                (("first", "yielded", "all"), ("second", "replied", "earlier"), ("third", "replied", "nothing")), 1
            ):
                tx.put_commission(asked(name, f"row of {name}"))
                tx.open_turn("s", {}, AT)
                tx.take_up(f"row of {name}", AT)
                tx.append("s", AT, [("assistant", "x")])
                tx.close_turn("s", ended, AT + at, owes)  # type: ignore[arg-type]
                found.append([one.run_id for one in tx.commissions("s")])
            return found

        assert bench.do(job) == [["first"], ["first"], []]
        first, second = bench.see(lambda tx: (tx.commission("first"), tx.commission("second")))
        assert first is not None
        assert second is not None
        assert (first.turn, first.ended, first.ended_at, first.entry) == (1, "replied", AT + 3, 3)
        assert (second.turn, second.ended, second.ended_at, second.entry) == (2, "replied", AT + 2, 2)

    def test_without_an_open_turn_only_what_is_owed_nowhere_ends(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[int]:
            conversation(tx, "s")
            tx.child_admitted("s")
            tx.put_commission(asked())
            tx.open_turn("s", {}, AT)
            tx.take_up("row", AT)
            found = []
            for ended, owes in (("yielded", "all"), ("nothing to read", "earlier"), ("stopped", "nothing")):
                tx.close_turn("s", ended, AT, owes)  # type: ignore[arg-type]
                found.append(len(tx.commissions("s")))
            return found

        assert bench.do(job) == [1, 1, 0]

    def test_a_row_that_is_void_ends_its_commission(self, bench: Bench) -> None:
        def job(tx: Tx) -> Commission | None:
            conversation(tx, "s")
            tx.put_row("row", "s", "send", None, "words", AT)
            tx.put_commission(asked())
            tx.close_row("row", "void", AT + 1)
            return tx.commission("r")

        assert bench.do(job) == asked(ended_at=AT + 1, ended="void")

    def test_a_commission_that_will_not_be_read_is_ended_once(self, bench: Bench) -> None:
        def job(tx: Tx) -> Commission | None:
            tx.put_commission(asked())
            tx.end_commission("nobody's row", "dropped", AT)
            tx.end_commission("row", "dropped", AT + 1)
            tx.end_commission("row", "void", AT + 2)
            return tx.commission("r")

        assert bench.do(job) == asked(ended_at=AT + 1, ended="dropped")

    def test_a_turn_that_takes_longer_than_was_wished_is_due_until_it_has_ended(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s")
            tx.put_commission(asked(wishes=WISHES))
            tx.put_commission(asked("patient", "patient row"))
            tx.open_turn("s", {}, AT)
            tx.take_up("row", AT + 10)
            tx.take_up("patient row", AT + 10)

        bench.do(job)
        assert bench.see(lambda tx: tx.next_due(AT)) == AT + 15
        assert bench.see(lambda tx: [tx.overdue_commissions(AT + s, 9) for s in (14, 15, 16)]) == [[], ["r"], ["r"]]
        bench.do(lambda tx: tx.close_turn("s", "timeout", AT + 16))
        assert bench.see(lambda tx: (tx.next_due(AT), tx.overdue_commissions(AT + 99, 9))) == (None, [])
