"""§6 of the contract, where no other test would fail: what leaves the lists, how long what is kept, hooks in order."""

from contextlib import closing
from pathlib import Path

import pytest

from fledge.api.views import forest
from fledge.commands import lines
from fledge.core.run import Delivered, Terms
from fledge.orchestrator import control, spawn
from fledge.orchestrator.views import child_rows
from fledge.store.base import Spec
from tests.model.world import LIMITS, MAIN
from tests.orchestrator.scene import PROGRAM, Scene, child_in, for_a_program, scene_fixture
from tests.orchestrator.stage import Theatre, World, in_turns, rules, works
from tests.statements import proves

scene = pytest.fixture(scene_fixture)

DAY_S = 86400.0


@proves("6.sweep.9", "An archived run leaves the lists")
def test_an_archived_run_leaves_the_lists(scene: Scene) -> None:
    key = child_in(scene, "completed")
    assert [row.key for row in scene.read(lambda tx: child_rows(tx, MAIN))] == [key]
    assert len(scene.read(lambda tx: lines.tree(forest(tx, [MAIN], 10).runs, DAY_S))) == 1
    scene.pass_time(3600.0)
    assert scene.phase(key) == "archived"
    assert scene.read(lambda tx: child_rows(tx, MAIN)) == []
    assert scene.read(lambda tx: lines.tree(forest(tx, [MAIN], 10).runs, DAY_S)) == []


@proves("6.sweep.9")
def test_an_archived_run_is_shown_while_something_below_it_is(scene: Scene) -> None:
    o = scene.orchestrator(archive_after_s=10.0)
    w = scene.begin(o)
    scene.finish(w, "NO_REPLY")
    scene.finish(o, "NO_REPLY")
    scene.pass_time(10.0)
    assert [scene.phase(key) for key in (o.session, w.session)] == ["archived", "completed"]
    assert [line.split(" · ")[1] for line in scene.read(lambda tx: lines.tree(forest(tx, [MAIN], 10).runs, DAY_S))] == [
        "archived (ok)",
        "completed (ok)",
    ]


@proves("6.sweep.10", "A kept session stays readable for `retention.keptDays` 30 after the archive")
@proves("6.sweep.12")
@pytest.mark.parametrize(("kept_days", "timeline_days"), [(3.0, 30.0), (30.0, 3.0), (3.0, 3.0)])
def test_a_kept_session_and_a_timeline_stay_for_their_days_after_the_archive(
    scene: Scene, kept_days: float, timeline_days: float
) -> None:
    o = scene.orchestrator(kept_s=kept_days * DAY_S, timeline_s=timeline_days * DAY_S)
    scene.finish(o, "the answer")
    scene.read_main()
    scene.pass_time(3600.0)
    assert scene.phase(o.session) == "archived"
    day = 0.0
    while day < max(kept_days, timeline_days) - 1:
        scene.pass_time(DAY_S)
        day += 1
        assert bool(scene.entries(o.session)) is (day < kept_days), f"day {day}"
        assert scene.phase(o.session) == "archived"
        assert scene.result(o.session) == "the answer"
    scene.pass_time(DAY_S)
    assert scene.read(lambda tx: tx.runs.find(o.session)) is None
    assert scene.read(lambda tx: tx.sessions.get(o.session)) is None


@proves("6.sweep.11", "`archive.deleteKept: true` removes it at once")
def test_delete_kept_removes_a_kept_session_with_the_archive_and_the_timeline_stays() -> None:
    with closing(Scene(delete_kept=True)) as scene:
        key = child_in(scene, "completed")
        assert scene.entries(key) != []
        scene.pass_time(3600.0)
        assert scene.phase(key) == "archived"
        assert scene.session(key).deleted
        assert scene.entries(key) == []
        assert len(scene.read(lambda tx: tx.events.of(key))) >= 6
        scene.check()


@proves("6.hooks.5", "ended comes after the announce for completion runs")
@pytest.mark.parametrize(("expects", "told_at", "called_at"), [(True, 10.0, 10.0), (False, 10.25, 1.0)])
def test_the_ended_hook_comes_after_the_announce_unless_nobody_waits_for_it(
    tmp_path: Path, expects: bool, told_at: float, called_at: float
) -> None:
    async def body(world: World) -> None:
        await world.send()
        await world.spawn("a", expects=expects)
        await world.clock.sleep(20)
        assert world.driven("main") == [0.0, told_at]
        assert world.performer.called == [(called_at, "subagent_ended")]

    scripts = {"main": in_turns(works(10)), "a": works(1, "done")}
    Theatre(tmp_path).act(body, scripts, rules(hooks=("subagent_ended",)))


# ---- what nobody reads -----------------------------------------------------------------------------------------------


def orphan_of_a_program(scene: Scene) -> str:
    """A grandchild of a program whose parent has failed and was read."""
    o = for_a_program(scene)
    w = scene.begin(o, stuck_after_s=1e9)
    scene.fail(o)
    scene.read_result(o.session)
    scene.finish(w, "found it")
    assert scene.outcome_row(w.session).session == PROGRAM
    return w.session


@proves("2.arbitration.14")
def test_what_was_handed_up_to_a_program_is_read_through_its_handle(scene: Scene) -> None:
    key = orphan_of_a_program(scene)
    assert scene.read_result(key) == "found it"
    assert scene.run(key).delivery == Delivered("direct")
    assert scene.outcome_row(key).state == "consumed"
    (trace,) = scene.traces(scene.outcome_row(key).key)
    assert trace.requester == PROGRAM


@proves("4.code.4")
def test_what_was_handed_up_to_a_program_that_never_reads_is_given_up_after_half_an_hour(scene: Scene) -> None:
    key = orphan_of_a_program(scene)
    scene.pass_time(1799.0)
    assert scene.phase(key) == "announcing"
    scene.pass_time(1.0)
    assert scene.phase(key) == "completed_giveup"
    assert [row.source for row in scene.read(lambda tx: tx.inbox.undelivered())] == [key]


def late_and_nobody_there(scene: Scene) -> str:
    """A run whose late answer found no conversation."""
    o = scene.orchestrator()
    scene.fail(o, "lost the connection")
    scene.read_main()
    scene.delete()
    scene.complete_late(o.session, "here after all")
    assert [row.kind for row in scene.read(lambda tx: tx.inbox.undelivered())] == ["late"]
    return o.session


@proves("0.lost.4")
def test_a_late_answer_that_found_nobody_can_be_dismissed(scene: Scene) -> None:
    key = late_and_nobody_there(scene)
    scene.commit(lambda c: control.dismiss(c, key))
    assert scene.read(lambda tx: tx.inbox.undelivered()) == []
    scene.pass_time(3600.0)
    assert scene.phase(key) == "archived"


@proves("0.lost.3")
def test_a_late_answer_that_found_nobody_can_be_retried_once_somebody_is_there(scene: Scene) -> None:
    key = late_and_nobody_there(scene)
    scene.commit(lambda c: control.retry(c, key))
    assert [row.kind for row in scene.read(lambda tx: tx.inbox.undelivered())] == ["late"], "in vain"
    scene.commit(lambda c: spawn.open_conversation(c, MAIN))
    scene.commit(lambda c: control.retry(c, key))
    assert scene.read(lambda tx: tx.inbox.undelivered()) == []
    assert scene.read_main() == [key]
    assert "here after all" in scene.said(MAIN)[-2]
    scene.pass_time(3600.0)
    assert scene.phase(key) == "archived"


@proves("2.hops.17")
def test_a_late_answer_that_found_nobody_leaves_the_list_after_seven_days(scene: Scene) -> None:
    key = late_and_nobody_there(scene)
    scene.pass_time(7 * DAY_S - 60.0)
    assert len(scene.read(lambda tx: tx.inbox.undelivered())) == 1
    scene.pass_time(120.0)
    assert scene.read(lambda tx: tx.inbox.undelivered()) == []
    assert scene.phase(key) == "archived"


@proves("4.code.4")
def test_a_plan_that_expires_unread_by_its_program_is_given_up_and_its_run_archived(scene: Scene) -> None:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    request = spawn.SpawnRequest(spec=Spec(task="work"), terms=Terms(parent=PROGRAM, plan=True), limits=LIMITS)
    drive = scene.start(scene.commit(lambda c: spawn.spawn(c, request)).key)
    scene.finish(drive, "1. look")
    scene.pass_time(DAY_S)
    assert [row.kind for row in scene.unread(PROGRAM)] == ["expired"]
    scene.pass_time(3600.0)
    assert [row.kind for row in scene.read(lambda tx: tx.inbox.undelivered())] == ["expired"]
    scene.pass_time(7 * DAY_S)
    assert scene.phase(drive.session) == "archived"
