"""What every store promises of lanes, leases and slots, and of what is due next.

Fairness is stated as who is claimed when, never as a rank: how a store orders its queue is its own business.
"""

import pytest
from msgspec.structs import replace

from fledge.store.base import Tx
from tests.core.samples import AT
from tests.statements import proves
from tests.store.bench import MAIN, WIDE, Bench, claim, claim_next, conversation, names, queue


class LaneConformance:
    """Who may be claimed, and in which order."""

    def test_a_queued_session_has_a_place_until_it_is_dequeued_or_claimed(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "a", "b")
            assert tx.queue.place("a") is None
            tx.queue.put("a", "subagent", MAIN, True, AT + 5)
            place = tx.queue.place("a")
            assert place is not None
            assert (place.session, place.lane, place.suspect, place.due_at) == ("a", "subagent", True, AT + 5)
            tx.queue.put("b", "main", "b", False)
            other = tx.queue.place("b")
            assert other is not None
            assert (other.session, other.lane, other.suspect, other.due_at) == ("b", "main", False, None)
            tx.queue.remove("a")
            assert tx.queue.place("a") is None
            assert names(tx.queue.claimable({}, AT + 99, 9)) == ["b"]
            tx.queue.claim(tx.queue.claimable({}, AT, 9)[0], "owner", AT)
            assert tx.queue.place("b") is None
            tx.queue.remove("never queued")

        bench.do(job)

    def test_a_session_may_be_claimed_from_its_due_time_on(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            conversation(tx, "later")
            tx.queue.put("later", "subagent", MAIN, False, AT + 5)
            queue(tx, "now")
            return [names(tx.queue.claimable(WIDE, at, 9)) for at in (0.0, AT + 4.999, AT + 5, AT + 6)]

        assert bench.do(job) == [["now"], ["now"], ["later", "now"], ["later", "now"]]

    def test_a_session_queued_again_keeps_its_place_and_takes_the_new_time_and_suspicion(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a", "b", "c")
            first = tx.queue.place("a")
            assert first is not None
            tx.queue.put("a", "subagent", MAIN, True, AT + 5)
            assert tx.queue.place("a") == replace(first, suspect=True, due_at=AT + 5)
            assert names(tx.queue.claimable(WIDE, AT, 9)) == ["b", "c"]
            tx.queue.put("a", "subagent", MAIN, False)
            assert tx.queue.place("a") == first
            assert names(tx.queue.claimable(WIDE, AT, 9)) == ["a", "b", "c"]

        bench.do(job)

    def test_sessions_that_may_not_be_claimed_yet_are_listed_by_key(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for session, due_at in (("d", AT + 5), ("a", AT + 9), ("b", None), ("c", AT), ("e", AT + 1)):
                tx.queue.put(session, "subagent", MAIN, False, due_at)
            assert tx.queue.paused(AT, "", 10) == ["a", "d", "e"]
            assert tx.queue.paused(AT, "", 2) == ["a", "d"]
            assert tx.queue.paused(AT, "d", 2) == ["e"]

        bench.do(job)

    def test_sessions_of_one_spawner_are_claimed_in_order_of_arrival(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, "z", "a", "m", "b")
            return [claim_next(tx) for _ in range(4)]

        assert bench.do(job) == ["z", "a", "m", "b"]

    @proves("3.limits.5", "The lane is shared fairly between spawning sessions")
    def test_spawners_take_turns(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, "x1", "x2", "x3", "x4", spawner="x")
            queue(tx, "y1", "y2", spawner="y")
            queue(tx, "z1", "z2", "z3", spawner="z")
            return names(tx.queue.claimable(WIDE, AT, 99))

        assert bench.do(job) == ["x1", "y1", "z1", "x2", "y2", "z2", "x3", "z3", "x4"]

    @proves("3.limits.5")
    @pytest.mark.parametrize("claimed", [0, 1, 2, 50, 99])
    def test_one_session_of_a_newcomer_is_claimed_within_two_though_another_has_queued_a_hundred(
        self, bench: Bench, claimed: int
    ) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, *(f"x{n}" for n in range(100)), spawner="x")
            for _ in range(claimed):
                claim_next(tx)
            queue(tx, "y", spawner="y")
            return names(tx.queue.claimable(WIDE, AT, 2))

        assert "y" in bench.do(job)

    def test_a_newcomer_who_queues_a_hundred_does_not_set_back_who_waits_already(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, *(f"x{n}" for n in range(10)), spawner="x")
            for _ in range(5):
                claim_next(tx)
            queue(tx, *(f"y{n}" for n in range(100)), spawner="y")
            return names(tx.queue.claimable(WIDE, AT, 6))

        assert bench.do(job) == ["x5", "y0", "x6", "y1", "x7", "y2"]

    def test_a_spawner_who_was_idle_while_others_worked_gets_no_more_than_its_turn(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, "y0", spawner="y")
            queue(tx, *(f"x{n}" for n in range(10)), spawner="x")
            for _ in range(6):
                claim_next(tx)
            queue(tx, "y1", "y2", "y3", spawner="y")
            return names(tx.queue.claimable(WIDE, AT, 4))

        assert bench.do(job) == ["x5", "y1", "x6", "y2"]

    def test_one_that_was_claimed_late_gives_a_newcomer_no_head_start(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            conversation(tx, "x0")
            tx.queue.put("x0", "subagent", "x", False, AT + 5)
            queue(tx, *(f"x{n}" for n in range(1, 10)), spawner="x")
            assert [claim_next(tx) for _ in range(5)] == ["x1", "x2", "x3", "x4", "x5"]
            assert claim_next(tx, at=AT + 5) == "x0"
            queue(tx, "y0", "y1", "y2", "y3", spawner="y")
            return names(tx.queue.claimable(WIDE, AT, 4))

        assert bench.do(job) == ["x6", "y0", "x7", "y1"]

    def test_what_a_spawner_queued_in_one_lane_does_not_set_it_back_in_another(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, *(f"x{n}" for n in range(100)), lane="nested", spawner="x")
            queue(tx, *(f"y{n}" for n in range(100)), spawner="y")
            queue(tx, "x", spawner="x")
            return names(tx.queue.claimable({**WIDE, "nested": 0}, AT, 2))

        assert "x" in bench.do(job)

    def test_turns_taken_in_one_lane_do_not_set_a_spawner_back_in_another(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            for _ in range(100):
                queue(tx, "x", lane="main", spawner="x")
                assert claim_next(tx, "main") == "x"
            queue(tx, *(f"y{n}" for n in range(50)), spawner="y")
            queue(tx, "child of x", spawner="x")
            return names(tx.queue.claimable(WIDE, AT, 2))

        assert "child of x" in bench.do(job)

    def test_what_was_dequeued_unclaimed_does_not_set_its_spawner_back(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, *(f"x{n}" for n in range(100)), spawner="x")
            for n in range(100):
                tx.queue.remove(f"x{n}")
            queue(tx, *(f"y{n}" for n in range(100)), spawner="y")
            queue(tx, "x", spawner="x")
            return names(tx.queue.claimable(WIDE, AT, 2))

        assert "x" in bench.do(job)

    def test_a_lane_is_as_wide_as_it_is_said_to_be_and_one_that_is_not_named_is_one_wide(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[list[str]]:
            queue(tx, "a1", "a2", "a3", "a4", lane="a")
            queue(tx, "b1", "b2", lane="b")
            widths = [{"a": 3}, {"a": 0}, {"a": 9, "b": 2}, {}]
            return [names(tx.queue.claimable(width, AT, 99)) for width in widths]

        assert bench.do(job) == [
            ["a1", "a2", "a3", "b1"],
            ["b1"],
            ["a1", "a2", "a3", "a4", "b1", "b2"],
            ["a1", "b1"],
        ]

    def test_a_lane_with_a_prefix_is_as_wide_as_the_prefix_says_unless_it_is_named_itself(self, bench: Bench) -> None:
        lanes = ("nested", "nested:x", "nested:y")

        def job(tx: Tx) -> list[list[int]]:
            for lane in lanes:
                queue(tx, *(f"{lane} {n}" for n in range(4)), lane=lane)
            return [
                [sum(place.lane == lane for place in tx.queue.claimable(widths, AT, 99)) for lane in lanes]
                for widths in ({"nested": 2}, {"nested": 1, "nested:x": 3}, {"nested:x": 2}, {"nested": 0})
            ]

        assert bench.do(job) == [[2, 2, 2], [1, 3, 1], [1, 2, 1], [0, 0, 0]]

    def test_a_driver_takes_a_slot_of_its_lane_until_it_is_released_or_its_time_is_up(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a", "b", "c", "d")
            widths = {"subagent": 2}
            epochs = {place.session: tx.queue.claim(place, "owner", AT) for place in tx.queue.claimable(widths, AT, 9)}
            assert list(epochs) == ["a", "b"]
            assert tx.queue.claimable(widths, AT, 9) == []
            assert names(tx.queue.claimable({"subagent": 3}, AT, 9)) == ["c"]
            tx.drivers.release("a", epochs["a"])
            assert names(tx.queue.claimable(widths, AT, 9)) == ["c"]
            tx.drivers.supersede("b", AT + 5)
            assert names(tx.queue.claimable(widths, AT + 4.999, 9)) == ["c"]
            assert names(tx.queue.claimable(widths, AT + 5, 9)) == ["c", "d"]

        bench.do(job)

    def test_drivers_of_one_lane_take_no_slot_of_another(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, "a1", "a2", lane="a")
            tx.queue.claim(tx.queue.claimable({}, AT, 9)[0], "owner", AT)
            queue(tx, "b1", lane="b")
            return names(tx.queue.claimable({}, AT, 9))

        assert bench.do(job) == ["b1"]

    def test_no_more_are_offered_than_asked_for_over_all_lanes(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[int]:
            queue(tx, "a1", "a2", "a3", lane="a")
            queue(tx, "b1", "b2", "b3", lane="b")
            return [len(tx.queue.claimable({"a": 9, "b": 9}, AT, limit)) for limit in (0, 1, 3, 4, 6, 7)]

        assert bench.do(job) == [0, 1, 3, 4, 6, 6]

    def test_a_session_with_a_live_driver_may_not_be_claimed_until_that_is_released(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a")
            epoch = claim(tx, "a")
            queue(tx, "a", "b")
            assert names(tx.queue.claimable(WIDE, AT + 1e9, 9)) == ["b"]
            tx.drivers.release("a", epoch)
            assert names(tx.queue.claimable(WIDE, AT, 9)) == ["a", "b"]

        bench.do(job)

    def test_a_session_whose_driver_was_superseded_may_be_claimed_once_its_time_is_up(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a")
            claim(tx, "a")
            tx.drivers.supersede("a", AT + 5)
            queue(tx, "a")
            assert names(tx.queue.claimable(WIDE, AT + 4.999, 9)) == []
            assert names(tx.queue.claimable(WIDE, AT + 5, 9)) == ["a"]
            claim(tx, "a", at=AT + 5)
            driver = tx.drivers.get("a")
            assert driver is not None
            assert (driver.claimed_at, driver.release_at) == (AT + 5, None)

        bench.do(job)

    def test_suspects_are_driven_one_at_a_time_over_all_lanes_and_others_go_on(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            widths = {"a": 9, "b": 9}
            queue(tx, "a1", "a2", lane="a", suspect=True)
            queue(tx, "b1", lane="b", suspect=True)
            queue(tx, "b2", lane="b")
            offered = tx.queue.claimable(widths, AT, 99)
            assert names(offered) == ["a1", "b2"]
            assert [place.suspect for place in offered] == [True, False]
            epoch = tx.queue.claim(offered[0], "owner", AT)
            driver = tx.drivers.get("a1")
            assert driver is not None
            assert driver.suspect
            assert names(tx.queue.claimable(widths, AT, 99)) == ["b2"]
            tx.drivers.release("a1", epoch)
            assert names(tx.queue.claimable(widths, AT, 99)) == ["a2", "b2"]
            claimed = {
                place.session: tx.queue.claim(place, "owner", AT) for place in tx.queue.claimable(widths, AT, 99)
            }
            assert tx.queue.claimable(widths, AT, 99) == []
            tx.drivers.stop("a2", AT + 5)
            assert names(tx.queue.claimable(widths, AT + 4.999, 99)) == []
            assert names(tx.queue.claimable(widths, AT + 5, 99)) == ["b1"]
            tx.drivers.release("a2", claimed["a2"])
            assert names(tx.queue.claimable(widths, AT, 99)) == ["b1"]

        bench.do(job)

    def test_a_suspect_that_is_trusted_again_lets_the_next_one_be_driven_beside_it(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "s1", "s2", suspect=True)
            epoch = tx.queue.claim(tx.queue.claimable({"subagent": 9}, AT, 99)[0], "owner", AT)
            assert tx.queue.claimable({"subagent": 9}, AT, 99) == []
            tx.drivers.trust("s1")
            assert not tx.drivers.fence("s1", epoch).suspect
            assert names(tx.queue.claimable({"subagent": 9}, AT, 99)) == ["s2"]

        bench.do(job)

    def test_suspects_at_the_head_of_a_lane_do_not_hide_who_stands_behind_them(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[str]:
            queue(tx, "s1", "s2", "s3", suspect=True)
            queue(tx, "sound")
            return names(tx.queue.claimable({"subagent": 2}, AT, 99))

        assert bench.do(job) == ["s1", "sound"]
