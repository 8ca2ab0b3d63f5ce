"""Code of others that raises what usually ends a program: it fails alone, and the engine goes on.

Each case opens a folder, lets one piece of the user's code raise, and then asks for one more run in the same engine.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import fledge
from fledge.channels.inbound import inbound
from fledge.context_engine import Left
from fledge.core.hook import HookEvent
from fledge.core.route import ChannelMessage
from fledge.hooks import Hooks
from fledge.models.base import ModelEvent, ReplyEnded, Request, Text
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply, last_text, use
from fledge.runtime.base import Work
from tests.api.scene import Place
from tests.statements import proves


class Abort(BaseException):
    """Of a library that wants to get out."""


ERRORS = [Abort, GeneratorExit, KeyboardInterrupt, SystemExit, asyncio.CancelledError]
Raises = Callable[[], None]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=ERRORS, ids=lambda error: error.__name__)
def raises(request: pytest.FixtureRequest) -> Raises:
    """What a piece of code does here."""

    def fail() -> None:
        raise request.param("get out")

    fail.__name__ = request.param.__name__
    return fail


async def next_one(fl: fledge.Fledge) -> str:
    """The engine is still at work."""
    return (await (await fl.spawn("the next one"))).text


def answers(request: Request) -> Answer:
    return f"echo: {last_text(request)}"


# ---- models ----------------------------------------------------------------------------------------------------------


class AtTheCall:
    """Raises before there is a stream."""

    def __init__(self, fail: Raises) -> None:
        self._fail, self._model = fail, ScriptedModel(answers)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        if last_text(request) == "fail":
            self._fail()
        return self._model.stream(request)

    async def close(self) -> None:
        return


class InItsStream(AtTheCall):
    """Raises in the middle of its reply."""

    async def _stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        yield Text("half a w")
        if last_text(request) == "fail":
            self._fail()
        yield Text("ord")
        yield ReplyEnded("end", "mine")

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        return self._stream(request)


class InAGenerator(InItsStream):
    """Raises in a generator that its stream is made of."""

    async def _stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        async def words() -> AsyncIterator[str]:
            yield "half a w"
            if last_text(request) == "fail":
                self._fail()
            yield "ord"

        async for word in words():
            yield Text(word)
        yield ReplyEnded("end", "mine")


@proves(
    "0.crash.13", "Code that raises a BaseException fails alone; only a real cancellation or signal stops the engine"
)
@pytest.mark.parametrize("kind", [AtTheCall, InItsStream, InAGenerator])
def test_a_model_that_raises_fails_its_run(place: Place, raises: Raises, kind: type[AtTheCall]) -> None:
    async def body(fl: fledge.Fledge) -> None:
        failed = await (await fl.spawn("fail"))
        assert (failed.status, failed.error) == ("error", "internal error: get out")
        assert await next_one(fl) in ("echo: the next one", "half a word")

    place.act(body, kind(raises))


def test_a_model_that_raises_as_its_stream_is_closed_has_answered(place: Place, raises: Raises) -> None:
    class AtItsEnd(AtTheCall):
        async def _stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            try:
                yield Text("a word")
                yield ReplyEnded("end", "mine")
            finally:
                self._fail()

        def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            return self._stream(request)

    async def body(fl: fledge.Fledge) -> None:
        assert (await (await fl.spawn("go"))).text == "a word"
        assert await next_one(fl) == "a word"

    place.act(body, AtItsEnd(raises))


def test_a_conversation_whose_model_raises_hears_of_it_and_can_go_on(place: Place, raises: Raises) -> None:
    async def body(fl: fledge.Fledge) -> None:
        reply = await fl.session("main").send("fail")
        assert reply.status == "error"
        assert await next_one(fl) == "echo: the next one"

    place.act(body, AtTheCall(raises))


# ---- tools -----------------------------------------------------------------------------------------------------------


@proves("0.crash.13")
@pytest.mark.parametrize("beside", [0, 2])
def test_a_tool_that_raises_is_an_error_that_its_model_reads(place: Place, raises: Raises, beside: int) -> None:
    @fledge.tool
    async def fail() -> str:
        raises()
        return "never"

    @fledge.tool
    async def sleep() -> str:
        await asyncio.sleep(5)
        return "slept"

    def script(request: Request) -> Answer:
        if last_text(request) != "go":
            return f"I see: {' '.join(message.text for message in request.messages[2:])}"
        return ScriptedReply("", (use("fail"), *[use("sleep")] * beside))

    async def body(fl: fledge.Fledge) -> str:
        return (await (await fl.spawn("go"))).text

    said = place.act(body, ScriptedModel(script), tools=[fail, sleep])
    expected = f"{raises.__name__}: get out" if raises.__name__ != "CancelledError" else "it was cancelled from inside"
    assert said.startswith(f"I see: fail: {expected}")
    assert said.count("slept") == beside


# ---- everything else -------------------------------------------------------------------------------------------------


@proves("0.crash.13")
def test_a_runtime_that_raises_fails_its_run(place: Place, raises: Raises) -> None:
    async def work(work: Work) -> str:
        raises()
        return "never"

    async def body(fl: fledge.Fledge) -> None:
        failed = await (await fl.spawn("go", runtime="mine"))
        assert failed.status == "error"
        assert failed.error == f"{raises.__name__}: get out"
        assert await next_one(fl) == "echo: the next one"

    place.act(body, runtimes={"mine": work})


@proves("0.crash.13")
def test_hooks_and_the_context_engine_that_raise_change_no_run(
    place: Place, raises: Raises, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    hooks = Hooks()

    @hooks.on("subagent_spawned", "subagent_delivery_target", "subagent_ended", retries=1)
    async def note(event: HookEvent) -> None:
        told.append(type(event).__name__)
        raises()

    class Context:
        async def subagent_started(self, session_key: str, requester: str, timeout_s: float) -> None:
            told.append("context started")
            raises()

        async def subagent_ended(self, session_key: str, reason: Left) -> None:
            told.append(f"context {reason}")
            raises()

    async def body(fl: fledge.Fledge) -> None:
        assert (await (await fl.spawn("go"))).text == "echo: go"
        await asyncio.sleep(60)
        assert await next_one(fl) == "echo: the next one"

    with caplog.at_level(logging.CRITICAL, "fledge"):
        place.act(body, hooks=hooks, context_engine=Context())
    assert {"SubagentSpawned", "SubagentEnded", "context started", "context completed"} <= set(told)


@proves("0.crash.13")
def test_a_thread_that_a_hook_fails_to_make_refuses_the_spawn(place: Place, raises: Raises) -> None:
    hooks = Hooks()

    @hooks.on("subagent_spawning")
    async def make_thread(event: HookEvent) -> None:
        raises()

    class Wall:
        async def send(self, message: ChannelMessage) -> None:
            return

        async def close(self) -> None:
            return

    def script(request: Request) -> Answer:
        if last_text(request) == "go":
            return use("sessions_spawn", task="sit", thread=True, mode="session")
        return f"I see: {last_text(request)}"

    async def body(fl: fledge.Fledge) -> str:
        await inbound(fl.engine, "wall", "ann", "", "go", "m1")
        await asyncio.sleep(30)
        history = await fl.session("main").history()
        return history[-1].text

    said = place.act(body, ScriptedModel(script), hooks=hooks, channels={"wall": Wall()})
    assert "thread: the subagent_spawning hook make_thread failed: get out" in said


@proves("0.crash.13")
@pytest.mark.parametrize("is_async", [False, True])
def test_functions_that_are_told_of_ends_and_questions_may_raise(
    place: Place, raises: Raises, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def at_once(_: object) -> None:
        raises()

    async def later(_: object) -> None:
        await asyncio.sleep(1)
        raises()

    told: Callable[[object], Awaitable[None] | None] = later if is_async else at_once

    @fledge.tool
    async def careful() -> str:
        return "done"

    def script(request: Request) -> Answer:
        return use("careful") if last_text(request) == "ask" else f"echo: {last_text(request)}"

    async def body(fl: fledge.Fledge) -> None:
        fl.on_end(told)
        fl.on_approval(told)
        asking = await fl.spawn("ask")
        assert await next_one(fl) == "echo: the next one"
        await asyncio.sleep(5)
        assert (await asking.peek()).status == "pending"
        assert await next_one(fl) == "echo: the next one"

    config = {"tools": {"careful": {"approval": "ask"}}}
    with caplog.at_level(logging.CRITICAL, "fledge"):
        place.act(body, ScriptedModel(script), tools=[careful], config=config)
