"""A state folder, through whoever holds it: another process, if there is one, else this one.

The holder may come or leave at any moment. What it surely did not do is asked again, of the next holder or here; what
it may have done only if it may be repeated.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

from fledge.client.local import Local
from fledge.client.remote import Remote, find
from fledge.commands.methods import METHODS
from fledge.errors import BadInput, HolderLeft, StoreLocked
from fledge.store.lock import holder_of

MOVES_S = 30.0
"""How long a process may take to come or to leave: it has the folder's lock then, and cannot be asked."""
PAUSE_S = 0.05


class Folder:
    """The verbs on a state folder. Use it in `async with`."""

    def __init__(self, state: Path, local: Local, *, settings: tuple[str, ...] = ()) -> None:
        self._state, self._local, self._settings = state, local, settings
        self.is_held = False
        """The last call was answered by another process, which drives the folder."""

    async def __aenter__(self) -> "Folder":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._local.close()

    async def call(self, method: str, /, *, once: bool = True, **params: object) -> Any:
        """What the method answers. Raises what it refused, as the library would.

        With `once=False` the request may be carried out twice without harm, because it carries a key of its own; one
        that only reads always may. Raises HolderLeft if another process may have done it and has not answered, and
        StoreLocked if the holder cannot be asked, or neither comes nor leaves in time.
        """
        may_repeat = not once or (method in METHODS and METHODS[method].reads)
        patience_at = time.monotonic() + MOVES_S
        while True:
            began = time.monotonic()
            remote = None if self._local.is_open else await asyncio.to_thread(find, self._state)
            self.is_held = remote is not None
            try:
                if remote is None:
                    return await self._local.call(method, params)
                return await self._ask(remote, method, params)
            except StoreLocked:
                if not moves(self._state) or began > patience_at:
                    raise
            except HolderLeft as left:
                if (left.acted and not may_repeat) or began > patience_at:
                    raise
            now = time.monotonic()
            if now - began > 1.0:
                patience_at = now + MOVES_S  # it was there for a while, and leaves only now
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, remote: Remote, method: str, params: dict[str, object]) -> Any:
        refuse_settings(self._state, self._settings)
        return await asyncio.to_thread(remote.call, method, **params)


def moves(state: Path) -> bool:
    """True if the folder's holder is about to come or to leave; False of a program that can never be asked."""
    holder = holder_of(state / "lock")
    return holder is None or bool(holder.address)


def refuse_settings(state: Path, settings: tuple[str, ...]) -> None:
    """Refused: settings for what another process does, which has its own."""
    if settings:
        who = holder_of(state / "lock") or "another process"
        words = f"cannot count here: {who} holds {state} with its own settings; leave it out"
        raise BadInput("--set", words, settings[0])
