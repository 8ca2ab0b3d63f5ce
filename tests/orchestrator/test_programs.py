"""Programs as requesters, on the real store: results that no program reads, notices for programs."""

import pytest

from fledge.core.run import Delivered
from tests.orchestrator.scene import PROGRAM, Scene, for_a_program, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


# ---- a program that never reads --------------------------------------------------------------------------------------


def test_a_result_that_no_program_reads_for_30_minutes_is_given_up_and_still_readable(scene: Scene) -> None:
    drive = for_a_program(scene)
    scene.finish(drive, "the answer")
    key = scene.outcome_row(drive.session).key
    scene.pass_time(1799.0)
    assert scene.phase(drive.session) == "announcing"
    scene.pass_time(1.0)
    assert scene.phase(drive.session) == "completed_giveup"
    assert [row.key for row in scene.read(lambda tx: tx.inbox.undelivered())] == [key]
    assert scene.read_result(drive.session) == "the answer"
    assert scene.read(lambda tx: tx.inbox.undelivered()) == []
    assert scene.phase(drive.session) == "completed"


@proves("4.code.2", "Reading through any handle consumes the row; reading again is free")
def test_reading_through_a_handle_consumes_the_row_once_and_again_is_free(scene: Scene) -> None:
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
    assert scene.read(lambda tx: tx.inbox.undelivered()) == []


# ---- programs --------------------------------------------------------------------------------------------------------


def test_a_notice_for_a_program_is_not_left_unread_for_ever(scene: Scene) -> None:
    o = for_a_program(scene)
    scene.pass_time(300.0)
    assert scene.run(o.session).phase.due_at is None, "it was noticed that it is stuck"
    assert scene.inbox(PROGRAM) == []
