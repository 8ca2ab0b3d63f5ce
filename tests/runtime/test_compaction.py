"""When a transcript nears the model's window, a note stands for its older part; nothing is lost or torn apart."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fledge.core.policy import Spent
from fledge.core.transcript import Noted, Resulted
from fledge.models.base import AssistantMessage, ModelMessage, Request, ToolMessage, Usage, UserMessage
from fledge.models.scripted import Answer, ScriptedFailure, ScriptedModel, ScriptedReply, last_text
from fledge.runtime.context import COMPACT_PROMPT
from tests.runtime.desk import MAIN, PROGRAM, Desk, Kit, Office, cast, use

WINDOW = 1000
"""In tokens; a look is about 250 of them, so the fourth look goes over 80 %."""
NOTES = "[Notes on the conversation so far]\n"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def is_compaction(request: Request) -> bool:
    return last_text(request) == COMPACT_PROMPT


def looks(kit: Kit, count: int, note: str = "NOTES") -> ScriptedModel:
    """Looks so many times, then is done; asked for a note, it says one that has the numbers it saw."""

    def script(request: Request) -> Answer:
        if is_compaction(request):
            return ScriptedReply(f"{note} {len(request.messages)}", usage=Usage(500, 50))
        return "done" if len(kit.done) >= count else use("look")

    return ScriptedModel(cast(worker=script))


def whole(messages: Sequence[ModelMessage]) -> bool:
    """True if every call is followed at once by its result, and no result stands alone."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if not waiting or waiting.pop(0) != message.name:
                return False
        elif waiting:
            return False
        elif isinstance(message, AssistantMessage):
            waiting = [call.name for call in message.calls]
    return not waiting


def test_at_eighty_percent_of_the_window_a_note_stands_for_the_older_part(office: Office) -> None:
    kit = Kit()
    model = looks(kit, 4)

    async def body(desk: Desk) -> list[object]:
        heard = desk.listen()
        key = await desk.work(parent=PROGRAM)
        assert await desk.result(key) == "done"
        assert [told.text for told in heard.waiting() if told.kind == "assistant:text"] == ["done"]
        return list(await desk.bodies(key))

    bodies = office.act(body, model, kit.tool("look", says="x" * 996), window=WINDOW)
    assert [is_compaction(request) for request in model.requests] == [False] * 4 + [True, False]
    before, compaction, after = model.requests[3:]
    assert len(before.messages) == 7
    assert compaction.messages[:-1] == (*before.messages,)
    assert compaction.system == "worker"
    assert [type(message) for message in after.messages] == [UserMessage, AssistantMessage, ToolMessage]
    assert after.messages[0] == UserMessage(f"{NOTES}NOTES 8")
    assert sum(isinstance(entry, Resulted) for entry in bodies) == 4
    notes = [entry for entry in bodies if isinstance(entry, Noted)]
    assert notes == [Noted("NOTES 8", 7)]


@pytest.mark.parametrize(("chars", "compacts"), [(3164, False), (3168, True)])
def test_the_share_is_eighty_percent_exactly(office: Office, chars: int, compacts: bool) -> None:
    # The prompt and the task are 2 tokens each; a reply has 1 for its text and 1 for its thinking; its call has 2.
    kit = Kit()
    model = looks(kit, 1)

    async def body(desk: Desk) -> None:
        await desk.work(parent=PROGRAM)

    office.act(body, model, kit.tool("look", says="x" * chars), window=WINDOW)
    lengths = chars // 4 + 1
    assert (2 + 2 + 1 + 1 + 2 + lengths > 800) == compacts
    assert any(is_compaction(request) for request in model.requests) == compacts


def test_nothing_is_lost_and_no_call_is_torn_from_its_result_however_often_it_is_compacted(office: Office) -> None:
    kit = Kit()
    number = iter(range(1000))

    def script(request: Request) -> Answer:
        if is_compaction(request):
            return "NOTES"
        done = len(kit.done)
        return "done" if done >= 24 else ScriptedReply(f"said {next(number)}", (use("look"), use("look")))

    model = ScriptedModel(cast(worker=script))

    async def body(desk: Desk) -> None:
        key = await desk.work(parent=PROGRAM)
        assert await desk.result(key) == "done"
        assert len(await desk.results(key)) == 24

    office.act(body, model, kit.tool("look", says="x" * 396), window=WINDOW)
    assert sum(is_compaction(request) for request in model.requests) >= 3
    summarised: set[str] = set()
    said = 0
    for request in model.requests:
        body_of = request.messages[:-1] if is_compaction(request) else request.messages
        assert whole(body_of)
        seen = {message.text for message in body_of if isinstance(message, AssistantMessage)}
        if is_compaction(request):
            summarised |= seen
        else:
            assert {f"said {n}" for n in range(said)} <= seen | summarised
            said += 1


def test_keys_of_children_are_kept_letter_by_letter_whatever_the_model_wrote(office: Office) -> None:
    kit = Kit()
    model = looks(kit, 5)
    keys: list[str] = []

    async def body(desk: Desk) -> str:
        key = await desk.spawn("worker", parent=PROGRAM)
        await desk.sleep_until(0.5)
        keys.extend([await desk.spawn("kid", parent=key), await desk.spawn("kid", parent=key)])
        await desk.ended(key)
        notes = [entry.text for entry in await desk.bodies(key) if isinstance(entry, Noted)]
        return notes[0]

    note = office.act(body, model, kit.tool("look", 1, says="x" * 996), window=WINDOW)
    assert note == f"NOTES 8\n\nChildren: {keys[0]}, {keys[1]}"
    after = next(request for request in model.requests if request.messages[0].text.startswith(NOTES))
    assert after.messages[0].text == NOTES + note


def test_a_key_that_the_model_kept_is_not_written_twice(office: Office) -> None:
    kit = Kit()
    keys: list[str] = []

    def script(request: Request) -> Answer:
        if is_compaction(request):
            return f"my child is {keys[0]}"
        return "done" if len(kit.done) >= 5 else use("look")

    async def body(desk: Desk) -> list[str]:
        key = await desk.spawn("worker", parent=PROGRAM)
        await desk.sleep_until(0.5)
        keys.append(await desk.spawn("kid", parent=key))
        await desk.ended(key)
        return [entry.text for entry in await desk.bodies(key) if isinstance(entry, Noted)]

    model = ScriptedModel(cast(worker=script))
    notes = office.act(body, model, kit.tool("look", 1, says="x" * 996), window=WINDOW)
    assert notes[0] == f"my child is {keys[0]}"


def test_what_was_just_read_stays_verbatim(office: Office) -> None:
    kit = Kit()
    model = looks(kit, 4)
    words = "please mind this " * 100

    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker", parent=PROGRAM)
        await desk.sleep_until(3.5)
        await desk.send(words, key)
        await desk.ended(key)

    office.act(body, model, kit.tool("look", 1, says="x" * 996), window=WINDOW)
    assert model.requests[-1].messages[0].text.startswith(NOTES)
    assert model.requests[-1].messages[-1] == UserMessage(words)


def test_a_conversation_reads_on_from_its_note_in_later_turns_and_after_a_restart(office: Office) -> None:
    kit = Kit()

    def script(request: Request) -> Answer:
        if is_compaction(request):
            return "NOTES"
        return f"reply to {last_text(request)[:5]}"

    models = [ScriptedModel(cast(main=script)) for _ in range(2)]

    async def first(desk: Desk) -> None:
        for word in ("one", "two", "three", "four"):
            await desk.send(word + " " + "x" * 1000)
            await desk.until(lambda tx: tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN))

    async def second(desk: Desk) -> int:
        await desk.send("five")
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN))
        return len(await desk.bodies(MAIN))

    office.act(first, models[0], window=WINDOW, ends="crashed")
    assert office.act(second, models[1], window=WINDOW) == 11
    assert kit.begun == []
    assert sum(is_compaction(request) for request in models[0].requests) == 1
    (request,) = models[1].requests
    assert request.messages[0] == UserMessage(f"{NOTES}NOTES")
    assert [message.text[:4] for message in request.messages[1:]] == ["repl", "four", "repl", "five"]


def test_a_crash_while_the_note_is_written_costs_only_the_note(office: Office) -> None:
    kit = Kit()
    models = [looks(kit, 4), looks(kit, 4)]

    async def slow(seconds: float) -> None:
        await clocks[-1].clock.sleep(seconds if is_compaction(models[0].requests[-1]) else 0)

    clocks: list[Desk] = []
    models[0] = ScriptedModel(models[0]._script, latency_s=10, sleep=slow)

    async def begin(desk: Desk) -> str:
        clocks.append(desk)
        key = await desk.spawn("worker", parent=PROGRAM)
        await desk.sleep_until(5)
        return key

    async def end(desk: Desk) -> list[str]:
        await desk.ended(key)
        return [entry.text for entry in await desk.bodies(key) if isinstance(entry, Noted)]

    tool = kit.tool("look", 1, says="x" * 996)
    key = office.act(begin, models[0], tool, window=WINDOW, ends="crashed")
    assert office.act(end, models[1], tool, window=WINDOW) == ["NOTES 8"]
    assert [is_compaction(request) for request in models[1].requests] == [True, False]
    assert len(kit.begun) == 4


def test_a_note_that_cannot_be_had_leaves_the_transcript_as_it_is(office: Office) -> None:
    kit = Kit()
    model = looks(kit, 4)
    model._failures[5] = "retryable"

    async def body(desk: Desk) -> str:
        return await desk.result(await desk.work(parent=PROGRAM))

    assert office.act(body, model, kit.tool("look", says="x" * 996), window=WINDOW) == "done"
    assert len(model.requests[-1].messages) == 9


# ---- the provider says that it is too long ---------------------------------------------------------------------------


def overflows(kit: Kit, *at: int) -> ScriptedModel:
    model = looks(kit, 2)
    troubles: dict[int, ScriptedFailure] = dict.fromkeys(at, "overflow")
    return ScriptedModel(model._script, failures=troubles)


@pytest.mark.parametrize("window", [WINDOW, 128_000], ids=["known window", "window said too large"])
def test_an_overflow_makes_a_note_and_asks_once_more(office: Office, window: int) -> None:
    kit = Kit()
    model = overflows(kit, 3)

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        return await desk.outcome(await desk.work(parent=PROGRAM))

    assert office.act(body, model, kit.tool("look", says="x" * 996), window=window) == ("ok", None, 0.0)
    assert [is_compaction(request) for request in model.requests] == [False, False, False, True, False]
    assert model.requests[-1].messages[0].text.startswith(NOTES)
    assert len(kit.begun) == 2


@pytest.mark.parametrize(("at", "requests"), [((3, 5), 5), ((3, 4), 4)], ids=["retry", "note"])
def test_a_second_overflow_is_an_error(office: Office, at: tuple[int, ...], requests: int) -> None:
    kit = Kit()
    model = overflows(kit, *at)

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        return await desk.outcome(await desk.work(parent=PROGRAM))

    error = "the model could not answer (overflow): scripted overflow"
    assert office.act(body, model, kit.tool("look", says="x" * 996), window=WINDOW) == ("error", error, 0.0)
    assert len(model.requests) == requests


def test_an_overflow_with_nothing_to_leave_out_is_an_error_at_once(office: Office) -> None:
    model = overflows(Kit(), 1)

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        return await desk.outcome(await desk.work(parent=PROGRAM))

    error = "the model could not answer (overflow): scripted overflow"
    assert office.act(body, model, window=WINDOW) == ("error", error, 0.0)
    assert len(model.requests) == 1


def test_a_note_is_paid_for_like_any_other_step(office: Office) -> None:
    kit = Kit()

    def script(request: Request) -> Answer:
        if is_compaction(request):
            return ScriptedReply("NOTES", usage=Usage(500, 50))
        if len(kit.done) < 4:
            return ScriptedReply(calls=(use("look"),), usage=Usage(9, 1))
        return ScriptedReply("done", usage=Usage(9, 1))

    async def body(desk: Desk) -> tuple[Spent, Spent]:
        await desk.give(PROGRAM, tokens=1_000_000)
        await desk.work(parent=PROGRAM)
        return await desk.purse(PROGRAM)

    model = ScriptedModel(cast(worker=script))
    used = office.act(body, model, kit.tool("look", says="x" * 996), window=WINDOW, is_budgeted=True)
    assert used == (Spent(tokens=5 * 10 + 550, turns=6), Spent())
