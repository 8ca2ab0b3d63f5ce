"""`fledge info`, `log` and `undelivered`: one run in full, its transcript, and results that found nobody.

A run is named by its number, its session key, a run id or the beginning of one, or its label. Unknown and ambiguous
names each say so.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from fledge.cli.render import status, timeline_lines
from fledge.core.announce import Completion
from fledge.core.freeze import one_line
from fledge.core.keys import main_key
from fledge.core.prompts import ChildRow
from fledge.core.targets import pick
from fledge.core.transcript import Noted, Replied, Resulted, Spoken, Told, from_body
from fledge.errors import StoreError
from fledge.ids import RandomIds
from fledge.orchestrator import control
from fledge.orchestrator.carry_out import carry_out
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.transcripts import used
from fledge.store.base import Entry, Row, Tx
from fledge.store.sqlite import DATABASE, SqliteStore
from fledge.tools.subagents import child_rows

T = TypeVar("T")
LINE_CHARS = 200


def look(folder: Path, view: Callable[[Tx], T]) -> T:
    """What a view shows of a state folder; refused if there is no store in it."""

    async def looking() -> T:
        store = _open(folder)
        try:
            return await store.read(view)
        finally:
            await store.close()

    return asyncio.run(looking())


def change(folder: Path, decide: Callable[[Commit], T]) -> T:
    """Commit one decision to a state folder that nobody else uses now."""

    async def changing() -> T:
        store = _open(folder)
        try:
            return await store.transact(lambda tx: decide(Commit(tx, time.time(), RandomIds(), Rules(), carry_out)))
        finally:
            await store.close()

    return asyncio.run(changing())


def _open(folder: Path) -> SqliteStore:
    if not (folder / DATABASE).exists():
        raise StoreError(f"{folder}: no {DATABASE} there; name the folder that holds it with --state")
    return SqliteStore.open(folder)


def find(tx: Tx, name: str) -> str:
    """The run that a name means, of all below the main conversation."""
    known = tx.run_named(name)
    if known is not None:
        return known[0]
    rows: list[ChildRow] = []
    sessions = [main_key()]
    for session in sessions:
        rows += child_rows(tx, session)
        sessions += tx.children(session)
    return pick(name, rows).key


def info(tx: Tx, name: str) -> list[str]:
    """A run in full: what was asked, how it stands, what it used, and its story."""
    key = find(tx, name)
    run, spec, counts, spent = tx.load_run(key), tx.spec(key), tx.counts(key), used(tx, key)
    lines = [
        f"session   {key}",
        f"run       {run.run_id} (attempt {run.attempt})",
        f"label     {one_line(spec.label, LINE_CHARS)}",
        f"task      {one_line(spec.task, LINE_CHARS)}",
        f"status    {status(run)}",
        f"parent    {run.terms.parent}",
    ]
    if run.ended is not None and run.ended.outcome.error:
        lines.append(f"error     {one_line(run.ended.outcome.error, LINE_CHARS)}")
    if run.delivery is not None:
        lines.append(f"delivery  {msgspec.json.encode(run.delivery).decode()}")
    if counts.spawned:
        lines.append(f"children  {counts.spawned}, {counts.unsettled} unsettled")
    if spent.tokens_in is not None:
        cost = "" if spent.cost_usd is None else f", est ${spent.cost_usd:.4f}"
        lines.append(f"tokens    {spent.tokens_in} in, {spent.tokens_out} out{cost}")
    return [*lines, "", *timeline_lines(tx.events(key))]


def log(tx: Tx, name: str, last: int = 20, tools: bool = False) -> list[str]:
    """The newest entries of a session's transcript: `main`, or a run's."""
    key = main_key() if name == "main" else find(tx, name)
    entries = [entry for entry in tx.entries(key, limit=1_000_000) if tools or entry.kind != "tool"]
    return [_line(entry) for entry in entries[-last:]] or ["(empty)"]


def _line(entry: Entry) -> str:
    match from_body(entry.body):
        case Spoken(text=text, kind=kind):
            said = f"{kind or 'user'}: {text}"
        case Told(text=text):
            said = f"told: {text}"
        case Replied(text=text, calls=calls):
            said = f"assistant: {text}" + "".join(f" [{call.name} {call.arguments}]" for call in calls)
        case Resulted(name=tool, text=text):
            said = f"{tool}: {text}"
        case Noted(text=text):
            said = f"note: {text}"
    return f"{entry.seq:>5}  {one_line(said, LINE_CHARS)}"


def undelivered(tx: Tx) -> list[str]:
    """Results that found nobody, oldest first."""
    return [_given_up(row) for row in tx.undelivered()] or ["nothing is undelivered"]


def _given_up(row: Row) -> str:
    told = msgspec.json.decode(row.body, type=Completion)
    return f"{row.source}  {one_line(told.label or told.task, 60)}  ({told.outcome.status})"


def take_up(folder: Path, action: str, name: str) -> str:
    """Retry or dismiss an undelivered result."""
    act = control.retry if action == "retry" else control.dismiss
    key = change(folder, lambda c: act(c, find(c.tx, name)).key)
    if action == "retry":
        return f"{key} is announced again: `fledge run --continue` delivers it"
    return f"{key} is dismissed"
