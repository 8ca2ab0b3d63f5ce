"""The verbs of `commands` in a folder that nobody drives: this process opens it for each call, and lets go of it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fledge.api.program import Fledge
from fledge.client.connection import Feed
from fledge.client.driving import asked
from fledge.client.opening import open as open_folder
from fledge.commands.desk import Desk
from fledge.commands.methods import METHODS
from fledge.config import Config
from fledge.errors import Refused, StoreError, StoreLocked
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import peek

T = TypeVar("T")


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
            return await self._called(
                open_folder(self._state, config=config, drives=False, control=False), method, params
            )
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
