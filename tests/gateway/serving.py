"""What the gateway's tests share: a real gateway in a thread of its own, and the ways to ask it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
from websockets.sync.client import ClientConnection, connect

import fledge
from fledge.client.connection import error_of
from fledge.commands.feed import Subscribe, Watch
from fledge.commands.gateway_state import GatewayState
from fledge.config import check
from fledge.gateway.serve import serve
from fledge.models.base import Model
from fledge.orchestrator import spawn
from fledge.orchestrator.commit import Commit
from fledge.store.ways import read_token
from fledge.testing import ScriptedModel
from tests.api.scene import obedient
from tests.gateway.asking import Client

PATIENCE_S = 30.0


class Server:
    """A gateway that is being served."""

    def __init__(self, state: Path, address: str, desk: GatewayState, loop: asyncio.AbstractEventLoop) -> None:
        self.state, self.address, self.desk, self.loop = state, address, desk, loop
        self.token = read_token(state)
        self.port = int(address.rpartition(":")[2])

    def client(self) -> Client:
        return Client(self.address, self.token)

    @contextmanager
    def socket(self, **options: Any) -> Iterator[ClientConnection]:
        """A WebSocket to it, with the token shown."""
        headers = options.pop("additional_headers", {"authorization": f"Bearer {self.token}"})
        with connect(f"ws://127.0.0.1:{self.port}/ws", additional_headers=headers, **options) as one:
            yield one

    def begin(self, *keys: str) -> None:
        """Let these conversations be there, with nothing said in them."""

        def opened(c: Commit) -> None:
            for key in keys:
                spawn.open_conversation(c, key)

        self.do(self.desk.fl.engine.commit(opened))

    def do(self, work: Any) -> Any:
        """Run a coroutine where the gateway runs."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)


@asynccontextmanager
async def opened_watch(fl: fledge.Fledge, wanted: Subscribe) -> AsyncIterator[Watch]:
    """A feed of an open folder, without a gateway, while the block lasts."""
    watch = Watch(fl, wanted)
    await watch.begin()
    try:
        yield watch
    finally:
        watch.close()


@contextmanager
def serving(
    state: Path, model: Model | None = None, settings: dict[str, object] | None = None, **options: Any
) -> Iterator[Server]:
    """A gateway on this folder, as long as the block lasts; it must close in order."""
    document: dict[str, Any] = {"gateway": {"port": 0, "requestsPerSecond": 10_000}} | (settings or {})
    ready = threading.Event()
    found: list[Server] = []
    failed: list[BaseException] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))

        def told(address: str, desk: GatewayState) -> None:
            found.append(Server(state, address, desk, asyncio.get_running_loop()))
            ready.set()

        await serve(
            state,
            check(document).config,
            ready=told,
            stop=stop,
            env=options.pop("env", {"FLEDGE_CONFIG": str(state.parent / "user")}),
            model=model or ScriptedModel(obedient),
            workspace=state.parent,
            **options,
        )

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="gateway")
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        if failed:
            raise failed[0]
        yield found[0]
    finally:
        loop, stop = stops[0]
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert failed == []


# ---- the ways to ask -------------------------------------------------------------------------------------------------


class Asks(Protocol):
    """One way to call methods."""

    def call(self, method: str, **params: object) -> Any:
        """What the method answers; raises what it refused."""
        ...

    def raw(self, document: object) -> Any:
        """The answer to any JSON text or document, read; None if there is none."""
        ...


class OverHttp:
    """POST /rpc, by the client that other processes use."""

    def __init__(self, server: Server) -> None:
        self._client = server.client()

    def call(self, method: str, **params: object) -> Any:
        return self._client.call(method, **params)

    def raw(self, document: object) -> Any:
        body = document.encode() if isinstance(document, str) else msgspec.json.encode(document)
        told = self._client.request("POST", "/rpc", body)
        return msgspec.json.decode(told) if told else None


class OverSocket:
    """Messages on one WebSocket; notifications that come between are kept."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self.told: list[Any] = []

    def call(self, method: str, **params: object) -> Any:
        self._number += 1
        answer = self.raw({"jsonrpc": "2.0", "method": method, "params": params, "id": self._number})
        if "error" in answer:
            raise error_of(answer["error"])
        return answer["result"]

    def raw(self, document: object) -> Any:
        self._connection.send(document if isinstance(document, str) else msgspec.json.encode(document).decode())
        if is_notification(document):
            return None
        while True:
            told = self.next()
            if isinstance(told, list) or "method" not in told:
                return told
            self.told.append(told)

    def next(self) -> Any:
        """What comes next."""
        return msgspec.json.decode(self._connection.recv(PATIENCE_S))

    def event(self) -> Any:
        """The next event of a feed."""
        told = self.told.pop(0) if self.told else self.next()
        assert told["method"] == "event", told
        return told["params"]


def is_notification(document: object) -> bool:
    """True of requests that want no answer."""
    if isinstance(document, list):
        return bool(document) and all(is_notification(one) for one in document)
    return (
        isinstance(document, dict)
        and document.get("jsonrpc") == "2.0"
        and "id" not in document
        and "method" in document
    )
