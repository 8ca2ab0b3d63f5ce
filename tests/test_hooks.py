"""Hooks and the context engine from a program: functions, webhooks, threads, and what they cannot hold up."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import fledge
from fledge.channels.inbound import inbound
from fledge.config import check
from fledge.core.hook import DeliveryTarget, HookCall, HookEvent, SubagentEnded, SubagentSpawned, SubagentSpawning
from fledge.core.route import Address, ChannelMessage
from fledge.errors import BadInput, NotArrived, Refused
from fledge.hooks import Hooks
from fledge.orchestrator.commit import Listener
from fledge.runtime.outlet import Outlet, hooks_of
from fledge.store.base import OutboxPost
from tests.api.scene import Place
from tests.channels.receiver import SECRET, Answer, Receiver
from tests.statements import proves

ENDED = SubagentEnded(
    target_session_key="k", target_kind="subagent", run_id="r", reason="complete", outcome="ok", ended_at=1.0
)
TARGET = DeliveryTarget(
    child_session_key="k", requester_session_key="m", run_id="r", mode="run", expects_completion_message=True
)
SPAWNING = SubagentSpawning(
    child_session_key="k", requester_session_key="m", agent_id="main", label="", mode="session", channel="wall", to="u"
)


class Wall:
    """A channel that remembers."""

    def __init__(self) -> None:
        self.seen: list[ChannelMessage] = []

    async def send(self, message: ChannelMessage) -> None:
        self.seen.append(message)

    async def close(self) -> None:
        return


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def post(event: HookEvent, listener: str) -> OutboxPost:
    return OutboxPost("hook:x", "hook", "k", msgspec.json.encode(HookCall(listener, event)).decode(), 0, 0.0)


# ---- registering -----------------------------------------------------------------------------------------------------


def test_functions_are_registered_under_their_own_name_or_the_one_given_and_stay_as_they_are() -> None:
    hooks = Hooks()

    @hooks.on("subagent_ended", "subagent_spawned", retries=1)
    def note(event: HookEvent) -> None:
        return

    hooks.on("subagent_ended", name="second")(note)
    assert note(ENDED) is None
    assert Outlet({}, hooks.listening()).listeners == {
        "subagent_ended": (Listener("note", 1), Listener("second", 3)),
        "subagent_spawned": (Listener("note", 1),),
    }


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (lambda hooks: hooks.on("subagent_endet"), "hook"),
        (lambda hooks: hooks.on(), "hook"),
        (lambda hooks: hooks.on("subagent_ended", timeout_s=0), "timeout_s"),
        (lambda hooks: hooks.on("subagent_ended", retries=-1), "retries"),
        (lambda hooks: hooks.on("subagent_ended")(7), "function"),
        (lambda hooks: hooks.on("subagent_ended")(lambda event: None), "name"),
        (lambda hooks: hooks.on("subagent_ended", name="a b")(print), "name"),
        (lambda hooks: [hooks.on("subagent_ended")(print) for _ in range(2)], "name"),
    ],
)
def test_what_cannot_be_registered_is_refused_by_its_field(act: Callable[[Hooks], object], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        act(Hooks())
    assert refused.value.field == field


# ---- calling ---------------------------------------------------------------------------------------------------------


def test_async_and_plain_functions_are_called_with_the_event() -> None:
    hooks, seen = Hooks(), []

    @hooks.on("subagent_ended", name="plain")
    def plain(event: HookEvent) -> None:
        seen.append(("plain", event))

    @hooks.on("subagent_ended", name="waits")
    async def waits(event: HookEvent) -> None:
        await asyncio.sleep(0)
        seen.append(("waits", event))

    async def main() -> None:
        outlet = Outlet({}, hooks.listening())
        for name in ("plain", "waits"):
            assert await outlet.call(post(ENDED, name)) is None
        assert await outlet.call(post(ENDED, "not there any more")) is None
        await outlet.close()

    asyncio.run(main())
    assert seen == [("plain", ENDED), ("waits", ENDED)]


def test_a_function_that_raises_or_takes_too_long_has_not_been_told() -> None:
    hooks = Hooks()

    @hooks.on("subagent_ended", name="raises")
    def raises(event: HookEvent) -> None:
        raise ValueError("no")

    @hooks.on("subagent_ended", name="hangs", timeout_s=0.01)
    async def hangs(event: HookEvent) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        outlet = Outlet({}, hooks.listening())
        with pytest.raises(ValueError, match=r"^no$"):
            await outlet.call(post(ENDED, "raises"))
        with pytest.raises(NotArrived, match=r"^no answer within 0\.01 s$"):
            await outlet.call(post(ENDED, "hangs"))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "goes"),
    [
        (Address("wall", "bob"), Address("wall", "bob")),
        ({"channel": "wall", "to": "bob", "thread": "t"}, Address("wall", "bob", "t")),
        ({"channel": "door", "to": "bob"}, None),
        ("wall", None),
        (None, None),
    ],
)
def test_a_target_counts_only_on_a_channel_there_is(answer: object, goes: Address | None) -> None:
    hooks = Hooks()
    hooks.on("subagent_delivery_target", name="router")(lambda event: answer)

    async def main() -> None:
        outlet = Outlet({"wall": Wall()}, hooks.listening())
        assert await outlet.call(post(TARGET, "router")) == goes

    asyncio.run(main())


def test_a_webhook_gets_the_event_signed_under_the_posts_id_and_may_answer_json() -> None:
    async def main() -> None:
        answer = Answer(200, b'{"channel":"wall","to":"bob"}')
        async with Receiver(Answer(), Answer(200, b"thanks"), answer) as receiver:
            hook = {"url": receiver.url, "secretEnv": "S", "on": ["subagent_ended", "subagent_delivery_target"]}
            listening = hooks_of(check({"hooks": {"audit": hook}}).config, {"S": SECRET})
            assert (listening["audit"].retries, listening["audit"].on) == (3, tuple(hook["on"]))
            outlet = Outlet({"wall": Wall()}, listening)
            assert await outlet.call(post(ENDED, "audit")) is None
            assert await outlet.call(post(TARGET, "audit")) is None
            assert await outlet.call(post(TARGET, "audit")) == Address("wall", "bob")
            await outlet.close()
        assert (receiver.ids, receiver.complaints) == (["hook:x"] * 3, [])
        assert json.loads(receiver.bodies[0]) == {
            "hook": "subagent_ended",
            "channel": "",
            "to": "",
            "thread": "",
            "targetSessionKey": "k",
            "targetKind": "subagent",
            "runId": "r",
            "reason": "complete",
            "outcome": "ok",
            "error": "",
            "sendFarewell": False,
            "endedAt": 1.0,
        }

    asyncio.run(main())


def test_a_webhook_that_does_not_take_it_has_not_been_told() -> None:
    async def main() -> None:
        async with Receiver(Answer(503, headers={"Retry-After": "9"})) as receiver:
            hook = {"url": receiver.url, "secretEnv": "S"}
            outlet = Outlet({}, hooks_of(check({"hooks": {"audit": hook}}).config, {"S": SECRET}))
            with pytest.raises(NotArrived, match=r"^HTTP 503$") as raised:
                await outlet.call(post(ENDED, "audit"))
            assert raised.value.wait_s == 9.0
            await outlet.close()

    asyncio.run(main())


# ---- threads ---------------------------------------------------------------------------------------------------------


def spawning(*answers: object) -> Outlet:
    """Listeners of `subagent_spawning` that answer so; an exception is raised."""
    hooks = Hooks()
    for n, answer in enumerate(answers):

        def say(event: HookEvent, answer: object = answer) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

        hooks.on("subagent_spawning", name=f"n{n}")(say)
    return Outlet({"wall": Wall()}, hooks.listening())


READY = {"status": "ok", "threadBindingReady": True, "thread": "t"}


@proves("6.hooks.2", "There is a hook subagent_spawning")
@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((), "thread: no channel here can bind a thread: no hook is registered for subagent_spawning"),
        (({"status": "error", "error": "not now"},), "thread: the subagent_spawning hook refused it: not now"),
        (({"status": "ok"},), "thread: the subagent_spawning hook made no thread ready"),
        ((None,), "thread: the subagent_spawning hook made no thread ready"),
        ((ValueError("boom"),), "thread: the subagent_spawning hook n0 failed: boom"),
        ((READY, {"status": "error", "error": "a veto"}), None),
    ],
)
def test_hook_absence_an_error_answer_no_thread_and_a_throw_each_refuse_the_spawn_in_their_own_words(
    answers: tuple[object, ...], said: str | None
) -> None:
    async def main() -> None:
        if said is None:
            assert await spawning(*answers).bind(SPAWNING) == Address("wall", "u", "t")
            return
        with pytest.raises(Refused) as refused:
            await spawning(*answers).bind(SPAWNING)
        assert (refused.value.status, str(refused.value)) == ("error", said)

    asyncio.run(main())


@proves("3.params.10", "`thread` binds the session to a thread")
def test_a_child_in_a_thread_announces_its_first_task_and_then_talks_there(place: Place) -> None:
    hooks, wall = Hooks(), Wall()
    events: list[HookEvent] = []

    @hooks.on("subagent_spawning")
    async def thread(event: SubagentSpawning) -> dict[str, Any]:
        events.append(event)
        return {"threadBindingReady": True, "channel": "wall", "to": "ann", "thread": "t-1"}

    @hooks.on("subagent_spawned", "subagent_ended", name="news")
    async def news(event: HookEvent) -> None:
        events.append(event)

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Look around", label="eyes", thread=True)
        assert (await run).text == "echo: Look around"
        assert await inbound(fl.engine, "wall", "bob", "t-1", "and now?", "m-1") == run.session_key
        await fl.until(lambda tx: len(wall.seen) == 2 or None)
        assert [(m.to, m.thread, m.text, m.session_key) for m in wall.seen] == [
            ("ann", "t-1", "echo: Look around", run.session_key),
            ("bob", "t-1", "echo: and now?", run.session_key),
        ]
        assert [type(event) for event in events] == [SubagentSpawning, SubagentSpawned]
        assert events[1].address == Address("wall", "ann", "t-1")
        await run.kill()
        await fl.until(lambda tx: len(events) == 3 or None)
        over = events[2]
        assert isinstance(over, SubagentEnded)
        assert (over.reason, over.send_farewell) == ("killed", True)
        assert await inbound(fl.engine, "wall", "bob", "t-1", "still there?", "m-2") == "agent:main:main"

    place.act(body, hooks=hooks, channels={"wall": wall})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "thread: no channel here can bind a thread: no hook is registered for subagent_spawning"),
        ({"session": {"threadBindings": {"enabled": False}}}, "thread: session.threadBindings.enabled is false"),
    ],
)
def test_a_thread_that_cannot_be_bound_refuses_the_spawn_and_leaves_nothing(
    place: Place, config: dict[str, Any], said: str
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(Refused) as refused:
            await fl.spawn("Look around", thread=True)
        assert str(refused.value) == said
        assert await fl.engine.store.read(lambda tx: tx.runs.children(fl.program)) == []

    place.act(body, config=config)


# ---- the context engine ----------------------------------------------------------------------------------------------


class Keeper:
    """A context engine that remembers, and fails at first."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []
        self.fails = 1

    async def subagent_started(self, session_key: str, requester: str, timeout_s: float) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("not yet")
        self.heard.append((session_key, f"started for {requester}, {timeout_s:g} s"))

    async def subagent_ended(self, session_key: str, reason: str) -> None:
        self.heard.append((session_key, reason))


def test_a_context_engine_is_told_of_the_start_of_a_run_until_it_takes_it_and_then_of_its_end(place: Place) -> None:
    keeper = Keeper()

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello", timeout=60)
        await run
        await fl.until(lambda tx: keeper.heard[1:] or None)
        started = f"started for {fl.program}, 60 s"
        assert keeper.heard == [(run.session_key, started), (run.session_key, "completed")]

    place.act(body, context_engine=keeper)


NAMED = Keeper()
WORDS = "no engine"


def named(name: str) -> dict[str, Any]:
    return {"plugins": {"slots": {"contextEngine": name}}}


@proves("6.hooks.10", "A setting names the context engine, which is imported when a folder is opened")
def test_the_setting_names_the_context_engine_and_one_that_is_passed_takes_its_place(place: Place) -> None:
    passed = Keeper()

    async def body(fl: fledge.Fledge) -> str:
        run = await fl.spawn("Say hello")
        await run
        await fl.until(lambda tx: [*NAMED.heard, *passed.heard][1:] or None)
        return run.session_key

    key = place.act(body, config=named("tests.test_hooks:NAMED"))
    assert [(session, what.split()[0]) for session, what in NAMED.heard] == [(key, "started"), (key, "completed")]
    NAMED.heard.clear()
    place.act(body, config=named("tests.test_hooks:NAMED"), context_engine=passed)
    assert (NAMED.heard, len(passed.heard)) == ([], 2)


@proves("6.hooks.10")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("legacy", "must be an object of a Python module such as my_package.engine:engine"),
        ("a b:c", "must be an object of a Python module"),
        ("no_such_module:engine", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("tests.test_hooks:nothing", "cannot be imported: AttributeError: module 'tests.test_hooks' has no attribute"),
        ("tests.test_hooks:WORDS", "must be an object with the methods subagent_started and subagent_ended"),
        ("tests.test_hooks:Keeper", "must be an object with the methods subagent_started and subagent_ended"),
    ],
)
def test_a_context_engine_that_cannot_be_used_is_refused_by_the_name_of_its_setting(
    tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(BadInput) as refused:
        fledge.open(tmp_path, config=named(name))
    assert str(refused.value).startswith(f"plugins.slots.contextEngine: {reason}")


def test_an_object_that_is_no_context_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^context_engine: must be an object with the methods subagent_started and"):
        fledge.open(tmp_path, config={}, context_engine=cast(Any, Hooks()))


def test_without_one_what_an_earlier_process_posted_for_it_is_done() -> None:
    body = msgspec.json.encode({"sessionKey": "k", "reason": "swept"}).decode()
    assert asyncio.run(Outlet({}).call(OutboxPost("context:swept:k", "context", None, body, 0, 0.0))) is None


# ---- opening ---------------------------------------------------------------------------------------------------------


def test_a_channel_of_the_programs_own_must_be_one_and_have_a_plain_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^channels\.Wall: must be 1 to 64 lower-case"):
        fledge.open(tmp_path, channels={"Wall": Wall()})
    with pytest.raises(BadInput, match=r"^channels\.wall: must have the methods send\(message\) and close\(\)"):
        fledge.open(tmp_path, channels={"wall": 7})  # type: ignore[dict-item]
