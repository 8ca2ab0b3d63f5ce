"""Feeds: several clients see the same, in order; who comes back with a cursor misses nothing and hears nothing twice;
who is slow loses only what passes; closing says where to go on."""

import asyncio
import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

import fledge
from fledge.commands.feed import (
    FAR_BEHIND,
    LIVE,
    PAGE,
    FeedClosing,
    FeedEvent,
    Live,
    NewEntry,
    RunHappened,
    Subscribe,
    Watch,
)
from fledge.commands.gateway_state import GatewayState
from fledge.commands.talk import Telling, watched
from fledge.errors import HolderLeft
from fledge.models.scripted import last_text
from fledge.runtime.feed import TurnEvent
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.gateway.serving import OverSocket, Server, opened_watch, serving
from tests.scale.test_live import Speaker
from tests.statements import proves

SO_FAR = "Once upon \N{BIRD} "


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "state") as server:
        yield server


class Stream:
    """A feed over HTTP, event by event."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> dict[str, Any]:
        """The next event, with the number it can be resumed from, if it has one."""
        number = None
        while True:
            line = self._response.readline()
            assert line, "the feed broke off"
            if line.startswith(b"id: "):
                number = int(line[4:])
            if line.startswith(b"data: "):
                return {"id": number, **msgspec.json.decode(line[6:])}

    def until(self, **wanted: object) -> list[dict[str, Any]]:
        """Events up to the first that has all of this."""
        seen = []
        while True:
            seen.append(self.next())
            if all(seen[-1].get(key) == value for key, value in wanted.items()):
                return seen


@contextmanager
def watching(server: Server, query: str = "", **headers: str) -> Iterator[Stream]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", f"/events{query}", headers={"authorization": f"Bearer {server.token}", **headers})
    response = connection.getresponse()
    try:
        assert response.status == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.readline().startswith(b": from ")
        yield Stream(response)
    finally:
        response.close()
        connection.close()


def numbered(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["sessionKey"], one["event"]) for one in events if one["type"] == "run"]


LIFE = ["Admitted", "Prepared", "Claimed", "AttemptEnded", "RowConsumed", "CleanedUp"]


@proves("4.gateway.13", "`events.subscribe`")
def test_several_clients_see_the_same_life_of_a_run_in_the_same_order(server: Server) -> None:
    client = server.client()
    with watching(server) as one, watching(server) as two, server.socket() as connection:
        three = OverSocket(connection)
        assert three.call("events.subscribe", live=False) == {"subscription": 1, "cursor": 0}
        spawned = client.call("runs.spawn", task="Say hello", label="child")
        key = spawned["childSessionKey"]
        seen = [feed.until(event="CleanedUp") for feed in (one, two)]
        assert numbered(seen[0]) == numbered(seen[1]) == [(key, event) for event in LIFE]
        over_socket: list[dict[str, Any]] = []
        while len(over_socket) < len(LIFE):
            over_socket.append(three.event())
        assert [(one["sessionKey"], one["event"]) for one in over_socket] == [(key, event) for event in LIFE]
        assert {one["subscription"] for one in over_socket} == {1}
        assert [one["cursor"] for one in over_socket] == [one["id"] for one in seen[0] if one["type"] == "run"]
        live = [one for one in seen[0] if one["type"] == "turn" and one["sessionKey"] == key]
        assert [one["kind"] for one in live] == ["start", "model:start", "assistant:text", "usage", "end"]
        first = next(one for one in seen[0] if one["type"] == "run")
        assert (first["label"], first["requester"], first["runId"]) == ("child", "agent:main:main", spawned["runId"])
        assert isinstance(first["at"], float | int)


@proves("4.gateway.13")
def test_who_comes_back_with_a_cursor_hears_all_that_was_missed_and_nothing_twice(server: Server) -> None:
    client = server.client()
    with watching(server) as feed:
        client.call("runs.spawn", task="Say hello")
        seen = feed.until(event="Prepared")
    client.call("sessions.wait", session="main")
    key = client.call("runs.spawn", task="Say more")["childSessionKey"]
    client.call("sessions.wait", session="main")
    last = seen[-1]["id"]
    for way in ({"query": f"?cursor={last}&live=false"}, {"query": "?live=false", "last-event-id": str(last)}):
        with watching(server, **way) as feed:
            rest = feed.until(event="CleanedUp", sessionKey=key)
        assert [event for _, event in numbered(seen + rest)] == LIFE * 2
        assert all(one["id"] > last for one in rest)
    everything = client.events(cursor=0)
    assert [next(everything)["event"] for _ in range(12)] == LIFE * 2


def first_row(server: Server, way: str, cursor: int) -> dict[str, Any]:
    """The first row of a feed from this cursor on; then the connection is cut."""
    if way == "http":
        with watching(server, f"?rows=true&live=false&cursor={cursor}") as feed:
            row = feed.next()
            assert row["id"] == row["cursor"]
            return row
    with server.socket() as connection:
        ask = OverSocket(connection)
        ask.call("events.subscribe", rows=True, live=False, cursor=cursor)
        row = ask.event()
        assert isinstance(row, dict)
        return row


@proves("4.rows.7", "A client that is cut off between two rows and resumes gets the rows that it has not seen")
@pytest.mark.parametrize("way", ["http", "socket"])
def test_a_client_cut_off_between_two_rows_gets_the_others_when_it_resumes(server: Server, way: str) -> None:
    client = server.client()
    for label in ("one", "two", "three"):
        client.call("runs.spawn", task="Say hello", label=label)
    client.call("sessions.wait", session="main")
    cursor, last = 0, client.call("runs.query")["feedCursor"]
    rows: dict[str, dict[str, Any]] = {}
    while cursor < last:
        event = first_row(server, way, cursor)
        assert cursor < event["cursor"] <= last
        rows[event["row"]["label"]], cursor = event["row"], event["cursor"]
    assert {label: row["phase"] for label, row in rows.items()} == dict.fromkeys(("one", "two", "three"), "completed")


def test_a_feed_can_be_of_one_session_and_what_is_below_it(server: Server) -> None:
    client = server.client()
    server.begin("agent:main:mine", "agent:main:other")
    with watching(server, "?session=mine&live=false") as feed:
        client.call("runs.spawn", requester="other", task="Say hello")
        key = client.call("runs.spawn", requester="mine", task="Say hello")["childSessionKey"]
        assert {session for session, _ in numbered(feed.until(event="CleanedUp"))} == {key}


def test_questions_to_a_person_are_told_as_they_come_and_go(tmp_path: Path) -> None:
    from tests.gateway.test_methods import SETTINGS, launch, script

    with (
        serving(tmp_path / "state", ScriptedModel(script), SETTINGS, tools=[launch]) as server,
        watching(server, "?live=false") as feed,
    ):
        client = server.client()
        (question,) = client.call("send", session="main", message="Launch")["questions"]
        assert feed.next()["open"] == [question["id"]]
        client.call("approvals.deny", id=question["id"], digest=question["digest"])
        assert feed.next()["open"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [("?cursor=-1", "cursor"), ("?cursor=x", "cursor"), ("?cursor=99999", "cursor"), ("?live=perhaps", "live"),
     ("?since=1", "since"), ("?session=a%20b", "session")],
)  # fmt: skip
def test_a_feed_that_makes_no_sense_is_refused_by_name(server: Server, query: str, field: str) -> None:
    with pytest.raises(fledge.Refused, match=f'400: .*"field":"{field}|400: .*{field}'):
        server.client().request("GET", f"/events{query}")
    until_no_watch(server)


@pytest.mark.parametrize(("method", "params"), [("events.subscribe", {}), ("events.unsubscribe", {"subscription": 1})])
def test_a_single_request_for_a_feed_is_refused_with_each_way_that_carries_feeds(
    server: Server, method: str, params: dict[str, Any]
) -> None:
    with pytest.raises(fledge.Refused, match=r"a WebSocket or the private socket; over HTTP: GET /events"):
        server.client().call(method, **params)


@proves("8.gateway.6")
def test_too_many_feeds_are_refused_and_one_that_ends_makes_room(tmp_path: Path) -> None:
    settings: dict[str, object] = {"gateway": {"port": 0, "maxSubscriptions": 2}}
    with serving(tmp_path / "state", settings=settings) as server:
        with watching(server), server.socket() as connection:
            ask = OverSocket(connection)
            ask.call("events.subscribe")
            with pytest.raises(fledge.Refused, match=r"maxSubscriptions"):
                ask.call("events.subscribe")
            with pytest.raises(fledge.Refused, match=r"429: .*maxSubscriptions"):
                server.client().request("GET", "/events")
            assert ask.call("events.unsubscribe", subscription=1) == {"ok": True}
            with pytest.raises(fledge.NotFound):
                ask.call("events.unsubscribe", subscription=1)
            assert ask.call("events.subscribe")["subscription"] == 2
        until_no_watch(server)


def until_no_watch(server: Server) -> None:
    """A connection that is gone is noticed by the gateway's own loop."""
    for _ in range(1000):
        if not server.desk.watches:
            return
        server.client().call("health")
    raise AssertionError("a feed of a client that is gone is still watched")


def test_a_client_that_is_killed_takes_nothing_along(server: Server) -> None:
    client = server.client()
    with watching(server) as stays:
        gone = socket.create_connection(("127.0.0.1", server.port))
        gone.sendall(
            f"GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {server.token}\r\n\r\n".encode()
        )
        assert gone.recv(100).startswith(b"HTTP/1.1 200")
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        gone.close()  # with a reset, as the kernel does for a process that is killed
        client.call("runs.spawn", task="Say hello")
        assert [event for _, event in numbered(stays.until(event="CleanedUp"))] == LIFE
        for _ in range(1000):
            if len(server.desk.watches) == 1:
                break
            client.call("health")
        assert len(server.desk.watches) == 1


def test_a_watcher_of_a_session_hears_runs_below_it_that_were_over_before_it_came(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello")
        await run
        async with opened_watch(fl, Subscribe(session=fl.program)) as watch:
            for session in (run.session_key, "agent:main:main"):
                fl._parts.agent.feed.emit(TurnEvent("assistant:text", session, "more"))
            assert await watch.next(1.0) == [Live(session_key=run.session_key, kind="assistant:text", text="more")]

    Place(tmp_path).act(body)


def test_a_slow_watcher_loses_the_oldest_of_what_passes_and_is_told_how_much(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        async with opened_watch(fl, Subscribe()) as watch:
            feed = fl._parts.agent.feed
            for number in range(LIVE + 5):
                feed.emit(TurnEvent("assistant:text", "agent:main:main", str(number)))
            lost, *rest = await watch.next(1.0)
            assert msgspec.to_builtins(lost) == {"type": "lost", "count": 5}
            assert len(rest) == LIVE
            assert await watch.next(1.0) == []
            run = await fl.spawn("Say hello")
            await run
            events: list[Any] = []
            while len(events) < len(LIFE):
                events += [one for one in await watch.next(1.0) if hasattr(one, "cursor")]
            assert [one.event for one in events] == LIFE

    Place(tmp_path).act(body)


def test_closing_ends_every_feed_with_the_cursor_to_go_on_from(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        server.client().call("runs.spawn", task="Say hello")
        server.client().call("sessions.wait", session="main")
        with watching(server, "?cursor=0") as feed, server.socket() as connection:
            seen = feed.until(event="CleanedUp")
            last = seen[-1]["id"]
            ask = OverSocket(connection)
            assert ask.call("events.subscribe")["cursor"] == last
            waiting = threading.Thread(target=lambda: waited.append(server.client().call("agent.wait", run=run_id)))
            run_id = server.client().call("agent", message="Wait for me")["runId"]
            waited: list[Any] = []
            before = server.desk.requests
            waiting.start()
            while server.desk.requests == before:
                os.sched_yield()
            server.loop.call_soon_threadsafe(server.desk.close)
            closing = feed.until(type="closing")[-1]
            assert closing == {"id": last, "type": "closing", "cursor": last, "reason": "the gateway closes"}
            told = ask.event()
            while told["type"] != "closing":
                told = ask.event()
            assert told["cursor"] == last
            assert ask.next()["method"] == "closing", "what was not answered by now was not done"
            with pytest.raises(ConnectionClosed) as closed:
                ask.next()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            waiting.join(30)
            assert waited[0]["status"] == "pending", "who waits is answered"
            with pytest.raises(HolderLeft, match="takes no requests now: the gateway is closing") as refused:
                server.client().call("health")
            assert not refused.value.acted


def test_words_of_an_answer_are_told_as_they_come(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: f"echo: {last_text(request)}", piece_chars=4)
    with serving(tmp_path / "state", model) as server, watching(server, "?session=main") as feed:
        server.client().call("send", session="main", message="Hello there")
        told = feed.until(type="turn", kind="end")
        assert [one["text"] for one in told if one.get("kind") == "assistant:text"] == [
            "echo",
            ": He",
            "llo ",
            "ther",
            "e",
        ]


@proves(
    "7.live.7",
    "A client that comes in the middle of a reply gets its text so far first: nothing is missing and nothing doubled",
)
def test_every_feed_that_begins_in_the_middle_of_a_reply_begins_with_its_text_so_far(tmp_path: Path) -> None:
    speaker = Speaker()

    def texts(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
        return [(one["text"], one.get("offset", 0)) for one in events if one.get("kind") == "assistant:text"]

    with serving(tmp_path / "state", speaker) as server, watching(server) as early:
        client = server.client()

        def say(text: str | None) -> None:
            server.loop.call_soon_threadsafe(lambda: speaker.pieces.put_nowait(text))

        client.call("agent", session="main", message="Tell me a story")
        say("Once ")
        say("upon \N{BIRD} ")
        begun = texts(early.until(kind="assistant:text", text="upon \N{BIRD} "))
        shown = client.call("events.watch", session="main")["soFar"]
        assert (shown["kind"], shown["text"], shown["sessionKey"]) == ("assistant:text", SO_FAR, "agent:main:main")
        assert client.call("events.watch", session="other")["soFar"] is None
        with watching(server, "?session=main") as one, watching(server) as of_all, server.socket() as connection:
            over = OverSocket(connection)
            over.call("events.subscribe", session="main")
            say("a time")
            say(None)
            assert begun + texts(early.until(kind="end")) == [("Once ", 0), ("upon \N{BIRD} ", 5), ("a time", 12)]
            for feed in (one, of_all):
                assert texts(feed.until(kind="end")) == [(SO_FAR, 0), ("a time", 12)]
            told = [over.event()]
            while told[-1].get("kind") != "end":
                told.append(over.event())
            assert texts(told) == [(SO_FAR, 0), ("a time", 12)]
        assert client.call("events.watch", session="main")["soFar"] is None, "the reply is an entry now"


@proves(
    "7.live.9", "Feeds that are far behind take turns and rest after each page; present events do not wait for them"
)
def test_feeds_that_are_far_behind_take_turns_and_others_do_not_wait_for_them(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        while await fl.engine.store.read(lambda tx: tx.events.last()) <= FAR_BEHIND:
            await asyncio.gather(*[await fl.spawn("Say hello") for _ in range(5)])
        gateway = GatewayState(fl)
        far, other, near = [await watched(gateway, Subscribe(cursor=cursor)) for cursor in (0, 0, None)]
        order: list[str] = []

        async def read(watch: Watch, name: str) -> None:
            async with gateway.slice_for(watch):
                order.append(f"{name} begins")
                await watch.take()
                order.append(f"{name} ends")

        await asyncio.gather(read(far, "far"), read(other, "other"))
        assert order == ["far begins", "far ends", "other begins", "other ends"]
        async with gateway.slice_for(far):
            await asyncio.wait_for(read(near, "near"), 5)
        while far.is_far_behind:
            await far.take()
        async with gateway.slice_for(other):
            await asyncio.wait_for(read(far, "far"), 5)
        for watch in (far, other, near):
            gateway.unsubscribe(watch)

    Place(tmp_path).act(body)


def test_entries_of_any_session_that_fill_more_than_a_page_are_all_sent(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        async with opened_watch(fl, Subscribe(entries=True)) as watch:
            await fl.session("main").send("hello")
            sent = [one.entry.seq for one in await watch.take() if isinstance(one, NewEntry)]
            for number in range(PAGE):  # each has a message and a reply
                await fl.session("main").send(str(number))
            while entries := [one.entry.seq for one in await watch.next(1.0) if isinstance(one, NewEntry)]:
                sent += entries
            assert sent == [*range(1, 2 * PAGE + 3)]

    Place(tmp_path).act(body)


def test_a_feed_that_is_far_behind_ends_after_a_page_with_the_cursor_to_continue_from(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        while await fl.engine.store.read(lambda tx: tx.events.last()) <= 2 * PAGE:
            await (await fl.spawn("Say hello"))
        gateway = GatewayState(fl)
        sent: list[FeedEvent] = []

        async def send(event: FeedEvent) -> None:
            sent.append(event)

        feed = Telling(gateway, await watched(gateway, Subscribe(cursor=0)), send, lambda event: event)
        gateway.close()
        feed.announced.set()
        await feed.task
        *events, closing = sent
        assert [one.cursor for one in events if isinstance(one, RunHappened)] == [*range(1, PAGE + 1)]
        assert isinstance(closing, FeedClosing)
        assert closing.cursor == PAGE

    Place(tmp_path).act(body)
