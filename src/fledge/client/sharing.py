"""A folder that several processes open: the first one holds it, the others ask it, and one of them takes over when it
leaves.

Each process must have the same tools, agents, runtimes, hooks, settings and workspace, or is refused: a run must have
the same result whichever process holds the folder.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self, cast

from fledge.api.fledge import Fledge, Parts
from fledge.api.identity import Identity, differences
from fledge.cancellation import end_tasks
from fledge.client.connection import Connection
from fledge.client.driving import Driving
from fledge.client.folder import PAUSE_S, Folder, moves
from fledge.client.guest import Guest
from fledge.commands.control_socket import control_socket
from fledge.commands.reading import from_wire
from fledge.core.policy import doubled_s
from fledge.errors import FledgeError, HolderLeft, Refused, StoreLocked
from fledge.store.lock import holder_of

TROUBLE_S, MOST_TROUBLE_S = 1.0, 30.0
"""How long a process that cannot take over waits before it tries again."""

log = logging.getLogger("fledge.client")


class Shared(Fledge):
    """The return value of `fledge.open` for a folder that processes can share. `async with` gives this object, or a
    `Guest` if another process holds the folder."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._around = AsyncExitStack()
        self._guest: Guest | None = None

    async def __aenter__(self) -> Self:
        """Hold the folder and answer other processes, or become a guest of the process that holds it. Raises
        StoreLocked if that process cannot be asked, or differs from this one (`differences`)."""
        if self._guest is not None:
            raise Refused("error", "this fledge is open already: call fledge.open again for another")
        try:
            await super().__aenter__()
        except StoreLocked:
            if not self.drives or not moves(self.state):
                raise
            folder = SharedFolder(self.state, lambda: Fledge(self._parts), lambda: self.identity)
            guest = Guest(folder, self.program, self)
            async with AsyncExitStack() as entering:
                await entering.enter_async_context(guest)
                await entering.enter_async_context(folder.kept())
                self._around = entering.pop_all()
            self._guest = guest
            return cast(Self, guest)
        if self.drives:
            await self._around.enter_async_context(control_socket(self))
        return self

    async def __aexit__(self, *error: object) -> None:
        """Release the folder, or stop being a guest."""
        try:
            await self._around.aclose()
        finally:  # it is cancelled if the folder was taken away meanwhile; the reason comes from there
            self._guest = None
            await super().__aexit__(*error)


class SharedFolder(Folder):
    """A folder that processes with the same tools, agents and so on share. While it is `kept`, this process takes over
    as soon as no process holds it."""

    def __init__(self, state: Path, opening: Callable[[], Fledge], own: Callable[[], Identity]) -> None:
        self._driving = Driving(opening)
        super().__init__(state, self._driving)
        self._own = own
        self._differs = False
        """True if the holder of the folder differs from this process: it is of no use to wait for it."""

    async def meet(self, connection: Connection) -> None:
        """Raises StoreLocked, which names the differences, if the holder differs from this process."""
        told = from_wire(Identity, await connection.call("identity", {}))
        found = differences(self._own(), told)
        self._differs = bool(found)
        if found:
            who = holder_of(self._state / "lock") or "another process"
            words = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
            raise StoreLocked(
                f"{self._state} is in use by {who}, which brings something else than this one: {words}."
                " End that first, make them the same, or name another folder"
            )

    def _moves(self) -> bool:
        return not self._differs and super()._moves()

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Make sure that a process holds the folder until the block ends: this one takes over if no other does."""
        keeping = asyncio.ensure_future(self._keep())
        try:
            yield
        finally:
            await end_tasks([keeping])

    async def _keep(self) -> None:
        failures, told = 0, ""
        while not self._driving.is_open:
            try:
                if await self.reach() is self._driving:
                    await self._driving.opened()
                await self.left()
                failures, told = 0, ""
            except (StoreLocked, HolderLeft):
                await asyncio.sleep(PAUSE_S)
            except FledgeError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("%s has no holder, and this process cannot take over: %s", self._state, told)
                await asyncio.sleep(doubled_s(TROUBLE_S, failures, MOST_TROUBLE_S))
                failures += 1
