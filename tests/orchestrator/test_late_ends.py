"""Ends that come after the outcome, on the real store."""

from contextlib import closing

import pytest

from fledge.core.run import Failed, Ok
from fledge.orchestrator.commit import Listener
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


def plan_key(scene: Scene, key: str, kind: str = "plan") -> str:
    return f"announce:v1:{key}:{scene.run(key).run_id}:{kind}"


# ---- the key has a kind ----------------------------------------------------------------------------------------------


@proves("2.phases.33", "A plan expires after `plan.approvalHours`, 24 by default, and its requester reads that it did")
def test_an_expired_plan_is_told_although_its_plan_was_told_before(scene: Scene) -> None:
    o = scene.orchestrator(plan=True)
    scene.finish(o, "1. look 2. do")
    assert scene.read_main() == [o.session]
    scene.pass_time(24 * 3600.0)
    assert scene.row(plan_key(scene, o.session, "expired")).state == "unread"
    assert scene.read_main() == [o.session]
    assert "[PLAN EXPIRED]" in scene.said(MAIN)[-2]
    assert scene.ended(o.session).outcome == Failed("the plan was not answered in time")


@proves("2.kill.14", "Else it is one row of kind `late`")
@proves("2.kill.16", "A settled run's phase, hooks and counters do not change by it")
def test_a_late_complete_is_one_row_of_its_own_and_changes_neither_phase_nor_counters() -> None:
    with closing(Scene(hooks={"subagent_ended": (Listener("audit"),)})) as scene:
        o = scene.orchestrator()
        scene.fail(o, "lost the connection")
        assert scene.read_main() == [o.session]
        before, hooks, counts = scene.run(o.session), scene.sql("SELECT * FROM outbox"), scene.counts(MAIN)
        scene.complete_late(o.session, "here after all")
        after = scene.run(o.session)
        assert (after.phase, after.attempt) == (before.phase, before.attempt)
        assert scene.ended(o.session).outcome == Failed("lost the connection")
        assert (scene.sql("SELECT * FROM outbox"), scene.counts(MAIN)) == (hooks, counts)
        assert scene.row(plan_key(scene, o.session, "late")).state == "unread"
        assert scene.read_main() == [o.session]
        assert "here after all" in scene.said(MAIN)[-2]
        assert scene.run(o.session).phase == before.phase
        scene.check()


@proves("2.kill.13", "A foreign runtime's late complete refreshes the outcome's row while that is unread")
@proves("2.frozen.13")
def test_a_late_complete_refreshes_an_outcome_that_is_unread_and_writes_no_second_row(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.fail(o, "lost the connection")
    scene.complete_late(o.session, "here after all")
    assert scene.ended(o.session).outcome == Ok()
    assert [(row.kind, scene.text(row.text)) for row in scene.unread(MAIN)] == [("outcome", "here after all")]
    assert scene.read_main() == [o.session]
    assert "completed successfully" in scene.said(MAIN)[-2]
    assert "lost the connection" not in scene.said(MAIN)[-2]


# ---- a send's turn never refreshes -----------------------------------------------------------------------------------


@proves("2.frozen.15", "A send's turn never refreshes")
def test_the_answer_to_a_send_after_the_end_replaces_nothing(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main)
    scene.finish(o, "the answer")
    before = scene.outcome_row(o.session)
    scene.send(o.session, "thanks")
    serving = scene.start(o.session)
    scene.finish(serving, "you are welcome")
    assert scene.outcome_row(o.session) == before
    assert scene.result(o.session) == "the answer"
    scene.finish(main)
    scene.read_main()
    assert "the answer" in scene.said(MAIN)[-2]
    assert "you are welcome" not in scene.said(MAIN)[-2]
    assert scene.run(o.session).attempt == 1
