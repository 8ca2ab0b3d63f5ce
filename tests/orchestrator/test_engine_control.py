"""What people and controllers do to running work, as the engine carries it out: kill, stop, steer, send."""

import asyncio
from pathlib import Path

import pytest

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.run import Ending, Skipped
from fledge.errors import Refused, StaleWrite
from fledge.orchestrator import control
from fledge.testing import Script, Stage
from tests.orchestrator.stage import MAIN, NARROW, Theatre, World, at, in_turns, lingers, rules, two_steps, works
from tests.statements import proves


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


# ---- kill ------------------------------------------------------------------------------------------------------------


async def boss_with_one_below(stage: Stage) -> None:
    await stage.spawn("below")
    await stage.sleep(100)


async def boss_that_waits(stage: Stage) -> None:
    await stage.spawn("below")
    await stage.wait("all")


@proves("4.kill.5", "A kill is silent to the requester")
@proves("4.kill.6", "It reports what did not stop")
@pytest.mark.parametrize(("boss", "stops"), [(boss_with_one_below, True), (boss_that_waits, False)])
def test_a_kill_is_silent_stops_everything_below_and_reports_what_is_stopping(
    theatre: Theatre, boss: Script, stops: bool
) -> None:
    cancelled: list[float] = []

    async def below(stage: Stage) -> None:
        try:
            await stage.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(at(stage))
            raise

    async def body(world: World) -> None:
        key = await world.spawn("boss")
        await world.sleep_until(1)
        (child,) = await world.look(lambda tx: tx.runs.children(key))
        done = await world.kill(key)
        assert (done.killed, done.stopping) == (((), (key, child)) if stops else ((key,), (child,)))
        await world.clock.sleep(60)
        assert cancelled == [1.0]
        for run in (key, child):
            assert await world.outcome(run) == ("killed", "killed", 1.0)
            assert (await world.run(run)).delivery == Skipped("suppressed")
        assert await world.told() == []
        assert world.driven("main") == []
        assert (await world.unsettled(), await world.unsettled(key)) == (0, 0)
        with pytest.raises(Refused, match="nothing below it is running"):
            await world.kill(key)

    theatre.act(body, {"boss": boss, "below": below})


def says_when_cancelled(after: float) -> Script:
    async def script(stage: Stage) -> None:
        try:
            await stage.sleep(100)
        except asyncio.CancelledError:
            await lingers(stage, after)
            await stage.say("finished after all")

    return script


@proves("2.kill.5", "The same epoch may commit one complete end until the driver acknowledges or 5 s pass")
@proves("2.kill.8", "The kill stays on the timeline of a run that won over it")
@pytest.mark.parametrize("after", [0.0, 4.75])
def test_a_complete_end_within_five_seconds_wins_over_the_kill_that_named_it(theatre: Theatre, after: float) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(1)
        await world.kill(key)
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("ok", None, 1 + after)
        assert await world.result(key) == "finished after all"
        assert await world.told() == [["a"]]
        assert await world.happened(key, ev.KillOrdered) == 1

    theatre.act(body, {"a": says_when_cancelled(after)})


@proves("2.kill.5")
def test_a_complete_end_after_five_seconds_comes_too_late_for_a_kill(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(1)
        await world.kill(key)
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("killed", "killed", 6.0)
        assert await world.told() == []

    theatre.act(body, {"a": says_when_cancelled(5.25)})


@proves("2.kill.11", "Only the run the kill named can win")
def test_a_complete_end_below_the_killed_run_does_not_win(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("boss")
        await world.sleep_until(1)
        await world.kill(key)
        await world.clock.sleep(60)
        (child,) = await world.look(lambda tx: tx.runs.children(key))
        assert await world.outcome(child) == ("killed", "killed", 1.0)
        assert await world.told() == []

    theatre.act(body, {"boss": boss_with_one_below, "below": says_when_cancelled(0)})


async def steps_when_cancelled(stage: Stage) -> None:
    await stage.step("more")


async def yields_when_cancelled(stage: Stage) -> None:
    await stage.wait("all")


async def fails_when_cancelled(stage: Stage) -> None:
    await stage.fail("no")


@proves("2.kill.6")
@pytest.mark.parametrize("act", [steps_when_cancelled, yields_when_cancelled, fails_when_cancelled])
def test_nothing_but_a_complete_end_wins_over_a_kill(theatre: Theatre, act: Script) -> None:
    async def stubborn(stage: Stage) -> None:
        try:
            await stage.sleep(100)
        except asyncio.CancelledError:
            await act(stage)

    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(1)
        await world.kill(key)
        assert isinstance((await world.run(key)).phase, Ending)
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("killed", "killed", 1.0)
        assert await world.told() == []

    theatre.act(body, {"a": stubborn})


def test_a_driver_that_learns_of_the_kill_from_its_next_step_leaves_quietly(
    theatre: Theatre, caplog: pytest.LogCaptureFixture
) -> None:
    """The order to stop has not reached it; its step is refused, it is gone at once, and nothing of it is a fault."""

    async def late_to_hear(stage: Stage) -> None:
        await lingers(stage, 2)
        await stage.step("one more thing")

    async def body(world: World) -> tuple[str, str | None, float]:
        key = await world.spawn("W")
        await world.sleep_until(1)
        await world.kill(key)
        await world.sleep_until(3)
        assert await world.look(lambda tx: tx.drivers.get(key)) is None
        return await world.outcome(key)

    assert theatre.act(body, {"W": late_to_hear}) == ("killed", "killed", 2.0)
    assert caplog.records == []


def test_a_driver_that_cannot_leave_a_step_is_stopped_by_an_interrupt_and_driven_again(theatre: Theatre) -> None:
    """Runtimes that know nothing of steps: the same attempt, from what was committed."""

    async def body(world: World) -> tuple[list[float], int, list[str]]:
        key = await world.spawn("W")
        await world.sleep_until(1)
        await world.send("look here", key)
        await world.sleep_until(20)
        return world.driven("W"), (await world.run(key)).attempt, await world.heard(key)

    found = theatre.act(body, {"W": works(10, "the answer")}, rules("interrupt"))
    assert found == ([0.0, 1.0], 1, ["W", "look here"])


@proves("2.phases.20", "ending after a kill is stopping, for at most 5 s")
@pytest.mark.parametrize(("seconds", "starts_at"), [(0.0, 1.0), (2.0, 3.0), (20.0, 6.0)])
def test_a_driver_that_ignores_its_cancellation_keeps_its_slot_for_at_most_five_seconds(
    theatre: Theatre, seconds: float, starts_at: float
) -> None:
    async def stubborn(stage: Stage) -> None:
        try:
            await stage.sleep(100)
        except asyncio.CancelledError:
            await lingers(stage, seconds)
            raise

    async def body(world: World) -> None:
        key = await world.spawn("stubborn")
        await world.spawn("next")
        await world.sleep_until(1)
        await world.kill(key)
        await world.clock.sleep(60)
        assert world.driven("next") == [starts_at]
        assert await world.outcome(key) == ("killed", "killed", starts_at)
        assert await world.told() == [["next"]]

    theatre.act(body, {"stubborn": stubborn}, rules(widths=NARROW))


@proves("4.kill.9", "`/stop` stops a session's turn and its tree")
def test_a_stop_of_a_conversation_ends_its_turn_and_everything_below(theatre: Theatre) -> None:
    async def main(stage: Stage) -> None:
        await stage.spawn("below")
        await stage.sleep(100)

    async def body(world: World) -> None:
        await world.send()
        await world.sleep_until(1)
        (child,) = await world.look(lambda tx: tx.runs.children(MAIN))
        done = await world.engine.commit(lambda c: control.stop(c, MAIN))
        assert done.stopping == (child,)
        await world.clock.sleep(60)
        assert await world.outcome(child) == ("killed", "killed", 1.0)
        assert world.driven("main") == [0.0]
        assert await world.look(lambda tx: (tx.turns.get(MAIN), tx.drivers.all())) == (None, [])

    theatre.act(body, {"main": in_turns(main), "below": works(100)})


# ---- steer -----------------------------------------------------------------------------------------------------------


@proves("4.steer.9", "The new attempt's first call waits at most 5 s for the old one's exit")
@pytest.mark.parametrize(("seconds", "starts_at"), [(0.0, 1.0), (3.0, 4.0), (10.0, 6.0)])
def test_a_steer_supersedes_and_the_new_attempt_waits_for_the_old_driver_at_most_five_seconds(
    theatre: Theatre, seconds: float, starts_at: float
) -> None:
    refused: list[float] = []

    async def old(stage: Stage) -> None:
        try:
            await stage.sleep(100)
        except asyncio.CancelledError:
            await lingers(stage, seconds)
            for write in (stage.step("stale"), stage.say("stale"), stage.fail("stale")):
                with pytest.raises(StaleWrite):
                    await write
            refused.append(at(stage))
            raise

    async def new(stage: Stage) -> None:
        assert "rather this" in await stage.task()
        await stage.sleep(20)
        await stage.say("as you wish")

    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(1)
        await world.steer(key)
        await world.clock.sleep(60)
        assert world.driven("a") == [0.0, starts_at]
        assert refused == [1 + seconds]
        assert await world.outcome(key) == ("ok", None, starts_at + 20)
        assert await world.result(key) == "as you wish"
        assert await world.told() == [["a"]]
        assert (await world.run(key)).attempt == 2
        assert "stale" not in "".join(await world.heard(key, "assistant"))

    theatre.act(body, {"a": in_turns(old, new)})


def test_an_old_driver_that_breaks_on_its_way_out_changes_nothing(theatre: Theatre) -> None:
    async def old(stage: Stage) -> None:
        try:
            await stage.sleep(100)
        except asyncio.CancelledError:
            raise ValueError("a broken exit") from None

    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(1)
        await world.steer(key)
        await world.clock.sleep(60)
        assert await world.outcome(key) == ("ok", None, 3.0)
        assert world.driven("a") == [0.0, 1.0]
        assert await world.told() == [["a"]]

    theatre.act(body, {"a": in_turns(old, works(2))})


def test_an_agent_steers_and_kills_its_own_children(theatre: Theatre) -> None:
    async def boss(stage: Stage) -> None:
        steered, killed = await stage.spawn("steered"), await stage.spawn("killed")
        await stage.sleep(1)
        await stage.steer(steered, "rather this")
        await stage.kill(killed)
        await stage.sleep(5)
        await stage.say("all read")

    async def body(world: World) -> None:
        key = await world.spawn("boss")
        await world.clock.sleep(60)
        steered, killed = await world.look(lambda tx: tx.runs.children(key))
        assert await world.outcome(steered) == ("ok", None, 1.0)
        assert await world.outcome(killed) == ("killed", "killed", 1.0)
        assert await world.told(key) == [["steered"]]
        assert await world.outcome(key) == ("ok", None, 6.0)
        assert await world.told() == [["boss"]]

    theatre.act(body, {"boss": boss, "steered": in_turns(works(100)), "killed": works(100)})


@proves("4.steer.3")
def test_a_steered_run_is_not_steered_again_within_two_seconds(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(1)
        await world.steer(key)
        await world.sleep_until(1 + policy.STEER_EVERY_S - 0.25)
        with pytest.raises(Refused, match="wait 2 s") as refusal:
            await world.steer(key)
        assert refusal.value.status == "rate_limited"
        await world.sleep_until(1 + policy.STEER_EVERY_S)
        await world.steer(key)
        await world.clock.sleep(60)
        assert (await world.run(key)).attempt == 3
        assert await world.told() == [["a"]]

    theatre.act(body, {"a": in_turns(works(100), works(100), works(1))})


@proves("4.send.1", "running: it joins at the next step boundary")
def test_a_send_joins_the_live_attempt_at_its_next_step(theatre: Theatre) -> None:
    async def body(world: World) -> None:
        key = await world.spawn("a")
        await world.sleep_until(0.5)
        await world.send("mind the gap", key)
        await world.clock.sleep(60)
        assert await world.heard(key) == ["a", "mind the gap"]
        assert (await world.run(key)).attempt == 1
        assert world.driven("a") == [0.0]

    theatre.act(body, {"a": two_steps})
