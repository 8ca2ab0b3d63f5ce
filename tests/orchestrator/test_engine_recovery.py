"""What goes wrong, and how the engine goes on: performers that fail, processes that close or crash, stores that refuse.
An act that ends `crashed` is a kill -9: everything in memory vanishes, and the next act is another process."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fledge.core import events as ev
from fledge.core.run import Terms
from fledge.errors import StoreError
from fledge.orchestrator import control, spawn, turns
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.store.base import Spec, Tx
from fledge.store.files import DATABASE
from fledge.testing import START, InlineStore, Script, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual
from tests.orchestrator.stage import LIMITS, MAIN, Theatre, World, in_turns, lingers, rules, two_steps, works
from tests.statements import proves


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


# ---- performers that fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ValueError("no such model"), "internal error: no such model"),
        (RuntimeError(), "internal error: RuntimeError"),
        (StoreError("disk full"), "internal error: disk full"),
    ],
)
def test_a_driver_that_raises_ends_its_run_with_a_readable_error(
    theatre: Theatre, raised: Exception, error: str
) -> None:
    async def breaks(stage: Stage) -> None:
        await stage.sleep(1)
        raise raised

    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("error", error, 1.0)
        assert await world.told() == [["a"]]
        assert error in (await world.heard(kind="event"))[0]

    theatre.act(body, {"a": breaks})


def test_a_row_that_cannot_be_taken_up_keeps_no_other_waiting(
    theatre: Theatre, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def queue(world: World) -> list[str]:
        return [await world.spawn(label) for label in "abc"]

    async def body(world: World) -> None:
        await world.clock.sleep(60)
        assert await world.all_told() == ["a", "c"]

    damaged = theatre.act(queue, rules=Rules(widths={"main": 4, "subagent": 0}))[1]
    with closing(sqlite3.connect(tmp_path / DATABASE)) as db, db:
        db.execute("UPDATE runs SET state = '{' WHERE key = ?", (damaged,))
    theatre.act(body)
    assert "processing a due row failed" in caplog.text


class Absent(ScriptedPerformer):
    """Returns from a run's drive without a word."""

    async def drive(self, engine: Engine, drive: Drive) -> None:
        if drive.run is None:
            await super().drive(engine, drive)


def test_a_driver_that_returns_without_an_end_ends_its_run_with_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        store = InlineStore(tmp_path)
        engine = Engine(store, Absent(works(0, "noted")), clock=VirtualClock(), ids=SeededIds(1))
        async with engine:
            await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
            request = spawn.SpawnRequest(spec=Spec(task="a"), terms=Terms(parent=MAIN))
            run = await engine.commit(lambda c: spawn.spawn(c, request))
            await asyncio.sleep(10)
            ended = (await store.read(lambda tx: tx.runs.load(run.key))).ended
        assert ended is not None
        assert (ended.outcome.status, ended.outcome.error) == ("error", "the driver returned without an end")
        store.close_now()

    run_virtual(main())


@proves("2.hops.6", "A turn with drained items and no reply is due again, 2 … 60 s apart")
def test_a_turn_that_raises_is_tried_again_and_its_results_are_told_once(theatre: Theatre) -> None:
    async def breaks(stage: Stage) -> None:
        raise ValueError("no such model")

    async def body(world: World) -> None:
        await world.spawn("a")
        await world.clock.sleep(60)
        assert world.driven("main") == [0.0, 2.0, 6.0]
        assert await world.told() == [["a"]]
        assert await world.heard(kind="assistant") == ["done"]

    theatre.act(body, {"main": in_turns(breaks, breaks)})


# ---- closing ---------------------------------------------------------------------------------------------------------


@proves("1.attempts.4")
def test_a_graceful_close_requeues_without_counting_a_crash_and_the_next_engine_finishes(theatre: Theatre) -> None:
    async def first(world: World) -> str:
        key = await world.spawn("a")
        await world.sleep_until(1.5)
        return key

    key = theatre.act(first, {"a": two_steps})

    async def second(world: World) -> None:
        run = await world.run(key)
        assert (run.phase.name, run.crashes, run.attempt) == ("queued", 0, 1)
        assert await world.look(lambda tx: tx.drivers.all()) == []
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("ok", None, 2.5)
        assert await world.happened(key, ev.LeaseLost) == 1
        assert (await world.run(key)).crashes == 0
        assert await world.told() == [["a"]]

    theatre.act(second, {"a": works(1)})


@proves("0.crash.8", "A graceful stop counts nothing")
def test_any_number_of_graceful_closes_fails_no_run(theatre: Theatre) -> None:
    async def begin(world: World) -> str:
        return await world.spawn("a")

    async def go_on(world: World) -> None:
        await world.clock.sleep(1)

    key = theatre.act(begin, {"a": works(100)})
    for _ in range(4):
        theatre.act(go_on, {"a": works(100)})

    async def last(world: World) -> None:
        await world.clock.sleep(1)
        assert (await world.outcome(key))[0] == "ok"
        assert (await world.run(key)).crashes == 0

    theatre.act(last)


def test_closing_waits_for_a_driver_that_lingers_and_keeps_what_it_still_says(theatre: Theatre) -> None:
    async def slow_to_leave(stage: Stage) -> None:
        await lingers(stage, 3)
        await stage.say("just in time")

    async def first(world: World) -> str:
        key = await world.spawn("a")
        await world.clock.sleep(1)
        return key

    key = theatre.act(first, {"a": slow_to_leave})
    assert theatre.now == 3.0

    async def second(world: World) -> None:
        await world.clock.sleep(10)
        assert await world.outcome(key) == ("ok", None, 3.0)
        assert await world.told() == [["a"]]

    theatre.act(second)


def test_closing_on_a_store_that_fails_ends_and_the_next_engine_takes_over(theatre: Theatre) -> None:
    async def first(world: World) -> str:
        key = await spawn_a(world)
        world.store.broken = True
        return key

    key = theatre.act(first, {"a": works(100)})
    assert theatre.now <= 10

    async def second(world: World) -> None:
        await world.clock.sleep(10)
        assert (await world.outcome(key))[0] == "ok"
        lost = [event for event in await world.look(lambda tx: tx.events.of(key)) if isinstance(event, ev.LeaseLost)]
        assert [event.step_open for event in lost] == [True]
        assert await world.told() == [["a"]]

    theatre.act(second)


# ---- crashes ---------------------------------------------------------------------------------------------------------


async def one_second(world: World) -> None:
    await world.clock.sleep(1)


async def spawn_a(world: World) -> str:
    key = await world.spawn("a")
    await world.clock.sleep(1)
    return key


@proves("0.crash.9", "At the third crash the run fails with a reason, which is announced")
def test_the_third_crash_without_progress_fails_the_run_and_that_is_announced(theatre: Theatre) -> None:
    key = theatre.act(spawn_a, {"a": works(100)}, ends="crashed")

    async def again(world: World) -> int:
        await world.clock.sleep(1)
        run = await world.run(key)
        assert run.phase.name == "running"
        assert len(world.driven("a")) == 1
        return run.crashes

    assert theatre.act(again, {"a": works(100)}, ends="crashed") == 1
    assert theatre.act(again, {"a": works(100)}, ends="crashed") == 2

    async def last(world: World) -> None:
        await world.clock.sleep(1)
        assert world.driven("a") == []
        error = "it crashed 3 times in the same step and was not tried again"
        assert await world.outcome(key) == ("error", error, 3.0)
        assert await world.told() == [["a"]]
        assert await world.unsettled() == 0
        assert await world.look(lambda tx: tx.drivers.all()) == []

    theatre.act(last)


@proves("0.crash.7", "Any committed step starts the count again")
def test_a_committed_step_resets_the_count_of_crashes(theatre: Theatre) -> None:
    key = theatre.act(spawn_a, {"a": works(100)}, ends="crashed")
    theatre.act(one_second, {"a": works(100)}, ends="crashed")

    async def steps(stage: Stage) -> None:
        await stage.step("a tool's output")
        await stage.sleep(100)

    async def counted(world: World) -> list[int]:
        before = (await world.run(key)).crashes
        await world.clock.sleep(1)
        return [before, (await world.run(key)).crashes]

    assert theatre.act(counted, {"a": steps}, ends="crashed") == [2, 0]
    assert theatre.act(counted, {"a": works(100)}, ends="crashed") == [1, 1]

    async def last(world: World) -> None:
        await world.clock.sleep(1)
        assert (await world.outcome(key))[0] == "ok"

    theatre.act(last)


@proves("0.crash.7")
@pytest.mark.parametrize("how", ["a yield", "its last words"])
def test_crashes_before_a_wait_count_no_more_after_it(theatre: Theatre, how: str) -> None:
    async def waits(stage: Stage) -> None:
        if stage.run is None or stage.run.wakes:
            await stage.sleep(100)
        elif how == "a yield":
            await stage.step("a tool's output")
            await stage.wait()
        else:
            await stage.say("the rest is to come")

    async def begin(world: World) -> str:
        key = await world.spawn("a")
        await world.spawn("below", parent=key)
        await world.clock.sleep(1)
        return key

    async def counted(world: World) -> tuple[str, int]:
        await world.clock.sleep(1)
        run = await world.run(key)
        return run.phase.name, run.crashes

    scripts = {"a": works(100), "below": works(100)}
    key = theatre.act(begin, scripts, ends="crashed")
    assert theatre.act(counted, scripts, ends="crashed") == ("running", 1)
    assert theatre.act(counted, {"a": waits, "below": works(0.5)}, ends="crashed") == ("running", 0)
    assert theatre.act(counted, {"a": waits}, ends="crashed") == ("running", 1)


@proves("0.crash.7")
def test_crashes_of_planning_count_no_more_once_the_plan_is_answered(theatre: Theatre) -> None:
    async def plan(world: World) -> str:
        key = await world.spawn("a", plan=True)
        await world.clock.sleep(1)
        return key

    async def approve(world: World) -> None:
        await world.clock.sleep(1)
        await world.engine.commit(lambda c: control.answer_plan(c, key, approve=True, words="APPROVED: proceed"))
        run = await world.run(key)
        assert (run.phase.name, run.crashes) == ("queued", 0)

    key = theatre.act(plan, {"a": works(100)}, ends="crashed")
    theatre.act(one_second, {"a": works(100)}, ends="crashed")
    theatre.act(approve, {"a": works(0.5, "1. look")})


@proves("0.crash.10", "From the second crash on, suspects are driven one at a time, others beside them")
def test_suspects_are_driven_one_at_a_time_and_others_beside_them(theatre: Theatre) -> None:
    labels = ["a", "b", "c"]

    async def first(world: World) -> None:
        for label in labels:
            await world.spawn(label)
        await world.clock.sleep(1)
        assert sorted(world.drives) == [(0.0, label) for label in labels]

    async def second(world: World) -> None:
        await world.clock.sleep(1)
        assert sorted(world.drives) == [(1.0, label) for label in labels]

    async def third(world: World) -> None:
        await world.spawn("new")
        await world.clock.sleep(60)
        suspects = [(at, who) for at, who in world.drives if who in labels]
        assert [at for at, _ in suspects] == [2.0, 12.0, 22.0]
        assert sorted(who for _, who in suspects) == labels
        assert world.driven("new") == [2.0]
        assert await world.all_told() == [*labels, "new"]

    theatre.act(first, {label: works(100) for label in labels}, ends="crashed")
    theatre.act(second, {label: works(100) for label in labels}, ends="crashed")
    theatre.act(third, {label: works(10) for label in labels})


@proves("0.crash.10")
def test_turns_of_conversations_are_suspects_like_runs_also_when_somebody_speaks_to_them(theatre: Theatre) -> None:
    keys = ["agent:main:x", "agent:main:y"]
    begun: list[tuple[float, str]] = []

    def takes(seconds: float) -> Script:
        async def script(stage: Stage) -> None:
            begun.append((stage.engine.clock.now() - START, stage.session))
            await stage.sleep(seconds)
            await stage.say("done")

        return script

    async def first(world: World) -> None:
        for key in keys:
            await world.engine.commit(lambda c: spawn.open_conversation(c, key))  # noqa: B023 (awaited here)
            await world.send(key=key)
        await world.clock.sleep(1)

    async def third(world: World) -> None:
        for key in keys:
            await world.send("and?", key)
        await world.clock.sleep(60)

    theatre.act(first, {"main": takes(100)}, ends="crashed")
    theatre.act(one_second, {"main": takes(100)}, ends="crashed")
    assert [at for at, _ in begun] == [0.0, 0.0, 1.0, 1.0]
    begun.clear()
    theatre.act(third, {"main": takes(10)})
    suspects = [at for at, _ in begun][:2]
    assert suspects == [2.0, 12.0]
    assert {who for _, who in begun[:2]} == set(keys)


@proves("0.crash.11", "A suspect that commits a step is one no more, and the next is driven beside it")
def test_a_suspect_that_commits_a_step_lets_the_next_be_driven_beside_it(theatre: Theatre) -> None:
    labels = ["a", "b"]

    async def first(world: World) -> None:
        for label in labels:
            await world.spawn(label)
        await world.clock.sleep(1)

    async def steps_at_three(stage: Stage) -> None:
        await stage.sleep(3)
        await stage.step("a tool's output")
        await stage.sleep(50)

    async def third(world: World) -> None:
        await world.clock.sleep(10)
        assert [at for at, _ in world.drives] == [2.0, 5.0]
        assert {who for _, who in world.drives} == set(labels)

    theatre.act(first, {label: works(100) for label in labels}, ends="crashed")
    theatre.act(one_second, {label: works(100) for label in labels}, ends="crashed")
    theatre.act(third, dict.fromkeys(labels, steps_at_three))


@proves("0.crash.6", "A conversation's turn counts its crashes likewise, and at three it is given up and told")
def test_a_conversation_whose_turn_crashes_three_times_is_told_and_answers_again(theatre: Theatre) -> None:
    async def first(world: World) -> None:
        await world.send()
        await world.clock.sleep(1)

    theatre.act(first, {"main": works(100)}, ends="crashed")
    theatre.act(one_second, {"main": works(100)}, ends="crashed")
    theatre.act(one_second, {"main": works(100)}, ends="crashed")

    async def last(world: World) -> None:
        await world.clock.sleep(1)
        assert await world.heard() == ["go", "the last turn crashed 3 times and was given up"]
        assert await world.heard(kind="assistant") == ["answer of main"]

    theatre.act(last)


@proves("0.crash.6")
def test_a_conversation_that_crashes_every_process_is_left_alone_after_its_turn_and_one_heartbeat(
    theatre: Theatre,
) -> None:
    async def first(world: World) -> None:
        await world.send()
        await world.clock.sleep(1)

    theatre.act(first, {"main": works(100)}, ends="crashed")
    for _ in range(5):
        theatre.act(one_second, {"main": works(100)}, ends="crashed")

    async def last(world: World) -> None:
        await world.clock.sleep(3600)
        assert await world.heard() == ["go", "the last turn crashed 3 times and was given up"]
        assert await world.heard(kind="assistant") == []
        await world.send("and now?")
        await world.clock.sleep(1)
        assert await world.heard(kind="assistant") == ["answer of main"]

    theatre.act(last)


@proves("0.lost.1")
@proves("0.twice.3", "Recovered delivery consumes the same row")
@proves("2.phases.24", "After a crash an announcing run's row is still there")
@proves("2.queue.3", "The queue is durable")
def test_a_result_that_was_unread_at_the_crash_is_told_once_by_the_next_process(theatre: Theatre) -> None:
    async def first(world: World) -> None:
        await world.send()
        await world.spawn("a")
        await world.clock.sleep(2)
        assert await world.told() == []

    async def second(world: World) -> None:
        await world.clock.sleep(10)
        assert await world.told() == [["a"]]
        assert await world.heard() == ["go"]

    theatre.act(first, {"main": works(100), "a": works(1)}, ends="crashed")
    theatre.act(second)


@proves("2.phases.21", "After a crash a stopping run is decided as killed")
def test_a_kill_that_was_undecided_at_the_crash_is_decided_by_the_next_process(theatre: Theatre) -> None:
    async def stubborn(stage: Stage) -> None:
        await lingers(stage, 100)

    async def first(world: World) -> str:
        key = await world.spawn("a")
        await world.clock.sleep(1)
        await world.kill(key)
        await world.clock.sleep(1)
        return key

    key = theatre.act(first, {"a": in_turns(stubborn)}, ends="crashed")

    async def second(world: World) -> None:
        await world.clock.sleep(1)
        assert (await world.outcome(key))[0] == "killed"
        assert await world.told() == []
        assert world.drives == []

    theatre.act(second)


@proves("2.phases.7", "After a crash a reservation that was never answered is deleted with all it prepared")
def test_a_reservation_of_a_dead_process_is_gone_and_its_parents_count_is_right(theatre: Theatre) -> None:
    request = spawn.SpawnRequest(
        spec=Spec(task="half made"), terms=Terms(parent=MAIN, leaves=("/made/for/it",)), limits=LIMITS
    )

    async def first(world: World) -> str:
        await world.spawn("whole")
        run = await world.engine.commit(lambda c: spawn.reserve(c, request))
        assert await world.unsettled() == 2
        return run.key

    key = theatre.act(first, {"whole": works(5)}, ends="crashed")

    async def second(world: World) -> None:
        await world.clock.sleep(1)
        assert await world.look(lambda tx: (tx.runs.find(key), tx.sessions.get(key))) == (None, None)
        assert await world.unsettled() == 1
        assert [(post.kind, post.body) for post in world.performer.posted] == [("remove", '["/made/for/it"]')]
        await world.clock.sleep(10)
        assert await world.told() == [["whole"]]
        assert await world.unsettled() == 0

    theatre.act(second, {"whole": works(5)})


def test_a_reservation_that_is_never_prepared_is_gone_after_thirty_seconds(theatre: Theatre) -> None:
    request = spawn.SpawnRequest(spec=Spec(task="half made"), terms=Terms(parent=MAIN), limits=LIMITS)

    async def body(world: World) -> None:
        key = (await world.engine.commit(lambda c: spawn.reserve(c, request))).key
        await world.sleep_until(29.75)
        assert (await world.run(key)).phase.name == "spawning"
        await world.sleep_until(30.25)
        assert await world.look(lambda tx: tx.runs.find(key)) is None
        assert await world.unsettled() == 0
        assert await world.told() == []

    theatre.act(body)


# ---- stores that refuse ----------------------------------------------------------------------------------------------


def test_a_store_that_fails_for_a_while_kills_no_engine_and_loses_nothing(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        keys = {label: await world.spawn(label) for label in ("before", "amid", "across")}
        await world.spawn("timed", timeout_s=3)
        await world.sleep_until(2)
        world.store.broken = True
        await world.sleep_until(6)
        world.store.broken = False
        await world.spawn("after")
        await world.clock.sleep(60)
        assert (await world.outcome(keys["before"]))[::2] == ("ok", 1.0)
        assert (await world.outcome(keys["across"]))[::2] == ("ok", 8.0)
        # Tried at 4, then after 0.1, 0.2, 0.4, 0.8 and 1.6 s.
        assert await world.outcome(keys["amid"]) == ("error", "internal error: disk full", 7.1)
        assert await world.all_told() == ["across", "after", "amid", "before", "timed"]
        assert await world.unsettled() == 0
        assert await world.look(lambda tx: tx.drivers.all()) == []

    scripts = {"before": works(1), "amid": works(4), "across": works(8), "timed": works(100)}
    theatre.act(body, scripts)


def test_a_post_that_cannot_be_looked_at_kills_no_engine_and_is_sent_later(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        def post(c: Commit) -> None:
            c.tx.outbox.post("note:late", "note", None, "{}", c.at)
            c.hints.look = True

        await world.engine.commit(post)
        world.store.answer_s = 1.0  # so that it breaks after the look that finds the post, before the next
        await world.clock.sleep(0.5)
        world.store.broken = True
        await world.clock.sleep(2)
        world.store.broken, world.store.answer_s = False, 0.0
        await world.spawn("after")
        await world.clock.sleep(10)
        assert [name for _, name in world.performer.called] == ["late"]
        assert await world.all_told() == ["after"]

    theatre.act(body)


def test_a_commit_that_is_abandoned_while_the_store_fails_kills_no_engine(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        world.store.hold_s = 1.0
        abandoned = asyncio.ensure_future(world.spawn("abandoned"))
        await world.clock.sleep(0.5)
        world.store.broken = True
        abandoned.cancel()
        await world.clock.sleep(2)
        world.store.broken = False
        await world.spawn("after")
        await world.clock.sleep(10)
        assert await world.all_told() == ["abandoned", "after"]

    theatre.act(body)


def test_an_engine_that_starts_on_a_broken_store_begins_once_it_works(theatre: Theatre) -> None:
    key = theatre.act(spawn_a, {"a": works(100)}, ends="crashed")

    async def body(world: World) -> None:
        def refuse(tx: Tx) -> None:
            if world.at() < 10:
                raise StoreError("disk full")

        world.store.check = refuse
        await world.clock.sleep(60)
        assert (await world.outcome(key))[0] == "ok"
        assert await world.told() == [["a"]]

    theatre.act(body)


@pytest.mark.parametrize("error", [RuntimeError("bad row"), StoreError("bad page")], ids=["a bug", "a store error"])
def test_a_claim_that_raises_for_one_session_does_not_stop_others(theatre: Theatre, error: Exception) -> None:
    async def body(world: World) -> None:
        bad: set[str] = set()

        def refuse(tx: Tx) -> None:
            if any(tx.drivers.get(key) is not None for key in bad):
                raise error

        await world.spawn("blocker")
        world.store.check = refuse
        bad.add(await world.spawn("bad"))
        for label in ("b", "c"):
            await world.spawn(label)
        await world.clock.sleep(10)
        assert await world.all_told() == ["b", "blocker", "c"]
        assert world.driven("bad") == []
        bad.clear()
        await world.spawn("d")
        await world.clock.sleep(10)
        assert await world.all_told() == ["b", "bad", "blocker", "c", "d"]

    theatre.act(body, {"blocker": works(2)})


@pytest.mark.parametrize("error", [RuntimeError("bad row"), StoreError("bad page")], ids=["a bug", "a store error"])
def test_a_claim_that_raises_for_one_session_does_not_keep_hooks_from_being_called(
    theatre: Theatre, error: Exception
) -> None:
    async def body(world: World) -> None:
        bad: set[str] = set()

        def refuse(tx: Tx) -> None:
            if any(tx.drivers.get(key) is not None for key in bad):
                raise error

        world.store.check = refuse
        bad.add(await world.spawn("bad"))
        await world.clock.sleep(1)
        key = await world.spawn("b")
        await world.clock.sleep(10)
        assert await world.told() == [["b"]]
        assert {post.run for post in world.performer.posted} == {key}

    theatre.act(body, rules=rules(hooks=("subagent_ended",)))


@pytest.mark.parametrize("error", [RuntimeError("bad row"), StoreError("bad page")], ids=["a bug", "a store error"])
def test_a_claim_that_raised_is_tried_again_though_nothing_else_happens(theatre: Theatre, error: Exception) -> None:
    async def body(world: World) -> None:
        def refuse_at_first(tx: Tx) -> None:
            if tx.drivers.all() and world.at() < 0.5:
                raise error

        world.store.check = refuse_at_first
        await world.spawn("a")
        await world.clock.sleep(120)
        assert await world.told() == [["a"]]

    theatre.act(body)


@proves("2.phases.12")
def test_a_driver_of_an_older_process_changes_nothing_any_more(theatre: Theatre) -> None:
    held: list[Drive] = []

    async def holds(stage: Stage) -> None:
        held.append(stage.drive)
        await stage.sleep(100)

    theatre.act(spawn_a, {"a": holds}, ends="crashed")

    async def body(world: World) -> None:
        await world.clock.sleep(1)
        with pytest.raises(StoreError, match="epoch 1 of"):
            await world.engine.commit(lambda c: turns.finish(c, held[0], "stale"))
        await world.clock.sleep(10)
        assert await world.result(held[0].session) == "fresh"

    theatre.act(body, {"a": works(5, "fresh")})
