"""What every store promises of lists: runs by filter, scope and age, their counts and numbers, sessions by activity.
The counters are compared with a full count after everything that changes a run.
"""

import pytest
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core.run import (
    Archived,
    Asking,
    AwaitingApproval,
    Completed,
    Delivered,
    Ended,
    Failed,
    Ok,
    Phase,
    Run,
    Running,
    TimedOut,
)
from fledge.store.base import AgentDay, Approval, ListedRun, RunCounts, RunFilter, RunMark, RunWalk, Tx, Used
from tests.core.samples import AT
from tests.store.bench import FACTS, MAIN, Bench, admit, child, claim, conversation, queue

SIDE = "agent:main:side"
DONE = Completed(Ended(Ok(), 900.0, 950.0), Delivered("direct"), settled_at=970.0, due_at=4570.0)


def keys(found: list[ListedRun]) -> list[str]:
    return [one.key for one in found]


def put_into(tx: Tx, key: str, phase: Phase) -> Run:
    """The run in another phase, however it came there."""
    run = tx.runs.load(key)
    after = replace(run, version=run.version + 1, phase=phase)
    tx.runs.save(run, after, ev.CleanedUp(at=AT))
    return after


def asked(session: str) -> Approval:
    return Approval(
        id=f"ask-{session}",
        session=session,
        entry=1,
        index=0,
        tool="exec",
        arguments="{}",
        digest="d",
        state="waiting",
        asked_at=AT,
        expires_at=AT + 60,
    )


FAILED = replace(DONE, ended=replace(DONE.ended, outcome=Failed("no")))
LATE = replace(DONE, ended=replace(DONE.ended, outcome=TimedOut()))


def some_runs(tx: Tx) -> None:
    """One run or more for each filter, below two roots; the last two were admitted at the same time."""
    conversation(tx, MAIN, SIDE)
    family = [("old", MAIN), ("done", MAIN), ("bad", MAIN), ("late", SIDE), ("plan", MAIN), ("asks", "plan")]
    for at, (key, parent) in enumerate(family):
        admit(tx, key, parent, AT + at)
    for key in ("stuck", "moved"):
        admit(tx, key, MAIN, AT + 9)
        tx.sessions.open(key, "subagent", MAIN, 1, FACTS, AT)
        queue(tx, key)
        claim(tx, key)
        put_into(tx, key, Running(due_at=None, stuck_at=AT + 20))
    tx.drivers.progress("moved", AT + 50, step_open=True)
    put_into(tx, "old", Archived(DONE.ended, DONE.delivery, due_at=None))
    put_into(tx, "done", DONE)
    put_into(tx, "bad", FAILED)
    put_into(tx, "late", LATE)
    put_into(tx, "plan", AwaitingApproval(due_at=AT + 99, plan=None))
    put_into(tx, "asks", Asking(due_at=AT + 99))
    tx.approvals.ask(asked("asks"))
    tx.inbox.put("lost", None, "outcome", "done", "{}", AT)
    tx.inbox.give_up("lost", AT)


class RowConformance:
    """Lists of runs and sessions."""

    @pytest.mark.parametrize(
        ("name", "found"),
        [
            ("all", ["moved", "stuck", "asks", "plan", "late", "bad", "done"]),
            ("active", ["moved", "stuck", "asks", "plan"]),
            ("done", ["late", "bad", "done"]),
            ("waiting", ["asks", "plan"]),
            ("stuck", ["stuck"]),
            ("failed", ["late", "bad"]),
            ("undelivered", ["done"]),
        ],
    )
    def test_each_filter_finds_its_runs_newest_first(self, bench: Bench, name: RunFilter, found: list[str]) -> None:
        bench.do(some_runs)
        walk = RunWalk(filter=name)
        assert keys(bench.see(lambda tx: tx.lists.runs(walk, None, 9))) == found
        assert keys(bench.see(lambda tx: tx.lists.runs(walk, None, 1))) == found[:1]
        behind = bench.see(lambda tx: tx.lists.runs(walk, None, 1))[0].mark
        assert keys(bench.see(lambda tx: tx.lists.runs(walk, behind, 9))) == found[1:]
        counts = bench.see(lambda tx: tx.lists.counts())
        assert (counts.all - counts.active if name == "done" else getattr(counts, name)) == len(found)

    def test_a_walk_stays_within_its_root_its_requester_and_its_time(self, bench: Bench) -> None:
        bench.do(some_runs)

        def found(**walk: str | float) -> list[str]:
            return keys(bench.see(lambda tx: tx.lists.runs(RunWalk(**walk), None, 9)))  # type: ignore[arg-type]

        assert found(root=SIDE) == ["late"]
        assert found(root=MAIN) == ["moved", "stuck", "asks", "plan", "bad", "done"]
        assert found(root=MAIN, filter="failed") == ["bad"]
        assert found(root=MAIN, filter="waiting") == ["asks", "plan"]
        assert found(requester="plan") == ["asks"]
        assert found(requester="plan", filter="active") == ["asks"]
        assert found(requester=MAIN) == ["moved", "stuck", "plan", "bad", "done"]
        assert found(since=AT + 5) == ["moved", "stuck", "asks"]
        assert found(until=AT + 3) == ["bad", "done"]
        assert found(since=AT + 2, until=AT + 3) == ["bad"]
        assert found(root="agent:main:nobody") == []

    def test_a_run_that_changes_between_two_pages_is_neither_lost_nor_doubled(self, bench: Bench) -> None:
        bench.do(some_runs)
        first = bench.see(lambda tx: tx.lists.runs(RunWalk(), None, 4))

        def change(tx: Tx) -> None:
            admit(tx, "new", MAIN, AT + 20)
            put_into(tx, "plan", DONE)
            put_into(tx, "done", FAILED)
            put_into(tx, "bad", FAILED)

        bench.do(change)
        rest = bench.see(lambda tx: tx.lists.runs(RunWalk(), first[-1].mark, 9))
        assert keys(first) + keys(rest) == ["moved", "stuck", "asks", "plan", "late", "bad", "done"]
        assert first[0].mark == RunMark(AT + 9, first[1].mark.number + 1)

    def test_counts_are_those_of_the_folder_of_a_tree_or_of_a_sessions_own_children(self, bench: Bench) -> None:
        assert bench.see(lambda tx: tx.lists.counts()) == RunCounts()
        bench.do(some_runs)
        counts = [
            bench.see(lambda tx: tx.lists.counts(root=MAIN)),
            bench.see(lambda tx: tx.lists.counts(root=SIDE)),
            bench.see(lambda tx: tx.lists.counts(requester="plan")),
        ]
        assert counts == [
            RunCounts(all=6, active=4, waiting=2, stuck=1, failed=1, undelivered=1),
            RunCounts(all=1, failed=1),
            RunCounts(all=1, active=1, waiting=1),
        ]

    def test_counters_equal_a_full_count_after_every_change_and_after_one_that_is_undone(self, bench: Bench) -> None:
        def check() -> RunCounts:
            assert bench.see(lambda tx: tx.lists.miscounted()) == []
            return bench.see(lambda tx: tx.lists.counts())

        bench.do(some_runs)
        assert check().all == 7
        bench.do(lambda tx: put_into(tx, "bad", DONE))
        assert check().failed == 1
        bench.do(lambda tx: put_into(tx, "late", Archived(LATE.ended, LATE.delivery, due_at=None)))
        assert (check().all, check().failed) == (6, 0)

        def undone(tx: Tx) -> None:
            tx.runs.forget("stuck")
            put_into(tx, "done", FAILED)
            raise ValueError("not this time")

        with pytest.raises(ValueError, match="not this time"):
            bench.do(undone)
        assert (check().all, check().failed) == (6, 0)
        for key in ("old", "done", "bad", "late", "plan", "asks", "stuck", "moved"):
            bench.do(lambda tx, key=key: tx.runs.forget(key))  # type: ignore[misc]
            check()
        assert check() == RunCounts()

    def test_a_parent_is_active_as_long_as_something_below_it_is_unsettled(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, MAIN)
            admit(tx, "parent")
            put_into(tx, "parent", DONE)
            child(tx, "parent")

        def active() -> list[str]:
            assert bench.see(lambda tx: tx.lists.miscounted()) == []
            return keys(bench.see(lambda tx: tx.lists.runs(RunWalk(filter="active"), None, 9)))

        bench.do(job)
        assert active() == ["parent"]
        bench.do(lambda tx: tx.sessions.child_settled("parent"))
        assert active() == []
        bench.do(lambda tx: tx.sessions.child_unsettled("parent"))
        assert active() == ["parent"]

    def test_children_are_listed_with_the_active_ones_first(self, bench: Bench) -> None:
        bench.do(some_runs)
        page = bench.see(lambda tx: tx.lists.children(MAIN, 9))
        assert page.keys == ["plan", "stuck", "moved", "done", "bad"]

    def test_the_newest_children_come_with_the_active_ones_first(self, bench: Bench) -> None:
        bench.do(some_runs)
        found = bench.see(lambda tx: tx.lists.children(MAIN, 4, newest=True))
        assert found.keys == ["moved", "stuck", "plan", "bad"]
        assert (found.active, found.done) == (3, 2)

    def test_a_run_knows_its_root(self, bench: Bench) -> None:
        bench.do(some_runs)
        listed = {one.key: one for one in bench.see(lambda tx: tx.lists.runs(RunWalk(), None, 9))}
        assert (listed["asks"].root, listed["late"].root) == (MAIN, SIDE)
        assert bench.see(lambda tx: tx.lists.run("asks")) == listed["asks"]
        archived = bench.see(lambda tx: tx.lists.run("old"))
        assert archived is not None
        assert (archived.root, archived.mark.at) == (MAIN, AT)
        assert bench.see(lambda tx: tx.lists.run("nobody")) is None
        assert bench.see(lambda tx: tx.lists.stuck()) == ["stuck"]

    def test_what_each_agent_began_and_spent_is_counted_by_day(self, bench: Bench) -> None:
        day = 86400.0

        def job(tx: Tx) -> None:
            for key in ("agent:main:main", "agent:critic:side"):
                tx.sessions.open(key, "named", None, 0, FACTS, AT)
            for key, at, cost in (
                *(("agent:main:main", 100.2, 0.5), ("agent:main:main", 100.9, 0.25), ("agent:main:main", 101.0, None)),
                *(("agent:critic:side", 101.5, 1.0), ("agent:critic:side", 99.0, 2.0)),
            ):
                tx.transcripts.append(key, at * day, [("assistant", "{}")], Used(1, 1, cost))
            tx.sessions.delete("agent:main:main")

        bench.do(job)
        bench.do(lambda tx: admit(tx, "agent:critic:subagent:a"))
        began = int(AT // day)
        found = bench.see(lambda tx: tx.lists.agent_days(0))
        assert [one for one in found if one.day != began] == [
            AgentDay("critic", 99, 0, 2.0),
            AgentDay("main", 100, 0, 0.75),
            AgentDay("critic", 101, 0, 1.0),
        ]
        assert [one for one in found if one.day == began] == [AgentDay("critic", began, 1, None)]
        assert [one.day for one in bench.see(lambda tx: tx.lists.agent_days(101)) if one.day != began] == [101]

    def test_a_lane_is_in_the_order_of_its_claims_without_those_that_pause(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            queue(tx, "one", "two", "three")
            tx.queue.put("two", "subagent", MAIN, False, AT + 9)

        bench.do(job)
        assert bench.see(lambda tx: tx.queue.lane_order("subagent", 9)) == ["one", "three"]
        assert bench.see(lambda tx: tx.queue.lane_order("subagent", 1)) == ["one"]

    def test_what_is_below_a_session_has_cost_what_its_replies_did_even_once_they_are_deleted(
        self, bench: Bench
    ) -> None:
        def job(tx: Tx) -> None:
            conversation(tx, MAIN)
            tx.sessions.open("child", "subagent", MAIN, 1, FACTS, AT)
            tx.sessions.open("grandchild", "subagent", "child", 2, FACTS, AT)
            for session, cost in (("child", 0.5), ("grandchild", 0.25), (MAIN, 2.0), ("grandchild", None)):
                tx.transcripts.append(session, AT, [("assistant", "{}")], Used(1, 1, cost))

        bench.do(job)
        keys = (MAIN, "child", "grandchild", "no")
        assert bench.see(lambda tx: [tx.sessions.cost_below(key) for key in keys]) == [0.75, 0.25, None, None]
        bench.do(lambda tx: tx.sessions.delete("grandchild"))
        assert bench.see(lambda tx: tx.sessions.cost_below(MAIN)) == 0.75

    def test_sessions_are_listed_page_by_page_the_latest_active_first(self, bench: Bench) -> None:
        def job(tx: Tx) -> None:
            tx.sessions.open("agent:a:main", "main", None, 0, FACTS, AT)
            tx.sessions.open("agent:a:subagent:x", "subagent", "agent:a:main", 1, FACTS, AT + 1)
            tx.sessions.open("agent:b:main", "main", None, 0, FACTS, AT + 2)
            tx.sessions.open("agent:b:gone", "named", None, 0, FACTS, AT + 3)
            tx.sessions.delete("agent:b:gone")
            tx.transcripts.append("agent:a:main", AT + 9, [("user", "{}")])

        bench.do(job)

        def listed(agent: str = "", roots_only: bool = False, behind: tuple[float, str] | None = None) -> list[str]:
            found = bench.see(lambda tx: tx.lists.sessions(agent, roots_only, behind, 9))
            return [f"{one.session.key} {one.last_at - AT:.0f}" for one in found]

        assert listed() == ["agent:a:main 9", "agent:b:main 2", "agent:a:subagent:x 1"]
        assert listed(roots_only=True) == ["agent:a:main 9", "agent:b:main 2"]
        assert listed("a") == ["agent:a:main 9", "agent:a:subagent:x 1"]
        assert listed(behind=(AT + 9, "agent:a:main")) == ["agent:b:main 2", "agent:a:subagent:x 1"]
