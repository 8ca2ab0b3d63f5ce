"""Rows in the inbox of a requester that ends, on the real store. M is main, O its child, W a child of O."""

import pytest

from fledge.core.run import Skipped
from fledge.orchestrator import control
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@proves(
    "2.arbitration.14", "That commit moves every unconsumed completion, same row and key, to its requester, up to main"
)
@pytest.mark.parametrize("cleanup", ["keep", "delete"])
def test_a_requester_that_times_out_hands_its_unread_completions_to_its_own_requester(
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


def test_a_completion_of_a_requester_that_ended_long_ago_goes_to_the_nearest_one_still_there(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.fail(o)
    scene.finish(w, "found it")
    assert scene.outcome_row(w.session).session == MAIN


@proves("2.arbitration.17", "If the requester was killed they are `skipped: suppressed` instead")
def test_a_killed_requesters_unread_completions_are_suppressed_and_stay_readable(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.finish(w, "found it")
    scene.kill(o.session)
    assert scene.outcome_row(w.session).state == "suppressed"
    assert scene.run(w.session).delivery == Skipped("suppressed")
    assert scene.result(w.session) == "found it"
    scene.exit(o)
    assert scene.unread(MAIN) == []


def test_a_run_that_is_killed_while_queued_never_starts_its_task(scene: Scene) -> None:
    main = scene.main()
    key = scene.spawn(main)
    scene.kill(key)
    assert scene.inbox(key) == [("task", "suppressed")]
    assert not scene.claim()
    assert scene.entries(key) == []


def test_orders_to_a_run_that_ends_before_it_read_them_are_suppressed(scene: Scene) -> None:
    main = scene.main()
    key = scene.spawn(main, queue_timeout_s=5.0)
    scene.steer(key)
    scene.pass_time(5.0)
    assert scene.inbox(key) == [("task", "suppressed"), ("steer", "suppressed")]
    assert not scene.claim()


@proves("2.arbitration.19", "On a kill sends are suppressed too, and their senders get an error")
def test_on_a_kill_sends_are_suppressed_and_their_senders_are_told(scene: Scene) -> None:
    o = scene.orchestrator()
    sent = scene.send(o.session, "one more thing")
    scene.kill(o.session)
    assert scene.row(sent).state == "suppressed"
    notice = scene.row(f"void:{sent}")
    assert (notice.session, notice.kind) == (MAIN, "notice")
    assert notice.body == "w was killed before it read your message"


@proves("2.arbitration.16", "If nobody is left above it is `missing-requester`")
@proves("2.arbitration.20")
def test_deleting_a_session_deletes_no_row_and_nobody_left_is_missing_requester(scene: Scene) -> None:
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
    assert [row.key for row in scene.read(lambda tx: tx.inbox.undelivered())] == [row.key]
