"""Stuck: running, but nothing was committed for too long. Told once, visible until it moves, and never a tool that may
take its time."""

from pathlib import Path

import pytest

from fledge.core.transcript import Spoken
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply
from fledge.orchestrator import views
from tests.runtime.desk import MAIN, Desk, Kit, Office, said, use
from tests.statements import proves


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def script(request: Request) -> Answer:
    if request.system == "main":
        return "NO_REPLY"
    return use("slow") if said(request) == 0 else use("quick") if said(request) == 1 else "done"


async def told(desk: Desk) -> int:
    """How often main was told that its child is stuck."""
    heard = [body.text for body in await desk.bodies(MAIN) if isinstance(body, Spoken)]
    unread = await desk.look(lambda tx: [row.body for row in tx.inbox.unread(MAIN)])
    return sum("no progress" in words for words in heard + unread)


async def shown(desk: Desk) -> str:
    (row,) = await desk.look(lambda tx: views.child_rows(tx, MAIN))
    return row.status_text(0.0)


@proves("4.sight.5", "A tool within its own timeout is not stuck")
def test_a_tool_within_its_own_timeout_is_not_stuck(office: Office) -> None:
    async def body(desk: Desk) -> int:
        await desk.spawn("worker", stuck_after_s=300.0)
        await desk.sleep_until(1900)
        assert await shown(desk) == "running"
        await desk.sleep_until(4000)
        return await told(desk)

    kit = Kit()
    tools = (kit.tool("slow", 2000, timeout=2400.0), kit.tool("quick", 1))
    assert office.act(body, ScriptedModel(script), *tools) == 0


def test_nor_is_one_that_an_earlier_process_began(office: Office) -> None:
    tools = (Kit().tool("slow", 2000, kind="repeatable", timeout=2400.0), Kit().tool("quick", 1))

    async def begin(desk: Desk) -> None:
        await desk.spawn("worker", stuck_after_s=300.0)
        await desk.sleep_until(10)

    async def go_on(desk: Desk) -> int:
        await desk.sleep_until(2100)
        return await told(desk)

    office.act(begin, ScriptedModel(script), *tools, ends="crashed")
    assert office.act(go_on, ScriptedModel(script), *tools) == 0


@proves("4.sight.6", "A stuck run is visible as such")
def test_a_tool_without_a_limit_is_told_as_stuck_once_and_shows_until_it_moves(office: Office) -> None:
    async def body(desk: Desk) -> int:
        await desk.spawn("worker", stuck_after_s=300.0)
        await desk.sleep_until(299)
        assert (await told(desk), await shown(desk)) == (0, "running")
        await desk.sleep_until(301)
        assert (await told(desk), await shown(desk)) == (1, "running (stuck)")
        await desk.sleep_until(1001)
        assert (await told(desk), await shown(desk)) == (1, "running")
        await desk.sleep_until(2000)
        return await told(desk)

    kit = Kit()
    tools = (kit.tool("slow", 1000, timeout=None), kit.tool("quick", 100))
    assert office.act(body, ScriptedModel(script), *tools) == 1


def test_the_last_of_several_tools_has_its_time_after_the_others_are_done(office: Office) -> None:
    def both(request: Request) -> Answer:
        if request.system == "main":
            return "NO_REPLY"
        return ScriptedReply(calls=(use("slow"), use("quick"))) if said(request) == 0 else "done"

    async def body(desk: Desk) -> int:
        await desk.spawn("worker", stuck_after_s=300.0)
        await desk.sleep_until(2100)
        return await told(desk)

    kit = Kit()
    tools = (kit.tool("slow", 2000, timeout=2400.0), kit.tool("quick", 1))
    assert office.act(body, ScriptedModel(both), *tools) == 0
