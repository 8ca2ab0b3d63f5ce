"""What people and controllers do to running work, on the real store: send, answer a plan, retry, dismiss, read a
result. Each is one commit, and a refusal changes nothing."""

from functools import partial

import pytest

from fledge.core.run import (
    Announcing,
    Delivered,
    Failed,
    Ok,
    Queued,
    Terms,
    Undelivered,
    Waiting,
)
from fledge.orchestrator import control, spawn, turns
from fledge.store.base import Spec
from tests.model.world import LIMITS, MAIN
from tests.orchestrator.scene import NOBODY, PHASES, PROGRAM, Scene, child_in, for_a_program, refused, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


# ---- send ------------------------------------------------------------------------------------------------------------


@proves("7.input.4", "Nothing is changed by a refused send")
@pytest.mark.parametrize("message", ["", "\t "])
def test_a_send_without_words_is_refused(scene: Scene, message: str) -> None:
    with refused(scene, "bad input", "message: must not be empty"):
        scene.send(MAIN, message)


def test_a_send_to_nobody_or_to_a_deleted_session_finds_nothing(scene: Scene) -> None:
    with refused(scene, "error", f"no session {NOBODY}"):
        scene.send(NOBODY)
    scene.delete()
    with refused(scene, "error", f"no session {MAIN}"):
        scene.send(MAIN)


@proves("7.input.4")
@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        ("spawning", "w is spawning: it takes no messages"),
        ("archived", "w is archived: it takes no messages"),
        ("stopping", "w was killed and is stopping: it takes no messages"),
    ],
)
def test_what_is_being_prepared_or_is_over_for_good_takes_no_message(scene: Scene, phase: str, reason: str) -> None:
    key = child_in(scene, phase)
    with refused(scene, "done" if phase == "archived" else "error", reason.format(key=key)):
        scene.send(key)


@pytest.mark.parametrize("phase", [name for name in PHASES if name not in ("spawning", "archived", "stopping")])
def test_a_send_joins_live_work_and_gets_a_turn_where_none_is_coming(scene: Scene, phase: str) -> None:
    key = child_in(scene, phase)
    before = scene.run(key)
    row = scene.row(scene.send(key, "by the way"))
    assert (row.session, row.kind, row.source, row.body, row.state) == (key, "send", MAIN, "by the way", "unread")
    after = scene.run(key)
    if phase == "waiting":
        assert isinstance(before.phase, Waiting)
        assert after.phase == Queued(serving=before.phase)
    else:
        assert after == before
    place = scene.read(lambda tx: tx.queue.place(key))
    starts = ("queued", "waiting", "announcing", "announce_deferred", "completed", "completed_giveup")
    assert (place is not None) is (phase in starts)


def test_a_send_to_a_running_run_enters_at_its_next_step_boundary(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.send(o.session, "by the way")
    assert scene.step(o, "thinking") == 1
    assert scene.said(o.session) == ["work", "thinking", "by the way"]
    assert scene.step(o, "thinking on") == 0


@proves("4.send.2", "queued: it joins with the task")
def test_a_send_to_a_queued_run_enters_with_its_task(scene: Scene) -> None:
    key = scene.spawn(scene.main())
    scene.send(key, "by the way")
    scene.start(key)
    assert scene.said(key) == ["work", "by the way"]


@proves("2.phases.16", "waiting ends by a send, a steer or a kill")
@proves("4.send.5", "waiting: a turn under the same attempt and condition")
def test_a_send_to_a_waiting_run_gets_a_turn_under_the_same_attempt(scene: Scene) -> None:
    key = child_in(scene, "waiting")
    waiting = scene.run(key)
    scene.send(key, "how is it going?")
    drive = scene.start(key)
    assert drive.run is not None
    assert scene.said(key)[-1] == "how is it going?"
    scene.finish(drive, "well enough")
    after = scene.run(key)
    assert (after.phase, after.attempt, after.fallback) == (waiting.phase, 1, None)


def test_a_send_in_the_grace_of_an_error_enters_when_the_run_goes_on(scene: Scene) -> None:
    key = child_in(scene, "grace")
    drive = scene.drives[key]
    scene.send(key, "by the way")
    scene.commit(lambda c: turns.recovered(c, drive))
    assert scene.step(drive) == 1


@proves("3.plan.17", "Another send joins the inbox for the next attempt")
def test_a_send_to_a_plan_that_waits_is_read_by_the_attempt_that_follows(scene: Scene) -> None:
    key = child_in(scene, "awaiting_approval")
    scene.send(key, "mind the budget")
    assert not any(session == key for session in scene.claimable())
    scene.answer(key, True)
    scene.start(key)
    assert set(scene.said(key)[-2:]) == {"mind the budget", "APPROVED: proceed"}


@proves("4.send.9", "Outcome fixed: a turn, not an attempt, with no announce")
def test_a_send_after_the_end_is_answered_by_a_turn_that_announces_nothing(scene: Scene) -> None:
    key = child_in(scene, "completed")
    before = scene.run(key)
    scene.send(key, "one more question")
    drive = scene.start(key)
    assert drive.run is None
    scene.finish(drive, "one more answer")
    assert scene.run(key) == before
    assert scene.said(key)[-2:] == ["one more question", "one more answer"]
    assert scene.unread(MAIN) == []


def test_the_same_row_key_twice_is_one_message(scene: Scene) -> None:
    for words in ("hello", "hello again"):
        assert scene.commit(partial(control.send, key=MAIN, message=words, row_key="send:42")) == "send:42"
    assert [(row.key, row.body, row.source) for row in scene.unread(MAIN)] == [("send:42", "hello", None)]


# ---- plans -----------------------------------------------------------------------------------------------------------


@proves("7.input.6", "Nothing is changed by a refused answer, retry or dismissal")
@pytest.mark.parametrize("phase", [name for name in PHASES if name != "awaiting_approval"])
@pytest.mark.parametrize("approve", [True, False])
def test_only_a_plan_that_waits_is_answered(scene: Scene, phase: str, approve: bool) -> None:
    key = child_in(scene, phase)
    with refused(scene, "done", f"w is {scene.phase(key)}: no plan awaits an answer"):
        scene.answer(key, approve)


@proves("1.attempts.3", "Plan approval and plan rejection make a new attempt")
@proves("3.plan.11")
@pytest.mark.parametrize(
    ("approve", "words", "read", "state"),
    [
        (True, "", "APPROVED: proceed", "approved"),
        (True, "APPROVED: but be quick", "APPROVED: but be quick", "approved"),
        (False, "", "REJECTED", "planning"),
        (False, "REJECTED: too dear", "REJECTED: too dear", "planning"),
    ],
)
def test_an_answer_begins_a_new_attempt_that_reads_it(
    scene: Scene, approve: bool, words: str, read: str, state: str
) -> None:
    key = child_in(scene, "awaiting_approval")
    old = scene.run(key)
    run = scene.answer(key, approve, words)
    assert (run.phase, run.attempt, run.plan) == (Queued(), 2, state)
    assert run.run_id != old.run_id
    assert scene.counts(MAIN).unsettled == 1
    assert [(row.kind, row.body) for row in scene.unread(key)] == [("approval", read)]
    scene.start(key)
    assert scene.said(key)[-1] == read


@proves("3.plan.11", "An approved plan is carried out in the same session, as a new attempt, announced as any run")
def test_an_approved_plan_announces_as_any_run(scene: Scene) -> None:
    key = child_in(scene, "awaiting_approval")
    scene.answer(key, True)
    scene.finish(scene.start(key), "it is done")
    assert scene.phase(key) == "announcing"
    assert [row.kind for row in scene.unread(MAIN)] == ["outcome"]


# ---- undelivered -----------------------------------------------------------------------------------------------------


@proves("2.phases.38")
@proves("7.input.6")
@pytest.mark.parametrize("phase", [name for name in PHASES if name != "completed_giveup"])
def test_only_a_given_up_result_is_retried_or_dismissed(scene: Scene, phase: str) -> None:
    key = child_in(scene, phase)
    for command in (control.retry, control.dismiss):
        with refused(scene, "done", "w: nothing of it is undelivered"):
            scene.commit(partial(command, key=key))


@proves("2.phases.39")
def test_a_retried_result_is_announced_again_and_given_up_again_while_nobody_is_there(scene: Scene) -> None:
    key = child_in(scene, "completed_giveup")
    given_up = scene.outcome_row(key)
    assert given_up.state == "undelivered"
    run = scene.commit(lambda c: control.retry(c, key))
    assert run.phase.name == "announce_deferred"
    assert scene.outcome_row(key).state == "unread"
    for wait_s in (1.0, 2.0, 4.0):
        scene.pass_time(wait_s)
    assert scene.phase(key) == "completed_giveup"
    assert scene.outcome_row(key).state == "undelivered"


def given_up_by_a_program(scene: Scene) -> str:
    drive = for_a_program(scene)
    scene.finish(drive, "the answer")
    scene.pass_time(1800.0)
    assert scene.run(drive.session).delivery == Undelivered("the program did not read it for 30 min")
    return drive.session


@proves("0.lost.3", "An undelivered result can be retried")
def test_a_retried_result_can_be_read_by_its_program(scene: Scene) -> None:
    key = given_up_by_a_program(scene)
    run = scene.commit(lambda c: control.retry(c, key))
    assert run.phase == Announcing(scene.ended(key), scene.clock.now() + 1800.0)
    row = scene.outcome_row(key)
    assert (row.session, row.state) == (PROGRAM, "unread")
    assert scene.read_result(key) == "the answer"
    assert scene.run(key).delivery == Delivered("direct")


@proves("0.lost.4", "An undelivered result can be dismissed, and stays readable")
def test_a_dismissed_result_leaves_the_list_and_stays_readable(scene: Scene) -> None:
    key = given_up_by_a_program(scene)
    run = scene.commit(lambda c: control.dismiss(c, key))
    assert run.phase.name == "completed"
    assert scene.outcome_row(key).state == "dismissed"
    assert scene.read(lambda tx: tx.inbox.undelivered()) == []
    assert scene.read_result(key) == "the answer"


def test_an_undelivered_result_is_dismissed_by_itself_after_7_days(scene: Scene) -> None:
    key = given_up_by_a_program(scene)
    scene.pass_time(7 * 86400.0 - 1.0)
    assert scene.phase(key) == "completed_giveup"
    scene.pass_time(1.0)
    assert (scene.phase(key), scene.outcome_row(key).state) == ("completed", "dismissed")


# ---- reading through a handle ----------------------------------------------------------------------------------------


def test_a_result_is_none_while_there_is_no_outcome_and_unknown_runs_are_not_found(scene: Scene) -> None:
    drive = for_a_program(scene)
    assert scene.read_result(drive.session) is None
    with refused(scene, "error", f"no run {NOBODY}"):
        scene.read_result(NOBODY)


@pytest.mark.parametrize(
    ("end", "outcome", "text"),
    [("text", Ok(), "the answer"), ("error", Failed("no model"), ""), ("silence", Ok(), "")],
)
def test_a_program_reads_every_kind_of_end(scene: Scene, end: str, outcome: object, text: str) -> None:
    drive = for_a_program(scene)
    match end:
        case "text":
            scene.finish(drive, "the answer")
        case "error":
            scene.fail(drive)
        case _:
            scene.finish(drive, "NO_REPLY")
    assert scene.read_result(drive.session) == text
    assert scene.ended(drive.session).outcome == outcome
    assert scene.phase(drive.session) == "completed"


def test_a_result_read_while_its_cleanup_is_still_due_does_not_count_as_undelivered(scene: Scene) -> None:
    """Read after it was given up, but before the folders it left are removed."""
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    terms = Terms(parent=PROGRAM, leaves=("attachments/a",))
    request = spawn.SpawnRequest(spec=Spec(task="work"), terms=terms, limits=LIMITS)
    drive = scene.start(scene.commit(lambda c: spawn.spawn(c, request)).key)
    scene.finish(drive, "the answer")
    scene.clock.advance(1800.0)
    scene.come_due(drive.session)
    assert scene.phase(drive.session) == "cleanup_pending"
    assert scene.read_result(drive.session) == "the answer"
    scene.come_due(drive.session)
    assert scene.phase(drive.session) == "completed"


def test_reading_through_a_handle_is_traced_as_any_delivery(scene: Scene) -> None:
    drive = for_a_program(scene)
    scene.finish(drive, "the answer")
    scene.read_result(drive.session)
    (trace,) = scene.traces(scene.outcome_row(drive.session).key)
    assert (trace.requester, trace.path) == (PROGRAM, "direct")


def test_reading_the_result_of_a_plan_that_expired_leaves_nothing_unread(scene: Scene) -> None:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    request = spawn.SpawnRequest(spec=Spec(task="work"), terms=Terms(parent=PROGRAM, plan=True), limits=LIMITS)
    drive = scene.start(scene.commit(lambda c: spawn.spawn(c, request)).key)
    scene.finish(drive, "1. look")
    scene.pass_time(24 * 3600.0)
    assert scene.read_result(drive.session) == "1. look"
    assert scene.read(lambda tx: tx.inbox.of_run(drive.session)) == []
    scene.pass_time(3600.0)
    assert scene.phase(drive.session) == "archived"
