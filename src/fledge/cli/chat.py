"""`fledge` alone: a conversation with the main agent, while its subagents work.

What is said and done, whatever shows it (`screen` has two ways). Answers stream, completions and questions
arrive while the user types, and Ctrl-C stops the turn, not the program. Closing it loses nothing: the conversation is
the same one at the next start.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import fledge
from fledge.api.views import is_at_rest, plan
from fledge.channels.terminal import HERE
from fledge.cli.run import awaits
from fledge.cli.screen import open_screen
from fledge.cli.settings import confirm_workspace, settings_here
from fledge.cli.visiting import Visit
from fledge.client.remote import Remote
from fledge.commands import orders, slash
from fledge.core.freeze import one_line
from fledge.core.keys import main_key, short_id
from fledge.core.printable import quoted_lines, whole_call
from fledge.core.route import TERMINAL, Message
from fledge.core.run import Instant
from fledge.core.transcript import Replied, Spoken, from_body, joined
from fledge.errors import FledgeError
from fledge.orchestrator import bindings, control, spawn
from fledge.orchestrator.commit import Commit
from fledge.runtime.feed import Subscription, TurnEvent
from fledge.runtime.model_choice import choose_model
from fledge.store.base import Tx
from fledge.store.ways import HATCH

log = logging.getLogger("fledge.chat")

MAIN = main_key()
HISTORY = "chat_history"
LOOK_S = 0.5
SHOWN_CHARS = 160
ERROR_CHARS = 400
LOOK_BACK = 4
"""How many messages of an earlier sitting are shown."""
SILENT = ("NO_REPLY", "HEARTBEAT_OK", "ANNOUNCE_SKIP", "REPLY_SKIP")
LEAVE = ("/quit", "/exit", "/bye")
KEYS = """Enter sends; Alt-Enter, or \\ before Enter, begins another line; Tab completes
Ctrl-C stops the turn; Ctrl-D or /quit leaves, and nothing is lost by it"""


async def sit(state: Path, model: str | None, settings: tuple[str, ...]) -> int:
    """Open the state folder and talk. Refused if no model is set, or it cannot be used."""
    from fledge.commands.hatch import hatch

    found = settings_here(Path.cwd(), settings)
    screen = open_screen(state / HISTORY)
    confirm_workspace(found.config)
    for warning in found.warnings:
        screen.say(warning, "note")
    chosen = await choose_model(found.config, os.environ, model, state=state)
    if chosen.is_new:
        screen.say(chosen.words, "note")
    model = None if chosen.by == "settings" else chosen.model
    channel = ScreenChannel(screen)
    opened = fledge.open(
        state, model=model, config=found.config, program="chat", channels={TERMINAL: channel}, address=HATCH
    )
    opened.check()
    heard = opened.listen()  # before it is open: an interrupted turn goes on at once, and its answer is to be seen
    async with opened as fl, hatch(fl):
        await fl.engine.commit(_sit_down)
        chat = Chat(fl, screen, channel, heard)
        screen.interrupt = chat.interrupt
        return await chat.run()


async def visit(remote: Remote, state: Path, model: str | None) -> int:
    """Talk through the process that holds the folder; 1 if it leaves."""
    screen = open_screen(state / HISTORY)
    sitting = Visit(remote, screen, state, model or "")
    screen.interrupt = sitting.interrupt
    return await sitting.run(LEAVE, KEYS)


def _sit_down(c: Commit) -> None:
    """Whoever sits here is told what the main agent's user must know, unless that goes elsewhere."""
    spawn.open_conversation(c, MAIN)
    if c.tx.route(MAIN) is None:
        bindings.follow(c, MAIN, HERE)


class ScreenChannel:
    """The chat as a channel: questions, and replies of the session that is talked with, are shown as they come, so only
    the rest is left to it."""

    def __init__(self, screen: "Screen") -> None:
        self._screen = screen
        self.streams = MAIN
        """The session whose replies are shown as they come."""

    async def send(self, message: Message) -> None:
        """Show it."""
        if message.about == "result" or (message.about == "reply" and message.session_key != self.streams):
            self._screen.say(message.text)
        elif message.about not in ("reply", "approval"):
            self._screen.say(message.text, "note")

    async def close(self) -> None:
        """Nothing is held."""


class Screen(Protocol):
    """Shows a conversation and reads what the user types. Nothing here waits, but for `read`."""

    @property
    def in_turns(self) -> bool:
        """True if nobody types, so that each line is answered before the next is read."""
        ...

    def say(self, text: str, style: str = "") -> None:
        """Something whole that stays. Styles are `you`, `note`, `ask` and `error`; words of models have none."""
        ...

    def flow(self, text: str) -> None:
        """A piece of an answer that is on its way."""
        ...

    def rest(self) -> None:
        """The answer is complete."""
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


class Hush:
    """Lets an answer through as it comes, but for words that mean silence: those are held back until it is clear."""

    def __init__(self, flow: Callable[[str], None]) -> None:
        self._flow, self._held = flow, ""
        self._said = False

    def add(self, text: str) -> None:
        """One more piece."""
        if self._said:
            self._flow(text)
            return
        self._held += text
        begun = self._held.strip()
        if begun and not any(word.startswith(begun) for word in SILENT):
            self._said = True
            self._flow(self._held)

    def end(self) -> bool:
        """The answer is complete; True if anything of it was shown."""
        if not self._said and self._held.strip() and self._held.strip() not in SILENT:
            self._flow(self._held)
            self._said = True
        said, self._said, self._held = self._said, False, ""
        return said


class Chat:
    """One sitting."""

    def __init__(self, fl: fledge.Fledge, screen: Screen, channel: ScreenChannel, heard: Subscription) -> None:
        self._fl, self._screen, self._channel, self._heard = fl, screen, channel, heard
        self._hush = Hush(screen.flow)
        self._told: set[str] = set()
        """What was already shown: ends of runs, questions, plans."""
        self._leaving = False
        self._stopped = 0
        """The last turn that was stopped: what is still on its way from it is not shown."""
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Talk until the user leaves; answers the exit code."""
        fl = self._fl
        fl.engine.on_change(lambda _: self._changed.set())
        self._told = set(await self._look(_known))
        self._channel.streams = await self._look(_talked_with)
        await self._greet()
        watching = [asyncio.ensure_future(self._watch_turns()), asyncio.ensure_future(self._watch_runs())]
        for task in watching:
            task.add_done_callback(self._gone)
        try:
            while (line := await self._screen.read()) is not None:
                self._leaving = False
                if line.strip().lower() in LEAVE:
                    break
                await self._take(line)
            else:
                if self._screen.in_turns:
                    # The input is over: what was asked is still answered, unless a person must say something first.
                    await fl.until(lambda tx: is_at_rest(tx, MAIN) or bool(awaits(tx)) or None)
                    await self._tell_news()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
        left = await self._look(lambda tx: tx.counts(MAIN).unsettled)
        if left:
            at_work = "1 subagent is" if left == 1 else f"{left} subagents are"
            self._screen.say(f"{at_work} still at work: `fledge` or `fledge run --continue` goes on with them.", "note")
        return 0

    def _gone(self, watching: "asyncio.Task[None]") -> None:
        """What was to last as long as the sitting has failed: whoever sits here must know that they hear no more."""
        error = None if watching.cancelled() else watching.exception()
        if error is not None:
            log.error("the chat hears no more", exc_info=error)
            self._screen.say(f"nothing more can be shown as it comes ({error}); leave, and start again", "error")

    async def _look(self, view: Callable[[Tx], orders.T]) -> orders.T:
        return await self._fl.engine.store.read(view)

    async def _greet(self) -> None:
        self._screen.say(
            f"fledge {fledge.__version__} · {self._fl.state} · /help for commands, Ctrl-D to leave", "note"
        )
        earlier, is_over = await self._look(lambda tx: (_earlier(tx), tx.turn(MAIN) is None))
        for words, style in earlier:
            self._screen.say(words, style)
        if is_over:
            self._heard.waiting()  # what was said until now stands there already
        if self._channel.streams != MAIN:
            name = await self._look(lambda tx: orders.named(tx, self._channel.streams))
            self._screen.say(f"what is said here is said to {name}; /unfocus ends that", "note")

    async def _take(self, line: str) -> None:
        """What the user typed: a command, or words for the main agent."""
        if not line.strip():
            return
        try:
            shown = slash.read_image_order(line)
            if shown is None and slash.is_command(line):
                done = await orders.run_command(self._fl, MAIN, line, orders.Person(at=HERE))
                self._screen.say(done.text, "note")
                if done.verb == "help":
                    self._screen.say(KEYS, "note")
                self._channel.streams = await self._look(_talked_with)
                return
            words, images = (line, []) if shown is None else (shown.words, [shown.target])
            session = self._fl.session(await self._look(_talked_with), address=HERE)
            if self._screen.in_turns:
                await session.send(words, images=images)
            else:
                await session.post(words, images=images)
        except FledgeError as error:
            self._screen.say(str(error), "error")
        finally:
            self._changed.set()

    async def interrupt(self) -> bool:
        """Ctrl-C: stop the turn; with none, ask before leaving, and the second time leave. True: leave now."""
        turn = await self._look(lambda tx: tx.turn(MAIN))
        if turn is not None:
            await self._fl.engine.commit(lambda c: control.stop_turn(c, MAIN))
            self._stopped = turn.turn
            self._rest()
            self._screen.say("stopped; subagents go on (/stop stops them too)", "note")
            return False
        if self._leaving:
            return True
        self._leaving = True
        self._screen.say("Ctrl-C again to leave; nothing is lost by it", "note")
        return False

    # ---- what arrives meanwhile

    async def _watch_turns(self) -> None:
        heard = self._heard
        try:
            async for event in heard:
                if event.session == self._channel.streams and not self._is_stopped(event):
                    self._hear(event)
        finally:
            heard.close()

    def _is_stopped(self, event: TurnEvent) -> bool:
        return event.session == MAIN and event.kind == "assistant:text" and event.turn <= self._stopped

    def _hear(self, event: TurnEvent) -> None:
        match event.kind:
            case "assistant:text":
                self._hush.add(event.text)
            case "retry":
                self._rest()
                self._screen.say(one_line(event.text, SHOWN_CHARS), "note")
            case "error":
                self._rest()
                self._screen.say(one_line(event.text, ERROR_CHARS), "error")
                self._screen.say("it is tried again by itself; Ctrl-C stops that", "note")
            case "tool:start":
                self._rest()
                self._screen.say(f"· {one_line(event.text, SHOWN_CHARS)}", "note")
            case "end":
                self._rest()
                self._changed.set()
            case _:
                pass

    def _rest(self) -> None:
        if self._hush.end():
            self._screen.rest()

    async def _tell_news(self) -> None:
        """Ends, plans and questions that were not shown yet, each once, whoever looks first."""
        for key, words, style in await self._look(lambda tx: _news(tx, self._told)):
            if key not in self._told:
                self._told.add(key)
                self._screen.say(words, style)

    async def _watch_runs(self) -> None:
        while True:
            await self._tell_news()
            now = self._fl.engine.clock.now()
            line, targets = await self._look(partial(_below, now=now))
            self._screen.status(line)
            self._screen.offer(targets)
            self._changed.clear()
            await self._fl.engine.clock.wait_until(now + LOOK_S, self._changed)


def _below(tx: Tx, now: Instant) -> tuple[str, list[slash.Choice]]:
    """What goes on below the conversation, in one line and as words to complete."""
    return orders.status_line(tx, MAIN, now), orders.targets(tx, MAIN, now)


def _talked_with(tx: Tx) -> str:
    """Whom words typed here are for: the main agent, unless `/focus` said otherwise."""
    return bindings.session_at(tx, HERE) or MAIN


def _earlier(tx: Tx) -> list[tuple[str, str]]:
    """The last words of the sitting before, if there was one."""
    found: list[tuple[str, str]] = []
    entries = tx.entries(MAIN, after=max(0, tx.last_entry(MAIN) - 40))
    for _, body in joined((entry.seq, from_body(entry.body)) for entry in entries):
        match body:
            case Spoken(kind="send", text=text):
                found.append((f"› {text}", "you"))
            case Replied(text=text, calls=()) if text.strip() and text.strip() not in SILENT:
                found.append((text, ""))
            case _:
                continue
    return found[-LOOK_BACK:]


def _known(tx: Tx) -> list[str]:
    """What had ended before this sitting."""
    return [f"end:{key}" for key in tx.children(MAIN) if tx.load_run(key).ended is not None]


def _news(tx: Tx, told: set[str]) -> list[tuple[str, str, str]]:
    """Ends, plans and questions that were not shown yet: a key, the words, a style."""
    found: list[tuple[str, str, str]] = []
    for key in tx.children(MAIN):
        run, label = tx.load_run(key), one_line(tx.spec(key).label or key, 60)
        if run.phase.name == "awaiting_approval" and f"plan:{run.run_id}" not in told:
            waits = plan(tx, key)
            shown = "" if waits is None else quoted_lines(waits.text)
            words = f"{label} has a plan: /subagents approve or reject it{shown}"
            found.append((f"plan:{run.run_id}", words, "ask"))
        if run.ended is not None and f"end:{key}" not in told:
            found.append((f"end:{key}", f"● {label}: {run.ended.outcome.status}", "note"))
    for asked in tx.open_approvals():
        if f"ask:{asked.id}" not in told:
            short = short_id(asked.id)
            words = whole_call(asked.tool, asked.arguments)
            found.append((f"ask:{asked.id}", f"? {words}\n  /allow {short} or /deny {short}", "ask"))
    return found
