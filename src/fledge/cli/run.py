"""`fledge run` and `fledge ps`: a conversation without a terminal, and what is going on in a state folder.

`run` sends a prompt to the main conversation, drives whatever is unfinished, prints the answers, and returns when
everything has settled. Killed at any moment, `run --continue` goes on where it stood.
"""

import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

import fledge
from fledge.api.views import is_at_rest
from fledge.cli.render import tree_lines
from fledge.config.places import discover
from fledge.core.freeze import one_line, said
from fledge.core.keys import main_key
from fledge.core.transcript import Replied, from_body
from fledge.models.base import Model
from fledge.runtime.feed import Subscription
from fledge.store.base import Approval, Entry, Tx
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


def state_folder(given: str | None) -> Path:
    """Where state is kept: as given, else `$FLEDGE_STATE`, else `~/.fledge`."""
    return Path(given or os.environ.get("FLEDGE_STATE") or "~/.fledge").expanduser()


async def converse(request: Request, *, models: Mapping[str, Model] | None = None, tools: Iterable[Tool] = ()) -> int:
    """Drive the conversation until everything has settled; 0, 1 after an error, 3 if a person is awaited."""
    loaded = discover(Path.cwd(), request.settings).loaded
    for warning in loaded.warnings:
        print(f"fledge: {warning}", file=sys.stderr)
    opened = fledge.open(request.state, model=request.model, models=models, config=loaded.config, tools=tools)
    opened.check()
    async with opened as fl:
        heard = fl.listen()
        told, failures = await fl.engine.store.read(_stands)
        if request.prompt is not None:
            await fl.session("main").post(request.prompt)
        return await _until_settled(fl, heard, told, failures)


def _stands(tx: Tx) -> tuple[int, int]:
    """The newest entry, and how often the open turn has failed."""
    turn = tx.turn(main_key())
    return tx.last_entry(main_key()), 0 if turn is None else turn.failures


async def _until_settled(fl: fledge.Fledge, heard: Subscription, told: int, failures: int) -> int:
    """Print what the conversation says until nothing is left to do, or nothing can go on."""
    while True:
        news = await fl.until(lambda tx: _news(tx, told, failures))  # noqa: B023  (awaited here)
        assert news is not None
        for text in news.texts:
            print(text, flush=True)
        told = news.last
        if news.failed:
            errors = [event.text for event in heard.waiting() if event.kind == "error" and event.session == main_key()]
            print(f"fledge: {errors[-1] if errors else 'the turn failed'}", file=sys.stderr)
            print("fledge: nothing is lost: `fledge run --continue` tries again", file=sys.stderr)
            return 1
        if news.settled:
            return 0
        if news.questions:
            print("\n".join(news.questions), file=sys.stderr)
            return AWAITS_A_PERSON


class _News(Struct, frozen=True):
    """What there is to tell of the conversation since the last look."""

    texts: tuple[str, ...]
    last: int
    failed: bool
    settled: bool
    questions: tuple[str, ...]


def _news(tx: Tx, after: int, failures: int) -> _News | None:
    """What is new; None if nothing is, and everything goes on."""
    entries = tx.entries(main_key(), after=after, limit=100_000)
    turn = tx.turn(main_key())
    news = _News(
        texts=tuple(text for entry in entries if (text := _said(entry))),
        last=entries[-1].seq if entries else after,
        failed=turn is not None and turn.failures > failures,
        settled=is_at_rest(tx, main_key()),
        questions=tuple(awaits(tx)),
    )
    return news if news.texts or news.failed or news.settled or news.questions else None


def _said(entry: Entry) -> str:
    """The final words of a turn, if the entry has any."""
    body = from_body(entry.body)
    return body.text if isinstance(body, Replied) and not body.calls and said(body.text) == "text" else ""


def awaits(tx: Tx) -> list[str]:
    """What waits for a person, if nothing else goes on."""
    asked = tx.open_approvals()
    if not asked or any(driver.release_at is None for driver in tx.drivers()):
        return []
    return [_question(approval) for approval in asked]


def _question(approval: Approval) -> str:
    return f"waits for approval {approval.id[:8]}: {approval.tool} {one_line(approval.arguments, 200)}"


def ps(tx: Tx) -> list[str]:
    """The conversation and its runs, and what waits for a person."""
    turn = tx.turn(main_key())
    state = "idle" if turn is None else "a turn is open" + (f", failed {turn.failures} times" if turn.failures else "")
    unread = len(tx.unread(main_key()))
    lines = [f"main · {state}" + (f" · {unread} unread" if unread else "")]
    lines += tree_lines(tx, main_key(), time.time())
    lines += [_question(approval) for approval in tx.open_approvals()]
    return lines
