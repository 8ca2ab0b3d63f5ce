"""What arrives at a busy session, by queue mode, with the real turn driver: when it is read, in whose turn, once.

The requester thinks for 3 s, works for 10 s (until 13) and thinks its last words for 3 s (until 16). One child answers
at 5, while the tool runs; another at 14, behind the last boundary.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from fledge.channels.inbound import heard
from fledge.core.inbox import QueueMode
from fledge.core.route import Address, ChannelMessage
from fledge.core.run import Delivered
from fledge.core.transcript import Replied, Spoken, Told
from fledge.errors import Interrupted
from fledge.models.base import Request, UserMessage
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply
from fledge.orchestrator import inbox, outbox, turns
from fledge.orchestrator.commit import Commit
from fledge.store.base import Tx
from fledge.testing import world
from tests.orchestrator.scene import Scene, scene_fixture
from tests.orchestrator.stage import rules
from tests.runtime.desk import MAIN, Desk, Kit, Office, asked, results, said, use
from tests.statements import proves

Who = Literal["conversation", "run"]
WHO: tuple[Who, ...] = ("conversation", "run")
MODES: tuple[QueueMode, ...] = ("steer", "followup", "collect", "steer-backlog", "interrupt")
INTERRUPTED = ("slow", "interrupted; it was not finished", True)

scene = pytest.fixture(scene_fixture)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


async def script(request: Request) -> Answer:
    """Children answer after as many seconds as they are called; the requester calls `slow`, then it only speaks."""
    if request.system not in ("main", "orchestrator"):
        await asyncio.sleep(float(request.system))
        return f"the answer at {request.system}"
    await asyncio.sleep(3)
    return ScriptedReply("let me see", (use("slow"),)) if said(request) == 0 else f"words {said(request)}"


async def begin(desk: Desk, who: Who) -> str:
    """The requester at work since 0."""
    if who == "run":
        return await desk.spawn("orchestrator")
    await desk.send("go")
    return MAIN


async def at_rest(desk: Desk, key: str) -> None:
    """Wait until the requester has read everything and said its last words."""
    if key == MAIN:
        await desk.until(
            lambda tx: tx.turns.get(key) is None and not tx.inbox.unread(key, 1) and tx.queue.place(key) is None
        )
    else:
        await desk.ended(key)


async def two_answers(desk: Desk, who: Who) -> tuple[list[list[str]], list[str]]:
    """What the requester was told entry by entry, and the kinds of its entries."""
    key = await begin(desk, who)
    await desk.sleep_until(1)
    await desk.spawn("4", key)  # answers at 5
    await desk.spawn("13", key)  # answers at 14
    await desk.until(lambda tx: tx.sessions.counts(key).unsettled == 0)
    await at_rest(desk, key)
    return await desk.told(key), [type(body).__name__ for body in await desk.bodies(key)]


# ---- five modes ------------------------------------------------------------------------------------------------------

WORKED = ["Spoken", "Replied", "Resulted"]
CONVERSATION: dict[QueueMode, tuple[list[list[str]], list[str]]] = {
    "steer": ([["4"], ["13"]], [*WORKED, "Told", "Replied", "Told", "Replied"]),
    "steer-backlog": ([["4"], ["13"]], [*WORKED, "Told", "Replied", "Told", "Replied"]),
    "followup": ([["4"], ["13"]], [*WORKED, "Replied", "Told", "Replied", "Told", "Replied"]),
    "collect": ([["4", "13"]], [*WORKED, "Replied", "Told", "Replied"]),
    # The tool is left at 5, the last words come at 8, and the second answer finds the conversation idle.
    "interrupt": ([["4"], ["13"]], [*WORKED, "Told", "Replied", "Told", "Replied"]),
}
# A run's last words wait for whoever is unsettled and for what is unread, so it speaks twice.
RUN: dict[QueueMode, tuple[list[list[str]], list[str]]] = {
    "steer": ([["4"], ["13"]], [*WORKED, "Told", "Replied", "Told", "Replied"]),
    "steer-backlog": ([["4"], ["13"]], [*WORKED, "Told", "Replied", "Told", "Replied"]),
    "followup": ([["4", "13"]], [*WORKED, "Replied", "Told", "Replied"]),
    "collect": ([["4", "13"]], [*WORKED, "Replied", "Told", "Replied"]),
    "interrupt": ([["4"], ["13"]], [*WORKED, "Told", "Replied", "Told", "Spoken", "Replied"]),
}


@proves("2.arbitration.5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("who", WHO)
def test_each_mode_reads_two_answers_once_in_its_own_way(office: Office, who: Who, mode: QueueMode) -> None:
    model = ScriptedModel(script)
    found = office.act(lambda desk: two_answers(desk, who), model, Kit().tool("slow", 10), rules=rules(mode))
    assert found == (CONVERSATION if who == "conversation" else RUN)[mode]


@proves("2.arbitration.8")
@pytest.mark.parametrize("mode", ["steer", "steer-backlog"])
def test_what_is_steered_in_is_marked_and_what_missed_the_last_boundary_is_not(office: Office, mode: QueueMode) -> None:
    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[str]:
        await two_answers(desk, "conversation")
        return [entry.text for entry in await desk.bodies(MAIN) if isinstance(entry, Told)]

    steered, later = office.act(body, model, Kit().tool("slow", 10), rules=rules(mode))
    assert steered.startswith("[INTERRUPT] [Subagent]")
    assert later.startswith("[Subagent]")


@proves("2.arbitration.8")
@pytest.mark.parametrize("mode", ["steer", "steer-backlog"])
def test_an_answer_that_was_steered_into_a_turn_gets_no_turn_of_its_own(office: Office, mode: QueueMode) -> None:
    """Never both: nothing is queued, opened or asked for it afterwards."""
    model = ScriptedModel(script)

    async def body(desk: Desk) -> tuple[int, list[str]]:
        await desk.send("go")
        await desk.sleep_until(1)
        child = await desk.spawn("4")
        await at_rest(desk, MAIN)
        await desk.sleep_until(600)
        assert (await desk.run(child)).delivery == Delivered("steered")
        assert await desk.look(lambda tx: (tx.queue.place(MAIN), tx.inbox.unread(MAIN))) == (None, [])
        return len(asked(model, "main")), [type(body).__name__ for body in await desk.bodies(MAIN)]

    found = office.act(body, model, Kit().tool("slow", 10), rules=rules(mode))
    assert found == (2, [*WORKED, "Told", "Replied"])


# ---- what people say -------------------------------------------------------------------------------------------------

HEARD: dict[QueueMode, list[list[str]]] = {
    "steer": [["go", "at 5", "at 6"], ["at 14", "at 15"]],
    "steer-backlog": [["go", "at 5", "at 6"], ["at 14"], ["at 15"]],
    "followup": [["go"], ["at 5"], ["at 6"], ["at 14"], ["at 15"]],
    "collect": [["go"], ["at 5", "at 6", "at 14", "at 15"]],
    # Each calls off the step under way: the tool is left at 5, the thinking at 6, and the turn ends at 9.
    "interrupt": [["go", "at 5", "at 6"], ["at 14", "at 15"]],
}


@proves(
    "2.arbitration.24", "Queue modes hold for people's messages: steer, followup, collect, steer-backlog, interrupt"
)
@pytest.mark.parametrize("mode", MODES)
def test_each_mode_hears_people_in_its_own_way_and_everything_once(office: Office, mode: QueueMode) -> None:
    assert office.act(several_messages, ScriptedModel(script), Kit().tool("slow", 10), rules=rules(mode)) == HEARD[mode]


@proves("2.arbitration.25", "A live run hears every message at its next step, whatever the queue modes are")
@pytest.mark.parametrize("mode", ["steer", "followup", "collect", "steer-backlog"])
def test_a_live_run_hears_every_message_at_its_next_step_in_any_mode(office: Office, mode: QueueMode) -> None:
    async def body(desk: Desk) -> list[str]:
        key = await desk.spawn("orchestrator")
        for at in (5, 6):
            await desk.sleep_until(at)
            await desk.send(f"at {at}", key)
        await desk.ended(key)
        return [type(body).__name__ for body in await desk.bodies(key)]

    found = office.act(body, ScriptedModel(script), Kit().tool("slow", 10), rules=rules(mode))
    assert found == [*WORKED, "Spoken", "Spoken", "Replied"]


async def several_messages(desk: Desk) -> list[list[str]]:
    """What people said, turn by turn."""
    for at, words in ((0, "go"), (5, "at 5"), (6, "at 6"), (14, "at 14"), (15, "at 15")):
        await desk.sleep_until(at)
        await desk.send(words)
    await at_rest(desk, MAIN)
    turns: list[list[str]] = [[]]
    for body in await desk.bodies(MAIN):
        if isinstance(body, Spoken):
            turns[-1].append(body.text)
        elif isinstance(body, Replied) and not body.calls:
            turns.append([])
    return [heard for heard in turns if heard]


# ---- interrupt -------------------------------------------------------------------------------------------------------


@proves(
    "2.arbitration.9",
    '`interrupt` cancels the step, closes open calls with "interrupted" and drains in the same attempt',
)
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("what", ["completion", "message"])
def test_an_interrupt_leaves_the_tools_closes_their_calls_and_goes_on_with_what_came_in(
    office: Office, who: Who, what: str
) -> None:
    kit, model = Kit(), ScriptedModel(script)

    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        key = await begin(desk, who)
        await desk.sleep_until(1)
        if what == "completion":
            await desk.spawn("4", key)
        else:
            await desk.sleep_until(5)
            await desk.send("wait", key)
        await desk.sleep_until(5.1)
        assert kit.cancelled == ["slow"]
        kinds = [type(body).__name__ for body in await desk.bodies(key)]
        assert kinds == [*WORKED, "Told" if what == "completion" else "Spoken"]
        await at_rest(desk, key)
        assert desk.at() == pytest.approx(8, abs=0.02)
        if who == "run":
            assert (await desk.run(key)).attempt == 1
            assert await desk.result(key) == "words 1"
            assert [name for name, _ in await desk.timeline(key)].count("Claimed") == 1
        return await desk.results(key)

    label = "orchestrator" if who == "run" else "main"
    assert office.act(body, model, kit.tool("slow", 10), rules=rules("interrupt")) == [INTERRUPTED]
    assert kit.begun == ["slow"]
    assert results(asked(model, label)[1]) == [INTERRUPTED]
    assert isinstance(asked(model, label)[1][-1], UserMessage)


@proves("2.arbitration.9")
@pytest.mark.parametrize("who", WHO)
def test_an_interrupt_while_the_model_thinks_leaves_nothing_of_its_reply(office: Office, who: Who) -> None:
    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[str]:
        key = await begin(desk, who)
        await desk.sleep_until(2)
        await desk.send("wait", key)
        await desk.sleep_until(4.5)
        assert [type(body) for body in await desk.bodies(key)] == [Spoken, Spoken]
        await at_rest(desk, key)
        return [reply.text for reply in await desk.replies(key)]

    label = "orchestrator" if who == "run" else "main"
    found = office.act(body, model, Kit().tool("slow", 1), rules=rules("interrupt"))
    assert found == ["let me see", "words 1"]
    assert [len(messages) for messages in asked(model, label)] == [1, 2, 4]


def test_results_that_were_in_stay_and_only_open_calls_are_closed(office: Office) -> None:
    kit = Kit()

    def plan(request: Request) -> Answer:
        return ScriptedReply("both", (use("quick"), use("slow"))) if said(request) == 0 else "done"

    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        await desk.send("go")
        await desk.sleep_until(5)
        await desk.send("wait")
        await at_rest(desk, MAIN)
        return await desk.results(MAIN)

    tools = (kit.tool("quick", 1), kit.tool("slow", 10))
    found = office.act(body, ScriptedModel(plan), *tools, rules=rules("interrupt"))
    assert found == [("quick", "quick", False), INTERRUPTED]


def test_interrupts_in_quick_succession_are_all_read_in_the_same_turn(office: Office) -> None:
    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[str]:
        await desk.send("go")
        await desk.sleep_until(5)
        await desk.send("wait")
        await desk.send("no, stop")
        await desk.sleep_until(6)
        await desk.send("really")
        await at_rest(desk, MAIN)
        return await desk.heard(MAIN, "user")

    heard = office.act(body, model, Kit().tool("slow", 10), rules=rules("interrupt"))
    assert heard == ["go", "wait", "no, stop", "really"]
    assert [len(messages) for messages in asked(model, "main")][-2:] == [5, 6]
    assert [request.messages[-1].text for request in model.requests][-2:] == ["no, stop", "really"]


def test_what_interrupts_a_driver_that_is_just_reading_is_read_before_its_model_is_asked(office: Office) -> None:
    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[str]:
        await desk.send("go")
        await desk.sleep_until(5)
        desk.store.answer_s = 0.01
        await desk.send("wait")
        await desk.sleep_until(5.005)
        await desk.send("really")
        await at_rest(desk, MAIN)
        return await desk.heard(MAIN, "user")

    heard = office.act(body, model, Kit().tool("slow", 10), rules=rules("interrupt"))
    assert heard == ["go", "wait", "really"]
    assert [request.messages[-1].text for request in model.requests] == ["go", "really"]


def test_news_of_an_interrupt_that_its_driver_has_read_already_calls_off_nothing_more(office: Office) -> None:
    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[str]:
        await desk.send("go")
        await desk.sleep_until(5)
        await desk.send("wait")
        await desk.sleep_until(6)
        driver = await desk.engine.store.read(lambda tx: tx.drivers.get(MAIN))
        assert driver is not None
        assert driver.interrupts == 1
        # The commit that called the step off tells its driver late: it was read from the rows meanwhile.
        late = (MAIN, driver.epoch, 1)

        def tell_again(c: Commit) -> None:
            c.hints.interrupted = [late]

        await desk.engine.commit(tell_again)
        await at_rest(desk, MAIN)
        return await desk.heard(MAIN, "user")

    assert office.act(body, model, Kit().tool("slow", 10), rules=rules("interrupt")) == ["go", "wait"]
    assert len(model.requests) == 2


def test_a_notice_interrupts_nothing(office: Office) -> None:
    kit, model = Kit(), ScriptedModel(script)

    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        await desk.send("go")
        await desk.sleep_until(5)
        await desk.engine.commit(lambda c: inbox.notice(c, MAIN, "n", "by the way"))
        await at_rest(desk, MAIN)
        return await desk.results(MAIN)

    assert office.act(body, model, kit.tool("slow", 10), rules=rules("interrupt")) == [("slow", "slow", False)]
    assert kit.cancelled == []


def test_a_question_to_a_person_is_not_interrupted(office: Office) -> None:
    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[tuple[str, str, bool]]:
        await desk.send("go")
        await desk.sleep_until(5)
        await desk.send("wait")
        await desk.sleep_until(6)
        (question,) = await desk.questions()
        assert await desk.results(MAIN) == []
        await desk.answer(question)
        await at_rest(desk, MAIN)
        return await desk.results(MAIN)

    found = office.act(body, model, Kit().tool("slow", 1), rules=rules("interrupt"), asks=frozenset({"slow"}))
    assert found == [("slow", "slow", False)]
    assert model.requests[-1].messages[-1] == UserMessage("wait")


@proves("2.arbitration.9")
@pytest.mark.parametrize("who", WHO)
def test_a_crash_right_after_an_interrupt_goes_on_the_same_way(office: Office, who: Who) -> None:
    kit = Kit()

    async def cut(desk: Desk) -> str:
        key = await begin(desk, who)
        await desk.sleep_until(1)
        await desk.spawn("4", key)
        await desk.until(lambda tx: len(tx.transcripts.entries(key)) == 4)
        return key

    key = office.act(cut, ScriptedModel(script), kit.tool("slow", 10), rules=rules("interrupt"), ends="crashed")
    model = ScriptedModel(script)

    async def again(desk: Desk) -> tuple[list[str], list[list[str]]]:
        await at_rest(desk, key)
        if who == "run":
            assert (await desk.run(key)).attempt == 1
            assert await desk.result(key) == "words 1"
        return [type(body).__name__ for body in await desk.bodies(key)], await desk.told(key)

    found = office.act(again, model, kit.tool("slow", 10), rules=rules("interrupt"))
    assert found == ([*WORKED, "Told", "Replied"], [["4"]])
    assert kit.begun == ["slow"]
    assert results(asked(model, "orchestrator" if who == "run" else "main")[0]) == [INTERRUPTED]


# ---- origins ---------------------------------------------------------------------------------------------------------


@proves("2.queue.2")
@pytest.mark.parametrize("mode", MODES)
def test_what_somebody_says_elsewhere_does_not_join_a_turn_and_each_is_answered_where_they_are(
    office: Office, mode: QueueMode
) -> None:
    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[tuple[str, str]]:
        for at, who in ((0, "ann"), (5, "bob"), (6, "ann")):
            await desk.sleep_until(at)
            words, message = f"{who} at {at}", str(at)
            await desk.engine.commit(partial(heard, address=Address("chat", who), text=words, message_id=message))
        await at_rest(desk, MAIN)
        await desk.rest()
        heard_in_order = await desk.heard(MAIN)
        posts = [await desk.look(partial(_post, key=key)) for key in desk.profiles.sent]
        return [(words, "") for words in heard_in_order] + [(message.to, message.text) for message in posts]

    found = [word for word, _ in office.act(body, model, Kit().tool("slow", 10), rules=rules(mode))]
    if mode in ("followup", "collect"):
        assert found == ["ann at 0", "bob at 5", "ann at 6", "ann", "bob", "ann"]
    else:
        assert found == ["ann at 0", "ann at 6", "bob at 5", "ann", "bob"]


def _post(tx: Tx, key: str) -> ChannelMessage:
    post = tx.outbox.get(key)
    assert post is not None
    message = outbox.message_of(post)
    assert message is not None
    return message


# ---- what a driver may still write -----------------------------------------------------------------------------------


def test_what_was_thought_before_an_interrupt_is_refused_until_the_driver_has_read(scene: Scene) -> None:
    main = scene.main()
    scene.send(MAIN, "wait")
    assert scene.commit(lambda c: inbox.interrupt(c, MAIN))
    assert scene.said(MAIN)[-1] == "wait"
    for write in (
        lambda c: turns.finish(c, main, "too early"),
        lambda c: world.step(c, main, [("assistant", "too early")]),
        lambda c: turns.fail(c, main, "too early"),
    ):
        before = scene.dump()
        with pytest.raises(Interrupted):
            scene.commit(write)
        assert scene.dump() == before
    after = scene.drives[MAIN] = replace(main, interrupts=1)
    assert scene.finish(after, "now") == "over"


def test_nothing_is_interrupted_where_no_step_is_under_way(scene: Scene) -> None:
    assert not scene.commit(lambda c: inbox.interrupt(c, MAIN))
    main = scene.main()
    assert not scene.commit(lambda c: inbox.interrupt(c, MAIN)), "nothing came in"
    scene.finish(main)
    o = scene.orchestrator()
    scene.send(o.session, "wait")
    scene.kill(o.session)
    assert not scene.commit(lambda c: inbox.interrupt(c, o.session))
    w = scene.read(lambda tx: tx.drivers.get(o.session))
    assert w is not None
    assert w.interrupts == 0


def test_the_work_of_a_foreign_runtime_is_one_whole_and_is_not_called_off(scene: Scene) -> None:
    o = scene.orchestrator(wakeable=False)
    scene.send(o.session, "wait")
    assert not scene.commit(lambda c: inbox.interrupt(c, o.session))
    scene.finish(o)


@proves("2.phases.5", "A reservation is withdrawn by an interrupt too")
def test_a_reservation_goes_with_the_call_that_an_interrupt_closes(scene: Scene) -> None:
    main = scene.main()
    key = scene.reserve(main)
    scene.send(MAIN, "wait")
    assert scene.commit(lambda c: inbox.interrupt(c, MAIN))
    assert scene.read(lambda tx: tx.runs.find(key)) is None
    assert scene.counts(MAIN).unsettled == 0
