"""Reservations whose caller is gone, on the real store."""

import pytest

from fledge.core.run import Queued, Spawning
from fledge.errors import NotFound
from fledge.orchestrator import spawn, turns
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@proves(
    "2.phases.4",
    "The commit that closes the caller's call (steer, kill, timeout, error), or 30 s, withdraws a reservation",
)
@pytest.mark.parametrize("way", ["steer", "kill", "timeout", "error", "30 s", "crash"])
def test_a_reservation_goes_with_the_call_that_asked_for_it_and_is_settled(scene: Scene, way: str) -> None:
    o = scene.orchestrator(timeout_s=20.0 if way == "timeout" else 0.0)
    key = scene.reserve(o)
    assert scene.run(key).phase == Spawning(due_at=scene.clock.now() + 30.0)
    assert scene.counts(o.session).unsettled == 1
    match way:
        case "steer":
            scene.steer(o.session)
        case "kill":
            scene.kill(o.session)
        case "timeout":
            scene.pass_time(20.0)
        case "error":
            scene.fail(o)
        case "30 s":
            scene.pass_time(29.9)
            assert scene.phase(key) == "spawning"
            scene.pass_time(0.1)
        case _:
            scene.crash()
    assert scene.read(lambda tx: tx.runs.find(key)) is None
    assert scene.read(lambda tx: tx.sessions.get(key)) is None
    assert scene.counts(o.session).unsettled == 0
    with pytest.raises(NotFound, match=f"no run {key}"):
        scene.commit(lambda c: spawn.prepared(c, key, o.generations))
    if way in ("timeout", "error"):
        assert scene.counts(MAIN).unsettled == 0


def test_a_folder_opens_after_the_third_crash_of_a_turn_that_had_begun_several_spawns(scene: Scene) -> None:
    main = scene.main()
    for _ in range(2):
        scene.commit(lambda c: turns.at_work(c, MAIN))
        scene.crash()
        main = scene.start(MAIN)
    keys = [scene.reserve(main) for _ in range(2)]
    scene.commit(lambda c: turns.at_work(c, MAIN))
    scene.crash()
    assert [run.key for run in scene.runs() if run.key in keys] == []
    assert scene.ended_as(MAIN, 1) == "crashed 3 times"
    assert scene.counts(MAIN).unsettled == 0


def test_a_run_that_waits_for_a_reservation_is_woken_when_that_expires(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.reserve(o)
    scene.wait(o)
    scene.pass_time(30.0)
    assert scene.run(o.session).phase == Queued()


@proves("4.steer.8")
@pytest.mark.parametrize("way", ["steer", "timeout"])
def test_open_calls_of_the_old_attempt_are_closed_in_that_commit_and_not_resumed(scene: Scene, way: str) -> None:
    o = scene.orchestrator(timeout_s=20.0)
    assert scene.ended_as(o.session, o.turn) is None
    if way == "steer":
        scene.steer(o.session)
    else:
        scene.pass_time(20.0)
    assert scene.ended_as(o.session, o.turn) == "interrupted"
    scene.exit(o)
    if way == "steer":
        assert scene.start(o.session).turn == o.turn + 1
