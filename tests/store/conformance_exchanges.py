"""What every store promises of messages between sessions."""

from functools import partial

from msgspec.structs import replace

from fledge.core.exchange import Closing, Exchange, Over, Talking, dropped
from fledge.store.base import Tx
from tests.core.samples import AT
from tests.store.bench import Bench, admit, conversation

A, B = "agent:a:main", "agent:b:main"


def exchange(name: str = "x", **fields: object) -> Exchange:
    made = Exchange(
        id=name, root=name, requester=A, target=B, kind="talk", row=f"send:{name}", path=(A, B), until_at=AT + 30
    )
    return replace(made, **fields)


def _save(saved: Exchange, tx: Tx) -> None:
    tx.exchanges.save(saved, AT)


class ExchangeConformance:
    """Exchanges, found by whoever has to do with them."""

    def test_an_exchange_is_as_it_was_saved_last(self, bench: Bench) -> None:
        first = exchange(max_turns=3, reply="é")
        bench.do(lambda tx: tx.exchanges.save(first, AT))
        assert bench.see(lambda tx: (tx.exchanges.get("x"), tx.exchanges.about("send:x"))) == (first, first)
        moved = replace(first, stage=Talking(2), row="send:x:3", path=(A, B, A))
        bench.do(lambda tx: tx.exchanges.save(moved, AT))
        bench.reopen()
        assert bench.see(lambda tx: tx.exchanges.get("x")) == moved
        assert bench.see(lambda tx: tx.exchanges.about("send:x:3")) == moved
        assert bench.see(lambda tx: (tx.exchanges.about("send:x"), tx.exchanges.get("y"))) == (None, None)

    def test_a_session_is_answering_what_it_has_read_and_is_to_speak_to(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, A, B)
            for name, stage in (("a", Closing()), ("b", Over("")), ("c", Talking(0)), ("d", Closing())):
                tx.exchanges.save(exchange(name, stage=stage), AT)
                tx.inbox.put(f"send:{name}", B, "send", A, "hello", AT)
            for name in "abc":
                tx.inbox.consume(f"send:{name}", AT)

        bench.do(job)

        def ids(session: str) -> list[str]:
            return [one.id for one in bench.see(lambda tx: tx.exchanges.answering(session))]

        assert (ids(B), ids(A), ids("nobody")) == (["a"], ["c"], [])

    def test_exchanges_begun_are_those_of_the_requester_that_are_not_over(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.exchanges.save(exchange("a"), AT)
            tx.exchanges.save(exchange("b", requester=B, target=A), AT)
            tx.exchanges.save(dropped(exchange("c"), "over"), AT)

        bench.do(job)
        assert [one.id for one in bench.see(lambda tx: tx.exchanges.begun(A))] == ["a"]
        assert [one.id for one in bench.see(lambda tx: tx.exchanges.begun(B))] == ["b"]

    def test_a_session_is_waited_for_until_the_time_is_up_the_answer_is_there_or_it_is_over(self, bench: Bench) -> None:
        def waited(at: float) -> bool:
            return bench.see(lambda tx: tx.exchanges.is_waited_for(B, at))

        assert not waited(AT)
        bench.do(lambda tx: tx.exchanges.save(exchange(), AT))
        assert (waited(AT), waited(AT + 29), waited(AT + 30)) == (True, True, False)
        assert not bench.see(lambda tx: tx.exchanges.is_waited_for(A, AT))
        for other in (exchange(reply="here"), exchange(until_at=None), dropped(exchange(), "over")):
            bench.do(partial(_save, other))
            assert not waited(AT)

    def test_hops_are_counted_over_all_that_came_of_one_root(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.exchanges.save(exchange("a", path=(A, B, A, B)), AT)
            tx.exchanges.save(exchange("b", root="a", path=(A, B, A), inherited=2), AT)
            tx.exchanges.save(exchange("c"), AT)

        bench.do(job)
        assert bench.see(lambda tx: [tx.exchanges.hops_made(root) for root in ("a", "b", "c", "d")]) == [4, 0, 1, 0]

    def test_what_a_forgotten_run_said_and_heard_is_forgotten_with_it(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, A)
            key = admit(tx, "child").key
            tx.exchanges.save(exchange("a", target=key), AT)
            tx.exchanges.save(exchange("b", requester=key, target=A), AT)
            tx.exchanges.save(exchange("c"), AT)
            tx.runs.forget(key)

        bench.do(job)
        assert bench.see(lambda tx: [tx.exchanges.get(name) is None for name in "abc"]) == [True, True, False]

    def test_exchanges_that_are_over_and_old_are_forgotten_the_oldest_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for at, name in enumerate("abcd"):
                tx.exchanges.save(dropped(exchange(name), "over"), AT + at)

        bench.do(job)
        assert bench.do(lambda tx: tx.exchanges.forget(AT + 3, 2)) == 2
        assert bench.see(lambda tx: [tx.exchanges.get(name) is None for name in "abcd"]) == [True, True, False, False]
        assert bench.do(lambda tx: tx.exchanges.forget(AT + 3, 99)) == 1
        assert bench.do(lambda tx: tx.exchanges.forget(AT + 3, 99)) == 0
        assert bench.see(lambda tx: tx.exchanges.get("d")) is not None

    def test_what_came_of_one_message_is_forgotten_together_and_not_while_any_of_it_is_open_young_or_unread(
        self, bench: Bench
    ) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, A, B)
            for root in ("open", "young", "unread"):
                tx.exchanges.save(dropped(exchange(root), "over"), AT)
            tx.exchanges.save(exchange("o2", root="open"), AT)
            tx.exchanges.save(dropped(exchange("y2", root="young"), "over"), AT + 10)
            tx.inbox.put("send:unread", B, "send", A, "hello", AT)

        bench.do(job)
        assert bench.do(lambda tx: tx.exchanges.forget(AT + 5, 99)) == 0
        assert bench.see(lambda tx: tx.exchanges.hops_made("open")) == 2
        bench.do(lambda tx: tx.inbox.consume("send:unread", AT))
        bench.do(lambda tx: tx.exchanges.save(dropped(exchange("o2", root="open"), "over"), AT + 4))
        assert bench.do(lambda tx: tx.exchanges.forget(AT + 5, 99)) == 3
        assert bench.do(lambda tx: tx.exchanges.forget(AT + 11, 99)) == 2
