"""A turn that yields: it waits for children without a slot, also after a crash, and goes on where a rule forbids it."""

from pathlib import Path

import pytest

from fledge.core.policy import MAX_WAKES
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, Reply, ScriptedModel, use
from fledge.tools.sessions import yield_tool
from tests.runtime.desk import MAIN, Desk, Office, asked, cast, in_turn
from tests.statements import proves


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


@proves("4.tools.5")
def test_a_yield_with_nothing_to_wait_for_wakes_at_once(office: Office) -> None:
    async def body(desk: Desk) -> tuple[str, int]:
        key = await desk.work()
        await desk.ended(key)
        run = await desk.run(key)
        return (run.ended.outcome.status if run.ended else "", run.wakes)

    model = ScriptedModel(cast(worker=in_turn(Reply("", (use("sessions_yield"),)), "done")))
    assert office.act(body, model, yield_tool()) == ("ok", 1)
    assert len(asked(model)) == 2


@proves("2.nested.13")
def test_a_model_that_yields_for_ever_is_refused_after_ten_wakes_and_must_go_on(office: Office) -> None:
    def script(request: Request) -> Answer:
        last = request.messages[-1]
        return "I give up." if isinstance(last, ToolMessage) else Reply("", (use("sessions_yield"),))

    async def body(desk: Desk) -> tuple[str, int]:
        key = await desk.work()
        await desk.ended(key)
        run = await desk.run(key)
        return (run.ended.outcome.status if run.ended else "", run.wakes)

    assert office.act(body, ScriptedModel(cast(worker=script)), yield_tool()) == ("ok", MAX_WAKES)


def test_a_conversation_that_yields_ends_its_turn_without_words(office: Office) -> None:
    async def body(desk: Desk) -> list[str]:
        await desk.send("go")
        await desk.clock.sleep(5)
        return [reply.text for reply in await desk.replies(MAIN)]

    model = ScriptedModel(cast(main=in_turn(Reply("", (use("sessions_yield", message="later"),)), "never")))
    assert office.act(body, model, yield_tool()) == ["", "NO_REPLY"]
    assert len(asked(model, "main")) == 1
