"""Waiting and waking, on the real store: a final text over open children, a yield's condition, the tenth wake.
M is main, O its child, W a child of O."""

from functools import partial
from typing import Any

import pytest

from fledge.core.run import Delivered, Queued, Running, Waiting
from fledge.errors import Refused
from fledge.orchestrator.turns import Drive
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


# ---- a final text with a child's result unread -----------------------------------------------------------------------


@proves("2.nested.6", "… and no completion is unread in its inbox")
@proves(
    "2.nested.7",
    "Unread ones are drained in that commit: same attempt, no wake, the text so far is the fallback",
)
def test_a_final_text_over_an_unread_completion_reads_it_and_the_same_attempt_goes_on(scene: Scene) -> None:
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
def test_a_final_text_over_unsettled_children_waits_with_its_text_as_fallback(scene: Scene) -> None:
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
def test_a_send_that_misses_the_last_boundary_gets_a_turn_of_its_own_and_delete_waits_for_it(scene: Scene) -> None:
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


# ---- a missed wake-up ------------------------------------------------------------------------------------------------


@proves("4.yield.3", "If the condition holds already, unread completions are read at once and the same attempt goes on")
@pytest.mark.parametrize("asked", ["all", "any", 1, 9])
def test_a_child_that_settled_before_the_yield_is_read_at_once_and_no_wake_is_spent(scene: Scene, asked: Any) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.finish(w)
    assert scene.wait(o, asked) == "on"
    assert scene.told(o.session) == [w.session]
    run = scene.run(o.session)
    assert (run.phase.name, run.wakes, run.attempt) == ("running", 0, 1)
    assert scene.driven() == [o.session]


@proves("4.yield.3")
def test_a_yield_reads_at_once_what_it_asked_for_though_others_are_at_work(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    first, second = scene.begin(o), scene.begin(o)
    scene.finish(first)
    assert scene.wait(o, "any") == "on"
    assert scene.told(o.session) == [first.session]
    assert scene.wait(o, "any") == "over"
    scene.finish(second)
    assert scene.run(o.session).wakes == 1


def test_a_yield_in_a_sends_turn_after_the_condition_came_true_wakes_the_run(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    first, second = scene.begin(o), scene.begin(o)
    scene.wait(o, 1)
    scene.send(o.session)
    serving = scene.start(o.session)
    scene.finish(first)
    assert scene.wait(serving, "any") == "over"
    assert scene.run(o.session).phase == Queued()
    scene.start(o.session)
    assert scene.told(o.session) == [first.session]
    assert scene.phase(second.session) == "running"


@proves("4.send.11", "Condition and deadline come before messages: no message puts a wake off")
@pytest.mark.parametrize("way", ["condition", "deadline"])
def test_a_message_at_the_end_of_each_sends_turn_does_not_put_the_wake_off(scene: Scene, way: str) -> None:
    o = scene.orchestrator(lane="nested")
    w = scene.begin(o, stuck_after_s=1e6)
    scene.wait(o)
    scene.send(o.session, "how is it going?")
    serving = scene.start(o.session)
    if way == "condition":
        scene.finish(w, "done")
    else:
        scene.pass_time(1800.0)
    scene.send(o.session, "and now?")
    scene.finish(serving, "half way")
    run = scene.run(o.session)
    assert (run.phase, run.wakes, run.attempt) == (Queued(), 1, 2)
    scene.start(o.session)
    message, wake = scene.said(o.session)[-2:]
    assert message == "and now?"
    assert wake.startswith("What you waited for is here." if way == "condition" else "Time ran out")


@proves("4.send.7", "At its end the condition is evaluated again before it waits")
def test_a_child_that_settles_during_a_sends_turn_wakes_the_run_when_that_turn_ends(scene: Scene) -> None:
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
def test_a_sends_turn_that_changes_nothing_leaves_condition_and_deadline_as_they_were(scene: Scene) -> None:
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
@proves("4.yield.4", "The condition is evaluated in each settling commit")
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
def test_a_number_counts_unread_completions_and_what_settles_after_and_is_capped_at_what_can_come(
    scene: Scene, asked: Any, settled_before: int, settled_after: int, woken: bool
) -> None:
    o = scene.orchestrator(lane="nested")
    children = [scene.begin(o) for _ in range(2)]
    for drive in children[:settled_before]:
        scene.finish(drive)
    goes_on = scene.wait(o, asked) == "on"
    for drive in children[settled_before : settled_before + settled_after]:
        scene.finish(drive)
    assert (goes_on or scene.phase(o.session) == "queued") is woken


@proves("4.yield.5")
def test_a_child_whose_completion_was_read_before_the_yield_does_not_count_again(scene: Scene) -> None:
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
def test_a_crash_forgets_neither_condition_nor_deadline(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.spawn(o)
    scene.wait(o)
    before = scene.run(o.session)
    scene.crash()
    assert scene.run(o.session) == before
    scene.finish(scene.start(w))
    assert scene.phase(o.session) == "queued"


# ---- the tenth wake --------------------------------------------------------------------------------------------------


def woken(scene: Scene, times: int) -> Drive:
    o = scene.orchestrator()
    for _ in range(times):
        w = scene.begin(o)
        scene.wait(o)
        scene.finish(w)
        o = scene.start(o.session)
    assert scene.run(o.session).wakes == times
    return o


@proves("2.nested.13", "From the tenth wake on its spawns, and yields that would wait, are refused, with the reason")
@proves("7.input.7")
def test_from_the_tenth_wake_on_spawns_and_yields_are_refused_with_the_reason(scene: Scene) -> None:
    o = woken(scene, 9)
    first, second = scene.begin(o), scene.spawn(o)
    scene.wait(o, "any")
    scene.finish(first)
    o = scene.start(o.session)
    before = scene.dump()
    for refused in (partial(scene.spawn, o), partial(scene.wait, o), partial(scene.wait, o, 2)):
        with pytest.raises(Refused, match=r"^woken 10 of 10 times: finish with what you have$") as error:
            refused()
        assert error.value.status == "forbidden"
    assert scene.dump() == before
    scene.finish(scene.start(second), "the second")
    assert scene.wait(o) == "on", "what is there is handed over all the same"
    assert scene.told(o.session)[-1] == second
    scene.finish(o, "with what I have")
    assert scene.phase(o.session) == "announcing"


@proves("2.nested.11", "A woken run's next final text is the result, the earlier text the fallback")
@proves("2.nested.14", "It is still woken when all its descendants have settled")
def test_after_nine_wakes_it_may_still_spawn_and_is_woken_a_last_time_for_what_is_below(scene: Scene) -> None:
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
