"""Budgets: set aside before a step, settled after it, for the session and everything above it."""

from pathlib import Path
from typing import Any

import pytest

from fledge.core.policy import Budget, Spent
from fledge.core.run import Terms
from fledge.models.base import Usage
from fledge.models.scripted import ScriptedFailure, ScriptedModel, ScriptedReply
from fledge.orchestrator import budget, control, spawn
from fledge.orchestrator.commit import Commit
from fledge.store.base import Spec
from fledge.tools.sessions import yield_tool
from tests.orchestrator.stage import LIMITS
from tests.runtime.desk import MAIN, PROGRAM, Desk, Kit, Office, asked, cast, in_turn, use, worker
from tests.statements import proves

NOTHING = Spent()
STEP = Spent(tokens=104, turns=1)
"""What the first step of a worker sets aside with max_tokens of 100: 2 for its prompt, 2 for its task."""


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


async def spawn_with(desk: Desk, label: str = "worker", parent: str = PROGRAM, **ceilings: Any) -> str:
    """Spawn a run that has a budget from the start."""

    def decide(c: Commit) -> str:
        request = spawn.SpawnRequest(spec=Spec(task=label, label=label), terms=Terms(parent=parent), limits=LIMITS)
        key = spawn.spawn(c, request).key
        budget.give(c, key, Budget(**ceilings))
        return key

    return await desk.engine.commit(decide)


def reply(total: int, *calls: Any) -> ScriptedReply:
    return ScriptedReply("" if calls else "done", calls, usage=Usage(total - 1, 1))


@proves("3.budgets.3", "An estimate is reserved in the commit that opens a model step, and settled after it")
def test_a_step_is_set_aside_while_it_runs_and_settled_with_its_reply(office: Office) -> None:
    model = worker(reply(30, use("look")), reply(50), latency_s=10)

    async def body(desk: Desk) -> None:
        key = await spawn_with(desk, tokens=1000)
        await desk.sleep_until(5)
        assert await desk.purse(key) == (NOTHING, STEP)
        await desk.sleep_until(10.5)
        assert await desk.purse(key) == (Spent(tokens=30, turns=1), NOTHING)
        await desk.sleep_until(15)
        used, reserved = await desk.purse(key)
        assert used == Spent(tokens=30, turns=1)
        assert reserved.tokens > STEP.tokens
        assert reserved.turns == 1
        await desk.ended(key)
        assert await desk.purse(key) == (Spent(tokens=80, turns=2), NOTHING)

    office.act(body, model, Kit().tool("look", 1), is_budgeted=True, max_tokens=100)


@proves("3.budgets.1")
def test_money_is_set_aside_and_settled_like_tokens(office: Office) -> None:
    model = worker(ScriptedReply("done", usage=Usage(20, 4)), latency_s=10)

    async def body(desk: Desk) -> None:
        key = await spawn_with(desk, usd=1000.0)
        await desk.sleep_until(5)
        assert await desk.purse(key) == (NOTHING, Spent(tokens=104, usd=208.0, turns=1))
        await desk.ended(key)
        assert await desk.purse(key) == (Spent(tokens=24, usd=60.0, turns=1), NOTHING)

    office.act(
        body,
        model,
        is_budgeted=True,
        max_tokens=100,
        cost_usd=lambda name, usage: 2.0 * usage.input_tokens + 5.0 * usage.output_tokens,
    )


@proves("3.budgets.6", "At 80 % it warns, once")
@pytest.mark.parametrize(
    ("ceiling", "told"), [(126, []), (125, ["80%"]), (120, ["82%"]), (101, ["98%"])], ids=["79", "80", "82", "98"]
)
def test_eighty_percent_are_told_once(office: Office, ceiling: int, told: list[str]) -> None:
    model = worker(reply(50, use("look")), reply(49, use("look")), reply(1))

    async def body(desk: Desk) -> list[str]:
        key = await spawn_with(desk, parent=MAIN, tokens=ceiling)
        await desk.ended(key)
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN))
        return [words.replace(key, "worker") for words in await desk.heard()]

    found = office.act(body, model, Kit().tool("look"), is_budgeted=True, max_tokens=1)
    assert found == [f"worker has used {share} of its budget" for share in told]


@proves("3.budgets.7", "At 100 % the run ends `error: budget` with partial work")
def test_a_budget_that_is_used_up_refuses_the_next_step_and_keeps_what_was_done(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply("first", (use("look"),)), ScriptedReply("second", (use("look"),)), "never said")

    async def body(desk: Desk) -> tuple[str, str | None, str]:
        feed = desk.listen()
        key = await spawn_with(desk, turns=2)
        await desk.ended(key)
        status, error, _ = await desk.outcome(key)
        assert [event.text for event in feed.waiting() if event.kind == "error"] == ["budget"]
        assert await desk.purse(key) == (Spent(tokens=(await desk.purse(key))[0].tokens, turns=2), NOTHING)
        assert await desk.look(lambda tx: tx.drivers.all()) == []
        return status, str(error).replace(key, "worker"), await desk.result(key)

    assert office.act(body, model, kit.tool("look"), is_budgeted=True) == (
        "error",
        "budget: its budget is used up (2 turns)",
        "(partial progress: 2 tool calls, no final answer)\n- first\n- second",
    )
    assert len(asked(model)) == 2
    assert kit.begun == ["look", "look"]


def test_a_step_that_a_budget_above_refuses_names_the_session_that_has_it(office: Office) -> None:
    async def body(desk: Desk) -> None:
        top = await spawn_with(desk, turns=1)
        await desk.sleep_until(5)  # its only turn is set aside
        low = await desk.spawn("low", parent=top)
        await desk.ended(low)
        status, error, _ = await desk.outcome(low)
        assert (status, error) == ("error", f"budget: the budget of {top}, above it, is used up (1 turn)")

    office.act(body, worker("done", latency_s=10), is_budgeted=True)


def test_a_last_step_that_is_just_within_its_budget_ends_well(office: Office) -> None:
    async def body(desk: Desk) -> str:
        key = await spawn_with(desk, turns=2)
        await desk.ended(key)
        return (await desk.outcome(key))[0]

    assert office.act(body, worker(use("look"), "done"), Kit().tool("look"), is_budgeted=True) == "ok"


@proves("3.budgets.2", "It counts per run and per tree, inherited downwards")
def test_a_step_is_charged_to_its_session_and_to_everyone_above_who_has_a_budget(office: Office) -> None:
    model = ScriptedModel(
        cast(
            top=in_turn(reply(7, use("wait")), reply(7)),
            middle=in_turn(reply(20, use("wait")), reply(20)),
            low=in_turn(reply(300)),
        )
    )

    async def body(desk: Desk) -> list[Spent]:
        top = await spawn_with(desk, "top", tokens=10_000)
        middle = await desk.spawn("middle", parent=top)
        low = await spawn_with(desk, "low", parent=middle, tokens=10_000)
        await desk.ended(top)
        assert await desk.look(lambda tx: tx.budgets.get(middle)) is None
        return [used for used, reserved in (await desk.purse(top), await desk.purse(low)) if reserved == NOTHING]

    top, low = office.act(body, model, Kit().tool("wait", 5), is_budgeted=True, max_tokens=10)
    assert low == Spent(tokens=300, turns=1)
    assert top.turns >= 5
    assert top.tokens >= 7 + 7 + 20 + 20 + 300


@proves("3.budgets.2")
def test_a_budget_below_another_is_never_wider(office: Office) -> None:
    async def body(desk: Desk) -> list[Budget]:
        await desk.give(MAIN, tokens=100, turns=5)
        key = await desk.spawn("worker", parent=MAIN)
        await desk.give(key, tokens=1000, turns=2, usd=1.0)
        found = await desk.look(lambda tx: [tx.budgets.get(MAIN), tx.budgets.get(key)])
        return [purse.budget for purse in found if purse is not None]

    assert office.act(body, worker("done")) == [Budget(tokens=100, turns=5), Budget(tokens=100, turns=2, usd=1.0)]


def test_two_below_one_budget_do_not_erase_what_the_other_has_set_aside(office: Office) -> None:
    model = ScriptedModel(cast(slower=in_turn(reply(40))), latency_s=10)

    async def body(desk: Desk) -> None:
        await desk.give(PROGRAM, tokens=100_000)
        first = await desk.spawn("worker", parent=PROGRAM)
        await desk.sleep_until(5)
        assert (await desk.purse(PROGRAM))[1] == STEP
        second = await desk.spawn("slower", parent=PROGRAM)
        await desk.sleep_until(8)
        assert (await desk.purse(PROGRAM))[1] == STEP.plus(STEP)
        await desk.ended(first)
        used, reserved = await desk.purse(PROGRAM)
        assert (used.turns, reserved) == (1, STEP)
        await desk.ended(second)
        used, reserved = await desk.purse(PROGRAM)
        assert (used.turns, reserved) == (2, NOTHING)

    office.act(body, model, is_budgeted=True, max_tokens=100)


@proves("3.budgets.4", "Overshoot is at most one reservation, however many ask at once")
@pytest.mark.parametrize("steps", [1, 3])
def test_however_many_ask_at_once_no_more_steps_begin_than_their_budget_has(office: Office, steps: int) -> None:
    model = worker("done", latency_s=10)

    async def body(desk: Desk) -> list[str]:
        await desk.give(PROGRAM, turns=steps)
        keys = [await desk.spawn("worker", parent=PROGRAM) for _ in range(5)]
        for key in keys:
            await desk.ended(key)
        return sorted([(await desk.outcome(key))[0] for key in keys])

    assert office.act(body, model, is_budgeted=True) == ["error"] * (5 - steps) + ["ok"] * steps
    assert len(asked(model)) == steps


@proves("3.budgets.5", "What was reserved is given back by a crash, a steer and an end in the middle of a step")
def test_a_crash_gives_back_what_was_set_aside(office: Office) -> None:
    async def begin(desk: Desk) -> str:
        await desk.give(PROGRAM, turns=2)
        key = await spawn_with(desk, turns=2)
        await desk.sleep_until(5)
        assert await desk.purse(PROGRAM) == (NOTHING, STEP)
        return key

    async def end(desk: Desk) -> tuple[str, str | None, float]:
        await desk.sleep_until(8)
        assert await desk.purse(PROGRAM) == (NOTHING, STEP)
        assert await desk.purse(key) == (NOTHING, STEP)
        await desk.ended(key)
        assert (await desk.purse(PROGRAM))[1] == (await desk.purse(key))[1] == NOTHING
        assert (await desk.purse(PROGRAM))[0].turns == 1
        return await desk.outcome(key)

    settings: dict[str, Any] = {"is_budgeted": True, "max_tokens": 100}
    key = office.act(begin, worker("done", latency_s=10), ends="crashed", **settings)
    assert office.act(end, worker("done", latency_s=10), **settings) == ("ok", None, 15.0)


@proves("3.budgets.5")
@pytest.mark.parametrize("how", ["kill", "timeout", "error", "crash of the last kind"])
def test_a_run_that_ends_in_the_middle_of_a_step_gives_back_what_it_had_set_aside(office: Office, how: str) -> None:
    failures: dict[int, ScriptedFailure] = {1: "auth"} if how == "error" else {}

    def model() -> ScriptedModel:
        return worker("done", latency_s=10, failures=failures)

    async def body(desk: Desk) -> str:
        await desk.give(PROGRAM, tokens=100_000)
        key = await desk.spawn("worker", parent=PROGRAM, timeout_s=7 if how == "timeout" else 0)
        await desk.sleep_until(5)
        assert (await desk.purse(PROGRAM))[1] == STEP
        if how == "kill":
            await desk.kill(key)
        return key

    async def end(desk: Desk) -> tuple[Spent, Spent]:
        await desk.rest()
        return await desk.purse(PROGRAM)

    async def until_it_ends(desk: Desk) -> tuple[Spent, Spent]:
        key = await body(desk)
        await desk.ended(key)
        return await end(desk)

    settings: dict[str, Any] = {"is_budgeted": True, "max_tokens": 100}
    if how != "crash of the last kind":
        assert office.act(until_it_ends, model(), **settings) == (NOTHING, NOTHING)
        return
    office.act(body, model(), ends="crashed", **settings)
    for _ in range(2):
        office.act(lambda desk: desk.clock.sleep(1), model(), ends="crashed", **settings)
    assert office.act(end, model(), **settings) == (NOTHING, NOTHING)


@proves("3.budgets.5")
def test_a_steered_step_gives_back_what_it_had_set_aside(office: Office) -> None:
    async def body(desk: Desk) -> None:
        await desk.give(PROGRAM, tokens=100_000)
        key = await desk.spawn("worker", parent=PROGRAM)
        await desk.sleep_until(5)
        await desk.steer(key, "rather this")
        await desk.sleep_until(8)
        assert (await desk.purse(PROGRAM))[1].turns == 1
        await desk.ended(key)
        assert (await desk.purse(PROGRAM))[1] == NOTHING

    office.act(body, worker("done", latency_s=10), is_budgeted=True, max_tokens=100)


@pytest.mark.parametrize("how", ["stop", "error", "crash of the last kind"])
def test_a_conversations_turn_that_ends_in_the_middle_of_a_step_gives_back_what_it_had_set_aside(
    office: Office, how: str
) -> None:
    failures: dict[int, ScriptedFailure] = {1: "auth"} if how == "error" else {}

    def model() -> ScriptedModel:
        return ScriptedModel(cast(), latency_s=10, failures=failures)

    async def begin(desk: Desk) -> None:
        await desk.give(MAIN, tokens=100_000)
        await desk.send("one")
        await desk.clock.sleep(5)
        assert (await desk.purse(MAIN))[1].turns == 1
        if how == "stop":
            await desk.engine.commit(lambda c: control.stop(c, MAIN))
        await desk.clock.sleep(6 if how == "error" else 0.1)
        assert how == "crash of the last kind" or (await desk.purse(MAIN)) == (NOTHING, NOTHING)

    settings: dict[str, Any] = {"is_budgeted": True, "max_tokens": 100}
    if how != "crash of the last kind":
        office.act(begin, model(), **settings)
        return
    office.act(begin, model(), ends="crashed", **settings)
    for _ in range(2):
        office.act(lambda desk: desk.clock.sleep(1), model(), ends="crashed", **settings)

    async def end(desk: Desk) -> tuple[Spent, Spent]:
        return await desk.purse(MAIN)

    assert office.act(end, model(), **settings) == (NOTHING, NOTHING)


def test_a_conversation_without_budget_left_asks_nothing_more(office: Office) -> None:
    model = ScriptedModel(cast())

    async def body(desk: Desk) -> None:
        await desk.give(MAIN, turns=1)
        await desk.send("one")
        await desk.sleep_until(10)
        await desk.send("two")
        await desk.sleep_until(300)

    office.act(body, model, is_budgeted=True)
    assert len(asked(model, "main")) == 1


def test_a_turn_without_any_budget_takes_no_commit_more(office: Office) -> None:
    async def commits(desk: Desk) -> int:
        before = desk.store.commits
        await desk.work(parent=PROGRAM)
        return desk.store.commits - before

    without = office.act(commits, worker(use("look"), "done"), Kit().tool("look"))
    within = office.act(commits, worker(use("look"), "done"), Kit().tool("look"), is_budgeted=True)
    assert (without, within) == (5, 7)


# ---- seconds ---------------------------------------------------------------------------------------------------------


@proves("3.budgets.1")
@proves("3.budgets.9", "A budget counts seconds of work")
def test_seconds_are_those_of_model_steps_and_tools_but_not_of_waiting(office: Office) -> None:
    model = ScriptedModel(
        cast(top=in_turn(use("sessions_yield"), "all in"), low=in_turn(use("look"), "seen")), latency_s=10
    )

    async def body(desk: Desk) -> tuple[float, float]:
        top = await spawn_with(desk, "top", seconds=1000)
        low = await spawn_with(desk, "low", parent=top, seconds=1000)
        await desk.ended(top)
        return await desk.worked_s(top), await desk.worked_s(low)

    both, below = office.act(body, model, Kit().tool("look", 5), yield_tool(), is_budgeted=True)
    assert below == 25.0
    assert both == 20.0 + 25.0


@proves("3.params.20")
@proves("3.budgets.9")
def test_a_run_whose_seconds_are_over_ends_before_its_next_step(office: Office) -> None:
    model = worker(use("look"), use("look"), "never said", latency_s=10)

    async def body(desk: Desk) -> tuple[str, str | None]:
        key = await spawn_with(desk, seconds=30)
        await desk.ended(key)
        status, error, _ = await desk.outcome(key)
        return status, error

    status, error = office.act(body, model, Kit().tool("look", 5), is_budgeted=True)
    assert status == "error"
    assert str(error).startswith("budget: ")
    assert len(asked(model)) == 2
