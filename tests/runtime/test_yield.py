"""A turn that yields: it waits for children without a slot, also after a crash. Where there is nothing to wait for, or
where a rule is against it, the call's result says so and the turn goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fledge.core.policy import MAX_WAKES, NOTHING_TO_WAIT_FOR
from fledge.core.transcript import Resulted
from fledge.core.turn import Turn
from fledge.models.base import Call, ModelMessage, Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply, last_text, use
from fledge.runtime.context import COMPACT_PROMPT
from fledge.tools.base import Tool, ToolContext, tool
from fledge.tools.sessions import yield_tool
from tests.runtime.desk import MAIN, Desk, Kit, Office, asked, cast, in_turn, results
from tests.statements import proves

YIELD = use("sessions_yield")
NOTHING = f"sessions_yield: {NOTHING_TO_WAIT_FOR}."


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def hatch(desk: Desk) -> Tool:
    """A tool that spawns children of its session with these labels."""

    @tool(name="hatch")
    async def spawn(context: ToolContext, labels: list[str]) -> str:
        for label in labels:
            await desk.spawn(label, context.session)
        return "hatched"

    return spawn


def last_words(messages: Sequence[ModelMessage]) -> str:
    """The last thing that a model was told, tool results apart."""
    return next(message.text for message in reversed(messages) if isinstance(message, UserMessage))


async def end_of(desk: Desk, key: str) -> tuple[str, int]:
    await desk.ended(key)
    run = await desk.run(key)
    return run.ended.outcome.status if run.ended else "", run.wakes


# ---- nothing to wait for ---------------------------------------------------------------------------------------------


@proves("4.yield.18", "A yield with nothing to wait for and nothing unread is answered at once with that reason")
@proves("4.tools.5")
def test_a_yield_with_nothing_to_wait_for_is_answered_with_that_reason(office: Office) -> None:
    async def body(desk: Desk) -> tuple[str, int]:
        return await end_of(desk, await desk.work())

    model = ScriptedModel(cast(worker=in_turn(YIELD, "done")))
    assert office.act(body, model, yield_tool()) == ("ok", 0)
    _, second = asked(model)
    assert results(second) == [("sessions_yield", NOTHING, True)]


@proves("4.yield.18")
def test_such_a_yield_names_children_that_ended_silently_once(office: Office) -> None:
    kit = Kit()

    async def body(desk: Desk) -> str:
        desk.profiles.add(hatch(desk))
        key = await desk.work()
        (child,) = await desk.look(lambda tx: tx.runs.children(key))
        return child

    script = in_turn(use("hatch", labels=["quiet"]), use("look"), YIELD, YIELD, "done")
    model = ScriptedModel(cast(worker=script, quiet=in_turn("NO_REPLY")))
    child = office.act(body, model, yield_tool(), kit.tool("look", 5))
    told = [text for name, text, _ in results(asked(model)[-1]) if name == "sessions_yield"]
    assert told == [f'{NOTHING} Ended without anything to tell: "quiet" ({child}).', NOTHING]


@proves("2.nested.10")
def test_a_silent_child_is_not_named_again_when_the_wake_that_named_it_was_summarised(office: Office) -> None:
    answers: list[Answer] = [
        ScriptedReply("", (use("hatch", labels=["quiet"]), YIELD)),
        *[use("look")] * 4,
        ScriptedReply("", (use("hatch", labels=["loud"]), YIELD)),
        "done",
    ]
    steps = iter(answers)

    def script(request: Request) -> Answer:
        return "NOTES" if last_text(request) == COMPACT_PROMPT else next(steps)

    async def body(desk: Desk) -> list[str]:
        desk.profiles.add(hatch(desk))
        key = await desk.work()
        return [text for text in await desk.heard(key) if text.startswith("What you waited for")]

    model = ScriptedModel(cast(worker=script, quiet=in_turn("NO_REPLY")))
    first, second = office.act(body, model, yield_tool(), Kit().tool("look", says="x" * 996), window=1000)
    assert any(last_text(request) == COMPACT_PROMPT for request in model.requests)
    assert "quiet" in first
    assert second == "What you waited for is here."


@proves("4.yield.3")
def test_a_yield_is_handed_what_is_unread_and_goes_on(office: Office) -> None:
    kit = Kit()

    async def body(desk: Desk) -> tuple[str, int]:
        desk.profiles.add(hatch(desk))
        return await end_of(desk, await desk.work())

    script = in_turn(use("hatch", labels=["loud"]), use("look"), YIELD, "done")
    model = ScriptedModel(cast(worker=script))
    assert office.act(body, model, yield_tool(), kit.tool("look", 5)) == ("ok", 0)
    last = asked(model)[-1]
    assert results(last)[-1] == ("sessions_yield", "Nothing to wait for: the results follow.", False)
    assert "answer of loud" in last_words(last)


def test_a_yield_that_waits_says_so(office: Office) -> None:
    async def body(desk: Desk) -> tuple[str, int]:
        desk.profiles.add(hatch(desk))
        return await end_of(desk, await desk.work())

    calls = (use("hatch", labels=["loud"]), use("sessions_yield", message="for the loud one"))
    model = ScriptedModel(cast(worker=in_turn(ScriptedReply("", calls), "done")))
    assert office.act(body, model, yield_tool()) == ("ok", 1)
    assert results(asked(model)[-1])[-1] == ("sessions_yield", "for the loud one", False)


@proves("4.yield.17", "The commit that yields reads nothing: a message that is unread then gets a turn beside the wait")
def test_a_message_that_came_during_the_step_is_answered_beside_the_wait(office: Office) -> None:
    kit = Kit()

    def script(request: Request) -> Answer:
        heard = [message.text for message in request.messages if isinstance(message, UserMessage)]
        if "how far?" not in heard:
            return ScriptedReply("", (use("hatch", labels=["child"]), use("slow"), YIELD))
        return "SUMMARY: all in" if any("found it" in text for text in heard) else "half way"

    async def body(desk: Desk) -> tuple[list[bool], int, str]:
        desk.profiles.add(hatch(desk))
        key = await desk.spawn("worker")
        await desk.sleep_until(2)
        await desk.send("how far?", key)
        await desk.ended(key)
        asides = [reply.aside for reply in await desk.replies(key)]
        return asides, (await desk.run(key)).wakes, await desk.result(key)

    model = ScriptedModel(cast(worker=script, child=in_turn(use("long"), "found it")))
    tools = yield_tool(), kit.tool("slow", 5), kit.tool("long", 60)
    assert office.act(body, model, *tools) == ([False, True, False], 1, "SUMMARY: all in")
    assert results(asked(model)[1])[-1] == ("sessions_yield", "Turn yielded.", False)


# ---- refused yields --------------------------------------------------------------------------------------------------


def tenth_wake(request: Request) -> Answer:
    """Spawns and waits for any, until it is refused a wait; then says what it was told."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage) and last.is_error:
        return last.text
    if isinstance(last, ToolMessage) and last.name == "hatch":
        return use("sessions_yield", **{"for": "any"})
    wakes = sum(
        isinstance(message, UserMessage) and "waited for is here" in message.text for message in request.messages
    )
    if wakes >= MAX_WAKES:
        return use("sessions_yield", **{"for": "all"})
    return use("hatch", labels=["quick", "slow"] if wakes == MAX_WAKES - 1 else ["quick"])


@proves("2.nested.13")
@proves("4.yield.14", "A refused yield's result is the refusal")
def test_from_the_tenth_wake_on_the_result_of_a_yield_is_the_refusal(office: Office) -> None:
    refusal = f"sessions_yield: woken {MAX_WAKES} of {MAX_WAKES} times: finish with what you have."

    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        desk.profiles.add(hatch(desk))
        key = await desk.spawn("worker")
        await desk.until(lambda tx: tx.runs.load(key).phase.name == "waiting" and tx.runs.load(key).wakes == MAX_WAKES)
        return await desk.results(key)

    model = ScriptedModel(cast(worker=tenth_wake, slow=in_turn(use("sleep"), "late")))
    told = office.act(body, model, yield_tool(), Kit().tool("sleep", 600))
    assert told[-1] == ("sessions_yield", refusal, True)
    assert [result for result in told if result[2]] == [told[-1]]


# ---- deadlines -------------------------------------------------------------------------------------------------------


@proves("4.yield.9")
@proves("4.yield.15", "At the deadline the run reads that time ran out, who answered, and who is missing")
def test_at_its_deadline_a_yield_says_who_answered_and_who_is_missing(office: Office) -> None:
    kit = Kit()

    async def body(desk: Desk) -> list[str]:
        desk.profiles.add(hatch(desk))
        key = await desk.spawn("worker")
        await desk.until(lambda tx: tx.runs.load(key).wakes == 1)
        children = await desk.look(lambda tx: tx.runs.children(key))
        await desk.clock.sleep(1)
        return children

    waits = use("sessions_yield", deadlineSeconds=60)
    calls = (use("hatch", labels=["first", "second", "third"]), waits)
    model = ScriptedModel(
        cast(
            worker=in_turn(ScriptedReply("", calls), "done"),
            first=in_turn(use("sleep"), "slow"),
            third=in_turn("NO_REPLY"),
        )
    )
    first, second, third = office.act(body, model, yield_tool(), kit.tool("sleep", 600))
    told = last_words(asked(model)[-1])
    assert told == (
        "Time ran out before what you waited for was here. "
        f'Had answered by then: "second" ({second}). '
        f'Ended without anything to tell: "third" ({third}). '
        f'Still missing: "first" ({first}).'
    )


# ---- conversations ---------------------------------------------------------------------------------------------------


def test_a_conversation_that_yields_while_a_child_is_at_work_ends_its_turn_without_words(office: Office) -> None:
    async def body(desk: Desk) -> list[str]:
        await desk.spawn("slow")
        await desk.send("go")
        await desk.clock.sleep(5)
        return [reply.text for reply in await desk.replies(MAIN)]

    script = in_turn(use("sessions_yield", message="later"), "never")
    model = ScriptedModel(cast(main=script, slow=in_turn(use("sleep"), "late")))
    assert office.act(body, model, yield_tool(), Kit().tool("sleep", 60)) == [""]
    assert len(asked(model, "main")) == 1


@proves("4.yield.16", "A conversation's yield takes `for` and `deadlineSeconds`: its turn ends and waits")
@pytest.mark.parametrize("terms", [{"for": "all"}, {"for": 2}, {"deadlineSeconds": 60}])
def test_a_conversations_yield_with_terms_ends_its_turn_and_waits(office: Office, terms: dict[str, Any]) -> None:
    async def body(desk: Desk) -> tuple[list[tuple[str, str, bool]], Turn | None]:
        await desk.spawn("slow")
        await desk.send("go")
        await desk.clock.sleep(5)
        return await desk.results(MAIN), await desk.engine.store.read(lambda tx: tx.turns.state(MAIN))

    model = ScriptedModel(cast(main=in_turn(use("sessions_yield", **terms), "well"), slow=in_turn(use("sleep"))))
    results, turn = office.act(body, model, yield_tool(), Kit().tool("sleep", 60))
    assert results == [("sessions_yield", "Turn yielded.", False)]
    assert turn is not None
    assert turn.open is None
    assert turn.wait is not None
    assert turn.wait.asked == str(terms.get("for", "all"))
    assert turn.wait.until_settled == (1 if terms.get("for") == 2 else None), "capped at what can come"


@proves("4.yield.3")
def test_a_conversations_yield_is_handed_what_is_unread_in_the_same_turn(office: Office) -> None:
    async def body(desk: Desk) -> list[list[str]]:
        desk.profiles.add(hatch(desk))
        await desk.send("go")
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and tx.transcripts.last(MAIN) > 1)
        return await desk.told()

    script = in_turn(use("hatch", labels=["loud"]), use("look"), YIELD, "here it is")
    model = ScriptedModel(cast(main=script))
    assert office.act(body, model, yield_tool(), Kit().tool("look", 5)) == [["loud"]]
    last = asked(model, "main")[-1]
    assert results(last)[-1] == ("sessions_yield", "Nothing to wait for: the results follow.", False)


# ---- steps with other calls, and crashes -----------------------------------------------------------------------------


def test_of_two_yields_in_one_step_the_last_counts_and_both_say_what_came_of_it(office: Office) -> None:
    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        desk.profiles.add(hatch(desk))
        return await desk.results(await desk.work())

    calls = (use("sessions_yield", **{"for": 99}), use("hatch", labels=["loud"]), use("sessions_yield", message="well"))
    told = office.act(body, ScriptedModel(cast(worker=in_turn(ScriptedReply("", calls), "done"))), yield_tool())
    assert told == [("hatch", "hatched", False), ("sessions_yield", "well", False), ("sessions_yield", "well", False)]


@pytest.mark.parametrize("arguments", ['{"for": "everyone"}', '{"deadlineSeconds": -1}', "{"])
def test_a_yield_whose_arguments_do_not_fit_is_an_error_like_any_other_call(office: Office, arguments: str) -> None:
    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        return await desk.results(await desk.work())

    model = ScriptedModel(cast(worker=in_turn(Call("", "sessions_yield", arguments), "done")))
    ((name, text, is_error),) = office.act(body, model, yield_tool())
    assert (name, is_error) == ("sessions_yield", True)
    assert text.startswith("sessions_yield: ")


def test_a_yield_that_a_crash_found_open_is_carried_out_after_it(office: Office) -> None:
    kit = Kit()
    calls = (use("hatch", labels=["loud"]), use("slowly"), YIELD)
    model = ScriptedModel(
        cast(worker=in_turn(ScriptedReply("", calls), "done"), loud=in_turn(use("sleep"), "found it"))
    )
    tools = (yield_tool(), kit.tool("slowly", 10, kind="repeatable"), kit.tool("sleep", 30, kind="repeatable"))

    async def first(desk: Desk) -> str:
        desk.profiles.add(hatch(desk))
        key = await desk.spawn("worker")
        await desk.clock.sleep(5)
        return key

    async def second(desk: Desk) -> tuple[list[Resulted], int]:
        desk.profiles.add(hatch(desk))
        await desk.ended(key)
        bodies = await desk.bodies(key)
        return [body for body in bodies if isinstance(body, Resulted)], (await desk.run(key)).wakes

    key = office.act(first, model, *tools, ends="crashed")
    found, wakes = office.act(second, model, *tools)
    assert wakes == 1
    assert [(result.name, result.text) for result in found if result.name == "sessions_yield"] == [
        ("sessions_yield", "Turn yielded.")
    ]
    assert "found it" in last_words(asked(model)[-1][:-1])
