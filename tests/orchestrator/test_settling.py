"""Settling, on the real store: every child settles for its parent once, also one that leaves no row.
M is main, O its child, W a child of O."""

import pytest

from fledge.orchestrator import spawn
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@proves("2.announce.18")
@proves("2.nested.3", "That commit counts the parent down and wakes it where its condition now holds")
@pytest.mark.parametrize("end", ["kill", "ANNOUNCE_SKIP", "NO_REPLY"])
def test_a_child_that_ends_without_a_row_settles_and_the_wake_names_it(scene: Scene, end: str) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.finish(o, "half of it")
    if end == "kill":
        scene.kill(w.session)
        scene.exit(w)
    else:
        scene.finish(w, end)
    assert scene.counts(o.session).unsettled == 0
    assert scene.phase(o.session) == "queued"
    scene.start(o.session)
    wake = f'What you waited for is here. Ended without anything to tell: "w" ({w.session}).'
    assert scene.said(o.session)[-1] == wake
    assert scene.told(o.session) == []


@proves("2.phases.6", "A failed or withdrawn reservation is settled for the parent")
@pytest.mark.parametrize("end", ["failed", "30 s"])
def test_a_reservation_that_comes_to_nothing_settles_too(scene: Scene, end: str) -> None:
    o = scene.orchestrator()
    key = scene.reserve(o)
    scene.finish(o, "half of it")
    assert scene.phase(o.session) == "waiting"
    if end == "failed":
        scene.commit(lambda c: spawn.failed(c, key, "no space"))
    else:
        scene.pass_time(29.0)
        assert scene.phase(o.session) == "waiting"
        scene.pass_time(1.0)
    assert scene.phase(o.session) == "queued"
    scene.start(o.session)
    assert scene.said(o.session)[-1] == "What you waited for is here."


@proves("2.nested.2")
@proves("2.nested.4", "Settling goes on upwards through ended parents")
def test_settling_goes_on_upwards_through_parents_that_have_ended(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    p = scene.begin(o)
    w = scene.begin(p)
    scene.finish(o, "half of it")
    scene.fail(p)
    assert scene.counts(o.session).unsettled == 1
    assert scene.phase(o.session) == "waiting"
    scene.finish(w, "NO_REPLY")
    assert (scene.counts(p.session).unsettled, scene.counts(o.session).unsettled) == (0, 0)
    assert scene.phase(o.session) == "queued"
