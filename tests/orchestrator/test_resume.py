"""Resume, on the real store: a killed run goes on in the same session, is told once, and is admitted like a spawn.
M is main, O its child, W a child of O."""

from contextlib import closing
from functools import partial

import msgspec
import pytest

from fledge.core import policy
from fledge.core.policy import Budget
from fledge.core.run import Killed, Ok, Run
from fledge.errors import StaleWrite
from fledge.openclaw import PastRun
from fledge.orchestrator import budget, control, spawn, turns
from fledge.orchestrator.commit import Listener
from fledge.orchestrator.importing import import_run
from tests.model.world import CAP, LIMITS, MAIN
from tests.orchestrator.scene import PROGRAM, Scene, for_a_program, refused, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


def resume(scene: Scene, key: str, words: str = "", limits: policy.Limits = LIMITS) -> Run:
    return scene.commit(lambda c: spawn.resume(c, key, words, limits, lambda agent_id: CAP))


def killed(scene: Scene, *said: str) -> str:
    """O, killed after a step with these words."""
    o = scene.orchestrator()
    scene.step(o, *said)
    scene.kill(o.session)
    scene.exit(o)
    assert scene.ended(o.session).outcome == Killed(named=True)
    return o.session


@proves("4.resume.1")
@proves("4.resume.4")
def test_a_killed_run_goes_on_with_its_transcript_and_is_told_once(scene: Scene) -> None:
    key = killed(scene, "half of it")
    before, first = scene.said(key), scene.run(key).run_id
    run = resume(scene, key, "mind the tests")
    assert (run.phase.name, run.attempt) == ("queued", 2)
    scene.finish(scene.start(key), "all of it")
    assert scene.said(key)[: len(before)] == before
    told = scene.said(key)[len(before)]
    assert told.startswith("You were stopped before you had finished, and go on now.")
    assert told.endswith("mind the tests")
    assert scene.ended(key).outcome == Ok()
    assert scene.read_main() == [key]
    assert scene.phase(key) == "completed"
    assert scene.read(lambda tx: [tx.runs.named(one) for one in (first, run.run_id)]) == [(key, 1), (key, 2)]


def test_one_that_was_killed_before_it_read_its_task_reads_it_once(scene: Scene) -> None:
    main = scene.main()
    key = scene.spawn(main)
    for _ in range(2):
        scene.kill(key)
        resume(scene, key)
    scene.start(key)
    assert scene.said(key) == ["work"]


@proves("4.resume.3")
def test_the_killed_attempts_driver_can_write_nothing_after_a_resume(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.kill(o.session)
    scene.pass_time(5.0)
    resume(scene, o.session)
    with pytest.raises(StaleWrite):
        scene.commit(lambda c: turns.finish(c, o, "too late"))
    scene.finish(scene.start(o.session), "in time")
    assert scene.read_main() == [o.session]
    assert "too late" not in scene.said(o.session)


@proves("4.resume.2")
def test_it_counts_for_its_parent_again_and_upwards_through_parents_that_had_settled(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.kill(w.session)
    scene.exit(w)
    scene.finish(o, "without it")
    assert scene.read_main() == [o.session]
    assert [scene.counts(key).unsettled for key in (MAIN, o.session)] == [0, 0]
    resume(scene, w.session)
    assert [scene.counts(key).unsettled for key in (MAIN, o.session)] == [1, 1]
    scene.finish(scene.start(w.session), "after all")
    assert [scene.counts(key).unsettled for key in (MAIN, o.session)] == [0, 0]
    assert scene.read_main() == [w.session]


@proves("4.resume.6", "What a kill ended below a run stays ended when the run is resumed")
def test_killed_children_stay_killed(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.kill(o.session)
    for drive in (o, w):
        scene.exit(drive)
    resume(scene, o.session)
    scene.finish(scene.start(o.session), "alone")
    assert scene.ended(w.session).outcome == Killed(named=False)
    assert scene.read_main() == [o.session]


def test_a_parent_that_was_told_of_a_silent_end_is_told_of_the_next_one_too(scene: Scene) -> None:
    o = scene.orchestrator()
    key = scene.spawn(o)
    for _ in range(2):
        scene.kill(key)
        assert scene.commit(lambda c: c.tx.runs.name_silent(o.session)) == [key]
        assert scene.commit(lambda c: c.tx.runs.name_silent(o.session)) == []
        resume(scene, key)


def test_a_program_reads_the_result_of_a_run_that_it_resumed(scene: Scene) -> None:
    drive = for_a_program(scene)
    scene.kill(drive.session)
    scene.exit(drive)
    resume(scene, drive.session)
    assert scene.read_result(drive.session) is None
    scene.finish(scene.start(drive.session), "after all")
    assert scene.read_result(drive.session) == "after all"
    assert scene.session(PROGRAM).kind == "program"


@proves("4.resume.7", "The ended hook fires again when a resumed run ends, with the new run id")
def test_the_ended_hook_fires_for_each_end() -> None:
    with closing(Scene(hooks={"subagent_ended": (Listener("audit"),)})) as scene:
        key = killed(scene, "half")
        ids = [scene.run(key).run_id, resume(scene, key).run_id]
        scene.finish(scene.start(key), "whole")
        scene.read_main()
        posts = scene.sql("SELECT key, body FROM outbox ORDER BY rowid")
        assert [name for name, _ in posts] == [f"hook:subagent_ended:audit:{key}{end}" for end in ("", ":1")]
        assert [msgspec.json.decode(body)["event"]["runId"] for _, body in posts] == ids


def test_a_message_that_is_being_answered_is_interrupted_and_the_run_goes_on(scene: Scene) -> None:
    key = killed(scene, "half")
    scene.send(key, "what was it?")
    answering = scene.start(key)
    assert answering.run is None
    resume(scene, key)
    with pytest.raises(StaleWrite):
        scene.commit(lambda c: turns.finish(c, answering, "it was nothing"))
    scene.exit(answering)
    scene.finish(scene.start(key), "whole")
    assert scene.read_main() == [key]


# ---- refused ---------------------------------------------------------------------------------------------------------


@proves("4.resume.5")
def test_a_run_that_was_not_killed_is_refused(scene: Scene) -> None:
    o = scene.orchestrator()
    with refused(scene, "done", "w is running, not killed: steer it, or send it a message"):
        resume(scene, o.session)
    scene.finish(o, "done")
    with refused(scene, "done", "w was not killed, it ended (ok): send it a message, or run it again"):
        resume(scene, o.session)


def test_a_run_whose_transcript_was_deleted_is_refused(scene: Scene) -> None:
    o = scene.orchestrator(cleanup="delete")
    scene.kill(o.session)
    scene.exit(o)
    words = "w was spawned with cleanup delete, so its transcript is gone: run it again"
    with refused(scene, "done", words):
        resume(scene, o.session)


def test_a_run_whose_session_was_deleted_is_refused(scene: Scene) -> None:
    key = killed(scene, "half")
    scene.commit(lambda c: control.delete_session(c, key))
    with refused(scene, "done", "w: its session was deleted: run it again"):
        resume(scene, key)


def test_a_run_under_a_killed_requester_is_refused(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.kill(o.session)
    for drive in (w, o):
        scene.exit(drive)
    words = "w, which it would answer to, was killed: resume that, or run it again"
    with refused(scene, "forbidden", words):
        resume(scene, w.session)
    resume(scene, o.session)
    assert resume(scene, w.session).phase.name == "queued"


@proves("4.resume.8", "A resumed run is admitted like a spawn: active children, depth and budget")
def test_limits_hold_for_a_resume_as_for_a_spawn(scene: Scene) -> None:
    main = scene.main()
    key = scene.spawn(main)
    scene.kill(key)
    for _ in range(CAP):
        scene.spawn(main)
    full = f"active children {CAP} of {CAP}: agents.defaults.subagents.maxChildrenPerAgent, of {MAIN}"
    with refused(scene, "forbidden", full):
        resume(scene, key)
    shallow = policy.Limits(max_depth=0, max_children=CAP)
    with refused(scene, "forbidden", "depth 0 of 0: agents.defaults.subagents.maxSpawnDepth"):
        resume(scene, key, limits=shallow)


@proves("4.resume.8")
def test_a_spent_budget_refuses_a_resume(scene: Scene) -> None:
    key = killed(scene, "half")
    scene.commit(partial(budget.give, session=key, budget=Budget(turns=0)))
    with refused(scene, "forbidden", "the tree's budget is spent: agents.defaults.subagents.budget"):
        resume(scene, key)


def test_a_run_that_was_imported_is_refused(scene: Scene) -> None:
    past = PastRun(
        key="agent:main:subagent:old",
        run_id="old",
        requester=MAIN,
        task="dig",
        label="",
        model="",
        cleanup="keep",
        result="",
        outcome=Killed(named=True),
        created_at=1.0,
        started_at=1.0,
        ended_at=2.0,
    )
    scene.commit(lambda c: import_run(c, past, ()))
    with refused(scene, "done", f"{past.key} was imported from another system: run it again"):
        resume(scene, past.key)


# ---- who would hear of another run -----------------------------------------------------------------------------------


@proves("4.resume.12")
def test_another_run_is_for_whoever_asked_or_the_nearest_above_that_is_there(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    requester = partial(spawn.present_requester, key=w.session)
    assert scene.read(requester) == o.session
    scene.kill(o.session)
    for drive in (w, o):
        scene.exit(drive)
    assert scene.read(requester) == MAIN
    scene.delete()
    words = "no requester of w is left to receive an answer: spawn it from a conversation"
    with refused(scene, "error", words):
        scene.read(requester)
