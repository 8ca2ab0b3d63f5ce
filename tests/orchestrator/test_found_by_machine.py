"""What the machine on the real engine (`tests/model/test_engine.py`) has found, each as the smallest story that showed
it."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fledge.core.inbox import QueueSettings
from fledge.orchestrator import turns
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene
from tests.statements import proves


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Scene(queue=QueueSettings(mode="followup"))) as found:
        yield found
        found.check()


def crash_three_times(scene: Scene, key: str) -> None:
    """Its turn is open each time; nothing else is driven meanwhile."""
    for _ in range(3):
        if key not in scene.drives:
            scene.start(key)
        scene.crash()


@proves("2.hops.1")
def test_what_came_in_while_a_turn_crashed_again_and_again_gets_a_turn_of_its_own(scene: Scene) -> None:
    main = scene.main()
    child = scene.begin(main)
    scene.finish(child, "the answer")
    crash_three_times(scene, MAIN)
    assert scene.ended_as(MAIN, 1) == "crashed 3 times"
    assert scene.claimable() == [MAIN], "somebody waits for it, so it is no matter for a heartbeat"
    assert scene.read_main() == [child.session]
    assert scene.phase(child.session) == "completed"


def test_what_came_in_while_a_turn_ran_out_of_budget_gets_a_turn_of_its_own(scene: Scene) -> None:
    main = scene.main()
    child = scene.begin(main)
    scene.finish(child, "the answer")
    scene.fail(main)
    scene.fail(scene.start(MAIN), "budget", "budget")
    assert scene.read_main() == [child.session]
    assert scene.phase(child.session) == "completed"


def test_a_session_that_is_deleted_when_it_is_over_leaves_no_notice_that_keeps_it_from_being_archived(
    scene: Scene,
) -> None:
    main = scene.main()
    child = scene.begin(main, cleanup="delete")
    scene.finish(main, "it is under way")
    scene.send(child.session)
    scene.commit(lambda c: turns.fail(c, child, "broke"))
    scene.exit(child)
    assert scene.read_main() == [child.session]
    crash_three_times(scene, child.session)
    assert scene.inbox(child.session)[-1] == ("notice", "unread")
    scene.pass_time(3.0)
    assert scene.session(child.session).deleted
    assert scene.inbox(child.session)[-1] == ("notice", "void")
    scene.pass_time(3600.0)
    assert scene.phase(child.session) == "archived"
