"""One connection carries requests side by side and feeds, at the private socket and at the gateway alike."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

import fledge
from fledge.client.connection import (
    LARGE_BYTES,
    PROBE_S,
    ClientPipe,
    Connection,
    ControlSocket,
    Gateway,
    VerbServer,
    connect,
    find,
)
from fledge.client.folder import Elsewhere
from fledge.commands.feed import PAGE
from fledge.commands.gateway_state import Patience
from fledge.errors import BadInput, HolderLeft, Refused
from fledge.store.ways import CONTROL_SOCKET
from fledge.testing import run_virtual
from tests.gateway.serving import PATIENCE_S, Server, serving
from tests.statements import proves

T = TypeVar("T")
WAYS = ("socket", "gateway")
MANY = 70
"""Runs whose events fill more than two pages of a feed."""


def place_of(server: Server, way: str) -> VerbServer:
    return ControlSocket(server.state) if way == "socket" else Gateway(server.address, server.token)


@asynccontextmanager
async def connected(place: VerbServer) -> AsyncIterator[Connection]:
    connection = await connect(place)
    try:
        yield connection
    finally:
        await connection.close()


def talking(server: Server, way: str, body: Callable[[Connection], Awaitable[T]]) -> T:
    """Do something on one connection."""

    async def main() -> T:
        async with connected(place_of(server, way)) as connection:
            return await body(connection)

    return asyncio.run(main())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("talk") / "state") as one:
        yield one


@pytest.mark.parametrize("way", WAYS)
def test_a_short_request_is_answered_while_long_ones_wait(server: Server, way: str) -> None:
    async def body(connection: Connection) -> None:
        run = await connection.call("runs.spawn", {"task": "Wait for me", "label": f"slow {way}"})
        waits = [
            asyncio.ensure_future(connection.call("runs.result", {"run": run["runId"], "timeoutMs": 600_000}))
            for _ in range(200)
        ]
        for number in range(50):
            assert (await connection.call("sessions.list", {"limit": number + 1}))[0]["key"]
        assert not any(one.done() for one in waits)
        await connection.call("runs.kill", {"target": run["runId"]})
        assert {(await one)["endedReason"] for one in waits} == {"killed"}

    talking(server, way, body)


@pytest.mark.parametrize("way", WAYS)
def test_a_large_request_is_carried_out_and_a_larger_one_refused_by_its_size(server: Server, way: str) -> None:
    async def body(connection: Connection) -> None:
        long = "long " * LARGE_BYTES
        said = await connection.call(
            "send", {"session": f"agent:main:large-{way}", "message": long, "timeoutSeconds": 60}
        )
        assert len(said["text"]) > LARGE_BYTES
        other = asyncio.ensure_future(connection.call("sessions.wait", {"timeoutMs": 10_000}))
        too_long = "x" * (server.desk.limits.max_body_kb * 1024)
        with pytest.raises(Refused, match="maxBodyKb"):
            await connection.call("agent", {"message": too_long})
        assert "settled" in await other
        assert connection.is_open

    talking(server, way, body)


@pytest.mark.parametrize("way", WAYS)
def test_a_feed_tells_what_happens_and_ends_with_its_reader(server: Server, way: str) -> None:
    async def body(connection: Connection) -> list[dict[str, Any]]:
        feed = connection.events(session=f"agent:main:feed-{way}")
        heard = [await anext(feed)]
        await connection.call("agent", {"session": f"agent:main:feed-{way}", "message": "hello"})
        async for event in feed:
            heard.append(event)
            if event["type"] == "turn" and event["kind"] == "end":
                break
        await feed.aclose()
        return heard

    first, *heard = talking(server, way, body)
    assert first["type"] == "from"
    assert [one["kind"] for one in heard if one["type"] == "turn"] == [
        *("start", "model:start", "assistant:text", "usage", "end"),
    ]
    assert {one["sessionKey"] for one in heard} == {f"agent:main:feed-{way}"}
    assert not server.desk.watches


@pytest.mark.parametrize("way", WAYS)
def test_a_process_that_leaves_answers_what_it_has_read_and_tells_where_feeds_go_on(tmp_path: Path, way: str) -> None:
    async def main() -> tuple[Any, list[dict[str, Any]], Connection]:
        with serving(tmp_path / "state") as server:
            connection = await connect(place_of(server, way))
            run = await connection.call("runs.spawn", {"task": "Wait for me"})
            wait = asyncio.ensure_future(connection.call("runs.result", {"run": run["runId"], "timeoutMs": 600_000}))
            feed = connection.events(cursor=0)
            heard = [await anext(feed), await anext(feed)]
            await asyncio.to_thread(lambda: server.loop.call_soon_threadsafe(server.desk.close))
            heard += [event async for event in feed]
            return await wait, heard, connection

    async def checked() -> None:
        answer, heard, connection = await main()
        assert answer["status"] == "pending"
        assert heard[0] == {"type": "from", "cursor": 0}
        assert heard[-1]["type"] == "closing"
        assert heard[-1]["cursor"] >= heard[1]["cursor"]
        await connection.ended()
        with pytest.raises(HolderLeft) as left:
            await connection.call("health", {})
        assert not left.value.acted

    asyncio.run(checked())


class Mute:
    """A process that takes connections and answers nothing before it ends them."""

    def __init__(self, words: bytes = b"") -> None:
        self._words = words

    @asynccontextmanager
    async def at(self, state: Path) -> AsyncIterator[None]:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(self._words)
            writer.close()

        server = await asyncio.start_unix_server(take, str(state / CONTROL_SOCKET))
        try:
            yield
        finally:
            server.close()


@pytest.mark.parametrize(
    ("words", "acted"),
    [(b"", True), (b"no json\n", True), (b"[1]\n", True), (b'{"method":"closing"}\n', False), (b'{"id":1', True)],
)
def test_whether_a_request_may_have_been_carried_out_is_told(tmp_path: Path, words: bytes, acted: bool) -> None:
    async def main() -> HolderLeft:
        async with Mute(words).at(tmp_path), connected(ControlSocket(tmp_path)) as connection:
            with pytest.raises(HolderLeft) as left:
                await connection.call("health", {})
            return left.value

    assert asyncio.run(main()).acted == acted


@pytest.mark.parametrize(
    ("address", "token"),
    [
        ("", "t"),
        ("ftp://here", "t"),
        ("http://", "t"),
        ("http://[1", "t"),
        ("http://here/?a=b", "t"),
        ("http://here", ""),
        ("http://here", "t\nx"),
    ],
)
def test_an_address_or_token_that_cannot_be_right_is_refused(address: str, token: str) -> None:
    with pytest.raises(BadInput):
        Gateway(address, token)


def test_a_gateway_says_why_it_lets_nobody_in(server: Server) -> None:
    async def refused(address: str, token: str) -> str:
        with pytest.raises((Refused, HolderLeft)) as error:
            await connect(Gateway(address, token))
        return str(error.value)

    async def main() -> None:
        assert "401: the token is not its token" in await refused(server.address, "wrong")
        assert "403: it is not a fledge gateway" in await refused(f"{server.address}/nowhere", server.token)
        assert "does not answer" in await refused("http://127.0.0.1:9", server.token)

    asyncio.run(main())


def test_what_a_dead_process_left_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": 1, "host": "h", "command": "c", "since_at": 1.0, "address": "hatch"}')
    assert asyncio.run(find(tmp_path)) is None


def test_a_client_of_a_gateway_says_that_it_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        place = Gateway(server.address, server.token)

    async def main() -> None:
        async with Elsewhere(place, patience_s=0.2) as client:
            with pytest.raises(fledge.StoreError, match="does not answer"):
                await client.call("health")

    asyncio.run(main())


def test_a_connection_that_is_made_while_its_client_closes_is_closed(server: Server) -> None:
    reaching, goes_on = asyncio.Event(), asyncio.Event()

    class Late(ControlSocket):
        async def reach(self) -> ClientPipe:
            reaching.set()
            await goes_on.wait()
            return await super().reach()

    async def main() -> None:
        client = Elsewhere(Late(server.state))
        asking = asyncio.ensure_future(client.call("health"))
        await reaching.wait()
        await client.close()
        goes_on.set()
        with pytest.raises(Refused, match="closed before the answer came"):
            await asking
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


# ---- a feed with many events behind its cursor -----------------------------------------------------------------------


class Blocked:
    """A place, and a connection to it, whose process answers nothing while it is blocked."""

    left = "gone"
    silence = "process 7 is stopped"

    def __init__(self) -> None:
        self.told: list[str] = []
        self.on_silence: Callable[[str], None] = self.told.append
        self.is_blocked = True
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def alone(self, number: int, request: bytes, wait_s: float) -> dict[str, Any]:
        raise AssertionError

    async def reach(self) -> "Blocked":
        return self

    async def send(self, message: bytes) -> None:
        """Answer probes and short requests at once, unless blocked."""
        asked = msgspec.json.decode(message)
        if not self.is_blocked and asked["method"] != "long":
            self._answers.put_nowait(msgspec.json.encode({"jsonrpc": "2.0", "id": asked["id"], "result": 1}))

    async def receive(self) -> bytes:
        return await self._answers.get()

    async def close(self) -> None:
        """Nothing is open."""


@proves("4.tools.59")
def test_a_process_that_answers_nothing_is_told_once_and_one_that_works_long_is_not() -> None:
    async def body() -> None:
        place = Blocked()
        place.is_blocked = False
        async with connected(place) as connection:
            waiting = asyncio.ensure_future(connection.call("long", {"timeoutSeconds": 1000}))
            await asyncio.sleep(100)
            assert place.told == [], "it answers probes"
            place.is_blocked = True
            await asyncio.sleep(4 * PROBE_S)
            assert place.told == [place.silence]
            await asyncio.sleep(20)
            assert place.told == [place.silence], "it is told once"
            place.is_blocked = False
            await asyncio.sleep(4 * PROBE_S)
            place.is_blocked = True
            await asyncio.sleep(4 * PROBE_S)
            assert place.told == [place.silence] * 2, "it was at work in between"
            waiting.cancel()

    run_virtual(body())


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with more than two pages of events. A feed that waits for news waits for an hour."""
    with serving(tmp_path_factory.mktemp("busy") / "state", patience=Patience(quiet_s=3600.0)) as server:

        async def work() -> None:
            for _ in range(MANY):
                await (await server.desk.fl.spawn("Say hello", label="before"))

        server.do(work())
        run = server.client().call("runs.spawn", task="Say hello", label="last")
        server.client().call("sessions.wait", session="main")
        assert run["status"] == "accepted"
        yield server


class RawPipe:
    """Messages as they come on one connection."""

    def __init__(self, pipe: ClientPipe) -> None:
        self._pipe = pipe

    async def ask(self, number: int, method: str, **params: object) -> list[dict[str, Any]]:
        """Call a method; returns the events that come before its answer."""
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        events = []
        while (message := await self.next()).get("id") != number:
            events.append(message["params"])
        assert "result" in message, message
        return events

    async def send(self, *requests: dict[str, object]) -> None:
        """Send a request, or several as a batch."""
        await self._pipe.send(msgspec.json.encode(requests[0] if len(requests) == 1 else requests))

    async def next(self) -> Any:
        """The next message."""
        async with asyncio.timeout(PATIENCE_S):
            raw = await self._pipe.receive()
        assert raw is not None
        return msgspec.json.decode(raw)


def on_pipe(server: Server, way: str, body: Callable[[RawPipe], Awaitable[T]]) -> T:
    """Do something with the messages of one connection."""

    async def main() -> T:
        pipe = await place_of(server, way).reach()
        try:
            return await body(RawPipe(pipe))
        finally:
            await pipe.close()

    return asyncio.run(main())


@pytest.mark.parametrize("way", WAYS)
def test_a_feed_sends_every_event_behind_its_cursor_without_a_pause(busy: Server, way: str) -> None:
    last = busy.client().call("runs.query")["feedCursor"]
    assert last > 2 * PAGE

    async def body(pipe: RawPipe) -> None:
        assert await pipe.ask(1, "events.subscribe", cursor=0, live=False) == []
        assert [(await pipe.next())["params"]["cursor"] for _ in range(last)] == [*range(1, last + 1)]

    on_pipe(busy, way, body)


@pytest.mark.parametrize("way", [*WAYS, "http"])
def test_a_feed_of_a_session_passes_over_pages_of_other_events_without_a_pause(busy: Server, way: str) -> None:
    async def body(pipe: RawPipe) -> str:
        await pipe.ask(1, "events.subscribe", cursor=0, live=False, session="main")
        label: str = (await pipe.next())["params"]["label"]
        return label

    if way == "http":
        assert next(busy.client().events(cursor=0, session="main"))["label"] == "last"
    else:
        assert on_pipe(busy, way, body) == "last"


@proves("4.gateway.42", "All events that precede an answer are sent before it on the same connection")
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_comes_after_all_events_that_precede_it(busy: Server, way: str) -> None:
    last = busy.client().call("runs.query")["feedCursor"]

    async def body(pipe: RawPipe) -> None:
        await pipe.ask(1, "events.subscribe", cursor=0, live=False)
        assert [one["cursor"] for one in await pipe.ask(2, "health")] == [*range(1, last + 1)]

    on_pipe(busy, way, body)


@proves("4.gateway.43", "No event of a feed comes before the answer that has the number of its subscription")
@pytest.mark.parametrize("way", WAYS)
def test_a_feed_begins_after_the_answer_that_names_it_whatever_else_is_answered(server: Server, way: str) -> None:
    async def body(pipe: RawPipe) -> None:
        client = server.client()
        run = await asyncio.to_thread(client.call, "runs.spawn", task="Wait for me", label=f"batched {way}")
        wait = {"run": run["runId"], "timeoutMs": 600_000}
        before = len(server.desk.watches)
        await pipe.send(
            {"jsonrpc": "2.0", "id": 1, "method": "events.subscribe", "params": {"cursor": 0, "live": False}},
            {"jsonrpc": "2.0", "id": 2, "method": "runs.result", "params": wait},
        )
        number = 3
        while len(server.desk.watches) == before:
            assert await pipe.ask(number, "health") == []
            number += 1
        for _ in range(5):  # the feed has begun; the answer to its batch waits for the run
            assert await pipe.ask(number, "health") == []
            number += 1
        await asyncio.to_thread(client.call, "runs.kill", target=run["childSessionKey"])
        subscribed, ended = await pipe.next()
        assert (subscribed["id"], ended["id"]) == (1, 2)
        event = (await pipe.next())["params"]
        assert (event["subscription"], event["cursor"]) == (subscribed["result"]["subscription"], 1)

    on_pipe(server, way, body)
