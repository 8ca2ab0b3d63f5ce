"""`fledge` alone, in a real pseudo-terminal and through a pipe, against a strict model server."""

import asyncio
import fcntl
import os
import pty
import random
import re
import select
import signal
import sqlite3
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.channels.base import Channel
from fledge.cli.chat import Chat, ScreenChannel
from fledge.cli.chat_commands import Completions
from fledge.cli.chat_questions import from_home
from fledge.cli.term.plain import item_lines
from fledge.cli.term.shown import (
    ChatItem,
    Leave,
    OpenQuestion,
    OutputItem,
    Screen,
    SpokenItem,
    StopWanted,
    TurnShown,
    Wish,
    WordsSent,
    WorkingChild,
)
from fledge.cli.where import Where
from fledge.client.connection import ControlSocket, WireFeed
from fledge.client.driving import Driving
from fledge.client.folder import Client, Elsewhere, Folder
from fledge.core.keys import main_key
from fledge.models.base import Broke, ModelEvent, ReplyEnded, Request, Text
from fledge.models.scripted import Answer, echo, last_text, use
from fledge.runtime.feed import TurnEvent
from fledge.store.files import DATABASE
from fledge.testing import START, InlineStore, ScriptedModel, SeededIds, VirtualClock, run_virtual
from tests import images
from tests.cli.chat_server import talk
from tests.cli.model_server import MODEL, Model, serving, until, workspace
from tests.gateway import serving as gateway
from tests.statements import proves

PATIENCE_S = 60.0
CTRL_C, CTRL_D, ENTER, ALT_ENTER = "\x03", "\x04", "\r", "\x1b\r"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, talk) as model:
        yield model


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return workspace(tmp_path)


class Terminal:
    """A process in a terminal of its own: type, and see what comes."""

    def __init__(self, process: "subprocess.Popen[bytes]", screen: int) -> None:
        self.process, self._screen = process, screen
        self._raw = b""
        self._read = 0
        self.tries = 0

    @property
    def text(self) -> str:
        """Everything that was written, without what moves the cursor."""
        return ESCAPES.sub("", self._raw.decode("utf-8", "replace"))

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def see(self, words: str) -> None:
        """Wait until these words are written, after those seen before."""
        until = time.monotonic() + PATIENCE_S
        while words not in self.text[self._read :]:
            assert time.monotonic() < until, f"never came: {words!r} in {self.text[self._read :][-2000:]!r}"
            self._more(words)
        self._read += self.text[self._read :].index(words) + len(words)

    def await_prompt(self) -> None:
        """Wait until keys are read one by one: only then are they more than letters."""
        while b"\x1b[?2004h" not in self._raw:
            self._more("the prompt")

    def _more(self, words: str) -> None:
        ready, _, _ = select.select([self._screen], [], [], PATIENCE_S)
        assert ready, f"never came: {words!r} in {self.text[self._read :]!r} after {self.text[: self._read]!r}"
        try:
            piece = os.read(self._screen, 65536)
        except OSError:
            piece = b""
        assert piece, f"it ended before {words!r}: {self.text[self._read :]!r}"
        if b"\x1b[6n" in piece:
            self.type("\x1b[1;1R")  # it asks where the cursor is
        self._raw += piece

    def leave(self, keys: str) -> int:
        """Type this until it ends, as people do: of keys typed twice while something is printed one may get lost."""
        while True:
            self.type(keys)
            try:
                return self.process.wait(timeout=PATIENCE_S / 10)
            except subprocess.TimeoutExpired:
                self.tries += 1
                assert self.tries < 10, f"it does not end: {self.text[-500:]!r}"

    def say(self, line: str) -> None:
        self.type(line)
        self.see(line)
        self.type(ENTER)


@contextmanager
def chatting(model: Model, work: Path, *options: str, bare: Path | None = None) -> Iterator[Terminal]:
    """A chat in a terminal; `bare`: a folder whose modules are found before all others."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fledge.cli.main", *MODEL, "--state", str(work / "state"), *options]
    env = model.env | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40", "NO_COLOR": "1"}
    env |= {} if bare is None else {"PYTHONPATH": str(bare)}
    with subprocess.Popen(
        command,
        cwd=work,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C can be a signal
    ) as process:
        os.close(theirs)
        terminal = Terminal(process, ours)
        try:
            terminal.see("Ctrl-D")
            if bare is None:
                terminal.await_prompt()
            yield terminal
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            os.close(ours)


def test_answers_stream_and_completions_arrive_while_the_user_types(model: Model, work: Path) -> None:
    with chatting(model, work) as chat:
        chat.say("hello")
        chat.see("Hello there.")
        chat.see("How can I help?")
        chat.say("spawn")
        chat.type("half a sen")
        chat.see("digger · done")
        chat.see("The digger found gold.")
        chat.type("tence" + ENTER)
        chat.see("You said: half a sentence")
        assert chat.leave(CTRL_D) == 0


def test_ctrl_c_stops_the_turn_then_asks_then_leaves(model: Model, work: Path) -> None:
    with chatting(model, work) as chat:
        model.hold.touch()
        asked = model.requests
        chat.say("something long")
        until(chat.process, lambda: model.requests > asked)
        chat.see("thinking")  # before that, the chat does not know of the turn, and the key is for leaving
        chat.type(CTRL_C)
        chat.see("stopped")
        chat.type(CTRL_C)
        chat.see("again leaves")
        chat.type("no, stay" + CTRL_C)
        assert chat.leave(CTRL_C) == 0
        model.hold.unlink()


@proves("3.plan.8")
@proves("4.tools.29", "Slash commands work in the chat")
def test_slash_commands_questions_and_plans_are_answered_in_the_chat(model: Model, work: Path) -> None:
    with chatting(model, work, "--set", "tools.write.approval=ask") as chat:
        chat.say("write")
        chat.see("the agent wants to run")
        chat.see("path: made.txt")
        chat.say("/deny")
        chat.see("denied: write for")
        chat.see("The tool said: write was refused")
        chat.say("write")
        chat.see("the agent wants to run")
        chat.say("/allow")
        chat.see("The tool said: created made.txt")
        assert (work / "made.txt").read_text() == "made"
        chat.say("plan")
        chat.see("planner's plan, in full in the scrollback")
        chat.say("/subagents list")
        chat.see("[PLAN:AWAITING APPROVAL]")
        chat.type("/subagents info pl\t")
        chat.see("planner")
        chat.type(ENTER)  # takes what was completed
        chat.type(ENTER)
        chat.see("status    awaiting approval")
        chat.say("/subagents approve planner")
        chat.see("approved the plan of")
        chat.see("planner · done")
        chat.say("/nothing")
        chat.see("there is no such command")
        chat.say("/help")
        chat.see("/subagents list")
        chat.see("as Ctrl-D does")
        chat.say("/quit")
        assert chat.process.wait(timeout=PATIENCE_S) == 0


def test_the_last_conversation_goes_on_at_the_next_start(model: Model, work: Path) -> None:
    with chatting(model, work) as chat:
        chat.say("hello")
        chat.see("How can I help?")
        chat.process.send_signal(signal.SIGKILL)
        chat.process.wait()
    with chatting(model, work) as chat:
        chat.see("› hello")
        chat.see("How can I help?")
        chat.type("two" + ALT_ENTER + "lines" + ENTER)
        chat.see("You said: two")
        chat.see("lines")
        assert chat.leave(CTRL_D) == 0
    assert (work / "state" / "chat_history").stat().st_mode & 0o777 == 0o600
    assert (work / "state").stat().st_mode & 0o777 == 0o700


def test_through_a_pipe_it_is_plain_and_ends_when_all_is_answered(model: Model, work: Path) -> None:
    command = [sys.executable, "-m", "fledge.cli.main", *MODEL, "--state", str(work / "state")]
    lines = "hello\nquiet\n/status\nred\nspawn\n"
    done = subprocess.run(command, cwd=work, env=model.env, input=lines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Hello there.\nHow can I help?\n" in done.stdout
    assert "The digger found gold." in done.stdout
    assert "You said: red" in done.stdout
    assert "digger · done" in done.stdout
    assert "NO_REPLY" not in done.stdout
    assert "\x1b" not in done.stdout


def test_through_a_pipe_it_ends_where_only_a_person_could_go_on(model: Model, work: Path) -> None:
    ask = ("--set", "tools.write.approval=ask")
    command = [sys.executable, "-m", "fledge.cli.main", *MODEL, "--state", str(work / "state"), *ask]
    done = subprocess.run(
        command, cwd=work, env=model.env, input="write\n", capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert f"? the agent wants to run in {work}:\n  | write\n  | path: made.txt" in done.stdout


@proves("8.changes.1")
def test_a_question_about_a_file_that_is_there_shows_what_changes_in_it(model: Model, work: Path) -> None:
    (work / "made.txt").write_text("old \x1b[31mred\nmade")
    ask = ("--set", "tools.write.approval=ask")
    command = [sys.executable, "-m", "fledge.cli.main", *MODEL, "--state", str(work / "state"), *ask]
    done = subprocess.run(
        command, cwd=work, env=model.env, input="write\n", capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "  | write\n  | path: made.txt\n  | -old ␛[31mred\n  |  made\n" in done.stdout


def test_without_the_line_editor_it_is_plain_and_says_what_to_install(model: Model, work: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("prompt_toolkit", "wcwidth", "markdown_it"):
        (bare / f"{name}.py").write_text("raise ImportError('not installed')\n")
    with chatting(model, work, bare=bare) as chat:
        assert "pip install 'fledge[chat]'" in chat.text
        chat.type("hello\n")
        chat.see("How can I help?")
        assert chat.leave(CTRL_D) == 0


def test_a_line_without_an_end_does_not_hold_up_the_chat(model: Model, work: Path) -> None:
    with chatting(model, work) as chat:
        chat.say("flood")
        chat.see("and that was it")
        chat.say("hello")
        chat.see("How can I help?")
        assert chat.leave(CTRL_D) == 0


def test_leaving_waits_for_nobody(model: Model, work: Path) -> None:
    with chatting(model, work, "--set", "tools.write.approval=ask") as chat:
        chat.say("write")
        chat.see("the agent wants to run")
        assert chat.leave(CTRL_D) == 0


@proves("4.tools.24")
def test_focus_lets_the_user_talk_with_a_subagent(model: Model, work: Path) -> None:
    command = [sys.executable, "-m", "fledge.cli.main", *MODEL, "--state", str(work / "state")]
    lines = "/subagents spawn main dig deep\n/focus last\nwhat is there?\n/unfocus\nred\n"
    done = subprocess.run(command, cwd=work, env=model.env, input=lines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    focused, _, unfocused = done.stdout.partition("this place is not bound to ")
    # News of the run itself may come in between.
    assert re.search(r"; /unfocus ends that\n(?:.*\n)*?gold, at the very bottom\n", focused)
    assert "what is there?" not in unfocused
    assert "You said: red" in unfocused


def test_a_focus_that_stayed_is_told_at_the_next_start(model: Model, work: Path) -> None:
    command = [sys.executable, "-m", "fledge.cli.main", *MODEL, "--state", str(work / "state")]
    told = [
        subprocess.run(command, cwd=work, env=model.env, input=lines, capture_output=True, text=True, timeout=120)
        for lines in ("/subagents spawn main dig deep\n/focus last\n", "/unfocus\n", "")
    ]
    assert "messages from here go to dig deep; /unfocus ends that" in told[1].stdout
    assert "messages from here" not in told[2].stdout


class Heard(Screen):
    """A screen that keeps what it is shown, and at which somebody wants something when they have seen something."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.items: list[ChatItem] = []
        self.flowing = ""
        self.turns: list[TurnShown | None] = [None]
        self.at_work: tuple[WorkingChild, ...] = ()
        self.asked: tuple[OpenQuestion, ...] = ()
        self.waiting: tuple[str, ...] = ()
        self.given_back: list[str] = []
        self.partner = ""
        self.copied = ""
        self._moved = asyncio.Event()

    def say(self, item: ChatItem) -> None:
        assert not self.flowing, "items wait for the end of an answer here"
        self.items.append(item)
        if isinstance(item, SpokenItem) and item.is_typed_here:
            self.lines.append(f"» {item.text}")
        elif not isinstance(item, OutputItem) or item.is_asked_for:
            self.lines.append(item_lines(item))
        self._moved.set()

    def words(self, text: str) -> None:
        self.flowing += text
        self._moved.set()

    def complete(self) -> None:
        self.lines.append(self.flowing)
        self.flowing = ""
        self._moved.set()

    def turn(self, turn: TurnShown | None) -> None:
        self.turns.append(turn)
        self._moved.set()

    def children(self, children: tuple[WorkingChild, ...]) -> None:
        self.at_work = children
        self._moved.set()

    def ask(self, asked: tuple[OpenQuestion, ...]) -> None:
        self.asked = asked
        self._moved.set()

    def queued(self, texts: tuple[str, ...]) -> None:
        self.waiting = texts
        self._moved.set()

    def put_back(self, text: str) -> None:
        self.given_back.append(text)

    def talks_to(self, label: str) -> None:
        self.partner = label

    def clear(self) -> None:
        self.lines.append("(cleared)")

    def copy(self, text: str) -> bool:
        self.copied = text
        return True

    # ---- what the person does

    def want(self, wish: Wish) -> None:
        self._wishes.put_nowait(wish)

    def type(self, line: str) -> None:
        self.want(WordsSent(line, line))

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the screen shows something."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._moved.clear()
                await self._moved.wait()

    async def see(self, words: str) -> None:
        """Wait until these words stand there."""
        await self.until(lambda: words in "\n".join([*self.lines, self.flowing]))


class Sitting:
    """A chat in this process, in virtual time, which drives the folder."""

    def __init__(
        self,
        folder: Path,
        screen: Heard,
        model: ScriptedModel,
        config: dict[str, object] | None = None,
        client: type[Folder] = Folder,
    ) -> None:
        self._folder, self._screen, self._model, self._config = folder, screen, model, config or {}
        self._client = client
        self._fl: fledge.Fledge | None = None

    @property
    def fl(self) -> fledge.Fledge:
        assert self._fl is not None
        return self._fl

    async def _open(self, channel: Channel) -> fledge.Fledge:
        self._fl = fledge.open(
            self._folder / "state",
            model=self._model,
            config=self._config,
            workspace=self._folder,
            channels={"terminal": channel},
            env=os.environ | {"FLEDGE_CONFIG": str(self._folder / "user")},
            store=InlineStore(self._folder / "state"),
            clock=VirtualClock(START),
            ids=SeededIds(1),
        )
        return self._fl

    def tell(self, event: TurnEvent) -> None:
        """Let a turn tell this."""
        self.fl._parts.agent.feed.emit(event)

    def last(self, body: Callable[[Chat], Awaitable[None]] | None = None) -> None:
        """Sit until the body is done, or without one until the input is over."""

        async def sit() -> None:
            channel = ScreenChannel()
            async with self._client(self._folder / "state", Driving(lambda: self._open(channel))) as client:
                chat = Chat(
                    client, self._screen, channel, Where(Path("here")), main_key(), "", Completions(), self._folder
                )
                sitting = asyncio.ensure_future(chat.run())
                try:
                    if body is not None:
                        await asyncio.sleep(1)
                        await body(chat)
                        self._screen.want(Leave())
                    await sitting
                finally:
                    sitting.cancel()
                    await asyncio.gather(sitting, return_exceptions=True)

        run_virtual(sit())


def test_words_of_a_stopped_turn_that_come_late_are_not_shown(tmp_path: Path) -> None:
    screen = Heard()
    asked: list[Request] = []

    async def hang_once(request: Request) -> Answer:
        asked.append(request)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return "hello yourself"

    sitting = Sitting(tmp_path, screen, ScriptedModel(hang_once))

    async def body(chat: Chat) -> None:
        await sitting.fl.session("main").post("talk")
        await asyncio.sleep(5)
        sitting.tell(TurnEvent("assistant:text", main_key(), "so far", 1, entry=1))
        await asyncio.sleep(1)
        screen.want(StopWanted())
        await asyncio.sleep(1)
        sitting.tell(TurnEvent("assistant:text", main_key(), " and further", 1, entry=1))
        await sitting.fl.session("main").send("hello")
        await asyncio.sleep(1)

    sitting.last(body)
    stopped = "stopped"
    assert screen.lines[1:] == ["› talk", "so far", stopped, "› hello", "hello yourself"]


class SlowToTell(Folder):
    """A folder that takes long to say how a run has ended."""

    async def call(self, method: str, /, *, once: bool = True, **params: object) -> Any:
        if method == "runs.info":
            await asyncio.sleep(5)
        return await super().call(method, once=once, **params)


class Typed(Heard):
    """A screen at which these lines are typed, each once the one before it is answered."""

    in_turns = True

    def __init__(self, *lines: str) -> None:
        super().__init__()
        for line in lines:
            self.type(line)
        self.want(Leave())


async def dig(request: Request) -> Answer:
    """A main agent that lets a digger dig, and the digger."""
    match last_text(request):
        case "spawn":
            return use("sessions_spawn", task="dig deep", label="digger")
        case "dig deep":
            return "gold, at the very bottom"
        case words:
            return "The digger found gold." if "gold" in words else "NO_REPLY"


@pytest.mark.parametrize("client", [Folder, SlowToTell])
@pytest.mark.parametrize("screen", [Heard, Typed])
def test_the_end_of_a_subagent_is_shown_before_the_answer_that_follows_from_it(
    tmp_path: Path, screen: type[Heard], client: type[Folder]
) -> None:
    shown = screen("spawn") if screen is Typed else screen()
    sitting = Sitting(tmp_path, shown, ScriptedModel(dig), client=client)

    async def body(chat: Chat) -> None:
        shown.type("spawn")
        await shown.see("The digger found gold.")
        await asyncio.sleep(30)

    sitting.last(None if isinstance(shown, Typed) else body)
    ended, answer = shown.lines[-2:]
    assert ended.startswith("digger · done")
    assert answer == "The digger found gold."


def slow_by_chance(paces: random.Random) -> type[Folder]:
    """A folder whose answers and events take a while, each another one."""

    class Slow(Folder):
        async def call(self, method: str, /, *, once: bool = True, **params: object) -> Any:
            await asyncio.sleep(paces.choice([0, 0, 0.01, 0.5, 3]))
            found = await super().call(method, once=once, **params)
            await asyncio.sleep(paces.choice([0, 0, 0.01, 0.5, 3]))
            return found

        async def events(self, cursor: int | None = None, session: str = "", live: bool = True) -> WireFeed:
            async for event in super().events(cursor, session, live):
                await asyncio.sleep(paces.choice([0, 0, 0, 0.01, 0.3, 1]))
                yield event

    return Slow


@pytest.mark.parametrize("seed", range(25))
def test_at_whatever_pace_it_is_told_a_subagent_ends_once_and_before_the_answer(tmp_path: Path, seed: int) -> None:
    paces, shown = random.Random(seed), Heard()

    async def dig_slowly(request: Request) -> Answer:
        await asyncio.sleep(paces.choice([0, 0, 0.1, 1, 2]))
        return await dig(request)

    async def body(chat: Chat) -> None:
        shown.type("spawn")
        await shown.see("The digger found gold.")
        await asyncio.sleep(60)

    Sitting(tmp_path, shown, ScriptedModel(dig_slowly), client=slow_by_chance(paces)).last(body)
    *before, ended, answer = shown.lines
    assert [line.partition(" · ")[0] for line in before[1:]] == ["» spawn", "✓ sessions_spawn digger"]
    assert ended.startswith("digger · done")
    assert answer == "The digger found gold."


class SaysLittle(Folder):
    """A folder whose feed has not come to the questions yet."""

    async def events(self, cursor: int | None = None, session: str = "", live: bool = True) -> WireFeed:
        async for event in super().events(cursor, session, live):
            if event["type"] != "approvals":
                yield event


def test_a_question_that_ends_the_input_is_shown_before_the_feed_says_so(tmp_path: Path) -> None:
    async def writes(request: Request) -> Answer:
        return use("write", path="made.txt", content="made")

    screen = Typed("write")
    config: dict[str, object] = {"tools": {"write": {"approval": "ask"}}}
    Sitting(tmp_path, screen, ScriptedModel(writes), config, SaysLittle).last()
    [asked] = screen.asked
    assert "made.txt" in asked.text


@proves("3.images.20", "`/image FILE` in a chat shows an image, and is refused elsewhere")
def test_an_image_is_shown_in_the_chat(tmp_path: Path) -> None:
    (tmp_path / "my cat.png").write_bytes(images.png(640, 480))
    screen = Typed(f'/image "{tmp_path}/my cat.png" What is it?', f"/image {tmp_path}/no.png", "/image")
    model = ScriptedModel(echo)

    Sitting(tmp_path, screen, model).last()
    assert [request.images for request in model.requests] == [
        {sha256(images.png(640, 480)).hexdigest(): images.png(640, 480)}
    ]
    told = "\n".join(screen.lines)
    assert "What is it?\n[image my cat.png, 640×480 PNG]" in told
    assert "images[0]: must be a file that can be read" in told
    assert "write it like this: /image <file> [words]" in told


def chat_beside(client: Client, screen: Heard, state: Path) -> Chat:
    return Chat(client, screen, ScreenChannel(), Where(Path("there")), main_key(), "", Completions(), state)


def beside(server: gateway.Server, screen: Heard) -> int:
    """A chat beside a process that holds the folder."""

    async def sit() -> int:
        async with Elsewhere(ControlSocket(server.state)) as client:
            return await chat_beside(client, screen, server.state).run()

    return asyncio.run(sit())


@proves("3.images.20")
def test_an_image_is_shown_through_the_process_that_holds_the_folder(tmp_path: Path) -> None:
    cat = images.png(640, 480)
    (tmp_path / "cat.png").write_bytes(cat)
    screen = Typed(f"/image {tmp_path}/cat.png", f"/image {tmp_path}/no.png")
    model = ScriptedModel(echo)
    with gateway.serving(tmp_path / "state", model) as server:
        assert beside(server, screen) == 0
    assert [request.images for request in model.requests] == [{sha256(cat).hexdigest(): cat}]
    told = "\n".join(screen.lines)
    assert "cat.png\n[image cat.png, 640×480 PNG]" in told
    assert "images[0]: must be a file that can be read" in told


@proves("3.attached.12", "`/attach FILE` in a chat gives the model a file, and is refused elsewhere")
def test_a_file_is_attached_in_the_chat(tmp_path: Path) -> None:
    (tmp_path / "my notes.txt").write_text("one\ntwo\n")
    (tmp_path / "long.txt").write_text("x" * 1_500_000)
    screen = Typed(
        f'/attach "{tmp_path}/my notes.txt" What is it?',
        f"/attach @{tmp_path}/my",
        f"/attach {tmp_path}/long.txt",
        "/attach",
    )
    model = ScriptedModel(echo)

    Sitting(tmp_path, screen, model).last()
    said = [message.text for request in model.requests for message in request.messages]
    assert len(model.requests) == 1
    assert said[0].startswith("What is it?\n[file my notes.txt, 8 B]\n[my notes.txt can be read at ")
    told = "\n".join(screen.lines)
    assert "📎 my notes.txt (8 B)" in told
    assert "attachments[0]: must be a file that can be read (No such file or directory) (got '/" in told
    assert "attachments[0]: must have at most 1048576 bytes (tools.sessions_spawn.attachments.maxFileBytes)" in told
    assert "write it like this: /attach <file> [words]" in told


@proves("3.attached.12")
def test_a_file_is_attached_through_the_process_that_holds_the_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    screen = Typed(f"/attach {tmp_path}/notes.txt")
    model = ScriptedModel(echo)
    with gateway.serving(tmp_path / "state", model) as server:
        assert beside(server, screen) == 0
    assert [message.text.splitlines()[:2] for message in model.requests[0].messages] == [
        ["notes.txt", "[file notes.txt, 8 B]"]
    ]
    assert "📎 notes.txt (8 B)" in "\n".join(screen.lines)


class Halting:
    """A model that stops in the middle of its answer until it may go on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        yield Text("Hello ")
        await asyncio.to_thread(self.goes_on.wait, PATIENCE_S)
        yield Text("there.")
        yield ReplyEnded("end", "halting")

    async def close(self) -> None:
        """Nothing is held."""


@asynccontextmanager
async def sitting_beside(state: Path, screen: Heard) -> AsyncIterator[Chat]:
    """A chat beside a process that holds the folder, until the block ends."""
    async with Elsewhere(ControlSocket(state)) as client:
        chat = chat_beside(client, screen, state)
        sitting = asyncio.ensure_future(chat.run())
        yield chat
        screen.want(Leave())
        assert await sitting == 0


@proves(
    "4.tools.42", "A chat beside the process that holds the folder streams answers, and shows what others say there"
)
def test_two_chats_beside_the_holder_stream_the_same_conversation(tmp_path: Path) -> None:
    model, first, second = Halting(), Heard(), Heard()

    async def sit(state: Path) -> None:
        async with sitting_beside(state, first), sitting_beside(state, second):
            for screen in (first, second):
                await screen.see("/help for commands")
            first.type("hello")
            for screen in (first, second):
                await screen.see("Hello ")
                assert screen.lines[-1] != "Hello there."
            model.goes_on.set()
            for screen in (first, second):
                await screen.see("Hello there.")

    with gateway.serving(tmp_path / "state", model):
        asyncio.run(sit(tmp_path / "state"))
    assert first.lines[1:] == ["» hello", "Hello there."]
    assert second.lines[1:] == ["› hello", "Hello there."]


@proves("4.tools.45", "Esc or Ctrl-C stops the turn, and words that it has not read go back into the input")
def test_a_stop_beside_the_holder_gives_back_what_was_not_read(tmp_path: Path) -> None:
    model, screen = Halting(), Heard()

    async def sit(state: Path) -> None:
        async with sitting_beside(state, screen):
            screen.type("hello")
            await screen.see("Hello ")
            screen.type("and one thing")
            screen.want(WordsSent("I ran `ls`\nand another", "and another"))
            await screen.until(lambda: screen.waiting == ("and one thing", "and another"))
            await asyncio.sleep(0.1)
            screen.want(StopWanted())
            await screen.see("stopped")
            await screen.until(lambda: screen.waiting == () and screen.turns[-1] is None)

    with gateway.serving(tmp_path / "state", model) as server:
        asyncio.run(sit(tmp_path / "state"))
        model.goes_on.set()
        entries = server.client().call("sessions.history", session="main")
    assert screen.given_back == ["and one thing\nI ran `ls`\nand another"]
    assert screen.lines[1:] == ["» hello", "Hello ", "stopped"]
    assert [entry["text"] for entry in entries] == ["hello"]


@proves("4.tools.24")
def test_focus_beside_the_holder_lets_the_user_talk_with_a_subagent(tmp_path: Path) -> None:
    async def answers(request: Request) -> Answer:
        is_spoken_to = "# Subagent Context" in request.system or last_text(request) == "red"
        return last_text(request) if is_spoken_to else "NO_REPLY"

    screen = Typed(
        "/subagents spawn main dig deep", "/subagents focus last", "what is there?", "/subagents unfocus", "red"
    )
    with gateway.serving(tmp_path / "state", ScriptedModel(answers)) as server:
        assert beside(server, screen) == 0
        entries = server.client().call("sessions.history", session="main")
    # The end of the run, and what it says of its task, may come in between.
    told = [line for line in screen.lines if not line.startswith(("fledge ", "started ", "»", "this place", "dig"))]
    assert told == ["messages from here go to dig deep now; /unfocus ends that", "what is there?", "red"]
    assert "what is there?" not in [entry["text"] for entry in entries]


def test_an_answer_that_comes_too_fast_to_be_streamed_is_shown_once(tmp_path: Path) -> None:
    screen, long = Heard(), "every word of it " * 500
    sitting = Sitting(tmp_path, screen, ScriptedModel(lambda request: long, piece_chars=1))

    async def body(chat: Chat) -> None:
        screen.type("hello")
        await asyncio.sleep(5)

    sitting.last(body)
    assert screen.lines[1:] == ["» hello", long]


@proves("4.tools.39")
def test_a_chat_beside_the_holder_shows_what_is_unanswered(tmp_path: Path) -> None:
    async def down(request: Request) -> Answer:
        return Broke("bad_request", "no such model")

    state, screen = tmp_path / "state", Typed("/quit")
    with gateway.serving(state, ScriptedModel(down)) as server:
        assert server.client().call("send", sessionKey="main", message="hello")["status"] == "error"
    with closing(sqlite3.connect(state / DATABASE)) as rows, rows:
        rows.execute("UPDATE active SET turn = json_set(turn, '$.opened_at', json_extract(turn, '$.opened_at') - 2400)")
    with gateway.serving(state, ScriptedModel(down)) as server:
        assert beside(server, screen) == 0
    assert any(line.startswith("✖ unanswered for 40 min, tried ") for line in screen.lines)


def test_without_a_model_it_says_what_to_do(work: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")} | {
        "HOME": "/nonexistent"
    }
    command = [sys.executable, "-m", "fledge.cli.main", "--state", str(work / "state")]
    done = subprocess.run(command, cwd=work, env=env, input="", capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "give --model NAME" in done.stderr


def test_a_folder_is_written_as_people_do() -> None:
    folders = ("/home/me/src", "/home/me", "/home/mercury", "/srv", "")
    assert [from_home(folder, "/home/me") for folder in folders] == ["~/src", "~", "/home/mercury", "/srv", ""]
