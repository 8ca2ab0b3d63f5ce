"""When the sweeper may archive a run, on the real store."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fledge.core.inbox import QueueSettings
from fledge.core.run import Skipped
from fledge.orchestrator import turns
from fledge.orchestrator.turns import Drive
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def followups() -> Iterator[Scene]:
    """A scene in which every completion gets a turn of its own."""
    with closing(Scene(queue=QueueSettings(mode="followup"))) as found:
        yield found
        found.check()


def completed(scene: Scene) -> Drive:
    o = scene.orchestrator()
    scene.fail(o, "lost the connection")
    assert scene.read_main() == [o.session]
    assert scene.phase(o.session) == "completed"
    return o


@proves("6.sweep.1")
def test_a_settled_run_is_archived_after_its_hour_and_not_before(scene: Scene) -> None:
    o = completed(scene)
    scene.pass_time(3599.0)
    assert scene.phase(o.session) == "completed"
    scene.pass_time(1.0)
    assert scene.phase(o.session) == "archived"


@proves("6.sweep.4")
def test_it_is_not_archived_while_its_late_row_is_unread(scene: Scene) -> None:
    o = completed(scene)
    scene.complete_late(o.session, "here after all")
    scene.pass_time(3600.0)
    assert scene.phase(o.session) == "completed"
    assert scene.read_main() == [o.session]
    scene.pass_time(60.0)
    assert scene.phase(o.session) == "archived"


@proves("6.sweep.5", "Never while a row from it is undelivered")
def test_nor_while_a_late_row_is_undelivered(scene: Scene) -> None:
    o = completed(scene)
    scene.delete()
    scene.complete_late(o.session, "here after all")
    assert [row.kind for row in scene.read(lambda tx: tx.inbox.undelivered())] == ["late"]
    scene.pass_time(7200.0)
    assert scene.phase(o.session) == "completed"


@proves("6.sweep.6", "Never while a row in its inbox is unread, or a send's turn is open")
def test_nor_while_a_message_to_it_is_unread_or_being_answered(scene: Scene) -> None:
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
def test_nor_with_unsettled_descendants(scene: Scene) -> None:
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
def test_a_plan_that_waits_is_never_archived(scene: Scene) -> None:
    o = scene.orchestrator(plan=True, approval_s=30 * 86400.0)
    scene.finish(o, "1. look")
    scene.read_main()
    scene.pass_time(29 * 86400.0)
    assert scene.phase(o.session) == "awaiting_approval"


def test_a_session_that_is_deleted_when_it_is_over_leaves_no_notice_that_keeps_it_from_being_archived(
    followups: Scene,
) -> None:
    scene = followups
    main = scene.main()
    child = scene.begin(main, cleanup="delete")
    scene.finish(main, "it is under way")
    scene.send(child.session)
    scene.commit(lambda c: turns.fail(c, child, "broke"))
    scene.exit(child)
    assert scene.read_main() == [child.session]
    scene.crash_three_times(child.session)
    assert scene.inbox(child.session)[-1] == ("notice", "unread")
    scene.pass_time(3.0)
    assert scene.session(child.session).deleted
    assert scene.inbox(child.session)[-1] == ("notice", "void")
    scene.pass_time(3600.0)
    assert scene.phase(child.session) == "archived"
