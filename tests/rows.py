"""The rows of a state folder, as tests look at them: also beside a program that holds it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fledge.errors import StoreError, StoreLocked
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore, peek

T = TypeVar("T")


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
