"""One connection in virtual time: how long it waits, and for whom."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fledge.models.connection import MOST_HELD_BYTES, Connection
from fledge.testing import run_virtual


class Wire(asyncio.Transport):
    """A transport that leads nowhere and remembers what it was told."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.told: list[str | bytes] = []
        connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told.append(bytes(data))

    def pause_reading(self) -> None:
        self.told.append("pause")

    def resume_reading(self) -> None:
        self.told.append("resume")

    def abort(self) -> None:
        self.told.append("abort")
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


def at_once(test: Callable[[Connection, Wire], Awaitable[None]], over_s: float = 100.0, idle_s: float = 10.0) -> None:
    """Run it with a connection on which a request was just sent, in time that passes when everybody waits."""

    async def main() -> None:
        connection = Connection()
        wire = Wire(connection)
        connection.send(b"request", asyncio.get_running_loop().time() + over_s, idle_s)
        assert wire.told.pop(0) == b"request"
        await test(connection, wire)

    run_virtual(main())


async def said(connection: Connection, every_s: float, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(every_s)
        connection.data_received(b"x")


def now() -> float:
    return asyncio.get_running_loop().time()


def test_silence_is_given_up_to_the_second() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        began = now()
        with pytest.raises(TimeoutError, match="nothing came for 10 s"):
            await connection.read()
        assert now() - began == pytest.approx(10)
        await connection.gone
        assert wire.told == ["abort"]

    at_once(test)


def test_silence_is_counted_from_the_last_byte() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        began = now()
        saying = asyncio.ensure_future(said(connection, 7, 3))
        assert [await connection.read() for _ in range(3)] == [b"x"] * 3
        with pytest.raises(TimeoutError, match="nothing came for 10 s"):
            await connection.read()
        assert now() - began == pytest.approx(31)
        await saying

    at_once(test)


def test_an_answer_that_trickles_is_not_silent_but_ends_in_time() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        began = now()
        saying = asyncio.ensure_future(said(connection, 1, 99))
        heard = [await connection.read() for _ in range(99)]
        assert heard == [b"x"] * 99
        with pytest.raises(TimeoutError, match="the whole answer took too long"):
            await connection.read()
        assert now() - began == pytest.approx(100)
        await saying

    at_once(test)


def test_who_does_not_listen_cannot_lose_patience() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        connection.data_received(b"a")
        await asyncio.sleep(45)
        assert await connection.read() == b"a"
        saying = asyncio.ensure_future(said(connection, 9, 1))
        assert await connection.read() == b"x"
        assert wire.told == []
        await saying

    at_once(test)


def test_what_has_come_is_read_before_the_trouble_that_followed_it() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        connection.data_received(b"a")
        connection.data_received(b"b")
        connection.connection_lost(ConnectionResetError("reset"))
        assert await connection.read() == b"ab"
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                await connection.read()

    at_once(test)


def test_the_end_of_a_closed_connection_is_read_as_nothing() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        reading = asyncio.ensure_future(connection.read())
        await asyncio.sleep(0)
        connection.connection_lost(None)
        assert [await reading, await connection.read()] == [b"", b""]
        assert not connection.fresh
        connection.close()

    at_once(test)


def test_too_much_unread_stops_the_flow_until_it_is_read() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        connection.data_received(b"x" * MOST_HELD_BYTES)
        assert wire.told == []
        connection.data_received(b"y")
        connection.data_received(b"z")
        assert wire.told == ["pause"]
        assert len(await connection.read()) == MOST_HELD_BYTES + 2
        assert wire.told == ["pause", "resume"]

    at_once(test)


@pytest.mark.parametrize(("over_s", "took_s"), [(100.0, 0.5), (0.2, 0.2)])
def test_in_a_hurry_there_is_no_more_time_than_there_was(over_s: float, took_s: float) -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        began = now()
        connection.hurry(0.5)
        with pytest.raises(TimeoutError):
            await connection.read()
        assert now() - began == pytest.approx(took_s)

    at_once(test, over_s)


def test_a_resting_connection_is_in_no_hurry() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        connection.rest()
        await asyncio.sleep(1000)
        assert wire.told == []

    at_once(test)


def test_a_reader_that_is_cancelled_loses_nothing_that_comes_later() -> None:
    async def test(connection: Connection, wire: Wire) -> None:
        reading = asyncio.ensure_future(connection.read())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        connection.data_received(b"later")
        assert await connection.read() == b"later"

    at_once(test)
