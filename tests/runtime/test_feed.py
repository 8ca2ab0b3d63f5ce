"""Who watches turns, and what a slow or absent listener means to them: nothing."""

import asyncio
from pathlib import Path

import pytest

from fledge.core.live import OpenReply, held_bytes
from fledge.models.base import Broke
from fledge.models.scripted import ScriptedReply
from fledge.runtime.feed import MOST_BYTES, Feed, TurnEvent, TurnEventKind
from tests.runtime.desk import Desk, Kit, Office, use, worker
from tests.statements import proves


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def event(number: int) -> TurnEvent:
    return TurnEvent("assistant:text", "s", str(number))


def test_a_listener_hears_everything_from_now_on_in_order() -> None:
    async def body() -> list[str]:
        feed = Feed()
        feed.emit(event(0))
        listener = feed.listen()
        for number in (1, 2, 3):
            feed.emit(event(number))
        listener.close()
        return [heard.text async for heard in listener]

    assert asyncio.run(body()) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("emitted", "heard"),
    [
        (3, [("assistant:text", "1", 0), ("assistant:text", "2", 0), ("assistant:text", "3", 0)]),
        (4, [("lost", "", 1), ("assistant:text", "2", 0), ("assistant:text", "3", 0), ("assistant:text", "4", 0)]),
        (9, [("lost", "", 6), ("assistant:text", "7", 0), ("assistant:text", "8", 0), ("assistant:text", "9", 0)]),
    ],
)
def test_a_slow_listener_loses_the_oldest_and_is_told_how_many(emitted: int, heard: list[tuple[str, str, int]]) -> None:
    async def body() -> list[tuple[str, str, int]]:
        feed = Feed()
        listener = feed.listen(size=3)
        for number in range(1, emitted + 1):
            feed.emit(event(number))
        listener.close()
        return [(told.kind, told.text, told.count) async for told in listener]

    assert asyncio.run(body()) == heard


@proves("7.live.8", "A reader that does not read makes the process hold at most 1 MiB of live events for it")
@pytest.mark.parametrize("text", ["x" * 50_000, "\N{BIRD}" * 50_000, "x", ""])
def test_what_waits_for_a_listener_that_does_not_read_is_bounded_in_bytes(text: str) -> None:
    feed = Feed()
    feed.open.begin(reply := OpenReply("s", 1, 1))
    reply.add("\N{BIRD}" * 5 * MOST_BYTES)
    listener = feed.listen(size=10_000, so_far="")
    for _ in range(5000):
        feed.emit(TurnEvent("tool:end", "s", text, arguments=text))
        feed.emit(TurnEvent("assistant:text", "s", text))
        assert listener._bytes <= MOST_BYTES
    found = listener.waiting()
    assert sum(held_bytes(one) for one in found[1:]) <= MOST_BYTES
    assert found[0].kind == "lost"
    assert found[0].count + len(found) - 1 == 10_001
    assert listener._bytes == 0


def test_each_loss_is_told_once() -> None:
    async def body() -> list[int]:
        feed = Feed()
        listener = feed.listen(size=2)
        for number in range(5):
            feed.emit(event(number))
        first = await anext(listener)
        assert (await anext(listener)).text == "3"
        for number in range(5, 7):
            feed.emit(event(number))
        second = await anext(listener)
        listener.close()
        rest = [told.count async for told in listener]
        return [first.count, second.count, *rest]

    assert asyncio.run(body()) == [3, 1, 0, 0]


def test_one_who_looks_without_waiting_is_told_of_losses_too() -> None:
    async def body() -> list[tuple[str, int]]:
        feed = Feed()
        listener = feed.listen(size=2)
        for number in range(5):
            feed.emit(event(number))
        found: list[tuple[str, int]] = [(told.kind, told.count) for told in listener.waiting()]
        assert listener.waiting() == []
        return found

    assert asyncio.run(body()) == [("lost", 3), ("assistant:text", 0), ("assistant:text", 0)]


def test_a_waiting_listener_is_woken_by_an_event_and_by_being_closed() -> None:
    async def body() -> list[str]:
        feed = Feed()
        listener = feed.listen()

        async def hear() -> list[str]:
            return [told.text async for told in listener]

        hearing = asyncio.create_task(hear())
        await asyncio.sleep(0)
        feed.emit(event(1))
        await asyncio.sleep(0)
        listener.close()
        listener.close()
        feed.emit(event(2))
        return await hearing

    assert asyncio.run(body()) == ["1"]


def test_listeners_do_not_take_from_each_other() -> None:
    async def body() -> tuple[list[str], list[str]]:
        feed = Feed()
        one, two = feed.listen(size=1), feed.listen()
        for number in (1, 2):
            feed.emit(event(number))
        one.close()
        feed.emit(event(3))
        return [told.text for told in two.waiting()], [told.text async for told in one]

    assert asyncio.run(body()) == (["1", "2", "3"], ["", "2"])


def test_emitting_to_nobody_costs_nothing() -> None:
    feed = Feed()
    for number in range(1000):
        feed.emit(event(number))
    fresh = Feed()
    assert vars(feed.open) == vars(fresh.open)
    assert vars(feed) == {**vars(fresh), "open": feed.open}


# ---- from a turn -----------------------------------------------------------------------------------------------------


def test_a_turn_is_told_in_the_order_it_happens(office: Office) -> None:
    model = worker(ScriptedReply("let me look", (use("look"),)), "found it", piece_chars=4)

    async def body(desk: Desk) -> list[TurnEvent]:
        feed = desk.listen()
        key = await desk.work()
        return [told for told in feed.waiting() if told.session == key]

    events = office.act(body, model, Kit().tool("look", 1, says="here"))
    assert [(told.kind, told.text, told.call) for told in events if told.kind != "usage"] == [
        ("start", "", ""),
        ("model:start", "", ""),
        ("assistant:text", "let ", ""),
        ("assistant:text", "me l", ""),
        ("assistant:text", "ook", ""),
        ("tool:start", "look", "call_0"),
        ("tool:end", "here", "call_0"),
        ("model:start", "", ""),
        ("assistant:text", "foun", ""),
        ("assistant:text", "d it", ""),
        ("end", "found it", ""),
    ]
    kinds = [told.kind for told in events]
    assert kinds.count("usage") == 2
    assert kinds[5:7] == ["usage", "tool:start"]
    assert kinds[-2:] == ["usage", "end"]
    assert {told.turn for told in events} == {1}


def test_a_turn_tells_at_which_entry_it_stands_where_words_begin_and_end(office: Office) -> None:
    model = worker(ScriptedReply("let me look", (use("look"),)), "found it")

    async def body(desk: Desk) -> tuple[list[tuple[TurnEventKind, int]], list[tuple[int, str]]]:
        feed = desk.listen()
        key = await desk.work()
        told = [(told.kind, told.entry) for told in feed.waiting() if told.session == key and told.entry]
        return told, await desk.engine.store.read(
            lambda tx: [(one.seq, one.kind) for one in tx.transcripts.entries(key)]
        )

    told, entries = office.act(body, model, Kit().tool("look", 1, says="here"))
    (task, first, result, last) = [seq for seq, _ in entries]
    assert told == [
        ("start", task),
        ("model:start", task),
        ("assistant:text", task),
        ("tool:start", first),
        ("tool:end", result),
        ("model:start", result),
        ("assistant:text", result),
        ("end", last),
    ]


def test_a_tool_that_starts_is_told_with_its_arguments(office: Office) -> None:
    async def body(desk: Desk) -> list[str]:
        feed = desk.listen()
        key = await desk.work()
        return [told.arguments for told in feed.waiting() if told.session == key and told.kind == "tool:start"]

    model = worker(ScriptedReply("", (use("look", where="under the bed"),)), "found it")
    assert office.act(body, model, Kit().tool("look", 1, says="here")) == ['{"where":"under the bed"}']


def test_a_retry_is_told_with_its_cause_and_when_the_next_try_comes(office: Office) -> None:
    async def body(desk: Desk) -> list[tuple[str, float]]:
        feed = desk.listen()
        key = await desk.work()
        return [(told.cause, told.retry_in_s) for told in feed.waiting() if told.session == key and told.cause]

    first, *_ = office.act(body, worker(Broke("retryable", "HTTP 529: overloaded", retry_after_s=8)))
    assert first == ("HTTP 529: overloaded", 8.0)


def test_usage_is_told_in_words_and_as_numbers(office: Office) -> None:
    async def body(desk: Desk) -> list[tuple[str, int, int, float | None]]:
        feed = desk.listen()
        key = await desk.work()
        heard = [told for told in feed.waiting() if told.session == key and told.kind == "usage"]
        return [(told.text, told.tokens_in, told.tokens_out, told.cost_usd) for told in heard]

    assert office.act(body, worker("four")) == [("4 in, 2 out", 4, 2, None)]


def test_tools_that_run_side_by_side_are_told_apart_by_their_calls(office: Office) -> None:
    model = worker(ScriptedReply(calls=(use("slow"), use("quick"))), "done")

    async def body(desk: Desk) -> list[tuple[str, str]]:
        feed = desk.listen()
        key = await desk.work()
        return [(told.kind, told.call) for told in feed.waiting() if told.session == key and told.call]

    told = office.act(body, model, Kit().tool("slow", 2), Kit().tool("quick", 1))
    assert told == [("tool:start", "call_0"), ("tool:start", "call_1"), ("tool:end", "call_1"), ("tool:end", "call_0")]


def test_a_turn_that_could_not_be_answered_ends_with_an_error_and_not_with_an_end(office: Office) -> None:
    async def body(desk: Desk) -> list[tuple[str, str]]:
        feed = desk.listen()
        key = await desk.work()
        return [(told.kind, told.text) for told in feed.waiting() if told.session == key]

    told = office.act(body, worker("x", failures={1: "auth"}))
    assert told == [("start", ""), ("model:start", ""), ("error", "scripted auth")]


def test_a_listener_that_never_reads_holds_no_turn(office: Office) -> None:
    model = worker(ScriptedReply("word " * 1000, (use("look"),)), "done", piece_chars=1)

    async def body(desk: Desk) -> tuple[float, int]:
        feed = desk.agent.feed.listen(size=5)
        key = await desk.work()
        at = (await desk.outcome(key))[2]
        return at, (await anext(feed)).count

    at, lost = office.act(body, model, Kit().tool("look"))
    assert at == 0.0
    assert lost > 4990
