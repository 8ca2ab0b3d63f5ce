"""Finding a service that has several addresses, some of which lead nowhere."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fledge.models.dial import Dialler
from tests.models.asking import run
from tests.models.raw_server import RawServer, chunked, saying, until

CA = Path(__file__).parent / "tls" / "ca.pem"


class Mute(asyncio.Protocol):
    """Takes connections and says nothing."""

    def __init__(self, taken: set[asyncio.BaseTransport]) -> None:
        self._taken = taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._taken.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._taken.discard(self._transport)


@asynccontextmanager
async def mute(port: int, taken: set[asyncio.BaseTransport]) -> AsyncIterator[str]:
    """An address at which nobody ever answers."""
    server = await asyncio.get_running_loop().create_server(lambda: Mute(taken), "127.0.0.2", port)
    try:
        yield "127.0.0.2"
    finally:
        server.close()


def secure_server() -> RawServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CA.with_name("server.pem"))
    return RawServer(saying(chunked(b"hello")), context)


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CA)


def test_an_address_that_does_not_answer_does_not_hold_up_one_that_does() -> None:
    async def main() -> None:
        taken: set[asyncio.BaseTransport] = set()
        async with secure_server() as server, mute(server.port, taken) as silent:
            dialler = Dialler("localhost", server.port, trusting, 5.0)
            connection = await dialler._first_of([silent, "127.0.0.1"])
            assert connection.fresh
            await until(lambda: not taken)
            connection.close()
            await connection.gone
            await server.no_connections()

    run(main())


def test_an_address_that_refuses_is_passed_over_at_once() -> None:
    async def main() -> None:
        async with RawServer(saying(chunked(b"hello"))) as server:
            dialler = Dialler("localhost", server.port, None, 5.0)
            connection = await dialler._first_of(["127.0.0.2", "127.0.0.3", "127.0.0.1"])
            connection.close()
            await connection.gone

    run(main())


def test_when_all_addresses_refuse_the_first_reason_is_told() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        dialler = Dialler("localhost", port, None, 5.0)
        with pytest.raises(ConnectionRefusedError, match=r"127\.0\.0\.2"):
            await dialler._first_of(["127.0.0.2", "127.0.0.1"])

    run(main())


@pytest.mark.parametrize("turns", range(12))
def test_dialling_that_is_cancelled_at_any_moment_leaves_nothing(turns: int) -> None:
    async def main() -> None:
        taken: set[asyncio.BaseTransport] = set()
        async with secure_server() as server, mute(server.port, taken) as silent:
            dialler = Dialler("localhost", server.port, trusting, 5.0)
            dialling = asyncio.ensure_future(dialler._first_of(["127.0.0.1", silent]))
            for _ in range(turns):
                await asyncio.sleep(0)
            dialling.cancel()
            with suppress(asyncio.CancelledError):
                (await dialling).close()
            await until(lambda: len(asyncio.all_tasks()) == 1)
            await server.no_connections()
            await until(lambda: not taken)

    run(main())


def test_a_name_that_is_none_is_told_as_such() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match=r"(?i)name|service|address|temporary"):
            await Dialler("nowhere.invalid", 80, None, 5.0).dial()

    run(main())
