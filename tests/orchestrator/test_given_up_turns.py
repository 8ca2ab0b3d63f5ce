"""Messages and results that wait behind a turn that is given up get a turn of their own."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest
from msgspec.structs import replace

from fledge.core.inbox import QueueSettings
from fledge.orchestrator import inbox, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.turns import Drive
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def followups() -> Iterator[Scene]:
    """A scene in which every completion gets a turn of its own."""
    with closing(Scene(queue=QueueSettings(mode="followup"))) as found:
        yield found
        found.check()


@proves("2.hops.1")
def test_what_came_in_while_a_turn_crashed_again_and_again_gets_a_turn_of_its_own(followups: Scene) -> None:
    scene = followups
    main = scene.main()
    child = scene.begin(main)
    scene.finish(child, "the answer")
    scene.crash_three_times(MAIN)
    assert scene.ended_as(MAIN, 1) == "crashed 3 times"
    assert scene.claimable() == [MAIN], "somebody waits for it, so it is no matter for a heartbeat"
    assert scene.read_main() == [child.session]
    assert scene.phase(child.session) == "completed"


def test_what_came_in_while_a_turn_ran_out_of_budget_gets_a_turn_of_its_own(followups: Scene) -> None:
    scene = followups
    main = scene.main()
    child = scene.begin(main)
    scene.finish(child, "the answer")
    scene.fail(main)
    scene.fail(scene.start(MAIN), "budget", "budget")
    assert scene.read_main() == [child.session]
    assert scene.phase(child.session) == "completed"


def _two_words_apart(scene: Scene) -> Drive:
    """Two agents say something to main, each in its own talk; main has read the first."""

    def say(c: Commit) -> None:
        for number in range(2):
            inbox.put_message(c, MAIN, f"w{number}", "send", "agent:bob:main", "hello", f"exchange:{number}")
        inbox.wake(c, MAIN)

    scene.commit(say)
    drive = scene.start(MAIN)
    assert [row.key for row in scene.unread(MAIN)] == ["w1"]
    return drive


def test_what_waits_behind_a_turn_without_budget_has_its_own_turn(scene: Scene) -> None:
    scene.fail(_two_words_apart(scene), "budget", cause="budget")
    assert scene.claimable() == [MAIN]
    scene.start(MAIN)
    assert scene.unread(MAIN) == []


def test_what_waits_behind_a_turn_that_was_given_up_after_crashes_has_its_own_turn(scene: Scene) -> None:
    _two_words_apart(scene)
    for _ in range(3):
        scene.start(MAIN)
        scene.commit(lambda c: c.tx.drivers.progress(MAIN, c.at, step_open=True))
        driver = scene.read(lambda tx: tx.drivers.get(MAIN))
        assert driver is not None
        scene.commit(partial(turns.lost, driver=replace(driver, step_open=True), crashed=True))
        del scene.drives[MAIN]
    assert scene.read(lambda tx: tx.turns.get(MAIN)) is None
    assert scene.claimable() == [MAIN]
