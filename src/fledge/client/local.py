"""The verbs of `commands` in a folder that nobody drives. What carries them out is imported only then: whoever asks
another process does not pay for it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fledge.client.connection import VerbParams, WireFeed
from fledge.errors import Refused

if TYPE_CHECKING:
    from fledge.config import Config


class AtRest:
    """Reads and decides in a folder that nobody drives, and lets go of it after each call. What is decided goes on when
    somebody drives the folder. The settings hold: they are read for whatever is decided.

    With the address of a `store` on a server, the same there, beside the workers of that store.
    """

    def __init__(self, state: Path, settings: "Callable[[], Config]", store: str = "") -> None:
        self._state, self._settings, self._store = state, settings, store
        self.is_open = False

    async def call(self, method: str, params: VerbParams) -> Any:
        """What the method answers."""
        from fledge.client.resting import answer

        return await answer(self._state, self._settings, self._store, method, params)

    async def events(self, cursor: int | None, session: str, live: bool) -> WireFeed:
        """Refused: nothing is driven here."""
        raise Refused(
            "error", f"no process drives {self._state}, so there are no events: start one with `fledge run --continue`"
        )
        yield {}

    async def close(self) -> None:
        """Nothing is held."""
