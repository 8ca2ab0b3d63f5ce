"""System events and heartbeats that a program asks for: who reads them, when, and what is told of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.channels.base import Address, Message
from fledge.core.heartbeat import PROMPT
from fledge.models.base import Request, UserMessage
from fledge.models.scripted import Answer, last_text, use
from fledge.orchestrator import bindings
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.statements import proves

LONG = "The disk is full, and I could not free any of it. " * 10
MAIN = "agent:main:main"
ANN = Address("chat", "ann")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Chat:
    """A channel that keeps what it was given."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.to: list[Address] = []

    async def send(self, message: Message) -> None:
        self.sent.append(message.text)
        self.to.append(Address(message.channel, message.to, message.thread))

    async def close(self) -> None:
        """There is nothing to let go of."""


class Watcher:
    """Answers heartbeats with these words, everything else with an echo. Keeps what heartbeats began with."""

    def __init__(self, words: Answer = "HEARTBEAT_OK") -> None:
        self.words = words
        self.model = ScriptedModel(self._script)
        self.beats: list[list[str]] = []

    async def _script(self, request: Request) -> Answer:
        said = [message.text for message in request.messages if isinstance(message, UserMessage)]
        if last_text(request).startswith("wait "):
            await asyncio.sleep(float(last_text(request).split()[1]))
        if PROMPT not in said:
            return f"echo: {last_text(request)}"
        self.beats.append(said[said.index(PROMPT) :])
        return self.words


@proves(
    "5.heartbeat.15", "A system event is posted by API, gateway or command; an idle session reads it as a heartbeat"
)
def test_an_event_is_read_in_a_heartbeat_turn_that_may_say_nothing(place: Place) -> None:
    watcher, channel = Watcher(), Chat()

    async def body(fl: fledge.Fledge) -> list[str]:
        chat = fl.session("main", address=ANN)
        await chat.send("hello")
        assert await chat.post_event("The nightly build failed") is True
        assert await chat.settled(timeout=60)
        return [message.text for message in await chat.history()]

    said = place.act(body, watcher.model, channels={"chat": channel})
    assert watcher.beats == [[PROMPT, "[System event] The nightly build failed"]]
    assert channel.sent == ["echo: hello"]
    assert "HEARTBEAT_OK" in said


@proves("5.heartbeat.14")
def test_what_a_heartbeat_says_is_posted_and_kept_without_its_ok(place: Place) -> None:
    watcher, channel = Watcher(f"**HEARTBEAT_OK**\n\n{LONG}"), Chat()

    async def body(fl: fledge.Fledge) -> list[str]:
        chat = fl.session("main", address=ANN)
        await chat.send("hello")
        await fl.engine.commit(lambda c: bindings.follow(c, MAIN, ANN))
        heard = fl.listen()
        await chat.post_event("Look at the disk")
        assert await chat.settled(timeout=60)
        await asyncio.sleep(1)
        told = [event.text for event in heard.waiting() if event.kind in ("assistant:text", "end")]
        heard.close()
        return [*told, (await chat.history())[-1].text]

    assert place.act(body, watcher.model, channels={"chat": channel}) == [LONG] * 3
    assert channel.sent == ["echo: hello", LONG]


@proves("5.heartbeat.18", "`heartbeat.target` and `heartbeat.to` say where a heartbeat's words go")
@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, [ANN]),
        ({"target": "last"}, [ANN]),
        ({"to": "bob"}, [Address("chat", "bob")]),
        ({"target": "none"}, []),
        ({"target": "ops"}, []),
        ({"target": "ops", "to": "bob"}, [Address("ops", "bob")]),
    ],
)
def test_the_words_of_a_heartbeat_go_where_the_settings_say(
    place: Place, settings: dict[str, str], sent: list[Address]
) -> None:
    watcher, channels = Watcher("The disk is full."), {"chat": Chat(), "ops": Chat()}

    async def body(fl: fledge.Fledge) -> str:
        chat = fl.session("main", address=ANN)
        await chat.send("hello")
        await fl.engine.commit(lambda c: bindings.follow(c, MAIN, ANN))
        await chat.post_event("Look at the disk")
        assert await chat.settled(timeout=60)
        await asyncio.sleep(1)
        return (await chat.history())[-1].text

    config = {"agents": {"defaults": {"heartbeat": settings}}}
    assert place.act(body, watcher.model, channels=channels, config=config) == "The disk is full."
    assert channels["chat"].to[0] == ANN
    assert channels["chat"].to[1:] + channels["ops"].to == sent


@proves("5.heartbeat.19", "A heartbeat begins with the words of `heartbeat.prompt`, and with how to be silent")
def test_a_heartbeat_begins_with_the_prompt_of_the_settings(place: Place) -> None:
    model = ScriptedModel(lambda _: "HEARTBEAT_OK")

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("hello")
        await fl.session("main").request_heartbeat()
        await asyncio.sleep(5)

    config = {"agents": {"defaults": {"heartbeat": {"prompt": "Read the mail."}}}}
    place.act(body, model, config=config)
    assert said_to(model.requests[-1])[-1] == (
        "Read the mail.\n\nIf nothing needs attention, answer only HEARTBEAT_OK."
    )


@proves("5.heartbeat.16", "A heartbeat is asked for by API, gateway or command; that of a run is its conversation's")
def test_two_requests_for_a_heartbeat_at_once_are_one_heartbeat(place: Place) -> None:
    watcher = Watcher()

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        assert [await chat.request_heartbeat("a new day"), await chat.request_heartbeat()] == [MAIN, MAIN]
        assert await chat.settled(timeout=60)

    place.act(body, watcher.model)
    assert watcher.beats == [[PROMPT]]


@proves("5.heartbeat.16")
def test_a_heartbeat_asked_of_a_run_at_work_is_that_of_its_conversation(place: Place) -> None:
    async def script(request: Request) -> Answer:
        if "# Subagent Context" in request.system:
            await asyncio.sleep(100)
            return "done"
        if PROMPT in said_to(request):
            return "HEARTBEAT_OK"
        return "started" if len(request.messages) > 1 else use("sessions_spawn", task="work")

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("go")
        (run,) = await fl.runs(requester="main")
        assert await fl.session(run.session_key).request_heartbeat() == MAIN
        mine = await fl.spawn("work")
        with pytest.raises(fledge.Refused, match="belongs to a program"):
            await fl.session(mine.session_key).request_heartbeat()

    place.act(body, ScriptedModel(script))


def said_to(request: Request) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, UserMessage)]


@proves("5.heartbeat.15")
def test_a_busy_conversation_reads_an_event_at_its_next_step_and_once(place: Place) -> None:
    watcher = Watcher()

    async def body(fl: fledge.Fledge) -> list[str]:
        chat = fl.session("main")
        await chat.post("wait 5")
        await asyncio.sleep(1)
        assert await chat.post_event("first") is True
        assert await chat.post_event("first") is False
        assert await chat.post_event("second") is True
        assert await chat.settled(timeout=60)
        return [message.text for message in await chat.history() if message.role == "user"]

    said = place.act(body, watcher.model)
    assert [words for words in said if words.startswith("[System event]")] == [
        "[System event] first",
        "[System event] second",
    ]


@proves("5.heartbeat.15")
@proves("0.lost.1")
def test_an_event_outlives_the_process_that_posted_it(place: Place) -> None:
    watcher = Watcher()

    async def before(fl: fledge.Fledge) -> None:
        await fl.session("main").post_event("The nightly build failed")

    async def after(fl: fledge.Fledge) -> None:
        assert await fl.session("main").settled(timeout=60)

    place.act(before, watcher.model)
    assert watcher.beats == []
    place.act(after, watcher.model)
    assert watcher.beats == [[PROMPT, "[System event] The nightly build failed"]]


@pytest.mark.parametrize(
    ("key", "text", "error", "reason"),
    [
        ("main", " \n", fledge.BadInput, "text: must not be empty"),
        ("main", "x" * 4001, fledge.BadInput, "text: must be at most 4000 characters"),
        ("main", 3, fledge.BadInput, "text: must be text"),
        ("notes", "hello", fledge.NotFound, "no session agent:main:notes"),
        ("agent:main:subagent:nobody", "hello", fledge.NotFound, "no session agent:main:subagent:nobody"),
        ("other", "hello", fledge.Refused, "agent:main:other is a program's"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused_and_leaves_nothing_behind(
    place: Place, key: str, text: Any, error: type[Exception], reason: str
) -> None:
    async def open_other(fl: fledge.Fledge) -> None:
        await (await fl.spawn("hello"))

    place.act(open_other, program="other")

    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(error, match=reason):
            await fl.session(key).post_event(text)
        with pytest.raises(fledge.BadInput, match="reason: must be text"):
            await fl.session("main").request_heartbeat(3)  # type: ignore[arg-type]
        sessions = await fl.engine.store.read(
            lambda tx: [session.key for session, _ in tx.lists.recent_sessions(None, 99)]
        )
        assert "agent:main:notes" not in sessions

    place.act(body)


def test_who_waits_for_a_change_is_told_when_a_turn_opens(place: Place) -> None:
    """A heartbeat's turn opens after an hour in which nothing else changed."""

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        await chat.send("hello")
        began = fl.engine.clock.now()
        await fl.until(lambda tx: tx.turns.get(chat.key), timeout=7200)
        assert fl.engine.clock.now() - began == pytest.approx(3600, abs=1)

    async def script(request: Request) -> Answer:
        if last_text(request) != "hello":
            await asyncio.sleep(600)
        return "done"

    (place.folder / "HEARTBEAT.md").write_text("- look at the build\n")
    place.act(body, ScriptedModel(script), config={"agents": {"defaults": {"heartbeat": {"every": "1h"}}}})
