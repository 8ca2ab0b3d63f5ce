"""A kill, on the real store: the stopping window, late completes below it, one commit for the whole tree.
M is main, O its child, W a child of O."""

from contextlib import closing

import pytest

from fledge.core import events as ev
from fledge.core.run import Ending, Killed, Ok, Skipped, Stopping
from fledge.errors import Refused, StaleWrite
from fledge.orchestrator import control, spawn, turns
from fledge.orchestrator.commit import Listener
from fledge.orchestrator.effects import Killing
from fledge.testing import world
from tests.model.world import MAIN
from tests.orchestrator.scene import Scene, scene_fixture
from tests.statements import proves

scene = pytest.fixture(scene_fixture)


# ---- kill and the stopping window ------------------------------------------------------------------------------------


@proves("2.kill.2", "A driven run goes to stopping and keeps epoch, slot and its place as an unsettled child")
def test_a_driven_run_keeps_epoch_slot_and_place_until_it_acknowledges(scene: Scene) -> None:
    o = scene.orchestrator()
    assert scene.kill(o.session) == Killing(killed=(), stopping=(o.session,))
    assert scene.run(o.session).phase == Ending(scene.clock.now() + 5.0, Stopping(named=True, may_win=True))
    driver = scene.read(lambda tx: tx.drivers.fence(o.session, o.epoch))
    assert driver.release_at == scene.clock.now() + 5.0
    assert scene.counts(MAIN).unsettled == 1
    scene.exit(o)
    run = scene.run(o.session)
    assert (run.phase.name, run.delivery) == ("completed", Skipped("suppressed"))
    assert run.ended is not None
    assert run.ended.outcome == Killed(named=True)
    assert scene.counts(MAIN).unsettled == 0
    assert scene.unread(MAIN) == []


@proves("2.kill.7", "A late complete that wins is `ok`, announced at once without waiting for descendants")
def test_a_complete_in_the_window_wins_and_is_announced_without_waiting_for_descendants(scene: Scene) -> None:
    o = scene.orchestrator(cleanup="delete")
    w = scene.begin(o)
    scene.kill(o.session)
    assert scene.finish(o, "just in time") == "over"
    run = scene.run(o.session)
    assert run.ended is not None
    assert (run.phase.name, run.ended.outcome) == ("announcing", Ok())
    assert any(isinstance(event, ev.KillOrdered) for event in scene.read(lambda tx: tx.events.of(o.session)))
    assert scene.phase(w.session) == "ending"
    assert scene.read_main() == [o.session]
    assert "just in time" in scene.said(MAIN)[-2]


@proves("2.kill.6", "An error, abort, plan or yield never wins over a kill")
@pytest.mark.parametrize("end", ["error", "budget", "yield", "silence of 5 s", "crash"])
def test_no_other_end_wins_and_the_kill_is_silent(scene: Scene, end: str) -> None:
    o = scene.orchestrator()
    w = scene.spawn(o)
    scene.kill(o.session)
    match end:
        case "error" | "budget":
            scene.fail(o, "aborted", end)
        case "yield":
            with pytest.raises(Refused, match="was killed: no further step"):
                scene.wait(o)
            scene.exit(o)
        case "silence of 5 s":
            scene.pass_time(4.9)
            assert scene.phase(o.session) == "ending"
            scene.pass_time(0.1)
        case _:
            scene.crash()
    run = scene.run(o.session)
    assert run.ended is not None
    assert (run.ended.outcome, run.delivery) == (Killed(named=True), Skipped("suppressed"))
    assert scene.phase(w) == "completed"
    assert scene.unread(MAIN) == []
    with pytest.raises(StaleWrite):
        scene.commit(lambda c: turns.finish(c, o, "too late"))


@proves("2.kill.6")
def test_a_plan_that_ends_in_the_window_is_not_offered(scene: Scene) -> None:
    o = scene.orchestrator(plan=True)
    scene.kill(o.session)
    scene.finish(o, "1. do it")
    run = scene.run(o.session)
    assert (run.phase.name, run.delivery) == ("completed", Skipped("suppressed"))
    assert scene.unread(MAIN) == []


def test_a_sends_turn_that_ends_in_the_window_is_no_result(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.begin(o)
    scene.wait(o)
    scene.send(o.session)
    serving = scene.start(o.session)
    scene.kill(o.session)
    scene.finish(serving, "you are welcome")
    assert scene.run(o.session).delivery == Skipped("suppressed")
    assert scene.unread(MAIN) == []


@proves("2.kill.3", "A stopping run opens no model step and no tool call")
@proves("2.kill.4", "A stopping run accepts no send and no steer")
def test_the_timeline_of_a_kill_of_a_working_run_says_that_it_stopped(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.kill(o.session)
    scene.exit(o)
    names = [type(event).__name__ for event in scene.read(lambda tx: tx.events.of(o.session))]
    assert names[names.index("KillOrdered") :][:2] == ["KillOrdered", "DriverStopped"]
    assert "LeaseLost" not in names


def test_stopping_opens_no_step_and_takes_no_send_steer_or_second_kill(scene: Scene) -> None:
    o = scene.orchestrator()
    scene.kill(o.session)
    before = scene.dump()
    with pytest.raises(Refused, match=f"{o.session} was killed: no further step"):
        scene.commit(lambda c: world.step(c, o, [("tool", "output")]))
    with pytest.raises(Refused, match="was killed and is stopping: it takes no messages"):
        scene.send(o.session)
    with pytest.raises(Refused, match="is ending: nothing to steer"):
        scene.steer(o.session)
    assert scene.kill(o.session) == Killing((), (o.session,))
    after = scene.dump()
    # The second kill raises the generation once more, and may keep a note of the progress so far.
    assert {table for table in before if before[table] != after[table]} <= {"sessions", "texts"}


@proves("2.kill.10", "Cleanup, hooks and settling come only after the decision, once")
def test_hook_cleanup_and_settling_come_once_and_only_after_the_decision() -> None:
    with closing(Scene(hooks={"subagent_ended": (Listener("audit"),)})) as scene:
        o = scene.orchestrator(cleanup="delete")
        scene.kill(o.session)
        posted = "SELECT key FROM outbox"
        assert scene.sql(posted) == []
        assert not scene.session(o.session).deleted
        scene.exit(o)
        scene.pass_time(10.0)
        assert scene.sql(posted) == [(f"hook:subagent_ended:audit:{o.session}",)]
        assert scene.session(o.session).deleted
        assert (scene.counts(MAIN).spawned, scene.counts(MAIN).unsettled) == (1, 0)


# ---- late completes below the killed run -----------------------------------------------------------------------------


@proves("2.kill.12", "Late ends below the named run are kept for info and log, and told to nobody")
@pytest.mark.parametrize("o_first", [True, False])
def test_a_late_complete_below_the_killed_run_is_kept_but_told_to_nobody(scene: Scene, o_first: bool) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.kill(o.session)
    assert scene.run(w.session).phase == Ending(scene.clock.now() + 5.0, Stopping(named=False, may_win=False))
    if o_first:
        scene.exit(o)
    scene.finish(w, "from a tree that was killed")
    if not o_first:
        scene.exit(o)
    run = scene.run(w.session)
    assert run.ended is not None
    assert (run.ended.outcome, run.delivery) == (Killed(named=False), Skipped("suppressed"))
    assert "from a tree that was killed" in scene.said(w.session)
    assert scene.unread(MAIN) == []
    assert scene.sql("SELECT count(*) FROM inbox WHERE kind = 'outcome'") == [(0,)]


def test_a_foreign_runtimes_late_complete_below_a_kill_is_not_heard_either(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.kill(o.session)
    scene.exit(o)
    scene.exit(w)
    scene.complete_late(w.session, "at last")
    assert scene.unread(MAIN) == []
    assert scene.sql("SELECT count(*) FROM inbox WHERE kind = 'late'") == [(0,)]


# ---- kill is one commit ----------------------------------------------------------------------------------------------


@proves("4.kill.1", "One commit raises stop_generation of the named session and ends or marks every descendant")
@proves("4.kill.2", "… through finished parents, spawning ones included")
def test_one_commit_ends_or_marks_everything_below_through_finished_parents(scene: Scene) -> None:
    o = scene.orchestrator(lane="nested")
    p = scene.begin(o)
    below = scene.begin(p)
    queued = scene.spawn(o)
    reserved = scene.reserve(o)
    scene.fail(p)
    done = scene.kill(o.session)
    assert set(done.killed) == {queued, reserved}
    assert set(done.stopping) == {o.session, below.session}
    assert scene.read(lambda tx: tx.runs.find(reserved)) is None
    phases = {key: scene.phase(key) for key in (o.session, p.session, below.session, queued)}
    assert phases == {o.session: "ending", p.session: "completed", below.session: "ending", queued: "completed"}
    assert scene.run(p.session).delivery == Skipped("suppressed")
    scene.exit(o)
    scene.exit(below)
    assert scene.unread(MAIN) == []
    assert scene.counts(MAIN).unsettled == 0


@proves("4.kill.3", "Admission compares the generation of the caller's turn with its session's and all ancestors'")
@pytest.mark.parametrize("named", ["itself", "its parent", "main"])
def test_what_was_spawned_before_the_kill_is_refused_after_it_wherever_the_kill_was(scene: Scene, named: str) -> None:
    """`check_wanted`: generations of the caller's turn against its session's and all ancestors' now."""
    main = scene.main()
    o = scene.begin(main)
    w = scene.begin(o)
    match named:
        case "itself":
            stopped, caller = w.session, w
            scene.kill(w.session)
        case "its parent":
            stopped, caller = o.session, w
            scene.kill(o.session)
        case _:
            stopped, caller = MAIN, w
            scene.commit(lambda c: control.stop(c, MAIN))
    before = scene.dump()
    with pytest.raises(Refused, match=f"{stopped} was stopped after this turn began: stop_generation is 1"):
        scene.spawn(caller)
    assert scene.dump() == before


@proves("4.kill.4", "So does the commit that ends `spawning`")
def test_a_reservation_may_not_be_accepted_after_a_stop_above_it(scene: Scene) -> None:
    o = scene.orchestrator()
    key = scene.reserve(o)
    scene.commit(lambda c: c.tx.sessions.raise_generation(MAIN))
    with pytest.raises(Refused, match=f"{MAIN} was stopped after this turn began"):
        scene.commit(lambda c: spawn.prepared(c, key, o.generations))
    assert scene.phase(key) == "spawning"
    scene.commit(lambda c: spawn.failed(c, key, "stopped"))
    assert scene.counts(o.session).unsettled == 0


def test_a_child_that_ends_right_after_the_kill_of_its_parent_does_not_reach_main(scene: Scene) -> None:
    o = scene.orchestrator()
    w = scene.begin(o)
    scene.wait(o)
    scene.kill(o.session)
    assert scene.phase(o.session) == "completed"
    scene.finish(w, "found it")
    assert scene.unread(MAIN) == []
