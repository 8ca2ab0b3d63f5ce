"""What `tests/sim` has found, each as the smallest story that showed it. M is main, O its child, W a child of O."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from fledge.core import policy
from fledge.core.run import Mode, Terms
from fledge.core.transcript import CallEntry, Replied, Resulted, open_calls
from fledge.errors import Refused
from fledge.orchestrator import control, deliver, spawn, transcripts, turns
from fledge.orchestrator.carry_out import carry_out
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.store.base import Spec, Tx
from fledge.testing import InlineStore, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual
from tests.model.world import CAP, MAIN
from tests.orchestrator.scene import PROGRAM, Scene, for_a_program, refused, scene_fixture
from tests.orchestrator.stage import Theatre, World

T = TypeVar("T")

scene = pytest.fixture(scene_fixture)


# ---- races that are nobody's fault -----------------------------------------------------------------------------------


class Meddler(InlineStore):
    """Lets somebody act between the engine's look at what may be claimed and its claim."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.meddle: Callable[[Tx], None] | None = None

    async def read(self, job: Callable[[Tx], T]) -> T:
        seen = await super().read(job)
        if self.meddle is not None and isinstance(seen, tuple) and seen[0]:
            meddle, self.meddle = self.meddle, None
            self.run(meddle)
        return seen


def test_a_run_that_is_killed_between_looking_and_claiming_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> str:
        store, clock, ids = Meddler(tmp_path), VirtualClock(), SeededIds()
        async with Engine(store, ScriptedPerformer(_silent), clock=clock, ids=ids) as engine:
            await engine.commit(lambda c: spawn.open_program(c, PROGRAM))
            store.meddle = lambda tx: _kill_all(tx, engine)
            await engine.commit(_spawn_for_program)
            await clock.sleep(30)
            keys = await store.read(lambda tx: tx.children(PROGRAM))
            run = await store.read(lambda tx: tx.load_run(keys[0]))
        await store.close()
        return run.phase.name if run.ended is None else run.ended.outcome.status

    with caplog.at_level(logging.ERROR, "fledge"):
        assert run_virtual(main()) == "killed"
    assert caplog.records == []


async def _silent(stage: Stage) -> None:
    raise AssertionError("nothing is left to drive")


def _spawn_for_program(c: Commit) -> None:
    spawn.spawn(c, spawn.Request(spec=Spec(task="work"), terms=Terms(parent=PROGRAM)))


def _kill_all(tx: Tx, engine: Engine) -> None:
    c = Commit(tx, engine.clock.now(), engine.ids, engine.rules, carry_out)
    for key in tx.children(PROGRAM):
        control.kill(c, key)


def test_a_driver_that_learns_of_its_kill_by_a_refused_step_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def deaf(stage: Stage) -> None:
        with suppress(asyncio.CancelledError):
            await stage.kill(stage.session)
            await stage.sleep(1)
        await stage.step("one more")

    async def body(world: World) -> tuple[str, str | None, float]:
        key = await world.spawn("deaf")
        await world.clock.sleep(20)
        return await world.outcome(key)

    with caplog.at_level(logging.ERROR, "fledge"):
        assert Theatre(tmp_path).act(body, {"deaf": deaf}) == ("killed", "killed", 0.0)
    assert caplog.records == []


def test_an_engine_that_is_cancelled_while_it_opens_says_just_that(tmp_path: Path) -> None:
    class Slow(InlineStore):
        async def transact(self, job: Callable[[Tx], T]) -> T:
            await asyncio.sleep(60)
            return await super().transact(job)

    async def main() -> None:
        store = Slow(tmp_path)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await Engine(store, ScriptedPerformer(_silent), clock=VirtualClock()).__aenter__()
        await store.close()

    run_virtual(main())


# ---- places ----------------------------------------------------------------------------------------------------------


def test_an_ended_child_keeps_its_place_while_a_plan_below_it_awaits_its_answer(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main)
    w = scene.begin(o, plan=True)
    scene.finish(w, "1. look 2. do")
    scene.fail(o)
    for _ in range(CAP - 1):
        scene.spawn(main)
    with refused(
        scene,
        "forbidden",
        f"active children {CAP} of {CAP}: agents.defaults.subagents.maxChildrenPerAgent",
    ):
        scene.spawn(main)
    scene.answer(w.session, True)
    assert scene.counts(MAIN).unsettled == CAP
    scene.kill(w.session)
    assert scene.spawn(main)


def test_a_session_that_outlived_its_run_takes_a_place_again_with_its_next_child(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main, mode="session")
    scene.finish(o, "ready")
    scene.check()
    others = [scene.spawn(main) for _ in range(CAP)]
    scene.send(o.session, "and now do this")
    again = scene.start(o.session)
    with refused(
        scene,
        "forbidden",
        f"active children {CAP} of {CAP}: agents.defaults.subagents.maxChildrenPerAgent, of {MAIN}",
    ):
        scene.spawn(again)
    scene.kill(others[-1])
    assert scene.spawn(again)
    assert scene.counts(MAIN).unsettled == CAP
    assert scene.spawn(again), "its place is taken once, not with every child"


def test_a_session_over_a_plan_never_gave_its_place_up(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main, mode="session")
    w = scene.begin(o, plan=True)
    scene.finish(w, "1. look 2. do")
    scene.finish(o, "ready")
    scene.finish(o, "read, and ready")
    scene.check()
    for _ in range(CAP - 1):
        scene.spawn(main)
    scene.send(o.session, "and now do this")
    assert scene.spawn(scene.start(o.session))
    assert scene.counts(MAIN).unsettled == CAP


def test_a_session_of_a_program_finds_a_place_whatever_the_program_has(scene: Scene) -> None:
    scene.commit(lambda c: spawn.open_program(c, PROGRAM))
    wide = policy.Limits(max_depth=3, max_children=99)

    def ask(mode: Mode) -> str:
        request = spawn.Request(spec=Spec(task="work"), terms=Terms(parent=PROGRAM, mode=mode), limits=wide)
        return scene.commit(lambda c: spawn.spawn(c, request)).key

    o = scene.start(ask("session"))
    scene.finish(o, "ready")
    scene.check()
    for _ in range(CAP):
        ask("run")
    scene.send(o.session, "and now do this", None)
    assert scene.spawn(scene.start(o.session))


def test_the_cap_above_is_that_of_the_agent_above(scene: Scene) -> None:
    main = scene.main()
    o = scene.begin(main, mode="session")
    scene.finish(o, "ready")
    scene.check()
    scene.spawn(main)
    scene.send(o.session, "and now do this")
    asked = scene.request(scene.start(o.session))
    caps = {"main": 1}
    with pytest.raises(Refused, match="active children 1 of 1"):
        scene.commit(lambda c: spawn.spawn(c, replace(asked, cap_of=lambda agent: caps[agent])))
    caps["main"] = 2
    assert scene.commit(lambda c: spawn.spawn(c, replace(asked, cap_of=lambda agent: caps[agent])))


# ---- programs --------------------------------------------------------------------------------------------------------


def test_a_notice_for_a_program_is_not_left_unread_for_ever(scene: Scene) -> None:
    o = for_a_program(scene)
    scene.pass_time(300.0)
    assert scene.run(o.session).phase.due_at is None, "it was noticed that it is stuck"
    assert scene.inbox(PROGRAM) == []


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


# ---- what waits behind a turn that is given up -----------------------------------------------------------------------


def _two_words_apart(scene: Scene) -> Drive:
    """Two agents say something to main, each in its own talk; main has read the first."""

    def say(c: Commit) -> None:
        for number in range(2):
            deliver.put_message(c, MAIN, f"w{number}", "send", "agent:bob:main", "hello", f"exchange:{number}")
        deliver.wake(c, MAIN)

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
        scene.commit(lambda c: c.tx.progress(MAIN, c.at, step_open=True))
        driver = scene.read(lambda tx: tx.driver(MAIN))
        assert driver is not None
        scene.commit(partial(turns.lost, driver=replace(driver, step_open=True, steps=0), crashed=True))
        del scene.drives[MAIN]
    assert scene.read(lambda tx: tx.turn(MAIN)) is None
    assert scene.claimable() == [MAIN]
