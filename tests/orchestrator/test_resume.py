"""Resume, on the real store: an ended run goes on in the same session, is told once, and is admitted like a spawn.
M is main, O its child, W a child of O."""

from contextlib import closing
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from fledge.core import policy
from fledge.core.policy import Budget
from fledge.core.progress import Progress
from fledge.core.run import Delivered, Killed, Ok, Run, Skipped, TimedOut
from fledge.errors import StaleWrite
from fledge.openclaw import PastRun
from fledge.orchestrator import budget, control, messages, spawn, turns
from fledge.orchestrator.commit import Commit, Listener
from fledge.orchestrator.importing import import_run
from fledge.store.base import BudgetAccount, InboxRowKind
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


# ---- what the end had left unread ------------------------------------------------------------------------------------


def put(c: Commit, session: str, kind: InboxRowKind) -> None:
    c.tx.inbox.put(f"x:{kind}", session, kind, None, f"the {kind}", c.at)


@proves("4.resume.14")
def test_a_result_that_the_kill_suppressed_is_read_by_the_resumed_run_and_no_child_was_silent(scene: Scene) -> None:
    o = scene.orchestrator()
    read = scene.begin(o)
    scene.finish(read, "read before")
    assert scene.finish(o, "so far") == "on"
    unread = scene.begin(o)
    scene.finish(unread, "not read yet")
    scene.kill(o.session)
    scene.exit(o)
    assert scene.run(unread.session).delivery == Skipped("suppressed")
    resume(scene, o.session)
    assert scene.phase(unread.session) == "announcing"
    again = scene.start(o.session)
    assert scene.told(o.session) == [read.session, unread.session]
    assert isinstance(scene.run(unread.session).delivery, Delivered)
    assert scene.commit(lambda c: c.tx.runs.name_silent(o.session)) == []
    scene.finish(again, "all of it")
    assert scene.read_main() == [o.session]


@proves("4.resume.16", "Messages, orders and answers that the end of a run left unread are read once it is resumed")
@pytest.mark.parametrize("kind", ["task", "steer", "wake", "approval", "notice", "send"])
def test_every_kind_of_message_that_a_kill_left_unread_is_read_once_after_the_resume(
    scene: Scene, kind: InboxRowKind
) -> None:
    o = scene.orchestrator()
    scene.commit(partial(put, session=o.session, kind=kind))
    for _ in range(2):
        scene.kill(o.session)
        scene.exit(o)
        resume(scene, o.session)
    scene.start(o.session)
    assert scene.said(o.session).count(f"the {kind}") == 1


@proves("4.resume.16")
@pytest.mark.parametrize("kind", ["steer", "approval"])
def test_an_order_that_a_failed_run_left_unread_is_read_after_the_resume(scene: Scene, kind: InboxRowKind) -> None:
    o = scene.orchestrator()
    scene.commit(partial(put, session=o.session, kind=kind))
    scene.fail(o)
    assert scene.read_main() == [o.session]
    resume(scene, o.session)
    scene.start(o.session)
    assert scene.said(o.session).count(f"the {kind}") == 1


def test_a_caller_who_waits_for_its_message_gets_the_answer_of_the_resumed_run(scene: Scene) -> None:
    o = scene.orchestrator()
    asked = scene.commit(lambda c: messages.accept_request(c, o.session, "and the tests?"))
    scene.kill(o.session)
    scene.exit(o)
    standing = partial(messages.request_standing, run_id=asked.run_id)
    assert scene.read(standing).status == "error"
    resume(scene, o.session)
    assert scene.read(standing).status == "pending"
    scene.finish(scene.start(o.session), "they pass")
    assert scene.read(standing).status == "ok"


def test_a_result_that_came_late_for_a_killed_requester_is_read_by_it_after_the_resume(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.fail(w)
    scene.kill(o.session)
    scene.exit(o)
    scene.complete_late(w.session, "it works after all")
    resume(scene, o.session)
    scene.start(o.session)
    assert scene.told(o.session) == [w.session] * 2
    assert scene.row(f"announce:v1:{w.session}:{scene.run(w.session).run_id}:late").state == "consumed"


@pytest.mark.parametrize("cleanup", ["keep", "delete"])
def test_a_result_is_read_though_its_run_was_archived_or_deleted_meanwhile(scene: Scene, cleanup: str) -> None:
    o = scene.orchestrator(archive_after_s=7200.0)
    w = scene.begin(o, cleanup=cleanup, archive_after_s=60.0)
    scene.finish(w, "found it")
    scene.kill(o.session)
    scene.exit(o)
    scene.pass_time(600.0)
    assert scene.phase(w.session) == "archived"
    resume(scene, o.session)
    scene.finish(scene.start(o.session), "done")
    assert scene.told(o.session) == [w.session]
    assert [row.state for row in scene.read(lambda tx: tx.inbox.suppressed(o.session))] == []


def test_a_plan_of_a_child_that_the_kill_ended_stays_withdrawn(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o, plan=True)
    scene.finish(w, "1. dig")
    scene.kill(o.session)
    scene.exit(o)
    resume(scene, o.session)
    assert [row.kind for row in scene.unread(o.session)] == ["steer"]


# ---- after an error or a timeout -------------------------------------------------------------------------------------


@proves("4.resume.13")
def test_a_failed_run_goes_on_and_announces_its_own_end_once(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.step(o, "half of it")
    scene.fail(o, "no model")
    words = "w has ended, and its result is still unread: try again once it is read"
    with refused(scene, "error", words):
        resume(scene, o.session)
    assert scene.read_main() == [o.session]
    resume(scene, o.session, "try the other one")
    again = scene.start(o.session)
    assert scene.said(o.session)[-1] == (
        "You ended with an error before you had finished (no model), and go on now. What you have done so far stands."
        "\n\ntry the other one"
    )
    scene.finish(again, "all of it")
    assert scene.ended(o.session).outcome == Ok()
    assert scene.read_main() == [o.session]
    assert scene.phase(o.session) == "completed"


@proves("4.resume.17", "The timeouts of a resumed run begin anew")
def test_a_run_that_timed_out_has_its_whole_time_again(scene: Scene) -> None:
    o = scene.orchestrator(timeout_s=60.0)
    scene.step(o, "half of it")
    scene.pass_time(60.0)
    assert scene.ended(o.session).outcome == TimedOut()
    scene.exit(o)
    assert scene.read_main() == [o.session]
    resume(scene, o.session)
    again = scene.start(o.session)
    scene.pass_time(59.0)
    scene.finish(again, "just in time")
    assert scene.ended(o.session).outcome == Ok()


@proves("4.resume.13")
def test_a_run_that_was_given_up_goes_on_and_leaves_the_undelivered_list(scene: Scene) -> None:
    drive = for_a_program(scene)
    scene.fail(drive)
    scene.pass_time(1800.0)
    assert scene.phase(drive.session) == "completed_giveup"
    assert len(scene.read(lambda tx: tx.inbox.undelivered())) == 1
    resume(scene, drive.session)
    assert scene.read(lambda tx: tx.inbox.undelivered()) == []
    scene.finish(scene.start(drive.session), "after all")
    assert scene.read_result(drive.session) == "after all"


@proves("4.resume.18", "A run that ended at maxSteps or without progress is resumed with these counts at 0")
@pytest.mark.parametrize("progress", [Progress(steps=1000), Progress(repeats=(100, 0, 0))])
def test_the_counts_of_steps_and_repeats_begin_anew(scene: Scene, progress: Progress) -> None:
    o = scene.orchestrator()

    def spin(c: Commit) -> None:
        turn = c.tx.turns.get(o.session)
        assert turn is not None
        c.tx.turns.save(replace(turn, progress=progress))

    scene.commit(spin)
    scene.fail(o, "no progress", "limit")
    assert scene.read_main() == [o.session]
    resume(scene, o.session)
    scene.start(o.session)
    turn = scene.read(lambda tx: tx.turns.get(o.session))
    assert turn is not None
    assert turn.progress == Progress()


def test_the_children_of_a_run_that_timed_out_work_on_and_answer_to_it_after_the_resume(scene: Scene) -> None:
    o = scene.orchestrator(timeout_s=60.0)
    w = scene.begin(o)
    scene.pass_time(60.0)
    scene.exit(o)
    assert scene.read_main() == [o.session]
    resume(scene, o.session)
    assert [scene.counts(key).unsettled for key in (MAIN, o.session)] == [1, 1]
    again = scene.start(o.session)
    scene.finish(w, "found it")
    assert scene.finish(again, "early") == "on"
    scene.finish(again, "all of it")
    assert scene.told(o.session) == [w.session]
    assert scene.read_main() == [o.session]


# ---- refused ---------------------------------------------------------------------------------------------------------


@proves("4.resume.5")
def test_a_run_that_was_not_killed_is_refused(scene: Scene) -> None:
    o = scene.orchestrator()
    with refused(scene, "done", "w is running and has not ended: steer it, or send it a message"):
        resume(scene, o.session)
    scene.finish(o, "done")
    with refused(scene, "done", "w has ended (ok): send it a message, or run it again"):
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
    scene.commit(partial(budget.give, session=MAIN, budget=Budget(turns=0)))
    with refused(scene, "forbidden", "the tree's budget is spent: agents.defaults.subagents.budget"):
        resume(scene, key)


@proves("4.resume.15", "A run whose own budget is used up is resumed with a new budget only, which counts from then on")
def test_a_run_that_has_used_up_its_budget_needs_a_new_one(scene: Scene) -> None:
    key = killed(scene, "half")
    scene.commit(partial(budget.give, session=key, budget=Budget(turns=0)))
    with refused(scene, "forbidden", "the budget of w is used up (0 turns): resume it with a new one: budget"):
        resume(scene, key)
    scene.commit(lambda c: spawn.resume(c, key, "", LIMITS, lambda agent_id: CAP, Budget(turns=1)))
    assert scene.read(lambda tx: tx.budgets.get(key)) == BudgetAccount(key, Budget(turns=1))
    scene.finish(scene.start(key), "whole")
    assert scene.read_main() == [key]


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
