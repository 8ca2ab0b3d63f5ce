"""Going on after a crash: everything in memory vanishes, the folder stays, another owner takes up what is open."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fledge.core.transcript import Replied, Resulted, Spoken, Told, from_body
from fledge.models.base import ToolMessage, UserMessage
from fledge.models.scripted import ScriptedModel, ScriptedReply
from fledge.runtime.agent import UNKNOWN_OUTCOME
from fledge.store.base import Tx
from tests.runtime.desk import MAIN, Desk, Kit, Office, asked, cast, in_turn, results, use, worker
from tests.statements import proves

UNKNOWN = "interrupted; outcome unknown: it may or may not have taken effect. Look before you repeat it."


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def crash_at(at: float) -> Callable[[Desk], Awaitable[str]]:
    """Spawn a worker, and let the act end at that time; answers its key."""

    async def body(desk: Desk) -> str:
        key = await desk.spawn("worker")
        await desk.sleep_until(at)
        return key

    return body


def finish(key: str) -> Callable[[Desk], Awaitable[str]]:
    async def body(desk: Desk) -> str:
        await desk.ended(key)
        return await desk.result(key)

    return body


def test_what_the_model_reads_about_an_unknown_outcome_is_exactly_this() -> None:
    assert UNKNOWN_OUTCOME.text == UNKNOWN


def test_a_reply_that_was_not_committed_is_asked_for_again(office: Office) -> None:
    first, second = worker("done", latency_s=10), worker("done", latency_s=10)
    key = office.act(crash_at(5), first, ends="crashed")
    assert office.act(finish(key), second) == "done"
    assert asked(first) == asked(second) == [(UserMessage("worker"),)]
    assert office.now == pytest.approx(15, abs=0.02)


@proves("0.crash.3", "A committed model reply is never asked for again")
def test_a_committed_reply_is_never_asked_for_again(office: Office) -> None:
    kit = Kit()
    models = [worker(use("slow"), use("slow"), "done") for _ in range(3)]
    slow = kit.tool("slow", 10, kind="repeatable")
    key = office.act(crash_at(5), models[0], slow, ends="crashed")
    office.act(lambda desk: desk.sleep_until(20), models[1], slow, ends="crashed")
    assert office.act(finish(key), models[2], slow) == "done"
    lengths = [len(messages) for model in models for messages in asked(model)]
    assert lengths == [1, 3, 5]
    assert kit.begun == ["slow"] * 4
    assert kit.done == ["slow"] * 2


@proves("0.crash.4", "A committed tool result is never asked for again")
@proves("2.phases.12")
def test_a_call_with_a_result_is_kept_and_the_others_are_run(office: Office) -> None:
    kit = Kit()
    answers = ScriptedReply(calls=(use("quick"), use("slow"))), "done"
    models = [worker(*answers), worker(*answers)]
    tools = kit.tool("quick", 1, kind="repeatable"), kit.tool("slow", 10, kind="repeatable")
    key = office.act(crash_at(5), models[0], *tools, ends="crashed")
    assert office.act(finish(key), models[1], *tools) == "done"
    assert kit.begun == ["quick", "slow", "slow"]
    (messages,) = asked(models[1])
    assert results(messages) == [("quick", "quick", False), ("slow", "slow", False)]


def test_what_was_begun_and_may_not_be_repeated_is_not_run_again_and_its_outcome_is_told_as_unknown(
    office: Office,
) -> None:
    kit = Kit()
    answers = ScriptedReply(calls=(use("once"), use("again"), use("look"))), "I had better look"
    models = [worker(*answers), worker(*answers)]
    tools = kit.tool("once", 10), kit.tool("again", 10, kind="repeatable"), kit.tool("look", 10, kind="read_only")
    key = office.act(crash_at(5), models[0], *tools, ends="crashed")
    assert office.act(finish(key), models[1], *tools) == "I had better look"
    assert kit.begun == ["once", "again", "look", "again", "look"]
    (messages,) = asked(models[1])
    assert results(messages) == [("once", UNKNOWN, True), ("again", "again", False), ("look", "look", False)]
    assert len(asked(models[0])) == 1


def test_a_tool_that_is_gone_after_the_restart_is_told_as_unknown_to_the_model(office: Office) -> None:
    kit = Kit()
    answers = use("slow"), "I see"
    models = [worker(*answers), worker(*answers)]
    key = office.act(crash_at(5), models[0], kit.tool("slow", 10, kind="repeatable"), ends="crashed")
    assert office.act(finish(key), models[1]) == "I see"
    ((_, text, is_error),) = results(asked(models[1])[0])
    assert is_error
    assert "There is no tool 'slow' here" in text


def test_a_crash_while_waiting_for_the_disk_with_a_finished_result_runs_only_what_may_be(office: Office) -> None:
    kit = Kit()
    answers = use("once"), "I see"
    models = [worker(*answers), worker(*answers)]

    async def body(desk: Desk) -> str:
        key = await desk.spawn("worker")
        await desk.sleep_until(0.5)
        desk.store.broken = True
        await desk.sleep_until(3)
        return key

    key = office.act(body, models[0], kit.tool("once", 1), ends="crashed")
    assert kit.done == ["once"]
    assert office.act(finish(key), models[1], kit.tool("once", 1)) == "I see"
    assert kit.begun == ["once"]
    assert results(asked(models[1])[0]) == [("once", UNKNOWN, True)]


def test_a_conversations_turn_goes_on_where_it_stood(office: Office) -> None:
    kit = Kit()
    models = [ScriptedModel(cast(main=in_turn(use("slow"), "done"))) for _ in range(2)]
    slow = kit.tool("slow", 10, kind="repeatable")

    async def begin(desk: Desk) -> None:
        await desk.send("go")
        await desk.sleep_until(5)

    async def end(desk: Desk) -> list[type[object]]:
        await desk.until(lambda tx: tx.turns.get(MAIN) is None)
        return [type(entry) for entry in await desk.bodies(MAIN)]

    office.act(begin, models[0], slow, ends="crashed")
    assert office.act(end, models[1], slow) == [Spoken, Replied, Resulted, Replied]
    assert [len(messages) for model in models for messages in asked(model, "main")] == [1, 3]


def test_an_engine_that_was_closed_in_order_is_resumed_like_one_that_crashed(office: Office) -> None:
    kit = Kit()
    answers = ScriptedReply(calls=(use("quick"), use("once"))), "done"
    models = [worker(*answers), worker(*answers)]
    tools = kit.tool("quick", 1), kit.tool("once", 10)
    key = office.act(crash_at(5), models[0], *tools)
    assert office.act(finish(key), models[1], *tools) == "done"
    assert kit.begun == ["quick", "once"]
    assert results(asked(models[1])[0]) == [("quick", "quick", False), ("once", UNKNOWN, True)]


@proves("4.steer.7", "A resume never runs calls that a steer closed")
def test_calls_that_a_steer_has_closed_are_not_run_by_whoever_resumes(office: Office) -> None:
    kit = Kit()
    answers = use("slow"), "as you wish"
    models = [worker(*answers, latency_s=1), worker(*answers)]

    async def body(desk: Desk) -> str:
        key = await desk.spawn("worker")
        await desk.sleep_until(5)
        await desk.steer(key, "rather this")
        return key

    slow = kit.tool("slow", 10, kind="repeatable")
    key = office.act(body, models[0], slow, ends="crashed")
    assert office.act(finish(key), models[1], slow) == "as you wish"
    assert kit.begun == ["slow"]
    (messages,) = asked(models[1])
    assert results(messages) == [("slow", "interrupted; it was not finished", True)]
    assert messages[-1] == UserMessage("rather this")


def test_a_message_that_came_before_the_crash_is_read_only_after_all_results(office: Office) -> None:
    kit = Kit()
    answers = use("slow"), "done"
    models = [worker(*answers), worker(*answers)]
    slow = kit.tool("slow", 10, kind="repeatable")

    async def begin(desk: Desk) -> str:
        key = await desk.spawn("worker")
        await desk.sleep_until(4)
        await desk.send("by the way", key)
        await desk.sleep_until(5)
        return key

    key = office.act(begin, models[0], slow, ends="crashed")

    async def end(desk: Desk) -> list[type[object]]:
        await desk.ended(key)
        return [type(entry) for entry in await desk.bodies(key)]

    kinds = office.act(end, models[1], slow)
    (messages,) = asked(models[1])
    assert [type(message) for message in messages[-2:]] == [ToolMessage, UserMessage]
    assert kinds == [Spoken, Replied, Resulted, Spoken, Replied]


@proves("0.crash.5")
@proves("2.phases.10", "After a crash a queued run is claimed again")
def test_a_run_that_waits_for_its_slot_starts_once_however_often_the_process_dies(office: Office) -> None:
    models = [worker("done", latency_s=10) for _ in range(4)]
    key = office.act(crash_at(0), models[0], ends="crashed")
    office.act(lambda desk: desk.rest(), models[1], ends="crashed")
    assert office.act(finish(key), models[2]) == "done"


@proves("0.crash.7")
def test_three_crashes_in_the_same_step_end_a_run_and_a_step_in_between_starts_the_count_again(office: Office) -> None:
    kit = Kit()
    answers = use("slow"), "done"
    slow = kit.tool("slow", 2, kind="repeatable")

    async def body(desk: Desk) -> None:
        await desk.clock.sleep(1)

    key = office.act(crash_at(1), worker(*answers, latency_s=4), slow, ends="crashed")
    office.act(body, worker(*answers, latency_s=4), slow, ends="crashed")
    office.act(body, worker(*answers), slow, ends="crashed")  # the reply is committed, the tool is not done
    office.act(body, worker(*answers), slow, ends="crashed")
    assert office.act(finish(key), worker(*answers), slow) == "done"

    async def outcome(desk: Desk) -> tuple[str, str | None, float]:
        await desk.ended(doomed)
        return await desk.outcome(doomed)

    async def doom(desk: Desk) -> str:
        found = await desk.spawn("worker")
        await desk.clock.sleep(1)
        return found

    doomed = office.act(doom, worker(*answers, latency_s=4), slow, ends="crashed")
    for _ in range(2):
        office.act(body, worker(*answers, latency_s=4), slow, ends="crashed")
    status, error, _ = office.act(outcome, worker(*answers), slow)
    assert (status, error) == ("error", "it crashed 3 times in the same step and was not tried again")


def test_the_answer_arrives_once_though_the_process_died_right_after_it(office: Office) -> None:
    model = ScriptedModel(cast(worker=in_turn("the words")))

    async def body(desk: Desk) -> str:
        return await desk.work()

    async def end(desk: Desk) -> int:
        await desk.until(
            lambda tx: (
                tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN) and len(tx.transcripts.entries(MAIN)) > 1
            )
        )
        return await desk.look(told)

    def told(tx: Tx) -> int:
        bodies = [from_body(entry.body) for entry in tx.transcripts.entries(MAIN)]
        return sum(body.text.count("the words") for body in bodies if isinstance(body, Told))

    office.act(body, model, ends="crashed")
    assert office.act(end, model) == 1
    assert len(asked(model)) == 1
