"""`fledge run` and `fledge ps`: a conversation without a terminal, and what is going on in a state folder.

`run` sends a prompt to the main conversation, drives whatever is unfinished, prints the answers, and returns when
everything has settled. Killed at any moment, `run --continue` goes on where it stood.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from fledge.cli.render import tree_lines
from fledge.config.places import discover
from fledge.core.freeze import one_line, said
from fledge.core.keys import main_key
from fledge.core.transcript import Replied, from_body
from fledge.models.names import Registry
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.runtime.agent import Agent
from fledge.runtime.feed import Subscription
from fledge.runtime.profiles import ConfiguredProfiles, rules_of
from fledge.store.base import Approval, Tx
from fledge.store.sqlite import SqliteStore
from fledge.tools.base import Tool

LOOK_S = 0.25
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


async def converse(request: Request, registry: Registry | None = None, tools: Iterable[Tool] = ()) -> int:
    """Drive the conversation until everything has settled; 0, 1 after an error, 3 if a person is awaited."""
    loaded = discover(Path.cwd(), request.settings).loaded
    for warning in loaded.warnings:
        print(f"fledge: {warning}", file=sys.stderr)
    config = loaded.config
    profiles = ConfiguredProfiles(
        config, workspace=Path.cwd(), state=request.state, model=request.model, registry=registry, tools=tools
    )
    profiles.check()
    store = SqliteStore.open(request.state)
    agent = Agent(profiles, places=profiles)
    watching = agent.feed.listen()
    try:
        async with Engine(store, agent, rules=rules_of(config)) as engine:
            told = await engine.store.read(_last_entry)
            await engine.commit(lambda c: _begin(c, request.prompt))
            return await _until_settled(engine, watching, told)
    finally:
        watching.close()
        await store.close()
        await profiles.close()


def _begin(c: Commit, prompt: str | None) -> None:
    spawn.open_conversation(c, main_key())
    if prompt is not None:
        control.send(c, main_key(), prompt)


def _last_entry(tx: Tx) -> int:
    entries = tx.entries(main_key(), limit=1_000_000)
    return entries[-1].seq if entries else 0


async def _until_settled(engine: Engine, watching: Subscription, told: int) -> int:
    """Print what the conversation says until nothing is left to do, or nothing can go on."""
    while True:
        errors = _drain(watching)
        told = await _print_new(engine, told)
        if errors:
            print(f"fledge: {errors[-1]}", file=sys.stderr)
            print("fledge: nothing is lost: `fledge run --continue` tries again", file=sys.stderr)
            return 1
        if await engine.store.read(is_settled):
            await _print_new(engine, told)
            return 0
        waiting = await engine.store.read(awaits)
        if waiting:
            for line in waiting:
                print(line, file=sys.stderr)
            return AWAITS_A_PERSON
        await engine.clock.wait_until(engine.clock.now() + LOOK_S, asyncio.Event())


def _drain(watching: Subscription) -> list[str]:
    """Errors of the main conversation since the last look."""
    return [event.text for event in watching.waiting() if event.kind == "error" and event.session == main_key()]


async def _print_new(engine: Engine, after: int) -> int:
    entries = await engine.store.read(lambda tx: tx.entries(main_key(), after=after, limit=100_000))
    for entry in entries:
        body = from_body(entry.body)
        if isinstance(body, Replied) and not body.calls and said(body.text) == "text":
            print(body.text, flush=True)
    return entries[-1].seq if entries else after


def is_settled(tx: Tx) -> bool:
    """Nothing is left to do: no turn is open, nothing is unread or queued, and everything below has settled."""
    key = main_key()
    idle = tx.turn(key) is None and tx.queued(key) is None and not tx.unread(key, 1)
    return idle and tx.counts(key).unsettled == 0


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
