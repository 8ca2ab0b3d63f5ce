"""Connections to one service: used again, given up in time, never left behind, never trusted."""

import asyncio
import gc
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fledge.models.connection import MOST_HELD_BYTES, Connection
from fledge.models.dial import default_tls
from fledge.models.http1 import BadAnswer
from fledge.models.pool import Pool, Unanswered
from tests.models.asking import run
from tests.models.raw_server import RawServer, Request, Script, chunked, saying, until

TLS = Path(__file__).parent / "tls"
HELLO = chunked(b"hello")


@asynccontextmanager
async def talk(script: Script, **settings: Any) -> AsyncIterator[tuple[RawServer, Pool]]:
    """A server that answers so, and a pool that asks it; afterwards nothing is left of either."""
    async with RawServer(script) as server:
        pool = Pool(server.url, **{"connect_s": 5.0, "request_s": 30.0, "idle_s": 5.0, **settings})
        try:
            yield server, pool
        finally:
            await pool.close()
        assert pool.connections == (0, 0)
        await server.no_connections()


async def ask(pool: Pool, body: bytes = b"{}") -> bytes:
    """The body of the answer to one request."""
    answer = await pool.post("/ask", {"X-Test": "1"}, body)
    try:
        words = b""
        while piece := await answer.read():
            words += piece
        return words
    finally:
        answer.close()


# ---- one after another -----------------------------------------------------------------------------------------------


def test_a_request_arrives_as_it_was_made() -> None:
    async def main() -> None:
        async with talk(saying(HELLO)) as (server, pool):
            assert await ask(pool, b"x" * 1_000_000) == b"hello"
            (request,) = server.requests
            assert request.body == b"x" * 1_000_000
            assert request.head == (
                b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Test: 1\r\nContent-Length: 1000000\r\n\r\n"
                % server.port
            )

    run(main())


def test_paths_and_names_are_written_in_ascii() -> None:
    async def main() -> None:
        async with RawServer(saying(HELLO)) as server:
            pool = Pool(f"{server.url}/größe/a%20b", connect_s=5, request_s=5, idle_s=5)
            assert await ask(pool) == b"hello"
            await pool.close()
            assert server.requests[0].head.startswith(b"POST /gr%C3%B6%C3%9Fe/a%20b/ask HTTP/1.1\r\n")

    run(main())


@pytest.mark.parametrize("answer", [HELLO, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"])
def test_a_connection_serves_one_request_after_another(answer: bytes) -> None:
    async def main() -> None:
        async with talk(saying(answer)) as (server, pool):
            assert [await ask(pool) for _ in range(5)] == [b"hello"] * 5
            assert [(request.connection, request.number) for request in server.requests] == [(0, at) for at in range(5)]
            assert pool.connections == (0, 1)

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(HELLO + b"more", id="more than belongs to it"),
        pytest.param(HELLO.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), id="said to close"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", id="an old protocol"),
    ],
)
def test_a_connection_that_may_not_last_is_not_kept(answer: bytes) -> None:
    async def main() -> None:
        async with talk(saying(answer)) as (server, pool):
            assert [await ask(pool), await ask(pool)] == [b"hello"] * 2
            assert [request.connection for request in server.requests] == [0, 1]
            assert pool.connections == (0, 0)

    run(main())


def test_an_answer_that_was_not_read_to_its_end_drops_its_connection() -> None:
    async def main() -> None:
        async with talk(saying(chunked(b"a", b"b"))) as (server, pool):
            answer = await pool.post("/", {}, b"")
            answer.close()
            answer.close()
            assert pool.connections == (0, 0)
            await server.no_connections()
            assert await ask(pool) == b"ab"

    run(main())


def test_many_at_once_have_a_connection_each_and_few_are_kept() -> None:
    async def main() -> None:
        async with talk(saying(HELLO), most_resting=3) as (server, pool):
            assert await asyncio.gather(*(ask(pool) for _ in range(50))) == [b"hello"] * 50
            assert len({request.connection for request in server.requests}) == 50
            assert pool.connections == (0, 3)
            await until(lambda: len(server.writers) == 3)

    run(main())


def test_an_unused_connection_is_closed_after_a_while() -> None:
    async def main() -> None:
        async with talk(saying(HELLO), rest_s=0.3) as (server, pool):
            await asyncio.gather(ask(pool), ask(pool))
            assert pool.connections == (0, 2)
            await server.no_connections()
            assert pool.connections == (0, 0)
            assert await ask(pool) == b"hello"

    run(main())


# ---- a service that closes -------------------------------------------------------------------------------------------


def test_a_kept_connection_that_the_service_closed_is_not_used() -> None:
    async def main() -> None:
        async with talk(saying(HELLO)) as (server, pool):
            await ask(pool)
            server.writers[0].close()
            # Nothing else ran here: the loop has not seen it, the kernel has.
            await server.writers[0].wait_closed()
            assert await ask(pool) == b"hello"
            assert [(request.connection, request.number) for request in server.requests] == [(0, 0), (1, 0)]

    run(main())


def test_bytes_nobody_asked_for_make_a_kept_connection_useless() -> None:
    async def main() -> None:
        async with talk(saying(HELLO)) as (server, pool):
            await ask(pool)
            server.writers[0].write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
            await server.writers[0].drain()
            assert await ask(pool) == b"hello"
            assert server.requests[1].connection == 1

    run(main())


def closing(when: Callable[[Request], bool], before: bytes = b"") -> Script:
    """Close instead of an answer; otherwise say hello."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        if when(request):
            writer.write(before)
            writer.close()
        else:
            writer.write(HELLO)

    return script


def test_a_request_lost_with_a_kept_connection_is_sent_once_more() -> None:
    async def main() -> None:
        async with talk(closing(lambda request: request.number > 0)) as (server, pool):
            assert [await ask(pool, b"1"), await ask(pool, b"2")] == [b"hello"] * 2
            asked = [(request.connection, request.body) for request in server.requests]
            assert asked == [(0, b"1"), (0, b"2"), (1, b"2")]

    run(main())


def test_it_is_sent_only_once_more() -> None:
    async def main() -> None:
        async with talk(closing(lambda request: request.connection + request.number > 0)) as (server, pool):
            await ask(pool)
            with pytest.raises(Unanswered):
                await ask(pool)
            assert len(server.requests) == 3

    run(main())


def test_a_request_lost_with_a_new_connection_is_not_sent_again() -> None:
    async def main() -> None:
        async with talk(closing(lambda request: True)) as (server, pool):
            with pytest.raises(Unanswered, match="closed the connection without an answer"):
                await ask(pool)
            assert len(server.requests) == 1

    run(main())


@pytest.mark.parametrize("begun", [b"H", HELLO[:-1]])
def test_a_request_that_was_answered_by_a_single_byte_is_not_sent_again(begun: bytes) -> None:
    async def main() -> None:
        async with talk(closing(lambda request: request.number > 0, begun)) as (server, pool):
            await ask(pool)
            with pytest.raises((BadAnswer, ConnectionError)):
                await ask(pool)
            assert len(server.requests) == 2

    run(main())


def test_a_request_that_was_not_answered_in_time_is_not_sent_again() -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.number == 0:
            writer.write(HELLO)

    async def main() -> None:
        async with talk(script, idle_s=0.3) as (server, pool):
            await ask(pool)
            with pytest.raises(TimeoutError, match=r"nothing came for 0\.3 s"):
                await ask(pool)
            assert len(server.requests) == 2

    run(main())


# ---- patience --------------------------------------------------------------------------------------------------------


def test_a_service_that_takes_no_connection_is_given_up() -> None:
    async def main() -> None:
        async with RawServer(saying(HELLO)) as server:  # speaks no TLS: the handshake never ends
            pool = Pool(f"https://127.0.0.1:{server.port}", connect_s=0.05, request_s=5, idle_s=5)
            with pytest.raises(TimeoutError, match="no connection yet"):
                await ask(pool)
            await server.no_connections()
            assert pool.connections == (0, 0)

    run(main())


def test_a_slow_reader_makes_the_service_wait() -> None:
    piece, total = b"x" * 65_536, 2000
    sent = 0
    stalled = asyncio.Event()

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(piece) * total))
        while sent < total:
            sent += 1
            writer.write(piece)
            waiting = asyncio.ensure_future(writer.drain())
            if not (await asyncio.wait([waiting], timeout=0.2))[0]:
                stalled.set()
            await waiting

    async def main() -> None:
        async with talk(script) as (_, pool):
            answer = await pool.post("/", {}, b"")
            await stalled.wait()
            assert sent < total / 2
            (connection,) = pool._busy
            assert connection._held < MOST_HELD_BYTES + 2 * 256 * 1024
            heard = 0
            while got := await answer.read():
                heard += len(got)
            answer.close()
            assert (heard, sent) == (len(piece) * total, total)
            assert pool.connections == (0, 1)

    run(main())


# ---- leaving ---------------------------------------------------------------------------------------------------------


def test_closing_the_pool_ends_answers_that_are_being_read() -> None:
    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO[:-5])

    async def main() -> None:
        async with talk(script) as (server, pool):
            reading = asyncio.ensure_future(ask(pool))
            await until(lambda: bool(server.requests))
            await pool.close()
            with pytest.raises((BadAnswer, Unanswered)):
                await reading
            await server.no_connections()

    run(main())


def test_an_answer_that_outlives_its_pool_keeps_no_connection() -> None:
    async def main() -> None:
        async with talk(saying(HELLO)) as (server, pool):
            asking = asyncio.ensure_future(ask(pool))
            await asyncio.sleep(0)  # it is being opened
            await pool.close()
            assert await asking == b"hello"
            assert pool.connections == (0, 0)
            await server.no_connections()

    run(main())


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_thousands_of_requests_leave_nothing_behind() -> None:
    """Whole, cut, hanging, misread and cancelled ones; then there is no descriptor, task or connection of them."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        how = request.body
        if how == b"cut":
            writer.write(HELLO[:-3])
            writer.close()
        elif how == b"close":
            writer.close()
        elif how == b"nonsense":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n")
        elif how == b"hang":
            writer.write(HELLO[:-3])
        elif how != b"silence":
            writer.write(HELLO)

    async def one(pool: Pool, number: int) -> str:
        how = (b"whole", b"cut", b"whole", b"close", b"nonsense", b"whole", b"hang", b"silence")[number % 8]
        try:
            async with asyncio.timeout(0.05 if how in (b"hang", b"silence") else 10):
                return (await ask(pool, how)).decode()
        except (BadAnswer, OSError) as error:
            return type(error).__name__

    async def main() -> None:
        async with talk(script, idle_s=30.0) as (server, pool):
            await one(pool, 0)
            before = descriptors()
            seen: dict[str, int] = {}
            for first in range(0, 3000, 100):
                for outcome in await asyncio.gather(*(one(pool, number) for number in range(first, first + 100))):
                    seen[outcome] = seen.get(outcome, 0) + 1
            assert seen == {"hello": 1125, "BadAnswer": 750, "Unanswered": 375, "TimeoutError": 750}
            assert pool.connections[0] == 0
            await pool.close()
            await server.no_connections()
            await until(lambda: descriptors() < before and len(asyncio.all_tasks()) == 1)
        gc.collect()
        assert not [found for found in gc.get_objects() if isinstance(found, Connection)]

    run(main())


# ---- TLS -------------------------------------------------------------------------------------------------------------


def test_authority() -> None:
    """The certificate of `tls/server.pem` is for `localhost`, by the authority of `tls/ca.pem`, from 2020 to 2120."""
    context = ssl.create_default_context(cafile=TLS / "ca.pem")
    (authority,) = context.get_ca_certs()
    assert authority["notAfter"] == "Jan  1 00:00:00 2120 GMT"


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=TLS / "ca.pem")


@asynccontextmanager
async def tls_server(names: list[str | None]) -> AsyncIterator[RawServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    context.sni_callback = lambda socket, name, context: names.append(name)
    async with RawServer(saying(HELLO), context) as server:
        yield server


def secure_pool(server: RawServer, host: str, tls: Callable[[], ssl.SSLContext], **settings: float) -> Pool:
    patience = {"connect_s": 5.0, "request_s": 5.0, "idle_s": 5.0, **settings}
    return Pool(f"https://{host}:{server.port}", tls=tls, **patience)  # type: ignore[arg-type]


def test_a_secure_connection_names_its_service_and_is_used_again() -> None:
    async def main() -> None:
        names: list[str | None] = []
        async with tls_server(names) as server:
            pool = secure_pool(server, "localhost", trusting)
            assert [await ask(pool, b"x" * 500_000), await ask(pool)] == [b"hello"] * 2
            assert names == ["localhost"]
            assert [request.connection for request in server.requests] == [0, 0]
            assert b"\r\nHost: localhost:%d\r\n" % server.port in server.requests[0].head
            await pool.close()
            await server.no_connections()

    run(main())


@pytest.mark.parametrize(
    ("host", "tls", "words"),
    [
        pytest.param("localhost", default_tls, "certificate verify failed", id="an authority nobody knows"),
        pytest.param("127.0.0.1", trusting, "IP address mismatch", id="another name"),
    ],
)
def test_a_service_that_cannot_prove_itself_is_told_nothing(
    host: str, tls: Callable[[], ssl.SSLContext], words: str
) -> None:
    async def main() -> None:
        async with tls_server([]) as server:
            pool = secure_pool(server, host, tls)
            with pytest.raises(ssl.SSLCertVerificationError, match=words):
                await ask(pool)
            assert server.requests == []
            await server.no_connections()

    run(main())


def test_a_secure_connection_that_is_dropped_leaves_nothing() -> None:
    async def main() -> None:
        async with tls_server([]) as server:
            pool = secure_pool(server, "localhost", trusting)
            answer = await pool.post("/", {}, b"")
            answer.close()
            await server.no_connections()
            await ask(pool)
            server.writers[1].transport.abort()
            await server.no_connections()
            assert await ask(pool) == b"hello"
            await pool.close()
            await server.no_connections()

    run(main())


def test_a_name_is_asked_for_once_however_many_connections_are_opened() -> None:
    async def main() -> None:
        async with RawServer(saying(HELLO)) as server:
            pool = Pool(f"http://localhost:{server.port}", connect_s=5, request_s=5, idle_s=5)
            asked: list[object] = []
            loop = asyncio.get_running_loop()
            getaddrinfo = loop.getaddrinfo

            async def counted(host: Any, *rest: Any, **more: Any) -> Any:
                asked.append(host)
                return await getaddrinfo(host, *rest, **more)

            loop.getaddrinfo = counted  # type: ignore[method-assign]
            assert await asyncio.gather(*(ask(pool) for _ in range(20))) == [b"hello"] * 20
            assert asked == ["localhost"]
            await pool.close()

    run(main())
