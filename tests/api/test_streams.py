"""Streams of a run and of a conversation: phases, words and tools in order, their end, what a slow reader is told."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import fledge
from fledge.api.streams import RunEvent, RunLook, SessionWords, own, run_events
from fledge.api.values import Message, TimelineEvent
from fledge.models.base import Model, ModelEvent, Request, Text, ToolMessage, UserMessage
from fledge.models.scripted import Answer, CutReply, ScriptedReply, last_text, use
from fledge.runtime.feed import Feed, TurnEvent
from fledge.testing import ScriptedModel, run_virtual
from tests.api.scene import Place, obedient
from tests.scale.test_live import Speaker
from tests.statements import proves

T = TypeVar("T")
RUN = "agent:main:subagent:1"
SHOWN = ("phase", "assistant:text", "tool:start", "tool:end", "message", "retry", "lost", "reply")


@fledge.tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def adding(request: Request) -> Answer:
    """Adds, then says so."""
    if isinstance(request.messages[-1], ToolMessage):
        return "It is three."
    return ScriptedReply(text="Let me see.", calls=(use("add", a=1, b=2),))


def pieces(script: Any = adding, **options: Any) -> ScriptedModel:
    return ScriptedModel(script, piece_chars=4, **options)


GUARD_S = 30.0
FIRST = "Hold the slot"
"""The task of a child that works until another one is watched, which has no slot before."""


class Paced:
    """A model that says the next piece once the one before was heard, so that its end does not overtake its words. A
    child with the task `FIRST` ends once a watcher has heard something."""

    def __init__(self) -> None:
        self._model, self._is_watched = pieces(), asyncio.Event()
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, event: Any) -> None:
        """The watcher has this event."""
        self._is_watched.set()
        if event.kind == "assistant:text":
            self._heard.put_nowait(event.text)

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Add, then say so."""
        if FIRST in request.system:
            await self._is_watched.wait()
            async for event in ScriptedModel(lambda asked: "NO_REPLY").stream(request):
                yield event
            return
        async for event in self._model.stream(request):
            yield event
            if isinstance(event, Text):
                assert await self._heard.get() == event.text

    async def close(self) -> None:
        """Nothing is open."""


def shown(events: list[Any]) -> list[str]:
    """Each event in a word or two; streamed pieces of one reply are joined."""
    told: list[str] = []
    for event in events:
        if event.kind not in SHOWN:
            continue
        if event.kind == "assistant:text" and told and told[-1].startswith("> "):
            told[-1] += event.text
        elif event.kind == "assistant:text":
            told.append(f"> {event.text}")
        else:
            told.append(event.phase if event.kind == "phase" else f"{event.kind} {event.text}".strip())
    return told


@asynccontextmanager
async def holder(state: Path, **options: Any) -> AsyncIterator[fledge.Fledge]:
    options.setdefault("config", {})
    async with fledge.open(state, workspace=state.parent, tools=[add], **options) as fl:
        yield fl


@asynccontextmanager
async def guest(state: Path, **options: Any) -> AsyncIterator[fledge.Fledge]:
    async with holder(state, **options), fledge.connect(state) as fl:
        yield fl


def as_either(
    door: str, tmp_path: Path, body: Callable[[fledge.Fledge], Awaitable[T]], model: Model, **options: Any
) -> T:
    async def main() -> T:
        async with (guest if door == "guest" else holder)(tmp_path / "state", model=model, **options) as fl:
            return await body(fl)

    return asyncio.run(main())


DOORS = pytest.mark.parametrize("door", ["holder", "guest"])


@DOORS
@proves(
    "4.code.11", "run.events() tells phases, words and tools in order and ends when the run has settled, for guests too"
)
def test_a_run_is_watched_from_its_beginning_to_its_end(door: str, tmp_path: Path) -> None:
    model = Paced()

    async def body(fl: fledge.Fledge) -> list[str]:
        await fl.spawn(FIRST)
        run = await fl.spawn("Add one and two")
        events: list[Any] = []
        async for event in run.events():
            model.hear(event)
            events.append(event)
        return shown(events)

    one_at_once = {"agents": {"defaults": {"subagents": {"maxConcurrent": 1}}}}
    assert as_either(door, tmp_path, body, model, config=one_at_once) == [
        "spawning",
        "queued",
        "running",
        "> Let me see.",
        "tool:start add",
        "tool:end 3",
        "> It is three.",
        "announcing",
    ]


@DOORS
def test_a_reply_before_the_watch_is_told_before_what_follows_it(door: str, tmp_path: Path) -> None:
    has_added, watched = asyncio.Event(), asyncio.Event()

    async def script(request: Request) -> Answer:
        if isinstance(request.messages[-1], ToolMessage):
            has_added.set()
            await watched.wait()
        return await adding(request)

    async def body(fl: fledge.Fledge) -> list[str]:
        run = await fl.spawn("Add one and two")
        await has_added.wait()
        events: list[Any] = []
        async for event in run.events():
            watched.set()
            events.append(event)
        return [one for one in shown(events) if one.startswith(("> ", "message "))]

    said = as_either(door, tmp_path, body, pieces(script))
    assert (said[0], len(said)) == ("message Let me see.", 2)
    assert said[1].endswith("It is three.")


@DOORS
def test_a_run_that_is_over_is_told_from_what_was_committed(door: str, tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> list[str]:
        run = await fl.spawn("Add one and two")
        await run
        return shown([event async for event in run.events()])[:6]

    assert as_either(door, tmp_path, body, pieces()) == [
        "spawning",
        "queued",
        "running",
        "message Let me see.",
        "message It is three.",
        "announcing",
    ]


@DOORS
@proves(
    "4.code.12",
    "conversation.stream() ends with the whole reply; replies of which pieces were lost come whole before it",
)
def test_a_slow_reader_of_a_conversation_gets_every_reply_whole(door: str, tmp_path: Path) -> None:
    long = "word " * 2000

    def script(request: Request) -> Answer:
        if isinstance(request.messages[-1], ToolMessage):
            return "It is three."
        return ScriptedReply(text=long.strip(), calls=(use("add", a=1, b=2),))

    async def body(fl: fledge.Fledge) -> list[str]:
        events: list[Any] = []
        async for event in fl.session("main").stream("Add one and two"):
            events.append(event)
            if event.kind == "model:start":
                assert await fl.session("main").settled(timeout=60), "it reads nothing meanwhile"
        return shown(events)

    told = as_either(door, tmp_path, body, ScriptedModel(script, piece_chars=5))
    assert any(one.startswith("lost") for one in told)
    assert told[-2:] == [f"message {long.strip()}", "reply It is three."] or told[-3:] == [
        f"message {long.strip()}",
        "message It is three.",
        "reply It is three.",
    ]


@pytest.mark.parametrize("mode", ["followup", "steer"])
@DOORS
@proves("4.code.17", "conversation.stream() leaves out earlier turns and turns for other messages")
def test_a_stream_shows_the_answer_to_its_own_message_alone(door: str, mode: str, tmp_path: Path) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def script(request: Request) -> Answer:
        asked.set()
        await release.wait()
        if isinstance(request.messages[-1], ToolMessage):
            return "It is three."
        said = [one.text for one in request.messages if isinstance(one, UserMessage)]
        if said == ["first"]:
            return ScriptedReply(text="One moment.", calls=(use("add", a=1, b=2),))
        return f"You said {said[-1]}."

    async def main() -> list[str]:
        settings = {"messages": {"queue": {"people": mode}}}
        async with holder(tmp_path / "state", model=pieces(script), config=settings) as fl, AsyncExitStack() as stack:
            other = await stack.enter_async_context(fledge.connect(tmp_path / "state")) if door == "guest" else fl
            chat = other.session("main")
            await chat.post("first")
            await asked.wait()  # else one turn may read both
            streamed = asyncio.ensure_future(collected(chat.stream("second")))
            async with asyncio.timeout(GUARD_S):
                while not await fl.engine.store.read(lambda tx: tx.inbox.unread(chat.key, 1)):
                    pass
            if mode == "followup":
                await chat.post("third")
            release.set()
            return shown(await streamed)

    assert asyncio.run(main()) == ["> You said second.", "reply You said second."]


async def collected(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


@DOORS
def test_a_stream_says_what_a_reply_came_to_when_there_is_none(door: str, tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> Any:
        return [event async for event in fl.session("main").stream("Hello")][-1]

    last = as_either(door, tmp_path, body, ScriptedModel(lambda _: "", failures={1: "auth"}))
    assert isinstance(last, fledge.Reply)
    assert (last.kind, last.status) == ("reply", "error")


def test_words_of_a_try_that_broke_are_not_taken_for_the_reply(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> list[str]:
        return shown([event async for event in (await fl.spawn("Say hello")).events()])

    model = ScriptedModel(lambda _: "Hello there.", failures={1: CutReply(after=1)}, piece_chars=4)
    told = Place(tmp_path).act(body, model)
    assert told[3] == "> Hell"
    assert told[4].startswith("retry")
    assert told[5:] == ["> Hello there.", "announcing"]


def test_a_stream_ends_when_the_run_is_killed(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Wait for me")
        told: list[str] = []
        async for event in run.events():
            told += shown([event])
            if told[-1] == "running":
                await run.kill()
        assert "cleanup_pending" in told

    Place(tmp_path).act(body)


def test_whoever_watches_a_run_is_told_when_the_folder_is_closed(tmp_path: Path) -> None:
    async def watch(run: fledge.Handle[Any]) -> None:
        async for _ in run.events():
            pass

    async def body(fl: fledge.Fledge) -> asyncio.Future[None]:
        watching = asyncio.ensure_future(watch(await fl.spawn("Wait for me")))
        await asyncio.sleep(1)
        return watching

    async def acting() -> None:
        async with fledge.open(tmp_path / "state", model=ScriptedModel(obedient), config={}, workspace=tmp_path) as fl:
            watching = await body(fl)
        with pytest.raises(fledge.Refused, match="closed"):
            await watching

    run_virtual(acting())


async def first_text(events: AsyncGenerator[Any, None], told: list[str]) -> None:
    """Take events up to the first text, and add it."""
    async for event in events:
        if event.kind == "assistant:text":
            told.append(event.text)
            return


@DOORS
@proves("7.live.7")
def test_a_reader_who_comes_in_the_middle_of_a_reply_gets_its_text_so_far(door: str, tmp_path: Path) -> None:
    speaker = Speaker()

    async def body(fl: fledge.Fledge) -> list[list[str]]:
        early = fl.listen()
        run = await fl.spawn("Tell me a story")
        for piece in ("Once ", "upon "):
            speaker.pieces.put_nowait(piece)
        while (await anext(early)).text != "upon ":
            pass
        readers = [run.events(), run.events(), fl.session(run.session_key).follow(), run.events()]
        told: list[list[str]] = [[] for _ in readers]
        for reader, texts in zip(readers, told, strict=True):
            await first_text(reader, texts)
        late = fl.listen()
        told.append([event.text for event in late.waiting() if event.kind == "assistant:text"])
        speaker.pieces.put_nowait("a time")
        for reader, texts in zip(readers, told, strict=False):
            await first_text(reader, texts)
        speaker.pieces.put_nowait(None)
        assert (await run.result()).text == "Once upon a time"
        rest = [
            [event.kind async for event in reader if event.kind == "message"] for reader in (*readers[:2], readers[3])
        ]
        assert rest == [[], [], []]
        await readers[2].aclose()
        return told

    assert as_either(door, tmp_path, body, speaker) == [["Once upon ", "a time"]] * 4 + [["Once upon "]]


@DOORS
def test_a_conversation_is_followed_from_any_entry_over_all_its_turns(door: str, tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> list[str]:
        chat = fl.session("main")
        first = await chat.send("one")
        events = chat.follow(after=0)
        told = [shown([event]) for event in [await anext(events)]]
        for text in ("two", "three"):
            assert (await chat.send(text)).ok
        while len(told) < 3:
            told += [words for event in [await anext(events)] if (words := shown([event]))]
        await events.aclose()
        assert first.ok
        return [word for words in told for word in words]

    model = ScriptedModel(lambda request: f"heard {last_text(request)}")
    assert as_either(door, tmp_path, body, model) == ["message heard one", "> heard two", "> heard three"]


# ---- words held against replies --------------------------------------------------------------------------------------


def said(seq: int, text: str) -> Message:
    return Message(seq=seq, at=0.0, role="assistant", text=text)


def heard(words: SessionWords, *events: TurnEvent) -> list[str]:
    found = [one for event in events for one in words.heard(event)]
    return [event.text for event in found if event.kind == "assistant:text"]


def begins(entry: int) -> TurnEvent:
    """A step begins."""
    return TurnEvent("model:start", "s", entry=entry)


def piece(text: str, entry: int, offset: int = 0) -> TurnEvent:
    """A piece of the reply that follows this entry."""
    return TurnEvent("assistant:text", "s", text, entry=entry, offset=offset)


LOST = TurnEvent("lost", "", count=1)


def test_what_was_heard_whole_is_not_told_again() -> None:
    words = SessionWords("s", 4)
    assert heard(words, begins(5), piece("ab", 5), piece("c", 5, 2)) == ["ab", "c"]
    assert words.committed([said(3, "old"), said(6, "abc")]) == []
    assert words.told == 6


def test_a_reply_that_was_missed_is_told_whole_and_its_late_pieces_are_not() -> None:
    words = SessionWords("s")
    assert heard(words, begins(1), piece("a", 1)) == ["a"]
    assert [(event.text, event.entry) for event in words.committed([said(2, "abc")])] == [("abc", 2)]
    assert heard(words, piece("bc", 1, 1), begins(3), piece("d", 3)) == ["d"]


def test_nothing_streams_of_a_reply_whose_beginning_was_lost() -> None:
    words = SessionWords("s")
    assert heard(words, piece("x", 1, 3)) == []
    assert heard(words, begins(1), LOST, piece("b", 1, 1)) == []
    assert [event.text for event in words.committed([said(2, "ab")])] == ["ab"]


def test_a_step_that_began_before_its_reply_was_told_streams_nothing() -> None:
    words = SessionWords("s")
    assert [event.text for event in words.committed([said(2, "ab")])] == ["ab"]
    assert heard(words, begins(1), piece("ab", 1)) == []


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([piece("ab", 1)], ["ab"]),
        ([piece("ab", 1), piece("c", 1, 2)], ["ab", "c"]),
        ([piece("ab", 1), piece("ab", 1)], ["ab"]),
        ([piece("ab", 1), piece("abcd", 1)], ["ab", "cd"]),
        ([piece("ab", 1), piece("bcd", 1, 1)], ["ab", "cd"]),
        ([piece("ab", 1), LOST, piece("abcd", 1), piece("e", 1, 4)], ["ab", "cd", "e"]),
        ([piece("ab", 1), LOST, piece("e", 1, 4), piece("abcde", 1)], ["ab", "cde"]),
        ([piece("ab", 1), LOST, piece("c", 1, 2)], ["ab", "c"]),
        ([piece("ab", 1), begins(1), piece("xy", 1)], ["ab", "xy"]),
        ([piece("ab", 1), TurnEvent("retry", "s"), piece("xy", 1)], ["ab", "xy"]),
    ],
)
def test_the_text_so_far_and_the_pieces_after_it_are_told_once(events: list[TurnEvent], told: list[str]) -> None:
    assert heard(SessionWords("s"), *events) == told


def test_a_reply_in_two_parts_is_heard_as_one_and_other_sessions_are_not() -> None:
    words = SessionWords("s")
    assert words.heard(TurnEvent("assistant:text", "other", "x")) == []
    heard(words, begins(1), piece("ab", 1), begins(3), piece("c", 3))
    assert words.committed([said(4, "abc"), said(5, "")]) == []


class Source:
    """Rows and words of a run that move while they are looked at: `looks` are done one after the other."""

    def __init__(self, *looks: Callable[["Source"], RunLook]) -> None:
        self.feed, self._looks = Feed(), list(looks)
        self.moved = asyncio.Event()

    def watch(self, moved: asyncio.Event, key: str) -> None:
        assert key == RUN
        self.moved = moved

    def unwatch(self, moved: asyncio.Event, key: str) -> None:
        assert (moved, key) == (self.moved, RUN)

    async def look(self, told: int, after: int) -> RunLook:
        return self._looks.pop(0)(self)

    def events(self) -> AsyncGenerator[RunEvent, None]:
        return run_events(RUN, self.feed, self, self.look)


def phase(name: str) -> TimelineEvent:
    return TimelineEvent(at=0.0, name=name, phase=name, attempt=1, words=name)


def test_what_moves_while_it_is_looked_at_is_looked_at_again_and_phases_come_before_their_words() -> None:
    def first(source: Source) -> RunLook:
        source.moved.set()
        source.feed.emit(TurnEvent("start", RUN))
        source.feed.emit(TurnEvent("model:start", RUN))
        source.feed.emit(TurnEvent("assistant:text", RUN, "hello"))
        return RunLook([phase("spawning"), phase("queued")], [], False)

    def second(source: Source) -> RunLook:
        return RunLook([phase("running"), phase("announcing")], [], True)

    async def told() -> list[str]:
        events = Source(first, second).events()
        async with asyncio.timeout(5):
            return [event.phase if event.kind == "phase" else event.kind async for event in events]

    assert asyncio.run(told()) == [
        *("spawning", "queued", "running"),
        *("start", "model:start", "assistant:text"),
        "announcing",
    ]


def test_a_reply_that_was_not_heard_comes_before_the_tools_it_calls() -> None:
    def first(source: Source) -> RunLook:
        source.feed.emit(TurnEvent("tool:start", RUN, "add", entry=2))
        source.feed.emit(TurnEvent("model:start", RUN, entry=3))
        source.feed.emit(TurnEvent("assistant:text", RUN, "It is three.", entry=3))
        return RunLook([phase("running")], [], False)

    def second(source: Source) -> RunLook:
        return RunLook([phase("announcing")], [said(2, "Let me see."), said(4, "It is three.")], True)

    async def told() -> list[str]:
        events = Source(first, second).events()
        async with asyncio.timeout(5):
            return shown([event async for event in events])

    assert asyncio.run(told()) == [
        *("running", "message Let me see.", "tool:start add"),
        *("> It is three.", "announcing"),
    ]


# ---- which replies answer a message ----------------------------------------------------------------------------------


def entries(*lines: str) -> list[Message]:
    """A transcript: `me` and `other` are messages, `event` completions, `yield` and `call` replies with calls, all else
    a final reply."""
    found: list[Message] = []
    for seq, line in enumerate(lines, 1):
        if line in ("me", "other"):
            found.append(Message(seq=seq, at=0.0, role="user", text=line, kind="send", run_id=line))
        elif line == "event":
            found.append(Message(seq=seq, at=0.0, role="event", text=line))
        elif line in ("yield", "call"):
            calls = ("sessions_yield {}" if line == "yield" else "read {}",)
            found.append(Message(seq=seq, at=0.0, role="assistant", text=line, calls=calls))
        else:
            found.append(Message(seq=seq, at=0.0, role="assistant", text=line))
    return found


@pytest.mark.parametrize(
    ("lines", "replies", "goes_on"),
    [
        ("other call", "", False),
        ("other call me", "", True),
        ("other call done me call", "call", True),
        ("me call other call done", "call call done", False),
        ("me done other call done", "done", False),
        ("me done event done", "done", False),
        ("me yield", "yield", True),
        ("me yield other", "yield", False),
        ("me yield other call done", "yield", False),
        ("me yield other done event call", "yield call", True),
        ("me yield event done", "yield done", False),
    ],
)
def test_the_answer_to_a_message_begins_when_it_is_read_and_ends_with_a_final_reply(
    lines: str, replies: str, goes_on: bool
) -> None:
    found = own(entries(*lines.split()), "me")
    assert ([reply.text for reply in found.replies], found.goes_on) == (replies.split(), goes_on)


def test_an_empty_reply_is_asked_for_again_and_ends_nothing() -> None:
    assert own([*entries("me"), Message(seq=2, at=0.0, role="assistant", text="")], "me").goes_on
