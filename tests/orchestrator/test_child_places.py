"""Who takes a place among the active children (`maxChildrenPerAgent`), on the real store."""

import pytest
from msgspec.structs import replace

from fledge.core import policy
from fledge.core.run import Mode, Terms
from fledge.errors import Refused
from fledge.orchestrator import spawn
from fledge.store.base import Spec
from tests.model.world import CAP, MAIN
from tests.orchestrator.scene import PROGRAM, Scene, refused, scene_fixture

scene = pytest.fixture(scene_fixture)


def test_an_ended_child_keeps_its_place_while_a_plan_below_it_awaits_its_answer(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main)
    w = scene.begin(o, plan=True)
    scene.finish(w, "1. look 2. do")
    scene.fail(o)
    for _ in range(CAP - 1):
        scene.spawn(main)
    with refused(
        scene,
        "forbidden",
        f"active children {CAP} of {CAP}: agents.defaults.subagents.maxChildrenPerAgent",
    ):
        scene.spawn(main)
    scene.answer(w.session, True)
    assert scene.counts(MAIN).unsettled == CAP
    scene.kill(w.session)
    assert scene.spawn(main)


def test_a_session_that_outlived_its_run_takes_a_place_again_with_its_next_child(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main, mode="session")
    scene.finish(o, "ready")
    scene.check()
    others = [scene.spawn(main) for _ in range(CAP)]
    scene.send(o.session, "and now do this")
    again = scene.start(o.session)
    with refused(
        scene,
        "forbidden",
        f"active children {CAP} of {CAP}: agents.defaults.subagents.maxChildrenPerAgent, of {MAIN}",
    ):
        scene.spawn(again)
    scene.kill(others[-1])
    assert scene.spawn(again)
    assert scene.counts(MAIN).unsettled == CAP
    assert scene.spawn(again), "its place is taken once, not with every child"


def test_a_session_over_a_plan_never_gave_its_place_up(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main, mode="session")
    w = scene.begin(o, plan=True)
    scene.finish(w, "1. look 2. do")
    scene.finish(o, "ready")
    scene.finish(o, "read, and ready")
    scene.check()
    for _ in range(CAP - 1):
        scene.spawn(main)
    scene.send(o.session, "and now do this")
    assert scene.spawn(scene.start(o.session))
    assert scene.counts(MAIN).unsettled == CAP


def test_a_session_of_a_program_finds_a_place_whatever_the_program_has(scene: Scene) -> None:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    wide = policy.Limits(max_depth=3, max_children=99)

    def ask(mode: Mode) -> str:
        request = spawn.SpawnRequest(spec=Spec(task="work"), terms=Terms(parent=PROGRAM, mode=mode), limits=wide)
        return scene.commit(lambda c: spawn.spawn(c, request)).key

    o = scene.start(ask("session"))
    scene.finish(o, "ready")
    scene.check()
    for _ in range(CAP):
        ask("run")
    scene.send(o.session, "and now do this", None)
    assert scene.spawn(scene.start(o.session))


def test_the_cap_above_is_that_of_the_agent_above(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main, mode="session")
    scene.finish(o, "ready")
    scene.check()
    scene.spawn(main)
    scene.send(o.session, "and now do this")
    asked = scene.request(scene.start(o.session))
    caps = {"main": 1}
    with pytest.raises(Refused, match="active children 1 of 1"):
        scene.commit(lambda c: spawn.spawn(c, replace(asked, cap_of=lambda agent: caps[agent])))
    caps["main"] = 2
    assert scene.commit(lambda c: spawn.spawn(c, replace(asked, cap_of=lambda agent: caps[agent])))
