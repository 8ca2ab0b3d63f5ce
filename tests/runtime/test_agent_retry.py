"""A reply that breaks in the middle and is asked for again: nothing of the broken try is kept."""

from pathlib import Path

import pytest

from fledge.core.asking import Retries
from fledge.models.retry import Retrying
from fledge.models.scripted import CutReply, ScriptedModel, ScriptedReply, use
from tests.runtime.desk import Desk, Kit, Office, asked, cast, in_turn


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


async def replies(desk: Desk) -> list[tuple[str, int]]:
    key = await desk.work()
    await desk.ended(key)
    return [(reply.text, len(reply.calls)) for reply in await desk.replies(key)]


def test_words_of_a_broken_try_are_not_said_twice(office: Office) -> None:
    inner = ScriptedModel(cast(worker=in_turn("the whole answer")), failures={1: CutReply(after=3)}, piece_chars=4)
    assert office.act(replies, Retrying(inner, retries=Retries(tries=2))) == [("the whole answer", 0)]
    assert len(asked(inner)) == 2


def test_calls_of_a_broken_try_are_not_run_twice(office: Office) -> None:
    kit = Kit()
    script = cast(worker=in_turn(ScriptedReply("I look. ", (use("look"),)), "done"))
    inner = ScriptedModel(script, failures={1: CutReply(after=2)})
    found = office.act(replies, Retrying(inner, retries=Retries(tries=2)), kit.tool("look"))
    assert (found, kit.begun) == ([("I look. ", 1), ("done", 0)], ["look"])


def test_when_no_try_is_left_the_run_ends_with_what_went_wrong(office: Office) -> None:
    inner = ScriptedModel(
        cast(worker=in_turn("never")), failures={1: CutReply(after=1)} | dict.fromkeys(range(2, 99), "retryable")
    )

    async def body(desk: Desk) -> tuple[str, str | None]:
        key = await desk.work()
        await desk.ended(key)
        return (await desk.outcome(key))[:2]

    status, error = office.act(body, Retrying(inner, retries=Retries(tries=2)), patience_s=0.0)
    assert status == "error"
    assert error is not None
    assert error.startswith("the model could not answer (retryable): ")
