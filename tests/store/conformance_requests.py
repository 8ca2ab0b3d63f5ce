"""What every store promises of commissions: accepted, taken up by a turn, ended with it."""

import pytest

from fledge.core.turn import TurnEnd
from fledge.errors import FledgeError
from fledge.store.base import MessageRequest, Tx, Wishes
from fledge.store.people import Ask
from tests.core.samples import AT
from tests.store.bench import Bench, admit, conversation

WISHES = Wishes(model="m", thinking="low", extra_system_prompt="é", lane="nested", timeout_s=5.0, deliver=False)


def asked(run_id: str = "r", row: str = "row", **fields: object) -> MessageRequest:
    return MessageRequest(run_id=run_id, session="s", row=row, accepted_at=AT, **fields)  # type: ignore[arg-type]


class CommissionConformance:
    """Commissions."""

    def test_a_commission_is_found_by_its_id_as_it_was_put(self, bench: Bench) -> None:
        put = asked(wishes=WISHES)
        bench.do(lambda tx: tx.requests.put(put))
        assert bench.see(lambda tx: (tx.requests.get("r"), tx.requests.get("other"))) == (put, None)

    def test_no_run_id_and_no_row_is_used_twice(self, bench: Bench) -> None:
        bench.do(lambda tx: tx.requests.put(asked()))
        for again in (asked("r", "other"), asked("other", "row")):
            with pytest.raises(FledgeError):
                bench.do(lambda tx, again=again: tx.requests.put(again))  # type: ignore[misc]

    def test_an_ask_is_found_by_its_asker_and_key_until_its_owner_is_forgotten(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            admit(tx, "run")
            tx.asks.remember("ann", "k", "digest", "run", owner="run")
            tx.asks.remember("bob", "k", "other digest", "answer", owner="s")
            tx.asks.remember("ann", "l", "third", "answer", owner="s")

        def found(tx: Tx) -> list[Ask | None]:
            return [tx.asks.find(*which) for which in (("ann", "k"), ("bob", "k"), ("ann", "l"), ("bob", "l"))]

        bench.do(job)
        bob, third = Ask("other digest", "answer"), Ask("third", "answer")
        assert bench.see(found) == [Ask("digest", "run"), bob, third, None]
        with pytest.raises(FledgeError):
            bench.do(lambda tx: tx.asks.remember("ann", "k", "digest", "run", owner="run"))
        bench.do(lambda tx: tx.runs.forget("run"))
        assert bench.see(found) == [None, bob, third, None]

    def test_a_commission_starts_when_the_open_turn_reads_its_row_and_ends_with_that_turn(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            conversation(tx, "s")
            tx.requests.put(asked())
            tx.requests.put(asked("later", "later row"))
            tx.turns.open("s", {}, AT + 1)
            before = [one.run_id for one in tx.requests.of("s")]
            tx.requests.take_up("row", AT + 2)
            tx.requests.take_up("nobody's row", AT + 2)
            during = [one.run_id for one in tx.requests.of("s")]
            tx.transcripts.append("s", AT + 3, [("user", "x"), ("assistant", "y")])
            tx.turns.close("s", TurnEnd("replied"), AT + 4)
            return [before, during, [one.run_id for one in tx.requests.of("s")]]

        assert bench.do(job) == [[], ["r"], []]
        ended = asked(turn=1, started_at=AT + 2, ended_at=AT + 4, ended=TurnEnd("replied"), entry=2)
        assert bench.see(lambda tx: (tx.requests.get("r"), tx.requests.get("later"))) == (
            ended,
            asked("later", "later row"),
        )

    def test_closing_the_next_turn_leaves_what_has_ended_alone(self, bench: Bench) -> None:
        def job(tx: Tx) -> MessageRequest | None:
            conversation(tx, "s")
            tx.requests.put(asked())
            tx.turns.open("s", {}, AT)
            tx.requests.take_up("row", AT)
            tx.turns.close("s", TurnEnd("stopped"), AT + 1)
            tx.turns.open("s", {}, AT + 2)
            tx.turns.close("s", TurnEnd("replied"), AT + 3)
            return tx.requests.get("r")

        assert bench.do(job) == asked(turn=1, started_at=AT, ended_at=AT + 1, ended=TurnEnd("stopped"))

    def test_what_a_turn_read_that_yielded_ends_with_the_turn_that_answers_it(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            conversation(tx, "s")
            tx.sessions.child_admitted("s")
            found = []
            for at, (name, ended, owes) in enumerate(
                (("first", "yielded", "all"), ("second", "replied", "earlier"), ("third", "replied", "nothing")), 1
            ):
                tx.requests.put(asked(name, f"row of {name}"))
                tx.turns.open("s", {}, AT)
                tx.requests.take_up(f"row of {name}", AT)
                tx.transcripts.append("s", AT, [("assistant", "x")])
                tx.turns.close("s", TurnEnd(ended), AT + at, owes)  # type: ignore[arg-type]
                found.append([one.run_id for one in tx.requests.of("s")])
            return found

        assert bench.do(job) == [["first"], ["first"], []]
        first, second = bench.see(lambda tx: (tx.requests.get("first"), tx.requests.get("second")))
        assert first is not None
        assert second is not None
        assert (first.turn, first.ended, first.ended_at, first.entry) == (1, TurnEnd("replied"), AT + 3, 3)
        assert (second.turn, second.ended, second.ended_at, second.entry) == (2, TurnEnd("replied"), AT + 2, 2)

    def test_without_an_open_turn_only_what_is_owed_nowhere_ends(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[int]:
            conversation(tx, "s")
            tx.sessions.child_admitted("s")
            tx.requests.put(asked())
            tx.turns.open("s", {}, AT)
            tx.requests.take_up("row", AT)
            found = []
            for ended, owes in (("yielded", "all"), ("nothing", "earlier"), ("stopped", "nothing")):
                tx.turns.close("s", TurnEnd(ended), AT, owes)  # type: ignore[arg-type]
                found.append(len(tx.requests.of("s")))
            return found

        assert bench.do(job) == [1, 1, 0]

    def test_a_row_that_is_void_ends_its_commission(self, bench: Bench) -> None:
        def job(tx: Tx) -> MessageRequest | None:
            conversation(tx, "s")
            tx.inbox.put("row", "s", "send", None, "words", AT)
            tx.requests.put(asked())
            tx.inbox.void("row", AT + 1)
            return tx.requests.get("r")

        assert bench.do(job) == asked(ended_at=AT + 1, ended=TurnEnd("void"))

    def test_a_row_that_is_unread_again_opens_its_request_again(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[MessageRequest | None]:
            conversation(tx, "s")
            tx.inbox.put("row", "s", "send", None, "words", AT)
            tx.requests.put(asked())
            tx.inbox.suppress("row", AT + 1)
            before = tx.requests.get("r")
            tx.inbox.revive("row")
            return [before, tx.requests.get("r")]

        assert bench.do(job) == [asked(ended_at=AT + 1, ended=TurnEnd("void")), asked()]

    def test_a_commission_that_will_not_be_read_is_ended_once(self, bench: Bench) -> None:
        def job(tx: Tx) -> MessageRequest | None:
            tx.requests.put(asked())
            tx.requests.end("nobody's row", TurnEnd("dropped"), AT)
            tx.requests.end("row", TurnEnd("dropped"), AT + 1)
            tx.requests.end("row", TurnEnd("void"), AT + 2)
            return tx.requests.get("r")

        assert bench.do(job) == asked(ended_at=AT + 1, ended=TurnEnd("dropped"))

    def test_a_turn_that_takes_longer_than_was_wished_is_due_until_it_has_ended(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "s")
            tx.requests.put(asked(wishes=WISHES))
            tx.requests.put(asked("patient", "patient row"))
            tx.turns.open("s", {}, AT)
            tx.requests.take_up("row", AT + 10)
            tx.requests.take_up("patient row", AT + 10)

        bench.do(job)
        assert bench.see(lambda tx: tx.next_due(AT)) == AT + 15
        assert bench.see(lambda tx: [tx.requests.overdue(AT + s, 9) for s in (14, 15, 16)]) == [[], ["r"], ["r"]]
        bench.do(lambda tx: tx.turns.close("s", TurnEnd("timeout"), AT + 16))
        assert bench.see(lambda tx: (tx.next_due(AT), tx.requests.overdue(AT + 99, 9))) == (None, [])
