"""A state folder, through whoever holds it: another process, if there is one, else this one.

The holder may come or leave at any moment. What it surely did not do is asked again, of the next holder or here; what
it may have done only if it may be repeated. A feed goes on with the next holder from where it stood.
"""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fledge.client.connection import Connection, VerbParams, VerbServer, WireFeed, connect, find
from fledge.commands.index import KEYED, READS
from fledge.errors import BadInput, HolderLeft, StoreError, StoreLocked
from fledge.ids import RandomIds
from fledge.store.lock import holder_of

T = TypeVar("T")

MOVES_S = 30.0
"""How long a process may take to come or to leave: it has the folder's lock then, and cannot be asked."""
PAUSE_S = 0.05


class Way(Protocol):
    """Somebody who answers."""

    async def call(self, method: str, params: VerbParams) -> Any:
        """What the method answers."""

    def events(self, cursor: int | None, session: str, live: bool) -> WireFeed:
        """What happens, from the cursor on."""


class Local(Way, Protocol):
    """How this process does what nobody else does."""

    @property
    def is_open(self) -> bool:
        """This process holds the folder."""

    async def close(self) -> None:
        """Let go of the folder."""


class Client:
    """The verbs, whoever carries them out. Use it in `async with`."""

    is_held = False
    """Other processes go on with what was asked: one that holds the folder has answered, or the store has workers."""

    def __init__(self, patience_s: float = MOVES_S) -> None:
        self._patience_s = patience_s
        """How long somebody who comes or leaves is waited for."""
        self._connection: Connection | None = None
        self._reaching = asyncio.Lock()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def call(self, method: str, /, *, once: bool = True, **params: object) -> Any:
        """What the method answers. Raises what it refused, as the library would.

        With `once=False` the request may be carried out twice without harm; one that only reads always may, and so may
        one that takes a key: it gets one of its own, if it has none. Raises HolderLeft if another process may have done
        it and has not answered, and StoreLocked if the holder cannot be asked, or neither comes nor leaves in time.
        """
        if method in KEYED and not params.get("idempotencyKey"):
            params["idempotencyKey"] = RandomIds().unique()
        patience = _Patience(self, may_repeat=not once or method in READS | KEYED)
        while True:
            patience.begin()
            try:
                return await (await self.reach()).call(method, params)
            except (StoreLocked, HolderLeft) as error:
                await patience.after(error)

    async def value(self, kind: type[T], method: str, /, *, once: bool = True, **params: object) -> T:
        """What the method answers, as a value of the library. Raises as `call` does."""
        from fledge.commands.reading import from_wire

        return from_wire(kind, await self.call(method, once=once, **params))

    async def events(self, cursor: int | None = None, session: str = "", live: bool = True) -> WireFeed:
        """What happens, from the cursor on (from now on, without one): the events of the gateway's feeds, as they look
        on the wire. Where the holder leaves there is one of type `closing`; what turns told meanwhile is missed."""
        patience = _Patience(self, may_repeat=True)
        while True:
            patience.begin()
            try:
                async with aclosing((await self.reach()).events(cursor, session, live)) as feed:
                    async for event in feed:
                        cursor = event.get("cursor", cursor)
                        yield event
            except (StoreLocked, HolderLeft) as error:
                await patience.after(error)
            else:
                await asyncio.sleep(PAUSE_S)

    async def reach(self) -> Way:
        """Whoever answers now. Raises HolderLeft or StoreLocked if nobody does for the moment."""
        raise NotImplementedError

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._connection is not None:
            await self._connection.close()

    def _moves(self) -> bool:
        """True if whoever holds the folder is about to come or to leave; False if they can never be asked."""
        return True


class Folder(Client):
    """A state folder on this machine."""

    def __init__(self, state: Path, local: Local, *, settings: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._state, self._local, self._settings = state, local, settings

    async def reach(self) -> Way:
        """Another process that holds the folder, or this one."""
        async with self._reaching:
            if self._local.is_open:
                self.is_held = False
                return self._local
            if self._connection is None or not self._connection.is_open:
                self._connection = None
                found = await find(self._state)
                if found is None:
                    self.is_held = False
                    return self._local
                try:
                    await self.meet(found)
                except BaseException:
                    await found.close()
                    raise
                self._connection = found
            self.is_held = True
            return self._connection

    async def meet(self, connection: Connection) -> None:
        """Look at whoever holds the folder before they are asked. Refused: settings for what another process does,
        which has its own."""
        if self._settings:
            who = holder_of(self._state / "lock") or "another process"
            words = f"cannot count here: {who} holds {self._state} with its own settings; leave it out"
            raise BadInput("--set", words, self._settings[0])

    async def left(self) -> None:
        """Wait until the other process that holds the folder, if one does, has left."""
        if self._connection is not None:
            await self._connection.ended()

    async def close(self) -> None:
        """Ask nobody any more, and let go of the folder."""
        await super().close()
        await self._local.close()

    def _moves(self) -> bool:
        return moves(self._state)


class Elsewhere(Client):
    """A gateway, or the holder of a folder, that is asked and never replaced. Once it was there, it is waited for."""

    def __init__(self, place: VerbServer, patience_s: float = MOVES_S) -> None:
        super().__init__(0.0)
        self._place, self._returns_s = place, patience_s
        self.is_held = True

    async def reach(self) -> Way:
        """Whoever is there."""
        async with self._reaching:
            if self._connection is None or not self._connection.is_open:
                self._connection = await connect(self._place)
                self._patience_s = self._returns_s
            return self._connection


class Server(Client):
    """A store on a server: this process commits there itself, beside the workers of the store."""

    is_held = True

    def __init__(self, local: Local) -> None:
        super().__init__(0.0)
        self._local = local

    async def reach(self) -> Way:
        """This process."""
        return self._local

    async def close(self) -> None:
        """Let go of the store."""
        await self._local.close()

    def _moves(self) -> bool:
        return False


class _Patience:
    """How long somebody who comes or leaves is waited for."""

    def __init__(self, client: Client, may_repeat: bool) -> None:
        self._client, self._may_repeat = client, may_repeat
        self._until: float | None = None
        """Since the first failure: when patience is over."""
        self._began = 0.0

    def begin(self) -> None:
        """One more try."""
        self._began = time.monotonic()

    async def after(self, error: StoreError) -> None:
        """Wait a moment before the next try; raises the error if there is to be none."""
        if isinstance(error, HolderLeft) and error.acted and not self._may_repeat:
            raise error
        now = time.monotonic()
        if self._until is None or now - self._began > 1.0:
            self._until = now + self._client._patience_s  # it was there for a while, and leaves only now
        if self._began > self._until or (isinstance(error, StoreLocked) and not self._client._moves()):
            raise error
        await asyncio.sleep(PAUSE_S)


def moves(state: Path) -> bool:
    """True if the folder's holder is about to come or to leave; False of a program that can never be asked."""
    holder = holder_of(state / "lock")
    return holder is None or bool(holder.address)
