"""Slots are held by drivers, on the real store."""

from typing import Any

import pytest

from fledge.core.run import TimedOut
from fledge.orchestrator import turns
from fledge.orchestrator.turns import Drive
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


def two_in_a_lane_of_one(scene: Scene, **terms: Any) -> tuple[Drive, str]:
    main = scene.main()
    first = scene.spawn(main, lane="nested", **terms)
    second = scene.spawn(main, lane="nested")
    drive = scene.start(first)
    assert not scene.claim()
    return drive, second


@proves("2.phases.18")
def test_a_provisional_error_keeps_driver_and_slot(scene: Scene) -> None:
    drive, second = two_in_a_lane_of_one(scene)
    scene.commit(lambda c: turns.falter(c, drive, "overloaded"))
    assert scene.phase(drive.session) == "ending"
    assert not scene.claim()
    scene.commit(lambda c: turns.recovered(c, drive))
    assert scene.phase(drive.session) == "running"
    assert not scene.claim()
    scene.finish(drive)
    assert scene.start(second).epoch == 1


@proves(
    "2.kill.17", "A slot is held by the driver: from claim until it exits, or 5 s after it was superseded or stopped"
)
@pytest.mark.parametrize("way", ["steer", "kill", "timeout", "grace"])
def test_a_superseded_or_stopped_driver_holds_its_slot_for_5_seconds(scene: Scene, way: str) -> None:
    drive, second = two_in_a_lane_of_one(scene, timeout_s=60.0 if way == "timeout" else 0.0)
    match way:
        case "steer":
            scene.steer(drive.session)
        case "kill":
            scene.kill(drive.session)
        case "timeout":
            scene.pass_time(60.0)
            assert scene.ended(drive.session).outcome == TimedOut()
        case _:
            scene.commit(lambda c: turns.falter(c, drive, "overloaded"))
            scene.pass_time(15.0)
            assert scene.phase(drive.session) == "announcing"
    scene.clock.advance(4.9)
    assert scene.read(lambda tx: tx.queue.claimable({}, scene.clock.now(), 9)) == []
    scene.clock.advance(0.2)
    if way == "kill":
        scene.let_time_act()
    assert second in [place.session for place in scene.read(lambda tx: tx.queue.claimable({}, scene.clock.now(), 9))]


@proves("2.kill.17")
@pytest.mark.parametrize("way", ["steer", "kill", "timeout"])
def test_a_superseded_or_stopped_driver_that_exits_frees_its_slot_at_once(scene: Scene, way: str) -> None:
    drive, second = two_in_a_lane_of_one(scene, timeout_s=60.0 if way == "timeout" else 0.0)
    match way:
        case "steer":
            scene.steer(drive.session)
        case "kill":
            scene.kill(drive.session)
        case _:
            scene.pass_time(60.0)
    scene.exit(drive)
    assert scene.claim()
    assert len([key for key in scene.drives if key in (drive.session, second)]) == 1


def test_a_steered_run_is_not_driven_again_beside_its_old_driver(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.steer(o.session)
    assert not scene.claim()
    scene.clock.advance(5.0)
    assert scene.claim()
    assert scene.drives[o.session].epoch > o.epoch
