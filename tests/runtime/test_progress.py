"""A model that spins is told once, then its attempt or turn ends; so does one that takes too many steps. The count
survives a crash."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fledge.core.progress import StepLimits
from fledge.core.route import Address
from fledge.core.transcript import Spoken
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply, use
from fledge.orchestrator.outbox import message_of
from fledge.store.base import Route
from fledge.tools.base import Tool, tool
from fledge.tools.sessions import yield_tool
from tests.runtime.desk import MAIN, Desk, Kit, Office, asked, cast, in_turn, said
from tests.statements import proves

SPUN = (
    "no progress: {} steps in a row repeated earlier ones (same calls, same results): agents.defaults.maxRepeatedSteps"
)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def look() -> Tool:
    """A tool that answers the same, but for a figure that grows."""
    times = 0

    @tool(name="look", read_only=True)
    async def looks(what: str = "", also: str = "") -> str:
        nonlocal times
        times += 1
        return f"nothing new in {times} s"

    return looks


async def notices(desk: Desk, key: str) -> list[str]:
    bodies = await desk.bodies(key)
    return [body.text for body in bodies if isinstance(body, Spoken) and body.text.startswith("[Notice]")]


# ---- runs ------------------------------------------------------------------------------------------------------------


@proves("4.progress.4", "At 30 repeated steps the model gets a warning, once")
@proves("4.progress.5", "At `maxRepeatedSteps` (100) the attempt ends `error: no progress`")
def test_a_run_that_spins_is_told_at_thirty_and_ends_at_a_hundred(office: Office) -> None:
    async def body(desk: Desk) -> tuple[str, str | None, list[str], str]:
        key = await desk.work()
        status, error, _ = await desk.outcome(key)
        return status, error, await notices(desk, key), await desk.result(key)

    model = ScriptedModel(cast(worker=lambda request: ScriptedReply("I look again", (use("look"),))))
    status, error, told, result = office.act(body, model, look())
    assert (status, error) == ("error", SPUN.format(100))
    assert len(asked(model)) == 101
    assert len(told) == 1
    assert told[0].startswith("[Notice] Your last 30 steps repeated the same calls with the same results.")
    assert "I look again" in result, "partial work is handed over"


@pytest.mark.parametrize(
    "calls",
    [
        [use("sessions_yield")],
        [use("look", what="a"), use("look", what="b")],
        [use("look", what="a", also="b"), use("look", also="b", what="a")],
        [use("look"), use("other"), use("nobody")],
    ],
    ids=["a yield that is refused", "two in turn", "arguments in another order", "three in turn"],
)
def test_what_repeats_may_be(office: Office, calls: list[Answer]) -> None:
    async def body(desk: Desk) -> tuple[str, str | None, float]:
        return await desk.outcome(await desk.work())

    model = ScriptedModel(cast(worker=lambda request: calls[said(request) % len(calls)]))
    status, error, _ = office.act(body, model, look(), Kit().tool("other"), yield_tool())
    assert (status, error) == ("error", SPUN.format(100))


@proves("4.progress.3")
@pytest.mark.parametrize(
    ("script", "takes_s"),
    [
        (lambda request: use("wait"), 31.0),
        (lambda request: use("wait" if said(request) % 2 else "look"), 31.0),
        (lambda request: use("look", what=str(said(request))), 0.0),
    ],
    ids=["it waits each time", "it looks and waits", "it asks for something else each time"],
)
def test_what_is_no_repetition(office: Office, script: Callable[[Request], Answer], takes_s: float) -> None:
    def until_200(request: Request) -> Answer:
        return "done" if said(request) == 200 else script(request)

    async def body(desk: Desk) -> tuple[str, list[str]]:
        key = await desk.spawn("worker", stuck_after_s=1e6)
        await desk.clock.sleep(200 * takes_s + 60)
        return (await desk.outcome(key))[0], await notices(desk, key)

    model = ScriptedModel(cast(worker=until_200))
    assert office.act(body, model, look(), Kit().tool("wait", takes_s)) == ("ok", [])


@proves("4.progress.6", "`maxSteps` (1000, 0 = none) ends an attempt or turn, too")
def test_a_run_ends_after_so_many_steps(office: Office) -> None:
    async def body(desk: Desk) -> tuple[str, str | None, float]:
        return await desk.outcome(await desk.work())

    model = ScriptedModel(cast(worker=lambda request: use("look", what=str(said(request)))))
    limits = StepLimits(max_steps=7)
    assert office.act(body, model, look(), step_limits=limits)[:2] == (
        "error",
        "7 of 7 steps: agents.defaults.maxSteps",
    )
    assert len(asked(model)) == 7


def test_without_limits_a_run_may_repeat_itself(office: Office) -> None:
    async def body(desk: Desk) -> str:
        return (await desk.outcome(await desk.work()))[0]

    model = ScriptedModel(cast(worker=lambda request: "done" if said(request) == 150 else use("look")))
    assert office.act(body, model, look(), step_limits=StepLimits(0, 0)) == "ok"


@proves("4.progress.7", "The count survives a crash")
@pytest.mark.parametrize("limits", [StepLimits(max_repeated=20), StepLimits(max_steps=21)])
def test_the_count_survives_a_crash(office: Office, limits: StepLimits) -> None:
    model = ScriptedModel(cast(worker=lambda request: use("look")), latency_s=1.0)

    async def first(desk: Desk) -> str:
        key = await desk.spawn("worker")
        await desk.clock.sleep(10.5)
        return key

    async def second(desk: Desk) -> int:
        await desk.ended(key)
        return len(await desk.replies(key))

    key = office.act(first, model, look(), ends="crashed", step_limits=limits)
    assert office.act(second, model, look(), step_limits=limits) == 21


def test_the_next_attempt_counts_anew(office: Office) -> None:
    model = ScriptedModel(cast(worker=lambda request: use("look")), latency_s=1.0)

    async def body(desk: Desk) -> int:
        key = await desk.spawn("worker")
        await desk.clock.sleep(10.5)
        await desk.steer(key)
        await desk.ended(key)
        return len(await desk.replies(key))

    assert office.act(body, model, look(), step_limits=StepLimits(max_repeated=20)) == 10 + 21


# ---- conversations ---------------------------------------------------------------------------------------------------


@proves("4.progress.8", "In a conversation the turn is closed and not due again, and the person reads why")
@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (StepLimits(), SPUN.format(100)),
        (StepLimits(max_steps=5), "5 of 5 steps: agents.defaults.maxSteps"),
    ],
)
def test_a_conversation_that_spins_ends_its_turn_for_good_and_the_person_reads_why(
    office: Office, limits: StepLimits, why: str
) -> None:
    async def body(desk: Desk) -> tuple[int, int, list[str]]:
        route = Route(session=MAIN, kind="last", address=Address("chat", "ann"), used_at=desk.clock.now())
        await desk.engine.commit(lambda c: c.tx.routes.set(route))
        await desk.send("go")
        await desk.clock.sleep(60)
        spun = len(asked(model, "main"))
        await desk.clock.sleep(3600)
        assert await desk.look(lambda tx: tx.turns.get(MAIN)) is None
        posts = [await desk.look(lambda tx, key=key: tx.outbox.get(key)) for key in desk.profiles.sent]  # type: ignore[misc]
        messages = [message_of(post) for post in posts if post is not None]
        return spun, len(asked(model, "main")), [message.text for message in messages if message is not None]

    model = ScriptedModel(cast(main=lambda request: use("look")))
    spun, later, heard = office.act(body, model, look(), step_limits=limits)
    assert spun == later == min(limits.max_steps, limits.max_repeated + 1)
    assert heard == [f"the turn ended: {why}"]


def test_the_next_message_is_answered_by_a_turn_that_counts_anew(office: Office) -> None:
    def script(request: Request) -> Answer:
        return "hello" if "hello?" in str(request.messages[-1]) else use("look")

    async def body(desk: Desk) -> list[str]:
        await desk.send("go")
        await desk.clock.sleep(60)
        await desk.send("hello?")
        await desk.clock.sleep(60)
        return [reply.text for reply in await desk.replies(MAIN)][-1:]

    assert office.act(body, ScriptedModel(cast(main=script)), look()) == ["hello"]


def test_a_heartbeat_that_spins_is_closed_like_any_other_turn(office: Office) -> None:
    async def body(desk: Desk) -> int:
        await desk.spawn("quiet", expects=False)
        await desk.clock.sleep(3600)
        assert await desk.look(lambda tx: tx.turns.get(MAIN)) is None
        return len(asked(model, "main"))

    model = ScriptedModel(cast(main=lambda request: use("look"), quiet=in_turn("found it")))
    assert office.act(body, model, look()) == 101
