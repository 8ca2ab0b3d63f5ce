"""One verb in a folder that no process drives: the folder is opened for this call, and released.

A query needs only the store. For the other verbs the folder is opened as a program opens it, which imports everything
that can drive a folder; so these imports stand where they are needed.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fledge.client.connection import VerbParams, result_of
from fledge.clock import SystemClock
from fledge.commands import rpc
from fledge.commands.dispatch import call
from fledge.commands.index import OF_SETTINGS, QUERIES, READS
from fledge.commands.rpc import UNAVAILABLE, RpcFault
from fledge.commands.table import Reader
from fledge.commands.wire import WireObject
from fledge.core.run import Instant
from fledge.errors import StoreError, StoreLocked
from fledge.store.addresses import open_server
from fledge.store.base import Cluster, Store, Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore, peek

if TYPE_CHECKING:
    from fledge.config import Config

T = TypeVar("T")


async def answer(state: Path, settings: "Callable[[], Config]", server: str, method: str, params: VerbParams) -> Any:
    """The answer of a method, in this folder or in the store at the address of a server.

    With a store on a server, a query needs no files; other verbs may write some, so the folder must be the one with the
    files of the store.
    """
    if server:
        store = await asyncio.to_thread(open_server, server, None if method in QUERIES else state, drives=False)
    else:
        store = _store_in(state, method)
    try:
        if method in QUERIES:
            return await asked(_Rows(store), method, params)
        from fledge.client.opening import open as open_folder
        from fledge.commands.gateway_state import GatewayState
        from fledge.config import Config

        config = Config() if method in READS - OF_SETTINGS else settings()
        async with open_folder(state, config=config, drives=False, store=store) as fl:
            return await asked(GatewayState(fl), method, params)
    finally:
        await store.close()


def _store_in(state: Path, method: str) -> Store:
    """The folder's store as this method needs it: owned by this process, or only to be read. If another process owns
    it, a verb that only reads is answered nevertheless; other verbs raise StoreLocked."""
    if not (state / DATABASE).exists():
        raise StoreError(f"{state}: no {DATABASE} there; name the folder that holds it with --state")
    if method in QUERIES and _is_readable(state):
        return _Beside(state)
    try:
        return SqliteStore.open(state)
    except StoreLocked:
        if method not in READS:
            raise
        return _Beside(state)


def _is_readable(state: Path) -> bool:
    """True if the store can be read as it is. Otherwise it must be opened, which brings it up to date or raises what is
    wrong; the larger the store, the longer that takes."""
    try:
        peek(state, lambda tx: None)
    except StoreError:
        return False
    return True


async def asked(gateway: Reader, method: str, params: VerbParams) -> Any:
    """The answer of the method in this process, as other processes get it: values, errors and texts are the same."""
    request = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, "id": 1})

    async def called(name: str, given: WireObject) -> object:
        try:
            return await call(gateway, name, given)
        except StoreLocked:
            raise
        except StoreError as error:  # the store is the caller's own, so its words are no secret
            raise RpcFault(UNAVAILABLE, str(error)) from error

    answer = await rpc.answer(request, called)
    assert answer is not None  # the request has an id
    return result_of(msgspec.json.decode(answer))


class _Rows:
    """A store that this process does not drive, as queries read it."""

    drives = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self.old_names: set[tuple[str, str]] = set()

    def now(self) -> Instant:
        return SystemClock().now()

    async def read(self, look: Callable[[Tx], T]) -> T:
        return await self._store.read(look)


class _Beside:
    """A store that this process reads without owning it: another process owns it, or the verb is a query and needs no
    more."""

    cluster: Cluster | None = None

    def __init__(self, state: Path) -> None:
        self._state = state

    async def read(self, job: Callable[[Tx], T]) -> T:
        return peek(self._state, job)

    async def transact(self, job: Callable[[Tx], T]) -> T:
        raise StoreLocked(f"{self._state} is in use by another process")

    async def close(self) -> None:
        """Nothing is held."""
