"""The engine in virtual time: one child from spawn to transcript, delivery to idle and busy requesters, waiting, time
limits."""

import asyncio
from pathlib import Path

import pytest

from fledge.core.events import YieldCondition
from fledge.core.run import Delivered
from fledge.errors import StaleWrite
from fledge.orchestrator import control
from fledge.orchestrator.effects import Killing
from fledge.store.base import Tx
from fledge.testing import Script, Stage
from tests.orchestrator.stage import MAIN, NARROW, Theatre, World, at, in_turns, rules, two_steps, works
from tests.statements import proves


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


# ---- one child -------------------------------------------------------------------------------------------------------


@proves("0.timeline.1", "Every change of a run is an event row")
@proves("2.outcome.2")
@proves("2.frozen.1")
@proves("2.hops.3")
def test_a_child_lives_from_spawn_to_completed_with_exactly_these_events(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.clock.sleep(10)
        assert await world.timeline(key) == [
            ("Admitted", 0.0),
            ("Prepared", 0.0),
            ("Claimed", 0.0),
            ("AttemptEnded", 2.0),
            ("RowConsumed", 2.0),
            ("CleanedUp", 2.0),
        ]
        run = await world.run(key)
        assert (run.phase.name, run.delivery, run.attempt) == ("completed", Delivered("direct"), 1)
        assert await world.outcome(key) == ("ok", None, 2.0)
        assert await world.result(key) == "the answer"
        assert await world.look(lambda tx: tx.drivers.all()) == []

    theatre.act(body, {"a": two_steps})


@proves("0.promise.1", "A spawned child's answer arrives in its requester's conversation, once, and is answered")
def test_its_result_is_in_the_requesters_transcript_once_and_is_answered(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.spawn("a")
        await world.clock.sleep(4000)
        assert await world.told() == [["a"]]
        assert "".join(await world.heard(kind="event")).count("the answer") == 1
        assert await world.heard(kind="assistant") == ["answer of main"]
        assert await world.look(lambda tx: (tx.inbox.unread(MAIN), tx.turns.get(MAIN))) == ([], None)

    theatre.act(body, {"a": two_steps})


def test_a_child_of_two_steps_costs_at_most_six_commits_with_its_share_of_the_requesters_drain(
    theatre: Theatre,
) -> None:
    async def body(world: World) -> int:
        await world.clock.sleep(1)
        before = world.store.commits
        await world.spawn("a")
        await world.clock.sleep(100)
        assert await world.told() == [["a"]]
        return world.store.commits - before

    assert theatre.act(body, {"a": two_steps}) <= 6


def test_an_engine_with_nothing_to_do_commits_nothing(theatre: Theatre) -> None:
    async def body(world: World) -> int:
        await world.clock.sleep(1)
        before = world.store.commits
        await world.clock.sleep(100_000)
        return world.store.commits - before

    assert theatre.act(body) == 0


def test_listeners_hear_of_a_run_once_its_outcome_is_committed(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        heard: list[tuple[float, str]] = []
        world.engine.on_change(lambda key: heard.append((world.at(), key)))
        key = await world.spawn("a")
        await world.sleep_until(1.5)
        assert heard == []
        await world.sleep_until(3)
        assert set(heard) == {(2.0, key)}

    theatre.act(body, {"a": two_steps})


def test_watchers_hear_of_every_move_of_a_run_and_of_every_turn_that_is_over(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        moved: list[tuple[float, str]] = []
        world.engine.on_move(lambda key: moved.append((world.at(), key)))
        key = await world.spawn("a")
        await world.sleep_until(1.5)
        assert {(0.0, key)} == set(moved)
        await world.sleep_until(60)
        assert (2.0, key) in moved
        assert MAIN in {session for _, session in moved}, "the conversation's turn is over too"

    theatre.act(body, {"a": two_steps})


def test_watchers_hear_of_a_commit_whose_caller_was_cancelled_while_it_was_written(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(0.5)
        moved: list[str] = []
        world.engine.on_move(moved.append)
        caller = asyncio.create_task(world.engine.commit(lambda c: control.kill(c, key)))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
        await world.clock.sleep(0.001)
        assert key in moved

    theatre.act(body, {"a": two_steps})


def test_a_kill_that_falls_between_the_claim_and_the_start_of_a_driver_stops_it_at_once(theatre: Theatre) -> None:
    async def for_ever(stage: Stage) -> None:
        await stage.sleep(1e6)

    async def body(world: World) -> None:
        killing: list[asyncio.Task[Killing]] = []

        def check(tx: Tx) -> None:
            for key in tx.runs.children(MAIN):
                if not killing and tx.drivers.get(key) is not None:
                    killing.append(asyncio.ensure_future(world.engine.commit(lambda c, key=key: control.kill(c, key))))  # type: ignore[misc]

        world.store.check = check
        key = await world.spawn("a")
        await world.sleep_until(0.1)
        assert killing[0].result().stopping == (key,)
        assert (await world.outcome(key))[0] == "killed", "nobody waited for its five seconds"

    theatre.act(body, {"a": for_ever})


def test_a_commit_whose_caller_is_cancelled_while_it_is_written_is_looked_at_all_the_same(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.clock.sleep(1)
        caller = asyncio.create_task(world.spawn("a"))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert await world.unsettled() == 1, "the spawn was committed"
        await world.clock.sleep(10)
        assert await world.told() == [["a"]]

    theatre.act(body)


# ---- requesters, idle and busy ---------------------------------------------------------------------------------------


@proves("2.arbitration.4", "Direct: an idle requester starts a turn at once")
def test_an_idle_requester_starts_a_turn_at_once_for_each_result(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        keys = [await world.spawn("a"), await world.spawn("b")]
        await world.clock.sleep(10)
        assert world.driven("main") == [1.0, 1.25]
        assert await world.told() == [["a"], ["b"]]
        assert [(await world.run(key)).delivery for key in keys] == [Delivered("direct")] * 2

    theatre.act(body, {"a": works(1), "b": works(1.25)})


@proves("2.arbitration.7", "`collect`, the default, debounces and gives one turn for all")
@proves("2.queue.1", "The debounce is 1000 ms, restarted by each item, at most 5 s in all")
@pytest.mark.parametrize(
    ("ends", "busy", "turn_at"),
    [
        ([2.5], 3, 3.5),
        ([2.5, 2.75], 3, 3.75),
        ([2.5, 3.25, 4.0], 3, 5.0),
        ([2.5, 3.25, 4.0, 4.75, 5.5, 6.25, 7.0], 3, 7.5),
        ([1.0, 1.5], 10, 10.0),
    ],
    ids=["one", "restarted", "restarted after the turn", "five seconds in all", "a long turn is debounce enough"],
)
def test_a_busy_requester_collects_with_a_debounce_restarted_by_each_item(
    theatre: Theatre, ends: list[float], busy: float, turn_at: float
) -> None:
    labels = [f"end at {at}" for at in ends]

    async def body(world: World) -> None:
        await world.send()
        for label in labels:
            await world.spawn(label)
        await world.clock.sleep(20)
        assert world.driven("main") == [0.0, turn_at]
        assert await world.told() == [labels]

    scripts: dict[str, Script] = {label: works(at) for label, at in zip(labels, ends, strict=True)}
    theatre.act(body, {"main": in_turns(works(busy)), **scripts})


@proves("0.promise.2", "Spawning returns before the child works, and the requester talks on meanwhile")
@pytest.mark.parametrize("ends", [[2.5], [2.5, 3.25]], ids=["while it is busy", "while the debounce runs"])
def test_a_collected_result_says_that_it_was_queued(theatre: Theatre, ends: list[float]) -> None:
    async def body(world: World) -> None:
        await world.send()
        keys = [await world.spawn(f"end at {at}") for at in ends]
        await world.clock.sleep(20)
        assert [(await world.run(key)).delivery for key in keys] == [Delivered("queued") for _ in ends]

    theatre.act(body, {"main": in_turns(works(3)), **{f"end at {at}": works(at) for at in ends}})


@proves("2.arbitration.6", "`followup` gives each item its own turn after")
def test_followup_gives_a_busy_requester_one_turn_for_each_item(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.send()
        for label in "abc":
            await world.spawn(label)
        await world.clock.sleep(20)
        assert world.driven("main") == [0.0, 3.0, 3.0, 3.0]
        assert await world.told() == [["a"], ["b"], ["c"]]

    scripts = {"main": in_turns(works(3)), "a": works(1), "b": works(1.5), "c": works(2)}
    theatre.act(body, scripts, rules("followup"))


async def steps_at_two_and_four(stage: Stage) -> None:
    await stage.sleep(2)
    assert await stage.step("first") == 1
    await stage.sleep(2)
    assert await stage.step("second") == 0
    await stage.sleep(1)


@proves("2.arbitration.5", "`steer` lets it into the live turn at its next step boundary, prefixed [INTERRUPT]")
def test_steer_lets_a_result_into_the_live_turn_at_its_next_step(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.send()
        key = await world.spawn("a")
        await world.sleep_until(1.5)
        assert (await world.run(key)).phase.name == "announcing"
        await world.sleep_until(2.5)
        assert await world.told() == [["a"]]
        assert (await world.run(key)).delivery == Delivered("steered")
        await world.clock.sleep(20)
        assert world.driven("main") == [0.0]

    theatre.act(body, {"main": in_turns(steps_at_two_and_four), "a": works(1)}, rules("steer"))


@proves("2.arbitration.5")
def test_a_result_that_is_steered_into_a_live_turn_says_that_it_interrupts(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.send()
        await world.spawn("a")
        await world.sleep_until(2.5)
        (text,) = await world.heard(kind="event")
        assert text.startswith("[INTERRUPT]")

    theatre.act(body, {"main": in_turns(steps_at_two_and_four), "a": works(1)}, rules("steer"))


@proves("2.arbitration.8", "`steer-backlog` steers, and what misses the last boundary is followup, never both")
def test_what_misses_the_last_step_of_a_steered_turn_gets_a_turn_after_it(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.send()
        await world.spawn("a")
        await world.spawn("b")
        await world.clock.sleep(20)
        assert world.driven("main") == [0.0, 5.0]
        assert await world.told() == [["a"], ["b"]]

    scripts = {"main": in_turns(steps_at_two_and_four), "a": works(1), "b": works(4.5)}
    theatre.act(body, scripts, rules("steer-backlog"))


@proves("2.queue.6")
def test_more_than_sixty_four_results_arrive_once_each_sixty_four_to_a_commit(theatre: Theatre) -> None:
    labels = [f"child {n}" for n in range(150)]

    async def body(world: World) -> None:
        await world.send()
        for label in labels:
            await world.spawn(label)
        await world.clock.sleep(20)
        told = await world.told()
        assert [len(part) for part in told] == [64, 64, 22]
        assert await world.all_told() == sorted(labels)
        assert world.driven("main") == [0.0, 5.0]

    theatre.act(body, {"main": in_turns(works(5))})


@proves("2.nested.6")
def test_a_final_text_waits_until_every_unread_result_was_read(theatre: Theatre) -> None:
    went: list[str] = []

    async def boss(stage: Stage) -> None:
        for n in range(70):
            await stage.spawn(f"child {n}")
        await stage.sleep(5)
        went.extend([await stage.say(text) for text in ("first", "second", "third")])

    async def body(world: World) -> None:
        key = await world.spawn("boss")
        await world.clock.sleep(20)
        assert went == ["on", "on", "over"]
        assert [len(part) for part in await world.told(key)] == [64, 6]
        assert await world.result(key) == "third"
        run = await world.run(key)
        assert (run.attempt, run.wakes) == (1, 0)

    theatre.act(body, {"boss": boss})


# ---- waiting ---------------------------------------------------------------------------------------------------------


@proves("0.limits.2", "A waiting parent holds no slot, so it cannot starve its child")
@proves("2.phases.13")
@proves("2.arbitration.15", "Each level otherwise hears only its own children")
@proves("2.nested.12")
@proves("4.yield.2")
@pytest.mark.parametrize(("asked", "read"), [("all", 3), ("any", 1), (2, 2)])
def test_a_nested_yield_finishes_with_every_lane_one_wide(theatre: Theatre, asked: YieldCondition, read: int) -> None:
    seen: list[int] = []

    async def top(stage: Stage) -> None:
        assert stage.run is not None
        if stage.run.wakes == 0:
            for name in ("left", "middle", "right"):
                await stage.spawn(name)
            await stage.wait(asked)
        else:
            entries = await stage.engine.store.read(lambda tx: tx.transcripts.entries(stage.session))
            seen.append(sum(entry.kind == "event" for entry in entries))
            await stage.say("all read")

    async def middle(stage: Stage) -> None:
        assert stage.run is not None
        if stage.run.wakes == 0:
            await stage.spawn("leaf")
            await stage.wait(asked)
        else:
            await stage.say("passed on")

    async def body(world: World) -> None:
        key = await world.spawn("top")
        await world.clock.sleep(600)
        assert await world.outcome(key) == ("ok", None, 3.0)
        assert await world.all_told(key) == ["left", "middle", "right"]
        assert await world.told() == [["top"]]
        assert await world.unsettled() == 0
        woken_with = sum(len(part) for part in (await world.told(key))[: seen[0]])
        assert woken_with >= read
        assert asked != "all" or len(seen) == 1

    scripts = {"top": top, "left": middle, "middle": middle, "right": middle, "leaf": works(1)}
    theatre.act(body, scripts, rules(widths=NARROW))


@proves("2.phases.15", "waiting ends by its deadline")
@proves("4.yield.9", "The deadline always fires, with partial results to read")
def test_a_yield_with_a_deadline_is_woken_by_it_and_then_waits_for_the_rest(theatre: Theatre) -> None:
    async def boss(stage: Stage) -> None:
        assert stage.run is not None
        if stage.run.wakes == 0:
            await stage.spawn("slow")
            await stage.wait("all", 3)
        await stage.say("so far")

    async def body(world: World) -> None:
        key = await world.spawn("boss")
        await world.clock.sleep(60)
        assert world.driven("boss") == [0.0, 3.0, 10.0]
        assert await world.outcome(key) == ("ok", None, 10.0)

    async def boss_once(stage: Stage) -> None:
        if not stage.over:
            await boss(stage)

    theatre.act(body, {"boss": boss_once, "slow": works(10)})


# ---- time limits -----------------------------------------------------------------------------------------------------


@proves("0.ends.3", "A timeout is hard: the work is cancelled at its time")
@proves("3.limits.22", "The run timeout is wall time from first running")
def test_a_run_timeout_counts_from_first_running_hands_over_partial_work_and_cancels(theatre: Theatre) -> None:
    cancelled: list[float] = []

    async def slow(stage: Stage) -> None:
        await stage.sleep(1)
        await stage.step("a tool's output")
        try:
            await stage.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(at(stage))
            raise

    async def body(world: World) -> None:
        await world.spawn("blocker")
        key = await world.spawn("slow", timeout_s=10)
        await world.sleep_until(14.75)
        assert (await world.run(key)).phase.name == "running"
        await world.sleep_until(30)
        assert await world.outcome(key) == ("timeout", None, 15.0)
        assert await world.result(key) == "(partial progress: 1 tool call, no final answer)"
        assert cancelled == [15.0]
        assert await world.told() == [["blocker"], ["slow"]]

    theatre.act(body, {"blocker": works(5), "slow": slow}, rules(widths=NARROW))


@proves("2.arbitration.21", "A run's end never cancels its children")
@proves("3.limits.23", "… waiting on children included")
def test_a_run_timeout_also_ends_a_run_that_waits_and_leaves_its_children_alone(theatre: Theatre) -> None:
    async def boss(stage: Stage) -> None:
        await stage.spawn("slow")
        await stage.wait("all")

    async def body(world: World) -> None:
        key = await world.spawn("boss", timeout_s=10)
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("timeout", None, 10.0)
        assert await world.told() == [["boss"], ["slow"]]
        assert await world.unsettled() == 0

    theatre.act(body, {"boss": boss, "slow": works(20)})


@proves("3.limits.11", "`queueTimeoutSeconds` 0 is none; a run that waits longer for a slot fails")
def test_a_run_that_waits_too_long_for_a_slot_fails_and_never_runs(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        await world.spawn("blocker")
        key = await world.spawn("late", queue_timeout_s=3)
        await world.clock.sleep(20)
        assert await world.outcome(key) == ("error", "it waited 3 s for a slot: queueTimeoutSeconds", 3.0)
        assert world.driven("late") == []
        assert await world.told() == [["late"], ["blocker"]]

    theatre.act(body, {"blocker": works(10)}, rules(widths=NARROW))


@proves(
    "2.phases.18", "ending: a provisional signal has 15 s of grace, driver and slot kept; `start` goes back to running"
)
@proves("2.signals.3", "`start` in the window cancels it")
@pytest.mark.parametrize("silence", [4.0, 14.75])
def test_a_provisional_error_that_recovers_within_fifteen_seconds_changes_nothing(
    theatre: Theatre, silence: float
) -> None:
    async def shaky(stage: Stage) -> None:
        await stage.sleep(1)
        await stage.falter("overloaded")
        await stage.sleep(silence)
        await stage.recover()
        await stage.say("recovered")

    async def body(world: World) -> None:
        key = await world.spawn("shaky")
        await world.sleep_until(2)
        assert (await world.run(key)).phase.name == "ending"
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("ok", None, 1 + silence)
        assert await world.told() == [["shaky"]]
        assert world.driven("shaky") == [0.0]

    theatre.act(body, {"shaky": shaky})


@proves("2.signals.2", "A provisional error waits 15 s and is then the outcome")
def test_a_provisional_error_without_recovery_is_the_outcome_after_fifteen_seconds(theatre: Theatre) -> None:
    refused: list[float] = []

    async def shaky(stage: Stage) -> None:
        await stage.sleep(1)
        await stage.falter("overloaded")
        try:
            await stage.sleep(100)
        except asyncio.CancelledError:
            with pytest.raises(StaleWrite):
                await stage.recover()
            refused.append(at(stage))
            raise

    async def body(world: World) -> None:
        key = await world.spawn("shaky")
        await world.sleep_until(15.75)
        assert (await world.run(key)).phase.name == "ending"
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("error", "overloaded", 16.0)
        assert refused == [16.0]
        assert await world.told() == [["shaky"]]

    theatre.act(body, {"shaky": shaky})


@proves("4.sight.3", "No event for stuckAfterSeconds 300: stuck, told once, not killed")
@pytest.mark.parametrize(("step_at", "told_at"), [(None, 30.25), (20.0, 50.25)])
def test_a_stuck_run_is_told_once_and_goes_on(theatre: Theatre, step_at: float | None, told_at: float) -> None:
    async def stuck(stage: Stage) -> None:
        if step_at is not None:
            await stage.sleep(step_at)
            await stage.step("a tool's output")
        await stage.sleep(200 - at(stage))
        await stage.say("at last")

    async def body(world: World) -> None:
        key = await world.spawn("stuck", stuck_after_s=30)
        await world.sleep_until(150)
        assert world.driven("main") == [told_at]
        assert await world.heard() == ["stuck: no progress for 30 s"]
        await world.sleep_until(300)
        assert await world.outcome(key) == ("ok", None, 200.0)
        assert len(await world.heard()) == 1

    theatre.act(body, {"stuck": stuck})
