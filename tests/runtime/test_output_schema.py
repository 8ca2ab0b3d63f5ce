"""An answer that must be JSON of a schema: told once what is wrong, then taken as it is with the error beside it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.core.announce import Completion
from fledge.core.run import Terms
from fledge.core.transcript import Spoken
from fledge.models.base import UserMessage
from fledge.models.scripted import ScriptedModel
from fledge.orchestrator import control, spawn
from fledge.store.base import Spec
from tests.orchestrator.stage import LIMITS
from tests.runtime.desk import MAIN, PROGRAM, Desk, Kit, Office, asked, cast, in_turn, said, use, worker
from tests.statements import proves

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WRONG = "the answer.n must be integer, is string"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


async def spawned(desk: Desk, label: str = "worker", parent: str = PROGRAM, **terms: Any) -> str:
    spec = Spec(task=label, label=label, output_schema=SCHEMA)
    request = spawn.SpawnRequest(spec=spec, terms=Terms(parent=parent, **terms), limits=LIMITS)
    return (await desk.engine.commit(lambda c: spawn.spawn(c, request))).key


async def told(desk: Desk, key: str) -> tuple[str, str | None]:
    """What the requester of a run is told: its result, and what is wrong with it."""
    await desk.ended(key)
    rows = await desk.look(lambda tx: tx.inbox.of_run(key))
    text = await desk.look(lambda tx: "" if rows[0].text is None else tx.texts.get(rows[0].text))
    return text, msgspec.json.decode(rows[0].body, type=Completion).schema_error


def ask(office: Office, *answers: Any) -> tuple[tuple[str, str | None], ScriptedModel]:
    model = worker(*answers)

    async def body(desk: Desk) -> tuple[str, str | None]:
        return await told(desk, await spawned(desk))

    return office.act(body, model), model


@proves("3.params.21", "`outputSchema`: the answer must be JSON of this schema")
def test_an_answer_that_fits_is_the_result_without_its_fence(office: Office) -> None:
    result, model = ask(office, '```json\n{"n": 1}\n```')
    assert result == ('{"n": 1}', None)
    assert len(asked(model)) == 1


@proves("3.params.22", "An answer that misses the schema gets one corrective nudge, then raw text plus the error")
def test_one_that_does_not_is_told_what_is_wrong_and_answers_again_in_the_same_attempt(office: Office) -> None:
    result, model = ask(office, '{"n": "1"}', '{"n": 1}')
    assert result == ('{"n": 1}', None)
    first, second = asked(model)
    assert len(second) == len(first) + 2
    assert isinstance(second[-1], UserMessage)
    assert WRONG in second[-1].text


@proves("3.params.22")
@pytest.mark.parametrize("again", ['{"n": "2"}', "still words", ""])
def test_it_is_told_only_once_and_then_the_words_stand_with_the_error(office: Office, again: str) -> None:
    result, model = ask(office, '{"n": "1"}', again, '{"n": 1}')
    assert len(asked(model)) == 2
    assert result[1] is not None
    if again:
        assert result[0] == again


def test_silence_is_no_answer_and_nobody_is_nudged(office: Office) -> None:
    async def body(desk: Desk) -> str:
        key = await spawned(desk)
        await desk.ended(key)
        return str((await desk.look(lambda tx: tx.runs.load(key))).delivery)

    model = worker("ANNOUNCE_SKIP")
    assert "announce-skip" in office.act(body, model)
    assert len(asked(model)) == 1


def test_a_text_before_children_have_answered_is_not_held_against_the_schema(office: Office) -> None:
    model = ScriptedModel(cast(top=in_turn("I wait", '{"n": 3}'), low=in_turn(use("look"), "seen")))

    async def body(desk: Desk) -> tuple[str, str | None]:
        top = await spawned(desk, "top")
        await desk.spawn("low", parent=top)
        return await told(desk, top)

    assert office.act(body, model, Kit().tool("look", 5)) == ('{"n": 3}', None)
    assert len(asked(model, "top")) == 2


def test_a_plan_is_words_and_only_what_follows_its_approval_is_held_against_the_schema(office: Office) -> None:
    model = worker("1. count", '{"n": "x"}', '{"n": 4}')

    async def body(desk: Desk) -> tuple[str, str | None]:
        key = await spawned(desk, plan=True)
        await desk.until(lambda tx: tx.runs.load(key).phase.name == "awaiting_approval")

        await desk.engine.commit(lambda c: control.answer_plan(c, key, True, "APPROVED: proceed"))
        return await told(desk, key)

    assert office.act(body, model) == ('{"n": 4}', None)
    assert len(asked(model)) == 3


def test_an_answer_to_a_message_beside_the_task_is_not_held_against_the_schema(office: Office) -> None:
    def top(request: Any) -> Any:
        last = request.messages[-1].text
        return "hello yourself" if "hello" in last else ("I wait" if said(request) == 0 else '{"n": 5}')

    model = ScriptedModel(cast(top=top, low=in_turn(use("look"), "seen")))

    async def body(desk: Desk) -> tuple[str, str | None]:

        key = await spawned(desk, "top")
        await desk.spawn("low", parent=key)
        await desk.until(lambda tx: tx.runs.load(key).phase.name == "waiting")
        await desk.engine.commit(lambda c: control.send(c, key, "hello"))
        return await told(desk, key)

    assert office.act(body, model, Kit().tool("look", 50)) == ('{"n": 5}', None)


def test_after_a_crash_between_nudge_and_answer_nobody_is_nudged_again(office: Office) -> None:
    first = worker('{"n": "1"}', use("never"), latency_s=10)

    async def before(desk: Desk) -> str:
        key = await spawned(desk)
        await desk.sleep_until(15)
        return key

    key = office.act(before, first, ends="crashed")
    second = worker("never asked", "still words")

    async def after(desk: Desk) -> tuple[str, str | None]:
        return await told(desk, key)

    text, error = office.act(after, second)
    assert (text, len(asked(second))) == ("still words", 1)
    assert str(error).startswith("it is not JSON")

    async def nudges(desk: Desk) -> int:
        return sum(isinstance(body, Spoken) and body.kind == "nudge" for body in await desk.bodies(key))

    assert office.act(nudges, second) == 1


def test_the_requester_reads_that_the_schema_was_missed(office: Office) -> None:
    model = ScriptedModel(cast(worker=in_turn("words", "more words")))

    async def body(desk: Desk) -> str:
        key = await spawned(desk, parent=MAIN)
        await desk.ended(key)
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN))
        return str(asked(model, "main")[0][-1].text)

    text = office.act(body, model)
    assert "Output schema not met: it is not JSON" in text
    assert "more words" in text
