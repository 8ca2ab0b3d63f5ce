"""The verbs of `commands`, called by the process that opens the folder itself, as others call them: request, answer.

So values, errors and words are the same, whoever answers.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from fledge.api.opening import open as open_folder
from fledge.api.program import Fledge
from fledge.api.views import session_key
from fledge.client.connection import Feed, error_of
from fledge.commands import rpc
from fledge.commands.desk import Desk
from fledge.commands.feed import Closing, Wanted, Watch
from fledge.commands.hatch import hatch
from fledge.commands.methods import METHODS, call
from fledge.commands.wire import to_wire
from fledge.config import Config
from fledge.errors import Refused, StoreError, StoreLocked
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import peek

T = TypeVar("T")


class Local(Protocol):
    """How this process does what nobody else does."""

    @property
    def is_open(self) -> bool:
        """This process holds the folder."""
        ...

    async def call(self, method: str, params: Mapping[str, object]) -> Any:
        """What the method answers."""
        ...

    def events(self, cursor: int | None, session: str, live: bool) -> Feed:
        """What happens, from the cursor on."""
        ...

    async def close(self) -> None:
        """Let go of the folder."""
        ...


class AtRest:
    """Looks and decides in a folder that nobody drives, and lets go of it after each call. What is decided goes on when
    somebody drives the folder. The settings hold: they are read for whatever is decided."""

    def __init__(self, state: Path, settings: Callable[[], Config]) -> None:
        self._state, self._settings = state, settings
        self.is_open = False

    async def call(self, method: str, params: Mapping[str, object]) -> Any:
        """What the method answers; what only looks is shown beside a process that cannot be asked, too."""
        if not (self._state / DATABASE).exists():
            raise StoreError(f"{self._state}: no {DATABASE} there; name the folder that holds it with --state")
        looks = method in METHODS and METHODS[method].reads
        config = Config() if looks else self._settings()
        try:
            return await self._called(open_folder(self._state, config=config, drives=False), method, params)
        except StoreLocked:
            if not looks:
                raise
        beside = open_folder(self._state, config=config, drives=False, store=_Beside(self._state))
        return await self._called(beside, method, params)

    async def _called(self, opened: Fledge, method: str, params: Mapping[str, object]) -> Any:
        async with opened as fl:
            return await asked(Desk(fl, fl.config.gateway), method, params)

    async def events(self, cursor: int | None, session: str, live: bool) -> Feed:
        """Refused: nothing happens in a folder that nobody drives."""
        raise Refused("error", f"nobody drives {self._state}, so nothing happens in it: `fledge run --continue` does")
        yield {}

    async def close(self) -> None:
        """Nothing is held."""


class Driving:
    """Opens the folder with the first call, and drives it until closed; others can ask this process meanwhile."""

    def __init__(self, opening: Callable[[], Fledge]) -> None:
        self._opening = opening
        self._stack = AsyncExitStack()
        self._desk: Desk | None = None
        self._entering = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """This process holds the folder."""
        return self._desk is not None

    async def opened(self) -> Desk:
        """This process holds the folder from here on. Raises StoreLocked if another one does."""
        async with self._entering:
            if self._desk is None:
                fl = await self._stack.enter_async_context(self._opening())
                self._desk = Desk(fl, fl.config.gateway)
                await self._stack.enter_async_context(hatch(fl, self._desk))
            return self._desk

    async def call(self, method: str, params: Mapping[str, object]) -> Any:
        """What the method answers."""
        return await asked(await self.opened(), method, params)

    async def events(self, cursor: int | None, session: str, live: bool) -> Feed:
        """What happens, from the cursor on, until closed."""
        desk = await self.opened()
        wanted = Wanted(cursor=cursor, session_key=session_key(session, "session") if session else "", live=live)
        async with Watch(desk.fl, wanted) as watch:
            desk.watches.add(watch)
            try:
                yield {"type": "from", "cursor": watch.cursor}
                while not desk.closing.is_set():
                    for event in await watch.next(desk.patience.quiet_s):
                        yield to_wire(event)
                yield to_wire(Closing(cursor=watch.cursor, reason="this process leaves"))
            finally:
                desk.watches.discard(watch)

    async def close(self) -> None:
        """Stop driving, and let go of the folder."""
        self._desk = None
        await self._stack.aclose()


async def asked(desk: Desk, method: str, params: Mapping[str, object]) -> Any:
    """What the method answers here."""
    request = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, "id": 1})
    answer = await rpc.answer(request, lambda name, given: call(desk, name, given))
    assert answer is not None  # the request has an id
    told = msgspec.json.decode(answer)
    if "error" in told:
        raise error_of(told["error"])
    return told["result"]


class _Beside:
    """A store that another process owns: it can be looked at."""

    def __init__(self, state: Path) -> None:
        self._state = state

    async def read(self, job: Callable[[Tx], T]) -> T:
        return peek(self._state, job)

    async def transact(self, job: Callable[[Tx], T]) -> T:
        raise StoreLocked(f"{self._state} is in use by another process")

    async def close(self) -> None:
        """Nothing is held."""
