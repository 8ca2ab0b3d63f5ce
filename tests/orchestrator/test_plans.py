"""Plan rows, on the real store. M is main, O its child, W a child of O."""

import pytest

from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


def plan_key(scene: Scene, key: str, kind: str = "plan") -> str:
    return f"announce:v1:{key}:{scene.run(key).run_id}:{kind}"


@proves("2.phases.28")
@proves("2.hops.4", "A plan, late or expired row leaves the phase alone")
def test_reading_a_plan_leaves_it_undecided(scene: Scene) -> None:
    o = scene.orchestrator(plan=True)
    scene.finish(o, "1. look 2. do")
    assert scene.read_main() == [o.session]
    assert scene.row(plan_key(scene, o.session)).state == "consumed"
    run = scene.run(o.session)
    assert (run.phase.name, run.ended) == ("awaiting_approval", None)
    assert not scene.session(o.session).deleted


def test_a_plan_read_after_its_approval_does_not_touch_the_attempt_that_runs(scene: Scene) -> None:
    o = scene.orchestrator(plan=True)
    scene.finish(o, "1. look 2. do")
    key = plan_key(scene, o.session)
    scene.start(MAIN)
    scene.answer(o.session, True)
    again = scene.start(o.session)
    assert scene.row(key).state == "consumed"
    run = scene.run(o.session)
    assert (run.phase.name, run.plan, run.attempt) == ("running", "approved", 2)
    scene.finish(again, "it is done")
    assert scene.outcome_row(o.session).state == "unread"


@proves("3.plan.13", "A rejected plan is planned again with the reason, a new attempt")
def test_a_rejected_plan_is_planned_again_under_a_key_of_its_own(scene: Scene) -> None:
    o = scene.orchestrator(plan=True)
    scene.finish(o, "1. guess")
    first = plan_key(scene, o.session)
    assert scene.read_main() == [o.session]
    scene.answer(o.session, False, "REJECTED: no guessing")
    again = scene.start(o.session)
    assert scene.said(o.session)[-1] == "REJECTED: no guessing"
    scene.finish(again, "1. measure")
    second = plan_key(scene, o.session)
    assert second != first
    assert scene.row(second).state == "unread"
    assert scene.read_main() == [o.session]


@proves("3.plan.14", "Answer, expiry or kill withdraws an unread plan row")
@pytest.mark.parametrize("way", ["approve", "reject", "expiry", "kill"])
def test_answer_expiry_and_kill_withdraw_an_unread_plan_row(scene: Scene, way: str) -> None:
    o = scene.orchestrator(plan=True)
    scene.finish(o, "1. look 2. do")
    key = plan_key(scene, o.session)
    assert scene.row(key).state == "unread"
    match way:
        case "kill":
            scene.kill(o.session)
        case "expiry":
            scene.pass_time(24 * 3600.0)
        case _:
            scene.answer(o.session, way == "approve")
    assert scene.row(key).state == "suppressed"


@proves("2.phases.31", "A plan that awaits its answer is settled for its parent")
def test_a_plan_that_awaits_its_answer_does_not_hold_up_its_parent(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o, plan=True)
    scene.finish(o, "half of it")
    assert scene.phase(o.session) == "waiting"
    scene.finish(w, "1. look 2. do")
    assert scene.counts(o.session).unsettled == 0
    again = scene.start(o.session)
    assert scene.told(o.session) == [w.session]
    scene.finish(again, "all of it")
    assert scene.phase(o.session) == "announcing"


@proves("3.plan.15", "An answer makes the child unsettled for its parent again, upwards if need be")
@pytest.mark.parametrize("approve", [True, False])
def test_an_answer_makes_the_child_unsettled_again_upwards_through_ended_parents(scene: Scene, approve: bool) -> None:
    o = scene.orchestrator()
    w = scene.begin(o, plan=True)
    scene.finish(w, "1. look 2. do")
    assert scene.finish(o, "early") == "on"
    scene.finish(o, "all of it")
    assert (scene.counts(o.session).unsettled, scene.counts(MAIN).unsettled) == (0, 0)
    scene.answer(w.session, approve)
    assert (scene.counts(o.session).unsettled, scene.counts(MAIN).unsettled) == (1, 1)
    scene.kill(w.session)
    assert (scene.counts(o.session).unsettled, scene.counts(MAIN).unsettled) == (0, 0)
