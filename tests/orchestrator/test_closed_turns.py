"""What closes a turn answers it and closes its calls, on the real store."""

import pytest

from fledge.core.transcript import CallEntry, Replied, Resulted, open_calls
from fledge.errors import StaleWrite
from fledge.orchestrator import transcripts, turns
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


# ---- a closed turn is answered by what closed it ---------------------------------------------------------------------


def test_a_failed_turn_of_main_is_due_again_and_a_stop_answers_it(scene: Scene) -> None:
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
def test_a_stop_between_two_tries_answers_the_turn_too(scene: Scene) -> None:
    main = scene.main()
    scene.fail(main)
    scene.stop()
    scene.clock.advance(3600.0)
    while scene.claim():
        pass
    assert MAIN not in scene.drives
    assert scene.read(lambda tx: tx.turns.get(MAIN)) is None


@proves("2.hops.8", "A turn closed by /stop, kill, steer or its run's end is answered by that")
@pytest.mark.parametrize(
    ("way", "closed_as"), [("error", "over"), ("timeout", "interrupted"), ("kill", "killed"), ("steer", "interrupted")]
)
def test_an_end_a_kill_and_a_steer_answer_the_turn_that_drained_rows(scene: Scene, way: str, closed_as: str) -> None:
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


# ---- what other runtimes leave open ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["failed", "stopped"])
def test_whatever_ends_an_attempt_closes_the_calls_it_leaves_open(scene: Scene, end: str) -> None:
    """Work of a foreign runtime is a call; left open, it would be taken for work that a message was interrupted in."""
    main = scene.main()
    child = scene.begin(main)
    call = CallEntry("work", "program", "do it", "started")
    scene.commit(lambda c: transcripts.write(c, child.session, Replied(calls=(call,))))
    if end == "failed":
        scene.fail(child, "interrupted by a restart")
    else:
        scene.kill(child.session)
        scene.commit(lambda c: turns.fail(c, child, "it did not like that"))
    lines = scene.read(lambda tx: transcripts.lines(tx, child.session))
    assert open_calls(lines) == []
    assert isinstance(lines[-1].body, Resulted)
    assert lines[-1].body.text == ("interrupted" if end == "failed" else "killed") + "; it was not finished"
