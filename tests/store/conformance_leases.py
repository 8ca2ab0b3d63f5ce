"""What every store promises of drivers, their leases and slots, and of what is due next."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core.run import Queued
from fledge.errors import NotFound, StaleWrite
from fledge.store.base import Driver, QueuePlace, Tx
from tests.core.samples import AT
from tests.statements import proves
from tests.store.bench import MAIN, Bench, admit, claim, conversation, queue


class LeaseConformance:
    """Drivers and the epochs that fence their writes."""

    @proves("0.ends.1", "Liveness is a lease with an owner and an epoch")
    @proves("2.phases.11", "running: an attempt holds the lease")
    def test_a_claim_takes_the_lease_and_the_slot(self, bench: Bench) -> None:
        def job(tx: Tx) -> int:
            queue(tx, "a")
            queue(tx, "b", suspect=True)
            claim(tx, "b", at=AT + 1, owner="other")
            return claim(tx, "a")

        assert bench.do(job) == 1
        a = Driver("a", 1, "owner", "subagent", False, AT, AT, step_open=True, release_at=None)
        b = Driver("b", 1, "other", "subagent", True, AT + 1, AT + 1, step_open=True, release_at=None)
        assert bench.see(lambda tx: (tx.drivers.get("a"), tx.drivers.get("b"), tx.drivers.get("c"))) == (a, b, None)
        assert sorted(bench.see(lambda tx: tx.drivers.all()), key=lambda driver: driver.session) == [a, b]
        assert bench.see(lambda tx: tx.drivers.fence("a", 1)) == a

    def test_drivers_of_others_are_those_that_another_process_claimed_in_order_of_their_claims(
        self, bench: Bench
    ) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a", "b", "c", "d")
            for at, (session, owner) in enumerate((("c", "one"), ("a", "two"), ("d", "me"), ("b", "one"))):
                claim(tx, session, at=AT + at, owner=owner)
            tx.drivers.supersede("b", AT)

        bench.do(job)

        def others(owner: str, limit: int = 9) -> list[str]:
            return [driver.session for driver in bench.see(lambda tx: tx.drivers.of_others([owner], limit))]

        assert others("me") == ["c", "a", "b"]
        assert others("one") == ["a", "d"]
        assert others("nobody") == ["c", "a", "d", "b"]
        assert others("me", limit=2) == ["c", "a"]
        assert others("me", limit=0) == []
        [first] = bench.see(lambda tx: tx.drivers.of_others(["me"], 1))
        assert first == bench.see(lambda tx: tx.drivers.get("c"))

    def test_an_interrupt_is_counted_for_the_driver_at_work_and_leaves_its_epoch_alone(self, bench: Bench) -> None:
        def job(tx: Tx) -> int:
            queue(tx, "a", "b")
            claim(tx, "b")
            epoch = claim(tx, "a")
            tx.drivers.interrupt("a")
            tx.drivers.interrupt("a")
            tx.drivers.interrupt("nobody")
            return epoch

        epoch = bench.do(job)
        assert bench.see(lambda tx: tx.drivers.fence("a", epoch).interrupts) == 2
        assert bench.see(lambda tx: tx.drivers.fence("b", 1).interrupts) == 0

        def again(tx: Tx) -> int:
            tx.drivers.release("a", epoch)
            queue(tx, "a")
            return tx.drivers.fence("a", claim(tx, "a")).interrupts

        assert bench.do(again) == 0

    def test_a_place_is_claimed_once_and_whoever_comes_second_is_stale(self, bench: Bench) -> None:
        def job(tx: Tx) -> QueuePlace:
            queue(tx, "a")
            return tx.queue.claimable({}, AT, 1)[0]

        place = bench.do(job)
        answers = bench.do_at_once([lambda tx: tx.queue.claim(place, "owner", AT)] * 10)
        assert answers[0] == 1
        assert [type(answer) for answer in answers[1:]] == [StaleWrite] * 9
        session = bench.see(lambda tx: tx.sessions.get("a"))
        assert session is not None
        assert session.epoch == 1

    def test_a_claim_of_who_was_dequeued_is_stale(self, bench: Bench) -> None:
        def job(tx: Tx) -> QueuePlace:
            queue(tx, "a")
            place = tx.queue.claimable({}, AT, 1)[0]
            tx.queue.remove("a")
            return place

        place = bench.do(job)
        with pytest.raises(StaleWrite, match=r"^a is not queued any more$"):
            bench.do(lambda tx: tx.queue.claim(place, "owner", AT))
        assert bench.see(lambda tx: tx.drivers.get("a")) is None

    def test_a_claim_of_a_session_that_was_never_opened_is_refused_and_leaves_its_place(self, bench: Bench) -> None:
        bench.do(lambda tx: tx.queue.put("ghost", "subagent", MAIN, False))
        place = bench.see(lambda tx: tx.queue.claimable({}, AT, 1)[0])
        with pytest.raises(NotFound, match=r"^no session ghost$"):
            bench.do(lambda tx: tx.queue.claim(place, "owner", AT))
        assert bench.see(lambda tx: tx.queue.place("ghost")) == place
        assert bench.see(lambda tx: tx.drivers.all()) == []

    @proves("0.ends.1")
    def test_epochs_of_a_session_strictly_grow_whatever_ends_a_lease(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[int]:
            epochs = []
            for n in range(12):
                queue(tx, "a")
                epochs.append(claim(tx, "a", at=AT + n))
                if n % 3 == 0:
                    tx.drivers.supersede("a", AT + n)
                if n % 3 == 1:
                    tx.drivers.stop("a", AT + n)
                tx.drivers.release("a", epochs[-1])
            return epochs

        epochs = bench.do(job)
        assert epochs == sorted(set(epochs))
        bench.reopen()
        bench.do(lambda tx: queue(tx, "a"))
        assert bench.do(lambda tx: claim(tx, "a")) > epochs[-1]

    def test_a_fence_lets_the_present_driver_pass_and_nobody_else(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a", "b")
            assert claim(tx, "b") == 1
            first = claim(tx, "a")
            assert tx.drivers.fence("a", first).epoch == first
            tx.drivers.release("a", first)
            queue(tx, "a")
            second = claim(tx, "a")
            assert tx.drivers.fence("a", second).epoch == second
            for epoch in (first, second - 1, second + 1, 0):
                with pytest.raises(StaleWrite, match=rf"^epoch {epoch} of a is over$"):
                    tx.drivers.fence("a", epoch)
            with pytest.raises(StaleWrite):
                tx.drivers.fence("nobody", second)

        bench.do(job)

    def test_a_superseded_driver_is_refused_but_keeps_its_slot_and_one_told_to_stop_is_not_refused(
        self, bench: Bench
    ) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a", "b")
            a, b = claim(tx, "a"), claim(tx, "b")
            tx.drivers.supersede("a", AT + 5)
            tx.drivers.stop("b", AT + 6)
            with pytest.raises(StaleWrite, match=rf"^epoch {a} of a is over$"):
                tx.drivers.fence("a", a)
            with pytest.raises(StaleWrite, match=rf"^epoch {a + 1} of a is over$"):
                tx.drivers.fence("a", a + 1)
            superseded = tx.drivers.get("a")
            assert superseded is not None
            assert (superseded.epoch, superseded.release_at) == (a, AT + 5)
            assert tx.drivers.fence("b", b).release_at == AT + 6
            tx.drivers.release("a", a)
            assert tx.drivers.get("a") is None
            tx.drivers.release("b", b)
            with pytest.raises(StaleWrite):
                tx.drivers.fence("b", b)

        bench.do(job)

    def test_a_driver_told_to_go_twice_keeps_its_first_limit(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[float | None]:
            queue(tx, "a", "b", "c")
            for key in ("a", "b", "c"):
                claim(tx, key)
            tx.drivers.supersede("a", AT + 5)
            tx.drivers.supersede("a", AT + 9)
            tx.drivers.supersede("b", AT + 5)
            tx.drivers.supersede("b", AT + 1)
            tx.drivers.stop("c", AT + 5)
            tx.drivers.supersede("c", AT + 1)
            return [driver.release_at for driver in sorted(tx.drivers.all(), key=lambda driver: driver.session)]

        assert bench.do(job) == [AT + 5, AT + 5, AT + 5]
        sessions = bench.see(lambda tx: [tx.sessions.get(key) for key in ("a", "b", "c")])
        assert [session and session.epoch for session in sessions] == [3, 3, 2]

    def test_superseding_a_session_without_a_driver_raises_its_epoch_and_makes_none(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, "a")
            tx.drivers.supersede("a", AT)
            tx.drivers.supersede("never opened", AT)
            tx.drivers.stop("a", AT)

        bench.do(job)
        session = bench.see(lambda tx: tx.sessions.get("a"))
        assert session is not None
        assert session.epoch == 1
        assert bench.see(lambda tx: (tx.drivers.all(), tx.sessions.get("never opened"))) == ([], None)

    def test_a_release_by_an_older_epoch_frees_nothing(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a")
            old = claim(tx, "a")
            tx.drivers.supersede("a", AT + 5)
            queue(tx, "a")
            new = claim(tx, "a", at=AT + 5)
            tx.drivers.release("a", old)
            assert tx.drivers.fence("a", new).epoch == new
            tx.drivers.release("nobody", new)
            tx.drivers.release("a", new)
            assert tx.drivers.all() == []

        bench.do(job)

    def test_progress_says_when_a_driver_was_last_at_work_and_how_long_it_may_take(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "a", "b")
            epoch = claim(tx, "a")
            other = claim(tx, "b")
            tx.drivers.progress("a", AT + 1, step_open=True)
            assert tx.drivers.fence("a", epoch) == Driver(
                "a", epoch, "owner", "subagent", False, AT, AT + 1, step_open=True, release_at=None
            )
            tx.drivers.progress("a", AT + 1, step_open=True, patient_until=AT + 99)
            assert tx.drivers.fence("a", epoch).patient_until == AT + 99
            tx.drivers.progress("a", AT + 2, step_open=False)
            after = tx.drivers.fence("a", epoch)
            assert (after.progress_at, after.step_open, after.patient_until) == (AT + 2, False, None)
            assert tx.drivers.fence("b", other).progress_at == AT
            tx.drivers.progress("nobody", AT, step_open=True)
            tx.drivers.release("a", epoch)
            queue(tx, "a")
            again = claim(tx, "a", at=AT + 9)
            fresh = tx.drivers.fence("a", again)
            assert (fresh.progress_at, fresh.step_open) == (AT + 9, True)

        bench.do(job)


def _due_run(tx: Tx, at: float) -> None:
    run = admit(tx, f"run {at}")
    tx.runs.save(run, replace(run, version=2, phase=Queued(due_at=at)), ev.Prepared(at=AT))


def _due_place(tx: Tx, at: float) -> None:
    conversation(tx, f"place {at}")
    tx.queue.put(f"place {at}", "main", MAIN, False, at)


def _due_slot(tx: Tx, at: float) -> None:
    queue(tx, f"slot {at}")
    claim(tx, f"slot {at}")
    tx.drivers.supersede(f"slot {at}", at)


def _due_post(tx: Tx, at: float) -> None:
    assert tx.outbox.post(f"post {at}", "hook", None, "{}", at)


class DueConformance:
    """When to look again."""

    def test_nothing_is_due_next_where_nothing_has_a_time(self, bench: Bench) -> None:
        def job(tx: Tx) -> float | None:
            run = admit(tx, "run")
            tx.runs.save(run, replace(run, version=2, phase=Queued()), ev.Prepared(at=AT))
            queue(tx, "driven")
            claim(tx, "driven")
            queue(tx, "queued")
            tx.outbox.post("post", "hook", None, "{}", AT)
            tx.outbox.done("post", AT)
            tx.inbox.put("row", MAIN, "send", None, "x", AT)
            return tx.next_due(0.0)

        assert bench.do(job) is None

    @pytest.mark.parametrize("make", [_due_run, _due_place, _due_slot, _due_post])
    def test_what_is_due_next_is_strictly_later_than_the_time_asked_for(
        self, bench: Bench, make: Callable[[Tx, float], None]
    ) -> None:
        def job(tx: Tx) -> list[float | None]:
            make(tx, AT + 20)
            make(tx, AT + 10)
            return [tx.next_due(AT + seconds) for seconds in (0, 9.999, 10, 19.999, 20, 21)]

        assert bench.do(job) == [AT + 10, AT + 10, AT + 20, AT + 20, None, None]

    def test_what_is_due_next_is_the_earliest_over_runs_places_slots_and_posts(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[float | None]:
            _due_run(tx, AT + 3)
            _due_place(tx, AT + 1)
            _due_slot(tx, AT + 4)
            _due_post(tx, AT + 2)
            seen: list[float | None] = []
            at: float | None = AT
            while at is not None:
                at = tx.next_due(at)
                seen.append(at)
            return seen

        assert bench.do(job) == [AT + 1, AT + 2, AT + 3, AT + 4, None]

    def test_what_has_gone_is_not_due_next(self, bench: Bench) -> None:
        def job(tx: Tx) -> float | None:
            _due_run(tx, AT + 3)
            tx.runs.forget(f"run {AT + 3}")
            _due_place(tx, AT + 1)
            tx.queue.remove(f"place {AT + 1}")
            _due_slot(tx, AT + 4)
            tx.drivers.release(f"slot {AT + 4}", 1)
            _due_post(tx, AT + 2)
            tx.outbox.done(f"post {AT + 2}", AT)
            return tx.next_due(AT)

        assert bench.do(job) is None
