"""Trouble in a turn: with the model, with tools, with the disk. Nothing is lost or repeated, the program goes on."""

import asyncio
import itertools
from pathlib import Path

import pytest

from fledge.core.transcript import Replied, Resulted, Spoken
from fledge.models.base import (
    Broke,
    Call,
    Request,
    Text,
)
from fledge.models.scripted import CutReply, Rule, ScriptedFailure, ScriptedModel, ScriptedReply
from fledge.store.base import Tx
from tests.runtime.desk import MAIN, Desk, Kit, Office, asked, cast, in_turn, results, use, worker
from tests.statements import proves


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


# ---- trouble with the model ------------------------------------------------------------------------------------------


@proves("2.frozen.5")
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ("auth", "the model could not answer (auth): scripted auth"),
        (Broke("quota", "no money left"), "the model could not answer (quota): no money left"),
        ("overflow", "the model could not answer (overflow): scripted overflow"),
    ],
)
def test_trouble_with_the_model_ends_a_run_as_an_error_in_words(
    office: Office, failure: ScriptedFailure, error: str
) -> None:
    model = worker("half of a reply", failures={1: failure}, piece_chars=4)

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        key = await desk.work()
        assert await desk.replies(key) == []
        return await desk.outcome(key)

    assert office.act(body, model) == ("error", error, 0.0)


def test_a_stream_that_just_stops_is_a_reply_that_was_cut(office: Office) -> None:
    model = ScriptedModel(cast(worker=lambda request: [Text("half"), Call("1", "look", "{}")]))
    kit = Kit()

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        key = await desk.work()
        assert await desk.replies(key) == []
        return await desk.outcome(key)

    ended = "the model could not answer (interrupted): the model's stream ended without an end"
    error = f"{ended} (waited 0 s: models.patienceSeconds)"
    assert office.act(body, model, kit.tool("look"), patience_s=0.0) == ("error", error, 15.0)
    assert kit.begun == []


def test_a_cut_stream_runs_none_of_the_calls_it_had_named(office: Office) -> None:
    kit = Kit()
    model = ScriptedModel(cast(main=in_turn(ScriptedReply("wait", (use("look"),)), "done")), failures={1: CutReply(2)})

    async def body(desk: Desk) -> list[type[object]]:
        await desk.send("go")
        await desk.sleep_until(1)
        assert kit.begun == []
        await desk.until(lambda tx: tx.turns.get(MAIN) is None)
        return [type(entry) for entry in await desk.bodies(MAIN)]

    assert office.act(body, model, kit.tool("look")) == [Spoken, Replied, Resulted, Replied]
    assert kit.begun == ["look"]


@proves("2.hops.6")
@proves("2.queue.10")
def test_a_conversation_that_could_not_be_answered_is_due_again_with_backoff_until_it_is(office: Office) -> None:
    failing = 8
    model = ScriptedModel(cast(), failures=dict.fromkeys(range(1, failing + 1), "retryable"))
    times: list[float] = []

    async def body(desk: Desk) -> list[str]:
        feed = desk.listen()
        await desk.send("go")
        while not (await desk.heard(kind="assistant")):
            await desk.clock.sleep(0.5)
            times.extend([desk.at()] * sum(event.kind == "start" for event in feed.waiting()))
        assert await desk.look(lambda tx: tx.turns.get(MAIN)) is None
        assert await desk.heard() == ["go"]
        return await desk.heard(kind="assistant")

    assert office.act(body, model) == ["answer of main"]
    gaps = [round(later - sooner) for sooner, later in itertools.pairwise(times)]
    assert gaps == [2, 4, 8, 16, 32, 60, 60, 60]
    assert len(model.requests) == failing + 1


def test_a_failed_turn_goes_on_after_its_last_committed_step(office: Office) -> None:
    kit = Kit()
    model = ScriptedModel(cast(main=in_turn(use("look"), "done")), failures={2: "retryable"})

    async def body(desk: Desk) -> None:
        await desk.send("go")
        await desk.until(lambda tx: len(tx.transcripts.entries(MAIN)) == 4)

    office.act(body, model, kit.tool("look"))
    assert kit.begun == ["look"]
    assert [len(messages) for messages in asked(model, "main")] == [1, 3, 3]


def test_a_session_without_a_usable_profile_says_why(office: Office) -> None:
    model = worker("done")

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        desk.profiles.refuses.append("no key: set OPENAI_API_KEY")
        feed = desk.listen()
        key = await desk.work()
        assert [event.text for event in feed.waiting() if event.kind == "error"] == ["no key: set OPENAI_API_KEY"]
        return await desk.outcome(key)

    assert office.act(body, model) == ("error", "no key: set OPENAI_API_KEY", 0.0)
    assert asked(model) == []


def test_a_conversation_without_a_usable_profile_is_tried_again(office: Office) -> None:
    async def body(desk: Desk) -> float:
        desk.profiles.refuses.extend(["no key", "no key"])
        await desk.send("go")
        await desk.until(lambda tx: len(tx.transcripts.entries(MAIN)) == 2)
        return desk.at()

    assert office.act(body, ScriptedModel(cast())) == pytest.approx(6.0, abs=0.02)


# ---- trouble with tools ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (use("lok"), ["There is no tool 'lok' here", "Perhaps: look"]),
        (use("nothing_like_it"), ["There is no tool", "There are: breaks, long, look, slow"]),
        (use("look", wrd="x"), ["look: wrd: is not a parameter (did you mean word?)", "It takes: word"]),
        (use("look", word=5), ["look: word: must be text (got 5)"]),
        (Call("", "look", "{not json"), ["look: arguments:", "must be one JSON object"]),
        (Call("", "look", "[1]"), ["look: arguments:"]),
        (Call("", "look", "[" * 100_000), ["look: arguments:"]),
        (use("breaks"), ["breaks: ValueError: it broke"]),
        (use("slow"), ["slow: stopped after 5 s"]),
    ],
)
def test_what_goes_wrong_with_a_call_is_told_to_the_model_as_its_result(
    office: Office, call: Call, told: list[str]
) -> None:
    kit = Kit()
    model = worker(call, "I see")

    async def body(desk: Desk) -> str:
        return await desk.result(await desk.work())

    tools = (
        kit.tool("look"),
        kit.tool("breaks", says=ValueError("it broke")),
        kit.tool("long"),
        kit.tool("slow", 100, timeout=5),
    )
    assert office.act(body, model, *tools) == "I see"
    ((_, text, is_error),) = results(asked(model)[1])
    assert is_error
    assert [words for words in told if words not in text] == []
    assert len(text) < 2200


def test_a_huge_output_is_cut_and_says_so(office: Office) -> None:
    model = worker(use("long"), "I see")

    async def body(desk: Desk) -> None:
        await desk.work()

    office.act(body, model, Kit().tool("long", says="x" * 200_000))
    ((_, text, is_error),) = results(asked(model)[1])
    assert not is_error
    assert text.startswith("x" * 50_000 + "\n[cut: 150000 of 200000 characters")


def test_one_bad_call_does_not_keep_the_others_from_running(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("nope"), use("look"), use("breaks"), use("look", word="again"))), "I see")

    async def body(desk: Desk) -> None:
        await desk.work()

    office.act(body, model, kit.tool("look"), kit.tool("breaks", says=RuntimeError("no")))
    assert [is_error for _, _, is_error in results(asked(model)[1])] == [True, False, True, False]


@proves("4.tools.11", "Calls with the same provider id keep their own results")
def test_calls_with_the_same_provider_id_keep_their_own_results(office: Office) -> None:
    model = worker(ScriptedReply(calls=(Call("x", "a", "{}"), Call("x", "b", "{}"))), Call("x", "a", "{}"), "done")

    async def body(desk: Desk) -> None:
        await desk.work()

    office.act(body, model, Kit().tool("a", 2), Kit().tool("b", 1))
    assert [text for _, text, _ in results(asked(model)[2])] == ["a", "b", "a"]


def test_a_rule_that_fits_nothing_is_an_error_of_the_run_and_not_of_the_program(office: Office) -> None:
    model = ScriptedModel([Rule("never", "said")])

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        return await desk.outcome(await desk.work())

    status, error, _ = office.act(body, model)
    assert status == "error"
    assert "no rule fits 'worker'" in str(error)


# ---- trouble with the disk -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("breaks", ["first reply", "tool", "last reply"])
def test_a_disk_that_is_full_for_a_while_makes_nobody_do_anything_again(office: Office, breaks: str) -> None:
    kit = Kit()
    desks: list[Desk] = []

    def trouble(now: bool) -> None:
        if now:
            desks[0].store.broken = True
            asyncio.get_running_loop().call_later(5.3, setattr, desks[0].store, "broken", False)

    def first(request: Request) -> Call:
        trouble(breaks == "first reply")
        return use("look")

    def last(request: Request) -> str:
        trouble(breaks == "last reply")
        return "done"

    def script(request: Request) -> Call | str:
        return first(request) if len(request.messages) == 1 else last(request)

    look = kit.tool("look", 1)
    model = ScriptedModel(cast(worker=script))

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        desks.append(desk)
        feed = desk.listen()
        key = await desk.spawn("worker")
        if breaks == "tool":
            await desk.sleep_until(0.5)
            trouble(True)
        await desk.clock.sleep(10)
        await desk.ended(key)
        retries = [event.text for event in feed.waiting() if event.kind == "retry"]
        assert retries[:5] == ["disk full"] * 5
        return await desk.outcome(key)

    status, error, at = office.act(body, model, look)
    assert (status, error) == ("ok", None)
    assert 5.3 <= at < 8
    assert len(asked(model)) == 2
    assert kit.begun == ["look"]


def test_a_disk_that_fails_between_a_reply_and_its_calls_costs_nothing(office: Office) -> None:
    kit = Kit()
    model = worker(use("look"), "done")

    async def body(desk: Desk) -> tuple[str, str | None]:
        store = desk.store

        def check(tx: Tx) -> None:
            keys = tx.runs.children(MAIN)
            if keys and len(tx.transcripts.entries(keys[0])) == 2 and not kit.begun and not store.broken:
                store.broken = True
                asyncio.get_running_loop().call_later(3, setattr, store, "broken", False)
                store.check = lambda tx: None

        store.check = check
        key = await desk.spawn("worker")
        await desk.clock.sleep(10)
        status, error, _ = await desk.outcome(key)
        return status, error

    assert office.act(body, model, kit.tool("look")) == ("ok", None)
    assert len(asked(model)) == 2
    assert kit.begun == ["look"]
