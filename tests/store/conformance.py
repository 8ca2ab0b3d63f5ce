"""What every store promises, as tests against `Store` and `Tx` alone. A store is put through it by a class that derives
from `StoreConformance` and answers the `open_store` fixture; see `test_conformance`.

Here stands what is true of jobs; the verbs of `Tx` are in `conformance_runs`, `conformance_sessions`,
`conformance_inbox`, `conformance_commissions`, `conformance_documents`, `conformance_exchanges`, `conformance_lanes`,
`conformance_rows` and `conformance_leases`. Nothing here knows how a store stores.
"""

from collections.abc import Callable, Iterator

import pytest

from fledge.core import events as ev
from fledge.core.documents import Workspace
from fledge.core.goods import Goods
from fledge.core.lifecycle import born
from fledge.core.progress import Progress
from fledge.core.route import Address
from fledge.errors import FledgeError, Refused, StaleWrite, StoreError
from fledge.store.base import Counts, Heartbeat, Place, Ran, Route, Spec, Tx
from tests.core.samples import AT, TERMS
from tests.store.bench import FACTS, MAIN, Bench, OpenStore, admit, conversation, follow, queue
from tests.store.conformance_commissions import CommissionConformance
from tests.store.conformance_documents import DocumentConformance
from tests.store.conformance_exchanges import ExchangeConformance
from tests.store.conformance_heartbeats import HeartbeatConformance
from tests.store.conformance_inbox import InboxConformance
from tests.store.conformance_lanes import LaneConformance
from tests.store.conformance_leases import DueConformance, LeaseConformance
from tests.store.conformance_outgoing import OriginConformance, OutboxConformance, RouteConformance
from tests.store.conformance_rows import RowConformance
from tests.store.conformance_runs import RunConformance, TextConformance
from tests.store.conformance_sessions import (
    CountConformance,
    ImageConformance,
    SessionConformance,
    TranscriptConformance,
    UsedConformance,
)

JOBS = 90

BOOM = RuntimeError("boom")


def _raise_plainly(tx: Tx) -> None:
    raise BOOM


def _create_twice(tx: Tx) -> None:
    admit(tx, "taken")


def _count_below_zero(tx: Tx) -> None:
    tx.child_settled("childless")


def _fence_nobody(tx: Tx) -> None:
    tx.fence("nobody", 1)


WRITES: dict[str, Callable[[Tx], object]] = {
    "create_run": lambda tx: admit(tx, "new"),
    "save_run": lambda tx: tx.save_run(tx.load_run("run"), tx.load_run("run"), ev.Prepared(at=AT)),
    "forget_run": lambda tx: tx.forget_run("run"),
    "keep_text": lambda tx: tx.keep_text("run", "text"),
    "open_session": lambda tx: tx.open_session("new", "main", None, 0, FACTS, AT),
    "delete_session": lambda tx: tx.delete_session("talk"),
    "raise_generation": lambda tx: tx.raise_generation("talk"),
    "child_admitted": lambda tx: tx.child_admitted("talk"),
    "child_unsettled": lambda tx: tx.child_unsettled(MAIN),
    "child_settled": lambda tx: tx.child_settled(MAIN),
    "append": lambda tx: tx.append("talk", AT, [("note", "x")]),
    "open_turn": lambda tx: tx.open_turn("other", {}, AT),
    "keep_goods": lambda tx: tx.keep_goods("talk", Goods("/x")),
    "turn_ran": lambda tx: tx.turn_ran("talk", Ran("m")),
    "drained": lambda tx: tx.drained("talk", 1),
    "turn_failed": lambda tx: tx.turn_failed("talk", 1, 1),
    "turn_stepped": lambda tx: tx.turn_stepped("talk", Progress(1)),
    "close_turn": lambda tx: tx.close_turn("talk", "replied", AT),
    "put_row": lambda tx: tx.put_row("new", "talk", "send", None, "x", AT),
    "close_row": lambda tx: tx.close_row("row", "consumed", AT),
    "readdress_row": lambda tx: tx.readdress_row("row", "other"),
    "rewrite_row": lambda tx: tx.rewrite_row("row", "y", None),
    "trace": lambda tx: tx.trace("row", "run", AT, "{}"),
    "enqueue": lambda tx: tx.enqueue("talk", "main", "talk", False),
    "dequeue": lambda tx: tx.dequeue("waits"),
    "claim": lambda tx: tx.claim(Place("waits", "subagent", 1, False), "owner", AT),
    "progress": lambda tx: tx.progress("driven", AT, True),
    "release": lambda tx: tx.release("driven", 1),
    "supersede": lambda tx: tx.supersede("driven", AT),
    "stop_driver": lambda tx: tx.stop_driver("driven", AT),
    "post": lambda tx: tx.post("new", "hook", None, "{}", AT),
    "post_done": lambda tx: tx.post_done("post", AT),
    "post_failed": lambda tx: tx.post_failed("post", "no", AT + 1, AT),
    "give_up_post": lambda tx: tx.give_up_post("post", "no", AT + 1, AT),
    "retry_post": lambda tx: tx.retry_post("post", AT, None),
    "dismiss_post": lambda tx: tx.dismiss_post("post", AT),
    "set_route": lambda tx: tx.set_route(Route(session="talk", kind="last", address=Address("ops", "u"), used_at=AT)),
    "drop_route": lambda tx: tx.drop_route("talk"),
    "aim_row": lambda tx: tx.aim_row("row", "there", "hook"),
    "set_origin": lambda tx: tx.set_origin("talk", "there"),
    "interrupt": lambda tx: tx.interrupt("driven"),
    "drop_row": lambda tx: tx.drop_row("row", AT),
    "line_told": lambda tx: tx.line_told("row", AT),
    "save_heartbeat": lambda tx: tx.save_heartbeat(Heartbeat("talk", beat_at=AT)),
    "set_heartbeat": lambda tx: tx.set_heartbeat("talk", "action"),
    "save_workspace": lambda tx: tx.save_workspace(Workspace("/w")),
    "begin_work": lambda tx: tx.begin_work("talk", "/w", AT),
    "begun_by_person": lambda tx: tx.begun_by_person("talk"),
}


class StoreConformance(
    RowConformance,
    RunConformance,
    TextConformance,
    ImageConformance,
    SessionConformance,
    CountConformance,
    TranscriptConformance,
    UsedConformance,
    CommissionConformance,
    ExchangeConformance,
    HeartbeatConformance,
    DocumentConformance,
    InboxConformance,
    OutboxConformance,
    RouteConformance,
    OriginConformance,
    LaneConformance,
    LeaseConformance,
    DueConformance,
):
    """All of it. A deriving class gives the fixture `open_store`."""

    @pytest.fixture
    def bench(self, open_store: OpenStore) -> Iterator[Bench]:
        """A new store of the kind under test."""
        bench = Bench(open_store)
        try:
            yield bench
        finally:
            bench.close()

    # ---- jobs

    def test_a_job_answers_what_it_returned_and_what_it_wrote_is_seen_at_once_and_after_reopening(
        self, bench: Bench
    ) -> None:
        assert bench.do(lambda tx: tx.child_admitted(MAIN)) == Counts(1, 1)
        assert bench.see(lambda tx: tx.counts(MAIN)) == Counts(1, 1)
        assert bench.do(lambda tx: (tx.child_settled(MAIN), tx.counts(MAIN))) == (Counts(1, 0), Counts(1, 0))
        bench.reopen()
        assert bench.see(lambda tx: tx.counts(MAIN)) == Counts(1, 0)

    @pytest.mark.parametrize(
        ("break_off", "error"),
        [
            (_raise_plainly, RuntimeError),
            (_fence_nobody, StaleWrite),
            (_create_twice, FledgeError),
            (_count_below_zero, FledgeError),
        ],
    )
    def test_a_job_that_raises_has_changed_nothing_even_where_others_share_its_batch(
        self, bench: Bench, break_off: Callable[[Tx], None], error: type[Exception]
    ) -> None:
        def prepare(tx: Tx) -> None:
            admit(tx, "taken")
            conversation(tx, MAIN)

        def write(n: int) -> Callable[[Tx], int]:
            def job(tx: Tx) -> int:
                admit(tx, f"run {n}")
                tx.child_admitted(MAIN)
                tx.append(MAIN, AT, [("note", f"{n}")])
                tx.put_row(f"row {n}", MAIN, "send", None, f"{n}", AT)
                if n % 3 == 0:
                    break_off(tx)
                return n

            return job

        bench.do(prepare)
        answers = bench.do_at_once([write(n) for n in range(JOBS)])
        stayed = [n for n in range(JOBS) if n % 3]
        assert [answer for answer in answers if isinstance(answer, int)] == stayed
        raised = [answer for answer in answers if isinstance(answer, BaseException)]
        assert [type(one) for one in raised if not isinstance(one, error)] == []
        assert len(raised) == JOBS - len(stayed)

        def found(tx: Tx) -> tuple[set[str], Counts, set[str], list[int], set[str]]:
            entries = tx.entries(MAIN)
            rows = {row.body for row in tx.unread(MAIN)}
            return set(tx.children(MAIN)), tx.counts(MAIN), {e.body for e in entries}, [e.seq for e in entries], rows

        here = {f"{n}" for n in stayed}
        keys = {"taken", *(f"run {n}" for n in stayed)}
        expected = (keys, Counts(60, 60), here, list(range(1, 61)), here)
        assert bench.see(found) == expected
        bench.reopen()
        assert bench.see(found) == expected

    def test_a_job_alone_that_raises_has_changed_nothing_and_the_next_one_works(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.child_admitted(MAIN)
            raise Refused("forbidden", "not now")

        with pytest.raises(Refused, match=r"^not now$"):
            bench.do(job)
        assert bench.see(lambda tx: tx.counts(MAIN)) == Counts(0, 0)
        assert bench.do(lambda tx: tx.child_admitted(MAIN)) == Counts(1, 1)

    def test_a_run_as_a_job_that_raised_had_saved_it_is_not_what_the_next_one_finds(self, bench: Bench) -> None:
        run = bench.do(lambda tx: admit(tx, "run"))

        def save(tx: Tx) -> int:
            return follow(tx, tx.load_run("run"), ev.Prepared(at=AT)).version

        def save_and_raise(tx: Tx) -> int:
            raise RuntimeError(f"version {save(tx)} was not to be")

        def create_and_raise(tx: Tx) -> int:
            raise RuntimeError(f"version {admit(tx, 'other').version} was not to be")

        def load(tx: Tx) -> int:
            return tx.load_run("run").version + (tx.find_run("other") is not None) * 100

        def forget_and_raise(tx: Tx) -> int:
            tx.forget_run("run")
            raise RuntimeError("it was not to be forgotten")

        with pytest.raises(RuntimeError, match=r"^version 2 was not to be$"):
            bench.do(save_and_raise)
        assert bench.do(lambda tx: tx.load_run("run")) == run
        jobs = [load, save_and_raise, load, create_and_raise, load, forget_and_raise, load, save, load]
        answers = bench.do_at_once(jobs)
        assert [answer if isinstance(answer, int) else str(answer) for answer in answers] == [
            1,
            "version 2 was not to be",
            1,
            "version 1 was not to be",
            1,
            "it was not to be forgotten",
            1,
            2,
            2,
        ]
        assert bench.do(load) == 2
        assert bench.see(load) == 2
        assert len(bench.see(lambda tx: tx.events("run"))) == 2

    def test_what_a_rule_of_the_store_forbids_is_told_in_fledges_own_words(self, bench: Bench) -> None:
        with pytest.raises(FledgeError):
            bench.do(lambda tx: tx.put_row("row", None, "send", None, "nobody's", AT))
        assert bench.see(lambda tx: tx.row("row")) is None

    def test_a_read_job_cannot_write_whatever_the_verb(self, bench: Bench) -> None:
        def prepare(tx: Tx) -> None:
            admit(tx, "run")
            conversation(tx, "talk", "other")
            tx.child_admitted(MAIN)
            tx.child_admitted(MAIN)
            tx.child_settled(MAIN)
            tx.open_turn("talk", {}, AT)
            tx.put_row("row", "talk", "send", None, "x", AT)
            queue(tx, "driven")
            assert tx.claim(tx.claimable({}, AT, 1)[0], "owner", AT) == 1
            queue(tx, "waits")
            tx.post("post", "hook", None, "{}", AT)

        bench.do(prepare)
        refused = set()
        for verb, write in WRITES.items():
            try:
                bench.see(write)
            except StoreError as error:
                if not isinstance(error, StaleWrite):
                    refused.add(verb)
        assert refused == set(WRITES)

        def unchanged(tx: Tx) -> bool:
            driver = tx.driver("driven")
            return (
                tx.children(MAIN) == ["run"]
                and tx.counts(MAIN) == Counts(2, 1)
                and [row.key for row in tx.unread("talk")] == ["row"]
                and driver is not None
                and driver.release_at is None
                and tx.queued("waits") is not None
                and [post.key for post in tx.due_posts(AT, 9)] == ["post"]
            )

        assert bench.see(unchanged)
        assert bench.do(unchanged)

    def test_a_read_job_that_raises_raises_its_own_error_and_reading_goes_on(self, bench: Bench) -> None:
        with pytest.raises(RuntimeError, match=r"^boom$"):
            bench.see(_raise_plainly)
        assert bench.see(lambda tx: tx.counts(MAIN)) == Counts(0, 0)

    def test_jobs_submitted_together_run_in_the_order_of_their_submission(self, bench: Bench) -> None:
        bench.do(lambda tx: conversation(tx, MAIN))

        def note(n: int) -> Callable[[Tx], int]:
            return lambda tx: tx.append(MAIN, AT, [("note", f"{n}")])

        assert bench.do_at_once([note(n) for n in range(20)]) == list(range(1, 21))
        assert [entry.body for entry in bench.see(lambda tx: tx.entries(MAIN))] == [f"{n}" for n in range(20)]

    def test_a_job_sees_what_the_one_before_it_in_the_same_batch_has_written(self, bench: Bench) -> None:
        def take(tx: Tx) -> int:
            counts = tx.counts(MAIN)
            if counts.unsettled >= 5:
                raise Refused("forbidden", "five are enough")
            event = ev.Admitted(at=AT, key=f"{counts.unsettled}", terms=TERMS, run_id=f"{counts.unsettled}/1")
            tx.create_run(born(event), Spec(task="t"), event)
            return tx.child_admitted(MAIN).unsettled

        answers = bench.do_at_once([take] * 50)
        assert answers[:5] == [1, 2, 3, 4, 5]
        assert [str(answer) for answer in answers[5:]] == ["five are enough"] * 45
        assert bench.see(lambda tx: tx.children(MAIN)) == ["0", "1", "2", "3", "4"]
