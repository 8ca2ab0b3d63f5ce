"""The verbs of `commands` in a folder that no process drives. The code that carries them out is imported only for the
call: a command that asks another process does not pay for that."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fledge.client.connection import VerbParams, WireFeed
from fledge.errors import Refused

if TYPE_CHECKING:
    from fledge.config import Config


class AtRest:
    """Carries out verbs in a folder that no process drives, and releases it after each call. Work that a verb starts
    continues when a process drives the folder. The settings apply: they are read for each verb that changes something,
    or shows settings.

    With the address of a `store` on a server, it does the same there, beside the workers of that store.
    """

    def __init__(self, state: Path, settings: "Callable[[], Config]", store: str = "") -> None:
        self._state, self._settings, self._store = state, settings, store
        self.is_open = False

    async def call(self, method: str, params: VerbParams) -> Any:
        """The answer of the method."""
        from fledge.client.resting import answer

        return await answer(self._state, self._settings, self._store, method, params)

    async def events(self, cursor: int | None, session: str, live: bool) -> WireFeed:
        """Refused: no process drives the folder, so there are no events."""
        raise Refused(
            "error", f"no process drives {self._state}, so there are no events: start one with `fledge run --continue`"
        )
        yield {}

    async def close(self) -> None:
        """Does nothing: nothing is open between calls."""
