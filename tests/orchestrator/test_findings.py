"""The findings of the model, F1 to F4 and F8 (the others: `test_findings_kill`, `test_findings_later`), on the real
store: M is main, O its child, W a child of O. Take a rule out of the code, and a test fails. The pure
halves stand in `tests/core`."""

from typing import Any

import pytest

from fledge.core.run import Delivered, Queued, Running, Skipped, TimedOut, Waiting
from fledge.orchestrator import control, spawn, turns
from fledge.orchestrator.turns import Drive
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


# ---- F1: a final text with a child's result unread -------------------------------------------------------------------


@proves("2.nested.6", "… and no completion is unread in its inbox")
@proves(
    "2.nested.7",
    "Unread ones are drained in that commit: same attempt, no wake, the text so far is the fallback",
)
def test_f1_a_final_text_over_an_unread_completion_reads_it_and_the_same_attempt_goes_on(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.finish(w, "found it")
    assert scene.finish(o, "before reading") == "on"
    run = scene.run(o.session)
    assert (run.phase.name, run.attempt, run.wakes, run.ended) == ("running", 1, 0, None)
    assert [entry.kind for entry in scene.entries(o.session)] == ["user", "assistant", "event"]
    assert scene.told(o.session) == [w.session]
    assert scene.outcome_row(w.session).state == "consumed"
    assert scene.run(w.session).delivery == Delivered("queued")
    assert scene.finish(o, "NO_REPLY") == "over"
    assert scene.result(o.session) == "before reading"
    assert scene.read_main() == [o.session]


@proves(
    "2.phases.13",
    "waiting: it yielded, or its text was final while descendants were unsettled; no slot, the condition stored",
)
@proves("2.frozen.10", "A wake keeps the previous result as fallback")
@proves("2.nested.5", "A final text ends a run only if no descendant is unsettled")
@proves("2.nested.11")
def test_f1_a_final_text_over_unsettled_children_waits_with_its_text_as_fallback(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    assert scene.finish(o, "half of it") == "over"
    run = scene.run(o.session)
    assert run.phase == Waiting(until_settled=None, due_at=None, asked="final text")
    scene.finish(w)
    again = scene.start(o.session)
    assert scene.told(o.session) == [w.session]
    scene.finish(again, "NO_REPLY")
    assert scene.result(o.session) == "half of it"


@proves("4.send.3", "One that misses the last boundary becomes a turn of its own after the end, with no announce")
def test_f1_a_send_that_misses_the_last_boundary_gets_a_turn_of_its_own_and_delete_waits_for_it(scene: Scene) -> None:
    o = scene.orchestrator(cleanup="delete")
    sent = scene.send(o.session, "thanks")
    assert scene.finish(o, "the answer") == "over"
    assert scene.phase(o.session) == "announcing"
    assert scene.row(sent).state == "unread"
    main = scene.start(MAIN)
    assert scene.told(MAIN) == [o.session]
    assert scene.phase(o.session) == "cleanup_pending"
    answering = scene.start(o.session)
    assert answering.run is None
    assert scene.row(sent).state == "consumed"
    scene.pass_time(1.0)
    assert scene.phase(o.session) == "cleanup_pending"
    scene.finish(answering, "you are welcome")
    scene.pass_time(2.0)
    assert scene.phase(o.session) == "completed"
    assert scene.session(o.session).deleted
    assert scene.inbox(MAIN) == [("send", "consumed"), ("outcome", "consumed")]
    scene.finish(main)


# ---- F2: rows in the inbox of a requester that ends ------------------------------------------------------------------


@proves(
    "2.arbitration.14", "That commit moves every unconsumed completion, same row and key, to its requester, up to main"
)
@pytest.mark.parametrize("cleanup", ["keep", "delete"])
def test_f2_a_requester_that_times_out_hands_its_unread_completions_to_its_own_requester(
    scene: Scene, cleanup: str
) -> None:
    o = scene.orchestrator(timeout_s=20.0, cleanup=cleanup)
    w = scene.begin(o)
    scene.finish(w, "found it")
    row = scene.outcome_row(w.session)
    assert row.session == o.session
    scene.pass_time(20.0)
    moved = scene.outcome_row(w.session)
    assert (moved.session, moved.key, moved.seq, moved.state) == (MAIN, row.key, row.seq, "unread")
    assert scene.read_main() == [w.session, o.session]
    assert scene.phase(o.session) == "completed"
    assert "found it" in scene.said(MAIN)[-2]
    scene.pass_time(3600.0)
    assert [scene.phase(key) for key in (o.session, w.session)] == ["archived", "archived"]
    assert scene.outcome_row(w.session).state == "consumed"


def test_f2_a_completion_of_a_requester_that_ended_long_ago_goes_to_the_nearest_one_still_there(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.fail(o)
    scene.finish(w, "found it")
    assert scene.outcome_row(w.session).session == MAIN


@proves("2.arbitration.17", "If the requester was killed they are `skipped: suppressed` instead")
def test_f2_a_killed_requesters_unread_completions_are_suppressed_and_stay_readable(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.finish(w, "found it")
    scene.kill(o.session)
    assert scene.outcome_row(w.session).state == "suppressed"
    assert scene.run(w.session).delivery == Skipped("suppressed")
    assert scene.result(w.session) == "found it"
    scene.exit(o)
    assert scene.unread(MAIN) == []


def test_f2_a_run_that_is_killed_while_queued_never_starts_its_task(scene: Scene) -> None:
    main = scene.main()
    key = scene.spawn(main)
    scene.kill(key)
    assert scene.inbox(key) == [("task", "void")]
    assert not scene.claim()
    assert scene.entries(key) == []


def test_f2_orders_to_a_run_that_ends_before_it_read_them_are_void(scene: Scene) -> None:
    main = scene.main()
    key = scene.spawn(main, queue_timeout_s=5.0)
    scene.steer(key)
    scene.pass_time(5.0)
    assert scene.inbox(key) == [("task", "void"), ("steer", "void")]
    assert not scene.claim()


@proves("2.arbitration.19", "On a kill sends become void too, and their senders are told")
def test_f2_on_a_kill_sends_are_void_and_their_senders_are_told(scene: Scene) -> None:
    o = scene.orchestrator()
    sent = scene.send(o.session, "one more thing")
    scene.kill(o.session)
    assert scene.row(sent).state == "void"
    notice = scene.row(f"void:{sent}")
    assert (notice.session, notice.kind) == (MAIN, "notice")
    assert notice.body == f"{o.session} was killed before it read your message"


@proves("2.arbitration.16", "If nobody is left above it is `missing-requester`")
@proves("2.arbitration.20")
def test_f2_deleting_a_session_deletes_no_row_and_nobody_left_is_missing_requester(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.finish(o, "the answer")
    scene.commit(lambda c: control.delete_session(c, MAIN))
    row = scene.outcome_row(o.session)
    assert (row.session, row.state) == (None, "unread")
    assert scene.phase(o.session) == "announce_deferred"
    scene.pass_time(1.0 + 2.0 + 4.0)
    assert scene.phase(o.session) == "announce_deferred"
    scene.pass_time(2.0)
    scene.pass_time(4.0)
    assert scene.phase(o.session) == "completed_giveup"
    assert [row.key for row in scene.read(lambda tx: tx.undelivered())] == [row.key]


# ---- F3: a child without a row settles all the same ------------------------------------------------------------------


@proves("2.announce.18")
@proves("2.nested.3", "That commit counts the parent down and wakes it where its condition now holds")
@pytest.mark.parametrize("end", ["kill", "ANNOUNCE_SKIP", "NO_REPLY"])
def test_f3_a_child_that_ends_without_a_row_settles_and_the_wake_names_it(scene: Scene, end: str) -> None:
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
    wake = f"What you waited for is here. Ended without anything to tell: {w.session}."
    assert scene.said(o.session)[-1] == wake
    assert scene.told(o.session) == []


@proves("2.phases.6", "A failed or withdrawn reservation is settled for the parent")
@pytest.mark.parametrize("end", ["failed", "30 s"])
def test_f3_a_reservation_that_comes_to_nothing_settles_too(scene: Scene, end: str) -> None:
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
def test_f3_settling_goes_on_upwards_through_parents_that_have_ended(scene: Scene) -> None:
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


# ---- F4: a missed wake-up --------------------------------------------------------------------------------------------


@proves(
    "4.yield.3",
    "The condition is evaluated in the commit that enters or re-enters waiting; if it holds the run is queued at once",
)
def test_f4_a_child_that_settled_before_the_yield_wakes_it_at_once(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.finish(w)
    scene.wait(o, "all")
    assert scene.run(o.session).phase == Queued()
    scene.start(o.session)
    assert scene.told(o.session) == [w.session]


@proves("4.send.7", "At its end the condition is evaluated again before it waits")
def test_f4_a_child_that_settles_during_a_sends_turn_wakes_the_run_when_that_turn_ends(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.wait(o)
    waiting = scene.run(o.session).phase
    scene.send(o.session, "how is it going?")
    serving = scene.start(o.session)
    during = scene.run(o.session).phase
    assert isinstance(during, Running)
    assert during.serving == waiting
    scene.finish(w)
    assert scene.phase(o.session) == "running"
    scene.finish(serving, "well enough")
    run = scene.run(o.session)
    assert (run.phase, run.attempt, run.wakes, run.fallback) == (Queued(), 2, 1, None)


@proves("4.send.5")
def test_f4_a_sends_turn_that_changes_nothing_leaves_condition_and_deadline_as_they_were(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.begin(o)
    scene.wait(o)
    before = scene.run(o.session)
    scene.clock.advance(60.0)
    scene.send(o.session)
    scene.finish(scene.start(o.session), "noted")
    after = scene.run(o.session)
    assert (after.phase, after.attempt, after.run_id) == (before.phase, before.attempt, before.run_id)


@proves("2.phases.14", "waiting ends by its condition")
@proves("4.yield.4", "… and in each settling commit")
@proves("4.yield.5", "A number counts children settled since the yield plus completions then unread")
@pytest.mark.parametrize(
    ("asked", "settled_before", "settled_after", "woken"),
    [
        ("any", 0, 0, False),
        ("any", 0, 1, True),
        ("any", 1, 0, True),
        (2, 0, 1, False),
        (2, 0, 2, True),
        (2, 1, 0, False),
        (2, 1, 1, True),
        (9, 0, 2, True),
        (9, 1, 0, False),
        ("all", 1, 0, False),
        ("all", 1, 1, True),
    ],
)
def test_f4_a_number_counts_unread_completions_and_what_settles_after_and_is_capped_at_what_can_come(
    scene: Scene, asked: Any, settled_before: int, settled_after: int, woken: bool
) -> None:
    o = scene.orchestrator(lane="nested")
    children = [scene.begin(o) for _ in range(2)]
    for drive in children[:settled_before]:
        scene.finish(drive)
    scene.wait(o, asked)
    for drive in children[settled_before : settled_before + settled_after]:
        scene.finish(drive)
    assert (scene.phase(o.session) == "queued") is woken


@proves("4.yield.5")
def test_f4_a_child_whose_completion_was_read_before_the_yield_does_not_count_again(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    first, second = scene.begin(o), scene.begin(o)
    scene.finish(first)
    assert scene.finish(o, "I read") == "over"
    scene.finish(second, "NO_REPLY")
    again = scene.start(o.session)
    third = scene.begin(again)
    scene.wait(again, "any")
    assert scene.phase(o.session) == "waiting"
    scene.finish(third)
    assert scene.phase(o.session) == "queued"


@proves("2.phases.17", "After a crash a waiting run stays as it is")
def test_f4_a_crash_forgets_neither_condition_nor_deadline(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.spawn(o)
    scene.wait(o)
    before = scene.run(o.session)
    scene.crash()
    assert scene.run(o.session) == before
    scene.finish(scene.start(w))
    assert scene.phase(o.session) == "queued"


# ---- F8: slots are held by drivers -----------------------------------------------------------------------------------


def two_in_a_lane_of_one(scene: Scene, **terms: Any) -> tuple[Drive, str]:
    main = scene.main()
    first = scene.spawn(main, lane="nested", **terms)
    second = scene.spawn(main, lane="nested")
    drive = scene.start(first)
    assert not scene.claim()
    return drive, second


@proves("2.phases.18")
def test_f8_a_provisional_error_keeps_driver_and_slot(scene: Scene) -> None:
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
def test_f8_a_superseded_or_stopped_driver_holds_its_slot_for_5_seconds(scene: Scene, way: str) -> None:
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
    assert scene.read(lambda tx: tx.claimable({}, scene.clock.now(), 9)) == []
    scene.clock.advance(0.2)
    if way == "kill":
        scene.let_time_act()
    assert second in [place.session for place in scene.read(lambda tx: tx.claimable({}, scene.clock.now(), 9))]


@proves("2.kill.17")
@pytest.mark.parametrize("way", ["steer", "kill", "timeout"])
def test_f8_a_superseded_or_stopped_driver_that_exits_frees_its_slot_at_once(scene: Scene, way: str) -> None:
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


def test_f8_a_steered_run_is_not_driven_again_beside_its_old_driver(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.steer(o.session)
    assert not scene.claim()
    scene.clock.advance(5.0)
    assert scene.claim()
    assert scene.drives[o.session].epoch > o.epoch
