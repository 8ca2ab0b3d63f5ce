"""`fledge` alone: a conversation with the main agent, while its subagents work.

What is said and done, whatever shows it (`screen` has two ways) and whoever holds the folder: another process, or this
one. Answers stream, completions and questions arrive while the user types, and Ctrl-C stops the turn, not the program.
Closing it loses nothing: the conversation is the same one at the next start. If the process that holds the folder
leaves, the sitting goes on, and this one drives.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import to_builtins

import fledge
from fledge.api.images import read_files
from fledge.api.values import Message as Entry
from fledge.api.values import Plan, Question, RunInfo
from fledge.channels.terminal import HERE
from fledge.cli.answers import SHOWN_CHARS, Answers, Sink
from fledge.cli.opening import opening
from fledge.cli.screen import open_screen
from fledge.cli.where import Where
from fledge.client.driving import Driving
from fledge.client.folder import Client
from fledge.commands import lines, slash
from fledge.commands.reading import from_wire
from fledge.commands.values import Below, SessionRow
from fledge.config.places import user_folder
from fledge.core.freeze import one_line
from fledge.core.keys import main_key
from fledge.core.route import Message, is_worth_sending
from fledge.errors import FledgeError
from fledge.ids import RandomIds

MAIN = main_key()
HISTORY = "chat_history"
LOOK_S = 1.0
"""How often the status line is looked at while something goes on."""
IDLE_S = 30.0
WAIT_MS = 2000
PAGE = 1000
ERROR_CHARS = 400
LOOK_BACK, LOOK_BACK_ENTRIES = 4, 40
"""How many messages of an earlier sitting are shown, and among how many entries they are looked for."""
LEAVE = ("/quit", "/exit", "/bye")
KEYS = """Enter sends; Alt-Enter, or \\ before Enter, begins another line; Tab completes
Ctrl-C stops the turn; Ctrl-D or /quit leaves, and nothing is lost by it"""
KEPT = "what was heard by then is kept: `fledge log` shows it, `fledge` goes on with it"


async def sit(where: Where, model: str | None, settings: tuple[str, ...]) -> int:
    """Talk. Refused, where this process opens the folder: no model is set, or it cannot be used."""
    screen = open_screen((where.state if where.gateway is None else user_folder()) / HISTORY)
    channel = ScreenChannel(screen)
    opened = opening(where.state, model, settings, channel, lambda words: screen.say(words, "note"), program="chat")
    async with where.client(Driving(opened), settings) as client:
        chat = Chat(client, screen, channel, where.words, model or "")
        screen.interrupt = chat.interrupt
        return await chat.run()


class ScreenChannel:
    """The chat as a channel of the process that drives: questions, and words of the session that is talked with, are
    shown as they come, so only the rest is left to it."""

    def __init__(self, screen: "Screen") -> None:
        self._screen = screen
        self.streams = MAIN
        """The session that is talked with."""

    async def send(self, message: Message) -> None:
        """Show it."""
        if message.is_entry and message.session_key == self.streams:
            return
        if message.about in ("reply", "result"):
            self._screen.say(message.text)
        elif message.about != "approval":
            self._screen.say(message.text, "note")

    async def close(self) -> None:
        """Nothing is held."""


class Screen(Sink, Protocol):
    """Shows a conversation and reads what the user types. Nothing here waits, but for `read`. Styles of what is said
    are `you`, `note`, `ask` and `error`; words of models have none."""

    @property
    def in_turns(self) -> bool:
        """True if nobody types, so that each line is answered before the next is read."""
        ...

    def status(self, line: str) -> None:
        """What goes on in the background, in a line; empty if nothing does."""
        ...

    def offer(self, targets: Sequence[slash.Choice]) -> None:
        """From now on these are the names that a command may be completed with."""
        ...

    async def read(self) -> str | None:
        """What the user says next; None if they leave."""
        ...


class Chat:
    """One sitting."""

    def __init__(self, client: Client, screen: Screen, channel: ScreenChannel, place: str, model: str = "") -> None:
        self._client, self._screen, self._channel, self._place, self._model = client, screen, channel, place, model
        self._answers = Answers(screen, streams=not screen.in_turns)
        self._sits = asyncio.Event()
        """The greeting is said: what happens from here on is shown."""
        self._showing = asyncio.Lock()
        """Held while something is said or shown, so that it is known whose words an entry has."""
        self._told: set[str] = set()
        """What was already shown: ends of runs, questions, plans."""
        self._asked: frozenset[str] = frozenset()
        """Questions that wait for a person here."""
        self._changed = asyncio.Event()
        self._turn = self._stopped = 0
        """The turn that was last heard of, and the last one that was stopped: what still comes of that is not shown."""
        self._leaving = False

    async def run(self) -> int:
        """Talk until the user leaves; answers the exit code, 1 if nobody answers any more."""
        tasks = [asyncio.ensure_future(one) for one in (self._talk(), self._listen(), self._watch())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(code for task in done if (code := task.result()) is not None)
        except FledgeError as error:
            if not self._sits.is_set():
                raise
            self._screen.say(f"{error}; {KEPT}", "error")
            return 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._screen.rest()

    # ---- what the user does

    async def _talk(self) -> int:
        await self._sits.wait()
        while (line := await self._screen.read()) is not None:
            self._leaving = False
            if line.strip().lower() in LEAVE:
                break
            await self._take(line)
        else:
            if self._screen.in_turns:
                await self._come_to_rest()
        if not self._client.is_held and (left := (await self._main()).unsettled):
            at_work = "1 subagent is" if left == 1 else f"{left} subagents are"
            self._screen.say(f"{at_work} still at work: `fledge` or `fledge run --continue` goes on with them.", "note")
        return 0

    async def _take(self, line: str) -> None:
        """What the user typed: a command, or words for whoever is talked with."""
        if not line.strip():
            return
        try:
            shown = slash.read_image_order(line)
            if shown is None and slash.is_command(line):
                await self._command(line)
                return
            given: dict[str, Any] = {"message": line}
            if shown is not None:
                images = await asyncio.to_thread(read_files, [shown.target])
                given = {"message": shown.words or images[0].name, "images": to_builtins(images)}
            run_id = await self._say(given)
            if self._screen.in_turns:
                await self._answered(run_id)
        except FledgeError as error:
            self._screen.say(str(error), "error")
        finally:
            self._changed.set()

    async def _command(self, line: str) -> None:
        done = await self._client.call("slash.run", session=MAIN, line=line, address=HERE)
        self._screen.say(done["text"], "note")
        if done["verb"] == "help":
            self._screen.say(KEYS, "note")
        await self._turn_to_bound()

    async def _say(self, given: dict[str, Any]) -> str:
        await self._turn_to_bound()
        # Where this process drives, the model is the one it has opened the folder with.
        given |= {"defaultModel": self._model if self._client.is_held else "", "idempotencyKey": RandomIds().unique()}
        async with self._showing:
            accepted = await self._client.call(
                "agent", once=False, session=self._channel.streams, address=HERE, **given
            )
            self._answers.own.add(accepted["runId"])
        return str(accepted["runId"])

    async def _turn_to_bound(self) -> None:
        """Talk with whom `/focus` has bound this place to, else with the main agent."""
        bound = await self._open()
        if bound["sessionKey"] != self._channel.streams:
            async with self._showing:
                self._channel.streams = bound["sessionKey"]
                self._answers.begin(bound["entry"])

    async def _open(self) -> Any:
        return await self._client.call("sessions.open", once=False, session=MAIN, address=HERE)

    async def _answered(self, run_id: str) -> None:
        """Wait until what was said is answered, and shown."""
        while True:
            session = self._channel.streams
            reply = await self._client.call("reply", session=session, run=run_id, timeoutMs=WAIT_MS)
            if reply["status"] != "pending" or reply["questions"]:
                break
        await self._show()
        if reply["status"] == "stopped":
            self._screen.say(reply["error"], "error")

    async def _come_to_rest(self) -> None:
        """The input is over: what was asked is still answered, unless a person must say something first."""
        while True:
            rest = await self._client.call("sessions.wait", session=MAIN, orAsked=True, timeoutMs=WAIT_MS)
            if rest["settled"] or rest["questions"]:
                break
        await self._show()
        await self._tell_news()
        self._tell_questions(rest["questions"])

    async def interrupt(self) -> bool:
        """Ctrl-C: stop the turn; with none, ask before leaving, and the second time leave. True: leave now."""
        try:
            if self._sits.is_set() and (await self._main()).state == "busy":
                await self._client.call("sessions.stop", session=MAIN, below=False)
                self._stopped = self._turn
                self._answers.forget()
                self._screen.say("stopped; subagents go on (/stop stops them too)", "note")
                return False
        except FledgeError as error:
            self._screen.say(str(error), "error")
        if self._leaving:
            return True
        self._leaving = True
        self._screen.say("Ctrl-C again to leave; nothing is lost by it", "note")
        return False

    async def _main(self) -> SessionRow:
        rows = await self._client.call("sessions.list", kinds=["main"], limit=PAGE)
        return next(row for row in from_wire(list[SessionRow], rows) if row.key == MAIN)

    # ---- what happens meanwhile

    async def _listen(self) -> None:
        async with aclosing(self._client.events(session=MAIN)) as feed:
            async for event in feed:
                await self._hear(event)

    async def _hear(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "from" if not self._sits.is_set():
                await self._sit_down()
            case "from":
                who = "another one answers" if self._client.is_held else "this one goes on with it"
                self._screen.say(f"the process that held the folder has left; {who}", "note")
                await self._show()
            case "closing":
                self._answers.miss()
            case "lost":
                self._answers.miss()
                await self._show()
            case "approvals":
                self._asked = frozenset(event["open"])
            case "turn" if event["sessionKey"] == self._channel.streams:
                await self._hear_turn(event)
            case _:
                pass
        if event["type"] != "turn" or event["kind"] == "end":
            self._changed.set()

    async def _hear_turn(self, event: dict[str, Any]) -> None:
        kind, text, turn = event["kind"], event.get("text", ""), event.get("turn", 0)
        if event["sessionKey"] == MAIN:
            self._turn = turn
            if kind == "assistant:text" and turn <= self._stopped:
                return
        match kind:
            case "assistant:text":
                self._answers.hear(text)
            case "start" | "tool:start" | "end":
                entry = event.get("entry", 0)
                if entry > self._answers.seen:
                    await self._show(entry)
                self._answers.reach(entry)
            case "retry":
                self._answers.forget()
                self._screen.say(one_line(text, SHOWN_CHARS), "note")
            case "error":
                self._answers.forget()
                self._screen.say(one_line(text, ERROR_CHARS), "error")
                self._screen.say("it is tried again by itself; Ctrl-C stops that", "note")
            case "interrupt":
                self._answers.forget()
            case _:
                pass

    async def _show(self, newest: int | None = None) -> None:
        """Show what is new in the transcript, up to this entry."""
        async with self._showing:
            entries = await self._entries(self._channel.streams, self._answers.seen)
            self._answers.take([one for one in entries if newest is None or one.seq <= newest])

    async def _entries(self, session: str, after: int) -> list[Entry]:
        told = await self._client.call("sessions.history", session=session, after=after, limit=PAGE)
        return from_wire(list[Entry], told)

    async def _sit_down(self) -> None:
        """Greet, with the last words of the sitting before, if there was one."""
        main = await self._client.call("sessions.open", once=False, session=MAIN)
        bound = await self._open()
        self._channel.streams = bound["sessionKey"]
        entries = await self._entries(MAIN, max(0, main["entry"] - LOOK_BACK_ENTRIES))
        held = " · held by another process, which answers" if self._client.is_held else ""
        self._screen.say(
            f"fledge {fledge.__version__} · {self._place}{held} · /help for commands, Ctrl-D to leave", "note"
        )
        for words, style in [shown for one in entries if (shown := _earlier(one)) is not None][-LOOK_BACK:]:
            self._screen.say(words, style)
        if bound["sessionKey"] == MAIN:
            self._answers.begin(entries[-1].seq if entries else main["entry"])
        else:
            self._answers.begin(bound["entry"])
            self._screen.say(f"what is said here is said to {bound['name']}; /unfocus ends that", "note")
        self._told = {_end_key(run) for run in await self._runs() if run.ended_at is not None}
        await self._show_status()
        self._sits.set()

    async def _runs(self) -> list[RunInfo]:
        return from_wire(list[RunInfo], await self._client.call("runs.list", requester=MAIN))

    async def _watch(self) -> None:
        """Tell ends, plans and questions, and keep the status line."""
        await self._sits.wait()
        while True:
            self._changed.clear()
            await self._tell_news()
            goes_on = await self._show_status()
            while not self._changed.is_set():
                try:
                    async with asyncio.timeout(LOOK_S if goes_on else IDLE_S):
                        await self._changed.wait()
                except TimeoutError:
                    goes_on = await self._show_status()

    async def _show_status(self) -> bool:
        """Show what goes on below the conversation, and what may be completed; False if nothing does."""
        below = from_wire(Below, await self._client.call("sessions.below", session=MAIN))
        self._screen.offer([(one.word, one.meaning) for one in below.targets])
        self._screen.status(below.line)
        return bool(below.line)

    async def _tell_news(self) -> None:
        """Ends, plans and questions that were not shown yet, each once, whoever looks first."""
        runs = await self._runs()
        for run in runs:
            if run.ended_at is not None:
                how = "killed" if run.ended_reason == "killed" else run.status
                self._tell(_end_key(run), f"● {lines.name_of(run)}: {how}", "note")
        if any(run.phase == "awaiting_approval" for run in runs):
            own = {run.session_key for run in runs}
            for plan in from_wire(list[Plan], await self._client.call("plans.list")):
                if plan.session_key in own:
                    self._tell(f"plan {plan.run_id}", lines.plan_in_chat(plan), "ask")
        if self._asked - self._told:
            asked = await self._client.call("approvals.list")
            self._tell_questions([one for one in asked if one["id"] in self._asked])

    def _tell_questions(self, asked: list[Any]) -> None:
        for question in from_wire(list[Question], asked):
            self._tell(question.id, lines.question_in_chat(question), "ask")

    def _tell(self, key: str, words: str, style: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._screen.say(words, style)


def _end_key(run: RunInfo) -> str:
    return f"end {run.run_id}"


def _earlier(entry: Entry) -> tuple[str, str] | None:
    """An entry of an earlier sitting, for reading; None if there is nothing to read in it."""
    if entry.role == "user" and entry.kind == "send":
        return f"› {entry.text}", "you"
    if entry.role == "assistant" and not entry.calls and is_worth_sending(entry.text):
        return entry.text, ""
    return None
