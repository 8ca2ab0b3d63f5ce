"""Hop 2: from a transcript to somebody outside, as the engine carries it out: at least once, in order on each channel,
given up visibly, and never of any consequence for a run."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from fledge.channels.inbound import inbound
from fledge.core.route import Address, origin_of
from fledge.core.run import Delivered
from fledge.core.transcript import CallEntry, Replied
from fledge.errors import BadInput
from fledge.orchestrator import bindings, control, outbox, spawn, steps
from fledge.orchestrator.commit import Commit, Rules
from fledge.store.base import Route
from fledge.testing import Stage
from tests.orchestrator.outside import NEWS, OPS, Outside, delegate, entries, hear, played
from tests.orchestrator.scene import Scene as Acts
from tests.orchestrator.stage import MAIN, WIDE, Theatre, World, in_turns, works
from tests.statements import proves

SEND = Rules(widths=WIDE, deliver="send")


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


# ---- who hears what --------------------------------------------------------------------------------------------------


@proves("2.hops.5")
def test_a_reply_goes_once_to_where_the_message_came_from_under_an_id_of_its_session_and_entry(
    theatre: Theatre,
) -> None:
    async def scene(world: World, outside: Outside) -> None:
        assert await hear(world, OPS, "hello", "m-1") == MAIN
        await hear(world, NEWS, "and I?", "m-2")
        await world.clock.sleep(100)
        assert outside.heard == [("ops", "ann", "answer of main"), ("news", "bob", "answer of main")]
        first = outside.arrived[0][1]
        assert (first.id, first.thread, first.about, first.session_key) == (f"reply:{MAIN}:2", "t-1", "reply", MAIN)
        assert await entries(world) == ["user", "assistant", "user", "assistant"]

    played(theatre, scene)


def test_the_same_message_of_a_channel_twice_is_one_message(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        for _ in range(2):
            await hear(world, OPS, "hello", "m-1")
            await world.clock.sleep(10)
        await hear(world, NEWS, "the id of another channel is another id", "m-1")
        await world.clock.sleep(10)
        assert [channel for channel, _, _ in outside.heard] == ["ops", "news"]

    played(theatre, scene)


@pytest.mark.parametrize("words", ["NO_REPLY", "ANNOUNCE_SKIP", "HEARTBEAT_OK", "REPLY_SKIP"])
def test_a_turn_that_ends_with_a_word_for_silence_sends_nothing(theatre: Theatre, words: str) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(10)
        assert await world.heard(kind="assistant") == [words]
        assert outside.tried == []

    played(theatre, scene, {"main": works(1, words)})


def test_a_session_without_a_route_sends_nothing(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await world.send("from nowhere")
        await world.clock.sleep(10)
        assert await world.heard(kind="assistant") == ["answer of main"]
        assert outside.tried == []

    played(theatre, scene)


def test_what_nobody_there_asked_for_goes_to_where_somebody_last_spoke(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(10)
        await hear(world, NEWS, "hello", "m-2")
        await world.clock.sleep(10)
        await world.send("from nowhere")
        await world.clock.sleep(10)
        assert [channel for channel, _, _ in outside.heard] == ["ops", "news", "news"]

    played(theatre, scene)


def test_words_of_another_session_are_answered_there_and_on_no_channel(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "hello", "m-1")
        await world.clock.sleep(10)
        await world.engine.commit(lambda c: control.send(c, MAIN, "psst", source="agent:other:main"))
        await world.clock.sleep(10)
        assert len(await world.heard(kind="assistant")) == 2
        assert len(outside.heard) == 1

    played(theatre, scene)


def test_the_answer_of_a_child_goes_to_whoever_asked_for_it_though_others_spoke_since(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(5)
        await hear(world, NEWS, "hello", "m-2")
        await world.clock.sleep(100)
        assert await world.told() == [["child"]]
        assert [(channel, text) for channel, _, text in outside.heard] == [
            ("ops", "under way"),
            ("news", "hello bob"),
            ("ops", "the child says"),
        ]

    main = in_turns(delegate, works(0, "hello bob"), works(0, "the child says"))
    played(theatre, scene, {"main": main, "child": works(20)})


@proves("2.arbitration.11", "A nested requester gets completions in its inbox, never on a channel")
def test_a_nested_requester_never_speaks_to_a_channel(theatre: Theatre) -> None:
    async def below(stage: Stage) -> None:
        await stage.spawn("grandchild")
        await stage.wait()

    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(100)
        assert [text for _, _, text in outside.heard] == ["under way", "all done"]
        assert {message.session_key for _, message in outside.arrived} == {MAIN}

    scripts = {"main": in_turns(delegate, works(0, "all done")), "child": in_turns(below, works(0, "nested words"))}
    played(theatre, scene, scripts)


# ---- announce.deliver: send ------------------------------------------------------------------------------------------


@proves(
    "2.hops.9", "`announce.deliver: send` posts the result to the bound channel without a model turn, and appends it"
)
def test_a_result_is_posted_without_a_model_turn_and_stands_in_the_transcript(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(100)
        assert world.driven("main") == [0.0]
        assert await entries(world) == ["user", "assistant", "event"]
        assert await world.told() == [["child"]]
        (key,) = await world.look(lambda tx: tx.runs.children(MAIN))
        run = await world.run(key)
        assert (run.phase.name, run.delivery) == ("completed", Delivered("direct"))
        at, message = outside.arrived[1]
        assert (at, message.about, message.to, message.status) == (1.0, "result", "ann", "ok")
        assert message.id == f"result:announce:v1:{key}:{run.run_id}"
        assert message.child_session_key == key
        assert message.text == '[Subagent] "child" completed successfully\n\n42'
        assert "already been shown this" in (await world.heard(kind="event"))[0]
        assert len(outside.arrived) == 2

    played(theatre, scene, {"main": delegate, "child": works(1, "42")}, rules=SEND)


def test_a_result_for_a_conversation_without_a_route_is_told_by_its_model(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await world.spawn("child")
        await world.clock.sleep(100)
        assert await world.heard(kind="assistant") == ["answer of main"]
        assert outside.tried == []

    played(theatre, scene, rules=SEND)


def test_a_result_below_a_run_is_read_by_that_run_and_not_posted(theatre: Theatre) -> None:
    async def below(stage: Stage) -> None:
        await stage.spawn("grandchild")
        await stage.wait()

    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(100)
        (key,) = await world.look(lambda tx: tx.runs.children(MAIN))
        assert await world.told(key) == [["grandchild"]]
        assert [message.about for _, message in outside.arrived] == ["reply", "result"]

    scripts = {"main": delegate, "child": in_turns(below, works(0, "done"))}
    played(theatre, scene, scripts, rules=SEND)


def test_a_result_that_comes_amid_a_turn_is_posted_at_once_and_the_turn_goes_on(theatre: Theatre) -> None:
    async def busy(stage: Stage) -> None:
        await stage.spawn("child")
        await stage.sleep(5)
        await stage.step("a tool's output")
        await stage.say("and something else")

    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(100)
        assert [(at, message.about) for at, message in outside.arrived] == [(1.0, "result"), (5.0, "reply")]
        assert await entries(world) == ["user", "event", "tool", "assistant"]
        assert world.driven("main") == [0.0]

    played(theatre, scene, {"main": busy, "child": works(1)}, rules=SEND)


# ---- what a person must see ------------------------------------------------------------------------------------------


def test_a_stuck_run_is_told_on_the_channel_of_the_conversation_above_it(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(500)
        notices = [message.text for _, message in outside.arrived if message.about == "notice"]
        assert notices == ["child: no progress for 300 s"]

    main = in_turns(delegate, works(0, "NO_REPLY"))
    played(theatre, scene, {"main": main, "child": works(10_000)})


def test_a_given_up_result_is_told_on_the_channel_of_whoever_is_left(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        other = "agent:main:other"
        await world.engine.commit(lambda c: spawn.open_conversation(c, other))
        key = await world.spawn("child", parent=other)
        await world.sleep_until(1)
        await world.engine.commit(lambda c: control.delete_session(c, other))
        await world.clock.sleep(60)
        assert (await world.run(key)).phase.name == "completed_giveup"
        assert outside.tried == []

    played(theatre, scene, {"child": works(2)})


def test_one_function_tells_a_person_and_the_same_key_twice_is_one_notice(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await hear(world, OPS, "hello", "m-1")
        key = await world.spawn("child")
        for _ in range(2):
            await world.engine.commit(lambda c: outbox.tell(c, key, "x", "something is wrong"))
        await world.engine.commit(lambda c: outbox.tell(c, "agent:main:nobody", "y", "to nobody"))
        await world.clock.sleep(20)
        notices = [(m.id, m.to, m.session_key) for _, m in outside.arrived if m.about == "notice"]
        assert notices == [("notice:x", "ann", MAIN)]

    played(theatre, scene, {"child": works(10)})


# ---- routes ----------------------------------------------------------------------------------------------------------


def bound(session: str, address: Address) -> Callable[[Commit], None]:
    return lambda c: c.tx.routes.set(Route(session=session, kind="bound", address=address, used_at=c.at))


def test_what_is_said_in_a_bound_place_is_said_to_its_session_whoever_says_it(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        other = "agent:main:other"
        await world.engine.commit(lambda c: spawn.open_conversation(c, other))
        await world.engine.commit(bound(other, OPS))
        assert await hear(world, Address("ops", "cyd", "t-1"), "hello", "m-1") == other
        assert await hear(world, Address("ops", "cyd", "t-2"), "hello", "m-2") == MAIN
        await world.clock.sleep(10)
        assert [(m.session_key, m.to, m.thread) for _, m in outside.arrived] == [
            (other, "cyd", "t-1"),
            (MAIN, "cyd", "t-2"),
        ]

    played(theatre, scene)


def test_a_bound_session_keeps_its_route_whoever_speaks_to_it_from_elsewhere(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        await world.engine.commit(bound(MAIN, OPS))
        await world.sleep_until(5)
        await hear(world, NEWS, "hello", "m-1")
        await world.clock.sleep(5)
        route = await world.look(lambda tx: tx.routes.get(MAIN))
        assert route is not None
        assert (route.kind, route.address) == ("bound", OPS)
        assert outside.heard == [("news", "bob", "answer of main")]
        before = route.used_at
        await hear(world, OPS, "hello", "m-2")
        route = await world.look(lambda tx: tx.routes.get(MAIN))
        assert route is not None
        assert route.used_at == before + 10

    played(theatre, scene)


@proves("0.timeline.6", "The route is `bound` or `hook` where a binding or a hook chose the target")
def test_the_trace_says_whether_the_answer_goes_to_a_bound_place() -> None:
    with closing(Acts()) as scene:
        for expected in ("fallback", "bound"):
            child = scene.orchestrator()
            scene.finish(child, "done")
            scene.read_main()
            (trace,) = scene.traces(scene.outcome_row(child.session).key)
            assert trace.route == expected
            scene.commit(bound(MAIN, OPS))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (("Ops", "ann", "", "hi", "m"), "channel"),
        (("ops", "", "", "hi", "m"), "to"),
        (("ops", "ann", "", "  ", "m"), "message"),
        (("ops", "ann", "", "x" * 200_001, "m"), "text"),
        (("ops", "ann", "", "hi", ""), "id"),
        (("ops", "ann", "", "hi", "m" * 513), "id"),
    ],
)
def test_what_cannot_be_taken_in_is_refused_by_its_field_and_changes_nothing(
    theatre: Theatre, given: tuple[str, str, str, str, str], field: str
) -> None:
    async def scene(world: World, outside: Outside) -> None:
        with pytest.raises(BadInput) as refused:
            await inbound(world.engine, *given)
        assert refused.value.field == field
        assert await world.look(lambda tx: (tx.inbox.unread(MAIN), tx.routes.get(MAIN))) == ([], None)

    played(theatre, scene)


def test_speaking_from_an_address_makes_it_the_route_and_words_of_another_session_do_not(theatre: Theatre) -> None:
    async def scene(world: World, outside: Outside) -> None:
        for address in (NEWS, OPS):
            origin = origin_of(address)
            await world.engine.commit(partial(control.send, key=MAIN, message="hi", origin=origin))
        await world.engine.commit(partial(control.send, key=MAIN, message="psst", source="agent:other:main"))
        route = await world.look(lambda tx: tx.routes.get(MAIN))
        assert route is not None
        assert (route.kind, route.address) == ("last", OPS)

    played(theatre, scene)


@proves("8.approvals.4", "It is asked on the root session's channel")
def test_a_call_that_needs_a_person_is_asked_on_the_channel_of_the_conversation_above_it_all() -> None:
    with closing(Acts()) as scene:
        child = scene.orchestrator()
        scene.commit(lambda c: bindings.follow(c, MAIN, OPS))
        call = CallEntry("id", "exec", '{"command": "rm -rf /\\n\\u001b[2J"}', "asked")
        scene.commit(lambda c: steps.replied(c, child, Replied(calls=(call,)), 0, 3600.0))
        (asked,) = scene.read(lambda tx: tx.approvals.open())
        (post,) = scene.read(lambda tx: tx.outbox.due(scene.clock.now(), 9))
        message = outbox.message_of(post)
        assert message is not None
        assert (message.id, message.about, message.address) == (f"approval:{asked.id}", "approval", OPS)
        assert (message.session_key, message.text) == (MAIN, steps.question(asked))
        assert message.text.startswith(f"waits for approval {asked.id[:8]}: exec ")
