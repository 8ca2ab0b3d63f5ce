"""The verbs of `commands`, called by the process that opens the folder itself, as others call them: request, answer.

So values, errors and words are the same, whoever answers.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fledge.api.opening import open as open_folder
from fledge.api.program import Fledge
from fledge.client.remote import answer_in, request
from fledge.commands import rpc
from fledge.commands.desk import Desk
from fledge.commands.hatch import hatch
from fledge.commands.methods import METHODS, call
from fledge.config import Config
from fledge.errors import StoreError, StoreLocked
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

    async def close(self) -> None:
        """Nothing is held."""


class Driving:
    """Opens the folder with the first call, and drives it until closed; others can ask this process meanwhile."""

    def __init__(self, opening: Callable[[], Fledge]) -> None:
        self._opening = opening
        self._stack = AsyncExitStack()
        self._desk: Desk | None = None

    @property
    def is_open(self) -> bool:
        """This process holds the folder."""
        return self._desk is not None

    async def call(self, method: str, params: Mapping[str, object]) -> Any:
        """What the method answers."""
        if self._desk is None:
            fl = await self._stack.enter_async_context(self._opening())
            self._desk = Desk(fl, fl.config.gateway)
            await self._stack.enter_async_context(hatch(fl, self._desk))
        return await asked(self._desk, method, params)

    async def close(self) -> None:
        """Stop driving, and let go of the folder."""
        self._desk = None
        await self._stack.aclose()


async def asked(desk: Desk, method: str, params: Mapping[str, object]) -> Any:
    """What the method answers here."""
    told = await rpc.answer(request(method, params), lambda name, given: call(desk, name, given))
    assert told is not None  # the request has an id
    return answer_in(told)


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
