"""The rows of a state folder, as tests look at them: also beside a program that holds it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fledge.errors import StoreError, StoreLocked
from fledge.store.base import Route, Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore, peek

T = TypeVar("T")


def bound_routes(tx: Tx) -> list[Route]:
    """All bindings, by session."""
    sessions = tx.unit.column("SELECT session FROM routes WHERE kind = 'bound' ORDER BY session")
    return [route for route in map(tx.routes.get, sessions) if route is not None]


def look(folder: Path, view: Callable[[Tx], T]) -> T:
    """What a view shows of a state folder; refused if there is no store in it."""

    async def looking() -> T:
        store = SqliteStore.open(folder)
        try:
            return await store.read(view)
        finally:
            await store.close()

    if not (folder / DATABASE).exists():
        raise StoreError(f"{folder}: no {DATABASE} there; name the folder that holds it with --state")
    try:
        return asyncio.run(looking())
    except StoreLocked:
        return peek(folder, view)
