"""`fledge info`, `log` and `undelivered`: one run in full, its transcript, and results that found nobody.

A run is named by its number, its session key, a run id or the beginning of one, or its label. Unknown and ambiguous
names each say so.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fledge.commands.lines import info_lines, log_lines
from fledge.core.keys import main_key
from fledge.core.targets import pick
from fledge.errors import NotFound, StoreError, StoreLocked
from fledge.ids import RandomIds
from fledge.orchestrator.carry_out import carry_out
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.views import child_rows, find_run, rows_below
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore, peek

T = TypeVar("T")


def look(folder: Path, view: Callable[[Tx], T]) -> T:
    """What a view shows of a state folder, also beside a program that holds it; refused if there is no store in it."""

    async def looking() -> T:
        store = _open(folder)
        try:
            return await store.read(view)
        finally:
            await store.close()

    try:
        return asyncio.run(looking())
    except StoreLocked:
        return peek(folder, view)


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
    """The run that a name means: of those below the main conversation, else of all."""
    try:
        return find_run(tx, main_key(), name)
    except NotFound:
        rows = [row for root in tx.roots() for row in (*child_rows(tx, root), *rows_below(tx, root))]
        known = tx.run_named(name)
        return pick(name, rows).key if known is None else known[0]


def info(tx: Tx, name: str) -> list[str]:
    """A run in full."""
    return info_lines(tx, find(tx, name), time.time())


def log(tx: Tx, name: str, last: int = 20, tools: bool = False) -> list[str]:
    """The newest entries of a session's transcript: `main`, or a run's."""
    return log_lines(tx, main_key() if name == "main" else find(tx, name), last, tools)
