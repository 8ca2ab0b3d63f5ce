"""A state folder, used through the process that holds it: another process if there is one, else this one.

The holder may start or leave at any moment. A request that it certainly did not carry out is made again, to the next
holder or in this process; one that it may have carried out, only if it may be repeated. A feed continues with the next
holder from its cursor.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fledge.client.connection import Connection, VerbParams, VerbServer, WireFeed, connect, find
from fledge.commands.index import KEYED, READS
from fledge.errors import BadInput, HolderLeft, Refused, StoreError, StoreLocked
from fledge.ids import RandomIds
from fledge.store.lock import holder_of, silence_of

T = TypeVar("T")

MOVES_S = 30.0
"""How long a process may take to start or to leave: it has the folder's lock then, and cannot be asked."""
PAUSE_S = 0.05
SILENT_S = 2.0
"""After so long without a process that can be asked the caller is told."""

log = logging.getLogger("fledge.client")


class Way(Protocol):
    """Something that answers calls: a connection to another process, or this process."""

    async def call(self, method: str, params: VerbParams) -> Any:
        """The answer of the method."""

    def events(self, cursor: int | None, session: str, live: bool) -> WireFeed:
        """The events from the cursor on."""


class Local(Way, Protocol):
    """Answers calls in this process when no other process holds the folder."""

    @property
    def is_open(self) -> bool:
        """True if this process holds the folder."""

    async def close(self) -> None:
        """Release the folder."""


class Client:
    """Calls verbs; its subclasses decide which process carries them out. Use it in `async with`."""

    is_held = False
    """True if other processes continue the work that calls start: another process holds the folder and has been
    reached, or the store has workers."""

    def __init__(self, patience_s: float = MOVES_S) -> None:
        self._patience_s = patience_s
        """How long to wait for a holder that starts or leaves."""
        self._connection: Connection | None = None
        self._reaching = asyncio.Lock()
        self._is_closed = False
        self.on_silence: Callable[[str], None] = log.warning
        """Gets words for people while the process that is asked does not answer at all: it is stopped or blocked."""

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def call(self, method: str, /, *, once: bool = True, **params: object) -> Any:
        """The answer of the method. Raises its refusal as the library would.

        `once=False`: the request may be carried out twice without harm. A request that only reads may always be
        repeated, and so may one that takes an idempotency key: it gets a new key if it has none. Raises HolderLeft if
        another process may have carried out the request and has not answered, and StoreLocked if the holder can never
        be asked, or neither answers nor leaves in time. Raises Refused once this is closed, also while it waits.
        """
        if method in KEYED and not params.get("idempotencyKey"):
            params["idempotencyKey"] = RandomIds().unique()
        patience = _Patience(self, may_repeat=not once or method in READS | KEYED)
        while True:
            patience.begin()
            try:
                return await (await self._way()).call(method, params)
            except (StoreLocked, HolderLeft) as error:
                await patience.after(error)

    async def value(self, kind: type[T], method: str, /, *, once: bool = True, **params: object) -> T:
        """The answer of the method, as a value of the library. Raises as `call` does."""
        from fledge.commands.reading import from_wire

        return from_wire(kind, await self.call(method, once=once, **params))

    async def events(self, cursor: int | None = None, session: str = "", live: bool = True) -> WireFeed:
        """The events from the cursor on (from now on, without one): those of the gateway's feeds, as they look on the
        wire. When the holder leaves, there is one of type `closing`; events of turns from then until the next holder
        are missed."""
        patience = _Patience(self, may_repeat=True)
        while True:
            patience.begin()
            try:
                async with aclosing((await self._way()).events(cursor, session, live)) as feed:
                    async for event in feed:
                        cursor = event.get("cursor", cursor)
                        yield event
            except (StoreLocked, HolderLeft) as error:
                await patience.after(error)
            else:
                await asyncio.sleep(PAUSE_S)

    async def reach(self) -> Way:
        """The process that answers now. Raises HolderLeft or StoreLocked if none does at the moment."""
        raise NotImplementedError

    async def _way(self) -> Way:
        """The process that answers now. Raises Refused once this is closed."""
        self.check_open()
        way = await self.reach()
        if self._is_closed:
            await self.close()  # it was closed before there was a connection
            self.check_open()
        return way

    def check_open(self) -> None:
        """Raise Refused once this is closed."""
        if self._is_closed:
            raise Refused("error", "this fledge is not open any more: it was closed before the answer came")

    async def close(self) -> None:
        """Close the connection, if there is one. Calls that still wait get Refused, and no connection is made again."""
        self._is_closed = True
        if self._connection is not None:
            await self._connection.close()

    def tell_silence(self, words: str) -> None:
        """The process that is asked does not answer."""
        self.on_silence(words)

    @property
    def silence(self) -> str:
        """Words for people while the process that is asked can neither be reached nor replaced."""
        return "the process that is asked cannot be reached"

    def _moves(self) -> bool:
        """True if the holder of the folder is about to start or to leave; False if it can never be asked."""
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
                found = await find(self._state, self.tell_silence)
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
        """Check the holder of the folder before it is asked. Raises BadInput if there are settings for this command:
        the holder uses its own."""
        if self._settings:
            who = holder_of(self._state / "lock") or "another process"
            words = f"cannot count here: {who} holds {self._state} with its own settings; leave it out"
            raise BadInput("--set", words, self._settings[0])

    async def left(self) -> None:
        """Wait until the other process that holds the folder, if one does, has left."""
        if self._connection is not None:
            await self._connection.ended()

    async def close(self) -> None:
        """Close the connection, if there is one, and release the folder."""
        await super().close()
        await self._local.close()

    @property
    def silence(self) -> str:
        """Words for people while the process that is asked can neither be reached nor replaced."""
        return silence_of(holder_of(self._state / "lock"), self._state)

    def _moves(self) -> bool:
        return moves(self._state)


class Elsewhere(Client):
    """A gateway, or the holder of a folder, that this process never replaces. Once it was reached, calls wait up to
    `patience_s` for its return."""

    def __init__(self, place: VerbServer, patience_s: float = MOVES_S) -> None:
        super().__init__(0.0)
        self._place, self._returns_s = place, patience_s
        place.on_silence = self.tell_silence
        self.is_held = True

    async def reach(self) -> Way:
        """The process at this place."""
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
        """Release the store."""
        await self._local.close()

    def _moves(self) -> bool:
        return False


class _Patience:
    """Decides how long a call is tried again while the holder starts or leaves."""

    def __init__(self, client: Client, may_repeat: bool) -> None:
        self._client, self._may_repeat = client, may_repeat
        self._until: float | None = None
        """When the tries end; None before the first failure."""
        self._began = 0.0
        self._failed_at = 0.0
        """When the tries began to fail; 0 once that was said."""

    def begin(self) -> None:
        """Begin a try."""
        self._began = time.monotonic()

    async def after(self, error: StoreError) -> None:
        """Wait a moment before the next try; raises the error if there must be none, Refused if the client was
        closed."""
        self._client.check_open()
        if isinstance(error, HolderLeft) and error.acted and not self._may_repeat:
            raise error
        now = time.monotonic()
        if self._until is None or now - self._began > 1.0:
            self._until = now + self._client._patience_s  # the holder answered for a while, and leaves only now
            self._failed_at = now
        if self._began > self._until or (isinstance(error, StoreLocked) and not self._client._moves()):
            raise error
        if self._failed_at and now - self._failed_at > SILENT_S:
            self._failed_at = 0.0
            self._client.tell_silence(self._client.silence)
        await asyncio.sleep(PAUSE_S)


def moves(state: Path) -> bool:
    """True if the folder's holder is about to start or to leave, or can be asked; False if it can never be asked."""
    holder = holder_of(state / "lock")
    return holder is None or bool(holder.address)
