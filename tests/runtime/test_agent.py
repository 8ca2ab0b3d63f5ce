"""One turn: read, think, work, repeat. Order, commits, messages, stops, lanes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from fledge.core.transcript import Replied, Resulted, Spoken
from fledge.models.base import (
    AssistantMessage,
    Call,
    ModelEvent,
    ReplyEnded,
    Request,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
)
from fledge.models.scripted import ScriptedModel, ScriptedReply
from fledge.orchestrator import control
from fledge.store.base import TurnRan, Tx
from fledge.testing import START
from fledge.tools.base import tool
from tests.orchestrator.stage import rules
from tests.runtime.desk import MAIN, PROGRAM, Desk, Kit, Office, asked, cast, in_turn, results, use, worker
from tests.statements import proves


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


# ---- the loop --------------------------------------------------------------------------------------------------------


def test_a_turn_reads_thinks_works_and_thinks_again_until_a_reply_calls_nothing(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply("let me look", (use("look", word="here"),)), use("look", word="there"), "found it")

    async def body(desk: Desk) -> tuple[str, list[type[object]]]:
        key = await desk.work()
        return await desk.result(key), [type(entry) for entry in await desk.bodies(key)]

    result, kinds = office.act(body, model, kit.tool("look"))
    assert result == "found it"
    assert kinds == [Spoken, Replied, Resulted, Replied, Resulted, Replied]
    here, there = Call("call_0", "look", '{"word":"here"}'), Call("call_1", "look", '{"word":"there"}')
    first: tuple[object, ...] = (UserMessage("worker"),)
    second = (*first, AssistantMessage("let me look", (here,)), ToolMessage("call_0", "look", "look here"))
    third = (*second, AssistantMessage("", (there,)), ToolMessage("call_1", "look", "look there"))
    assert asked(model) == [first, second, third]


def test_the_model_is_asked_with_the_profiles_words_and_tools(office: Office) -> None:
    kit = Kit()
    model = worker("done")

    async def body(desk: Desk) -> None:
        await desk.work()

    office.act(body, model, kit.tool("b"), kit.tool("a"), thinking="high", max_tokens=77)
    request = model.requests[0]
    assert (request.model, request.system, request.thinking, request.max_tokens) == ("scripted-1", "worker", "high", 77)
    assert [spec.name for spec in request.tools] == ["a", "b"]


def test_calls_of_one_reply_run_at_the_same_time(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("a"), use("b"), use("c"))), "done")

    async def body(desk: Desk) -> float:
        return (await desk.outcome(await desk.work()))[2]

    assert office.act(body, model, kit.tool("a", 10), kit.tool("b", 10), kit.tool("c", 10)) == 10.0
    assert kit.most == 3


def test_the_model_sees_results_in_the_order_of_its_calls_whatever_order_they_came_in(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("slow"), use("quick"), use("middling"))), "done")

    async def body(desk: Desk) -> list[str]:
        return [name for name, _, _ in await desk.results(await desk.work())]

    committed = office.act(body, model, kit.tool("slow", 3), kit.tool("quick", 1), kit.tool("middling", 2))
    assert committed == ["quick", "middling", "slow"]
    assert [name for name, _, _ in results(asked(model)[1])] == ["slow", "quick", "middling"]


@pytest.mark.parametrize(("seconds", "lengths"), [((1, 1), [1, 2, 4, 5]), ((1, 2), [1, 2, 3, 4, 5])])
def test_results_that_are_ready_together_are_one_commit(
    office: Office, seconds: tuple[float, float], lengths: list[int]
) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("a"), use("b"))), "done")

    async def body(desk: Desk) -> list[int]:
        growth = desk.growth()
        await desk.work()
        return growth

    assert office.act(body, model, kit.tool("a", seconds[0]), kit.tool("b", seconds[1])) == lengths


def test_results_of_one_commit_stand_in_the_order_of_their_calls(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=tuple(use(name) for name in "edcba")), "done")

    async def body(desk: Desk) -> list[str]:
        return [name for name, _, _ in await desk.results(await desk.work())]

    assert office.act(body, model, *(kit.tool(name, 1) for name in "abcde")) == list("edcba")


@pytest.mark.parametrize("children", [1, 10])
def test_a_run_of_two_model_calls_and_one_tool_call_takes_six_commits(office: Office, children: int) -> None:
    kit = Kit()
    model = worker(use("look"), "done")

    async def body(desk: Desk) -> int:
        before = desk.store.commits
        counted: list[int] = []

        def check(tx: Tx) -> None:
            heard = [entry for entry in tx.transcripts.entries(MAIN) if entry.kind == "event"]
            if not counted and sum(entry.body.count('"status"') for entry in heard) == children:
                # The requester's own replies are no part of any child.
                replies = sum(entry.kind == "assistant" for entry in tx.transcripts.entries(MAIN))
                counted.append(desk.store.commits + 1 - before - replies)

        desk.store.check = check
        for _ in range(children):
            await desk.spawn("worker")
        await desk.until(lambda tx: bool(counted))
        return counted[0]

    commits = office.act(body, model, kit.tool("look"))
    assert commits <= 6 * children
    if children == 1:
        assert commits == 6  # spawn; claim, read and open the turn; reply; result; answer and end; the requester's read


@proves("0.ran.2", "Tools and limits that are reported are read back from execution")
def test_what_a_turn_ran_with_is_recorded_with_its_first_reply_and_no_commit_more(office: Office) -> None:
    model = worker(use("look"), "done")

    async def body(desk: Desk) -> TurnRan | None:
        key = await desk.spawn("worker")
        assert await desk.look(lambda tx: tx.turns.last_ran(key)) is None
        await desk.ended(key)
        return await desk.look(lambda tx: tx.turns.last_ran(key))

    ran = office.act(body, model, Kit().tool("look"), Kit().tool("act"), thinking="low", boxed=True)
    assert ran == TurnRan("scripted-1", "low", ("act", "look"), True, "/nowhere")


@proves("0.ran.1", "The model that is reported is the one that answered")
def test_the_model_that_really_answered_and_what_it_used_are_recorded(office: Office) -> None:
    first = ScriptedReply(calls=(use("look"),), usage=Usage(10, 2, 300, 40), model="other-1-2026")
    model = worker(first, ScriptedReply("done", usage=Usage(5, 1), thinking="hm", opaque="sig"))

    async def body(desk: Desk) -> list[Replied]:
        return await desk.replies(await desk.work())

    one, two = office.act(
        body,
        model,
        Kit().tool("look"),
        cost_usd=lambda name, usage: usage.output_tokens / 4 if name[0] == "o" else None,
    )
    assert (one.model, one.cost_usd) == ("other-1-2026", 0.5)
    assert one.usage == {"input": 10, "output": 2, "cacheRead": 300, "cacheWrite": 40}
    assert (two.model, two.cost_usd, two.usage) == ("scripted-1", None, {"input": 5, "output": 1})
    assert (two.thinking, two.opaque) == ("hm", "sig")


def test_thinking_and_what_its_provider_wants_back_go_back_to_the_model(office: Office) -> None:
    model = worker(ScriptedReply(calls=(use("look"),), thinking="hm", opaque="sig"), "done")

    async def body(desk: Desk) -> None:
        await desk.work()

    office.act(body, model, Kit().tool("look"))
    reply = asked(model)[1][1]
    assert isinstance(reply, AssistantMessage)
    assert (reply.thinking, reply.opaque) == ("hm", "sig")


def test_words_that_no_store_would_take_are_made_sound(office: Office) -> None:
    async def body(desk: Desk) -> str:
        return await desk.result(await desk.work())

    assert "\ud800" not in office.act(body, worker("half a \ud800 character"))


class Recorded:
    """A model whose connection is open from the request until its stream is closed."""

    def __init__(self) -> None:
        self.open = 0
        self.seen: list[int] = []

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        self.seen.append(self.open)
        self.open += 1
        try:
            if len(self.seen) == 1:
                yield Call("1", "look", "{}")
            yield Text("done")
            yield ReplyEnded("end", "m")
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.5)
            self.open -= 1

    async def close(self) -> None:
        return


def test_a_stream_is_closed_by_the_turn_that_read_it_before_anything_else_is_done(office: Office) -> None:
    model = Recorded()

    async def body(desk: Desk) -> int:
        await desk.work(parent=PROGRAM)
        return model.open

    assert office.act(body, model, Kit().tool("look")) == 0
    assert model.seen[:2] == [0, 0]


# ---- messages --------------------------------------------------------------------------------------------------------


@proves("4.send.1")
def test_a_message_joins_at_the_step_boundary_and_only_after_all_results(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("quick"), use("slow"))), "done")

    async def body(desk: Desk) -> list[type[object]]:
        key = await desk.spawn("worker")
        await desk.sleep_until(0.5)
        await desk.send("by the way", key)
        await desk.sleep_until(2)
        assert [type(entry) for entry in await desk.bodies(key)] == [Spoken, Replied, Resulted]
        await desk.ended(key)
        return [type(entry) for entry in await desk.bodies(key)]

    kinds = office.act(body, model, kit.tool("quick", 1), kit.tool("slow", 3))
    assert kinds == [Spoken, Replied, Resulted, Resulted, Spoken, Replied]
    assert len(asked(model)) == 2
    assert asked(model)[1][-1] == UserMessage("by the way")


def test_a_message_that_comes_while_the_model_thinks_waits_for_the_boundary(office: Office) -> None:
    model = worker(use("look"), "done", latency_s=2)

    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker")
        await desk.sleep_until(1)
        await desk.send("by the way", key)
        await desk.ended(key)

    office.act(body, model, Kit().tool("look"))
    first, second = asked(model)
    assert first == (UserMessage("worker"),)
    assert [type(message) for message in second] == [UserMessage, AssistantMessage, ToolMessage, UserMessage]


def test_the_answer_of_a_child_is_read_by_its_requesters_model_once(office: Office) -> None:
    model = worker("the child's words")

    async def body(desk: Desk) -> None:
        await desk.work()
        await desk.until(lambda tx: len(tx.transcripts.entries(MAIN)) == 2 and tx.turns.get(MAIN) is None)

    office.act(body, model)
    (request,) = asked(model, "main")
    assert "the child's words" in request[0].text


# ---- being stopped ---------------------------------------------------------------------------------------------------


@proves("4.steer.6", "… and open calls of the old attempt closed with `interrupted`")
def test_a_steer_closes_open_calls_as_interrupted_and_a_new_attempt_never_runs_them(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("quick"), use("slow"))), "as you wish")

    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        key = await desk.spawn("worker")
        await desk.sleep_until(5)
        await desk.steer(key, "rather this")
        await desk.ended(key)
        assert (await desk.outcome(key))[2] == 5.0
        return await desk.results(key)

    found = office.act(body, model, kit.tool("quick", 1, kind="repeatable"), kit.tool("slow", 60, kind="repeatable"))
    assert found == [("quick", "quick", False), ("slow", "interrupted; it was not finished", True)]
    assert (kit.begun, kit.cancelled) == (["quick", "slow"], ["slow"])
    assert asked(model)[1][-1] == UserMessage("rather this")


@proves("4.steer.10")
def test_a_steer_while_the_model_thinks_leaves_nothing_of_the_reply(office: Office) -> None:
    model = worker("slow words", latency_s=10)

    async def body(desk: Desk) -> list[type[object]]:
        key = await desk.spawn("worker")
        await desk.sleep_until(5)
        await desk.steer(key, "rather this")
        await desk.ended(key)
        return [type(entry) for entry in await desk.bodies(key)]

    assert office.act(body, model) == [Spoken, Spoken, Replied]


@proves("2.kill.3")
def test_a_kill_cancels_running_tools_and_leaves_no_task_behind(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("a"), use("b"), use("quick"))), "never said")

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        await desk.rest()
        before = len(asyncio.all_tasks())
        key = await desk.spawn("worker")
        await desk.sleep_until(5)
        assert len(asyncio.all_tasks()) > before
        await desk.kill(key)
        await desk.ended(key)
        await desk.rest()
        assert len(asyncio.all_tasks()) == before
        assert await desk.look(lambda tx: tx.drivers.all()) == []
        return await desk.outcome(key)

    tools = kit.tool("a", 100), kit.tool("b", 100), kit.tool("quick", 1)
    assert office.act(body, model, *tools) == ("killed", "killed", 5.0)
    assert sorted(kit.cancelled) == ["a", "b"]
    assert len(asked(model)) == 1


def test_a_tool_that_keeps_a_stop_to_itself_does_not_keep_its_turn(office: Office) -> None:
    @tool
    async def stubborn() -> str:
        """Goes on."""
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(100)
        return "went on"

    model = worker(use("stubborn"), "and on")

    async def body(desk: Desk) -> None:
        await desk.spawn("worker")
        await desk.sleep_until(5)

    office.act(body, model, stubborn)
    assert len(asked(model)) == 1
    assert office.now == 5


def test_a_kill_while_the_model_thinks_leaves_no_task_behind(office: Office) -> None:
    model = worker("never said", latency_s=100)

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        await desk.rest()
        before = len(asyncio.all_tasks())
        key = await desk.spawn("worker")
        await desk.sleep_until(5)
        await desk.kill(key)
        await desk.ended(key)
        await desk.rest()
        assert len(asyncio.all_tasks()) == before
        return await desk.outcome(key)

    assert office.act(body, model) == ("killed", "killed", 5.0)


@proves("2.frozen.18", "A call that is under way at the cut counts, one that a person has not approved does not")
def test_a_timeout_in_the_middle_of_tool_calls_counts_them(office: Office) -> None:
    kit = Kit()
    calls = (use("quick"), use("slow"), use("slow"), use("push"))
    model = worker(ScriptedReply("I look", calls), "never said")

    async def body(desk: Desk) -> str:
        return await desk.result(await desk.work(timeout_s=30))

    tools = (kit.tool("quick", 1), kit.tool("slow", 100), kit.tool("push"))
    kept = office.act(body, model, *tools, asks=frozenset({"push"}))
    assert kept == "(partial progress: 3 tool calls, no final answer)\n- I look"


@proves("2.frozen.18")
def test_an_approved_call_that_is_under_way_at_a_timeout_counts(office: Office) -> None:
    model = worker(ScriptedReply("I push", (use("push"),)), "never said")

    async def body(desk: Desk) -> str:
        key = await desk.spawn("worker", timeout_s=30)
        await desk.until(lambda tx: bool(tx.approvals.open()))
        await desk.answer((await desk.questions())[0])
        await desk.ended(key)
        return await desk.result(key)

    kept = office.act(body, model, Kit().tool("push", 100), asks=frozenset({"push"}))
    assert kept == "(partial progress: 1 tool call, no final answer)\n- I push"


@proves("0.ends.3")
@proves("0.ends.4", "A timeout hands over partial work")
@proves("2.frozen.7", "A timeout freezes partial progress: tool-call count and last fragments")
@proves("4.steer.8", "At a timeout open calls are closed the same way")
def test_a_timeout_cancels_running_tools_and_keeps_what_was_done(office: Office) -> None:
    kit = Kit()
    model = worker(
        ScriptedReply("first I look", (use("quick"),)), ScriptedReply("then I wait", (use("slow"),)), "never said"
    )

    async def body(desk: Desk) -> str:
        await desk.rest()
        before = len(asyncio.all_tasks())
        key = await desk.work(timeout_s=30)
        await desk.rest()
        assert len(asyncio.all_tasks()) == before
        assert await desk.outcome(key) == ("timeout", None, 30.001)
        assert (await desk.results(key))[-1] == ("slow", "interrupted; it was not finished", True)
        return await desk.result(key)

    kept = office.act(body, model, kit.tool("quick", 1), kit.tool("slow", 100))
    assert kept == "(partial progress: 2 tool calls, no final answer)\n- first I look\n- then I wait"
    assert kit.cancelled == ["slow"]


def test_an_engine_that_closes_cancels_tools_and_leaves_no_task_behind(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("a"), use("b"))), "done")
    before: list[int] = []

    async def body(desk: Desk) -> None:
        before.append(len(asyncio.all_tasks()) - 1)  # without the engine's own loop
        await desk.spawn("worker")
        await desk.sleep_until(5)
        await desk.engine.__aexit__()
        assert len(asyncio.all_tasks()) == before[0]
        await desk.engine.__aenter__()

    office.act(body, model, kit.tool("a", 100), kit.tool("b", 100))
    assert sorted(kit.cancelled[:2]) == ["a", "b"]


def test_a_stopped_conversation_closes_its_calls_and_answers_the_next_message(office: Office) -> None:
    kit = Kit()
    model = ScriptedModel(cast(main=in_turn(use("slow"), "hello again")))

    async def body(desk: Desk) -> list[str]:
        await desk.send("go")
        await desk.sleep_until(5)
        await desk.engine.commit(lambda c: control.stop(c, MAIN))
        await desk.sleep_until(6)
        await desk.send("once more")
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN))
        assert await desk.results(MAIN) == [("slow", "stopped; it was not finished", True)]
        return [reply.text for reply in await desk.replies(MAIN)]

    assert office.act(body, model, kit.tool("slow", 100)) == ["", "hello again"]
    assert kit.cancelled == ["slow"]


# ---- lanes -----------------------------------------------------------------------------------------------------------


@proves("2.phases.9")
@proves("3.limits.4", "`maxConcurrent` 8 is the width of the lane: over it runs queue")
def test_as_many_sessions_think_at_once_as_their_lane_is_wide(office: Office) -> None:
    model = worker("done", latency_s=10)

    async def body(desk: Desk) -> list[float]:
        keys = [await desk.spawn("worker") for _ in range(5)]
        for key in keys:
            await desk.ended(key)
        ends = [(await desk.run(key)).ended for key in keys]
        return [round(ended.ended_at - START) for ended in ends if ended is not None]

    assert office.act(body, model, rules=rules(widths={"main": 1, "subagent": 2})) == [10, 10, 20, 20, 30]
