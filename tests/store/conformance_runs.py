"""What every store promises of runs, their timelines and names, and of the texts that belong to them."""

import random
from functools import partial

import pytest
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core.announce import announce_key
from fledge.core.lifecycle import born, replay, transition
from fledge.core.run import (
    PHASES,
    Archived,
    Completed,
    Delivered,
    Ended,
    Gone,
    Ok,
    Queued,
    Run,
    Running,
    Spawning,
)
from fledge.errors import FledgeError, IllegalTransition, NotFound, StaleWrite
from fledge.store.base import ChildrenPage, Counts, RowState, Spec, Tx
from tests.core import samples
from tests.core.samples import AT, TERMS, finished, killed
from tests.statements import proves
from tests.store.bench import FACTS, MAIN, Bench, admit, child, close_row, conversation, follow, queue

CHILD = "agent:main:subagent:c"
DONE = Completed(Ended(Ok(), 900.0, 950.0), Delivered("direct"), settled_at=970.0, due_at=4570.0)


def _next_event(run: Run, choose: random.Random, next_run_id: str) -> ev.Event | None:
    """Something that can happen to this run now and changes it."""
    shuffled = choose.sample(samples.SAMPLE_EVENTS, len(samples.SAMPLE_EVENTS))
    kinds = choose.sample(ev.EVENTS, len(ev.EVENTS))
    if choose.random() < 0.9:
        # These can nearly always happen, and would leave room for little else.
        kinds.sort(key=lambda kind: kind in (ev.KillOrdered, ev.Steered))
    for event in sorted(shuffled, key=lambda event: kinds.index(type(event))):
        for name, value in (("next_run_id", next_run_id), ("attempt", run.attempt)):
            if hasattr(event, name):
                event = replace(event, **{name: value})
        try:
            step = transition(run, event)
        except IllegalTransition:
            continue
        if step.ignored is None and not isinstance(step.run.phase, Gone):
            return event
    return None


class RunConformance:
    """Runs, timelines, names."""

    def test_a_created_run_is_found_with_its_spec_its_name_and_its_first_event(self, bench: Bench) -> None:
        event = ev.Admitted(at=AT, key=CHILD, terms=replace(TERMS, timeout_s=60.0), run_id="id-1")
        spec = Spec(
            task="count the birds é ✓",
            label="birds",
            agent_id="helper",
            model="m",
            thinking="low",
            runtime="acp",
            controller="agent:main:boss",
            created_at=AT,
            idempotency_key="once",
        )
        bench.do(lambda tx: tx.runs.create(born(event), spec, event, 7))
        assert bench.see(lambda tx: tx.runs.load(CHILD)) == born(event)
        assert bench.see(lambda tx: tx.runs.find(CHILD)) == born(event)
        assert bench.see(lambda tx: tx.runs.spec(CHILD)) == spec
        assert bench.see(lambda tx: tx.runs.number(CHILD)) == 7
        assert bench.see(lambda tx: tx.events.of(CHILD)) == [event]
        assert bench.see(lambda tx: tx.runs.named("id-1")) == (CHILD, 1)

    def test_creating_a_key_twice_is_refused_and_changes_nothing(self, bench: Bench) -> None:
        first = bench.do(lambda tx: admit(tx, CHILD))
        again = ev.Admitted(at=AT + 1, key=CHILD, terms=TERMS, run_id="other")
        with pytest.raises(FledgeError):
            bench.do(lambda tx: tx.runs.create(born(again), Spec(task="other"), again, 2))
        assert bench.see(lambda tx: tx.runs.load(CHILD)) == first
        assert bench.see(lambda tx: tx.runs.spec(CHILD)) == Spec(task=f"task of {CHILD}")
        assert [event.at for event in bench.see(lambda tx: tx.events.of(CHILD))] == [AT]
        assert bench.see(lambda tx: tx.runs.named("other")) is None
        assert bench.see(lambda tx: tx.runs.children(MAIN)) == [CHILD]

    def test_a_number_is_of_one_run_of_its_parent_and_finds_it_while_it_is_there(self, bench: Bench) -> None:
        def take(tx: Tx) -> int:
            number = child(tx).spawned
            event = ev.Admitted(at=AT, key=f"r{number}", terms=TERMS, run_id=f"r{number}/1")
            tx.runs.create(born(event), Spec(task="t"), event, number)
            return number

        assert bench.do_at_once([take] * 9) == list(range(1, 10))
        bench.do(lambda tx: tx.runs.forget("r9"))
        bench.reopen()
        assert bench.do(take) == 10
        bench.do(lambda tx: admit(tx, "elsewhere", parent="r3"))
        numbers = bench.see(lambda tx: [tx.runs.number(key) for key in tx.runs.children(MAIN)])
        assert numbers == [1, 2, 3, 4, 5, 6, 7, 8, 10]
        found = bench.see(lambda tx: [tx.runs.numbered(MAIN, number) for number in (1, 8, 9, 10, 11, 0)])
        assert found == ["r1", "r8", None, "r10", None, None]
        assert bench.see(lambda tx: tx.runs.numbered("r3", 1)) == "elsewhere"
        with pytest.raises(NotFound):
            bench.see(lambda tx: tx.runs.number("r9"))

    def test_a_number_that_another_run_of_the_parent_has_is_refused(self, bench: Bench) -> None:
        bench.do(lambda tx: admit(tx, CHILD))
        again = ev.Admitted(at=AT, key="other", terms=TERMS, run_id="other/1")
        with pytest.raises(FledgeError):
            bench.do(lambda tx: tx.runs.create(born(again), Spec(task="t"), again, 1))
        assert bench.see(lambda tx: tx.runs.children(MAIN)) == [CHILD]

    def test_a_run_that_is_not_there_is_none_or_not_found(self, bench: Bench) -> None:
        assert bench.see(lambda tx: (tx.runs.find("x"), tx.runs.named("x"), tx.events.of("x"))) == (None, None, [])
        with pytest.raises(NotFound, match=r"^no run x$"):
            bench.see(lambda tx: tx.runs.load("x"))
        with pytest.raises(NotFound, match=r"^no run x$"):
            bench.see(lambda tx: tx.runs.spec("x"))

    def test_a_saved_run_is_its_new_state_with_its_event_and_no_other_run_is_touched(self, bench: Bench) -> None:
        def job(tx: Tx) -> tuple[Run, Run]:
            other = admit(tx, "other")
            return follow(tx, admit(tx, CHILD), ev.Prepared(at=AT), ev.Claimed(at=AT + 1, epoch=1)), other

        run, other = bench.do(job)
        assert run.phase == Running(due_at=AT + 301)
        assert bench.see(lambda tx: tx.runs.load(CHILD)) == run
        assert bench.do(lambda tx: tx.runs.load(CHILD)) == run
        assert [type(event) for event in bench.see(lambda tx: tx.events.of(CHILD))] == [
            ev.Admitted,
            ev.Prepared,
            ev.Claimed,
        ]
        assert bench.see(lambda tx: (tx.runs.load("other"), len(tx.events.of("other")))) == (other, 1)

    @pytest.mark.parametrize("believed", [1, 3, 0])
    def test_a_save_on_another_version_than_the_stored_one_is_stale_and_changes_nothing(
        self, bench: Bench, believed: int
    ) -> None:
        stored = bench.do(lambda tx: follow(tx, admit(tx, CHILD), ev.Prepared(at=AT)))
        assert stored.version == 2
        before = replace(stored, version=believed)
        after = replace(stored, version=believed + 1, run_id="never", attempt=2, phase=Running(due_at=1.0))
        with pytest.raises(StaleWrite, match=rf"^{CHILD} is not at version {believed} any more$"):
            bench.do(lambda tx: tx.runs.save(before, after, ev.Claimed(at=AT, epoch=1)))
        assert bench.see(lambda tx: tx.runs.load(CHILD)) == stored
        assert len(bench.see(lambda tx: tx.events.of(CHILD))) == 2
        assert bench.see(lambda tx: (tx.runs.named("never"), tx.runs.due(1e12, 9))) == (None, [])

    def test_a_save_of_a_run_that_is_not_there_is_stale(self, bench: Bench) -> None:
        run = born(ev.Admitted(at=AT, key=CHILD, terms=TERMS, run_id="id-1"))
        with pytest.raises(StaleWrite):
            bench.do(lambda tx: tx.runs.save(run, replace(run, version=2), ev.Prepared(at=AT)))
        assert bench.see(lambda tx: (tx.runs.find(CHILD), tx.runs.named("id-1"))) == (None, None)

    def test_of_two_saves_of_one_version_exactly_the_first_stays(self, bench: Bench) -> None:
        run = bench.do(lambda tx: admit(tx, CHILD))

        def save(tx: Tx) -> int:
            return follow(tx, run, ev.Prepared(at=AT)).version

        first, second = bench.do_at_once([save, save])
        assert first == 2
        assert isinstance(second, StaleWrite)
        assert len(bench.see(lambda tx: tx.events.of(CHILD))) == 2

    @proves("1.attempts.5", "Every runId ever given still finds its run")
    def test_every_run_id_ever_given_finds_its_run_and_attempt(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            admit(tx, "other")
            run = follow(tx, admit(tx, CHILD), ev.Prepared(at=AT))
            for attempt in range(2, 6):
                run = follow(tx, run, ev.Steered(at=AT + 10 * attempt, next_run_id=f"{CHILD}/{attempt}"))
            assert run.attempt == 5

        bench.do(job)
        bench.reopen()
        found = bench.see(lambda tx: [tx.runs.named(f"{CHILD}/{attempt}") for attempt in range(1, 6)])
        assert found == [(CHILD, attempt) for attempt in range(1, 6)]
        assert bench.see(lambda tx: tx.runs.named("other/1")) == ("other", 1)
        assert bench.see(lambda tx: tx.runs.named(f"{CHILD}/6")) is None

    def test_a_run_in_every_phase_comes_back_as_it_was(self, bench: Bench) -> None:
        stored: list[Run] = []

        def job(tx: Tx) -> None:
            for name, sample in samples.RUNS.items():
                if not isinstance(sample.phase, Gone):
                    before = admit(tx, name)
                    after = replace(sample, key=name, run_id=before.run_id, version=2)
                    tx.runs.save(before, after, ev.Prepared(at=AT))
                    stored.append(after)

        bench.do(job)
        assert {type(run.phase) for run in stored} == set(PHASES) - {Gone}
        bench.reopen()
        assert bench.see(lambda tx: [tx.runs.load(run.key) for run in stored]) == stored

    def test_children_are_a_sessions_own_runs_oldest_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for key in ("z", "a", "m"):
                admit(tx, key, parent="one")
            admit(tx, "b", parent="two")

        bench.do(job)
        assert bench.see(lambda tx: tx.runs.children("one")) == ["z", "a", "m"]
        assert bench.see(lambda tx: tx.runs.children("two")) == ["b"]
        assert bench.see(lambda tx: tx.runs.children("z")) == []

    def test_a_page_of_children_has_active_ones_first_and_counts_all_but_archived_ones(self, bench: Bench) -> None:
        def end(tx: Tx, run: Run) -> Run:
            after = replace(run, version=2, phase=DONE)
            tx.runs.save(run, after, ev.CleanedUp(at=AT))
            return after

        def job(tx: Tx) -> None:
            old, done, busy, _, _ = [admit(tx, key, parent="one") for key in ("old", "done", "busy", "live", "new")]
            end(tx, done)
            end(tx, busy)
            child(tx, "busy")
            child(tx, "live")
            tx.sessions.child_settled("live")
            archived = replace(end(tx, old), version=3, phase=Archived(DONE.ended, DONE.delivery, due_at=None))
            tx.runs.save(tx.runs.load("old"), archived, ev.CleanedUp(at=AT))
            admit(tx, "other", parent="two")

        bench.do(job)
        page = bench.see(lambda tx: tx.lists.children("one", 9))
        assert page == ChildrenPage(["busy", "live", "new", "done"], active=3, done=1)
        assert bench.see(lambda tx: tx.lists.children("one", 2)) == ChildrenPage(["busy", "live"], active=3, done=1)
        assert bench.see(lambda tx: tx.lists.children("nobody", 9)) == ChildrenPage([], 0, 0)

    def test_children_in_a_phase_and_reservations_follow_every_save(self, bench: Bench) -> None:
        def plan(tx: Tx, run: Run) -> Run:
            run = follow(tx, run, ev.Prepared(at=AT), ev.Claimed(at=AT, epoch=1))
            return follow(tx, run, replace(finished(), attempt=1))

        def job(tx: Tx) -> None:
            admit(tx, "late", parent="two")
            reserved = [admit(tx, key, parent="one") for key in ("z", "a", "m")]
            planners = [admit(tx, key, parent="one", plan=True) for key in ("q", "p")]
            for planner in planners:
                plan(tx, planner)
            follow(tx, reserved[1], ev.Prepared(at=AT))

        bench.do(job)
        assert bench.see(lambda tx: tx.runs.children_in("one", "spawning")) == ["z", "m"]
        assert bench.see(lambda tx: tx.runs.children_in("one", "awaiting_approval")) == ["q", "p"]
        assert bench.see(lambda tx: tx.runs.children_in("two", "spawning")) == ["late"]
        assert bench.see(lambda tx: tx.runs.children_in("two", "awaiting_approval")) == []
        assert bench.see(lambda tx: tx.runs.awaiting()) == ["q", "p"]
        assert bench.see(lambda tx: tx.runs.reservations()) == ["late", "z", "m"]

    def test_whoever_writes_sees_plans_come_go_and_be_made_however_often_it_looked(self, bench: Bench) -> None:
        def looks(tx: Tx) -> list[str]:
            return tx.runs.awaiting()

        def plans(tx: Tx) -> Run:
            run = follow(tx, admit(tx, "p", plan=True), ev.Prepared(at=AT), ev.Claimed(at=AT, epoch=1))
            return follow(tx, run, replace(finished(), attempt=1))

        found = [bench.do(looks)]
        run = bench.do(plans)
        found.append(bench.do(looks))
        bench.do(lambda tx: follow(tx, tx.runs.load("p"), ev.PlanRejected(at=AT, next_run_id="again")))
        found.append(bench.do(looks))
        bench.do(lambda tx: tx.runs.create(replace(run, key="q", run_id="other"), Spec(task="t"), finished(), 2))
        found.append(bench.do(looks))
        bench.do(lambda tx: tx.runs.forget("q"))
        found.append(bench.do(looks))
        assert found == [[], ["p"], [], ["q"], []]

    def test_a_text_of_a_run_that_was_forgotten_is_gone_for_its_writer_too(self, bench: Bench) -> None:
        bench.do(lambda tx: admit(tx, "a"))
        text = bench.do(lambda tx: tx.texts.keep("a", "words"))
        assert bench.do(lambda tx: tx.texts.get(text)) == "words"
        bench.do(lambda tx: tx.runs.forget("a"))
        with pytest.raises(NotFound, match=text):
            bench.do(lambda tx: tx.texts.get(text))

    @proves("0.ends.2", "Deadlines are columns, found by asking what is due")
    def test_due_runs_are_those_whose_time_has_come_the_longest_overdue_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for key, due_at in (("b", 20.0), ("a", 10.0), ("d", 30.5), ("c", 20.0), ("never", None)):
                run = admit(tx, key)
                after = replace(run, version=2, phase=Queued(due_at=due_at))
                tx.runs.save(run, after, ev.Prepared(at=AT))

        bench.do(job)

        def due(at: float, limit: int = 9) -> list[str]:
            return bench.see(lambda tx: tx.runs.due(at, limit))

        assert due(9.999) == []
        assert due(10.0) == ["a"]
        assert due(19.999) == ["a"]
        assert due(20.0) == ["a", "b", "c"]
        assert due(1e12) == ["a", "b", "c", "d"]
        assert due(1e12, limit=2) == ["a", "b"]
        assert due(1e12, limit=0) == []

    @proves("0.ends.2")
    def test_a_run_is_due_at_its_deadline_if_that_comes_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            run = admit(tx, CHILD)
            after = replace(run, version=2, phase=Running(due_at=500.0), deadline_at=400.0)
            tx.runs.save(run, after, ev.Prepared(at=AT))

        bench.do(job)
        assert bench.see(lambda tx: (tx.runs.due(399.9, 9), tx.runs.due(400.0, 9))) == ([], [CHILD])

    @proves("0.timeline.3")
    def test_a_stored_run_is_the_fold_of_its_stored_events(self, bench: Bench) -> None:
        choose = random.Random(7)
        happened: set[type[ev.Event]] = set()

        def live(key: str, tx: Tx) -> Run:
            """A life of chance: of all that may happen next and leads to a state that is stored, something does."""
            run = admit(tx, key, timeout_s=choose.choice([0.0, 5000.0]), plan=choose.random() < 0.5)
            for n in range(20):
                event = _next_event(run, choose, f"{key}/{n + 2}")
                if event is None:
                    break
                run = follow(tx, run, event)
                happened.add(type(event))
            return run

        lives = [f"life {n}" for n in range(100)]
        runs = [bench.do(partial(live, key)) for key in lives]  # a server ends a transaction that lets it wait for 2 s
        bench.reopen()
        assert bench.see(lambda tx: [tx.runs.load(key) for key in lives]) == runs
        assert bench.see(lambda tx: [replay(tx.events.of(key)) for key in lives]) == runs
        assert bench.see(lambda tx: [len(tx.events.of(key)) for key in lives]) == [run.version for run in runs]
        assert max(run.version for run in runs) > 10
        assert len(happened) > 15

    def test_events_of_all_runs_are_numbered_in_the_order_they_were_stored(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            one = admit(tx, "one")
            admit(tx, "two")
            follow(tx, one, ev.Prepared(at=AT))

        assert bench.see(lambda tx: (tx.events.last(), tx.events.after(0, 10))) == (0, [])
        bench.do(job)
        told = bench.see(lambda tx: tx.events.after(0, 10))
        assert [(one.run, one.version, type(one.event)) for one in told] == [
            ("one", 1, ev.Admitted),
            ("two", 1, ev.Admitted),
            ("one", 2, ev.Prepared),
        ]
        assert [one.seq for one in told] == sorted({one.seq for one in told})
        assert bench.see(lambda tx: tx.events.last()) == told[-1].seq
        assert bench.see(lambda tx: tx.events.after(told[0].seq, 1)) == told[1:2]

    def test_events_around_a_session_are_its_own_and_its_childrens_in_a_time(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            admit(tx, "gone", parent="one")
            one, child, other = admit(tx, "one"), admit(tx, "child", parent="one"), admit(tx, "other", parent="two")
            for number, run in enumerate((one, child, other), 1):
                follow(tx, run, ev.Prepared(at=AT + number))
            tx.runs.forget("gone")

        bench.do(job)

        def seen(since: float, until: float, scanned: int = 100, names: tuple[str, ...] = ("Prepared",)) -> list[str]:
            found = bench.see(lambda tx: tx.events.around("one", names, since, until, scanned))
            return [f"{type(each.event).__name__} {each.run}" for each in found]

        assert seen(0, AT + 100) == ["Prepared one", "Prepared child"]
        assert seen(AT + 1, AT + 2) == ["Prepared one"]
        assert seen(AT + 2, AT + 100) == ["Prepared child"]
        assert seen(0, AT + 100, scanned=2) == ["Prepared child"]
        assert seen(AT + 50, AT + 100) == []
        assert seen(0, AT + 100, names=("Claimed",)) == []

    def test_the_number_of_an_event_is_never_given_again_even_if_its_run_is_forgotten(self, bench: Bench) -> None:
        bench.do(lambda tx: admit(tx, "one"))
        for key in ("two", "three"):
            before = bench.see(lambda tx: tx.events.last())
            bench.do(lambda tx, key=key: admit(tx, key))  # type: ignore[misc]
            last = bench.see(lambda tx: tx.events.last())
            bench.do(lambda tx, key=key: tx.runs.forget(key))  # type: ignore[misc]
            assert bench.see(lambda tx: (tx.events.last(), tx.events.after(before, 9))) == (last, [])  # noqa: B023
        bench.reopen()
        bench.do(lambda tx: admit(tx, "four"))
        assert [one.run for one in bench.see(lambda tx: tx.events.after(last, 9))] == ["four"]

    def test_silent_children_ended_without_anything_to_tell_oldest_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            for key in ("z", "a", "m"):
                run = follow(tx, admit(tx, key, parent="one"), ev.Prepared(at=AT), ev.Claimed(at=AT, epoch=1))
                follow(tx, run, finished("skip"))
            follow(tx, admit(tx, "elsewhere", parent="two"), ev.Prepared(at=AT), killed())
            run = follow(tx, admit(tx, "told", parent="one"), ev.Prepared(at=AT), ev.Claimed(at=AT, epoch=1))
            follow(tx, run, finished(), ev.RowConsumed(at=AT, row="outcome", path="direct"))
            follow(tx, admit(tx, "live", parent="one"), ev.Prepared(at=AT))

        bench.do(job)
        assert bench.do(lambda tx: tx.runs.name_silent("nobody")) == []
        assert bench.do(lambda tx: tx.runs.name_silent("one")) == ["z", "a", "m"]
        assert bench.do(lambda tx: tx.runs.name_silent("two")) == ["elsewhere"]

    def test_a_silent_child_is_named_once_also_after_it_is_cleaned_up_and_the_store_is_opened_again(
        self, bench: Bench
    ) -> None:
        def end(tx: Tx, key: str) -> None:
            run = follow(tx, admit(tx, key, parent="one"), ev.Prepared(at=AT), ev.Claimed(at=AT, epoch=1))
            follow(tx, run, finished("skip"))

        bench.do(lambda tx: end(tx, "first"))
        assert bench.do(lambda tx: tx.runs.name_silent("one")) == ["first"]
        bench.do(lambda tx: follow(tx, tx.runs.load("first"), ev.CleanedUp(at=AT)))
        bench.reopen()
        assert bench.do(lambda tx: tx.runs.name_silent("one")) == []
        bench.do(lambda tx: end(tx, "second"))
        assert bench.do(lambda tx: tx.runs.name_silent("one")) == ["second"]

    def test_unsettled_children_are_at_work_or_have_something_at_work_below_them_oldest_first(
        self, bench: Bench
    ) -> None:
        def job(tx: Tx) -> None:
            for key in ("z", "ended", "above", "planned", "a"):
                run = admit(tx, key, parent="one", plan=key == "planned")
                follow(tx, run, ev.Prepared(at=AT), ev.Claimed(at=AT, epoch=1))
            for key in ("ended", "above", "planned"):
                follow(tx, tx.runs.load(key), finished())
            child(tx, "above")
            follow(tx, admit(tx, "elsewhere", parent="two"), ev.Prepared(at=AT))

        bench.do(job)
        assert bench.see(lambda tx: tx.runs.unsettled("one", 9)) == ["z", "above", "a"]
        assert bench.see(lambda tx: tx.runs.unsettled("one", 2)) == ["z", "above"]
        bench.do(lambda tx: tx.sessions.child_settled("above"))
        assert bench.see(lambda tx: tx.runs.unsettled("one", 9)) == ["z", "a"]
        assert bench.see(lambda tx: tx.runs.unsettled("nobody", 9)) == []

    def test_a_forgotten_run_takes_all_that_is_its_own_along_and_no_row_of_another_inbox(self, bench: Bench) -> None:
        def life(tx: Tx, key: str) -> str:
            """All that can belong to a run."""
            tx.sessions.open(key, "subagent", MAIN, 1, FACTS, AT)
            text = tx.texts.keep(key, "the result")
            run = follow(tx, admit(tx, key), ev.Prepared(at=AT), ev.Steered(at=AT, next_run_id=f"{key}/2"))
            tx.transcripts.append(key, AT, [("user", "task"), ("assistant", "done")])
            tx.turns.open(key, {key: 0}, AT)
            tx.queue.put(key, "subagent", MAIN, False)
            child(tx, key)
            tx.inbox.put(f"task:{key}", key, "task", MAIN, "task", AT)
            tx.inbox.put(f"send:{key}", key, "send", "agent:main:boss", "hello", AT)
            tx.inbox.put(f"said:{key}", "agent:main:boss", "send", key, "hello back", AT)
            tx.inbox.put(f"outcome:{key}", MAIN, "outcome", key, "{}", AT, text=text)
            tx.inbox.put(f"lost:{key}", None, "late", key, "{}", AT, text=text)
            tx.inbox.give_up(f"lost:{key}", AT)
            tx.deliveries.note(f"outcome:{key}", key, AT, "{}")
            tx.outbox.post(f"hook:{key}", "hook", key, "{}", AT)
            tx.runs.save(run, replace(run, version=run.version + 1, phase=DONE), ev.CleanedUp(at=AT))
            return text

        def job(tx: Tx) -> tuple[str, str]:
            conversation(tx, MAIN, "agent:main:boss")
            child(tx)
            kept = life(tx, CHILD), life(tx, "sibling")
            tx.runs.forget(CHILD)
            assert tx.runs.find(CHILD) is None
            return kept

        own, others = bench.do(job)
        assert bench.do(lambda tx: tx.runs.find(CHILD)) is None
        bench.reopen()

        def rest(tx: Tx, key: str) -> tuple[object, ...]:
            run, session, place = tx.runs.find(key), tx.sessions.get(key), tx.queue.place(key)
            return (
                run is not None,
                session is not None,
                place is not None,
                tx.turns.get(key) is not None,
                len(tx.events.of(key)),
                [tx.runs.named(f"{key}/{n}") is not None for n in (1, 2)],
                len(tx.transcripts.entries(key)),
                tx.sessions.counts(key),
                [row.kind for row in tx.inbox.unread(key)],
                key in tx.runs.children(MAIN),
                key in tx.runs.due(1e12, 99),
            )

        nothing: tuple[object, ...] = (False, False, False, False, 0, [False, False], 0, Counts(0, 0), [], False, False)
        whole: tuple[object, ...] = (
            True,
            True,
            True,
            True,
            4,
            [True, True],
            2,
            Counts(1, 1),
            ["task", "send"],
            True,
            True,
        )
        assert bench.see(lambda tx: rest(tx, CHILD)) == nothing
        assert bench.see(lambda tx: rest(tx, "sibling")) == whole
        with pytest.raises(NotFound):
            bench.see(lambda tx: tx.texts.get(own))
        assert bench.see(lambda tx: tx.texts.get(others)) == "the result"

        assert bench.see(lambda tx: tx.sessions.counts(MAIN)) == Counts(1, 1)
        unread = bench.see(lambda tx: [row.key for key in (MAIN, "agent:main:boss") for row in tx.inbox.unread(key)])
        assert unread == [f"outcome:{CHILD}", "outcome:sibling", f"said:{CHILD}", "said:sibling"]
        assert [row.key for row in bench.see(lambda tx: tx.inbox.undelivered())] == [f"lost:{CHILD}", "lost:sibling"]
        assert [post.key for post in bench.see(lambda tx: tx.outbox.due(AT, 9))] == [f"hook:{CHILD}", "hook:sibling"]

    def test_a_completion_that_waits_in_a_forgotten_runs_inbox_is_not_lost(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.sessions.open(CHILD, "subagent", MAIN, 1, FACTS, AT)
            admit(tx, CHILD)
            tx.inbox.put("outcome:below", CHILD, "outcome", "below", "{}", AT)
            tx.runs.forget(CHILD)

        bench.do(job)
        row = bench.see(lambda tx: tx.inbox.get("outcome:below"))
        assert row is not None
        assert row.state == "unread"

    def test_closed_completions_go_with_who_wrote_them_and_open_ones_stay(self, bench: Bench) -> None:
        states: tuple[RowState, ...] = ("unread", "undelivered", "consumed", "suppressed", "dismissed")

        def job(tx: Tx) -> None:
            for run in (CHILD, f"{CHILD}-2"):
                admit(tx, run)
                for number, state in enumerate(states):
                    key = announce_key(run, f"r{number}", "late" if number % 2 else "outcome")
                    tx.inbox.put(key, MAIN, "outcome", run, state, AT)
                    if state != "unread":
                        close_row(tx, key, state, AT)
            tx.runs.forget(CHILD)

        bench.do(job)

        def left(tx: Tx, run: str) -> list[str]:
            keys = [announce_key(run, f"r{n}", "late" if n % 2 else "outcome") for n in range(len(states))]
            return [row.body for key in keys if (row := tx.inbox.get(key)) is not None]

        assert bench.see(lambda tx: left(tx, CHILD)) == ["unread", "undelivered"]
        assert bench.see(lambda tx: left(tx, f"{CHILD}-2")) == list(states)

    def test_what_a_forgotten_run_has_read_goes_with_it_unless_its_writer_is_still_known(self, bench: Bench) -> None:
        def job(tx: Tx) -> list[bool]:
            for run in (CHILD, "known", "gone"):
                admit(tx, run)
            for run in ("known", "gone"):
                tx.inbox.put(announce_key(run, "r", "outcome"), CHILD, "outcome", run, "{}", AT)
                tx.inbox.consume(announce_key(run, "r", "outcome"), AT)
            tx.inbox.put("said", CHILD, "send", "somebody", "x", AT)
            tx.inbox.consume("said", AT)
            tx.runs.forget("gone")
            tx.runs.forget(CHILD)
            return [tx.inbox.get(key) is None for key in ("said", announce_key("gone", "r", "outcome"))]

        assert bench.do(job) == [True, True]
        assert bench.see(lambda tx: tx.inbox.get(announce_key("known", "r", "outcome"))) is not None
        bench.do(lambda tx: tx.runs.forget("known"))
        assert bench.see(lambda tx: tx.inbox.get(announce_key("known", "r", "outcome"))) is None

    def test_forgetting_a_run_that_is_not_there_changes_nothing(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "talk")
            tx.transcripts.append("talk", AT, [("note", "x")])
            tx.inbox.put("row", "talk", "send", None, "x", AT)
            text = tx.texts.keep("talk", "kept")
            tx.runs.forget("talk")
            assert tx.sessions.get("talk") is not None
            assert tx.queue.place("talk") is not None
            assert (len(tx.transcripts.entries("talk")), len(tx.inbox.unread("talk")), tx.texts.get(text)) == (
                1,
                1,
                "kept",
            )

        bench.do(job)

    def test_a_forgotten_key_may_be_used_again_and_starts_from_the_beginning(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            follow(tx, admit(tx, CHILD), ev.Prepared(at=AT))
            tx.runs.forget(CHILD)
            admit(tx, CHILD, at=AT + 5)

        bench.do(job)
        assert bench.see(lambda tx: tx.runs.load(CHILD)).phase == Spawning(due_at=AT + 35)
        assert [event.at for event in bench.see(lambda tx: tx.events.of(CHILD))] == [AT + 5]


class TextConformance:
    """Texts."""

    def test_the_same_text_of_the_same_owner_has_the_same_id_and_any_other_another(self, bench: Bench) -> None:
        def keep(tx: Tx) -> list[str]:
            kept = (("one", "words"), ("one", "words"), ("two", "words"), ("one", "words "), ("one", ""))
            return [tx.texts.keep(owner, text) for owner, text in kept]

        first = bench.do(keep)
        assert first[0] == first[1]
        assert len(set(first)) == 4
        assert bench.do(keep) == first
        assert bench.see(lambda tx: [tx.texts.get(text_id) for text_id in first]) == ["words"] * 3 + ["words ", ""]

    @pytest.mark.parametrize("text", ["é ✓ 🪶", "a\x00b", "line\r\nline\n", "'; DROP TABLE texts; --", "x" * 1_000_000])
    def test_a_text_comes_back_as_it_was(self, bench: Bench, text: str) -> None:
        text_id = bench.do(lambda tx: tx.texts.keep(CHILD, text))
        assert bench.see(lambda tx: tx.texts.get(text_id)) == text

    def test_half_a_character_is_kept_as_a_question_mark(self, bench: Bench) -> None:
        text_id = bench.do(lambda tx: tx.texts.keep(CHILD, "a\ud800b"))
        assert bench.see(lambda tx: tx.texts.get(text_id)) == "a?b"

    def test_a_text_that_is_not_there_is_not_found(self, bench: Bench) -> None:
        with pytest.raises(NotFound, match=r"^no text x$"):
            bench.see(lambda tx: tx.texts.get("x"))
