"""Channels, threads and hooks as a program opens them: where words go, who hears a child in a thread, and what cannot
be delivered."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.channels.base import Address, Message, Undeliverable
from fledge.channels.inbound import inbound, read_incoming
from fledge.hooks import HookEvent, Hooks, SubagentEnded
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.testing import ScriptedModel, use
from tests.api.scene import Place
from tests.channels.receiver import SECRET, Receiver
from tests.channels.receiver import Answer as Answered
from tests.statements import proves

ANN = Address("ops", "ann")
THREAD = Address("ops", "ann", "t-9")


class Wall:
    """A channel that remembers; `refuses` is what it raises instead."""

    def __init__(self, refuses: Exception | None = None) -> None:
        self.seen: list[Message] = []
        self.tried: list[float] = []
        self.refuses = refuses

    async def send(self, message: Message) -> None:
        self.tried.append(asyncio.get_running_loop().time())
        if self.refuses is not None:
            raise self.refuses
        self.seen.append(message)

    async def close(self) -> None:
        """Nothing is held."""

    @property
    def told(self) -> list[tuple[str, str]]:
        """Thread and words."""
        return [(message.thread, message.text) for message in self.seen]


class Threads:
    """Hooks that make a thread ready, remember ends, and may send answers elsewhere."""

    def __init__(self, thread: str = "t-9", target: object = None) -> None:
        self.hooks, self.ended = Hooks(), list[SubagentEnded]()

        @self.hooks.on("subagent_spawning")
        async def ready(event: HookEvent) -> object:
            return {"threadBindingReady": True, "thread": thread}

        @self.hooks.on("subagent_ended")
        async def ended(event: SubagentEnded) -> None:
            self.ended.append(event)

        if target is not None:

            @self.hooks.on("subagent_delivery_target")
            async def elsewhere(event: HookEvent) -> object:
                return target


def delegating(**params: Any) -> Callable[[Request], Answer]:
    """Main spawns a child when it is asked to, and tells what comes of it; the child says what it was asked to say."""

    def script(request: Request) -> Answer:
        words = last_text(request)
        if "Subagent Context" in request.system:
            return words.removeprefix("Say: ")
        if words.startswith("Say: "):
            return ScriptedReply("", (use("sessions_spawn", task=words, label="kid", **params),))
        return "Under way." if '"accepted"' in words else "The kid is done."

    return script


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def rested(fl: fledge.Fledge) -> None:
    """Wait until nothing is left to do, and everything was sent."""
    assert await fl.session("main").settled(timeout=600)
    await asyncio.sleep(60)


# ---- routes ----------------------------------------------------------------------------------------------------------


@proves("2.hops.23", "Speaking from an address makes it the session's route, whatever the door")
def test_what_nobody_asked_for_goes_to_the_address_that_was_last_spoken_from(place: Place) -> None:
    ops, news = Wall(), Wall()

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=Address("news", "bob")).send("Hello")
        await fl.session("main", address=ANN).send("Hello")
        assert (await fl.session("main").send("And this?")).ok
        await rested(fl)

    place.act(body, channels={"ops": ops, "news": news})
    assert [message.text for message in ops.seen] == ["echo: Hello", "echo: And this?"]
    assert [message.to for message in news.seen] == ["bob"]


@proves("2.hops.23")
def test_a_thread_is_asked_for_where_the_program_spoke_from(place: Place) -> None:
    ops, threads = Wall(), Threads()

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Hello")
        await fl.session("main").send("Say: 42")
        await rested(fl)

    place.act(body, ScriptedModel(delegating(thread=True)), channels={"ops": ops}, hooks=threads.hooks)
    assert ("t-9", "42") in ops.told


# ---- threads ---------------------------------------------------------------------------------------------------------


@proves("4.session.7")
@pytest.mark.parametrize("mode", ["run", "session"])
def test_the_thread_made_for_a_child_hears_its_first_answer_and_so_does_its_requester(place: Place, mode: str) -> None:
    ops, threads = Wall(), Threads()

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Say: 42")
        await rested(fl)

    model = ScriptedModel(delegating(thread=True, mode=mode))
    place.act(body, model, channels={"ops": ops}, hooks=threads.hooks)
    assert ops.told == [("", "Under way."), ("t-9", "42"), ("", "The kid is done.")]


@proves("6.hooks.8", "`subagent_ended` asks for a farewell when a run of one task leaves its thread")
def test_a_run_of_one_task_that_leaves_its_thread_asks_for_a_farewell(place: Place) -> None:
    threads = Threads()

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Say: 42")
        await rested(fl)

    model = ScriptedModel(delegating(thread=True, mode="run"))
    place.act(body, model, channels={"ops": Wall()}, hooks=threads.hooks)
    (event,) = threads.ended
    assert (event.outcome, event.send_farewell, event.address) == ("ok", True, THREAD)


@proves("4.session.9")
def test_a_thread_that_is_where_the_task_was_asked_for_hears_the_answer_once(place: Place) -> None:
    ops, threads = Wall(), Threads()

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=THREAD).send("Say: 42")
        await rested(fl)
        history = await fl.session("main").history()
        assert [message.text for message in history if message.role == "assistant"][-1] == "The kid is done."

    place.act(body, ScriptedModel(delegating(thread=True)), channels={"ops": ops}, hooks=threads.hooks)
    assert ops.told == [("t-9", "Under way."), ("t-9", "42")]


@proves("4.session.8")
def test_silence_says_nothing_in_the_thread(place: Place) -> None:
    ops, threads = Wall(), Threads()

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Say: NO_REPLY")
        await rested(fl)

    place.act(body, ScriptedModel(delegating(thread=True)), channels={"ops": ops}, hooks=threads.hooks)
    assert ops.told == [("", "Under way.")]


# ---- what cannot be delivered ----------------------------------------------------------------------------------------


def lost(place: Place, **options: Any) -> list[tuple[str, str]]:
    """Key and reason of what is undelivered."""

    async def body(fl: fledge.Fledge) -> list[tuple[str, str]]:
        posts = await fl.engine.store.read(lambda tx: tx.outbox.undelivered())
        return [(post.key.split(":")[0], post.error) for post in posts]

    return place.act(body, **options)


@proves("2.hops.24", "A permanent failure of a channel is given up at once, and its reason is kept")
def test_a_channel_that_can_never_deliver_is_tried_once_and_its_reason_is_kept(place: Place) -> None:
    ops = Wall(Undeliverable("unsupported channel"))

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Hello")
        await rested(fl)

    place.act(body, channels={"ops": ops})
    assert len(ops.tried) == 1
    assert lost(place, channels={"ops": ops}) == [("reply", "unsupported channel")]


@proves("2.hops.26", "Every list of what is undelivered has the results and the messages that could not be sent")
def test_a_message_that_could_not_be_sent_is_listed_retried_and_dismissed(place: Place) -> None:
    ops = Wall(Undeliverable("unsupported channel"))

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Hello")
        await rested(fl)
        (lost,) = await fl.undelivered()
        assert (lost.kind, lost.session_key, lost.text) == ("message", "agent:main:main", "echo: Hello")
        assert (lost.label, lost.reason) == ("ann on ops", "unsupported channel")
        await fl.retry(lost.key)
        await rested(fl)
        assert [again.key for again in await fl.undelivered()] == [lost.key]
        await fl.dismiss(lost.key)
        assert await fl.undelivered() == []
        with pytest.raises(fledge.NotFound):
            await fl.retry("reply:nobody")

    place.act(body, channels={"ops": ops})
    assert len(ops.tried) == 2


@proves("2.hops.24")
def test_any_other_failure_is_tried_again(place: Place) -> None:
    ops = Wall(OSError("no route"))

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Hello")
        await rested(fl)

    place.act(body, channels={"ops": ops})
    assert len(ops.tried) == 4
    assert lost(place, channels={"ops": ops}) == [("reply", "no route")]


@proves("2.hops.24")
def test_a_channel_that_is_not_there_any_more_is_given_up_at_once(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Hello")
        await asyncio.sleep(0.5)
        (post,) = await fl.engine.store.read(lambda tx: tx.outbox.undelivered())
        assert (post.tries, post.error) == (1, "no channel ops is configured")

    place.act(body)


@proves("2.hops.25", "A hook that names the terminal while nobody is there makes the reply undelivered")
@pytest.mark.parametrize("deliver", ["turn", "send"])
def test_an_answer_that_a_hook_sends_to_a_terminal_where_nobody_is_is_undelivered(place: Place, deliver: str) -> None:
    ops, threads = Wall(), Threads(target={"channel": "terminal", "to": "user"})
    options: dict[str, Any] = {"channels": {"ops": ops}, "hooks": threads.hooks}

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=ANN).send("Say: 42")
        await rested(fl)

    place.act(body, ScriptedModel(delegating()), config={"announce": {"deliver": deliver}}, **options)
    assert ops.told == [("", "Under way.")]
    kind = "reply" if deliver == "turn" else "result"
    assert lost(place, **options) == [(kind, "a hook chose the terminal, and no terminal is open")]


def test_words_for_somebody_who_left_the_terminal_wait_in_the_transcript(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main", address=Address("terminal", "user")).send("Hello")
        await rested(fl)

    place.act(body)
    assert lost(place) == []


def test_a_result_that_found_nobody_says_why(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await fl.session("other").send("Say: 42")
        await fl.session("other").delete()
        await asyncio.sleep(60)
        (given_up,) = await fl.undelivered()
        assert (given_up.text, given_up.reason) == ("42", "no requester is left")

    async def slow(request: Request) -> Answer:
        if "Subagent Context" in request.system:
            await asyncio.sleep(5)
        return delegating()(request)

    place.act(body, ScriptedModel(slow))


# ---- real webhooks ---------------------------------------------------------------------------------------------------


def over_http(folder: Path, receiver: Receiver, body: Callable[[fledge.Fledge], Awaitable[None]]) -> Awaitable[None]:
    """A program with a webhook channel and a webhook hook, in real time."""
    channel = {"kind": "webhook", "url": receiver.url, "secretEnv": "OPS_SECRET"}
    hook = {"url": receiver.url, "secretEnv": "OPS_SECRET", "on": ["subagent_spawning", "subagent_ended"]}
    config = {"channels": {"ops": channel}, "hooks": {"threads": hook}}

    async def main() -> None:
        env = {"OPS_SECRET": SECRET, "HOME": str(folder)}
        model = ScriptedModel(delegating(thread=True, mode="run"))
        opened = fledge.open(folder, model=model, config=config, env=env, workspace=folder)
        async with asyncio.timeout(30), opened as fl:
            await body(fl)

    return main()


def test_a_thread_hears_its_childs_first_answer_over_a_real_webhook(tmp_path: Path) -> None:
    ready = Answered(200, json.dumps({"threadBindingReady": True, "thread": "t-9"}).encode())

    async def main() -> None:
        async with Receiver(ready) as receiver:

            async def body(fl: fledge.Fledge) -> None:
                words = read_incoming(json.dumps({"sender": "ann", "text": "Say: 42"}).encode())
                await inbound(fl.engine, "ops", words.sender, words.thread, words.text, "m-1")
                await fl.until(lambda tx: len(receiver.bodies) == 5 or None)

            await over_http(tmp_path, receiver, body)
            assert receiver.complaints == []
            got = [json.loads(one) for one in receiver.bodies]
            assert [one["hook"] for one in got if "hook" in one] == ["subagent_spawning", "subagent_ended"]
            assert [one["sendFarewell"] for one in got if one.get("hook") == "subagent_ended"] == [True]
            told = [(one["to"], one.get("thread", ""), one["text"]) for one in got if "text" in one]
            assert sorted(told) == [("ann", "", "The kid is done."), ("ann", "", "Under way."), ("ann", "t-9", "42")]

    asyncio.run(main())


@proves("2.hops.24")
@pytest.mark.parametrize("status", [400, 410, 422])
def test_a_server_that_will_never_take_a_message_is_asked_once(tmp_path: Path, status: int) -> None:
    async def main() -> None:
        async with Receiver(Answered(status, b"gone")) as receiver:

            async def body(fl: fledge.Fledge) -> None:
                await fl.session("main", address=ANN).send("Hello")
                await fl.until(lambda tx: tx.outbox.undelivered() or None)
                (post,) = await fl.engine.store.read(lambda tx: tx.outbox.undelivered())
                assert (post.tries, post.error) == (1, f"HTTP {status}: gone")

            await over_http(tmp_path, receiver, body)
            assert len(receiver.bodies) == 1

    asyncio.run(main())
