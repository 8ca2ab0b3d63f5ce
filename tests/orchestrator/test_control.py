"""What people and controllers do to running work, on the real store: steer, kill, stop, delete. Each is one commit, and
a refusal changes nothing."""

import pytest

from fledge.core.policy import NOTHING_TO_WAIT_FOR, YieldTerms
from fledge.core.run import Failed, Killed, Queued, Skipped
from fledge.errors import Refused, StaleWrite
from fledge.orchestrator import control, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.effects import Killing
from fledge.testing import world
from tests.model.world import MAIN
from tests.orchestrator.scene import NOBODY, PHASES, Scene, child_in, refused, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


# ---- steer -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["", " \n"])
def test_a_steer_without_words_is_refused(scene: Scene, message: str) -> None:
    o = scene.orchestrator()
    with refused(scene, "error", "message: must not be empty"):
        scene.steer(o.session, message)


@proves("4.steer.4", "Over 4000 characters: `error`")
def test_a_steer_takes_4000_characters_and_no_more(scene: Scene) -> None:
    o = scene.orchestrator()
    with refused(scene, "error", "message: 4001 characters, at most 4000"):
        scene.steer(o.session, "x" * 4001)
    assert scene.steer(o.session, "x" * 4000).attempt == 2


def test_a_steer_of_what_is_not_a_run_finds_nothing(scene: Scene) -> None:
    for key in (NOBODY, MAIN):
        with refused(scene, "error", f"no run {key}"):
            scene.steer(key)


@proves("4.steer.3", "Less than 2 s since the last: `rate_limited`")
def test_two_steers_need_two_seconds_between_them(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.steer(o.session)
    scene.clock.advance(1.5)
    with refused(scene, "rate_limited", "steered 1.5 s ago: wait 2 s between steers"):
        scene.steer(o.session)
    scene.clock.advance(0.5)
    assert scene.steer(o.session).attempt == 3


@proves("2.phases.16")
@proves("3.plan.16", "Meanwhile it is not steerable (`done`)")
@proves("4.steer.2", "Settled or already ended: `done`")
@proves("4.steer.11", "waiting, queued and provisional ending are steerable")
@proves("7.input.3", "Nothing is changed by a refused steer")
@pytest.mark.parametrize("phase", PHASES)
def test_only_live_work_is_steered_and_anything_else_is_done(scene: Scene, phase: str) -> None:
    key = child_in(scene, phase)
    name = scene.phase(key)
    if phase in ("queued", "running", "waiting", "grace"):
        run = scene.steer(key)
        assert (run.phase, run.attempt) == (Queued(), 2)
    else:
        with refused(scene, "done", f"w is {name}: nothing to steer"):
            scene.steer(key)


@proves("1.attempts.1", "A steer makes a new attempt with a runId of its own")
@proves("4.steer.5", "One commit: attempt + 1, epoch + 1, message in the inbox, phase queued, fallback set")
def test_a_steer_is_one_commit_that_replaces_the_attempt(scene: Scene) -> None:
    o = scene.orchestrator(timeout_s=60.0)
    reserved = scene.reserve(o)
    scene.step(o, "so far so good")
    before = scene.run(o.session)
    scene.clock.advance(10.0)
    run = scene.steer(o.session, "rather this")
    assert (run.phase, run.attempt, run.deadline_at, run.steered_at) == (Queued(), 2, None, scene.clock.now())
    assert scene.text(run.fallback) == "so far so good"
    assert scene.session(o.session).epoch == o.epoch + 1
    assert [(row.kind, row.body) for row in scene.unread(o.session)] == [("steer", "rather this")]
    assert scene.ended_as(o.session, o.turn) == "interrupted"
    assert scene.read(lambda tx: tx.runs.find(reserved)) is None
    assert scene.read(lambda tx: tx.runs.named(before.run_id)) == (o.session, 1)
    assert scene.read(lambda tx: tx.runs.named(run.run_id)) == (o.session, 2)
    ghost = scene.read(lambda tx: tx.drivers.get(o.session))
    assert ghost is not None
    assert (ghost.epoch, ghost.release_at) == (o.epoch, scene.clock.now() + 5.0)


@proves("4.steer.10", "The old attempt is silent")
def test_a_steered_attempt_is_fenced_off_whatever_it_still_writes(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.steer(o.session)
    before = scene.dump()
    writes = (
        lambda c: world.step(c, o, [("tool", "x")]),
        lambda c: turns.finish(c, o, "too late"),
        lambda c: turns.fail(c, o, "broke"),
        lambda c: turns.falter(c, o, "broke"),
        lambda c: turns.recovered(c, o),
        lambda c: world.wait(c, o, YieldTerms()),
        lambda c: turns.read_more(c, o),
    )
    for write in writes:
        with pytest.raises(StaleWrite, match=f"epoch {o.epoch} of {o.session} is over"):
            scene.commit(write)
    assert scene.dump() == before


@proves("3.limits.25", "It restarts on a steer")
def test_a_steered_run_reads_its_new_words_in_a_new_turn_and_announces_once(scene: Scene) -> None:
    o = scene.orchestrator(timeout_s=60.0)
    scene.steer(o.session, "rather this")
    scene.exit(o)
    again = scene.start(o.session)
    assert (again.turn, again.epoch > o.epoch + 1) == (o.turn + 1, True)
    assert scene.run(o.session).deadline_at == scene.clock.now() + 60.0
    assert scene.said(o.session) == ["work", "rather this"]
    scene.finish(again, "that, then")
    assert scene.read_main() == [o.session]


@proves("2.frozen.9", "A steer keeps the previous result as fallback")
def test_a_steered_attempt_that_says_nothing_is_told_with_what_was_said_before(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.step(o, "half of it")
    scene.steer(o.session)
    scene.exit(o)
    scene.finish(scene.start(o.session), "NO_REPLY")
    assert scene.result(o.session) == "half of it"


@proves("4.send.8", "Its text is neither result nor fallback")
def test_a_steer_does_not_make_the_answer_to_a_send_the_fallback(scene: Scene) -> None:
    """What a send's turn says is neither result nor fallback."""
    o = scene.orchestrator()
    scene.step(o, "half of it")
    scene.begin(o)
    scene.wait(o)
    scene.send(o.session, "thanks")
    scene.finish(scene.start(o.session), "you are welcome")
    assert scene.text(scene.steer(o.session).fallback) == "half of it"


@proves("2.frozen.12", "The fallback is the last non-empty text of earlier attempts")
@pytest.mark.parametrize("silence", ["NO_REPLY", "ANNOUNCE_SKIP", " NO_REPLY\n"])
def test_a_steer_does_not_make_silence_the_fallback(scene: Scene, silence: str) -> None:
    o = scene.orchestrator()
    scene.begin(o)
    scene.step(o, "half of it")
    scene.finish(o, silence)
    assert scene.phase(o.session) == "waiting"
    assert scene.text(scene.steer(o.session).fallback) == "half of it"


def test_a_steer_does_not_make_the_approved_plan_the_fallback_of_what_carries_it_out(scene: Scene) -> None:
    o = scene.orchestrator(plan=True)
    scene.finish(o, "1. look")
    assert scene.answer(o.session, True).fallback is None
    assert scene.steer(o.session).fallback is None


# ---- yield -----------------------------------------------------------------------------------------------------------


@proves("7.input.7", "Nothing is changed by a refused yield")
def test_a_yield_that_has_nothing_to_wait_for_is_refused(scene: Scene) -> None:
    main = scene.main()
    with refused(scene, "done", NOTHING_TO_WAIT_FOR):
        scene.wait(main)
    child = scene.begin(main)
    with refused(scene, "done", NOTHING_TO_WAIT_FOR):
        scene.wait(child)


@proves("7.input.7")
def test_a_run_that_may_still_recover_from_an_error_cannot_yield(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.begin(o)
    scene.commit(lambda c: turns.falter(c, o, "overloaded"))
    with refused(scene, "error", f"{o.session} is ending: it cannot yield"):
        scene.wait(o)


@proves("4.yield.7", "The deadline is 30 min by default")
@proves("4.yield.8", "… never beyond the run's own")
@proves("4.yield.10")
def test_a_yields_deadline_always_fires_and_never_lies_beyond_the_runs_own(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.begin(o)
    scene.wait(o)
    assert scene.run(o.session).due_at == scene.clock.now() + 1800.0
    scene.pass_time(1799.0)
    assert scene.phase(o.session) == "waiting"
    scene.pass_time(1.0)
    assert (scene.phase(o.session), scene.run(o.session).wakes) == ("queued", 1)
    again = scene.start(o.session)
    assert scene.finish(again, "partial") == "over"
    assert scene.phase(o.session) == "waiting"
    limited = scene.begin(scene.main("more"), timeout_s=60.0)
    scene.spawn(limited)
    scene.wait(limited)
    assert scene.run(limited.session).due_at == scene.clock.now() + 60.0


# ---- kill ------------------------------------------------------------------------------------------------------------


def test_a_kill_of_what_is_not_a_run_finds_nothing(scene: Scene) -> None:
    for key in (NOBODY, MAIN):
        with refused(scene, "error", f"no run {key}"):
            scene.kill(key)


@proves("2.phases.16")
@proves("2.kill.1")
@proves("4.kill.1")
@proves("7.input.5", "Nothing is changed by a refused kill, stop or delete")
@pytest.mark.parametrize("phase", PHASES)
def test_a_kill_ends_what_is_live_and_says_what_has_not_stopped_yet(scene: Scene, phase: str) -> None:
    key = child_in(scene, phase)
    below = scene.read(lambda tx: tx.runs.children(key))
    if phase in ("announcing", "announce_deferred", "completed", "completed_giveup", "archived"):
        with refused(scene, "done", "w has ended, and nothing below it is running"):
            scene.kill(key)
        return
    generation = scene.session(key).generation
    done = scene.kill(key)
    driven = phase in ("running", "grace", "stopping")
    assert done.killed == (() if driven else (key,))
    assert done.stopping == ((key,) if driven else tuple(below))
    if phase == "spawning":
        assert scene.read(lambda tx: tx.sessions.get(key)) is None
        return
    assert scene.session(key).generation == generation + 1
    if driven:
        assert scene.phase(key) == "ending"
    else:
        run = scene.run(key)
        assert (run.phase.name, run.delivery) == ("completed", Skipped("suppressed"))
        assert scene.ended(key).outcome == Killed(named=True)
        assert key not in scene.claimable()


@proves("2.frozen.8", "A kill freezes partial progress, for info and log only")
def test_a_kill_keeps_what_was_done_so_far_for_info_and_log(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.commit(lambda c: world.step(c, o, [("assistant", "half of it"), ("tool", "output")]))
    scene.begin(o)
    scene.wait(o)
    scene.kill(o.session)
    assert scene.result(o.session) == "(partial progress: 1 tool call, no final answer)\n- half of it"


@proves("4.kill.7", "A run that has already ended keeps its own row")
def test_a_kill_of_an_ended_run_ends_what_lives_below_and_keeps_its_own_row(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    p = scene.begin(o)
    w = scene.begin(p)
    queued = scene.spawn(p)
    scene.fail(p, "no model")
    scene.fail(o, "no model either")
    assert scene.kill(o.session) == Killing((queued,), (w.session,))
    assert scene.outcome_row(o.session).state == "unread"
    assert scene.ended(w.session if scene.run(w.session).ended else queued).outcome == Killed(named=False)
    scene.exit(w)
    # What ended below before the kill had already been handed over to main.
    assert scene.read_main() == [p.session, o.session]


def test_a_kill_tells_the_engine_whom_to_stop(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)

    def kill(c: Commit) -> list[str]:
        control.kill(c, o.session)
        return [session for session, _ in c.hints.stop]

    assert scene.commit(kill) == [o.session, w.session]


def test_a_kill_leaves_siblings_and_parents_alone(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    first, second = scene.begin(o), scene.begin(o)
    scene.kill(first.session)
    scene.exit(first)
    assert [scene.phase(drive.session) for drive in (o, second)] == ["running", "running"]
    assert scene.finish(second, "the other half") == "over"


@proves("2.arbitration.22", "A budget end is silent below, and the run itself announces `error: budget`")
def test_a_spent_budget_ends_everything_below_silently_and_is_itself_announced(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.step(o, "half of it")
    w = scene.begin(o)
    queued = scene.spawn(o)
    scene.fail(o, "budget", "budget")
    assert scene.ended(queued).outcome == Killed(named=False)
    assert scene.phase(w.session) == "ending"
    scene.finish(w, "too late")
    assert scene.ended(w.session).outcome == Killed(named=False)
    assert scene.read_main() == [o.session]
    assert scene.ended(o.session).outcome == Failed("budget")
    assert scene.result(o.session) == "(partial progress: 0 tool calls, no final answer)\n- half of it"
    assert scene.counts(MAIN).unsettled == 0


# ---- stop ------------------------------------------------------------------------------------------------------------


@proves("4.kill.9")
def test_a_stop_ends_the_turn_fences_its_driver_and_kills_the_tree(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main)
    queued, reserved = scene.spawn(main), scene.reserve(main)
    done = scene.stop()
    assert (set(done.killed), done.stopping) == ({queued, reserved}, (o.session,))
    assert scene.ended_as(MAIN, main.turn) == "stopped"
    assert scene.session(MAIN).generation == 1
    with pytest.raises(StaleWrite):
        scene.commit(lambda c: turns.finish(c, main, "too late"))
    driver = scene.read(lambda tx: tx.drivers.get(MAIN))
    assert driver is not None
    assert driver.release_at == scene.clock.now() + 5.0


def test_a_stop_loses_no_message_that_came_during_the_turn(scene: Scene) -> None:
    main = scene.main()
    scene.send(MAIN, "wait, also this")
    scene.stop()
    scene.exit(main)
    scene.start(MAIN)
    assert scene.said(MAIN) == ["go", "wait, also this"]


def test_a_stop_of_a_run_is_its_kill(scene: Scene) -> None:
    o = scene.orchestrator()
    assert scene.stop(o.session) == Killing((), (o.session,))
    assert scene.phase(o.session) == "ending"


def test_a_stop_of_an_idle_conversation_does_nothing_worse(scene: Scene) -> None:
    assert scene.stop() == Killing((), ())
    scene.finish(scene.main(), "hello")


@proves("7.input.5")
def test_a_stop_of_nobody_finds_nothing(scene: Scene) -> None:
    with refused(scene, "error", f"no session {NOBODY}"):
        scene.stop(NOBODY)
    scene.delete()
    with refused(scene, "error", f"no session {MAIN}"):
        scene.stop()


def test_a_stop_ends_the_turn_of_a_bound_session_whose_first_task_is_over(scene: Scene) -> None:
    """`/stop` in a thread: its run has ended long ago, its turn has not."""
    drive = scene.orchestrator(mode="session")
    scene.finish(drive, "hello")
    scene.send(drive.session, "write a book", None)
    turn = scene.start(drive.session)
    assert turn.run is None
    scene.stop(drive.session)
    assert scene.ended_as(drive.session, turn.turn) is not None
    with pytest.raises(StaleWrite):
        scene.commit(lambda c: world.step(c, turn, [("assistant", "chapter 2")]))


def test_a_stop_above_ends_the_turn_of_a_bound_session_whose_first_task_is_over(scene: Scene) -> None:
    drive = scene.orchestrator(mode="session")
    scene.finish(drive, "hello")
    scene.read_main()
    scene.send(drive.session, "write a book", None)
    turn = scene.start(drive.session)
    scene.stop()
    with pytest.raises((StaleWrite, Refused)):
        scene.commit(lambda c: world.step(c, turn, [("assistant", "chapter 2")]))


# ---- delete ----------------------------------------------------------------------------------------------------------


@proves("7.input.5")
@pytest.mark.parametrize("phase", PHASES)
def test_a_session_is_deleted_only_once_its_own_run_has_ended(scene: Scene, phase: str) -> None:
    key = child_in(scene, phase)
    name = scene.phase(key)
    if scene.run(key).ended is None:
        with refused(scene, "error", f"w is {name}: kill it first"):
            scene.delete(key)
        return
    scene.delete(key)
    assert scene.session(key).deleted
    assert scene.entries(key) == []
    with refused(scene, "error", f"no session {key}"):
        scene.delete(key)


def test_deleting_a_conversation_fences_its_turn_withdraws_reservations_and_lets_children_run(scene: Scene) -> None:
    main = scene.main()
    o, reserved = scene.begin(main), scene.reserve(main)
    sent = scene.send(MAIN, "too late")
    scene.delete()
    assert scene.read(lambda tx: tx.runs.find(reserved)) is None
    assert scene.phase(o.session) == "running"
    assert scene.row(sent).state == "void"
    with pytest.raises(StaleWrite):
        scene.commit(lambda c: turns.finish(c, main, "too late"))
    scene.exit(main)
    assert MAIN not in scene.claimable()
    scene.finish(o, "the answer")
    assert scene.phase(o.session) == "announce_deferred"


@proves("2.arbitration.14")
def test_what_waits_in_a_deleted_sessions_inbox_goes_to_its_requester(scene: Scene) -> None:
    o = scene.orchestrator(mode="session")
    w = scene.begin(o)
    scene.wait(o)
    scene.finish(w, "found it")
    scene.finish(scene.start(o.session), "hello")
    scene.send(o.session, "look again", None)
    turn = scene.start(o.session)
    v = scene.begin(turn)
    scene.finish(v, "found more")
    assert scene.outcome_row(v.session).session == o.session
    scene.delete(o.session)
    row = scene.outcome_row(v.session)
    assert (row.session, row.state, row.path) == (MAIN, "unread", "queued")
    while scene.unread(MAIN):
        scene.read_main()
    assert scene.told(MAIN) == [o.session, v.session]
