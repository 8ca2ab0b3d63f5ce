"""Hooks as rows: who is told what, once per run and listener; where an answer goes if somebody is asked; the context
engine."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.core.hook import DeliveryTarget, SubagentEnded, SubagentSpawned
from fledge.core.route import Address, origin_of
from fledge.orchestrator import bindings, control, inbox, outbox, recover, spawn
from fledge.orchestrator.commit import Listener, Rules
from fledge.store.base import OutboxPost
from fledge.testing import Script, Stage
from tests.orchestrator.outside import NEWS, OPS, Outside, delegate, hear, played
from tests.orchestrator.scene import Scene
from tests.orchestrator.stage import MAIN, PROGRAM, WIDE, Theatre, World, in_turns, works
from tests.orchestrator.test_resume import resume
from tests.statements import proves

SPAWNED, ENDED, TARGET = "subagent_spawned", "subagent_ended", "subagent_delivery_target"
ASKS = Rules(widths=WIDE, hooks={TARGET: (Listener("router"),)})
TOLD = Rules(widths=WIDE, hooks={SPAWNED: (Listener("a"), Listener("b")), ENDED: (Listener("b", retries=1),)})


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


# ---- news ------------------------------------------------------------------------------------------------------------


def test_every_listener_of_a_hook_gets_a_row_of_its_own_once_a_run(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        key = await world.spawn("child")
        await world.clock.sleep(5000)
        keys = [f"hook:{SPAWNED}:a:{key}", f"hook:{SPAWNED}:b:{key}", f"hook:{ENDED}:b:{key}"]
        posts = await world.look(lambda tx: [tx.outbox.get(one) for one in keys])
        assert [post.state for post in posts if post is not None] == ["sent"] * 3
        assert [type(event) for event in outside.events] == [SubagentSpawned, SubagentSpawned, SubagentEnded]

    played(theatre, play, {"child": works(1)}, TOLD)


def test_spawned_says_who_was_spawned_by_whom_and_where_it_was_asked_for(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(10)
        (key,) = await world.look(lambda tx: tx.runs.children(MAIN))
        run = await world.run(key)
        event = outside.events[0]
        assert event == SubagentSpawned(
            child_session_key=key,
            requester_session_key=MAIN,
            agent_id="main",
            label="child",
            mode="run",
            run_id=run.run_id,
            channel="ops",
            to="ann",
            thread="t-1",
        )

    played(theatre, play, {"main": in_turns(delegate)}, TOLD)


@pytest.mark.parametrize(
    ("script", "reason", "outcome"),
    [
        (works(1, "done"), "complete", "ok"),
        (works(1, "NO_REPLY"), "complete", "ok"),
        (works(100), "timeout", "timeout"),
    ],
)
def test_ended_says_how_it_came_out(theatre: Theatre, script: Script, reason: str, outcome: str) -> None:
    async def play(world: World, outside: Outside) -> None:
        key = await world.spawn("child", timeout_s=5.0)
        await world.clock.sleep(60)
        (event,) = [one for one in outside.events if isinstance(one, SubagentEnded)]
        assert (event.target_session_key, event.target_kind, event.reason, event.outcome) == (
            key,
            "subagent",
            reason,
            outcome,
        )
        assert (event.send_farewell, event.address) == (False, None)

    played(theatre, play, {"child": script}, TOLD)


def test_a_killed_run_ends_its_hook_as_killed_and_a_failed_one_with_its_error() -> None:
    with closing(Scene(hooks={ENDED: (Listener("a"),)})) as scene:
        main = scene.main()
        first, second = scene.begin(main), scene.begin(main)
        scene.kill(first.session)
        scene.exit(first)
        scene.fail(second, "no model")
        scene.finish(main, "NO_REPLY")
        scene.read_main()
        events = [
            call.event for post in scene.read(lambda tx: tx.outbox.due(1e12, 9)) if (call := outbox.call_of(post))
        ]
        told = [(one.reason, one.outcome, one.error) for one in events if isinstance(one, SubagentEnded)]
        assert told == [("killed", "killed", "killed"), ("error", "error", "no model")]


def test_a_listener_that_fails_is_tried_as_often_as_it_was_set_and_holds_up_no_other(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        async def failing(post: OutboxPost) -> Address | None:
            call = outbox.call_of(post)
            if call is not None and call.listener == "b":
                raise OSError("b is down")
            return None

        world.performer.calls = failing
        key = await world.spawn("child")
        await world.clock.sleep(100)
        assert await world.told() == [["child"]]
        called = [at for at, hook in world.performer.called if hook == ENDED]
        assert called == [1.0, 2.0]
        lost = await world.look(lambda tx: tx.outbox.undelivered())
        assert {post.key for post in lost} == {f"hook:{ENDED}:b:{key}", f"hook:{SPAWNED}:b:{key}"}
        assert (await world.run(key)).phase.name == "completed"

    played(theatre, play, {"child": works(1)}, TOLD)


# ---- where an answer goes --------------------------------------------------------------------------------------------


@proves("0.timeline.6")
@proves("6.hooks.3", "There is a hook subagent_delivery_target")
def test_a_hook_may_send_an_answer_elsewhere_and_the_trace_says_so(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        outside.answers = {"router": NEWS}
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(60)
        assert outside.heard == [("ops", "ann", "under way"), ("news", "bob", "the answer")]
        (event,) = outside.events
        assert isinstance(event, DeliveryTarget)
        assert (event.requester_session_key, event.address) == (MAIN, OPS)
        assert event.expects_completion_message

    main = in_turns(delegate, works(0, "the answer"))
    played(theatre, play, {"main": main, "child": works(5)}, ASKS)
    with closing(Scene(hooks=ASKS.hooks)) as scene:
        child = scene.orchestrator()
        scene.finish(child, "done")
        row = scene.outcome_row(child.session)
        assert (row.session, row.state, scene.phase(child.session)) == (None, "unread", "announcing")
        scene.commit(lambda c: inbox.aimed(c, child.session, NEWS))
        row = scene.outcome_row(child.session)
        assert (row.session, row.origin, row.route) == (MAIN, origin_of(NEWS), "hook")
        scene.read_main()
        assert [trace.route for trace in scene.traces(row.key)] == ["hook"]


@proves("6.hooks.3")
@pytest.mark.parametrize("how", ["silent", "fails", "hangs", "is gone"])
def test_without_an_answer_it_goes_where_it_would_have_gone(theatre: Theatre, how: str) -> None:
    async def play(world: World, outside: Outside) -> None:
        asked: list[float] = []

        async def call(post: OutboxPost) -> Address | None:
            if outbox.call_of(post) is None:
                return await outside.call(post)
            asked.append(world.at())
            if how == "fails":
                raise OSError("no")
            if how == "hangs":
                await asyncio.sleep(10)
                raise TimeoutError
            return None

        world.performer.calls = call
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(100)
        assert outside.heard == [("ops", "ann", "under way"), ("ops", "ann", "the answer")]
        assert asked == [5.0]
        assert outside.arrived[-1][0] == (15.0 if how == "hangs" else 5.0)

    main = in_turns(delegate, works(0, "the answer"))
    played(theatre, play, {"main": main, "child": works(5)}, ASKS)


def test_the_first_of_several_to_name_an_address_counts_and_silence_waits_for_all() -> None:
    with closing(Scene(hooks={TARGET: (Listener("one"), Listener("two"))})) as scene:
        for first, second, goes in ((None, NEWS, "hook"), (NEWS, OPS, "hook"), (None, None, "fallback")):
            child = scene.orchestrator()
            scene.finish(child, "done")
            posts = {post.key: post for post in scene.read(lambda tx: tx.outbox.due(1e12, 9))}
            for listener, answer in (("one", first), ("two", second)):
                post = posts[f"hook:{TARGET}:{listener}:{child.session}"]
                scene.commit(partial(recover.post_sent, post=post, answer=answer))
                if listener == "one":
                    waits = scene.outcome_row(child.session).session is None
                    assert waits is (first is None)
            row = scene.outcome_row(child.session)
            assert (row.session, row.route) == (MAIN, goes)
            assert row.origin == (origin_of(NEWS) if goes == "hook" else "")
            scene.read_main()


def test_nobody_is_asked_about_a_bound_requester_a_nested_one_a_program_or_a_quiet_run(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        await world.spawn("for a program", parent=PROGRAM)
        await world.spawn("quiet", expects=False)
        await world.engine.commit(lambda c: bindings.bind(c, MAIN, OPS))
        await world.spawn("of a bound one")
        await world.clock.sleep(60)
        assert outside.events == []
        assert await world.all_told() == ["of a bound one", "quiet"]

    played(theatre, play, {}, ASKS)


def test_a_nested_requester_is_told_without_anybody_being_asked(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        key = await world.spawn("child")
        await world.clock.sleep(60)
        assert await world.told(key) == [["grandchild"]]
        assert [type(event) for event in outside.events] == [DeliveryTarget]
        assert [one.child_session_key for one in outside.events if isinstance(one, DeliveryTarget)] == [key]

    async def below(stage: Stage) -> None:
        await stage.spawn("grandchild")
        await stage.wait()

    played(theatre, play, {"child": in_turns(below, works(0, "done"))}, ASKS)


def test_an_answer_that_waits_for_a_hook_outlives_a_crash_and_its_requester(theatre: Theatre) -> None:
    async def hanging(world: World) -> None:
        async def hang(post: OutboxPost) -> Address | None:
            await asyncio.sleep(1000)
            return None

        world.performer.calls = hang
        await world.spawn("child")
        await world.clock.sleep(5)
        assert await world.told() == []

    theatre.act(hanging, {"child": works(1)}, ASKS, ends="crashed")

    async def after(world: World, outside: Outside) -> None:
        await world.clock.sleep(5)
        assert [type(event) for event in outside.events] == [DeliveryTarget]
        assert await world.told() == [["child"]]

    played(theatre, after, rules=ASKS)


def test_a_requester_that_is_deleted_while_a_hook_is_asked_is_lost_as_usual() -> None:
    with closing(Scene(hooks=ASKS.hooks)) as scene:
        child = scene.orchestrator()
        scene.finish(child, "done")
        scene.delete()
        (post,) = scene.read(lambda tx: tx.outbox.due(1e12, 9))
        scene.commit(lambda c: recover.post_sent(c, post, NEWS))
        assert scene.phase(child.session) == "announce_deferred"


def test_with_deliver_send_the_result_is_posted_once_the_hook_has_answered(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        outside.answers = {"router": NEWS}
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(60)
        assert [(message.about, message.channel) for _, message in outside.arrived] == [
            ("reply", "ops"),
            ("result", "news"),
        ]
        assert world.driven("main") == [0.0]

    rules = msgspec.structs.replace(ASKS, deliver="send")
    played(theatre, play, {"main": in_turns(delegate), "child": works(5)}, rules)


@proves("4.yield.13")
@pytest.mark.parametrize("way", ["turn", "send"])
def test_a_conversation_that_waits_is_woken_once_the_hook_of_its_last_child_has_answered(way: str) -> None:
    with closing(Scene(hooks=ASKS.hooks, deliver=way)) as scene:
        main = scene.main()
        child = scene.begin(main)
        scene.wait(main)
        scene.finish(child, "done")
        assert scene.claimable() == []
        (post,) = scene.read(lambda tx: tx.outbox.due(1e12, 9))
        scene.commit(lambda c: recover.post_sent(c, post, NEWS))
        assert scene.claimable() == [MAIN]


# ---- the context engine ----------------------------------------------------------------------------------------------


def left(scene: Scene) -> list[tuple[str, str]]:
    return [(body["sessionKey"], body["reason"]) for body in told(scene) if body["reason"] != "started"]


def told(scene: Scene) -> list[dict[str, Any]]:
    """All that waits for the context engine, the oldest first."""
    posts = scene.sql("SELECT body FROM outbox WHERE kind = 'context' ORDER BY seq")
    return [msgspec.json.decode(body) for (body,) in posts]


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(context_engine=True)
    try:
        yield scene
        scene.check()
    finally:
        scene.close()


@proves("6.hooks.7", "The context engine hears completed, deleted, swept and released")
def test_the_context_engine_hears_of_a_kept_run_that_it_completed_and_later_that_it_was_swept(scene: Scene) -> None:
    child = scene.orchestrator()
    scene.finish(child, "done")
    assert left(scene) == []
    scene.read_main()
    assert left(scene) == [(child.session, "completed")]
    scene.pass_time(3600.0)
    assert left(scene) == [(child.session, "completed"), (child.session, "swept")]


@proves("6.hooks.7")
def test_the_context_engine_hears_of_a_run_that_was_deleted(scene: Scene) -> None:
    child = scene.orchestrator(cleanup="delete")
    scene.finish(child, "done")
    scene.read_main()
    assert left(scene) == [(child.session, "deleted")]


@proves("6.hooks.7")
def test_the_context_engine_hears_of_a_run_that_somebody_took_off_the_lists(scene: Scene) -> None:
    child = scene.orchestrator()
    scene.finish(child, "done")
    scene.read_main()
    scene.commit(lambda c: control.remove(c, child.session))
    assert left(scene) == [(child.session, "completed"), (child.session, "released")]


def test_the_context_engine_hears_of_a_killed_run_and_not_of_a_spawn_that_failed(scene: Scene) -> None:
    main = scene.main()
    child = scene.begin(main)
    key = scene.reserve(main)
    scene.commit(lambda c: spawn.failed(c, key, "no"))
    scene.kill(child.session)
    scene.exit(child)
    assert left(scene) == [(child.session, "completed")]


@proves("6.hooks.11", "The context engine hears of a run's start before its end, and again of a resume")
def test_the_context_engine_hears_of_the_start_and_of_a_resume_before_the_end_that_follows(scene: Scene) -> None:
    child = scene.begin(scene.main(), timeout_s=60.0)
    key = child.session
    started = {"sessionKey": key, "reason": "started", "requester": MAIN, "timeoutS": 60.0}
    assert told(scene) == [started]
    scene.kill(key)
    scene.exit(child)
    resume(scene, key)
    scene.kill(key)
    assert [body["reason"] for body in told(scene)] == ["started", "completed", "started", "completed"]
    (head,) = [post for post in scene.read(lambda tx: tx.outbox.due(1e12, 99)) if post.kind == "context"]
    assert msgspec.json.decode(head.body) == started, "the others wait for it"


def test_without_a_context_engine_nothing_is_posted() -> None:
    with closing(Scene()) as scene:
        child = scene.orchestrator()
        scene.finish(child, "done")
        scene.read_main()
        assert scene.read(lambda tx: tx.outbox.count_waiting()) == 0
