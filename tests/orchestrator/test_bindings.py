"""Bindings: which session a place outside belongs to, focus and unfocus, and how bindings end."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from fledge.channels.inbound import heard
from fledge.core.hook import SubagentEnded
from fledge.core.route import Address
from fledge.orchestrator import bindings, control, outbox, spawn
from fledge.orchestrator.commit import Commit, Listener, Rules
from fledge.store.base import Route
from fledge.testing import Stage
from tests.orchestrator.outside import NEWS, OPS, Outside, hear, played
from tests.orchestrator.scene import NOBODY, Scene, refused
from tests.orchestrator.stage import MAIN, WIDE, Theatre, World, in_turns, works
from tests.statements import proves

OTHER = "agent:main:other"
HOUR = 3600.0
LISTENS = {"subagent_ended": (Listener("audit"),)}


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene(hooks=LISTENS)
    try:
        yield scene
        scene.check()
    finally:
        scene.close()


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


def in_thread(scene: Scene, address: Address = OPS, **terms: Any) -> str:
    """A child that stays open in a thread, and has done its first task."""
    child = scene.orchestrator(mode="session", **terms)
    scene.commit(lambda c: bindings.bind(c, child.session, address, "ann"))
    scene.finish(child, "the first task is done")
    scene.read_main()
    return child.session


def ended(scene: Scene) -> list[SubagentEnded]:
    """What was posted to whoever listens to ends."""
    posts = scene.read(lambda tx: tx.outbox.due(1e12, 99))
    calls = [call for post in posts if (call := outbox.call_of(post)) is not None]
    return [call.event for call in calls if isinstance(call.event, SubagentEnded)]


def route(scene: Scene, key: str) -> Route | None:
    return scene.read(lambda tx: tx.routes.get(key))


def test_a_bound_place_is_its_sessions_until_it_is_unbound_and_then_the_main_conversations(scene: Scene) -> None:
    key = in_thread(scene)
    assert scene.commit(lambda c: heard(c, OPS, "hello", "m-1")) == key
    scene.commit(lambda c: bindings.unbind(c, key))
    assert scene.commit(lambda c: heard(c, OPS, "hello", "m-2")) == MAIN


def test_a_place_whose_session_is_gone_belongs_to_the_main_conversation_and_can_be_bound_again(scene: Scene) -> None:
    key = in_thread(scene)
    scene.delete(key)
    assert scene.read(lambda tx: bindings.session_at(tx, OPS)) is None
    assert scene.commit(lambda c: heard(c, OPS, "hello", "m-1")) == MAIN
    scene.commit(lambda c: bindings.bind(c, MAIN, OPS))


def test_an_archived_run_reads_no_more_in_the_place_it_was_focused_on(scene: Scene) -> None:
    child = scene.orchestrator()
    scene.finish(child, "done")
    scene.read_main()
    scene.commit(lambda c: bindings.bind(c, child.session, OPS))
    assert scene.read(lambda tx: bindings.session_at(tx, OPS)) == child.session
    scene.pass_time(HOUR)
    assert scene.phase(child.session) == "archived"
    assert scene.read(lambda tx: bindings.session_at(tx, OPS)) is None
    assert ended(scene)[0].reason == "complete"


def test_binding_is_refused_for_a_session_that_is_gone_and_for_a_place_that_is_taken(scene: Scene) -> None:
    key = in_thread(scene)
    with refused(scene, "error", f"no session {NOBODY}"):
        scene.commit(lambda c: bindings.bind(c, NOBODY, NEWS))
    with refused(scene, "error", f"{key} is bound there"):
        scene.commit(lambda c: bindings.bind(c, MAIN, OPS))
    with refused(scene, "bad input", "to: must not be empty"):
        scene.commit(lambda c: bindings.bind(c, MAIN, Address("ops", " ")))


def test_binding_is_refused_where_it_is_switched_off() -> None:
    scene = Scene(binds=False)
    with refused(scene, "forbidden", "session.threadBindings.enabled is false"):
        scene.commit(lambda c: bindings.bind(c, MAIN, OPS))
    scene.close()


# ---- the ended hook --------------------------------------------------------------------------------------------------


def test_the_first_task_of_a_thread_announces_and_ends_no_hook_and_is_never_archived(scene: Scene) -> None:
    key = in_thread(scene)
    assert scene.told(MAIN) == [key]
    assert ended(scene) == []
    scene.pass_time(365 * 86400.0)
    assert scene.phase(key) == "completed"


@proves("4.session.5", "The ended hook comes on unbind")
@pytest.mark.parametrize(
    ("leave", "reason", "outcome"),
    [
        (lambda c, key: bindings.unbind(c, key), "unbound", "reset"),
        (lambda c, key: bindings.unfocus(c, key, owner="ann"), "unbound", "reset"),
        (lambda c, key: control.kill(c, key), "killed", "killed"),
        (lambda c, key: control.delete_session(c, key), "deleted", "deleted"),
    ],
)
def test_the_ended_hook_of_a_thread_comes_on_unbind_kill_and_deletion_once_with_a_farewell(
    scene: Scene, leave: Callable[[Commit, str], object], reason: str, outcome: str
) -> None:
    key = in_thread(scene)
    scene.commit(lambda c: leave(c, key))
    (event,) = ended(scene)
    assert (event.target_session_key, event.reason, event.outcome) == (key, reason, outcome)
    assert (event.send_farewell, event.address) == (True, OPS)
    assert route(scene, key) is None
    scene.commit(lambda c: bindings.unbind(c, key))
    assert len(ended(scene)) == 1


def test_the_ended_hook_of_a_thread_comes_on_a_kill_amid_its_first_task(scene: Scene) -> None:
    child = scene.orchestrator(mode="session")
    scene.commit(lambda c: bindings.bind(c, child.session, OPS))
    scene.kill(child.session)
    assert ended(scene) == []
    scene.exit(child)
    (event,) = ended(scene)
    assert (event.reason, event.outcome, event.address) == ("killed", "killed", OPS)
    assert route(scene, child.session) is None


def test_stopping_the_conversation_above_leaves_an_idle_thread_open(scene: Scene) -> None:
    key = in_thread(scene)
    scene.stop()
    assert route(scene, key) is not None
    assert ended(scene) == []


def test_a_run_of_one_task_leaves_its_thread_when_it_ends(scene: Scene) -> None:
    child = scene.orchestrator()
    scene.commit(lambda c: bindings.bind(c, child.session, OPS))
    scene.finish(child, "done")
    assert route(scene, child.session) is not None
    scene.read_main()
    (event,) = ended(scene)
    assert (event.reason, event.outcome, event.send_farewell) == ("complete", "ok", True)
    assert route(scene, child.session) is None


def test_a_place_that_was_focused_on_a_run_stays_its_own_after_its_end_but_not_after_a_kill(scene: Scene) -> None:
    main = scene.main()
    first, second = scene.begin(main), scene.begin(main)
    for child, place in ((first, OPS), (second, NEWS)):
        scene.commit(partial(bindings.focus, session=MAIN, target=child.session, address=place))
    scene.finish(first, "done")
    scene.kill(second.session)
    scene.exit(second)
    scene.finish(main, "NO_REPLY")
    scene.read_main()
    assert [(event.reason, event.send_farewell) for event in ended(scene)] == [("killed", True), ("complete", False)]
    assert route(scene, second.session) is None
    assert scene.commit(lambda c: heard(c, OPS, "and then?", "m-1")) == first.session


def test_a_spawn_that_fails_after_its_thread_was_bound_says_farewell(scene: Scene) -> None:
    main = scene.main()
    key = scene.reserve(main, mode="session")
    scene.commit(lambda c: bindings.bind(c, key, OPS))
    scene.commit(lambda c: spawn.failed(c, key, "no attachments"))
    (event,) = ended(scene)
    assert (event.reason, event.outcome, event.send_farewell, event.address) == ("spawn-failed", "error", True, OPS)
    assert (route(scene, key), scene.read(lambda tx: tx.runs.find(key))) == (None, None)


def test_a_spawn_that_fails_without_a_thread_tells_nobody(scene: Scene) -> None:
    main = scene.main()
    key = scene.reserve(main)
    scene.commit(lambda c: spawn.failed(c, key, "no attachments"))
    assert ended(scene) == []


# ---- focus -----------------------------------------------------------------------------------------------------------


def test_focus_lets_the_place_a_session_was_spoken_to_from_speak_with_another(scene: Scene) -> None:
    child = scene.orchestrator()
    scene.commit(lambda c: heard(c, OPS, "hello", "m-1"))
    bound = scene.commit(lambda c: bindings.focus(c, MAIN, child.session, owner="ann"))
    assert (bound.address, bound.owner, bound.kind) == (OPS, "ann", "bound")
    assert scene.commit(lambda c: heard(c, OPS, "hello", "m-2")) == child.session
    again = scene.commit(lambda c: bindings.unfocus(c, child.session, owner="ann"))
    assert again.session == child.session
    assert scene.commit(lambda c: heard(c, OPS, "hello", "m-3")) == MAIN


def test_focus_on_another_session_takes_the_place_from_the_first(scene: Scene) -> None:
    key = in_thread(scene)
    scene.commit(lambda c: spawn.open_conversation(c, OTHER))
    scene.commit(lambda c: bindings.focus(c, key, OTHER, owner="ann"))
    assert scene.read(lambda tx: bindings.session_at(tx, OPS)) == OTHER
    assert [event.reason for event in ended(scene)] == ["unbound"]
    scene.commit(lambda c: bindings.focus(c, OTHER, OTHER, owner="ann"))
    assert scene.read(lambda tx: bindings.session_at(tx, OPS)) == OTHER


def test_focus_can_name_the_place(scene: Scene) -> None:
    scene.commit(lambda c: bindings.focus(c, MAIN, MAIN, NEWS))
    assert scene.read(lambda tx: bindings.session_at(tx, NEWS)) == MAIN
    assert scene.commit(lambda c: bindings.unfocus(c, "whatever", NEWS)).session == MAIN


def test_what_somebody_else_has_bound_is_theirs(scene: Scene) -> None:
    key = in_thread(scene)
    scene.commit(lambda c: spawn.open_conversation(c, OTHER))
    acts: list[Callable[..., object]] = [
        partial(bindings.focus, session=key, target=OTHER),
        partial(bindings.focus, session=MAIN, target=key, address=NEWS),
        partial(bindings.unfocus, session=key),
    ]
    for act in acts:
        for owner in ("bob", ""):
            with refused(scene, "forbidden", f"{key} was bound by another owner"):
                scene.commit(partial(act, owner=owner))


def test_without_a_place_or_a_binding_there_is_nothing_to_do(scene: Scene) -> None:
    with refused(scene, "error", f"{MAIN} has received no message from a channel: there is no place to bind"):
        scene.commit(lambda c: bindings.focus(c, MAIN, MAIN))
    with refused(scene, "error", "nothing is bound here"):
        scene.commit(lambda c: bindings.unfocus(c, MAIN))
    scene.commit(lambda c: heard(c, OPS, "hello", "m-1"))
    with refused(scene, "error", "nothing is bound here"):
        scene.commit(lambda c: bindings.unfocus(c, MAIN))
    with refused(scene, "error", "nothing is bound here"):
        scene.commit(lambda c: bindings.unfocus(c, MAIN, NEWS))
    with refused(scene, "error", f"no session {NOBODY}"):
        scene.commit(lambda c: bindings.focus(c, MAIN, NOBODY))


# ---- time ------------------------------------------------------------------------------------------------------------


def limits(idle_h: float, max_age_h: float) -> Rules:
    return Rules(widths=WIDE, hooks=LISTENS, binding_idle_s=idle_h * HOUR, binding_max_age_s=max_age_h * HOUR)


@proves("4.session.5")
@pytest.mark.parametrize(
    ("idle_h", "max_age_h", "ends_h", "why"),
    [(24, 0, 28, "idle"), (24, 10, 10, "max-age"), (0, 30, 30, "max-age"), (5, 30, 9, "idle")],
)
def test_a_binding_ends_a_while_after_the_last_word_or_at_its_age_and_says_so(
    theatre: Theatre, idle_h: float, max_age_h: float, ends_h: float, why: str
) -> None:
    async def play(world: World, outside: Outside) -> None:
        key = await world.spawn("child", mode="session")
        await world.engine.commit(lambda c: bindings.bind(c, key, OPS))
        await world.sleep_until(4 * HOUR)
        assert await hear(world, OPS, "hello", "m-1") == key
        await world.sleep_until(ends_h * HOUR - 1)
        assert await world.look(lambda tx: tx.routes.get(key)) is not None
        await world.clock.sleep(2)
        assert await world.look(lambda tx: tx.routes.get(key)) is None
        (event,) = outside.events
        assert isinstance(event, SubagentEnded)
        assert (event.reason, event.outcome, event.address) == (why, "reset", OPS)
        farewell = outside.arrived[-1][1]
        assert (farewell.about, farewell.address) == ("notice", OPS)
        assert farewell.text.startswith("this place is not bound to child any more: ")
        assert await hear(world, OPS, "hello?", "m-2") == MAIN

    played(theatre, play, {"child": works(1)}, limits(idle_h, max_age_h))


def test_without_limits_a_binding_stays(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        await world.engine.commit(lambda c: bindings.bind(c, MAIN, OPS))
        await world.clock.sleep(5000 * HOUR)
        assert await hear(world, OPS, "still here?", "m-1") == MAIN
        assert await world.look(lambda tx: tx.routes.get(MAIN)) is not None

    played(theatre, play, rules=limits(0, 0))


def test_a_binding_that_came_to_its_end_while_nobody_was_there_ends_at_the_start(theatre: Theatre) -> None:
    async def before(world: World) -> None:
        await world.engine.commit(lambda c: bindings.bind(c, MAIN, OPS))

    theatre.act(before, rules=limits(1, 0), ends="crashed")
    theatre.now += 2 * HOUR

    async def after(world: World, outside: Outside) -> None:
        await world.clock.sleep(1)
        assert await world.look(lambda tx: tx.routes.get(MAIN)) is None
        assert len(outside.arrived) == 1

    played(theatre, after, rules=limits(1, 0))


# ---- a thread's life -------------------------------------------------------------------------------------------------


@proves("3.params.9", "`mode` is run or session")
@proves("4.session.3", "Later thread turns reply to the thread")
def test_later_messages_of_a_thread_are_turns_of_the_child_whose_replies_go_to_the_thread(theatre: Theatre) -> None:
    async def play(world: World, outside: Outside) -> None:
        key = await world.spawn("child", mode="session")
        await world.engine.commit(lambda c: bindings.bind(c, key, OPS))
        await world.sleep_until(10)
        assert await world.told() == [["child"]]
        assert outside.heard == [("ops", "ann", "answer of child")]
        for n in range(2):
            assert await hear(world, Address("ops", "cyd", "t-1"), f"more {n}", f"m-{n}") == key
            await world.clock.sleep(10)
        assert outside.heard[1:] == [("ops", "cyd", "answer of child")] * 2
        assert await world.told() == [["child"]]
        run = await world.run(key)
        assert (run.attempt, run.phase.name) == (1, "completed")

    played(theatre, play, rules=Rules(widths=WIDE))


def test_a_thread_that_spawns_hears_its_own_childs_answer_and_says_it_in_the_thread(theatre: Theatre) -> None:
    async def below(stage: Stage) -> None:
        await stage.spawn("grandchild")
        await stage.say("I will look")

    async def play(world: World, outside: Outside) -> None:
        key = await world.spawn("child", mode="session")
        await world.engine.commit(lambda c: bindings.bind(c, key, OPS))
        await world.sleep_until(10)
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(20)
        assert await world.told(key) == [["grandchild"]]
        assert [text for _, _, text in outside.heard] == ["done", "I will look", "here it is"]
        assert {to for _, to, _ in outside.heard} == {"ann"}

    child = in_turns(works(1, "done"), below, works(0, "here it is"))
    played(theatre, play, {"child": child}, Rules(widths=WIDE))


@proves(
    "4.session.7",
    "A bound child's final words are posted to its thread once, and its requester gets its completion as always",
)
@pytest.mark.parametrize("mode", ["run", "session"])
def test_a_thread_hears_the_last_words_of_the_child_it_was_made_for(theatre: Theatre, mode: str) -> None:
    async def play(world: World, outside: Outside) -> None:
        key = await world.spawn("child", mode=mode)
        await world.engine.commit(lambda c: bindings.bind(c, key, OPS))
        await world.clock.sleep(60)
        assert await world.told() == [["child"]]
        run = await world.run(key)
        (message,) = [message for _, message in outside.arrived]
        assert (message.id, message.about) == (f"final:{key}:{run.run_id}", "reply")
        assert (message.address, message.session_key, message.text) == (OPS, key, "42")

    played(theatre, play, {"child": works(1, "42")}, Rules(widths=WIDE))


@proves("4.session.8", "Silence tokens and a kill post nothing to the thread, an error or timeout one line")
@pytest.mark.parametrize(
    ("words", "ends", "heard"),
    [
        ("NO_REPLY", "", []),
        ("ANNOUNCE_SKIP", "", []),
        ("42", "killed", []),
        ("42", "error", ['[Subagent] "w" failed: no model']),
        ("42", "timeout", ['[Subagent] "w" timed out']),
        ("", "", ['[Subagent] "w" completed successfully']),
    ],
)
def test_a_thread_hears_nothing_of_silence_or_a_kill_and_one_line_of_a_failure(
    scene: Scene, words: str, ends: str, heard: list[str]
) -> None:
    child = scene.orchestrator(timeout_s=60.0)
    scene.commit(lambda c: bindings.bind(c, child.session, OPS))
    match ends:
        case "killed":
            scene.kill(child.session)
            scene.exit(child)
        case "error":
            scene.fail(child, "no model")
        case "timeout":
            scene.pass_time(61.0)
        case _:
            scene.finish(child, words)
    posts = [outbox.message_of(post) for post in scene.read(lambda tx: tx.outbox.due(1e12, 99))]
    assert [(one.about, one.text) for one in posts if one is not None] == [("notice", line) for line in heard]


@proves("4.session.9", "If thread and requester share an address, only the thread hears the answer")
@pytest.mark.parametrize("deliver", ["turn", "send"])
def test_a_place_that_is_the_childs_thread_and_its_requesters_hears_the_answer_once(
    theatre: Theatre, deliver: Literal["turn", "send"]
) -> None:
    async def bound(stage: Stage) -> None:
        await stage.spawn("child")
        key = (await stage.engine.store.read(lambda tx: tx.runs.children(MAIN)))[-1]
        await stage.engine.commit(lambda c: bindings.bind(c, key, OPS))
        await stage.say("under way")

    async def play(world: World, outside: Outside) -> None:
        await hear(world, OPS, "look into it", "m-1")
        await world.clock.sleep(60)
        assert await world.told() == [["child"]]
        assert [text for _, _, text in outside.heard] == ["under way", "42"]
        assert "already been shown this" in (await world.heard(kind="event"))[0]

    scripts = {"main": in_turns(bound, works(0, "it is 42")), "child": works(5, "42")}
    played(theatre, play, scripts, Rules(widths=WIDE, deliver=deliver))


@proves("4.session.3")
def test_a_child_that_waits_answers_in_its_thread_and_its_last_words_come_later(theatre: Theatre) -> None:
    async def below(stage: Stage) -> None:
        await stage.spawn("grandchild")
        await stage.wait()

    async def play(world: World, outside: Outside) -> None:
        key = await world.spawn("child")
        await world.engine.commit(lambda c: bindings.bind(c, key, OPS))
        await world.sleep_until(10)
        assert await hear(world, OPS, "how is it going?", "m-1") == key
        await world.clock.sleep(100)
        assert [text for _, _, text in outside.heard] == ["still waiting", "all done"]
        assert await world.told() == [["child"]]

    child = in_turns(below, works(0, "still waiting"), works(0, "all done"))
    played(theatre, play, {"child": child, "grandchild": works(50)}, Rules(widths=WIDE))
