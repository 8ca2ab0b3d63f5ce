"""Calls that need a person: the turn waits without a slot, an answer counts for one call, once."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from fledge.errors import NotFound, Refused
from fledge.models.base import Call, UserMessage
from fledge.models.scripted import ScriptedModel, ScriptedReply
from fledge.orchestrator import control, steps
from fledge.store.base import Approval
from fledge.testing import START
from fledge.tools.base import tool
from tests.orchestrator.stage import rules
from tests.runtime.desk import MAIN, Desk, Kit, Office, asked, cast, in_turn, results, use, worker
from tests.statements import proves

ASKS = frozenset({"push"})
DAY = 24 * 3600.0


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


async def question(desk: Desk) -> Approval:
    """The one question, once it is asked and its turn has let go."""
    await desk.until(lambda tx: bool(tx.approvals.open()) and not tx.drivers.all())
    (found,) = await desk.questions()
    return found


async def questions(desk: Desk, count: int) -> list[Approval]:
    await desk.until(lambda tx: len(tx.approvals.open()) == count and not tx.drivers.all())
    return sorted(await desk.questions(), key=lambda found: found.index)


def test_a_question_names_the_call_and_until_when_it_can_be_answered(office: Office) -> None:
    model = worker(ScriptedReply("may I?", (use("look"), use("push", word="it"))), "done")

    async def body(desk: Desk) -> tuple[Approval, str]:
        key = await desk.spawn("worker")
        return await question(desk), key

    found, key = office.act(body, model, Kit().tool("look"), Kit().tool("push"), asks=ASKS)
    assert (found.session, found.entry, found.index) == (key, 2, 1)
    assert (found.tool, found.arguments, found.state) == ("push", '{"word":"it"}', "waiting")
    assert (found.asked_at, found.expires_at) == (START, START + DAY)
    assert found.digest == steps.digest("push", '{"word":"it"}')


def test_what_is_allowed_runs_once_and_what_is_denied_is_an_error_the_model_reads(office: Office) -> None:
    kit = Kit()
    model = worker(use("push", word="one"), use("push", word="two"), "done")

    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        key = await desk.spawn("worker")
        first = await question(desk)
        await desk.sleep_until(100)
        assert kit.begun == []
        await desk.answer(first)
        second = await question(desk)
        await desk.answer(second, allow=False)
        await desk.ended(key)
        stored = await desk.look(lambda tx: [(asked.state, asked.answered_by) for asked in tx.approvals.of(key)])
        assert stored == [("started", "a person"), ("denied", "a person")]
        assert await desk.result(key) == "done"
        return await desk.results(key)

    refused = "push was refused by the person who was asked; it was not run"
    assert office.act(body, model, kit.tool("push"), asks=ASKS) == [
        ("push", "push one", False),
        ("push", refused, True),
    ]
    assert kit.begun == ["push"]


def test_a_turn_that_waits_for_a_person_holds_no_slot(office: Office) -> None:
    model = ScriptedModel(cast(asker=in_turn(use("push"), "done")))

    async def body(desk: Desk) -> float:
        waiting = await desk.spawn("asker")
        asked = await question(desk)
        other = await desk.work("other")
        assert await desk.result(other) == "answer of other"
        assert (await desk.run(waiting)).phase.name == "waiting"
        await desk.answer(asked)
        await desk.ended(waiting)
        return desk.at()

    at = office.act(body, model, Kit().tool("push"), asks=ASKS, rules=rules(widths={"main": 1, "subagent": 1}))
    assert at < 1


def test_an_unanswered_question_expires_and_the_model_is_told(office: Office) -> None:
    kit = Kit()
    model = worker(use("push"), "then not")

    async def body(desk: Desk) -> tuple[str, float]:
        key = await desk.spawn("worker")
        found = await question(desk)
        await desk.sleep_until(59.9)
        assert (await desk.run(key)).ended is None
        await desk.ended(key)
        with pytest.raises(Refused, match="expired") as refused:
            await desk.answer(found)
        assert refused.value.status == "done"
        return await desk.result(key), (await desk.outcome(key))[2]

    assert office.act(body, model, kit.tool("push"), asks=ASKS, approval_s=60.0) == ("then not", 60.0)
    assert results(asked(model)[1]) == [("push", "push was not approved in time; it was not run", True)]
    assert kit.begun == []


def test_a_conversations_question_expires_too(office: Office) -> None:
    kit = Kit()
    model = ScriptedModel(cast(main=in_turn(use("push"), "then not")))

    async def body(desk: Desk) -> float:
        await desk.send("go")
        await question(desk)
        await desk.until(lambda tx: tx.turns.get(MAIN) is None)
        return desk.at()

    assert office.act(body, model, kit.tool("push"), asks=ASKS, approval_s=60.0) == pytest.approx(60, abs=0.02)
    assert results(asked(model, "main")[1]) == [("push", "push was not approved in time; it was not run", True)]


@proves("8.approvals.3", "An approval is bound to a hash of tool and arguments")
def test_an_answer_is_bound_to_the_call_that_was_shown(office: Office) -> None:
    kit = Kit()

    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker")
        found = await question(desk)
        with pytest.raises(Refused, match="a different call than the one that was shown"):
            await desk.answer(found, digest=steps.digest("push", '{"word":"else"}'))
        with pytest.raises(Refused, match="a different call than the one that was shown"):
            await desk.answer(found, digest=steps.digest("pull", found.arguments))
        await desk.rest()
        assert kit.begun == []
        await desk.answer(found, digest=steps.digest("push", '{"word":"it"}'))
        await desk.ended(key)

    office.act(body, worker(use("push", word="it"), "done"), kit.tool("push"), asks=ASKS)
    assert kit.begun == ["push"]


@pytest.mark.parametrize("allow", [True, False])
def test_a_question_is_answered_once(office: Office, allow: bool) -> None:
    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker")
        found = await question(desk)
        await desk.answer(found, allow)
        for second in (True, False):
            with pytest.raises(Refused, match=r"is (allowed|denied|started)") as refused:
                await desk.answer(found, second)
            assert refused.value.status == "done"
        await desk.ended(key)

    kit = Kit()
    office.act(body, worker(use("push"), "done"), kit.tool("push"), asks=ASKS)
    assert len(kit.begun) == allow


def test_an_unknown_question_is_refused(office: Office) -> None:
    async def body(desk: Desk) -> None:
        with pytest.raises(NotFound, match="no question nope"):
            await desk.engine.commit(lambda c: steps.answer(c, "nope", True, "a person"))

    office.act(body, worker("done"))


@pytest.mark.parametrize("ends", ["crashed", "closed"])
def test_a_question_survives_a_restart_and_so_does_its_answer(
    office: Office, ends: Literal["crashed", "closed"]
) -> None:
    kit = Kit()
    models = [worker(use("push"), "done") for _ in range(3)]
    push = kit.tool("push")

    async def begin(desk: Desk) -> str:
        key = await desk.spawn("worker")
        await question(desk)
        return key

    async def answer(desk: Desk) -> None:
        await desk.rest()
        await desk.sleep_until(100)
        assert kit.begun == []
        (found,) = await desk.questions()
        await desk.answer(found)

    async def end(desk: Desk) -> str:
        await desk.ended(key)
        return await desk.result(key)

    key = office.act(begin, models[0], push, asks=ASKS, ends=ends)
    office.act(answer, models[1], push, asks=ASKS, ends="crashed")
    assert office.act(end, models[2], push, asks=ASKS) == "done"
    assert kit.begun == ["push"]
    assert [len(messages) for model in models for messages in asked(model)] == [1, 3]


@pytest.mark.parametrize(
    ("kind", "begun", "told"),
    [("repeatable", 2, ("push", "push", False)), ("once", 1, ("push", "interrupted; outcome unknown", True))],
)
def test_an_approved_call_that_was_begun_before_a_crash_is_run_again_only_if_it_may_be(
    office: Office, kind: Literal["once", "repeatable"], begun: int, told: tuple[str, str, bool]
) -> None:
    kit = Kit()
    models = [worker(use("push"), "done") for _ in range(2)]
    push = kit.tool("push", 10, kind=kind)

    async def begin(desk: Desk) -> str:
        key = await desk.spawn("worker")
        await desk.answer(await question(desk))
        await desk.clock.sleep(5)
        return key

    async def end(desk: Desk) -> tuple[str, str, bool]:
        await desk.ended(key)
        ((name, text, is_error),) = await desk.results(key)
        return name, text.partition(":")[0], is_error

    key = office.act(begin, models[0], push, asks=ASKS, ends="crashed")
    assert office.act(end, models[1], push, asks=ASKS) == told
    assert len(kit.begun) == begun


@proves("3.limits.24", "… waiting for a person not")
def test_the_runs_own_time_stands_still_while_a_person_is_asked(office: Office) -> None:
    kit = Kit()
    model = worker(use("wait"), use("push"), use("wait"), "never said")

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        key = await desk.spawn("worker", timeout_s=100)
        found = await question(desk)
        assert desk.at() == pytest.approx(60, abs=0.02)
        await desk.sleep_until(1000)
        assert (await desk.run(key)).ended is None
        await desk.answer(found)
        await desk.ended(key)
        return await desk.outcome(key)

    status, _, at = office.act(body, model, kit.tool("wait", 60), kit.tool("push"), asks=ASKS)
    assert status == "timeout"
    assert at == pytest.approx(1040, abs=0.02)
    assert kit.cancelled == ["wait"]


def test_a_steer_while_a_person_is_asked_makes_the_question_void(office: Office) -> None:
    kit = Kit()
    model = worker(use("push"), "as you wish")

    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker")
        found = await question(desk)
        await desk.steer(key, "rather this")
        with pytest.raises(Refused, match="void"):
            await desk.answer(found)
        await desk.ended(key)
        assert await desk.result(key) == "as you wish"
        assert await desk.questions() == []

    office.act(body, model, kit.tool("push"), asks=ASKS)
    assert results(asked(model)[1]) == [("push", "interrupted; it was not finished", True)]
    assert asked(model)[1][-1] == UserMessage("rather this")
    assert kit.begun == []


def test_a_kill_while_a_person_is_asked_makes_the_question_void(office: Office) -> None:
    kit = Kit()

    async def body(desk: Desk) -> tuple[str, str | None, float]:
        key = await desk.spawn("worker")
        found = await question(desk)
        await desk.kill(key)
        with pytest.raises(Refused, match="void"):
            await desk.answer(found)
        await desk.rest()
        assert await desk.questions() == []
        return await desk.outcome(key)

    status, _, _ = office.act(body, worker(use("push"), "done"), kit.tool("push"), asks=ASKS)
    assert (status, kit.begun) == ("killed", [])


def test_a_conversation_that_is_stopped_while_a_person_is_asked_forgets_the_question(office: Office) -> None:
    kit = Kit()
    model = ScriptedModel(cast(main=in_turn(use("push"), "hello")))

    async def body(desk: Desk) -> None:
        await desk.send("go")
        found = await question(desk)
        await desk.engine.commit(lambda c: control.stop(c, MAIN))
        with pytest.raises(Refused, match="void"):
            await desk.answer(found)
        await desk.send("are you there?")
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN))
        await desk.sleep_until(2 * DAY)

    office.act(body, model, kit.tool("push"), asks=ASKS)
    assert len(asked(model, "main")) == 2
    assert results(asked(model, "main")[1]) == [("push", "stopped; it was not finished", True)]
    assert kit.begun == []


def test_several_questions_of_one_step_are_answered_each_for_itself(office: Office) -> None:
    kit = Kit()
    model = worker(
        ScriptedReply(calls=(use("push", word="a"), use("look"), use("push", word="b"), use("push", word="c"))), "ok"
    )

    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker")
        a, b, c = await questions(desk, 3)
        assert [found.index for found in (a, b, c)] == [0, 2, 3]
        assert kit.begun == ["look"]
        await desk.answer(b, allow=False)
        await desk.sleep_until(10)
        await desk.answer(c)
        await desk.sleep_until(20)
        assert (await desk.run(key)).ended is None
        await desk.answer(a)
        await desk.ended(key)

    office.act(body, model, kit.tool("push", 1), kit.tool("look"), asks=ASKS)
    refused = "push was refused by the person who was asked; it was not run"
    assert results(asked(model)[1]) == [
        ("push", "push a", False),
        ("look", "look", False),
        ("push", refused, True),
        ("push", "push c", False),
    ]
    assert kit.begun == ["look", "push", "push"]
    assert len(asked(model)) == 2


def test_questions_of_one_step_are_listed_in_the_order_of_its_calls(office: Office) -> None:
    model = worker(ScriptedReply(calls=tuple(use("push", word=str(n)) for n in range(8))), "ok")

    async def body(desk: Desk) -> list[int]:
        await desk.spawn("worker")
        await questions(desk, 8)
        return [found.index for found in await desk.questions()]

    assert office.act(body, model, Kit().tool("push"), asks=ASKS) == list(range(8))


def test_of_several_questions_some_may_be_answered_and_some_expire(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("push", word="a"), use("push", word="b"))), "ok")

    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker")
        a, _ = await questions(desk, 2)
        await desk.answer(a)
        await desk.ended(key)
        assert (await desk.outcome(key))[2] == 60.0

    office.act(body, model, kit.tool("push"), asks=ASKS, approval_s=60.0)
    expired = "push was not approved in time; it was not run"
    assert results(asked(model)[1]) == [("push", "push a", False), ("push", expired, True)]


def test_an_answer_that_comes_before_the_turn_has_let_go_is_not_missed(office: Office) -> None:
    kit = Kit()
    model = worker(ScriptedReply(calls=(use("slow"), use("push"))), "done")

    async def body(desk: Desk) -> float:
        key = await desk.spawn("worker")
        await desk.sleep_until(1)
        (found,) = await desk.questions()
        await desk.answer(found)
        await desk.ended(key)
        return (await desk.outcome(key))[2]

    assert office.act(body, model, kit.tool("slow", 5), kit.tool("push"), asks=ASKS) == 5.0
    assert kit.begun == ["slow", "push"]


def test_a_conversation_goes_on_when_its_question_is_answered(office: Office) -> None:
    kit = Kit()
    model = ScriptedModel(cast(main=in_turn(use("push"), "pushed")))

    async def body(desk: Desk) -> str:
        await desk.send("go")
        found = await question(desk)
        await desk.sleep_until(100)
        await desk.answer(found)
        await desk.until(lambda tx: tx.turns.get(MAIN) is None)
        assert desk.at() < 100.1
        return (await desk.replies(MAIN))[-1].text

    assert office.act(body, model, kit.tool("push"), asks=ASKS) == "pushed"
    assert kit.begun == ["push"]


def test_a_message_to_a_conversation_that_asks_waits_until_the_question_is_answered(office: Office) -> None:
    kit = Kit()
    model = ScriptedModel(cast(main=in_turn(use("push"), "pushed")))

    async def body(desk: Desk) -> None:
        await desk.send("go")
        found = await question(desk)
        await desk.sleep_until(50)
        await desk.send("hurry")
        await desk.sleep_until(100)
        assert len(asked(model, "main")) == 1
        assert [row.body for row in await desk.look(lambda tx: tx.inbox.unread(MAIN))] == ["hurry"]
        await desk.answer(found)
        await desk.until(lambda tx: tx.turns.get(MAIN) is None)

    office.act(body, model, kit.tool("push"), asks=ASKS)
    assert asked(model, "main")[1][-1] == UserMessage("hurry")
    assert kit.begun == ["push"]


@pytest.mark.parametrize("name", ["bash", "exec", "EXEC", "Bash"])
def test_no_other_spelling_of_a_tools_name_gets_round_the_question(office: Office, name: str) -> None:
    ran: list[str] = []

    async def run(word: str = "") -> str:
        ran.append(word)
        await asyncio.sleep(0)
        return "ran"

    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker")
        await desk.sleep_until(10)
        assert ran == []
        assert (await desk.run(key)).ended is None
        await desk.answer(await question(desk), allow=False)
        await desk.ended(key)

    office.act(body, worker(Call("", name, "{}"), "done"), tool(name="exec")(run), asks=frozenset({"exec"}))
    assert ran == []


def test_a_tool_that_is_not_there_is_told_at_once_and_no_person_is_asked(office: Office) -> None:
    async def body(desk: Desk) -> float:
        return (await desk.outcome(await desk.work()))[2]

    assert office.act(body, worker(use("push"), "I see"), approval_s=60.0, asks=frozenset()) == 0.0


@proves("8.exec.1")
def test_a_spawn_that_starts_a_program_is_asked_for_where_exec_is(office: Office) -> None:
    native, foreign = use("sessions_spawn", task="x"), use("sessions_spawn", task="x", runtime="claude")
    model = worker(ScriptedReply("two children", (native, foreign)), "done")

    async def body(desk: Desk) -> Approval:
        await desk.spawn("worker")
        return await question(desk)

    kit = Kit()
    spawning = kit.tool("sessions_spawn")
    found = office.act(body, model, spawning, asks=frozenset({"exec"}))
    assert (found.index, found.tool) == (1, "sessions_spawn")
