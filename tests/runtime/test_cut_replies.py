"""Replies that the token limit cut, replies that only think, and refusals: what becomes of them in a turn."""

from pathlib import Path
from typing import Any

import pytest

from fledge.core.announce import status_label
from fledge.core.asking import CONTINUE_WORDS, dropped_words
from fledge.core.run import Ended
from fledge.core.transcript import Replied, Resulted, Spoken
from fledge.models.base import AssistantMessage, Call, ModelEvent, ReplyEnded, Text, Usage, UserMessage
from fledge.models.scripted import ScriptedModel, ScriptedReply
from fledge.orchestrator import messages, views, visibility
from tests.runtime.desk import MAIN, Desk, Kit, Office, asked, cast, in_turn, use, worker
from tests.runtime.test_output_schema import spawned, told
from tests.statements import proves


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def cut(text: str) -> ScriptedReply:
    return ScriptedReply(text, stop="length")


def lost_call(*before: ModelEvent) -> list[ModelEvent]:
    """A reply that the limit cut inside a call of `write`."""
    return [*before, Usage(10, 20), ReplyEnded("length", "scripted-1", "write")]


async def result(desk: Desk, key: str) -> str:
    """The frozen result of a run that has ended."""
    ended = (await desk.run(key)).ended
    assert isinstance(ended, Ended)
    text = ended.result
    return "" if text is None else await desk.look(lambda tx: tx.texts.get(text))


@proves("2.asking.1", "A reply cut at the token limit is committed, then continued; both texts are one result")
def test_a_reply_that_the_limit_cut_is_continued_and_both_parts_are_the_result(office: Office) -> None:
    model = worker(cut("half a sen"), "tence")

    async def body(desk: Desk) -> tuple[str, str, list[str]]:
        key = await desk.work()
        await desk.rest()
        history = await desk.look(lambda tx: visibility.session_history(tx, key, 10))
        return (await desk.outcome(key))[0], await result(desk, key), [shown.text for shown in history.messages]

    assert office.act(body, model) == ("ok", "half a sentence", ["worker", "half a sentence"])
    first, second = asked(model)
    # The cut part is a message of its own, and a user's message follows it: nothing is put into the model's mouth.
    assert second == (*first, AssistantMessage("half a sen"), UserMessage(CONTINUE_WORDS))


@proves("2.asking.2", "What is cut twice ends with the note 'cut at the token limit' in its status")
def test_a_reply_that_is_cut_twice_ends_with_a_note_in_its_status(office: Office) -> None:
    model = worker(cut("half a sen"), cut("tence and"), "never asked for")

    async def body(desk: Desk) -> tuple[str, str, str]:
        key = await desk.work()
        [row] = await desk.look(lambda tx: views.child_rows(tx, MAIN))
        ended = (await desk.run(key)).ended
        assert ended is not None
        return status_label(ended.outcome), row.status_text(desk.clock.now()), await result(desk, key)

    label, listed, text = office.act(body, model)
    assert (label, listed) == ("completed, cut at the token limit", "done (cut at the token limit)")
    assert (text, len(asked(model))) == ("half a sentence and", 2)


def test_both_parts_together_are_held_against_the_output_schema(office: Office) -> None:
    model = worker(cut('{"n": 1'), "2}")

    async def body(desk: Desk) -> tuple[str, str | None]:
        return await told(desk, await spawned(desk))

    assert office.act(body, model) == ('{"n": 12}', None)


def test_the_feed_has_both_parts_as_one_text(office: Office) -> None:
    model = worker(cut("half a sen"), "tence")

    async def body(desk: Desk) -> list[tuple[str, str]]:
        heard = desk.listen()
        await desk.work()
        return [(event.kind, event.text) for event in heard.waiting() if event.kind in ("assistant:text", "end")]

    said = [("assistant:text", "half a sen"), ("assistant:text", "tence"), ("end", "half a sentence")]
    assert office.act(body, model)[:3] == said


def test_a_conversation_posts_both_parts_as_one_reply(office: Office) -> None:
    model = ScriptedModel(cast(main=in_turn(cut("half a sen"), cut("tence and"))))

    async def body(desk: Desk) -> tuple[Any, str, list[str]]:
        accepted = await desk.engine.commit(lambda c: messages.accept_request(c, MAIN, "go"))
        await desk.until(lambda tx: messages.request_standing(tx, accepted.run_id).status != "pending")
        stands = await desk.look(lambda tx: messages.request_standing(tx, accepted.run_id))
        status = await desk.look(lambda tx: views.session_status(tx, MAIN, desk.engine.rules, desk.clock.now()))
        history = await desk.look(lambda tx: visibility.session_history(tx, MAIN, 10))
        return stands.status, status.note, [shown.text for shown in history.messages]

    assert office.act(body, model) == ("ok", "cut at the token limit", ["go", "half a sentence and"])


@proves("2.asking.3", "A call that the token limit cut is dropped, and the model reads that it was")
def test_a_call_that_the_limit_cut_is_dropped_and_made_again(office: Office) -> None:
    kit = Kit()
    model = worker(lost_call(Text("I write. ")), ScriptedReply("", (use("write"),)), "done")

    async def body(desk: Desk) -> tuple[str, str, list[str]]:
        key = await desk.work()
        return (await desk.outcome(key))[0], await result(desk, key), kit.begun

    assert office.act(body, model, kit.tool("write")) == ("ok", "done", ["write"])
    assert asked(model)[1][-2:] == (AssistantMessage("I write. "), UserMessage(dropped_words("write")))


def test_whole_calls_beside_one_that_was_cut_are_run_and_the_model_is_told_of_the_other(office: Office) -> None:
    kit = Kit()
    model = worker(lost_call(Call("a", "look", "{}")), "done")

    async def body(desk: Desk) -> list[type]:
        return [type(entry) for entry in await desk.bodies(await desk.work())]

    found = office.act(body, model, kit.tool("look"), kit.tool("write"))
    assert (found, kit.begun) == ([Spoken, Replied, Spoken, Resulted, Replied], ["look"])
    assert asked(model)[1][-1] == UserMessage(dropped_words("write"))


def test_a_call_that_is_cut_twice_ends_the_run_with_an_error_and_partial_work(office: Office) -> None:
    model = worker(lost_call(Text("I write. ")), lost_call(Text("Again. ")), "never asked for")

    async def body(desk: Desk) -> tuple[str, str | None, str]:
        key = await desk.work()
        return *(await desk.outcome(key))[:2], await result(desk, key)

    error = "cut at the token limit twice, the second time inside a call of write"
    partial = "(partial progress: 0 tool calls, no final answer)\n- I write."
    assert office.act(body, model) == ("error", error, partial)


@proves("2.asking.4", "A reply of nothing but thinking is asked for once more with a higher limit, then it is an error")
@pytest.mark.parametrize(
    ("second", "outcome"),
    [
        (ScriptedReply("at last"), ("ok", None)),
        (
            ScriptedReply(thinking="still thinking", stop="length"),
            ("error", "cut at the token limit: all 16384 tokens went into thinking, and no words came"),
        ),
    ],
)
def test_a_reply_that_only_thinks_is_asked_for_once_more(office: Office, second: ScriptedReply, outcome: Any) -> None:
    answers = [ScriptedReply(thinking="hm", stop="length", usage=Usage(1, 2)), second]
    model = ScriptedModel(cast(worker=lambda request: answers.pop(0)))

    async def body(desk: Desk) -> tuple[Any, dict[str, int]]:
        key = await desk.work()
        replies = await desk.replies(key)
        return (await desk.outcome(key))[:2], replies[0].usage if replies else {}

    found, usage = office.act(body, model)
    assert found == outcome
    assert [request.max_tokens for request in model.requests if request.system == "worker"] == [8192, 16384]
    if outcome[0] == "ok":
        assert usage["output"] == 2 + len("at last") // 4 + 1, "the reply that was of no use is paid for, too"


@proves("2.asking.5", "A refusal by the provider is an error with readable words")
def test_a_refusal_ends_a_run_with_an_error(office: Office) -> None:
    async def body(desk: Desk) -> tuple[str, str | None]:
        return (await desk.outcome(await desk.work()))[:2]

    model = worker(ScriptedReply("I cannot help with that.", stop="refused"))
    assert office.act(body, model) == ("error", "the model refused to answer: I cannot help with that.")


def test_a_refusal_closes_the_turn_of_a_conversation_and_is_not_asked_for_again(office: Office) -> None:
    model = ScriptedModel(cast(main=in_turn(ScriptedReply("", stop="refused"))))

    async def body(desk: Desk) -> tuple[str, str | None]:
        accepted = await desk.engine.commit(lambda c: messages.accept_request(c, MAIN, "go"))
        await desk.clock.sleep(300)
        stands = await desk.look(lambda tx: messages.request_standing(tx, accepted.run_id))
        return stands.status, stands.error

    assert office.act(body, model) == ("error", "the model refused to answer: no reason given")
    assert len(asked(model, "main")) == 1


@proves("0.crash.21", "A crash between a reply that was cut and its rest loses and doubles neither")
def test_a_crash_between_both_parts_asks_for_the_rest_alone(office: Office) -> None:
    answers = worker(cut("half a sen"), "tence")

    async def first(desk: Desk) -> str:
        key = await desk.spawn("worker")
        await desk.until(lambda tx: len(tx.transcripts.entries(key)) == 3)
        await desk.send("by the way", key)
        return key

    key = office.act(first, worker(cut("half a sen"), "never heard", latency_s=5.0), ends="crashed")

    async def then(desk: Desk) -> tuple[str, list[str]]:
        await desk.ended(key)
        return await result(desk, key), [type(entry).__name__ for entry in await desk.bodies(key)]

    text, entries = office.act(then, answers)
    # What came in meanwhile is read after the rest, not between the two.
    assert entries[:4] == ["Spoken", "Replied", "Spoken", "Replied"]
    assert asked(answers)[0][-1] == UserMessage(CONTINUE_WORDS)
    assert text == "half a sentence"
