"""§6 of the contract, where no other test would fail: what leaves the lists, how long what is kept, hooks in order."""

from contextlib import closing
from pathlib import Path

import pytest

from fledge.cli.render import tree_lines
from fledge.orchestrator.views import child_rows
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, child_in, scene_fixture
from tests.orchestrator.stage import Theatre, World, in_turns, rules, works

scene = pytest.fixture(scene_fixture)

DAY_S = 86400.0


def test_an_archived_run_leaves_the_lists(scene: Scene) -> None:
    key = child_in(scene, "completed")
    assert [row.key for row in scene.read(lambda tx: child_rows(tx, MAIN))] == [key]
    assert len(scene.read(lambda tx: tree_lines(tx, MAIN))) == 1
    scene.pass_time(3600.0)
    assert scene.phase(key) == "archived"
    assert scene.read(lambda tx: child_rows(tx, MAIN)) == []
    assert scene.read(lambda tx: tree_lines(tx, MAIN)) == []


def test_an_archived_run_is_shown_while_something_below_it_is(scene: Scene) -> None:
    o = scene.orchestrator(archive_after_s=10.0)
    w = scene.begin(o)
    scene.finish(w, "NO_REPLY")
    scene.finish(o, "NO_REPLY")
    scene.pass_time(10.0)
    assert [scene.phase(key) for key in (o.session, w.session)] == ["archived", "completed"]
    assert [line.split(" · ")[1] for line in scene.read(lambda tx: tree_lines(tx, MAIN))] == [
        "archived (ok)",
        "completed (ok)",
    ]


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
    assert scene.read(lambda tx: tx.find_run(o.session)) is None
    assert scene.read(lambda tx: tx.session(o.session)) is None


def test_delete_kept_removes_a_kept_session_with_the_archive_and_the_timeline_stays() -> None:
    with closing(Scene(delete_kept=True)) as scene:
        key = child_in(scene, "completed")
        assert scene.entries(key) != []
        scene.pass_time(3600.0)
        assert scene.phase(key) == "archived"
        assert scene.session(key).deleted
        assert scene.entries(key) == []
        assert len(scene.read(lambda tx: tx.events(key))) >= 6
        scene.check()


@pytest.mark.parametrize(("expects", "called_at"), [(True, 10.0), (False, 1.0)])
def test_the_ended_hook_comes_after_the_announce_unless_nobody_waits_for_it(
    tmp_path: Path, expects: bool, called_at: float
) -> None:
    async def body(world: World) -> None:
        await world.send()
        await world.spawn("a", expects=expects)
        await world.clock.sleep(20)
        assert world.driven("main") == [0.0, 10.0]
        assert world.performer.called == [(called_at, "subagent_ended")]

    scripts = {"main": in_turns(works(10)), "a": works(1, "done")}
    Theatre(tmp_path).act(body, scripts, rules(hooks=("subagent_ended",)))
