"""What every store promises about what leaves: the outbox with its lanes, and the routes of sessions."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fledge.core.route import Address
from fledge.core.turn import TurnEnd
from fledge.errors import Refused
from fledge.store.base import OutboxPost, Route, Tx
from tests.core.samples import AT
from tests.rows import bound_routes
from tests.statements import proves
from tests.store.bench import MAIN, Bench, admit, change_turn, conversation

RUN = "agent:main:subagent:1"
FOREVER = 1e12


def due(bench: Bench, at: float = FOREVER, limit: int = 9) -> list[str]:
    """Keys of what is due."""
    return [post.key for post in bench.see(lambda tx: tx.outbox.due(at, limit))]


class OutboxConformance:
    """The outbox."""

    def test_a_post_is_due_from_its_time_on_the_longest_overdue_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[bool]:
            posts = (("b", 20.0), ("a", 10.0), ("d", 30.5), ("c", 20.0))
            return [tx.outbox.post(key, "hook", RUN, f"body {key} é", due_at) for key, due_at in posts]

        assert bench.do(job) == [True] * 4
        assert due(bench, 9.999) == []
        assert due(bench, 10.0) == ["a"]
        assert due(bench, 19.999) == ["a"]
        assert due(bench, 20.0) == ["a", "b", "c"]
        assert due(bench, 99.0) == ["a", "b", "c", "d"]
        assert due(bench, 99.0, limit=2) == ["a", "b"]
        assert due(bench, 99.0, limit=0) == []
        assert bench.see(lambda tx: tx.outbox.due(10.0, 9)) == [OutboxPost("a", "hook", RUN, "body a é", 0, 10.0)]
        assert bench.see(lambda tx: tx.outbox.count_waiting()) == 4

    def test_a_post_is_found_with_all_that_was_said_of_it(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[OutboxPost | None]:
            tx.outbox.post("a", "message", None, "{}", 10.0, lane="ops", retries=5, expires_at=99.0)
            return [tx.outbox.get("a"), tx.outbox.get("never posted")]

        assert bench.do(job) == [OutboxPost("a", "message", None, "{}", 0, 10.0, "ops", 5, 99.0, "waiting", ""), None]

    @proves("0.twice.5")
    @pytest.mark.parametrize("became", ["waiting", "sent", "undelivered", "dismissed"])
    def test_a_key_is_posted_once_whatever_became_of_it(self, bench: Bench, became: str) -> None:
        def job(tx: Tx) -> None:
            assert tx.outbox.post("a", "hook", None, "first", AT)
            MOVES[became](tx, "a")
            before = tx.outbox.get("a")
            assert before is not None
            assert before.state == became
            assert not tx.outbox.post("a", "remove", RUN, "second", AT - 5)
            assert tx.outbox.get("a") == before

        bench.do(job)

    def test_what_was_sent_is_never_due_again(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.outbox.post("a", "hook", None, "{}", AT)
            tx.outbox.post("b", "hook", None, "{}", AT)
            tx.outbox.done("a", AT + 1)

        bench.do(job)
        assert due(bench) == ["b"]
        assert bench.see(lambda tx: tx.next_due(0.0)) == AT
        assert bench.see(
            lambda tx: (tx.outbox.is_waiting("a"), tx.outbox.is_waiting("b"), tx.outbox.count_waiting())
        ) == (False, True, 1)

    def test_what_failed_counts_its_tries_and_is_due_again_then(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[OutboxPost]]:
            tx.outbox.post("a", "hook", None, "{}", 10.0)
            tx.outbox.failed("a", "no route", 15.0)
            seen = [tx.outbox.due(14.999, 9), tx.outbox.due(15.0, 9)]
            tx.outbox.failed("a", "nor this one", 20.0)
            return [*seen, tx.outbox.due(19.999, 9), tx.outbox.due(20.0, 9)]

        once = OutboxPost("a", "hook", None, "{}", 1, 15.0, error="no route")
        twice = OutboxPost("a", "hook", None, "{}", 2, 20.0, error="nor this one")
        assert bench.do(job) == [[], [once], [], [twice]]

    def test_what_failed_once_and_then_arrived_is_done(self, bench: Bench) -> None:
        def job(tx: Tx) -> OutboxPost | None:
            tx.outbox.post("a", "hook", None, "{}", 10.0)
            tx.outbox.failed("a", "no route", 15.0)
            tx.outbox.done("a", 15.0)
            return tx.outbox.get("a")

        assert bench.do(job) == OutboxPost("a", "hook", None, "{}", 1, None, state="sent")
        assert due(bench) == []

    def test_what_was_given_up_is_undelivered_until_it_is_kept_long_enough(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for key in ("a", "b", "c"):
                tx.outbox.post(key, "message", None, "{}", 10.0, lane="ops" if key == "b" else "")
                tx.outbox.give_up(key, "nobody there", 500.0, 20.0)

        bench.do(job)
        found = bench.see(lambda tx: tx.outbox.undelivered())
        assert [post.key for post in found] == ["a", "b", "c"]
        assert found[0] == OutboxPost("a", "message", None, "{}", 1, 500.0, state="undelivered", error="nobody there")
        assert [post.key for post in bench.see(lambda tx: tx.outbox.undelivered("ops"))] == ["b"]
        assert bench.see(lambda tx: tx.outbox.undelivered("other")) == []
        assert (due(bench, 499.9), due(bench, 500.0)) == ([], ["a", "b", "c"])
        assert bench.see(lambda tx: (tx.next_due(20.0), tx.outbox.count_waiting(), tx.outbox.is_waiting("a"))) == (
            500.0,
            0,
            False,
        )

    def test_an_undelivered_post_is_retried_as_if_just_posted_or_dismissed_for_good(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for key in ("a", "b"):
                tx.outbox.post(key, "message", None, "{}", 10.0, lane="ops", expires_at=11.0)
                tx.outbox.give_up(key, "nobody there", 500.0, 20.0)
            assert tx.outbox.retry("a", 30.0, 99.0)
            assert tx.outbox.get("a") == OutboxPost("a", "message", None, "{}", 0, 30.0, "ops", 3, 99.0, "waiting", "")
            assert tx.outbox.dismiss("b", 30.0)
            gone = tx.outbox.get("b")
            assert gone is not None
            assert (gone.state, gone.due_at) == ("dismissed", None)
            for key in ("a", "b", "never posted"):
                assert not tx.outbox.retry(key, 40.0, None)
                assert not tx.outbox.dismiss(key, 40.0)

        bench.do(job)
        assert due(bench) == ["a"]
        assert bench.see(lambda tx: tx.outbox.undelivered()) == []

    @pytest.mark.parametrize("became", ["sent", "undelivered", "dismissed"])
    def test_only_what_waits_is_sent_fails_or_is_given_up(self, bench: Bench, became: str) -> None:
        def job(tx: Tx) -> None:
            tx.outbox.post("a", "hook", None, "{}", AT)
            MOVES[became](tx, "a")
            before = tx.outbox.get("a")
            tx.outbox.done("a", AT + 5)
            tx.outbox.failed("a", "late", AT + 9)
            tx.outbox.give_up("a", "late", AT + 9, AT + 5)
            assert tx.outbox.get("a") == before

        bench.do(job)

    def test_of_a_lane_only_the_oldest_that_waits_is_due_and_lanes_do_not_wait_for_each_other(
        self, bench: Bench
    ) -> None:
        def job(tx: Tx) -> None:
            for n, lane in enumerate(("ops", "ops", "news", "", "ops", "")):
                tx.outbox.post(f"{n} {lane}", "message", None, "{}", AT, lane=lane)

        bench.do(job)
        assert due(bench, AT) == ["0 ops", "2 news", "3 ", "5 "]
        bench.do(lambda tx: tx.outbox.failed("0 ops", "down", AT + 60))
        assert due(bench, AT + 59) == ["2 news", "3 ", "5 "]
        assert due(bench, AT + 60) == ["2 news", "3 ", "5 ", "0 ops"]
        bench.do(lambda tx: tx.outbox.done("0 ops", AT))
        assert due(bench, AT) == ["1 ops", "2 news", "3 ", "5 "]
        bench.do(lambda tx: tx.outbox.give_up("1 ops", "down", AT + 9e9, AT))
        assert due(bench, AT) == ["2 news", "3 ", "4 ops", "5 "]
        assert due(bench, AT, limit=2) == ["2 news", "3 "]
        bench.do(lambda tx: tx.outbox.retry("1 ops", AT + 1, None))
        assert due(bench, AT + 1) == ["2 news", "3 ", "5 ", "1 ops"]


MOVES: dict[str, Callable[[Tx, str], object]] = {
    "waiting": lambda tx, key: None,
    "sent": lambda tx, key: tx.outbox.done(key, AT),
    "undelivered": lambda tx, key: tx.outbox.give_up(key, "no", AT + 9, AT),
    "dismissed": lambda tx, key: [MOVES["undelivered"](tx, key), tx.outbox.dismiss(key, AT)],
}
"""How a post gets into each state."""


HERE = Address("ops", "u-1", "t é")
LAST = Route(session=MAIN, kind="last", address=HERE, used_at=AT)
BOUND = Route(
    session=RUN, kind="bound", address=HERE, used_at=AT, owner="u-1", idle_s=60.0, ends_at=AT + 90, made_by="focus"
)


class RouteConformance:
    """Routes and bindings."""

    def test_a_route_is_what_was_set_last_until_it_is_dropped(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[object]:
            seen: list[object] = [tx.routes.get(MAIN), tx.routes.drop(MAIN)]
            for route in (LAST, replace(LAST, address=Address("news", "u-2")), BOUND):
                tx.routes.set(route)
            seen += [tx.routes.get(MAIN), tx.routes.get(RUN)]
            return [*seen, tx.routes.drop(MAIN), tx.routes.drop(MAIN), tx.routes.get(MAIN), tx.routes.get(RUN)]

        news = replace(LAST, address=Address("news", "u-2"))
        assert bench.do(job) == [None, False, news, BOUND, True, False, None, BOUND]
        bench.reopen()
        assert bench.see(lambda tx: tx.routes.get(RUN)) == BOUND

    def test_a_place_is_bound_to_one_session_at_a_time(self, bench: Bench) -> None:
        bench.do(lambda tx: tx.routes.set(BOUND))
        with pytest.raises(Refused, match=f"^{RUN} is bound there$"):
            bench.do(lambda tx: tx.routes.set(replace(BOUND, session=MAIN, address=Address("ops", "u-9", "t é"))))
        assert bench.see(lambda tx: (tx.routes.get(MAIN), bound_routes(tx))) == (None, [BOUND])
        elsewhere = replace(BOUND, session=MAIN, address=Address("ops", "u-1", "another"))
        bench.do(lambda tx: tx.routes.set(elsewhere))
        assert bench.see(bound_routes) == sorted([BOUND, elsewhere], key=lambda one: one.session)

    def test_a_binding_is_found_by_its_place_and_a_mere_route_is_not(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.routes.set(LAST)
            assert tx.routes.bound_at("ops", HERE.place) is None
            tx.routes.set(BOUND)

        bench.do(job)
        assert bench.see(lambda tx: tx.routes.bound_at("ops", Address("ops", "anybody", "t é").place)) == BOUND
        assert bench.see(lambda tx: tx.routes.bound_at("news", HERE.place)) is None
        assert bench.see(lambda tx: tx.routes.bound_at("ops", Address("ops", "u-1").place)) is None

    @pytest.mark.parametrize(
        ("idle_s", "ends_at", "due_at"),
        [(0.0, None, None), (60.0, None, AT + 60), (0.0, AT + 90, AT + 90), (60.0, AT + 50, AT + 50)],
    )
    def test_a_binding_is_due_when_it_ends_and_a_mere_route_never(
        self, bench: Bench, idle_s: float, ends_at: float | None, due_at: float | None
    ) -> None:
        def job(tx: Tx) -> None:
            tx.routes.set(replace(LAST, idle_s=idle_s, ends_at=ends_at))
            tx.routes.set(replace(BOUND, idle_s=idle_s, ends_at=ends_at))

        bench.do(job)
        assert bench.see(lambda tx: tx.next_due(0.0)) == due_at
        assert bench.see(lambda tx: tx.routes.due(FOREVER, 9)) == ([] if due_at is None else [RUN])
        if due_at is not None:
            assert bench.see(lambda tx: tx.routes.due(due_at - 0.001, 9)) == []
            assert bench.see(lambda tx: tx.routes.due(due_at, 0)) == []

    def test_a_session_that_is_deleted_or_forgotten_has_no_route(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, MAIN)
            admit(tx, RUN)
            tx.routes.set(LAST)
            tx.routes.set(BOUND)
            tx.sessions.delete(MAIN)
            tx.runs.forget(RUN)

        bench.do(job)
        assert bench.see(lambda tx: (tx.routes.get(MAIN), tx.routes.get(RUN))) == (None, None)


class OriginConformance:
    """Where rows and turns come from."""

    def test_only_an_unread_row_is_aimed_elsewhere(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for key in ("unread", "read"):
                tx.inbox.put(key, MAIN, "outcome", RUN, "{}", AT, origin="there", route="bound")
            tx.inbox.consume("read", AT)
            read, unread = tx.inbox.get("read"), tx.inbox.get("unread")
            assert unread is not None
            assert (unread.origin, unread.route) == ("there", "bound")
            tx.inbox.aim("unread", "elsewhere", "hook")
            tx.inbox.aim("read", "elsewhere", "hook")
            assert tx.inbox.get("unread") == replace(unread, origin="elsewhere", route="hook")
            assert tx.inbox.get("read") == read

        bench.do(job)

    def test_the_open_turn_keeps_the_origin_it_was_given(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str | None]:
            conversation(tx, MAIN)
            first = tx.turns.open(MAIN, {}, AT)
            change_turn(tx, MAIN, origin="there")
            there = tx.turns.get(MAIN)
            tx.turns.close(MAIN, TurnEnd("replied"), AT)
            return [first.origin, None if there is None else there.origin, tx.turns.open(MAIN, {}, AT).origin]

        assert bench.do(job) == ["", "there", ""]
