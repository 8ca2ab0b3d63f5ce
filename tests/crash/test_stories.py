"""The stories that are crashed everywhere really hold what their names say, when nothing goes wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.orchestrator.commit import Commit
from fledge.store.base import Tx
from fledge.testing import InlineStore, VirtualClock, run_virtual
from tests.crash.at_points import ALL, points
from tests.crash.judgement import judge
from tests.crash.players import perform
from tests.crash.stories import runs

Happened = dict[str, list[ev.Event]]
ORDERS = ("steer", "kill", "resume", "send", "answer_plan", "remove")
DIRECTED = (ev.Yielded, ev.ChildrenSettled, ev.Steered, ev.KillOrdered, ev.Resumed, ev.PlanApproved, ev.PlanRejected)


class Told:
    """A story played through: what each run lived through, how all stood whenever people acted, what was wrong."""

    def __init__(self, name: str, folder: Path) -> None:
        story = ALL[name]
        self.seen: list[dict[str, str]] = []

        def look(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
            wanted = story.wishes(tx, at)
            if wanted:
                self.seen.append({label: run.phase.name for label, run in runs(tx).items()})
            return wanted

        run_virtual(perform(replace(story, wishes=look), InlineStore(folder), VirtualClock(), folder))
        store = InlineStore(folder)
        try:
            self.events: Happened = store.run(
                lambda tx: {label: tx.events.of(run.key) for label, run in runs(tx).items()}
            )
            self.wrong = store.run(lambda tx: judge(tx, story, folder, [])).wrong
        finally:
            store.close_now()

    def directed(self, label: str) -> list[str]:
        """What others did to a run, and its waits, by name."""
        return [type(event).__name__ for event in self.events[label] if isinstance(event, DIRECTED)]

    def at(self, label: str, kind: type[ev.Event]) -> float:
        """When this happened to a run, first."""
        return next(event.at for event in self.events[label] if isinstance(event, kind))


@pytest.mark.parametrize("name", ALL)
def test_a_story_ends_as_it_should_when_nothing_goes_wrong(name: str, tmp_path: Path) -> None:
    assert Told(name, tmp_path).wrong == []


def test_the_orchestrator_waits_for_three_workers_and_is_woken_once(tmp_path: Path) -> None:
    told = Told("main, an orchestrator, three workers", tmp_path)
    assert told.directed("o") == ["Yielded", "ChildrenSettled"]


def test_the_steer_comes_while_a_call_is_under_way(tmp_path: Path) -> None:
    told = Told("steered in the middle of a call", tmp_path)
    assert told.seen == [{"w": "running"}]
    assert told.directed("w") == ["Steered"]


def test_the_kill_comes_while_a_child_is_being_prepared(tmp_path: Path) -> None:
    told = Told("killed with a spawn in flight", tmp_path)
    assert told.seen == [{"parent": "running", "late": "spawning"}]
    assert told.directed("parent") == ["KillOrdered"]
    assert "late" not in told.events, "nothing of it is left"


def test_the_killed_run_is_resumed_and_its_child_is_not(tmp_path: Path) -> None:
    told = Told("killed with a child, and resumed", tmp_path)
    assert told.directed("back") == ["KillOrdered", "Resumed"]
    assert told.directed("below") == ["KillOrdered"]


def test_a_run_is_killed_with_its_childs_result_unread_and_reads_it_after_the_resume(tmp_path: Path) -> None:
    told = Told("killed after its child had ended, and resumed", tmp_path)
    assert told.directed("back") == ["KillOrdered", "Resumed"]
    names = [type(event) for event in told.events["below"]]
    assert names.index(ev.RowSuppressed) < names.index(ev.Revived) < names.index(ev.RowConsumed)


def test_a_plan_is_answered_by_the_second_message(tmp_path: Path) -> None:
    assert Told("a plan answered in odd words", tmp_path).directed("plan") == ["PlanApproved"]


def test_the_last_child_settles_in_the_moment_of_the_yield(tmp_path: Path) -> None:
    told = Told("the last child settles as its parent yields", tmp_path)
    assert told.at("w", ev.RowConsumed) == pytest.approx(told.at("w", ev.AttemptEnded), abs=0.01)
    assert told.directed("o") == [], "it was settled before: the yield reads its answer, and there is no wait"


def test_one_plan_is_approved_and_another_rejected_before(tmp_path: Path) -> None:
    told = Told("plans approved and rejected", tmp_path)
    assert told.directed("plan") == ["PlanApproved"]
    assert told.directed("again") == ["PlanRejected", "PlanApproved"]


def test_a_call_of_every_kind_is_made_in_the_story_of_calls() -> None:
    passed = points(ALL["every kind of call"])
    kinds = {point.partition(" ")[0] if point.startswith(("model", "compact")) else point for point in passed}
    tools = {f"tool {name}" for name in ("look", "again", "once", "slow", "exec")}
    assert kinds == {"model", "compact", "spawn", "runtime", "before answer", "after answer", *tools}


def test_every_order_is_given_in_the_story_of_orders() -> None:
    orders = {point for point in points(ALL["every order"]) if point.startswith(("before ", "after "))}
    assert orders == {f"{when} {order}" for when in ("before", "after") for order in ORDERS}
