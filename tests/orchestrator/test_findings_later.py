"""The findings of the model, F9 to F16 (the others: `test_findings`), on the real store: M is main, O its child, W a
child of O. Take a rule out of the code, and a test fails. The pure halves stand in `tests/core`."""

from contextlib import closing

import pytest

from fledge.core.run import Delivered, Failed, Ok, Queued, Skipped, Spawning
from fledge.errors import NotFound, Refused, StaleWrite
from fledge.orchestrator import spawn, turns
from fledge.orchestrator.commit import Listener
from fledge.orchestrator.turns import Drive
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, for_a_program, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


def plan_key(scene: Scene, key: str, kind: str = "plan") -> str:
    return f"announce:v1:{key}:{scene.run(key).run_id}:{kind}"


# ---- F9: plan rows ---------------------------------------------------------------------------------------------------


@proves("2.phases.28")
@proves("2.hops.4", "A plan, late or expired row leaves the phase alone")
def test_f9_reading_a_plan_leaves_it_undecided(scene: Scene) -> None:
    o = scene.orchestrator(plan=True)
    scene.finish(o, "1. look 2. do")
    assert scene.read_main() == [o.session]
    assert scene.row(plan_key(scene, o.session)).state == "consumed"
    run = scene.run(o.session)
    assert (run.phase.name, run.ended) == ("awaiting_approval", None)
    assert not scene.session(o.session).deleted


def test_f9_a_plan_read_after_its_approval_does_not_touch_the_attempt_that_runs(scene: Scene) -> None:
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
def test_f9_a_rejected_plan_is_planned_again_under_a_key_of_its_own(scene: Scene) -> None:
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
def test_f9_answer_expiry_and_kill_withdraw_an_unread_plan_row(scene: Scene, way: str) -> None:
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
def test_f9_a_plan_that_awaits_its_answer_does_not_hold_up_its_parent(scene: Scene) -> None:
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
def test_f9_an_answer_makes_the_child_unsettled_again_upwards_through_ended_parents(
    scene: Scene, approve: bool
) -> None:
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


# ---- F10: the key has a kind -----------------------------------------------------------------------------------------


@proves("2.phases.33", "A plan expires after `plan.approvalHours`, 24 by default, and that is told")
def test_f10_an_expired_plan_is_told_although_its_plan_was_told_before(scene: Scene) -> None:
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
def test_f10_a_late_complete_is_one_row_of_its_own_and_changes_neither_phase_nor_counters() -> None:
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
def test_f10_a_late_complete_refreshes_an_outcome_that_is_unread_and_writes_no_second_row(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.fail(o, "lost the connection")
    scene.complete_late(o.session, "here after all")
    assert scene.ended(o.session).outcome == Ok()
    assert [(row.kind, scene.text(row.text)) for row in scene.unread(MAIN)] == [("outcome", "here after all")]
    assert scene.read_main() == [o.session]
    assert "completed successfully" in scene.said(MAIN)[-2]
    assert "lost the connection" not in scene.said(MAIN)[-2]


# ---- F11: a send's turn never refreshes ------------------------------------------------------------------------------


@proves("2.frozen.15", "A send's turn never refreshes")
def test_f11_the_answer_to_a_send_after_the_end_replaces_nothing(scene: Scene) -> None:
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


# ---- F12: a reservation whose caller is gone -------------------------------------------------------------------------


@proves(
    "2.phases.4",
    "The commit that closes the caller's call (steer, kill, timeout, error), or 30 s, withdraws a reservation",
)
@pytest.mark.parametrize("way", ["steer", "kill", "timeout", "error", "30 s", "crash"])
def test_f12_a_reservation_goes_with_the_call_that_asked_for_it_and_is_settled(scene: Scene, way: str) -> None:
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
    assert scene.read(lambda tx: tx.find_run(key)) is None
    assert scene.read(lambda tx: tx.session(key)) is None
    assert scene.counts(o.session).unsettled == 0
    with pytest.raises(NotFound, match=f"no run {key}"):
        scene.commit(lambda c: spawn.prepared(c, key, o.generations))
    if way in ("timeout", "error"):
        assert scene.counts(MAIN).unsettled == 0


def test_f12_a_run_that_waits_for_a_reservation_is_woken_when_that_expires(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.reserve(o)
    scene.wait(o)
    scene.pass_time(30.0)
    assert scene.run(o.session).phase == Queued()


@proves("4.steer.8")
@pytest.mark.parametrize("way", ["steer", "timeout"])
def test_f12_open_calls_of_the_old_attempt_are_closed_in_that_commit_and_not_resumed(scene: Scene, way: str) -> None:
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


# ---- F13: the tenth wake ---------------------------------------------------------------------------------------------


def woken(scene: Scene, times: int) -> Drive:
    o = scene.orchestrator()
    for _ in range(times):
        w = scene.begin(o)
        scene.wait(o)
        scene.finish(w)
        o = scene.start(o.session)
    assert scene.run(o.session).wakes == times
    return o


@proves("2.nested.13", "From the tenth wake on its spawns and yields are refused, with the reason")
@proves("7.input.7")
def test_f13_from_the_tenth_wake_on_spawns_and_yields_are_refused_with_the_reason(scene: Scene) -> None:
    o = woken(scene, 10)
    before = scene.dump()
    for refused in (lambda: scene.spawn(o), lambda: scene.wait(o)):
        with pytest.raises(Refused, match=r"^woken 10 of 10 times: finish with what you have$") as error:
            refused()
        assert error.value.status == "forbidden"
    assert scene.dump() == before
    scene.finish(o, "with what I have")
    assert scene.phase(o.session) == "announcing"


@proves("2.nested.11", "A woken run's next final text is the result, the earlier text the fallback")
@proves("2.nested.14", "It is still woken when all its descendants have settled")
def test_f13_after_nine_wakes_it_may_still_spawn_and_is_woken_a_last_time_for_what_is_below(scene: Scene) -> None:
    o = woken(scene, 9)
    first, second = scene.begin(o), scene.spawn(o)
    scene.wait(o, "any")
    scene.finish(first)
    tenth = scene.start(o.session)
    assert scene.run(o.session).wakes == 10
    assert scene.finish(tenth, "all but one") == "over"
    assert scene.phase(o.session) == "waiting"
    scene.finish(scene.start(second))
    eleventh = scene.start(o.session)
    assert scene.run(o.session).wakes == 11
    scene.finish(eleventh, "all of it")
    assert scene.result(o.session) == "all of it"


# ---- F14: a program that never reads ---------------------------------------------------------------------------------


def test_f14_a_result_that_no_program_reads_for_30_minutes_is_given_up_and_still_readable(scene: Scene) -> None:
    drive = for_a_program(scene)
    scene.finish(drive, "the answer")
    key = scene.outcome_row(drive.session).key
    scene.pass_time(1799.0)
    assert scene.phase(drive.session) == "announcing"
    scene.pass_time(1.0)
    assert scene.phase(drive.session) == "completed_giveup"
    assert [row.key for row in scene.read(lambda tx: tx.undelivered())] == [key]
    assert scene.read_result(drive.session) == "the answer"
    assert scene.read(lambda tx: tx.undelivered()) == []
    assert scene.phase(drive.session) == "completed"


@proves("4.code.2", "Reading through any handle consumes the row; reading again is free")
def test_f14_reading_through_a_handle_consumes_the_row_once_and_again_is_free(scene: Scene) -> None:
    drive = for_a_program(scene)
    assert scene.read_result(drive.session) is None
    scene.finish(drive, "the answer")
    assert scene.read_result(drive.session) == "the answer"
    run = scene.run(drive.session)
    assert (run.phase.name, run.delivery) == ("completed", Delivered("direct"))
    assert scene.outcome_row(drive.session).state == "consumed"
    before = scene.dump()
    assert scene.read_result(drive.session) == "the answer"
    assert scene.dump() == before
    scene.pass_time(1800.0)
    assert scene.read(lambda tx: tx.undelivered()) == []


# ---- F15: a closed turn is answered by what closed it ----------------------------------------------------------------


def test_f15_a_failed_turn_of_main_is_due_again_and_a_stop_answers_it(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.finish(o, "the answer")
    main = scene.start(MAIN)
    scene.fail(main, "no model")
    assert scene.ended_as(MAIN, main.turn) is None
    assert scene.claimable() == []
    scene.clock.advance(2.0)
    assert scene.claimable() == [MAIN]
    again = scene.start(MAIN)
    assert again.turn == main.turn
    scene.stop()
    assert scene.ended_as(MAIN, main.turn) == "stopped"
    scene.exit(again)
    scene.clock.advance(3600.0)
    scene.claim()
    assert MAIN not in scene.drives
    assert scene.told(MAIN) == [o.session]


@proves("2.hops.8")
def test_f15_a_stop_between_two_tries_answers_the_turn_too(scene: Scene) -> None:
    main = scene.main()
    scene.fail(main)
    scene.stop()
    scene.clock.advance(3600.0)
    while scene.claim():
        pass
    assert MAIN not in scene.drives
    assert scene.read(lambda tx: tx.turn(MAIN)) is None


@proves("2.hops.8", "A turn closed by /stop, kill, steer or its run's end is answered by that")
@pytest.mark.parametrize(
    ("way", "closed_as"), [("error", "over"), ("timeout", "interrupted"), ("kill", "killed"), ("steer", "interrupted")]
)
def test_f15_an_end_a_kill_and_a_steer_answer_the_turn_that_drained_rows(
    scene: Scene, way: str, closed_as: str
) -> None:
    o = scene.orchestrator(timeout_s=20.0)
    w = scene.begin(o)
    scene.wait(o)
    scene.finish(w)
    again = scene.start(o.session)
    assert scene.told(o.session) == [w.session]
    match way:
        case "error":
            scene.fail(again)
        case "timeout":
            scene.pass_time(20.0)
        case "kill":
            scene.kill(o.session)
        case _:
            scene.steer(o.session)
    scene.exit(again)
    assert scene.ended_as(o.session, again.turn) == closed_as
    scene.clock.advance(100.0)
    assert (o.session in scene.claimable()) is (way == "steer")
    with pytest.raises(StaleWrite):
        scene.commit(lambda c: turns.finish(c, again, "too late"))


# ---- F16: the sweeper and late rows ----------------------------------------------------------------------------------


def completed(scene: Scene) -> Drive:
    o = scene.orchestrator()
    scene.fail(o, "lost the connection")
    assert scene.read_main() == [o.session]
    assert scene.phase(o.session) == "completed"
    return o


@proves("6.sweep.1")
def test_f16_a_settled_run_is_archived_after_its_hour_and_not_before(scene: Scene) -> None:
    o = completed(scene)
    scene.pass_time(3599.0)
    assert scene.phase(o.session) == "completed"
    scene.pass_time(1.0)
    assert scene.phase(o.session) == "archived"


@proves("6.sweep.4")
def test_f16_it_is_not_archived_while_its_late_row_is_unread(scene: Scene) -> None:
    o = completed(scene)
    scene.complete_late(o.session, "here after all")
    scene.pass_time(3600.0)
    assert scene.phase(o.session) == "completed"
    assert scene.read_main() == [o.session]
    scene.pass_time(60.0)
    assert scene.phase(o.session) == "archived"


@proves("6.sweep.5", "Never while a row from it is undelivered")
def test_f16_nor_while_a_late_row_is_undelivered(scene: Scene) -> None:
    o = completed(scene)
    scene.delete()
    scene.complete_late(o.session, "here after all")
    assert [row.kind for row in scene.read(lambda tx: tx.undelivered())] == ["late"]
    scene.pass_time(7200.0)
    assert scene.phase(o.session) == "completed"


@proves("6.sweep.6", "Never while a row in its inbox is unread, or a send's turn is open")
def test_f16_nor_while_a_message_to_it_is_unread_or_being_answered(scene: Scene) -> None:
    o = completed(scene)
    scene.send(o.session, "thanks")
    scene.pass_time(3600.0)
    assert scene.phase(o.session) == "completed"
    serving = scene.start(o.session)
    scene.pass_time(60.0)
    assert scene.phase(o.session) == "completed"
    scene.finish(serving, "you are welcome")
    scene.pass_time(60.0)
    assert scene.phase(o.session) == "archived"


@proves("6.sweep.8", "Never with unsettled descendants")
def test_f16_nor_with_unsettled_descendants(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o, stuck_after_s=1e6)
    scene.fail(o)
    assert scene.read_main() == [o.session]
    scene.pass_time(3600.0)
    assert scene.phase(o.session) == "completed"
    scene.finish(w, "ANNOUNCE_SKIP")
    assert scene.run(w.session).delivery == Skipped("announce-skip")
    scene.pass_time(60.0)
    assert scene.phase(o.session) == "archived"


@proves("2.phases.32", "A plan that awaits its answer is never archived")
@proves("6.sweep.7", "Never while it awaits approval")
def test_f16_a_plan_that_waits_is_never_archived(scene: Scene) -> None:
    o = scene.orchestrator(plan=True, approval_s=30 * 86400.0)
    scene.finish(o, "1. look")
    scene.read_main()
    scene.pass_time(29 * 86400.0)
    assert scene.phase(o.session) == "awaiting_approval"
