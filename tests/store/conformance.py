"""What every store promises, as tests against `Store` and `Tx` alone. A store is put through it by a class that derives
from `StoreConformance` and answers the `open_store` fixture; see `test_conformance`.

Here stands what is true of jobs; the verbs of `Tx` are in the modules `conformance_*`, by noun. Nothing here knows how
a store stores.
"""

from collections.abc import Callable, Iterator

import pytest

from fledge.core import events as ev
from fledge.core.documents import Workspace
from fledge.core.handover import Handover
from fledge.core.lifecycle import born
from fledge.core.progress import Progress
from fledge.core.route import Address
from fledge.core.turn import TurnEnd
from fledge.errors import FledgeError, Refused, StaleWrite, StoreError
from fledge.store.base import Counts, EntryKind, HeartbeatRow, QueuePlace, Route, Spec, TurnRan, Tx
from tests.core.samples import AT, TERMS
from tests.store.bench import FACTS, MAIN, Bench, OpenStore, admit, change_turn, child, conversation, follow, queue
from tests.store.conformance_documents import DocumentConformance
from tests.store.conformance_engines import EngineConformance
from tests.store.conformance_exchanges import ExchangeConformance
from tests.store.conformance_heartbeats import HeartbeatConformance
from tests.store.conformance_inbox import InboxConformance
from tests.store.conformance_lanes import LaneConformance
from tests.store.conformance_leases import DueConformance, LeaseConformance
from tests.store.conformance_outgoing import OriginConformance, OutboxConformance, RouteConformance
from tests.store.conformance_people import ApprovalConformance, BudgetConformance, CoverConformance
from tests.store.conformance_requests import CommissionConformance
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
    tx.sessions.child_settled("childless")


def _fence_nobody(tx: Tx) -> None:
    tx.drivers.fence("nobody", 1)


def _tell_line(tx: Tx) -> None:
    tx.inbox.drop("row", None)
    tx.inbox.line_told("row", AT)


WRITES: dict[str, Callable[[Tx], object]] = {
    "create_run": lambda tx: admit(tx, "new"),
    "save_run": lambda tx: tx.runs.save(tx.runs.load("run"), tx.runs.load("run"), ev.Prepared(at=AT)),
    "forget_run": lambda tx: tx.runs.forget("run"),
    "keep_text": lambda tx: tx.texts.keep("run", "text"),
    "open_session": lambda tx: tx.sessions.open("new", "main", None, 0, FACTS, AT),
    "delete_session": lambda tx: tx.sessions.delete("talk"),
    "raise_generation": lambda tx: tx.sessions.raise_generation("talk"),
    "child_admitted": lambda tx: tx.sessions.child_admitted("talk"),
    "child_unsettled": lambda tx: tx.sessions.child_unsettled(MAIN),
    "child_settled": lambda tx: tx.sessions.child_settled(MAIN),
    "append": lambda tx: tx.transcripts.append("talk", AT, [("note", "x")]),
    "open_turn": lambda tx: tx.turns.open("other", {}, AT),
    "keep_goods": lambda tx: tx.sessions.keep_handover("talk", Handover("/x")),
    "turn_ran": lambda tx: tx.turns.ran("talk", TurnRan("m")),
    "save_turn": lambda tx: change_turn(tx, "talk", drained=1, progress=Progress(1)),
    "close_turn": lambda tx: tx.turns.close("talk", TurnEnd("replied"), AT),
    "put_row": lambda tx: tx.inbox.put("new", "talk", "send", None, "x", AT),
    "close_row": lambda tx: tx.inbox.consume("row", AT),
    "readdress_row": lambda tx: tx.inbox.readdress("row", "other"),
    "rewrite_row": lambda tx: tx.inbox.rewrite("row", "y", None),
    "trace": lambda tx: tx.deliveries.note("row", "run", AT, "{}"),
    "enqueue": lambda tx: tx.queue.put("talk", "main", "talk", False),
    "dequeue": lambda tx: tx.queue.remove("waits"),
    "claim": lambda tx: tx.queue.claim(QueuePlace("waits", "subagent", 1, False), "owner", AT),
    "progress": lambda tx: tx.drivers.progress("driven", AT, True),
    "release": lambda tx: tx.drivers.release("driven", 1),
    "supersede": lambda tx: tx.drivers.supersede("driven", AT),
    "stop_driver": lambda tx: tx.drivers.stop("driven", AT),
    "post": lambda tx: tx.outbox.post("new", "hook", None, "{}", AT),
    "post_done": lambda tx: tx.outbox.done("post", AT),
    "post_failed": lambda tx: tx.outbox.failed("post", "no", AT + 1),
    "give_up_post": lambda tx: tx.outbox.give_up("post", "no", AT + 1, AT),
    "retry_post": lambda tx: tx.outbox.retry("post", AT, None),
    "dismiss_post": lambda tx: tx.outbox.dismiss("post", AT),
    "set_route": lambda tx: tx.routes.set(Route(session="talk", kind="last", address=Address("ops", "u"), used_at=AT)),
    "drop_route": lambda tx: tx.routes.drop("talk"),
    "aim_row": lambda tx: tx.inbox.aim("row", "there", "hook"),
    "interrupt": lambda tx: tx.drivers.interrupt("driven"),
    "drop_row": lambda tx: tx.inbox.drop("row", AT),
    "line_told": _tell_line,
    "save_heartbeat": lambda tx: tx.heartbeats.save(HeartbeatRow("talk", beat_at=AT)),
    "save_workspace": lambda tx: tx.workspaces.put("/w", Workspace("/w")),
    "begin_work": lambda tx: tx.drivers.begin_work("driven", "/w", AT),
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
    ApprovalConformance,
    BudgetConformance,
    CoverConformance,
    CommissionConformance,
    EngineConformance,
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
        assert bench.do(lambda tx: child(tx)) == Counts(1, 1)
        assert bench.see(lambda tx: tx.sessions.counts(MAIN)) == Counts(1, 1)
        assert bench.do(lambda tx: (tx.sessions.child_settled(MAIN), tx.sessions.counts(MAIN))) == (
            Counts(1, 0),
            Counts(1, 0),
        )
        bench.reopen()
        assert bench.see(lambda tx: tx.sessions.counts(MAIN)) == Counts(1, 0)

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
                child(tx)
                tx.transcripts.append(MAIN, AT, [("note", f"{n}")])
                tx.inbox.put(f"row {n}", MAIN, "send", None, f"{n}", AT)
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
            entries = tx.transcripts.entries(MAIN)
            rows = {row.body for row in tx.inbox.unread(MAIN)}
            return (
                set(tx.runs.children(MAIN)),
                tx.sessions.counts(MAIN),
                {e.body for e in entries},
                [e.seq for e in entries],
                rows,
            )

        here = {f"{n}" for n in stayed}
        keys = {"taken", *(f"run {n}" for n in stayed)}
        expected = (keys, Counts(60, 60), here, list(range(1, 61)), here)
        assert bench.see(found) == expected
        bench.reopen()
        assert bench.see(found) == expected

    def test_a_job_alone_that_raises_has_changed_nothing_and_the_next_one_works(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            child(tx)
            raise Refused("forbidden", "not now")

        with pytest.raises(Refused, match=r"^not now$"):
            bench.do(job)
        assert bench.see(lambda tx: tx.sessions.counts(MAIN)) == Counts(0, 0)
        assert bench.do(lambda tx: child(tx)) == Counts(1, 1)

    def test_a_run_as_a_job_that_raised_had_saved_it_is_not_what_the_next_one_finds(self, bench: Bench) -> None:
        run = bench.do(lambda tx: admit(tx, "run"))

        def save(tx: Tx) -> int:
            return follow(tx, tx.runs.load("run"), ev.Prepared(at=AT)).version

        def save_and_raise(tx: Tx) -> int:
            raise RuntimeError(f"version {save(tx)} was not to be")

        def create_and_raise(tx: Tx) -> int:
            raise RuntimeError(f"version {admit(tx, 'other').version} was not to be")

        def load(tx: Tx) -> int:
            return tx.runs.load("run").version + (tx.runs.find("other") is not None) * 100

        def forget_and_raise(tx: Tx) -> int:
            tx.runs.forget("run")
            raise RuntimeError("it was not to be forgotten")

        with pytest.raises(RuntimeError, match=r"^version 2 was not to be$"):
            bench.do(save_and_raise)
        assert bench.do(lambda tx: tx.runs.load("run")) == run
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
        assert len(bench.see(lambda tx: tx.events.of("run"))) == 2

    def test_what_a_rule_of_the_store_forbids_is_told_in_fledges_own_words(self, bench: Bench) -> None:
        with pytest.raises(FledgeError):
            bench.do(lambda tx: tx.inbox.put("row", None, "send", None, "nobody's", AT))
        assert bench.see(lambda tx: tx.inbox.get("row")) is None

    def test_however_many_rows_are_written_at_once_all_are_there_in_order(self, bench: Bench) -> None:
        bench.do(lambda tx: conversation(tx, *(f"talk {n}" for n in range(33))))
        said: list[tuple[EntryKind, str]] = [("note", f"{n}") for n in range(49)]
        bench.do(lambda tx: tx.transcripts.append("talk 32", AT, said))
        assert bench.see(lambda tx: [(entry.kind, entry.body) for entry in tx.transcripts.entries("talk 32")]) == said
        assert bench.see(lambda tx: len(tx.sessions.roots())) == 33

    def test_a_read_job_cannot_write_whatever_the_verb(self, bench: Bench) -> None:
        def prepare(tx: Tx) -> None:
            admit(tx, "run")
            conversation(tx, "talk", "other")
            child(tx)
            child(tx)
            tx.sessions.child_settled(MAIN)
            tx.turns.open("talk", {}, AT)
            tx.inbox.put("row", "talk", "send", None, "x", AT)
            queue(tx, "driven")
            assert tx.queue.claim(tx.queue.claimable({}, AT, 1)[0], "owner", AT) == 1
            queue(tx, "waits")
            tx.outbox.post("post", "hook", None, "{}", AT)

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
            driver = tx.drivers.get("driven")
            return (
                tx.runs.children(MAIN) == ["run"]
                and tx.sessions.counts(MAIN) == Counts(2, 1)
                and [row.key for row in tx.inbox.unread("talk")] == ["row"]
                and driver is not None
                and driver.release_at is None
                and tx.queue.place("waits") is not None
                and [post.key for post in tx.outbox.due(AT, 9)] == ["post"]
            )

        assert bench.see(unchanged)
        assert bench.do(unchanged)

    def test_a_read_job_that_raises_raises_its_own_error_and_reading_goes_on(self, bench: Bench) -> None:
        with pytest.raises(RuntimeError, match=r"^boom$"):
            bench.see(_raise_plainly)
        assert bench.see(lambda tx: tx.sessions.counts(MAIN)) == Counts(0, 0)

    def test_jobs_submitted_together_run_in_the_order_of_their_submission(self, bench: Bench) -> None:
        bench.do(lambda tx: conversation(tx, MAIN))

        def note(n: int) -> Callable[[Tx], int]:
            return lambda tx: tx.transcripts.append(MAIN, AT, [("note", f"{n}")])

        assert bench.do_at_once([note(n) for n in range(20)]) == list(range(1, 21))
        assert [entry.body for entry in bench.see(lambda tx: tx.transcripts.entries(MAIN))] == [
            f"{n}" for n in range(20)
        ]

    def test_a_job_sees_what_the_one_before_it_in_the_same_batch_has_written(self, bench: Bench) -> None:
        def take(tx: Tx) -> int:
            counts = tx.sessions.counts(MAIN)
            if counts.unsettled >= 5:
                raise Refused("forbidden", "five are enough")
            event = ev.Admitted(at=AT, key=f"{counts.unsettled}", terms=TERMS, run_id=f"{counts.unsettled}/1")
            counts = child(tx)
            tx.runs.create(born(event), Spec(task="t"), event, counts.spawned)
            return counts.unsettled

        answers = bench.do_at_once([take] * 50)
        assert answers[:5] == [1, 2, 3, 4, 5]
        assert [str(answer) for answer in answers[5:]] == ["five are enough"] * 45
        assert bench.see(lambda tx: tx.runs.children(MAIN)) == ["0", "1", "2", "3", "4"]
