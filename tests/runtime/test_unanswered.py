"""Consumed but unanswered: what a turn has read and cannot answer is tried again, shown after half an hour, told."""

from pathlib import Path

import pytest

from fledge.channels.inbound import heard
from fledge.core.route import Address
from fledge.core.standing import UnansweredTurn
from fledge.models.base import Broke, Request
from fledge.models.scripted import Answer, ScriptedModel
from fledge.orchestrator import control, inbox, views
from fledge.store.base import Tx
from fledge.testing import START
from tests.runtime.desk import MAIN, Desk, Office
from tests.statements import proves

HALF_AN_HOUR_S = 1800.0


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


class Failing:
    """A model that is down until a moment, for the main conversation."""

    def __init__(self, until: float = 1e9) -> None:
        self.until = until
        self.at: list[float] = []
        self.desk: Desk | None = None
        self.model = ScriptedModel(self._answer)

    def _answer(self, request: Request) -> Answer:
        assert self.desk is not None
        if request.system != "main":
            return "the child's words"
        self.at.append(self.desk.at())
        return Broke("bad_request", "no such model") if self.desk.at() < self.until else "here I am"


async def late(desk: Desk) -> list[UnansweredTurn]:
    return await desk.look(lambda tx: views.unanswered(tx, desk.clock.now()))


async def notices(desk: Desk) -> list[str]:
    def read(tx: Tx) -> list[str]:
        keys = [row.key for row in tx.inbox.unread(MAIN) if row.kind == "notice"]
        return keys

    told = [body for body in await desk.heard(MAIN) if "half an hour" in body]
    return told + await desk.look(read)


@proves("2.hops.7", "After 30 min the items show as `unanswered` and the user gets a notice")
def test_an_open_turn_shows_as_unanswered_after_half_an_hour_and_people_are_told_once(office: Office) -> None:
    failing = Failing()

    async def body(desk: Desk) -> None:
        failing.desk = desk
        child = await desk.spawn("worker")
        await desk.sleep_until(HALF_AN_HOUR_S - 1)
        assert await late(desk) == []
        assert await notices(desk) == []
        await desk.sleep_until(HALF_AN_HOUR_S + 60)
        (found,) = await late(desk)
        assert (found.session, found.turn) == (MAIN, 1)
        assert found.since_at == START
        run = await desk.run(child)
        assert f"announce:v1:{child}:{run.run_id}" in found.rows
        assert found.tries == len(failing.at) >= 30
        assert len(await notices(desk)) == 1
        await desk.sleep_until(3 * HALF_AN_HOUR_S)
        assert len(await notices(desk)) == 1

    office.act(body, failing.model)
    gaps = [round(b - a, 1) for a, b in zip(failing.at, failing.at[1:], strict=False)]
    assert gaps[:6] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    assert set(gaps[6:]) == {60.0}, "being told hurries nothing"


def test_what_is_answered_in_the_end_is_unanswered_no_more(office: Office) -> None:
    failing = Failing(until=2000.0)

    async def body(desk: Desk) -> list[UnansweredTurn]:
        failing.desk = desk
        await desk.send("are you there?")
        await desk.sleep_until(1950.0)
        assert len(await late(desk)) == 1
        await desk.until(lambda tx: tx.turns.get(MAIN) is None)
        return await late(desk)

    assert office.act(body, failing.model) == []


def test_a_stop_answers_it(office: Office) -> None:
    failing = Failing()

    async def body(desk: Desk) -> list[UnansweredTurn]:
        failing.desk = desk
        await desk.send("are you there?")
        await desk.sleep_until(HALF_AN_HOUR_S + 60)
        await desk.engine.commit(lambda c: control.stop(c, MAIN))
        return await late(desk)

    assert office.act(body, failing.model) == []


def test_it_is_still_due_and_shown_after_a_crash(office: Office) -> None:
    failing = Failing()

    async def before(desk: Desk) -> None:
        failing.desk = desk
        await desk.send("are you there?")
        await desk.sleep_until(1000.0)

    async def after(desk: Desk) -> int:
        failing.desk = desk
        await desk.sleep_until(HALF_AN_HOUR_S + 70)
        assert len(await late(desk)) == 1
        return len(await notices(desk))

    office.act(before, failing.model, ends="crashed")
    assert office.act(after, failing.model) == 1


@proves("2.hops.7")
def test_where_there_is_a_channel_it_is_told_there_once(office: Office) -> None:
    failing = Failing()

    async def body(desk: Desk) -> list[str]:
        failing.desk = desk
        await desk.engine.commit(lambda c: heard(c, Address("chat", "somebody"), "are you there?", "1"))
        await desk.sleep_until(3 * HALF_AN_HOUR_S)
        return desk.profiles.sent

    (sent,) = office.act(body, failing.model)
    assert sent == f"notice:unanswered:{MAIN}:1"


@pytest.mark.parametrize(("kind", "hurries"), [("notice", False), ("completion", False), ("send", True)])
def test_only_somebody_who_speaks_up_hurries_the_next_try(office: Office, kind: str, hurries: bool) -> None:
    failing = Failing()

    async def body(desk: Desk) -> None:
        failing.desk = desk
        await desk.send("are you there?")
        await desk.sleep_until(140.0)  # the next try is due at 182
        if kind == "notice":
            await desk.engine.commit(lambda c: inbox.notice(c, MAIN, "n", "by the way"))
        elif kind == "completion":
            await desk.spawn("worker")
        else:
            await desk.send("hello?")
        await desk.sleep_until(150.0)

    office.act(body, failing.model)
    assert (failing.at[-1] >= 140.0) == hurries
