"""`fledge run` and `fledge ps`: a conversation without a terminal, and what is going on in a state folder.

`run` sends a prompt to the main conversation, drives whatever is unfinished, prints the answers, and returns when
everything has settled. Killed at any moment, `run --continue` goes on where it stood.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

import fledge
from fledge.api.views import is_at_rest, plan, question
from fledge.channels.terminal import HERE, TerminalChannel
from fledge.cli.printing import note, say
from fledge.cli.settings import confirm_workspace, settings_here
from fledge.commands import lines
from fledge.core.asking import retry_text
from fledge.core.images import Image, ImageEntry
from fledge.core.keys import main_key
from fledge.core.route import TERMINAL, Message, origin_of
from fledge.core.run import Instant
from fledge.models.base import Model
from fledge.orchestrator import bindings, commission, spawn
from fledge.orchestrator.commit import Commit
from fledge.runtime.feed import Subscription, TurnEvent
from fledge.runtime.model_choice import choose_model
from fledge.store.base import Tx
from fledge.store.ways import HATCH
from fledge.tools.base import Tool

AWAITS_A_PERSON = 3
"""Exit code: something waits for a person's answer."""


class Request(Struct, frozen=True):
    """What was asked on the command line."""

    state: Path
    prompt: str | None
    """None: only go on."""
    model: str | None = None
    settings: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()


class RunChannel(TerminalChannel):
    """The terminal of a run, at which no slash command can be typed."""

    async def send(self, message: Message) -> None:
        """Print the message, with the command that does what a slash command would."""
        text = message.text.replace("/reload takes it in", "`fledge trust` takes it in")
        await super().send(replace(message, text=text if message.about == "notice" else message.text))


async def converse(request: Request, *, models: Mapping[str, Model] | None = None, tools: Iterable[Tool] = ()) -> int:
    """Drive the conversation until everything has settled; 0, 1 after an error, 3 if a person is awaited."""
    from fledge.commands.hatch import hatch

    loaded = settings_here(Path.cwd(), request.settings)
    for warning in loaded.warnings:
        note(f"{warning}")
    confirm_workspace(loaded.config)
    chosen = await choose_model(
        loaded.config, os.environ, request.model, state=request.state, goes_on=request.prompt is None
    )
    if chosen.is_new:
        note(f"{chosen.words}")
    terminal = RunChannel(sys.stdout, sys.stderr, left_out=frozenset({"approval"}))
    opened = fledge.open(
        request.state,
        model=None if chosen.by == "settings" else chosen.model,
        models=models,
        config=loaded.config,
        tools=tools,
        channels={TERMINAL: terminal},
        address=HATCH,
    )
    opened.check()
    async with opened as fl, hatch(fl):
        heard = fl.listen()
        async with fl.keeping_images(request.images) as images:
            failures = await fl.engine.commit(lambda c: _begin(c, request.prompt, images))
        return await _until_settled(fl, heard, failures)


def _begin(c: Commit, prompt: str | None, images: tuple[ImageEntry, ...] = ()) -> int:
    """Say the prompt, with its images, from the terminal; answers how often the open turn has failed before."""
    spawn.open_conversation(c, main_key())
    turn = c.tx.turn(main_key())
    if prompt is not None:
        commission.accept(c, main_key(), prompt, origin=origin_of(HERE), images=images)
    elif c.tx.route(main_key()) is None:
        bindings.follow(c, main_key(), HERE)
    return 0 if turn is None else turn.failures


async def _until_settled(fl: fledge.Fledge, heard: Subscription, failures: int) -> int:
    """Wait until nothing is left to do, or nothing can go on; what is said meanwhile is printed by its channel.

    A model that is down, overloaded or at its rate limit is waited for, as long as a subagent would.
    """
    failing_since: Instant | None = None
    while True:
        news = await _stands(fl, failures)
        if not news.failed:
            break
        error = TurnEvent("error", main_key(), "the turn failed")
        for event in heard.waiting():
            if event.session == main_key() and event.kind == "usage":
                failing_since = None  # a model has answered meanwhile
            elif event.session == main_key() and event.kind == "error":
                error = event
        now = fl.engine.clock.now()
        failing_since = now if failing_since is None else failing_since
        if not error.retry_in_s or now - failing_since >= fl.config.models.patience_seconds:
            note(f"{error.text}")
            then = "after that change " if error.remedy else ""
            verb = "goes on" if then else "tries again"
            note(f"nothing is lost: {then}`fledge run --continue` {verb}")
            return 1
        note(f"{retry_text(now + error.retry_in_s, error.text, now)}")
        failures = news.failures
    if news.lost:
        note(f"{news.lost} could not be delivered outside: see `fledge undelivered`")
    return ask_person([*news.questions, *await fl.engine.store.read(plans_waiting)])


def ask_person(waiting: list[str]) -> int:
    """Print what waits for a person; the exit code that says whether something does."""
    if waiting:
        say("\n".join(waiting), sys.stderr)
    return AWAITS_A_PERSON if waiting else 0


async def _stands(fl: fledge.Fledge, failures: int) -> "_News":
    """How the conversation stands as soon as nothing goes on, or its turn has failed once more."""
    news = await fl.until(lambda tx: _news(tx, failures))
    assert news is not None
    return news


class _News(Struct, frozen=True):
    """How the conversation stands now that nothing goes on."""

    failed: bool
    failures: int
    """How often the open turn has failed."""
    questions: tuple[str, ...]
    lost: int
    """Messages that could not be sent."""


def _news(tx: Tx, failures: int) -> _News | None:
    """How it stands; None while something goes on: a turn, a run, a message to be sent."""
    turn = tx.turn(main_key())
    failed = turn is not None and turn.failures > failures
    questions = tuple(awaits(tx))
    # What a program has not read yet waits for that program; what works for it is driven here too.
    settled = is_at_rest(tx, main_key()) and not any(tx.counts(root).unsettled for root in tx.roots())
    if failed or questions or (settled and not tx.waiting_posts()):
        return _News(failed, 0 if turn is None else turn.failures, questions, len(tx.undelivered_posts()))
    return None


def awaits(tx: Tx) -> list[str]:
    """What waits for a person, if nothing else goes on."""
    asked = tx.open_approvals()
    if not asked or tx.waiting_posts() or any(driver.release_at is None for driver in tx.drivers()):
        return []
    return [lines.question(question(approval)) for approval in asked]


def plans_waiting(tx: Tx) -> list[str]:
    """The plans that await an answer, and the commands that give it."""
    return [lines.plan(found) for key in tx.awaiting() if (found := plan(tx, key)) is not None]
